"""Window and session stores, laid out in an ordered key-value store, in segments of time.

A *segment* has the windows of a span of time: half the retention, but at least a minute. Its number begins
the keys of its entries (keys.py), so all of them can be deleted as one range.

The retention counts back from the *stream time*: the newest start of a window, or end of a session, of all
records so far. When a record advances it, entries that are now older than the retention are no longer visible
to reads. They leave the disk one whole segment at a time, in the write that makes the segment too old. The
stream time is in the *mark*, an entry of its own, so a snapshot of the entries includes the time that decides
which of them are visible.

The retention touches at most three segments. A range read opens each of them, as of one moment, and merges
them; for a single key, it reads them in turn, because its windows are already ordered by time.

In front of the entries of the first live segment is the *floor*: three entries at which backward scans stop.
Otherwise they would step over every deleted entry below it, which RocksDB keeps until compaction.

Source: org.apache.kafka.streams.state.internals.AbstractRocksDBSegmentedBytesStore, RocksDBWindowStore,
RocksDBSessionStore.
Differs: one database for all segments; ranges are in key order, not segment by segment; in-memory stores
behave exactly like persistent ones, to the millisecond.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any

from millstream.clock import Clock, SystemClock
from millstream.stores.keys import END_OF_KEY, MAX_TIME_MS, escaped, pack_segment, pack_time, unescaped
from millstream.stores.laid_out import MARK, LaidOutStore, Local
from millstream.stores.store_base import (
    ClosedStoreError,
    Entry,
    KeyRange,
    OrderedBytesStore,
    SnapshotIterator,
    timestamp_of,
)

__all__ = ["DuplicatesStore", "SegmentedSessionStore", "SegmentedWindowStore", "segment_interval"]

_log = logging.getLogger(__name__)

_NO_TIME = -1
_LOG_EVERY_S = 10.0
_FLOOR = (b"", b"\0", b"\0\0")
"""What follows the number of the first live segment in the keys of the floor."""
_FIRST = b"\0\0\0"
"""Follows a segment's number where a scan of all keys starts: after the floor, before every entry."""
_AFTER = b"\xff" * 9
"""Follows a time where a scan ends: after everything that can follow a time in a local key."""
_MIN_INTERVAL_MS = 60_000

_TIME = Struct(">q").unpack_from
_TWO_TIMES = Struct(">qq").unpack_from


def segment_interval(retention_ms: int) -> int:
    """The span of a segment, in milliseconds: half of the retention, but at least a minute.

    Source: org.apache.kafka.streams.state.Stores.persistentWindowStore.
    """
    return max(retention_ms // 2, _MIN_INTERVAL_MS)


class _SegmentedStore(LaidOutStore):
    """The common part of window and session stores.

    Raises:
        ValueError: the retention is not a positive number.
    """

    _kind: str
    _laid_out_as: str
    _tail: Struct
    """The end of a key in the changelog: the time that the retention applies to, and another number."""
    _kept: slice
    """The part of that end which also ends a local key."""
    _most: int | None
    """The maximum of the other number; None if it is the time."""

    def __init__(self, inner: OrderedBytesStore, retention_ms: int, *, clock: Clock | None = None) -> None:
        if retention_ms <= 0:
            raise ValueError(
                f"store '{inner.name}' has a retention of {retention_ms} ms; the retention must be positive"
            )
        super().__init__(inner)
        self._retention = retention_ms
        self._interval = segment_interval(retention_ms)
        self._layout = f"{self._laid_out_as} {retention_ms}".encode()
        self._clock = clock or SystemClock()
        self._expired = 0
        self._untold_expired = self._untold_wrong = 0
        self._logged_at = float("-inf")
        marked = self._recovered(
            lambda layout: layout == self._layout,
            "is on disk as another kind of store, or with another retention",
        )
        self._time = _NO_TIME if marked is None else timestamp_of(marked)

    # --- what every store has ----------------------------------------------------------------------------

    @property
    def retention_ms(self) -> int:
        """How long a window is kept, by the store's stream time."""
        return self._retention

    @property
    def stream_time_ms(self) -> int | None:
        """The newest start of a window, or end of a session, of all records so far; None before the first."""
        return None if self._time == _NO_TIME else self._time

    @property
    def expired_records(self) -> int:
        """The number of records dropped since the store was opened, because their retention had passed.

        Source: the metric expired-window-record-drop.
        """
        return self._expired

    def approximate_num_entries(self) -> int:
        """The approximate number of windows, including expired ones that are not deleted yet."""
        ours = 1 if self._first_segment(self._time) == 0 else 1 + len(_FLOOR)  # the mark, and the floor
        return max(0, self._inner.approximate_num_entries() - ours)

    def wipe(self) -> None:
        """Delete all entries, the position and the time; the store stays open."""
        with self._writing:
            self._inner.wipe()
            self._time = _NO_TIME

    # --- writes ------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[tuple[bytes, bytes | None, int]], next_offset: int) -> None:
        """Put and delete, drop expired segments, and save `next_offset`, in one atomic write.

        `entries` are changelog records, with Kafka's keys. Records older than the retention are dropped, and,
        with a warning, those whose keys are not of this kind of store.
        """
        with self._writing:
            before = self._time
            local, time, expired, wrong = self._localised(entries, before)
            drop = None
            first_before, first = self._first_segment(before), self._first_segment(time)
            if first > first_before:
                lowest = pack_segment(first)
                drop = (pack_segment(first_before), lowest)
                kept = [entry for entry in local if entry[0] >= lowest]
                expired += len(local) - len(kept)  # later records of this batch made them too old
                local = kept
                local += [(lowest + each, b"", time) for each in _FLOOR]
            if time != before or self._inner.position is None:
                local.append((MARK, self._layout, time))
            self._inner.apply(local, next_offset, drop=drop)
            # Last, so that no reader applies the new time to the old entries, and takes them for expired.
            self._time = time
        if expired or wrong:
            self._log_dropped(expired, wrong)

    def _localised(
        self, entries: Sequence[tuple[bytes, bytes | None, int]], time: int
    ) -> tuple[list[Local], int, int, int]:
        """The entries with local keys; the stream time after them; the numbers of late and invalid ones."""
        local: list[Local] = []
        add, pack, interval, retention = local.append, pack_segment, self._interval, self._retention
        unpack, tail, kept, most = self._tail.unpack_from, -self._tail.size, self._kept, self._most
        plain = slice(None, tail)
        number, segment = -1, b""
        expired = wrong = 0
        for data, value, timestamp in entries:
            try:
                at, other = unpack(data, tail)
            except error:
                wrong += 1
                continue
            if at < 0 or not 0 <= other <= (at if most is None else most):
                wrong += 1
                continue
            if at > time:
                time = at
            elif at <= time - retention:
                expired += 1
                continue
            if at // interval != number:
                number = at // interval
                segment = pack(number)
            # `escaped`, inlined, because it runs for each record
            key = data[plain].replace(b"\0", b"\0\xff")
            add((segment + key + END_OF_KEY + data[kept], value, timestamp))
        return local, time, expired, wrong

    def _first_segment(self, time: int) -> int:
        """The first live segment at this time."""
        return max(0, time - self._retention + 1) // self._interval

    def _log_dropped(self, expired: int, wrong: int) -> None:
        """Count dropped records, and log them: at first immediately, then at most every ten seconds."""
        self._expired += expired
        self._untold_expired += expired
        self._untold_wrong += wrong
        now = self._clock.now()
        if now - self._logged_at < _LOG_EVERY_S:
            return
        if self._untold_wrong:
            _log.warning(
                "store '%s' of task %s: skipped %d changelog records whose keys are not those of a %s; "
                "something else writes to its changelog",
                self.name,
                self.task_id,
                self._untold_wrong,
                self._kind,
            )
        if self._untold_expired:
            _log.debug(
                "store '%s' of task %s: skipped %d records that are older than its retention of %d ms",
                self.name,
                self.task_id,
                self._untold_expired,
                self._retention,
            )
        self._untold_expired = self._untold_wrong = 0
        self._logged_at = now

    # --- reads -------------------------------------------------------------------------------------------

    def _get_one(self, local: bytes, time_ms: int) -> bytes | None:
        """The stored value of a local key (without its segment) at a time, unless that has expired."""
        if not 0 <= time_ms <= MAX_TIME_MS:
            if not self._inner.is_open:
                raise ClosedStoreError(self.name)
            return None
        now = self._time
        stored = self._inner.get(pack_segment(time_ms // self._interval) + local)
        return None if time_ms <= now - self._retention else stored

    def _scan(
        self,
        from_key: bytes | None,
        to_key: bytes | None,
        from_ms: int | None,
        to_ms: int | None,
        convert: Callable[[list[Entry], int, int], list[Any]],
        *,
        reverse: bool,
    ) -> SnapshotIterator:
        """The entries of a range of keys and times, converted by `convert`. It gets the entries of the keys,
        some of which may be outside the times, and the first and last time that are visible in the snapshot.
        """
        one_key = from_key is not None and from_key == to_key
        head = b"" if from_key is None else escaped(from_key)
        tail = b"" if to_key is None else escaped(to_key)
        low = high = 0

        def ranges(marked: bytes | None) -> list[KeyRange]:
            nonlocal low, high
            if marked is None:
                return []
            now = timestamp_of(marked)
            low = max(0, now - self._retention + 1, 0 if from_ms is None else from_ms)
            high = now if to_ms is None else min(now, to_ms)
            if low > high or (tail and head > tail):
                return []
            found = []
            for number in range(low // self._interval, high // self._interval + 1):
                segment = pack_segment(number)
                start = segment + (head + pack_time(low) if head else _FIRST)
                end = segment + tail + pack_time(high) + _AFTER if tail else pack_segment(number + 1)
                found.append((start, end))
            return found

        return self._inner.scan(
            ranges,
            mark=MARK,
            ignored=0 if one_key else 8,  # the windows of one key are in the order of the segments
            reverse=reverse,
            convert=lambda entries: convert(entries, low, high),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._retention} ms in {self._inner!r}>"


class SegmentedWindowStore(_SegmentedStore):
    """One task's part of a window store (ports.WindowBytesStore), in a key-value store of bytes.

    Args:
        inner: the store for the entries; used for nothing else.
        retention_ms: how long a window is kept, counted from its start to the newest start.

    A window has one value, and its sequence number in the changelog is always 0.

    Source: RocksDBWindowStore, InMemoryWindowStore.
    """

    _kind = "window"
    _laid_out_as = "window 1"
    _tail = Struct(">qi")  # start, sequence number
    _kept = slice(-12, -4)
    _most = 0

    def fetch_one(self, key: bytes, start_ms: int) -> bytes | None:
        """Timestamp and value of a key's window; None if it is older than the retention.

        Raises:
            ClosedStoreError: the store is closed.
            ProcessorStateException: the files on disk are damaged or cannot be read.
        """
        return self._get_one(escaped(key) + _packed(start_ms), start_ms)

    def fetch(
        self,
        from_key: bytes | None,
        to_key: bytes | None,
        from_ms: int | None,
        to_ms: int | None,
        *,
        reverse: bool = False,
    ) -> SnapshotIterator:
        """A consistent snapshot: ((key, start in ms), stored), by key and then start; None: unbounded.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        last, key = b"", b""
        tail = self._kept.start - (self._kept.stop or 0)

        def convert(entries: list[Entry], low: int, high: int) -> list[Any]:
            nonlocal last, key
            found = []
            for local, stored in entries:
                start = _TIME(local, tail)[0]
                if low <= start <= high:
                    body = local[8:tail]
                    if body != last:  # a key's windows are adjacent
                        last, key = body, unescaped(body)
                    found.append(((key, start), stored))
            return found

        return self._scan(from_key, to_key, from_ms, to_ms, convert, reverse=reverse)


class DuplicatesStore(SegmentedWindowStore):
    """A window store that keeps all values of a window, each with a sequence number. A fetch returns them in
    the order in which they were put.

    Source: RocksDBWindowStore, with retainDuplicates.
    Differs: a fetch of one window, without a range of times, returns the value that was put last. In Kafka
        Streams, it does so only until something else is put into the store.
    """

    _laid_out_as = "window with duplicates 1"
    _kept = slice(-12, None)
    _most = 2**31 - 1

    def fetch_one(self, key: bytes, start_ms: int) -> bytes | None:
        """Timestamp and value of the last put for a key's window; see `SegmentedWindowStore.fetch_one`."""
        found = self.fetch(key, key, start_ms, start_ms, reverse=True)
        try:
            return next((stored for _, stored in found), None)
        finally:
            found.close()


class SegmentedSessionStore(_SegmentedStore):
    """One task's part of a session store (ports.SessionBytesStore), in a key-value store of bytes.

    Args:
        inner: the store for the entries; used for nothing else.
        retention_ms: how long a session is kept, counted from its end to the newest end.

    Source: RocksDBSessionStore, InMemorySessionStore.
    """

    _kind = "session"
    _laid_out_as = "session 1"
    _tail = Struct(">qq")  # end, start
    _kept = slice(-16, None)
    _most = None  # a session does not start after its end

    def fetch_session(self, key: bytes, start_ms: int, end_ms: int) -> bytes | None:
        """Timestamp and value of one session; None if it is older than the retention.

        Raises:
            ClosedStoreError: the store is closed.
            ProcessorStateException: the files on disk are damaged or cannot be read.
        """
        return self._get_one(escaped(key) + _packed(end_ms) + _packed(start_ms), end_ms)

    def find(
        self,
        from_key: bytes | None,
        to_key: bytes | None,
        earliest_end_ms: int | None,
        latest_start_ms: int | None,
        *,
        reverse: bool = False,
    ) -> SnapshotIterator:
        """A consistent snapshot: ((key, start, end in ms), stored) of the sessions that end at
        `earliest_end_ms` or later and start at `latest_start_ms` or earlier, by key, then end, then start;
        None: unbounded.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        latest = MAX_TIME_MS if latest_start_ms is None else latest_start_ms
        last, key = b"", b""

        def convert(entries: list[Entry], low: int, _: int) -> list[Any]:
            nonlocal last, key
            found = []
            for local, stored in entries:
                end, start = _TWO_TIMES(local, -16)
                if start <= latest and end >= low:
                    body = local[8:-16]
                    if body != last:
                        last, key = body, unescaped(body)
                    found.append(((key, start, end), stored))
            return found

        return self._scan(from_key, to_key, earliest_end_ms, None, convert, reverse=reverse)


def _packed(time_ms: int) -> bytes:
    """A time as in a local key; empty for a time that no entry can have."""
    return pack_time(time_ms) if 0 <= time_ms <= MAX_TIME_MS else b""
