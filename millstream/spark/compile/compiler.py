"""From a pipeline's nodes to one streaming DataFrame whose rows are records to write.

There is one `visit_<node>` for each node class, in the table `VISITS`: it takes the lane of its parent
(flow.py) and adds a lane of its own. Aggregations wait until everything before them is built, because all
those of one flow become one stateful operator (operators.py). Lanes that reach a topic are pinned, and
sink.py turns the pinned lanes into rows.

Nothing here reads or writes Kafka: the sources and sinks are passed in (`CompileContext.read`, sink.py), so
the test driver compiles the same plan over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import DataFrame

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
from millstream.spark.compile.frame_columns import UserWriter
from millstream.spark.compile.operators import BY_SPARK, build_operators, operators
from millstream.spark.compile.record_failures import asking, needs_letters
from millstream.spark.compile.record_handlers import FAIL
from millstream.spark.compile.sink import output_rows, with_epoch
from millstream.spark.compile.trace import planned, translated
from millstream.spark.run.settled import settled
from millstream.spark.worker.handler_calls import Asking
from millstream.topology import nodes
from millstream.topology.names import internal_topic
from millstream.topology.nodes import Node
from millstream.topology.pipeline import Pipeline, Scan

__all__ = [
    "BY_SPARK",
    "VISITS",
    "CompileContext",
    "Compiled",
    "compile_pipeline",
    "operators",
]

VISITS: Mapping[type[Node], Callable[[Building, Any], None]] = {
    # topics
    nodes.Source: topic_nodes.visit_source,
    nodes.TableSource: topic_nodes.visit_table_source,
    nodes.GlobalRead: topic_nodes.visit_table_source,
    nodes.FrameRead: topic_nodes.visit_frame_read,
    nodes.Repartition: topic_nodes.visit_repartition,
    nodes.SparkTopic: topic_nodes.visit_repartition,
    topic_nodes.WrittenBack: topic_nodes.visit_written_back,
    nodes.SparkSink: topic_nodes.visit_spark_sink,
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
    nodes.StreamGlobalTableJoin: join_nodes.visit_stream_global_table_join,
    nodes.StreamJoin: join_nodes.visit_stream_join,
    nodes.TableJoin: join_nodes.visit_table_join,
    nodes.ForeignKeySubscribe: foreign_key_nodes.visit_foreign_key_subscribe,
    nodes.ForeignKeyLookup: foreign_key_nodes.visit_foreign_key_lookup,
    nodes.ForeignKeyChanges: foreign_key_nodes.visit_foreign_key_changes,
    nodes.ForeignKeyJoin: foreign_key_nodes.visit_foreign_key_join,
}
"""The function that compiles a node, by the node's class."""


@dataclass(frozen=True)
class Compiled:
    """`rows` is None when the pipeline writes nothing: its tables are views of their source topics.

    A sink does not take them as they are; it takes `rows_at(epoch)`. `layouts` describes the layout of each
    store's state in words.
    """

    rows: DataFrame | None
    store_serdes: Mapping[str, tuple[Serde, Serde]]
    scans: tuple[Scan, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The partition count of each of the application's own topics."""
    drops: bool = False
    """Whether a step can drop a record and have it counted."""
    processes: bool = False
    """Whether there are processors."""
    by_clock: bool = False
    """Whether any of them uses the time of day."""
    asking: Asking | None = None
    """Calls the user's own handlers; None: there are none."""
    user_writer: UserWriter | None = None
    """Writes what the pipeline reads, in place of rows to Kafka."""
    run: str | None = None
    """The name of its runs in Real-Time Mode; None: it runs in micro-batches."""

    def rows_at(self, epoch: int | None) -> DataFrame | None:
        """The rows of a query that runs under this epoch (sink.with_epoch). Traces nothing anew."""
        with planned("the rows of a pipeline"):
            return None if self.rows is None else settled(with_epoch(self.rows, epoch))


def compile_pipeline(pipeline: Pipeline, context: CompileContext) -> Compiled:
    """Trace every function of the pipeline and build its DataFrame.

    Shape of `rows_at`: topic string, key binary, value binary, partition int (NULL: by the route), route
    binary (NULL: Kafka's default partitioner), timestamp bigint (ms), headers array<struct<key, value>>; and
    a struct `letter`, where dead letters may be needed (sink.py).

    Raises:
        TopologyException: a function is wrong, or a serde does not fit its column.
        StreamsException: Spark does not accept the plan that was made of right functions.
    """
    if pipeline.spark_sink is not None:
        # Its input was written by this application, and it writes no dead letters.
        context = replace(context, handlers=FAIL)
    with planned(f"pipeline {pipeline.name}"):
        return _compile(Building(pipeline, context))


def _compile(building: Building) -> Compiled:
    _visit_all(building)
    rows, scans = _rows(building)
    if building.user_writer is not None:
        return Compiled(None, {}, building.flows[0].scans, user_writer=building.user_writer)
    partitions = {
        internal_topic(building.context.application_id, name): count
        for name, count in building.context.partitions.items()
        if name.endswith(("-changelog", "-repartition"))
    }
    places = {store: number for number, stores in enumerate(operators(scans), 1) for store in stores}
    layouts = {
        store: f"{laid_out}; of operator {places[store]}"
        for store, laid_out in building.layouts.items()
        if store in places
    }
    drops = building.failures > 0
    return Compiled(
        rows,
        dict(building.store_serdes),
        scans,
        layouts,
        partitions,
        drops,
        processes=bool(building.linked),
        by_clock=building.by_clock,
        asking=asking(building),
    )


def _visit_all(building: Building) -> None:
    """Visit each node when its parents are done; when no node is left to visit, build what waits."""
    inputs = set(building.pipeline.inputs)
    waiting = [*building.pipeline.nodes, *topic_nodes.written_back(building.pipeline)]
    building.count_uses(waiting)
    table_nodes.note_remembering(building)
    done: set[Node] = set()
    while waiting:
        ready = [n for n in waiting if n in inputs or all(parent in done for parent in building.parents(n))]
        ready = [n for n in ready if n not in building.pending and n not in building.stands_for.values()]
        ready = [n for n in ready if foreign_key_nodes.is_ready(n, waiting, building.pending)]
        ready = [n for n in ready if not isinstance(n, nodes.Process)]
        ready += [n for n in waiting if processor_nodes.is_ready(building, n, done)]
        if ready:
            for node in ready:
                _visit(building, node)
                if isinstance(node, nodes.Process):
                    continue
                if node not in building.pending and node not in building.stands_for.values():
                    done.add(node)
                    waiting.remove(node)
            continue
        built = build_operators(building) | processor_nodes.build_processors(building)
        done |= built
        waiting = [n for n in waiting if n not in built]


def _visit(building: Building, node: Node) -> None:
    building.visiting = node
    translated(node, None, lambda: VISITS[type(node)](building, node))
    building.visiting = None


def _rows(building: Building) -> tuple[DataFrame | None, tuple[Scan, ...]]:
    """The rows, and the sources they come from."""
    parts = []
    scans: tuple[Scan, ...] = ()
    for flow in building.flows:
        pinned = [
            (flow, flow.lanes[node], building.outputs[node])
            for node in flow.lanes
            if node in flow.pinned and building.is_wanted(node)
        ]
        flow.count_dropped()
        if pinned:
            outputs = [(lane, output) for _, lane, output in pinned]
            parts.append(output_rows(flow, outputs, letters=needs_letters(building.context.handlers)))
            scans += flow.scans
    if not parts:
        return None, ()
    rows = parts[0]
    for part in parts[1:]:
        rows = rows.union(part)
    return rows, scans
