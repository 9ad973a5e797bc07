"""`count`, `reduce` and `aggregate`, for groups of every kind: the checks of their arguments. Those are a
Spark expression or Python functions. What becomes of them is up to the group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, overload

from millstream.dsl.ktable import KTable, check_function
from millstream.dsl.options import Materialized, Named, option
from millstream.errors import TopologyException
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.topology import nodes
from millstream.topology.columns import Expression, Folder, Reducer
from millstream.topology.functions import accepts, arity, describe_argument
from millstream.topology.windows import SlidingWindows, Windows

__all__ = ["Aggregating", "Unmerged", "arguments_of", "check_initializer"]


class Aggregating(ABC):
    """Records of one key, or of one key and window, which are combined into one value."""

    def __init__(self, value_serde: Serde | None, windows: Windows | None = None) -> None:
        self._value_serde = value_serde
        self._windows = windows

    @abstractmethod
    def _table(
        self,
        aggregation: nodes.Aggregation,
        materialized: Materialized,
        named: str | Named | None,
        prefix: str,
        *,
        value_serde: Serde | None,
        burns_a_count: bool = False,
    ) -> KTable:
        """The table of an aggregation of this group."""

    def count(self, materialized: Materialized | None = None, *, named: str | Named | None = None) -> KTable:
        """The number of records of each key, as a long; per window if there are windows."""
        given = option(materialized, Materialized, "count")
        unnamed = materialized is not None and given.store_name is None
        return self._table(
            nodes.Count(),
            given,
            named,
            "KSTREAM-AGGREGATE-",
            value_serde=given.value_serde or Serdes.long(),
            # As in Kafka Streams: SlidingWindowedKStreamImpl is newer than the discovery of this mistake.
            burns_a_count=unnamed and not isinstance(self._windows, SlidingWindows),
        )

    def reduce(
        self, reducer: Reducer, materialized: Materialized | None = None, *, named: str | Named | None = None
    ) -> KTable:
        """One value of the values' own type.

        Args:
            reducer: `lambda value: F.max(value)`, a Spark aggregate expression; or with two parameters,
                `lambda aggregate, value: …`, a Python function, called for each record.
        """
        aggregation = _reduction_of(reducer)
        given = option(materialized, Materialized, "reduce")
        return self._table(
            aggregation,
            given,
            named,
            "KSTREAM-REDUCE-",
            value_serde=given.value_serde or self._value_serde,
        )

    def _aggregate(
        self, first: Any, rest: Sequence[Any], materialized: Any, named: str | Named | None, *, merges: bool
    ) -> KTable:
        aggregation, materialized = _aggregation_of(first, rest, materialized, merges=merges)
        given = option(materialized, Materialized, "aggregate")
        return self._table(aggregation, given, named, "KSTREAM-AGGREGATE-", value_serde=given.value_serde)


class Unmerged(Aggregating):
    """Groups whose aggregates never need merging: all but sessions."""

    @overload
    def aggregate(
        self,
        expression: Expression,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    @overload
    def aggregate(
        self,
        initializer: Callable[[], Any],
        adder: Folder,
        /,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable: ...

    def aggregate(
        self,
        first: Any,
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


def arguments_of(rest: Sequence[Any], materialized: Any, *, most: int, taken: str) -> tuple[list[Any], Any]:
    """The functions and the Materialized among the further positional arguments of `aggregate()`.

    Args:
        most: the maximum number of functions.
        taken: the functions that it takes, for the message.

    Raises:
        TopologyException: there are other arguments, too.
    """
    positional = list(rest)
    functions: list[Any] = []
    while positional and callable(positional[0]) and len(functions) < most:
        functions.append(positional.pop(0))
    if positional and materialized is None:
        materialized = positional.pop(0)
    if positional:
        raise TopologyException(f"{taken}, and then a Materialized; also got {positional[0]!r}")
    return functions, materialized


def check_initializer(initializer: Any) -> None:
    """Raise unless it makes the value that an aggregation in Python begins with.

    Raises:
        TopologyException: it is not a function without parameters.
    """
    if not callable(initializer) or not accepts(initializer, 0):
        raise TopologyException(
            "the initializer of aggregate() is a function without parameters, such as `lambda: 0`; "
            f"got {describe_argument(initializer)}"
        )


def _reduction_of(reducer: Any) -> nodes.Aggregation:
    """What the function of `reduce()` means.

    Raises:
        TopologyException: it is not a function of one or two parameters.
    """
    takes = arity(reducer) if callable(reducer) else None
    if takes not in (1, 2):
        raise TopologyException(
            f"reduce() takes `lambda value: F.max(value)`, a Spark aggregate expression, or "
            f"`lambda aggregate, value: …`, a Python function; got {describe_argument(reducer)}"
        )
    return nodes.ColumnAggregation(reducer) if takes == 1 else nodes.Fold(reducer)


def _aggregation_of(
    first: Any, rest: Sequence[Any], materialized: Any, *, merges: bool
) -> tuple[nodes.Aggregation, Any]:
    """What the positional arguments of `aggregate()` mean, and its Materialized, which may be among them.

    `merges`: sessions merge, so Python functions need a merger as well; a Spark expression does not.

    Raises:
        TopologyException: the arguments have none of the accepted forms.
    """
    taken = "aggregate() takes an expression, or an initializer and an adder"
    if merges:
        taken = "aggregate() takes an expression, or an initializer, an adder and a merger"
    functions, materialized = arguments_of(rest, materialized, most=2 if merges else 1, taken=taken)
    if not functions:
        check_function("aggregate", first)
        return nodes.ColumnAggregation(first), materialized
    check_initializer(first)
    if not accepts(functions[0], 3):
        raise TopologyException(
            "the adder of aggregate() is a function of key, value and aggregate; "
            f"got {describe_argument(functions[0])}"
        )
    if not merges:
        return nodes.Fold(functions[0], first), materialized
    if len(functions) < 2:
        raise TopologyException(
            f"aggregate() of sessions in Python ({describe_argument(functions[0])}) also needs a merger: a "
            "record between two sessions joins them into one; give `lambda key, one, other: one + other`, or "
            "aggregate with a Spark expression, aggregate(lambda key, value: F.sum(value))"
        )
    if not accepts(functions[1], 3):
        raise TopologyException(
            "the merger of aggregate() is a function of key, one aggregate and the other aggregate; "
            f"got {describe_argument(functions[1])}"
        )
    return nodes.Fold(functions[0], first, functions[1]), materialized
