"""Combines several sorted reads of a store: one after the other, or merged.

A *read* is a function that returns up to `n` more entries in order; fewer than `n` means that there are no
more. `StoreIterator` takes one read, and these functions combine several into one.

Stretches are merged, not single entries: all entries that no later entry can precede are taken from each read
at once, and sorted, which is fast for a few sorted runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter

from millstream.stores.store_base import Entry

__all__ = ["Read", "merged", "one_after_other"]

Read = Callable[[int], list[Entry]]


def one_after_other(reads: Sequence[Read]) -> Read:
    """All entries of the first read, then of the second, and so on."""
    if len(reads) == 1:
        return reads[0]
    left = list(reads)

    def read(count: int) -> list[Entry]:
        entries: list[Entry] = []
        while left and len(entries) < count:
            wanted = count - len(entries)
            more = left[0](wanted)
            entries += more
            if len(more) < wanted:
                del left[0]
        return entries

    return read


class _Run:
    """One of the merged reads, with the entries read ahead. `keys` are its sort keys."""

    __slots__ = ("ended", "entries", "keys", "read")

    def __init__(self, read: Read) -> None:
        self.read = read
        self.ended = False
        self.entries: list[Entry] = []
        self.keys: list[bytes] = []

    def fill(self, count: int, ignored: int) -> None:
        """Read ahead, unless entries are left from the last time."""
        if self.entries or self.ended:
            return
        self.entries = self.read(count)
        self.keys = [key[ignored:] for key, _ in self.entries]
        self.ended = len(self.entries) < count

    def take(self, count: int) -> list[tuple[bytes, Entry]]:
        """The first entries, each with its sort key in front."""
        taken = list(zip(self.keys[:count], self.entries[:count], strict=True))
        del self.keys[:count], self.entries[:count]
        return taken


def merged(reads: Sequence[Read], ignored: int, *, reverse: bool) -> Read:
    """All entries, ordered by their keys without the first `ignored` bytes; backwards if `reverse`.

    Each read must be in that order itself.
    """
    if len(reads) == 1:
        return reads[0]
    runs = [_Run(each) for each in reads]
    ready: list[Entry] = []

    def read(count: int) -> list[Entry]:
        nonlocal ready
        while len(ready) < count:
            for run in runs:
                run.fill(count, ignored)
            stretch = _stretch(runs, reverse)
            if not stretch:
                break
            ready += stretch
        entries, ready = ready[:count], ready[count:]
        return entries

    return read


def _stretch(runs: Sequence[_Run], reverse: bool) -> list[Entry]:
    """The entries that no unread entry can precede; empty if all reads have ended."""
    borders = [run.keys[-1] for run in runs if run.entries and not run.ended]
    pairs: list[tuple[bytes, Entry]] = []
    if not borders:
        for run in runs:
            pairs += run.take(len(run.entries))
    elif reverse:
        border = max(borders)
        for run in runs:
            pairs += run.take(bisect_left(run.keys, True, key=lambda key: key < border))
    else:
        border = min(borders)
        for run in runs:
            pairs += run.take(bisect_right(run.keys, border))
    pairs.sort(key=itemgetter(0), reverse=reverse)
    return [entry for _, entry in pairs]
