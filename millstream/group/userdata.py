"""Millstream's part of the user data in both directions, inside Kafka's layout.

A member's additions are client tags of SubscriptionInfo version 11, whose names begin with `millstream.`; the
leader's are a trailer after the last field of an AssignmentInfo, where Kafka Streams does not look: four
bytes that name it, a length, and JSON. Both are parsed field by field, and anything invalid raises
TaskAssignmentException: the bytes may come from anyone who may write to the group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar
from uuid import UUID

from millstream.errors import TaskAssignmentException
from millstream.group.codes import AssignorError
from millstream.group.java_bytes import ByteReader, ByteWriter
from millstream.group.userdata_layout import (
    LATEST_OFFSET,
    LATEST_SUPPORTED_VERSION,
    UNKNOWN_OFFSET_SUM,
    AssignmentInfo,
    SubscriptionInfo,
)
from millstream.model import TaskId

__all__ = [
    "MOST_REASON_CHARS",
    "MOST_TRAILER_BYTES",
    "MOST_USER_DATA_BYTES",
    "Assignment",
    "MemberInfo",
    "Program",
    "fitting",
]

MOST_REASON_CHARS = 2000
"""The maximum length of a transmitted reason: enough for an exception's text, little for a large group."""

MOST_TRAILER_BYTES = 4 * 1024 * 1024
"""The maximum length of a trailer. A broker would refuse a much shorter one (`message.max.bytes` is 1
MiB)."""

MOST_USER_DATA_BYTES = 512 * 1024
"""The maximum length of a client's user data; longer data is not read. The broker keeps the user data and
assignments of all members in one record of at most 1 MiB."""

MOST_THREADS = 10_000
"""The maximum number of threads; data with more is damaged."""

_MAGIC = b"mill"
_PREFIX = "millstream."

T = TypeVar("T")

Tasks = tuple[TaskId, ...]


# --- what a member says ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """The assignable work of a topology. It is transmitted, so that a leader with another topology can lead.

    Attributes:
        stateful: the tasks that keep state.
        standby_replicas: how many standbys each of these should have.
    """

    tasks: Tasks = ()
    stateful: Tasks = ()
    standby_replicas: int = 0


@dataclass(frozen=True)
class MemberInfo:
    """A client's report to the group's leader.

    Attributes:
        process_id: kept in the state directory, so that a restarted client is recognized.
        threads: its capacity.
        running: the tasks that it runs or starts, or has not finished stopping.
        tags: what its `client.tag.…` settings say of it (KIP-708).
        rack: its `client.rack`, or "" (KIP-925).
        stopping: those among them that it is stopping; it cannot claim to keep them.
        tasks: the tasks that it has: LATEST_OFFSET for an active one, else the progress of the state.
        up_to_date: the tasks whose state is up to date, or nearly (`acceptable.recovery.lag`), and that could
            run here at once.
        endpoint: where it answers queries, `host:port`, or "".
        error_code: SHUTDOWN_REQUESTED asks all clients of the application to shut down (KIP-671).
        reason: why; at most 2000 characters of it are transmitted.
        topology: equal for exactly those clients whose programs can share work.
        warm: its Spark is running, with or without a task.
        serdes: JSON texts of the key's and the value's serde, by store.
        program: the work of its topology; None: not reported.
        unique_field: changes with each join, so that the group notices it; its lowest 8 bits are transmitted.
        version: the subscription's version; with one newer than ours, everything else is unread.
    """

    process_id: UUID
    client_id: str = ""
    threads: int = 1
    running: frozenset[TaskId] = frozenset()
    tasks: Mapping[TaskId, int] = field(default_factory=dict)
    endpoint: str = ""
    error_code: AssignorError = AssignorError.NONE
    reason: str = ""
    topology: str = ""
    warm: bool = False
    serdes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    program: Program | None = None
    stopping: frozenset[TaskId] = frozenset()
    up_to_date: frozenset[TaskId] = frozenset()
    tags: Mapping[str, str] = field(default_factory=dict)
    rack: str = ""
    unique_field: int = 0
    version: int = LATEST_SUPPORTED_VERSION

    @property
    def is_future(self) -> bool:
        """Whether its version is newer than ours, so that nothing else about it is known."""
        return self.version > LATEST_SUPPORTED_VERSION

    @property
    def active_tasks(self) -> frozenset[TaskId]:
        """The tasks that it holds as active ones."""
        return frozenset(task for task, offset in self.tasks.items() if offset == LATEST_OFFSET)

    def to_subscription(self) -> SubscriptionInfo:
        """The same in Kafka's layout."""
        tags = {
            "client": self.client_id,
            "threads": str(self.threads),
        }
        for name, tasks in (
            ("running", self.running),
            ("stopping", self.stopping),
            ("up_to_date", self.up_to_date),
        ):
            if tasks:
                tags[name] = _dump(_tasks_out(tasks))
        if self.reason:
            tags["reason"] = self.reason[:MOST_REASON_CHARS]
        if self.topology:
            tags["topology"] = self.topology
        if self.warm:
            tags["warm"] = "true"
        if self.rack:
            tags["rack"] = self.rack
        if self.serdes:
            tags["serdes"] = _dump(dict(self.serdes))
        if self.program is not None:
            tags["work"] = _dump(_program_out(self.program))
        return SubscriptionInfo(
            process_id=self.process_id,
            user_end_point=self.endpoint,
            task_offset_sums=self.tasks,
            unique_field=(self.unique_field + 128) % 256 - 128,
            error_code=int(self.error_code),
            client_tags={**self.tags, **{_PREFIX + key: value for key, value in tags.items()}},
            version=self.version,
        )

    @classmethod
    def from_subscription(cls, info: SubscriptionInfo) -> MemberInfo:
        """Decode a subscription. A missing tag has its default, which is 0 for the capacity: a member that is
        not a Millstream client gets no work. An unknown error code counts as none, as in Kafka Streams.

        Raises:
            TaskAssignmentException: a tag has an invalid value.
        """
        if info.is_future:
            return cls(process_id=info.process_id, threads=0, version=info.version)
        tags = {
            key.removeprefix(_PREFIX): value
            for key, value in info.client_tags.items()
            if key.startswith(_PREFIX)
        }
        where = "a subscription's"
        for task in info.task_offset_sums:
            if task.subtopology < 0 or task.partition < 0:
                raise _wrong(where, "tasks", "non-negative task numbers")
        return cls(
            process_id=info.process_id,
            client_id=tags.get("client", ""),
            threads=_number(where, "threads", tags.get("threads", "0")),
            running=frozenset(_tag(where, tags, "running", _tasks)),
            tasks=dict(info.task_offset_sums),
            endpoint=info.user_end_point,
            error_code=_known_code(info.error_code),
            reason=tags.get("reason", "")[:MOST_REASON_CHARS],
            topology=tags.get("topology", ""),
            warm=tags.get("warm") == "true",
            serdes=dict(_tag(where, tags, "serdes", _serdes)),
            program=_program(where, "work", _load(where, "work", tags["work"])) if "work" in tags else None,
            stopping=frozenset(_tag(where, tags, "stopping", _tasks)),
            up_to_date=frozenset(_tag(where, tags, "up_to_date", _tasks)),
            tags={key: value for key, value in info.client_tags.items() if not key.startswith(_PREFIX)},
            rack=tags.get("rack", ""),
            unique_field=info.unique_field,
            version=info.version,
        )


def fitting(info: MemberInfo, most: int = MOST_USER_DATA_BYTES) -> tuple[bytes, tuple[str, ...]]:
    """A member's user data, and the parts that were left out to make it short enough.

    The parts that the group can do without are left out first: tasks with only some state on disk, the
    topology's work (which the leader knows), serdes, standbys. Finally only as many active tasks are kept as
    fit; the others are then assigned as if no member had them.

    Raises:
        TaskAssignmentException: it is still too long.
    """
    active = {task: offset for task, offset in info.tasks.items() if offset == LATEST_OFFSET}
    half = dict(sorted(active.items())[: most // 64])
    ways: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            "state on disk",
            {"tasks": {task: offset for task, offset in info.tasks.items() if offset != UNKNOWN_OFFSET_SUM}},
        ),
        ("the program", {"program": None}),
        ("serdes", {"serdes": {}}),
        ("standbys", {"tasks": active, "up_to_date": info.up_to_date & active.keys()}),
        ("active tasks", {"tasks": half, "up_to_date": info.up_to_date & half.keys()}),
    )
    data = info.to_subscription().encode()
    left_out: list[str] = []
    for what, changed in ways:
        if len(data) <= most:
            break
        info = replace(info, **changed)
        shorter = info.to_subscription().encode()
        if len(shorter) < len(data):
            left_out.append(what)
        data = shorter
    if len(data) > most:
        raise TaskAssignmentException(
            f"Failed to encode a subscription: it takes {len(data)} bytes, but the limit is {most}; give the "
            "client and its stores shorter names, or split the topology into two applications"
        )
    return data, tuple(left_out)


def _known_code(code: int) -> AssignorError:
    try:
        return AssignorError(code)
    except ValueError:
        return AssignorError.NONE


def _number(where: str, name: str, text: str) -> int:
    # int() would also accept ' 1_0 ', and be slow on a million digits.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= MOST_THREADS):
        raise _wrong(where, name, f"a number up to {MOST_THREADS}")
    return int(text)


def _tag(
    where: str, tags: Mapping[str, str], name: str, read: Callable[[str, str, Any], Iterable[T]]
) -> Iterable[T]:
    return read(where, name, _load(where, name, tags[name])) if name in tags else ()


# --- what the leader answers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Assignment:
    """The leader's assignment to a client.

    Attributes:
        error_code: an `AssignorError`; another number is kept unchanged, for the client to refuse.
        reason: why there is an error code other than NONE.
        asked_by: the id of the client that requested the shutdown.
        missing_topics: the source topics that are confirmed to be missing.
        active, standby: the tasks that this client should have.
        withheld: the active ones that it must not run yet, because another client has not released them.
        warming: the tasks that become active here as soon as they are reported as up to date.
        hosts: the active tasks and the standbys at each endpoint.
        members: the tasks that each client runs, by client id.
        serdes: of all stores, from all members.
        rebalance_wanted: a task is withheld until its holder has released it and rejoins to report that.
        leader: the leader's client id.
        threads: how many threads the client had reported when this was made; None: the leader does not say.
    """

    error_code: int = AssignorError.NONE
    reason: str = ""
    asked_by: str = ""
    missing_topics: tuple[str, ...] = ()
    active: Tasks = ()
    standby: Tasks = ()
    withheld: Tasks = ()
    hosts: Mapping[str, tuple[Tasks, Tasks]] = field(default_factory=dict)
    members: Mapping[str, Tasks] = field(default_factory=dict)
    serdes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    rebalance_wanted: bool = False
    leader: str = ""
    warming: Tasks = ()
    threads: int | None = None

    @property
    def runs(self) -> Tasks:
        """The tasks that this client should run."""
        withheld = frozenset(self.withheld)
        return tuple(task for task in self.active if task not in withheld)

    def encode(self) -> bytes:
        """Its bytes: Kafka's, then the trailer.

        Raises:
            TaskAssignmentException: it is too long.
        """
        kafka = AssignmentInfo(
            active_tasks=self.active,
            standby_tasks=dict.fromkeys(self.standby, frozenset()),
            error_code=int(self.error_code),
        )
        said: dict[str, Any] = {
            "leader": self.leader,
            "reason": self.reason[:MOST_REASON_CHARS],
            "asked_by": self.asked_by,
            "missing_topics": self.missing_topics,
            "withheld": _tasks_out(self.withheld),
            "hosts": {
                name: [_tasks_out(active), _tasks_out(standby)]
                for name, (active, standby) in self.hosts.items()
            },
            "members": {name: _tasks_out(tasks) for name, tasks in self.members.items()},
            "serdes": dict(self.serdes),
            "rebalance_wanted": self.rebalance_wanted,
            "warming": _tasks_out(self.warming),
            "threads": self.threads,
        }
        trailer = _dump({name: value for name, value in said.items() if value}).encode()
        if len(trailer) > MOST_TRAILER_BYTES:
            raise TaskAssignmentException(
                f"Failed to encode an assignment: it takes {len(trailer)} bytes, but the limit is "
                f"{MOST_TRAILER_BYTES}; run fewer clients, or a topology with fewer tasks"
            )
        out = ByteWriter("an assignment")
        out.raw(kafka.encode())
        out.raw(_MAGIC)
        out.int32(len(trailer))
        out.raw(trailer)
        return out.to_bytes()

    @classmethod
    def decode(cls, data: bytes) -> Assignment:
        """Decode bytes. Only an error may come without a trailer, because it does not need one.

        Raises:
            TaskAssignmentException: they are not an assignment.
        """
        kafka, rest = AssignmentInfo.decode_front(data)
        common: dict[str, Any] = {
            "error_code": _code(kafka.error_code),
            "active": kafka.active_tasks,
            "standby": tuple(sorted(kafka.standby_tasks)),
        }
        where = "an assignment's"
        for task in (*kafka.active_tasks, *kafka.standby_tasks):
            if task.subtopology < 0 or task.partition < 0:
                raise _wrong(where, "tasks", "non-negative task numbers")
        if not rest and kafka.error_code != AssignorError.NONE:
            return cls(**common)
        source = ByteReader(rest, "an assignment's trailer")
        if source.take(len(_MAGIC)) != _MAGIC:
            raise TaskAssignmentException(
                "Failed to decode an assignment: the data after Kafka's fields is not Millstream's; check "
                "that all clients of the application run Millstream"
            )
        if source.left > MOST_TRAILER_BYTES + 4:
            raise TaskAssignmentException(
                f"Failed to decode an assignment: its trailer is longer than {MOST_TRAILER_BYTES} bytes"
            )
        text = source.text()
        if source.left:
            raise TaskAssignmentException(
                f"Failed to decode an assignment: {source.left} bytes follow its trailer"
            )
        said = _load(where, "trailer", text)
        if not isinstance(said, dict):
            raise _wrong(where, "trailer", "an object")
        return cls(
            **common,
            leader=_text(where, "leader", said.get("leader", "")),
            reason=_text(where, "reason", said.get("reason", ""))[:MOST_REASON_CHARS],
            asked_by=_text(where, "asked_by", said.get("asked_by", "")),
            missing_topics=_names(where, "missing_topics", said.get("missing_topics", [])),
            withheld=_tasks(where, "withheld", said.get("withheld", {})),
            hosts={
                name: (_tasks(where, "hosts", active), _tasks(where, "hosts", standby))
                for name, (active, standby) in _pairs(where, "hosts", said.get("hosts", {}))
            },
            members=_members(where, said.get("members", {})),
            serdes=dict(_serdes(where, "serdes", said.get("serdes", {}))),
            rebalance_wanted=_flag(where, "rebalance_wanted", said.get("rebalance_wanted", False)),
            warming=_tasks(where, "warming", said.get("warming", {})),
            threads=_count(where, "threads", count) if (count := said.get("threads")) is not None else None,
        )


def _code(code: int) -> int:
    try:
        return AssignorError(code)
    except ValueError:
        return code


# --- JSON, distrusted ------------------------------------------------------------------------------------


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def _load(where: str, name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # RecursionError: thousands of nested brackets
        raise _wrong(where, name, "JSON") from error


def _wrong(where: str, name: str, wanted: str) -> TaskAssignmentException:
    return TaskAssignmentException(
        f"Corrupted user data byte[]. {where} '{name}' should be {wanted}, but is not"
    )


def _text(where: str, name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(where, name, "text")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which cannot be printed
        raise _wrong(where, name, "Unicode text") from error
    return value


def _flag(where: str, name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _wrong(where, name, "true or false")
    return value


def _names(where: str, name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _wrong(where, name, "a list of names")
    return tuple(_text(where, name, each) for each in value)


def _pairs(where: str, name: str, value: object) -> list[tuple[str, tuple[object, object]]]:
    """The entries of an object whose values are lists of two."""
    if not isinstance(value, dict):
        raise _wrong(where, name, "an object")
    found: list[tuple[str, tuple[object, object]]] = []
    for key, each in value.items():
        if not isinstance(each, list) or len(each) != 2:
            raise _wrong(where, name, "an object of pairs")
        found.append((_text(where, name, key), (each[0], each[1])))
    return found


def _members(where: str, value: object) -> dict[str, Tasks]:
    if not isinstance(value, dict):
        raise _wrong(where, "members", "an object")
    return {
        _text(where, "members", client): _tasks(where, "members", tasks) for client, tasks in value.items()
    }


def _serdes(where: str, name: str, value: object) -> tuple[tuple[str, tuple[str, str]], ...]:
    return tuple(
        (store, (_text(where, name, key), _text(where, name, kept)))
        for store, (key, kept) in _pairs(where, name, value)
    )


def _tasks_out(tasks: Iterable[TaskId]) -> dict[str, list[int]]:
    """Partitions by subtopology, which is shorter than one text for each task."""
    found: dict[str, list[int]] = {}
    for task in sorted(tasks):
        found.setdefault(str(task.subtopology), []).append(task.partition)
    return found


def _tasks(where: str, name: str, value: object) -> Tasks:
    if not isinstance(value, dict):
        raise _wrong(where, name, "partitions by subtopology")
    found = []
    for key, partitions in value.items():
        if not (key.isascii() and key.isdigit() and len(key) <= 9) or not isinstance(partitions, list):
            raise _wrong(where, name, "partitions by subtopology")
        found += [TaskId(int(key), _count(where, name, each)) for each in partitions]
    return tuple(sorted(found))


def _count(where: str, name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise _wrong(where, name, "non-negative numbers")
    return value


def _program_out(program: Program) -> dict[str, Any]:
    return {
        "tasks": _tasks_out(program.tasks),
        "stateful": _tasks_out(program.stateful),
        "standby_replicas": program.standby_replicas,
    }


def _program(where: str, name: str, value: object) -> Program:
    if not isinstance(value, dict):
        raise _wrong(where, name, "an object")
    return Program(
        tasks=_tasks(where, name, value.get("tasks", {})),
        stateful=_tasks(where, name, value.get("stateful", {})),
        standby_replicas=_count(where, name, value.get("standby_replicas", 0)),
    )
