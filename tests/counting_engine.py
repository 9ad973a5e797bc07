"""An engine without Spark that does real work: it counts records of Kafka, and writes changelogs and outputs.

For tests of what is beside an engine: groups, responses, stores, standbys, query servers. A client with it
has a real broker, a real group and real stores, and starts in a second. As tasks do, it keeps everything in
Kafka: it restores its counts from changelogs, and commits offsets, counts and outputs in one transaction,
whose id fences an earlier owner of the task.

It runs sources of text, `map_values`, `group_by`, `count` (windowed, too), `to_stream` and `to`, and refuses
anything else. It calls functions with Python values, record by record. It drops no late records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # re-exported implicitly
    AdminClient,
    OffsetSpec,
)

from millstream.config import StreamsConfig
from millstream.errors import PipelineException, StreamsException, TaskMigratedException, TopologyException
from millstream.kafka.clients import admin_config, build, producer_config, restore_consumer_config
from millstream.kafka.records import read_records
from millstream.kafka.topics import KafkaTopics
from millstream.model import BatchReport, KafkaRecord, OpeningTasks, PipelineMetadata
from millstream.model import TopicPartition as At
from millstream.ports import CompiledPipeline, PipelineEnd
from millstream.query.metadata import default_partition
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.stores.keys import session_key, session_key_parts, window_key
from millstream.topology.names import internal_topic
from millstream.topology.nodes import (
    Aggregate,
    Count,
    FrameTable,
    MapValues,
    Repartition,
    SelectKey,
    Sink,
    Source,
    ToStream,
)
from millstream.topology.pipeline import Pipeline, topics_of_input
from millstream.topology.windows import SessionWindows, TimeWindows

__all__ = ["CountingEngine"]

log = logging.getLogger("millstream.counting")

_EVERY_S = 0.03
_READ_S = 30.0
_STOP_S = 5.0
_MOVE_S = 20.0
"""A broker's first transactions take seconds."""
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)

Record = tuple[Any, Any, int]
"""Key, value, timestamp in ms."""
Counts = dict[bytes, tuple[int, int]]
"""The count and the latest timestamp, by the key in the changelog's layout."""


class CountingEngine:
    """`ports.Engine` that counts. Thread-safe."""

    def __init__(self, config: StreamsConfig) -> None:
        self._config = config
        self._topics = KafkaTopics(config)
        self._partitions: Mapping[str, int] = {}
        self._lock = threading.Lock()
        self._running: list[CountingPipeline] = []
        self._closed = False

    @property
    def is_alive(self) -> bool:
        """Until `close`."""
        return not self._closed

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        """Check that it can count that. Keys are text, unless their store says otherwise."""
        self._partitions = partitions
        for node in pipeline.nodes:
            known = isinstance(
                node, Source | MapValues | SelectKey | Aggregate | ToStream | Sink | Repartition
            )
            if not known or (isinstance(node, Aggregate) and node.aggregation != Count()):
                raise TopologyException(
                    f"{node.name}: the counting engine cannot run a {type(node).__name__}"
                )
        serdes = {
            store.name: (store.key_serde or Serdes.string(), store.value_serde or Serdes.long())
            for store in pipeline.stores
        }
        return CompiledPipeline(pipeline, serdes)

    def start(
        self,
        compiled: CompiledPipeline,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> CountingPipeline:
        """Run its tasks from what is committed, on a thread of their own."""

        def task(number: int) -> Counting:
            return Counting(compiled, self._config, self._topics, self._partitions, number)

        name = compiled.pipeline.name
        running = CountingPipeline(name, task, self._topics, partitions, on_end, on_batch)
        with self._lock:
            self._running.append(running)
        return running

    def refresh(self, table: FrameTable) -> int:
        """There is no Spark, and so no DataFrame."""
        raise TopologyException(f"table '{table.name}': the counting engine reads no DataFrames")

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        """There is no Spark, and so no DataFrame."""
        raise TopologyException(f"'{topic}': the counting engine has no DataFrames")

    def warm_up(self, topic: str | None, tasks: int = 0) -> None:
        """Nothing is cold here."""

    def prepare(self, compiled: CompiledPipeline) -> None:
        """Tasks begin at once."""

    def forget_prepared(self) -> None:
        """Nothing is."""

    def follow(self, compiled: CompiledPipeline, partitions: Collection[int]) -> frozenset[int]:
        """Tasks restore nothing."""
        return frozenset(partitions)

    def close(self) -> None:
        """Stop what runs. Idempotent."""
        self._closed = True
        with self._lock:
            running, self._running = self._running, []
        for each in running:
            each.stop()
        self._topics.close()


class CountingPipeline:
    """`ports.RunningPipeline`: reads, counts and writes on its own thread. Its end is reported once."""

    def __init__(
        self,
        name: str,
        task: Callable[[int], Counting],
        topics: KafkaTopics,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        self._name = name
        self._task = task
        self._tasks: dict[int, Counting] = {}
        self._wanted = frozenset(partitions)
        self._moved = threading.Condition()
        self._topics = topics
        self._on_end = on_end
        self._on_batch = on_batch
        self._records = 0
        self._batches = -1
        self._ends: dict[At, int] = {}
        self._stopping = threading.Event()
        self._finishing = threading.Lock()
        self._ended = threading.Event()
        thread = threading.Thread(target=self._run, name=f"counting-{self._name}", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Stop after the current batch, in bounded time even if Kafka does not answer."""
        self._stopping.set()
        if not self._ended.wait(_STOP_S):
            self._finish(None)

    def assign(self, partitions: Collection[int]) -> bool:
        """Before its next batch."""
        self._wanted = wanted = frozenset(partitions)
        with self._moved:
            return self._moved.wait_for(
                lambda: self._ended.is_set() or wanted.issuperset(self._tasks), _MOVE_S
            )

    def finish(self) -> None:
        """A batch ends soon anyway."""

    def metadata(self) -> PipelineMetadata:
        """What it has counted so far."""
        running = not self._ended.is_set()
        position = self._position()
        opening = len(self._wanted - self._tasks.keys())
        return PipelineMetadata(
            self._name,
            running,
            records=self._records,
            batch_id=self._batches,
            position=position,
            lag={at: max(0, end - position.get(at, 0)) for at, end in self._ends.items()} or None,
            opening=OpeningTasks(opening) if running and opening else None,
        )

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            while not self._stopping.is_set():
                self._move()
                self._ends = {at: end for at, end in self._ends.items() if at.partition in self._tasks}
                for counting in tuple(self._tasks.values()):
                    ends = self._ends_now(counting)
                    if ends and any(end > counting.position[at] for at, end in ends.items()):
                        self._count(counting, ends)
                self._stopping.wait(_EVERY_S)
        except Exception as raised:  # whatever ended it is passed to the thread that owns it
            error = None if self._stopping.is_set() else self._translated(raised)
        for counting in self._tasks.values():
            counting.close()
        self._finish(error)

    def _position(self) -> dict[At, int]:
        every = tuple(self._tasks.values())
        return {at: offset for counting in every for at, offset in dict(counting.position).items()}

    def _move(self) -> None:
        """Release the tasks that are not wanted any more, and take over those that are."""
        for number in self._tasks.keys() - self._wanted:
            self._tasks.pop(number).close()
        with self._moved:
            self._moved.notify_all()
        for number in sorted(self._wanted - self._tasks.keys()):
            if number not in self._wanted or self._stopping.is_set():
                continue  # it has moved on while another one was taken over
            counting = self._task(number)
            counting.take_over()
            self._tasks[number] = counting

    def _finish(self, error: BaseException | None) -> None:
        with self._finishing:
            if self._ended.is_set():
                return
            self._ended.set()
        with self._moved:
            self._moved.notify_all()
        self._on_end(PipelineEnd(self._name, error))

    def _ends_now(self, counting: Counting) -> dict[At, int] | None:
        """Where the sources end; None: Kafka does not say just now. The client finds out what is missing."""
        try:
            partitions = counting.partitions()
            if new := [at for at in partitions if at not in counting.position]:
                first = self._topics.beginning_offsets(new)
                known = self._topics.committed(counting.config.application_id, new)
                counting.position.update({**first, **known})
            ends = counting.ends(partitions)
        except (StreamsException, KafkaException) as error:
            log.debug("pipeline %s: %s", self._name, error)
            return None
        ends = {at: max(end, counting.position[at]) for at, end in ends.items()}
        self._ends = {**self._ends, **ends}
        return ends

    def _count(self, counting: Counting, ends: Mapping[At, int]) -> None:
        starts = {at: counting.position[at] for at in ends}
        deadline = time.monotonic() + _READ_S
        try:
            records = list(read_records(counting.config, starts, ends, timeout_s=_READ_S))
            if time.monotonic() > deadline:
                raise StreamsException(f"its sources could not be read in {_READ_S:g} s")
            written = counting.count(records)
        except StreamsException:
            raise
        except Exception as raised:
            raise PipelineException(
                f"pipeline {self._name}: its query failed: a function raised {type(raised).__name__}",
                pipeline=self._name,
                offsets={at: (starts[at], end) for at, end in ends.items()},
                batch_id=self._batches + 1,
            ) from raised
        counting.commit(written, ends)
        self._records += len(records)
        self._batches += 1
        read = {at: end - starts[at] for at, end in ends.items()}
        self._on_batch(BatchReport(self._name, self._batches, read=read))

    def _translated(self, raised: BaseException) -> BaseException:
        if isinstance(raised, KafkaException) and raised.args[0].code() in _FENCED:
            migrated = TaskMigratedException(
                f"pipeline {self._name}: another client has taken it over, and the broker has fenced this one"
            )
            migrated.__cause__ = raised
            return migrated
        if isinstance(raised, PipelineException):
            return raised
        failed = PipelineException(f"pipeline {self._name}: its query failed: {raised}", pipeline=self._name)
        failed.__cause__ = raised
        return failed


class Counting:
    """A task's work and its progress, which is in Kafka. A failed one is thrown away."""

    def __init__(
        self,
        compiled: CompiledPipeline,
        config: StreamsConfig,
        topics: KafkaTopics,
        partitions: Mapping[str, int],
        number: int,
    ) -> None:
        self.pipeline = compiled.pipeline
        self._number = number
        self.config = config
        self.position: dict[At, int] = {}
        self._topics = topics
        self._serdes = compiled.store_serdes
        self._partitions = partitions
        inputs = self.pipeline.inputs
        self._names = {name for node in inputs for name in topics_of_input(node, config.application_id)}
        self._patterns = [node.pattern for node in inputs if isinstance(node, Source) and node.pattern]
        self._admin: Any = build(AdminClient, admin_config(config))
        self._producer: Any = None
        self._group: Any = None
        self._counts: defaultdict[str, Counts] = defaultdict(dict)

    def partitions(self) -> list[At]:
        """The partitions that it reads, as they are now."""
        names = set(self._names)
        if self._patterns:
            found = self._topics.names()
            names |= {name for name in found if any(each.fullmatch(name) for each in self._patterns)}
        there = self._topics.look(names)
        return [At(name, self._number) for name, topic in there.items() if self._number < topic.partitions]

    def ends(self, partitions: list[At]) -> dict[At, int]:
        """The offset after the last record of each that is not in an open transaction.

        Raises:
            KafkaException: there is no answer.
        """
        latest: Any = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {NativePartition(*at): latest for at in partitions}
        answers = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_READ_S
        )
        return {At(at.topic, at.partition): int(answer.result().offset) for at, answer in answers.items()}

    # --- progress ----------------------------------------------------------------------------------------

    def take_over(self) -> None:
        """Fence an earlier owner, then read the counts that it has committed."""
        task = f"{self.config.application_id}-{self.pipeline.subtopology}-{self._number}"
        own = {"transactional.id": task, "linger.ms": 0}
        shared = producer_config(self.config)
        self._producer = build(Producer, {"partitioner": "murmur2_random", **shared, **own})
        self._group = build(
            Consumer, {**restore_consumer_config(self.config), "group.id": self.config.application_id}
        )
        self._producer.init_transactions(_READ_S)
        for node in self.pipeline.nodes:
            if isinstance(node, Aggregate):
                self._restore(node)

    def _restore(self, node: Aggregate) -> None:
        changelog = f"{node.stored.name}-changelog"
        topic = internal_topic(self.config.application_id, changelog)
        partitions = [At(topic, self._number)]
        starts, ends = self._topics.beginning_offsets(partitions), self._topics.end_offsets(partitions)
        counts, serde = self._counts[node.stored.name], self._serdes[node.stored.name][1]
        for each in read_records(self.config, starts, ends, timeout_s=_READ_S):
            assert each.key is not None
            if each.value is None:
                counts.pop(each.key, None)
            else:
                counts[each.key] = serde.deserialize(each.value), each.timestamp

    def close(self) -> None:
        """Release its clients."""
        if self._group is not None:
            self._group.close()

    def commit(self, written: list[KafkaRecord], ends: Mapping[At, int]) -> None:
        """Write all of it, with the offsets, or nothing.

        Raises:
            KafkaException: the broker refuses; another client may have taken over.
        """
        self._producer.begin_transaction()
        try:
            for each in written:
                place = {} if each.partition < 0 else {"partition": each.partition}
                self._producer.produce(each.topic, each.value, each.key, timestamp=each.timestamp, **place)
                self._producer.poll(0)
            offsets = [NativePartition(*at, end) for at, end in ends.items()]
            group = self._group.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(offsets, group, _READ_S)
            self._producer.commit_transaction(_READ_S)
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._producer.abort_transaction(_READ_S)
            raise
        self.position = {**self.position, **ends}

    # --- counting ----------------------------------------------------------------------------------------

    def count(self, records: list[KafkaRecord]) -> list[KafkaRecord]:
        """Count these records. Returns what is to be written."""
        rows: dict[Any, list[Record]] = {}
        written: list[KafkaRecord] = []
        for node in self.pipeline.nodes:
            above = [row for parent in node.parents for row in rows.get(parent, ())]
            match node:
                case Repartition() if node in self.pipeline.outputs:
                    written += [self._output(node, row) for row in above]
                case Source() | Repartition():
                    text = Serdes.string()
                    key, value = node.key_serde or text, node.value_serde or text
                    rows[node] = [
                        (key.deserialize(each.key), value.deserialize(each.value), each.timestamp)
                        for each in records
                        if self._is_of(node, each.topic)
                    ]
                case MapValues():
                    rows[node] = [(key, node.mapper(value), at) for key, value, at in above]
                case SelectKey():
                    rows[node] = [(node.mapper(key, value), value, at) for key, value, at in above]
                case Aggregate():
                    rows[node] = []
                    for name, count in self._counted(node, above).items():
                        written.append(self._changelog_record(node, name, count))
                        if node.windows is None:
                            rows[node].append((self._serdes[node.stored.name][0].deserialize(name), *count))
                case Sink():
                    written += [self._output(node, row) for row in above]
                case _:
                    rows[node] = above
        return written

    def _counted(self, node: Aggregate, rows: list[Record]) -> Counts:
        """The counts that have changed; 0: the session has become another one."""
        counts, changed = self._counts[node.stored.name], dict[bytes, tuple[int, int]]()
        serde: Serde = self._serdes[node.stored.name][0]
        for key, value, at in rows:
            data = serde.serialize(key)
            if data is None or value is None:
                continue
            for name, count, latest in _groups(node.windows, counts, data, at):
                if count:
                    counts[name] = count, latest
                else:
                    del counts[name]
                changed[name] = count, latest
        return changed

    def _changelog_record(self, node: Aggregate, key: bytes, count: tuple[int, int]) -> KafkaRecord:
        changelog = f"{node.stored.name}-changelog"
        suffix = 16 if isinstance(node.windows, SessionWindows) else 0 if node.windows is None else 12
        number, at = count
        value = self._serdes[node.stored.name][1].serialize(number) if number else None
        return KafkaRecord(
            internal_topic(self.config.application_id, changelog),
            default_partition(key[: len(key) - suffix], self._partitions[changelog]),
            -1,
            key,
            value,
            at,
        )

    def _output(self, node: Sink | Repartition, row: Record) -> KafkaRecord:
        key, value, at = row
        key_bytes = (node.key_serde or Serdes.string()).serialize(key)
        value_bytes = (node.value_serde or Serdes.string()).serialize(value)
        assert node.topic is not None
        inside = isinstance(node, Repartition)
        topic = internal_topic(self.config.application_id, node.topic) if inside else node.topic
        return KafkaRecord(topic, -1, -1, key_bytes, value_bytes, at)

    def _is_of(self, node: Source | Repartition, topic: str) -> bool:
        by_pattern = isinstance(node, Source) and node.pattern is not None and node.pattern.fullmatch(topic)
        return bool(by_pattern) or topic in topics_of_input(node, self.config.application_id)


def _groups(windows: Any, counts: Counts, key: bytes, at: int) -> Iterator[tuple[bytes, int, int]]:
    """What a record changes: keys of the changelog, each with its new count and timestamp."""
    if windows is None or isinstance(windows, TimeWindows):
        starts = [] if windows is None else windows.windows_for(at)
        for name in [window_key(key, start) for start in starts] or [key]:
            count, latest = counts.get(name, (0, at))
            yield name, count + 1, max(latest, at)
        return
    assert isinstance(windows, SessionWindows)
    total, start, end = 1, at, at
    for name in list(counts):
        own, begins, ends = session_key_parts(name)
        if own == key and begins - windows.gap_ms <= at <= ends + windows.gap_ms:
            total, start, end = total + counts[name][0], min(start, begins), max(end, ends)
            yield name, 0, at
    yield session_key(key, start, end), total, end
