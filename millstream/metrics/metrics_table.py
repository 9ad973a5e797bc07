"""All metrics: group, name, tags, unit, meaning, and how each differs from Kafka Streams' metric of that
name.

The client creates its metrics from this table, docs/metrics.md is generated from it, and a test compares its
names, tags and descriptions with those of Kafka Streams itself. Only metrics in this table can be recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from millstream.metrics.rocksdb_properties import PROPERTIES, unit_of
from millstream.metrics.sensors import Sensor
from millstream.model import StoreKind

__all__ = [
    "CLIENT",
    "CONSUMER",
    "COORDINATOR",
    "DEFINITIONS",
    "FAILURES",
    "GROUP",
    "NODE",
    "OWN_GROUPS",
    "SCOPES",
    "SENSORS",
    "SPARK",
    "STATE",
    "STORES",
    "TASK",
    "THREAD",
    "TOPIC",
    "UPDATER",
    "VALUES",
    "Definition",
    "definition",
    "is_counter",
]

CLIENT = "stream-metrics"
THREAD = "stream-thread-metrics"
TASK = "stream-task-metrics"
NODE = "stream-processor-node-metrics"
TOPIC = "stream-topic-metrics"
STATE = "stream-state-metrics"
UPDATER = "stream-state-updater-metrics"
CONSUMER = "consumer-fetch-manager-metrics"
COORDINATOR = "consumer-coordinator-metrics"
SPARK = "spark-batch-metrics"
STORES = "store-metrics"
GROUP = "group-metrics"
FAILURES = "failure-metrics"
DROPPED = "dropped-record-metrics"

OWN_GROUPS = (SPARK, STORES, GROUP, FAILURES, DROPPED)
"""The groups that Kafka Streams does not have."""

Measure = Callable[[Sensor, int], float]


@dataclass(frozen=True)
class Definition:
    """One metric.

    Attributes:
        tags: the names of its tags.
        unit: the unit of its value: `records`, `ms`, `1/s`, `text`, …
        description: its meaning; for a metric of Kafka Streams, in Kafka Streams' words.
        measure: calculates its value from its sensor; None for a value without a sensor.
        differs: how it differs from Kafka Streams' metric of this name.
    """

    group: str
    name: str
    tags: tuple[str, ...]
    unit: str
    description: str
    measure: Measure | None = None
    differs: str = ""


def is_counter(name: str) -> bool:
    """Whether the value of a metric of this name only grows, until its owner is gone."""
    return name.endswith("-total") and not name.endswith("-remaining-records-total")


# --- how values come from sensors --------------------------------------------------------------------------


def _count(sensor: Sensor, now_ms: int) -> float:
    return sensor.count


def _total(sensor: Sensor, now_ms: int) -> float:
    return sensor.total


def _last(sensor: Sensor, now_ms: int) -> float:
    return sensor.last


def _per_hour(sensor: Sensor, now_ms: int) -> float:
    return sensor.count_rate(now_ms) * 3600


def _share(sensor: Sensor, now_ms: int) -> float:
    """The share of all the time that the recorded milliseconds take."""
    return sensor.rate(now_ms) / 1000


_RATE, _COUNT_RATE = Sensor.rate, Sensor.count_rate
_AVG, _MAX, _MIN = Sensor.average, Sensor.maximum, Sensor.minimum

_CLIENT = ("client-id",)
_THREAD = ("thread-id",)
_TASK = ("thread-id", "task-id")
_NODE = (*_TASK, "processor-node-id")
_PIPELINE = ("client-id", "thread-id", "pipeline")
_STORE = (*_TASK, "store")

_OF_SOURCES = (
    "Counts what was read of the task's source partitions, by offsets, including those of transaction "
    "markers, when its tasks report it."
)
_OF_SINKS = (
    "For sinks only, by topic, without `task-id`: Spark's tasks are not those of the topology. A topic that "
    "two sinks write counts for the first of them."
)
_E2E = (
    f"{_OF_SINKS} Measured when a record is handed to the producer; a result of an aggregation has the time "
    "of the newest record in it."
)
_APPLIED = "By the offsets of the changelog."


def _calls(group: str, tags: tuple[str, ...], what: str, rate: str, differs: str) -> tuple[Definition, ...]:
    """How often something is done, and how long it takes."""
    return (
        Definition(group, f"{what}-rate", tags, "1/s", f"{rate} calls to {what}", _COUNT_RATE, differs),
        Definition(
            group, f"{what}-total", tags, "calls", f"The total number of calls to {what}", _count, differs
        ),
        Definition(group, f"{what}-latency-avg", tags, "ms", f"The average {what} latency", _AVG, differs),
        Definition(group, f"{what}-latency-max", tags, "ms", f"The maximum {what} latency", _MAX, differs),
    )


SCOPES = {
    StoreKind.KEY_VALUE: "rocksdb",
    StoreKind.WINDOW: "rocksdb-window",
    StoreKind.SESSION: "rocksdb-session",
}
"""How the tag with a store's name begins, by the store's kind."""

_PER_SECOND = "The average per-second number of"

_PROCESS_RECORDS = "Records that the tasks of its pipelines have read of the sources, by their offsets."
_PROCESS_TIME = "What tasks worked, without waiting and committing, divided by the records that they read."
_POLLING = "Each of the thread's tasks has a consumer of its own."
_COMMITTING = "Each of the thread's tasks commits by itself."
_ITERATION = "An iteration is what tasks report of at a time."
_RATIO = "Tasks of one thread run side by side, so it may be more than 1."

SENSORS: Mapping[str, tuple[Definition, ...]] = {
    "thread-process": (
        Definition(
            THREAD, "process-rate", _THREAD, "1/s", f"{_PER_SECOND} calls to process", _RATE, _PROCESS_RECORDS
        ),
        Definition(
            THREAD,
            "process-total",
            _THREAD,
            "records",
            "The total number of calls to process",
            _total,
            _PROCESS_RECORDS,
        ),
        Definition(
            THREAD,
            "process-records-avg",
            _THREAD,
            "records",
            "The average number of records processed within an iteration",
            _AVG,
            _ITERATION,
        ),
        Definition(
            THREAD,
            "process-records-max",
            _THREAD,
            "records",
            "The maximum number of records processed within an iteration",
            _MAX,
            _ITERATION,
        ),
        Definition(
            THREAD,
            "poll-records-avg",
            _THREAD,
            "records",
            "The average number of records polled from consumer within an iteration",
            _AVG,
            "As process-records-avg: what is read is processed.",
        ),
        Definition(
            THREAD,
            "poll-records-max",
            _THREAD,
            "records",
            "The maximum number of records polled from consumer within an iteration",
            _MAX,
            "As process-records-max.",
        ),
    ),
    "thread-process-latency": (
        Definition(
            THREAD, "process-latency-avg", _THREAD, "ms", "The average process latency", _AVG, _PROCESS_TIME
        ),
        Definition(
            THREAD, "process-latency-max", _THREAD, "ms", "The maximum process latency", _MAX, _PROCESS_TIME
        ),
    ),
    "thread-busy": (
        Definition(
            THREAD,
            "process-ratio",
            _THREAD,
            "1",
            "The ratio, over a rolling measurement window, of the time this thread spent processing active "
            "tasks to "
            "the total elapsed time in that window.",
            _share,
            _RATIO,
        ),
    ),
    "thread-poll": (
        *_calls(THREAD, _THREAD, "poll", _PER_SECOND, _POLLING),
        Definition(
            THREAD,
            "poll-ratio",
            _THREAD,
            "1",
            "The ratio, over a rolling measurement window, of the time this thread spent polling records "
            "from the "
            "consumer to the total elapsed time in that window.",
            _share,
            _RATIO,
        ),
    ),
    "thread-commit": (
        *_calls(THREAD, _THREAD, "commit", _PER_SECOND, _COMMITTING),
        Definition(
            THREAD,
            "commit-ratio",
            _THREAD,
            "1",
            "The ratio, over a rolling measurement window, of the time this thread spent committing all "
            "tasks to the "
            "total elapsed time in that window.",
            _share,
            _RATIO,
        ),
    ),
    "thread-task-created": (
        Definition(
            THREAD,
            "task-created-rate",
            _THREAD,
            "1/s",
            f"{_PER_SECOND} newly created tasks",
            _COUNT_RATE,
            "Only tasks with state: others have no object here.",
        ),
        Definition(
            THREAD,
            "task-created-total",
            _THREAD,
            "tasks",
            "The total number of newly created tasks",
            _count,
            "As task-created-rate.",
        ),
    ),
    "thread-task-closed": (
        Definition(
            THREAD,
            "task-closed-rate",
            _THREAD,
            "1/s",
            f"{_PER_SECOND} closed tasks",
            _COUNT_RATE,
            "As task-created-rate.",
        ),
        Definition(
            THREAD,
            "task-closed-total",
            _THREAD,
            "tasks",
            "The total number of closed tasks",
            _count,
            "As task-created-rate.",
        ),
    ),
    "thread-dropped": (
        Definition(
            TASK,
            "dropped-records-rate",
            _THREAD,
            "1/s",
            "The average number of dropped records per second",
            _RATE,
            "One for each thread, without `task-id`: Spark counts what a node drops, and not for which "
            "partition.",
        ),
        Definition(
            TASK,
            "dropped-records-total",
            _THREAD,
            "records",
            "The total number of dropped records",
            _total,
            "Without `task-id`, as dropped-records-rate.",
        ),
    ),
    "task-process": (
        Definition(
            TASK,
            "process-rate",
            _TASK,
            "1/s",
            "The average number of calls to process per second",
            _RATE,
            _OF_SOURCES,
        ),
        Definition(
            TASK,
            "process-total",
            _TASK,
            "records",
            "The total number of calls to process",
            _total,
            _OF_SOURCES,
        ),
    ),
    "node-process": (
        Definition(
            NODE,
            "process-rate",
            _NODE,
            "1/s",
            "The average number of calls to process per second",
            _RATE,
            _OF_SOURCES,
        ),
        Definition(
            NODE,
            "process-total",
            _NODE,
            "records",
            "The total number of calls to process",
            _total,
            _OF_SOURCES,
        ),
    ),
    "topic-consumed": (
        Definition(
            TOPIC,
            "records-consumed-total",
            (*_NODE, "topic"),
            "records",
            "The total number of records consumed from this topic",
            _total,
            _OF_SOURCES,
        ),
    ),
    "topic-consumed-bytes": (
        Definition(
            TOPIC,
            "bytes-consumed-total",
            (*_NODE, "topic"),
            "bytes",
            "The total number of bytes consumed from this topic",
            _total,
            "When tasks report it.",
        ),
    ),
    "topic-produced": (
        Definition(
            TOPIC,
            "records-produced-total",
            (*_THREAD, "processor-node-id", "topic"),
            "records",
            "The total number of records produced to this topic",
            _total,
            _OF_SINKS,
        ),
    ),
    "topic-produced-bytes": (
        Definition(
            TOPIC,
            "bytes-produced-total",
            (*_THREAD, "processor-node-id", "topic"),
            "bytes",
            "The total number of bytes produced to this topic",
            _total,
            _OF_SINKS,
        ),
    ),
    "node-e2e": tuple(
        Definition(
            NODE,
            f"record-e2e-latency-{what}",
            (*_THREAD, "processor-node-id"),
            "ms",
            f"The {word} end-to-end latency of a record, measuring by comparing the record timestamp with "
            "the system time when it has been fully processed by the node",
            measure,
            _E2E,
        )
        for what, word, measure in (
            ("avg", "average", _AVG),
            ("min", "minimum", _MIN),
            ("max", "maximum", _MAX),
        )
    ),
    "consumed": (
        Definition(
            CONSUMER,
            "records-consumed-rate",
            _CLIENT,
            "1/s",
            "The average number of records consumed per second",
            _RATE,
            "By offsets. `client-id` is named as the main consumer of the stream thread would be.",
        ),
        Definition(
            CONSUMER,
            "records-consumed-total",
            _CLIENT,
            "records",
            "The total number of records consumed",
            _total,
            "As records-consumed-rate.",
        ),
    ),
    "consumed-of-topic": (
        Definition(
            CONSUMER,
            "records-consumed-rate",
            (*_CLIENT, "topic"),
            "1/s",
            "The average number of records consumed per second for a topic",
            _RATE,
            "By offsets.",
        ),
        Definition(
            CONSUMER,
            "records-consumed-total",
            (*_CLIENT, "topic"),
            "records",
            "The total number of records consumed for a topic",
            _total,
            "By offsets.",
        ),
    ),
    "rebalance": (
        Definition(
            COORDINATOR,
            "rebalance-total",
            _CLIENT,
            "rebalances",
            "The total number of successful rebalance events, each event is composed of several failed "
            "re-trials "
            "until it succeeded",
            _count,
            "`client-id` is the client's: all its threads are one member.",
        ),
        Definition(
            COORDINATOR,
            "rebalance-rate-per-hour",
            _CLIENT,
            "1/h",
            "The number of successful rebalance events per hour, each event is composed of several failed "
            "re-trials "
            "until it succeeded",
            _per_hour,
            "As rebalance-total.",
        ),
    ),
    "failed-rebalance": (
        Definition(
            COORDINATOR,
            "failed-rebalance-total",
            _CLIENT,
            "rebalances",
            "The total number of failed rebalance events",
            _count,
            "How often the group continued without this client, or its leader could not assign work.",
        ),
    ),
    "recovery": (
        Definition(
            GROUP,
            "recovery-total",
            _CLIENT,
            "recoveries",
            "How often the client became RUNNING, the first time included",
            _count,
        ),
        Definition(
            GROUP,
            "recovery-time-last",
            _CLIENT,
            "ms",
            "How long the client was REBALANCING before it last became RUNNING: in a fail-over, until it had "
            "taken over the work, restored its stores and started its queries",
            _last,
        ),
        Definition(
            GROUP, "recovery-time-max", _CLIENT, "ms", "The longest of these times in the window", _MAX
        ),
        Definition(
            GROUP, "recovery-time-total", _CLIENT, "ms", "How long the client was REBALANCING in all", _total
        ),
    ),
    "failure": (
        Definition(
            FAILURES,
            "failures-total",
            (*_CLIENT, "exception", "response"),
            "failures",
            "Failures of threads, by exception and response",
            _count,
        ),
    ),
    "dropped": (
        Definition(
            DROPPED,
            "dropped-records-total",
            (*_CLIENT, "pipeline", "kind", "processor-node-id"),
            "records",
            "Records that a node has dropped. `kind` says why: for `deserialization`, `processing` and "
            "`production`, a handler decided to continue; `late` ones came after the grace period of their "
            "window; `timestamp` had a negative time; `null` had no key, or no value where one is needed; "
            "`past` ones came after a later version of their row",
            _total,
        ),
        Definition(
            DROPPED,
            "dropped-records-rate",
            (*_CLIENT, "pipeline", "kind", "processor-node-id"),
            "1/s",
            "The same, per second",
            _RATE,
        ),
    ),
    "batch": (
        Definition(SPARK, "batches-total", _PIPELINE, "batches", "Micro-batches that were executed", _count),
        Definition(SPARK, "batch-rate", _PIPELINE, "1/s", "Micro-batches per second", _COUNT_RATE),
        Definition(
            SPARK,
            "batch-duration-last",
            _PIPELINE,
            "ms",
            "How long the last micro-batch took (`triggerExecution`)",
            _last,
        ),
        Definition(
            SPARK, "batch-duration-avg", _PIPELINE, "ms", "How long a micro-batch takes, on average", _AVG
        ),
        Definition(
            SPARK,
            "batch-duration-max",
            _PIPELINE,
            "ms",
            "How long the longest micro-batch in the window took",
            _MAX,
        ),
    ),
    "batch-part": (
        Definition(
            SPARK,
            "part-duration-avg",
            (*_PIPELINE, "part"),
            "ms",
            "How long a part of a micro-batch takes, on average. `part` is Spark's word: `latestOffset`, "
            "`getBatch`, "
            "`queryPlanning`, `walCommit`, `addBatch`, `commitOffsets`, …",
            _AVG,
        ),
        Definition(
            SPARK,
            "part-duration-max",
            (*_PIPELINE, "part"),
            "ms",
            "The longest time that this part took in the window",
            _MAX,
        ),
    ),
    "batch-rows": (
        Definition(
            SPARK, "input-rows-total", _PIPELINE, "records", "Records read by the query, by offsets", _total
        ),
        Definition(
            SPARK,
            "input-rows-rate",
            _PIPELINE,
            "1/s",
            "Records read by the query per second, over the window",
            _RATE,
        ),
    ),
    "task-restore": (
        Definition(
            TASK,
            "restore-rate",
            _TASK,
            "1/s",
            "The average number of records restored per second",
            _RATE,
        ),
        Definition(
            TASK,
            "restore-total",
            _TASK,
            "records",
            "The total number of records restored",
            _total,
        ),
    ),
    "task-update": (
        Definition(
            TASK,
            "update-rate",
            _TASK,
            "1/s",
            "The average number of records updated per second",
            _RATE,
        ),
        Definition(
            TASK,
            "update-total",
            _TASK,
            "records",
            "The total number of records updated",
            _total,
        ),
    ),
    "updater-restore": (
        Definition(
            UPDATER,
            "restore-records-rate",
            _THREAD,
            "1/s",
            f"{_PER_SECOND} records restored",
            _RATE,
            "Includes standbys.",
        ),
        Definition(
            UPDATER,
            "restore-call-rate",
            _THREAD,
            "1/s",
            f"{_PER_SECOND} restore calls triggered",
            _COUNT_RATE,
            "A call is a write of up to 500 records to one store.",
        ),
    ),
    "store-applied": (
        Definition(
            STORES,
            "records-applied-total",
            _STORE,
            "records",
            "Changelog records that were written to the store that queries read",
            _total,
        ),
        Definition(STORES, "records-applied-rate", _STORE, "1/s", "The same, per second", _RATE),
    ),
}
"""The metrics of each kind of sensor."""


# --- values without sensors --------------------------------------------------------------------------------

_STATE_TAGS = {scope: (*_TASK, f"{scope}-state-id") for scope in SCOPES.values()}

VALUES: tuple[Definition, ...] = (
    Definition(
        CLIENT, "version", _CLIENT, "text", "The version of the Kafka Streams client", differs="Millstream's."
    ),
    Definition(CLIENT, "application-id", _CLIENT, "text", "The application ID of the Kafka Streams client"),
    Definition(
        CLIENT,
        "topology-description",
        _CLIENT,
        "text",
        "The description of the topology executed in the Kafka Streams client",
    ),
    Definition(CLIENT, "state", _CLIENT, "text", "The state of the Kafka Streams client"),
    Definition(
        CLIENT,
        "client-state",
        ("client-id", "process-id", "application-id"),
        "number",
        "The state of the Kafka Streams client",
    ),
    Definition(
        CLIENT,
        "alive-stream-threads",
        _CLIENT,
        "threads",
        "The current number of alive stream threads that are running or participating in rebalance",
    ),
    Definition(
        CLIENT,
        "failed-stream-threads",
        _CLIENT,
        "threads",
        "The number of failed stream threads since the start of the Kafka Streams client",
    ),
    Definition(
        THREAD, "thread-state", ("thread-id", "process-id"), "number", "The current state of the thread"
    ),
    Definition(THREAD, "state", _THREAD, "text", "The current state of the thread"),
    Definition(THREAD, "thread-start-time", _THREAD, "ms", "The time that the thread was started"),
    Definition(
        TASK,
        "restore-remaining-records-total",
        _TASK,
        "records",
        "The total number of records remaining to be restored",
        differs=_APPLIED,
    ),
    Definition(
        UPDATER,
        "active-restoring-tasks",
        _THREAD,
        "tasks",
        "The number of active tasks currently undergoing restoration",
    ),
    Definition(
        UPDATER,
        "standby-updating-tasks",
        _THREAD,
        "tasks",
        "The number of standby tasks currently undergoing state update",
    ),
    Definition(
        CONSUMER,
        "records-lag",
        ("client-id", "topic", "partition"),
        "records",
        "The latest lag of the partition",
        differs="As known when it was last reported.",
    ),
    Definition(
        CONSUMER,
        "records-lag-max",
        _CLIENT,
        "records",
        "The maximum lag in terms of number of records for any partition in this window. NOTE: This is "
        "based on current "
        "offset and not committed offset",
        differs="The largest lag now, as records-lag.",
    ),
    Definition(
        COORDINATOR,
        "last-rebalance-seconds-ago",
        _CLIENT,
        "s",
        "The number of seconds since the last successful rebalance event",
        differs="-1: there was none.",
    ),
    Definition(GROUP, "paused", _CLIENT, "number", "1 while the client is paused by `pause()`, or else 0"),
    Definition(GROUP, "members", _CLIENT, "clients", "Clients of the application, as the group last agreed"),
    Definition(
        FAILURES,
        "last-failure-timestamp",
        _CLIENT,
        "ms",
        "When a thread last failed, since the epoch; 0 if none has",
    ),
    Definition(SPARK, "batch-id", _PIPELINE, "number", "The number of the last micro-batch"),
    Definition(
        SPARK,
        "input-rows-per-second",
        _PIPELINE,
        "1/s",
        "The rate at which records came in before the last micro-batch, as reported by Spark",
    ),
    Definition(
        SPARK,
        "processed-rows-per-second",
        _PIPELINE,
        "1/s",
        "The rate at which the last micro-batch processed its records, as reported by Spark",
    ),
    Definition(
        SPARK,
        "last-batch-timestamp",
        _PIPELINE,
        "ms",
        "When the last micro-batch that read something was reported, since the epoch",
    ),
    Definition(
        STORES,
        "lag",
        _STORE,
        "records",
        "How far the store is behind the end of its changelog, as last known",
    ),
    *(
        Definition(
            STATE,
            name,
            tags,
            unit_of(name),
            description,
            differs="For active stores and standbys. Read once a minute."
            + (" Up to 1,000 keys are counted." if name == "estimate-num-keys" else ""),
        )
        for tags in _STATE_TAGS.values()
        for name, description in PROPERTIES.items()
    ),
)
"""The metrics without sensors."""


def _all() -> Iterator[Definition]:
    for each in SENSORS.values():
        yield from each
    yield from VALUES


DEFINITIONS: tuple[Definition, ...] = tuple(_all())
"""Every metric."""

_KNOWN = {(each.group, each.name, each.tags): each for each in DEFINITIONS}


def definition(group: str, name: str, tags: tuple[str, ...]) -> Definition:
    """The metric of this group, name and names of tags.

    Raises:
        KeyError: the table has none.
    """
    return _KNOWN[group, name, tags]
