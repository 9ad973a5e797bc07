"""Has a user's function called with the rows of its own stream alone, in Spark's workers (OwnRows.java).

Its first argument says which rows are its own. The others have no result, and it never sees them. A function
that gets many rows at once gets fewer; one that gets none is not called.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial, wraps
from typing import Any

from pyspark.core.broadcast import Broadcast
from pyspark.serializers import CPickleSerializer
from pyspark.util import PythonEvalType

__all__ = ["for_own_rows"]

Function = Callable[..., Any]


def for_own_rows(command: bytes, kind: int) -> tuple[Function, Any]:
    """A function that Spark has pickled, with the type of its result, for rows that say whose they are.

    Args:
        kind: how Spark calls it (PythonEvalType).
    """
    pickler = CPickleSerializer()
    found: Any = pickler.loads(command)  # type: ignore[no-untyped-call]
    if isinstance(found, Broadcast):  # a large one
        found = pickler.loads(found.value)  # type: ignore[no-untyped-call]
    function, type_ = found
    return wraps(function)(partial(_WAYS[kind], function)), type_


def _each(function: Function, is_own: bool, *values: Any, **named: Any) -> Any:
    return function(*values, **named) if is_own else None


def _series(function: Function, is_own: Any, *values: Any, **named: Any) -> Any:
    """Of pandas Series, or DataFrames for structs."""
    if is_own.all():
        return function(*values, **named)
    own = [each[is_own].reset_index(drop=True) for each in values]
    named = {name: each[is_own].reset_index(drop=True) for name, each in named.items()}
    return _spread_series(function(*own, **named) if is_own.any() else None, is_own)


def _spread_series(result: Any, is_own: Any) -> Any:
    import pandas as pd

    if result is None:
        return pd.Series([None] * len(is_own), dtype=object)
    # As objects, because a whole number with gaps would become a float.
    return result.astype(object).set_axis(is_own.index[is_own]).reindex(is_own.index)


def _arrays(function: Function, is_own: Any, *values: Any, **named: Any) -> Any:
    """Of pyarrow Arrays."""
    own = [each.filter(is_own) for each in values]
    named = {name: each.filter(is_own) for name, each in named.items()}
    return _spread_array(function(*own, **named) if is_own.true_count else None, is_own)


def _spread_array(result: Any, is_own: Any) -> Any:
    import pyarrow as pa

    if result is None:
        return pa.nulls(len(is_own))
    places = iter(range(len(result)))
    return result.take(pa.array([next(places) if own else None for own in is_own.to_pylist()], pa.int64()))


def _many(
    of_own: Function, spread: Function, function: Function, batches: Iterable[tuple[Any, ...]]
) -> Iterator[Any]:
    """Of batches of Series or Arrays: the function iterates over those with rows of its own."""
    flags: deque[tuple[Any, bool]] = deque()

    def own() -> Iterator[Any]:
        for is_own, *values in batches:
            found = [of_own(each, is_own) for each in values]
            some = bool(len(found[0])) if found else True
            flags.append((is_own, some))
            if some:
                yield found[0] if len(found) == 1 else tuple(found)

    def skipped() -> Iterator[Any]:
        while flags and not flags[0][1]:
            yield spread(None, flags.popleft()[0])

    for result in function(own()):
        yield from skipped()
        yield spread(result, flags.popleft()[0])
    yield from skipped()


_WAYS: dict[int, Function] = {
    PythonEvalType.SQL_BATCHED_UDF: _each,
    PythonEvalType.SQL_ARROW_BATCHED_UDF: _each,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF: _series,
    PythonEvalType.SQL_SCALAR_ARROW_UDF: _arrays,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF: partial(
        _many, lambda each, is_own: each[is_own].reset_index(drop=True), _spread_series
    ),
    PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF: partial(
        _many, lambda each, is_own: each.filter(is_own), _spread_array
    ),
}
