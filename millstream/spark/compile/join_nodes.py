"""Turns join nodes into the items of an operator, and the results of these into rows.

physical/kernel_joins.py describes these items; joins by a foreign key are in foreign_key_nodes.py, which
builds on this.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.kernel.constants import SIDE_LEFT
from millstream.physical.kernel_joins import (
    ForeignKey,
    Join,
    Lookup,
    Side,
    is_quiet,
    links_of,
)
from millstream.physical.tables import is_cached
from millstream.spark.compile.applying import add_result
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import HEADERS, OFFSET, PARTITION, TOPIC, Flow, Lane
from millstream.spark.compile.kernel_operators import Item, JoinColumns, item_of
from millstream.spark.compile.pending import Pending
from millstream.spark.compile.record_failures import computable, computed, of_before
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.compile.trace import as_column, called
from millstream.topology import nodes
from millstream.topology.functions import arity, describe_function
from millstream.topology.nodes import (
    JoinType,
    Node,
    StreamJoin,
    StreamTableJoin,
    TableJoin,
)
from millstream.topology.pipeline import Pipeline

__all__ = [
    "Joining",
    "check_keys",
    "item_of_join",
    "join_values",
    "joined",
    "visit_stream_join",
    "visit_stream_table_join",
    "visit_table_join",
    "wait_for_sides",
]


Joining = Lookup | StreamJoin | TableJoin | nodes.ForeignKeyJoin
"""The nodes that have a joiner."""


_FUNCTIONS = ("mapper", "predicate", "action", "topic_function", "partitioner", "expression", "selector")
"""The attributes of nodes with functions that may use a record's origin."""


# --- before the operator -----------------------------------------------------------------------------------


def visit_stream_table_join(building: Building, node: StreamTableJoin) -> None:
    stream, table = node.parents
    (right,) = wait_for_sides(building, node, table)
    flow, lane, _ = building.take(stream)
    building.wait(node, flow, lane)
    _check_keys(building, node, flow, lane, right)


def visit_stream_join(building: Building, node: StreamJoin) -> None:
    if len(node.parents) == 1:  # a stream joined with itself
        building.uses[building.before(node.parents[0])] += 1
    _two_sides(building, node)


def visit_table_join(building: Building, node: TableJoin) -> None:
    if len(node.parents) == 1:  # both sides of it change at once, so they are one
        wait_for_sides(building, node, node.parents[0])
        return
    _two_sides(building, node)


def _two_sides(building: Building, node: StreamJoin | TableJoin) -> None:
    left, right = wait_for_sides(building, node, node.parents[0], node.parents[-1])
    flow = building.flow
    _check_keys(building, node, flow, flow.lanes[left], right)


def wait_for_sides(building: Building, join: Join, *parents: Node) -> tuple[Side, ...]:
    """Have what a join keeps of its parents wait, unless it is another join's, too, and waits already."""
    sides = building.plan.sides[join]
    for side, parent in zip(sides, parents, strict=False):
        flow, lane, _ = building.take(parent)
        if side not in flow.lanes:
            building.wait(side, flow, lane)
    return sides


def _check_keys(building: Building, join: Join, flow: Flow, lane: Lane, right: Side) -> None:
    other = building.flow
    check_keys(join, flow.type_of(lane.key), other.type_of(other.lanes[right].key))


def check_keys(join: Join, left: T.DataType, right: T.DataType | None) -> None:
    """Raises a TopologyException if the keys of both sides have not the same type, as far as it is known."""
    if right is not None and left != right:
        raise TopologyException(
            f"{join.name}: a join needs keys of the same type on both sides, but the keys of "
            f"{join.parents[0].name} are {left.simpleString()}, the keys of {join.parents[-1].name} are "
            f"{right.simpleString()}; use select_key() to give a stream other keys"
        )


# --- items -------------------------------------------------------------------------------------------------


def item_of_join(building: Building, pending: Pending) -> Item:
    node, flow, lane = pending.node, pending.flow, pending.lane
    assert isinstance(node, Join | Side)
    join = node.join if isinstance(node, Side) else node
    # One serde for both sides, because the written bytes are compared.
    right = building.plan.sides[join][-1]
    other = building.flow
    key_serde = building.key_serde_of(
        join.parents[-1], other.lanes[right].key_serde or lane.key_serde, flow.type_of(lane.key)
    )
    waits = isinstance(node, StreamTableJoin) and node.grace_ms is not None
    carried = [HEADERS] if waits else []  # otherwise the kernel emits those of the record at hand
    if waits or _asks_for_context(building.context.handlers, building.pipeline):
        carried += [TOPIC, PARTITION, OFFSET]
    item = item_of(
        pending,
        flow.df,
        building.names,
        key_serde,
        at_once=not (
            isinstance(join, TableJoin) and is_cached(node.parents[0], by_default=building.context.cached)
        ),
        carried=carried if isinstance(node, Lookup) else building.carried.get(node, ()),
    )
    return replace(item, links=links_of(node, building.plan.sides))


def _asks_for_context(handlers: RecordHandlers, pipeline: Pipeline) -> bool:
    """Whether anything uses a record's origin."""
    given = [getattr(node, "aggregation", node) for node in pipeline.nodes]
    functions = [getattr(each, name, None) for each in given for name in _FUNCTIONS]
    functions += [one for node in pipeline.nodes for one in getattr(node, "predicates", ())]
    return handlers.any or any(arity(function) == 3 for function in functions if function is not None)


# --- behind the operator -----------------------------------------------------------------------------------


def joined(building: Building, node: Join, flow: Flow, found: JoinColumns) -> None:
    """Put the lane of a join's results."""
    assert not isinstance(node, ForeignKey)
    left, right = F.col(found.left), F.col(found.right)
    lane = Lane(found.key, found.left, found.flag, found.key_serde)
    if isinstance(node, Lookup) and node.type is JoinType.INNER:
        lane = flow.narrow(lane, right.isNotNull(), alone=False)
    if isinstance(node, TableJoin):
        building.put(node, flow, _joined_rows(building, node, flow, lane, found))
        return
    made = join_values(node, flow, lane, left, right)
    lane, value = computed(building, node, node.joiner, flow, lane, "v", made)
    building.put(node, flow, replace(lane, value=value))


def join_values(node: Joining, flow: Flow, lane: Lane, left: Column, right: Column) -> Column:
    """The joiner's result for two values."""
    key = () if arity(node.joiner) == 2 else (F.col(lane.key),)
    made = called(node, node.joiner, *key, left, right)
    if made is None:
        raise TopologyException(
            f"{node.name} ({describe_function(node.joiner)}): the joiner returned None; it has to return "
            "a Column (is there a `return` missing?); a null is F.lit(None)"
        )
    return as_column(made)


def _joined_rows(building: Building, node: TableJoin, flow: Flow, lane: Lane, joined: JoinColumns) -> Lane:
    """The joined rows of two tables, and their old values.

    Source: KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin, KTableKTableOuterJoin.
    """
    assert joined.old_left is not None
    assert joined.old_right is not None
    sides = F.col(joined.left), F.col(joined.right)
    olds = F.col(joined.old_left), F.col(joined.old_right)

    def value(left: Column, right: Column) -> Column:
        there = {
            JoinType.INNER: left.isNotNull() & right.isNotNull(),
            JoinType.LEFT: left.isNotNull(),
            JoinType.OUTER: left.isNotNull() | right.isNotNull(),
        }[node.type]
        return F.when(there, join_values(node, flow, lane, left, right))

    is_left = F.col(joined.side) == SIDE_LEFT
    emitted = {
        JoinType.INNER: F.when(is_left, sides[1].isNotNull()).otherwise(sides[0].isNotNull()),
        JoinType.LEFT: F.when(is_left, _any(*sides, olds[0])).otherwise(sides[0].isNotNull()),
        JoinType.OUTER: _any(*sides, *olds),
    }[node.type]
    for place, changed in ((0, is_left), (-1, ~is_left)):
        if is_quiet(node.parents[place]):
            emitted &= ~changed | _any(sides[place], olds[place])
    lane = flow.narrow(lane, emitted, alone=False)
    lane, (now,) = computable(building, node, node.joiner, flow, lane, value(*sides))
    (before,) = of_before(building, flow, lane, value(*olds))
    result, old = (add_result(node, node.joiner, flow, lane, "v", each) for each in (now, before))
    # In a store of its own it has the time of its last update, otherwise that of the rows that are left.
    return replace(lane, value=result, old=old, since=joined.since if node.store is None else None)


def _any(*values: Column) -> Column:
    """Whether one of these is not NULL."""
    return reduce(or_, (value.isNotNull() for value in values))
