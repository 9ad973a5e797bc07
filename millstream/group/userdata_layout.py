"""Kafka's own layout of the user data in both directions, version 11, byte for byte.

A member reports what it has in a SubscriptionInfo; the leader says in an AssignmentInfo what each member
gets. Millstream's additions are in `userdata`: client tags in the first, a trailer after the last field in
the second.

Only Millstream's own members are ever in such a group, and all of them have used version 11; older versions
are refused. Of a newer subscription only the two versions are read, so that its sender can be sent ours
(version probing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from millstream.errors import TaskAssignmentException
from millstream.group.java_bytes import ByteReader, ByteWriter
from millstream.model import HostInfo, TaskId, TopicPartition

__all__ = [
    "LATEST_OFFSET",
    "LATEST_SUPPORTED_VERSION",
    "NEVER",
    "UNKNOWN_OFFSET_SUM",
    "AssignmentInfo",
    "HostInfo",
    "SubscriptionInfo",
]

LATEST_SUPPORTED_VERSION = 11
"""Source: StreamsAssignmentProtocolVersions, last raised in Kafka 3.0."""

LATEST_OFFSET = -2
"""In place of an offset sum: a running active task. Source: Task.LATEST_OFFSET."""

UNKNOWN_OFFSET_SUM = -3
"""In place of an offset sum: unknown. Source: SubscriptionInfo.UNKNOWN_OFFSET_SUM."""

NEVER = 2**63 - 1
"""The time of the next rebalance when none is planned."""

_NO_PROCESS = UUID(int=0)
_SUBSCRIPTION = "SubscriptionInfo"
_ASSIGNMENT = "AssignmentInfo"


# --- what a member says ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscriptionInfo:
    """A member's report to the leader.

    Attributes:
        task_offset_sums: its tasks: LATEST_OFFSET for a running active one, else the progress of its state.
        unique_field: a signed byte that changes with each subscription, so that the group notices it.
        error_code: a number of `AssignorError`; unknown codes are kept unchanged.

    Source: org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo,
    SubscriptionInfoData.json.
    Differs: versions 1 to 10 are refused. There are no named topologies, which Kafka Streams has removed
    from its API as well; a task of one cannot be decoded.
    """

    process_id: UUID = _NO_PROCESS
    user_end_point: str = ""
    task_offset_sums: Mapping[TaskId, int] = field(default_factory=dict)
    unique_field: int = 0
    error_code: int = 0
    client_tags: Mapping[str, str] = field(default_factory=dict)
    version: int = LATEST_SUPPORTED_VERSION
    latest_supported_version: int = LATEST_SUPPORTED_VERSION

    def __post_init__(self) -> None:
        """Check the versions.

        Raises:
            ValueError: the version is older than ours, or newer than what the sender says it supports.
        """
        _check_versions(self.version, self.latest_supported_version)

    @property
    def is_future(self) -> bool:
        """Whether its version is newer than ours, so that only the versions could be read."""
        return self.version > LATEST_SUPPORTED_VERSION

    def encode(self) -> bytes:
        """Its bytes.

        Raises:
            ValueError: its version is newer than ours.
            TaskAssignmentException: a number does not fit into its field.
        """
        if self.is_future:
            raise ValueError(
                f"Should never try to encode a SubscriptionInfo with version [{self.version}] > "
                f"LATEST_SUPPORTED_VERSION [{LATEST_SUPPORTED_VERSION}]"
            )
        out = ByteWriter(_SUBSCRIPTION)
        out.int32(self.version)
        out.int32(self.latest_supported_version)
        out.uuid(self.process_id)
        out.text(self.user_end_point)
        _write_sums(out, self.task_offset_sums)
        out.int8(self.unique_field)
        out.int32(self.error_code)
        out.int32(len(self.client_tags))
        for key, value in self.client_tags.items():
            out.text(key)
            out.text(value)
        return out.to_bytes()

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionInfo:
        """Decode bytes. For a version newer than ours, only the two versions are read (version probing).

        Raises:
            TaskAssignmentException: they are not a SubscriptionInfo.
        """
        source = ByteReader(data, _SUBSCRIPTION)
        version, latest = source.int32(), source.int32()
        try:
            _check_versions(version, latest)
        except ValueError as error:
            raise TaskAssignmentException(f"Failed to decode {_SUBSCRIPTION}: {error}") from error
        if version > LATEST_SUPPORTED_VERSION:
            return cls(version=version, latest_supported_version=latest)
        process_id = source.uuid()
        end_point = source.text()
        sums = _read_sums(source)
        unique = source.int8()
        error_code = source.int32()
        tags: dict[str, str] = {}
        for _ in range(source.count(8)):
            key = source.text()
            tags[key] = source.text()
        return cls(process_id, end_point, sums, unique, error_code, tags, version, latest)


def _check_versions(version: int, latest: int) -> None:
    if not LATEST_SUPPORTED_VERSION <= version <= latest:
        raise ValueError(f"version must be between {LATEST_SUPPORTED_VERSION} and {latest}; was: {version}")


def _write_sums(out: ByteWriter, sums: Mapping[TaskId, int]) -> None:
    out.int32(len(sums))
    for task in sorted(sums):
        out.int32(task.subtopology)
        out.int32(task.partition)
        out.int64(sums[task])
        out.int16(-1)  # no named topology


def _read_sums(source: ByteReader) -> dict[TaskId, int]:
    sums = {}
    for _ in range(source.count(18)):
        task = TaskId(source.int32(), source.int32())
        sums[task] = source.int64()
        _refuse_named_topology(_SUBSCRIPTION, task, source.int16())
    return sums


def _refuse_named_topology(message: str, task: TaskId, length: int) -> None:
    if length > 0:
        raise TaskAssignmentException(
            f"Failed to decode {message}: task {task} belongs to a named topology, which is not supported"
        )


# --- what the leader answers -----------------------------------------------------------------------------


Partitions = frozenset[TopicPartition]


@dataclass(frozen=True)
class AssignmentInfo:
    """The leader's message to a member.

    Attributes:
        commonly_supported_version: the newest version that all members read.
        standby_tasks: with the changelog partitions of each; Millstream's own have none, because every client
            plans them itself.
        error_code: a number of `AssignorError`; unknown codes are kept unchanged.
        next_rebalance_ms: when the member should rejoin, in milliseconds since the epoch. Ignored by
            equality, as in Kafka Streams.

    Source: org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo, of Kafka 4.3.1.
    """

    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, Partitions] = field(default_factory=dict)
    partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    standby_partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    error_code: int = 0
    next_rebalance_ms: int = field(default=NEVER, compare=False)
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION

    def encode(self) -> bytes:
        """Its bytes.

        Raises:
            TaskAssignmentException: a number or a string does not fit into its field.
        """
        out = ByteWriter(_ASSIGNMENT)
        out.int32(LATEST_SUPPORTED_VERSION)
        out.int32(self.commonly_supported_version)
        out.int32(len(self.active_tasks))
        for task in self.active_tasks:
            _write_task(out, task)
        out.int32(len(self.standby_tasks))
        for task in sorted(self.standby_tasks):
            _write_task(out, task)
            _write_partitions(out, self.standby_tasks[task])
        self._write_hosts(out)
        out.int32(self.error_code)
        out.int64(self.next_rebalance_ms)
        return out.to_bytes()

    @classmethod
    def decode(cls, data: bytes) -> AssignmentInfo:
        """Decode bytes.

        Raises:
            TaskAssignmentException: they are not an AssignmentInfo, or its version is unknown.
        """
        return cls.decode_front(data)[0]

    @classmethod
    def decode_front(cls, data: bytes) -> tuple[AssignmentInfo, bytes]:
        """Decode bytes; also returns the bytes that follow. Raises like `decode`."""
        source = ByteReader(data, _ASSIGNMENT)
        version = source.int32()
        if version != LATEST_SUPPORTED_VERSION:
            raise TaskAssignmentException(
                f"Unable to decode assignment data: used version: {version}; latest supported version: "
                f"{LATEST_SUPPORTED_VERSION}"
            )
        common = source.int32()
        active = tuple(_read_task(source) for _ in range(source.count(12)))
        standby = {}
        for _ in range(source.count(16)):
            task = _read_task(source)
            standby[task] = _read_partitions(source)
        topics = {source.int32(): source.utf() for _ in range(source.count(6))}
        hosts = _read_hosts(source, topics)
        standby_hosts = _read_hosts(source, topics)
        info = cls(active, standby, hosts, standby_hosts, source.int32(), source.int64(), common)
        return info, source.rest()

    def _write_hosts(self, out: ByteWriter) -> None:
        maps = (self.partitions_by_host, self.standby_partitions_by_host)
        names = sorted({each.topic for hosts in maps for values in hosts.values() for each in values})
        index = {topic: number for number, topic in enumerate(names)}
        out.int32(len(index))
        for topic, number in index.items():
            out.int32(number)
            out.utf(topic)
        for hosts in maps:
            out.int32(len(hosts))
            for host in sorted(hosts):
                _write_host(out, host)
                out.int32(len(hosts[host]))
                for topic, partition in sorted(hosts[host]):
                    out.int32(index[topic])
                    out.int32(partition)


def _write_task(out: ByteWriter, task: TaskId) -> None:
    out.int32(task.subtopology)
    out.int32(task.partition)
    out.int32(0)  # no named topology


def _read_task(source: ByteReader) -> TaskId:
    task = TaskId(source.int32(), source.int32())
    _refuse_named_topology(_ASSIGNMENT, task, source.int32())
    return task


def _write_partitions(out: ByteWriter, partitions: Partitions) -> None:
    out.int32(len(partitions))
    for topic, partition in sorted(partitions):
        out.utf(topic)
        out.int32(partition)


def _read_partitions(source: ByteReader) -> Partitions:
    return frozenset(TopicPartition(source.utf(), source.int32()) for _ in range(source.count(6)))


def _write_host(out: ByteWriter, host: HostInfo) -> None:
    out.utf(host.host)
    out.int32(host.port)


def _read_hosts(source: ByteReader, topics: Mapping[int, str]) -> dict[HostInfo, Partitions]:
    hosts = {}
    for _ in range(source.count(10)):
        host = HostInfo(source.utf(), source.int32())
        hosts[host] = frozenset(
            TopicPartition(_topic(topics, source.int32()), source.int32()) for _ in range(source.count(8))
        )
    return hosts


def _topic(topics: Mapping[int, str], index: int) -> str:
    if index not in topics:
        raise TaskAssignmentException(
            f"Corrupted user data byte[]. The topic dictionary has no entry {index}"
        )
    return topics[index]
