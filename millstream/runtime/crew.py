"""The client's stream threads as a body: made, added, replaced, removed, and ended.

Who does what among them is roster.py's; what happens when one fails is decided in supervision.py and
performed by client.py, which asks for it here. A thread is in `threads` from its making until it is DEAD.
"""

from __future__ import annotations

import copy
import itertools
import logging
import threading
from collections.abc import Callable

from millstream.clock import Clock
from millstream.errors import StreamsException
from millstream.model import LagInfo, ThreadMetadata, TopicPartition
from millstream.runtime.assignment import Share
from millstream.runtime.roster import Roster, next_index
from millstream.runtime.states import ThreadState
from millstream.runtime.thread import StreamThread, Supplies

__all__ = ["Crew"]

log = logging.getLogger(__name__)


class Crew:
    """Makes threads called `<client id>-StreamThread-<n>` and keeps count of them.

    Args:
        on_failure, on_state, at_change: see StreamThread; called on its threads.
    """

    def __init__(
        self,
        client_id: str,
        supplies: Supplies,
        roster: Roster,
        *,
        clock: Clock,
        on_failure: Callable[[StreamThread, StreamsException], None],
        on_state: Callable[[StreamThread, ThreadState], None],
        at_change: Callable[[object, object], None],
    ) -> None:
        self._client_id = client_id
        self._supplies = supplies
        self._roster = roster
        self._clock = clock
        self._on_failure = on_failure
        self._on_state = on_state
        self._at_change = at_change
        self._lock = threading.Lock()
        self._gone = threading.Condition(self._lock)
        self._threads: tuple[StreamThread, ...] = ()
        self._lines = itertools.count(1)
        self._paused = False

    @property
    def threads(self) -> tuple[StreamThread, ...]:
        """Those that are not DEAD, in the order of their making."""
        return self._threads

    @property
    def live(self) -> tuple[StreamThread, ...]:
        """Those that are neither DEAD nor on their way there."""
        ending = (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)
        return tuple(thread for thread in self._threads if thread.state not in ending)

    def add(self, *, instead_of: StreamThread | None = None, delay_s: float = 0.0) -> StreamThread:
        """A new thread, CREATED. It gets what `instead_of` had, when that one has let go of it."""
        with self._lock:
            names = [thread.name for thread in self._threads]
            thread = StreamThread(
                f"{self._client_id}-StreamThread-{next_index(names)}",
                self._supplies,
                clock=self._clock,
                on_failure=self._on_failure,
                on_state=self._changed,
                at_change=self._at_change,
                not_before=self._clock.now() + delay_s if delay_s > 0 else float("-inf"),
                paused=self._paused,
                line=instead_of.line if instead_of is not None else next(self._lines),
            )
            self._threads = (*self._threads, thread)
            self._roster.add(thread, instead_of=instead_of.name if instead_of is not None else None)
        return thread

    def retire(self, thread: StreamThread) -> None:
        """The thread is not to be given anything any more."""
        self._roster.retire(thread.name)

    def fail(self, error: StreamsException, concerned: Callable[[Share], bool] = lambda share: True) -> None:
        """Every live thread whose share is concerned fails with this, each with a copy of its own."""
        for thread in self.live:
            if concerned(thread.share):
                thread.fail(copy.copy(error))

    def lose(self) -> None:
        """The group has lost this client."""
        self._roster.unassign()

    def pause(self, paused: bool) -> None:
        """Stop all queries, or let them run again."""
        with self._lock:
            self._paused = paused
            threads = self._threads
        for thread in threads:
            thread.pause(paused)

    @property
    def is_paused(self) -> bool:
        """Whether `pause` was the last word."""
        return self._paused

    def stop(self) -> None:
        """Ask all to end, at once; they let go of queries and stores side by side."""
        for thread in self._threads:
            thread.stop()

    def join(self, timeout_s: float) -> None:
        """Wait until all have ended. Those that have not by then are named in the log."""
        deadline = self._clock.now() + timeout_s
        for thread in self._threads:
            if not thread.is_current() and not thread.join(max(0.0, deadline - self._clock.now())):
                log.warning(
                    "thread '%s' has not ended in %.0f s; its engine is closed", thread.name, timeout_s
                )

    def wait_until_gone(self, thread: StreamThread, timeout_s: float | None) -> bool:
        """Wait until a thread is DEAD and its name is free; whether it is. None waits as long as it takes."""
        with self._gone:
            return self._gone.wait_for(lambda: thread not in self._threads, timeout_s)

    def is_current(self) -> bool:
        """Whether the caller runs on one of them."""
        return any(thread.is_current() for thread in self._threads)

    def metadata(self) -> tuple[ThreadMetadata, ...]:
        """What each owns and how far that is."""
        return tuple(thread.metadata() for thread in self._threads if thread.state is not ThreadState.DEAD)

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """How far each changelog partition is that a thread follows."""
        return {partition: lag for thread in self._threads for partition, lag in thread.lags().items()}

    def _changed(self, thread: StreamThread, new: ThreadState) -> None:
        if new is ThreadState.DEAD:
            # In this order: once it is not among the threads, another one may have its name.
            self._roster.gone(thread.name)
            with self._gone:
                self._threads = tuple(each for each in self._threads if each is not thread)
                self._gone.notify_all()
        self._on_state(thread, new)
