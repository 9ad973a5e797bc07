"""The tasks of one running query: what the kernel is told when it starts, and what can be seen of them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.model import TopicPartition
from millstream.physical.task_stores import TaskStore
from millstream.spark.compile.source import without_internal
from millstream.spark.jvm.java_names import java_class
from millstream.topology.names import internal_topic
from millstream.topology.nodes import (
    FrameRead,
    GlobalRead,
    Node,
    OffsetReset,
    OffsetResetPolicy,
    Repartition,
    Source,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, global_reads, topics_of_input

__all__ = [
    "FollowedTasks",
    "TaskProgress",
    "TaskRun",
    "TaskSettings",
    "is_up_to_date",
    "next_report",
    "reports_in",
    "task_rows",
    "task_writer",
]

_FORMAT = "io.millstream.kernel.task.TaskTable"
_RUNS = "io.millstream.kernel.task.TaskRuns"


@dataclass(frozen=True)
class TaskSettings:
    """How tasks commit.

    Attributes:
        exactly_once: whether outputs are part of the transaction of a commit.
        commit_ms: the shortest time from one commit to the next.
        idle_ms: how long a partition without records is waited for (max.task.idle.ms).
        directory: where the state of tasks is kept between runs.
        purge_ms: how often records of repartition topics that are committed are deleted
            (repartition.purge.interval.ms).
        buffered: how many records of a partition are held at most (buffered.records.per.partition).
        timeout_ms: how long a request to Kafka that times out is tried again (task.timeout.ms).
        offset_reset: where topics are read from that have no committed offset, if their source says nothing.
        reads_lost_anew: read a source topic that was deleted and made anew, or has lost records before they
            were read, from its beginning; otherwise tasks fail.
        consumer, producer: Kafka client options in Kafka's names, with the servers.
        global_consumer: those of the consumers of global tables.
    """

    exactly_once: bool
    commit_ms: int
    idle_ms: int
    directory: str
    purge_ms: int = 30_000
    buffered: int = 1_000
    timeout_ms: int = 300_000
    offset_reset: OffsetResetPolicy = OffsetReset.EARLIEST
    reads_lost_anew: bool = False
    consumer: Mapping[str, str] = field(default_factory=dict, repr=False)
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    global_consumer: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TaskProgress:
    """How far the tasks of a run are, by partition.

    Attributes:
        records: how many they have read.
        read: the next offset of each partition.
        committed: the next offset that is not done with.
        ends: where the partitions end, as far as that is known.
        opening: how many tasks do not run yet; left: how many records these still have to restore.
    """

    records: int
    read: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    opening: int = 0
    left: int = 0


def task_rows(spark: SparkSession, name: str) -> DataFrame:
    """The records of the tasks of a run that will have this name."""
    return spark.readStream.format(_FORMAT).option("run", name).load()


def is_up_to_date(spark: SparkSession, topic: str, patience_ms: int) -> bool:
    """Wait until the tasks of this client look up all rows that the topic of a global table has now.

    Returns:
        Whether they did so in time.
    """
    return bool(java_class(spark._jvm, _RUNS).isUpToDate(topic, patience_ms))


def task_writer(rows: DataFrame, checkpoint: str, *, in_batches: bool) -> DataStreamWriter:
    """What starts a query whose sink is its tasks'.

    Args:
        in_batches: batches begin one after another, each when there is a record; otherwise one lasts an hour,
            in which tasks commit by themselves, and ends on request.
    """
    trigger: dict[str, Any] = {"processingTime": "0 seconds"} if in_batches else {"realTime": "60 minutes"}
    writer = rows.writeStream.format(_FORMAT).option("checkpointLocation", checkpoint)
    return writer.trigger(**trigger).outputMode("update")


class TaskRun:
    """The tasks of one run of a query, in Spark's process here or in executors (kernel: Endpoint.java)."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        application_id: str,
        pipeline: Pipeline,
        settings: TaskSettings,
        stores: Sequence[TaskStore],
        sink: Mapping[str, str],
        times: Sequence[Any],
        fillings: Mapping[str, Any],
        partitions: Collection[int],
        spares: int = 0,
    ) -> None:
        """Tell the kernel what is about to start.

        Args:
            sink: what happens to records that failed (sink.refusal_options).
            times, fillings: the timestamp extractors of sources, and the processors that fill global tables
                (CompiledTask).
            partitions: those that its tasks are.
            spares: how many of Spark's tasks wait for partitions that come later, so that no other one is
                disturbed.

        Raises:
            Py4JJavaError: a topic is missing, or the cluster cannot be reached.
        """
        self.name = name
        self._runs: Any = java_class(spark._jvm, _RUNS)
        self._list: Any = java_class(spark._jvm, "java.util.ArrayList")
        self._id = f"{name}-{uuid.uuid4().hex}"
        plan = _plan(self._id, application_id, pipeline, settings, stores) | {"sink": dict(sink)}
        extractors = self._list()
        for each in times:
            extractors.add(each)
        filling = java_class(spark._jvm, "java.util.HashMap")()
        for topic, program in fillings.items():
            filling.put(topic, program)
        begun = self._runs.begin(
            name, json.dumps(plan), extractors, filling, _listed(self._list, partitions), spares
        )
        self.tasks = int(begun)

    def assign(self, partitions: Collection[int], patience_s: float) -> bool:
        """Its partitions from now on.

        Returns:
            Whether tasks of others have committed and are closed.
        """
        return bool(self._runs.assign(self._id, _listed(self._list, partitions), int(patience_s * 1000)))

    def wait_for_reader(self, patience_s: float) -> bool:
        """Wait until a task of Spark waits for a partition to come; whether one does."""
        return bool(self._runs.awaitReader(self._id, int(patience_s * 1000)))

    def end(self, patience_s: float) -> bool:
        """Have everything that was read committed, and nothing more read; the query must still be stopped.

        Returns:
            Whether that was done in time.
        """
        return bool(self._runs.end(self._id, int(patience_s * 1000)))

    def turn(self) -> None:
        """Commit soon."""
        self._runs.commit(self._id)

    def forget(self) -> None:
        self._runs.close(self._id)

    def progress(self) -> TaskProgress:
        """How far its tasks are."""
        told = json.loads(self._runs.progress(self._id))
        read, committed, ends = (_by_partition(told[name]) for name in ("read", "committed", "ends"))
        opening, left = told.get("opening", 0), told.get("left", 0)
        return TaskProgress(told["records"], read, committed, ends, opening, left)

    def reports(self, seen: tuple[int, str] | None) -> list[Mapping[str, Any]]:
        """What has happened since the last call, as Spark's progress reports have it of batches: one report,
        or none if nothing has.

        Args:
            seen: the batch of the last report, and a text.
        """
        report = json.loads(self._runs.figures(self._id, next_report(seen)))
        return reports_in(report, lambda: self.progress().ends)

    def unfinished(self) -> tuple[str, str]:
        """The offsets committed, and those reached, as Spark writes them."""
        start, end = self._runs.unfinished(self._id)
        return str(start), str(end)


class FollowedTasks:
    """Tasks of a pipeline that other clients run, and whose state is kept ready in Spark's process, so that
    they can begin here at once (kernel: Standbys.java)."""

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        application_id: str,
        pipeline: Pipeline,
        settings: TaskSettings,
        stores: Sequence[TaskStore],
    ) -> None:
        self._runs: Any = java_class(spark._jvm, _RUNS)
        self._list: Any = java_class(spark._jvm, "java.util.ArrayList")
        self._id = f"{name}-standbys"
        self._plan = json.dumps(_plan(self._id, application_id, pipeline, settings, stores))

    def follow(self, partitions: Collection[int]) -> frozenset[int]:
        """Which tasks, from now on.

        Returns:
            Those that have had all that their changelogs had when they were opened.
        """
        return frozenset(json.loads(self._runs.follow(self._plan, _listed(self._list, partitions))))

    def close(self) -> None:
        self._runs.leave(self._id)


def next_report(seen: tuple[int, str] | None) -> int:
    """The number of the report after this one."""
    return 0 if seen is None else seen[0] + 1


def reports_in(
    report: Mapping[str, Any], ends: Callable[[], Mapping[TopicPartition, int]]
) -> list[Mapping[str, Any]]:
    """The kernel's report, in the form of Spark's report of a batch; none if nothing has happened.

    Args:
        ends: where the partitions end; asked only if something has.
    """
    (source,) = report["sources"]
    has_read = source["startOffset"] != source["endOffset"] or report["numInputRows"]
    if not (has_read or any(report["observedMetrics"].values()) or report["sink"]["metrics"]):
        return []
    latest: dict[str, dict[str, int]] = {}
    for at, end in ends().items():
        latest.setdefault(at.topic, {})[str(at.partition)] = end
    # Without a duration, it would be a report of a query that waits for records.
    return [{**report, "sources": [{**source, "latestOffset": latest}], "durationMs": {"addBatch": 0}}]


def _plan(
    run: str, application_id: str, pipeline: Pipeline, settings: TaskSettings, stores: Sequence[TaskStore]
) -> dict[str, Any]:
    """What tasks read, keep and write, as the kernel takes it (TaskPlan.of)."""
    topics, patterns = _topics_of(pipeline, application_id, settings.offset_reset)
    return {
        "run": run,
        "application": application_id,
        "subtopology": pipeline.subtopology,
        "topics": topics,
        "patterns": patterns,
        "consumer": dict(settings.consumer),
        "producer": dict(settings.producer),
        "exactly_once": settings.exactly_once,
        "commit_ms": settings.commit_ms,
        "idle_ms": settings.idle_ms,
        "headers": True,
        "directory": settings.directory,
        "stores": [asdict(store) for store in stores],
        "tables": _tables_of(pipeline),
        "outputs": _outputs_of(pipeline, application_id),
        "internal": _repartitions_in(pipeline.outputs, application_id),
        "purged": _repartitions_in(pipeline.inputs, application_id),
        "purge_ms": settings.purge_ms,
        "buffered": settings.buffered,
        "timeout_ms": settings.timeout_ms,
        "globals": _globals_of(pipeline, application_id),
        "global_consumer": dict(settings.global_consumer),
        "reads_lost_anew": settings.reads_lost_anew,
        "resets": _resets_of(pipeline, application_id, settings.offset_reset),
    }


def _listed(java_list: Any, partitions: Collection[int]) -> Any:
    found = java_list()
    for each in sorted(partitions):
        found.add(each)
    return found


def _by_partition(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for place, offset in offsets.items():
        topic, _, partition = place.rpartition("-")
        found[TopicPartition(topic, int(partition))] = offset
    return found


def _topics_of(
    pipeline: Pipeline, application_id: str, default: OffsetResetPolicy
) -> tuple[list[str], dict[str, str]]:
    """The topics that are read, and patterns of further ones with where these begin."""
    topics: list[str] = []
    patterns: dict[str, str] = {}
    for node in pipeline.inputs:
        if isinstance(node, GlobalRead):
            continue
        topics += topics_of_input(node, application_id)
        if isinstance(node, Source) and node.pattern is not None:
            pattern = without_internal(node.pattern.pattern, application_id)
            patterns[pattern] = _policy(node.offset_reset or default)
    return list(dict.fromkeys(topics)), patterns


def _globals_of(pipeline: Pipeline, application_id: str) -> list[dict[str, Any]]:
    """The topics of its global tables. The rows of a DataFrame change all at once."""
    return [
        {"topic": topic, "whole": isinstance(node, FrameRead)}
        for node in global_reads(pipeline)
        for topic in topics_of_input(node, application_id)
    ]


def _tables_of(pipeline: Pipeline) -> list[str]:
    """The topics that are the changelogs of the tables that are read from them."""
    return [node.topic for node in pipeline.inputs if isinstance(node, TableSource) and node.is_own_changelog]


def _outputs_of(pipeline: Pipeline, application_id: str) -> list[str]:
    """The topics that it writes, as far as they are known beforehand."""
    return [
        internal_topic(application_id, node.topic) if isinstance(node, Repartition) else node.topic
        for node in pipeline.outputs
        if node.topic is not None
    ]


def _repartitions_in(nodes: Sequence[Node], application_id: str) -> list[str]:
    """The repartition topics among what is read or written."""
    return [internal_topic(application_id, node.topic) for node in nodes if isinstance(node, Repartition)]


def _resets_of(pipeline: Pipeline, application_id: str, default: OffsetResetPolicy) -> dict[str, str]:
    """By topic. What the application has written itself is read from its beginning."""
    resets: dict[str, str] = {}
    for node in pipeline.inputs:
        if isinstance(node, Repartition | GlobalRead):
            continue
        text = _policy(node.offset_reset or default)
        resets |= dict.fromkeys(topics_of_input(node, application_id), text)
    return resets


def _policy(policy: OffsetResetPolicy) -> str:
    if isinstance(policy, OffsetReset):
        return policy.value
    return f"by_duration:PT{policy.duration_ms / 1000:.3f}S"
