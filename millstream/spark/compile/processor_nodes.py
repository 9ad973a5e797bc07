"""Processors in Python: the steps before their operator, the operator, and the steps after it.

All linked processors (processors/graph.py) form one operator of the kernel, which has their stores. It
receives the records of all incoming streams. It returns the records forwarded to steps that are not
processors, each a lane of its own, and the records of changelogs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from millstream.dsl.error_handlers import SerializationExceptionOrigin
from millstream.errors import TopologyException
from millstream.processors.graph import Graph, GraphPlan, Input, plan_graph
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import (
    RAW_KEY,
    RAW_VALUE,
    Flow,
    Lane,
)
from millstream.spark.compile.record_failures import ask, drop
from millstream.spark.worker.handler_calls import FailurePlace, FieldReader
from millstream.spark.worker.processing import Processing, unwritten_number
from millstream.spark.worker.programs import python_program
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import GlobalRead, Node, Process, Sink, Store

__all__ = [
    "Called",
    "Codecs",
    "Forwarded",
    "WaitingInput",
    "pickled",
    "planned",
    "program_of",
    "put_lanes",
    "stores_of",
    "visit_process",
    "written_value",
]


Codec = tuple[Serde, Any]
Codecs = dict[Node, tuple[Codec, Codec]]
"""For each step whose records come in: serde and bytes of key and value (Building.codecs)."""


@dataclass(frozen=True, eq=False)
class WaitingInput(Node):
    """An input stream of processors that still wait for other inputs. Internal: it occurs in no topology."""


@dataclass(frozen=True, eq=False)
class Forwarded(Node):
    """What a processor forwards to one step. Internal: it occurs in no topology."""


def visit_process(building: Building, node: Process) -> None:
    """Note the incoming lanes; the operator is built once all linked processors are visited."""
    for parent in node.parents:
        if isinstance(parent, Process) and parent in building.plan.groups[node]:
            continue
        flow, lane, _ = building.take(parent)
        entrances = building.entrances.setdefault(building.plan.groups[node][0], {})
        if parent not in entrances:
            entrances[parent] = entrance = WaitingInput(parent.name, (parent,))
            flow.lanes[entrance] = lane
            building.uses[entrance] = 1


def planned(building: Building, group: tuple[Process, ...]) -> tuple[GraphPlan, Codecs]:
    """The graph of a group, and serdes and bytes of its inputs."""
    codecs: Codecs = {}
    with_old = set()
    for parent, entrance in building.entrances[group[0]].items():
        flow = building.flow
        codecs[parent] = _codecs(building, flow, flow.lanes[entrance])
        if flow.lanes[entrance].old is not None:
            with_old.add(parent)
    context = building.context
    plan = plan_graph(
        group,
        building.pipeline.nodes,
        lambda node: (codecs[node][0][0], codecs[node][1][0]),
        application_id=context.application_id,
        config=context.config,
        default=(context.default_key_serde, context.default_value_serde),
        remembering=building.remembering,
        cached=context.cached,
        with_old=with_old,
    )
    inputs = []
    for given, node in zip(plan.graph.inputs, plan.inputs, strict=True):
        (key_serde, _), (value_serde, _) = codecs[node]
        inputs.append(replace(given, key_serde=key_serde, value_serde=value_serde))
    return replace(plan, graph=_bound(building, plan, tuple(inputs))), codecs


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
        if raw is not None and flow.has(raw) and serde is read_with:
            write = partial(_raw, raw)
        found.append((serde, write))
    return found[0], found[1]


def _raw(name: str, _: Column) -> Column:
    return F.col(name)


def program_of(building: Building, plan: GraphPlan, spark: SparkSession) -> Any:
    """The program of the workers that run the processors.

    Raises:
        TopologyException: it cannot be pickled.
    """
    context = building.context
    running = Processing(
        plan.graph,
        building.pipeline.subtopology,
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


def stores_of(plan: GraphPlan) -> tuple[Store, ...]:
    """The stores that a group's processors are connected with."""
    return tuple({store.name: store for node in plan.processes for store in node.stores}.values())


# --- what comes in -----------------------------------------------------------------------------------------


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


def put_lanes(building: Building, plan: GraphPlan, flow: Flow, called: Called) -> None:
    """Put a lane for each step outside, have failures handled, and note the stores' serdes."""
    tag, key, value = (F.col(name) for name in (called.tag, called.key, called.value))
    if building.context.handlers.needs_source:
        failed = tag < -1
        came = F.when(failed, value)
        raw = {RAW_KEY: F.when(failed, key), RAW_VALUE: _apart(came)[0] if plan.graph.has_old else came}
        for name, column in raw.items():
            before = F.col(name) if flow.has(name) else F.lit(None)
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
