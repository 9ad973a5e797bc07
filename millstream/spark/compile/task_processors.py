"""Processors in Python as an operator of a task (kernel: task/Processors.java).

As with the other operators, what is forwarded is behind it, and the rows that came in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.model import StoreKind
from millstream.physical.plan import Linked
from millstream.processors.changes import Transforming
from millstream.processors.graph import GraphPlan, ProcessorSpec, StoreSpec
from millstream.spark.compile.building import Building
from millstream.spark.compile.flow import HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC, Flow
from millstream.spark.compile.operators import behind, operator, passing, settle_outputs
from millstream.spark.compile.processor_nodes import (
    Called,
    Codecs,
    planned,
    program_of,
    put_lanes,
    stores_of,
    written_value,
)
from millstream.spark.compile.source import in_range
from millstream.topology.nodes import Node
from millstream.topology.pipeline import global_reads

__all__ = ["build_task_processors"]

_OWN = {
    "tag": "tag",
    "key": "result_key",
    "value": "result_value",
    "at": "at",
    "headers": "result_headers",
    "topic": "result_topic",
    "partition": "result_partition",
    "offset": "result_offset",
    "exception": "exception",
    "message": "message",
}
"""The first columns of the operator's rows (Processors.Spec.own)."""
_AT = "_at"


def build_task_processors(building: Building, step: Linked) -> None:
    """Turn linked processors into one operator."""
    flow = building.flow
    plan, codecs = planned(building, step.processors)
    settle_outputs(building, flow)
    df, description = _input(building, flow, plan, building.entrances[step.processors[0]], codecs)
    program = program_of(building, plan, df.sparkSession)
    new = behind(building, flow, operator(df, description, program))
    put_lanes(building, plan, new, _results(building, new))
    building.flow = new
    building.processes_records = True


def _input(
    building: Building, flow: Flow, plan: GraphPlan, entrances: Mapping[Node, Node], codecs: Codecs
) -> tuple[DataFrame, str]:
    """The rows that go into the operator, and its description for the kernel."""
    columns: dict[str, Column] = {}
    inputs = []
    for number, parent in enumerate(plan.inputs):
        lane = flow.lanes[entrances[parent]]
        (_, write_key), (_, write_value) = codecs[parent]
        on, key, value = (building.names.new(kind) for kind in ("on", "kb", "vb"))
        columns[on] = flow.belongs_to(lane)
        columns[key] = flow.own(lane, write_key(F.col(lane.key)))
        columns[value] = written_value(building, plan, number, flow, lane, write_value)
        transformers = [
            _transformer(plan.graph.processors[of]) for of in plan.graph.inputs[number].processors
        ]
        restored = any(each is not None and each.store is None for each in transformers)
        inputs.append({"on": on, "key": key, "value": value, "restored": restored})
    for entrance in entrances.values():
        del flow.lanes[entrance]
    columns[_AT] = F.unix_millis(F.col(TIMESTAMP))
    df = flow.df.withColumns(columns)
    passes = passing(building, flow, df)
    stores = {store.name: store for store in stores_of(plan)}
    description = {
        "number": building.next_number(),
        "passes": len(passes),
        "records": flow.needs_records,
        "at": _AT,
        "headers": HEADERS,
        "topic": TOPIC,
        "partition": PARTITION,
        "offset": OFFSET,
        "inputs": inputs,
        "tells": any(
            each is not None and each.store is not None and not each.has_history
            for each in map(_transformer, plan.graph.processors)
        ),
        "stores": [
            _global_number(building, spec)
            if spec.read_only
            else building.stores.of_processors(stores[spec.name], _layout(spec))
            for spec in plan.graph.stores
        ],
    }
    return df.select(*passes, *columns), json.dumps(description)


def _transformer(spec: ProcessorSpec) -> Transforming | None:
    """The transformer of a table; None if it is another processor."""
    return spec.supplier if spec.is_of_table else None


def _global_number(building: Building, spec: StoreSpec) -> int:
    """The number of a global store: -1 for the first global table of the pipeline, and so on."""
    tables = [read.of for read in global_reads(building.pipeline)]
    (place,) = (
        place for place, table in enumerate(tables) if table is not None and table.stored.name == spec.name
    )
    return -1 - place


def _results(building: Building, new: Flow) -> Called:
    """Rename the columns of results, and have their records' context in the columns of each row's."""
    names = {name: building.names.new(name[0]) for name in _OWN}
    new.df = new.df.withColumnsRenamed({own: names[name] for name, own in _OWN.items()})
    is_result = F.col(names["tag"]) != -1
    of_result = {
        TIMESTAMP: in_range(F.col(names["at"])),
        HEADERS: F.col(names["headers"]),
        TOPIC: F.col(names["topic"]),
        PARTITION: F.col(names["partition"]),
        OFFSET: F.col(names["offset"]),
    }
    new.df = new.df.withColumns(
        {name: F.when(is_result, column).otherwise(F.col(name)) for name, column in of_result.items()}
    )
    return Called(names["tag"], names["key"], names["value"], names["exception"], names["message"])


def _layout(spec: StoreSpec) -> str:
    """How a store's entries lie (kernel: task/LaidOut.java)."""
    if spec.kind is StoreKind.SESSION:
        return f"session {spec.retention_ms}"
    if spec.kind is StoreKind.WINDOW:
        return f"{'duplicates' if spec.duplicates else 'window'} {spec.retention_ms}"
    return "plain" if spec.history_ms is None else f"versioned {spec.history_ms}"
