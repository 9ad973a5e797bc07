"""Turns the reports of tasks, and of Spark's micro-batches, into metrics. No record is counted by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from millstream.metrics.meter import Meter
from millstream.metrics.metrics_table import CONSUMER, SPARK
from millstream.model import BatchReport, TaskId, TopicPartition

__all__ = ["Readers", "Writers", "consumer_id", "forget_pipeline", "record_batch"]

Writers = Callable[[str], str | None]
"""The name of the sink that writes a topic; None if no sink does, as for a changelog."""

Readers = Callable[[str], Sequence[tuple[int, str]]]
"""The processors that read a topic: the numbers of their subtopologies, and their names."""

_WHOLE = "triggerExecution"


def _owner(thread: str, pipeline: str) -> Hashable:
    return "pipeline", thread, pipeline


def forget_pipeline(meter: Meter, thread: str, pipeline: str) -> None:
    """Remove the values of a thread's tasks of a pipeline: others have them now, or nobody."""
    meter.forget(_owner(thread, pipeline))


def record_batch(
    meter: Meter,
    report: BatchReport,
    *,
    client_id: str,
    thread: str,
    readers: Readers,
    writers: Writers,
    at_ms: int,
) -> None:
    """Process one report.

    Args:
        thread: the stream thread whose tasks it is about; the thread's values stay when these leave.
        at_ms: the time since the epoch.
    """
    owner = _owner(thread, report.pipeline)
    tags = (client_id, thread, report.pipeline)
    named = dict(zip(("client-id", "thread-id", "pipeline"), tags, strict=True))
    _record_lag(meter, report, thread, owner)
    meter.make("thread-dropped", (thread,), owner=("thread", thread))
    if report.executed:
        _record_time(meter, report, tags, owner)
        _record_read(meter, report, tags, readers, owner)
        _record_written(meter, report, thread, writers, owner)
        meter.put(SPARK, "batch-id", named, report.batch_id, owner=owner)
        meter.put(SPARK, "last-batch-timestamp", named, at_ms, owner=owner)
    meter.put(SPARK, "input-rows-per-second", named, report.input_rate, owner=owner)
    meter.put(SPARK, "processed-rows-per-second", named, report.processed_rate, owner=owner)
    for (kind, node), count in report.dropped.items():
        meter.record("thread-dropped", (thread,), count, owner=("thread", thread))
        meter.record("dropped", (client_id, report.pipeline, kind, node), count, owner=owner)


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
    for part, took in ({} if report.times else parts).items():
        if part != _WHOLE:
            meter.record("batch-part", (*tags, part), took, owner=owner)
    for what, span in report.times.items():
        meter.record_all("batch-part", (*tags, what), *span, owner=owner)
    for what, sensor in (("process", "thread-busy"), ("poll", "thread-poll"), ("commit", "thread-commit")):
        if what in report.times:
            meter.record_all(sensor, thread, *report.times[what], owner=mine)
    if report.records and "process" in report.times:
        _, process_ms, _, _ = report.times["process"]
        meter.record("thread-process-latency", thread, process_ms / report.records, owner=mine)


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
