"""The common part of a processor's stores: the bytes, the task that they belong to, and iterators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from millstream.errors import IllegalStateException
from millstream.model import ValueAndTimestamp
from millstream.processors.graph import StoreSpec
from millstream.stores.store_base import pack_timestamp

__all__ = [
    "ByteStore",
    "Changed",
    "HeldStore",
    "StoreIterator",
    "StoreScope",
    "warn_of_order",
    "with_timestamp",
]

_log = logging.getLogger(__name__)

Changed = Callable[[bytes, bytes | None, int], None]
"""Takes a record for the changelog: key, value and timestamp."""


class ByteStore(Protocol):
    """An ordered map of bytes, in which a put is visible at once."""

    def get(self, key: bytes, /) -> bytes | None:
        """The value of the key."""

    def put(self, key: bytes, value: bytes | None, /) -> None:
        """Put a value; None deletes the key."""

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False, /
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries from the key `first` (inclusive) to the key `end` (exclusive), in byte order.

        None leaves that side open. Puts and deletes are allowed during the iteration, which may or may not
        show them; an unchanged entry is shown exactly once.
        """

    def approximate_num_entries(self) -> int:
        """The approximate number of entries."""


class StoreScope(Protocol):
    """What a store needs from its task."""

    live: bool
    """Whether the task is running, so stores can be used."""

    timestamp: int
    """The timestamp of the current record or punctuation."""


class StoreIterator(Iterator[Any]):
    """Entries of a store. Closing it is optional; the store may be written to during the iteration.

    Source: org.apache.kafka.streams.state.KeyValueIterator.
    """

    __slots__ = ("_ahead", "_entries", "_store")

    def __init__(self, store: HeldStore, entries: Iterator[Any]) -> None:
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
        """The key of the next entry, without consuming it.

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


class HeldStore:
    """The common part of all stores.

    Raises, from every method:
        IllegalStateException: the task is not processing a record; the program has kept the store.
        SerializationException: a key or a value does not fit the store's serde.
    """

    def __init__(self, spec: StoreSpec, data: ByteStore, scope: StoreScope, changed: Changed | None) -> None:
        self._spec = spec
        self._data = data
        self._scope = scope
        self._changed = changed
        self._of_key = spec.key_serde.encoder()
        self._to_key = spec.key_serde.decoder()
        self._of_value = spec.value_serde.encoder()
        self._to_value = spec.value_serde.decoder(8)

    def name(self) -> str:
        """The store's name."""
        return self._spec.name

    def persistent(self) -> bool:
        """Whether its contents survive the process. Always true."""
        return True

    def is_open(self) -> bool:
        """Whether it can be used now."""
        return self._scope.live

    def flush(self) -> None:
        """Has no effect: puts are saved with the batch."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} '{self._spec.name}'>"

    def _refuse(self) -> None:
        raise IllegalStateException(
            f"store '{self._spec.name}' was used while its task was not running: use a store only inside "
            "init(), process() and punctuators, in the processor that got it from its own context, and do "
            "not keep it elsewhere"
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
                f"store '{self._spec.name}' is a global store, which processors can only read; write to its "
                "topic instead"
            )

    def _put(self, key: bytes, changelog_key: bytes, value: bytes | None, timestamp: int) -> None:
        self._data.put(key, None if value is None else pack_timestamp(timestamp) + value)
        if self._changed is not None:
            self._changed(changelog_key, value, timestamp)


def with_timestamp(store: str, value: Any, otherwise: int) -> tuple[Any, int]:
    if value is None:
        return None, otherwise
    if not isinstance(value, ValueAndTimestamp):
        raise TypeError(
            f"store '{store}' keeps values with their timestamps: put a ValueAndTimestamp(value, "
            "timestamp), or "
            f"None, not {value!r}; a store from key_value_store_builder() takes only the value"
        )
    if value.value is None:
        return None, otherwise
    return value


def warn_of_order(store: str) -> None:
    _log.warning(
        "store '%s': empty range, because from is after to. Check the order of the arguments. Numbers are "
        "ordered by their bytes, so negative ones come last",
        store,
    )
