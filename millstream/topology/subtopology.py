"""The logical plan: which nodes Kafka Streams would run in one task, and under which number.

A node here can be several nodes in Kafka Streams (a repartition is a filter, a sink and a source; a join of
two streams is five processors). So the graph is first expanded to `ProcessorNode`s, in Kafka Streams' order.
Then it is split at the topics, and the parts are numbered in the order of their first processor.

Source: InternalTopologyBuilder (addSource, addProcessor, addSink, connectProcessorAndStateStore,
    makeNodeGroups); QuickUnion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from millstream.topology.functions import describe_function
from millstream.topology.nodes import (
    Cogroup,
    ForeignKeyChanges,
    ForeignKeyJoin,
    ForeignKeyLookup,
    FrameTable,
    GlobalTable,
    Node,
    Repartition,
    Sink,
    Source,
    Store,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    Suppress,
    TableJoin,
    TableSource,
)

__all__ = [
    "DisjointSets",
    "ProcessorKind",
    "ProcessorNode",
    "Subtopology",
    "looked_up",
    "split_subtopologies",
    "write_out",
]

T = TypeVar("T")


class ProcessorKind(Enum):
    """The kind of a processor in Kafka Streams' description."""

    SOURCE = "Source"
    PROCESSOR = "Processor"
    SINK = "Sink"


@dataclass(frozen=True)
class ProcessorNode:
    """One node of Kafka Streams' processor topology.

    Attributes:
        node: the logical node that it belongs to.
        topics: for a source, its topics; internal ones without the application id.
        topic: for a sink, likewise; None if a function names it.
        topic_function: that function, as messages show it.
    """

    kind: ProcessorKind
    name: str
    predecessors: tuple[str, ...]
    node: Node
    topics: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    topic: str | None = None
    topic_function: str | None = None
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subtopology:
    """The processors that one task runs, without a topic between them; or a global table, which no task runs.

    Attributes:
        id: Kafka Streams' number, with which a task's name starts. Global tables are counted too.
        stores: the stores that its processors fill, in node order.
    """

    id: int
    processors: tuple[ProcessorNode, ...]
    stores: tuple[Store, ...]

    @property
    def is_global(self) -> bool:
        """Whether it is a global table, which has a number but no tasks."""
        return isinstance(self.processors[0].node, GlobalTable)

    @property
    def is_frame(self) -> bool:
        """Whether it is a DataFrame's table: a global table without a store on clients."""
        return isinstance(self.processors[0].node, FrameTable)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that it reads, in order; internal ones without the application id."""
        return tuple(dict.fromkeys(topic for processor in self.processors for topic in processor.topics))

    @property
    def source_patterns(self) -> tuple[re.Pattern[str], ...]:
        """The topic patterns that it reads."""
        return tuple(processor.pattern for processor in self.processors if processor.pattern is not None)

    @property
    def sink_topics(self) -> tuple[str, ...]:
        """The topics that it writes, except those that a function names."""
        topics = (processor.topic for processor in self.processors if processor.topic is not None)
        return tuple(dict.fromkeys(topics))

    def __contains__(self, node: Node) -> bool:
        return any(processor.node is node for processor in self.processors)


def write_out(nodes: Iterable[Node]) -> tuple[ProcessorNode, ...]:
    """The nodes as Kafka Streams' processors, in its order."""
    return tuple(processor for node in nodes for processor in _write_out(node))


def _write_out(node: Node) -> list[ProcessorNode]:
    parents = tuple(parent.name for parent in node.parents)
    stores = tuple(store.name for store in node.stores)
    if isinstance(node, Source):
        return [
            ProcessorNode(ProcessorKind.SOURCE, node.name, (), node, topics=node.topics, pattern=node.pattern)
        ]
    if isinstance(node, TableSource | GlobalTable):
        source = ProcessorNode(ProcessorKind.SOURCE, node.source_name, (), node, topics=(node.topic,))
        return [
            source,
            ProcessorNode(ProcessorKind.PROCESSOR, node.name, (source.name,), node, stores=stores),
        ]
    if isinstance(node, Repartition):
        filter = node.filter_name
        before = [ProcessorNode(ProcessorKind.PROCESSOR, filter, parents, node)] if filter is not None else []
        behind = (filter,) if filter is not None else parents
        return [
            *before,
            ProcessorNode(ProcessorKind.SINK, node.sink_name, behind, node, topic=node.topic),
            ProcessorNode(ProcessorKind.SOURCE, node.name, (), node, topics=(node.topic,)),
        ]
    if isinstance(node, Sink):
        function = describe_function(node.topic_function) if node.topic_function is not None else None
        return [
            ProcessorNode(
                ProcessorKind.SINK, node.name, parents, node, topic=node.topic, topic_function=function
            )
        ]
    if isinstance(node, StreamTableJoin):
        stores = (*looked_up(node.parents[1]), *stores)
        return [ProcessorNode(ProcessorKind.PROCESSOR, node.name, parents[:1], node, stores=stores)]
    if isinstance(node, StreamGlobalTableJoin):
        return [ProcessorNode(ProcessorKind.PROCESSOR, node.name, parents[:1], node)]
    if isinstance(node, StreamJoin):
        return _write_out_stream_join(node)
    if isinstance(node, ForeignKeyLookup | ForeignKeyJoin):
        (first,) = node.names
        table = looked_up(node.parents[1])
        one, two = (stores, table) if isinstance(node, ForeignKeyLookup) else (table, stores)
        return [
            ProcessorNode(ProcessorKind.PROCESSOR, first, parents[:1], node, stores=one),
            ProcessorNode(ProcessorKind.PROCESSOR, node.name, (first,), node, stores=two),
        ]
    if isinstance(node, ForeignKeyChanges):
        stores = (node.subscriptions.name,)
    if isinstance(node, Cogroup):
        steps = zip(node.names, parents, strict=True)
        return [
            *(
                ProcessorNode(ProcessorKind.PROCESSOR, name, (parent,), node, stores=stores)
                for name, parent in steps
            ),
            ProcessorNode(ProcessorKind.PROCESSOR, node.name, node.names, node),
        ]
    if isinstance(node, TableJoin):
        left, right = node.parents[0], node.parents[-1]
        this, other = node.names
        return [
            ProcessorNode(ProcessorKind.PROCESSOR, this, (left.name,), node, stores=looked_up(right)),
            ProcessorNode(ProcessorKind.PROCESSOR, other, (right.name,), node, stores=looked_up(left)),
            ProcessorNode(ProcessorKind.PROCESSOR, node.name, (this, other), node, stores=stores),
        ]
    return [ProcessorNode(ProcessorKind.PROCESSOR, node.name, parents, node, stores=stores)]


def _write_out_stream_join(node: StreamJoin) -> list[ProcessorNode]:
    """Source: KStreamImplJoin.join, StreamStreamJoinNode.writeToTopology."""
    this_windowed, other_windowed, this, other = node.names
    this_stored, other_stored, *outer = (store.name for store in node.stores)
    steps: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
        (this_windowed, (node.parents[0].name,), (this_stored,)),
        (other_windowed, (node.parents[-1].name,), (other_stored,)),
        (this, (this_windowed,), (other_stored, *outer)),
        (other, (other_windowed,), (this_stored, *outer)),
        (node.name, (this, other), ()),
    )
    return [
        ProcessorNode(ProcessorKind.PROCESSOR, name, behind, node, stores=stores)
        for name, behind, stores in steps
    ]


def looked_up(table: Node) -> tuple[str, ...]:
    """The stores to read for a table's row: its own, or those of the tables it is derived from.

    Source: KTableImpl.valueGetterSupplier, and the `view()` of each KTableProcessorSupplier.
    """
    if table.store is not None and not isinstance(table, Suppress):
        return (table.store.name,)
    behind = tuple(dict.fromkeys(store for parent in table.parents for store in looked_up(parent)))
    return behind if table.store is None else (table.store.name, *behind)


def split_subtopologies(processors: Iterable[ProcessorNode]) -> tuple[Subtopology, ...]:
    """The subtopologies, global tables among them, numbered by the order of their first processor."""
    processors = tuple(processors)
    groups = DisjointSets(processor.name for processor in processors)
    user_of: dict[str, str] = {}
    for processor in processors:
        for predecessor in processor.predecessors:
            groups.unite(processor.name, predecessor)
        for store in processor.stores:  # nodes that share a store share a task
            groups.unite(processor.name, user_of.setdefault(store, processor.name))
    members: dict[str, list[ProcessorNode]] = {}
    for processor in processors:
        members.setdefault(groups.root(processor.name), []).append(processor)
    return tuple(
        Subtopology(number, tuple(group), tuple(_stores(group)))
        for number, group in enumerate(members.values())
    )


def _stores(group: list[ProcessorNode]) -> Iterable[Store]:
    return {store.name: store for processor in group for store in processor.node.stores}.values()


class DisjointSets(Generic[T]):
    """A union-find structure: groups things that are united in pairs."""

    def __init__(self, things: Iterable[T]) -> None:
        self._parent = {thing: thing for thing in things}

    def root(self, thing: T) -> T:
        """The representative of the group of `thing`."""
        while self._parent[thing] != thing:
            self._parent[thing] = self._parent[self._parent[thing]]
            thing = self._parent[thing]
        return thing

    def unite(self, one: T, other: T) -> None:
        """Merge the groups of `one` and `other`."""
        self._parent[self.root(one)] = self.root(other)
