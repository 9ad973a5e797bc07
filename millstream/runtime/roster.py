"""The work of each of the client's stream threads, as a value.

A piece of work (a pipeline, a task) has one holder at a time: its store is locked, its query runs once. So
work that moves between threads is taken from the first, and given to the second when the first has released
it. `assignment.share_out` decides which thread is to have what. A roster remembers who has what, and after
each change `handed_out` returns what must be given to whom.

Nothing here is mutable: each method returns another roster. It is a part of `client_state.ClientState`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from millstream.runtime.assignment import Share, StorePart, Thing, share_out

__all__ = ["Give", "Lose", "Roster", "next_index"]


@dataclass(frozen=True)
class Give:
    """From now on the thread owns this, and nothing else; it tells when that is so, with the ticket.

    Attributes:
        not_before: when a pipeline may start at the earliest, by the client's clock.
    """

    thread: str
    share: Share
    ticket: int
    not_before: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lose:
    """From now on the thread owns no pipeline; it tells when that is so, with the ticket."""

    thread: str
    ticket: int


def next_index(names: Sequence[str]) -> int:
    """The lowest number that no thread has at the end of its name.

    Source: org.apache.kafka.streams.KafkaStreams.nextThreadIndex.
    """
    taken = {int(name.rpartition("-")[2]) for name in names}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


T = TypeVar("T")

_NOTHING = Share()


@dataclass(frozen=True)
class Roster:
    """Threads, by name, and shares.

    Attributes:
        names: the threads that work or are to work.
        pipelines, parts: the work of this client, if it is `assigned`.
        ended: nobody is given anything any more, not even what a dying thread lets go of.
        given: what each thread was given last; tickets: with which number; answered: the number that it has
            told last. What is on its way to a thread has a number: only the answer to the last one says what
            it holds.
        held: what each thread holds: runs, or has not let go of yet.
        heirs: who gets what a thread had that is ending.
        not_before: when a pipeline may start, where it has to wait.
    """

    names: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    parts: tuple[StorePart, ...] = ()
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
        """A thread that is there from now on; it gets what `instead_of` had, once that one has let go."""
        heirs = self.heirs if instead_of is None else {**self.heirs, instead_of: name}
        return replace(self, names=(*self.names, name), heirs=heirs)

    def retiring(self, name: str) -> Roster:
        """The thread is ending: it gets nothing any more, and still holds what it has."""
        names = tuple(each for each in self.names if each != name)
        return replace(self, names=names, given=_without(self.given, name))

    def gone(self, name: str) -> Roster:
        """The thread has let go of everything."""
        heirs = dict(self.heirs)
        heir = heirs.pop(name, None)
        # Whoever was to inherit through this one inherits all the same.
        for dead in [dead for dead, each in heirs.items() if each == name]:
            if heir is None:
                del heirs[dead]
            else:
                heirs[dead] = heir
        held = dict(self.shares_held)
        inheritance = held.pop(name, _NOTHING)
        if heir is not None and heir in self.names:
            # As if it held it, so that nobody else is given it.
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

    def assigning(self, pipelines: Sequence[str], parts: Sequence[StorePart]) -> Roster:
        """The work of this client, from now on."""
        return replace(self, pipelines=tuple(pipelines), parts=tuple(parts), assigned=True)

    def ending(self) -> Roster:
        """The client closes."""
        return replace(self, ended=True)

    def losing(self) -> tuple[Roster, tuple[Lose, ...]]:
        """Nobody knows what this client's work is: nothing new is given until `assigning`."""
        tickets, told, last = dict(self.tickets), [], self.last_ticket
        for name in self.names:
            last = tickets[name] = last + 1
            told.append(Lose(name, last))
        return (
            # Nothing counts as given, so that each thread is given its share anew, whatever that is.
            replace(
                self, assigned=False, pipelines=(), parts=(), given={}, tickets=tickets, last_ticket=last
            ),
            tuple(told),
        )

    def dropping(self, name: str, pipeline: str) -> Roster:
        """A thread does not have this pipeline any more: another client does."""
        gone: frozenset[Thing] = frozenset((pipeline,))
        given, held = dict(self.given), dict(self.shares_held)
        for shares in (given, held):
            if name in shares:
                shares[name] = shares[name].without(gone)
        pipelines = tuple(each for each in self.pipelines if each != pipeline)
        return replace(self, pipelines=pipelines, given=given, shares_held=held)

    def holding_back(self, until: Mapping[str, float]) -> Roster:
        """These pipelines are not to be started before (by the client's clock)."""
        return replace(self, not_before={**self.not_before, **until})

    def settled(self, name: str, share: Share, ticket: int) -> Roster:
        """A thread has what it was given, and nothing else any more."""
        if self.tickets.get(name) != ticket:
            return self  # it has been given something else since
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
        """Each thread has its part, as far as nobody else holds it; and what is to be given for that."""
        if not self.assigned or self.ended or not self.names:
            return self, ()
        held = {name: share.things for name, share in self.shares_held.items()}
        for dead in self.heirs:
            heir = self._last_heir(dead)
            held[heir] = held.get(heir, frozenset()) | held.get(dead, frozenset())
        target = share_out(self.pipelines, self.parts, self.names, held)
        waiting = {self._last_heir(dead) for dead in self.heirs}
        given, shares_held = dict(self.given), dict(self.shares_held)
        tickets, last = dict(self.tickets), self.last_ticket
        told = []
        for name in self.names:
            if name in waiting:
                continue  # it takes over when the one before it has let go, and all at once
            elsewhere: frozenset[Thing] = frozenset().union(
                *(share.things for other, share in shares_held.items() if other != name)
            )
            share = target[name].without(elsewhere)
            if given.get(name) == share:
                continue
            given[name] = share
            shares_held[name] = shares_held.get(name, _NOTHING).joined(share)
            last = tickets[name] = last + 1
            not_before = {each: self.not_before[each] for each in share.pipelines if each in self.not_before}
            told.append(Give(name, share, last, not_before))
        if not told:
            return self, ()
        return (
            replace(self, given=given, shares_held=shares_held, tickets=tickets, last_ticket=last),
            tuple(told),
        )

    def _last_heir(self, name: str) -> str:
        """Who gets in the end what this one has."""
        while name in self.heirs:
            name = self.heirs[name]
        return name

    # --- what there is -----------------------------------------------------------------------------------

    @property
    def held(self) -> Share:
        """What the client holds: runs, or has not let go of yet."""
        whole = _NOTHING
        for share in self.shares_held.values():
            whole = whole.joined(share)
        return whole

    @property
    def held_pipelines(self) -> frozenset[str]:
        """The pipelines among it."""
        return frozenset(name for share in self.shares_held.values() for name in share.pipelines)

    @property
    def work(self) -> Share:
        """What the client is to do."""
        return Share(self.pipelines, self.parts)

    @property
    def is_settled(self) -> bool:
        """Whether the threads have all the work, as far as there are any: nothing of it is on its way to one,
        or waits until another one has let go of it.
        """
        if not self.names:
            return True
        if any(self.answered.get(name) != self.tickets.get(name) for name in self.names):
            return False
        given: frozenset[Thing] = frozenset().union(*(share.things for share in self.given.values()))
        return self.work.things <= given

    def check(self) -> None:
        """Assert what must hold at any time."""
        seen: dict[Thing, str] = {}
        for name, share in self.given.items():
            for thing in share.things:
                assert thing not in seen, f"{thing} is assigned to '{seen[thing]}' and to '{name}'"
                seen[thing] = name
        holders: dict[Thing, str] = {}
        for name, share in self.shares_held.items():
            for thing in share.things:
                assert thing not in holders, f"{thing} is held by '{holders[thing]}' and by '{name}'"
                holders[thing] = name


def _without(each: Mapping[str, T], name: str) -> dict[str, T]:
    return {other: what for other, what in each.items() if other != name}
