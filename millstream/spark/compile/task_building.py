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
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.building import Building, StoreInput
from millstream.spark.compile.flow import CONTROL, RAW_KEY, RAW_VALUE, Flow, Lane
from millstream.spark.compile.kernel_joins import Side, is_quiet
from millstream.spark.compile.kernel_operators import Item
from millstream.spark.compile.plans import has_clock
from millstream.spark.compile.record_failures import count_failures
from millstream.spark.compile.timestamp_columns import stamp, stamp_by_task
from millstream.spark.jvm.java_names import java_class
from millstream.spark.run.dropped import SKIPPED, metric
from millstream.spark.run.task_run import TaskStore
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import (
    ForeignKeyJoin,
    ForeignKeyLookup,
    Node,
    Process,
    Repartition,
    Source,
    Store,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableJoin,
    TableMapValues,
    TableSource,
    ToStream,
    ToTable,
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
    stores: list[TaskStore] = field(default_factory=list)
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
        if node in self.stands_for.values() and node not in self.grouped_by_time:
            lane = replace(lane, past=None)  # only a group asks
        super().put(node, flow, lane, stored)

    def as_stream(self, flow: Flow, lane: Lane) -> Lane:
        return flow.narrow(super().as_stream(flow, lane), F.col(CONTROL) == 0, alone=False)

    def _fill(self, node: Node, store: Store, flow: Flow, lane: Lane) -> None:
        waited = node.parents[0] if isinstance(node, StoreInput) else node
        waited = next((key for key, value in self.stands_for.items() if value is waited), waited)
        if waited not in self.operated:  # a step without state: an item keeps its rows, and does nothing else
            kept = ToTable(node.name, (node,), store)
            if self._is_step(node):
                flow.lanes.pop(node, None)
                self.stands_for[kept] = node
                if lane.old is not None:
                    self.remembering.add(node)
            if store.history_ms is not None:
                self.grouped_by_time.add(kept)
            self.wait(kept, flow, lane)
            return
        _, value = self.store_serdes[store.name] = self.serdes_of(store, flow, lane)
        where = f"{node.name}: the value of store '{store.name}'"
        self.stored[waited] = serde_columns.to_bytes(
            value, F.col(lane.value), flow.type_of(lane.value), where
        )

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

    def _is_step(self, node: Node) -> bool:
        """Whether what is behind it gets the rows of its store.

        None come again from before it; or only the store knows what is a change.
        """
        children = [each for each in self.pipeline.nodes if node in each.parents]
        if isinstance(node, TableFilter) and is_quiet(node):
            return True  # its store says what is no change
        return isinstance(node, TableJoin | ForeignKeyJoin | ToTable) and not all(
            isinstance(each, ToStream) for each in children
        )

    @property
    def needs_source(self) -> bool:
        """Whether the bytes that are read are needed behind an operator: of inputs that are opened later, or
        of changelogs, of which stores with versions are made."""
        return bool(self.flow.unopened) or any(
            store.history_ms is not None and store.source_topic is None
            for node in self.pipeline.nodes
            for store in node.stores
        )

    def store_of(self, item: Item) -> int:
        """The number of the store of an item; -1 for one without state."""
        if not item.has_state:
            return -1
        node = item.pending.node
        changelog, derived = "", False
        if isinstance(node, Side):
            name = node.label
            if isinstance(node.join, StreamJoin):
                changelog = changelog_topic(self.context.application_id, name)
            derived = not changelog and _is_restored(node.parents[0])
        elif isinstance(node, StreamTableJoin | ForeignKeyLookup | StreamJoin):
            store = node.outer_stored if isinstance(node, StreamJoin) else node.stored
            name = f"{node.name}-waiting" if store is None else store.name
            if store is not None and store.logged and not isinstance(node, StreamJoin):
                changelog = changelog_topic(self.context.application_id, name)
        elif node.store is None:
            name = node.name
        else:
            return self.store_named(node.store, item.core)
        return self._store(TaskStore(name, changelog, False, derived=derived))

    def store_named(self, store: Store, core: str = "") -> int:
        """The number of a store of the topology, which is kept by a core of the kernel."""
        is_logged = store.logged and store.source_topic is None
        changelog = changelog_topic(self.context.application_id, store.name) if is_logged else ""
        versioned = is_logged and store.history_ms is not None
        from_records = versioned and core != "whole"  # which has more than a record says
        derived = from_records or (store.logged and store.source_topic is not None)
        in_memory = not store.persistent
        return self._store(TaskStore(store.name, changelog, in_memory, derived=derived, versioned=versioned))

    def store_of_processors(self, store: Store, layout: str) -> int:
        """The number of a store of processors, whose entries lie in this way."""
        number = self.store_named(store)
        made = replace(self.stores[number], layout=layout, source=store.source_topic or "")
        self.stores[number] = replace(made, derived=False, versioned=False)  # all from its changelog
        return number

    def local_store(self) -> int:
        """The number of the store for what follows from the others, which is not logged."""
        return self._store(TaskStore("derived", "", False))

    def _store(self, store: TaskStore) -> int:
        names = [each.name for each in self.stores]
        if store.name not in names:
            self.stores.append(store)
            return len(names)
        return names.index(store.name)


def _is_restored(table: Node) -> bool:
    """Whether the rows of a table, which has no store, or an own one in its item, come again after a restart.

    It has none of Kafka Streams' if that of a table before it is not logged.

    Differs: the rows that a join has of what transformers have made of a table, and put into a store with
    versions, are only on its disk, and lost with that. Of a table behind a suppress with a time limit, a row
    is then missing while an update of it is held back; and of windows, those that are closed.
    """
    if isinstance(table, TableSource):
        return table.is_own_changelog
    if isinstance(table, Process) and table.store is not None and table.store.history_ms is not None:
        return False
    passes_on = isinstance(table, TableMapValues | Suppress) or (
        isinstance(table, TableFilter) and not is_quiet(table)
    )
    if table.store is not None and not passes_on:
        return table.store.logged
    is_logged = table.store is None or table.store.logged or isinstance(table, Suppress)
    return is_logged and all(_is_restored(parent) for parent in table.parents)
