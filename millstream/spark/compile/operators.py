"""What waits until everything before it is built, as items of an operator: aggregations, joins and tables."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import TopologyException
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import foreign_key_nodes, join_nodes
from millstream.spark.compile.aggregate_nodes import item_of_aggregation
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import Flow, Lane
from millstream.spark.compile.kernel_joins import ForeignKey, Join, JoinColumns, OfSides, Side, history_of
from millstream.spark.compile.kernel_operators import Item, Results
from millstream.spark.compile.mergeable import NotMergeableError
from millstream.spark.compile.spark_aggregates import Pending
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Node

__all__ = [
    "item_of_pending",
    "order_of",
    "pending_of",
    "put_joins",
]


def put_joins(building: Building, results: Results) -> set[Node]:
    """Put the lanes of the joins' results; returns the joins that are then complete."""
    flow, _ = results.outputs
    for join, found in results.joined.items():  # a lane for each, so that additions do not leak
        flow.lanes[join] = Lane(found.key, found.left, found.flag)
    done: set[Node] = set()
    for join, found in results.joined.items():
        flag = flow.lanes.pop(join).keep
        assert flag is not None
        if _joined(building, join, flow, replace(found, flag=flag)):
            done.add(join)
    return done


def _joined(building: Building, join: Join, flow: Flow, found: JoinColumns) -> bool:
    """Put the lane of a join's results; returns whether the join is then complete."""
    if isinstance(join, ForeignKey):
        return foreign_key_nodes.joined(building, join, flow, found)
    join_nodes.joined(building, join, flow, found)
    return True


def order_of(building: Building, node: Node) -> tuple[int, int]:
    if isinstance(node, Side):
        return building.pipeline.nodes.index(node.join), 0 if node.is_left else 1
    at = building.stands_for.get(node, node)
    nodes_ = building.pipeline.nodes
    return nodes_.index(at if at in nodes_ else at.parents[0]), 2


def pending_of(building: Building, node: Node) -> Pending:
    flow = building.flow
    lane = flow.lanes[building.sides[node][0] if isinstance(node, OfSides) else node]
    remembers = building.stands_for.get(node, node) in building.remembering
    if isinstance(node, Side):
        remembers = node.remembers
    pending = Pending(node, flow, lane, remembers=remembers)
    if node in building.grouped_by_time:
        pending = replace(pending, history_ms=history_of(node))
    if isinstance(node, nodes.Suppress) and isinstance(lane.key_serde, WindowedSerde):
        return replace(pending, group_key_serde=lane.key_serde.inner)
    if pending.windows is None:
        return pending
    declared = node.store.key_serde if node.store is not None else None
    inner = building.settle(
        declared, lane.key_serde, building.context.default_key_serde, flow.type_of(lane.key)
    )
    return replace(pending, group_key_serde=inner)


def item_of_pending(building: Building, pending: Pending) -> Item:
    """One of the operator's items.

    Raises:
        TopologyException: it aggregates with a function of Spark's that has no partial results to keep.
    """
    if isinstance(pending.node, Join | Side):
        return join_nodes.item_of_join(building, pending)
    try:
        return item_of_aggregation(building, pending)
    except NotMergeableError as error:
        raise TopologyException(
            f"{_place(pending.node)}: {error}, so it would need all records of a key for each new one. Write "
            "it as a Python fold, which keeps what it needs:\n"
            "  .aggregate(list, lambda key, value, kept: [*kept, value.amount],\n"
            "             Materialized.as_('amounts').with_value_serde(Serdes.json('array<double>')))"
        ) from error


def _place(node: Node) -> str:
    """A node and its function, for a message."""
    aggregation = node.aggregation if isinstance(node, nodes.Aggregate) else None
    if isinstance(aggregation, nodes.ColumnAggregation):
        return f"{node.name} ({describe_function(aggregation.expression)})"
    return node.name
