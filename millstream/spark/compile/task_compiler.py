"""From a subtopology's nodes to the DataFrame whose rows its tasks compute, in one stage of Spark.

The visits of the nodes are those of compiler.py. What differs: all topics are one flow (task_flow.py);
stateful steps become operators of tasks, whose state has its changelogs itself (task_operators.py); and each
row has a column for each output, which the task's sink writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.model import StoreKind
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building, CompileContext, StoreInput
from millstream.spark.compile.compiler import VISITS
from millstream.spark.compile.flow import HEADERS, TIMESTAMP, Flow, Lane
from millstream.spark.compile.foreign_key_nodes import is_ready
from millstream.spark.compile.kernel_joins import Side
from millstream.spark.compile.kernel_operators import Item
from millstream.spark.compile.table_nodes import note_remembering
from millstream.spark.compile.task_flow import CONTROL, TaskFlow
from millstream.spark.compile.task_operators import build_task_operator, record_of, see_all, with_stored
from millstream.spark.compile.topic_nodes import written_back
from millstream.spark.compile.trace import planned, translated
from millstream.spark.run.real_time_batches import has_python
from millstream.spark.run.task_run import TaskStore
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import (
    ForeignKeyLookup,
    Node,
    Repartition,
    Source,
    Store,
    StreamJoin,
    StreamTableJoin,
    TableSource,
    ToTable,
)
from millstream.topology.pipeline import Pipeline

__all__ = ["CompiledTask", "compile_task"]


@dataclass(frozen=True)
class CompiledTask:
    """A subtopology that tasks can run.

    `rows`: `control` int, and a struct for each output, NULL if a row does not go there: topic string, key
    binary, value binary, partition int, timestamp bigint (ms), headers array<struct<key, value>>.
    """

    rows: DataFrame
    in_batches: bool
    stores: tuple[TaskStore, ...]
    store_serdes: Mapping[str, tuple[Serde, Serde]]


@dataclass
class TaskBuilding(Building):
    """The state of one compilation of a task."""

    operators: list[DataFrame] = field(default_factory=list)
    """The rows of each operator, with the values of its stores."""
    passed: dict[Node, str] = field(default_factory=dict)
    """The columns of outputs that pass through operators."""
    stores: list[TaskStore] = field(default_factory=list)
    stored: dict[Node, Column] = field(default_factory=dict)
    """The values of stores in bytes, by the node that waited."""
    kept: list[Node] = field(default_factory=list)
    """What keeps the rows of steps without state."""
    operated: set[Node] = field(default_factory=set)
    """The items of the operator that was built last: they keep the values of their stores themselves."""
    owns_sources = False

    def open(self, node: Source | TableSource | Repartition) -> tuple[Flow, Lane]:
        flow = self.flows[0]
        topic = F.col("_topic")
        if isinstance(node, Source) and node.pattern is not None:
            mine = topic.rlike(f"^(?:{node.pattern.pattern})$")
        else:
            names = node.topics if isinstance(node, Source) else (node.topic,)
            if isinstance(node, Repartition):
                names = (f"{self.context.application_id}-{node.topic}",)
            mine = topic.isin(*names)
        keep = flow.with_column("f", F.coalesce((F.col(CONTROL) == 0) & mine, F.lit(False)))
        return flow, Lane("key", "value", keep)

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
        waited = node.parents[0] if isinstance(node, StoreInput) else node
        waited = next((key for key, value in self.stands_for.items() if value is waited), waited)
        if waited not in self.operated:  # a step without state: an item keeps its rows, and does nothing else
            kept = ToTable(node.name, (node,), store)
            self.kept.append(kept)
            self.wait(kept, flow, lane)
            return
        windowed = store.kind is not StoreKind.KEY_VALUE
        key_type, inherited = flow.type_of(lane.key), lane.key_serde
        if windowed:
            assert isinstance(key_type, T.StructType)
            key_type = key_type["key"].dataType
            inherited = getattr(inherited, "inner", None)
        context = self.context
        key = self.settle(store.key_serde, inherited, context.default_key_serde, key_type)
        value_type = flow.type_of(lane.value)
        value = self.settle(store.value_serde, lane.value_serde, context.default_value_serde, value_type)
        changelog = changelog_topic(context.application_id, store.name)
        key, value = self.bound(key, changelog, is_key=True), self.bound(value, changelog)
        self.store_serdes[store.name] = (key, value)
        where = f"{node.name}: the value of store '{store.name}'"
        self.stored[waited] = serde_columns.to_bytes(value, F.col(lane.value), value_type, where)

    def store_of(self, item: Item) -> int:
        """The number of the store of an item; -1 for one without state."""
        if not item.has_state:
            return -1
        node = item.pending.node
        changelog = ""
        if isinstance(node, Side):
            name = node.label
            if isinstance(node.join, StreamJoin):
                changelog = changelog_topic(self.context.application_id, name)
        elif isinstance(node, StreamTableJoin | ForeignKeyLookup | StreamJoin):
            store = node.outer_stored if isinstance(node, StreamJoin) else node.stored
            name = f"{node.name}-waiting" if store is None else store.name
        elif node.store is None:
            name = node.name
        else:
            return self.store_named(node.store)
        return self._store(TaskStore(name, changelog, False))

    def store_named(self, store: Store) -> int:
        """The number of a store of the topology."""
        is_logged = store.logged and store.source_topic is None
        changelog = changelog_topic(self.context.application_id, store.name) if is_logged else ""
        return self._store(TaskStore(store.name, changelog, not store.persistent))

    def local_store(self) -> int:
        """The number of the store for what follows from the others, which is not logged."""
        return self._store(TaskStore("derived", "", False))

    def _store(self, store: TaskStore) -> int:
        names = [each.name for each in self.stores]
        if store.name not in names:
            self.stores.append(store)
            return len(names)
        return names.index(store.name)


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
        building = TaskBuilding(pipeline, context)
        rows = read()
        renamed = {"topic": "_topic", "partition": "_partition", "offset": "_offset", "headers": HEADERS}
        rows = rows.withColumnsRenamed(renamed)
        rows = rows.withColumn(TIMESTAMP, F.timestamp_millis("timestamp")).drop("timestamp")
        building.flows.append(TaskFlow(rows, building.names))
        _visit_all(building)
        df = _rows(building)
        rows = with_stored(df, building.operators)
        return CompiledTask(
            rows,
            has_python(rows),
            tuple(building.stores),
            dict(building.store_serdes),
        )


def _visit_all(building: TaskBuilding) -> None:
    """Visit each node when its parents are done; when no node is left to visit, build what waits."""
    own_topics = written_back(building.pipeline)
    written_first: dict[Node, Node] = {
        each.repartition: each for each in own_topics
    }  # who reads it takes its serdes
    waiting = [*building.pipeline.nodes, *own_topics]
    inputs = set(building.pipeline.inputs)
    for node in waiting:
        if node not in inputs:
            for parent in building.parents(node):
                building.uses[parent] = building.uses.get(parent, 0) + 1
    note_remembering(building)
    done: set[Node] = set()
    while waiting:
        ready = [node for node in waiting if done.issuperset(_before(building, node, inputs, written_first))]
        held = {*building.pending, *building.stands_for.values()}
        ready = [node for node in ready if node not in held]
        ready = [node for node in ready if is_ready(node, waiting, building.pending)]
        for node in ready:
            building.visiting = node
            translated(node, None, partial(VISITS[type(node)], building, node))
            building.visiting = None
            if node not in building.pending and node not in building.stands_for.values():
                done.add(node)
                waiting.remove(node)
        if not ready:
            built = build_task_operator(building)
            done |= built
            waiting = [node for node in waiting if node not in built]
    if building.pending:
        build_task_operator(building)


def _before(
    building: TaskBuilding, node: Node, inputs: Collection[Node], written_first: Mapping[Node, Node]
) -> Collection[Node]:
    """What has to be built before a node."""
    if node in written_first:
        return [written_first[node]]
    return () if node in inputs else building.parents(node)


def _rows(building: TaskBuilding) -> DataFrame:
    flow = building.flows[0]
    see_all(building, flow)
    columns = [
        F.when(flow.belongs_to(lane), record_of(building.outputs[node])).alias(f"out{number}")
        for number, (node, lane) in enumerate(flow.lanes.items())
        if node in flow.pinned
    ]
    df = flow.df.select(F.col(CONTROL), *columns)
    going = F.col(CONTROL) != 0
    for name in df.columns[1:]:
        going |= F.col(name).isNotNull()
    return df.where(going)
