"""Turns aggregation nodes into the items of an operator (kernel_operators.py)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.physical.tables import is_joined
from millstream.serdes.serde import Serde
from millstream.spark.compile.building import Building
from millstream.spark.compile.kernel_operators import Item, item_of
from millstream.spark.compile.pending import Pending
from millstream.spark.compile.stream_nodes import visit_merge
from millstream.spark.worker.folding import FoldSerdes
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import Function, Node
from millstream.topology.windows import SlidingWindows

__all__ = [
    "Cogrouped",
    "Contribution",
    "item_of_aggregation",
    "visit_aggregate",
    "visit_cogroup",
]


@dataclass(frozen=True, eq=False)
class Contribution(Node):
    """What one stream contributes to a cogroup. Internal: it occurs in no topology."""


@dataclass(frozen=True)
class Cogrouped:
    """The adders of a cogroup as one: it takes values prefixed by the number of their stream, or by 0."""

    adders: tuple[Function, ...]
    readers: tuple[Serde, ...]

    def __call__(self, key: Any, value: bytes, aggregate: Any) -> Any:
        number, there = value[0], value[1]
        read = self.readers[number].deserialize(value[2:]) if there else None
        return self.adders[number](key, read, aggregate)


def visit_aggregate(building: Building, node: nodes.Aggregate) -> None:
    flow, lane, _ = building.take(node.parents[0])
    building.wait(node, flow, lane)


def visit_cogroup(building: Building, node: nodes.Cogroup) -> None:
    """Compile a cogroup as the fold of one stream whose values name the stream they come from."""
    readers: list[Serde] = []
    merged: Node | None = None
    for number, parent in enumerate(node.parents):
        flow, lane, _ = building.take(parent)
        _, (value_serde, written) = building.codecs(flow, lane)
        readers.append(value_serde)
        there = F.concat(F.lit(bytes([number, 1])), written(F.col(lane.value)))
        written_value = F.when(F.col(lane.value).isNotNull(), there)
        if node.windows is not None and not isinstance(node.windows, SlidingWindows):
            written_value = F.coalesce(written_value, F.lit(bytes([number, 0])))  # these fold a null, too
        part = Contribution(f"{node.name}-{number}", (parent,))
        value = flow.with_column("v", flow.own(lane, written_value))
        flow.lanes[part] = replace(lane, value=value, value_serde=None)
        building.uses[part] = 1
        if merged is None:
            merged = part
        else:
            both = nodes.Merge(node.name, (merged, part))
            building.uses[both] = 1
            visit_merge(building, both)
            merged = both
    assert merged is not None
    flow, lane, _ = building.take(merged)
    fold = nodes.Fold(Cogrouped(node.adders, tuple(readers)), node.initializer, node.merger)
    stands_in = nodes.Aggregate(node.name, (merged,), fold, node.stored, node.windows)
    building.folds[node] = stands_in
    building.stands_for[stands_in] = node
    building.wait(stands_in, flow, lane)


def item_of_aggregation(building: Building, pending: Pending) -> Item:
    """An aggregation for the kernel.

    Raises:
        NotMergeableError: the kernel cannot compute it.
    """
    node, flow, lane = pending.node, pending.flow, pending.lane
    store = node.store
    key_type = flow.type_of(lane.key)
    declared = store.key_serde if store is not None else None
    key_serde = pending.group_key_serde or building.settle(
        declared, lane.key_serde, building.context.default_key_serde, key_type
    )
    using = _fold_serdes(building, pending) if pending.is_fold else None
    of = building.stands_for.get(node, node)
    is_cached = building.context.cached and (store is None or store.cached)
    item = item_of(
        pending,
        flow.df,
        building.names,
        key_serde if using is None else using.key,
        at_once=not is_cached or is_joined(building.pipeline, of),
        using=using,
    )
    if item.core == "sessions" and not is_cached:
        # Source: KStreamSessionWindowAggregate, which then forwards records of its own.
        item = replace(item, settings={**item.settings, "bare": 1})
    held_back = building.plan.held_back.get(of, ())
    if held_back:
        building.uses[of] -= len(held_back)
    return replace(item, held_back=held_back)


def _fold_serdes(building: Building, item: Pending) -> FoldSerdes:
    """The serdes of a Python fold's key, value and aggregate."""
    store = item.node.store
    assert store is not None
    (key, _), (value, _) = building.codecs(item.flow, item.lane)
    key = item.group_key_serde or store.key_serde or key
    aggregate = store.value_serde
    if aggregate is None:
        assert isinstance(item.node, nodes.Aggregate)
        assert isinstance(item.node.aggregation, nodes.Fold | nodes.TableFold)
        aggregation = item.node.aggregation
        if aggregation.initializer is None:  # a reduce: the aggregate is a value
            aggregate = value
        elif building.context.default_value_serde is not None:
            aggregate = building.context.default_value_serde
        else:
            raise TopologyException(
                f"{item.node.name} ({describe_function(aggregation.adder)}): a Python aggregation needs "
                "the serde of its result, "
                "Materialized.as_('totals').with_value_serde(Serdes.json('total double, n long'))"
            )
    changelog = changelog_topic(building.context.application_id, store.name)
    key, aggregate = building.bound(key, changelog, is_key=True), building.bound(aggregate, changelog)
    return FoldSerdes(key, value, aggregate)
