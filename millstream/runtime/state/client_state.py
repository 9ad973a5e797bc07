"""Everything in a client that changes, as one frozen value.

`reactions.py: react` makes the next value from it; `owner.py: Owner` has the current one. Readers take the
value and read: it does not change while they use it, so they need no lock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from millstream.model import TaskId
from millstream.runtime.state.events import Opening, Phase
from millstream.runtime.state.failure import Budget, Failure
from millstream.runtime.state.history import FailureHistory
from millstream.runtime.state.roster import Roster
from millstream.states import GlobalThreadState, State, ThreadState, all_running

if TYPE_CHECKING:
    from millstream.group.userdata import Assignment
    from millstream.query.metadata import Placement
    from millstream.runtime.state.work_plan import WorkPlan

__all__ = ["ClientFacts", "ClientState", "Closing", "Group", "Moment", "ThreadEntry"]

_EPOCH = datetime.fromtimestamp(0, UTC)
_ENDING = (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD)


@dataclass(frozen=True)
class ClientFacts:
    """The unchanging facts about a client.

    Attributes:
        pipelines: the names of those that have a query.
        budget: the budget of REPLACE_THREAD, unless the handler gives one.
        standbys: num.standby.replicas.
        keeps_warm: whether Spark is to run even while the client has no pipeline.
        has_global: whether there is a global thread.
    """

    client_id: str
    pipelines: tuple[str, ...] = ()
    budget: Budget = field(default_factory=Budget)
    standbys: int = 0
    keeps_warm: bool = False
    has_global: bool = False


@dataclass(frozen=True)
class Moment:
    """When an event happens.

    Attributes:
        now: by the client's clock.
        at: by the calendar.
        draw: a random number from 0 (inclusive) to 1 (exclusive).
    """

    now: float = 0.0
    at: datetime = _EPOCH
    draw: float = 0.0


@dataclass(frozen=True)
class ThreadEntry:
    """A stream thread, from its creation until it is DEAD.

    Attributes:
        number: unique among all threads of the client, whereas names are reused.
        line: the line of threads that it continues (`failure.Failure.line`).
        state: the last reported state.
        begun: whether start() was called.
        ending: whether its end is decided: it gets no work, and its end needs no other reason.
    """

    name: str
    number: int
    line: int
    state: ThreadState = ThreadState.CREATED
    begun: bool = False
    ending: bool = False

    @property
    def lives(self) -> bool:
        """Whether it is neither DEAD nor ending."""
        return not self.ending and self.state not in _ENDING


@dataclass(frozen=True)
class Group:
    """The client's part in its group.

    Attributes:
        joined: whether it is a member, or is becoming one.
        over: whether its membership has ended for good.
        lost: why it is currently not in the group, if so.
        refused: the last assignment was an error, so a thread that starts makes the group rebalance.
        shutdown: why this client asks all of them to shut down, if it does (KIP-671).
        agreed: the last assignment that was no error; took_part: whether it is the very last one.
        placement: where everything is according to it; None: unknown, or the client is not in its group.
        reports: how often it has reported to the group; the fields `reported_…` are its last report: how many
            threads, which tasks it runs, which are up to date, which serdes its stores have.
        reported_warm: the tasks that have warmed up since then, and for which a rebalance was requested;
            warm_since: when the first one did that still waits for others.
        agreed_threads: how many threads the group knew of at the last assignment; None: there was none.
        warned_too_few: whether the warning about too few clients for the standbys was logged.
        kept_warm: whether Spark was started although there was no pipeline.
    """

    joined: bool = False
    over: bool = False
    lost: str | None = None
    refused: bool = False
    shutdown: str | None = None
    agreed: Assignment | None = None
    took_part: bool = False
    placement: Placement | None = None
    reports: int = 0
    reported_threads: int = 0
    reported_running: frozenset[TaskId] = frozenset()
    reported_up_to_date: frozenset[TaskId] = frozenset()
    reported_serdes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    reported_warm: frozenset[TaskId] = frozenset()
    warm_since: float | None = None
    agreed_threads: int | None = None
    warned_too_few: bool = False
    kept_warm: bool = False

    @property
    def is_member(self) -> bool:
        """Whether it can notify other members."""
        return self.joined and not self.over


@dataclass(frozen=True)
class Closing:
    """The client closes. `to`: the state it ends in."""

    to: State
    phase: Phase = Phase.STARTED


@dataclass(frozen=True)
class ClientState:
    """One client.

    Attributes:
        state: what the user sees.
        opening: how far start() is.
        threads: the stream threads that are not DEAD, in the order of their creation.
        lines, numbers: how many lines of threads, and how many threads, there have been.
        roster: the work of each of them.
        paused: whether queries are stopped.
        global_thread: its state; None: there is none, or it is not created yet.
        global_ran: whether it ever was RUNNING.
        group, plan: its part in the application; the plan is None until the topics are known.
        serdes: of all stores, once the pipelines are compiled here.
        history: the failures so far.
        failure: the failure with which the client ended, or is ending.
        closing: the progress of closing; None: it is not closing.
    """

    about: ClientFacts
    state: State = State.CREATED
    opening: Opening = Opening.NOT_BEGUN
    threads: tuple[ThreadEntry, ...] = ()
    lines: int = 0
    numbers: int = 0
    roster: Roster = field(default_factory=Roster)
    paused: bool = False
    global_thread: GlobalThreadState | None = None
    global_ran: bool = False
    group: Group = field(default_factory=Group)
    plan: WorkPlan | None = None
    serdes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    history: FailureHistory = field(default_factory=FailureHistory)
    failure: Failure | None = None
    closing: Closing | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether the client is starting or running."""
        return self.state.is_running_or_rebalancing

    @property
    def live(self) -> tuple[ThreadEntry, ...]:
        """The threads that are neither DEAD nor ending."""
        return tuple(entry for entry in self.threads if entry.lives)

    def entry(self, name: str | None) -> ThreadEntry | None:
        """The thread with this name."""
        return next((entry for entry in self.threads if entry.name == name), None)

    def has(self, number: int) -> bool:
        """Whether a thread still exists."""
        return any(entry.number == number for entry in self.threads)

    @property
    def is_settled(self) -> bool:
        """Whether all of the client's work has reached its threads, if there are any."""
        if not self.roster.is_settled:
            return False
        # An assignment made while the client had no threads gave it nothing: the next one counts.
        return not (self.group.is_member and self.roster.names and self.group.agreed_threads == 0)

    @property
    def everything_runs(self) -> bool:
        """Whether everything that should run here runs, which makes a client RUNNING."""
        if self.opening is not Opening.DONE or not self.is_settled:
            return False
        if self.about.has_global and self.global_thread is not GlobalThreadState.RUNNING:
            return False
        # Threads may be RUNNING while another thread's work is still on its way to them: the roster knows.
        return all_running(
            [ThreadState.PENDING_SHUTDOWN if entry.ending else entry.state for entry in self.threads]
        )

    def check(self) -> None:
        """Assert what must hold at any time.

        Raises:
            AssertionError: something does not hold.
        """
        self.roster.check()
        names = [entry.name for entry in self.threads]
        assert len(set(names)) == len(names), f"two threads have one name: {names}"
        working = {entry.name for entry in self.threads if not entry.ending}
        assert set(self.roster.names) == working, f"{self.roster.names} work, and {working} are to"
        if self.state is State.CREATED:
            assert not any(entry.begun for entry in self.threads), "CREATED with threads that have begun"
        if self.state is State.RUNNING:
            assert self.everything_runs, "RUNNING while not everything runs"
        if self.state is State.REBALANCING:
            assert not self.everything_runs, "REBALANCING though everything runs"
        assert (self.closing is not None) == self.state.has_started_or_finished_shutting_down
        if self.closing is not None:
            assert self.roster.ended, "closing, and work is still given"
            assert not working, f"closing, and {working} are still wanted"
            assert (self.closing.phase is Phase.DONE) == self.state.has_completed_shutdown
        if self.state in (State.PENDING_ERROR, State.ERROR):
            assert self.failure is not None, f"{self.state} without a failure"
