"""A key-value store in memory: an immutable sorted map that is replaced as a whole.

The map is a list of chunks, each a small dict. A batch copies the chunks that it changes, and then replaces
the whole map in one assignment. So a reader takes the map once and has a snapshot. It needs no lock, and sees
a batch completely or not at all.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from millstream.model import TaskId
from millstream.stores.merge import Read, merged, one_after_other
from millstream.stores.store_base import (
    MAX_ITERATORS,
    ClosedStoreError,
    Entry,
    KeyRange,
    OpenIterators,
    ReaderGate,
    SnapshotIterator,
    pack_timestamp,
)

__all__ = ["MemoryStore"]

_CHUNK = 32
_CLOSE_TIMEOUT_S = 30.0


class _SortedMap:
    """Entries in key order between chunks; within a chunk they are in insertion order.

    `firsts[i]` is not greater than any key of `chunks[i]`, and greater than all keys before it; the first is
    b"". So a new key costs a copy of one small dict, and no sorting. A range read sorts, which is fast for
    one chunk.
    """

    __slots__ = ("chunks", "firsts", "size")

    def __init__(self, chunks: list[dict[bytes, bytes]], firsts: list[bytes], size: int) -> None:
        self.chunks = chunks
        self.firsts = firsts
        self.size = size

    @classmethod
    def empty(cls) -> _SortedMap:
        return cls([{}], [b""], 0)

    def get(self, key: bytes) -> bytes | None:
        return self.chunks[bisect_right(self.firsts, key) - 1].get(key)

    def with_changes(self, changes: Mapping[bytes, bytes | None]) -> _SortedMap:
        """A new map. A value of None deletes its key. Unchanged chunks are shared."""
        chunks, firsts, size = self.chunks.copy(), self.firsts.copy(), self.size
        by_chunk: dict[int, dict[bytes, bytes | None]] = {}
        for key, value in changes.items():
            by_chunk.setdefault(bisect_right(firsts, key) - 1, {})[key] = value
        resized = []
        for index, of_chunk in by_chunk.items():
            chunk: dict[bytes, Any] = {**chunks[index], **of_chunk}
            if None in of_chunk.values():
                chunk = {key: value for key, value in chunk.items() if value is not None}
            size += len(chunk) - len(chunks[index])
            chunks[index] = chunk
            if not 0 < len(chunk) <= 2 * _CHUNK:
                resized.append(index)
        for index in sorted(resized, reverse=True):  # from the end, so the other indices stay valid
            parts = _parts(chunks[index])
            chunks[index : index + 1] = parts
            firsts[index : index + 1] = map(min, parts)
        if not chunks:
            return self.empty()
        firsts[0] = b""
        return _SortedMap(chunks, firsts, size)

    def without(self, start: bytes, end: bytes) -> _SortedMap:
        """A new map, without the keys from `start` (inclusive) to `end` (exclusive)."""
        affected = self.chunks[bisect_right(self.firsts, start) - 1 : bisect_left(self.firsts, end)]
        return self.with_changes({key: None for chunk in affected for key in chunk if start <= key < end})

    def between(
        self, start: bytes | None, end: bytes | None, *, reverse: bool, end_inclusive: bool
    ) -> Iterator[Entry]:
        """The entries of a range. Lazy, because the map never changes."""
        first = 0 if start is None else bisect_right(self.firsts, start) - 1
        last = len(self.chunks) if end is None else bisect_right(self.firsts, end)
        cut = bisect_right if end_inclusive else bisect_left

        def part(index: int) -> Iterator[Entry]:
            chunk = self.chunks[index]
            keys = sorted(chunk)
            above = bisect_left(keys, start) if index == first and start is not None else 0
            below = cut(keys, end) if index == last - 1 and end is not None else len(keys)
            keys = keys[above:below]
            if reverse:
                keys.reverse()
            return zip(keys, map(chunk.__getitem__, keys), strict=True)

        indexes = range(first, last)
        return chain.from_iterable(map(part, reversed(indexes) if reverse else indexes))


def _parts(chunk: dict[bytes, bytes]) -> list[dict[bytes, bytes]]:
    """Splits a chunk that grew too large; an empty chunk is dropped."""
    keys = sorted(chunk)
    pages = (keys[start : start + _CHUNK] for start in range(0, len(keys), _CHUNK))
    return [{key: chunk[key] for key in page} for page in pages]


def _reader(entries: Iterator[Entry]) -> Read:
    return lambda count: list(islice(entries, count))


class MemoryStore:
    """One task's part of a key-value store, in memory (ports.KeyValueBytesStore). Lost when it is closed."""

    def __init__(self, name: str, task_id: TaskId, *, max_iterators: int = MAX_ITERATORS) -> None:
        self._name = name
        self._task_id = task_id
        self._map: _SortedMap | None = _SortedMap.empty()  # None: closed
        self._position: int | None = None
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
        """The changelog offset up to which this store is complete; None if nothing was ever applied."""
        self._current()
        return self._position

    def apply(
        self,
        entries: Sequence[tuple[bytes, bytes | None, int]],
        next_offset: int,
        *,
        drop: KeyRange | None = None,
    ) -> None:
        """Put and delete, and save `next_offset`, in one atomic write.

        `drop`: a range to delete first, in the same write.
        """
        changes = {
            key: None if value is None else pack_timestamp(timestamp) + value
            for key, value, timestamp in entries
        }
        with self._writing:
            current = self._current()
            if drop is not None:
                current = current.without(*drop)
            self._map = current.with_changes(changes) if changes else current
            self._position = next_offset

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value of a key."""
        return self._current().get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in the same order, all as of one moment."""
        return list(map(self._current().get, keys))

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> SnapshotIterator:
        """A consistent snapshot of the keys from `start` to `end`; None: unbounded.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        with self._gate:
            entries = self._current().between(start, end, reverse=reverse, end_inclusive=end_inclusive)
            iterator = SnapshotIterator(self._name, self._gate, _reader(entries))
            self._iterators.add(iterator)
        return iterator

    def scan(
        self,
        ranges: Callable[[bytes | None], Sequence[KeyRange]],
        *,
        mark: bytes,
        ignored: int = 0,
        reverse: bool = False,
        convert: Callable[[list[Entry]], Iterable[Any]] | None = None,
    ) -> SnapshotIterator:
        """A consistent snapshot of several ranges; see OrderedBytesStore.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        with self._gate:
            current = self._current()
            reads = [
                _reader(current.between(start, end, reverse=reverse, end_inclusive=False))
                for start, end in ranges(current.get(mark))
            ]
            if reverse:
                reads.reverse()
            read = merged(reads, ignored, reverse=reverse) if ignored else one_after_other(reads)
            iterator = SnapshotIterator(self._name, self._gate, read, convert)
            self._iterators.add(iterator)
        return iterator

    def approximate_num_entries(self) -> int:
        """The number of entries; exact here."""
        return self._current().size

    def close(self) -> None:
        """Release all resources, including iterators. Idempotent."""
        with self._writing:
            self._map = None
            self._gate.shut(_CLOSE_TIMEOUT_S)
            self._iterators.end_all()

    def wipe(self) -> None:
        """Delete all entries and the position; the store stays open."""
        with self._writing:
            self._current()
            self._map = _SortedMap.empty()
            self._position = None

    def _current(self) -> _SortedMap:
        current = self._map
        if current is None:
            raise ClosedStoreError(self._name)
        return current

    def __repr__(self) -> str:
        return f"<MemoryStore '{self._name}' of task {self._task_id}{'' if self.is_open else ', closed'}>"
