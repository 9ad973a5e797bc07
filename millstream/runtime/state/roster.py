"""The work of each of the client's stream threads, as a value.

A task has one holder at a time: its store is locked, and it runs once. So a task that moves between threads
is taken from the first, and given to the second once the first has released it. `assignment.share_out`
decides what each thread should have. A roster records what each thread has, and after each change
`handed_out` returns what to give to which thread.

Nothing here is mutable: each method returns a new roster. It is part of `client_state.ClientState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from millstream.model import TaskId
from millstream.runtime.state.assignment import Share, StorePart, share_out

__all__ = ["Give", "Lose", "Roster", "next_index"]


@dataclass(frozen=True)
class Give:
    """The thread is to own exactly this share from now on; it confirms with the ticket once it does.

    Attributes:
        not_before: the earliest start of a pipeline, by the client's clock.
    """

    thread: str
    share: Share
    ticket: int
    not_before: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lose:
    """The thread is to run no task from now on; it confirms with the ticket once that is so."""

    thread: str
    ticket: int


def next_index(names: Sequence[str]) -> int:
    """The lowest number that no thread's name ends with.

    Source: org.apache.kafka.streams.KafkaStreams.nextThreadIndex.
    """
    taken = {int(name.rpartition("-")[2]) for name in names}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


T = TypeVar("T")

_NOTHING = Share()


@dataclass(frozen=True)
class Roster:
    """Threads, by name, and their shares.

    Attributes:
        names: the threads that work or are to work.
        work: that of this client, if it is `assigned`.
        ended: no thread gets anything any more, not even what a dying thread releases.
        given: what each thread was given last; tickets: the number of that; answered: the last number it
            confirmed. Only the confirmation of the last number shows what a thread holds.
        held: what each thread holds: what it runs, or has not released yet.
        heirs: the successor of each ending thread.
        not_before: when a pipeline may start, if it has to wait.
    """

    names: tuple[str, ...] = ()
    work: Share = _NOTHING
    assigned: bool = False
    ended: bool = False
    given: Mapping[str, Share] = field(default_factory=dict)
    tickets: Mapping[str, int] = field(default_factory=dict)
    answered: Mapping[str, int] = field(default_factory=dict)
    shares_held: Mapping[str, Share] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)
    not_before: Mapping[str, float] = field(default_factory=dict)
    last_ticket: int = 0

    # --- threads -----------------------------------------------------------------------------------------

    def adding(self, name: str, *, instead_of: str | None = None) -> Roster:
        """Add a thread; it gets the work of `instead_of`, once that one has released it."""
        heirs = self.heirs if instead_of is None else {**self.heirs, instead_of: name}
        return replace(self, names=(*self.names, name), heirs=heirs)

    def retiring(self, name: str) -> Roster:
        """The thread is ending: it gets nothing more, and still holds what it has."""
        names = tuple(each for each in self.names if each != name)
        return replace(self, names=names, given=_without(self.given, name))

    def gone(self, name: str) -> Roster:
        """The thread has released everything."""
        heirs = dict(self.heirs)
        heir = heirs.pop(name, None)
        # A thread that was to inherit through this one still inherits.
        for dead in [dead for dead, each in heirs.items() if each == name]:
            if heir is None:
                del heirs[dead]
            else:
                heirs[dead] = heir
        held = dict(self.shares_held)
        inheritance = held.pop(name, _NOTHING)
        if heir is not None and heir in self.names:
            # As if the heir held it already, so that no other thread gets it.
            held[heir] = held.get(heir, _NOTHING).joined(inheritance)
        return replace(
            self,
            names=tuple(each for each in self.names if each != name),
            given=_without(self.given, name),
            tickets=_without(self.tickets, name),
            answered=_without(self.answered, name),
            heirs=heirs,
            shares_held=held,
        )

    # --- work --------------------------------------------------------------------------------------------

    def assigning(self, runs: Iterable[TaskId], parts: Iterable[StorePart]) -> Roster:
        """Set the work of this client from now on: the tasks that it runs, and the parts of stores that it
        fills."""
        return replace(self, work=Share(tuple(sorted(runs)), tuple(parts)), assigned=True)

    def ending(self) -> Roster:
        """The client closes."""
        return replace(self, ended=True)

    def losing(self) -> tuple[Roster, tuple[Lose, ...]]:
        """The client's work is unknown: nothing new is given until `assigning`."""
        tickets, instructions, last = dict(self.tickets), [], self.last_ticket
        for name in self.names:
            last = tickets[name] = last + 1
            instructions.append(Lose(name, last))
        return (
            # Nothing counts as given, so that each thread is given its next share in any case.
            replace(self, assigned=False, work=_NOTHING, given={}, tickets=tickets, last_ticket=last),
            tuple(instructions),
        )

    def dropping(self, name: str, pipeline: str) -> Roster:
        """A thread no longer runs tasks of this pipeline: another client does."""
        given, held = dict(self.given), dict(self.shares_held)
        gone = {task for task in given.get(name, _NOTHING).runs if task.pipeline == pipeline}
        for shares in (given, held):
            if name in shares:
                shares[name] = shares[name].not_running(pipeline)
        runs = tuple(task for task in self.work.runs if task not in gone)
        return replace(self, work=replace(self.work, runs=runs), given=given, shares_held=held)

    def holding_back(self, until: Mapping[str, float]) -> Roster:
        """These pipelines must not start before the given times, by the client's clock."""
        return replace(self, not_before={**self.not_before, **until})

    def settled(self, name: str, share: Share, ticket: int) -> Roster:
        """A thread has exactly what it was given."""
        if self.tickets.get(name) != ticket:
            return self  # it has been given something else in the meantime
        answered = {**self.answered, name: ticket}
        if name not in self.shares_held:
            return replace(self, answered=answered)
        not_before = {each: when for each, when in self.not_before.items() if each not in share.pipelines}
        return replace(
            self,
            answered=answered,
            shares_held={**self.shares_held, name: share},
            not_before=not_before,
        )

    def handed_out(self) -> tuple[Roster, tuple[Give, ...]]:
        """Give each thread its part, unless another thread still holds it. Returns what to give."""
        if not self.assigned or self.ended or not self.names:
            return self, ()
        held = {name: frozenset(share.tasks) for name, share in self.shares_held.items()}
        for dead in self.heirs:
            heir = self._last_heir(dead)
            held[heir] = held.get(heir, frozenset()) | held.get(dead, frozenset())
        target = share_out(self.work, self.names, held)
        waiting = {self._last_heir(dead) for dead in self.heirs}
        given, shares_held = dict(self.given), dict(self.shares_held)
        tickets, last = dict(self.tickets), self.last_ticket
        instructions = []
        for name in self.names:
            if name in waiting:
                continue  # it takes over everything at once, when its predecessor has released it
            elsewhere = {
                task for other, share in shares_held.items() if other != name for task in share.tasks
            }
            share = target[name].without(elsewhere)
            if given.get(name) == share:
                continue
            given[name] = share
            shares_held[name] = shares_held.get(name, _NOTHING).joined(share)
            last = tickets[name] = last + 1
            not_before = {each: self.not_before[each] for each in share.pipelines if each in self.not_before}
            instructions.append(Give(name, share, last, not_before))
        if not instructions:
            return self, ()
        return (
            replace(self, given=given, shares_held=shares_held, tickets=tickets, last_ticket=last),
            tuple(instructions),
        )

    def _last_heir(self, name: str) -> str:
        """The thread that finally gets what this one has."""
        while name in self.heirs:
            name = self.heirs[name]
        return name

    # --- what there is -----------------------------------------------------------------------------------

    @property
    def held(self) -> Share:
        """What the client holds: what it runs, or has not released yet."""
        whole = _NOTHING
        for share in self.shares_held.values():
            whole = whole.joined(share)
        return whole

    @property
    def held_runs(self) -> frozenset[TaskId]:
        """The tasks that it runs, or has not stopped yet."""
        return frozenset(task for share in self.shares_held.values() for task in share.runs)

    @property
    def is_settled(self) -> bool:
        """Whether the threads have all the work, if there are any: nothing is on its way to a thread, or
        waits until another one releases it.
        """
        if not self.names:
            return True
        if any(self.answered.get(name) != self.tickets.get(name) for name in self.names):
            return False
        whole = _NOTHING
        for share in self.given.values():
            whole = whole.joined(share)
        return whole.runs == self.work.runs and set(self.work.tasks).issubset(whole.tasks)

    def check(self) -> None:
        """Assert what must hold at any time."""
        seen: dict[TaskId, str] = {}
        for name, share in self.given.items():
            for task in share.tasks:
                assert task not in seen, f"{task} is assigned to '{seen[task]}' and to '{name}'"
                seen[task] = name
        holders: dict[TaskId, str] = {}
        for name, share in self.shares_held.items():
            for task in share.tasks:
                assert task not in holders, f"{task} is held by '{holders[task]}' and by '{name}'"
                holders[task] = name


def _without(each: Mapping[str, T], name: str) -> dict[str, T]:
    return {other: what for other, what in each.items() if other != name}
