"""The common part of the stores: the layout of a stored value, and the coordination of readers, iterators and
`close()`.

Any thread can read a store, and one thread writes to it. Three classes make that safe:

- `ReaderGate` counts the readers inside the storage engine. `close()` shuts the gate and waits for those
  inside. A writer does not pass through it, so readers never wait for a writer.
- `SnapshotIterator` reads ahead in chunks, each inside the gate. So between two calls the engine is not in
  use, and a chunk costs one pass through the gate.
- `OpenIterators` tracks the open iterators, so that closing a store ends them all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from struct import Struct
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakSet

from millstream.errors import IllegalStateException, TimeoutException
from millstream.ports import KeyValueBytesStore

__all__ = [
    "MAX_ITERATORS",
    "ClosedStoreError",
    "Entry",
    "Held",
    "KeyRange",
    "OpenIterators",
    "OrderedBytesStore",
    "ReaderGate",
    "SnapshotIterator",
    "pack_timestamp",
    "timestamp_of",
    "to_stored",
    "value_of",
]

Entry = tuple[bytes, bytes]
"""A key and its stored value."""

KeyRange = tuple[bytes, bytes]
"""From a key (inclusive) to another (exclusive)."""

MAX_ITERATORS = 10_000
"""The maximum number of open iterators per store; each pins the files that it reads."""

_TIMESTAMP = Struct(">q")
_LARGEST_CHUNK = 256
"""The maximum number of entries read ahead. With a thousand, so many objects accumulate that Python's garbage
collector runs for each chunk: a scan of windows took twice as long."""
_CHUNK_BYTES = 1 << 20


class ClosedStoreError(Exception):
    """The store was closed. Internal: query/ converts it to an exception of KIP-216."""

    def __init__(self, store: str) -> None:
        super().__init__(f"store '{store}' is closed")
        self.store = store

    def __reduce__(self) -> tuple[type[ClosedStoreError], tuple[str]]:
        return type(self), (self.store,)


# --- the layout of a stored value ------------------------------------------------------------------------

pack_timestamp: Callable[[int], bytes] = _TIMESTAMP.pack
"""Milliseconds since the epoch as the first 8 bytes of a stored value; signed, as in Kafka."""


def to_stored(value: bytes, timestamp: int) -> bytes:
    """The stored form of a value.

    Bytes: 8 for the timestamp (big-endian, signed, ms since the epoch), then the value.
    Source: org.apache.kafka.streams.state.internals.ValueAndTimestampSerializer.
    """
    return pack_timestamp(timestamp) + value


def value_of(stored: bytes) -> bytes:
    """The value's bytes, without the timestamp."""
    return stored[8:]


def timestamp_of(stored: bytes) -> int:
    """The timestamp, in milliseconds since the epoch."""
    timestamp: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp


# --- the basis of other kinds of stores ------------------------------------------------------------------


class OrderedBytesStore(KeyValueBytesStore, Protocol):
    """A key-value store in which other kinds of stores can be laid out. A write can also delete a whole
    range, and several ranges can be read as of one moment.
    """

    def apply(
        self,
        entries: Sequence[tuple[bytes, bytes | None, int]],
        next_offset: int,
        *,
        drop: KeyRange | None = None,
    ) -> None:
        """Like `BytesStore.apply`, but first deletes everything in the range `drop`, in the same write."""

    def scan(
        self,
        ranges: Callable[[bytes | None], Sequence[KeyRange]],
        *,
        mark: bytes,
        ignored: int = 0,
        reverse: bool = False,
        convert: Callable[[list[Entry]], Iterable[Any]] | None = None,
    ) -> SnapshotIterator:
        """A consistent snapshot of several ranges, ordered by the keys without their first bytes.

        Args:
            ranges: returns the ranges, ordered and disjoint; called with the snapshot's value for the key
                `mark`, perhaps more than once.
            ignored: how many bytes at the start of each key the order ignores.
            convert: converts entries to what the iterator returns; it may omit some.
        """


# --- readers, iterators and close ------------------------------------------------------------------------


class ReaderGate:
    """Readers pass through it (`with gate:`). `shut()` admits no new readers and waits for those inside."""

    __slots__ = ("_drained", "_lock", "_readers", "_shut", "_store")

    def __init__(self, store: str) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._readers = 0
        self._shut = False

    def __enter__(self) -> None:
        with self._lock:
            if self._shut:
                raise ClosedStoreError(self._store)
            self._readers += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._readers -= 1
            if self._shut and not self._readers:
                self._drained.notify_all()

    def shut(self, timeout_s: float) -> None:
        """Return when no reader is inside, and none will enter. Idempotent.

        Raises:
            TimeoutException: a reader was still inside after `timeout_s`; the gate stays shut.
        """
        with self._lock:
            self._shut = True
            if not self._drained.wait_for(lambda: not self._readers, timeout_s):
                raise TimeoutException(
                    f"store '{self._store}' could not be closed: {self._readers} reads did not end "
                    f"within {timeout_s:g} s; close it again once they have ended"
                )


class Held(Protocol):
    """Entries that a caller holds."""

    def clear(self) -> None:
        """Drop them. Any thread may call it."""


class SnapshotIterator(Iterator[Any]):
    """A snapshot of the entries of one store. Used by one thread at a time.

    `read(n)` returns up to `n` more entries in order; fewer than `n` means that there are no more. It is
    called inside the gate. `convert` converts the entries for the caller, and may omit some. Dropping the
    last reference releases the iterator's resources, as `close()` does.
    """

    __slots__ = ("__weakref__", "_buffer", "_chunk", "_close_report", "_convert", "_gate", "_read", "_store")

    def __init__(
        self,
        store: str,
        gate: ReaderGate,
        read: Callable[[int], list[Entry]],
        convert: Callable[[list[Entry]], Iterable[Any]] | None = None,
    ) -> None:
        self._store = store
        self._gate = gate
        self._read: Callable[[int], list[Entry]] | None = read
        self._convert = convert
        self._buffer: deque[Any] = deque()
        self._close_report: tuple[list[str], Held] | None = None
        self._chunk = 16

    def __next__(self) -> Any:
        while True:
            try:
                return self._buffer.popleft()
            except IndexError:
                pass
            if not self._chunk_into(self._buffer):
                raise StopIteration

    @property
    def at_end(self) -> bool:
        """Whether it is known that `block` has nothing more."""
        return self._read is None

    def report_close(self, closed: list[str], held: Held) -> None:
        """When the iterator or its store closes, append the store's name to `closed` and empty `held`. For
        callers that hold entries of `block`.
        """
        self._close_report = closed, held

    def through(self, make: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Convert each chunk of entries by `make`. Call it before the first read.

        `make` is called inside the gate. It must not refer to this iterator, which is closed with its last
        reference.
        """
        convert = self._convert
        self._convert = make if convert is None else lambda entries: make(list(convert(entries)))

    def block(self) -> list[Any]:
        """More entries, for callers that hold several themselves; empty if there are no more. Use either
        this or `next`.

        Raises:
            ClosedStoreError: the store is closed.
        """
        found: list[Any] = []
        while not found and self._chunk_into(found):
            pass  # nothing of the chunk was wanted
        return found

    def _chunk_into(self, found: deque[Any] | list[Any]) -> bool:
        """Read a chunk, and add its wanted entries to the target. Returns whether there was one."""
        with self._gate:  # raises ClosedStoreError once the store is closed
            read = self._read
            if read is None:
                return False
            entries = read(self._chunk)
            convert = self._convert
            found.extend(entries if convert is None else convert(entries))
        if len(entries) < self._chunk:
            self._read = None
        if not entries:
            return False
        # Thus short scans read little ahead, long ones rarely pass the gate, and large values do not fill
        # the memory.
        key, value = entries[-1]
        largest = max(1, _CHUNK_BYTES // (len(key) + len(value) + 1))
        self._chunk = min(self._chunk * 4, _LARGEST_CHUNK, largest)
        return True

    def close(self) -> None:
        """Release its resources; there are no more entries. Idempotent."""
        if self._close_report is not None:  # first: a reader that finds no more entries looks there
            self._close_report[0].append(self._store)
        self._read = None
        self._buffer.clear()
        if self._close_report is not None:
            self._close_report[1].clear()


class OpenIterators:
    """The open iterators of one store, so closing the store ends them."""

    __slots__ = ("_iterators", "_limit", "_lock", "_store")

    def __init__(self, store: str, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._lock = threading.Lock()
        self._iterators: WeakSet[SnapshotIterator] = WeakSet()

    def add(self, iterator: SnapshotIterator) -> None:
        """Track an iterator until it is dropped.

        Raises:
            IllegalStateException: too many are open.
        """
        with self._lock:
            if len(self._iterators) >= self._limit:
                # Count only those that hold resources: an exhausted iterator may still be referenced.
                for other in list(self._iterators):
                    if other._read is None:
                        self._iterators.discard(other)
                if len(self._iterators) >= self._limit:
                    raise IllegalStateException(
                        f"store '{self._store}' has {self._limit} open iterators, which is the maximum; "
                        f"close each one after use: 'with store.range(a, b) as entries: ...'"
                    )
            self._iterators.add(iterator)

    def __len__(self) -> int:
        with self._lock:
            return sum(1 for iterator in self._iterators if iterator._read is not None)

    def end_all(self) -> None:
        """Close them all. Called when the store's gate is shut, so none of them is reading."""
        with self._lock:
            for iterator in list(self._iterators):
                iterator.close()
            self._iterators.clear()
