"""What the runtime sees of Spark, Kafka and RocksDB: these protocols, and nothing else of them.

Each has a real implementation (spark/, kafka/, stores/) and a fake (testing/fakes.py); where both can be
tried, one contract test runs against both. Data does not cross these ports, with one exception:
changelog records, on their way from Kafka to a local store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.errors import StreamsException
from millstream.model import PipelineMetadata, TaskId, TopicPartition
from millstream.topology.pipeline import Pipeline

__all__ = [
    "ChangelogBatch",
    "ChangelogConsumer",
    "CompiledPipeline",
    "Engine",
    "InternalTopic",
    "KeyValueBytesStore",
    "OffsetOutOfRange",
    "PipelineEnd",
    "RunningPipeline",
    "TopicDescription",
    "Topics",
]


# --- Spark -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledPipeline:
    """A pipeline that has been compiled: every lambda traced, every serde known.

    `store_serdes` gives the (key serde, value serde) of each store that the pipeline fills.
    `plan` is the engine's own; nobody else looks into it.
    """

    pipeline: Pipeline
    store_serdes: Mapping[str, tuple[Any, Any]]
    plan: Any = None


@dataclass(frozen=True, slots=True)
class PipelineEnd:
    """A query has ended. `error` is None when it was stopped."""

    pipeline: str
    error: BaseException | None = None


class RunningPipeline(Protocol):
    """A Spark query that was started."""

    def stop(self) -> None:
        """Stop the query and wait until it has; `on_end` is called once, without an error."""

    def metadata(self) -> PipelineMetadata:
        """How far it is. Cheap; never raises."""


class Engine(Protocol):
    """Runs pipelines. One per client; starting it starts Spark, unless a session was given."""

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        """Trace every lambda and settle every serde.

        `partitions` gives the partition count of each internal topic, by its name without the
        application id.

        Raises:
            TopologyException: a lambda is wrong, or a serde does not fit its column.
        """

    def start(self, compiled: CompiledPipeline, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        """Start its query from its checkpoint. `on_end` is called once, on a thread of the engine."""

    def close(self) -> None:
        """Stop what still runs, and Spark itself if this engine started it. Idempotent."""


# --- Kafka -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic that exists. `topic_id` differs after it was deleted and created again (KIP-516)."""

    name: str
    partitions: int
    topic_id: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A changelog or repartition topic that has to exist; `name` is complete, with the application id."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class Topics(Protocol):
    """The cluster's topics. Asking for a topic never creates it."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; a missing one is left out. Configs are filled in.

        Raises:
            StreamsException: the cluster cannot be reached.
        """

    def names(self) -> set[str]:
        """All topics' names."""

    def create(self, topics: Sequence[InternalTopic], replication_factor: int) -> None:
        """Create topics; one that exists already is left as it is."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""

    def close(self) -> None:
        """Idempotent."""


@dataclass(frozen=True, slots=True)
class ChangelogBatch:
    """Records of one changelog partition, in order.

    `entries` are (key, value, timestamp in ms); a value of None deletes the key.
    `next_offset` is the offset after the last one: what the store saves with them.
    """

    partition: TopicPartition
    entries: Sequence[tuple[bytes, bytes | None, int]]
    next_offset: int


class OffsetOutOfRange(StreamsException):
    """A position is not in the log any more: the topic was truncated, or deleted and made anew.

    Next: nothing for users; the store that asked is wiped and restored from the beginning.
    """

    def __init__(self, message: str, *, partition: TopicPartition) -> None:
        super().__init__(message)
        self.partition = partition


class ChangelogConsumer(Protocol):
    """Reads changelog partitions from given offsets. Used by one thread at a time."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, each from its offset; None: from the beginning."""

    def poll(self, timeout_s: float, max_records: int = 10_000) -> list[ChangelogBatch]:
        """What has arrived; waits up to `timeout_s` for the first record. Empty when nothing came.

        Raises:
            OffsetOutOfRange: the position is not in the log (the topic was truncated or made anew).
            StreamsException: the cluster refuses; a broker that is merely away raises nothing.
        """

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record that is still there."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record."""

    def close(self) -> None:
        """Idempotent."""


# --- stores ----------------------------------------------------------------------------------------------


class KeyValueBytesStore(Protocol):
    """One task's part of a key-value store, in bytes. Keys are ordered as unsigned bytes.

    A stored value is 8 bytes of timestamp (big-endian, ms) and the value's bytes, as Kafka Streams'
    timestamped stores have it. Any number of threads may read while one writes; a batch is visible as a
    whole or not at all. After `close()` every call, and every iterator that is still open, raises
    `ClosedStoreError` (stores/api.py), which query/ turns into the right leaf of KIP-216.
    """

    @property
    def name(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def is_open(self) -> bool: ...

    @property
    def position(self) -> int | None:
        """The changelog offset up to which this store is complete; None: nothing was ever applied."""

    def apply(self, entries: Sequence[tuple[bytes, bytes | None, int]], next_offset: int) -> None:
        """Put and delete, and save `next_offset`, in one atomic write."""

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value of a key."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in their order."""

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> Iterator[tuple[bytes, bytes]]:
        """A consistent snapshot of the keys from `start` to `end`; None: unbounded.

        The iterator also has `close()`; it must be closed, or read to its end.
        """

    def approximate_num_entries(self) -> int: ...

    def close(self) -> None:
        """Release everything, iterators included. Idempotent."""

    def wipe(self) -> None:
        """Delete all entries and the position; the store stays open."""
