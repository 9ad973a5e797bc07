"""Versioned key-value stores for processors.

Source: org.apache.kafka.streams.state.VersionedKeyValueStore; state.internals.RocksDBVersionedStore.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from millstream.processors.graph import StoreSpec
from millstream.processors.holding import ByteStore, Changed, HeldStore, StoreScope
from millstream.query.result import VersionedRecord
from millstream.query.times import Time, to_ms
from millstream.stores.keys import escaped
from millstream.stores.store_base import pack_timestamp, timestamp_of

__all__ = ["VersionedKeyValueStore"]

PUT_RETURN_CODE_VALID_TO_UNDEFINED = -1
PUT_RETURN_CODE_NOT_PUT = -(2**63)

_MARK = b""
_TIME = Struct(">q")
_TIMES = Struct(">qq")
_SORTABLE = Struct(">Q")
_NO_TIME = -1
_NEVER = -(2**63)
_A_VALUE, _A_DELETION = b"\x01", b"\x00"


class VersionedKeyValueStore(HeldStore):
    """The versions of each key's value, each valid from its timestamp until that of the next version.

    Times are datetimes, or milliseconds since the epoch.

    Source: org.apache.kafka.streams.state.VersionedKeyValueStore (KIP-889).
    """

    PUT_RETURN_CODE_VALID_TO_UNDEFINED = PUT_RETURN_CODE_VALID_TO_UNDEFINED
    PUT_RETURN_CODE_NOT_PUT = PUT_RETURN_CODE_NOT_PUT

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: StoreScope, changed: Changed | None) -> None:
        super().__init__(spec, data, scope, changed)
        self._history = spec.history_ms or 0
        self._seen: int | None = None
        self._forgotten = _NEVER

    def put(self, key: Any, value: Any, timestamp: Time) -> int:
        """Set a key's value as of a time; None deletes the key as of that time.

        Returns:
            The end of its validity; -1 if it is the newest version; PUT_RETURN_CODE_NOT_PUT if it is older
            than the retained history.
        """
        self._writable()
        plain, time = self._key(key), to_ms(timestamp, "the timestamp of a version")
        return self._put_version(plain, self._of_value(value), time)

    def delete(self, key: Any, timestamp: Time) -> VersionedRecord[Any] | None:
        """Delete a key as of a time. Returns its value at that time."""
        self._writable()
        plain, time = self._key(key), to_ms(timestamp, "the timestamp of a version")
        if time < self._newest() - self._history:
            return None
        before = self._as_of(plain, time)
        self._put_version(plain, None, time)
        return before

    def get(self, key: Any, as_of_timestamp: Time | None = None) -> VersionedRecord[Any] | None:
        """A key's value, now or as of a time; None if it had none, or the time is older than the retained
        history."""
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
        """Insert a version before the latest one. Returns the end of its validity."""
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
        """Store a version which is not the latest."""
        key = b"V" + body + _newest_first(time)
        self._data.put(key, pack_timestamp(time) + _TIME.pack(valid_to) + content)
        self._data.put(_expiry(valid_to, key), b"")

    def _advance(self, newest: int) -> None:
        """Drop versions whose validity ended before the retained history; not at every put."""
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
    """8 bytes that sort like the numbers, including negative ones."""
    return _SORTABLE.pack(time + 2**63)


def _newest_first(time: int) -> bytes:
    return _SORTABLE.pack(2**63 - 1 - time)
