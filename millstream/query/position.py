"""How far a store is: which records of which topic partitions are in it. Frozen, and pure."""

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
                f"a position has an offset of 0 or more for each topic and partition, not {offset!r} for "
                f"partition {partition!r} of topic {topic!r}"
            )
    return MappingProxyType({TopicPartition(*at): offset for at, offset in sorted(offsets.items())})


@dataclass(frozen=True, slots=True)
class Position:
    """The offset of the last record that a store has, for each topic partition that it was filled from.

        Position.empty_position().with_component("orders", 0, record.offset())

    Source: org.apache.kafka.streams.query.Position (KIP-796).
    Differs: frozen: `with_component` and `merge` return another one. The topics are the ones that fill the
        store: its changelog, or, for a table that is read from a topic and for a global table, that topic.
        (Kafka: the input topics of the task.)
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "offsets", _checked(self.offsets))

    @classmethod
    def empty_position(cls) -> Position:
        """Nothing is known, or nothing is needed."""
        return cls()

    @classmethod
    def from_map(cls, offsets: Mapping[str, Mapping[int, int]]) -> Position:
        """From offsets by topic and partition.

        Raises:
            ValueError: an offset or a partition is not a number of 0 or more.
        """
        return cls(
            {TopicPartition(topic, at): offset for topic, of in offsets.items() for at, offset in of.items()}
        )

    def with_component(self, topic: str, partition: int, offset: int) -> Position:
        """The same with another offset of this topic partition.

        Raises:
            ValueError: an offset or a partition is not a number of 0 or more.
        """
        return Position({**self.offsets, TopicPartition(topic, partition): offset})

    def merge(self, other: Position) -> Position:
        """The farther offset of each topic partition that one of the two has."""
        return Position(
            {
                at: max(self.offsets.get(at, 0), other.offsets.get(at, 0))
                for at in {*self.offsets, *other.offsets}
            }
        )

    @property
    def topics(self) -> frozenset[str]:
        """The topics it has offsets of."""
        return frozenset(at.topic for at in self.offsets)

    def partition_positions(self, topic: str) -> dict[int, int]:
        """The offsets of a topic, by partition."""
        return {at.partition: offset for at, offset in self.offsets.items() if at.topic == topic}

    @property
    def is_empty(self) -> bool:
        """Whether it has no offsets."""
        return not self.offsets

    def reaches(self, bound: Position, partitions: Iterable[TopicPartition]) -> bool:
        """Whether it is at `bound` or farther, as far as these topic partitions go."""
        return all(self.offsets.get(at, -1) >= bound.offsets[at] for at in partitions if at in bound.offsets)

    def __hash__(self) -> int:
        return hash(tuple(self.offsets.items()))

    def __str__(self) -> str:
        return "{" + ", ".join(f"{at}: {offset}" for at, offset in self.offsets.items()) + "}"


@dataclass(frozen=True, slots=True)
class PositionBound:
    """How far a store has to be to be asked. Each partition of a store is measured by its own offset alone.

    Source: org.apache.kafka.streams.query.PositionBound.
    """

    position: Position = field(default_factory=Position)

    @classmethod
    def unbounded(cls) -> PositionBound:
        """However far it is."""
        return cls()

    @classmethod
    def at(cls, position: Position) -> PositionBound:
        """At least there.

        Raises:
            TypeError: it is not a Position.
        """
        if not isinstance(position, Position):
            raise TypeError(f"PositionBound.at() takes a Position, not {position!r}")
        return cls(position)

    @property
    def is_unbounded(self) -> bool:
        """Whether anything will do."""
        return self.position.is_empty


def position_of(part: LocalStore) -> Position:
    """How far a part is, at least: read before what it has, it is never ahead of that.

    Raises:
        ClosedStoreError: it is closed.
    """
    after_last = part.store.position
    if part.changelog is None or not after_last:
        return Position()
    return Position().with_component(*part.changelog, after_last - 1)
