"""The metrics of Kafka Streams that Millstream does not have, with the reason: they are not measured here, or
mean nothing here.

A test compares this with Kafka Streams 4.3.1: each of its metrics is either in the table or here, never in
both.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple

from millstream.metrics.metrics_table import CLIENT, CONSUMER, COORDINATOR, NODE, STATE, TASK, THREAD, UPDATER

__all__ = ["MISSING", "MissingMetrics"]


class MissingMetrics(NamedTuple):
    """Metrics of one group; `names` may have a `*`."""

    group: str
    names: tuple[str, ...]
    reason: str

    def covers(self, group: str, name: str) -> bool:
        """Whether a metric is one of these."""
        return fnmatchcase(group, self.group) and any(fnmatchcase(name, each) for each in self.names)


_CACHE = "The cache of a task is inside Spark's executors, which do not report this."
_INSIDE = (
    "The Kafka clients that read and write records are inside Spark's executors, which do not report this."
)
_STATE = (
    "The state of a task is inside Spark's executors, which do not report this; the stores that queries read "
    "are written from the changelog, and `records-applied` of store-metrics counts what is written to one."
)

MISSING: tuple[MissingMetrics, ...] = (
    MissingMetrics(
        CLIENT, ("commit-id",), "A Python package does not know the commit from which it was built."
    ),
    MissingMetrics(CLIENT, ("recording-level",), "There are no levels: everything is recorded."),
    MissingMetrics(
        THREAD,
        ("blocked-time-ns-total",),
        "A stream thread here supervises queries, and never waits for Kafka while they run.",
    ),
    MissingMetrics(
        THREAD, ("punctuate-*",), "Punctuators are called inside Spark's operators, which do not report this."
    ),
    MissingMetrics(
        TASK, ("punctuate-*",), "Punctuators are called inside Spark's operators, which do not report this."
    ),
    MissingMetrics(TASK, ("active-buffer-count",), _INSIDE),
    MissingMetrics(TASK, ("active-process-ratio", "process-latency-*"), _INSIDE),
    MissingMetrics(TASK, ("cache-size-bytes-total",), _CACHE),
    MissingMetrics(
        TASK,
        ("enforced-processing-*",),
        _INSIDE,
    ),
    MissingMetrics(
        TASK,
        ("record-lateness-*",),
        "It would need a look at each record in each operator; dropped-record-metrics counts those that came "
        "too late.",
    ),
    MissingMetrics(
        NODE,
        ("suppression-emit-*", "window-aggregate-final-emit-*"),
        "The operator that does this does not report it.",
    ),
    MissingMetrics("stream-record-cache-metrics", ("*",), _CACHE),
    MissingMetrics(
        STATE,
        (
            "memtable-flush-time-*",
            "memtable-hit-ratio",
            "write-stall-duration-*",
            "bytes-read-*",
            "bytes-written-*",
            "memtable-bytes-flushed-*",
            "block-cache-*-hit-ratio",
            "compaction-time-*",
            "number-file-errors-total",
            "number-open-files",
        ),
        _STATE,
    ),
    MissingMetrics(
        STATE,
        (
            "all-*",
            "commit-*",
            "delete-*",
            "fetch-*",
            "flush-*",
            "get-*",
            "prefix-scan-*",
            "put-*",
            "range-*",
            "remove-*",
        ),
        _STATE,
    ),
    MissingMetrics(
        STATE, ("iterator-duration-*", "num-open-iterators", "oldest-iterator-open-since-ms"), _STATE
    ),
    MissingMetrics(
        STATE,
        ("record-e2e-latency-*",),
        "It would need a look at each record.",
    ),
    MissingMetrics(
        STATE,
        ("restore-*",),
        "stream-task-metrics has how much is restored; the log has how long it took, and a restore listener "
        "receives it.",
    ),
    MissingMetrics(
        STATE,
        ("suppression-buffer-*",),
        "It is part of the operator's state, whose rows are not counted.",
    ),
    MissingMetrics(
        UPDATER,
        ("*-ratio",),
        "An updater follows all of its stores at once, active ones and standbys, and does not take turns.",
    ),
    MissingMetrics(
        UPDATER,
        ("active-paused-tasks", "standby-paused-tasks"),
        "pause() stops queries; stores continue to be filled.",
    ),
    MissingMetrics(
        CONSUMER,
        (
            "bytes-*",
            "fetch-*",
            "records-lag-avg",
            "records-lead*",
            "records-per-request-avg",
            "preferred-read-replica",
        ),
        _INSIDE,
    ),
    MissingMetrics(
        COORDINATOR,
        (
            "assigned-partitions",
            "commit-*",
            "failed-rebalance-rate-per-hour",
            "heartbeat-*",
            "join-*",
            "last-heartbeat-seconds-ago",
            "partition-*-latency-*",
            "rebalance-latency-*",
            "sync-*",
        ),
        "The client has its own implementation of a group member, which does not measure its requests. "
        "`recovery-time` of group-metrics has how long a fail-over takes.",
    ),
    MissingMetrics("consumer-metrics", ("*",), _INSIDE),
    MissingMetrics("producer-*", ("*",), _INSIDE),
    MissingMetrics("admin-*", ("*",), "The admin client is not one of Kafka's Java clients."),
    MissingMetrics("app-info", ("*",), "They describe Kafka's Java clients."),
    MissingMetrics("kafka-metrics-count", ("*",), "It counts a registry of Java metrics."),
)
"""One row for each group and reason."""
