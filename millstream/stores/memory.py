"""A key-value store in memory: a sorted map that is never changed, only replaced.

The map is a tuple of chunks, each a dict in key order. A batch makes new chunks of those it touches and
then replaces the whole map by one assignment. So a reader takes the map once and has a snapshot; it needs
no lock, and sees a batch as a whole or not at all.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain, islice

from millstream.model import TaskId
from millstream.stores.api import (
    MAX_ITERATORS,
    ClosedStoreError,
    Entry,
    OpenIterators,
    ReaderGate,
    StoreIterator,
    pack_timestamp,
)

__all__ = ["MemoryStore"]

_CHUNK = 512
_CLOSE_TIMEOUT_S = 30.0


class _SortedMap:
    """Entries in key order. `firsts[i]` is the least key of `chunks[i]`; lesser ones belong to the first."""

    __slots__ = ("chunks", "firsts", "size")

    def __init__(self, chunks: list[dict[bytes, bytes]]) -> None:
        self.chunks = chunks
        self.firsts = [next(iter(chunk)) for chunk in chunks]
        self.size = sum(map(len, chunks))

    def get(self, key: bytes) -> bytes | None:
        if not self.chunks:
            return None
        return self.chunks[max(0, bisect_right(self.firsts, key) - 1)].get(key)

    def with_changes(self, changes: dict[bytes, bytes | None]) -> _SortedMap:
        """A new map. A value of None deletes its key. Chunks that are not touched are shared."""
        by_chunk: dict[int, dict[bytes, bytes | None]] = {}
        for key, value in changes.items():
            by_chunk.setdefault(max(0, bisect_right(self.firsts, key) - 1), {})[key] = value
        chunks: list[dict[bytes, bytes]] = []
        for index, chunk in enumerate(self.chunks or [{}]):
            touched = by_chunk.get(index)
            if touched is None:
                chunks.append(chunk)
                continue
            chunks.extend(_merged(chunk, touched))
        return _SortedMap(chunks)

    def between(
        self, start: bytes | None, end: bytes | None, *, reverse: bool, end_inclusive: bool
    ) -> Iterator[Entry]:
        """The entries of a range. Lazy; the map does not change under it."""
        first = 0 if start is None else max(0, bisect_right(self.firsts, start) - 1)
        last = len(self.chunks) if end is None else bisect_right(self.firsts, end)
        cut = bisect_right if end_inclusive else bisect_left

        def part(index: int) -> Iterator[Entry]:
            entries = list(self.chunks[index].items())
            if start is not None and index == first:
                entries = entries[bisect_left(entries, start, key=_key) :]
            if end is not None and index == last - 1:
                entries = entries[: cut(entries, end, key=_key)]
            return reversed(entries) if reverse else iter(entries)

        indexes = range(first, last)
        return chain.from_iterable(map(part, reversed(indexes) if reverse else indexes))


def _merged(chunk: dict[bytes, bytes], changes: dict[bytes, bytes | None]) -> Iterator[dict[bytes, bytes]]:
    """The chunk with its changes, in key order: none if nothing is left, several if it grew too large."""
    merged = {**chunk, **changes}  # keeps the order of the keys that were there
    if len(merged) == len(chunk) and None not in changes.values():
        yield merged  # type: ignore[misc]
        return
    keys = sorted(key for key, value in merged.items() if value is not None)  # nearly sorted: quick
    size = len(keys) if len(keys) <= 2 * _CHUNK else _CHUNK
    for start in range(0, len(keys), size or 1):
        yield {key: merged[key] for key in keys[start : start + size]}  # type: ignore[misc]


def _key(entry: Entry) -> bytes:
    return entry[0]


class MemoryStore:
    """One task's part of a key-value store, in memory (ports.KeyValueBytesStore). Lost when it is closed."""

    def __init__(self, name: str, task_id: TaskId, *, max_iterators: int = MAX_ITERATORS) -> None:
        self._name = name
        self._task_id = task_id
        self._map: _SortedMap | None = _SortedMap([])  # None: closed
        self._position: int | None = None
        self._epoch = 0
        self._writing = threading.Lock()
        self._gate = ReaderGate(name)
        self._iterators = OpenIterators(name, max_iterators)

    @property
    def name(self) -> str:
        return self._name

    @property
    def task_id(self) -> TaskId:
        return self._task_id

    @property
    def is_open(self) -> bool:
        return self._map is not None

    @property
    def position(self) -> int | None:
        """The changelog offset up to which this store is complete; None: nothing was ever applied."""
        self._current()
        return self._position

    @property
    def epoch(self) -> int:
        """The highest epoch of the records that were applied; 0: none had one."""
        self._current()
        return self._epoch

    def apply(
        self, entries: Sequence[tuple[bytes, bytes | None, int]], next_offset: int, epoch: int = 0
    ) -> None:
        """Put and delete, and save `next_offset` and the epoch (if it is higher), in one atomic write."""
        changes = {
            key: None if value is None else pack_timestamp(timestamp) + value
            for key, value, timestamp in entries
        }
        with self._writing:
            current = self._current()
            self._map = current.with_changes(changes) if changes else current
            self._position = next_offset
            self._epoch = max(self._epoch, epoch)

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value of a key."""
        return self._current().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in their order, all as of one moment."""
        return list(map(self._current().get, keys))

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> StoreIterator:
        """A consistent snapshot of the keys from `start` to `end`; None: unbounded.

        Raises:
            IllegalStateException: too many iterators are open.
        """
        with self._gate:
            entries = self._current().between(start, end, reverse=reverse, end_inclusive=end_inclusive)
            iterator = StoreIterator(self._name, self._gate, lambda count: list(islice(entries, count)))
            self._iterators.add(iterator)
        return iterator

    def approximate_num_entries(self) -> int:
        """How many entries there are; exact, here."""
        return self._current().size

    def close(self) -> None:
        """Release everything, iterators included. Idempotent."""
        with self._writing:
            self._map = None
            self._gate.shut(_CLOSE_TIMEOUT_S)
            self._iterators.end_all()

    def wipe(self) -> None:
        """Delete all entries, the position and the epoch; the store stays open."""
        with self._writing:
            self._current()
            self._map = _SortedMap([])
            self._position = None
            self._epoch = 0

    def _current(self) -> _SortedMap:
        current = self._map
        if current is None:
            raise ClosedStoreError(self._name)
        return current

    def __repr__(self) -> str:
        return f"<MemoryStore '{self._name}' of task {self._task_id}{'' if self.is_open else ', closed'}>"
