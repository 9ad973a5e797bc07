"""The processors that run together, as frozen data: what a Python worker is given to run them.

One graph is for processors that are in one subtopology and are linked: one forwards to the other, or both
have a store. What it says of serdes is final.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.model import StoreKind, ValueAndTimestamp
from millstream.processors.changes import Transforming
from millstream.topology.nodes import (
    GlobalRead,
    Node,
    Process,
    Sink,
    Store,
    TableTransformValues,
    ToStream,
)
from millstream.topology.pipeline import global_stores_of, linked
from millstream.topology.subtopology import write_out

__all__ = ["Child", "Graph", "Input", "Outside", "Plan", "ProcessorSpec", "StoreSpec", "linked", "plan_graph"]

Serdes = tuple[Any, Any]
"""Of keys and of values."""


@dataclass(frozen=True)
class StoreSpec:
    """A store that some of the processors have.

    Attributes:
        kind, window_size_ms, retention_ms, history_ms, duplicates: as those of `topology.nodes.Store`.
        timestamped: whether its interface has the timestamps of values.
        logged: whether it has a changelog.
        read_only: a global store, which is filled by one processor, `filled_by`, and read by all.
    """

    name: str
    kind: StoreKind
    key_serde: Any
    value_serde: Any
    timestamped: bool = False
    logged: bool = True
    window_size_ms: int | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    duplicates: bool = False
    read_only: bool = False
    filled_by: int = -1


@dataclass(frozen=True)
class Outside:
    """A step that comes after a processor and is none: what is forwarded to it leaves, as bytes.

    Attributes:
        name: as `forward` calls it.
        has_old: what leaves says as well what was there before (changes.py).
        is_sink: it writes what leaves to a topic, as it is.
    """

    name: str
    key_serde: Any
    value_serde: Any
    has_old: bool = False
    is_sink: bool = False


@dataclass(frozen=True)
class Child:
    """What a processor forwards to: a processor, or a step outside, by its number in the graph."""

    number: int
    outside: bool = False


@dataclass(frozen=True)
class ProcessorSpec:
    """One processor.

    Attributes:
        name: Kafka Streams' name of the node.
        supplier: makes a processor: a class, a function without parameters, or an object with `get`.
        fixed_key: a FixedKeyProcessor: what it forwards has the key of what came in.
        children: in the order in which they are given what it forwards to all.
        stores: numbers of those it is connected with.
        is_of_table: what it gets and forwards are changes of a table.
    """

    name: str
    supplier: Any
    fixed_key: bool = False
    children: tuple[Child, ...] = ()
    stores: tuple[int, ...] = ()
    is_of_table: bool = False


@dataclass(frozen=True)
class Input:
    """A step outside whose records come in, each for these processors, one after the other.

    Attributes:
        is_global: they are those of a global store's topic, all of them for each task; they have no part in
            its time.
        is_of_table: its records are changes of a table, for processors of tables.
    """

    name: str
    processors: tuple[int, ...]
    key_serde: Any
    value_serde: Any
    is_global: bool = False
    is_of_table: bool = False


@dataclass(frozen=True)
class Graph:
    """Processors that run together in one task.

    Attributes:
        config: the configuration as the program gave it, for `ProcessorContext.app_configs`.
        key_serde, value_serde: the configured defaults, for `ProcessorContext.key_serde`.
        has_old: whether all values that come in have beside them what was there before (changes.py).
    """

    application_id: str
    processors: tuple[ProcessorSpec, ...]
    inputs: tuple[Input, ...]
    outside: tuple[Outside, ...] = ()
    stores: tuple[StoreSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    key_serde: Any = None
    value_serde: Any = None
    has_old: bool = False


@dataclass(frozen=True)
class Plan:
    """A graph, and the nodes that its numbers stand for.

    Attributes:
        inputs: the node whose lane comes in, for each of `graph.inputs`; of global stores their GlobalRead.
        processes: the nodes of the processors; behind them, the graph has those that fill global stores.
        outside: of each of `graph.outside` the processor's node and that of the step which comes after it.
    """

    graph: Graph
    processes: tuple[Process, ...]
    inputs: tuple[Node, ...]
    outside: tuple[tuple[Process, Node], ...]


def plan_graph(
    group: Sequence[Process],
    nodes: Sequence[Node],
    serdes: Callable[[Node], Serdes],
    *,
    application_id: str,
    config: Mapping[str, Any],
    default: Serdes,
    remembering: Collection[Node] = (),
    with_old: Collection[Node] = (),
    cached: bool = True,
) -> Plan:
    """The graph of processors that are linked.

    Args:
        group: one of `linked(nodes)`.
        nodes: all nodes of the pipeline.
        serdes: those of what comes from a node that is not in the group.
        default: the configured ones, for sinks and stores which have none of their own.
        remembering: the tables whose changes say what was there before, if that can be known.
        with_old: the nodes that are not in the group from which it is known.
        cached: whether the configuration has a cache.
    """
    numbers = {node: number for number, node in enumerate(group)}
    first_names = _first_names(nodes)
    forwarded: dict[Process, Serdes] = {}
    inputs: dict[tuple[Node, bool], list[int]] = {}
    telling = {*with_old}
    has_old = False
    outside: list[tuple[Process, Node]] = []
    ends: list[Outside] = []
    specs: list[ProcessorSpec] = []
    for node in group:
        for parent in node.parents:
            if parent not in numbers:
                of_table = isinstance(node, TableTransformValues)
                inputs.setdefault((parent, of_table), []).append(numbers[node])
        before = node.parents[0]
        key, value = forwarded[before] if isinstance(before, Process) else serdes(before)
        if isinstance(node, TableTransformValues):
            value = _written_with(node, nodes) or default[1] or value
            if node in remembering and (node.stored is not None or before in telling):
                telling.add(node)
                has_old = has_old or (node.stored is None and before not in numbers)
        forwarded[node] = (node.key_serde or key, node.value_serde or value)
    stores = {store.name: _settled(store, node, forwarded) for node in group for store in node.stores}
    places = {name: number for number, name in enumerate(stores)}
    for node in group:
        children: list[Child] = []
        for child in nodes:
            if node not in child.parents:
                continue
            if child in numbers:
                assert isinstance(child, Process)
                children.append(Child(numbers[child]))
                continue
            key, value = forwarded[node]
            if isinstance(child, Sink):
                key, value = child.key_serde or key, child.value_serde or value
            children.append(Child(len(ends), outside=True))
            tells = node in telling and not isinstance(child, ToStream)
            name = first_names.get((node.name, child), child.name)
            ends.append(Outside(name, key, value, tells, isinstance(child, Sink)))
            outside.append((node, child))
        of_table = isinstance(node, TableTransformValues)
        supplier = (
            _transforming(node, telling, cached) if isinstance(node, TableTransformValues) else node.supplier
        )
        connected = tuple(places[store.name] for store in node.stores)
        specs.append(ProcessorSpec(node.name, supplier, node.fixed_key, tuple(children), connected, of_table))
    coming = [
        Input(node.name, tuple(given), *serdes(node), is_of_table=of_table)
        for (node, of_table), given in inputs.items()
    ]
    kept = [_spec(store, default) for store in stores.values()]
    read = [node for node, _ in inputs]
    for reading in _globals(group, nodes):
        table = reading.of
        assert table is not None
        key, value = table.key_serde or default[0], table.value_serde or default[1]
        coming.append(Input(table.source_name, (len(specs),), key, value, is_global=True))
        read.append(reading)
        store = replace(
            table.stored,
            key_serde=table.stored.key_serde or key,
            value_serde=table.stored.value_serde or value,
        )
        kept.append(replace(_spec(store, default), read_only=True, filled_by=len(specs)))
        supplier = table.supplier or Keeping(store.name, store.timestamped)
        specs.append(ProcessorSpec(table.name, supplier, stores=(len(kept) - 1,)))
    graph = Graph(
        application_id, tuple(specs), tuple(coming), tuple(ends), tuple(kept), config, *default, has_old
    )
    return Plan(graph, tuple(group), tuple(read), tuple(outside))


def _transforming(node: TableTransformValues, telling: Collection[Node], cached: bool) -> Transforming:
    store = node.stored
    return Transforming(
        node.supplier,
        None if store is None else store.name,
        tells_old=node in telling,
        has_history=store is not None and store.history_ms is not None,
        # Upstream's cache keeps quiet about the deletion of what it does not have.
        is_cached=cached and store is not None and store.cached,
    )


def _written_with(node: Node, nodes: Sequence[Node]) -> Any:
    """The serde of the values of a table that only goes to topics, which agree on it; None: there is none."""
    behind = [child for child in nodes if node in child.parents]
    ends = [end for child in behind for end in nodes if child in end.parents]
    found = [end.value_serde if isinstance(end, Sink) else None for end in ends]
    if not all(isinstance(child, ToStream) for child in behind) or not found:
        return None
    return found[0] if all(serde == found[0] for serde in found) else None


def _settled(store: Store, node: Process, forwarded: Mapping[Process, Serdes]) -> Store:
    """A store; that of a table's own rows has the serdes of what goes on, if it has none."""
    if store is not node.store:
        return store
    key, value = forwarded[node]
    return replace(store, key_serde=store.key_serde or key, value_serde=store.value_serde or value)


def _globals(group: Sequence[Process], nodes: Sequence[Node]) -> list[GlobalRead]:
    """What the processors of a group read whole, of a pipeline's nodes."""
    reads = [node for node in nodes if isinstance(node, GlobalRead) and node.of is not None]
    tables = [read.of for read in reads if read.of is not None]
    wanted = {table for node in group for table in global_stores_of(node, tables)}
    return [read for read in reads if read.of in wanted]


@dataclass(frozen=True)
class Keeping:
    """Supplies the processor of a global table: it puts what it is given."""

    store: str
    timestamped: bool

    def __call__(self) -> _Keeper:
        return _Keeper(self)


class _Keeper:
    def __init__(self, of: Keeping) -> None:
        self._of = of

    def init(self, context: Any) -> None:
        self._store = context.get_state_store(self._of.store)

    def process(self, record: Any) -> None:
        if record.key is None:
            return
        value = record.value
        if self._of.timestamped and value is not None:
            value = ValueAndTimestamp(value, record.timestamp)
        self._store.put(record.key, value)


def _first_names(nodes: Sequence[Node]) -> dict[tuple[str, Node], str]:
    """What Kafka Streams calls the first step of a node, behind each of its predecessors."""
    processors = write_out(node for node in nodes if not isinstance(node, Process))
    return {(before, each.node): each.name for each in processors for before in each.predecessors}


def _spec(store: Store, default: Serdes) -> StoreSpec:
    return StoreSpec(
        store.name,
        store.kind,
        store.key_serde or default[0],
        store.value_serde or default[1],
        store.timestamped,
        store.logged,
        store.window_size_ms,
        store.retention_ms,
        store.history_ms,
        store.duplicates,
    )
