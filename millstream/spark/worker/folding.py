"""Computes Python folds in the worker, from the inputs that the kernel sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from millstream.kernel.constants import FOLD_USED_AGAIN, FOLD_WANTED, NOTHING
from millstream.serdes.serde import Serde
from millstream.topology.nodes import Fold, TableFold

__all__ = ["FoldSerdes", "Folding"]


@dataclass(frozen=True)
class FoldSerdes:
    """The serdes of a fold: of the values that its functions receive, and of their result."""

    key: Serde
    value: Serde
    aggregate: Serde


@dataclass(frozen=True)
class Folding:
    """The program of a worker (program_worker.py) for the folds of one operator, by their numbers.

    A request has these frames, each a list:

    | frame | one entry for each | the entry |
    | --- | --- | --- |
    | `keys` | key | its bytes |
    | `numbers` | key | the number of its fold |
    | `groups` | aggregate to compute | the index of its key |
    | `befores` | aggregate to compute | the aggregate it starts from, as a reference |
    | `others` | aggregate to compute | the aggregate to merge into that, as a reference |
    | `counts` | aggregate to compute | how many records to add; 0 without others: it is the initial value |
    | `hows` | aggregate to compute | flags: FOLD_WANTED to return it, FOLD_USED_AGAIN if others refer to it |
    | `values` | record | its value, in the order of the aggregates |
    | `known` | known aggregate | its bytes |

    A reference is an index into the aggregates to compute, followed by the known ones; NOTHING is none. The
    response has one frame: the wanted aggregates.

    The other end is `kernel/src/io/millstream/kernel/python/Folding.java`.
    """

    folds: Mapping[int, tuple[Fold | TableFold, FoldSerdes]]

    def __getstate__(self) -> dict[str, Any]:
        return {"folds": self.folds}

    @cached_property
    def _functions(self) -> dict[int, _Functions]:
        return {number: _Functions(*fold) for number, fold in self.folds.items()}

    def __call__(self, frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        keys, numbers, groups, befores, others, counts, hows, values, known = frames
        functions = self._functions
        of_groups = [functions[number] for number in numbers]
        named = [of.key(key) for of, key in zip(of_groups, keys, strict=True)]
        computed: list[Any] = []
        wanted: list[bytes | None] = []
        total, end = len(groups), 0

        def taken(place: int, read: Callable[[bytes | None], Any]) -> Any:
            if place >= total:
                return read(known[place - total])
            aggregate = computed[place]
            return read(aggregate.data) if type(aggregate) is _Shared else aggregate

        for group, before, other, count, how in zip(groups, befores, others, counts, hows, strict=True):
            of, key = of_groups[group], named[group]
            aggregate = None if before == NOTHING else taken(before, of.read)
            if before == other == NOTHING and not count:
                aggregate = of.initial()
            if other != NOTHING:
                alive()
                aggregate = of.merged(key, aggregate, taken(other, of.read))
            if count:
                start, end = end, end + count
                aggregate = of.added(key, aggregate, values[start:end], alive)
            if how:
                # A function may change the object later; these bytes do not.
                data = of.write(aggregate)
                if how & FOLD_WANTED:
                    wanted.append(data)
                if how & FOLD_USED_AGAIN:
                    aggregate = _Shared(data)
            computed.append(aggregate)
        return [wanted]


class _Functions:
    """The functions and codecs of one fold."""

    def __init__(self, fold: Fold | TableFold, using: FoldSerdes) -> None:
        self._fold, self._using = fold, using
        self._read_key = _reader(using.key)
        self._read_value = using.value.decoder()
        self.read = _reader(using.aggregate)
        encode = using.aggregate.encoder()
        self.write: Callable[[Any], bytes | None] = lambda value: None if value is None else encode(value)
        self.added = self._changed if isinstance(fold, TableFold) else self._folded
        """The aggregate after adding these records."""

    def key(self, data: bytes) -> Any:
        """The key for functions. Without an initializer they do not receive it."""
        return None if self._fold.initializer is None else self._read_key(data)

    def initial(self) -> Any:
        """What a key has before its first record; nothing of a grouped table."""
        initializer = None if isinstance(self._fold, TableFold) else self._fold.initializer
        return None if initializer is None else initializer()

    def _folded(
        self, key: Any, aggregate: Any, values: Sequence[bytes | None], alive: Callable[[], None]
    ) -> Any:
        adder, initializer, read = self._fold.adder, self._fold.initializer, self._read_value
        for data in values:
            alive()
            try:
                value = None if data is None else read(data)
            except Exception:  # this raises the serde's own error
                value = self._using.value.deserialize(data)
            if initializer is not None:
                aggregate = adder(key, value, initializer() if aggregate is None else aggregate)
            else:
                aggregate = value if aggregate is None else adder(aggregate, value)
        return aggregate

    def _changed(
        self, key: Any, aggregate: Any, values: Sequence[bytes | None], alive: Callable[[], None]
    ) -> Any:
        """The aggregate after these changes of a grouped table (grouped_tables.change)."""
        fold, read = self._fold, self._using.value.deserialize
        assert isinstance(fold, TableFold)
        initializer = fold.initializer
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

    def merged(self, key: Any, one: Any, other: Any) -> Any:
        """The aggregate of the records of both aggregates."""
        if other is None:
            return one
        fold = self._fold
        assert isinstance(fold, Fold)
        if fold.initializer is None:
            return other if one is None else fold.adder(one, other)
        assert fold.merger is not None
        return fold.merger(key, fold.initializer() if one is None else one, other)


def _reader(serde: Serde) -> Callable[[bytes | None], Any]:
    """A reader of many values that raises the serde's own error for one it cannot read."""
    quick, otherwise = serde.decoder(), serde.deserialize

    def read(data: bytes | None) -> Any:
        if data is None:
            return None
        try:
            return quick(data)
        except Exception:
            return otherwise(data)

    return read


@dataclass(frozen=True, slots=True)
class _Shared:
    """An aggregate that several others refer to."""

    data: bytes | None


def _unframed(data: bytes) -> tuple[bytes | None, bytes]:
    """A length-prefixed value, and the rest."""
    length = int.from_bytes(data[:4], "big", signed=True)
    end = 4 + max(0, length)
    return (None if length < 0 else data[4:end]), data[end:]
