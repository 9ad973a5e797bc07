"""From a pipeline's nodes to one streaming DataFrame whose rows are records to write.

One `visit_<Node>` for each node class: it takes the lane of its parent (flow.py) and puts a lane of its own.
Aggregations wait until everything before them is built, because all those of one flow become one stateful
operator (stateful.py). What reaches a topic is pinned, and sink.py turns the pinned lanes into rows.

Nothing here reads or writes Kafka: where records come from and go to is given (`CompileContext.read`,
sink.py), so that the test driver compiles the same plan over memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.error_handlers import SerializationExceptionOrigin
from millstream.dsl.printed import printing
from millstream.dsl.serdes import Serde, Serdes
from millstream.dsl.timestamps import Extractor, FailOnInvalidTimestamp
from millstream.dsl.windowed_serdes import WindowedSerde
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.ports import Scan
from millstream.spark import foreign_keys, serdes
from millstream.spark.aggregate import Pending, group
from millstream.spark.asking import Asking, Place, Reader
from millstream.spark.dropped import LATE, UNTIMED
from millstream.spark.flow import (
    HEADERS,
    HEADERS_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
    Failure,
    Flow,
    Lane,
    Names,
)
from millstream.spark.folding import FoldSerdes
from millstream.spark.grouped_tables import changes
from millstream.spark.handlers import (
    FAIL,
    PROCESSING_FAILED,
    RECORD_TOO_LARGE,
    SERIALIZATION_FAILED,
    RecordHandlers,
    attempt,
    error_headers,
    record_size,
)
from millstream.spark.joins import ForeignKey, Join, Joined, Lookup, OfSides, Side, history_of, links_of
from millstream.spark.mergeable import NotMergeableError
from millstream.spark.peek import peek
from millstream.spark.printing import outlet, to_file, to_stdout
from millstream.spark.restore import Restored
from millstream.spark.sink import Output, Question, output_rows, with_epoch
from millstream.spark.stateful import Item, Results, aggregate, item_of, largest_so_far, layout
from millstream.spark.timestamps import stamp
from millstream.spark.trace import as_column, called, trace, translated
from millstream.topology import nodes
from millstream.topology.functions import arity, describe_function
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import (
    Function,
    GlobalRead,
    JoinType,
    Node,
    Repartition,
    Source,
    Store,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    TableJoin,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, global_read, input_label
from millstream.topology.subtopology import DisjointSets
from millstream.topology.windows import SlidingWindows

__all__ = [
    "BY_SPARK",
    "CompileContext",
    "Compiled",
    "Compiler",
    "compile_pipeline",
    "operators",
]

_FUNCTIONS = ("mapper", "predicate", "action", "topic_function", "partitioner", "expression", "selector")
"""What nodes call the functions that may ask where a record came from."""

Joining = Lookup | StreamJoin | TableJoin | nodes.ForeignKeyJoin
"""What has a joiner."""

_GLOBAL_BUCKETS = 32
"""In so many parts the rows of a global table are kept, however many partitions its topic has."""

BY_SPARK = "by Spark's own operator"
"""The layouts of state that is not the kernel's, which Spark checks itself."""


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


@dataclass(frozen=True)
class Compiled:
    """`rows` is None when the pipeline writes nothing: its tables are views of their source topics.

    They are not yet what a sink takes: `rows_at(epoch)` is. `layouts` says in words how the state of each
    store is laid out.
    """

    rows: DataFrame | None
    store_serdes: Mapping[str, tuple[Serde, Serde]]
    scans: tuple[Scan, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    """How many partitions each topic of the application's own has."""
    drops: bool = False
    """Whether there is a step that can drop a record, and have it counted."""
    asking: Asking | None = None
    """Asks the user's own handlers; None: there are none."""

    def rows_at(self, epoch: int | None) -> DataFrame | None:
        """The rows of a query that runs under this epoch (sink.with_epoch). Traces nothing anew."""
        return None if self.rows is None else with_epoch(self.rows, epoch)


def compile_pipeline(pipeline: Pipeline, context: CompileContext) -> Compiled:
    """Trace every function of the pipeline and build its DataFrame.

    Shape of `rows_at`: topic string, key binary, value binary, partition int (NULL: by the route), route
    binary (NULL: Kafka's default partitioner), timestamp bigint (ms), headers array<struct<key, value>>; and
    a struct `letter`, where dead letters may be needed (sink.py).

    Raises:
        TopologyException: a function is wrong, or a serde does not fit its column.
    """
    return Compiler(pipeline, context).compile()


@dataclass(frozen=True, eq=False)
class DeadLetters(Node):
    """The records that a node drops, on their way to the dead letter queue. In no topology: ours alone."""


@dataclass(frozen=True, eq=False)
class Kept(Node):
    """What the store of a node gets, where that is not what goes on. In no topology: ours alone."""

    stored: Store = field(default_factory=lambda: Store(""))

    @property
    def store(self) -> Store | None:
        return self.stored


@dataclass(frozen=True, eq=False)
class Contribution(Node):
    """What one stream gives to a cogroup. In no topology: ours alone."""


@dataclass(frozen=True)
class Cogrouped:
    """The adders of a cogroup as one: of values behind the number of their stream, and 0 if there is none."""

    adders: tuple[Function, ...]
    readers: tuple[Serde, ...]

    def __call__(self, key: Any, value: bytes, aggregate: Any) -> Any:
        number, there = value[0], value[1]
        read = self.readers[number].deserialize(value[2:]) if there else None
        return self.adders[number](key, read, aggregate)


@dataclass(frozen=True, eq=False)
class Passed(Node):
    """What was written of a flow before an operator, and passed through it. In no topology: ours alone."""


@dataclass
class Compiler:
    """One compilation; used once."""

    pipeline: Pipeline
    context: CompileContext
    names: Names = field(default_factory=Names)
    flows: list[Flow] = field(default_factory=list)
    pending: list[Node] = field(default_factory=list)
    outputs: dict[Node, Output] = field(default_factory=dict)
    store_serdes: dict[str, tuple[Serde, Serde]] = field(default_factory=dict)
    layouts: dict[str, str] = field(default_factory=dict)
    parts: dict[Node, str] = field(default_factory=dict)
    choices: dict[Node, str] = field(default_factory=dict)
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
    uses: dict[Node, int] = field(default_factory=dict)
    failures: int = 0
    places: list[Place] = field(default_factory=list)
    """Where records can fail that handlers of the user's own are asked about."""

    def compile(self) -> Compiled:
        inputs = set(self.pipeline.inputs)
        for node in self.pipeline.nodes:
            if node not in inputs:
                for parent in self._parents(node):
                    self.uses[parent] = self.uses.get(parent, 0) + 1
            if isinstance(node, nodes.TableGroupBy):
                self._remember(node.parents[0], needed=True)
            elif isinstance(node, nodes.TableFilter) and self._is_told(node):
                self._remember(node.parents[0], needed=False)
        waiting = list(self.pipeline.nodes)
        done: set[Node] = set()
        while waiting:
            ready = [n for n in waiting if n in inputs or all(parent in done for parent in self._parents(n))]
            ready = [n for n in ready if n not in self.pending and n not in self.stands_for.values()]
            ready = [n for n in ready if foreign_keys.is_ready(n, waiting, self.pending)]
            if ready:
                for node in ready:
                    self._visit(node)
                    if node not in self.pending and node not in self.stands_for.values():
                        done.add(node)
                        waiting.remove(node)
                continue
            done |= (aggregated := self._aggregate_pending())
            waiting = [n for n in waiting if n not in aggregated]
        rows, scans = self._rows()
        partitions = {
            internal_topic(self.context.application_id, name): count
            for name, count in self.context.partitions.items()
        }
        places = {store: number for number, stores in enumerate(operators(scans), 1) for store in stores}
        layouts = {
            store: f"{laid_out}; of operator {places[store]}"
            for store, laid_out in self.layouts.items()
            if store in places
        }
        drops = self.failures > 0
        return Compiled(rows, dict(self.store_serdes), scans, layouts, partitions, drops, self._asking())

    def _asking(self) -> Asking | None:
        handlers, runs = self.context.handlers, self.pipeline.subtopologies
        if not handlers.own:
            return None
        return Asking(handlers.own, handlers.configs, self.places, runs[0] if len(runs) == 1 else None)

    def _parents(self, node: Node) -> tuple[Node, ...]:
        if isinstance(node, StreamGlobalTableJoin):
            return node.parents[0], self._global_read(node)
        return node.parents

    def _global_read(self, node: StreamGlobalTableJoin) -> GlobalRead:
        read = global_read(node, self.pipeline.inputs)
        assert read is not None
        return read

    def _visit(self, node: Node) -> None:
        visit = getattr(self, f"visit_{type(node).__name__}")
        translated(node, None, lambda: visit(node))

    # --- lanes -----------------------------------------------------------------------------------------

    def _flow_of(self, node: Node) -> Flow:
        return next(flow for flow in self.flows if node in flow.lanes)

    def _take(self, parent: Node) -> tuple[Flow, Lane, bool]:
        """The parent's lane, and whether no other lane needs its rows from now on."""
        flow = self._flow_of(parent)
        lane = flow.lanes[parent]
        self.uses[parent] -= 1
        if not self.uses[parent] and parent not in flow.pinned:
            del flow.lanes[parent]
        return flow, lane, not flow.lanes

    def _put(self, node: Node, flow: Flow, lane: Lane, stored: Lane | None = None) -> None:
        """The node's own lane; with its store, if it fills one: of the lane `stored`, if that is another."""
        if self.uses.get(node):
            flow.lanes[node] = lane
        if node.store is not None and node.store.source_topic is None:
            if stored is None:
                self._fill(node, node.store, flow, lane)
            else:
                self._fill(Kept(node.name, (node,), node.store), node.store, flow, stored)

    def _pin(self, node: Node, flow: Flow, lane: Lane, output: Output) -> None:
        flow.lanes[node] = lane
        flow.pinned.add(node)
        self.outputs[node] = output

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
        aggregated = node.parents[0] if isinstance(node, Kept) else node
        windowed = store.kind is not StoreKind.KEY_VALUE
        key_column, key_type, inherited = F.col(lane.key), flow.type_of(lane.key), lane.key_serde
        if windowed:  # the serde of a windowed store is that of the keys themselves
            assert isinstance(key_type, T.StructType)
            key_column, key_type = key_column["key"], key_type["key"].dataType
            inherited = inherited.inner if isinstance(inherited, WindowedSerde) else None
        key = self._settle(store.key_serde, inherited, self.context.default_key_serde, key_type)
        value = self._settle(
            store.value_serde, lane.value_serde, self.context.default_value_serde, flow.type_of(lane.value)
        )
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
        self._pin(
            node,
            flow,
            lane,
            Output(
                topic=self._internal(topic),
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

    def _internal(self, topic: str) -> Column:
        """The whole name of an internal topic, which is written."""
        if topic not in self.context.partitions:
            raise TopologyException(
                f"the partition count of the internal topic '{topic}' is not known; "
                "this is a bug, please report it"
            )
        return F.lit(internal_topic(self.context.application_id, topic))

    def _partitions(self, topic: str) -> int:
        try:
            return self.context.partitions[topic]
        except KeyError:
            raise TopologyException(
                f"the partition count of the internal topic '{topic}' is not known; "
                "this is a bug, please report it"
            ) from None

    def _settle(
        self, declared: Serde | None, inherited: Serde | None, default: Serde | None, type_: T.DataType
    ) -> Serde:
        """The serde of a column: declared for it, else what it was read with, else the configured default
        where that fits the type, else the one that the type implies."""
        if declared is not None:
            return declared
        for candidate in (inherited, default):
            if candidate is not None:
                natural = serdes.column_type(candidate)
                if natural is None or natural == type_:
                    return candidate
        return serdes.infer(type_)

    # --- inputs ----------------------------------------------------------------------------------------

    def _open(self, node: Any, key_serde: Serde, value_serde: Serde) -> tuple[Flow, Lane]:
        flow = Flow(self.context.read(node), self.names, scans=(Scan(input_label(node)),))
        where = F.concat(
            F.col(TOPIC),
            F.lit("-"),
            F.col(PARTITION).cast("string"),
            F.lit(" offset "),
            F.col(OFFSET).cast("string"),
        )
        where_key, where_value = F.concat(where, F.lit(" key")), F.concat(where, F.lit(" value"))
        read_key = serdes.from_bytes(key_serde, F.col("key"), where_key)
        read_value = serdes.from_bytes(value_serde, F.col("value"), where_value)
        self.flows.append(flow)
        if not self.context.handlers.deserialization:
            key, value = flow.with_column("k", read_key), flow.with_column("v", read_value)
            self._forget_raw(flow)
            return flow, self._stamped(node, flow, Lane(key, value, None, key_serde, value_serde))
        tried_key = flow.with_column("t", attempt(F.lit(True), read_key))
        tried_value = flow.with_column("t", attempt(F.lit(True), read_value))
        key = flow.with_column("k", F.col(tried_key)["r0"])
        value = flow.with_column("v", F.col(tried_value)["r0"])
        failed = flow.with_column("d", F.col(tried_key).isNull() | F.col(tried_value).isNull())
        raw_key, raw_value = self._forget_raw(flow)
        exception, message = (
            F.lit(SERIALIZATION_FAILED),
            F.when(
                F.col(tried_key).isNull(), serdes.complaint(key_serde, F.col(raw_key), where_key)
            ).otherwise(serdes.complaint(value_serde, F.col(raw_value), where_value)),
        )
        if "deserialization" in self.context.handlers.own:
            place = F.lit(self._place_of(Place("deserialization", node.name)))
            nothing = F.lit(None).cast("binary")
            self._ask(node, flow, failed, Question(place, exception, message, nothing, nothing))
        else:
            self._drop(node, flow, failed, "deserialization", exception, message)
        lane = flow.narrow(
            Lane(key, value, None, key_serde, value_serde), ~F.col(failed), alone=not flow.lanes
        )
        return flow, self._stamped(node, flow, lane)

    def _stamped(self, node: Any, flow: Flow, lane: Lane) -> Lane:
        """The lane of a source, with the times that its timestamp extractor has for the records."""
        if isinstance(node, Repartition | GlobalRead):
            return lane  # what we have written has a time, and a global table's rows need none
        using = node.timestamp_extractor or self.context.timestamp_extractor or FailOnInvalidTimestamp()
        skipped = stamp(
            node.name,
            using,
            flow,
            lane,
            lambda function: self._add(
                node, function, flow, lane, "s", self._trace(node, function, flow, lane)
            ),
        )
        if skipped is None:
            return lane
        flow.uncounted.append(Failure(skipped, self.failures, UNTIMED, node.name))
        self.failures += 1
        return flow.narrow(lane, ~F.col(skipped), alone=not flow.lanes)

    def _forget_raw(self, flow: Flow) -> tuple[str, str]:
        """Drop the bytes that were read, unless they are told of; returns what they are then called."""
        if self.context.handlers.needs_source:
            flow.df = flow.df.withColumnsRenamed({"key": RAW_KEY, "value": RAW_VALUE})
        else:
            flow.df = flow.df.drop("key", "value")
        return RAW_KEY, RAW_VALUE

    # --- records that fail ------------------------------------------------------------------------------

    def _drop(
        self,
        node: Node,
        flow: Flow,
        failed: str,
        kind: str,
        exception: Column,
        message: Column,
        function: Function | None = None,
    ) -> None:
        """Count the rows of this flag and send them to the dead letter queue, if there is one.

        That they go no further is up to the caller, who narrows the lane.
        """
        self._count(node, flow, failed, kind)
        handlers = self.context.handlers
        if handlers.dead_letter_topic is None:
            return
        place = node.name if function is None else f"{node.name} ({describe_function(function)})"
        errors = error_headers(exception, message, place)
        # The results of an aggregation were not read from a topic.
        raw = RAW_KEY in flow.df.columns
        key = F.col(RAW_KEY) if raw else F.lit(None).cast("binary")
        value = F.col(RAW_VALUE) if raw else F.lit(None).cast("binary")
        # A dead letter that is too large would end the pipeline, again and again.
        headers = F.concat(F.coalesce(F.col(HEADERS), F.array().cast(HEADERS_TYPE)), errors)
        whole = record_size(key, value, headers)
        value = F.when(whole <= handlers.max_request_size, value)
        letters = DeadLetters(f"{node.name}-dead-letters", (node,))
        output = Output(F.lit(handlers.dead_letter_topic), key, value, headers=True, errors=errors)
        self._pin(letters, flow, Lane(RAW_KEY, RAW_VALUE, failed), output)

    def _count(self, node: Node, flow: Flow, failed: str, kind: str) -> None:
        flow.uncounted.append(Failure(failed, self.failures, kind, node.name))
        self.failures += 1

    def _ask(
        self, node: Node, flow: Flow, failed: str, question: Question, topic: Column | None = None
    ) -> None:
        """Count the rows of this flag, and have a handler of the user's own asked about each."""
        place = self.places[-1]
        self._count(node, flow, failed, place.kind)
        nothing = F.lit(None).cast("binary")
        output = Output(
            F.lit(None).cast("string") if topic is None else topic,
            nothing,
            nothing,
            headers=True,
            letter=node.name,
            question=question,
        )
        asked = DeadLetters(f"{node.name}-asked", (node,))
        self._pin(asked, flow, Lane(RAW_KEY, RAW_VALUE, failed), output)

    def _place_of(self, place: Place) -> int:
        self.places.append(place)
        return len(self.places) - 1

    def _shown(
        self, flow: Flow, lane: Lane, *, as_written: bool = False
    ) -> tuple[tuple[Reader, Reader], tuple[Column, Column]]:
        """Key and value of a lane for a handler: how they are read in Python, and their bytes, which are NULL
        where they cannot be had.

        `as_written`: their serdes have failed, so not by those.
        """
        readers, columns = [], []
        for name, serde in ((lane.key, lane.key_serde), (lane.value, lane.value_serde)):
            type_, column = flow.type_of(name), F.col(name)
            try:
                settled = self._settle(None, None if as_written else serde, None, type_)
                reader, data = Reader(settled), serdes.to_bytes(settled, column, type_, name)
            except TopologyException:  # no serde writes this type; a struct of it has one
                wrapped = T.StructType().add("value", type_)
                of_struct = Serdes.json(wrapped)
                struct = F.struct(column.alias("value"))
                reader, data = Reader(of_struct, "value"), serdes.to_bytes(of_struct, struct, wrapped, name)
            readers.append(reader)
            columns.append(attempt(flow.kept(lane), data)["r0"])
        return (readers[0], readers[1]), (columns[0], columns[1])

    def _try(
        self, node: Node, function: Function, flow: Flow, lane: Lane, *results: Any
    ) -> tuple[Lane, tuple[Any, ...]]:
        """What a function returned, and the lane without the records for which that cannot be computed.

        With processing.exception.handler=fail: both as they are.
        """
        if not self.context.handlers.processing:
            return lane, results
        tried: str = translated(
            node,
            function,
            lambda: flow.with_column("t", attempt(flow.kept(lane), *(as_column(item) for item in results))),
        )
        failed = flow.with_column("d", flow.kept(lane) & F.col(tried).isNull())
        message = (
            f"{node.name} ({describe_function(function)}): the function's result cannot be computed for "
            "this record (a cast, an overflow, a division by zero, an index, raise_error; Spark does not say "
            "which)"
        )
        if "processing" in self.context.handlers.own:
            readers, shown = self._shown(flow, lane)
            place = F.lit(self._place_of(Place("processing", node.name, *readers)))
            self._ask(node, flow, failed, Question(place, F.lit(PROCESSING_FAILED), F.lit(message), *shown))
        else:
            self._drop(node, flow, failed, "processing", F.lit(PROCESSING_FAILED), F.lit(message), function)
        lane = replace(lane, keep=flow.with_column("f", F.col(tried).isNotNull()))
        return lane, tuple(F.col(tried)[f"r{i}"] for i in range(len(results)))

    def _writable(
        self, node: Node, flow: Flow, lane: Lane, key: Column, value: Column, topic: Column
    ) -> tuple[Lane, Column, Column]:
        """Key and value to write, and the lane without the records that cannot be written.

        With production.exception.handler=fail: all as they are.
        """
        handlers = self.context.handlers
        if not handlers.production:
            return lane, key, value
        if "production" in handlers.own:
            return self._asked_whether_writable(node, flow, lane, key, value, topic)
        tried = flow.with_column("t", attempt(flow.kept(lane), key, value))
        key, value = F.col(tried)["r0"], F.col(tried)["r1"]
        size = flow.with_column("z", record_size(key, value))
        fits = F.col(tried).isNotNull() & (F.col(size) <= handlers.max_request_size)
        keep = flow.with_column("f", fits)
        failed = flow.with_column("d", flow.kept(lane) & ~F.col(keep))
        unwritten = F.col(tried).isNull()
        message = F.when(
            unwritten, F.lit(f"{node.name}: the serde cannot write the key or the value")
        ).otherwise(
            F.concat(
                F.lit(f"{node.name}: the record has "),
                F.col(size).cast("string"),
                F.lit(f" bytes, and max.request.size of the producer is {handlers.max_request_size}"),
            )
        )
        exception = F.when(unwritten, F.lit(SERIALIZATION_FAILED)).otherwise(F.lit(RECORD_TOO_LARGE))
        self._drop(node, flow, failed, "production", exception, message)
        return replace(lane, keep=keep), key, value

    def _asked_whether_writable(
        self, node: Node, flow: Flow, lane: Lane, key: Column, value: Column, topic: Column
    ) -> tuple[Lane, Column, Column]:
        """As `_writable`, where a handler of the user's own is asked; it is told which part it is."""
        written = []
        for origin, column in (
            (SerializationExceptionOrigin.KEY, key),
            (SerializationExceptionOrigin.VALUE, value),
        ):
            tried = flow.with_column("t", attempt(flow.kept(lane), column))
            failed = flow.with_column("d", flow.kept(lane) & F.col(tried).isNull())
            readers, shown = self._shown(flow, lane, as_written=True)
            place = F.lit(self._place_of(Place("production", node.name, *readers, origin)))
            message = F.lit(f"{node.name}: the serde cannot write the {origin.value}")
            self._ask(
                node, flow, failed, Question(place, F.lit(SERIALIZATION_FAILED), message, *shown), topic
            )
            lane = replace(lane, keep=flow.with_column("f", F.col(tried).isNotNull()))
            written.append(F.col(tried)["r0"])
        key, value = written
        size = flow.with_column("z", flow.own(lane, record_size(key, value)))
        limit = self.context.handlers.max_request_size
        failed = flow.with_column("d", flow.kept(lane) & (F.col(size) > limit))
        place = F.lit(self._place_of(Place("production", node.name)))
        message = F.concat(
            F.lit(f"{node.name}: the record has "),
            F.col(size).cast("string"),
            F.lit(f" bytes, and max.request.size of the producer is {limit}"),
        )
        self._ask(node, flow, failed, Question(place, F.lit(RECORD_TOO_LARGE), message, key, value), topic)
        return replace(lane, keep=flow.with_column("f", flow.kept(lane) & ~F.col(failed))), key, value

    def _source_serdes(self, node: Any, what: str) -> tuple[Serde, Serde]:
        key = node.key_serde or self.context.default_key_serde
        value = node.value_serde or self.context.default_value_serde
        for side, serde in (("key", key), ("value", value)):
            if serde is None:
                raise TopologyException(
                    f"{node.name}: no {side} serde for {what}; give it one, "
                    "Consumed.with_(Serdes.string(), Serdes.string()), "
                    f"or set the configuration default.{side}.serde"
                )
        assert key is not None and value is not None  # noqa: PT018
        return key, value

    def visit_Source(self, node: Source) -> None:
        what = f"pattern '{node.pattern.pattern}'" if node.pattern else f"topic '{', '.join(node.topics)}'"
        flow, lane = self._open(node, *self._source_serdes(node, what))
        self._put(node, flow, lane)

    def visit_TableSource(self, node: TableSource) -> None:
        key, value = self._source_serdes(node, f"topic '{node.topic}'")
        if node.stored is not None:
            key, value = node.stored.key_serde or key, node.stored.value_serde or value
            self.store_serdes[node.stored.name] = (key, value)
        if not self.uses.get(node) and node.is_view:
            return  # nothing comes after it: the store is a view of the topic, Spark has nothing to do
        flow, lane = self._open(node, key, value)
        if node in self.remembering:
            self._wait(node, flow, lane)
            return
        lane = flow.narrow(lane, F.col(lane.key).isNotNull(), alone=not flow.lanes)
        self._put(node, flow, lane)

    def visit_Repartition(self, node: Repartition) -> None:
        if foreign_keys.is_between(node):
            foreign_keys.open_topic(self, node)
            return
        if node in self.pipeline.inputs:
            flow, lane = self._open(node, *self._written_with(node))
            self._put(node, flow, lane)
            return
        flow, lane, alone = self._take(node.parents[0])
        key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
        if node.filter_name is not None and not node.null_keys:  # Kafka Streams drops null keys here
            lane = flow.narrow(lane, F.col(lane.key).isNotNull(), alone=alone)
        lane = replace(
            lane, key_serde=node.key_serde or lane.key_serde, value_serde=node.value_serde or lane.value_serde
        )
        if node not in self.pipeline.outputs:  # Spark shuffles instead
            self._put(node, flow, lane)
            return
        key = self._settle(node.key_serde, lane.key_serde, self.context.default_key_serde, key_type)
        value = self._settle(node.value_serde, lane.value_serde, self.context.default_value_serde, value_type)
        self.context.repartition_serdes[node] = (key, value)
        partition = None
        if node.partitioner is not None:
            lane, partition = self._partition(node, node.partitioner, flow, lane)
        key_bytes = serdes.to_bytes(key, F.col(lane.key), key_type, f"{node.name}: the key")
        value_bytes = serdes.to_bytes(value, F.col(lane.value), value_type, f"{node.name}: the value")
        topic = self._internal(node.topic)
        lane, key_bytes, value_bytes = self._writable(node, flow, lane, key_bytes, value_bytes, topic)
        self._pin(
            node,
            flow,
            lane,
            Output(
                topic=topic,
                key=key_bytes,
                value=value_bytes,
                partition=partition,
                route=key_bytes,
                headers=True,
                letter=node.name,
            ),
        )

    def _written_with(self, node: Repartition) -> tuple[Serde, Serde]:
        """The serdes of a repartition topic: as the pipeline settled them that writes it."""
        settled = self.context.repartition_serdes.get(node)
        if settled is not None:
            return settled
        if node.key_serde is None or node.value_serde is None:
            raise TopologyException(
                f"{node.name}: the topic '{node.topic}' is read by the pipeline that writes it, so its "
                "serdes have to be given: repartition(Repartitioned.with_(Serdes.string(), Serdes.long()))"
            )
        return node.key_serde, node.value_serde

    # --- streams ---------------------------------------------------------------------------------------

    def _trace(self, node: Node, function: Function, flow: Flow, lane: Lane) -> Any:
        return trace(node, function, F.col(lane.key), F.col(lane.value), flow.record)

    def _condition(self, node: Node, function: Function, flow: Flow, lane: Lane) -> Column:
        """What a predicate returns, as a boolean Column."""
        condition = as_column(self._trace(node, function, flow, lane))
        type_ = translated(node, function, lambda: flow.df.select(condition.alias("c")).schema[0].dataType)
        if not isinstance(type_, (T.BooleanType, T.NullType)):
            raise TopologyException(
                f"{node.name} ({describe_function(function)}): a predicate has to return a boolean Column, "
                f"this one returns {type_.simpleString()}"
            )
        return condition

    def _add(self, node: Node, function: Function, flow: Flow, lane: Lane, kind: str, result: Any) -> str:
        """A column with what a function returned; Spark's complaints about it name the function."""
        name: str = translated(
            node, function, lambda: flow.with_column(kind, flow.own(lane, as_column(result)))
        )
        return name

    def visit_Filter(self, node: nodes.Filter) -> None:
        flow, lane, alone = self._take(node.parents[0])
        condition = self._condition(node, node.predicate, flow, lane)
        lane, (condition,) = self._try(node, node.predicate, flow, lane, condition)
        if node.negate:
            condition = ~F.coalesce(condition, F.lit(False))
        self._put(node, flow, flow.narrow(lane, condition, alone=alone and not flow.lanes))

    def visit_MapValues(self, node: nodes.MapValues) -> None:
        flow, lane, _ = self._take(node.parents[0])
        mapped = self._trace(node, node.mapper, flow, lane)
        lane, (mapped,) = self._try(node, node.mapper, flow, lane, mapped)
        value = self._add(node, node.mapper, flow, lane, "v", mapped)
        self._put(node, flow, replace(lane, value=value, value_serde=None))

    def visit_SelectKey(self, node: nodes.SelectKey) -> None:
        flow, lane, _ = self._take(node.parents[0])
        mapped = self._trace(node, node.mapper, flow, lane)
        lane, (mapped,) = self._try(node, node.mapper, flow, lane, mapped)
        key = self._add(node, node.mapper, flow, lane, "k", mapped)
        self._put(node, flow, replace(lane, key=key, key_serde=None))

    def visit_Map(self, node: nodes.Map) -> None:
        flow, lane, _ = self._take(node.parents[0])
        result = self._trace(node, node.mapper, flow, lane)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TopologyException(
                f"{node.name} ({describe_function(node.mapper)}): map has to return a key and a value, "
                f"lambda key, value: (value.id, value.amount); this returned {type(result).__name__}"
            )
        lane, (new_key, new_value) = self._try(node, node.mapper, flow, lane, *result)
        key = self._add(node, node.mapper, flow, lane, "k", new_key)
        value = self._add(node, node.mapper, flow, lane, "v", new_value)
        self._put(node, flow, replace(lane, key=key, value=value, key_serde=None, value_serde=None))

    def _array(self, node: Node, function: Function, flow: Flow, result: Any) -> Column:
        array = as_column(result)
        type_ = translated(node, function, lambda: flow.df.select(array.alias("a")).schema[0].dataType)
        if not isinstance(type_, T.ArrayType):
            raise TopologyException(
                f"{node.name} ({describe_function(function)}): has to return an array Column or a list, "
                f"this one returns {type_.simpleString()}"
            )
        return array

    def visit_FlatMapValues(self, node: nodes.FlatMapValues) -> None:
        flow, lane, alone = self._take(node.parents[0])
        array = self._array(node, node.mapper, flow, self._trace(node, node.mapper, flow, lane))
        lane, (array,) = self._try(node, node.mapper, flow, lane, array)
        lane, element = flow.explode(lane, array, alone=alone and not flow.lanes)
        self._put(node, flow, replace(lane, value=element, value_serde=None))

    def visit_FlatMap(self, node: nodes.FlatMap) -> None:
        flow, lane, alone = self._take(node.parents[0])
        result = self._trace(node, node.mapper, flow, lane)
        if isinstance(result, list):
            result = [_pair(item) for item in result]
        array = self._array(node, node.mapper, flow, result)
        lane, (array,) = self._try(node, node.mapper, flow, lane, array)
        lane, element = flow.explode(lane, array, alone=alone and not flow.lanes)
        type_ = flow.type_of(element)
        if not (isinstance(type_, T.StructType) and len(type_) == 2):
            raise TopologyException(
                f"{node.name} ({describe_function(node.mapper)}): flat_map has to return an array of "
                "(key, value) structs, or a list of (key, value) tuples; "
                f"its elements are {type_.simpleString()}"
            )
        key_name, value_name = type_.fieldNames()
        key = flow.with_column("k", F.col(element)[key_name])
        value = flow.with_column("v", F.col(element)[value_name])
        self._put(node, flow, replace(lane, key=key, value=value, key_serde=None, value_serde=None))

    def visit_Peek(self, node: nodes.Peek) -> None:
        self._look(node, node.action, arity(node.action) or 2, to_stdout)

    def visit_Print(self, node: nodes.Print) -> None:
        write = to_stdout if node.path is None else to_file(node.path)
        self._look(node, printing(node.label, node.mapper), 2, write)

    def _look(self, node: Node, action: Function, parameters: int, write: Callable[[str], None]) -> None:
        """Have a Python function called with the rows of a stream, and what it prints written."""
        flow, lane, _ = self._take(node.parents[0])
        text = outlet(flow.df.sparkSession, write)
        look = peek(action, parameters, self._codecs(flow, lane), text)
        key, value = F.col(lane.key), F.col(lane.value)
        # An output of its own, so that it is run once whatever else its rows go to.
        # The lane itself goes on as it is.
        self._put(node, flow, lane)
        empty = F.lit(None).cast("binary")
        output = Output(F.lit(""), empty, empty, look=lambda kept: look(kept, key, value, F.col(TIMESTAMP)))
        self._pin(node, flow, lane, output)

    def _codecs(self, flow: Flow, lane: Lane) -> tuple[tuple[Serde, Any], tuple[Serde, Any]]:
        """Serde and bytes of key and value, for functions that run in Python: they get what stores give."""
        key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
        key = self._settle(None, lane.key_serde, None, key_type)
        value = self._settle(None, lane.value_serde, None, value_type)
        return (
            (key, lambda column: serdes.to_bytes(key, column, key_type, "the key")),
            (value, lambda column: serdes.to_bytes(value, column, value_type, "the value")),
        )

    def visit_Merge(self, node: nodes.Merge) -> None:
        left, right = node.parents[0], node.parents[-1]
        if len(node.parents) == 1:  # a stream merged with itself: each record is there twice
            self.uses[left] += 1
        if self._flow_of(left) is not self._flow_of(right):
            one, other = self._flow_of(left), self._flow_of(right)
            self.flows = [flow for flow in self.flows if flow is not one and flow is not other]
            self.flows.append(one.united(other))
            apart = True  # a row comes from one of the two
        else:
            flow = self._flow_of(left)
            apart = left is not right and flow.lanes[left].disjoint(flow.lanes[right])
        flow, first, _ = self._take(left)
        flow, second, _ = self._take(right)
        for side in ("key", "value"):
            types = [flow.type_of(getattr(lane, side)) for lane in (first, second)]
            if types[0] != types[1]:
                raise TopologyException(
                    f"{node.name}: merged streams need the same types, but the {side} of {left.name} is "
                    f"{types[0].simpleString()} and that of {right.name} {types[1].simpleString()}"
                )
        if apart:
            take_first, keep = flow.kept(first), flow.kept(first) | flow.kept(second)
        else:  # a row can belong to both, and then it is there twice
            index = F.col(flow.fan_out([first, second]))
            take_first = index == 0
            keep = F.when(take_first, flow.kept(first)).otherwise(flow.kept(second))
        lane = Lane(
            key=flow.with_column("k", F.when(take_first, F.col(first.key)).otherwise(F.col(second.key))),
            value=flow.with_column(
                "v", F.when(take_first, F.col(first.value)).otherwise(F.col(second.value))
            ),
            keep=flow.with_column("f", keep),
            key_serde=first.key_serde if first.key_serde == second.key_serde else None,
            value_serde=first.value_serde if first.value_serde == second.value_serde else None,
            routes=tuple(route for route in first.routes if route in second.routes),
        )
        self._put(node, flow, lane)

    def visit_Branch(self, node: nodes.Branch) -> None:
        flow, lane, _ = self._take(node.parents[0])
        choice = F.lit(len(node.predicates))
        for index in reversed(range(len(node.predicates))):
            predicate = self._condition(node, node.predicates[index], flow, lane)
            choice = F.when(predicate, F.lit(index)).otherwise(choice)
        if node.predicates:
            lane, (choice,) = self._try(node, node.predicates[0], flow, lane, choice)
        self.choices[node] = flow.with_column("c", flow.own(lane, choice))
        self._put(node, flow, lane)

    def visit_PassThrough(self, node: nodes.PassThrough) -> None:
        parent = node.parents[0]
        flow, lane, alone = self._take(parent)
        lane = flow.narrow(lane, F.col(self.choices[parent]) == node.index, alone=alone)
        self._put(node, flow, replace(lane, routes=(*lane.routes, (parent, node.index))))

    def visit_Sink(self, node: nodes.Sink) -> None:
        flow, lane, _ = self._take(node.parents[0])
        key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
        key = self._settle(node.key_serde, lane.key_serde, self.context.default_key_serde, key_type)
        value = self._settle(node.value_serde, lane.value_serde, self.context.default_value_serde, value_type)
        topic = F.lit(node.topic)
        if node.topic_function is not None:
            lane, topic = self._topic(node, node.topic_function, flow, lane)
        partition = None
        if node.partitioner is not None:
            lane, partition = self._partition(node, node.partitioner, flow, lane)
        key_bytes = serdes.to_bytes(key, F.col(lane.key), key_type, f"{node.name}: the key")
        value_bytes = serdes.to_bytes(value, F.col(lane.value), value_type, f"{node.name}: the value")
        lane, key_bytes, value_bytes = self._writable(node, flow, lane, key_bytes, value_bytes, topic)
        self._pin(
            node,
            flow,
            lane,
            Output(
                topic=topic,
                key=key_bytes,
                value=value_bytes,
                partition=partition,
                headers=True,
                letter=node.name,
            ),
        )

    def _topic(self, node: Node, function: Function, flow: Flow, lane: Lane) -> tuple[Lane, Column]:
        """The topic that a function names for each record; at a NULL the query ends and says whose it is."""
        traced = self._trace(node, function, flow, lane)
        lane, (traced,) = self._try(node, function, flow, lane, traced)
        name = self._add(node, function, flow, lane, "t", traced)
        if not isinstance(flow.type_of(name), T.StringType):
            raise TopologyException(
                f"{node.name} ({describe_function(function)}): a topic's name is a string Column, "
                f"this one is {flow.type_of(name).simpleString()}"
            )
        message = f"{node.name} ({describe_function(function)}): the topic's name is NULL for a record"
        return lane, F.coalesce(F.col(name), F.raise_error(F.lit(message)).cast("string"))

    def _partition(self, node: Node, function: Function, flow: Flow, lane: Lane) -> tuple[Lane, Column]:
        """The partition that a function chooses for each record; NULL leaves it to the producer."""
        traced = self._trace(node, function, flow, lane)
        lane, (traced,) = self._try(node, function, flow, lane, traced)
        name = self._add(node, function, flow, lane, "p", traced)
        if not isinstance(flow.type_of(name), (T.IntegralType, T.NullType)):
            raise TopologyException(
                f"{node.name} ({describe_function(function)}): a partition is an integer Column, "
                f"this one is {flow.type_of(name).simpleString()}"
            )
        return lane, F.col(name).cast("int")

    # --- tables ----------------------------------------------------------------------------------------

    def _is_told(self, node: Node) -> bool:
        """Whether anybody hears of each change of a table; not, where its rows are only joined."""
        if node.store is not None:
            return True
        for child in self.pipeline.nodes:
            kinds = StreamTableJoin | TableJoin | ForeignKey | nodes.ForeignKeyChanges
            if node not in child.parents or isinstance(child, kinds):
                continue
            if not isinstance(child, nodes.TableFilter | nodes.TableMapValues) or self._is_told(child):
                return True
        return False

    def _remember(self, node: Node, *, needed: bool) -> None:
        """Have a table's updates say what was there before: where it has a store, or somebody needs that.

        Source: KTableImpl.enableSendingOldValues, and the methods of that name of the processors.
        """
        if isinstance(node, nodes.TableFilter | nodes.TableMapValues):
            self._remember(node.parents[0], needed=needed or node.stored is not None)
        elif isinstance(node, nodes.Aggregate | nodes.Cogroup) or (
            isinstance(node, TableSource | nodes.ToTable | nodes.ForeignKeyJoin)
            and (needed or node.stored is not None)
        ):
            self.remembering.add(node)

    def visit_ToTable(self, node: nodes.ToTable) -> None:
        flow, lane, alone = self._take(node.parents[0])
        parent = node.parents[0]
        shuffled = isinstance(parent, Repartition) and parent not in self.pipeline.inputs
        if shuffled or node in self.remembering:
            # A shuffle mixes source partitions, so which record of a key is the last has to be computed.
            self._wait(node, flow, lane)
            return
        self._put(node, flow, flow.narrow(lane, F.col(lane.key).isNotNull(), alone=alone))

    def visit_TableFilter(self, node: nodes.TableFilter) -> None:
        flow, lane, alone = self._take(node.parents[0])
        condition = self._condition(node, node.predicate, flow, lane)
        there = F.col(lane.value).isNotNull()  # a deletion stays one, unasked
        if self.context.handlers.processing:
            condition = F.when(there, condition)
        lane, (condition,) = self._try(node, node.predicate, flow, lane, condition)

        def passing(value: str, condition: Column) -> str:
            passes = F.coalesce(condition, F.lit(False))
            passes = ~passes if node.negate else passes
            passed = F.when(F.col(value).isNotNull(), F.when(passes, F.col(value)))
            return flow.with_column("v", flow.own(lane, passed))

        value, old = passing(lane.value, condition), None
        if lane.old is not None:  # of a row that was not there, nobody has to hear that it is gone
            before = self._condition(node, node.predicate, flow, replace(lane, value=lane.old))
            old = passing(lane.old, before)
            lane = flow.narrow(lane, F.col(value).isNotNull() | F.col(old).isNotNull(), alone=alone)
        self._put(node, flow, replace(lane, value=value, old=old))

    def visit_TableMapValues(self, node: nodes.TableMapValues) -> None:
        flow, lane, _ = self._take(node.parents[0])

        def mapped(value: str) -> Column:
            result = as_column(self._trace(node, node.mapper, flow, replace(lane, value=value)))
            return F.when(F.col(value).isNotNull(), result)

        lane, (result,) = self._try(node, node.mapper, flow, lane, mapped(lane.value))
        value = self._add(node, node.mapper, flow, lane, "v", result)
        old = None
        if lane.old is not None:
            old = self._add(node, node.mapper, flow, lane, "v", mapped(lane.old))
        self._put(node, flow, replace(lane, value=value, value_serde=None, old=old))

    def visit_TableGroupBy(self, node: nodes.TableGroupBy) -> None:
        flow, lane, alone = self._take(node.parents[0])
        if lane.old is None:
            raise TopologyException(
                f"{node.name}: what suppress() lets through does not say what it replaces, so it cannot be "
                "grouped as a table; group the table first, or the stream: to_stream().group_by(...)"
            )

        def mapped(value: str) -> tuple[Column, Column]:
            made = self._trace(node, node.mapper, flow, replace(lane, value=value))
            if not (isinstance(made, tuple) and len(made) == 2):
                raise TopologyException(
                    f"{node.name} ({describe_function(node.mapper)}): group_by of a table returns a key and "
                    "a value, lambda key, value: (value.city, value.amount); this returned "
                    f"{type(made).__name__}"
                )
            there = F.col(value).isNotNull()
            return F.when(there, as_column(made[0])), F.when(there, as_column(made[1]))

        (key, value), old = mapped(lane.value), mapped(lane.old)
        lane, (key, value) = self._try(node, node.mapper, flow, lane, key, value)
        array = translated(
            node,
            node.mapper,
            lambda: F.coalesce(changes((key, value), old), F.array().cast(_changes_type(flow, key, value))),
        )
        lane, element = flow.explode(lane, array, alone=alone and not flow.lanes)
        names = {part: flow.with_column(part[0], F.col(element)[part]) for part in ("key", "value", "old")}
        self._put(
            node,
            flow,
            replace(
                lane,
                key=names["key"],
                value=names["value"],
                old=names["old"],
                key_serde=None,
                value_serde=None,
            ),
        )

    def visit_Suppress(self, node: nodes.Suppress) -> None:
        flow, lane, _ = self._take(node.parents[0])
        if node.until_close and not isinstance(lane.key_serde, WindowedSerde):
            raise TopologyException(
                f"{node.name}: it waits until windows close, and the table's keys have no windows any more; "
                "put it before what changes the keys, or take Suppressed.until_time_limit()"
            )
        self._wait(node, flow, lane)

    def visit_ToStream(self, node: nodes.ToStream) -> None:
        flow, lane, _ = self._take(node.parents[0])
        self._put(node, flow, replace(lane, old=None))

    # --- aggregations ----------------------------------------------------------------------------------

    def visit_Aggregate(self, node: nodes.Aggregate) -> None:
        flow, lane, _ = self._take(node.parents[0])
        self._wait(node, flow, lane)

    def visit_Cogroup(self, node: nodes.Cogroup) -> None:
        """As the fold of one stream, whose values say which stream they are of."""
        readers: list[Serde] = []
        merged: Node | None = None
        for number, parent in enumerate(node.parents):
            flow, lane, _ = self._take(parent)
            _, (value_serde, written) = self._codecs(flow, lane)
            readers.append(value_serde)
            there = F.concat(F.lit(bytes([number, 1])), written(F.col(lane.value)))
            told = F.when(F.col(lane.value).isNotNull(), there)
            if node.windows is not None and not isinstance(node.windows, SlidingWindows):
                told = F.coalesce(told, F.lit(bytes([number, 0])))  # in these a null is folded too
            part = Contribution(f"{node.name}-{number}", (parent,))
            value = flow.with_column("v", flow.own(lane, told))
            flow.lanes[part] = replace(lane, value=value, value_serde=None)
            self.uses[part] = 1
            if merged is None:
                merged = part
            else:
                both = nodes.Merge(node.name, (merged, part))
                self.uses[both] = 1
                self.visit_Merge(both)
                merged = both
        assert merged is not None
        flow, lane, _ = self._take(merged)
        fold = nodes.Fold(Cogrouped(node.adders, tuple(readers)), node.initializer, node.merger)
        stands_in = nodes.Aggregate(node.name, (merged,), fold, node.stored, node.windows)
        self.stands_for[stands_in] = node
        self._wait(stands_in, flow, lane)

    def _wait(self, node: Node, flow: Flow, lane: Lane) -> None:
        # Only noted: until all before them is built, what comes beside it can still change flow and lane.
        flow.lanes[node] = lane
        self.pending.append(node)

    def _aggregate_pending(self) -> set[Node]:
        """Turn what waits into stateful operators: one a group of flows that joins bring together, and one
        more of Spark's own where the kernel cannot compute an aggregation.
        """
        aggregated: set[Node] = set()
        # State is kept by their numbers, so those must not depend on what stateless steps there are.
        self.pending.sort(key=self._place)
        # A join with a global table comes first, and alone: until it is sorted, its results are in no order.
        first = next((node for node in self.pending if isinstance(node, StreamGlobalTableJoin)), None)
        now = list(self.pending) if first is None else [*self.sides[first], first]
        later = [node for node in self.pending if node not in now]
        self.pending = list(now)
        for flows in self._groups():
            mine = [self._pending(node) for node in self.pending if self._flow_of_pending(node) in flows]
            for flow in flows:
                flow.count_dropped()
            stored: dict[Node, Lane] = {}
            on_kernel, by_spark = self._taken_apart(mine)
            self._note_layouts(on_kernel, by_spark)
            if not (on_kernel and by_spark) and len(flows) == 1:
                self._look_ahead(flows[0])
            made = []
            for flow in flows:
                if theirs := [item for item in by_spark if item.flow is flow]:
                    made.append(group(theirs, self.names))
            joined: dict[Join, Joined] = {}
            if on_kernel:
                wanted = any(self._is_wanted(item.pending.node) for item in on_kernel)
                kept = self.context.kept if wanted else None
                is_alone = kept is None and not by_spark and len(flows) == 1
                passing = self._passing(flows[0], {item.node for item in mine}) if is_alone else {}
                results = aggregate(
                    on_kernel,
                    self.names,
                    list(passing.values()),
                    letters=self._letters,
                    patience_ms=self.context.patience_ms,
                    kept=kept,
                    restored=None if self.context.restored is None else self._restored,
                )
                self._pass(flows[0], passing, results)
                self.parts |= results.parts
                joined = results.joined
                made.append(results.made)
                stored |= results.stored
                for one in results.late:
                    name = one.item.pending.node.name
                    results.made[0].uncounted.append(Failure(one.flag, self.failures, LATE, name, one.what))
                    self.failures += 1
            feeds = tuple(sorted(label for item in on_kernel if (label := _label(item.pending.node))))
            by_spark_feeds = tuple(
                sorted(item.node.store.name for item in by_spark if item.node.store is not None)
            )
            for flow in flows:
                for item in mine:
                    flow.lanes.pop(item.node, None)
                if not flow.lanes:
                    self.flows.remove(flow)
            for new, lanes in made:
                fed = feeds if on_kernel and new is made[-1][0] else by_spark_feeds
                new.scans = tuple(
                    replace(scan, feeds=(*scan.feeds, *fed)) for flow in flows for scan in flow.scans
                )
                self.flows.append(new)
                for waited, lane in lanes.items():
                    node = self.stands_for.get(waited, waited)
                    if waited in self.parts:
                        self.parts[node] = self.parts[waited]
                    self._put(node, new, lane, stored.get(waited))
                    aggregated.add(node)
            for (
                join,
                columns,
            ) in joined.items():  # each a lane, so that what one of them adds is not in others
                made[-1][0].lanes[join] = Lane(columns.key, columns.left, columns.flag)
            for join, columns in joined.items():
                flag = made[-1][0].lanes.pop(join).keep
                assert flag is not None
                if self._join(join, made[-1][0], replace(columns, flag=flag)):
                    aggregated.add(join)
        for node in now:
            self.sides.pop(node, None)
        self.pending = [*later, *self.pending[len(now) :]]
        return aggregated

    def _place(self, node: Node) -> tuple[int, int]:
        if isinstance(node, Side):
            return self.pipeline.nodes.index(node.join), 0 if node.is_left else 1
        return self.pipeline.nodes.index(self.stands_for.get(node, node)), 2

    def _flow_of_pending(self, node: Node) -> Flow:
        return self._flow_of(self.sides[node][0] if isinstance(node, OfSides) else node)

    def _groups(self) -> list[list[Flow]]:
        """The flows that something waits in, together those that joins bring together; in the order of what
        waits."""
        flows = {id(flow): flow for flow in map(self._flow_of_pending, self.pending)}
        groups = DisjointSets(flows)
        for node in self.pending:
            for side in self.sides.get(node, ()):
                groups.unite(id(self._flow_of_pending(node)), id(self._flow_of(side)))
        together: dict[int, list[Flow]] = {}
        for key, flow in flows.items():
            together.setdefault(groups.root(key), []).append(flow)
        return list(together.values())

    def _passing(self, flow: Flow, but: Collection[Node]) -> dict[Node, tuple[Lane, Output]]:
        """What is written of the results of an operator, where another one is next.

        Spark computes a flow once for each of those that come of it. So that it is one, all others go through
        the next operator as they are. Nothing, where that cannot be.
        """
        others = [node for node in flow.lanes if node not in but]
        if not any(scan.feeds for scan in flow.scans):
            return {}
        if any(node not in flow.pinned or self.outputs[node].look is not None for node in others):
            return {}
        return {node: (flow.lanes[node], self.outputs[node]) for node in others if self._is_wanted(node)}

    def _pass(self, flow: Flow, passing: Collection[Node], results: Results) -> None:
        for node in passing:
            del flow.lanes[node]
        if results.passed is not None:
            row, flag = results.passed
            place = Output(F.lit(None), F.lit(None), F.lit(None), made=F.col(row))
            self._pin(Passed("passed", ()), results.made[0], Lane(row, row, flag), place)

    def _restored(self, item: Item) -> DataFrame:
        """What the changelog of an aggregation has."""
        node = item.pending.node
        store = node.store
        if store is None or not store.logged:
            raise TopologyException(f"{node.name}: without a changelog its state cannot be restored")
        if item.goes_on_closed:
            raise TopologyException(
                f"{node.name}: its changelog does not say which windows have been told, so its state "
                "cannot be restored"
            )
        assert self.context.restored is not None
        if item.using is not None:
            value = Serdes.bytes()
        else:
            value = self._settle(
                store.value_serde,
                item.pending.lane.value_serde if isinstance(node, nodes.ToTable) else None,
                self.context.default_value_serde,
                item.parts.type,
            )
        topic = internal_topic(self.context.application_id, f"{store.name}-changelog")
        return self.context.restored(topic, Restored(store.kind, item.pending.windows, value, item.parts))

    def _note_layouts(self, on_kernel: list[Item], by_spark: list[Pending]) -> None:
        """Note how the state of each store is laid out: read as another layout, it would be misread."""
        held = len(on_kernel)
        for number, item in enumerate(on_kernel, 1):
            if label := _label(item.pending.node):
                laid_out = f"{layout(item)}; number {number}"
                for _ in item.held_back:
                    held += 1
                    laid_out += f"; held back as {held}"
                if isinstance(item.pending.node, Side):
                    laid_out += f"; rows of {self._behind(item.pending.node.parents[0])}"
                self.layouts[label] = laid_out
        for pending in by_spark:
            if pending.node.store is not None:
                self.layouts[pending.node.store.name] = BY_SPARK

    def _behind(self, node: Node) -> str:
        """What a side of a join comes from: a store that has it, or what is read. No generated names."""
        if node.store is not None and node.store.queryable:
            return f"store {node.store.name}"
        found: set[str] = set()
        behind = [node]
        while behind:
            each = behind.pop()
            if each in self.pipeline.inputs:
                found.add(input_label(each))
            else:
                behind += self._parents(each)
        return ", ".join(sorted(found))

    def _taken_apart(self, pending: list[Pending]) -> tuple[list[Item], list[Pending]]:
        """Those that the kernel can merge, and those that only Spark's own operator can compute."""
        items, others = [], []
        for each in pending:
            try:
                items.append(self._item(each))
            except NotMergeableError as error:
                if each.windows is not None:
                    raise TopologyException(
                        f"{_place(each.node)}: an aggregation in windows is merged from partial results, but "
                        f"{error}. What these cannot express is a Python aggregation: aggregate(initializer, "
                        "adder), for sessions with a merger"
                    ) from error
                others.append(each)
        # State is kept by their numbers, so what has none comes behind what has some.
        return sorted(items, key=lambda item: not item.is_kept), others

    def _item(self, pending: Pending) -> Item:
        """An aggregation for the kernel.

        Raises:
            NotMergeableError: it is none.
        """
        node, flow, lane = pending.node, pending.flow, pending.lane
        store = node.store
        if isinstance(node, Join | Side):
            return self._join_item(pending)
        key_type = flow.type_of(lane.key)
        declared = store.key_serde if store is not None else None
        key_serde = pending.group_key_serde or self._settle(
            declared, lane.key_serde, self.context.default_key_serde, key_type
        )
        partitions = self._buckets(node)
        using = self._fold_serdes(pending) if pending.is_fold else None
        item = item_of(
            pending,
            flow.df,
            self.names,
            key_serde if using is None else using.key,
            partitions,
            at_once=not self.context.cached
            or (store is not None and not store.cached)
            or self._is_joined(self.stands_for.get(node, node)),
            using=using,
        )
        if isinstance(node, nodes.Aggregate) and not node.on_close:
            item = replace(item, held_back=tuple(self._right_behind(self.stands_for.get(node, node))))
        return item

    def _buckets(self, node: Node) -> int:
        """How many partitions a node's keys are in."""
        if isinstance(node, StreamGlobalTableJoin):
            return _GLOBAL_BUCKETS
        while node.store is None and not isinstance(node, Repartition | StreamJoin):
            node = node.parents[-1]
        if isinstance(node, Repartition):
            return max(1, self._partitions(node.topic))
        store = node.this_stored if isinstance(node, StreamJoin) else node.store
        assert store is not None
        return max(1, self._partitions(f"{store.name}-changelog"))

    def _right_behind(self, node: Node) -> Iterable[nodes.Suppress]:
        """What holds back the updates of an aggregation that come out of it as they are."""
        for other in self.pipeline.nodes:
            if isinstance(other, nodes.Suppress) and other.parents == (node,):
                self.uses[node] -= 1
                yield other

    def _pending(self, node: Node) -> Pending:
        flow = self._flow_of_pending(node)
        lane = flow.lanes[self.sides[node][0] if isinstance(node, OfSides) else node]
        remembers = self.stands_for.get(node, node) in self.remembering
        if isinstance(node, Side):
            remembers = node.remembers
        pending = Pending(node, flow, lane, remembers=remembers)
        if isinstance(node, nodes.Suppress) and isinstance(lane.key_serde, WindowedSerde):
            return replace(pending, group_key_serde=lane.key_serde.inner)
        if pending.windows is None:
            return pending
        declared = node.store.key_serde if node.store is not None else None
        inner = self._settle(declared, lane.key_serde, self.context.default_key_serde, flow.type_of(lane.key))
        return replace(pending, group_key_serde=inner)

    def _look_ahead(self, flow: Flow) -> None:
        """Where nothing but one operator needs the rows, what peeks at them does so on their way there.

        As an output of its own it would have the source read for it alone.
        """
        looks = {node: self.outputs[node].look for node in flow.lanes if node in flow.pinned}
        if any(look is None for look in looks.values()):
            return
        for node, look in looks.items():
            assert look is not None
            flow.df = flow.df.where(look(flow.kept(flow.lanes.pop(node))))
            flow.pinned.discard(node)

    def _fold_serdes(self, item: Pending) -> FoldSerdes:
        """The serdes of key, value and aggregate of a Python fold."""
        store = item.node.store
        assert store is not None
        (key, _), (value, _) = self._codecs(item.flow, item.lane)
        key = item.group_key_serde or store.key_serde or key
        aggregate = store.value_serde
        if aggregate is None:
            assert isinstance(item.node, nodes.Aggregate)
            assert isinstance(item.node.aggregation, nodes.Fold | nodes.TableFold)
            aggregation = item.node.aggregation
            if aggregation.initializer is None:  # a reduce: the aggregate is a value
                aggregate = value
            elif self.context.default_value_serde is not None:
                aggregate = self.context.default_value_serde
            else:
                raise TopologyException(
                    f"{item.node.name} ({describe_function(aggregation.adder)}): a Python aggregation needs "
                    "the serde of its result, "
                    "Materialized.as_('totals').with_value_serde(Serdes.json('total double, n long'))"
                )
        return FoldSerdes(key, value, aggregate)

    # --- joins -----------------------------------------------------------------------------------------

    def visit_StreamTableJoin(self, node: StreamTableJoin) -> None:
        stream, table = node.parents
        right = self._side(node, table, is_left=False, shared=True)
        flow, lane, _ = self._take(stream)
        self._wait(node, flow, lane)
        self.sides[node] = (right,)
        self._check_keys(node, flow, lane, right)

    def visit_GlobalRead(self, node: GlobalRead) -> None:
        self.visit_TableSource(node)

    def visit_StreamGlobalTableJoin(self, node: StreamGlobalTableJoin) -> None:
        right = self._side(node, self._global_read(node), is_left=False, shared=False)
        flow, lane, _ = self._take(node.parents[0])
        selected = self._trace(node, node.selector, flow, lane)
        lane, (selected,) = self._try(node, node.selector, flow, lane, selected)
        looked_up = self._add(node, node.selector, flow, lane, "k", selected)
        so_far = largest_so_far(F.lit(0), F.unix_millis(F.col(TIMESTAMP)))
        place = flow.with_column(
            "o", F.struct(so_far.alias("time"), F.monotonically_increasing_id().alias("id"))
        )
        self.found_by[node] = (lane, place)
        self._wait(node, flow, replace(lane, key=looked_up, key_serde=None))
        self.sides[node] = (right,)
        self._check_keys(node, flow, flow.lanes[node], right)

    def visit_StreamJoin(self, node: StreamJoin) -> None:
        if len(node.parents) == 1:  # a stream joined with itself
            self.uses[node.parents[0]] += 1
        self._two_sides(node)

    def visit_TableJoin(self, node: TableJoin) -> None:
        if len(node.parents) == 1:  # both sides of it change at once, so they are one
            side = self._side(node, node.parents[0], is_left=True, shared=False)
            self.pending.append(node)
            self.sides[node] = (side, side)
            return
        self._two_sides(node)

    def _two_sides(self, node: StreamJoin | TableJoin) -> None:
        left = self._side(node, node.parents[0], is_left=True, shared=False)
        right = self._side(node, node.parents[-1], is_left=False, shared=False)
        self.pending.append(node)
        self.sides[node] = (left, right)
        flow = self._flow_of(left)
        self._check_keys(node, flow, flow.lanes[left], right)

    def _side(self, join: Join, parent: Node, *, is_left: bool, shared: bool) -> Side:
        """What a join has of a parent; the same for all that look rows up in one table."""
        if isinstance(join, ForeignKey) and history_of(parent) is not None:
            raise TopologyException(
                f"{join.name}: one of its tables has a history, and joins by a foreign key do not look into "
                "that; leave with_history() out to join with its last rows"
            )
        flow, lane, _ = self._take(parent)
        side = Side(join.name, (parent,), join=join, is_left=is_left)
        if shared:
            for other in self.pending:
                if isinstance(other, Side) and other.parents == (parent,) and other.is_for == side.is_for:
                    return other
        remembers = isinstance(join, TableJoin) or side.is_referring
        if isinstance(join, nodes.ForeignKeyLookup):
            remembers = _is_filtered(parent)
        number = self.looked_up.get((parent, side.is_referring), 0)
        side = replace(side, remembers=remembers, number=number)
        if shared:
            self.looked_up[parent, side.is_referring] = number + 1
        self._wait(side, flow, lane)
        return side

    def _check_keys(self, join: Join, flow: Flow, lane: Lane, right: Side) -> None:
        other = self._flow_of(right)
        types = flow.type_of(lane.key), other.type_of(other.lanes[right].key)
        if types[0] != types[1]:
            left, right_ = join.parents[0].name, join.parents[-1].name
            raise TopologyException(
                f"{join.name}: a join needs keys of one type on both sides, but those of {left} are "
                f"{types[0].simpleString()} and those of {right_} {types[1].simpleString()}; "
                "select_key() gives a stream other keys"
            )

    def _is_joined(self, node: Node) -> bool:
        """Whether a join looks at the table that a node makes: it has to hear of each change at its time."""
        for child in self.pipeline.nodes:
            if node in child.parents:
                if isinstance(child, TableJoin) or (
                    isinstance(child, StreamTableJoin) and child.parents[1] is node
                ):
                    return True
                if isinstance(child, nodes.TableFilter | nodes.TableMapValues) and self._is_joined(child):
                    return True
        return False

    def _join_item(self, pending: Pending) -> Item:
        node, flow, lane = pending.node, pending.flow, pending.lane
        assert isinstance(node, Join | Side)
        join = node.join if isinstance(node, Side) else node
        # One serde for both sides: what is written with it is compared.
        right = self.sides[join][-1]
        other = self._flow_of(right)
        store = join.parents[-1].store
        key_serde = self._settle(
            store.key_serde if store is not None else None,
            other.lanes[right].key_serde or lane.key_serde,
            self.context.default_key_serde,
            flow.type_of(lane.key),
        )
        carried = [HEADERS]
        if self._asks_for_context or (isinstance(node, StreamTableJoin) and node.grace_ms is not None):
            carried += [TOPIC, PARTITION, OFFSET]
        if isinstance(node, StreamGlobalTableJoin):
            before, place = self.found_by[node]
            carried += [before.key, place]
        item = item_of(
            pending,
            flow.df,
            self.names,
            key_serde,
            self._buckets(join),
            at_once=not (isinstance(join, TableJoin) and self._is_cached(node.parents[0])),
            carried=carried if isinstance(node, Lookup) else self.carried.get(node, ()),
        )
        return replace(item, links=links_of(node, self.sides))

    def _is_cached(self, table: Node) -> bool:
        """Whether of a key's changes in a micro-batch only the last one is told."""
        if history_of(table) is not None:
            return False  # Kafka Streams has no cache over such stores
        while table.store is None and table.parents:
            table = table.parents[-1]
        return self.context.cached and (table.store is None or table.store.cached)

    @property
    def _asks_for_context(self) -> bool:
        """Whether anything asks where a record came from."""
        handlers = self.context.handlers
        given = [getattr(node, "aggregation", node) for node in self.pipeline.nodes]
        functions = [getattr(each, name, None) for each in given for name in _FUNCTIONS]
        functions += [one for node in self.pipeline.nodes for one in getattr(node, "predicates", ())]
        return handlers.any or any(arity(function) == 3 for function in functions if function is not None)

    def _visit_foreign_key(self, node: ForeignKey | nodes.ForeignKeyChanges) -> None:
        foreign_keys.visit(self, node)

    visit_ForeignKeySubscribe = visit_ForeignKeyLookup = _visit_foreign_key
    visit_ForeignKeyChanges = visit_ForeignKeyJoin = _visit_foreign_key

    def _join(self, node: Join, flow: Flow, joined: Joined) -> bool:
        """The lane of a join's results; whether these are all of it."""
        if isinstance(node, ForeignKey):
            return foreign_keys.joined(self, node, flow, joined)
        left, right = F.col(joined.left), F.col(joined.right)
        lane = Lane(joined.key, joined.left, joined.flag, joined.key_serde)
        if isinstance(node, Lookup) and node.type is JoinType.INNER:
            lane = flow.narrow(lane, right.isNotNull(), alone=isinstance(node, StreamGlobalTableJoin))
        if isinstance(node, StreamGlobalTableJoin):
            before, place = self.found_by[node]
            lane = replace(lane, key=before.key, key_serde=before.key_serde)
            flow.df = flow.df.repartition(before.key).sortWithinPartitions(place)
        if isinstance(node, TableJoin):
            self._put(node, flow, self._joined_rows(node, flow, lane, joined))
            return True
        value = self._join_values(node, flow, lane, left, right)
        lane, (value,) = self._try(node, node.joiner, flow, lane, value)
        self._put(node, flow, replace(lane, value=self._add(node, node.joiner, flow, lane, "v", value)))
        return True

    def _join_values(self, node: Joining, flow: Flow, lane: Lane, left: Column, right: Column) -> Column:
        """What the joiner makes of two values."""
        key = () if arity(node.joiner) == 2 else (F.col(lane.key),)
        made = called(node, node.joiner, *key, left, right)
        if made is None:
            raise TopologyException(
                f"{node.name} ({describe_function(node.joiner)}): the joiner returned None; it has to return "
                "a Column (is there a `return` missing?); a null is F.lit(None)"
            )
        return as_column(made)

    def _joined_rows(self, node: TableJoin, flow: Flow, lane: Lane, joined: Joined) -> Lane:
        """The rows of two tables, and what they were before.

        Source: KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableRightJoin, KTableKTableOuterJoin.
        """
        assert joined.old_left is not None
        assert joined.old_right is not None
        sides = F.col(joined.left), F.col(joined.right)
        olds = F.col(joined.old_left), F.col(joined.old_right)

        def value(left: Column, right: Column) -> Column:
            there = {
                JoinType.INNER: left.isNotNull() & right.isNotNull(),
                JoinType.LEFT: left.isNotNull(),
                JoinType.OUTER: left.isNotNull() | right.isNotNull(),
            }[node.type]
            return F.when(there, self._join_values(node, flow, lane, left, right))

        is_left = F.col(joined.side) == 0
        nothing = sides[0].isNull() & olds[0].isNull() & sides[1].isNull() & olds[1].isNull()
        # A filter whose old values are known says nothing of a row that was not there, and is not there now;
        # of a versioned table they are not.
        if node.type is not JoinType.INNER and _is_filtered(node.parents[0]):
            nothing |= is_left & sides[0].isNull() & olds[0].isNull()
        if node.type is JoinType.OUTER and _is_filtered(node.parents[-1]):
            nothing |= ~is_left & sides[1].isNull() & olds[1].isNull()
        told = {
            JoinType.INNER: F.when(is_left, sides[1].isNotNull()).otherwise(sides[0].isNotNull()),
            JoinType.LEFT: F.when(is_left, ~nothing).otherwise(sides[0].isNotNull()),
            JoinType.OUTER: ~nothing,
        }[node.type]
        lane = flow.narrow(lane, told, alone=False)
        result, old = (self._add(node, node.joiner, flow, lane, "v", value(*each)) for each in (sides, olds))
        return replace(lane, value=result, old=old)

    # --- the end ---------------------------------------------------------------------------------------

    def _is_wanted(self, node: Node) -> bool:
        if self.context.only is None:
            return True
        store = node.store
        return store is not None and (
            changelog_topic(self.context.application_id, store.name) in self.context.only
        )

    @property
    def _letters(self) -> bool:
        """Whether rows say what a dead letter, or a handler of the user's own, needs to know."""
        handlers = self.context.handlers
        return bool(handlers.own) or (handlers.production and handlers.dead_letters)

    def _rows(self) -> tuple[DataFrame | None, tuple[Scan, ...]]:
        """The rows, and the sources that they come from."""
        parts = []
        scans: tuple[Scan, ...] = ()
        for flow in self.flows:
            pinned = [
                (flow, flow.lanes[node], self.outputs[node])
                for node in flow.lanes
                if node in flow.pinned and self._is_wanted(node)
            ]
            flow.count_dropped()
            if pinned:
                outputs = [(lane, output) for _, lane, output in pinned]
                parts.append(output_rows(flow, outputs, letters=self._letters))
                scans += flow.scans
        if not parts:
            return None, ()
        rows = parts[0]
        for part in parts[1:]:
            rows = rows.union(part)
        return rows, scans


def operators(scans: Iterable[Scan]) -> list[tuple[str, ...]]:
    """The stores of each operator that keeps state.

    Spark numbers operators in the order of the plan, which is that of the sources that feed them.
    """
    return list(dict.fromkeys(scan.feeds for scan in scans if scan.feeds))


def _changes_type(flow: Flow, key: Column, value: Column) -> T.ArrayType:
    key_type, value_type = (
        field.dataType for field in flow.df.select(key.alias("k"), value.alias("v")).schema
    )
    change = T.StructType().add("key", key_type).add("value", value_type).add("old", value_type)
    return T.ArrayType(change)


def _is_filtered(table: Node) -> bool:
    if isinstance(table, nodes.TableMapValues):
        return _is_filtered(table.parents[0])
    return isinstance(table, nodes.TableFilter) and history_of(table) is None


def _label(node: Node) -> str:
    """What the state of a node is called; "" if it has none, or none that anybody could ask for."""
    if isinstance(node, Side):
        return node.label
    if isinstance(node, nodes.ForeignKeyLookup):
        return node.stored.name
    if isinstance(node, StreamTableJoin) and node.stored is not None:
        return node.stored.name  # what waits
    return "" if node.store is None or isinstance(node, TableJoin | nodes.ForeignKeyJoin) else node.store.name


def _windowed_bytes(store: Store, key: Column, window: Column) -> Column:
    """The key of a windowed store's changelog: as Kafka's WindowKeySchema and SessionKeySchema have it."""
    start = serdes.big_endian(F.unix_millis(window["start"]), 8)
    if store.kind is StoreKind.SESSION:
        return F.concat(key, serdes.big_endian(F.unix_millis(window["end"]), 8), start)
    return F.concat(key, start, F.lit(bytearray(4)))  # a sequence number, which is 0


def _place(node: Node) -> str:
    """A node, and what it was given, for a message."""
    aggregation = node.aggregation if isinstance(node, nodes.Aggregate) else None
    if isinstance(aggregation, nodes.ColumnAggregation):
        return f"{node.name} ({describe_function(aggregation.expression)})"
    return node.name


def _pair(item: Any) -> Column:
    if isinstance(item, tuple) and len(item) == 2:
        return F.struct(as_column(item[0]).alias("key"), as_column(item[1]).alias("value"))
    return as_column(item)
