"""Stateful steps as operators of a task: what waits becomes the items of one operator.

Rows pass an operator: behind it are its results, and the rows that came in, for the lanes that are not its
own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.kernel.constants import CONTROL_RESTORED
from millstream.physical.kernel_joins import ForeignKey, Join, OfSides, Side, history_of, is_quiet
from millstream.physical.plan import Operator
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import foreign_key_nodes, join_nodes, serde_columns
from millstream.spark.compile.aggregate_nodes import item_of_aggregation
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import (
    CONTEXT,
    CONTROL,
    HEADERS,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
    Flow,
    Lane,
)
from millstream.spark.compile.grouped_tables import of_both
from millstream.spark.compile.kernel_operators import (
    Item,
    Results,
    described,
    holding,
    join_columns,
    key_bytes,
    packed,
    program_of,
    put_lanes,
    since_column,
    unpacked,
    with_own,
)
from millstream.spark.compile.mergeable import NotMergeableError
from millstream.spark.compile.pending import Pending
from millstream.spark.compile.record_failures import count_failures, needs_letters
from millstream.spark.compile.sink import LETTER, Output, headers_of, letter_of
from millstream.spark.compile.store_values import alone_of, values_of
from millstream.spark.jvm.java_names import java_class
from millstream.spark.run.dropped import LATE, PAST, SKIPPED
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.nodes import Node, TableFilter, TableJoin

__all__ = [
    "behind",
    "build_task_operator",
    "operator",
    "passing",
    "record_of",
    "see_all",
    "settle_outputs",
    "with_stored",
]

_OWN = ("tag", "kind", "result_key", "start", "end", "at", "time", "result_headers")
"""The first columns of an operator's rows (OperatorNode.OWN)."""
_WRITTEN = ("topic", "key", "value", "partition", "timestamp", "headers")
"""The columns of a record that is written (sink/Rows.java)."""
_AT, _PACKED, _SINCE = "_at", "_packed", "_since"
_PASSED = -1


def build_task_operator(building: Building, step: Operator) -> None:
    """Turn what waits into one operator."""
    flow = building.flow
    waiting = [_pending_of(building, building.folds.get(node, node)) for node in step.items]
    items = [_item_of_pending(building, each) for each in waiting]
    for item in items:
        flow.lanes.pop(item.pending.node, None)
    settle_outputs(building, flow)
    df, description = _input(building, flow, items)
    program = program_of(items, df.sparkSession, building.context.patience_ms)
    new = behind(building, flow, operator(df, description, program))
    results, called = _results(building, items, new)
    for late in results.late:
        count_failures(building, late.item.pending.node, new, late.flag, LATE, late.what)
    building.flow = new
    building.operated = {item.pending.node for item in items if item.has_state}
    building.operated |= {node for item in items for node in item.held_back}
    for waited, lane in results.outputs[1].items():
        node = building.stands_for.get(waited, waited)
        building.put(node, new, lane, results.stored.get(waited))
    values = values_of(building, items, called)
    building.operators.append(
        new.df.select(*(value.alias(f"x{place}") for place, value in enumerate(values)))
    )
    _put_joins(building, results)


def operator(df: DataFrame, description: str, program: Any) -> DataFrame:
    """The rows behind an operator: its results, and those that came in."""
    return DataFrame(_node().of(df._jdf, description, program), df.sparkSession)


def behind(building: Building, flow: Flow, df: DataFrame) -> Flow:
    """The flow behind an operator, with the lanes that pass it."""
    new = Flow(df, building.names, unopened=building.flow.unopened)
    for each in flow.uncounted:
        flag = new.with_column("d", F.coalesce(F.col(each.flag), F.lit(False)))
        new.uncounted.append(replace(each, flag=flag))
    for node, lane in flow.lanes.items():
        keep = new.with_column("f", F.coalesce(F.col(str(lane.keep)), F.lit(False)))
        new.lanes[node] = replace(lane, keep=keep)
    new.pinned = flow.pinned & flow.lanes.keys()
    return new


def settle_outputs(building: Building, flow: Flow) -> None:
    """Compute the outputs so far, so that of all their columns only these pass the operator."""
    see_all(building, flow)
    for node in flow.pinned & flow.lanes.keys():
        if building.outputs[node].record is None:
            lane = flow.lanes[node]
            building.passed[node] = flow.with_column(
                "o", F.when(flow.belongs_to(lane), _struct(record_of(building, flow, node)))
            )
            nothing = F.lit(None)
            record = F.col(building.passed[node])
            building.outputs[node] = Output(nothing, nothing, nothing, record=record)


def see_all(building: Building, flow: Flow) -> None:
    """Have `peek` steps see their rows, which is all that their outputs do."""
    for node in [node for node in flow.lanes if node in flow.pinned]:
        look = building.outputs[node].look
        if look is not None:
            flow.df = flow.df.where(look(flow.belongs_to(flow.lanes[node])))
            flow.pinned.discard(node)
            if not building.uses.get(node):
                del flow.lanes[node]


def record_of(building: Building, flow: Flow, node: Node) -> dict[str, Column]:
    """The columns of the record that a node's output writes, as the sink of a task takes them."""
    output = building.outputs[node]
    has_letter = needs_letters(building.context.handlers)
    if output.record is not None:
        return {name: output.record[name] for name in (*_WRITTEN, *([LETTER] if has_letter else []))}
    partition = F.lit(None) if output.partition is None else output.partition
    columns = [output.topic, output.key, output.value, partition.cast("int")]
    columns += [F.unix_millis(F.col(TIMESTAMP)), headers_of(output)]
    columns += [letter_of(flow, output)] if has_letter else []
    lane = flow.lanes[node]
    return {name: flow.own(lane, column) for name, column in zip((*_WRITTEN, LETTER), columns, strict=False)}


def _struct(columns: Mapping[str, Column]) -> Column:
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def passing(building: Building, flow: Flow, df: DataFrame) -> list[str]:
    """The columns that pass an operator: what the lanes that go on need."""
    needed = [CONTROL, *CONTEXT, *building.choices.values()]
    if building.needs_source or building.context.handlers.needs_source:
        needed += [RAW_KEY, RAW_VALUE]
    for each in flow.uncounted:
        needed += [each.flag, each.late or ""]
    for node, lane in flow.lanes.items():
        needed += [lane.keep or "", building.passed.get(node, "")]
        if building.uses.get(node):
            needed += [lane.key, lane.value, lane.old or "", lane.since or "", lane.past or ""]
            needed += lane.written or ()
    there = set(df.columns)
    return [name for name in dict.fromkeys(needed) if name in there]


def _input(building: Building, flow: Flow, items: Sequence[Item]) -> tuple[DataFrame, str]:
    """The rows that go into an operator, and its description for the kernel."""
    df = with_own(flow.df, items)
    columns: dict[str, Column] = {}
    descriptions = []
    for item in items:
        what = {**described(item, items), **_of_store(building, item)}
        if isinstance(item.pending.node, TableJoin):
            what["skipped"] = building.skipping(item.pending.node, PAST)
        if not item.has_rows:
            descriptions.append(what)
            continue
        on, key = building.names.new("on"), building.names.new("kb")
        belongs = item.pending.belongs
        if what.get("versioned") and what["derived"]:
            df, belongs = _with_logged(building, item, what["store"], flow, df)
        columns[on] = F.coalesce(belongs, F.lit(False))
        if item.pending.counts_skipped:
            node = item.pending.node
            what["skipped"] = building.skipping(node.join if isinstance(node, Side) else node, SKIPPED)
            here = item.pending.flow.belongs_to(item.pending.lane)
            columns[on] = F.when(belongs | ~here, columns[on])
        columns[key] = F.when(belongs, key_bytes(item, df))
        parts = item.parts.parts
        if item.old is not None and item.using is None:
            df, parts = of_both(df, item.value, item.old, parts)
        for part in parts:
            columns[part.name] = F.when(belongs, part.column.cast(part.type))
        descriptions.append({**what, "on": on, "key": key})
    for of, item in enumerate(items):
        for suppress in item.held_back:
            store = building.stores.of_topology(suppress.stored)
            told = bool(building.uses.get(suppress))
            descriptions.append({**holding(suppress, of), "store": store, "told": told})
    since = [
        F.when(item.pending.belongs, since_column(item))
        for item in items
        if item.pending.lane.since is not None
    ]
    if since:
        columns[_SINCE] = F.coalesce(*since)
    columns[_PACKED] = packed(F.col(HEADERS))
    columns[_AT] = F.unix_millis(F.col(TIMESTAMP))
    df = df.withColumns(columns)
    passes = passing(building, flow, df)
    description = {
        "number": building.next_number(),
        "passes": len(passes),
        "records": building.flow.needs_records,
        "at": _AT,
        "headers": _PACKED,
        "local": building.stores.local(),
        "items": descriptions,
        **({"since": _SINCE} if since else {}),
    }
    return df.select(*passes, *columns), json.dumps(description)


def _of_store(building: Building, item: Item) -> dict[str, Any]:
    """Its store, how that is logged, and what it does when stores that follow from others are filled."""
    store = building.stores.of_item(item.pending.node)
    if store < 0:
        return {"store": store}
    derived, versioned = building.stores[store].derived, building.stores[store].versioned
    node = building.stands_for.get(item.pending.node, item.pending.node)
    is_table = not isinstance(item.pending.node, Side | Join)
    told = not derived and is_table and bool(building.uses.get(node))
    at_once = item.at_once or versioned  # no cache is over such stores
    found = {"store": store, "derived": derived, "told": told, "versioned": versioned, "at_once": at_once}
    if alone := alone_of(building, item):
        return {**found, "settings": {**item.settings, **alone}}
    if isinstance(node, TableFilter) and is_quiet(node):
        return {**found, "settings": {**item.settings, "quiet": 1}}
    return found


def _with_logged(
    building: Building, item: Item, number: int, flow: Flow, df: DataFrame
) -> tuple[DataFrame, Column]:
    """The rows with those of a store's changelog, which come again; and which are the item's."""
    store = building.stores[number]
    assert item.pending.node.store is not None
    key, value = building.serdes_of(item.pending.node.store, flow, item.pending.lane)
    logged = (F.col(CONTROL) == CONTROL_RESTORED) & (F.col(TOPIC) == store.changelog)
    where = F.lit(f"a record of {store.changelog}")
    read = {
        item.key: serde_columns.from_bytes(key, F.when(logged, F.col(RAW_KEY)), where),
        item.value: serde_columns.from_bytes(value, F.when(logged, F.col(RAW_VALUE)), where),
    }
    df = df.withColumns(
        {name: F.when(logged, column).otherwise(F.col(name)) for name, column in read.items()}
    )
    return df, (item.pending.belongs & (F.col(CONTROL) == 0)) | logged


def _results(building: Building, items: Sequence[Item], new: Flow) -> tuple[Results, Mapping[str, str]]:
    """The results, and what the operator's own columns are called."""
    renamed = {name: building.names.new(name[0]) for name in _OWN}
    new.df = new.df.withColumnsRenamed(renamed)
    called = {**renamed, "key": renamed["result_key"]}
    is_result = F.col(called["tag"]) > _PASSED
    at = F.timestamp_millis(F.col(called["at"]))
    headers = unpacked(F.col(called["result_headers"]))
    new.df = new.df.withColumns(
        {
            TIMESTAMP: F.when(is_result, at).otherwise(F.col(TIMESTAMP)),
            HEADERS: F.when(is_result, headers).otherwise(F.col(HEADERS)),
        }
    )
    results = Results((new, {}))
    held_back = [(number, node) for number, item in enumerate(items) for node in item.held_back]
    for number, item in enumerate(items):
        behind = {len(items) + i: node for i, (of, node) in enumerate(held_back) if of == number}
        if isinstance(item.pending.node, Side):
            continue
        tags = [number, *behind]
        if item.core == "changes":
            tags = [other for other, each in enumerate(items) if each.pending.node is item.links["table"]]
        mine = F.col(called["tag"]).isin(tags)
        where = F.lit(f"{item.pending.node.name}: a key")
        key = serde_columns.from_bytes(item.key_serde, F.when(mine, F.col(called["key"])), where)
        new.df = new.df.withColumn(item.key, key)
        if isinstance(item.pending.node, Join):
            found = join_columns(item, items, new, mine, called["time"], called["start"])
            results.joined[item.pending.node] = found
        else:
            put_lanes(item, number, behind, results, called, has_kinds=True)
    return results, called


def _node() -> Any:
    return java_class(SparkSession.active()._jvm, "io.millstream.kernel.task.OperatorNode")


def with_stored(df: DataFrame, operators: Sequence[DataFrame]) -> DataFrame:
    """The rows, with operators that know how the values of their stores are written: for each operator, its
    rows with a column of bytes for each item."""
    if not operators:
        return df
    jvm: Any = df.sparkSession._jvm
    found = java_class(jvm, "java.util.ArrayList")()
    for each in operators:
        found.add(each._jdf)
    return DataFrame(_node().stored(df._jdf, found), df.sparkSession)


# --- what waits ---------------------------------------------------------------------------------------------


def _put_joins(building: Building, results: Results) -> None:
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


def _pending_of(building: Building, node: Node) -> Pending:
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


def _item_of_pending(building: Building, pending: Pending) -> Item:
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
