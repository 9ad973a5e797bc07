"""One step of a client in progress: the value so far, and the instructions so far.

`reactions.react` creates a turn for an event and takes the outcome from it. In between, the functions for
each kind of event use the steps that are here because several of them need these. Nothing outside the turn
changes.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from millstream.errors import StreamsException
from millstream.runtime.state.client_state import ClientState, Closing, Moment, ThreadEntry
from millstream.runtime.state.events import (
    BeginClosing,
    FailThread,
    Instruction,
    InterruptEngine,
    MakeThread,
    Moved,
    Rejoin,
    Say,
    StopGlobal,
    StopThread,
)
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.roster import next_index
from millstream.states import CLIENT, Cause, GlobalThreadState

__all__ = ["Turn", "changed"]

V = TypeVar("V")


def changed(value: V, changes: dict[str, Any]) -> V:
    """A frozen value with changed fields: `dataclasses.replace` without its checks, in a tenth of the time.

    A client's value changes with every event, and a simulation makes some ten thousand of them a second.
    """
    other = object.__new__(type(value))
    other.__dict__.update(value.__dict__, **changes)
    return other


class Turn:
    """The step from one `ClientState` to the next.

    Attributes:
        state: the value so far.
        moment: when it happens.
        instructions: the instructions so far, in order.
    """

    def __init__(self, state: ClientState, moment: Moment) -> None:
        self.state = state
        self.moment = moment
        self.instructions: list[Instruction] = []

    # --- the value ---------------------------------------------------------------------------------------

    def set(self, **changes: Any) -> None:
        """Change fields of the client."""
        self.state = changed(self.state, changes)

    def set_group(self, **changes: Any) -> None:
        """Change fields of its part in the group."""
        self.set(group=changed(self.state.group, changes))

    def set_thread(self, name: str, **changes: Any) -> None:
        """Change fields of a thread."""
        self.set(
            threads=tuple(
                changed(entry, changes) if entry.name == name else entry for entry in self.state.threads
            )
        )

    def move(self, cause: Cause) -> bool:
        """Move the client to the state that `cause` leads to by the table. Returns whether there is one."""
        old = self.state.state
        new = CLIENT.after(old, cause)
        if new is old:
            return False
        self.set(state=new)
        self.do(Moved(new, old))
        return True

    # --- what is to be done ------------------------------------------------------------------------------

    def do(self, *instructions: Instruction) -> None:
        """Add instructions, to be carried out after the existing ones."""
        self.instructions.extend(instructions)

    def say(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Log a message."""
        self.do(Say(level, message, error))

    # --- work --------------------------------------------------------------------------------------------

    def hand_out(self) -> None:
        """Give the threads the work that they should have and do not have yet."""
        roster, gifts = self.state.roster.handed_out()
        self.set(roster=roster)
        self.do(*gifts)

    def report_released(self) -> None:
        """Rebalance if the group waits for a released task that it believes this client still runs."""
        if not self.state.group.reported_running <= self.state.roster.held_runs:
            self.rejoin("let go of a task")

    def rejoin(self, reason: str) -> None:
        """Have the group rebalance, if the client is in one."""
        if self.state.group.joined:
            self.do(Rejoin(reason))

    # --- threads -----------------------------------------------------------------------------------------

    def add_thread(
        self, *, instead_of: ThreadEntry | None = None, not_before: float = float("-inf")
    ) -> ThreadEntry:
        """Create a thread, which gets the work of `instead_of` once that one has released it."""
        state = self.state
        index = next_index([entry.name for entry in state.threads])
        lines = state.lines + (instead_of is None)
        entry = ThreadEntry(
            name=f"{state.about.client_id}-StreamThread-{index}",
            number=state.numbers + 1,
            line=lines if instead_of is None else instead_of.line,
        )
        self.set(
            threads=(*state.threads, entry),
            lines=lines,
            numbers=entry.number,
            roster=state.roster.adding(
                entry.name, instead_of=None if instead_of is None else instead_of.name
            ),
        )
        self.do(MakeThread(entry.name, entry.line, not_before, state.paused))
        return entry

    def end_thread(self, entry: ThreadEntry, *, now: bool) -> None:
        """Decide that this thread ends; its work goes to others once it has released it."""
        self.set_thread(entry.name, ending=True)
        self.set(roster=self.state.roster.retiring(entry.name))
        self.do(StopThread(entry.name, entry.number, now))

    def fail_all(self, error: StreamsException) -> None:
        """Every live thread fails with this."""
        for entry in self.state.live:
            self.do(FailThread(entry.name, error))

    # --- the end -----------------------------------------------------------------------------------------

    def close_to_error(self, failure: Failure) -> None:
        """End the client in ERROR, with this failure, unless it is ending already."""
        if self.move(Cause.FAIL):
            self.set(failure=failure)
            self.begin_closing()

    def begin_closing(self, *, here: bool = False) -> None:
        """Begin closing, after the move to PENDING_SHUTDOWN or PENDING_ERROR: no thread gets work any
        more."""
        to = CLIENT.after(self.state.state, Cause.CLOSED)
        self.set(roster=self.state.roster.ending(), closing=Closing(to))
        for entry in self.state.threads:
            if entry.ending:
                self.do(StopThread(entry.name, entry.number))  # it may be in the middle of something
            else:
                self.end_thread(entry, now=True)
        self.do(InterruptEngine())
        if self.state.about.has_global and self.state.global_thread is GlobalThreadState.CREATED:
            self.do(StopGlobal())  # it may be restoring, which start() waits for
        self.do(BeginClosing(here))

    def close_for_a_bug(self, thread: str, message: str, *, is_global: bool = False) -> None:
        """Close the client because of a bug, so that it is never RUNNING without a thread."""
        if self.state.is_wanted:
            self.say(logging.ERROR, message)
            error = StreamsException(f"{message}; this is a bug, please report it")
            self.close_to_error(Failure(thread, error, is_global=is_global))
