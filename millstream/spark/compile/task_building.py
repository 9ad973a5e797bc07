"""What the steps of one compilation of a task share: its one flow, its operators, and its stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.timestamps import Extractor
from millstream.kernel.constants import CONTROL_RESTORED
from millstream.model import StoreKind
from millstream.physical.stores import TaskStores
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building, StoreInput
from millstream.spark.compile.flow import CONTROL, RAW_KEY, RAW_VALUE, Flow, Lane
from millstream.spark.compile.plans import has_clock
from millstream.spark.compile.record_failures import count_failures
from millstream.spark.compile.timestamp_columns import stamp, stamp_by_task
from millstream.spark.jvm.java_names import java_class
from millstream.spark.run.dropped import SKIPPED, metric
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import (
    Node,
    Repartition,
    Source,
    Store,
    TableSource,
)
from millstream.topology.pipeline import topics_of_input

__all__ = ["TaskBuilding"]


@dataclass
class TaskBuilding(Building):
    """The state of one compilation of a task."""

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
        super().__post_init__()
        self.stores = TaskStores(self.context.application_id)

    def kept(
        self, node: Node, flow: Flow, lane: Lane, keep: Column, *, alone: bool, dropped: str = SKIPPED
    ) -> Lane:
        is_new = F.col(CONTROL) == 0
        count_failures(
            self, node, flow, flow.with_column("d", flow.belongs_to(lane) & is_new & ~keep), dropped
        )
        return flow.narrow(lane, keep, alone=alone)

    def skipping(self, node: Node, kind: str) -> str:
        """The name of one more number of records that a node passes over."""
        self.failures += 1
        return metric(self.failures - 1, kind, node.name)

    def next_number(self) -> int:
        """A number for one more operator."""
        self.count += 1
        return self.count - 1

    def open(self, node: Source | TableSource | Repartition) -> tuple[Flow, Lane]:
        flow = self.flow
        flow.unopened -= 1
        topic = F.col("_topic")
        if isinstance(node, Source) and node.pattern is not None:
            mine = topic.rlike(f"^(?:{node.pattern.pattern})$")
        else:
            mine = topic.isin(*topics_of_input(node, self.context.application_id))
        controls = [0, CONTROL_RESTORED] if isinstance(node, TableSource) else [0]
        keep = flow.with_column("f", F.coalesce(F.col(CONTROL).isin(controls) & mine, F.lit(False)))
        return flow, Lane(RAW_KEY, RAW_VALUE, keep, routes=((None, frozenset([flow.unopened])),))

    def stamp(
        self, node: Node, extractor: Extractor, flow: Flow, lane: Lane, traced: Callable[[Any], str]
    ) -> str | None:
        """Differs: records whose times only Python knows (a serde or a function of Python), or only a batch
        of Spark (the current time), come in the order of Kafka's times."""
        before = flow.df
        times, skipped = stamp_by_task(node.name, extractor, flow, lane, traced)
        if times is None:
            return skipped
        jvm: Any = times.sparkSession._jvm
        computed = java_class(jvm, "io.millstream.kernel.task.Times").of(times._jdf)
        if computed is None or has_clock(times):
            flow.df = before
            return stamp(node.name, extractor, flow, lane, traced)
        self.times.append(computed)
        return skipped

    def put(self, node: Node, flow: Flow, lane: Lane, stored: Lane | None = None) -> None:
        if self._waited(node) in self.operated and node not in self.plan.remembering.by_time:
            lane = replace(lane, past=None)  # only a group asks
        super().put(node, flow, lane, stored)

    def as_stream(self, flow: Flow, lane: Lane) -> Lane:
        return flow.narrow(super().as_stream(flow, lane), F.col(CONTROL) == 0, alone=False)

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
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

    @property
    def needs_source(self) -> bool:
        """Whether the bytes that are read are needed behind an operator: of inputs that are opened later, or
        of changelogs, of which stores with versions are made."""
        return bool(self.flow.unopened) or any(
            store.history_ms is not None and store.source_topic is None
            for node in self.pipeline.nodes
            for store in node.stores
        )
