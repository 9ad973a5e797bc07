"""Real-Time Mode of Spark: its settings, the batches of a run, and the resources its tasks need.

A batch lasts as long as configured, and its tasks run all that time: each record is processed as it arrives.
At the end of a batch Spark commits; the next one begins some tenths of a second later.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millstream.kernel.constants import OPTION_RUN
from millstream.model import TopicPartition
from millstream.ports import CheckpointFiles
from millstream.spark.jvm.executors import is_cluster
from millstream.spark.jvm.java_names import java_class

__all__ = [
    "SQL",
    "RealTimeRun",
    "has_clock",
    "has_python",
    "is_of_micro_batches",
    "launch_defaults",
    "read_options",
]

_BATCHES = "io.millstream.kernel.realtime.Batches"
_SLOTS = 256
"""A slot is a thread that is created when a task needs it. There must be more slots than tasks, which last as
long as their batch; and topics may get more partitions."""

LAUNCH: Mapping[str, str] = {
    # A shuffle buffer that is not full is sent after this time; the default of 50 is most of a count's
    # latency.
    "spark.shuffle.streaming.networkBufferMaxWaitTimeMs": "1",
}
"""Settings that Spark is started with; they are read when the context starts."""

SQL: Mapping[str, str] = {
    # A batch that failed is run again with other records, and must not find state of the first try.
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    # Spark's allow list lacks the kernel's sink and some of its operators; ours is topology/real_time.py.
    "spark.sql.streaming.realTimeMode.allowlistCheck": "false",
    # Otherwise the log of a batch without state is written later, and a stop would not know when.
    "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1",
}
"""Settings for the session of a client that may run pipelines in Real-Time Mode."""


def read_options(run: str) -> dict[str, str]:
    """Further options of the run's sources."""
    # A record ends the wait at once. Micro-batches have a short one: they wait at the end of a partition.
    return {OPTION_RUN: run, "kafka.fetch.max.wait.ms": "500"}


def launch_defaults(cores: int | None = None) -> dict[str, str]:
    """Defaults for a Spark that we start."""
    found = cores or os.cpu_count() or 1
    return {
        **LAUNCH,
        "spark.master": f"local[{max(_SLOTS, found)}]",
        # Spark splits data without partitions of its own by it, such as a DataFrame of Python rows.
        "spark.default.parallelism": str(max(2, found)),
    }


class RealTimeRun:
    """The batches of one run of a query: ends them, and reports their progress.

    In local mode only. Executors have their own JVMs, whose tasks cannot be reached.
    """

    def __init__(
        self, spark: SparkSession, name: str, pipeline: str, slots: int, behind_shuffles: int
    ) -> None:
        self.name = name
        self._batches: Any = java_class(spark._jvm, _BATCHES)
        self._is_reachable = not is_cluster(str(spark.sparkContext.master))
        self._begun: Any = self._batches.begin(name, pipeline, slots, behind_shuffles)

    def end(self, patience_s: float) -> bool:
        """End the batch and start no other one; the query must still be stopped.

        Returns:
            Whether everything that was read is committed, so that nothing is repeated.
        """
        return self._is_reachable and bool(self._batches.end(self.name, int(patience_s * 1000)))

    def turn(self) -> None:
        """End the batch now; the next one follows."""
        if self._is_reachable:
            self._batches.turn(self.name)

    def forget(self) -> None:
        self._batches.forget(self.name, self._begun)

    def records(self) -> int:
        """The number of records read in this run."""
        return int(self._batches.records(self.name))

    def read(self) -> dict[TopicPartition, int]:
        """The next offset of each partition read in this run."""
        if not self._is_reachable:
            return {}
        found: dict[TopicPartition, int] = {}
        for place, offset in dict(self._batches.positions(self.name)).items():
            topic, _, partition = place.rpartition("-")
            if offset >= 0:
                found[TopicPartition(topic, int(partition))] = offset
        return found


def is_of_micro_batches(checkpoint: CheckpointFiles) -> bool:
    """Whether a checkpoint has format 1, which Real-Time Mode refuses, with state or without.

    Spark decides by its newest commit, whatever the session's settings are.
    """
    done = [int(name) for name in checkpoint.list("commits") if name.isdecimal()]
    newest = checkpoint.read(f"commits/{max(done)}") if done else None
    return newest is not None and newest.startswith(b"v1\n")


_BEHIND_SHUFFLES = re.compile(r"^[\s:+|~'-]*(?:TransformWithState|Aggregate)\b", re.MULTILINE)


_SHUFFLES = "spark.sql.shuffle.partitions"


def tasks_behind_shuffles(rows: DataFrame, checkpoint: CheckpointFiles) -> int:
    """How many tasks of a query read shuffled data."""
    plan = str(rows._jdf.queryExecution().analyzed().toString())
    each = _shuffle_partitions_of(checkpoint) or rows.sparkSession.conf.get(_SHUFFLES, "200")
    return len(_BEHIND_SHUFFLES.findall(plan)) * int(each or 0)


def _shuffle_partitions_of(checkpoint: CheckpointFiles) -> str | None:
    """The first run's setting: state is partitioned by it, so Spark keeps it, whatever the session says
    now."""
    planned = [int(name) for name in checkpoint.list("offsets") if name.isdecimal()]
    content = checkpoint.read(f"offsets/{max(planned)}") if planned else None
    try:
        return str(json.loads((content or b"").splitlines()[1])["conf"][_SHUFFLES])
    except (IndexError, KeyError, TypeError, ValueError):
        return None  # it is damaged, which Spark reports, or missing


def has_python(rows: DataFrame) -> bool:
    """Whether a query has a UDF, which Spark computes in batches."""
    return _has(rows, "PYTHON_UDF")


def has_clock(rows: DataFrame) -> bool:
    """Whether a query uses the current time, which Spark reads once for each batch."""
    return _has(rows, "CURRENT_LIKE")


def _has(rows: DataFrame, pattern: str) -> bool:
    patterns = java_class(rows.sparkSession._jvm, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return bool(rows._jdf.queryExecution().analyzed().containsPattern(getattr(patterns, pattern)()))
