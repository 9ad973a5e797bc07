"""Processors in Python: the steps before their operator, the operator, and the steps after it.

All linked processors (processors/graph.py) form one operator of the kernel, which has their stores. It
receives the records of all incoming streams. It returns the records forwarded to steps that are not
processors, each a lane of its own, and the records of changelogs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from types import FunctionType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.dsl.error_handlers import SerializationExceptionOrigin
from millstream.errors import TopologyException
from millstream.kernel.constants import TICK
from millstream.processors.graph import Graph, GraphPlan, Input, linked, plan_graph
from millstream.processors.stores import changelog_record
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building, StoreInput
from millstream.spark.compile.flow import (
    HEADERS,
    HEADERS_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
    Flow,
    Lane,
)
from millstream.spark.compile.kernel_operators import bucket_names, largest_so_far, partition_of
from millstream.spark.compile.record_failures import ask, drop
from millstream.spark.compile.sink import Output
from millstream.spark.compile.source import in_range
from millstream.spark.jvm.java_names import java_class
from millstream.spark.worker.handler_calls import FailurePlace, FieldReader
from millstream.spark.worker.processing import Processing, unwritten_number
from millstream.spark.worker.programs import python_program
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import GlobalRead, Node, Process, Repartition, Sink, Store
from millstream.topology.pipeline import Scan
from millstream.topology.suppliers import is_filled, names_in, new_processor

__all__ = [
    "Called",
    "Codecs",
    "Forwarded",
    "Linked",
    "WaitingInput",
    "build_processors",
    "complete",
    "is_ready",
    "pickled",
    "planned",
    "program_of",
    "put_lanes",
    "stores_of",
    "visit_process",
    "written_value",
]

CLOCK = "the time of day"
"""The name of the source of ticks in checkpoints."""

_BEHIND_ALL = 2**62
_NOT_THE_USERS = frozenset(("builtins", "abc", "typing", "millstream"))


Codec = tuple[Serde, Any]
Codecs = dict[Node, tuple[Codec, Codec]]
"""For each step whose records come in: serde and bytes of key and value (Building.codecs)."""


@dataclass(frozen=True, eq=False)
class WaitingInput(Node):
    """An input stream of processors that still wait for other inputs. Internal: it occurs in no topology."""


@dataclass(frozen=True, eq=False)
class Forwarded(Node):
    """What a processor forwards to one step. Internal: it occurs in no topology."""


@dataclass
class Linked:
    """Processors that form one operator, while their streams are being built.

    Attributes:
        entrances: the incoming lanes, by the node they come from.
        missing: the processors that have not been visited yet.
    """

    nodes: tuple[Process, ...]
    missing: set[Process]
    entrances: dict[Node, WaitingInput] = field(default_factory=dict)


def visit_process(building: Building, node: Process) -> None:
    """Note the incoming lanes; the operator is built once all linked processors are visited."""
    group = _group(building, node)
    for parent in building.parents(node):
        if isinstance(parent, Process) and parent in group.nodes:
            continue
        flow, lane, _ = building.take(parent)
        if parent not in group.entrances:
            entrance = WaitingInput(parent.name, (parent,))
            group.entrances[parent] = entrance
            flow.lanes[entrance] = lane
            building.uses[entrance] = 1
    group.missing.discard(node)
    building.processes.append(node)


def _group(building: Building, node: Process) -> Linked:
    if node not in building.linked:
        for nodes in linked(building.pipeline.nodes):
            group = Linked(nodes, set(nodes))
            building.linked |= dict.fromkeys(nodes, group)
    found: Linked = building.linked[node]
    return found


def is_ready(building: Building, node: Node, done: set[Node]) -> bool:
    """Whether all inputs of a processor and of those linked with it are built."""
    if not isinstance(node, Process) or node in building.processes:
        return False
    group = _group(building, node)
    return all(parent in done or parent in group.nodes for parent in building.parents(node))


def build_processors(building: Building) -> set[Node]:
    """Build the operators of the processors whose inputs are complete; returns their nodes."""
    done: set[Node] = set()
    for group in complete(building):
        _build(building, group)
        done |= set(group.nodes)
    return done


def complete(building: Building) -> list[Linked]:
    """The groups whose inputs are complete; they wait no longer."""
    found = [
        group
        for group in {id(each): each for each in building.linked.values()}.values()
        if not group.missing and group.nodes[0] in building.processes
    ]
    gone = {node for group in found for node in group.nodes}
    building.processes = [node for node in building.processes if node not in gone]
    return found


def planned(building: Building, group: Linked) -> tuple[GraphPlan, Codecs]:
    """The graph of a group, and serdes and bytes of its inputs."""
    codecs: Codecs = {}
    with_old = set()
    for parent, entrance in group.entrances.items():
        flow = building.flow_of(entrance)
        codecs[parent] = _codecs(building, flow, flow.lanes[entrance])
        if flow.lanes[entrance].old is not None:
            with_old.add(parent)
    context = building.context
    plan = plan_graph(
        group.nodes,
        building.pipeline.nodes,
        lambda node: (codecs[node][0][0], codecs[node][1][0]),
        application_id=context.application_id,
        config=context.config,
        default=(context.default_key_serde, context.default_value_serde),
        remembering=building.remembering,
        cached=context.cached,
        with_old=with_old,
        fills_globals=building.fills_globals,
    )
    inputs = []
    for given, node in zip(plan.graph.inputs, plan.inputs, strict=True):
        (key_serde, _), (value_serde, _) = codecs[node]
        inputs.append(replace(given, key_serde=key_serde, value_serde=value_serde))
    return replace(plan, graph=_bound(building, plan, tuple(inputs))), codecs


def _build(building: Building, group: Linked) -> None:
    flows: list[Flow] = []
    for entrance in group.entrances.values():
        flow = building.flow_of(entrance)
        if flow not in flows:
            flow.count_dropped()
            flows.append(flow)
    context = building.context
    plan, codecs = planned(building, group)
    wanted = any(building.is_wanted(StoreInput(store.name, (), store)) for store in stores_of(plan))
    state_of = context.state_of if wanted else None
    by_clock = any(goes_by_clock(node.supplier) for node in group.nodes)
    building.by_clock |= by_clock
    if state_of is not None:
        made = _from_state(building, plan, state_of)
    else:
        made = _operator(building, plan, _rows(building, plan, group, flows, codecs), by_clock=by_clock)
    new = _behind(building, plan, made)
    labels = tuple(store.name for store in plan.graph.stores) or (group.nodes[0].name,)
    scans = [scan for flow in flows for scan in flow.scans]
    if by_clock and not context.is_timed:
        scans.append(Scan(CLOCK))
    new.scans = tuple(replace(scan, feeds=(*scan.feeds, *labels)) for scan in scans)
    for number, store in enumerate(plan.graph.stores):
        if not store.read_only:
            building.layouts[store.name] = f"entries of a processor; number {number}"
    for entrance in group.entrances.values():
        flow = building.flow_of(entrance)
        del flow.lanes[entrance]
        if not flow.lanes:
            building.flows.remove(flow)
    building.flows.append(new)


def _bound(building: Building, plan: GraphPlan, inputs: tuple[Input, ...]) -> Graph:
    """The graph with its serdes bound for use: for changelogs, for sinks, or within the application."""

    def both(each: Any, topic: str | None) -> Any:
        return replace(
            each,
            key_serde=building.bound(each.key_serde, topic, is_key=True),
            value_serde=building.bound(each.value_serde, topic),
        )

    application_id = building.context.application_id
    filled_from = {
        node.of.stored.name: node.of.topic
        for node in building.pipeline.inputs
        if isinstance(node, GlobalRead) and node.of is not None
    }
    stores = (
        both(
            each,
            filled_from[each.name] if each.read_only else changelog_topic(application_id, each.name),
        )
        for each in plan.graph.stores
    )
    outside = (
        both(each, step.topic if isinstance(step, Sink) else None)
        for each, (_, step) in zip(plan.graph.outside, plan.outside, strict=True)
    )
    return replace(plan.graph, inputs=inputs, stores=tuple(stores), outside=tuple(outside))


def _codecs(building: Building, flow: Flow, lane: Lane) -> tuple[Codec, Codec]:
    """Serde and bytes of key and value: the original ones, if nothing has changed them."""
    found = []
    for column, read_with, (serde, write) in zip(
        (lane.key, lane.value), (lane.key_serde, lane.value_serde), building.codecs(flow, lane), strict=True
    ):
        raw = building.raw.get(column)
        if raw in flow.df.columns and serde is read_with:
            write = partial(_raw, raw)
        found.append((serde, write))
    return found[0], found[1]


def _raw(name: str, _: Column) -> Column:
    return F.col(name)


def _operator(building: Building, plan: GraphPlan, rows: DataFrame, *, by_clock: bool) -> DataFrame:
    """The kernel's output, in the form of Processors.java."""
    context = building.context
    ticks = _ticks(building, plan) if by_clock or context.is_timed else None
    rows = _ordered(rows, ticks)
    spark = rows.sparkSession
    program = program_of(building, plan, spark, has_ticks=by_clock)
    return DataFrame(
        java_class(spark._jvm, "io.millstream.kernel.state.Processors").of(
            rows._jdf, len(plan.graph.stores), len(plan.graph.outside), program
        ),
        spark,
    )


def program_of(building: Building, plan: GraphPlan, spark: SparkSession, *, has_ticks: bool) -> Any:
    """The program of the workers that run the processors.

    Raises:
        TopologyException: it cannot be pickled.
    """
    context = building.context
    running = Processing(
        plan.graph,
        min(building.pipeline.subtopologies),
        has_ticks=has_ticks,
        passes_over=context.handlers.processing,
        writes_over=context.handlers.production,
        is_timed=context.is_timed,
    )
    return pickled(running, ", ".join(node.name for node in plan.processes), spark, context.patience_ms)


def pickled(running: Processing, names: str, spark: SparkSession, patience_ms: int) -> Any:
    """The program of these processors, for the kernel.

    Raises:
        TopologyException: it cannot be pickled.
    """
    try:
        return python_program(spark, running, patience_ms)
    except Exception as error:  # pickling runs code of the classes of what is pickled
        raise TopologyException(
            f"{names}: the supplier of a processor cannot be pickled for Spark's workers: {error}. Create "
            "what a processor needs in its init()"
        ) from error


def _from_state(building: Building, plan: GraphPlan, state_of: Callable[[str], DataFrame]) -> DataFrame:
    """The stores' contents, as records of their changelogs (rebuild.py), in the form of the operator's rows.

    The layout is that of Entries.java: the store's number, 2 bytes, and 0 for an entry, then its key.
    """
    specs = plan.graph.stores

    def record(place: bytes, stored: bytes) -> tuple[int, bytes, bytes | None, int] | None:
        number = int.from_bytes(place[:2], "big")
        found = None if place[2] else changelog_record(specs[number], bytes(place[3:]), bytes(stored))
        return None if found is None else (number, *found)

    record_of = F.udf(record, "number int, key binary, value binary, at bigint")
    state = state_of("entries")
    names = F.array(*(F.lit(name) for name in bucket_names(_task_count(building, plan))))
    bucket = F.col("key").getField("value")
    place = F.array_position(names, bucket).cast("int")
    rows = state.select(
        F.when(place > 0, place - 1).otherwise(-1 - bucket).alias("task"),
        record_of(F.col("user_map_key")["value"], F.col("user_map_value")["value"]).alias("record"),
    ).where(F.col("record").isNotNull())
    nothing = F.lit(None)
    return rows.select(
        (F.col("record")["number"] + len(plan.graph.outside)).alias("tag"),
        *(F.col("record")[name].alias(name) for name in ("key", "value", "at")),
        nothing.cast(HEADERS_TYPE).alias("headers"),
        nothing.cast("string").alias("topic"),
        nothing.cast("int").alias("partition"),
        nothing.cast("bigint").alias("offset"),
        "task",
        nothing.cast("string").alias("exception"),
        nothing.cast("string").alias("message"),
    )


def stores_of(plan: GraphPlan) -> tuple[Store, ...]:
    """The stores that a group's processors are connected with."""
    return tuple({store.name: store for node in plan.processes for store in node.stores}.values())


# --- what comes in -----------------------------------------------------------------------------------------


def _rows(
    building: Building,
    plan: GraphPlan,
    group: Linked,
    flows: Sequence[Flow],
    codecs: Codecs,
) -> DataFrame:
    """A row for each record and input, as Processors.java expects them, partitioned and in order."""
    parts = []
    for flow in flows:
        elements = []
        df, order = flow.df, F.unix_millis(F.col(TIMESTAMP))
        for number, parent in enumerate(plan.inputs):
            entrance = group.entrances[parent]
            if entrance not in flow.lanes:
                continue
            lane = flow.lanes[entrance]
            (_, write_key), (_, write_value) = codecs[parent]
            key = flow.own(lane, write_key(F.col(lane.key)))
            task = _task(building, plan, parent, key)
            if isinstance(parent, GlobalRead):  # its flow has nothing else
                everywhere = building.names.new("n")
                df = df.withColumn(everywhere, F.explode(_tasks(building, plan)))
                task, order = F.col(everywhere), F.lit(-_BEHIND_ALL)
            value = written_value(building, plan, number, flow, lane, write_value)
            element = F.struct(
                F.lit(number).alias("input"),
                key.alias("key"),
                value.alias("value"),
                task.alias("task"),
            )
            elements.append(F.when(flow.belongs_to(lane), element))
        each = elements[0] if len(elements) == 1 else F.explode(F.array(*elements))
        parts.append(
            df.withColumn("each", each)
            .where(F.col("each").isNotNull())
            .select(
                _bucket(building, plan, F.col("each")["task"]).alias("bucket"),
                F.col("each")["input"].alias("input"),
                F.col("each")["key"].alias("key"),
                F.col("each")["value"].alias("value"),
                F.unix_millis(F.col(TIMESTAMP)).alias("at"),
                F.col(HEADERS).alias("headers"),
                F.col(TOPIC).alias("topic"),
                F.col(PARTITION).alias("partition"),
                F.col(OFFSET).alias("offset"),
                F.col("each")["task"].alias("task"),
                order.cast("bigint").alias("order"),
            )
        )
    return reduce(DataFrame.union, parts)


def written_value(
    building: Building,
    plan: GraphPlan,
    number: int,
    flow: Flow,
    lane: Lane,
    write: Callable[[Column], Column],
) -> Column:
    """The bytes of an input's values, as the graph reads them."""
    value = flow.own(lane, write(F.col(lane.value)))
    if not plan.graph.has_old:
        return value
    old = F.lit(None).cast("binary")
    if plan.graph.inputs[number].is_of_table and lane.old is not None:
        _, (_, write_old) = building.codecs(flow, lane)
        old = flow.own(lane, write_old(F.col(lane.old)))
    return _beside(value, old)


def _beside(value: Column, old: Column) -> Column:
    """A new and an old value as one column, which processors/changes.py reads."""
    length = serde_columns.write_number("integer", F.coalesce(F.length(value) + 1, F.lit(0)))
    nothing = F.lit(bytearray())
    before = F.coalesce(F.concat(F.lit(bytearray(b"\x01")), old), F.lit(bytearray(b"\x00")))
    return F.concat(length, F.coalesce(value, nothing), before)


def _apart(both: Column) -> tuple[Column, Column]:
    """The new and the old value of what processors/changes.py wrote."""
    length = serde_columns.read_number("integer", F.substring(both, 1, 4))
    behind = F.greatest(length - 1, F.lit(0)) + 5
    value = F.when(length > 0, both.substr(F.lit(5), length - 1))
    rest = F.length(both) - behind
    is_there = both.substr(behind, F.lit(1)) == F.lit(bytearray(b"\x01"))
    return value, F.when(is_there, both.substr(behind + 1, rest))


def _ticks(building: Building, plan: GraphPlan) -> DataFrame | None:
    """A stream with a row for each task and time of day."""
    clock = building.context.clock
    if clock is None:
        return None
    tasks = F.explode(_tasks(building, plan))
    ticks = clock().select(F.unix_millis("timestamp").alias("at"), tasks.alias("task"))
    nothing = F.lit(None)
    return ticks.select(
        _bucket(building, plan, F.col("task")).alias("bucket"),
        F.lit(TICK).alias("input"),
        nothing.cast("binary").alias("key"),
        nothing.cast("binary").alias("value"),
        "at",
        nothing.cast(HEADERS_TYPE).alias("headers"),
        nothing.cast("string").alias("topic"),
        nothing.cast("int").alias("partition"),
        nothing.cast("bigint").alias("offset"),
        "task",
        # The time set by a test comes before the records of its micro-batch.
        F.lit(-_BEHIND_ALL if building.context.is_timed else _BEHIND_ALL).cast("bigint").alias("order"),
    )


def _ordered(rows: DataFrame, ticks: DataFrame | None) -> DataFrame:
    """Partitioned, and in the order of kernel_operators.py: the time of day comes after the records of its
    micro-batch, the rows of global tables before them."""
    rows = rows if ticks is None else rows.union(ticks)
    columns = [name for name in rows.columns if name != "order"]
    so_far = largest_so_far(F.col("bucket"), F.col("order"))
    rows = rows.withColumns({"_so_far": so_far, "_place": F.monotonically_increasing_id()})
    return rows.repartition("bucket").sortWithinPartitions("bucket", "_so_far", "_place").select(*columns)


def goes_by_clock(supplier: Any) -> bool:
    """Whether a processor's code mentions WALL_CLOCK_TIME: in its class, its supplier, or what they refer to
    in their own modules."""
    seen: set[int] = set()
    waiting: list[Any] = [supplier, type(supplier)]
    try:
        waiting.append(type(new_processor(supplier)))
    except Exception:  # reported when it is called
        waiting.append(None)
    while waiting:
        each = waiting.pop()
        each = getattr(each, "__func__", getattr(each, "__wrapped__", each))
        if id(each) in seen or each is None:
            continue
        seen.add(id(each))
        if isinstance(each, type):
            waiting += [
                member
                for kind in each.__mro__
                if kind.__module__.partition(".")[0] not in _NOT_THE_USERS
                for member in vars(kind).values()
                if callable(member) or isinstance(member, staticmethod | classmethod | property)
            ]
        elif isinstance(each, property):
            waiting.append(each.fget)
        elif isinstance(each, FunctionType):
            names = names_in(each.__code__)
            if "WALL_CLOCK_TIME" in names:
                return True
            waiting += [cell.cell_contents for cell in each.__closure__ or () if is_filled(cell)]
            waiting += [
                each.__globals__[name]
                for name in names
                if name in each.__globals__
                and getattr(each.__globals__[name], "__module__", None) == each.__module__
            ]
        elif isinstance(each, partial):
            waiting.append(each.func)
    return False


def _task(building: Building, plan: GraphPlan, node: Node, key: Column) -> Column:
    """The task that a record belongs to: the partition it comes from.

    After a repartition by Spark's shuffle, and after a stateful operator, there is no such partition; then it
    is its key's partition there.
    """
    before = _partitioned_by(building, node)
    by_key = F.coalesce(partition_of(key, _task_count(building, plan)), F.lit(0))
    return by_key if isinstance(before, Repartition) else F.coalesce(F.col(PARTITION), by_key)


def _task_count(building: Building, plan: GraphPlan) -> int:
    return max(1, building.partitions(plan.processes[0].name))


def _tasks(building: Building, plan: GraphPlan) -> Column:
    """All tasks, as an array."""
    return F.array(*(F.lit(number) for number in range(_task_count(building, plan))))


def _partitioned_by(building: Building, node: Node) -> Node | None:
    """The last step before this one that moves records between partitions; None: none does."""
    if isinstance(node, Repartition) and node not in building.pipeline.inputs:
        return node
    if node in building.pipeline.inputs:
        return None
    if node.store is not None and node.store.logged:
        return node
    found = (_partitioned_by(building, parent) for parent in node.parents)
    return next((each for each in found if each is not None), None)


def _bucket(building: Building, plan: GraphPlan, task: Column) -> Column:
    """The name of a task's bucket (stateful.bucket_names)."""
    names = F.array(*(F.lit(name) for name in bucket_names(_task_count(building, plan))))
    return F.coalesce(F.get(names, task), -1 - task)  # a topic of a pattern can have more partitions by now


# --- what comes out ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Called:
    """The names of the columns of an operator's results.

    Attributes:
        tag: int: the step outside or, after these, the store whose changelog it is; or -2 for a record for
            which the first processor has failed, and so on.
        key, value: binary.
        exception, message: of a failure.
    """

    tag: str
    key: str
    value: str
    exception: str
    message: str


def _behind(building: Building, plan: GraphPlan, made: DataFrame) -> Flow:
    renamed = {name: building.names.new(name[0]) for name in Called.__annotations__}
    made = made.withColumnsRenamed(renamed)
    made = made.withColumnsRenamed({"topic": TOPIC, "offset": OFFSET, "headers": HEADERS})
    made = made.withColumns({TIMESTAMP: in_range(F.col("at")), PARTITION: F.col("task")})
    called = Called(**renamed)
    flow = Flow(made.drop("at", "task"), building.names)
    put_lanes(building, plan, flow, called)
    tag = F.col(called.tag)
    stores = {store.name: store for store in stores_of(plan)}
    for number, spec in enumerate(plan.graph.stores):
        if spec.logged and not spec.read_only:
            flag = flow.with_column("f", tag == len(plan.outside) + number)
            _put_changelog(building, flow, stores[spec.name], Lane(called.key, called.value, flag))
    return flow


def put_lanes(building: Building, plan: GraphPlan, flow: Flow, called: Called) -> None:
    """Put a lane for each step outside, have failures handled, and note the stores' serdes."""
    tag, key, value = (F.col(name) for name in (called.tag, called.key, called.value))
    if building.context.handlers.needs_source:
        failed = tag < -1
        came = F.when(failed, value)
        raw = {RAW_KEY: F.when(failed, key), RAW_VALUE: _apart(came)[0] if plan.graph.has_old else came}
        for name, column in raw.items():
            before = F.col(name) if name in flow.df.columns else F.lit(None)
            flow.df = flow.df.withColumn(name, F.coalesce(column, before))
    for number, (process, child) in enumerate(plan.outside):
        outside = plan.graph.outside[number]
        mine = tag == number
        where = F.lit(f"{process.name}: what it forwards to {outside.name}")
        read_key = serde_columns.from_bytes(outside.key_serde, F.when(mine, key), where)
        values = _apart(F.when(mine, value)) if outside.has_old else (F.when(mine, value),)
        read_value, *read_old = (
            serde_columns.from_bytes(outside.value_serde, each, where) for each in values
        )
        lane = Lane(
            flow.with_column("k", read_key),
            flow.with_column("v", read_value),
            flow.with_column("f", mine),
            outside.key_serde,
            outside.value_serde,
            old=flow.with_column("v", read_old[0]) if read_old else None,
            written=(called.key, called.value) if isinstance(child, Sink) else None,
        )
        forwarded = Forwarded(process.name, (process,))
        flow.lanes[forwarded] = lane
        building.forwarded[process, child] = forwarded
        building.uses[forwarded] = 1
    if building.context.handlers.processing:
        for number, process in enumerate(plan.processes):
            _put_failures(building, plan, flow, process, tag == -2 - number, called)
    if building.context.handlers.production:
        for number, (_, child) in enumerate(plan.outside):
            if isinstance(child, Sink):
                parts = {part: -2 - unwritten_number(plan.graph, number, part) for part in ("key", "value")}
                is_part = {part: tag == of for part, of in parts.items()}
                _put_unwritten(building, flow, child, is_part, called)
    for spec in plan.graph.stores:
        if not spec.read_only:
            building.store_serdes[spec.name] = (spec.key_serde, spec.value_serde)


def _put_failures(
    building: Building,
    plan: GraphPlan,
    flow: Flow,
    process: Process,
    mine: Column,
    called: Called,
) -> None:
    """Handle the records that a processor failed on; they are reported as they came in."""
    failed = flow.with_column("d", mine)
    exception, message = F.col(called.exception), F.col(called.message)
    if "processing" in building.context.handlers.own:
        inputs = {(each.key_serde, each.value_serde) for each in plan.graph.inputs}
        serdes_of = next(iter(inputs)) if len(inputs) == 1 else (Serdes.bytes(), Serdes.bytes())
        place = FailurePlace("processing", process.name, FieldReader(serdes_of[0]), FieldReader(serdes_of[1]))
        shown = (F.col(RAW_KEY), F.col(RAW_VALUE))
        ask(building, process, flow, failed, place, exception, message, shown)
    else:
        drop(building, process, flow, failed, "processing", exception, message)


def _put_unwritten(
    building: Building, flow: Flow, sink: Sink, mine: Mapping[str, Column], called: Called
) -> None:
    """Handle the records that a sink's serdes cannot write, by key and value."""
    exception, message = F.col(called.exception), F.col(called.message)
    if "production" not in building.context.handlers.own:
        failed = flow.with_column("d", mine["key"] | mine["value"])
        drop(building, sink, flow, failed, "production", exception, message)
        return
    nothing = F.lit(None).cast("binary")
    topic = F.lit(sink.topic).cast("string")
    for part, of in mine.items():
        place = FailurePlace("production", sink.name, origin=SerializationExceptionOrigin(part))
        failed = flow.with_column("d", of)
        ask(building, sink, flow, failed, place, exception, message, (nothing, nothing), topic)


def _put_changelog(building: Building, flow: Flow, store: Store, lane: Lane) -> None:
    output = Output(
        topic=building.internal(f"{store.name}-changelog"),
        key=F.col(lane.key),
        value=F.col(lane.value),
        partition=F.col(PARTITION),
        fenced=True,
    )
    building.pin(StoreInput(store.name, (), store), flow, lane, output)
