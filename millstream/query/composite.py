"""The handle that `KafkaStreams.store()` returns: one store over the partitions that are on this client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from millstream.errors import InvalidStateStoreTypeException
from millstream.model import StoreKind
from millstream.query.as_of import AsOfView
from millstream.query.handle import StoreHandle, in_one_order
from millstream.query.iterators import KeyValueIterator
from millstream.query.parameters import StoreQueryParameters
from millstream.query.plan import Plan
from millstream.query.provider import Serde, StoreView
from millstream.query.times import Time, to_ms
from millstream.query.windowed import ReadOnlySessionStore, ReadOnlyWindowStore
from millstream.stores.api import ClosedStoreError

__all__ = ["ReadOnlyKeyValueStore", "open_store"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


def open_store(view: StoreView, parameters: StoreQueryParameters[S]) -> S:
    """A handle on a store, of the kind that the parameters' type reads; what `KafkaStreams.store` is.

    Raises:
        TypeError: `parameters` are not StoreQueryParameters.
        InvalidStateStoreException: one of its leaves: the store cannot be read at all now.

    Source: KafkaStreams.store(StoreQueryParameters).
    Differs: type and partition are checked here already, not only at the first read.
    """
    if not isinstance(parameters, StoreQueryParameters):
        raise TypeError(
            f"store() takes StoreQueryParameters.from_name_and_type(name, "
            f"QueryableStoreTypes.key_value_store()), not {parameters!r}"
        )
    handle = _HANDLES[parameters.queryable_store_type.kind](view, parameters)
    handle.check()
    store: S = handle
    return store


class ReadOnlyKeyValueStore(StoreHandle[K, V]):
    """A key-value store, read-only, over its partitions on this client. Any number of threads may use it.

    Besides Kafka Streams' methods: `key in store`, `store[key]` (KeyError if there is none), iteration
    over the keys, `keys()`, `values()`, `items()`, `to_arrow()`, `to_pandas()`; and `as_of(timestamp)`.

    Raises, from every read:
        StreamsRebalancingException: what it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: what it read before has left this client; ask for a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the partition it is for is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: what is on disk is damaged, or cannot be read.

    Source: org.apache.kafka.streams.state.ReadOnlyKeyValueStore; KIP-216.
    Differs: ranges over several partitions are in the order of the keys' bytes (Kafka: one partition after
        the other). A key whose partition was never here has no value (None), as with Kafka; one whose
        partition has left raises StateStoreMigratedException.
    """

    # --- reads of Kafka Streams --------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """The value of a key; None if it has none here.

        Raises:
            TypeError: the key is None.
        """
        # The common case in as few steps as possible; `_find` has all the others.
        plan = self._plan
        if plan is None or plan.snapshot is not self._snapshot():
            plan = self._replan()
        try:
            data = plan.serialize(key)
        except Exception:  # whatever a serde raises: it is told below
            data = None
        if data is None or key is None:
            data = self._key_bytes(plan, key, "get")
        partition_of = plan.partition_of
        reader = None if partition_of is None else plan.readers.get(partition_of(data))
        try:
            stored = self._find(data) if reader is None else reader(data)
        except ClosedStoreError:
            stored = self._find(data)
        return None if stored is None else plan.decode(stored)

    def multi_get(self, keys: Sequence[K]) -> list[V | None]:
        """The values of many keys, in their order; None for each that has none here."""
        plan = self._current()
        data = [self._key_bytes(plan, key, "multi_get") for key in keys]
        return [
            None if stored is None else plan.decode(stored)
            for stored in self._reading(lambda plan: self._lookup_many(plan, data))
        ]

    def range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The entries from `from_` to `to`, both included; None: open on that side."""
        return self._between(from_, to, "range", reverse=False)

    def reverse_range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The same entries as `range(from_, to)`, last key first."""
        return self._between(from_, to, "reverse_range", reverse=True)

    def all(self) -> KeyValueIterator[K, V]:
        """Every entry."""
        return self._between(None, None, "all", reverse=False)

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """Every entry, last key first."""
        return self._between(None, None, "reverse_all", reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serializer: Serde | None = None) -> KeyValueIterator[K, V]:
        """The entries whose key's bytes begin with those of `prefix`.

        `prefix_serializer` writes the prefix; the key's serde does if it is left out.

        Raises:
            TypeError: the prefix is None.
        """
        plan = self._current()
        write = plan.serialize if prefix_serializer is None else prefix_serializer.serialize
        start = self._key_bytes(plan, prefix, "prefix_scan", write)
        return self._scan(start, _after_prefix(start), reverse=False, end_inclusive=False)

    # --- reads of the past -------------------------------------------------------------------------------

    def as_of(self, timestamp: Time) -> ReadOnlyKeyValueStore[K, V]:
        """The same store as it was at a time: each key has the value that was valid then.

        For stores that are declared with history. By the records' timestamps: a late record still changes
        what was. Every read of the handle raises ValueError once the time is before the history.

        Raises:
            InvalidStateStoreTypeException: the store keeps no history.
            ValueError: the time is before the history, or has no time zone.
            TypeError: it is neither a datetime nor an int of milliseconds.

        Source: KIP-889 (VersionedKeyValueStore.get(key, asOfTimestamp)).
        Differs: a whole store with all its reads, not one key.
        """
        at_ms = to_ms(timestamp, f"as_of() of store '{self._name}': the time")
        if self._current().snapshot.stores[self._name].history_ms is None:
            raise InvalidStateStoreTypeException(
                f"store '{self._name}' keeps no history, so that it cannot be read as of an earlier time",
                store=self._name,
                client_state=self._current().snapshot.client_state,
                next_step="declare it with Materialized.with_history(timedelta(hours=1))",
            )
        view = AsOfView(self._view, self._name, at_ms)
        store: ReadOnlyKeyValueStore[K, V] = ReadOnlyKeyValueStore(view, self._parameters)
        store.check()
        self._reading(lambda plan: [part.store.check_as_of(at_ms) for part in plan.parts.values()])
        return store

    # --- reads that Python users expect ------------------------------------------------------------------

    def __contains__(self, key: Any) -> bool:
        data = self._key_bytes(self._current(), key, "__contains__")
        return self._find(data) is not None

    def __getitem__(self, key: K) -> V:
        plan = self._current()
        data = self._key_bytes(plan, key, "__getitem__")
        stored = self._find(data)
        if stored is None:
            raise KeyError(key)
        value: V = plan.decode(stored)
        return value

    # --- reading by a plan -------------------------------------------------------------------------------

    def _find(self, data: bytes) -> bytes | None:
        return self._reading(lambda plan: self._lookup(plan, data, lambda store: store.get(data)))

    def _lookup_many(self, plan: Plan, keys: Sequence[bytes]) -> list[bytes | None]:
        if plan.partition_of is None:
            return [self._lookup(plan, key, lambda store, key=key: store.get(key)) for key in keys]  # type: ignore[misc]
        places: dict[int, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(plan.partition_of(key), []).append(place)
        found: list[bytes | None] = [None] * len(keys)
        for partition, indexes in places.items():
            part = plan.parts.get(partition)
            if part is None:
                self._check_absent(plan, partition)
                continue
            for index, stored in zip(indexes, part.store.multi_get([keys[i] for i in indexes]), strict=True):
                found[index] = stored
        return found

    def _between(
        self, from_: K | None, to: K | None, method: str, *, reverse: bool
    ) -> KeyValueIterator[K, V]:
        start, end, any_between = self._key_range(from_, to, method)
        if not any_between:
            return self._scan(start, start, reverse=reverse, end_inclusive=False)
        return self._scan(start, end, reverse=reverse, end_inclusive=True)

    def _scan(
        self, start: bytes | None, end: bytes | None, *, reverse: bool, end_inclusive: bool
    ) -> KeyValueIterator[K, V]:
        plan = self._current()
        sources = self._open_all(
            lambda store: store.range(start, end, reverse=reverse, end_inclusive=end_inclusive)
        )
        return KeyValueIterator(
            self._name,
            in_one_order(sources, _key_of, reverse=reverse),
            sources,
            plan.decode_key,
            plan.decode,
            self._iterator_lost,
            plan.decode_keys,
            plan.decode_values,
        )


_HANDLES: dict[StoreKind, Callable[[StoreView, StoreQueryParameters[Any]], Any]] = {
    StoreKind.KEY_VALUE: ReadOnlyKeyValueStore,
    StoreKind.WINDOW: ReadOnlyWindowStore,
    StoreKind.SESSION: ReadOnlySessionStore,
}

_key_of: Callable[[tuple[bytes, bytes]], bytes] = itemgetter(0)


def _after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
