"""The operations of tables, and which of their updates include the previous value."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.physical.kernel_joins import is_quiet
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile.applying import add_result, apply, condition_of
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import Flow, Lane
from millstream.spark.compile.grouped_tables import changes
from millstream.spark.compile.record_failures import computable, computed, kept, of_before
from millstream.spark.compile.trace import as_column, translated
from millstream.spark.run.dropped import PAST
from millstream.topology import nodes
from millstream.topology.functions import describe_function

__all__ = [
    "visit_suppress",
    "visit_table_filter",
    "visit_table_group_by",
    "visit_table_map_values",
    "visit_to_stream",
    "visit_to_table",
]


def visit_to_table(building: Building, node: nodes.ToTable) -> None:
    flow, lane, alone = building.take(node.parents[0])
    if node in building.remembering:
        building.wait(node, flow, lane)
        return
    building.put(node, flow, kept(building, node, flow, lane, F.col(lane.key).isNotNull(), alone=alone))


def visit_table_filter(building: Building, node: nodes.TableFilter) -> None:
    flow, lane, alone = building.take(node.parents[0])
    condition = condition_of(node, node.predicate, flow, lane)
    there = F.col(lane.value).isNotNull()  # a deletion stays one, unasked
    if building.context.handlers.processing:
        condition = F.when(there, condition)
    lane, (condition,) = computable(building, node, node.predicate, flow, lane, condition)

    def passing(value: str, condition: Column) -> str:
        passes = F.coalesce(condition, F.lit(False))
        passes = ~passes if node.negate else passes
        passed = F.when(F.col(value).isNotNull(), F.when(passes, F.col(value)))
        return flow.with_column("v", flow.own(lane, passed))

    value, old = passing(lane.value, condition), None
    if lane.old is not None:
        before = condition_of(node, node.predicate, flow, replace(lane, value=lane.old))
        if building.context.handlers.processing:
            before = F.when(F.col(lane.old).isNotNull(), before)
        (before,) = of_before(building, flow, lane, before)
        old = passing(lane.old, before)
        if is_quiet(node):
            # A row that never existed needs no deletion.
            lane = flow.narrow(lane, F.col(value).isNotNull() | F.col(old).isNotNull(), alone=alone)
    building.put(node, flow, _behind(node, flow, replace(lane, value=value, old=old)))


def visit_table_map_values(building: Building, node: nodes.TableMapValues) -> None:
    flow, lane, _ = building.take(node.parents[0])

    def mapped(value: str) -> Column:
        result = as_column(apply(node, node.mapper, flow, replace(lane, value=value)))
        return F.when(F.col(value).isNotNull(), result)

    lane, value = computed(building, node, node.mapper, flow, lane, "v", mapped(lane.value))
    old = None
    if lane.old is not None:
        (before,) = of_before(building, flow, lane, mapped(lane.old))
        old = add_result(node, node.mapper, flow, lane, "v", before)
    building.put(node, flow, _behind(node, flow, replace(lane, value=value, value_serde=None, old=old)))


def _behind(node: nodes.TableFilter | nodes.TableMapValues, flow: Flow, lane: Lane) -> Lane:
    """Its rows, in a store if it has one: there a row has the time of its update, and may have no history."""
    if node.stored is None:
        return lane
    if node.stored.history_ms is None and lane.past is not None:
        lane = replace(flow.narrow(lane, ~F.col(lane.past), alone=False), past=None)
    return replace(lane, since=None)


def visit_table_group_by(building: Building, node: nodes.TableGroupBy) -> None:
    flow, lane, _ = building.take(node.parents[0])
    if lane.past is not None:  # a group has the last version of each row
        lane = kept(building, node, flow, lane, ~F.col(lane.past), alone=False, dropped=PAST)
    if lane.old is None:
        raise TopologyException(
            f"{node.name}: results of suppress() do not include the old value, so they cannot be "
            "grouped as a table; group the table first, or the stream: to_stream().group_by(...)"
        )

    def mapped(value: str) -> tuple[Column, Column]:
        made = apply(node, node.mapper, flow, replace(lane, value=value))
        if not (isinstance(made, tuple) and len(made) == 2):
            raise TopologyException(
                f"{node.name} ({describe_function(node.mapper)}): group_by of a table returns a key and "
                "a value, lambda key, value: (value.city, value.amount); this returned "
                f"{type(made).__name__}"
            )
        there = F.col(value).isNotNull()
        return F.when(there, as_column(made[0])), F.when(there, as_column(made[1]))

    (key, value), old = mapped(lane.value), mapped(lane.old)
    lane, (key, value) = computable(building, node, node.mapper, flow, lane, key, value)
    old_key, old_value = of_before(building, flow, lane, *old)
    old = old_key, old_value
    array = translated(node, node.mapper, lambda: _changes(flow, (key, value), old))
    lane, element = flow.explode(lane, array)
    names = {part: flow.with_column(part[0], F.col(element)[part]) for part in ("key", "value", "old")}
    building.put(
        node,
        flow,
        replace(
            lane,
            key=names["key"],
            value=names["value"],
            old=names["old"],
            since=None,
            past=None,
            key_serde=None,
            value_serde=None,
        ),
    )


def _changes(flow: Flow, new: tuple[Column, Column], old: tuple[Column, Column]) -> Column:
    key, value = new
    key_type, value_type = flow.type_for(key), flow.type_for(value)
    change = T.StructType().add("key", key_type).add("value", value_type).add("old", value_type)
    none = F.array().cast(T.ArrayType(change))
    return F.coalesce(changes(new, old, F.lit(None).cast(value_type)), none)


def visit_suppress(building: Building, node: nodes.Suppress) -> None:
    flow, lane, _ = building.take(node.parents[0])
    if node.until_close and not isinstance(lane.key_serde, WindowedSerde):
        raise TopologyException(
            f"{node.name}: it waits until windows close, and the table's keys have no windows any more; "
            "put it before what changes the keys, or take Suppressed.until_time_limit()"
        )
    building.wait(node, flow, lane)


def visit_to_stream(building: Building, node: nodes.ToStream) -> None:
    flow, lane, _ = building.take(node.parents[0])
    building.put(node, flow, building.as_stream(flow, lane))
