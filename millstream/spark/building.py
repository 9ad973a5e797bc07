"""The state that the steps of one compilation share: its inputs, its results, and its pending work.

Every `visit_<node>` gets the `Building` of its compilation, and its node. These functions are in topics.py,
streams.py, tables.py, aggregations.py, joining.py and foreign_keys.py; compiler.py has the table of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.timestamps import Extractor
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.registry.settings import RegistrySettings
from millstream.serdes.registered import RegistrySerde, bound, reading
from millstream.serdes.serde import Serde
from millstream.serdes.windowed import WindowedSerde
from millstream.spark import registry_serdes, serdes
from millstream.spark.asking import Place
from millstream.spark.flow import Flow, Lane, Names
from millstream.spark.frames import StaticFrame, UserWriter
from millstream.spark.handlers import FAIL, RecordHandlers
from millstream.spark.joins import Side
from millstream.spark.restore import Restored
from millstream.spark.sink import Output
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import (
    FrameTable,
    GlobalRead,
    Node,
    Process,
    Repartition,
    Source,
    Store,
    StreamGlobalTableJoin,
    StreamJoin,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, global_read, global_stores_of

__all__ = [
    "Building",
    "CompileContext",
    "Kept",
]


_GLOBAL_BUCKETS = 32
"""In so many parts the rows of a global table are kept, however many partitions its topic has."""


@dataclass(frozen=True)
class CompileContext:
    """What a compilation needs besides the nodes.

    Attributes:
        application_id: prefix of internal topics.
        partitions: partition count of each internal topic, by its name without the application id.
        read: the records of an input: `key`, `value` binary, and the columns of flow.CONTEXT.
        default_key_serde, default_value_serde: from the configuration, or None.
        handlers: which records that fail are dropped.
        repartition_serdes: filled by the pipeline that writes a repartition topic, for the one that reads it.
        cached: a key's last value of a micro-batch is told, where its store does not say otherwise.
        patience_ms: how long a fold in Python may take for one record.
        only: nothing but these changelogs is written (rebuild.py); None: everything is.
        kept: with it, what the kernel keeps under a name (Shelf.java), instead of what comes of records.
        restored: with it, what operators begin with on a new checkpoint, by changelog (restore.py).
        timestamp_extractor: for the sources that have none; None: Kafka's default.
        config: the configuration, as far as processors can ask for it.
        clock: the time of day, as a stream with a column `timestamp`; None: there is none.
        is_timed: for processors the time of day is what that tells, not that of the machine: for tests.
        registry: the schema registry of the configuration, or None.
        frame: the DataFrame of a table; asked once for each table.
        written_serdes: filled with the serdes of keys and values that topics are written with.
        real_time: rows are processed as they come: nothing may wait for all rows of a batch.
    """

    application_id: str
    partitions: Mapping[str, int]
    read: Callable[[Source | TableSource | Repartition], DataFrame]
    default_key_serde: Serde | None = None
    default_value_serde: Serde | None = None
    handlers: RecordHandlers = FAIL
    repartition_serdes: dict[Repartition, tuple[Serde, Serde]] = field(default_factory=dict)
    cached: bool = True
    patience_ms: int = 300_000
    only: Collection[str] | None = None
    kept: Callable[[str], DataFrame] | None = None
    restored: Callable[[str, Restored], DataFrame] | None = None
    timestamp_extractor: Extractor | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    clock: Callable[[], DataFrame] | None = None
    is_timed: bool = False
    registry: RegistrySettings | None = None
    frame: Callable[[FrameTable], StaticFrame] | None = None
    written_serdes: dict[str, tuple[Serde, Serde]] = field(default_factory=dict)
    real_time: bool = False


@dataclass(frozen=True, eq=False)
class Kept(Node):
    """What the store of a node gets, where that is not what goes on. In no topology: ours alone."""

    stored: Store = field(default_factory=lambda: Store(""))

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass
class Building:
    """What all steps of one compilation share; used once.

    A visit takes the lane of a parent (`take`), adds columns to its flow, and puts a lane of its own (`put`).
    """

    pipeline: Pipeline
    context: CompileContext
    names: Names = field(default_factory=Names)
    flows: list[Flow] = field(default_factory=list)
    pending: list[Node] = field(default_factory=list)
    """What waits to become an item of an operator."""
    outputs: dict[Node, Output] = field(default_factory=dict)
    """Where the rows of pinned lanes go."""
    store_serdes: dict[str, tuple[Serde, Serde]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    """How the state of a store is laid out, in words."""
    parts: dict[Node, str] = field(default_factory=dict)
    """Of aggregations, the columns with what they are made of, in bytes."""
    choices: dict[Node, str] = field(default_factory=dict)
    """Of branches, the columns with the number of the one that a row takes."""
    sides: dict[Node, tuple[Side, ...]] = field(default_factory=dict)
    """What the joins that wait have of their parents."""
    found_by: dict[Node, tuple[Lane, str]] = field(default_factory=dict)
    """Of the joins with global tables, the stream's lane, and the column with the places of its records."""
    carried: dict[Node, tuple[str, ...]] = field(default_factory=dict)
    """Of joins by a foreign key, the columns that an operator keeps of what refers to a row."""
    stands_for: dict[Node, Node] = field(default_factory=dict)
    """What waits in the place of a node of the topology."""
    looked_up: dict[tuple[Node, bool], int] = field(default_factory=dict)
    """How often rows of a table are looked up, by streams or (True) for foreign keys, by operators before."""
    remembering: set[Node] = field(default_factory=set)
    """The tables whose updates say what was there before."""
    raw: dict[str, str] = field(default_factory=dict)
    """By columns that were read for processors: those with their bytes."""
    processes: list[Process] = field(default_factory=list)
    """The processors that wait for those that are linked with them."""
    linked: dict[Process, Any] = field(default_factory=dict)
    """What processors are one operator with (processors.Linked)."""
    forwarded: dict[tuple[Node, Node], Node] = field(default_factory=dict)
    """By a processor and a step behind it, whose lane that is."""
    by_clock: bool = False
    """Whether there are processors that go by the time of day."""
    visiting: Node | None = None
    """Whose visit this is."""
    uses: dict[Node, int] = field(default_factory=dict)
    """How many visits have still to take a node's lane."""
    user_writer: UserWriter | None = None
    """What writes all that the pipeline reads, where that is not Kafka."""
    failures: int = 0
    """How many flags there are of records that are dropped."""
    places: list[Place] = field(default_factory=list)
    """Where records can fail that handlers of the user's own are asked about."""

    def parents(self, node: Node) -> tuple[Node, ...]:
        """What has to be built before a node; also the reads of its global tables."""
        if isinstance(node, Process):
            reads = [each for each in self.pipeline.inputs if isinstance(each, GlobalRead)]
            tables = {read.of: read for read in reads if read.of is not None}
            return *node.parents, *(tables[table] for table in global_stores_of(node, tables))
        if isinstance(node, StreamGlobalTableJoin):
            return node.parents[0], self.global_read(node)
        return node.parents

    def global_read(self, node: StreamGlobalTableJoin) -> GlobalRead:
        read = global_read(node, self.pipeline.inputs)
        assert read is not None
        return read

    # --- lanes ---------------------------------------------------------------------------------------

    def flow_of(self, node: Node) -> Flow:
        lane = self.before(node)
        return next(flow for flow in self.flows if lane in flow.lanes)

    def before(self, parent: Node) -> Node:
        """Whose lane a parent's is, for the node that is visited."""
        return parent if self.visiting is None else self.forwarded.get((parent, self.visiting), parent)

    def take(self, parent: Node) -> tuple[Flow, Lane, bool]:
        """The parent's lane, and whether no other lane needs its rows from now on."""
        parent = self.before(parent)
        flow = self.flow_of(parent)
        lane = flow.lanes[parent]
        self.uses[parent] -= 1
        if not self.uses[parent] and parent not in flow.pinned:
            del flow.lanes[parent]
        return flow, lane, not flow.lanes

    def put(self, node: Node, flow: Flow, lane: Lane, stored: Lane | None = None) -> None:
        """The node's own lane; with its store, if it fills one: of the lane `stored`, if that is another."""
        if self.uses.get(node):
            flow.lanes[node] = lane
        if node.store is not None and node.store.source_topic is None:
            if stored is None:
                self._fill(node, node.store, flow, lane)
            else:
                self._fill(Kept(node.name, (node,), node.store), node.store, flow, stored)

    def pin(self, node: Node, flow: Flow, lane: Lane, output: Output) -> None:
        """Have the lane's rows written, whatever else they are needed for."""
        flow.lanes[node] = lane
        flow.pinned.add(node)
        self.outputs[node] = output

    def wait(self, node: Node, flow: Flow, lane: Lane) -> None:
        """Have the node become an item of an operator (operators.py), with what the lane has by then."""
        # Only noted: until all before them is built, what comes beside it can still change flow and lane.
        flow.lanes[node] = lane
        self.pending.append(node)

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
        aggregated = node.parents[0] if isinstance(node, Kept) else node
        windowed = store.kind is not StoreKind.KEY_VALUE
        key_column, key_type, inherited = F.col(lane.key), flow.type_of(lane.key), lane.key_serde
        if windowed:  # the serde of a windowed store is that of the keys themselves
            assert isinstance(key_type, T.StructType)
            key_column, key_type = key_column["key"], key_type["key"].dataType
            inherited = inherited.inner if isinstance(inherited, WindowedSerde) else None
        key = self.settle(store.key_serde, inherited, self.context.default_key_serde, key_type)
        value = self.settle(
            store.value_serde, lane.value_serde, self.context.default_value_serde, flow.type_of(lane.value)
        )
        changelog = internal_topic(self.context.application_id, f"{store.name}-changelog")
        key, value = self.bound(key, changelog, is_key=True), self.bound(value, changelog)
        self.store_serdes[store.name] = (key, value)
        if not store.logged:
            return
        topic = f"{store.name}-changelog"
        route = None
        if isinstance(key, WindowedSerde) and isinstance(key_type, T.StructType):  # of a suppress
            where = f"{node.name}: the key of store '{store.name}'"
            route = serdes.to_bytes(key.inner, key_column["key"], key_type["key"].dataType, where)
        plain_key = serdes.to_bytes(
            key, key_column, key_type, f"{node.name}: the key of store '{store.name}'"
        )
        self.pin(
            node,
            flow,
            lane,
            Output(
                topic=self.internal(topic),
                key=_windowed_bytes(store, plain_key, F.col(lane.key)["window"]) if windowed else plain_key,
                value=serdes.to_bytes(
                    value,
                    F.col(lane.value),
                    flow.type_of(lane.value),
                    f"{node.name}: the value of store '{store.name}'",
                ),
                route=plain_key if route is None else route,
                fenced=True,
                parts=F.col(self.parts[aggregated]) if aggregated in self.parts else None,
            ),
        )

    # --- topics and serdes ---------------------------------------------------------------------------

    def internal(self, topic: str) -> Column:
        """The whole name of an internal topic, which is written."""
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

    def buckets(self, node: Node) -> int:
        """How many partitions a node's keys are in."""
        if isinstance(node, StreamGlobalTableJoin):
            return _GLOBAL_BUCKETS
        while node.store is None and not isinstance(node, Repartition | StreamJoin):
            node = node.parents[-1]
        if isinstance(node, Repartition):
            return max(1, self.partitions(node.topic))
        store = node.this_stored if isinstance(node, StreamJoin) else node.store
        assert store is not None
        return max(1, self.partitions(f"{store.name}-changelog"))

    def is_wanted(self, node: Node) -> bool:
        """Whether what a node gives is written at all (`CompileContext.only`)."""
        if self.context.only is None:
            return True
        store = node.store
        return store is not None and (
            changelog_topic(self.context.application_id, store.name) in self.context.only
        )

    def settle(
        self, declared: Serde | None, inherited: Serde | None, default: Serde | None, type_: T.DataType
    ) -> Serde:
        """The serde of a column: declared for it, else what it was read with, else the configured default
        where that fits the type, else the one that the type implies."""
        if declared is not None:
            return self.bound(declared, inherited=inherited, type_=type_)
        for candidate in (inherited, default):
            if candidate is not None:
                natural = serdes.column_type(candidate)
                if natural is None or natural == type_:
                    return self.bound(candidate, inherited=inherited, type_=type_)
        return serdes.infer(type_)

    def read(self, serde: Serde, topic: str | None, *, is_key: bool = False) -> Serde:
        """The serde that a topic is read with: one with a registry has the schema that columns have."""
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
        """The serde as it is used for a topic, with the registry of the configuration and, for columns of a
        type, with a schema; those without a registry are as they were."""
        made: Serde = bound(serde, self.context.registry, topic, is_key=is_key)
        if type_ is not None and isinstance(made, RegistrySerde):
            made = registry_serdes.settled(made, inherited, type_)
        return made

    def codecs(self, flow: Flow, lane: Lane) -> tuple[tuple[Serde, Any], tuple[Serde, Any]]:
        """Serde and bytes of key and value, for functions that run in Python: they get what stores give."""
        key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
        key = self.settle(None, lane.key_serde, None, key_type)
        value = self.settle(None, lane.value_serde, None, value_type)
        return (
            (key, lambda column: serdes.to_bytes(key, column, key_type, "the key")),
            (value, lambda column: serdes.to_bytes(value, column, value_type, "the value")),
        )


def _windowed_bytes(store: Store, key: Column, window: Column) -> Column:
    """The key of a windowed store's changelog: as Kafka's WindowKeySchema and SessionKeySchema have it."""
    start = serdes.big_endian(F.unix_millis(window["start"]), 8)
    if store.kind is StoreKind.SESSION:
        return F.concat(key, serdes.big_endian(F.unix_millis(window["end"]), 8), start)
    return F.concat(key, start, F.lit(bytearray(4)))  # a sequence number, which is 0
