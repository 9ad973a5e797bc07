"""What a reset will do, decided from the facts. Pure: facts in, a plan out, which can be printed as text.

Source: org.apache.kafka.tools.StreamsResetter.
Differs: input topics that are not named are those of the program, or those that the group has offsets of;
    internal topics are distinguished from those of another application whose id begins like this one's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from millstream.model import TopicPartition
from millstream.topology.names import is_internal_topic

__all__ = [
    "NewPosition",
    "ResetPlan",
    "To",
    "internal_topics",
    "parse_offsets",
    "point_in_time",
    "positions",
]

To = str | int | datetime | timedelta | Mapping[TopicPartition, int]
"""The new position of input topics: "earliest", "latest", one offset for all partitions, a point in time, a
time span before now, or an offset for each partition."""


@dataclass(frozen=True)
class NewPosition:
    """The new position of one partition of an input topic. `note`: why it differs from the request."""

    at: TopicPartition
    offset: int
    first: int
    last: int
    note: str = ""


@dataclass(frozen=True)
class ResetPlan:
    """What a reset will do, or has done; `str()` describes it.

    Attributes:
        application_id: the application's id.
        positions: the new positions of input topics.
        missing: input topics that do not exist.
        internal: changelogs and repartition topics to delete.
        foreign: topics that look like these but belong to another application, with its id.
        checkpoints: where queries of to_spark() have theirs; has_checkpoints: whether there are any; None:
            that is not on this machine.
        state: the local directory; tasks: how many tasks have state there.
        members: a description of each group member, by member id.
    """

    application_id: str
    positions: tuple[NewPosition, ...] = ()
    missing: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    foreign: Mapping[str, str] = field(default_factory=dict)
    checkpoints: str = ""
    has_checkpoints: bool | None = False
    state: str = ""
    tasks: int = 0
    members: Mapping[str, str] = field(default_factory=dict)

    @property
    def lines(self) -> tuple[str, ...]:
        """The description, line by line."""
        lines = [f"application '{self.application_id}'"]
        lines += [f"  group: has member {called}" for called in sorted(self.members.values())]
        lines += [
            f"  input '{each.at.topic}' partition {each.at.partition}: read from offset {each.offset} on "
            f"(it has {each.first} to {each.last})" + (f"; {each.note}" if each.note else "")
            for each in self.positions
        ]
        lines += [f"  input '{name}': does not exist, left out" for name in self.missing]
        if not self.positions and not self.missing:
            lines.append("  input topics: none are known; name them to change where they are read from")
        lines += [f"  delete internal topic '{name}'" for name in self.internal]
        lines += [
            f"  leave topic '{name}' alone: its name belongs to application '{owner}'"
            for name, owner in sorted(self.foreign.items())
        ]
        if not self.internal:
            lines.append("  internal topics: none")
        if self.has_checkpoints is None:
            lines.append(
                f"  leave '{self.checkpoints}' alone: if the program has to_spark(), delete it with the "
                f"tools of its file system"
            )
        elif self.has_checkpoints:
            lines.append(f"  delete the checkpoints of to_spark() in '{self.checkpoints}'")
        local = f"delete the state of {self.tasks} task{'' if self.tasks == 1 else 's'} in '{self.state}'"
        lines.append(f"  {local}" if self.tasks else f"  local state: none in '{self.state}'")
        return tuple(lines)

    def __str__(self) -> str:
        return "\n".join(self.lines)


def internal_topics(
    application_id: str, existing: Iterable[str], groups: Iterable[str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The application's changelogs and repartition topics, by their names; and topics that look like these
    but belong to another of the `groups`, whose id begins with this one's.

    Source: StreamsResetter.isInferredInternalTopic.
    """
    longer = sorted((group for group in groups if group.startswith(f"{application_id}-")), key=len)
    mine: list[str] = []
    foreign: dict[str, str] = {}
    for name in sorted(name for name in existing if is_internal_topic(application_id, name)):
        owner = next((group for group in reversed(longer) if name.startswith(f"{group}-")), None)
        if owner is None:
            mine.append(name)
        else:
            foreign[name] = owner
    return tuple(mine), foreign


def positions(
    to: To,
    first: Mapping[TopicPartition, int],
    last: Mapping[TopicPartition, int],
    *,
    at_time: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    shift: int | None = None,
) -> tuple[NewPosition, ...]:
    """The new position of each partition, never before its first record or after its last one.

    Args:
        first, last: offsets of each partition.
        at_time: for a point in time, the first offset from then on; a partition without one has no later
            record.
        committed: the group's offsets, for a shift.
        shift: instead of `to`: how many records to move on from the group's position, or back.

    Source: StreamsResetter.checkOffsetRange.
    """
    found = []
    for at in sorted(first):
        begins, ends = first[at], last[at]
        note = ""
        match to:
            case _ if shift is not None:
                wanted = committed.get(at, begins) + shift
                note = "" if at in committed else "the group has committed nothing; counted from the first"
            case "earliest":
                wanted = begins
            case "latest":
                wanted = ends
            case int():
                wanted = to
            case datetime() | timedelta():
                wanted = at_time.get(at, ends)
            case Mapping() if at in to:
                wanted = to[at]
            case Mapping():
                continue
            case _:
                raise ValueError(f"a position must be 'earliest', 'latest', an offset or a time; got {to!r}")
        offset = max(begins, min(wanted, ends))
        if offset != wanted:
            note = f"{wanted} was asked for"
        found.append(NewPosition(at, offset, begins, ends, note))
    return tuple(found)


def point_in_time(to: datetime | timedelta, now: datetime) -> int:
    """Milliseconds since the epoch of a datetime (UTC if it has no zone), or of a time span before `now`."""
    when = now - to if isinstance(to, timedelta) else to
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return int(when.timestamp() * 1000)


def parse_offsets(lines: Sequence[str], where: str) -> dict[TopicPartition, int]:
    """Offsets in the file format of Kafka's tool: `topic,partition,offset`, one partition per line.

    Raises:
        ValueError: a line has another format; the message names it.
    """
    found: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 3 or not parts[0] or not parts[1].isdecimal() or not parts[2].isdecimal():
            raise ValueError(f"{where}, line {number}: {line.strip()!r} is not topic,partition,offset")
        found[TopicPartition(parts[0], int(parts[1]))] = int(parts[2])
    return found
