"""The client's stream threads, and who of them does what.

A thing (a pipeline, a task) has one holder at a time: its store is locked, its query runs once. So what moves
from one thread to another is taken from the first, and given to the second when the first has let go. Which
thread is to have what is `assignment.share_out`; this file remembers who has what, and asks again whenever
that changes.

Threads call `settled` from their own loops, the client calls the rest from wherever something happens. The
lock is held while shares are worked out and put into inboxes, never while anybody waits.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from millstream.runtime.assignment import Share, StorePart, Thing, share_out
from millstream.runtime.states import ThreadState

__all__ = ["Roster", "RosterThread", "next_index"]


class RosterThread(Protocol):
    """What a roster sees of a stream thread."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> ThreadState: ...

    def give(self, share: Share, not_before: Mapping[str, float], ticket: int) -> None:
        """From now on the thread owns this, and nothing else; it calls `settled` with the ticket when that
        is so.

        `not_before`: when a pipeline may start at the earliest, by the client's clock.
        """

    def lose(self, ticket: int) -> None:
        """From now on the thread owns no pipeline; it calls `settled` with the ticket when that is so."""


def next_index(names: Sequence[str]) -> int:
    """The lowest number that no thread has at the end of its name.

    Source: org.apache.kafka.streams.KafkaStreams.nextThreadIndex.
    """
    taken = {int(name.rpartition("-")[2]) for name in names}
    return next(number for number in range(1, len(taken) + 2) if number not in taken)


class Roster:
    """Keeps threads and shares. `on_let_go` is called, without the lock, when the client holds less than
    before.
    """

    def __init__(self, on_let_go: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.RLock()
        self._on_let_go = on_let_go
        self._threads: dict[str, RosterThread] = {}
        self._pipelines: tuple[str, ...] = ()
        self._parts: tuple[StorePart, ...] = ()
        self._assigned = False
        self._ended = False
        self._given: dict[str, Share] = {}
        # What is on its way to a thread has a number: only the answer to the last one says what it holds.
        self._numbers = itertools.count(1)
        self._last: dict[str, int] = {}
        self._answered: dict[str, int] = {}
        self._held: dict[str, Share] = {}
        self._heirs: dict[str, str] = {}
        self._not_before: dict[str, float] = {}

    # --- threads -----------------------------------------------------------------------------------------

    def add(self, thread: RosterThread, *, instead_of: str | None = None) -> None:
        """A thread that is there from now on; it gets what `instead_of` had, once that one has let go."""
        with self._lock:
            self._threads[thread.name] = thread
            if instead_of is not None:
                self._heirs[instead_of] = thread.name

    def retire(self, name: str) -> None:
        """The thread is ending: it gets nothing any more, and still holds what it has."""
        with self._lock:
            self._threads.pop(name, None)
            self._given.pop(name, None)
            self.share_out()

    def gone(self, name: str) -> None:
        """The thread has let go of everything."""
        with self._lock:
            self._threads.pop(name, None)
            self._given.pop(name, None)
            self._last.pop(name, None)
            self._answered.pop(name, None)
            heir = self._heirs.pop(name, None)
            # Whoever was to inherit through this one inherits all the same.
            for dead in [dead for dead, each in self._heirs.items() if each == name]:
                if heir is None:
                    del self._heirs[dead]
                else:
                    self._heirs[dead] = heir
            held = self._held.pop(name, Share())
            if heir is not None and heir in self._threads:
                # Its inheritance: as if it held it, so that nobody else is given it.
                self._held[heir] = self._held.get(heir, Share()).joined(held)
            self.share_out()
        if held != Share():
            self._on_let_go()

    # --- work --------------------------------------------------------------------------------------------

    def assign(self, pipelines: Sequence[str], parts: Sequence[StorePart]) -> None:
        """The work of this client, from now on."""
        with self._lock:
            self._pipelines, self._parts = tuple(pipelines), tuple(parts)
            self._assigned = True
            self.share_out()

    def end(self) -> None:
        """The client closes: nobody is given anything any more, not even what a dying thread lets go of."""
        with self._lock:
            self._ended = True

    def unassign(self) -> None:
        """Nobody knows what this client's work is: nothing new is given until `assign`."""
        with self._lock:
            self._assigned = False
            self._pipelines, self._parts = (), ()
            self._given.clear()  # so that each thread is given its share anew, whatever that is
            for name, thread in self._threads.items():
                thread.lose(self._next(name))

    def drop(self, name: str, pipeline: str) -> None:
        """A thread does not have this pipeline any more: another client does."""
        gone: frozenset[Thing] = frozenset((pipeline,))
        with self._lock:
            self._pipelines = tuple(each for each in self._pipelines if each != pipeline)
            for shares in (self._given, self._held):
                if name in shares:
                    shares[name] = shares[name].without(gone)
        self._on_let_go()

    def hold_back(self, until: Mapping[str, float]) -> None:
        """These pipelines are not to be started before (by the client's clock)."""
        with self._lock:
            self._not_before.update(until)

    def share_out(self) -> None:
        """Give every thread what it is to have, without what another one still holds."""
        with self._lock:
            if not self._assigned or self._ended:
                return
            names = list(self._threads)
            held = {name: share.things for name, share in self._held.items()}
            for dead in self._heirs:
                heir = self._last_heir(dead)
                held[heir] = held.get(heir, frozenset()) | held.get(dead, frozenset())
            target = share_out(self._pipelines, self._parts, names, held)
            waiting = {self._last_heir(dead) for dead in self._heirs}
            for name, thread in self._threads.items():
                if name in waiting:
                    continue  # it takes over when the one before it has let go, and all at once
                elsewhere: frozenset[Thing] = frozenset().union(
                    *(share.things for other, share in self._held.items() if other != name)
                )
                share = target[name].without(elsewhere)
                if self._given.get(name) == share:
                    continue
                self._given[name] = share
                self._held[name] = self._held.get(name, Share()).joined(share)
                not_before = {p: self._not_before[p] for p in share.pipelines if p in self._not_before}
                thread.give(share, not_before, self._next(name))

    def _last_heir(self, name: str) -> str:
        """Who gets in the end what this one has."""
        while name in self._heirs:
            name = self._heirs[name]
        return name

    def _next(self, name: str) -> int:
        number = self._last[name] = next(self._numbers)
        return number

    def settled(self, name: str, share: Share, ticket: int) -> None:
        """A thread has what it was given, and nothing else any more."""
        with self._lock:
            if self._last.get(name) != ticket:
                return  # it has been given something else since
            self._answered[name] = ticket
            if name not in self._held:
                return
            before = self._held[name]
            self._held[name] = share
            for pipeline in share.pipelines:
                self._not_before.pop(pipeline, None)
            let_go = bool(before.things - share.things)
            if let_go:
                self.share_out()
        if let_go:
            self._on_let_go()

    # --- what there is -----------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        """The threads that work or are to work."""
        with self._lock:
            return tuple(self._threads)

    @property
    def held(self) -> Share:
        """What the client holds: runs, or has not let go of yet."""
        with self._lock:
            whole = Share()
            for share in self._held.values():
                whole = whole.joined(share)
            return whole

    @property
    def work(self) -> Share:
        """What the client is to do."""
        with self._lock:
            return Share(self._pipelines, self._parts)

    @property
    def is_settled(self) -> bool:
        """Whether the threads have all the work, as far as there are any: nothing of it is on its way to one,
        or waits until another one has let go of it.
        """
        with self._lock:
            given: frozenset[Thing] = frozenset().union(*(share.things for share in self._given.values()))
            return not self._threads or (
                Share(self._pipelines, self._parts).things <= given
                and all(self._answered.get(name) == self._last.get(name) for name in self._threads)
            )

    def check(self) -> None:
        """Assert what must hold at any time."""
        with self._lock:
            seen: dict[Thing, str] = {}
            for name, share in self._given.items():
                for thing in share.things:
                    assert thing not in seen, f"{thing} is given to '{seen[thing]}' and to '{name}'"
                    seen[thing] = name
