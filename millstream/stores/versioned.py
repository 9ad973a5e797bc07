"""A key-value store with history: keys with their past values, laid out in an ordered store.

A *version* is a value or a deletion. It is valid from its timestamp until the next version of its key. The
timestamps order the versions, not their arrival: a late record inserts its version where it belongs
(KIP-889).

The first byte of an inner key says what the entry is. `key` is escaped and terminated as in keys.py. A time
is 8 bytes that sort like the numbers, except that the timestamps of V and E sort in the opposite order:

    inner key                   the entry                                     its value
    L key                       the newest version, if it is a value          timestamp, value
    D key                       the newest version, if it is a deletion       timestamp
    V key, timestamp            an older version; a key's newest first        valid to; 01, value; or 00
    E valid to, key, timestamp  the expiry list: when V, or D, can be dropped nothing
    F                           the floor: ends backward scans of L           nothing
    the mark                    the state of the store as a whole             see `_Mark`

The latest values have entries of their own, so reads of them cost what they cost in a store without history.
Apart from the first byte, L and V sort alike. So a range as of a time is one merged scan of both, as of one
moment; of each key, at most one version in it was valid at that time.

The *horizon*, the earliest time that can be read, is the newest timestamp of all records minus the history. A
write that moves it also drops the versions that were valid only before it, which it finds at the start of
the expiry list.

Source: KIP-889; org.apache.kafka.streams.state.internals.RocksDBVersionedStore.
Differs: a read as of a time before the horizon raises (Kafka: null, as if the key did not exist). A record
    older than the horizon is still put if its version is valid at the horizon, for example as the newest of
    its key. Kafka drops it, so a single timestamp far in the future stops a table.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from struct import Struct

from millstream.stores.keys import END_OF_KEY, escaped
from millstream.stores.laid_out import MARK, LaidOutStore, Local
from millstream.stores.store_base import (
    Entry,
    KeyRange,
    OrderedBytesStore,
    SnapshotIterator,
    pack_timestamp,
    timestamp_of,
)

__all__ = ["ValueVersion", "VersionedStore"]

_LATEST, _DELETED, _VERSION, _EXPIRY = b"L", b"D", b"V", b"E"
_FLOOR = (b"F0", b"F1", b"F2")
"""A backward scan that ends at the first L reads a few entries further. Without the floor, it would step over
all dropped entries E, because RocksDB removes deleted ranges late.
"""
_A_VALUE, _A_DELETION = b"\x01", b"\x00"
_AFTER = b"\xff" * 9
"""Follows the end of a key where a scan ends: after all times that can follow a key."""
_NEVER = -(2**63)
"""Before all times: there was no record yet, or nothing was dropped."""
_LAST = 2**63 - 1
_MOST_AT_ONCE = 10_000
"""The maximum number of versions that one write drops; the next writes drop the rest."""

_TIME = Struct(">Q")
_LAYOUT = b"history 1 "
_MARK = Struct(">Qq")


def _sortable(time_ms: int) -> bytes:
    """8 bytes that sort like the numbers, including negative ones."""
    return _TIME.pack(time_ms + 2**63)


def _valid_to_of(key: bytes) -> int:
    """The time in an E until which its version is valid."""
    time: int = _TIME.unpack_from(key, 1)[0]
    return time - 2**63


def _newest_first(time_ms: int) -> bytes:
    """8 bytes that sort in the opposite order. So the version of a time is the first in a forward scan, which
    has a bound. (RocksDB's backward scans have none here, and would step over dropped entries of other keys.)
    """
    return _TIME.pack(_LAST - time_ms)


def _timestamp_of_version(key: bytes) -> int:
    """The timestamp of the version in a V or an E."""
    time: int = _TIME.unpack_from(key, -8)[0]
    return _LAST - time


def _clamped(time_ms: int) -> int:
    """The nearest time that fits into 8 bytes."""
    return min(max(time_ms, _NEVER), _LAST)


def _plain(body: bytes) -> bytes:
    """The unescaped key, without its terminator."""
    return body.replace(b"\0\xff", b"\0") if b"\0" in body else body


@dataclass(frozen=True, slots=True)
class ValueVersion:
    """A version of a key's value, valid from `timestamp` (inclusive) to `valid_to` (exclusive); None if it is
    still valid.

    `stored` is its timestamp and its bytes, as returned by `get`.
    """

    stored: bytes
    timestamp: int
    valid_to: int | None


@dataclass(frozen=True, slots=True)
class _Mark:
    """The store's own state, in the entry `MARK`.

    Attributes:
        newest: the newest timestamp of all records; `_NEVER` if there were none.
        count: the number of keys with a value.
        forgotten: the time up to which versions were dropped, if the history was once shorter.
    """

    newest: int = _NEVER
    count: int = 0
    forgotten: int = _NEVER

    @classmethod
    def read(cls, stored: bytes) -> _Mark:
        count, forgotten = _MARK.unpack_from(stored, 8 + len(_LAYOUT))
        return cls(timestamp_of(stored), count, forgotten)

    def entry(self) -> Local:
        return (MARK, _LAYOUT + _MARK.pack(self.count, self.forgotten), self.newest)

    def horizon(self, history_ms: int) -> int:
        """The earliest time that can be read."""
        wanted = _NEVER if self.newest == _NEVER else max(_NEVER, self.newest - history_ms)
        return max(wanted, self.forgotten)


class VersionedStore(LaidOutStore):
    """One task's part of a key-value store with history (ports.KeyValueBytesStore).

    Args:
        inner: the store for the entries; used for nothing else.
        history_ms: how far back from its newest timestamp it can be read.

    Raises:
        ValueError: the history is negative.
    """

    def __init__(self, inner: OrderedBytesStore, history_ms: int) -> None:
        if history_ms < 0:
            raise ValueError(f"store '{inner.name}' has a history of {history_ms} ms; it must be 0 or more")
        super().__init__(inner)
        self._history = history_ms
        self._forget_from = _EXPIRY  # where the next cleanup starts: everything before it was dropped
        marked = self._recovered(
            lambda layout: layout.startswith(_LAYOUT), "was kept without history, or as another kind of store"
        )
        self._mark = _Mark() if marked is None else _Mark.read(marked)

    # --- what every store has ----------------------------------------------------------------------------

    @property
    def history_ms(self) -> int:
        """How far back it can be read."""
        return self._history

    @property
    def earliest_ms(self) -> int | None:
        """The earliest time that can be read; None for any time, because there are no records yet."""
        horizon = self._mark.horizon(self._history)
        return None if horizon == _NEVER else horizon

    def approximate_num_entries(self) -> int:
        """The number of keys with a value; exact."""
        self._inner.position  # noqa: B018  # raises once the store is closed
        return self._mark.count

    def wipe(self) -> None:
        """Delete all entries, the position and the history; the store stays open."""
        with self._writing:
            self._inner.wipe()
            self._mark = _Mark()
            self._forget_from = _EXPIRY

    # --- reads of the latest values ----------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and latest value of a key."""
        if b"\0" in key:
            return self._inner.get(_LATEST + escaped(key))
        return self._inner.get(b"L%b\0\0" % key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in the same order."""
        return self._inner.multi_get([_LATEST + escaped(key) for key in keys])

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> Iterator[Entry]:
        """A consistent snapshot of the latest values from `start` to `end`; None: unbounded.

        Raises:
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        low, high = _bounds(_LATEST, start, end, end_inclusive)
        return _seen_as(self._inner.range(low, high, reverse=reverse, end_inclusive=False), _latest_entry)

    # --- reads as of a time ------------------------------------------------------------------------------

    def get_as_of(self, key: bytes, at_ms: int) -> bytes | None:
        """The timestamp and value of a key as of a time.

        Raises:
            ValueError: the time is older than the retained history.
            ClosedStoreError: the store is closed.
        """
        version = self.version(key, at_ms)
        return None if version is None else version.stored

    def version(self, key: bytes, at_ms: int | None = None) -> ValueVersion | None:
        """The version valid at a time, or the latest if the time is None; None if there was no value.

        Raises:
            ValueError: the time is older than the retained history.
            ClosedStoreError: the store is closed.
        """
        latest = self.get(key)
        if at_ms is not None:
            at_ms = _clamped(at_ms)
            self._check_within(self._mark, at_ms)
        if latest is not None and (at_ms is None or timestamp_of(latest) <= at_ms):
            return ValueVersion(latest, timestamp_of(latest), None)
        if at_ms is None:
            return None
        first = _VERSION + escaped(key)
        with _closing(self._inner.range(first + _newest_first(at_ms), first + _AFTER)) as versions:
            entry = next(versions, None)
        # The version may have been dropped in the meantime. The mark moves before entries are dropped.
        self._check_within(self._mark, at_ms)
        return None if entry is None else _valid_at(*entry, at_ms)

    def range_as_of(
        self,
        start: bytes | None,
        end: bytes | None,
        at_ms: int,
        *,
        reverse: bool = False,
        end_inclusive: bool = True,
    ) -> Iterator[Entry]:
        """A consistent snapshot of the values from `start` to `end` that were valid at a time.

        Raises:
            ValueError: the time is older than the retained history.
            ClosedStoreError: the store is closed.
            IllegalStateException: too many iterators are open.
        """
        at_ms = _clamped(at_ms)
        mark = _Mark()

        def ranges(marked: bytes | None) -> list[KeyRange]:
            nonlocal mark
            if marked is not None:
                mark = _Mark.read(marked)
            return [_bounds(each, start, end, end_inclusive) for each in (_LATEST, _VERSION)]

        def entry_at(key: bytes, stored: bytes) -> Entry | None:
            if key[:1] == _LATEST:
                return _latest_entry(key, stored) if timestamp_of(stored) <= at_ms else None
            version = _valid_at(key, stored, at_ms)
            return None if version is None else (_plain(key[1:-10]), version.stored)

        scan = self._inner.scan(ranges, mark=MARK, ignored=1, reverse=reverse)
        try:
            self._check_within(mark, at_ms)  # against the horizon of the snapshot
        except ValueError:
            scan.close()
            raise
        return _seen_as(scan, entry_at)

    def versions(
        self, key: bytes, from_ms: int | None = None, to_ms: int | None = None
    ) -> list[ValueVersion]:
        """The values that a key had at any moment between two times, both inclusive; newest first.

        None extends to the end of the history.

        Raises:
            ClosedStoreError: the store is closed.
        """
        body = escaped(key)
        horizon = _NEVER

        def ranges(marked: bytes | None) -> list[KeyRange]:
            nonlocal horizon
            if marked is not None:
                horizon = _Mark.read(marked).horizon(self._history)
            return [(each + body, each + body + _AFTER) for each in (_LATEST, _VERSION)]

        found: list[ValueVersion] = []
        with _closing(self._inner.scan(ranges, mark=MARK)) as entries:
            for inner_key, stored in entries:
                if inner_key[:1] == _LATEST:
                    found.append(ValueVersion(stored, timestamp_of(stored), None))
                elif stored[8:9] == _A_VALUE:
                    timestamp, valid_to = _timestamp_of_version(inner_key), timestamp_of(stored)
                    found.append(ValueVersion(pack_timestamp(timestamp) + stored[9:], timestamp, valid_to))
        first = horizon if from_ms is None else max(horizon, from_ms)
        return sorted(
            (
                each
                for each in found
                if (each.valid_to is None or each.valid_to > first)
                and (to_ms is None or each.timestamp <= to_ms)
            ),
            key=lambda each: -each.timestamp,
        )

    def check_as_of(self, at_ms: int) -> None:
        """Raise what a read as of this time would raise.

        Raises:
            ValueError: the time is older than the retained history.
            ClosedStoreError: the store is closed.
        """
        self._inner.position  # noqa: B018  # raises once the store is closed
        self._check_within(self._mark, _clamped(at_ms))

    def _check_within(self, mark: _Mark, at_ms: int) -> None:
        horizon = mark.horizon(self._history)
        if at_ms < horizon:
            raise ValueError(
                f"store '{self.name}' cannot be read as of {_as_text(at_ms)}: it keeps "
                f"{timedelta(milliseconds=self._history)} of history, and partition {self.task_id.partition} "
                f"goes back to {_as_text(horizon)}; use a later time, or declare it with a longer history"
            )

    # --- writes ------------------------------------------------------------------------------------------

    def apply(self, entries: Sequence[tuple[bytes, bytes | None, int]], next_offset: int) -> None:
        """Put versions, drop expired ones, and save `next_offset`, in one atomic write."""
        with self._writing:
            before, forget_from = self._mark, self._forget_from
            newest = max((timestamp for _, _, timestamp in entries), default=_NEVER)
            horizon = _Mark(max(before.newest, newest), 0, before.forgotten).horizon(self._history)
            by_key: dict[bytes, list[tuple[int, bytes | None]]] = {}
            for key, value, timestamp in entries:
                by_key.setdefault(escaped(key), []).append((timestamp, value))
            local: list[Local] = []
            added = 0
            for body, new, latest, deleted in self._with_newest(by_key):
                of_key: list[Local] = []
                added += self._put(of_key, body, new, latest, deleted, horizon)
                local += of_key
            drop = self._forget(local, by_key, horizon)
            mark = _Mark(max(before.newest, newest), before.count + added, horizon)
            if self._inner.position is None:
                local += [(key, b"", 0) for key in _FLOOR]
            if mark != before or self._inner.position is None:
                local.append(mark.entry())
            # First, because a reader of the new entries with the old mark would miss dropped versions.
            self._mark = mark
            try:
                self._inner.apply(local, next_offset, drop=drop)
            except BaseException:
                self._mark, self._forget_from = before, forget_from  # nothing of the batch was written
                raise

    def _with_newest(
        self, by_key: dict[bytes, list[tuple[int, bytes | None]]]
    ) -> Iterable[tuple[bytes, list[tuple[int, bytes | None]], bytes | None, bytes | None]]:
        """Each key with its new records, its L and its D."""
        bodies = list(by_key)
        stored = self._inner.multi_get([mark + body for mark in (_LATEST, _DELETED) for body in bodies])
        count = len(bodies)
        return zip(bodies, by_key.values(), stored[:count], stored[count:], strict=True)

    def _put(
        self,
        local: list[Local],
        body: bytes,
        new: list[tuple[int, bytes | None]],
        latest: bytes | None,
        deleted: bytes | None,
        horizon: int,
    ) -> int:
        """Put a key's new records; `local` has no others of this key. Return the change in the number of keys
        with a value."""
        newest: tuple[int, bytes | None] | None = None
        if latest is not None:
            newest = (timestamp_of(latest), latest[8:])
        elif deleted is not None:
            newest = (timestamp_of(deleted), None)
        for number, (timestamp, value) in enumerate(new):
            if newest is not None and timestamp < newest[0]:
                newest = self._put_late(local, body, newest, new[number:], horizon)
                break
            if newest is not None and timestamp > newest[0]:
                _put_version(local, body, *newest, timestamp, horizon)
            newest = (timestamp, value)
        assert newest is not None, "each key has a new record"
        timestamp, value = newest
        if value is not None:
            local.append((_LATEST + body, value, timestamp))
            if deleted is not None:
                local.append((_DELETED + body, None, timestamp))
            return int(latest is None)
        if latest is not None:
            local.append((_LATEST + body, None, timestamp))
        if timestamp > horizon:
            local.append((_DELETED + body, b"", timestamp))
            local.append((_EXPIRY + _sortable(timestamp) + body + _newest_first(timestamp), b"", timestamp))
        elif deleted is not None:
            local.append((_DELETED + body, None, timestamp))
        return -int(latest is not None)

    def _put_late(
        self,
        local: list[Local],
        body: bytes,
        newest: tuple[int, bytes | None],
        new: list[tuple[int, bytes | None]],
        horizon: int,
    ) -> tuple[int, bytes | None]:
        """Put records of which at least one is older than the newest version; then the newest one.

        Rare, so not optimized: all versions of the key are sorted again.
        """
        first = _VERSION + body
        known: dict[int, tuple[bytes | None, int | None]] = {}
        with _closing(self._inner.scan(lambda _: [(first, first + _AFTER)], mark=MARK)) as entries:
            for key, stored in entries:
                known[_timestamp_of_version(key)] = (_value_of_version(stored), timestamp_of(stored))
        for key, payload, valid_to in local:  # versions that this batch has already put
            if key.startswith(first) and len(key) == len(first) + 8 and payload is not None:
                known[_timestamp_of_version(key)] = (
                    payload[1:] if payload[:1] == _A_VALUE else None,
                    valid_to,
                )
        known[newest[0]] = (newest[1], None)
        times = sorted(known)
        changed: set[int] = set()
        for timestamp, value in new:
            place = bisect_left(times, timestamp)
            if timestamp not in known:
                times.insert(place, timestamp)
                if place:
                    changed.add(times[place - 1])
            known[timestamp] = (value, None)
            changed.add(timestamp)
        changed.add(newest[0])
        last = times[-1]
        for timestamp in changed - {last}:
            valid_to = times[bisect_right(times, timestamp)]
            if valid_to > horizon:
                _put_version(local, body, timestamp, known[timestamp][0], valid_to, horizon)
            else:
                local.append((first + _newest_first(timestamp), None, timestamp))
        return last, known[last][0]

    def _forget(
        self, local: list[Local], by_key: dict[bytes, list[tuple[int, bytes | None]]], horizon: int
    ) -> KeyRange | None:
        """Delete versions valid only before the horizon. Return the range of the expiry list that is done."""
        start, end = self._forget_from, _expiry_after(horizon)
        if horizon == _NEVER or start >= end:
            return None
        found: list[bytes] = []
        with _closing(self._inner.range(start, end, end_inclusive=False)) as entries:
            for key, _ in entries:
                found.append(key)
                if len(found) == _MOST_AT_ONCE:
                    break
        if len(found) == _MOST_AT_ONCE:
            end = found[-1] + b"\0"
        self._forget_from = end
        deletions: list[tuple[bytes, int]] = []
        for key in found:
            valid_to, body, timestamp = _valid_to_of(key), key[9:-8], _timestamp_of_version(key)
            if timestamp < valid_to:
                local.append((_VERSION + key[9:], None, valid_to))
            elif body not in by_key:  # otherwise the new records have decided about it
                deletions.append((body, timestamp))
        stored = self._inner.multi_get([_DELETED + body for body, _ in deletions])
        for (body, timestamp), deleted in zip(deletions, stored, strict=True):
            if deleted is not None and timestamp_of(deleted) == timestamp:
                local.append((_DELETED + body, None, timestamp))
        return (start, end) if found else None

    def __repr__(self) -> str:
        return f"<VersionedStore of {self._history} ms in {self._inner!r}>"


# --- the layout ------------------------------------------------------------------------------------------


def _expiry_after(time_ms: int) -> bytes:
    """A key that sorts after all entries E of this time."""
    return _EXPIRY + _sortable(time_ms + 1) if time_ms < _LAST else bytes([_EXPIRY[0] + 1])


def _put_version(
    local: list[Local], body: bytes, timestamp: int, value: bytes | None, valid_to: int, horizon: int
) -> None:
    """Put a version that has a successor, unless it can be dropped already."""
    if valid_to <= horizon:
        return
    payload = _A_DELETION if value is None else _A_VALUE + value
    at = _newest_first(timestamp)
    local.append((_VERSION + body + at, payload, valid_to))
    local.append((_EXPIRY + _sortable(valid_to) + body + at, b"", valid_to))


def _value_of_version(stored: bytes) -> bytes | None:
    return stored[9:] if stored[8:9] == _A_VALUE else None


def _valid_at(key: bytes, stored: bytes, at_ms: int) -> ValueVersion | None:
    """The version in a V, if it is a value and was valid at that time."""
    timestamp, valid_to = _timestamp_of_version(key), timestamp_of(stored)
    if stored[8:9] != _A_VALUE or not timestamp <= at_ms < valid_to:
        return None
    return ValueVersion(pack_timestamp(timestamp) + stored[9:], timestamp, valid_to)


def _latest_entry(key: bytes, stored: bytes) -> Entry:
    return _plain(key[1:-2]), stored


def _bounds(mark: bytes, start: bytes | None, end: bytes | None, end_inclusive: bool) -> KeyRange:
    low = mark if start is None else mark + escaped(start)
    if end is None:
        return low, bytes([mark[0] + 1])
    high = mark + escaped(end) + (_AFTER if end_inclusive else b"")
    return low, max(low, high)


def _as_text(time_ms: int) -> str:
    """A readable time; a number if the calendar has no such day."""
    try:
        return f"{datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec='milliseconds')}"
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


# --- iterators -------------------------------------------------------------------------------------------


def _seen_as(entries: Iterator[Entry], see: Callable[[bytes, bytes], Entry | None]) -> Iterator[Entry]:
    """An iterator of the inner store, with entries converted by `see`; None omits an entry."""
    assert isinstance(entries, SnapshotIterator)
    entries.through(
        lambda chunk: [seen for key, stored in chunk if (seen := see(key, stored)) is not None],
    )
    return entries


class _closing:  # noqa: N801  # contextlib.closing, for iterators whose type does not say that they close
    def __init__(self, entries: Iterator[Entry] | SnapshotIterator) -> None:
        self._entries = entries

    def __enter__(self) -> Iterator[Entry]:
        return self._entries

    def __exit__(self, *_: object) -> None:
        self._entries.close()  # type: ignore[union-attr]


assert END_OF_KEY == b"\0\0", "`get` spells it out"
