"""Key lookup: which client serves which part of which store, according to the group's assignment.

A `Placement` is the assignment of one generation, which the client receives with its own. The functions
answer from it and from the snapshot that queries use; nothing here makes a request.

Source: org.apache.kafka.streams.processor.internals.StreamsMetadataState; KIP-535 (standbys).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

from millstream.errors import (
    InvalidStateStoreException,
    SerializationException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
)
from millstream.model import HostInfo, TaskId, TopicPartition, Windowed
from millstream.query.provider import (
    Outcome,
    Presence,
    ReadScope,
    StoreDeclaration,
    StoreSnapshot,
    decide,
    refusal,
)
from millstream.query.read import checked_name

__all__ = [
    "HostInfo",
    "KeyQueryMetadata",
    "Partitioner",
    "Placement",
    "Serializer",
    "StorePartition",
    "StreamsMetadata",
    "all_clients",
    "clients_of_store",
    "default_partition",
    "default_partitioner",
    "host_of_key",
]

Partitioner = Callable[[Any, int], int]
"""Takes a key and the number of partitions, and returns the partition."""


@runtime_checkable
class Serializer(Protocol):
    """Serializes keys. Serdes implement it."""

    def serialize(self, value: Any) -> bytes | None: ...


# --- answers ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StreamsMetadata:
    """The stores and partitions of one client of the application, as last assigned.

    Attributes:
        state_store_names: the stores with an active partition there, and the global stores.
        topic_partitions: the changelog partitions of its active stores.
        standby_state_store_names, standby_topic_partitions: the same for its standbys.

    Source: org.apache.kafka.streams.StreamsMetadata.
    Differs: partitions are those of changelogs (for a table without a copy, of its topic). Source topics are
        read by pipelines, which do not run where their stores are.
    """

    host_info: HostInfo
    state_store_names: frozenset[str] = frozenset()
    topic_partitions: frozenset[TopicPartition] = frozenset()
    standby_state_store_names: frozenset[str] = frozenset()
    standby_topic_partitions: frozenset[TopicPartition] = frozenset()

    @property
    def host(self) -> str:
        """The host of `host_info`."""
        return self.host_info.host

    @property
    def port(self) -> int:
        """The port of `host_info`."""
        return self.host_info.port


@dataclass(frozen=True, slots=True)
class KeyQueryMetadata:
    """The clients that have a key.

    Attributes:
        active_host: the client with the active part; `HostInfo.unavailable()` if it has no
            `application.server`, or if no client has the part now.
        standby_hosts: the clients with standbys; they serve stale reads (`enable_stale_stores()`).
        partition: the store's partition; -1 if unknown, or if the store is global and so complete on every
            client.

    Source: org.apache.kafka.streams.KeyQueryMetadata; KIP-535.
    Differs: the partition is given even if no client has an `application.server`.
    """

    active_host: HostInfo
    standby_hosts: frozenset[HostInfo] = frozenset()
    partition: int = -1

    NOT_AVAILABLE: ClassVar[KeyQueryMetadata]
    """There is no assignment at present: query again after the next rebalance."""


KeyQueryMetadata.NOT_AVAILABLE = KeyQueryMetadata(HostInfo.unavailable())


# --- the assignment --------------------------------------------------------------------------------------


class StorePartition(NamedTuple):
    """One partition of one store: its task, and the topic partition that fills it."""

    store: str
    task_id: TaskId
    changelog: TopicPartition


@dataclass(frozen=True)
class Placement:
    """The group's assignment: where each part of each store is.

    Attributes:
        places: all parts of all partitioned stores.
        hosts: the active and the standby tasks of each client that has an `application.server`.
        local: this client's address; `HostInfo.unavailable()` if it has none.
        global_stores: the names of the stores that every client has, with the topic partitions that fill
            them.
    """

    places: tuple[StorePartition, ...] = ()
    hosts: Mapping[HostInfo, tuple[frozenset[TaskId], frozenset[TaskId]]] = field(default_factory=dict)
    local: HostInfo = HostInfo.unavailable()  # noqa: RUF009 - a NamedTuple, which nobody can change
    global_stores: Mapping[str, frozenset[TopicPartition]] = field(default_factory=dict)

    def clients(self) -> tuple[StreamsMetadata, ...]:
        """The stores of each client with an `application.server`, by host."""
        return tuple(self._client(host, *self.hosts[host]) for host in sorted(self.hosts))

    def _client(
        self, host: HostInfo, active: frozenset[TaskId], standby: frozenset[TaskId]
    ) -> StreamsMetadata:
        has = [place for place in self.places if place.task_id in active]
        warm = [place for place in self.places if place.task_id in standby]
        return StreamsMetadata(
            host,
            frozenset(place.store for place in has) | frozenset(self.global_stores),
            frozenset(place.changelog for place in has).union(*self.global_stores.values()),
            frozenset(place.store for place in warm),
            frozenset(place.changelog for place in warm),
        )

    def of_partition(self, store: str, partition: int) -> KeyQueryMetadata:
        """The clients that have a partition of a store."""
        task = next(
            (
                place.task_id
                for place in self.places
                if place.store == store and place.task_id.partition == partition
            ),
            None,
        )
        active = next((host for host in sorted(self.hosts) if task in self.hosts[host][0]), None)
        standby = frozenset(host for host, (_, warm) in self.hosts.items() if task in warm)
        return KeyQueryMetadata(active or HostInfo.unavailable(), standby, partition)

    def of_global(self) -> KeyQueryMetadata:
        """A client for a global store: this one if it has an address, else the first client with an address.

        Source: StreamsMetadataState.getKeyQueryMetadataForKey.
        """
        if self.local.is_available or not self.hosts:
            return KeyQueryMetadata(self.local)
        return KeyQueryMetadata(min(self.hosts))


# --- queries ---------------------------------------------------------------------------------------------


def all_clients(snapshot: StoreSnapshot, placement: Placement | None) -> tuple[StreamsMetadata, ...]:
    """All clients that have an `application.server`; empty without an assignment.

    Raises:
        StreamsNotStartedException: the client is CREATED.
        StateStoreNotAvailableException: it is ending or has ended.

    Source: KafkaStreams.metadataForAllStreamsClients.
    """
    _check(snapshot)
    return () if placement is None else placement.clients()


def clients_of_store(
    snapshot: StoreSnapshot, placement: Placement | None, store: str
) -> tuple[StreamsMetadata, ...]:
    """The clients among them that have a part of a store, active or standby.

    Raises:
        StreamsNotStartedException, StateStoreNotAvailableException: as `all_clients`.
        UnknownStateStoreException: the topology has no such store.
        TypeError: the store's name is empty.

    Source: KafkaStreams.streamsMetadataForStore. Differs: Kafka Streams returns an empty result
        for an unknown store.
    """
    _check(snapshot, store)
    return tuple(
        client
        for client in all_clients(snapshot, placement)
        if store in client.state_store_names or store in client.standby_state_store_names
    )


def host_of_key(
    snapshot: StoreSnapshot,
    placement: Placement | None,
    store: str,
    key: Any,
    how: Serializer | Partitioner | None = None,
) -> KeyQueryMetadata:
    """The clients that have a key; `KeyQueryMetadata.NOT_AVAILABLE` without an assignment.

    Args:
        key: for windowed stores the plain key; of a `Windowed`, its key is used.
        how: a serializer of the key (by default the store's serde), or the partitioner of a topic that other
            programs write, called as `partitioner(key, partitions)`.

    Raises:
        StreamsNotStartedException, StateStoreNotAvailableException, UnknownStateStoreException: as
            `clients_of_store`.
        SerializationException: the key does not fit the serializer.
        TypeError: the key is None, the store's name is empty, or `how` is neither.
        ValueError: the partitioner's result is not a valid partition.

    Source: KafkaStreams.queryMetadataForKey; KIP-535.
    Differs: Kafka Streams returns NOT_AVAILABLE, and later null, for an unknown store. A partitioner takes
        the key and the number of partitions.
    """
    if key is None:
        raise TypeError(f"query_metadata_for_key('{store}', key) needs a key; got None")
    if how is not None and not (isinstance(how, Serializer) or callable(how)):
        raise TypeError(
            "query_metadata_for_key takes a serializer (a Serde, such as Serdes.string()) or a partitioner "
            f"(a function of the key and the number of partitions); got {how!r}"
        )
    _check(snapshot, store)
    if placement is None:
        return KeyQueryMetadata.NOT_AVAILABLE
    if store in placement.global_stores:
        return placement.of_global()
    declaration = snapshot.stores[store]
    partitions = sum(place.store == store for place in placement.places)
    if not partitions:
        return KeyQueryMetadata.NOT_AVAILABLE
    plain = key.key if isinstance(key, Windowed) else key
    if how is None or isinstance(how, Serializer):
        serializer = how or declaration.key_serde
        if serializer is None:
            return KeyQueryMetadata.NOT_AVAILABLE  # the serde is known once the pipelines are compiled
        partition = _partition_of(declaration, _bytes_of(store, plain, serializer), partitions)
    else:
        partition = how(plain, partitions)
        if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition < partitions:
            raise ValueError(
                f"the partitioner for store '{store}' must return a partition from 0 to {partitions - 1}; "
                f"it returned {partition!r}"
            )
    return placement.of_partition(store, partition)


def _check(snapshot: StoreSnapshot, store: str | None = None) -> None:
    """Raise the exception of `KafkaStreams.store` if no store can be known, or there is no such store."""
    state = snapshot.client_state
    outcome = decide(
        client_state=state,
        known=store is None or store in snapshot.stores,
        type_fits=True,
        settled=True,
        presence=Presence.READABLE,
        scope=ReadScope.STORE,
    )
    if outcome is Outcome.READ:
        return
    if store is not None:
        raise refusal(outcome, snapshot, checked_name(store))
    client = f"client '{snapshot.client_id}' is {state}"
    error: InvalidStateStoreException
    if outcome is Outcome.NOT_STARTED:
        error = StreamsNotStartedException(
            f"{client}, so it does not know the other clients yet",
            client_state=state.name,
            next_step="call start() first",
        )
    else:
        error = StateStoreNotAvailableException(
            f"{client}, so it does not know the other clients any more",
            client_state=state.name,
            next_step="query another client",
        )
    raise error


def _bytes_of(store: str, key: Any, serializer: Serializer) -> bytes:
    try:
        data = serializer.serialize(key)
    except Exception as error:  # a custom serde may raise anything
        raise SerializationException(
            f"a key of type {type(key).__name__} does not fit the serializer for store '{store}': "
            f"{type(error).__name__}; pass a key of the store's type, or the right serializer"
        ) from error
    if data is None:
        raise SerializationException(
            f"the serializer for store '{store}' returned no bytes for a key of type {type(key).__name__}; "
            "pass a key of the store's type, or the right serializer"
        )
    return data


def _partition_of(declaration: StoreDeclaration, data: bytes, partitions: int) -> int:
    if declaration.partition_of is not None:
        return declaration.partition_of(data)
    # The changelog is a topic that other programs write. As in Kafka Streams, they are assumed to partition
    # like Kafka's own producers; a partitioner overrides that.
    return default_partition(data, partitions)


def default_partition(key: bytes, partitions: int) -> int:
    """The partition that Kafka's Java producer gives a key.

    Source: org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey, Utils.murmur2.
    """
    # Every `get` runs this: words are unpacked at once, and truncated to 32 bits as rarely as possible.
    most, factor = 0xFFFFFFFF, 0x5BD1E995
    length = len(key)
    count = length >> 2
    words = _WORDS[count].unpack_from(key) if count < _LONG else Struct(f"<{count}I").unpack_from(key)
    result = 0x9747B28C ^ length
    for word in words:
        word = word * factor & most
        result = (result * factor ^ (word ^ word >> 24) * factor) & most
    if length & 3:
        result = (result ^ int.from_bytes(key[count << 2 :], "little")) * factor & most
    result = (result ^ result >> 13) * factor & most
    return ((result ^ result >> 15) & 0x7FFFFFFF) % partitions


_LONG = 32
_WORDS = tuple(Struct(f"<{count}I") for count in range(_LONG))


def default_partitioner(partitions: int) -> Callable[[bytes], int]:
    """The same for a topic with a given number of partitions."""
    return lambda key: default_partition(key, partitions)
