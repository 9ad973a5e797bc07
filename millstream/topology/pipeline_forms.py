"""In which form a pipeline runs, and why. Pure.

*Continuous*: one batch of Spark's that goes on until it is asked to end, in which tasks commit by themselves.
*In batches*: a UDF gets many records at once, so a batch ends, and is committed, when no more are at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any

from millstream.topology.functions import describe_function
from millstream.topology.nodes import Aggregate, Node
from millstream.topology.pipeline import Pipeline

__all__ = ["needing_batches"]


def needing_batches(pipeline: Pipeline) -> tuple[str, ...]:
    """Why a pipeline runs in batches, as sentences; empty: it is continuous, as far as can be seen without
    compiling it."""
    found = {sentence: None for node in pipeline.nodes for sentence in _of_node(node)}
    return tuple(found)


def _of_node(node: Node) -> Iterable[str]:
    for function in _functions(node):
        for name in _udfs(function):
            yield (
                f"'{name}' in {describe_function(function)} is a UDF, to which Spark hands records in "
                "batches; functions of pyspark.sql need none."
            )


def _functions(node: Node) -> list[Callable[..., Any]]:
    """The user's functions in a node that are called with Columns."""
    found: list[Any] = []
    for value in vars(node).values():
        found += value if isinstance(value, tuple) else [value]
        found += vars(value).values() if isinstance(node, Aggregate) and value is node.aggregation else []
    return [each for each in found if callable(each) and not isinstance(each, type | Node)]


def _udfs(function: Any) -> list[str]:
    """The names of UDFs that a function refers to, as far as visible without calling it."""
    if _is_udf(function):
        return [getattr(function, "__name__", "a function")]
    plain = getattr(function, "__func__", function)
    code = getattr(plain, "__code__", None)
    if not isinstance(code, CodeType):
        return []
    seen: dict[str, Any] = {}
    names = {name for part in _codes(code) for name in part.co_names}
    seen |= {name: plain.__globals__[name] for name in sorted(names) if name in plain.__globals__}
    for name, cell in zip(code.co_freevars, plain.__closure__ or (), strict=True):
        try:
            seen[name] = cell.cell_contents
        except ValueError:  # it is still empty
            continue
    return [name for name, value in seen.items() if _is_udf(value)]


def _codes(code: CodeType) -> Iterable[CodeType]:
    """The code of a function and of the functions nested in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _codes(each)


def _is_udf(value: Any) -> bool:
    """Whether it is the result of PySpark's `udf`, `pandas_udf` or `arrow_udf`."""
    return callable(value) and not isinstance(value, type) and hasattr(value, "evalType")
