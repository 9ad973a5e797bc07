"""The state that the steps of one compilation share: the flow, the lanes, outputs, serdes and stores.

Every `visit_<node>` gets the `Building` of its compilation, and its node. These functions are in
topic_nodes.py, stream_nodes.py, table_nodes.py, aggregate_nodes.py, join_nodes.py and foreign_key_nodes.py;
task_compiler.py has the table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.timestamps import Extractor
from millstream.errors import TopologyException
from millstream.kernel.constants import CONTROL_RESTORED
from millstream.model import StoreKind
from millstream.physical.plan import TaskPlan, needed_by
from millstream.physical.task_stores import TaskStores
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import RegistrySerde, bound, reading
from millstream.serdes.serde import Serde
from millstream.spark.compile import registry_serdes, serde_columns
from millstream.spark.compile.flow import CONTROL, RAW_KEY, RAW_VALUE, Flow, Lane, Names
from millstream.spark.compile.frame_columns import StaticFrame
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers
from millstream.spark.compile.sink import Output
from millstream.spark.run.dropped import metric
from millstream.spark.worker.handler_calls import FailurePlace
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import (
    FrameTable,
    GlobalRead,
    Node,
    Repartition,
    Source,
    Store,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, topics_of_input

__all__ = [
    "Building",
    "CompileContext",
    "StoreInput",
]


@dataclass(frozen=True)
class CompileContext:
    """What a compilation needs besides the nodes.

    Attributes:
        application_id: prefix of internal topics.
        partitions: partition count of each internal topic, by its name without the application id.
        default_key_serde, default_value_serde: from the configuration, or None.
        handlers: which failed records are dropped.
        repartition_serdes: filled by the pipeline that writes a repartition topic, for the one that reads it.
        cached: only a key's last value up to a commit is emitted, unless its store says otherwise.
        patience_ms: how long a fold in Python may take for one record.
        timestamp_extractor: for sources without one of their own; None: Kafka's default.
        config: the part of the configuration that processors can see.
        is_timed: processors take the time of day from the task, not from the machine; for tests.
        registry: the configured schema registry, or None.
        frame: returns the DataFrame of a table; called once for each table.
        written_serdes: filled with the key and value serdes of the topics that are written.
    """

    application_id: str
    partitions: Mapping[str, int]
    default_key_serde: Serde | None = None
    default_value_serde: Serde | None = None
    handlers: RecordHandlers = FAIL
    repartition_serdes: dict[Repartition, tuple[Serde, Serde]] = field(default_factory=dict)
    cached: bool = True
    patience_ms: int = 300_000
    timestamp_extractor: Extractor | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    is_timed: bool = False
    registry: RegistrySettings | None = None
    frame: Callable[[FrameTable], StaticFrame] | None = None
    written_serdes: dict[str, tuple[Serde, Serde]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class StoreInput(Node):
    """What a node's store gets, if that is not what the node passes on. Internal: it occurs in no
    topology."""

    stored: Store = field(default_factory=lambda: Store(""))

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass
class Building:
    """What all steps of one compilation share. Used once.

    A visit takes the lane of a parent (`take`), adds columns to its flow, and puts a lane of its own (`put`).
    """

    plan: TaskPlan
    context: CompileContext
    names: Names = field(default_factory=Names)
    flow: Flow = field(init=False)
    """What is built so far."""
    outputs: dict[Node, Output] = field(default_factory=dict)
    """The outputs of pinned lanes."""
    store_serdes: dict[str, tuple[Serde, Serde]] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    """The stores that cannot go on where Kafka Streams has stopped, and why."""
    choices: dict[Node, str] = field(default_factory=dict)
    """For branches, the columns with the number of the branch that a row takes."""
    carried: dict[Node, tuple[str, ...]] = field(default_factory=dict)
    """For foreign-key joins, the columns that an operator keeps of the rows that refer to a row."""
    folds: dict[Node, Node] = field(default_factory=dict)
    """The folds that waiting cogroups are compiled as."""
    stands_for: dict[Node, Node] = field(init=False)
    """The internal node that waits in place of a node of the topology."""
    remembering: set[Node] = field(init=False)
    """The tables whose updates carry the old value."""
    raw: dict[str, str] = field(default_factory=dict)
    """Columns that were read for processors, to the columns with their bytes."""
    entrances: dict[Node, dict[Node, Node]] = field(default_factory=dict)
    """The owners of the lanes that go into linked processors: by the first of them, and the node before."""
    forwarded: dict[tuple[Node, Node], Node] = field(default_factory=dict)
    """The owner of the lane, by processor and the step behind it."""
    visiting: Node | None = None
    """The node that is being visited."""
    uses: dict[Node, int] = field(default_factory=dict)
    """How many visits still have to take a node's lane."""
    failures: int = 0
    """The number of flags for dropped records."""
    places: list[FailurePlace] = field(default_factory=list)
    """The places of records that may fail and that the user's own handlers decide about."""

    operators: list[DataFrame] = field(default_factory=list)
    """The rows of each operator, with the values of its stores."""
    passed: dict[Node, str] = field(default_factory=dict)
    """The columns of outputs that pass through operators."""
    stores: TaskStores = field(init=False)
    stored: dict[Node, Column] = field(default_factory=dict)
    """The values of stores in bytes, by the node that waited."""
    operated: set[Node] = field(default_factory=set)
    """The items of the operator that was built last: they keep the values of their stores themselves."""
    processes_records: bool = False
    """Whether there are processors."""
    count: int = 0
    """The number of operators so far."""
    global_rows: dict[Node, Any] = field(default_factory=dict)
    """The rows of global tables (task_globals.GlobalRows), by their reads."""
    times: list[Any] = field(default_factory=list)
    """The timestamp extractors that give records the times by which a task orders them (Times.java)."""
    fillings: dict[str, Any] = field(default_factory=dict)
    """The processors that fill global tables, by their topics, as programs of the kernel."""

    def __post_init__(self) -> None:
        self.stores = TaskStores(self.context.application_id)
        self.stands_for = dict(self.plan.stands_for)
        self.remembering = set(self.plan.remembering.tables)

    @property
    def pipeline(self) -> Pipeline:
        return self.plan.pipeline

    def count_uses(self, nodes: Iterable[Node]) -> None:
        """Note how many of these nodes take each node's lane."""
        for node in nodes:
            if node not in self.pipeline.inputs:
                for parent in needed_by(self.pipeline, node):
                    self.uses[parent] = self.uses.get(parent, 0) + 1

    def skipping(self, node: Node, kind: str) -> str:
        """The name of one more number of records that a node passes over."""
        self.failures += 1
        return metric(self.failures - 1, kind, node.name)

    def next_number(self) -> int:
        """A number for one more operator."""
        self.count += 1
        return self.count - 1

    @property
    def opened(self) -> list[Node]:
        """The inputs whose records are among the rows."""
        return [node for node in self.pipeline.inputs if not isinstance(node, GlobalRead)]

    @property
    def needs_source(self) -> bool:
        """Whether the bytes that are read are needed behind an operator: of inputs that are opened later, or
        of changelogs, of which stores with versions are made."""
        return bool(self.flow.unopened) or any(
            store.history_ms is not None and store.source_topic is None
            for node in self.pipeline.nodes
            for store in node.stores
        )

    # --- lanes ---------------------------------------------------------------------------------------

    def open(self, node: Source | TableSource | Repartition) -> tuple[Flow, Lane]:
        """The flow with the records of an input, and a lane of these, in bytes."""
        flow = self.flow
        flow.unopened -= 1
        controls = [0, CONTROL_RESTORED] if isinstance(node, TableSource) else [0]
        keep = flow.with_column(
            "f", F.coalesce(F.col(CONTROL).isin(controls) & self._is_of(node), F.lit(False))
        )
        return flow, Lane(RAW_KEY, RAW_VALUE, keep, routes=((None, frozenset([flow.unopened])),))

    def _is_of(self, node: Source | TableSource | Repartition) -> Column:
        """Whether a record is of one of an input's topics."""
        # What comes again may be of changelogs, too.
        if len(self.opened) == 1 and not isinstance(node, TableSource):
            return F.lit(True)
        topic = F.col("_topic")
        if isinstance(node, Source) and node.pattern is not None:
            return topic.rlike(f"^(?:{node.pattern.pattern})$")
        return topic.isin(*topics_of_input(node, self.context.application_id))

    def before(self, parent: Node) -> Node:
        """The node whose lane stands in for a parent's, for the node being visited."""
        return parent if self.visiting is None else self.forwarded.get((parent, self.visiting), parent)

    def take(self, parent: Node) -> tuple[Flow, Lane, bool]:
        """The parent's lane, and whether this is the last lane that needs its rows."""
        parent, flow = self.before(parent), self.flow
        lane = flow.lanes[parent]
        self.uses[parent] -= 1
        if not self.uses[parent] and parent not in flow.pinned:
            del flow.lanes[parent]
        return flow, lane, not flow.lanes

    def put(self, node: Node, flow: Flow, lane: Lane, stored: Lane | None = None) -> None:
        """Put the node's own lane, and fill its store if it has one: from the lane `stored`, if given."""
        if self._waited(node) in self.operated and node not in self.plan.remembering.by_time:
            lane = replace(lane, past=None)  # only a group asks
        if self.uses.get(node):
            flow.lanes[node] = lane
        if node.store is not None and node.store.source_topic is None:
            if stored is None:
                self._fill(node, node.store, flow, lane)
            else:
                self._fill(StoreInput(node.name, (node,), node.store), node.store, flow, stored)

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
        """Have a store keep what a node passes on."""
        waited = self._waited(node.parents[0] if isinstance(node, StoreInput) else node)
        if waited not in self.operated:  # a step without state: an item keeps its rows, and does nothing else
            kept = self.plan.kept[node]
            if kept in self.stands_for:
                flow.lanes.pop(node, None)
                if lane.old is not None:
                    self.remembering.add(node)
            self.wait(kept, flow, lane)
            return
        _, value = self.store_serdes[store.name] = self.serdes_of(store, flow, lane)
        where = f"{node.name}: the value of store '{store.name}'"
        self.stored[waited] = serde_columns.to_bytes(
            value, F.col(lane.value), flow.type_of(lane.value), where
        )

    def _waited(self, node: Node) -> Node:
        """The internal node that waited in a node's place, or the node."""
        return next((waited for waited, of in self.stands_for.items() if of is node), node)

    def as_stream(self, flow: Flow, lane: Lane) -> Lane:
        """A table's lane as one of a stream."""
        lane = replace(lane, old=None, since=None, past=None)
        return flow.narrow(lane, F.col(CONTROL) == 0, alone=False)

    def pin(self, node: Node, flow: Flow, lane: Lane, output: Output) -> None:
        """Have the lane's rows written, whatever else needs them."""
        flow.lanes[node] = lane
        flow.pinned.add(node)
        self.outputs[node] = output

    def wait(self, node: Node, flow: Flow, lane: Lane) -> None:
        """Have an item of an operator wait, with the lane as it is by then."""
        # Only noted: until everything before it is built, its neighbours can still change flow and lane.
        flow.lanes[node] = lane

    # --- topics and serdes ---------------------------------------------------------------------------

    def internal(self, topic: str) -> Column:
        """The full name of an internal topic that is written."""
        self.partitions(topic)  # it is known, or raises
        return F.lit(internal_topic(self.context.application_id, topic))

    def partitions(self, topic: str) -> int:
        """How many partitions an internal topic has."""
        try:
            return self.context.partitions[topic]
        except KeyError:
            raise TopologyException(
                f"the partition count of the internal topic '{topic}' is not known; "
                "this is a bug, please report it"
            ) from None

    def settle(
        self, declared: Serde | None, inherited: Serde | None, default: Serde | None, type_: T.DataType
    ) -> Serde:
        """The serde of a column: the declared one, else the one it was read with, else the configured default
        if that fits the type, else the one that the type implies."""
        if declared is not None:
            return self.bound(declared, inherited=inherited, type_=type_)
        for candidate in (inherited, default):
            if candidate is not None:
                natural = serde_columns.column_type(candidate)
                if natural is None or natural == type_:
                    return self.bound(candidate, inherited=inherited, type_=type_)
        return serde_columns.infer(type_)

    def serdes_of(self, store: Store, flow: Flow, lane: Lane) -> tuple[Serde, Serde]:
        """The serdes of a store with the rows of a lane; of windows, that of the keys without them."""
        key_type, inherited = flow.type_of(lane.key), lane.key_serde
        if store.kind is not StoreKind.KEY_VALUE:
            assert isinstance(key_type, T.StructType)
            key_type = key_type["key"].dataType
            inherited = getattr(inherited, "inner", None)
        context = self.context
        key = self.settle(store.key_serde, inherited, context.default_key_serde, key_type)
        value_type = flow.type_of(lane.value)
        value = self.settle(store.value_serde, lane.value_serde, context.default_value_serde, value_type)
        changelog = changelog_topic(context.application_id, store.name)
        return self.bound(key, changelog, is_key=True), self.bound(value, changelog)

    def key_serde_of(self, table: Node, inherited: Serde | None, type_: T.DataType) -> Serde:
        """The serde of a table's keys, which are windowed if its store is."""
        store = table.store
        # A windowed store's own serde is that of the keys without their windows.
        declared = store.key_serde if store is not None and store.kind is StoreKind.KEY_VALUE else None
        return self.settle(declared, inherited, self.context.default_key_serde, type_)

    def read(self, serde: Serde, topic: str | None, *, is_key: bool = False) -> Serde:
        """The serde that a topic is read with; one with a registry gets the schema of the columns."""
        made: Serde = reading(self.bound(serde, topic, is_key=is_key))
        return made

    def bound(
        self,
        serde: Serde,
        topic: str | None = None,
        *,
        is_key: bool = False,
        inherited: Serde | None = None,
        type_: T.DataType | None = None,
    ) -> Serde:
        """The serde as used for a topic: with the configured registry and, for columns of a type, with a
        schema. A serde without a registry is unchanged."""
        made: Serde = bound(serde, self.context.registry, topic, is_key=is_key)
        if type_ is not None and isinstance(made, RegistrySerde):
            made = registry_serdes.settled(made, inherited, type_)
        return made

    def codecs(self, flow: Flow, lane: Lane) -> tuple[tuple[Serde, Any], tuple[Serde, Any]]:
        """Serde and bytes of key and value, for functions that run in Python. They get what stores return."""
        key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
        key = self.settle(None, lane.key_serde, None, key_type)
        value = self.settle(None, lane.value_serde, None, value_type)
        return (
            (key, lambda column: serde_columns.to_bytes(key, column, key_type, "the key")),
            (value, lambda column: serde_columns.to_bytes(value, column, value_type, "the value")),
        )
