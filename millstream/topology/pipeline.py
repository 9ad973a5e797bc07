"""The physical plan: each subtopology is one streaming query of Spark's, and topics connect them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from millstream.errors import TopologyException
from millstream.topology.names import internal_topic
from millstream.topology.nodes import (
    ForeignKeySubscribe,
    FrameRead,
    FrameTable,
    GlobalRead,
    GlobalTable,
    Node,
    OffsetReset,
    Process,
    Repartition,
    Sink,
    Source,
    SparkSink,
    Store,
    StreamGlobalTableJoin,
    TableSource,
)
from millstream.topology.subtopology import DisjointSets, Subtopology
from millstream.topology.suppliers import texts_of

__all__ = [
    "Pipeline",
    "global_read",
    "global_reads",
    "global_stores_of",
    "input_label",
    "linked",
    "plan_pipelines",
    "topics_of_input",
    "writers_first",
]


@dataclass(frozen=True)
class Pipeline:
    """One streaming query: the unit that the engine compiles and runs.

    If `has_query` is false, there is nothing to run: all of its nodes are tables that are views of their
    topics.

    Attributes:
        name: `p0`, `p1`, … with the numbers of their subtopologies; that of a global table is left out.
        subtopology: the number of the logical subtopology that it runs.
        nodes: every node that it runs, parents before children. A `Repartition` is in both pipelines that it
            connects: the last node of one, the first of the other.
        inputs: the nodes that it reads; outputs: the nodes that it writes, apart from changelogs.
    """

    name: str
    subtopology: int
    nodes: tuple[Node, ...]
    inputs: tuple[Source | TableSource | Repartition, ...]
    outputs: tuple[Sink | Repartition, ...]

    @property
    def has_query(self) -> bool:
        """Whether Spark has anything to run. A table without downstream steps is a view of its topic, which
        stores read themselves.
        """
        return not all(isinstance(node, TableSource) and node.is_view for node in self.nodes)

    @property
    def spark_sink(self) -> SparkSink | None:
        """The sink that writes records with a user's query; the pipeline then does nothing else."""
        return next((node for node in self.nodes if isinstance(node, SparkSink)), None)

    @property
    def frame_tables(self) -> tuple[FrameTable, ...]:
        """The DataFrame tables that it joins streams with."""
        return tuple(node.table for node in self.inputs if isinstance(node, FrameRead))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores that its nodes fill, in node order; a shared store is listed once."""
        return tuple({store.name: store for node in self.nodes for store in node.stores}.values())


def input_label(node: Source | TableSource | Repartition) -> str:
    """What an input reads; names are without the application id."""
    if isinstance(node, Source):
        return ",".join(node.topics) if node.pattern is None else f"pattern {node.pattern.pattern}"
    return node.topic


def topics_of_input(node: Source | TableSource | Repartition, application_id: str) -> tuple[str, ...]:
    """The topics in Kafka that an input names; those that its pattern matches are not known."""
    if isinstance(node, Source):
        return tuple(node.topics)
    is_internal = isinstance(node, Repartition | FrameRead)
    return (internal_topic(application_id, node.topic) if is_internal else node.topic,)


def plan_pipelines(nodes: Sequence[Node], subtopologies: Sequence[Subtopology]) -> tuple[Pipeline, ...]:
    """The pipelines of a topology, one for each subtopology.

    `nodes` has parents before children. Global tables are omitted: no query runs them.
    """
    tables = [node for node in nodes if isinstance(node, GlobalTable)]
    nodes = [node for node in nodes if not isinstance(node, GlobalTable)]
    home = {processor.name: each.id for each in subtopologies for processor in each.processors}
    pipelines = tuple(_pipeline(f"p{each.id}", each.id, nodes, home, tables) for each in subtopologies)
    for pipeline in pipelines:
        _check_processors(pipeline)
    return pipelines


def linked(nodes: Iterable[Node]) -> tuple[tuple[Process, ...], ...]:
    """The processors among these nodes, grouped if they run together: one forwards to the other, or they
    share a store. Parents before children."""
    processes = [node for node in nodes if isinstance(node, Process)]
    groups = DisjointSets(processes)
    user_of: dict[str, Process] = {}
    for node in processes:
        for parent in node.parents:
            if isinstance(parent, Process):
                groups.unite(node, parent)
        for store in node.stores:
            groups.unite(node, user_of.setdefault(store.name, node))
    members: dict[Process, list[Process]] = {}
    for node in processes:
        members.setdefault(groups.root(node), []).append(node)
    return tuple(map(tuple, members.values()))


def _check_processors(pipeline: Pipeline) -> None:
    """Raise if records would have to leave a group of processors that run together, and return to it.

    Raises:
        TopologyException: they would have to.
    """
    for group in linked(pipeline.nodes):
        through: dict[Node, Node] = {}  # by node outside: the group's processor upstream of it
        for node in pipeline.nodes:
            if isinstance(node, Repartition) and node in pipeline.inputs:
                continue  # what returns through a topic is ordinary input
            for parent in node.parents:
                first = through.get(parent) if parent not in group else parent
                if first is None:
                    continue
                if node not in group:
                    through[node] = first
                elif parent not in group:
                    raise TopologyException(
                        f"{node.name} runs together with {first.name}, as they share a store or a "
                        f"processor, and {parent.name} between them is not a processor: do its work "
                        "in one, or put repartition() after it"
                    )


def _pipeline(
    name: str, subtopology: int, nodes: Sequence[Node], home: dict[str, int], tables: Sequence[GlobalTable]
) -> Pipeline:
    inputs: list[Source | TableSource | Repartition] = []
    outputs: list[Sink | Repartition] = []
    ours: list[Node] = []
    for node in nodes:
        reads = home[node.name] == subtopology
        writes = isinstance(node, Repartition) and home[node.sink_name] == subtopology
        if not reads and not writes:
            continue
        for table in _read_by(node, tables):
            if not any(isinstance(each, GlobalRead) and each.topic == table.topic for each in inputs):
                read = _global_read(table)
                ours.append(read)
                inputs.append(read)
        ours.append(node)
        if isinstance(node, Source | TableSource):
            inputs.append(node)
        elif isinstance(node, Sink):
            outputs.append(node)
        elif isinstance(node, Repartition):
            if reads:
                inputs.append(node)
            if writes:
                outputs.append(node)
    return Pipeline(name, subtopology, tuple(ours), tuple(inputs), tuple(outputs))


def _read_by(node: Node, tables: Sequence[GlobalTable]) -> tuple[GlobalTable, ...]:
    """The global tables that a step looks rows up in."""
    if isinstance(node, StreamGlobalTableJoin):
        table = node.parents[1]
        assert isinstance(table, GlobalTable)
        return (table,)
    return global_stores_of(node, tables) if isinstance(node, Process) else ()


def global_stores_of(node: Process, tables: Iterable[GlobalTable]) -> tuple[GlobalTable, ...]:
    """The global tables whose stores a processor can read: those named in its code.

    Differs: in Kafka Streams each processor can read all of them. Here their rows must be where it runs.
    """
    tables = tuple(tables)
    named = texts_of(node.supplier) if tables else frozenset()
    return tuple(
        table for table in tables if table.stored.name in named and not isinstance(table, FrameTable)
    )


def _global_read(table: GlobalTable) -> GlobalRead:
    if isinstance(table, FrameTable):
        return FrameRead(
            table.name,
            (),
            topic=table.topic,
            source_name=table.source_name,
            offset_reset=OffsetReset.EARLIEST,
            table=table,
        )
    # With a user's processor, the contents of the store and the topic may differ.
    stored = table.stored if table.supplier is None else Store("")
    return GlobalRead(
        table.name,
        (),
        topic=table.topic,
        source_name=table.source_name,
        key_serde=stored.key_serde or table.key_serde,
        value_serde=stored.value_serde or table.value_serde,
        offset_reset=OffsetReset.EARLIEST,
        of=table,
    )


def global_read(join: StreamGlobalTableJoin, inputs: Iterable[Node]) -> GlobalRead | None:
    """The input from which a pipeline gets the rows of the global table."""
    table = join.parents[1]
    assert isinstance(table, GlobalTable)
    return next((each for each in inputs if isinstance(each, GlobalRead) and each.topic == table.topic), None)


def global_reads(pipeline: Pipeline) -> list[GlobalRead]:
    """The global tables that a pipeline looks rows up in; their places are their numbers."""
    return [node for node in pipeline.inputs if isinstance(node, GlobalRead)]


def writers_first(pipelines: Sequence[Pipeline]) -> list[Pipeline]:
    """The order to compile them in: the reader of an internal topic takes the serdes of its writer."""
    ordered: list[Pipeline] = []
    while len(ordered) < len(pipelines):
        waiting = [pipeline for pipeline in pipelines if pipeline not in ordered]
        ready = [
            reader
            for reader in waiting
            if not any(_gives_serdes(writer, reader) for writer in waiting if writer is not reader)
        ]
        # In a cycle none is first; the compiler then needs the topic's serdes from the program.
        ordered += ready or waiting
    return ordered


def _gives_serdes(writer: Pipeline, reader: Pipeline) -> bool:
    """Whether one reads the other's output and needs its serdes. In a foreign-key join, the right side takes
    the subscriptions as bytes, and gives the left side its serdes."""
    return any(
        node in reader.inputs and not isinstance(node.parents[0], ForeignKeySubscribe)
        for node in writer.outputs
    )
