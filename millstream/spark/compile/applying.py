"""Applies the program's functions to the records of a lane; the results are Columns of its flow."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.spark.compile.flow import Flow, Lane
from millstream.spark.compile.trace import as_column, trace, translated
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Function, Node

__all__ = [
    "add_result",
    "apply",
    "array_of",
    "condition_of",
]


def apply(node: Node, function: Function, flow: Flow, lane: Lane) -> Any:
    """The result of a function for a key and a value, and for the record if it takes one (trace.py)."""
    return trace(node, function, F.col(lane.key), F.col(lane.value), flow.record)


def condition_of(node: Node, function: Function, flow: Flow, lane: Lane) -> Column:
    """The result of a predicate, as a boolean Column."""
    condition = as_column(apply(node, function, flow, lane))
    type_ = translated(node, function, lambda: flow.type_for(condition))
    if not isinstance(type_, (T.BooleanType, T.NullType)):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): a predicate must return a boolean Column; this "
            f"one returns {type_.simpleString()}"
        )
    return condition


def array_of(node: Node, function: Function, flow: Flow, result: Any) -> Column:
    """A function's result, as an array Column."""
    array = as_column(result)
    type_ = translated(node, function, lambda: flow.type_for(array))
    if not isinstance(type_, T.ArrayType):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): the function must return an array Column or a "
            f"list; this one returns {type_.simpleString()}"
        )
    return array


def add_result(node: Node, function: Function, flow: Flow, lane: Lane, kind: str, result: Any) -> str:
    """Add a column with a function's result; Spark's errors about it name the function."""
    name: str = translated(node, function, lambda: flow.with_column(kind, flow.own(lane, as_column(result))))
    return name
