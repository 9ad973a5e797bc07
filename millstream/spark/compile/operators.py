"""What waits until everything before it is built, as items of an operator: aggregations, joins and tables."""

from __future__ import annotations

from dataclasses import replace

from millstream.errors import TopologyException
from millstream.physical.joins import ForeignKey, Join, OfSides, Side, history_of
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import foreign_key_nodes, join_nodes
from millstream.spark.compile.aggregate_nodes import item_of_aggregation
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import Lane
from millstream.spark.compile.kernel_operators import Item, Results
from millstream.spark.compile.mergeable import NotMergeableError
from millstream.spark.compile.spark_aggregates import Pending
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Node

__all__ = [
    "item_of_pending",
    "pending_of",
    "put_joins",
]


def put_joins(building: Building, results: Results) -> None:
    """Put the lanes of the joins' results."""
    flow, _ = results.outputs
    for join, found in results.joined.items():  # a lane for each, so that additions do not leak
        flow.lanes[join] = Lane(found.key, found.left, found.flag)
    for join, found in results.joined.items():
        flag = flow.lanes.pop(join).keep
        assert flag is not None
        if isinstance(join, ForeignKey):
            foreign_key_nodes.joined(building, join, flow, replace(found, flag=flag))
        else:
            join_nodes.joined(building, join, flow, replace(found, flag=flag))


def pending_of(building: Building, node: Node) -> Pending:
    flow = building.flow
    lane = flow.lanes[building.plan.sides[node][0] if isinstance(node, OfSides) else node]
    remembers = building.stands_for.get(node, node) in building.remembering
    if isinstance(node, Side):
        remembers = node.remembers
    pending = Pending(node, flow, lane, remembers=remembers)
    if node in building.plan.remembering.by_time:
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
