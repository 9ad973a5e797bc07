"""A topology: what a program means, as frozen nodes, and everything that follows from them.

One comes from `StreamsBuilder.build()`, or is written node by node: `Topology().add_source(…)`. Nodes stay
frozen: what is added makes new ones where it has to, and everything that followed is worked out again.

Source: org.apache.kafka.streams.Topology; the checks are those of InternalTopologyBuilder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeGuard

from millstream.display import block, details, image, preformatted
from millstream.errors import TopologyException
from millstream.foreign import has_controls, printable
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde
from millstream.topology.columns import Partitioner, TopicName
from millstream.topology.copartition import CopartitionGroup, copartition_groups
from millstream.topology.describe import TopologyDescription, describe
from millstream.topology.explain import explain
from millstream.topology.functions import arity, describe_function
from millstream.topology.names import validate_topic
from millstream.topology.nodes import (
    FrameTable,
    GlobalTable,
    Node,
    OffsetReset,
    OffsetResetPolicy,
    Process,
    Sink,
    Source,
    Store,
    TableSource,
)
from millstream.topology.pipeline import Pipeline, plan_pipelines
from millstream.topology.subtopology import Subtopology, split_subtopologies, write_out
from millstream.topology.suppliers import (
    check_supplier,
    declared_store,
    global_store,
    new_processor,
    stores_of,
)

__all__ = ["Topology"]


class Topology(ExplainsMissingNames):
    """What a client runs: `StreamsBuilder.build()` returns one, or it is written node by node.

        topology = Topology()
        topology.add_source("lines", "text-lines")
        topology.add_processor("count", Count, "lines")
        topology.add_state_store(counts, "count")
        topology.add_sink("out", "counts", "count")

    Attributes:
        nodes: in the order in which Kafka Streams adds them: parents before children.

    Source: org.apache.kafka.streams.Topology.
    """

    def __init__(self, nodes: Iterable[Node] = (), stores: Iterable[Store] = ()) -> None:
        self._nodes = tuple(nodes)
        self._state_stores = {store.name: store for store in stores}

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    # --- written node by node ----------------------------------------------------------------------------

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        offset_reset: OffsetResetPolicy | None = None,
        timestamp_extractor: Any = None,
    ) -> Topology:
        """Records of topics, or of all topics that match one compiled pattern.

        Args:
            key_serde, value_serde: None means the configured default.
            offset_reset: `AutoOffsetReset.earliest()` and so on; None means the configured one.
            timestamp_extractor: as of `Consumed`; None means the configured one.

        Raises:
            TopologyException: the name is taken, there is no topic, or another source reads it.
        """
        self._check_name(name)
        if not topics:
            raise TopologyException("You must provide at least one topic")
        pattern = topics[0] if isinstance(topics[0], re.Pattern) else None
        if pattern is not None and len(topics) > 1:
            raise TopologyException(f"source {name} takes topics, or one pattern; got {topics!r}")
        names = () if pattern is not None else tuple(validate_topic(str(topic)) for topic in topics)
        if offset_reset is not None and not isinstance(offset_reset, OffsetResetPolicy):
            raise TopologyException(
                f"offset_reset of source {name} is AutoOffsetReset.earliest() or the like; got "
                f"{offset_reset!r}"
            )
        if isinstance(timestamp_extractor, type):
            timestamp_extractor = timestamp_extractor()
        if isinstance(timestamp_extractor, str):
            raise TopologyException(
                f"the timestamp extractor of source {name} is one such as WallclockTimestampExtractor(), or "
                f"a function; got {timestamp_extractor!r}"
            )
        for topic in names:
            self._check_topic(topic)
        for topic in () if pattern is None else self._topics_read():
            if pattern is not None and pattern.fullmatch(topic):
                raise TopologyException(
                    f"Pattern {pattern.pattern} will match a topic that has already been registered by "
                    "another "
                    f"source: {topic}"
                )
        return self._add(
            Source(
                name,
                (),
                topics=names,
                pattern=pattern,
                key_serde=key_serde,
                value_serde=value_serde,
                offset_reset=offset_reset,
                timestamp_extractor=timestamp_extractor,
            )
        )

    def add_processor(
        self, name: str, supplier: Any, *parents: str, key_serde: Serde | None = None, value_serde: Any = None
    ) -> Topology:
        """A processor after these nodes. Stores that `supplier.stores()` returns are added and connected.

        Args:
            supplier: as for `KStream.process`, or of FixedKeyProcessors.
            key_serde, value_serde: of what it forwards to a sink without serdes of its own. None: those
                of its input.

        Raises:
            TopologyException: the name is taken, a parent is missing, or the supplier makes no processors.
        """
        self._check_name(name)
        fixed_key = bool(getattr(_made(supplier), "fixed_key", False))
        check_supplier("add_processor", supplier, fixed_key=fixed_key)
        behind = self._parents("Processor", name, parents)
        stores = [declared_store("stores", each) for each in stores_of(supplier)]
        for store in stores:
            self._check_store(store)
        asked = [
            each
            for each in getattr(supplier, "store_names", ())  # of a function with @processor
            if each not in self.global_stores
        ]
        for each in asked:
            self._check_added(each)
        self._add(Process(name, behind, supplier, fixed_key, (), key_serde, value_serde))
        for store in stores:
            self._state_stores[store.name] = store
        for each in (*(store.name for store in stores), *asked):
            self._connect(name, each)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicName,
        *parents: str,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """What these nodes forward goes to a topic, or to the one that a function's Column names.

        Args:
            key_serde, value_serde: None: those of the parent.
            partitioner: as that of `Produced`.

        Raises:
            TopologyException: the name is taken, or a parent is missing.
        """
        self._check_name(name)
        if callable(topic):
            if not arity(topic):
                raise TopologyException(
                    f"sink {name} takes a topic, or a function of value, key and value, or key, value and "
                    f"record; got {describe_function(topic)}"
                )
        else:
            validate_topic(topic)
        return self._add(
            Sink(
                name,
                self._parents("Sink", name, parents),
                topic=None if callable(topic) else topic,
                topic_function=topic if callable(topic) else None,
                key_serde=key_serde,
                value_serde=value_serde,
                partitioner=partitioner,
            )
        )

    def add_state_store(self, builder: Any, *processors: str) -> Topology:
        """A store, connected with these processors.

        Raises:
            TopologyException: another store has that name, or there is no such processor.
        """
        store = declared_store("add_state_store", builder)
        self._check_store(store)
        for processor in processors:
            self._check_processor(processor, store.name)
        self._state_stores[store.name] = store
        for processor in processors:
            self._connect(processor, store.name)
        return self

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Let a processor use stores that have been added. Processors that share a store share its tasks.

        Raises:
            TopologyException: there is no such processor, or no such store.
        """
        if not stores:
            raise TopologyException("Must provide at least one state store name.")
        for store in stores:
            self._check_added(store)
            self._check_processor(processor, store)
        for store in stores:
            self._connect(processor, store)
        return self

    def add_global_store(
        self,
        builder: Any,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Any,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
    ) -> Topology:
        """As `StreamsBuilder.add_global_store`, with names for its two nodes.

        Raises:
            TopologyException: a name is taken, or another source reads the topic.
        """
        store = global_store(builder)
        check_supplier("add_global_store", supplier, fixed_key=False)
        self._check_name(source_name)
        self._check_name(processor_name)
        if source_name == processor_name:
            raise TopologyException("sourceName and processorName must be different.")
        if store.name in self._state_stores or store.name in {**self.stores, **self.global_stores}:
            raise TopologyException(
                f"A different StateStore has already been added with the name {store.name}"
            )
        if store.logged:
            raise TopologyException(
                f"StateStore {store.name} for global table must not have logging enabled: its topic is its "
                "changelog; add .with_logging_disabled()"
            )
        self._check_topic(validate_topic(topic))
        kept = replace(store, queryable=True, logged=False, topic_config={}, source_topic=topic)
        return self._add(
            GlobalTable(
                processor_name,
                (),
                topic=topic,
                source_name=source_name,
                key_serde=key_serde,
                value_serde=value_serde,
                stored=kept,
                supplier=supplier,
            )
        )

    def add_read_only_state_store(
        self,
        builder: Any,
        source_name: str,
        topic: str,
        processor_name: str,
        supplier: Any,
        *,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        timestamp_extractor: Any = None,
    ) -> Topology:
        """A store whose changelog is a topic written by others: a processor puts its records into the store.

        Other processors may be connected with the store, but only read it.

        Raises:
            TopologyException: a name is taken, or another source reads the topic.

        Source: KIP-813.
        """
        store = replace(
            declared_store("add_read_only_state_store", builder),
            logged=False,
            topic_config={},
            queryable=True,
        )
        check_supplier("add_read_only_state_store", supplier, fixed_key=False)
        self._check_name(processor_name)
        self._check_store(replace(store, source_topic=topic))
        self.add_source(
            source_name,
            topic,
            key_serde=key_serde,
            value_serde=value_serde,
            offset_reset=OffsetReset.EARLIEST,
            timestamp_extractor=timestamp_extractor,
        )
        self._state_stores[store.name] = replace(store, source_topic=topic)
        self.add_processor(processor_name, supplier, source_name)
        self._connect(processor_name, store.name)
        return self

    def _add(self, node: Node) -> Topology:
        self._change((*self._nodes, node))
        return self

    def _change(self, nodes: tuple[Node, ...]) -> None:
        self._nodes = nodes
        for name, value in vars(Topology).items():
            if isinstance(value, cached_property):
                vars(self).pop(name, None)

    def _connect(self, processor: str, store: str) -> None:
        """Nodes are frozen: the processor and all that comes after it are made anew."""
        changed: dict[Node, Node] = {}
        for node in self._nodes:
            new = node
            if isinstance(node, Process) and node.name == processor:
                if any(each.name == store for each in node.connected):
                    return
                new = replace(node, connected=(*node.connected, self._state_stores[store]))
            if any(changed[parent] is not parent for parent in node.parents):
                new = replace(new, parents=tuple(changed[parent] for parent in node.parents))
            changed[node] = new
        self._change(tuple(changed.values()))

    def _names(self) -> set[str]:
        return {processor.name for processor in write_out(self._nodes)}

    def _check_name(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise TopologyException(f"a node's name is text, got {name!r}")
        if has_controls(name):
            raise TopologyException(
                f"the name '{printable(name)}' of a node has a control character (such as a line break)"
            )
        if name in self._names():
            raise TopologyException(f"Processor {name} is already added.")

    def _parents(self, kind: str, name: str, parents: tuple[str, ...]) -> tuple[Node, ...]:
        if not parents:
            raise TopologyException(f"{kind} {name} must have at least one parent")
        nodes = {node.name: node for node in self._nodes}
        found: list[Node] = []
        for parent in dict.fromkeys(parents):
            if parent == name:
                raise TopologyException(f"Processor {name} cannot be a predecessor of itself.")
            node = nodes.get(parent)
            if node is None or isinstance(node, GlobalTable):
                near = get_close_matches(str(parent), nodes, n=1)
                meant = f" Did you mean '{near[0]}'?" if near else ""
                raise TopologyException(f"Predecessor processor {parent} is not added yet for {name}.{meant}")
            if isinstance(node, Sink):
                raise TopologyException(f"Sink {parent} cannot be used a parent.")
            found.append(node)
        return tuple(found)

    def _check_processor(self, processor: str, store: str) -> None:
        node = next((node for node in self._nodes if node.name == processor), None)
        if node is None:
            raise TopologyException(f"Processor {processor} is not added yet.")
        if not isinstance(node, Process):
            raise TopologyException(
                f"cannot connect a state store {store} to a source node or a sink node: {processor} is "
                "not a processor"
            )

    def _check_added(self, store: str) -> None:
        if store in self.global_stores:
            raise TopologyException(
                f"Global StateStore {store} can be used by a Processor without being specified; it "
                "should not "
                "be explicitly passed."
            )
        if store not in self._state_stores:
            near = get_close_matches(store, self._state_stores, n=1)
            raise TopologyException(
                f"StateStore {store} is not added yet." + (f" Did you mean '{near[0]}'?" if near else "")
            )

    def _check_store(self, store: Store) -> None:
        known = self._state_stores.get(store.name)
        if known is None and store.name in self.stores:
            known = self.stores[store.name]
        if known is not None and known != store:
            raise TopologyException(
                f"A different StateStore has already been added with the name {store.name}"
            )
        if store.name in self.global_stores:
            raise TopologyException(
                f"A different GlobalStateStore has already been added with the name {store.name}"
            )

    def _topics_read(self) -> set[str]:
        return {topic for processor in write_out(self._nodes) for topic in processor.topics}

    def _check_topic(self, topic: str) -> None:
        if topic in self._topics_read():
            raise TopologyException(f"Topic {topic} has already been registered by another source.")
        for pattern in self.source_patterns:
            if pattern.fullmatch(topic):
                raise TopologyException(
                    f"Topic {topic} matches a Pattern already registered by another source: {pattern.pattern}"
                )

    # --- what follows ------------------------------------------------------------------------------------

    @cached_property
    def _all_subtopologies(self) -> tuple[Subtopology, ...]:
        return split_subtopologies(write_out(self.nodes))

    @cached_property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """The logical cut: Kafka Streams' subtopologies, ascending by number.

        Global tables have numbers of the same count and are not here, so there can be gaps.
        """
        return tuple(each for each in self._all_subtopologies if not each.is_global)

    @cached_property
    def global_subtopologies(self) -> tuple[Subtopology, ...]:
        """The global tables with their numbers, ascending: one table and one store each, and no tasks."""
        return tuple(each for each in self._all_subtopologies if each.is_global and not each.is_frame)

    @cached_property
    def frame_tables(self) -> Mapping[str, FrameTable]:
        """The tables of DataFrames by name, in node order."""
        tables = (node for node in self.nodes if isinstance(node, FrameTable))
        return MappingProxyType({table.name: table for table in tables})

    @cached_property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The physical cut: the Spark queries that run it. None if there are only global tables."""
        return plan_pipelines(self.nodes, self.subtopologies)

    @cached_property
    def queries(self) -> tuple[Pipeline, ...]:
        """Those of the pipelines that have anything for Spark to do."""
        return tuple(pipeline for pipeline in self.pipelines if pipeline.has_query)

    @cached_property
    def stores(self) -> Mapping[str, Store]:
        """The state stores of its tasks by name, in node order; global tables have `global_stores`."""
        nodes = (node for node in self.nodes if not isinstance(node, GlobalTable))
        return MappingProxyType({store.name: store for node in nodes for store in node.stores})

    @cached_property
    def global_stores(self) -> Mapping[str, Store]:
        """The stores of its global tables by name, in node order; `source_topic` is the topic of each."""
        tables = (node for node in self.nodes if _has_store(node))
        return MappingProxyType({table.stored.name: table.stored for table in tables})

    @cached_property
    def global_topics(self) -> tuple[str, ...]:
        """The topics of its global tables, sorted. They must exist before it starts."""
        return tuple(sorted(node.topic for node in self.nodes if _has_store(node)))

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """Topics that must exist before a start, sorted, without those of global tables and patterns."""
        topics: set[str] = set()
        for node in self.nodes:
            if isinstance(node, Source):
                topics.update(node.topics)
            elif isinstance(node, TableSource):
                topics.add(node.topic)
        return tuple(sorted(topics))

    @cached_property
    def source_patterns(self) -> tuple[re.Pattern[str], ...]:
        """The patterns of topics that it reads."""
        return tuple(
            node.pattern for node in self.nodes if isinstance(node, Source) and node.pattern is not None
        )

    @cached_property
    def copartition_groups(self) -> tuple[CopartitionGroup, ...]:
        """Topics that joins read together, which must have the same number of partitions."""
        return copartition_groups(self.nodes)

    def describe(self) -> TopologyDescription:
        """The subtopologies as data; `str()` of it is Kafka Streams' text, to the byte."""
        return describe(self._all_subtopologies)

    def explain(self) -> str:
        """How Spark runs it, as text: the pipelines, what each reads, writes and keeps, and why it is split.

        Then the global tables, which no query runs, and the tables of DataFrames.
        """
        return explain(self.pipelines, [node for node in self.nodes if isinstance(node, GlobalTable)])

    def _repr_html_(self) -> str:
        """What a notebook shows: the drawing, and below it the texts."""
        from millstream.topology.drawing import drawing_of  # it is about topologies, and so imports this
        from millstream.topology.svg import svg

        return block(
            image(svg(drawing_of(self)), repr(self)),
            details("describe()", preformatted(str(self.describe()))),
            details("explain()", preformatted(self.explain())),
        )

    def __repr__(self) -> str:
        tables = f", {len(self.global_topics)} global tables" if self.global_topics else ""
        return f"Topology({len(self.nodes)} nodes, {len(self.subtopologies)} subtopologies{tables})"


def _made(supplier: Any) -> Any:
    """A processor of the supplier; None if that fails: its check reports why."""
    try:
        return new_processor(supplier)
    except Exception:
        return None


def _has_store(node: Node) -> TypeGuard[GlobalTable]:
    """Whether every client keeps a store of a global table."""
    return isinstance(node, GlobalTable) and not isinstance(node, FrameTable)
