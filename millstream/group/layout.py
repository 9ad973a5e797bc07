"""Kafka's own layout of the user data in both directions, versions 1 to 11, byte for byte.

A member says in a SubscriptionInfo what it has; the leader says in an AssignmentInfo what each member gets.
What Millstream adds is in `userdata`: as client tags in the one, behind the last field of the other.

A value holds what its version can say: fields that the version has no place for are set to their defaults
when it is made, as upstream does, so that decoding gives back what was encoded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from millstream.errors import TaskAssignmentException
from millstream.group.wire import Reader, Writer
from millstream.model import HostInfo, TaskId, TopicPartition

__all__ = [
    "LATEST_OFFSET",
    "LATEST_SUPPORTED_VERSION",
    "NEVER",
    "UNKNOWN_OFFSET_SUM",
    "UNKNOWN_VERSION",
    "AssignmentInfo",
    "HostInfo",
    "SubscriptionInfo",
]

LATEST_SUPPORTED_VERSION = 11
"""Source: StreamsAssignmentProtocolVersions, last raised in Kafka 3.0."""

UNKNOWN_VERSION = -1
"""What versions 1 and 2, which do not tell it, have as the latest version that the sender supports."""

LATEST_OFFSET = -2
"""Instead of an offset sum: an active task that runs. Source: Task.LATEST_OFFSET."""

UNKNOWN_OFFSET_SUM = -3
"""Instead of an offset sum: it is not known. Source: SubscriptionInfo.UNKNOWN_OFFSET_SUM."""

NEVER = 2**63 - 1
"""The time of the next rebalance when none is planned."""

_NO_PROCESS = UUID(int=0)
_SUBSCRIPTION = "SubscriptionInfo"
_ASSIGNMENT = "AssignmentInfo"

# The first version that has each field.
_END_POINT = 2
_LATEST_VERSION = 3
_OFFSET_SUMS = 7
_UNIQUE_FIELD = 8
_SUBSCRIPTION_ERROR = 9
_NAMED_TOPOLOGIES = 10
_CLIENT_TAGS = 11
_HOSTS = 2
_COMMON_VERSION = 3
_ASSIGNMENT_ERROR = 4
_TOPIC_DICTIONARY = 5
_STANDBY_HOSTS = 6
_NEXT_REBALANCE = 7


# --- what a member says ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SubscriptionInfo:
    """What a member tells the leader.

    Attributes:
        task_offset_sums: its tasks: LATEST_OFFSET for an active one that runs, else how far its state is.
        unique_field: a signed byte that changes with each subscription, so that the group notices it.
        error_code: a number of `AssignorError`; kept as it came, for codes that we do not know.

    Source: org.apache.kafka.streams.processor.internals.assignment.SubscriptionInfo,
    SubscriptionInfoData.json.
    Differs: there are no named topologies, which upstream has removed from its API as well; a task of one
    cannot be decoded.
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
        """Check the versions, and drop what the version has no place for.

        Raises:
            ValueError: the versions do not fit each other.
        """
        _check_versions(self.version, self.latest_supported_version)
        if self.is_future:
            return
        if self.version < _END_POINT:
            object.__setattr__(self, "user_end_point", "")
        if self.version < _LATEST_VERSION:
            object.__setattr__(self, "latest_supported_version", UNKNOWN_VERSION)
        if self.version < _OFFSET_SUMS:
            sums = {
                task: LATEST_OFFSET if offset == LATEST_OFFSET else UNKNOWN_OFFSET_SUM
                for task, offset in self.task_offset_sums.items()
            }
            object.__setattr__(self, "task_offset_sums", sums)
        if self.version < _UNIQUE_FIELD:
            object.__setattr__(self, "unique_field", 0)
        if self.version < _SUBSCRIPTION_ERROR:
            object.__setattr__(self, "error_code", 0)
        if self.version < _CLIENT_TAGS:
            object.__setattr__(self, "client_tags", {})

    @property
    def is_future(self) -> bool:
        """Whether its version is newer than ours, so that only the versions could be read."""
        return self.version > LATEST_SUPPORTED_VERSION

    @property
    def prev_tasks(self) -> frozenset[TaskId]:
        """The active tasks that it runs."""
        return frozenset(task for task, offset in self.task_offset_sums.items() if offset == LATEST_OFFSET)

    @property
    def standby_tasks(self) -> frozenset[TaskId]:
        """The tasks that it has some state of."""
        return frozenset(self.task_offset_sums) - self.prev_tasks

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
        out = Writer(_SUBSCRIPTION)
        out.int32(self.version)
        if self.version >= _LATEST_VERSION:
            out.int32(self.latest_supported_version)
        out.uuid(self.process_id)
        if self.version < _OFFSET_SUMS:
            _write_tasks(out, self.prev_tasks)
            _write_tasks(out, self.standby_tasks)
        if self.version >= _END_POINT:
            out.text(self.user_end_point)
        if self.version >= _NAMED_TOPOLOGIES:
            _write_sums(out, self.task_offset_sums)
        elif self.version >= _OFFSET_SUMS:
            _write_sums_by_subtopology(out, self.task_offset_sums)
        if self.version >= _UNIQUE_FIELD:
            out.int8(self.unique_field)
        if self.version >= _SUBSCRIPTION_ERROR:
            out.int32(self.error_code)
        if self.version >= _CLIENT_TAGS:
            out.int32(len(self.client_tags))
            for key, value in self.client_tags.items():
                out.text(key)
                out.text(value)
        return out.to_bytes()

    @classmethod
    def decode(cls, data: bytes) -> SubscriptionInfo:
        """What the bytes say. Of a version newer than ours only the two versions are read (version probing).

        Raises:
            TaskAssignmentException: they are no SubscriptionInfo.
        """
        source = Reader(data, _SUBSCRIPTION)
        version = source.int32()
        latest = source.int32() if version >= _LATEST_VERSION else UNKNOWN_VERSION
        try:
            _check_versions(version, latest)
        except ValueError as error:
            raise TaskAssignmentException(f"Failed to decode {_SUBSCRIPTION}: {error}") from error
        if version > LATEST_SUPPORTED_VERSION:
            return cls(version=version, latest_supported_version=latest)
        process_id = source.uuid()
        sums: dict[TaskId, int] = {}
        if version < _OFFSET_SUMS:
            previous, standby = _read_tasks(source), _read_tasks(source)
            sums = dict.fromkeys(previous, LATEST_OFFSET) | dict.fromkeys(standby, UNKNOWN_OFFSET_SUM)
        end_point = source.text() if version >= _END_POINT else ""
        if version >= _NAMED_TOPOLOGIES:
            sums = _read_sums(source)
        elif version >= _OFFSET_SUMS:
            sums = _read_sums_by_subtopology(source)
        unique = source.int8() if version >= _UNIQUE_FIELD else 0
        error_code = source.int32() if version >= _SUBSCRIPTION_ERROR else 0
        tags: dict[str, str] = {}
        if version >= _CLIENT_TAGS:
            for _ in range(source.count(8)):
                key = source.text()
                tags[key] = source.text()
        return cls(process_id, end_point, sums, unique, error_code, tags, version, latest)


def _check_versions(version: int, latest: int) -> None:
    if latest == UNKNOWN_VERSION and not 1 <= version < _LATEST_VERSION:
        raise ValueError(
            "Only versions 1 and 2 are expected to use an UNKNOWN (-1) latest supported version. "
            f"Got {version}."
        )
    if latest != UNKNOWN_VERSION and not 1 <= version <= latest:
        raise ValueError(f"version must be between 1 and {latest}; was: {version}")


def _write_tasks(out: Writer, tasks: Iterable[TaskId]) -> None:
    ordered = sorted(tasks)
    out.int32(len(ordered))
    for task in ordered:
        out.int32(task.subtopology)
        out.int32(task.partition)


def _read_tasks(source: Reader) -> list[TaskId]:
    return [TaskId(source.int32(), source.int32()) for _ in range(source.count(8))]


def _write_sums(out: Writer, sums: Mapping[TaskId, int]) -> None:
    out.int32(len(sums))
    for task in sorted(sums):
        out.int32(task.subtopology)
        out.int32(task.partition)
        out.int64(sums[task])
        out.int16(-1)  # no named topology


def _read_sums(source: Reader) -> dict[TaskId, int]:
    sums = {}
    for _ in range(source.count(18)):
        task = TaskId(source.int32(), source.int32())
        sums[task] = source.int64()
        _refuse_named_topology(_SUBSCRIPTION, task, source.int16())
    return sums


def _write_sums_by_subtopology(out: Writer, sums: Mapping[TaskId, int]) -> None:
    grouped: dict[int, list[TaskId]] = {}
    for task in sorted(sums):
        grouped.setdefault(task.subtopology, []).append(task)
    out.int32(len(grouped))
    for subtopology, tasks in grouped.items():
        out.int32(subtopology)
        out.int32(len(tasks))
        for task in tasks:
            out.int32(task.partition)
            out.int64(sums[task])


def _read_sums_by_subtopology(source: Reader) -> dict[TaskId, int]:
    sums = {}
    for _ in range(source.count(8)):
        subtopology = source.int32()
        for _ in range(source.count(12)):
            task = TaskId(subtopology, source.int32())
            sums[task] = source.int64()
    return sums


def _refuse_named_topology(message: str, task: TaskId, length: int) -> None:
    if length > 0:
        raise TaskAssignmentException(
            f"Failed to decode {message}: task {task} is of a named topology, and those are not supported"
        )


# --- what the leader answers -----------------------------------------------------------------------------


Partitions = frozenset[TopicPartition]


@dataclass(frozen=True)
class AssignmentInfo:
    """What the leader tells a member.

    Attributes:
        commonly_supported_version: the newest version that all members read.
        standby_tasks: with the changelog partitions of each; Millstream's own have none, as every client
            plans them itself.
        error_code: a number of `AssignorError`; kept as it came, for codes that we do not know.
        next_rebalance_ms: when the member is to join again, in milliseconds since the epoch. Equality leaves
            it out, as upstream's does.

    Source: org.apache.kafka.streams.processor.internals.assignment.AssignmentInfo, of Kafka 4.3.1.
    """

    active_tasks: tuple[TaskId, ...] = ()
    standby_tasks: Mapping[TaskId, Partitions] = field(default_factory=dict)
    partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    standby_partitions_by_host: Mapping[HostInfo, Partitions] = field(default_factory=dict)
    error_code: int = 0
    next_rebalance_ms: int = field(default=NEVER, compare=False)
    version: int = LATEST_SUPPORTED_VERSION
    commonly_supported_version: int = LATEST_SUPPORTED_VERSION

    def __post_init__(self) -> None:
        """Check the version, and drop what it has no place for.

        Raises:
            ValueError: it is none of ours.
        """
        if not 1 <= self.version <= LATEST_SUPPORTED_VERSION:
            raise ValueError(f"version must be between 1 and {LATEST_SUPPORTED_VERSION}; was: {self.version}")
        if self.version < _HOSTS:
            object.__setattr__(self, "partitions_by_host", {})
        if self.version < _COMMON_VERSION:
            object.__setattr__(self, "commonly_supported_version", UNKNOWN_VERSION)
        if self.version < _ASSIGNMENT_ERROR:
            object.__setattr__(self, "error_code", 0)
        if self.version < _STANDBY_HOSTS:
            object.__setattr__(self, "standby_partitions_by_host", {})
        if self.version < _NEXT_REBALANCE:
            object.__setattr__(self, "next_rebalance_ms", NEVER)

    def encode(self) -> bytes:
        """Its bytes.

        Raises:
            TaskAssignmentException: a number or a string does not fit into its field.
        """
        out = Writer(_ASSIGNMENT)
        out.int32(self.version)
        if self.version >= _COMMON_VERSION:
            out.int32(self.commonly_supported_version)
        out.int32(len(self.active_tasks))
        for task in self.active_tasks:
            self._write_task(out, task)
        out.int32(len(self.standby_tasks))
        for task in sorted(self.standby_tasks):
            self._write_task(out, task)
            _write_partitions(out, self.standby_tasks[task])
        if self.version >= _TOPIC_DICTIONARY:
            self._write_hosts_by_dictionary(out)
        elif self.version >= _HOSTS:
            out.int32(len(self.partitions_by_host))
            for host in sorted(self.partitions_by_host):
                _write_host(out, host)
                _write_partitions(out, self.partitions_by_host[host])
        if self.version >= _ASSIGNMENT_ERROR:
            out.int32(self.error_code)
        if self.version >= _NEXT_REBALANCE:
            out.int64(self.next_rebalance_ms)
        return out.to_bytes()

    @classmethod
    def decode(cls, data: bytes) -> AssignmentInfo:
        """What the bytes say.

        Raises:
            TaskAssignmentException: they are no AssignmentInfo, or of a version that we do not know.
        """
        return cls.decode_front(data)[0]

    @classmethod
    def decode_front(cls, data: bytes) -> tuple[AssignmentInfo, bytes]:
        """What the bytes say, and those that follow it; raises as `decode` does."""
        source = Reader(data, _ASSIGNMENT)
        version = source.int32()
        if not 1 <= version <= LATEST_SUPPORTED_VERSION:
            raise TaskAssignmentException(
                f"Unable to decode assignment data: used version: {version}; latest supported version: "
                f"{LATEST_SUPPORTED_VERSION}"
            )
        common = source.int32() if version >= _COMMON_VERSION else UNKNOWN_VERSION
        smallest_task = 12 if version >= _NAMED_TOPOLOGIES else 8
        active = tuple(_read_task(source, version) for _ in range(source.count(smallest_task)))
        standby = {}
        for _ in range(source.count(smallest_task + 4)):
            task = _read_task(source, version)
            standby[task] = _read_partitions(source)
        hosts: dict[HostInfo, Partitions] = {}
        standby_hosts: dict[HostInfo, Partitions] = {}
        if version >= _TOPIC_DICTIONARY:
            topics = {source.int32(): source.utf() for _ in range(source.count(6))}
            hosts = _read_hosts(source, topics)
            if version >= _STANDBY_HOSTS:
                standby_hosts = _read_hosts(source, topics)
        elif version >= _HOSTS:
            for _ in range(source.count(10)):
                host = HostInfo(source.utf(), source.int32())
                hosts[host] = _read_partitions(source)
        error_code = source.int32() if version >= _ASSIGNMENT_ERROR else 0
        next_rebalance_ms = source.int64() if version >= _NEXT_REBALANCE else NEVER
        info = cls(active, standby, hosts, standby_hosts, error_code, next_rebalance_ms, version, common)
        return info, source.rest()

    def at_version(self, version: int) -> AssignmentInfo:
        """The same, said in another version; what that has no place for is lost."""
        return replace(self, version=version)

    def _write_task(self, out: Writer, task: TaskId) -> None:
        out.int32(task.subtopology)
        out.int32(task.partition)
        if self.version >= _NAMED_TOPOLOGIES:
            out.int32(0)  # no named topology

    def _write_hosts_by_dictionary(self, out: Writer) -> None:
        maps = [self.partitions_by_host]
        if self.version >= _STANDBY_HOSTS:
            maps.append(self.standby_partitions_by_host)
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


def _read_task(source: Reader, version: int) -> TaskId:
    task = TaskId(source.int32(), source.int32())
    if version >= _NAMED_TOPOLOGIES:
        _refuse_named_topology(_ASSIGNMENT, task, source.int32())
    return task


def _write_partitions(out: Writer, partitions: Partitions) -> None:
    out.int32(len(partitions))
    for topic, partition in sorted(partitions):
        out.utf(topic)
        out.int32(partition)


def _read_partitions(source: Reader) -> Partitions:
    return frozenset(TopicPartition(source.utf(), source.int32()) for _ in range(source.count(6)))


def _write_host(out: Writer, host: HostInfo) -> None:
    out.utf(host.host)
    out.int32(host.port)


def _read_hosts(source: Reader, topics: Mapping[int, str]) -> dict[HostInfo, Partitions]:
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
