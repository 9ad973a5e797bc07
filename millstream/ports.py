"""The runtime's only view of Spark, Kafka and RocksDB: these protocols.

Each has a real implementation (spark/, kafka/, stores/) and a fake (tests/fakes/fake_ports.py); where both
can be tested, one contract test runs against both. Data does not cross these ports, with one exception:
changelog records, on their way from Kafka to a local store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from millstream.errors import StreamsException
from millstream.model import BatchReport, PipelineMetadata, TaskId, TopicPartition
from millstream.serdes.serde import Serde
from millstream.topology.internal_topics import InternalTopic
from millstream.topology.nodes import FrameTable
from millstream.topology.pipeline import Pipeline

__all__ = [
    "BytesStore",
    "ChangelogBatch",
    "ChangelogConsumer",
    "CompiledPipeline",
    "Engine",
    "GroupMember",
    "Groups",
    "KeyValueBytesStore",
    "Membership",
    "OffsetOutOfRange",
    "PipelineEnd",
    "RunningPipeline",
    "SessionBytesStore",
    "TopicDescription",
    "Topics",
    "WindowBytesStore",
]


# --- Spark -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompiledPipeline:
    """A pipeline that has been compiled: every lambda traced, every serde known.

    `store_serdes` gives the (key serde, value serde) of each store that the pipeline fills.
    `plan` is private to the engine. `closed` gives the stores that cannot go on where Kafka Streams has
    stopped, and why.
    """

    pipeline: Pipeline
    store_serdes: Mapping[str, tuple[Serde, Serde]]
    plan: Any = None
    closed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PipelineEnd:
    """A query has ended. `error` is None if it was stopped."""

    pipeline: str
    error: BaseException | None = None


class RunningPipeline(Protocol):
    """A Spark query that was started."""

    def stop(self) -> None:
        """Stop the query and wait until it has; `on_end` is called once, without an error."""

    def assign(self, partitions: Collection[int]) -> bool:
        """Have its tasks be those of these partitions from now on. Those that stay go on meanwhile.

        Returns:
            Whether the others have committed and are closed, so that another client may have them. If not,
            only `stop` makes sure of it.

        Raises:
            StreamsException: Spark has too few slots for so many tasks.
        """

    def finish(self) -> None:
        """Ask for all results of the records read so far to be written soon. Returns at once; never
        raises."""

    def metadata(self) -> PipelineMetadata:
        """Its progress. Cheap; never raises."""


class Engine(Protocol):
    """Runs pipelines. One per client; starting it starts Spark, unless a session was given."""

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        """Trace every lambda and determine every serde.

        `partitions` gives the partition count of each internal topic, by its name without the
        application id.

        Raises:
            TopologyException: a lambda is wrong, or a serde does not fit its column.
        """

    def start(
        self,
        compiled: CompiledPipeline,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> RunningPipeline:
        """Start its query, with the tasks of these partitions. A pipeline may run several times at once, with
        other partitions.

        `on_end` is called once, and `on_batch` with each report of the query, in order; both on a thread of
        the engine. `on_batch` is quick, and raises nothing.
        """

    def prepare(self, compiled: CompiledPipeline) -> None:
        """Start its query without tasks; the next `start` takes it, and so its tasks begin sooner."""

    def forget_prepared(self) -> None:
        """Stop what was prepared: the topics are not what they were."""

    def follow(self, compiled: CompiledPipeline, partitions: Collection[int]) -> frozenset[int]:
        """Keep the state of these tasks, which other clients run, as they commit it, so that `start` need not
        restore it; of others of the pipeline no more.

        Returns:
            Those that have had all that was in their changelogs when this began.
        """

    def refresh(self, table: FrameTable) -> int:
        """Read a table's DataFrame again, and write the changes to its topic, all or nothing.

        Starting a query does it for the tables that it joins. Any thread; returns when it is written.

        Returns:
            How many rows have changed.

        Raises:
            StreamsException: the DataFrame cannot be read, or its rows cannot be written.
        """

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        """A streaming DataFrame of a topic that a compiled pipeline writes, with Spark's options.

        Raises:
            TopologyException: no pipeline writes it.
        """

    def warm_up(self, topic: str | None, tasks: int = 0) -> None:
        """Make the first pipeline start as quickly as later ones. `topic` exists, and may be read.

        Raises:
            StreamsException: so many tasks, which are to come, could not run: Spark has too few slots.
        """

    @property
    def is_alive(self) -> bool:
        """Whether it can still run queries; False once its process is gone."""

    def close(self) -> None:
        """Stop all running queries, and Spark itself if this engine started it. Idempotent."""


# --- Kafka -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic that exists. `topic_id` differs after it was deleted and created again (KIP-516).

    Attributes:
        replicas: of each partition; 0: not known.
        racks: of the brokers with replicas, by partition; "" stands for a broker without a rack.
    """

    name: str
    partitions: int
    topic_id: str = ""
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: int = field(default=0, compare=False)
    racks: tuple[frozenset[str], ...] = field(default=(), compare=False)


class Topics(Protocol):
    """The cluster's topics. Querying a topic never creates it."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """The topics that exist, by name; a missing one is left out. Configs are filled in.

        Raises:
            StreamsException: the cluster cannot be reached.
        """

    def look(self, names: Iterable[str], *, patient: bool = False) -> dict[str, TopicDescription]:
        """As `describe`, without the configs: one quick request, which may be sent many times a second.

        `patient`: the answer may take as long as that of any other request; for a single call that needs it.
        A broker may learn of a topic late; use `confirm` to be certain.
        """

    def confirm(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """As `look`, and certain: a topic that is left out does not exist, whichever broker was asked.

        Waits for a topic that exists but that brokers do not show yet.
        """

    def names(self, complete: Callable[[set[str]], bool] = lambda names: True) -> set[str]:
        """The names of all topics. While they are not `complete`, brokers are queried again, for at most a
        second, because one may learn of a topic late.
        """

    def create(self, topics: Sequence[InternalTopic], replication_factor: int) -> None:
        """Create topics; one that exists already is left as it is."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record still in the log."""

    def offsets_at(self, partitions: Iterable[TopicPartition], epoch_ms: int) -> dict[TopicPartition, int]:
        """The offset of each partition's first record from that time on; a partition without one is left
        out."""

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a group has committed for these partitions; empty: there is no such group."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete topics, and return when the cluster no longer shows them. Missing ones are ignored.

        Raises:
            StreamsException: the cluster refuses, or cannot be reached.
        """

    def delete_group(self, group: str) -> None:
        """Delete a group and its committed offsets; does nothing if there is none.

        Raises:
            IllegalStateException: it has members.
            StreamsException: the cluster refuses, or cannot be reached.
        """

    def close(self) -> None:
        """Idempotent."""


@dataclass(frozen=True, slots=True)
class ChangelogBatch:
    """Records of one changelog partition, in order.

    `entries` are (key, value, timestamp in ms); a value of None deletes the key.
    `next_offset` is the offset after the last one; the store saves it with them.

    Attributes:
        offsets: of each entry, in a topic that is not the application's own; else empty.
    """

    partition: TopicPartition
    entries: Sequence[tuple[bytes, bytes | None, int]]
    next_offset: int
    offsets: Sequence[int] = ()


class OffsetOutOfRange(StreamsException):
    """A position is no longer in the log: the topic was truncated, or deleted and created again.

    Next: nothing for users; the store is wiped and restored from the beginning.
    """

    def __init__(self, message: str, *, partition: TopicPartition) -> None:
        super().__init__(message)
        self.partition = partition


class ChangelogConsumer(Protocol):
    """Reads changelog partitions from given offsets. Used by one thread at a time."""

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read exactly these partitions, each from its offset; None: from the beginning."""

    def poll(self, timeout_s: float, max_records: int = 500) -> list[ChangelogBatch]:
        """The records that have arrived; waits up to `timeout_s` for the first one. Empty if none came.

        Raises:
            OffsetOutOfRange: the position is not in the log (the topic was truncated or created again).
            StreamsException: the cluster refuses; an unreachable broker raises nothing.
        """

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record still in the log."""

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset after the last record; waits for it that long, or for `request.timeout.ms`."""

    def close(self) -> None:
        """Idempotent."""


class Groups(Protocol):
    """The cluster's consumer groups, as an administrator sees them."""

    def names(self) -> frozenset[str]:
        """The ids of all groups."""

    def members(self, group: str) -> Mapping[str, str]:
        """The members of a group: a description by member id; empty: there are none."""

    def remove_members(self, group: str, members: Iterable[str]) -> None:
        """Remove members from a group, and wait until they are gone. One that is alive may join again.

        Raises:
            StreamsException: the cluster refuses, or some are still there.
        """

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the committed offsets of a group without members, for these partitions."""

    def close(self) -> None:
        """Idempotent."""


# --- the group -------------------------------------------------------------------------------------------


class GroupMember(Protocol):
    """What a membership requests from its client and reports to it.

    `user_data` and `lead` are called on the membership's input/output thread and return at once; the others
    on its own thread, one at a time, and may take a moment (heartbeats continue meanwhile).
    """

    def user_data(self) -> bytes:
        """This client's user data for the leader: requested again for each join."""

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """This client is the leader: user data by member id in, each one's assignment out. Never raises."""

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        """The source partitions that an assignment means, for Kafka's tools to show; nothing is fetched."""

    def assigned(self, assignment: bytes, generation: int) -> None:
        """The group has agreed on an assignment."""

    def lost(self, reason: str) -> None:
        """The group has continued without this client, or has not answered for the session timeout (by this
        client's own clock): stop the queries before anything else. The membership joins again by itself,
        and `assigned` follows."""

    def failed(self, error: StreamsException) -> None:
        """The membership has ended for good: missing permissions, or another protocol in the group."""

    def tick(self) -> None:
        """About a second has passed."""


class Membership(Protocol):
    """This client's place in the group `application.id`, over Kafka's classic group protocol (design D4).

    It has its own thread. It commits no offsets: tasks do that themselves.
    """

    def start(self) -> None:
        """Join; returns at once."""

    def rejoin(self, reason: str) -> None:
        """`user_data` has changed: make the group rebalance. Any thread may call it; returns at once.

        Never lost: if a join is already in progress, another follows it.
        """

    def expect_rebalance(self, generation: int) -> None:
        """Another member is about to rejoin, to report released tasks: hear of it soon.

        Returns at once; holds until the assignment after that of this generation.
        """

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait until an assignment has come that was made with the user data of the last `rejoin`."""

    def close(self, timeout_s: float) -> None:
        """Leave the group, end the thread. Idempotent."""


# --- stores ----------------------------------------------------------------------------------------------


class BytesStore(Protocol):
    """One task's part of a store, in bytes, for the code that opens, fills and closes it.

    It stores 8 bytes of timestamp (big-endian, ms) and then the value's bytes, as Kafka Streams' timestamped
    stores do. Any number of threads may read while one writes; a batch is visible as a whole or not at all.
    After `close()` every call, and every iterator that is still open, raises `ClosedStoreError`
    (stores/store_base.py), which query/ turns into the right leaf of KIP-216.

    An iterator of a store is a consistent snapshot. It also has `close()`, and must be closed or read to its
    end.
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
        """Put and delete, and save `next_offset`, in one atomic write.

        `entries` are changelog records: key, value (None deletes), timestamp in ms.
        """

    def approximate_num_entries(self) -> int: ...

    def close(self) -> None:
        """Release everything, iterators included. Idempotent."""

    def wipe(self) -> None:
        """Delete all entries and the position; the store stays open."""


class KeyValueBytesStore(BytesStore, Protocol):
    """A key-value store's part. Keys are ordered as unsigned bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Timestamp and value of a key."""

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The same for many keys, in their order."""

    def range(
        self, start: bytes | None, end: bytes | None, *, reverse: bool = False, end_inclusive: bool = True
    ) -> Iterator[tuple[bytes, bytes]]:
        """The keys from `start` to `end`; None: unbounded."""


class WindowBytesStore(BytesStore, Protocol):
    """A window store's part. Its changelog's keys have Kafka's layout: the key, 8 bytes of the window's start
    and 4 of a sequence number. Entries older than the retention are absent.

    Source: WindowKeySchema, RocksDBWindowStore.
    """

    def fetch_one(self, key: bytes, start_ms: int) -> bytes | None:
        """Timestamp and value of a key's window."""

    def fetch(
        self,
        from_key: bytes | None,
        to_key: bytes | None,
        from_ms: int | None,
        to_ms: int | None,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[tuple[bytes, int], bytes]]:
        """((key, start in ms), stored) of the keys from `from_key` to `to_key` whose windows start from
        `from_ms` to `to_ms`, all included, ordered by key and then start; None: unbounded. If duplicates are
        kept, a window occurs once for each of its values, in the order in which they were put.
        """


class SessionBytesStore(BytesStore, Protocol):
    """A session store's part. Its changelog's keys have Kafka's layout: the key, 8 bytes of the session's end
    and 8 of its start. Entries older than the retention are absent.

    Source: SessionKeySchema, RocksDBSessionStore.
    """

    def fetch_session(self, key: bytes, start_ms: int, end_ms: int) -> bytes | None:
        """Timestamp and value of one session."""

    def find(
        self,
        from_key: bytes | None,
        to_key: bytes | None,
        earliest_end_ms: int | None,
        latest_start_ms: int | None,
        *,
        reverse: bool = False,
    ) -> Iterator[tuple[tuple[bytes, int, int], bytes]]:
        """((key, start, end in ms), stored) of the keys from `from_key` to `to_key` whose sessions end at
        `earliest_end_ms` or later and start at `latest_start_ms` or earlier, ordered by key, then end, then
        start; None: unbounded.
        """
