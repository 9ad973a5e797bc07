"""Window and session stores for processors: in segments of time, as in stores/segments.py.

Source: org.apache.kafka.streams.state.WindowStore, TimestampedWindowStore, SessionStore;
    state.internals.InMemoryWindowStore, RocksDBWindowStore, InMemorySessionStore.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from struct import Struct
from typing import Any

from millstream.model import KeyValue, SessionWindow, TimeWindow, ValueAndTimestamp, Windowed
from millstream.processors.graph import StoreSpec
from millstream.processors.holding import (
    ByteStore,
    Changed,
    HeldStore,
    StoreIterator,
    StoreScope,
    warn_of_order,
    with_timestamp,
)
from millstream.query.times import Time, to_ms
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
from millstream.stores.store_base import timestamp_of

__all__ = ["SessionStore", "TimestampedWindowStore", "WindowStore"]

_MARK = b""
_TIME = Struct(">q")
_TIMES = Struct(">qq")
_NUMBER = Struct(">i")
_NO_TIME = -1


class _Segmented(HeldStore):
    """The common part of window and session stores."""

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: StoreScope, changed: Changed | None) -> None:
        super().__init__(spec, data, scope, changed)
        self._retention = spec.retention_ms or 0
        self._interval = segment_interval(self._retention)
        self._seen: int | None = None
        self._sequence = 0

    def _newest(self) -> int:
        """The newest time that was put; -1 if there was none."""
        if self._seen is None or self._spec.read_only:
            marked = self._data.get(_MARK)
            self._seen = _NO_TIME
            if marked is not None:
                (self._seen,) = _TIME.unpack_from(marked)
                (self._sequence,) = _NUMBER.unpack_from(marked, 8)
        return self._seen

    def _is_late(self, time: int) -> bool:
        """Whether this time has expired. Drops expired entries if it is the newest."""
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
        """Entries with these keys, possibly of other times too, without their segments, in key order."""
        newest = self._newest()
        low, high = max(0, low, newest - self._retention + 1), min(high, newest)
        if newest < 0 or low > high:
            return iter(())
        head = b"" if first is None else escaped(first)
        tail = b"" if last is None else escaped(last)
        if tail and head > tail:
            warn_of_order(self._spec.name)
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
    """The last value of each key in each window or, with duplicates, all values. Times are datetimes, or
    milliseconds since the epoch; iterators return milliseconds.

    Source: org.apache.kafka.streams.state.WindowStore.
    """

    def put(self, key: Any, value: Any, window_start: Time) -> None:
        """Set a key's value in the window that starts at this time; None deletes it, unless duplicates are
        kept. Windows older than the retention are not kept.
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
        """`fetch(key, time)`: the value of the key's window that starts at `time`; None if there is none.

        `fetch(key, time_from, time_to)`: the key's windows that start in this range, both ends inclusive, as
        pairs of start and value. `fetch(key_from, key_to, time_from, time_to)`: the windows of a range of
        keys, as pairs of Windowed and value; None as a key leaves that side open.
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
        """The windows of every key that start in this range, both ends inclusive."""
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
    """The same with the timestamps of the values: it takes and returns `ValueAndTimestamp`s.

    Source: org.apache.kafka.streams.state.TimestampedWindowStore.
    """

    def _bytes(self, value: Any) -> tuple[bytes | None, int]:
        plain, timestamp = with_timestamp(self._spec.name, value, self._scope.timestamp)
        return self._of_value(plain), timestamp

    def _value(self, stored: bytes) -> Any:
        return ValueAndTimestamp(self._to_value(stored), timestamp_of(stored))


class SessionStore(_Segmented):
    """The value of each session of each key. Times are datetimes, or milliseconds since the epoch.

    Source: org.apache.kafka.streams.state.SessionStore.
    """

    def put(self, session_key: Windowed[Any], aggregate: Any) -> None:
        """Set the value of a session, `Windowed(key, SessionWindow(start, end))`; None deletes it. Sessions
        older than the retention are not kept.
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
        """The value of the key's session with exactly this start and end; None if there is none."""
        data = self._key(key)
        start, end = to_ms(session_start_time, "the start"), to_ms(session_end_time, "the end")
        if end < 0 or start < 0 or end <= self._newest() - self._retention:
            return None
        stored = self._data.get(self._local(data, start, end))
        return None if stored is None else self._value(stored)

    def fetch(self, *keys: Any) -> StoreIterator:
        """`fetch(key)`: the key's sessions. `fetch(key_from, key_to)`: the sessions of a range of keys."""
        return self._fetch("fetch", keys, reverse=False)

    def backward_fetch(self, *keys: Any) -> StoreIterator:
        """The same sessions as `fetch` with the same arguments, last first."""
        return self._fetch("backward_fetch", keys, reverse=True)

    def find_sessions(self, *arguments: Any) -> StoreIterator:
        """`find_sessions(key, earliest_session_end_time, latest_session_start_time)`: the key's sessions that
        end at the first time or later, and start at the second or earlier. With two keys before the times:
        the sessions of a range of keys.

        `find_sessions(earliest_session_end_time, latest_session_end_time)`: the sessions of every key that
        end in this range, both ends inclusive.
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
