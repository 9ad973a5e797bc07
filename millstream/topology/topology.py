"""A topology: what a program means, as frozen nodes, and everything that follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TypeGuard

from millstream.not_there import TellsWhatIsMissing
from millstream.topology.copartition import CopartitionGroup, copartition_groups
from millstream.topology.describe import TopologyDescription, describe
from millstream.topology.explain import explain
from millstream.topology.nodes import FrameTable, GlobalTable, Node, Source, Store, TableSource
from millstream.topology.pipeline import Pipeline, plan_pipelines
from millstream.topology.subtopology import Subtopology, split_subtopologies, write_out

__all__ = ["Topology"]


@dataclass(frozen=True, eq=False)
class Topology(TellsWhatIsMissing):
    """What `StreamsBuilder.build()` returns.

    Attributes:
        nodes: in the order in which Kafka Streams adds them: parents before children.

    Source: org.apache.kafka.streams.Topology.
    """

    nodes: tuple[Node, ...]

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
        """The topics of its global tables, sorted. They have to be there before it starts."""
        return tuple(sorted(node.topic for node in self.nodes if _has_store(node)))

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that have to be there before it starts, sorted; not those of global tables.

        Those of patterns are not known here.
        """
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
        """What joins read together, and what therefore has to have the same number of partitions."""
        return copartition_groups(self.nodes)

    def describe(self) -> TopologyDescription:
        """The subtopologies as data; `str()` of it is Kafka Streams' text, to the byte."""
        return describe(self._all_subtopologies)

    def explain(self) -> str:
        """Text on how Spark runs it: the pipelines, what each reads, writes and keeps, and why it is cut.

        Then the global tables, which no query runs, and the tables of DataFrames.
        """
        return explain(self.pipelines, [node for node in self.nodes if isinstance(node, GlobalTable)])

    def __repr__(self) -> str:
        tables = f", {len(self.global_topics)} global tables" if self.global_topics else ""
        return f"Topology({len(self.nodes)} nodes, {len(self.subtopologies)} subtopologies{tables})"


def _has_store(node: Node) -> TypeGuard[GlobalTable]:
    """Whether every client keeps a store of a global table."""
    return isinstance(node, GlobalTable) and not isinstance(node, FrameTable)
