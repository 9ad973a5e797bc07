"""A topology: what a program means, as frozen nodes, and everything that follows from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from millstream.topology.describe import TopologyDescription, describe
from millstream.topology.explain import explain
from millstream.topology.nodes import Node, Source, Store, TableSource
from millstream.topology.pipeline import Pipeline, plan_pipelines
from millstream.topology.subtopology import Subtopology, split_subtopologies, write_out

__all__ = ["Topology"]


@dataclass(frozen=True, eq=False)
class Topology:
    """What `StreamsBuilder.build()` returns.

    Attributes:
        nodes: in the order in which Kafka Streams adds them: parents before children.

    Source: org.apache.kafka.streams.Topology.
    """

    nodes: tuple[Node, ...]

    @cached_property
    def subtopologies(self) -> tuple[Subtopology, ...]:
        """The logical cut: Kafka Streams' subtopologies, ascending by number."""
        return split_subtopologies(write_out(self.nodes))

    @cached_property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The physical cut: the Spark queries that run it."""
        return plan_pipelines(self.nodes, self.subtopologies)

    @cached_property
    def stores(self) -> Mapping[str, Store]:
        """The state stores by name, in node order."""
        stores = (node.store for node in self.nodes)
        return MappingProxyType({store.name: store for store in stores if store is not None})

    @cached_property
    def source_topics(self) -> tuple[str, ...]:
        """The topics that have to be there before it starts, sorted. Those of patterns are not known here."""
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

    def describe(self) -> TopologyDescription:
        """The subtopologies as data; `str()` of it is Kafka Streams' text, to the byte."""
        return describe(self.subtopologies)

    def explain(self) -> str:
        """Text on how Spark runs it: the pipelines, what each reads, writes and keeps, and why it is cut."""
        return explain(self.pipelines)

    def __repr__(self) -> str:
        return f"Topology({len(self.nodes)} nodes, {len(self.subtopologies)} subtopologies)"
