"""Merges several ordered runs of entries: of partitions, as they are read, and of clients' pages.

Stretches are merged instead of single entries: all entries that no unread entry can precede are taken from
the runs and sorted together, which is fast for a few sorted runs. So a scan of several partitions costs
little more per entry than a scan of one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from millstream.model import StoreKind
from millstream.stores.store_base import ClosedStoreError, Held, SnapshotIterator

__all__ = ["Blocks", "EntrySource", "Merged", "in_one_order", "merged_runs", "order_of"]

T = TypeVar("T")


class Blocks(Protocol):
    """The source of an iterator's entries, in blocks."""

    def report_close(self, closed: list[str], held: Held) -> None:
        """When the source or a store of it closes, append the store's name to `closed` and empty `held`. For
        callers that hold entries of `block`.
        """

    def block(self) -> list[Any]:
        """More entries; empty if there are no more.

        Raises:
            ClosedStoreError: a store is closed.
        """

    def close(self) -> None:
        """Release its resources; there are no more entries. Idempotent."""


class EntrySource(Blocks, Protocol):
    """The same, or one entry at a time: use either `block` or `next`."""

    def __iter__(self) -> Iterator[Any]: ...

    def __next__(self) -> Any: ...


def in_one_order(sources: Sequence[SnapshotIterator], kind: StoreKind, *, reverse: bool) -> EntrySource:
    """The entries of several partitions of one kind of store, in one order across all of them."""
    return sources[0] if len(sources) == 1 else Merged(sources, order_of(kind), reverse=reverse)


def order_of(kind: StoreKind) -> Callable[[tuple[Any, bytes]], Any]:
    """The sort key of a kind's entries: key; key and start; or key, end and start."""
    return _session_order if kind is StoreKind.SESSION else _key_of


_key_of: Callable[[tuple[Any, bytes]], Any] = itemgetter(0)


def _session_order(entry: tuple[tuple[bytes, int, int], bytes]) -> tuple[bytes, int, int]:
    key, start, end = entry[0]
    return key, end, start


def merged_runs(runs: Iterable[Sequence[T]], order: Callable[[T], Any], *, reverse: bool) -> list[T]:
    """Merges runs that are each in that order; on ties, the first run comes first."""
    entries: list[T] = []
    for run in runs:
        entries += run
    entries.sort(key=order, reverse=reverse)
    return entries


class _Run:
    """One of the sources, with the entries read from it but not yet returned."""

    __slots__ = ("ended", "entries", "few", "source")

    def __init__(self, source: SnapshotIterator) -> None:
        self.source = source
        self.entries: list[Any] = []
        self.few = 0
        """With so few entries left it reads more: else a stretch would have the entries of about one run."""
        self.ended = False

    def fill(self) -> None:
        if len(self.entries) <= self.few and not self.ended:
            more = self.source.block()
            self.entries += more
            self.few = len(more) // 2
            self.ended = not more or self.source.at_end

    def take(self, count: int) -> list[Any]:
        entries = self.entries[:count]
        del self.entries[:count]
        return entries


class Merged:
    """A `EntrySource` made of several others. Used by one thread at a time; another thread may close a store.

    Entries of a partition wait here for the others, out of reach when its store closes. So each source
    reports when it is closed, and no more entries are returned after that.
    """

    __slots__ = ("_ahead", "_closed_stores", "_order", "_reverse", "_runs", "_sources")

    def __init__(
        self, sources: Sequence[SnapshotIterator], order: Callable[[Any], Any], *, reverse: bool
    ) -> None:
        self._sources = tuple(sources)  # keeps them alive: a store only has weak references
        self._runs = [_Run(each) for each in sources]
        self._order = order
        self._reverse = reverse
        self._ahead: deque[Any] = deque()
        self.report_close([], self._ahead)

    def report_close(self, closed: list[str], held: Held) -> None:
        self._closed_stores = closed
        for each in self._sources:
            each.report_close(closed, held)

    def block(self) -> list[Any]:
        self._check_open()
        for run in self._runs:
            run.fill()
        entries = self._stretch()
        self._check_open()
        return entries

    def _check_open(self) -> None:
        if self._closed_stores:
            raise ClosedStoreError(self._closed_stores[0])

    def _stretch(self) -> list[Any]:
        """The entries that no unread entry can precede; empty if all sources have ended."""
        self._runs = runs = [run for run in self._runs if run.entries]
        if len(runs) <= 1:
            return runs[0].take(len(runs[0].entries)) if runs else []
        order, reverse = self._order, self._reverse
        ends = [order(run.entries[-1]) for run in runs if not run.ended]
        if not ends:
            taken = [run.take(len(run.entries)) for run in runs]
        elif reverse:
            border = max(ends)
            # The entries not below the border. They descend, so the condition is monotonic.
            taken = [
                run.take(bisect_right(run.entries, False, key=lambda entry: order(entry) < border))
                for run in runs
            ]
        else:
            border = min(ends)
            taken = [run.take(bisect_right(run.entries, border, key=order)) for run in runs]
        return merged_runs(taken, order, reverse=reverse)

    def close(self) -> None:
        self._runs = []
        self._ahead.clear()
        for each in self._sources:
            each.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                return self._ahead.popleft()
            except IndexError:
                pass
            block = self.block()
            if not block:
                raise StopIteration
            self._ahead.extend(block)
            if self._closed_stores:  # the report came before they were put there
                self._ahead.clear()
