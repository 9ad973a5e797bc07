"""Asks what to do about a failed thread, on that thread, and has the client react to the answer.

handler.py asks the user, supervision.py decides (pure), reactions.py makes the next state from it. The thread
still holds everything meanwhile, and no lock is held: the handler may call the client.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime

from millstream.clock import Clock
from millstream.runtime.owner import Owner
from millstream.runtime.state.events import Answered, CallHook
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.history import in_a_row
from millstream.runtime.threads.handler import FailureContext, Handler, Hook, ask, call_hook

__all__ = ["Supervisor"]


class Supervisor:
    """The supervisor of one client.

    Attributes:
        handler, hook: the user's; set before the client starts.
    """

    def __init__(self, owner: Owner, clock: Clock) -> None:
        self._owner = owner
        self._clock = clock
        self.handler: Handler | None = None
        self.hook: Hook | None = None

    def failed(self, failure: Failure, thread: str | None) -> None:
        """Call the handler, and have the client react. Runs on the failing thread.

        Args:
            thread: the thread's name; None: the global thread.
        """
        state = self._owner.state
        previous = state.history.records()
        context = FailureContext.of(
            failure,
            client_id=state.about.client_id,
            client_state=state.state,
            attempt=len(in_a_row(previous, failure, state.about.budget.window, self.now())) + 1,
            previous=previous,
        )
        answer = ask(self.handler, failure, context, self.hook)
        instructions = self._owner.call(Answered(failure, answer, thread))
        if self.hook is not None and CallHook() in instructions:
            call_hook(self.hook, failure.error, threading.current_thread())

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC)
