"""`Topology.describe()`: the subtopologies as data, and as text that is Kafka Streams' to the byte.

Source: InternalTopologyBuilder.describe, describeSubtopology, describeGlobalStore, NodeComparator,
    updateSize.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from millstream.display import block, table
from millstream.topology.javaorder import TreeSet, hash_order
from millstream.topology.subtopology import ProcessorKind, ProcessorNode, Subtopology

__all__ = [
    "GlobalStoreDescription",
    "NodeDescription",
    "SubtopologyDescription",
    "TopologyDescription",
    "describe",
]


@dataclass(frozen=True)
class NodeDescription:
    """One source, processor or sink, with the names of its neighbours.

    Attributes:
        topics: of a source.
        pattern: of a source that reads by one.
        stores: of a processor.
        topic: of a sink.
        topic_function: of a sink whose topics a function names.
    """

    kind: ProcessorKind
    name: str
    predecessors: tuple[str, ...]
    successors: tuple[str, ...]
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    stores: tuple[str, ...] = ()
    topic: str | None = None
    topic_function: str | None = None

    @property
    def row(self) -> tuple[str, str, str, str, str]:
        """Kind, name, topics, stores and successors, as text."""
        pattern = "" if self.pattern is None else self.pattern.pattern
        topics = ", ".join(self.topics) or pattern or self.topic or self.topic_function or ""
        kind = self.kind.name.lower()
        return kind, self.name, topics, ", ".join(self.stores), ", ".join(self.successors)

    def __str__(self) -> str:
        to = f"\n      --> {', '.join(self.successors) or 'none'}"
        by = f"\n      <-- {', '.join(self.predecessors) or 'none'}"
        if self.kind is ProcessorKind.SOURCE:
            topics = self.pattern.pattern if self.pattern is not None else f"[{', '.join(self.topics)}]"
            return f"Source: {self.name} (topics: {topics}){to}"
        if self.kind is ProcessorKind.PROCESSOR:
            return f"Processor: {self.name} (stores: [{', '.join(self.stores)}]){to}{by}"
        if self.topic is not None:
            return f"Sink: {self.name} (topic: {self.topic}){by}"
        return f"Sink: {self.name} (extractor class: {self.topic_function}){by}"


@dataclass(frozen=True)
class SubtopologyDescription:
    """One subtopology's nodes, those with the most below them first."""

    id: int
    nodes: tuple[NodeDescription, ...]

    def __str__(self) -> str:
        nodes = "".join(f"    {node}\n" for node in self.nodes)
        return f"Sub-topology: {self.id}\n{nodes}\n"


@dataclass(frozen=True)
class GlobalStoreDescription:
    """A global table: the source of its topic, and the processor that fills its store.

    Source: org.apache.kafka.streams.TopologyDescription.GlobalStore.
    """

    id: int
    source: NodeDescription
    processor: NodeDescription

    def __str__(self) -> str:
        # No empty line behind it, unlike behind a subtopology: so it is in Kafka Streams.
        return (
            f"Sub-topology: {self.id} for global store (will not generate tasks)\n"
            f"    {self.source}\n    {self.processor}\n"
        )


@dataclass(frozen=True)
class TopologyDescription:
    """A topology as Kafka Streams describes it; `str()` is its text.

    Source: org.apache.kafka.streams.TopologyDescription.
    """

    subtopologies: tuple[SubtopologyDescription, ...]
    global_stores: tuple[GlobalStoreDescription, ...] = ()

    def __str__(self) -> str:
        parts: dict[int, SubtopologyDescription | GlobalStoreDescription] = {}
        parts.update((each.id, each) for each in self.subtopologies)
        parts.update((each.id, each) for each in self.global_stores)
        return "Topologies:\n " + "".join(f"  {parts[number]}" for number in sorted(parts))

    def _repr_html_(self) -> str:
        """What a notebook shows: a row for each node."""
        nodes = [(each.id, node) for each in self.subtopologies for node in each.nodes]
        nodes += [(each.id, node) for each in self.global_stores for node in (each.source, each.processor)]
        columns = ("subtopology", "kind", "name", "topics", "stores", "goes to")
        return block(table(columns, [(str(number), *node.row) for number, node in sorted(nodes, key=_id)]))


def _id(numbered: tuple[int, NodeDescription]) -> int:
    return numbered[0]


def describe(subtopologies: Iterable[Subtopology]) -> TopologyDescription:
    """What `Topology.describe()` returns; `subtopologies` with the global ones."""
    ordinary: list[SubtopologyDescription] = []
    global_stores: list[GlobalStoreDescription] = []
    for each in subtopologies:
        nodes = _describe(each.processors)
        if each.is_global:
            source, processor = nodes
            global_stores.append(GlobalStoreDescription(each.id, source, processor))
        else:
            ordinary.append(SubtopologyDescription(each.id, nodes))
    return TopologyDescription(tuple(ordinary), tuple(global_stores))


class _Vertex:
    """A processor being connected: `size` counts the paths below it, and orders it among others."""

    def __init__(self, processor: ProcessorNode) -> None:
        self.processor = processor
        self.size = 1
        self.predecessors = TreeSet(_compare)
        self.successors = TreeSet(_compare)

    def grow(self, delta: int) -> None:
        self.size += delta
        for predecessor in self.predecessors:
            predecessor.grow(delta)


def _compare(one: _Vertex, other: _Vertex) -> int:
    if one is other:
        return 0
    if one.size != other.size:
        return other.size - one.size
    return -1 if one.processor.name < other.processor.name else 1


def _describe(processors: tuple[ProcessorNode, ...]) -> tuple[NodeDescription, ...]:
    """The nodes of one subtopology, each with its neighbours in Kafka Streams' order.

    Kafka Streams connects nodes while their sizes still grow, and places each connection by the sizes of that
    moment. So the order of the work shows in the text, and is kept.
    """
    vertices = {processor.name: _Vertex(processor) for processor in processors}
    for name in hash_order(hash_order(vertices)):
        vertex = vertices[name]
        for predecessor in (vertices[each] for each in vertex.processor.predecessors):
            vertex.predecessors.add(predecessor)
            predecessor.successors.add(vertex)
            predecessor.grow(vertex.size)
    ordered = sorted(vertices.values(), key=lambda vertex: (-vertex.size, vertex.processor.name))
    return tuple(_node(vertex) for vertex in ordered)


def _node(vertex: _Vertex) -> NodeDescription:
    processor = vertex.processor
    topics = hash_order(processor.topics, len(processor.topics))
    return NodeDescription(
        processor.kind,
        processor.name,
        tuple(each.processor.name for each in vertex.predecessors),
        tuple(each.processor.name for each in vertex.successors),
        # Two HashSets in Kafka Streams: the one of the graph's node, and the one of its description.
        topics=tuple(hash_order(topics, len(topics))),
        pattern=processor.pattern,
        stores=tuple(hash_order(processor.stores, len(processor.stores))),
        topic=processor.topic,
        topic_function=processor.topic_function,
    )
