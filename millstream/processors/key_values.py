"""Key-value stores of processors.

Source: org.apache.kafka.streams.state.KeyValueStore, TimestampedKeyValueStore.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from millstream.model import KeyValue, ValueAndTimestamp
from millstream.processors.holding import HeldStore, StoreIterator, warn_of_order, with_timestamp
from millstream.stores.api import timestamp_of

__all__ = ["KeyValueStore", "TimestampedKeyValueStore"]


class KeyValueStore(HeldStore):
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
            warn_of_order(self._spec.name)
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
        plain, timestamp = with_timestamp(self._spec.name, value, self._scope.timestamp)
        self._put(key, key, self._of_value(plain), timestamp)


def _after(prefix: bytes) -> bytes | None:
    """The first key that is after all that begin with a prefix; None: there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
