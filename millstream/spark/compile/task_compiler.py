"""From a subtopology's nodes to the DataFrame whose rows its tasks compute, in one stage of Spark.

There is one `visit_<node>` for each node class, in the table `_VISITS`: it takes the lane of its parent
(flow.py) and adds a lane of its own. All topics are one flow. Stateful steps wait until
everything before them is built; then they become one operator of tasks, whose state has its changelogs itself
(operators.py). Each row has the columns of each output, which the task's sink writes.

Nothing here reads or writes Kafka: the source is passed in, so the test driver compiles the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millstream.kernel.constants import CONTROL_RESTORED
from millstream.physical.plan import Linked, Operator, Visit, WrittenBack, plan_task
from millstream.physical.task_stores import TaskStore
from millstream.serdes.serde import Serde
from millstream.spark.compile import (
    aggregate_nodes,
    foreign_key_nodes,
    join_nodes,
    processor_nodes,
    stream_nodes,
    table_nodes,
    topic_nodes,
)
from millstream.spark.compile.building import Building, CompileContext
from millstream.spark.compile.flow import (
    CONTROL,
    HEADERS,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
    Flow,
)
from millstream.spark.compile.operators import build_task_operator, record_of, see_all, with_stored
from millstream.spark.compile.plans import has_clock, has_python
from millstream.spark.compile.record_failures import asking
from millstream.spark.compile.source import in_range
from millstream.spark.compile.task_globals import visit_global_read, visit_stream_global_table_join
from millstream.spark.compile.task_processors import build_task_processors
from millstream.spark.compile.trace import planned, translated
from millstream.spark.run.dropped import metric
from millstream.spark.worker.handler_calls import Asking
from millstream.topology import nodes
from millstream.topology.nodes import Node
from millstream.topology.pipeline import Pipeline

__all__ = ["CompileContext", "CompiledTask", "compile_task"]


_VISITS: Mapping[type[Node], Callable[[Any, Any], None]] = {
    # topics
    nodes.Source: topic_nodes.visit_source,
    nodes.TableSource: topic_nodes.visit_table_source,
    nodes.GlobalRead: visit_global_read,
    nodes.FrameRead: visit_global_read,
    nodes.Repartition: topic_nodes.visit_repartition,
    nodes.SparkTopic: topic_nodes.visit_repartition,
    WrittenBack: topic_nodes.visit_written_back,
    nodes.Sink: topic_nodes.visit_sink,
    # streams
    nodes.Filter: stream_nodes.visit_filter,
    nodes.MapValues: stream_nodes.visit_map_values,
    nodes.SelectKey: stream_nodes.visit_select_key,
    nodes.Map: stream_nodes.visit_map,
    nodes.FlatMapValues: stream_nodes.visit_flat_map_values,
    nodes.FlatMap: stream_nodes.visit_flat_map,
    nodes.Peek: stream_nodes.visit_peek,
    nodes.Print: stream_nodes.visit_print,
    nodes.Merge: stream_nodes.visit_merge,
    nodes.Branch: stream_nodes.visit_branch,
    nodes.PassThrough: stream_nodes.visit_pass_through,
    # tables
    nodes.ToTable: table_nodes.visit_to_table,
    nodes.TableFilter: table_nodes.visit_table_filter,
    nodes.TableMapValues: table_nodes.visit_table_map_values,
    nodes.TableGroupBy: table_nodes.visit_table_group_by,
    nodes.Suppress: table_nodes.visit_suppress,
    nodes.ToStream: table_nodes.visit_to_stream,
    # processors
    nodes.Process: processor_nodes.visit_process,
    nodes.TableTransformValues: processor_nodes.visit_process,
    # aggregations
    nodes.Aggregate: aggregate_nodes.visit_aggregate,
    nodes.Cogroup: aggregate_nodes.visit_cogroup,
    # joins
    nodes.StreamTableJoin: join_nodes.visit_stream_table_join,
    nodes.StreamGlobalTableJoin: visit_stream_global_table_join,
    nodes.StreamJoin: join_nodes.visit_stream_join,
    nodes.TableJoin: join_nodes.visit_table_join,
    nodes.ForeignKeySubscribe: foreign_key_nodes.visit_foreign_key_subscribe,
    nodes.ForeignKeyLookup: foreign_key_nodes.visit_foreign_key_lookup,
    nodes.ForeignKeyChanges: foreign_key_nodes.visit_foreign_key_changes,
    nodes.ForeignKeyJoin: foreign_key_nodes.visit_foreign_key_join,
}
"""The function that compiles a node, by the node's class."""


@dataclass(frozen=True)
class CompiledTask:
    """A subtopology that tasks can run.

    `rows`: `control` int; for each output a boolean, true if a row goes there, and topic string, key binary,
    value binary, partition int, timestamp bigint (ms), headers array<struct<key, value>>, and a struct
    `letter` where dead letters may be needed (sink.py). No struct of them, because Spark makes an
    object of a struct, with its numbers boxed. If records can be dropped, also `topic` and
    `partition` of the record that a row is of, and a column for each place that drops some, under the name
    of its metric (dropped.py): a boolean, or for late ones the fields of a LateRecord.
    `times` are the timestamp extractors of sources (Times.java).
    """

    rows: DataFrame
    in_batches: bool
    stores: tuple[TaskStore, ...]
    store_serdes: Mapping[str, tuple[Serde, Serde]]
    closed: Mapping[str, str]
    times: tuple[Any, ...]
    asking: Asking | None = None
    """Calls the user's own handlers; None: there are none."""
    processes: bool = False
    """Whether there are processors."""
    fillings: Mapping[str, Any] = field(default_factory=dict)
    """The processors that fill global tables, by their topics."""


def compile_task(pipeline: Pipeline, context: CompileContext, read: Callable[[], DataFrame]) -> CompiledTask:
    """Trace every function of a subtopology and build its DataFrame.

    Args:
        read: the source of the run: `control`, `key`, `value`, `topic`, `partition`, `offset`,
            `timestamp` (ms), `headers`.

    Raises:
        TopologyException: a function is wrong, or a serde does not fit its column.
        StreamsException: Spark does not accept the plan that was made of right functions.
    """
    with planned(f"pipeline {pipeline.name}"):
        building = Building(plan_task(pipeline), context)
        rows = read()
        renamed = {"key": RAW_KEY, "value": RAW_VALUE, "headers": HEADERS}
        renamed |= {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET}
        rows = rows.withColumnsRenamed(renamed)
        is_record = F.col(CONTROL).isin(0, CONTROL_RESTORED)
        at = F.when(is_record, in_range(F.col("timestamp")))
        rows = rows.withColumn(TIMESTAMP, at).drop("timestamp")
        building.flow = Flow(rows, building.names, unopened=len(building.opened))
        _build(building)
        rows = with_stored(_rows(building), building.operators)
        return CompiledTask(
            rows,
            # The current time is that of the beginning of a batch, which must not last an hour.
            has_python(rows) or has_clock(rows),
            building.stores.all(),
            dict(building.store_serdes),
            dict(building.closed),
            tuple(building.times),
            asking(building),
            building.processes_records,
            dict(building.fillings),
        )


def _build(building: Building) -> None:
    building.count_uses(building.plan.nodes)
    for step in building.plan.steps:
        match step:
            case Visit(node):
                building.visiting = node
                translated(node, None, partial(_VISITS[type(node)], building, node))
                building.visiting = None
            case Operator():
                build_task_operator(building, step)
            case Linked():
                build_task_processors(building, step)


def _rows(building: Building) -> DataFrame:
    flow = building.flow
    see_all(building, flow)
    columns = []
    for number, node in enumerate(node for node in flow.lanes if node in flow.pinned):
        columns.append(flow.belongs_to(flow.lanes[node]).alias(f"out{number}"))
        record = record_of(building, flow, node)
        columns += [column.alias(f"out{number}_{name}") for name, column in record.items()]
    drops = [
        F.when(F.col(each.flag), F.col(each.late or each.flag)).alias(
            metric(each.number, each.kind, each.node)
        )
        for each in flow.uncounted
    ]
    if drops:
        drops = [F.col(TOPIC).alias("topic"), F.col(PARTITION).alias("partition"), *drops]
    # No filter: Spark would put all that the outputs are computed from into its condition as well. The sink
    # passes over rows that have none.
    return flow.df.select(F.col(CONTROL), *columns, *drops)
