"""What `reduce` and `aggregate` are given, checked: a Spark expression, or Python functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.dsl.ktable import check_function
from millstream.errors import TopologyException
from millstream.topology import nodes
from millstream.topology.functions import accepts, arity, describe_function

__all__ = ["aggregation_of", "reduction_of"]


def reduction_of(reducer: Any) -> nodes.Aggregation:
    """What the function of `reduce()` means.

    Raises:
        TopologyException: it is not a function of one parameter or two.
    """
    takes = arity(reducer) if callable(reducer) else None
    if takes not in (1, 2):
        raise TopologyException(
            f"reduce() takes `lambda value: F.max(value)`, a Spark aggregate expression, or "
            f"`lambda aggregate, value: …`, a Python function; got {_shown(reducer)}"
        )
    return nodes.ColumnAggregation(reducer) if takes == 1 else nodes.Fold(reducer)


def aggregation_of(
    first: Any, rest: Sequence[Any], materialized: Any, *, merges: bool = False
) -> tuple[nodes.Aggregation, Any]:
    """What the positional arguments of `aggregate()` mean, and its Materialized, which may be among them.

    `merges`: sessions merge, so Python functions need one more for that, unlike a Spark expression.

    Raises:
        TopologyException: they are not of one of the forms.
    """
    positional = list(rest)
    functions: list[Any] = []
    while positional and callable(positional[0]) and len(functions) < (2 if merges else 1):
        functions.append(positional.pop(0))
    if positional and materialized is None:
        materialized = positional.pop(0)
    python = "an initializer, an adder and a merger" if merges else "an initializer and an adder"
    if positional:
        raise TopologyException(
            f"aggregate() takes an expression, or {python}, and then a Materialized; "
            f"got {positional[0]!r} besides"
        )
    if not functions:
        check_function("aggregate", first)
        return nodes.ColumnAggregation(first), materialized
    if not callable(first) or not accepts(first, 0):
        raise TopologyException(
            "the initializer of aggregate() is a function of nothing, such as `lambda: 0`; "
            f"got {_shown(first)}"
        )
    if not accepts(functions[0], 3):
        raise TopologyException(
            f"the adder of aggregate() is a function of key, value and aggregate; got {_shown(functions[0])}"
        )
    if not merges:
        return nodes.Fold(functions[0], first), materialized
    if len(functions) < 2:
        raise TopologyException(
            f"aggregate() of sessions in Python ({_shown(functions[0])}) needs a merger as well: a record "
            "between two sessions makes one of them; give `lambda key, one, other: one + other`, or "
            "aggregate with a Spark expression, aggregate(lambda key, value: F.sum(value))"
        )
    if not accepts(functions[1], 3):
        raise TopologyException(
            "the merger of aggregate() is a function of key, one aggregate and the other; "
            f"got {_shown(functions[1])}"
        )
    return nodes.Fold(functions[0], first, functions[1]), materialized


def _shown(function: Any) -> str:
    return describe_function(function) if callable(function) else repr(function)
