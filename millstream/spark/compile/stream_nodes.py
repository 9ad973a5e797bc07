"""The stateless operations of streams."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.printed import printing
from millstream.errors import TopologyException
from millstream.spark.compile.applying import add_result, apply, array_of, condition_of
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import TIMESTAMP, Lane
from millstream.spark.compile.peek import peek
from millstream.spark.compile.record_failures import computable, computed
from millstream.spark.compile.sink import Output
from millstream.spark.compile.trace import as_column
from millstream.spark.worker.printing import outlet, to_file, to_stdout
from millstream.topology import nodes
from millstream.topology.functions import arity, describe_function
from millstream.topology.nodes import Function, Node

__all__ = [
    "visit_branch",
    "visit_filter",
    "visit_flat_map",
    "visit_flat_map_values",
    "visit_map",
    "visit_map_values",
    "visit_merge",
    "visit_pass_through",
    "visit_peek",
    "visit_print",
    "visit_select_key",
]


def visit_filter(building: Building, node: nodes.Filter) -> None:
    flow, lane, alone = building.take(node.parents[0])
    condition = condition_of(node, node.predicate, flow, lane)
    lane, (condition,) = computable(building, node, node.predicate, flow, lane, condition)
    if node.negate:
        condition = ~F.coalesce(condition, F.lit(False))
    building.put(node, flow, flow.narrow(lane, condition, alone=alone and not flow.lanes))


def visit_map_values(building: Building, node: nodes.MapValues) -> None:
    flow, lane, _ = building.take(node.parents[0])
    mapped = apply(node, node.mapper, flow, lane)
    lane, value = computed(building, node, node.mapper, flow, lane, "v", mapped)
    building.put(node, flow, replace(lane, value=value, value_serde=None))


def visit_select_key(building: Building, node: nodes.SelectKey) -> None:
    flow, lane, _ = building.take(node.parents[0])
    mapped = apply(node, node.mapper, flow, lane)
    lane, key = computed(building, node, node.mapper, flow, lane, "k", mapped)
    building.put(node, flow, replace(lane, key=key, key_serde=None))


def visit_map(building: Building, node: nodes.Map) -> None:
    flow, lane, _ = building.take(node.parents[0])
    result = apply(node, node.mapper, flow, lane)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise TopologyException(
            f"{node.name} ({describe_function(node.mapper)}): map has to return a key and a value, "
            f"lambda key, value: (value.id, value.amount); this returned {type(result).__name__}"
        )
    lane, (new_key, new_value) = computable(building, node, node.mapper, flow, lane, *result)
    key = add_result(node, node.mapper, flow, lane, "k", new_key)
    value = add_result(node, node.mapper, flow, lane, "v", new_value)
    building.put(node, flow, replace(lane, key=key, value=value, key_serde=None, value_serde=None))


def visit_flat_map_values(building: Building, node: nodes.FlatMapValues) -> None:
    flow, lane, _ = building.take(node.parents[0])
    array = array_of(node, node.mapper, flow, apply(node, node.mapper, flow, lane))
    lane, (array,) = computable(building, node, node.mapper, flow, lane, array)
    lane, element = flow.explode(lane, array)
    building.put(node, flow, replace(lane, value=element, value_serde=None))


def visit_flat_map(building: Building, node: nodes.FlatMap) -> None:
    flow, lane, _ = building.take(node.parents[0])
    result = apply(node, node.mapper, flow, lane)
    if isinstance(result, list):
        result = [_pair(item) for item in result]
    array = array_of(node, node.mapper, flow, result)
    lane, (array,) = computable(building, node, node.mapper, flow, lane, array)
    lane, element = flow.explode(lane, array)
    type_ = flow.type_of(element)
    if not (isinstance(type_, T.StructType) and len(type_) == 2):
        raise TopologyException(
            f"{node.name} ({describe_function(node.mapper)}): flat_map has to return an array of "
            "(key, value) structs, or a list of (key, value) tuples; "
            f"its elements are {type_.simpleString()}"
        )
    key_name, value_name = type_.fieldNames()
    key = flow.with_column("k", F.col(element)[key_name])
    value = flow.with_column("v", F.col(element)[value_name])
    building.put(node, flow, replace(lane, key=key, value=value, key_serde=None, value_serde=None))


def _pair(item: Any) -> Column:
    if isinstance(item, tuple) and len(item) == 2:
        return F.struct(as_column(item[0]).alias("key"), as_column(item[1]).alias("value"))
    return as_column(item)


def visit_peek(building: Building, node: nodes.Peek) -> None:
    _look(building, node, node.action, arity(node.action) or 2, to_stdout)


def visit_print(building: Building, node: nodes.Print) -> None:
    write = to_stdout if node.path is None else to_file(node.path)
    _look(building, node, printing(node.label, node.mapper), 2, write)


def _look(
    building: Building, node: Node, action: Function, parameters: int, write: Callable[[str], None]
) -> None:
    """Have a Python function called with the rows of a stream, and what it prints written."""
    flow, lane, _ = building.take(node.parents[0])
    text = outlet(flow.outline.sparkSession, write)
    look = peek(action, parameters, building.codecs(flow, lane), text)
    key, value = F.col(lane.key), F.col(lane.value)
    # An output of its own, so that it is run once whatever else its rows go to.
    # The lane itself goes on as it is.
    building.put(node, flow, lane)
    empty = F.lit(None).cast("binary")
    output = Output(F.lit(""), empty, empty, look=lambda kept: look(kept, key, value, F.col(TIMESTAMP)))
    building.pin(node, flow, lane, output)


def visit_merge(building: Building, node: nodes.Merge) -> None:
    left, right = node.parents[0], node.parents[-1]
    if len(node.parents) == 1:  # a stream merged with itself: each record is there twice
        building.uses[building.before(left)] += 1
    flow, first, _ = building.take(left)
    _, second, _ = building.take(right)
    apart = left is not right and first.disjoint(second)
    for side in ("key", "value"):
        types = [flow.type_of(getattr(lane, side)) for lane in (first, second)]
        if types[0] != types[1]:
            raise TopologyException(
                f"{node.name}: merged streams need the same types, but the {side} of {left.name} is "
                f"{types[0].simpleString()} and that of {right.name} {types[1].simpleString()}"
            )
    if apart:
        take_first, keep = flow.belongs_to(first), flow.belongs_to(first) | flow.belongs_to(second)
    else:  # a row can belong to both, and then it is there twice
        index = F.col(flow.fan_out([first, second]))
        take_first = index == 0
        keep = F.when(take_first, flow.belongs_to(first)).otherwise(flow.belongs_to(second))
    lane = Lane(
        key=flow.with_column("k", F.when(take_first, F.col(first.key)).otherwise(F.col(second.key))),
        value=flow.with_column("v", F.when(take_first, F.col(first.value)).otherwise(F.col(second.value))),
        keep=flow.with_column("f", keep),
        key_serde=first.key_serde if first.key_serde == second.key_serde else None,
        value_serde=first.value_serde if first.value_serde == second.value_serde else None,
        routes=_routes_of_both(first, second),
    )
    building.put(node, flow, lane)


def _routes_of_both(first: Lane, second: Lane) -> tuple[tuple[Node | None, frozenset[int]], ...]:
    others = dict(second.routes)
    return tuple((node, taken | others[node]) for node, taken in first.routes if node in others)


def visit_branch(building: Building, node: nodes.Branch) -> None:
    flow, lane, _ = building.take(node.parents[0])
    choice = F.lit(len(node.predicates))
    for index in reversed(range(len(node.predicates))):
        predicate = condition_of(node, node.predicates[index], flow, lane)
        choice = F.when(predicate, F.lit(index)).otherwise(choice)
    if node.predicates:
        lane, (choice,) = computable(building, node, node.predicates[0], flow, lane, choice)
    building.choices[node] = flow.with_column("c", flow.own(lane, choice))
    building.put(node, flow, lane)


def visit_pass_through(building: Building, node: nodes.PassThrough) -> None:
    parent = node.parents[0]
    flow, lane, alone = building.take(parent)
    lane = flow.narrow(lane, F.col(building.choices[parent]) == node.index, alone=alone)
    building.put(node, flow, replace(lane, routes=(*lane.routes, (parent, frozenset([node.index])))))
