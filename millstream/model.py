"""Frozen values that the layers pass to each other. No behavior beyond parsing and printing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Generic, NamedTuple, TypeVar

__all__ = [
    "MAX_TIMESTAMP_MS",
    "MIN_TIMESTAMP_MS",
    "PARTS_HEADER",
    "PARTS_OF_NULL",
    "BatchReport",
    "HostInfo",
    "KafkaRecord",
    "KeyValue",
    "LagInfo",
    "OpeningTasks",
    "PipelineMetadata",
    "SessionWindow",
    "StoreKind",
    "TaskId",
    "TaskMetadata",
    "ThreadMetadata",
    "TimeWindow",
    "TopicPartition",
    "ValueAndTimestamp",
    "Window",
    "Windowed",
    "is_of_null",
]

K = TypeVar("K")
V = TypeVar("V")

_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")

PARTS_HEADER = "millstream.parts"
"""The header of changelog records whose value alone does not determine the aggregate's parts: these parts, as
JSON. The sum and the count of an average, for instance."""

PARTS_OF_NULL = b"\x01"
"""How that header begins if the result of the parts is null. Then the value is empty: without one, the record
would be a deletion, and Kafka would forget the parts."""

MIN_TIMESTAMP_MS = -62_135_596_800_000
MAX_TIMESTAMP_MS = 253_402_300_799_999
"""The years 1 to 9999. Pipelines treat an earlier or later record as one of the first or last millisecond.

Kafka's timestamps are any 64 bits. Spark's have microseconds, Python's end with the year 9999, and a window
ends after its record: a timestamp that cannot be represented would end the pipeline each time. Differs: Kafka
Streams computes with any timestamp, and its sums may overflow.
"""


class TopicPartition(NamedTuple):
    """One partition of one topic; prints `orders-3`, as Kafka does."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, order=True, slots=True)
class TaskId:
    """One partition of one subtopology's state; prints `1_3`.

    Source: org.apache.kafka.streams.processor.TaskId.
    """

    subtopology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}_{self.partition}"

    @property
    def pipeline(self) -> str:
        """The name of the pipeline that runs its subtopology."""
        return f"p{self.subtopology}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """The task that `text` names.

        Raises:
            ValueError: `text` is not two numbers joined by an underscore.
        """
        head, separator, tail = text.partition("_")
        if not separator or not (head.isascii() and head.isdigit() and tail.isascii() and tail.isdigit()):
            raise ValueError(
                f"'{text}' is not a task id; one looks like '1_3': subtopology, underscore, partition"
            )
        return cls(int(head), int(tail))


class HostInfo(NamedTuple):
    """The endpoint of a client: its `application.server`. Prints `host:port`.

    Source: org.apache.kafka.streams.state.HostInfo.
    """

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_available(self) -> bool:
        """Whether it is an address. `HostInfo.unavailable()` is not."""
        return self.port >= 0

    @classmethod
    def unavailable(cls) -> HostInfo:
        """In place of an address: it is unknown, or the client has no `application.server`.

        Source: HostInfo.unavailable.
        """
        return cls("unavailable", -1)

    @classmethod
    def parse(cls, endpoint: str) -> HostInfo:
        """The host and the port in `host:port`; an IPv6 address is in brackets, `[::1]:8080`.

        Raises:
            ValueError: it is not of this form, or the port is not between 1 and 65535.

        Source: HostInfo.buildFromEndpoint. Differs: raises for any other form, including the empty string.
        """
        address = endpoint.strip()
        match = _ADDRESS.fullmatch(address)
        if match is None or not address.isprintable() or not 0 < int(match[2]) < 65536:
            raise ValueError(
                f"'{endpoint}' is not a client address; an address looks like 'localhost:8080': a host, a "
                f"colon, "
                "and a port between 1 and 65535"
            )
        return cls(match[1].strip("[]"), int(match[2]))


class KeyValue(NamedTuple, Generic[K, V]):
    """A key and a value; unpacks like a tuple."""

    key: K
    value: V


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and the timestamp of the record that last changed it, in milliseconds since the epoch."""

    value: V
    timestamp: int


class StoreKind(Enum):
    """The form of a store's keys. A query's type must match it."""

    KEY_VALUE = "key-value"
    WINDOW = "window"
    SESSION = "session"


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """A span of time, in milliseconds since the epoch. Its two kinds differ in whether the end is included.

    Source: org.apache.kafka.streams.kstream.Window.
    """

    start_ms: int
    end_ms: int

    @property
    def start(self) -> datetime:
        """When it begins, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.start_ms)

    @property
    def end(self) -> datetime:
        """When it ends, in UTC."""
        return _EPOCH + timedelta(milliseconds=self.end_ms)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TimeWindow(Window):
    """A window of a windowed aggregation: from its start, included, to its end, excluded.

    Source: org.apache.kafka.streams.kstream.internals.TimeWindow.
    """

    __slots__ = ()


class SessionWindow(Window):
    """A session: from its first record to its last, both included.

    Source: org.apache.kafka.streams.kstream.internals.SessionWindow.
    """

    __slots__ = ()


class Windowed(NamedTuple, Generic[K]):
    """A key and one of its windows; unpacks like a tuple, and prints `[key@start/end]`.

    Source: org.apache.kafka.streams.kstream.Windowed.
    """

    key: K
    window: Window

    def __str__(self) -> str:
        return f"[{self.key}@{self.window.start_ms}/{self.window.end_ms}]"


def is_of_null(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether a changelog's record with an empty value is that of an aggregate that is null."""
    return any(name == PARTS_HEADER and (parts or b"").startswith(PARTS_OF_NULL) for name, parts in headers)


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record as Kafka carries it, key and value in bytes.

    `timestamp` is in milliseconds since the epoch; a `value` of None is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class TaskMetadata:
    """A thread's report on one of its tasks: offsets are of the changelog partitions.

    Source: org.apache.kafka.streams.TaskMetadata.
    """

    task_id: TaskId
    topic_partitions: frozenset[TopicPartition] = frozenset()
    committed_offsets: dict[TopicPartition, int] = field(default_factory=dict)
    end_offsets: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OpeningTasks:
    """The tasks of a pipeline that do not run yet: they start, or restore their state.

    `tasks` is their number; `left`, how many records they still have to restore, as far as that is known.
    """

    tasks: int
    left: int = 0


@dataclass(frozen=True, slots=True)
class PipelineMetadata:
    """A thread's report on one of its pipelines.

    `records` counts source records read since this query started. `position` is the next offset to read, by
    source partition, and `finished` the offsets up to which all results are written; None: up to `position`.
    `lag` is the number of unread records; None if it is unknown. `dropped` counts the
    records dropped by a record-level handler's 'continue' since this query started. `lost_executors`
    describes the executors that its Spark cluster has lost in the last ten minutes. `opening` is None
    once all of its tasks run.
    """

    name: str
    running: bool
    records: int = 0
    records_per_second: float = 0.0
    batch_id: int = -1
    batch_ms: int = 0
    position: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] | None = None
    dropped: int = 0
    lost_executors: tuple[str, ...] = ()
    finished: dict[TopicPartition, int] | None = None
    opening: OpeningTasks | None = None


@dataclass(frozen=True, slots=True)
class WrittenReport:
    """What a batch wrote to a topic.

    Attributes:
        bytes: an upper bound, as counted by Kafka's producer before compression.
        timed: how many had a timestamp; for these, `least_ms`, `most_ms` and `sum_ms` give their age when
            they were sent, by the executor's clock.
    """

    records: int
    bytes: int
    timed: int = 0
    least_ms: int = 0
    most_ms: int = 0
    sum_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A periodic report on a query: of its tasks; or Spark's, after each micro-batch and while it waits.

    Attributes:
        executed: whether it is about a batch; else there was nothing to do.
        parts: the total duration (`triggerExecution`) and its parts, by Spark's names; in ms.
        read: how many records of each source partition were read, by their offsets.
        read_bytes: how many bytes these records have, as Kafka Streams counts them.
        lag: how many are unread, by source partition; None if unknown.
        dropped: how many records were dropped, by the reason and the name of the node.
        written: what was written, by the topic's full name, including changelogs and dead letters.
        input_rate, processed_rate: records per second, as computed by Spark.
        times: what tasks did (`process`, `poll`, `commit`): how often, and the ms that it took, in sum, at
            least and at most.
    """

    pipeline: str
    batch_id: int = -1
    executed: bool = True
    parts: Mapping[str, int] = field(default_factory=dict)
    read: Mapping[TopicPartition, int] = field(default_factory=dict)
    read_bytes: Mapping[TopicPartition, int] = field(default_factory=dict)
    lag: Mapping[TopicPartition, int] | None = None
    dropped: Mapping[tuple[str, str], int] = field(default_factory=dict)
    written: Mapping[str, WrittenReport] = field(default_factory=dict)
    input_rate: float = 0.0
    processed_rate: float = 0.0
    times: Mapping[str, tuple[int, float, float, float]] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """The total number of records read."""
        return sum(self.read.values())


@dataclass(frozen=True, slots=True)
class ThreadMetadata:
    """The client's report on one of its threads.

    Source: org.apache.kafka.streams.ThreadMetadata.
    Differs: also lists the thread's pipelines; there are no client ids of consumers and producers to list.
    """

    thread_name: str
    thread_state: str
    active_tasks: tuple[TaskMetadata, ...] = ()
    standby_tasks: tuple[TaskMetadata, ...] = ()
    pipelines: tuple[PipelineMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class LagInfo:
    """How far a store is behind its changelog, in records.

    Source: org.apache.kafka.streams.LagInfo.
    """

    current_offset_position: int
    end_offset_position: int

    @property
    def offset_lag(self) -> int:
        """End minus current; 0 for a store that is up to date."""
        return max(0, self.end_offset_position - self.current_offset_position)
