"""An engine without Spark that does real work: it counts records of Kafka, and writes changelogs and outputs.

For tests of what is beside an engine: groups, responses, stores, standbys, query servers. A client with it
has a real broker, a real group and real stores, and starts in a second. Like Spark it runs in micro-batches,
keeps its progress in the claimed checkpoint, repeats an interrupted batch, writes at least once, and marks
changelog records with the epoch of its claim.

It runs sources of text, `map_values`, `group_by`, `count` (windowed, too), `to_stream` and `to`, and refuses
anything else. It calls functions with Python values, record by record. It drops no late records.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.checkpoints.offset_log import OffsetLog, log_of, unfinished

from millstream.config import StreamsConfig
from millstream.errors import PipelineException, StreamsException, TaskMigratedException, TopologyException
from millstream.kafka.records import read_records, write_records
from millstream.kafka.topics import KafkaTopics
from millstream.model import EPOCH_HEADER, BatchReport, FirstBatch, KafkaRecord, PipelineMetadata
from millstream.model import TopicPartition as At
from millstream.ports import CheckpointClaim, CompiledPipeline, PipelineEnd
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
from millstream.topology.pipeline import Pipeline, Scan, input_label
from millstream.topology.windows import SessionWindows, TimeWindows

__all__ = ["CountingEngine"]

log = logging.getLogger("millstream.counting")

_EVERY_S = 0.03
_READ_S = 30.0
_STOP_S = 5.0
_HEAD = ("v1", '{"batchWatermarkMs":0,"batchTimestampMs":0}')
"""The first lines of a file in `offsets`, as Spark has them."""

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
            known = isinstance(node, Source | MapValues | SelectKey | Aggregate | ToStream | Sink)
            shuffle = isinstance(node, Repartition) and node in pipeline.shuffles
            if not (known or shuffle) or (isinstance(node, Aggregate) and node.aggregation != Count()):
                raise TopologyException(
                    f"{node.name}: the counting engine cannot run a {type(node).__name__}"
                )
        serdes = {
            store.name: (store.key_serde or Serdes.string(), store.value_serde or Serdes.long())
            for store in pipeline.stores
        }
        scans = tuple(Scan(input_label(node), tuple(serdes)) for node in pipeline.inputs)
        return CompiledPipeline(pipeline, serdes, scans=scans)

    def fitting(self, compiled: CompiledPipeline, claim: CheckpointClaim) -> CompiledPipeline:
        """There is only one way to run it."""
        return compiled

    def start(
        self,
        compiled: CompiledPipeline,
        claim: CheckpointClaim,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> CountingPipeline:
        """Run it from the claimed checkpoint, on a thread of its own."""
        counting = Counting(compiled, claim, self._config, self._partitions)
        running = CountingPipeline(counting, self._topics, on_end, on_batch)
        with self._lock:
            self._running.append(running)
        return running

    def check_reach(self, root: str) -> None:
        """This process runs them."""

    def rebuild(
        self, compiled: CompiledPipeline, claim: CheckpointClaim, changelogs: Collection[str]
    ) -> None:
        """Write the counts of these changelogs once more."""
        counting = Counting(compiled, claim, self._config, self._partitions)
        counting.write_all(changelogs)

    def refresh(self, table: FrameTable) -> int:
        """There is no Spark, and so no DataFrame."""
        raise TopologyException(f"table '{table.name}': the counting engine reads no DataFrames")

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        """There is no Spark, and so no DataFrame."""
        raise TopologyException(f"'{topic}': the counting engine has no DataFrames")

    def written(self, claim: CheckpointClaim) -> int:
        """It writes at least once, without markers."""
        return 0

    def warm_up(self, topic: str | None) -> None:
        """Nothing is cold here."""

    def checkpoint_files(self, root: str) -> LocalCheckpointFiles:
        """The files below a directory."""
        return LocalCheckpointFiles(root)

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
        counting: Counting,
        topics: KafkaTopics,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        self._name = counting.pipeline.name
        self._counting = counting
        self._topics = topics
        self._on_end = on_end
        self._on_batch = on_batch
        self._began = time.monotonic()
        self._first: FirstBatch | None = FirstBatch(0.0)
        self._records = 0
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

    def finish(self) -> None:
        """A batch ends soon anyway."""

    def metadata(self) -> PipelineMetadata:
        """What it has counted so far."""
        running = not self._ended.is_set()
        position = dict(self._counting.position)
        return PipelineMetadata(
            self._name,
            running,
            records=self._records,
            batch_id=self._counting.batch,
            position=position,
            lag={at: max(0, end - position.get(at, 0)) for at, end in self._ends.items()} or None,
            first_batch=self._first and FirstBatch(time.monotonic() - self._began) if running else None,
        )

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            self._repeat_interrupted()
            while not self._stopping.is_set():
                ends = self._ends_now()
                if ends is not None:
                    if any(end > self._counting.position[at] for at, end in ends.items()):
                        self._batch(ends)
                    self._first = None
                self._stopping.wait(_EVERY_S)
        except Exception as raised:  # whatever ended it is passed to the thread that owns it
            error = None if self._stopping.is_set() else self._translated(raised)
        self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        with self._finishing:
            if self._ended.is_set():
                return
            self._ended.set()
        self._on_end(PipelineEnd(self._name, error))

    def _ends_now(self) -> dict[At, int] | None:
        """Where the sources end; None: Kafka does not say just now. The client finds out what is missing."""
        try:
            names = set(self._counting.topics)
            if self._counting.patterns:
                names |= {
                    name
                    for name in self._topics.names()
                    if any(pattern.fullmatch(name) for pattern in self._counting.patterns)
                }
            there = self._topics.look(names)
            partitions = [At(name, each) for name, topic in there.items() for each in range(topic.partitions)]
            if new := [at for at in partitions if at not in self._counting.position]:
                self._counting.position.update(self._topics.beginning_offsets(new))
            self._ends = self._topics.end_offsets(partitions)
        except StreamsException as error:
            log.debug("pipeline %s: %s", self._name, error)
            return None
        return dict(self._ends)

    def _repeat_interrupted(self) -> None:
        planned, position = self._counting.interrupted, self._counting.position
        if planned is not None:
            new = [at for at in planned.positions if at not in position]
            position.update(self._topics.beginning_offsets(new))
            self._count(planned.positions)

    def _batch(self, ends: Mapping[At, int]) -> None:
        position = self._counting.position
        ends = {at: max(end, position[at]) for at, end in ends.items()}
        self._counting.plan(ends)
        self._count(ends)

    def _count(self, ends: Mapping[At, int]) -> None:
        counting = self._counting
        starts = {at: counting.position[at] for at in ends}
        deadline = time.monotonic() + _READ_S
        try:
            records = list(read_records(counting.config, starts, ends, timeout_s=_READ_S))
            if time.monotonic() > deadline:
                raise StreamsException(f"its sources could not be read in {_READ_S:g} s")
            counting.count(records)
        except StreamsException:
            raise
        except Exception as raised:
            raise PipelineException(
                f"pipeline {self._name}: its query failed: a function raised {type(raised).__name__}",
                pipeline=self._name,
                offsets={at: (starts[at], end) for at, end in ends.items()},
                batch_id=counting.batch + 1,
            ) from raised
        counting.commit(ends)
        self._records += len(records)
        self._first = None
        read = {at: end - starts[at] for at, end in ends.items()}
        self._on_batch(BatchReport(self._name, counting.batch, read=read))

    def _translated(self, raised: BaseException) -> BaseException:
        claim = self._counting.claim
        if isinstance(raised, StreamsException) and not Path(claim.path).is_dir():
            migrated = TaskMigratedException(
                f"pipeline {self._name}: another client has taken over its checkpoint, which this one had "
                f"claimed at epoch {claim.epoch}"
            )
            migrated.__cause__ = raised
            return migrated
        if isinstance(raised, PipelineException):
            return raised
        failed = PipelineException(f"pipeline {self._name}: its query failed: {raised}", pipeline=self._name)
        failed.__cause__ = raised
        return failed


class Counting:
    """A pipeline's work and its progress, in the directory of its claim."""

    def __init__(
        self,
        compiled: CompiledPipeline,
        claim: CheckpointClaim,
        config: StreamsConfig,
        partitions: Mapping[str, int],
    ) -> None:
        self.pipeline = compiled.pipeline
        self.claim = claim
        self.config = config
        self._serdes = compiled.store_serdes
        self._partitions = partitions
        sources = [node for node in self.pipeline.inputs if isinstance(node, Source)]
        self._sources = sources
        self.topics = tuple(topic for node in sources for topic in node.topics)
        self.patterns = tuple(node.pattern for node in sources if node.pattern is not None)
        root, _, self._directory = claim.path.rpartition("/")
        self._files = LocalCheckpointFiles(root)
        self._files.make_directories(self._directory)
        done = log_of(self._files, self._directory)
        self.batch = -1 if done is None else done.batch
        self.position = {} if done is None else done.positions
        self.interrupted = unfinished(self._files, self._directory)
        self._counts: defaultdict[str, Counts] = defaultdict(dict)
        for store, counts in json.loads(self._files.read(self._file("state")) or b"{}").items():
            self._counts[store] = {bytes.fromhex(key): tuple(each) for key, each in counts.items()}

    def _file(self, kind: str, batch: int | None = None) -> str:
        return f"{self._directory}/{kind}/{self.batch if batch is None else batch}"

    # --- progress ----------------------------------------------------------------------------------------

    def plan(self, ends: Mapping[At, int]) -> None:
        """Note what the next batch reads: if it is interrupted, it is repeated with the same records."""
        lines = tuple(
            {
                topic: {str(at.partition): end for at, end in ends.items() if at.topic == topic}
                for topic in sorted({at.topic for at in ends if _reads(source, at.topic)})
            }
            for source in self._sources
        )
        log_ = OffsetLog(self.batch + 1, _HEAD, lines)
        self._files.write(self._file("offsets", self.batch + 1), log_.to_bytes())

    def commit(self, ends: Mapping[At, int]) -> None:
        """The batch is done: its counts, and then that it is."""
        batch = self.batch + 1
        state = {
            store: {key.hex(): each for key, each in counts.items()} for store, counts in self._counts.items()
        }
        self._files.write(self._file("state", batch), json.dumps(state).encode())
        self._files.write(self._file("commits", batch), b"v1\n{}")
        self._files.delete(self._file("state", batch - 2))
        self.batch = batch
        self.position = {**self.position, **ends}

    # --- counting ----------------------------------------------------------------------------------------

    def count(self, records: list[KafkaRecord]) -> None:
        """Count these records, and write the results of the batch."""
        rows: dict[Any, list[Record]] = {}
        written: list[KafkaRecord] = []
        for node in self.pipeline.nodes:
            above = [row for parent in node.parents for row in rows[parent]]
            match node:
                case Source():
                    text = Serdes.string()
                    key, value = node.key_serde or text, node.value_serde or text
                    rows[node] = [
                        (key.deserialize(each.key), value.deserialize(each.value), each.timestamp)
                        for each in records
                        if _reads(node, each.topic)
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
        write_records(self.config, written)

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
            ((EPOCH_HEADER, self.claim.epoch.to_bytes(8, "big")),),
        )

    def _output(self, node: Sink, row: Record) -> KafkaRecord:
        key, value, at = row
        key_bytes = (node.key_serde or Serdes.string()).serialize(key)
        value_bytes = (node.value_serde or Serdes.string()).serialize(value)
        assert node.topic is not None
        return KafkaRecord(node.topic, -1, -1, key_bytes, value_bytes, at)

    def write_all(self, changelogs: Collection[str]) -> None:
        """Write the committed counts of these changelogs."""
        nodes = [node for node in self.pipeline.nodes if isinstance(node, Aggregate)]
        records = [
            self._changelog_record(node, key, count)
            for node in nodes
            for key, count in self._counts[node.stored.name].items()
        ]
        write_records(self.config, [each for each in records if each.topic in changelogs])


def _reads(source: Source, topic: str) -> bool:
    return topic in source.topics or (source.pattern is not None and bool(source.pattern.fullmatch(topic)))


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
