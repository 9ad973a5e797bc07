"""Turns the reports of Spark's micro-batches into metrics. Nothing is counted record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

from millstream.metrics.meter import Meter
from millstream.metrics.metrics_table import CONSUMER, SCOPES, SPARK, SPARK_STATE
from millstream.model import BatchReport, OperatorReport, StoreKind, TaskId, TopicPartition

__all__ = ["Keepers", "Readers", "Writers", "consumer_id", "forget_pipeline", "record_batch"]

Keepers = Callable[[str], tuple[str, StoreKind] | None]
"""The store that is the only state of a pipeline; None: the pipeline keeps none, or several."""

Writers = Callable[[str], str | None]
"""The name of the sink that writes a topic; None if no sink does, as for a changelog."""

Readers = Callable[[str], Sequence[tuple[int, str]]]
"""The processors that read a topic: the numbers of their subtopologies, and their names."""

_WHOLE = "triggerExecution"
_COMMIT = ("walCommit", "commitOffsets")
_POLL = ("latestOffset", "getBatch")
_PROCESS = "addBatch"
_ROCKSDB = {
    "state-bytes-read": "rocksdbTotalBytesRead",
    "state-bytes-written": "rocksdbTotalBytesWritten",
    "state-compaction": "rocksdbTotalCompactionLatencyMs",
    "state-stall": "rocksdbWriterStallLatencyMs",
}
"""Sensors, and Spark's names for what they count."""
_OF_STORES = {
    "bytes-read": "rocksdbTotalBytesRead",
    "bytes-written": "rocksdbTotalBytesWritten",
    "bytes-read-compaction": "rocksdbTotalBytesReadByCompaction",
    "bytes-written-compaction": "rocksdbTotalBytesWrittenByCompaction",
    "memtable-bytes-flushed": "rocksdbTotalBytesWrittenByFlush",
    "write-stall-duration": "rocksdbWriterStallLatencyMs",
}
"""Likewise, for what KIP-471 counts of a store."""


def _owner(pipeline: str) -> Hashable:
    return "pipeline", pipeline


def forget_pipeline(meter: Meter, pipeline: str) -> None:
    """Remove a pipeline's values: another client has it now, or none."""
    meter.forget(_owner(pipeline))


def record_batch(
    meter: Meter,
    report: BatchReport,
    *,
    client_id: str,
    thread: str,
    readers: Readers,
    writers: Writers,
    keepers: Keepers,
    interval_ms: int,
    at_ms: int,
) -> None:
    """Process one report.

    Args:
        thread: the stream thread that has the pipeline; the thread's values stay when the pipeline leaves.
        interval_ms: the shortest time between two micro-batches; in Real-Time Mode the report has its own.
        at_ms: the time since the epoch.
    """
    owner = _owner(report.pipeline)
    tags = (client_id, thread, report.pipeline)
    named = dict(zip(("client-id", "thread-id", "pipeline"), tags, strict=True))
    _record_lag(meter, report, thread, owner)
    interval = interval_ms if report.real_time_ms is None else report.real_time_ms
    meter.put(SPARK, "batch-interval", named, interval, owner=owner)
    meter.make("thread-dropped", (thread,), owner=("thread", thread))
    if report.executed:
        _record_time(meter, report, tags, owner)
        _record_read(meter, report, tags, readers, owner)
        _record_written(meter, report, thread, writers, owner)
        meter.put(SPARK, "batch-id", named, report.batch_id, owner=owner)
        meter.put(SPARK, "last-batch-timestamp", named, at_ms, owner=owner)
    meter.put(SPARK, "input-rows-per-second", named, report.input_rate, owner=owner)
    meter.put(SPARK, "processed-rows-per-second", named, report.processed_rate, owner=owner)
    if report.executed:
        _record_store(meter, report.state, thread, keepers(report.pipeline), owner)
    for each in report.state:
        at = (*tags, each.operator)
        place = {**named, "operator": each.operator}
        meter.put(SPARK_STATE, "memory", place, each.memory_bytes, owner=owner)
        if report.executed:
            meter.record("state-updated", at, each.updated, owner=owner)
            meter.record("state-removed", at, each.removed, owner=owner)
            meter.record("state-commit", at, each.commit_ms, owner=owner)
            _record_rocksdb(meter, each.rocksdb, at, owner)
    for (kind, node), count in report.dropped.items():
        meter.record("thread-dropped", (thread,), count, owner=("thread", thread))
        meter.record("dropped", (client_id, report.pipeline, kind, node), count, owner=owner)


def _record_rocksdb(meter: Meter, reported: Mapping[str, int], at: tuple[str, ...], owner: Hashable) -> None:
    """Spark sums over the state's partitions: counts, and times in ms."""
    for what in ("Get", "Put"):
        count = reported.get(f"rocksdb{what}Count", 0)
        meter.record(f"state-{what.lower()}", at, count, owner=owner)
        if count and (took := reported.get(f"rocksdb{what}Latency")) is not None:
            each = took / count
            meter.record_all(f"state-{what.lower()}-latency", at, count, took, each, each, owner=owner)
    hits, misses = (reported.get(f"rocksdbReadBlockCache{what}Count", 0) for what in ("Hit", "Miss"))
    if hits + misses:
        meter.record_all("state-cache", at, hits + misses, hits, 0, 1, owner=owner)
    for sensor, name in _ROCKSDB.items():
        if name in reported:
            meter.record(sensor, at, reported[name], owner=owner)


def _record_store(
    meter: Meter,
    state: Sequence[OperatorReport],
    thread: str,
    store: tuple[str, StoreKind] | None,
    owner: Hashable,
) -> None:
    if store is None or len(state) != 1:
        return
    (operator,), (name, kind) = state, store
    for what, counted in _OF_STORES.items():
        if counted in operator.rocksdb:
            value = operator.rocksdb[counted]
            meter.record(f"store-{what}-{SCOPES[kind]}", (thread, name), value, owner=owner)


def _record_written(
    meter: Meter, report: BatchReport, thread: str, writers: Writers, owner: Hashable
) -> None:
    for topic, reported in report.written.items():
        sink = writers(topic)
        if sink is None:
            continue
        at = (thread, sink, topic)
        meter.record("topic-produced", at, reported.records, owner=owner)
        meter.record("topic-produced-bytes", at, reported.bytes, owner=owner)
        if reported.timed:
            figures = (reported.timed, reported.sum_ms, reported.least_ms, reported.most_ms)
            meter.record_all("node-e2e", (thread, sink), *figures, owner=owner)


def _record_lag(meter: Meter, report: BatchReport, thread: str, owner: Hashable) -> None:
    if report.lag is None:
        return
    consumer = {"client-id": consumer_id(thread)}
    for at, lag in report.lag.items():
        place = {**consumer, "topic": at.topic, "partition": str(at.partition)}
        meter.put(CONSUMER, "records-lag", place, lag, owner=owner)


def _record_time(meter: Meter, report: BatchReport, tags: tuple[str, ...], owner: Hashable) -> None:
    parts, thread = report.parts, (tags[1],)
    mine = ("thread", tags[1])
    if _WHOLE in parts:
        meter.record("batch", tags, parts[_WHOLE], owner=owner)
    for part, took in parts.items():
        if part != _WHOLE:
            meter.record("batch-part", (*tags, part), took, owner=owner)
    if _PROCESS in parts:
        meter.record("thread-busy", thread, parts[_PROCESS], owner=mine)
        # A batch in Real-Time Mode lasts as long as configured, which says nothing about a record.
        if report.records and report.real_time_ms is None:
            meter.record("thread-process-latency", thread, parts[_PROCESS] / report.records, owner=mine)
    if any(part in parts for part in _POLL):
        meter.record("thread-poll", thread, sum(parts.get(part, 0) for part in _POLL), owner=mine)
    if any(part in parts for part in _COMMIT):
        meter.record("thread-commit", thread, sum(parts.get(part, 0) for part in _COMMIT), owner=mine)


def _record_read(
    meter: Meter, report: BatchReport, tags: tuple[str, ...], readers: Readers, owner: Hashable
) -> None:
    thread = tags[1]
    mine, client = ("thread", thread), consumer_id(thread)
    meter.record("thread-process", (thread,), report.records, owner=mine)
    meter.record("consumed", (client,), report.records, owner=mine)
    meter.record("batch-rows", tags, report.records, owner=owner)
    by_task: Counter[str] = Counter()
    by_topic: Counter[str] = Counter()
    for at, count in report.read.items():
        by_topic[at.topic] += count
        for task, node in _places(at, readers):
            by_task[task] += count
            meter.record("node-process", (thread, task, node), count, owner=owner)
            meter.record("topic-consumed", (thread, task, node, at.topic), count, owner=owner)
    for at, size in report.read_bytes.items():
        for task, node in _places(at, readers):
            meter.record("topic-consumed-bytes", (thread, task, node, at.topic), size, owner=owner)
    for task, count in by_task.items():
        meter.record("task-process", (thread, task), count, owner=owner)
    for topic, count in by_topic.items():
        meter.record("consumed-of-topic", (client, topic), count, owner=owner)


def _places(at: TopicPartition, readers: Readers) -> list[tuple[str, str]]:
    """The tasks and nodes to which a partition's records go."""
    return [(str(TaskId(subtopology, at.partition)), node) for subtopology, node in readers(at.topic)]


def consumer_id(thread: str) -> str:
    """Kafka Streams' name for the consumer of a stream thread."""
    return f"{thread}-consumer"
