"""TopologyTestDriver: run a topology on local Spark, without a broker, one batch at a time: up to a commit.

The plan is the one that a client would run: the same compiler and stateful operators, in a real streaming
query. Only its ends are in memory. The records that a test pipes in become one batch. The query's
output is routed as Kafka would route it: to output topics, back into the topology, or into a store.

Source: org.apache.kafka.streams.TopologyTestDriver.
Differs: each `pipe_*` call is one batch, so a list of records gives one update per key, like a client
    with a backlog. Piped one by one, or without a cache, each record gives its own update, as in Kafka
    Streams. With `record_by_record=True`, each record is a separate batch, and so is each of its
    results that passes through an internal topic.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.dsl.frames import DataFrameTable, StreamDataFrame
from millstream.dsl.timestamps import extractor
from millstream.errors import IllegalStateException, SerializationException, TopologyException
from millstream.metrics.client_metrics import Metric, MetricName
from millstream.model import KafkaRecord, KeyValue, StoreKind, TaskId, TopicPartition, is_of_null
from millstream.ports import BytesStore, ChangelogBatch
from millstream.processors.filling import filled
from millstream.query.composite import QueryableStoreTypes, ReadOnlyKeyValueStore, open_store
from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
from millstream.query.provider import LocalStore, StoreDeclaration, StoreSnapshot
from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore
from millstream.registry.registry_settings import RegistrySettings, is_of_registry
from millstream.runtime.threads.global_tables import declared_serdes, global_parts
from millstream.runtime.threads.source_records import SourceRecords, source_serdes
from millstream.serdes.registered import bound
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.memory_engine import Input, MemoryEngine, MemoryPipeline, MemoryQuery
from millstream.states import State, ThreadState
from millstream.stores.opening import open_store as open_bytes_store
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.names import internal_topic, is_internal_topic
from millstream.topology.nodes import FrameRead, GlobalTable, Repartition, Source
from millstream.topology.pipeline import writers_first
from millstream.topology.topology import Topology

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]

Headers = Sequence[tuple[str, bytes | None]]
_THREAD = "TopologyTestDriver"


S = TypeVar("S")
Store = ReadOnlyKeyValueStore[Any, Any] | ReadOnlyWindowStore[Any, Any] | ReadOnlySessionStore[Any, Any]
"""The store handles that a driver returns."""


@dataclass(frozen=True, slots=True)
class TestRecord:
    """A record in a test, with Python values as key and value.

    `timestamp` is in milliseconds since the epoch; None means now.

    Source: org.apache.kafka.streams.test.TestRecord.
    """

    __test__ = False

    key: Any = None
    value: Any = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class TopologyTestDriver:
    """Pipes records into a topology, and reads its output and its stores.

        with TopologyTestDriver(builder.build()) as driver:
            lines = driver.create_input_topic("lines", Serdes.string(), Serdes.string())
            counts = driver.create_output_topic("word-counts", Serdes.string(), Serdes.long())
            lines.pipe_input(None, "to be or not to be")
            assert counts.read_key_values_to_map()["be"] == 2
            assert driver.get_key_value_store("counts")["to"] == 2

    Every topic has one partition. The first driver of a process starts Spark (5 s), which keeps running.

    With `record_by_record=True`, the results are those of Kafka Streams' driver, which processes and commits
    one record at a time: no two records of a list, or of an internal topic, share a batch. Without
    Python functions, a batch takes a third of a millisecond.

    Args:
        topology: the result of `StreamsBuilder.build()`.
        config: a client's, so that what it says holds in the test: serdes, handlers, dead letters. Nothing is
            required. `spark.*` keys are passed to Spark, except those that say which cluster to use.
        initial_wall_clock_time: the timestamp of the first record piped without one; None means now.
        record_by_record: process each record separately.
        spark: the SparkSession to use.
        max_rounds: how many times in a row output may return to the topology as a new batch, before the
            program is taken to write to its own source topic without end.

    Raises:
        ConfigException: a key is unknown, or a value is invalid.
        TopologyException: a function of the topology is wrong, or a serde does not fit. From `pipe_*` calls:
            `max_rounds` was exceeded.
    """

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        config: Mapping[str, Any] | None = None,
        *,
        initial_wall_clock_time: datetime | None = None,
        record_by_record: bool = False,
        spark: Any = None,
        max_rounds: int = 50,
    ) -> None:
        settings = _client_settings(config or {})
        self._topology = topology
        self._application_id = settings.application_id
        self._now = (
            time.time_ns() // 1_000_000
            if initial_wall_clock_time is None
            else round(initial_wall_clock_time.timestamp() * 1000)
        )
        self._max_rounds = max_rounds
        self._closed = False
        self._record_by_record = record_by_record
        self._waiting: list[KafkaRecord] | None = None
        self._offsets: dict[str, int] = {}
        self._outputs: dict[str, deque[KafkaRecord]] = {}
        self._written: dict[str, list[KafkaRecord]] = {}
        self._engine: MemoryEngine | None = None
        sources = dict.fromkeys(topology.source_topics, 1)
        self._plan = plan_internal_topics(topology, self._application_id, sources)
        partitions = {name: count or 1 for name, count in self._plan.partitions.items()}
        self._stores: dict[str, BytesStore] = {
            name: open_bytes_store(place.store, TaskId(place.subtopology, 0), None)
            for name, place in self._plan.stores.items()
        }
        self._fills: dict[str, list[str]] = {}
        for name, place in self._plan.stores.items():
            if place.topic is not None:
                self._fills.setdefault(place.topic, []).append(name)
        defaults = _serde(settings.default_key_serde), _serde(settings.default_value_serde)
        self._defaults = defaults
        self._registry = RegistrySettings.of(
            {name: value for name, value in settings.items() if is_of_registry(name)}, self._application_id
        )
        for part in global_parts(topology, dict.fromkeys(topology.global_topics, 1)):
            self._stores[part.store.name] = filled(
                open_bytes_store(part.store, part.task_id, None),
                topology,
                part.changelog,
                application_id=self._application_id,
                config=settings,
                default=defaults,
                bound=partial(bound, settings=self._registry, topic=part.changelog.topic),
            )
            self._fills.setdefault(part.changelog.topic, []).append(part.store.name)
        self._declared_serdes = declared_serdes(topology, *defaults, self._registry)
        self._source_records = SourceRecords(
            source_serdes(topology, defaults, partial(bound, settings=self._registry)),
            settings,
            SystemClock(),
        )
        self._directory = tempfile.mkdtemp(prefix="millstream-test-")
        self._pipelines: list[MemoryPipeline | MemoryQuery] = []
        try:
            if topology.queries:  # tables alone need no Spark
                engine = self._engine = MemoryEngine(spark, _of_this_machine(settings.spark))
            for pipeline in writers_first(topology.queries):
                self._pipelines.append(
                    engine.pipeline(
                        pipeline,
                        application_id=self._application_id,
                        partitions=partitions,
                        default_key_serde=defaults[0],
                        default_value_serde=defaults[1],
                        checkpoint=f"{self._directory}/{pipeline.name}",
                        handlers=RecordHandlers.of(settings),
                        cached=settings.has_cache,
                        timestamp_extractor=extractor(
                            settings.get("default.timestamp.extractor"), "'default.timestamp.extractor'"
                        ),
                        registry=self._registry,
                    )
                )
        except BaseException:
            self.close()
            raise
        self._view = _View(self._declared())
        self._rows: dict[str, dict[bytes, bytes]] = {}
        try:
            for name in topology.frame_tables:
                self.refresh_table(name)
        except BaseException:
            self.close()
            raise
        self._advance_clock()  # schedules start from this time

    # --- topics ----------------------------------------------------------------------------------------

    def create_input_topic(
        self,
        topic: str,
        key_serde: Serde | str | None = None,
        value_serde: Serde | str | None = None,
        *,
        start_timestamp: datetime | None = None,
        auto_advance: timedelta = timedelta(0),
    ) -> TestInputTopic:
        """A topic to pipe records into. Those without a timestamp get `start_timestamp`, plus `auto_advance`
        each.

        Args:
            key_serde, value_serde: the serdes to write records with; None for those that the program reads
                with.

        Raises:
            ValueError: the topology does not read this topic.
        """
        if topic not in self._topology.global_topics and not any(
            _reads(node, topic, self._application_id) for p in self._topology.pipelines for node in p.inputs
        ):
            names = sorted((*self._topology.source_topics, *self._topology.global_topics))
            known = ", ".join(f"'{name}'" for name in names) or "patterns only"
            raise ValueError(f"the topology does not read the topic '{topic}'; it reads {known}")
        start = self._now if start_timestamp is None else round(start_timestamp.timestamp() * 1000)
        key, value = self._bound(topic, self._read_with(topic), key_serde, value_serde)
        return TestInputTopic(self, topic, key, value, start, auto_advance)

    def create_output_topic(
        self, topic: str, key_serde: Serde | str | None = None, value_serde: Serde | str | None = None
    ) -> TestOutputTopic:
        """A topic to read from. An internal topic is given by its full name.

        Args:
            key_serde, value_serde: the serdes to read records with; None for those that the program's sinks
                write with. Required for internal topics.

        Raises:
            ValueError: no serde is given, and the program has none for this topic.
        """
        own = (None, None) if self._engine is None else self._engine.written_serdes.get(topic, (None, None))
        return TestOutputTopic(self, topic, *self._bound(topic, own, key_serde, value_serde))

    def _read_with(self, topic: str) -> tuple[Any, Any]:
        """The serdes of the first source that reads the topic."""
        sources: list[Any] = [
            node
            for pipeline in self._topology.pipelines
            for node in pipeline.inputs
            if not isinstance(node, Repartition | FrameRead) and _reads(node, topic, self._application_id)
        ]
        tables = (node for node in self._topology.nodes if isinstance(node, GlobalTable))
        for node in (*sources, *(table for table in tables if table.topic == topic)):
            return node.key_serde or self._defaults[0], node.value_serde or self._defaults[1]
        return None, None

    def _bound(
        self,
        topic: str,
        own: tuple[Any, Any],
        key_serde: Serde | str | None,
        value_serde: Serde | str | None,
    ) -> tuple[Serde, Serde]:
        """The given serde or else the program's own, with the registry from the configuration."""
        key = own[0] if key_serde is None else key_serde
        value = own[1] if value_serde is None else value_serde
        for side, serde in (("key", key), ("value", value)):
            if serde is None:
                raise ValueError(
                    f"the program does not determine the {side} serde of the topic '{topic}'; pass both, as "
                    f"in ('{topic}', Serdes.string(), Serdes.string())"
                )
        return (
            bound(Serdes.of(key), self._registry, topic, is_key=True),
            bound(Serdes.of(value), self._registry, topic),
        )

    @property
    def produced_topic_names(self) -> frozenset[str]:
        """The topics written to so far, including internal topics."""
        return frozenset(self._outputs)

    @property
    def dropped_records(self) -> int:
        """The number of records dropped so far: by a record-level handler's 'continue', or because they were
        late."""
        return sum(running.drops.total for running in self._pipelines)

    @property
    def metrics(self) -> Mapping[MetricName, Metric]:
        """The metrics by name: `dropped-records-total` of each task, with Kafka's group and tags.

        Source: org.apache.kafka.streams.TopologyTestDriver.metrics.
        Differs: there are no other metrics. What is older than the history of a store is not counted, and in
            Spark's own batches neither are records without a key or a value that an operation skips.
        """
        dropped: Counter[str] = Counter()
        for running in self._pipelines:
            dropped.update(running.drops.by_node)
        found = {}
        for part in self._topology.subtopologies:
            tags = (("task-id", f"{part.id}_0"), ("thread-id", _THREAD))
            name = MetricName("dropped-records-total", "stream-task-metrics", tags)
            nodes = {processor.node.name for processor in part.processors}
            found[name] = Metric(name, sum(dropped[node] for node in nodes))
        return found

    # --- time and batches ------------------------------------------------------------------------------

    def advance_wall_clock_time(self, advance: timedelta) -> None:
        """Advance the driver's clock, and call the punctuators that are due by it.

        Input topics created afterwards start with its time; see `create_input_topic`.

        Raises:
            ValueError: the clock would go back.
        """
        if advance < timedelta(0):
            raise ValueError(f"time only moves forward; got {advance}")
        self._now += advance // timedelta(milliseconds=1)
        self._advance_clock()

    def _advance_clock(self) -> None:
        """An empty batch, for the pipelines whose processors use the clock."""
        for running in self._pipelines:
            if running.goes_by_clock and (written := running.process({}, self._now)):
                self._keep(written)
                self._pipe(written)

    @contextmanager
    def one_batch(self) -> Iterator[None]:
        """All records piped within it form one batch, whatever their topics.

            with driver.one_batch():
                left.pipe_input("a", 1)
                right.pipe_input("a", 2)

        If the block raises, none of them is processed. With `record_by_record=True`, each record is processed
        separately, in this order, when the block ends.

        Raises:
            IllegalStateException: batches are nested.
        """
        if self._waiting is not None:
            raise IllegalStateException("one_batch() cannot be nested: there can be only one at a time")
        waiting: list[KafkaRecord] = []
        self._waiting = waiting
        try:
            yield
        finally:
            self._waiting = None
        if waiting:
            self._pipe(waiting)

    # --- stores ----------------------------------------------------------------------------------------

    def get_key_value_store(self, name: str) -> ReadOnlyKeyValueStore[Any, Any]:
        """The handle that a client's `store()` would return.

        Raises:
            UnknownStateStoreException: the topology has no such store.
        """
        return self._store(name, QueryableStoreTypes.key_value_store())

    def get_timestamped_key_value_store(self, name: str) -> ReadOnlyKeyValueStore[Any, Any]:
        """The same with `ValueAndTimestamp`s."""
        return self._store(name, QueryableStoreTypes.timestamped_key_value_store())

    def get_window_store(self, name: str) -> ReadOnlyWindowStore[Any, Any]:
        """The same for the store of a windowed aggregation.

        Raises:
            UnknownStateStoreException: the topology has no such store.
        """
        return self._store(name, QueryableStoreTypes.window_store())

    def get_timestamped_window_store(self, name: str) -> ReadOnlyWindowStore[Any, Any]:
        """The same with `ValueAndTimestamp`s."""
        return self._store(name, QueryableStoreTypes.timestamped_window_store())

    def get_session_store(self, name: str) -> ReadOnlySessionStore[Any, Any]:
        """The same for a session store.

        Raises:
            UnknownStateStoreException: the topology has no such store.
        """
        return self._store(name, QueryableStoreTypes.session_store())

    def get_all_state_stores(self) -> dict[str, Store]:
        """All stores by name, as `get_state_store` returns them, including those that the user did not
        name."""
        return {name: self.get_state_store(name) for name in self._stores}

    def get_state_store(self, name: str) -> Store:
        """The handle for the store's kind: key-value, window, or session.

        Raises:
            UnknownStateStoreException: the topology has no such store.
        """
        stores = {**self._topology.stores, **self._topology.global_stores}
        kind = stores[name].kind if name in stores else StoreKind.KEY_VALUE
        if kind is StoreKind.WINDOW:
            return self.get_window_store(name)
        return self.get_session_store(name) if kind is StoreKind.SESSION else self.get_key_value_store(name)

    def _store(self, name: str, kind: QueryableStoreType[S]) -> S:
        return open_store(self._view, StoreQueryParameters.from_name_and_type(name, kind))

    def _declared(self) -> StoreSnapshot:
        serdes: dict[str, tuple[Any, Any]] = dict(self._declared_serdes)
        for running in self._pipelines:
            serdes.update(running.store_serdes)
        stores = {**self._topology.stores, **self._topology.global_stores}
        declared = {
            name: StoreDeclaration(
                name,
                *serdes.get(name, (None, None)),
                partitions=1,
                kind=stores[name].kind,
                window_size_ms=stores[name].window_size_ms,
                retention_ms=stores[name].retention_ms,
                history_ms=stores[name].history_ms,
            )
            for name in self._stores
        }
        local = {name: [LocalStore(store.task_id, store, _THREAD)] for name, store in self._stores.items()}
        return StoreSnapshot(_THREAD, State.RUNNING, {_THREAD: ThreadState.RUNNING}, declared, local)

    # --- DataFrames ------------------------------------------------------------------------------------

    def refresh_table(self, table: DataFrameTable | str) -> int:
        """Reread the DataFrame of a table, like `KafkaStreams.refresh_table`. A driver also reads it at its
        start.

        Raises:
            TopologyException: the topology has no such table, or joins no stream with it.
            StreamsException: the DataFrame cannot be read.
        """
        name = table.name if isinstance(table, DataFrameTable) else table
        found = self._topology.frame_tables.get(name)
        if found is None:
            known = ", ".join(f"'{each}'" for each in self._topology.frame_tables) or "none"
            raise TopologyException(f"no table of a DataFrame is called {name!r}; the program has {known}")
        if self._engine is None:
            return 0
        topic = internal_topic(self._application_id, found.topic)
        before, after = self._rows.get(name, {}), self._engine.rows(found)
        self._rows[name] = after
        changed = {key: after.get(key) for key in (*before, *after) if before.get(key) != after.get(key)}
        records = [KafkaRecord(topic, 0, -1, key, value, self._now, ()) for key, value in changed.items()]
        if records:
            self._process(records, 0)
        return len(records)

    def dataframe(self, stream: StreamDataFrame | str) -> Any:
        """The records written to a topic so far, as a static DataFrame; `KafkaStreams.dataframe` returns a
        stream.

        Reading them through an output topic does not remove them from it.

        Raises:
            TopologyException: the topology does not write this topic.
        """
        topic = stream.topic if isinstance(stream, StreamDataFrame) else stream
        if self._engine is None:
            raise TopologyException(f"the program does not write the topic '{topic}'; it writes none")
        return self._engine.dataframe(topic, self._written.get(topic, []))

    # --- running ---------------------------------------------------------------------------------------

    def _pipe(self, records: Sequence[KafkaRecord]) -> None:
        """Run one batch, then as many as its output needs; or one for each record."""
        if self._closed:
            raise IllegalStateException("this TopologyTestDriver is closed; create a new one")
        if self._waiting is not None:
            self._waiting += records
        elif self._record_by_record:
            for record in records:
                self._pipe_alone(record)
        else:
            todo: deque[tuple[int, Sequence[KafkaRecord]]] = deque([(0, records)])
            while todo:
                passed, waiting = todo.popleft()
                todo += [(passed + 1, written) for written in self._process(waiting, passed)]

    def _pipe_alone(self, first: KafkaRecord) -> None:
        """Process one record, then its results one by one: of those waiting in several topics, the earliest
        first.

        Source: TopologyTestDriver.completeAllProcessableWork, PartitionGroup.nextRecord.
        """
        queues: dict[str, deque[tuple[int, KafkaRecord]]] = {first.topic: deque([(0, first)])}
        while queues:
            topic = min(queues, key=lambda topic: queues[topic][0][1].timestamp)
            passed, record = queues[topic].popleft()
            if not queues[topic]:
                del queues[topic]
            for written in self._process([record], passed):
                for each in written:
                    queues.setdefault(each.topic, deque()).append((passed + 1, each))

    def _process(self, records: Sequence[KafkaRecord], passed: int) -> list[list[KafkaRecord]]:
        """One batch of each pipeline that reads any of these records; returns the output of each."""
        batch = [self._arrived(record) for record in records]
        for record in batch:
            self._fill(record)
        output = []
        for running in self._pipelines:
            inputs: dict[Input, list[KafkaRecord]] = {}
            for node in running.pipeline.inputs:
                mine = [r for r in batch if _reads(node, r.topic, self._application_id)]
                if mine:
                    inputs[node] = mine
            if not inputs:
                continue
            self._refuse_circles(passed, inputs)
            if written := running.process(inputs, self._now):
                self._keep(written)
                output.append(written)
        return output

    def _keep(self, written: Sequence[KafkaRecord]) -> None:
        for record in written:
            self._outputs.setdefault(record.topic, deque()).append(record)
            self._written.setdefault(record.topic, []).append(record)

    def _refuse_circles(self, passed: int, inputs: Mapping[Input, Sequence[KafkaRecord]]) -> None:
        """Stop a program that would never finish processing one piped record."""
        if passed <= self._max_rounds:
            return
        topics = sorted({f"'{record.topic}'" for batch in inputs.values() for record in batch})
        raise TopologyException(
            f"the piped records have come back to {', '.join(topics)} in {passed} successive batches, "
            "without an end in sight. A program that writes to its own source topic never finishes: write "
            "to another topic, or filter out records that were there before; if it does finish, increase "
            "TopologyTestDriver(..., max_rounds=...)"
        )

    def _arrived(self, record: KafkaRecord) -> KafkaRecord:
        offset = self._offsets.get(record.topic, 0)
        self._offsets[record.topic] = offset + 1
        return replace(record, partition=0, offset=offset)

    def _fill(self, record: KafkaRecord) -> None:
        for name in self._fills.get(record.topic, ()):
            if record.key is not None:
                value = None if record.value == b"" and is_of_null(record.headers) else record.value
                store, entry = self._stores[name], (record.key, value, record.timestamp)
                at = TopicPartition(record.topic, record.partition)
                batch = ChangelogBatch(at, [entry], record.offset + 1, offsets=[record.offset])
                store.apply(self._kept(store, batch), batch.next_offset)

    def _kept(self, store: BytesStore, batch: ChangelogBatch) -> Sequence[tuple[bytes, bytes | None, int]]:
        topic = batch.partition.topic
        if is_internal_topic(self._application_id, topic):
            return batch.entries
        try:
            return self._source_records.readable(store.name, store.task_id, batch)
        except SerializationException:
            pipelines = (each.pipeline.inputs for each in self._pipelines)
            if any(_reads(node, topic, self._application_id) for nodes in pipelines for node in nodes):
                return ()  # the pipeline that reads it raises
            raise

    def _output(self, topic: str) -> deque[KafkaRecord]:
        return self._outputs.get(topic, deque())

    # --- the end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the queries and forget the stores. Idempotent."""
        if self._closed:
            return
        self._closed = True
        for running in self._pipelines:
            running.close()
        for store in self._stores.values():
            store.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass
class TestInputTopic:
    """A topic that a test pipes records into. Made by `TopologyTestDriver.create_input_topic`.

    Source: org.apache.kafka.streams.TestInputTopic.
    """

    __test__ = False

    _driver: TopologyTestDriver
    topic: str
    _key_serde: Serde
    _value_serde: Serde
    _next_timestamp: int
    _auto_advance: timedelta

    def pipe_input(
        self, *key_and_value: Any, timestamp: datetime | int | None = None, headers: Headers = ()
    ) -> None:
        """Pipe one record, as one batch: a value, a key and a value, or a TestRecord.

        `timestamp` is a datetime, or milliseconds since the epoch.
        """
        if len(key_and_value) == 1 and isinstance(key_and_value[0], TestRecord):
            self.pipe_record_list([key_and_value[0]])
            return
        if len(key_and_value) not in (1, 2):
            raise TypeError(
                "pipe_input() takes a value, a key and a value, or a TestRecord; "
                f"got {len(key_and_value)} arguments"
            )
        key, value = (None, *key_and_value)[-2:]
        at = round(timestamp.timestamp() * 1000) if isinstance(timestamp, datetime) else timestamp
        self.pipe_record_list([TestRecord(key, value, at, tuple(headers))])

    def pipe_value_list(self, values: Iterable[Any]) -> None:
        """Pipe records without keys, as one batch."""
        self.pipe_record_list([TestRecord(value=value) for value in values])

    def pipe_key_value_list(self, key_values: Iterable[tuple[Any, Any]]) -> None:
        """Pipe records, as one batch."""
        self.pipe_record_list([TestRecord(key, value) for key, value in key_values])

    def pipe_record_list(self, records: Iterable[TestRecord]) -> None:
        """Pipe records, as one batch."""
        self._driver._pipe([self._encoded(record) for record in records])

    def advance_time(self, advance: timedelta) -> None:
        """Advance the timestamp for records without one."""
        if advance < timedelta(0):
            raise ValueError(f"time only moves forward; got {advance}")
        self._next_timestamp += round(advance / timedelta(milliseconds=1))

    def _encoded(self, record: TestRecord) -> KafkaRecord:
        timestamp = record.timestamp
        if timestamp is None:
            timestamp = self._next_timestamp
            self.advance_time(self._auto_advance)
        key, value = self._key_serde.serialize(record.key), self._value_serde.serialize(record.value)
        return KafkaRecord(self.topic, 0, -1, key, value, timestamp, record.headers)


@dataclass
class TestOutputTopic:
    """A topic that a test reads. Made by `TopologyTestDriver.create_output_topic`. Each record is read once.

    Source: org.apache.kafka.streams.TestOutputTopic.
    """

    __test__ = False

    _driver: TopologyTestDriver
    topic: str
    _key_serde: Serde
    _value_serde: Serde

    def read_record(self) -> TestRecord:
        """The next record.

        Raises:
            LookupError: there is none.
        """
        queue = self._driver._output(self.topic)
        if not queue:
            written = ", ".join(sorted(self._driver.produced_topic_names)) or "nothing"
            raise LookupError(f"no more records in topic '{self.topic}'; written to so far: {written}")
        record = queue.popleft()
        return TestRecord(
            self._key_serde.deserialize(record.key),
            self._value_serde.deserialize(record.value),
            record.timestamp,
            record.headers,
        )

    def read_key_value(self) -> KeyValue[Any, Any]:
        """Key and value of the next record."""
        record = self.read_record()
        return KeyValue(record.key, record.value)

    def read_value(self) -> Any:
        """The value of the next record."""
        return self.read_record().value

    def read_records_to_list(self) -> list[TestRecord]:
        """All records not read yet."""
        return [self.read_record() for _ in range(self.queue_size)]

    def read_key_values_to_list(self) -> list[KeyValue[Any, Any]]:
        """Their keys and values."""
        return [self.read_key_value() for _ in range(self.queue_size)]

    def read_key_values_to_map(self) -> dict[Any, Any]:
        """The last value of each key; a deletion leaves None."""
        return dict(self.read_key_values_to_list())

    def read_values_to_list(self) -> list[Any]:
        """Their values."""
        return [self.read_value() for _ in range(self.queue_size)]

    @property
    def queue_size(self) -> int:
        """The number of records not read yet."""
        return len(self._driver._output(self.topic))

    @property
    def is_empty(self) -> bool:
        return self.queue_size == 0


class _View:
    """The view for queries: only the contents of the stores ever change."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> StoreSnapshot:
        return self._snapshot


def _reads(node: Input, topic: str, application_id: str) -> bool:
    if isinstance(node, Repartition | FrameRead):
        return topic == internal_topic(application_id, node.topic)
    if isinstance(node, Source):
        return topic in node.topics or (
            node.pattern is not None and node.pattern.fullmatch(topic) is not None
        )
    return topic == node.topic


def _client_settings(config: Mapping[str, Any]) -> StreamsConfig:
    """What a client would be configured with; a driver needs neither an application nor brokers."""
    given = config.given if isinstance(config, StreamsConfig) else config
    told = {name: value for name, value in given.items() if value is not None}
    return StreamsConfig({"application.id": "test", "bootstrap.servers": "localhost:9092", **told})


def _of_this_machine(spark: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark without those that would have a test run on a cluster."""
    return {
        name: value
        for name, value in spark.items()
        if not name.startswith("spark.submit.") and (name != "spark.master" or value.startswith("local"))
    }


def _serde(given: Any) -> Serde | None:
    return None if given is None else Serdes.of(given)
