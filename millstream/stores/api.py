"""What the stores share: the layout of a stored value, and how readers, iterators and `close()` meet.

A store's reads come from any thread, its writes from one. Three things make that safe:

- `ReaderGate` counts the readers that are inside the storage engine. `close()` shuts the gate and waits for
  those inside; a writer does not pass through it, so no reader ever waits for a writer.
- `StoreIterator` reads ahead in chunks, each taken inside the gate, so that nothing of the engine is in
  use between two calls, and a chunk costs one pass through the gate.
- `OpenIterators` knows the iterators that are open, so that closing a store ends them all.
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
    "KeyRange",
    "OpenIterators",
    "OrderedBytesStore",
    "ReaderGate",
    "StoreIterator",
    "pack_timestamp",
    "timestamp_of",
    "to_stored",
    "value_of",
]

Entry = tuple[bytes, bytes]
"""A key and what is stored for it."""

KeyRange = tuple[bytes, bytes]
"""From a key, included, to another, which is not."""

MAX_ITERATORS = 10_000
"""Open iterators per store; each pins the files it reads."""

_TIMESTAMP = Struct(">q")
_LARGEST_CHUNK = 256
"""Entries read ahead at most. With a thousand, so many objects wait that Python's garbage collector runs for
each chunk: a scan of windows took twice as long."""
_CHUNK_BYTES = 1 << 20


class ClosedStoreError(Exception):
    """The store was closed. Internal: query/ turns it into a leaf of KIP-216."""

    def __init__(self, store: str) -> None:
        super().__init__(f"store '{store}' is closed")
        self.store = store

    def __reduce__(self) -> tuple[type[ClosedStoreError], tuple[str]]:
        return type(self), (self.store,)


# --- the layout of a stored value ------------------------------------------------------------------------

pack_timestamp: Callable[[int], bytes] = _TIMESTAMP.pack
"""Milliseconds since the epoch as the 8 bytes that a stored value begins with; signed, as Kafka's are."""


def to_stored(value: bytes, timestamp: int) -> bytes:
    """What a store keeps for a value.

    Bytes: 8 of timestamp (big-endian, signed, ms since the epoch), then the value's.
    Source: org.apache.kafka.streams.state.internals.ValueAndTimestampSerializer.
    """
    return pack_timestamp(timestamp) + value


def value_of(stored: bytes) -> bytes:
    """The value's own bytes."""
    return stored[8:]


def timestamp_of(stored: bytes) -> int:
    """Milliseconds since the epoch."""
    timestamp: int = _TIMESTAMP.unpack_from(stored)[0]
    return timestamp


# --- what other kinds of stores are built on --------------------------------------------------------------


class OrderedBytesStore(KeyValueBytesStore, Protocol):
    """A key-value store that others can be laid out in: whole ranges go in the write that brings what
    replaces them, and several ranges are read as of one moment.
    """

    def apply(
        self,
        entries: Sequence[tuple[bytes, bytes | None, int]],
        next_offset: int,
        epoch: int = 0,
        *,
        drop: KeyRange | None = None,
    ) -> None:
        """As `BytesStore.apply`; first, everything in the range `drop` is deleted, in the same write."""

    def scan(
        self,
        ranges: Callable[[bytes | None], Sequence[KeyRange]],
        *,
        mark: bytes,
        ignored: int = 0,
        reverse: bool = False,
        convert: Callable[[list[Entry]], Iterable[Any]] | None = None,
    ) -> StoreIterator:
        """A consistent snapshot of several ranges, in the order of the keys without their first bytes.

        Args:
            ranges: the ranges, in order and apart from each other; it is given what the snapshot has for
                the key `mark`, and may be called more than once.
            ignored: how many bytes at the beginning of a key do not count for the order.
            convert: makes of some entries what the iterator gives for them; it may leave some out.
        """


# --- readers, iterators and close ------------------------------------------------------------------------


class ReaderGate:
    """Readers pass through it (`with gate:`); `shut()` lets no new one in and waits for those inside."""

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
        """Returns when no reader is inside, and none will be. Idempotent.

        Raises:
            TimeoutException: a reader was still inside after `timeout_s`; the gate stays shut.
        """
        with self._lock:
            self._shut = True
            if not self._drained.wait_for(lambda: not self._readers, timeout_s):
                raise TimeoutException(
                    f"store '{self._store}' could not be closed: {self._readers} reads have not ended "
                    f"in {timeout_s:g} s; close it again once they have"
                )


class StoreIterator(Iterator[Any]):
    """Entries of one store, as they were when it was made. Used by one thread at a time.

    `read(n)` gives up to `n` more entries in order; fewer than `n` means that there are no more. It is
    called inside the gate. `convert` makes of them what the iterator gives, which may be fewer. Dropping the
    last reference releases what it holds, as `close()` does.
    """

    __slots__ = ("__weakref__", "_buffer", "_chunk", "_convert", "_gate", "_read", "_store", "_told")

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
        self._told: tuple[list[str], deque[Any]] | None = None
        self._chunk = 16

    def __next__(self) -> Any:
        while True:
            try:
                return self._buffer.popleft()
            except IndexError:
                self.fill()

    @property
    def ahead(self) -> deque[Any]:
        """What was read ahead, the next entry first. Empty at once when the iterator or its store closes."""
        return self._buffer

    def tell(self, told: list[str], held: deque[Any]) -> None:
        """Have the store's name put into `told`, and `held` emptied, when the iterator or its store closes:
        for whoever holds entries of this one elsewhere than in `ahead`.
        """
        self._told = told, held

    def through(self, make: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Have `make` turn each chunk of entries into what the iterator gives. Before the first is read.

        It is called inside the gate. It must not hold on to this iterator, which lives by its references.
        """
        convert = self._convert
        self._convert = make if convert is None else lambda entries: make(list(convert(entries)))

    def fill(self) -> None:
        """Read some more ahead; there may be none among them that is wanted.

        Raises:
            ClosedStoreError: the store is closed.
            StopIteration: there are no more.
        """
        if not self._chunk_into(self._buffer):
            raise StopIteration

    def block(self) -> list[Any]:
        """Some more entries, for whoever holds them elsewhere than in `ahead`; empty: there are no more.

        Raises:
            ClosedStoreError: the store is closed.
        """
        found: list[Any] = []
        while not found and self._chunk_into(found):
            pass  # of what was read, nothing was wanted
        return found

    def _chunk_into(self, found: deque[Any] | list[Any]) -> bool:
        """Read a chunk, and put what is wanted of it there; whether there was one."""
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
        # Short scans read little ahead; long ones pay the gate rarely; large values do not fill the memory.
        key, value = entries[-1]
        largest = max(1, _CHUNK_BYTES // (len(key) + len(value) + 1))
        self._chunk = min(self._chunk * 4, _LARGEST_CHUNK, largest)
        return True

    def close(self) -> None:
        """Release what it holds; there are no more entries. Idempotent."""
        self._read = None
        self._buffer.clear()
        if self._told is not None:
            told, held = self._told
            told.append(self._store)
            held.clear()


class OpenIterators:
    """The iterators of one store that are open, so that closing the store ends them."""

    __slots__ = ("_iterators", "_limit", "_lock", "_store")

    def __init__(self, store: str, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._lock = threading.Lock()
        self._iterators: WeakSet[StoreIterator] = WeakSet()

    def add(self, iterator: StoreIterator) -> None:
        """Keep track of it, until it is dropped.

        Raises:
            IllegalStateException: too many are open.
        """
        with self._lock:
            if len(self._iterators) >= self._limit:
                # Count only what holds something: one that was read to its end may still be referred to.
                for other in list(self._iterators):
                    if other._read is None:
                        self._iterators.discard(other)
                if len(self._iterators) >= self._limit:
                    raise IllegalStateException(
                        f"store '{self._store}' has {self._limit} open iterators, the most it may have; "
                        f"close each one after use: 'with store.range(a, b) as entries: ...'"
                    )
            self._iterators.add(iterator)

    def __len__(self) -> int:
        with self._lock:
            return sum(1 for iterator in self._iterators if iterator._read is not None)

    def end_all(self) -> None:
        """Close each. Called once the store's gate is shut, so that none of them is reading."""
        with self._lock:
            for iterator in list(self._iterators):
                iterator.close()
            self._iterators.clear()
