"""Key-value stores for processors.

Source: org.apache.kafka.streams.state.KeyValueStore, TimestampedKeyValueStore.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.model import KeyValue, ValueAndTimestamp
from millstream.processors.holding import HeldStore, StoreIterator, warn_of_order, with_timestamp
from millstream.stores.store_base import timestamp_of

__all__ = ["KeyValueStore", "TimestampedKeyValueStore"]


class KeyValueStore(HeldStore):
    """The last value of each key. Ranges are ordered by the keys' bytes.

    Source: org.apache.kafka.streams.state.KeyValueStore.
    """

    def get(self, key: Any) -> Any:
        """The value of the key; None if there is none."""
        return self._value(self._data.get(self._key(key)))

    def put(self, key: Any, value: Any) -> None:
        """Set a key's value; None deletes the key."""
        self._write(self._key(key), value)

    def put_if_absent(self, key: Any, value: Any) -> Any:
        """Set a key's value if it has none. Returns the previous value."""
        data = self._key(key)
        before = self._data.get(data)
        if before is None:
            self._write(data, value)
        return self._value(before)

    def put_all(self, entries: Iterable[tuple[Any, Any]]) -> None:
        """Set the values of several keys, one after the other."""
        for key, value in entries:
            self.put(key, value)

    def delete(self, key: Any) -> Any:
        """Delete a key. Returns its previous value."""
        data = self._key(key)
        before = self._data.get(data)
        self._write(data, None)
        return self._value(before)

    def range(self, from_: Any, to: Any) -> StoreIterator:
        """The entries in a range of keys, both ends inclusive; None leaves that side open."""
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
        """The entries whose serialized keys start with the serialized `prefix`. The serde of the prefix
        defaults to the store's own."""
        serde = prefix_serializer or self._spec.key_serde
        first = serde.serialize(prefix)
        if first is None:
            raise ValueError(f"store '{self._spec.name}': a prefix cannot be None")
        return self._scan(first, _after(first), reverse=False)

    def approximate_num_entries(self) -> int:
        """The approximate number of entries."""
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
            warn_of_order(self._spec.name)
            return self._iterator(iter(()))
        return self._scan(first, None if last is None else last + b"\0", reverse=reverse)

    def _scan(self, first: bytes | None, end: bytes | None, *, reverse: bool) -> StoreIterator:
        to_key, to_value = self._to_key, self._value
        entries = self._data.range(first, end, reverse)
        return self._iterator(KeyValue(to_key(key), to_value(stored)) for key, stored in entries)


class TimestampedKeyValueStore(KeyValueStore):
    """The same with the timestamps of the values: it takes and returns `ValueAndTimestamp`s.

    Source: org.apache.kafka.streams.state.TimestampedKeyValueStore.
    """

    def _value(self, stored: bytes | None) -> Any:
        return None if stored is None else ValueAndTimestamp(self._to_value(stored), timestamp_of(stored))

    def _write(self, key: bytes, value: Any) -> None:
        self._writable()
        plain, timestamp = with_timestamp(self._spec.name, value, self._scope.timestamp)
        self._put(key, key, self._of_value(plain), timestamp)


def _after(prefix: bytes) -> bytes | None:
    """The first key after all keys with a prefix; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
