"""What a processor sees of its stores: Kafka Streams' writable interfaces, over a ByteStore.

Bytes: what a ByteStore holds is a value behind its timestamp, 8 bytes (`stores/api.py: to_stored`). Its keys:

    key-value   the key
    window      segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session     segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes
    versioned   L | key, escaped | 00 00                        newest version
                V | key, escaped | 00 00 | time, newest first   any other version
                E | valid to, 8 bytes | one of the two          when that can be forgotten

Except in a key-value store, what stands under the empty key is what the store knows of itself: the newest
time of all, behind which things are forgotten. The sequence number is there where duplicates are kept.
Before a version's value is a byte, 01, or 00 alone for a deletion, and of a V before that, 8 bytes, how
long it was valid. Changelogs have Kafka's keys.

A window or a session is gone at once when it is older than the retention, and its segment in the very put
that makes it so. Versions are forgotten now and then.

Source: org.apache.kafka.streams.state (KeyValueStore, TimestampedKeyValueStore, WindowStore,
    TimestampedWindowStore, SessionStore, VersionedKeyValueStore).
Differs: windows and sessions of several keys come in the order of the keys, not of the times. What a
    versioned store does not put is not in its changelog either, and what it had is told with how long.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import Any, Protocol

from millstream.errors import IllegalStateException
from millstream.model import KeyValue, SessionWindow, StoreKind, TimeWindow, ValueAndTimestamp, Windowed
from millstream.processors.graph import StoreSpec
from millstream.query.result import VersionedRecord
from millstream.query.times import Time, to_ms
from millstream.stores.api import pack_timestamp, timestamp_of
from millstream.stores.keys import (
    MAX_TIME_MS,
    escaped,
    pack_segment,
    pack_time,
    session_key,
    unescaped,
    window_key,
)
from millstream.stores.segments import segment_interval

__all__ = [
    "ByteStore",
    "KeyValueStore",
    "Scope",
    "SessionStore",
    "StoreIterator",
    "TimestampedKeyValueStore",
    "TimestampedWindowStore",
    "VersionedKeyValueStore",
    "WindowStore",
    "changelog_record",
    "store_of",
]

_log = logging.getLogger(__name__)

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
PUT_RETURN_CODE_NOT_PUT = -(2**63)

_MARK = b""
_TIME = Struct(">q")
_TIMES = Struct(">qq")
_NUMBER = Struct(">i")
_SORTABLE = Struct(">Q")
_NO_TIME = -1
_NEVER = -(2**63)
_A_VALUE, _A_DELETION = b"\x01", b"\x00"

Changed = Callable[[bytes, bytes | None, int], None]


class ByteStore(Protocol):
    """An ordered map of bytes, which shows what was put into it at once."""

    def get(self, key: bytes, /) -> bytes | None:
        """What was put under the key."""

    def put(self, key: bytes, value: bytes | None, /) -> None:
        """Put it, or with None delete it."""

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False, /
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries from the key `first`, included, to the key `end`, which is not, in the order of bytes.

        None: from the first, to the last. Puts and deletes are allowed while it is read. Whether it shows
        them is open; an entry that nobody touches is shown exactly once.
        """

    def approximate_num_entries(self) -> int:
        """How many entries there are, about."""


class Scope(Protocol):
    """What a store asks of the task that it is for."""

    live: bool
    """Whether the task is at work: stores can be used."""

    timestamp: int
    """That of the record, or of the punctuation, that is being processed."""


class StoreIterator(Iterator[Any]):
    """Entries of a store. It may be closed, and needs not be; a store may be written to while it is read.

    Source: org.apache.kafka.streams.state.KeyValueIterator.
    """

    __slots__ = ("_ahead", "_entries", "_store")

    def __init__(self, store: _Store, entries: Iterator[Any]) -> None:
        self._store = store
        self._entries = entries
        self._ahead: list[Any] = []

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.pop()
        if not self._store._scope.live:
            self._store._refuse()
        return next(self._entries)

    def has_next(self) -> bool:
        """Whether there is another entry."""
        if not self._ahead:
            for entry in self:
                self._ahead.append(entry)
                break
        return bool(self._ahead)

    def next(self) -> Any:
        """The next entry.

        Raises:
            StopIteration: there is none.
        """
        return next(self)

    def peek_next_key(self) -> Any:
        """The key of the next entry, which stays the next.

        Raises:
            StopIteration: there is none.
        """
        if not self.has_next():
            raise StopIteration
        return self._ahead[0][0]

    def close(self) -> None:
        """There are no more entries. Idempotent."""
        self._ahead.clear()
        self._entries = iter(())

    def __enter__(self) -> StoreIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Store:
    """What all stores have.

    Raises, from every method:
        IllegalStateException: the record of its task has been processed; somebody has kept the store.
        SerializationException: a key or a value does not fit the store's serde.
    """

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: Scope, changed: Changed | None) -> None:
        self._spec = spec
        self._data = data
        self._scope = scope
        self._changed = changed
        self._of_key = spec.key_serde.serialize
        self._to_key = spec.key_serde.decoder()
        self._of_value = spec.value_serde.serialize
        self._to_value = spec.value_serde.decoder(8)

    def name(self) -> str:
        """The store's name."""
        return self._spec.name

    def persistent(self) -> bool:
        """Whether its content outlives the process. It always does."""
        return True

    def is_open(self) -> bool:
        """Whether it can be used now."""
        return self._scope.live

    def flush(self) -> None:
        """Nothing: what is put is kept with the micro-batch."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self._spec.name}'>"

    def _refuse(self) -> None:
        raise IllegalStateException(
            f"store '{self._spec.name}' was used when its task was not at work: a store is used inside "
            "init(), "
            "process() and punctuators, by the processor that got it from its own context, and is not kept "
            "elsewhere"
        )

    def _key(self, key: Any) -> bytes:
        if not self._scope.live:
            self._refuse()
        data: bytes | None = self._of_key(key)
        if data is None:
            raise ValueError(f"store '{self._spec.name}': a key cannot be None")
        return data

    def _bound(self, key: Any) -> bytes | None:
        if not self._scope.live:
            self._refuse()
        data: bytes | None = self._of_key(key)
        return data

    def _iterator(self, entries: Iterator[Any]) -> StoreIterator:
        if not self._scope.live:
            self._refuse()
        return StoreIterator(self, entries)

    def _writable(self) -> None:
        if self._spec.read_only:
            raise IllegalStateException(
                f"store '{self._spec.name}' is a global store, which processors only read; what is to be in "
                "it is written to its topic"
            )

    def _put(self, key: bytes, changelog_key: bytes, value: bytes | None, timestamp: int) -> None:
        self._data.put(key, None if value is None else pack_timestamp(timestamp) + value)
        if self._changed is not None:
            self._changed(changelog_key, value, timestamp)


# --- key-value ---------------------------------------------------------------------------------------------


class KeyValueStore(_Store):
    """The last value of each key. Ranges are in the order of the keys' bytes.

    Source: org.apache.kafka.streams.state.KeyValueStore.
    """

    def get(self, key: Any) -> Any:
        """The value of the key; None: it has none."""
        return self._value(self._data.get(self._key(key)))

    def put(self, key: Any, value: Any) -> None:
        """Give a key a value; None deletes it."""
        self._write(self._key(key), value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Give a key a value if it has none. Returns the one that it had."""
        data = self._key(key)
        before = self._data.get(data)
        if before is None:
            self._write(data, value)
        return self._value(before)

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Give each key its value, one after the other."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Delete a key. Returns the value that it had."""
        data = self._key(key)
        before = self._data.get(data)
        self._write(data, None)
        return self._value(before)

    def range(self, from_: Any, to: Any) -> StoreIterator:
        """The entries from one key to another, both included; None: from the first, to the last."""
        return self._range(from_, to, reverse=False)

    def reverse_range(self, from_: Any, to: Any) -> StoreIterator:
        """The same entries as `range(from_, to)`, last first."""
        return self._range(from_, to, reverse=True)

    def all(self) -> StoreIterator:
        """Every entry."""
        return self._scan(None, None, reverse=False)

    def reverse_all(self) -> StoreIterator:
        """Every entry, last first."""
        return self._scan(None, None, reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serializer: Any = None) -> StoreIterator:
        """The entries whose keys begin with these bytes: with those of `prefix` by a serde, the store's own
        if none is given."""
        serde = prefix_serializer or self._spec.key_serde
        first = serde.serialize(prefix)
        return self._scan(first, _after(first), reverse=False)

    def approximate_num_entries(self) -> int:
        """How many entries there are, about."""
        if not self._scope.live:
            self._refuse()
        return self._data.approximate_num_entries()

    def __contains__(self, key: Any) -> bool:
        return self._data.get(self._key(key)) is not None

    def _value(self, stored: bytes | None) -> Any:
        return None if stored is None else self._to_value(stored)

    def _write(self, key: bytes, value: Any) -> None:
        self._writable()
        self._put(key, key, self._of_value(value), self._scope.timestamp)

    def _range(self, from_: Any, to: Any, *, reverse: bool) -> StoreIterator:
        first, last = self._bound(from_), self._bound(to)
        if first is not None and last is not None and first > last:
            _warn_of_order(self._spec.name)
            return self._iterator(iter(()))
        return self._scan(first, None if last is None else last + b"\0", reverse=reverse)

    def _scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> StoreIterator:
        to_key, to_value = self._to_key, self._value
        entries = self._data.range(first, end, reverse)
        return self._iterator(KeyValue(to_key(key), to_value(stored)) for key, stored in entries)


class TimestampedKeyValueStore(KeyValueStore):
    """The same with the timestamps of the values: what is put and what is got is a ValueAndTimestamp.

    Source: org.apache.kafka.streams.state.TimestampedKeyValueStore.
    """

    def _value(self, stored: bytes | None) -> Any:
        return None if stored is None else ValueAndTimestamp(self._to_value(stored), timestamp_of(stored))

    def _write(self, key: bytes, value: Any) -> None:
        self._writable()
        plain, timestamp = _with_timestamp(self._spec.name, value, self._scope.timestamp)
        self._put(key, key, self._of_value(plain), timestamp)


def _with_timestamp(store: str, value: Any, otherwise: int) -> tuple[Any, int]:
    if value is None:
        return None, otherwise
    if not isinstance(value, ValueAndTimestamp):
        raise TypeError(
            f"store '{store}' keeps values with their timestamps: put a ValueAndTimestamp(value, "
            "timestamp), or "
            f"None, not {value!r}; a store of key_value_store_builder() takes the value alone"
        )
    if value.value is None:
        return None, otherwise
    return value


# --- windows and sessions ----------------------------------------------------------------------------------


class _Segmented(_Store):
    """What stores of windows and of sessions have in common."""

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: Scope, changed: Changed | None) -> None:
        super().__init__(spec, data, scope, changed)
        self._retention = spec.retention_ms or 0
        self._interval = segment_interval(self._retention)
        self._seen: int | None = None
        self._sequence = 0

    def _newest(self) -> int:
        """The newest time that was put; -1: there was none."""
        if self._seen is None or self._spec.read_only:
            marked = self._data.get(_MARK)
            self._seen = _NO_TIME
            if marked is not None:
                (self._seen,) = _TIME.unpack_from(marked)
                (self._sequence,) = _NUMBER.unpack_from(marked, 8)
        return self._seen

    def _is_late(self, time: int) -> bool:
        """Whether nothing of this time is kept any more. Makes room if it is the newest."""
        newest = self._newest()
        if time > newest:
            self._seen = time
            self._mark()
            before, first = self._first_segment(newest), self._first_segment(time)
            if before < first:
                for key, _ in list(self._data.range(pack_segment(before), pack_segment(first))):
                    self._data.put(key, None)
            return False
        return time <= newest - self._retention

    def _mark(self) -> None:
        assert self._seen is not None
        self._data.put(_MARK, _TIME.pack(self._seen) + _NUMBER.pack(self._sequence))

    def _first_segment(self, time: int) -> int:
        return max(0, time - self._retention + 1) // self._interval

    def _segment(self, time: int) -> bytes:
        return pack_segment(time // self._interval)

    def _entries(
        self, first: bytes | None, last: bytes | None, low: int, high: int, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """Entries with these keys, and of other times too, without their segments, in the order of the
        keys."""
        newest = self._newest()
        low, high = max(0, low, newest - self._retention + 1), min(high, newest)
        if newest < 0 or low > high:
            return iter(())
        head = b"" if first is None else escaped(first)
        tail = b"" if last is None else escaped(last)
        if tail and head > tail:
            _warn_of_order(self._spec.name)
            return iter(())
        parts = []
        for number in range(low // self._interval, high // self._interval + 1):
            segment = pack_segment(number)
            if head and head == tail:
                begin, end = segment + head + pack_time(low), segment + head + pack_time(high) + b"\xff" * 9
            else:
                begin = segment + head
                end = segment + tail + b"\xff" * 17 if tail else pack_segment(number + 1)
            parts.append(self._data.range(begin, end, reverse))
        stripped = [((key[8:], stored) for key, stored in part) for part in parts]
        if len(stripped) == 1:
            return iter(stripped[0])
        return heapq.merge(*stripped, key=lambda entry: entry[0], reverse=reverse)

    def _value(self, stored: bytes) -> Any:
        return self._to_value(stored)


class WindowStore(_Segmented):
    """The last value of each key in each window, or with duplicates all of them. Times are datetimes, or
    milliseconds since the epoch; those of iterators are milliseconds.

    Source: org.apache.kafka.streams.state.WindowStore.
    """

    def put(self, key: Any, value: Any, window_start: Time) -> None:
        """Give a key a value in the window that starts then; None deletes it, unless duplicates are kept.

        What is older than the retention is not kept.
        """
        self._writable()
        plain = self._key(key)
        start = to_ms(window_start, "the start of a window")
        data, timestamp = self._bytes(value)
        self._newest()
        late = self._is_late(start)
        if self._spec.duplicates:
            self._sequence = (self._sequence + 1) & 0x7FFFFFFF
            self._mark()
        changelog_key = window_key(plain, start, self._sequence)
        if late or (self._spec.duplicates and data is None):
            if self._changed is not None:
                self._changed(changelog_key, data, timestamp)
            return
        self._put(self._local(plain, start), changelog_key, data, timestamp)

    def fetch(self, *arguments: Any) -> Any:
        """`fetch(key, time)`: the value of the key's window that starts then; None if there is none.

        `fetch(key, time_from, time_to)`: the key's windows that start in between, both included, as pairs of
        start and value. `fetch(key_from, key_to, time_from, time_to)`: those of a range of keys, as pairs of
        Windowed and value; a key that is None leaves the range open.
        """
        if len(arguments) == 2:
            key, time = self._key(arguments[0]), to_ms(arguments[1], "the start of a window")
            newest = self._newest()
            if time < 0 or time <= newest - self._retention:
                return None
            stored = self._data.get(self._local(key, time))
            return None if stored is None else self._value(stored)
        return self._fetch("fetch", arguments, reverse=False)

    def backward_fetch(self, *arguments: Any) -> StoreIterator:
        """The same windows as `fetch` with the same arguments, last first."""
        return self._fetch("backward_fetch", arguments, reverse=True)

    def fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator:
        """The windows of every key that start in between, both included."""
        return self._windows(None, None, time_from, time_to, reverse=False)

    def backward_fetch_all(self, time_from: Time, time_to: Time) -> StoreIterator:
        """The same windows as `fetch_all`, last first."""
        return self._windows(None, None, time_from, time_to, reverse=True)

    def all(self) -> StoreIterator:
        """Every window of every key."""
        return self._windows(None, None, 0, MAX_TIME_MS, reverse=False)

    def backward_all(self) -> StoreIterator:
        """The same windows as `all()`, last first."""
        return self._windows(None, None, 0, MAX_TIME_MS, reverse=True)

    def _bytes(self, value: Any) -> tuple[bytes | None, int]:
        return self._of_value(value), self._scope.timestamp

    def _local(self, key: bytes, start: int) -> bytes:
        local = self._segment(start) + escaped(key) + pack_time(start)
        return local + _NUMBER.pack(self._sequence) if self._spec.duplicates else local

    def _fetch(self, method: str, arguments: tuple[Any, ...], *, reverse: bool) -> StoreIterator:
        if len(arguments) == 4:
            first, last = self._bound(arguments[0]), self._bound(arguments[1])
            return self._windows(first, last, *arguments[2:], reverse=reverse)
        if len(arguments) != 3:
            raise TypeError(
                f"{method}() takes key and two times, or two keys and two times; got {len(arguments)} "
                "arguments"
            )
        key = self._key(arguments[0])
        entries = self._between(key, key, arguments[1], arguments[2], reverse=reverse)
        return self._iterator(KeyValue(start, self._value(stored)) for _, start, stored in entries)

    def _windows(
        self, first: bytes | None, last: bytes | None, low: Time, high: Time, *, reverse: bool
    ) -> StoreIterator:
        if not self._scope.live:
            self._refuse()
        entries = self._between(first, last, low, high, reverse=reverse)
        size, to_key = self._spec.window_size_ms or 0, self._to_key
        return self._iterator(
            KeyValue(
                Windowed(to_key(key), TimeWindow(start, min(start + size, MAX_TIME_MS))), self._value(stored)
            )
            for key, start, stored in entries
        )

    def _between(
        self, first: bytes | None, last: bytes | None, low: Time, high: Time, *, reverse: bool
    ) -> Iterator[tuple[bytes, int, bytes]]:
        low, high = to_ms(low, "the first time"), to_ms(high, "the last time")
        oldest = max(low, self._newest() - self._retention + 1)
        tail = 12 if self._spec.duplicates else 8
        for local, stored in self._entries(first, last, low, high, reverse=reverse):
            (start,) = _TIME.unpack_from(local, len(local) - tail)
            if oldest <= start <= high:
                yield unescaped(local[:-tail]), start, stored


class TimestampedWindowStore(WindowStore):
    """The same with the timestamps of the values: what is put and what is got is a ValueAndTimestamp.

    Source: org.apache.kafka.streams.state.TimestampedWindowStore.
    """

    def _bytes(self, value: Any) -> tuple[bytes | None, int]:
        plain, timestamp = _with_timestamp(self._spec.name, value, self._scope.timestamp)
        return self._of_value(plain), timestamp

    def _value(self, stored: bytes) -> Any:
        return ValueAndTimestamp(self._to_value(stored), timestamp_of(stored))


class SessionStore(_Segmented):
    """The value of each session of each key. Times are datetimes, or milliseconds since the epoch.

    Source: org.apache.kafka.streams.state.SessionStore.
    """

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Give a session, `Windowed(key, SessionWindow(start, end))`, a value; None deletes it.

        What has ended before the retention is not kept.
        """
        self._writable()
        key, start, end = self._session(session_key)
        data = self._of_value(aggregate)
        late = self._is_late(end)
        self._write(key, start, end, data, late=late)

    def remove(self, session_key: Windowed[Any]) -> None:
        """Delete a session."""
        self._writable()
        key, start, end = self._session(session_key)
        self._write(key, start, end, None, late=False)

    def fetch_session(self, key: Any, session_start_time: Time, session_end_time: Time) -> Any:
        """The value of the key's session from exactly one time to the other; None if there is none."""
        data = self._key(key)
        start, end = to_ms(session_start_time, "the start"), to_ms(session_end_time, "the end")
        if end < 0 or start < 0 or end <= self._newest() - self._retention:
            return None
        stored = self._data.get(self._local(data, start, end))
        return None if stored is None else self._value(stored)

    def fetch(self, *keys: Any) -> StoreIterator:
        """`fetch(key)`: the key's sessions. `fetch(key_from, key_to)`: those of a range of keys."""
        return self._fetch("fetch", keys, reverse=False)

    def backward_fetch(self, *keys: Any) -> StoreIterator:
        """The same sessions as `fetch` with the same arguments, last first."""
        return self._fetch("backward_fetch", keys, reverse=True)

    def find_sessions(self, *arguments: Any) -> StoreIterator:
        """`find_sessions(key, earliest_session_end_time, latest_session_start_time)`: the key's sessions that
        end then or later, and start then or earlier. With two keys before the times: those of a range of
        keys.

        `find_sessions(earliest_session_end_time, latest_session_end_time)`: those of every key that end in
        between, both included.
        """
        return self._find("find_sessions", arguments, reverse=False)

    def backward_find_sessions(self, *arguments: Any) -> StoreIterator:
        """The same sessions as `find_sessions` with the same arguments, last first."""
        return self._find("backward_find_sessions", arguments, reverse=True)

    def _session(self, session: Any) -> tuple[bytes, int, int]:
        window = getattr(session, "window", None)
        start, end = getattr(window, "start_ms", None), getattr(window, "end_ms", None)
        if start is None or end is None:
            raise TypeError(
                f"store '{self._spec.name}' takes Windowed(key, SessionWindow(start, end)), got {session!r}"
            )
        return self._key(session.key), start, end

    def _local(self, key: bytes, start: int, end: int) -> bytes:
        return self._segment(end) + escaped(key) + _TIMES.pack(end, start)

    def _write(self, key: bytes, start: int, end: int, data: bytes | None, *, late: bool) -> None:
        changelog_key = session_key(key, start, end)
        if not late:
            self._put(self._local(key, start, end), changelog_key, data, self._scope.timestamp)
        elif self._changed is not None:
            self._changed(changelog_key, data, self._scope.timestamp)

    def _fetch(self, method: str, keys: tuple[Any, ...], *, reverse: bool) -> StoreIterator:
        if len(keys) == 1:
            first = last = self._key(keys[0])
            return self._sessions(first, last, 0, MAX_TIME_MS, MAX_TIME_MS, reverse=reverse)
        if len(keys) != 2:
            raise TypeError(f"{method}() takes a key, or two; got {len(keys)} arguments")
        first_key, last_key = self._bound(keys[0]), self._bound(keys[1])
        return self._sessions(first_key, last_key, 0, MAX_TIME_MS, MAX_TIME_MS, reverse=reverse)

    def _find(self, method: str, arguments: tuple[Any, ...], *, reverse: bool) -> StoreIterator:
        if len(arguments) == 2:
            low, high = (to_ms(time, "a session's end") for time in arguments)
            return self._sessions(None, None, low, high, MAX_TIME_MS, reverse=reverse)
        if len(arguments) not in (3, 4):
            raise TypeError(
                f"{method}() takes a key or two keys, and two times; or two times; got {len(arguments)} "
                "arguments"
            )
        end, start = to_ms(arguments[-2], "the earliest end"), to_ms(arguments[-1], "the latest start")
        if len(arguments) == 3:
            first: bytes | None = self._key(arguments[0])
            last = first
        else:
            first, last = self._bound(arguments[0]), self._bound(arguments[1])
        return self._sessions(first, last, end, MAX_TIME_MS, start, reverse=reverse)

    def _sessions(
        self,
        first: bytes | None,
        last: bytes | None,
        earliest_end: int,
        latest_end: int,
        latest_start: int,
        *,
        reverse: bool,
    ) -> StoreIterator:
        oldest = max(earliest_end, self._newest() - self._retention + 1)
        to_key = self._to_key

        def found() -> Iterator[KeyValue[Windowed[Any], Any]]:
            for local, stored in self._entries(first, last, earliest_end, latest_end, reverse=reverse):
                end, start = _TIMES.unpack_from(local, len(local) - 16)
                if oldest <= end <= latest_end and start <= latest_start:
                    key = to_key(unescaped(local[:-16]))
                    yield KeyValue(Windowed(key, SessionWindow(start, end)), self._value(stored))

        return self._iterator(found())


# --- versions ----------------------------------------------------------------------------------------------


class VersionedKeyValueStore(_Store):
    """The values that a key has had: each valid from its timestamp on, up to that of the next one.

    Times are datetimes, or milliseconds since the epoch.

    Source: org.apache.kafka.streams.state.VersionedKeyValueStore (KIP-889).
    """

    PUT_RETURN_CODE_VALID_TO_UNDEFINED = PUT_RETURN_CODE_VALID_TO_UNDEFINED
    PUT_RETURN_CODE_NOT_PUT = PUT_RETURN_CODE_NOT_PUT

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: Scope, changed: Changed | None) -> None:
        super().__init__(spec, data, scope, changed)
        self._history = spec.history_ms or 0
        self._seen: int | None = None
        self._forgotten = _NEVER

    def put(self, key: Any, value: Any, timestamp: Time) -> int:
        """Give a key a value from a time on; None deletes it from then on.

        Returns:
            Up to when it is valid; -1: it is the newest; PUT_RETURN_CODE_NOT_PUT: it is older than the
            history.
        """
        self._writable()
        plain, time = self._key(key), to_ms(timestamp, "the timestamp of a version")
        return self._put_version(plain, self._of_value(value), time)

    def delete(self, key: Any, timestamp: Time) -> VersionedRecord[Any] | None:
        """Delete a key from a time on. Returns what it had then."""
        self._writable()
        plain, time = self._key(key), to_ms(timestamp, "the timestamp of a version")
        if time < self._newest() - self._history:
            return None
        before = self._as_of(plain, time)
        self._put_version(plain, None, time)
        return before

    def get(self, key: Any, as_of_timestamp: Time | None = None) -> VersionedRecord[Any] | None:
        """What a key has, or had as of a time; None: nothing, or that is longer ago than the history."""
        plain = self._key(key)
        if as_of_timestamp is not None:
            return self._as_of(plain, to_ms(as_of_timestamp, "the time to look at"))
        latest = self._data.get(b"L" + escaped(plain))
        return None if latest is None else self._record(latest, 8, None)

    def _newest(self) -> int:
        if self._seen is None or self._spec.read_only:
            marked = self._data.get(_MARK)
            self._seen, self._forgotten = (_NO_TIME, _NEVER) if marked is None else _TIMES.unpack(marked)
        return self._seen

    def _record(self, stored: bytes, at: int, valid_to: int | None) -> VersionedRecord[Any] | None:
        if stored[at : at + 1] == _A_DELETION:
            return None
        value = self._spec.value_serde.deserialize(stored[at + 1 :])
        return VersionedRecord(value, timestamp_of(stored), valid_to)

    def _as_of(self, key: bytes, time: int) -> VersionedRecord[Any] | None:
        body = escaped(key)
        latest = self._data.get(b"L" + body)
        if latest is None:
            return None
        if timestamp_of(latest) <= time:
            return self._record(latest, 8, None)
        if time < self._newest() - self._history:
            return None
        for _, stored in self._data.range(b"V" + body + _newest_first(time), b"V" + body + b"\xff" * 9):
            (valid_to,) = _TIME.unpack_from(stored, 8)
            return self._record(stored, 16, valid_to) if time < valid_to else None
        return None

    def _put_version(self, key: bytes, value: bytes | None, time: int) -> int:
        newest = self._newest()
        if time < newest - self._history:
            return PUT_RETURN_CODE_NOT_PUT
        body = escaped(key)
        content = _A_DELETION if value is None else _A_VALUE + value
        latest_key = b"L" + body
        latest = self._data.get(latest_key)
        valid_to = PUT_RETURN_CODE_VALID_TO_UNDEFINED
        if latest is None or timestamp_of(latest) <= time:
            if latest is not None:
                before = timestamp_of(latest)
                if latest[8:9] == _A_DELETION:
                    self._data.put(_expiry(before, latest_key), None)
                if before < time:
                    self._keep(body, before, time, latest[8:])
            self._data.put(latest_key, pack_timestamp(time) + content)
            if value is None:
                self._data.put(_expiry(time, latest_key), b"")
        else:
            valid_to = self._insert(body, time, content, timestamp_of(latest))
        if self._changed is not None:
            self._changed(key, value, time)
        self._advance(max(newest, time))
        return valid_to

    def _insert(self, body: bytes, time: int, content: bytes, latest: int) -> int:
        """Put a version before the latest one. Returns up to when it is valid."""
        here, valid_to = b"V" + body + _newest_first(time), latest
        for _, stored in self._data.range(b"V" + body, here, True):
            valid_to = timestamp_of(stored)
            break
        for older, stored in self._data.range(here, b"V" + body + b"\xff" * 9):
            (until,) = _TIME.unpack_from(stored, 8)
            self._data.put(_expiry(until, older), None)
            if older != here:
                self._keep(body, timestamp_of(stored), time, stored[16:])
            break
        self._keep(body, time, valid_to, content)
        return valid_to

    def _keep(self, body: bytes, time: int, valid_to: int, content: bytes) -> None:
        """Have a version which is not the latest."""
        key = b"V" + body + _newest_first(time)
        self._data.put(key, pack_timestamp(time) + _TIME.pack(valid_to) + content)
        self._data.put(_expiry(valid_to, key), b"")

    def _advance(self, newest: int) -> None:
        """Forget what was valid only before the history; not at every put."""
        horizon = newest - self._history
        interval = max(self._history // 4, 1)
        forgets = self._forgotten == _NEVER or horizon // interval > self._forgotten // interval
        if newest == self._seen and not forgets:
            return
        self._seen = newest
        if forgets:
            self._forgotten = horizon
            for key, _ in list(self._data.range(b"E", b"E" + _sortable(horizon))):
                self._data.put(key[9:], None)
                self._data.put(key, None)
        self._data.put(_MARK, _TIMES.pack(newest, self._forgotten))


def _expiry(valid_to: int, key: bytes) -> bytes:
    return b"E" + _sortable(valid_to) + key


def _sortable(time: int) -> bytes:
    """8 bytes in the order of the numbers, negative ones included."""
    return _SORTABLE.pack(time + 2**63)


def _newest_first(time: int) -> bytes:
    return _SORTABLE.pack(2**63 - 1 - time)


# --- what a home needs -------------------------------------------------------------------------------------


def store_of(spec: StoreSpec, data: ByteStore, scope: Scope, changed: Changed | None) -> _Store:
    """The interface that a store has; `changed` is told what its changelog is to have."""
    kind: type[_Store]
    if spec.kind is StoreKind.SESSION:
        kind = SessionStore
    elif spec.kind is StoreKind.WINDOW:
        kind = TimestampedWindowStore if spec.timestamped else WindowStore
    elif spec.history_ms is not None:
        kind = VersionedKeyValueStore
    else:
        kind = TimestampedKeyValueStore if spec.timestamped else KeyValueStore
    return kind(spec, data, scope, changed)


def changelog_record(store: StoreSpec, key: bytes, stored: bytes) -> tuple[bytes, bytes | None, int] | None:
    """What the changelog has for an entry of a ByteStore: key, value and timestamp; None: nothing.

    For whoever writes a changelog anew.
    """
    if store.kind is StoreKind.KEY_VALUE and store.history_ms is None:
        return key, stored[8:], timestamp_of(stored)
    if key == _MARK:
        return None
    if store.kind is StoreKind.SESSION:
        end, start = _TIMES.unpack_from(key, len(key) - 16)
        return session_key(unescaped(key[8:-16]), start, end), stored[8:], timestamp_of(stored)
    if store.kind is StoreKind.WINDOW:
        tail = 12 if store.duplicates else 8
        (start,) = _TIME.unpack_from(key, len(key) - tail)
        (sequence,) = _NUMBER.unpack_from(key, len(key) - 4) if store.duplicates else (0,)
        return window_key(unescaped(key[8:-tail]), start, sequence), stored[8:], timestamp_of(stored)
    if key[:1] == b"E":
        return None
    body, at = (key[1:], 8) if key[:1] == b"L" else (key[1:-8], 16)
    value = None if stored[at : at + 1] == _A_DELETION else stored[at + 1 :]
    return unescaped(body), value, timestamp_of(stored)


def _after(prefix: bytes) -> bytes | None:
    """The first key that is after all that begin with a prefix; None: there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _warn_of_order(store: str) -> None:
    _log.warning(
        "store '%s': an empty range, from is after to. Are the arguments in the wrong order? Numbers are "
        "in the "
        "order of their bytes, in which negative ones come last",
        store,
    )
