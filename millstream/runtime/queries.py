"""The part of a client that answers queries about its state: `KafkaStreams` inherits it.

Nothing here changes anything. Reads use the view's snapshot (view.py), from any thread.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from millstream.clock import Clock, seconds_of
from millstream.config import StreamsConfig
from millstream.coroutines import Wait, block
from millstream.errors import (
    InvalidStateStoreException,
    StateStoreNotAvailableException,
    StreamsException,
    TimeoutException,
)
from millstream.model import TopicPartition
from millstream.not_there import ExplainsMissingNames
from millstream.polling import looks
from millstream.query.composite import open_store, parameters_of
from millstream.query.metadata import (
    KeyQueryMetadata,
    Partitioner,
    Serializer,
    StreamsMetadata,
    all_clients,
    clients_of_store,
    host_of_key,
)
from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
from millstream.query.position import PositionBound
from millstream.query.provider import StoreSnapshot, StoreView
from millstream.query.readiness import is_final, why_not
from millstream.query.request import StateQueryRequest
from millstream.query.result import StateQueryResult
from millstream.query.state_query import raise_if_none_can_answer, run_query
from millstream.runtime.assembly import Assembly
from millstream.runtime.own_writes import bound_after, bound_at_ends
from millstream.runtime.participation import Participation
from millstream.runtime.threads.crew import Crew
from millstream.runtime.view import ClientView
from millstream.topology.nodes import Store
from millstream.topology.topology import Topology

__all__ = ["InteractiveQueries"]

S = TypeVar("S")

_PAUSE_S = 0.005
"""The interval between two checks of something that does not announce its changes."""
_ASK_S = 0.25
"""The same, of something that the broker must be asked for."""


class InteractiveQueries(ExplainsMissingNames):
    """The methods of `KafkaStreams` for queries of its stores."""

    _view: ClientView
    _participation: Participation
    _assembly: Assembly
    _crew: Crew
    _topology: Topology
    _config: StreamsConfig
    _clock: Clock

    @overload
    def store(self, store_name: str, /) -> Any: ...

    @overload
    def store(self, parameters: StoreQueryParameters[S], /) -> S: ...

    @overload
    def store(self, store_name: str, queryable_store_type: QueryableStoreType[S], /) -> S: ...

    def store(self, parameters: Any, queryable_store_type: Any = None, /) -> Any:
        """A handle to read a store: of the partitions that are on this client.

            totals: ReadOnlyKeyValueStore[str, int] = streams.store("totals")

        With a name alone, the topology determines the kind of handle: for keys and values, windows, or
        sessions. `StoreQueryParameters` can also ask for timestamps, one partition, or stale stores.
        `store(name, type)` is the deprecated form from before KIP-562; it warns.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StreamsRebalancingException: the store cannot be read now; retry once the client is RUNNING.
            StateStoreMigratedException: no partition of it is on this client.
            StateStoreNotAvailableException: the client is ending or has ended.
            UnknownStateStoreException: the topology has no such store.
            InvalidStateStoreTypeException: it is of another type.
            InvalidStateStorePartitionException: the requested partition is not on this client.
            TypeError: it is neither a name nor StoreQueryParameters.

        Source: KIP-216, KIP-562.
        Differs: type and partition are checked here already, and again at each read. A name alone is enough.
        """
        if queryable_store_type is not None:
            warnings.warn(
                "store(name, type) is deprecated (KIP-562); use "
                "store(StoreQueryParameters.from_name_and_type(name, type))",
                DeprecationWarning,
                stacklevel=2,
            )
            parameters = StoreQueryParameters.from_name_and_type(parameters, queryable_store_type)
        return open_store(self._view, parameters)

    def wait_until_queryable(
        self,
        store: str | StoreQueryParameters[Any],
        timeout: timedelta = timedelta(minutes=2),
    ) -> None:
        """Block until every partition of a store that is assigned to this client can be read.

        With `StoreQueryParameters`, it waits for what they ask for: one partition, or stale stores, too. A
        rebalance may make a store unreadable again at any time.

        Raises:
            TimeoutException: the timeout passed; the cause is what a read raises at that moment.
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended; the cause is the failure that ended
                it, if any.
            UnknownStateStoreException: the topology has no such store.
            InvalidStateStoreTypeException: its type is not the one that the parameters ask for.
            InvalidStateStorePartitionException: there is no partition of that number.
            ValueError: the timeout is negative.

        Differs: Kafka Streams has nothing like it; its users loop on exceptions.
        """
        block(self._until_queryable(store, timeout))

    def _until_queryable(self, store: str | StoreQueryParameters[Any], timeout: timedelta) -> Wait[None]:
        seconds = seconds_of(timeout)
        snapshot = self._view.snapshot()
        parameters = parameters_of(store, snapshot) if isinstance(store, str) else store
        refused: InvalidStateStoreException | None = None

        def decided(snapshot: StoreSnapshot) -> bool:
            nonlocal refused
            refused = why_not(snapshot, parameters)
            return refused is None or is_final(refused, snapshot, parameters)

        in_time = yield self._view.until(decided, seconds)
        if refused is None:
            return
        if in_time:
            if isinstance(refused, StateStoreNotAvailableException):
                raise refused from self._ended_by()
            raise refused
        raise TimeoutException(
            f"store '{parameters.store_name}' cannot be queried after {seconds:g} s: {refused}"
        ) from refused

    @property
    def store_view(self) -> StoreView:
        """The view, as snapshots, that reads of stores use; for other ways of querying (the query server)."""
        return self._view

    # --- IQv2, tables ------------------------------------------------------------------------------------

    def query(
        self, request: StateQueryRequest[Any], *, wait: timedelta = timedelta(0)
    ) -> StateQueryResult[Any]:
        """Query a store. Each partition answers by itself, with a value or with the reason why there is none.

        Args:
            wait: how long to retry while a partition's reason is temporary (NOT_ACTIVE, NOT_UP_TO_BOUND). The
                final outcome is in the result, and never raised.

        Raises:
            UnknownStateStoreException: the topology has no such store; in any state of the client.
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            SerializationException: a key of the query does not fit the store's serde.
            TypeError, ValueError: it is not a StateQueryRequest; the wait is negative.

        Source: KIP-796; KafkaStreams.query.
        Differs: global stores answer. `wait`.
        """
        result = run_query(self._view, request)
        for _ in looks(seconds_of(wait), every_s=_PAUSE_S, now=self._clock.now):
            if not result.may_pass:
                break
            result.close()
            result = run_query(self._view, request)
        return result

    def sql(
        self,
        query: str,
        parameters: Sequence[Any] | Mapping[str, Any] | None = None,
        *,
        timeout: timedelta = timedelta(seconds=30),
        memory_limit: str = "1GB",
    ) -> Any:
        """Select from stores as from tables, with DuckDB: `streams.sql("select * from counts")`.

        A table has the columns `key`, `value` (a struct's fields are `value.field`) and `timestamp`; for a
        window or session store also `window_start` and `window_end`. It has the partitions on this client, as
        they are when the query begins: all stores named in the query are opened before any is read. Their
        positions are in the result's metadata, under `millstream.positions`. Put names that contain more than
        letters and digits in double quotes.

        A query can read only stores: no files, no network, and no variables of the program.

        Args:
            parameters: values for `?`, or, in a dict, for `$name`.
            timeout: after it, the process in which DuckDB runs is ended.
            memory_limit: limits DuckDB's memory and the size of the result. The named stores are read into
                this program's memory in addition.

        Returns:
            A pyarrow.Table; `.to_pandas()`, `.to_pylist()`.

        Raises:
            SetupException: DuckDB is not installed.
            TypeError, ValueError: the query is not a single valid SELECT; the timeout is negative.
            UnknownStateStoreException: it names a table that is not a store.
            InvalidStateStoreException: another of its subclasses: a store cannot be read now.
            SerializationException: a key or value cannot be read.
            TimeoutException: it did not finish in time.
            StreamsException: DuckDB failed.

        Differs: Kafka Streams has nothing like it.
        """
        seconds = seconds_of(timeout)
        until = self._clock.now() + seconds
        # Only when it is used: it loads Arrow, which can take seconds. They count.
        from millstream.query.sql import run_sql

        return run_sql(
            self._view,
            query,
            parameters,
            timeout_s=seconds,
            until=until,
            memory_limit=memory_limit,
            clock=self._clock,
        )

    def position_bound_now(self, store: str) -> PositionBound:
        """The position at which a store has everything that is in its changelog now.

        Raises:
            UnknownStateStoreException: the topology has no such store.
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            StreamsException: Kafka cannot be reached.
        """
        node = self._store_node(store)
        progress = self._progress(store, 0.0)
        return bound_at_ends(node, self._config.application_id, progress)

    def position_bound_after(
        self,
        store: str,
        written: Mapping[TopicPartition, int],
        timeout: timedelta = timedelta(seconds=30),
    ) -> PositionBound:
        """The position at which a store has the results of records that were just written.

            at = {TopicPartition("orders", record.partition()): record.offset()}
            bound = streams.position_bound_after("totals", at)
            streams.query(request.with_position_bound(bound), wait=timedelta(seconds=5))

        For a table that is read from a topic, and for a global table, these are the records' own offsets. For
        other stores it waits until this client's pipelines have processed the records, and then takes the end
        offsets of the changelog, which by then has their results.

        Raises:
            ValueError: the store is not built from these topics; the timeout is negative.
            TimeoutException: the pipelines did not finish in time, or run on another client.
            UnknownStateStoreException: the topology has no such store.
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            StreamsException: Kafka cannot be reached.

        Differs: in Kafka Streams, positions are offsets of the input topics themselves.
        """
        node = self._store_node(store)
        progress = self._progress(store, seconds_of(timeout))
        return bound_after(node, written, self._topology, self._config.application_id, progress)

    def _progress(self, store: str, timeout_s: float) -> _Progress:
        return _Progress(
            self._assembly, self._crew, self._clock, timeout_s, lambda: self._raise_if_ended(store)
        )

    def _raise_if_ended(self, store: str) -> None:
        raise_if_none_can_answer(self._view.snapshot(), store)

    def _store_node(self, store: str) -> Store:
        self._raise_if_ended(store)
        stores: dict[str, Store] = {**self._topology.stores, **self._topology.global_stores}
        return stores[store]

    # --- where is my key ---------------------------------------------------------------------------------

    def metadata_for_all_streams_clients(self) -> tuple[StreamsMetadata, ...]:
        """What each client of the application has, this one included, by the group's last assignment.

        Clients without an `application.server` are left out, because they have no address. Empty before the
        first assignment, and while this client is not in its group.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.

        Source: KafkaStreams.metadataForAllStreamsClients. Differs: a client that has left its group
            forgets the group's last assignment; Kafka Streams still returns it.
        """
        return all_clients(self._view.snapshot(), self._participation.placement)

    def streams_metadata_for_store(self, store: str) -> tuple[StreamsMetadata, ...]:
        """The clients that have a part of a store, active or standby.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            UnknownStateStoreException: the topology has no such store.

        Source: KafkaStreams.streamsMetadataForStore. Differs: Kafka Streams returns an empty
            result for an unknown store.
        """
        return clients_of_store(self._view.snapshot(), self._participation.placement, store)

    def query_metadata_for_key(
        self, store: str, key: Any, serializer_or_partitioner: Serializer | Partitioner | None = None
    ) -> KeyQueryMetadata:
        """The client that has a key, the clients that have standbys of it, and the key's partition.

        Args:
            key: for windowed stores the plain key.
            serializer_or_partitioner: an object with `serialize`, by default the store's key serde; or, for a
                table without a changelog of its own whose topic is not partitioned in the way of Kafka's
                producers, a function of the key and the number of partitions.

        Returns:
            `KeyQueryMetadata.NOT_AVAILABLE` before the first assignment. Without `application.server` it has
                the partition but no host.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            UnknownStateStoreException: the topology has no such store.
            SerializationException: the key does not fit.
            TypeError, ValueError: there is no key; the last argument, or the partitioner's result, is wrong.

        Source: KIP-535; KafkaStreams.queryMetadataForKey. Differs: Kafka Streams returns
            NOT_AVAILABLE for an unknown store, and for every key if `application.server` is not set.
        """
        return host_of_key(
            self._view.snapshot(), self._participation.placement, store, key, serializer_or_partitioner
        )

    def _ended_by(self) -> BaseException | None:
        """The failure that put the client into ERROR, or is about to."""
        return None


class _Progress:
    """own_writes.Progress of a client, up to a deadline, or to the client's end.

    Args:
        raise_if_ended: raises an exception that says so, once the client is ending.
    """

    def __init__(
        self,
        assembly: Assembly,
        crew: Crew,
        clock: Clock,
        timeout_s: float,
        raise_if_ended: Callable[[], None],
    ) -> None:
        self._raise_if_ended = raise_if_ended
        self._assembly = assembly
        self._crew = crew
        self._clock = clock
        self._deadline = clock.now() + timeout_s
        self._known: tuple[float, dict[TopicPartition, int]] = (float("-inf"), {})
        """When other clients' commits were looked up, and what they were."""

    def finished(self, pipeline: str, needed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        position: dict[TopicPartition, int] = {}
        finished: dict[TopicPartition, int] = {}
        for thread in self._crew.metadata():
            for running in thread.pipelines:
                if running.name == pipeline:
                    position |= running.position
                    finished |= running.position if running.finished is None else running.finished
        here = {at: offset for at, offset in needed.items() if at in finished}
        if _reaches(position, here) and not _reaches(finished, here):
            self._crew.finish(pipeline)
        elsewhere = [at for at in needed if at not in finished]
        return {**finished, **self._committed(elsewhere)} if elsewhere else finished

    def _committed(self, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What other clients have committed of partitions, asked for now and then."""
        now = self._clock.now()
        asked, known = self._known
        if now - asked >= _ASK_S or not known.keys() >= set(partitions):
            config = self._assembly.config
            known = dict.fromkeys(partitions, 0)
            try:
                known |= self._assembly.topics.committed(config.application_id, partitions)
            except StreamsException:
                self._raise_if_ended()  # if so, that is the reason
                raise
            self._known = now, known
        return {at: known[at] for at in partitions}

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        try:
            kafka = self._assembly.topics
            found = kafka.look(list(topics)).values()
            return kafka.end_offsets(
                [TopicPartition(topic.name, number) for topic in found for number in range(topic.partitions)]
            )
        except StreamsException:
            self._raise_if_ended()  # if so, that is the reason
            raise

    def wait_until(self, fits: Callable[[], bool]) -> bool:
        for _ in looks(self._deadline - self._clock.now(), every_s=_PAUSE_S, now=self._clock.now):
            if fits():
                return True
            self._raise_if_ended()
        return False


def _reaches(position: Mapping[TopicPartition, int], needed: Mapping[TopicPartition, int]) -> bool:
    return all(position.get(at, 0) >= offset for at, offset in needed.items())
