"""The processors that run together, as frozen data: what a Python worker is given to run them.

One graph is for processors that are in one subtopology and are linked: one forwards to the other, or both
have a store. What it says of serdes is final.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from millstream.model import StoreKind, ValueAndTimestamp
from millstream.topology.nodes import GlobalRead, Node, Process, Sink, Store
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
    """

    name: str
    key_serde: Any
    value_serde: Any


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
    """

    name: str
    supplier: Any
    fixed_key: bool = False
    children: tuple[Child, ...] = ()
    stores: tuple[int, ...] = ()


@dataclass(frozen=True)
class Input:
    """A step outside whose records come in, each for these processors, one after the other.

    Attributes:
        is_global: they are those of a global store's topic, all of them for each task; they have no part in
            its time.
    """

    name: str
    processors: tuple[int, ...]
    key_serde: Any
    value_serde: Any
    is_global: bool = False


@dataclass(frozen=True)
class Graph:
    """Processors that run together in one task.

    Attributes:
        config: the configuration as the program gave it, for `ProcessorContext.app_configs`.
        key_serde, value_serde: the configured defaults, for `ProcessorContext.key_serde`.
    """

    application_id: str
    processors: tuple[ProcessorSpec, ...]
    inputs: tuple[Input, ...]
    outside: tuple[Outside, ...] = ()
    stores: tuple[StoreSpec, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    key_serde: Any = None
    value_serde: Any = None


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
) -> Plan:
    """The graph of processors that are linked.

    Args:
        group: one of `linked(nodes)`.
        nodes: all nodes of the pipeline.
        serdes: those of what comes from a node that is not in the group.
        default: the configured ones, for sinks and stores which have none of their own.
    """
    numbers = {node: number for number, node in enumerate(group)}
    stores: dict[str, Store] = {store.name: store for node in group for store in node.connected}
    places = {name: number for number, name in enumerate(stores)}
    first_names = _first_names(nodes)
    forwarded: dict[Process, Serdes] = {}
    inputs: dict[Node, list[int]] = {}
    outside: list[tuple[Process, Node]] = []
    ends: list[Outside] = []
    specs: list[ProcessorSpec] = []
    for node in group:
        for parent in node.parents:
            if parent not in numbers:
                inputs.setdefault(parent, []).append(numbers[node])
        before = node.parents[0]
        key, value = forwarded[before] if isinstance(before, Process) else serdes(before)
        forwarded[node] = (node.key_serde or key, node.value_serde or value)
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
            ends.append(Outside(first_names.get((node.name, child), child.name), key, value))
            outside.append((node, child))
        connected = tuple(places[store.name] for store in node.connected)
        specs.append(ProcessorSpec(node.name, node.supplier, node.fixed_key, tuple(children), connected))
    coming = [Input(node.name, tuple(given), *serdes(node)) for node, given in inputs.items()]
    kept = [_spec(store, default) for store in stores.values()]
    read = [*inputs]
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
    graph = Graph(application_id, tuple(specs), tuple(coming), tuple(ends), tuple(kept), config, *default)
    return Plan(graph, tuple(group), tuple(read), tuple(outside))


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
