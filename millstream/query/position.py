"""A store's position: which records of which topic partitions it contains. Frozen and pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from millstream.model import TopicPartition
from millstream.query.provider import LocalStore

__all__ = ["Position", "PositionBound", "position_of"]


def _checked(offsets: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
    for (topic, partition), offset in offsets.items():
        numbers = (partition, offset)
        if not isinstance(topic, str) or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError(
                f"partitions and offsets of a position must be integers of 0 or more; got offset {offset!r} "
                f"for partition {partition!r} of topic {topic!r}"
            )
    return MappingProxyType({TopicPartition(*at): offset for at, offset in sorted(offsets.items())})


@dataclass(frozen=True, slots=True)
class Position:
    """The offset of the last record in a store, for each topic partition that fills it.

        Position.empty_position().with_component("orders", 0, record.offset())

    Source: org.apache.kafka.streams.query.Position (KIP-796).
    Differs: a position is frozen: `with_component` and `merge` return a new one. The topics are those that
        fill the store: its changelog or, for a table or global table read from a topic, that topic. (Kafka:
        the input topics of the task.)
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", _checked(self.offsets))

    @classmethod
    def empty_position(cls) -> Position:
        """A position without offsets: nothing is known, or nothing is required."""
        return cls()

    @classmethod
    def from_map(cls, offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """From offsets by topic and partition.

        Raises:
            ValueError: an offset or a partition is not an integer of 0 or more.
        """
        return cls(
            {TopicPartition(topic, at): offset for topic, of in offsets.items() for at, offset in of.items()}
        )

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """The same position with another offset for this topic partition.

        Raises:
            ValueError: an offset or a partition is not an integer of 0 or more.
        """
        return Position({**self.offsets, TopicPartition(topic, partition): offset})

    def merge(self, other: Position) -> Position:
        """The larger offset of each topic partition that is in either position."""
        return Position(
            {
                at: max(self.offsets.get(at, 0), other.offsets.get(at, 0))
                for at in {*self.offsets, *other.offsets}
            }
        )

    @property
    def topics(self) -> frozenset[str]:
        """The topics that it has offsets for."""
        return frozenset(at.topic for at in self.offsets)

    def partition_positions(self, topic: str) -> dict[int, int]:
        """The offsets of a topic, by partition."""
        return {at.partition: offset for at, offset in self.offsets.items() if at.topic == topic}

    @property
    def is_empty(self) -> bool:
        """Whether it has no offsets."""
        return not self.offsets

    def reaches(self, bound: Position, partitions: Iterable[TopicPartition]) -> bool:
        """Whether it has reached `bound` in these topic partitions."""
        return all(self.offsets.get(at, -1) >= bound.offsets[at] for at in partitions if at in bound.offsets)

    def __hash__(self) -> int:
        return hash(tuple(self.offsets.items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{at}: {offset}" for at, offset in self.offsets.items()) + "}"


@dataclass(frozen=True, slots=True)
class PositionBound:
    """The minimum position of a store for a query. Each partition of a store is compared by its own offset
    only.

    Source: org.apache.kafka.streams.query.PositionBound.
    """

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """Any position."""
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """At least this position.

        Raises:
            TypeError: `position` is not a Position.
        """
        if not isinstance(position, Position):
            raise TypeError(f"PositionBound.at() takes a Position; got {position!r}")
        return cls(position)

    @property
    def is_unbounded(self) -> bool:
        """Whether any position is accepted."""
        return self.position.is_empty


def position_of(part: LocalStore) -> Position:
    """The minimum position of a part: read before its contents, so it is never ahead of them.

    Raises:
        ClosedStoreError: the part is closed.
    """
    after_last = part.store.position
    if part.changelog is None or not after_last:
        return Position()
    return Position().with_component(*part.changelog, after_last - 1)
