"""Windowed groups: records of one key and window together, waiting to become one value.

The keys of the tables that come out of here are windowed. In Spark's functions such a key is a struct:
`key.key` is the key itself, `key.window.start` and `key.window.end` are timestamps. In Python it is a
`Windowed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from millstream.dsl.aggregations import aggregation_of, reduction_of
from millstream.dsl.ktable import KTable
from millstream.dsl.options import Materialized, Named, option
from millstream.dsl.serdes import Serde, Serdes
from millstream.topology import nodes
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

__all__ = ["SessionWindowedKStream", "TimeWindowedKStream"]

Function = nodes.Function
W = TypeVar("W", bound=Windows)


class _WindowedKStream(Generic[W]):
    """What both kinds have in common. `aggregate_with` is the group's own way to make a table."""

    def __init__(self, aggregate_with: Callable[..., KTable], windows: W, value_serde: Serde | None) -> None:
        self._aggregate_with = aggregate_with
        self._windows = windows
        self._value_serde = value_serde

    def count(self, materialized: Materialized | None = None, *, named: str | Named | None = None) -> KTable:
        """How many records each key has had in each window: a long."""
        given = option(materialized, Materialized, "count")
        unnamed = materialized is not None and given.store_name is None
        return self._aggregate_with(
            nodes.Count(),
            given,
            named,
            "KSTREAM-AGGREGATE-",
            value_serde=given.value_serde or Serdes.long(),
            # As upstream: SlidingWindowedKStreamImpl came after that was a mistake.
            burns_a_count=unnamed and not isinstance(self._windows, SlidingWindows),
            windows=self._windows,
        )

    def reduce(
        self, reducer: Function, materialized: Materialized | None = None, *, named: str | Named | None = None
    ) -> KTable:
        """One value of the values' own type.

        Args:
            reducer: `lambda value: F.max(value)`, a Spark aggregate expression; or with two parameters,
                `lambda aggregate, value: …`, a Python function that is called record by record.
        """
        aggregation = reduction_of(reducer)
        given = option(materialized, Materialized, "reduce")
        return self._aggregate_with(
            aggregation,
            given,
            named,
            "KSTREAM-REDUCE-",
            value_serde=given.value_serde or self._value_serde,
            windows=self._windows,
        )

    def _aggregate(
        self, first: Any, rest: tuple[Any, ...], materialized: Any, named: str | Named | None, *, merges: bool
    ) -> KTable:
        aggregation, materialized = aggregation_of(first, rest, materialized, merges=merges)
        given = option(materialized, Materialized, "aggregate")
        return self._aggregate_with(
            aggregation,
            given,
            named,
            "KSTREAM-AGGREGATE-",
            value_serde=given.value_serde,
            windows=self._windows,
        )


class TimeWindowedKStream(_WindowedKStream[TimeWindows | SlidingWindows]):
    """Records grouped by key and window, in windows of one size.

    Source: org.apache.kafka.streams.kstream.TimeWindowedKStream.
    Differs: no emit strategy; a window's value goes out whenever it has changed, once in a micro-batch.
    """

    @overload
    def aggregate(
        self,
        expression: Function,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Function,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def aggregate(
        self,
        first: Function,
        /,
        *rest: Any,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
    ) -> KTable:
        """One value of any type.

        `aggregate(lambda key, value: F.sum(value.amount))` aggregates by Spark expressions, which return a
        Column, or a dict of several by name for a struct of them.
        `aggregate(lambda: 0, lambda key, value, aggregate: …)` folds in Python, record by record.
        """
        return self._aggregate(first, rest, materialized, named, merges=False)


class SessionWindowedKStream(_WindowedKStream[SessionWindows]):
    """Records grouped by key and session.

    Source: org.apache.kafka.streams.kstream.SessionWindowedKStream.
    Differs: no emit strategy, as with TimeWindowedKStream. A session that was merged into another is deleted
        in the table, a null value in its stream, in the same micro-batch.
    """

    @overload
    def aggregate(
        self,
        expression: Function,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Function,
        merger: Function,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def aggregate(
        self,
        first: Function,
        /,
        *rest: Any,
        materialized: Materialized | None = None,
        named: str | Named | None = None,
    ) -> KTable:
        """One value of any type.

        `aggregate(lambda key, value: F.sum(value.amount))` aggregates by Spark expressions: of those whose
        partial results can be merged, because sessions are (count, sum, min, max, avg, …).
        `aggregate(lambda: 0, lambda key, value, aggregate: …, lambda key, one, other: …)` folds in Python,
        record by record, and merges with the third function.
        """
        return self._aggregate(first, rest, materialized, named, merges=True)
