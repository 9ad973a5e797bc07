"""Turns pending work into stateful operators: how it is grouped, what is kept, and what is returned.

Aggregations, joins and tables wait until everything before them is built. All those of one flow, and of the
flows that joins connect, are items of one operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.serdes.serdes import Serdes
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import foreign_key_nodes, join_nodes
from millstream.spark.compile.aggregate_nodes import item_of_aggregation
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import Flow, Lane
from millstream.spark.compile.kernel_joins import ForeignKey, Join, JoinColumns, OfSides, Side, history_of
from millstream.spark.compile.kernel_operators import Item, Results, aggregate, layout
from millstream.spark.compile.mergeable import NotMergeableError
from millstream.spark.compile.record_failures import count_failures, needs_letters
from millstream.spark.compile.restore import RestoredAggregate
from millstream.spark.compile.sink import Output
from millstream.spark.compile.spark_aggregates import Pending, group
from millstream.spark.run.dropped import LATE
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.names import internal_topic
from millstream.topology.nodes import Node, StreamGlobalTableJoin, StreamTableJoin, TableJoin
from millstream.topology.pipeline import Scan, input_label
from millstream.topology.subtopology import DisjointSets

__all__ = [
    "BY_SPARK",
    "PassedThrough",
    "build_operators",
    "item_of_pending",
    "operators",
    "order_of",
    "pending_of",
    "put_joins",
]


BY_SPARK = "by Spark's own operator"
"""The layout of state that is not the kernel's; Spark checks it itself."""


@dataclass(frozen=True, eq=False)
class PassedThrough(Node):
    """An output of a flow before an operator that passes through it. Internal: it occurs in no topology."""


def build_operators(building: Building) -> set[Node]:
    """Turn what waits into stateful operators: one for each group of flows that joins connect, and one more
    of Spark's own for aggregations that the kernel cannot compute.
    """
    aggregated: set[Node] = set()
    # State is kept by their numbers, so the numbers must not depend on stateless steps.
    building.pending.sort(key=partial(order_of, building))
    # A join with a global table comes first, and alone: its results are unordered until they are sorted.
    first = next((node for node in building.pending if isinstance(node, StreamGlobalTableJoin)), None)
    now = list(building.pending) if first is None else [*building.sides[first], first]
    later = [node for node in building.pending if node not in now]
    building.pending = list(now)
    for flows in _groups(building):
        aggregated |= _build(building, flows)
    for node in now:
        building.sides.pop(node, None)
    building.pending = [*later, *building.pending[len(now) :]]
    return aggregated


def _build(building: Building, flows: list[Flow]) -> set[Node]:
    """Build the operators of what waits in these flows; returns the nodes that are then complete."""
    mine = [pending_of(building, node) for node in building.pending if _flow_of(building, node) in flows]
    for flow in flows:
        flow.count_dropped()
    on_kernel, by_spark = _taken_apart(building, mine)
    _note_layouts(building, on_kernel, by_spark)
    if not (on_kernel and by_spark) and len(flows) == 1:
        _look_ahead(building, flows[0], {item.node for item in mine})
    made = []
    for flow in flows:
        if theirs := [item for item in by_spark if item.flow is flow]:
            made.append((group(theirs, building.names), _stores(by_spark)))
    results = _on_kernel(building, flows, on_kernel, alone=not by_spark) if on_kernel else None
    if results is not None:
        made.append((results.outputs, _labels(on_kernel)))
    for flow in flows:
        for item in mine:
            flow.lanes.pop(item.node, None)
        if not flow.lanes:
            building.flows.remove(flow)
    done: set[Node] = set()
    for (new, lanes), feeds in made:
        new.scans = tuple(replace(scan, feeds=(*scan.feeds, *feeds)) for flow in flows for scan in flow.scans)
        building.flows.append(new)
        for waited, lane in lanes.items():
            node = building.stands_for.get(waited, waited)
            if waited in building.parts:
                building.parts[node] = building.parts[waited]
            building.put(node, new, lane, None if results is None else results.stored.get(waited))
            done.add(node)
    return done if results is None else done | put_joins(building, results)


def _on_kernel(building: Building, flows: list[Flow], items: list[Item], *, alone: bool) -> Results:
    """The kernel's operator of these items. `alone`: Spark has no operator beside it."""
    wanted = any(building.is_wanted(item.pending.node) for item in items)
    state_of = building.context.state_of if wanted else None
    passing: dict[Node, tuple[Lane, Output]] = {}
    if state_of is None and alone and len(flows) == 1:
        passing = _passing(building, flows[0], {item.pending.node for item in items})
    results = aggregate(
        items,
        building.names,
        list(passing.values()),
        letters=needs_letters(building.context.handlers),
        patience_ms=building.context.patience_ms,
        as_they_come=building.context.real_time,
        state_of=state_of,
        restored=None if building.context.restored is None else partial(_restored, building),
    )
    _pass(building, flows[0], passing, results)
    building.parts |= results.parts
    for one in results.late:
        count_failures(building, one.item.pending.node, results.outputs[0], one.flag, LATE, one.what)
    return results


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


def _flow_of(building: Building, node: Node) -> Flow:
    return building.flow_of(building.sides[node][0] if isinstance(node, OfSides) else node)


def _groups(building: Building) -> list[list[Flow]]:
    """The flows in which something waits, grouped as joins connect them, in the order of what waits."""
    flows = {id(flow): flow for flow in (_flow_of(building, node) for node in building.pending)}
    groups = DisjointSets(flows)
    for node in building.pending:
        for side in building.sides.get(node, ()):
            groups.unite(id(_flow_of(building, node)), id(building.flow_of(side)))
    together: dict[int, list[Flow]] = {}
    for key, flow in flows.items():
        together.setdefault(groups.root(key), []).append(flow)
    return list(together.values())


def pending_of(building: Building, node: Node) -> Pending:
    flow = _flow_of(building, node)
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


def _look_ahead(building: Building, flow: Flow, but: Collection[Node]) -> None:
    """If only one operator needs the rows, let `peek` steps see them on their way there.

    As an output of its own, a peek would have the source read once more.
    """
    looks = {node: building.outputs[node].look for node in _only_written(building, flow, but) or ()}
    if any(look is None for look in looks.values()):
        return
    for node, look in looks.items():
        assert look is not None
        flow.df = flow.df.where(look(flow.belongs_to(flow.lanes.pop(node))))
        flow.pinned.discard(node)


def _only_written(building: Building, flow: Flow, but: Collection[Node]) -> list[Node] | None:
    """The nodes whose lanes are written, besides those of an operator that comes next.

    None: a later step needs the rows of one of them as well, so the flow stays as it is.
    """
    others = [node for node in flow.lanes if node not in but]
    if any(node not in flow.pinned or building.uses.get(node) for node in others):
        return None
    return others


# --- items -------------------------------------------------------------------------------------------------


def _taken_apart(building: Building, pending: list[Pending]) -> tuple[list[Item], list[Pending]]:
    """The aggregations that the kernel can merge, and those that only Spark's own operator can compute."""
    items, others = [], []
    for each in pending:
        try:
            items.append(item_of_pending(building, each))
        except NotMergeableError as error:
            if each.windows is not None:
                raise TopologyException(
                    f"{_place(each.node)}: a windowed aggregation is merged from partial results, but "
                    f"{error}. Use a Python aggregation instead: aggregate(initializer, adder), for sessions "
                    "with a merger"
                ) from error
            others.append(each)
    # State is kept by their numbers, so items without state come after items with state.
    return sorted(items, key=lambda item: not item.has_state), others


def item_of_pending(building: Building, pending: Pending) -> Item:
    """One of the operator's items.

    Raises:
        NotMergeableError: the kernel cannot compute it.
    """
    if isinstance(pending.node, Join | Side):
        return join_nodes.item_of_join(building, pending)
    return item_of_aggregation(building, pending)


def _restored(building: Building, item: Item) -> DataFrame:
    """The contents of an aggregation's changelog."""
    node = item.pending.node
    store = node.store
    if store is None or not store.logged:
        raise TopologyException(f"{node.name}: without a changelog its state cannot be restored")
    if item.emits_on_close:
        raise TopologyException(
            f"{node.name}: its changelog does not say which windows were emitted, so its state cannot be "
            "restored"
        )
    assert building.context.restored is not None
    if item.using is not None:
        value = Serdes.bytes()
    else:
        value = building.settle(
            store.value_serde,
            item.pending.lane.value_serde if isinstance(node, nodes.ToTable) else None,
            building.context.default_value_serde,
            item.parts.type,
        )
    topic = internal_topic(building.context.application_id, f"{store.name}-changelog")
    return building.context.restored(
        topic, RestoredAggregate(store.kind, item.pending.windows, value, item.parts)
    )


def _place(node: Node) -> str:
    """A node and its function, for a message."""
    aggregation = node.aggregation if isinstance(node, nodes.Aggregate) else None
    if isinstance(aggregation, nodes.ColumnAggregation):
        return f"{node.name} ({describe_function(aggregation.expression)})"
    return node.name


# --- what passes through -----------------------------------------------------------------------------------


def _passing(building: Building, flow: Flow, but: Collection[Node]) -> dict[Node, tuple[Lane, Output]]:
    """The outputs of an operator's results when another operator is next.

    Spark computes a flow once for each output. To have only one, all others pass through the next operator
    unchanged. Empty if that is impossible.
    """
    # A second read of the source is cheaper than a shuffle; Real-Time Mode does not do it.
    if not building.context.real_time and not any(scan.feeds for scan in flow.scans):
        return {}
    others = _only_written(building, flow, but)
    if others is None or any(building.outputs[node].look is not None for node in others):
        return {}
    return {node: (flow.lanes[node], building.outputs[node]) for node in others if building.is_wanted(node)}


def _pass(building: Building, flow: Flow, passing: Collection[Node], results: Results) -> None:
    for node in passing:
        del flow.lanes[node]
    if results.passed is not None:
        row, flag = results.passed
        place = Output(F.lit(None), F.lit(None), F.lit(None), record=F.col(row))
        building.pin(PassedThrough("passed", ()), results.outputs[0], Lane(row, row, flag), place)


# --- layouts -----------------------------------------------------------------------------------------------


def _note_layouts(building: Building, on_kernel: list[Item], by_spark: list[Pending]) -> None:
    """Note the layout of each store's state: read with another layout, it would be misread."""
    held = len(on_kernel)
    for number, item in enumerate(on_kernel, 1):
        if label := _label(item.pending.node):
            laid_out = f"{layout(item)}; number {number}"
            for _ in item.held_back:
                held += 1
                laid_out += f"; held back as {held}"
            if isinstance(item.pending.node, Side):
                laid_out += f"; rows of {_behind(building, item.pending.node.parents[0])}"
            building.layouts[label] = laid_out
    for pending in by_spark:
        if pending.node.store is not None:
            building.layouts[pending.node.store.name] = BY_SPARK


def _behind(building: Building, node: Node) -> str:
    """What a side of a join comes from: a store that holds it, or the input. No generated names."""
    if node.store is not None and node.store.queryable:
        return f"store {node.store.name}"
    found: set[str] = set()
    behind = [node]
    while behind:
        each = behind.pop()
        if each in building.pipeline.inputs:
            found.add(input_label(each))
        else:
            behind += building.parents(each)
    return ", ".join(sorted(found))


def _label(node: Node) -> str:
    """The name of a node's state; "" if it has none, or none that can be queried."""
    if isinstance(node, Side):
        return node.label
    if isinstance(node, nodes.ForeignKeyLookup):
        return node.stored.name
    if isinstance(node, StreamTableJoin) and node.stored is not None:
        return node.stored.name  # what waits
    return "" if node.store is None or isinstance(node, TableJoin | nodes.ForeignKeyJoin) else node.store.name


def _labels(on_kernel: Iterable[Item]) -> tuple[str, ...]:
    """The names of the state of the kernel's items."""
    return tuple(sorted(label for item in on_kernel if (label := _label(item.pending.node))))


def _stores(by_spark: Iterable[Pending]) -> tuple[str, ...]:
    """The stores of Spark's own operator."""
    return tuple(sorted(item.node.store.name for item in by_spark if item.node.store is not None))


def operators(scans: Iterable[Scan]) -> list[tuple[str, ...]]:
    """The stores of each operator that keeps state.

    Spark numbers operators in the order of the plan, which is that of the sources that feed them.
    """
    return list(dict.fromkeys(scan.feeds for scan in scans if scan.feeds))
