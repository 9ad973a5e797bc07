"""The handle on key-value stores; and `open_store`, which opens one on stores of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload

from millstream.coroutines import awaitable
from millstream.model import StoreKind
from millstream.query.handle import StoreHandle, StoreReader
from millstream.query.iterators import KeyValueIterator, iterable_async
from millstream.query.local import LocalReader
from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
from millstream.query.provider import StoreSnapshot, StoreView
from millstream.query.read import ResultForm, of_prefix
from millstream.query.times import Time, to_ms
from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore
from millstream.serdes.serde import Serde

__all__ = ["QueryableStoreTypes", "ReadOnlyKeyValueStore", "handle_on", "open_store", "parameters_of"]

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")


@overload
def open_store(view: StoreView, parameters: str) -> Any: ...
@overload
def open_store(view: StoreView, parameters: StoreQueryParameters[S]) -> S: ...
def open_store(view: StoreView, parameters: str | StoreQueryParameters[Any]) -> Any:
    """A handle on a store, for the store type in the parameters. Implements `KafkaStreams.store`.

    Given only a name, the type follows from the topology.

    Raises:
        TypeError: `parameters` is neither a name nor a StoreQueryParameters.
        InvalidStateStoreException: one of its subclasses. The store cannot be read at all now.

    Source: KafkaStreams.store(StoreQueryParameters).
    Differs: type and partition are checked here, not only at the first read.
    """
    if isinstance(parameters, str):
        parameters = parameters_of(parameters, view.snapshot())
    if not isinstance(parameters, StoreQueryParameters):
        raise TypeError(
            f"store() takes a store's name, or StoreQueryParameters.from_name_and_type(name, "
            f"QueryableStoreTypes.key_value_store()), not {parameters!r}"
        )
    asked = parameters.queryable_store_type
    reader = LocalReader(view, parameters.read, timestamped=asked.timestamped, asked_as=repr(asked))
    handle = handle_on(reader)
    handle.check()
    return handle


def parameters_of(name: str, snapshot: StoreSnapshot) -> StoreQueryParameters[Any]:
    """The parameters for a store given only by name: the type follows from its kind.

    An unknown name gets parameters too, so it is reported like every other error.
    """
    declared = snapshot.stores.get(name)
    kind = StoreKind.KEY_VALUE if declared is None else declared.kind
    return StoreQueryParameters.from_name_and_type(name, _TYPES[kind])


def handle_on(reader: StoreReader) -> Any:
    """The handle for the reader's kind of store."""
    return _HANDLES[reader.of.kind](reader)


class ReadOnlyKeyValueStore(StoreHandle[K, V]):
    """A read-only key-value store over its partitions on this client. Thread-safe.

    In addition to Kafka Streams' methods: `key in store`, `store[key]` (KeyError if there is none), iteration
    over the keys, `keys()`, `values()`, `items()`, `to_arrow()`, `to_pandas()`; and `as_of(timestamp)`.

    Raises, from every read:
        StreamsRebalancingException: a partition that it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: a partition that it read before has left this client; get a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the requested partition is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: the files on disk are damaged or cannot be read.

    Source: org.apache.kafka.streams.state.ReadOnlyKeyValueStore; KIP-216.
    Differs: ranges over several partitions are ordered by the keys' bytes (Kafka: one partition after the
        other). A key whose partition was never here has no value (None), as in Kafka; a key whose partition
        has left raises StateStoreMigratedException.
    """

    # --- reads of Kafka Streams --------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """The value of a key; None if the key is not in the store here.

        Raises:
            TypeError: the key is None.
        """
        value: V | None = self._reader.get(key)
        return value

    def multi_get(self, keys: Sequence[K]) -> list[V | None]:
        """The values of many keys, in the same order; None for each key without a value here."""
        codecs = self._reader.codecs
        data = tuple([codecs.key_bytes(key, "multi_get()") for key in keys])
        found = self._reader.answer(replace(self._of, form=ResultForm.VALUES, keys=data))
        return [None if stored is None else codecs.decode(stored) for stored in found]

    def range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The entries from `from_` to `to`, both inclusive; None leaves that side open."""
        return self._between(from_, to, "range")

    def reverse_range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The same entries as `range(from_, to)`, last key first."""
        return self._between(from_, to, "reverse_range", reverse=True)

    def all(self) -> KeyValueIterator[K, V]:
        """Every entry."""
        return self._between(None, None, "all")

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """Every entry, last key first."""
        return self._between(None, None, "reverse_all", reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serializer: Serde | None = None) -> KeyValueIterator[K, V]:
        """The entries whose serialized keys start with the serialized `prefix`.

        `prefix_serializer` serializes the prefix; it defaults to the key's serde.

        Raises:
            TypeError: the prefix is None.
        """
        data = self._reader.codecs.key_bytes(prefix, "prefix_scan()", prefix_serializer)
        entries: KeyValueIterator[K, V] = self._entries(of_prefix(self._of, data))
        return entries

    def _between(
        self, from_: K | None, to: K | None, method: str, *, reverse: bool = False
    ) -> KeyValueIterator[K, V]:
        entries: KeyValueIterator[K, V] = self._entries(self._of_range(from_, to, method, reverse=reverse))
        return entries

    # --- reads of the past -------------------------------------------------------------------------------

    def as_of(self, timestamp: Time) -> ReadOnlyKeyValueStore[K, V]:
        """The same store as of a point in time: each key has the value that was valid then.

        For stores that are declared with history. Record timestamps count, so a late record still changes the
        past. Once the time is older than the retained history, every read of the handle raises ValueError.

        Raises:
            InvalidStateStoreTypeException: the store keeps no history.
            ValueError: the time is older than the retained history, or has no time zone.
            TypeError: the time is neither a datetime nor an int of milliseconds.

        Source: KIP-889 (VersionedKeyValueStore.get(key, asOfTimestamp)).
        Differs: applies to a whole store with all its reads, not to one key.
        """
        at_ms = to_ms(timestamp, f"as_of() of store '{self._name}': the time")
        return ReadOnlyKeyValueStore(self._reader.as_of(at_ms))

    # --- the same for coroutines -------------------------------------------------------------------------

    get_async = awaitable(get)
    multi_get_async = awaitable(multi_get)
    range_async = iterable_async(range)
    reverse_range_async = iterable_async(reverse_range)
    all_async = iterable_async(all)
    reverse_all_async = iterable_async(reverse_all)
    prefix_scan_async = iterable_async(prefix_scan)

    # --- reads that Python users expect ------------------------------------------------------------------

    def __contains__(self, key: Any) -> bool:
        return self._value(self._of_key(key, "__contains__"))[0]

    def __getitem__(self, key: K) -> V:
        there, value = self._value(self._of_key(key, "__getitem__"))
        if not there:
            raise KeyError(key)
        return value  # type: ignore[return-value]  # a serde may read None


_HANDLES: dict[StoreKind, Callable[[StoreReader], Any]] = {
    StoreKind.KEY_VALUE: ReadOnlyKeyValueStore,
    StoreKind.WINDOW: ReadOnlyWindowStore,
    StoreKind.SESSION: ReadOnlySessionStore,
}


class QueryableStoreTypes:
    """The types that `StoreQueryParameters` takes.

    Source: org.apache.kafka.streams.state.QueryableStoreTypes.
    """

    @staticmethod
    def key_value_store() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """Keys and values. Every store keeps timestamps; this type leaves them out."""
        return QueryableStoreType("key_value_store", StoreKind.KEY_VALUE)

    @staticmethod
    def timestamped_key_value_store() -> QueryableStoreType[ReadOnlyKeyValueStore[Any, Any]]:
        """Keys and `ValueAndTimestamp`s.

        Differs: there are no plain stores, so this type fits every key-value store.
        """
        return QueryableStoreType("timestamped_key_value_store", StoreKind.KEY_VALUE, timestamped=True)

    @staticmethod
    def window_store() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """Windows of keys, and values. Every store keeps timestamps; this type leaves them out."""
        return QueryableStoreType("window_store", StoreKind.WINDOW)

    @staticmethod
    def timestamped_window_store() -> QueryableStoreType[ReadOnlyWindowStore[Any, Any]]:
        """Windows of keys, and `ValueAndTimestamp`s.

        Differs: there are no plain stores, so this type fits every window store.
        """
        return QueryableStoreType("timestamped_window_store", StoreKind.WINDOW, timestamped=True)

    @staticmethod
    def session_store() -> QueryableStoreType[ReadOnlySessionStore[Any, Any]]:
        """Sessions of keys, and values."""
        return QueryableStoreType("session_store", StoreKind.SESSION)


_TYPES: dict[StoreKind, QueryableStoreType[Any]] = {
    StoreKind.KEY_VALUE: QueryableStoreTypes.key_value_store(),
    StoreKind.WINDOW: QueryableStoreTypes.window_store(),
    StoreKind.SESSION: QueryableStoreTypes.session_store(),
}
