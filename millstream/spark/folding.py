"""What a Python worker does for folds: it computes aggregates from what the kernel says they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.dsl.serdes import Serde
from millstream.topology.nodes import Fold, TableFold

__all__ = ["FoldSerdes", "Folding"]

_WANTED, _USED_AGAIN = 1, 2
_NOTHING = -1


@dataclass(frozen=True)
class FoldSerdes:
    """How a fold's functions get Python values, and what becomes of the result."""

    key: Serde
    value: Serde
    aggregate: Serde


@dataclass(frozen=True)
class Folding:
    """The program of a worker (worker.py) for the folds of one operator, by their numbers.

    Frames: keys, and the number of the fold of each. Then, of each aggregate that is to be computed, which
    key it has, what it begins with, what is merged into that, how many records come then, and whether it is
    wanted (1) or used more than once (2). Then the values of the records, one after the other, and the
    aggregates that are known. What an aggregate begins with, or has merged, is given by its place among those
    that are computed, and behind them among those that are known; -1 is nothing. Back come those that are
    wanted.

    The other end is `kernel/src/io/millstream/kernel/python/Folding.java`.
    """

    folds: Mapping[int, tuple[Fold | TableFold, FoldSerdes]]

    def __call__(self, frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        keys, numbers, groups, befores, others, counts, hows, values, kept = frames
        of_keys = [_OfKey(*self.folds[number], key) for key, number in zip(keys, numbers, strict=True)]
        computed: list[Any] = []
        wanted: list[bytes | None] = []
        total, end = len(groups), 0

        def taken(place: int, of_key: _OfKey) -> Any:
            one = _Shared(kept[place - total]) if place >= total else computed[place]
            return of_key.using.aggregate.deserialize(one.data) if isinstance(one, _Shared) else one

        for group, before, other, count, how in zip(groups, befores, others, counts, hows, strict=True):
            of_key = of_keys[group]
            aggregate = None if before == _NOTHING else taken(before, of_key)
            if other != _NOTHING:
                alive()
                aggregate = of_key.merged(aggregate, taken(other, of_key))
            if count:
                start, end = end, end + count
                aggregate = of_key.added(aggregate, values[start:end], alive)
            if how:
                # What a function does to it from now on is not in these bytes.
                data = of_key.using.aggregate.serialize(aggregate)
                if how & _WANTED:
                    wanted.append(data)
                if how & _USED_AGAIN:
                    aggregate = _Shared(data)
            computed.append(aggregate)
        return [wanted]


class _OfKey:
    """A fold, for one key."""

    def __init__(self, fold: Fold | TableFold, using: FoldSerdes, key: bytes) -> None:
        self.using = using
        self._fold = fold
        self._key = None if fold.initializer is None else using.key.deserialize(key)

    def added(self, aggregate: Any, values: list[bytes | None], alive: Callable[[], None]) -> Any:
        """With these records."""
        if isinstance(self._fold, TableFold):
            return self._changed(self._fold, aggregate, values, alive)
        adder, initializer, read, key = (
            self._fold.adder,
            self._fold.initializer,
            self.using.value.deserialize,
            self._key,
        )
        if initializer is None:
            for data in values:
                alive()
                value = read(data)
                aggregate = value if aggregate is None else adder(aggregate, value)
        else:
            for data in values:
                alive()
                aggregate = adder(key, read(data), initializer() if aggregate is None else aggregate)
        return aggregate

    def _changed(
        self, fold: TableFold, aggregate: Any, values: list[bytes | None], alive: Callable[[], None]
    ) -> Any:
        """With these changes of a grouped table (grouped_tables.change)."""
        read, key, initializer = self.using.value.deserialize, self._key, fold.initializer
        for data in values:
            alive()
            assert data is not None
            old, rest = _unframed(data)
            new, _ = _unframed(rest)
            if old is not None and aggregate is not None:
                gone = read(old)
                if initializer is None:
                    aggregate = fold.subtractor(aggregate, gone)
                else:
                    aggregate = fold.subtractor(key, gone, aggregate)
            if new is not None:
                value = read(new)
                if initializer is None:
                    aggregate = value if aggregate is None else fold.adder(aggregate, value)
                else:
                    aggregate = fold.adder(key, value, initializer() if aggregate is None else aggregate)
        return aggregate

    def merged(self, one: Any, other: Any) -> Any:
        """Of the records of both."""
        if other is None:
            return one
        fold = self._fold
        assert isinstance(fold, Fold)
        if fold.initializer is None:
            return other if one is None else fold.adder(one, other)
        assert fold.merger is not None
        return fold.merger(self._key, fold.initializer() if one is None else one, other)


@dataclass(frozen=True, slots=True)
class _Shared:
    """An aggregate that several others come from."""

    data: bytes | None


def _unframed(data: bytes) -> tuple[bytes | None, bytes]:
    """What is behind its length, and what comes then."""
    length = int.from_bytes(data[:4], "big", signed=True)
    end = 4 + max(0, length)
    return (None if length < 0 else data[4:end]), data[end:]
