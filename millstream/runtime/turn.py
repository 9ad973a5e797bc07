"""One step of a client in progress: the value so far, and the instructions so far.

`reactions.react` creates a turn for an event and takes the outcome from it. In between, the functions for
each kind of event use the steps that are here because several of them need these. Nothing outside the turn
changes.
"""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from millstream.errors import StreamsException
from millstream.runtime.client_state import ClientState, Closing, Moment, ThreadEntry
from millstream.runtime.events import (
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
from millstream.runtime.failure import Failure
from millstream.runtime.roster import next_index
from millstream.states import CLIENT, Cause, GlobalThreadState

__all__ = ["Turn", "changed"]

V = TypeVar("V")


def changed(value: V, changes: dict[str, Any]) -> V:
    """A frozen value with other fields: `dataclasses.replace` without its checks, in a tenth of its time.

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
        instructions: what is to be done, in order.
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
        """Move the client to where the table says that `cause` leads; whether there is such a place."""
        old = self.state.state
        new = CLIENT.after(old, cause)
        if new is old:
            return False
        self.set(state=new)
        self.do(Moved(new, old))
        return True

    # --- what is to be done ------------------------------------------------------------------------------

    def do(self, *instructions: Instruction) -> None:
        """Have these carried out, after those that are there."""
        self.instructions.extend(instructions)

    def say(self, level: int, message: str, error: BaseException | None = None) -> None:
        """Log it."""
        self.do(Say(level, message, error))

    # --- work --------------------------------------------------------------------------------------------

    def hand_out(self) -> None:
        """Give the threads what they are to have and do not have yet."""
        roster, gifts = self.state.roster.handed_out()
        self.set(roster=roster)
        self.do(*gifts)

    def tell_what_was_let_go(self) -> None:
        """The group waits for a pipeline to be let go of, if it believes that this client holds it."""
        if not self.state.group.said_pipelines <= self.state.roster.held_pipelines:
            self.rejoin("let go of a pipeline")

    def rejoin(self, reason: str) -> None:
        """Have the group agree anew, if the client is in one."""
        if self.state.group.joined:
            self.do(Rejoin(reason))

    # --- threads -----------------------------------------------------------------------------------------

    def add_thread(
        self, *, instead_of: ThreadEntry | None = None, not_before: float = float("-inf")
    ) -> ThreadEntry:
        """Make one, which gets what `instead_of` had when that one has let go of it."""
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
        """It is decided that this thread ends; what it has goes on to others when it has let go."""
        self.set_thread(entry.name, ending=True)
        self.set(roster=self.state.roster.retiring(entry.name))
        self.do(StopThread(entry.name, entry.number, now))

    def fail_all(self, error: StreamsException) -> None:
        """Every live thread fails with this."""
        for entry in self.state.live:
            self.do(FailThread(entry.name, error))

    # --- the end -----------------------------------------------------------------------------------------

    def close_to_error(self, failure: Failure) -> None:
        """The client ends in ERROR, with this failure; unless it is ending already."""
        if self.move(Cause.FAIL):
            self.set(failure=failure)
            self.begin_closing()

    def begin_closing(self, *, here: bool = False) -> None:
        """After the move to PENDING_SHUTDOWN or PENDING_ERROR: nobody is given anything any more."""
        to = CLIENT.after(self.state.state, Cause.CLOSED)
        self.set(roster=self.state.roster.ending(), closing=Closing(to))
        for entry in self.state.threads:
            if entry.ending:
                self.do(StopThread(entry.name, entry.number))  # it may be in the middle of something
            else:
                self.end_thread(entry, now=True)
        self.do(InterruptEngine())
        if self.state.about.has_global and self.state.global_thread is GlobalThreadState.CREATED:
            self.do(StopGlobal())  # it restores, and start() waits for that
        self.do(BeginClosing(here))

    def close_for_a_bug(self, thread: str, message: str, *, is_global: bool = False) -> None:
        """Never a client that is RUNNING with nobody in it."""
        if self.state.is_wanted:
            self.say(logging.ERROR, message)
            error = StreamsException(f"{message}; this is a bug, please report it")
            self.close_to_error(Failure(thread, error, is_global=is_global))
