"""Nodes that read or write topics: sources, sinks, and repartition topics, which are both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.timestamps import Extractor, FailOnInvalidTimestamp
from millstream.errors import TopologyException
from millstream.physical.kernel_joins import is_between_tables
from millstream.physical.plan import WrittenBack
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.spark.compile import serde_columns
from millstream.spark.compile.applying import add_result, apply
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import (
    RAW_KEY,
    RAW_VALUE,
    Flow,
    Lane,
)
from millstream.spark.compile.frame_columns import place_of_record
from millstream.spark.compile.plans import has_clock
from millstream.spark.compile.record_failures import ask, computed, count_failures, drop, kept, writable
from millstream.spark.compile.record_handlers import SERIALIZATION_FAILED, attempt
from millstream.spark.compile.sink import Output
from millstream.spark.compile.timestamp_columns import stamp, stamp_by_task
from millstream.spark.jvm.java_names import java_class, kernel_column
from millstream.spark.run.dropped import UNTIMED
from millstream.spark.worker.handler_calls import FailurePlace
from millstream.topology import nodes
from millstream.topology.functions import describe_function
from millstream.topology.names import internal_topic
from millstream.topology.nodes import Function, GlobalRead, Node, Repartition, Source, TableSource

__all__ = [
    "source_serdes",
    "visit_repartition",
    "visit_sink",
    "visit_source",
    "visit_table_source",
    "visit_written_back",
    "written_with",
]


# --- reading -----------------------------------------------------------------------------------------------


def visit_source(building: Building, node: Source) -> None:
    what = f"pattern '{node.pattern.pattern}'" if node.pattern else f"topic '{', '.join(node.topics)}'"
    flow, lane = _open(building, node, *source_serdes(building, node, what))
    building.put(node, flow, lane)


def visit_table_source(building: Building, node: TableSource) -> None:
    key, value = source_serdes(building, node, f"topic '{node.topic}'")
    if node.stored is not None:
        key, value = node.stored.key_serde or key, node.stored.value_serde or value
        key, value = building.read(key, node.topic, is_key=True), building.read(value, node.topic)
        building.store_serdes[node.stored.name] = (key, value)
    if not building.uses.get(node) and node.is_view:
        return  # nothing comes after it: the store is a view of the topic, Spark has nothing to do
    flow, lane = _open(building, node, key, value)
    if node in building.remembering:
        building.wait(node, flow, lane)
        return
    building.put(
        node, flow, kept(building, node, flow, lane, F.col(lane.key).isNotNull(), alone=not flow.lanes)
    )


def source_serdes(building: Building, node: Any, what: str) -> tuple[Serde, Serde]:
    """The serdes that an input is read with."""
    key = node.key_serde or building.context.default_key_serde
    value = node.value_serde or building.context.default_value_serde
    for side, serde in (("key", key), ("value", value)):
        if serde is None:
            raise TopologyException(
                f"{node.name}: no {side} serde for {what}; give it one, "
                "Consumed.with_(Serdes.string(), Serdes.string()), "
                f"or set the configuration default.{side}.serde"
            )
    assert key is not None and value is not None  # noqa: PT018
    # Of several topics, the first one gives the schema to read with.
    topic = node.topic if isinstance(node, TableSource) else next(iter(node.topics), None)
    return building.read(key, topic, is_key=True), building.read(value, topic)


def _open(building: Building, node: Any, key_serde: Serde, value_serde: Serde) -> tuple[Flow, Lane]:
    flow, read = building.open(node)
    where = place_of_record()
    where_key, where_value = F.concat(where, F.lit(" key")), F.concat(where, F.lit(" value"))
    read_key = serde_columns.from_bytes(key_serde, flow.own(read, F.col(read.key)), where_key)
    read_value = serde_columns.from_bytes(value_serde, flow.own(read, F.col(read.value)), where_value)
    if not building.context.handlers.deserialization:
        key = flow.with_column("k", serde_columns.once(key_serde, read_key))
        value = flow.with_column("v", serde_columns.once(value_serde, read_value))
        if any(isinstance(each, nodes.Process) and node in each.parents for each in building.pipeline.nodes):
            building.raw[key] = flow.with_column("r", F.col(read.key))
            building.raw[value] = flow.with_column("r", F.col(read.value))
        return flow, _stamped(
            building,
            node,
            flow,
            replace(read, key=key, value=value, key_serde=key_serde, value_serde=value_serde),
        )
    tried_key = flow.with_column("t", serde_columns.once(key_serde, attempt(F.lit(True), read_key)))
    tried_value = flow.with_column("t", serde_columns.once(value_serde, attempt(F.lit(True), read_value)))
    key = flow.with_column("k", F.col(tried_key)["r0"])
    value = flow.with_column("v", F.col(tried_value)["r0"])
    failed = flow.with_column("d", F.col(tried_key).isNull() | F.col(tried_value).isNull())
    exception, message = (
        F.lit(SERIALIZATION_FAILED),
        F.when(
            F.col(tried_key).isNull(), serde_columns.complaint(key_serde, F.col(RAW_KEY), where_key)
        ).otherwise(serde_columns.complaint(value_serde, F.col(RAW_VALUE), where_value)),
    )
    if "deserialization" in building.context.handlers.own:
        place = FailurePlace("deserialization", node.name)
        nothing = F.lit(None).cast("binary")
        ask(building, node, flow, failed, place, exception, message, (nothing, nothing))
    else:
        drop(building, node, flow, failed, "deserialization", exception, message)
    lane = replace(read, key=key, value=value, key_serde=key_serde, value_serde=value_serde)
    lane = flow.narrow(lane, ~F.col(failed), alone=not flow.lanes)
    return flow, _stamped(building, node, flow, lane)


def _stamp(
    building: Building,
    node: Node,
    extractor: Extractor,
    flow: Flow,
    lane: Lane,
    traced: Callable[[Any], str],
) -> str | None:
    """As timestamp_columns.stamp.

    Differs: records whose times only Python knows (a serde or a function of Python), or only a batch of Spark
    (the current time), come in the order of Kafka's times.
    """
    before = flow.df
    times, skipped = stamp_by_task(node.name, extractor, flow, lane, traced)
    if times is None:
        return skipped
    jvm: Any = times.sparkSession._jvm
    computed = java_class(jvm, "io.millstream.kernel.task.Times").of(times._jdf)
    if computed is None or has_clock(times):
        flow.df = before
        return stamp(node.name, extractor, flow, lane, traced)
    building.times.append(computed)
    return skipped


def _stamped(building: Building, node: Any, flow: Flow, lane: Lane) -> Lane:
    """The lane of a source, with the times that its timestamp extractor has for the records."""
    if isinstance(node, Repartition | GlobalRead):
        return lane  # what we have written has a time, and a global table's rows need none
    using = node.timestamp_extractor or building.context.timestamp_extractor or FailOnInvalidTimestamp()
    skipped = _stamp(
        building,
        node,
        using,
        flow,
        lane,
        lambda function: add_result(node, function, flow, lane, "s", apply(node, function, flow, lane)),
    )
    if skipped is None:
        return lane
    count_failures(building, node, flow, skipped, UNTIMED)
    return flow.narrow(lane, ~F.col(skipped), alone=not flow.lanes)


# --- repartition topics ------------------------------------------------------------------------------------


def visit_repartition(building: Building, node: Repartition) -> None:
    if is_between_tables(node):
        _visit_between_tables(building, node)
        return
    if node in building.pipeline.inputs:
        if isinstance(node.parents[0], nodes.TableGroupBy):
            _read_changes(building, node, *written_with(building, node))
            return
        flow, lane = _open(building, node, *written_with(building, node))
        building.put(node, flow, lane)
        return
    _repartition(building, node, node)


def _read_changes(building: Building, node: Repartition, key_serde: Serde, value_serde: Serde) -> None:
    """The rows of a table under new keys: what each was is in the record, too, to be subtracted."""
    flow, read = building.open(node)
    where = place_of_record()
    read_key = serde_columns.from_bytes(
        key_serde, flow.own(read, F.col(read.key)), F.concat(where, F.lit(" key"))
    )
    key = flow.with_column("k", serde_columns.once(key_serde, read_key))
    where = F.concat(where, F.lit(" value"))
    content = flow.own(read, F.col(read.value))
    both = (
        serde_columns.once(value_serde, serde_columns.from_bytes(value_serde, each, where))
        for each in (kernel_column("InternalBytes", which, content) for which in ("newOf", "oldOf"))
    )
    value, old = (flow.with_column("v", each) for each in both)
    building.put(
        node, flow, replace(read, key=key, value=value, key_serde=key_serde, value_serde=value_serde, old=old)
    )


def visit_written_back(building: Building, node: WrittenBack) -> None:
    building.visiting = node.repartition  # that is what a processor before it forwards to
    _repartition(building, node.repartition, node)


def _repartition(building: Building, node: Repartition, pinned: Node) -> None:
    flow, lane, alone = building.take(node.parents[0])
    if node.filter_name is not None and not node.null_keys:  # Kafka Streams drops null keys here
        lane = flow.narrow(lane, F.col(lane.key).isNotNull(), alone=alone)
    lane = replace(
        lane, key_serde=node.key_serde or lane.key_serde, value_serde=node.value_serde or lane.value_serde
    )
    key_serde, value_serde = _settled(building, node, flow, lane)
    building.context.repartition_serdes[node] = (key_serde, value_serde)
    lane, output = _output(building, node, flow, lane, key_serde, value_serde, building.internal(node.topic))
    if isinstance(node.parents[0], nodes.TableGroupBy):
        assert lane.old is not None
        old_type = flow.type_of(lane.old)
        where = f"{node.name}: the old value"
        old = serde_columns.to_bytes(value_serde, F.col(lane.old), old_type, where)
        output = replace(output, value=kernel_column("InternalBytes", "change", output.value, old))
    building.pin(pinned, flow, lane, output)


def _visit_between_tables(building: Building, node: Repartition) -> None:
    """A topic between the tables of a join: who reads it has its bytes, and who writes it has done so."""
    if node in building.pipeline.inputs:
        flow, lane = _open(building, node, Serdes.bytes(), Serdes.bytes())
        building.put(node, flow, lane)


def written_with(building: Building, node: Repartition) -> tuple[Serde, Serde]:
    """The serdes of a repartition topic: as the pipeline settled them that writes it."""
    topic = internal_topic(building.context.application_id, node.topic)
    settled = building.context.repartition_serdes.get(node)
    if settled is not None:
        return building.read(settled[0], topic, is_key=True), building.read(settled[1], topic)
    if node.key_serde is None or node.value_serde is None:
        raise TopologyException(
            f"{node.name}: the topic '{node.topic}' is read by the pipeline that writes it, so its "
            "serdes have to be given: repartition(Repartitioned.with_(Serdes.string(), Serdes.long()))"
        )
    return building.read(node.key_serde, topic, is_key=True), building.read(node.value_serde, topic)


# --- writing -----------------------------------------------------------------------------------------------


def _settled(
    building: Building, node: Repartition | nodes.Sink, flow: Flow, lane: Lane
) -> tuple[Serde, Serde]:
    """The serdes that a topic is written with."""
    defaults = building.context
    key = building.settle(node.key_serde, lane.key_serde, defaults.default_key_serde, flow.type_of(lane.key))
    value = building.settle(
        node.value_serde, lane.value_serde, defaults.default_value_serde, flow.type_of(lane.value)
    )
    # A sink whose topic a function returns has none yet.
    topic = (
        internal_topic(defaults.application_id, node.topic) if isinstance(node, Repartition) else node.topic
    )
    return building.bound(key, topic, is_key=True), building.bound(value, topic)


def _output(
    building: Building,
    node: Repartition | nodes.Sink,
    flow: Flow,
    lane: Lane,
    key_serde: Serde,
    value_serde: Serde,
    topic: Column,
) -> tuple[Lane, Output]:
    """The lane of what can be written, and what is written of it."""
    key_type, value_type = flow.type_of(lane.key), flow.type_of(lane.value)
    partition = None
    if node.partitioner is not None:
        lane, partition = _partition(building, node, node.partitioner, flow, lane)
    if lane.written is not None:
        key, value = map(F.col, lane.written)
    else:
        key = serde_columns.to_bytes(key_serde, F.col(lane.key), key_type, f"{node.name}: the key")
        value = serde_columns.to_bytes(value_serde, F.col(lane.value), value_type, f"{node.name}: the value")
    lane, key, value = writable(building, node, flow, lane, key, value, topic)
    return lane, Output(topic, key, value, partition=partition, headers=True, letter=node.name)


def visit_sink(building: Building, node: nodes.Sink) -> None:
    for parent in node.parents:
        _write(building, node if parent is node.parents[0] else replace(node, parents=(parent,)), parent)


def _write(building: Building, node: nodes.Sink, parent: Node) -> None:
    """Have a sink write what comes from one of the nodes before it."""
    flow, lane, _ = building.take(parent)
    key_serde, value_serde = _settled(building, node, flow, lane)
    topic = F.lit(node.topic)
    if node.topic is not None:
        building.context.written_serdes[node.topic] = (key_serde, value_serde)
    if node.topic_function is not None:
        lane, topic = _topic(building, node, node.topic_function, flow, lane)
    lane, output = _output(building, node, flow, lane, key_serde, value_serde, topic)
    building.pin(node, flow, lane, output)


def _topic(building: Building, node: Node, function: Function, flow: Flow, lane: Lane) -> tuple[Lane, Column]:
    """The topic that a function names for each record; at a NULL the query ends and says whose it is."""
    traced = apply(node, function, flow, lane)
    lane, name = computed(building, node, function, flow, lane, "t", traced)
    if not isinstance(flow.type_of(name), T.StringType):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): a topic's name is a string Column, "
            f"this one is {flow.type_of(name).simpleString()}"
        )
    message = f"{node.name} ({describe_function(function)}): the topic's name is NULL for a record"
    return lane, F.coalesce(F.col(name), F.raise_error(F.lit(message)).cast("string"))


def _partition(
    building: Building, node: Node, function: Function, flow: Flow, lane: Lane
) -> tuple[Lane, Column]:
    """The partition that a function chooses for each record; NULL leaves it to the producer."""
    traced = apply(node, function, flow, lane)
    lane, name = computed(building, node, function, flow, lane, "p", traced)
    if not isinstance(flow.type_of(name), (T.IntegralType, T.NullType)):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): a partition is an integer Column, "
            f"this one is {flow.type_of(name).simpleString()}"
        )
    return lane, F.col(name).cast("int")
