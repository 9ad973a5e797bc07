"""Watches over the client's stream threads: asks what to do when one fails, and does what was decided.

Three steps, on the failing thread: handler.py asks the user, supervision.py decides (pure), `_perform`
acts. The client's own threads are added and removed here too, because that must not happen in the middle of
such a
decision: it depends on how many threads live.

`deciding` is held while a decision is made and performed; nobody waits in it, and nothing of the user's is
called.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from millstream.clock import Clock
from millstream.foreign import ESCAPED
from millstream.machine import Machine
from millstream.runtime.crew import Crew
from millstream.runtime.handler import FailureContext, Handler, Hook, ask, call_hook
from millstream.runtime.history import FailureHistory, FailureRecord, Retry, in_a_row, plan_retry
from millstream.runtime.participation import Participation
from millstream.runtime.policies import Budget
from millstream.runtime.roster import Roster
from millstream.runtime.states import State
from millstream.runtime.supervision import (
    Action,
    CallHook,
    CloseToError,
    EndThread,
    Exhausted,
    Failure,
    Log,
    LogFailure,
    ReplaceThread,
    Response,
    ShutdownApplication,
    View,
    decide,
)
from millstream.runtime.thread import StreamThread

__all__ = ["Supervisor"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)


class Supervisor:
    """One client's.

    Args:
        machine: the client's state.
        close_to_error: closes the client, in the background.

    Attributes:
        handler, hook: the user's; set before the client starts.
        history: what has failed.
    """

    def __init__(
        self,
        client_id: str,
        machine: Machine[State],
        crew: Crew,
        roster: Roster,
        participation: Participation,
        *,
        budget: Budget,
        clock: Clock,
        close_to_error: Callable[[Failure], None],
    ) -> None:
        self._client_id = client_id
        self._machine = machine
        self._crew = crew
        self._roster = roster
        self._participation = participation
        self._budget = budget
        self._clock = clock
        self._close_to_error = close_to_error
        self._excused: set[StreamThread] = set()  # not names, which are used again
        self.deciding = threading.RLock()
        self.handler: Handler | None = None
        self.hook: Hook | None = None
        self.history = FailureHistory()

    # --- failures ----------------------------------------------------------------------------------------

    def failed(self, failure: Failure, thread: StreamThread | None) -> None:
        """Decide about a failure, and act. On the failing thread, which still holds everything.

        Args:
            thread: None: the global one.
        """
        now, previous = self.now(), self.history.records()
        context = FailureContext.of(
            failure,
            client_id=self._client_id,
            client_state=self._machine.state,
            attempt=len(in_a_row(previous, failure, self._budget.window, now)) + 1,
            previous=previous,
        )
        answer = ask(self.handler, failure, context, self.hook)
        with self._machine.deferring(), self.deciding:
            previous = self.history.records()  # another thread may have failed meanwhile
            plan = plan_retry(previous, failure, answer.budget or self._budget, self.now(), random.random)
            view = View(self._machine.state, len(self._crew.live), self._participation.is_member)
            if thread is not None and thread in self._excused and view.state.is_running_or_rebalancing:
                # It was removed, and failed on its way out: nothing is left to decide.
                actions: tuple[Action, ...] = (
                    LogFailure(f"thread '{thread.name}' failed while it was being removed"),
                )
            else:
                actions = decide(answer, failure, view, plan)
            self.history.add(self._record(failure, actions, answer.response, plan))
            for action in actions:
                self._perform(action, failure, thread)
        if EndThread() in actions:
            self._participation.rejoin("a stream thread ended")  # the client has room for less
        if self.hook is not None and CallHook() in actions:
            call_hook(self.hook, failure.error, threading.current_thread())

    def _perform(self, action: Action, failure: Failure, thread: StreamThread | None) -> None:
        match action:
            case Log(level, message):
                log.log(level, "%s %s", self._machine.owner, message)
            case LogFailure(message):
                log.error("%s %s", self._machine.owner, message, exc_info=failure.error)
            case ReplaceThread(delay_s):
                assert thread is not None, "the global thread is never replaced"
                self._replace(thread, failure.pipeline, delay_s)
            case EndThread():
                assert thread is not None, "the global thread never ends alone"
                self._ends(thread)
                self._crew.retire(thread)
            case CallHook():
                pass  # by `failed`, when the lock is free
            case ShutdownApplication(reason):
                self._participation.request_shutdown(reason)
            case CloseToError():
                self._close_to_error(failure)

    def _replace(self, thread: StreamThread, pipeline: str | None, delay_s: float) -> None:
        """Another thread takes over what this one has, as soon as it has let go: no round of the group."""
        self._ends(thread)
        if pipeline is not None and delay_s > 0:
            # The pipeline waits; stores go on following their changelogs meanwhile.
            self._roster.hold_back({pipeline: self._clock.now() + delay_s})
        heir = self._crew.add(instead_of=thread, delay_s=0.0 if pipeline is not None else delay_s)
        self._crew.retire(thread)
        heir.start()

    def _ends(self, thread: StreamThread) -> None:
        self._machine.to(State.REBALANCING, only_from=(State.RUNNING,))
        self._excused.add(thread)
        thread.ending()

    def _record(
        self, failure: Failure, actions: tuple[Action, ...], asked: Response, plan: Retry | Exhausted
    ) -> FailureRecord:
        """What is remembered: what was done, which may not be what was asked for."""
        now = self.now()
        attempt, most = (plan.attempt, plan.most) if isinstance(plan, Retry) else (plan.failures, None)
        for action in actions:
            match action:
                case ReplaceThread(delay_s):
                    later = now + timedelta(seconds=delay_s)
                    return FailureRecord.of(
                        failure, now, Response.REPLACE_THREAD, attempt=attempt, next_try=later, most=most
                    )
                case EndThread():
                    return FailureRecord.of(failure, now, Response.SHUTDOWN_THREAD, attempt=attempt)
                case ShutdownApplication():
                    return FailureRecord.of(failure, now, Response.SHUTDOWN_APPLICATION, attempt=attempt)
                case CloseToError():
                    return FailureRecord.of(failure, now, Response.SHUTDOWN_CLIENT, attempt=attempt)
                case _:
                    pass
        return FailureRecord.of(failure, now, asked, attempt=attempt)

    # --- adding and removing (KIP-663) -------------------------------------------------------------------

    def add_thread(self) -> str | None:
        """A new thread's name; None: the client does not run."""
        with self._machine.deferring(), self.deciding:
            if not self._may_change("add"):
                return None
            self._machine.to(State.REBALANCING, only_from=(State.RUNNING,))
            thread = self._crew.add()
            thread.start()
            self._roster.share_out()
            log.info(
                "%s Adding %s, there will now be %d live threads",
                self._machine.owner,
                thread.name.removeprefix(f"{self._client_id}-"),
                len(self._crew.live),
            )
        self._participation.rejoin("a stream thread was added")
        return thread.name

    def remove_thread(self) -> StreamThread | None:
        """Tell one thread to end; not the one that asks, unless it is the last one. None: there is none."""
        with self._machine.deferring(), self.deciding:
            if not self._may_change("remove"):
                return None
            live = self._crew.live
            thread = next((each for each in live if not each.is_current()), live[0] if live else None)
            if thread is None:
                log.warning("%s There are no threads eligible for removal", self._machine.owner)
                return None
            log.info("%s Removing %s", self._machine.owner, thread.name)
            self._machine.to(State.REBALANCING, only_from=(State.RUNNING,))
            self._excused.add(thread)
            thread.stop()
            thread.ending()  # so that nobody else who removes a thread meanwhile takes it for a live one
            self._crew.retire(thread)
        self._participation.rejoin("a stream thread was removed")
        return thread

    def stop_all(self) -> None:
        """The client closes: tell every thread to end, those included that are just being added."""
        with self.deciding:
            self._excused.update(self._crew.threads)
            self._crew.stop()

    def excuses(self, thread: StreamThread) -> bool:
        """Whether it was decided that this thread, which has ended, ends. Asked once for each."""
        with self.deciding:
            excused = thread in self._excused
            self._excused.discard(thread)
            return excused

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC)

    def _may_change(self, what: str) -> bool:
        if self._machine.state.is_running_or_rebalancing:
            return True
        log.warning(
            "%s Cannot %s a stream thread when Kafka Streams client is in state %s",
            self._machine.owner,
            what,
            self._machine.state,
        )
        return False
