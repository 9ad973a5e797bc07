"""What a Python worker does for folds: takes in the records of groups, and returns what each group has then.

A group is one key of one fold: its first bytes are the number of the fold, the others the key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.dsl.serdes import Serde
from millstream.topology.nodes import Fold

__all__ = ["TAG", "FoldSerdes", "Folding"]

TAG = 2
"""How many bytes of a group are the number of its fold."""


@dataclass(frozen=True)
class FoldSerdes:
    """How a fold's functions get Python values, and what becomes of the result."""

    key: Serde
    value: Serde
    aggregate: Serde


@dataclass(frozen=True)
class Folding:
    """The program of a worker (worker.py) for the folds of one operator, by their numbers.

    Frames: groups, the aggregate that each has or None, how many records each has, and the values of all
    records, group by group. Back come the groups' new aggregates.
    """

    folds: tuple[tuple[Fold, FoldSerdes], ...]

    def __call__(self, frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        groups, aggregates, counts, values = frames
        now, end = [], 0
        for group, aggregate, count in zip(groups, aggregates, counts, strict=True):
            start, end = end, end + count
            now.append(self._folded(group, aggregate, values[start:end], alive))
        return [now]

    def _folded(
        self, group: bytes, before: bytes | None, values: list[bytes | None], alive: Callable[[], None]
    ) -> bytes | None:
        fold, using = self.folds[int.from_bytes(group[:TAG], "big")]
        aggregate = using.aggregate.deserialize(before)
        read, adder, initializer = using.value.deserialize, fold.adder, fold.initializer
        if initializer is None:
            for data in values:
                alive()
                value = read(data)
                aggregate = value if aggregate is None else adder(aggregate, value)
        else:
            key = using.key.deserialize(group[TAG:])
            for data in values:
                alive()
                aggregate = adder(key, read(data), initializer() if aggregate is None else aggregate)
        return using.aggregate.serialize(aggregate)
