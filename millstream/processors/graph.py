"""The processors that run together, as frozen data: the input for the Python worker that runs them.

One graph has the linked processors of one subtopology: one forwards to the other, or they share a store. Its
serdes are final.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.model import StoreKind
from millstream.processors.changes import Transforming
from millstream.serdes.serde import Serde
from millstream.topology.nodes import (
    GlobalRead,
    GlobalTable,
    Node,
    Process,
    Sink,
    Store,
    TableTransformValues,
    ToStream,
)
from millstream.topology.pipeline import global_stores_of
from millstream.topology.subtopology import write_out

__all__ = [
    "Child",
    "Graph",
    "GraphPlan",
    "Input",
    "Outside",
    "ProcessorSpec",
    "StoreSpec",
    "filling_graph",
    "plan_graph",
    "with_serdes",
]

Serdes = tuple[Serde, Serde]
"""Serdes of keys and values."""


@dataclass(frozen=True)
class StoreSpec:
    """A store of some of the processors.

    Attributes:
        kind, window_size_ms, retention_ms, history_ms, duplicates: as in `topology.nodes.Store`.
        timestamped: whether its interface includes the timestamps of values.
        logged: whether it has a changelog.
        read_only: whether it is a global store, which all processors can read, and which is filled elsewhere.
    """

    name: str
    kind: StoreKind
    key_serde: Serde
    value_serde: Serde
    timestamped: bool = False
    logged: bool = True
    window_size_ms: int | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    duplicates: bool = False
    read_only: bool = False


@dataclass(frozen=True)
class Outside:
    """A step downstream of a processor that is not a processor: records forwarded to it leave the graph, as
    bytes.

    Attributes:
        name: the name for `forward`.
        has_old: whether its records include the old value (changes.py).
        is_sink: whether it writes the records to a topic, unchanged.
    """

    name: str
    key_serde: Serde
    value_serde: Serde
    has_old: bool = False
    is_sink: bool = False


@dataclass(frozen=True)
class Child:
    """A target of a processor: another processor or a step outside, by its number in the graph."""

    number: int
    outside: bool = False


@dataclass(frozen=True)
class ProcessorSpec:
    """One processor.

    Attributes:
        name: Kafka Streams' name of the node.
        supplier: creates a processor: a class, a function without parameters, or an object with `get`.
        fixed_key: whether it is a FixedKeyProcessor, whose output has the input's key.
        children: its targets, in the order in which they get a record forwarded to all.
        stores: the numbers of the stores that it is connected to.
        is_of_table: whether its input and output are changes of a table.
    """

    name: str
    supplier: Any
    fixed_key: bool = False
    children: tuple[Child, ...] = ()
    stores: tuple[int, ...] = ()
    is_of_table: bool = False


@dataclass(frozen=True)
class Input:
    """A step outside that sends its records to these processors, one after the other.

    Attributes:
        is_global: whether they are all records of a global store's topic; they have no stream time.
        is_of_table: whether its records are changes of a table, for processors of tables.
    """

    name: str
    processors: tuple[int, ...]
    key_serde: Serde
    value_serde: Serde
    is_global: bool = False
    is_of_table: bool = False


@dataclass(frozen=True)
class Graph:
    """Processors that run together in one task.

    Attributes:
        config: the program's original configuration, for `ProcessorContext.app_configs`.
        key_serde, value_serde: the configured defaults, for `ProcessorContext.key_serde`.
        has_old: whether all incoming values include the old value (changes.py).
    """

    application_id: str
    processors: tuple[ProcessorSpec, ...]
    inputs: tuple[Input, ...]
    outside: tuple[Outside, ...] = ()
    stores: tuple[StoreSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    has_old: bool = False


@dataclass(frozen=True)
class GraphPlan:
    """A graph, and the nodes that its numbers refer to.

    Attributes:
        inputs: the node that feeds each of `graph.inputs`; for global stores, their GlobalRead.
        processes: the nodes of the processors; in the graph, those that fill global stores follow them.
        outside: for each of `graph.outside`, the nodes of the processor and of the step after it.
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
    default: tuple[Any, Any],
    remembering: Collection[Node] = (),
    with_old: Collection[Node] = (),
    cached: bool = True,
) -> GraphPlan:
    """The graph of a group of linked processors.

    Args:
        group: one of `linked(nodes)`.
        nodes: all nodes of the pipeline.
        serdes: the serdes of the output of a node outside the group.
        default: the configured serdes, for sinks and stores without their own.
        remembering: the tables whose changes include the old value, if it is known.
        with_old: the nodes outside the group that provide it.
        cached: whether the configuration has a cache.
    """
    numbers = {node: number for number, node in enumerate(group)}
    first_names = _first_names(nodes)
    forwarded: dict[Process, Serdes] = {}
    inputs: dict[tuple[Node, bool], list[int]] = {}
    sending_old = {*with_old}
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
            if node in remembering and (node.stored is not None or before in sending_old):
                sending_old.add(node)
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
            sends = node in sending_old and not isinstance(child, ToStream)
            name = first_names.get((node.name, child), child.name)
            ends.append(Outside(name, key, value, sends, isinstance(child, Sink)))
            outside.append((node, child))
        of_table = isinstance(node, TableTransformValues)
        supplier = (
            _transforming(node, sending_old, cached)
            if isinstance(node, TableTransformValues)
            else node.supplier
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
        kept.append(replace(_global_spec(table, default), read_only=True))
    graph = Graph(
        application_id, tuple(specs), tuple(coming), tuple(ends), tuple(kept), config, *default, has_old
    )
    return GraphPlan(graph, tuple(group), tuple(read), tuple(outside))


def filling_graph(
    table: GlobalTable, *, application_id: str, config: Mapping[str, Any], default: tuple[Any, Any]
) -> Graph:
    """The processor that fills a global store, alone."""
    return Graph(
        application_id,
        (ProcessorSpec(table.name, table.supplier, stores=(0,)),),
        (_global_input(table, 0, default),),
        stores=(_global_spec(table, default),),
        config=config,
        key_serde=default[0],
        value_serde=default[1],
    )


def with_serdes(graph: Graph, bound: Callable[..., Serde]) -> Graph:
    """The graph of a global store with its serdes bound to the store's topic.

    Args:
        bound: called with a serde and `is_key`.
    """

    def both(each: Any) -> Any:
        key, value = bound(each.key_serde, is_key=True), bound(each.value_serde, is_key=False)
        return replace(each, key_serde=key, value_serde=value)

    return replace(graph, inputs=tuple(map(both, graph.inputs)), stores=tuple(map(both, graph.stores)))


def _global_input(table: GlobalTable, processor: int, default: tuple[Any, Any]) -> Input:
    key, value = table.key_serde or default[0], table.value_serde or default[1]
    return Input(table.source_name, (processor,), key, value, is_global=True)


def _global_spec(table: GlobalTable, default: tuple[Any, Any]) -> StoreSpec:
    read = table.key_serde or default[0], table.value_serde or default[1]
    return _spec(table.stored, read)


def _transforming(node: TableTransformValues, sending_old: Collection[Node], cached: bool) -> Transforming:
    store = node.stored
    return Transforming(
        node.supplier,
        None if store is None else store.name,
        sends_old=node in sending_old,
        has_history=store is not None and store.history_ms is not None,
        # The cache of Kafka Streams does not forward the deletion of an absent row.
        is_cached=cached and store is not None and store.cached,
    )


def _written_with(node: Node, nodes: Sequence[Node]) -> Any:
    """The value serde of a table that is only written to topics, which agree on it; None if there is none."""
    behind = [child for child in nodes if node in child.parents]
    ends = [end for child in behind for end in nodes if child in end.parents]
    found = [end.value_serde if isinstance(end, Sink) else None for end in ends]
    if not all(isinstance(child, ToStream) for child in behind) or not found:
        return None
    return found[0] if all(serde == found[0] for serde in found) else None


def _settled(store: Store, node: Process, forwarded: Mapping[Process, Serdes]) -> Store:
    """A store; the store of a table's own rows defaults to the serdes of its output."""
    if store is not node.store:
        return store
    key, value = forwarded[node]
    return replace(store, key_serde=store.key_serde or key, value_serde=store.value_serde or value)


def _globals(group: Sequence[Process], nodes: Sequence[Node]) -> list[GlobalRead]:
    """The nodes of a pipeline that the processors of a group read in full."""
    reads = [node for node in nodes if isinstance(node, GlobalRead) and node.of is not None]
    tables = [read.of for read in reads if read.of is not None]
    wanted = {table for node in group for table in global_stores_of(node, tables)}
    return [read for read in reads if read.of in wanted]


def _first_names(nodes: Sequence[Node]) -> dict[tuple[str, Node], str]:
    """Kafka Streams' name for the first step of a node, after each of its predecessors."""
    processors = write_out(node for node in nodes if not isinstance(node, Process))
    return {(before, each.node): each.name for each in processors for before in each.predecessors}


def _spec(store: Store, default: tuple[Any, Any]) -> StoreSpec:
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
