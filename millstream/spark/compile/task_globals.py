"""Global tables of tasks, and joins with them: a record looks a row up where its task runs.

The kernel has the rows as the topic has them, in bytes, and a row that was found becomes Columns. So such a
join needs no operator: it is a function of the record. Processors read the same rows, or those that a
processor of the table has put.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream.physical.kernel_joins import takes_null_keys
from millstream.physical.plan import needed_by
from millstream.processors.graph import filling_graph, with_serdes
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.applying import apply
from millstream.spark.compile.building import Building
from millstream.spark.compile.join_nodes import check_keys, join_values
from millstream.spark.compile.processor_nodes import pickled
from millstream.spark.compile.record_failures import computed, kept
from millstream.spark.compile.record_handlers import attempt
from millstream.spark.compile.topic_nodes import source_serdes
from millstream.spark.jvm.java_names import kernel_column
from millstream.spark.worker.processing import Processing
from millstream.topology.nodes import FrameRead, GlobalRead, GlobalTable, StreamGlobalTableJoin
from millstream.topology.pipeline import global_reads

__all__ = ["GlobalRows", "visit_global_read", "visit_stream_global_table_join"]


@dataclass(frozen=True)
class GlobalRows:
    """The rows of a global table: its number among those of the pipeline, and their serdes."""

    number: int
    key_serde: Serde
    value_serde: Serde


def visit_global_read(building: Building, node: GlobalRead) -> None:
    if isinstance(node, FrameRead):
        assert building.context.frame is not None
        frame = building.context.frame(node.table)
        key, value = frame.key_serde, frame.value_serde
    else:
        key, value = source_serdes(building, node, f"topic '{node.topic}'")
    building.global_rows[node] = GlobalRows(global_reads(building.pipeline).index(node), key, value)
    if node.of is not None and node.of.supplier is not None:
        building.fillings[node.topic] = _filling(building, node.of)


def _filling(building: Building, table: GlobalTable) -> Any:
    """The program of the processor that fills a table."""
    context = building.context
    default = context.default_key_serde, context.default_value_serde
    graph = filling_graph(
        table, application_id=context.application_id, config=context.config, default=default
    )
    graph = with_serdes(graph, partial(building.bound, topic=table.topic))
    running = Processing(graph, -1, is_timed=context.is_timed)
    return pickled(running, table.name, SparkSession.active(), context.patience_ms)


def visit_stream_global_table_join(building: Building, node: StreamGlobalTableJoin) -> None:
    """Source: KStreamGlobalKTableJoin, KStreamKTableJoinProcessor."""
    rows = building.global_rows[needed_by(building.pipeline, node)[1]]
    flow, lane, alone = building.take(node.parents[0])
    selected = apply(node, node.selector, flow, lane)
    lane, selected_key = computed(building, node, node.selector, flow, lane, "k", selected)
    needed = F.col(lane.value).isNotNull()
    if not takes_null_keys(node):
        needed &= F.col(selected_key).isNotNull()
    lane = kept(building, node, flow, lane, needed, alone=alone)
    type_ = flow.type_of(selected_key)
    check_keys(node, type_, serde_columns.column_type(rows.key_serde))
    key_serde = building.settle(rows.key_serde, None, None, type_)
    key = serde_columns.to_bytes(key_serde, F.col(selected_key), type_, f"{node.name}: the key")
    found = flow.with_column("g", kernel_column("Globals", "lookup", rows.number, flow.own(lane, key)))
    row = serde_columns.from_bytes(
        rows.value_serde,
        F.col(found),
        F.lit(f"{node.name}: a row of '{node.parents[1].name}'"),
    )
    if building.context.handlers.deserialization:  # no row, as if it had been left out when it came
        row = attempt(F.col(found).isNotNull(), row)["r0"]
    right = flow.with_column("v", serde_columns.once(rows.value_serde, row))
    if not takes_null_keys(node):
        lane = flow.narrow(lane, F.col(right).isNotNull(), alone=not flow.lanes)
    made = join_values(node, flow, lane, F.col(lane.value), F.col(right))
    lane, value = computed(building, node, node.joiner, flow, lane, "v", made)
    building.put(node, flow, replace(lane, value=value, value_serde=None, written=None))
