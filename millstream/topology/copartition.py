"""Which topics must have the same number of partitions, because a join or a cogroup reads them together.

Equal keys meet only in partitions with the same number, so the topics on both sides of a join need equally
many. Repartition topics are made to fit; topics that the program does not own have to fit.

Source: AbstractStream.ensureCopartitionWith, InternalTopologyBuilder (copartitionGroups,
    validateCopartition), CopartitionedTopicsEnforcer.
Differs: a mistake is reported in every topology; Kafka Streams checks only if there is a repartition topic,
    and not after a suppress() or a cogroup().
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from millstream.errors import TopologyException
from millstream.topology.nodes import (
    Cogroup,
    ForeignKeyJoin,
    ForeignKeyLookup,
    Node,
    Repartition,
    Source,
    StreamJoin,
    StreamTableJoin,
    TableJoin,
    TableSource,
)
from millstream.topology.subtopology import DisjointSets

__all__ = ["CopartitionGroup", "check_declared_partitions", "copartition_groups", "settle_partitions"]

Reader = Source | TableSource | Repartition
Together = StreamTableJoin | StreamJoin | TableJoin | Cogroup | ForeignKeyLookup | ForeignKeyJoin


@dataclass(frozen=True)
class CopartitionGroup:
    """What is read together, and the joins for which it is.

    Attributes:
        readers: sources, tables' sources and repartitions, in node order.
        joins: the names of the joins.
    """

    readers: tuple[Reader, ...]
    joins: tuple[str, ...]

    def topics(self, sources: Iterable[str]) -> tuple[str, ...]:
        """The names of their topics, internal ones without the application id; patterns take theirs from
        `sources`.
        """
        names: dict[str, None] = {}
        for reader in self.readers:
            if not isinstance(reader, Source):
                names[reader.topic] = None
            elif reader.pattern is None:
                names.update(dict.fromkeys(reader.topics))
            else:
                names.update((topic, None) for topic in sources if reader.pattern.fullmatch(topic))
        return tuple(names)

    @property
    def repartitions(self) -> tuple[Repartition, ...]:
        """Those of the readers whose topics are the application's own."""
        return tuple(reader for reader in self.readers if isinstance(reader, Repartition))


def copartition_groups(nodes: Sequence[Node]) -> tuple[CopartitionGroup, ...]:
    """The groups of a topology; who is in two is in one. `nodes` have parents before children."""
    readers: dict[Node, tuple[Reader, ...]] = {}
    joins: list[Node] = []
    for node in nodes:
        if isinstance(node, Source | TableSource | Repartition):
            readers[node] = (node,)
            continue
        # A global table is on every client, whole: it is read together with nothing.
        behind = [reader for parent in node.parents for reader in readers.get(parent, ())]
        readers[node] = tuple(dict.fromkeys(behind))
        if isinstance(node, Together):
            joins.append(node)
    sets = DisjointSets([node for node in nodes if isinstance(node, Source | TableSource | Repartition)])
    for join in joins:
        for reader in readers[join][1:]:
            sets.unite(readers[join][0], reader)
    members: dict[Reader, list[str]] = {}
    for join in joins:
        members.setdefault(sets.root(readers[join][0]), []).append(join.name)
    return tuple(
        CopartitionGroup(
            tuple(
                node
                for node in nodes
                if isinstance(node, Source | TableSource | Repartition) and sets.root(node) is root
            ),
            tuple(names),
        )
        for root, names in members.items()
    )


def check_declared_partitions(groups: Iterable[CopartitionGroup]) -> None:
    """Raise if repartition() was asked for numbers of partitions that a join cannot have; for `build()`.

    Raises:
        TopologyException: all topics of a join are such, and their numbers are not the same.

    Source: InternalTopologyBuilder.validateCopartition.
    """
    for group in groups:
        declared = {node.topic: node.partitions for node in group.repartitions if node.partitions is not None}
        if len(declared) == len(group.readers):
            _check_same(declared, group)


def settle_partitions(
    groups: Iterable[CopartitionGroup], counts: MutableMapping[str, int], sources: Mapping[str, int]
) -> None:
    """Give each repartition topic of a group the number of partitions that the group needs.

    `counts` has those of all repartition topics, `sources` those of all others. That number is the sources';
    without sources, the one that the program gave to repartition(); without that, the largest.

    Raises:
        TopologyException: two sources have different numbers, or repartition() was asked for another one.

    Source: CopartitionedTopicsEnforcer.enforce.
    """
    for group in groups:
        repartitions = {node.topic: node for node in group.repartitions}
        external = {topic: sources[topic] for topic in group.topics(sources) if topic not in repartitions}
        declared = {
            topic: node.partitions for topic, node in repartitions.items() if node.partitions is not None
        }
        if external:
            if len(set(external.values())) > 1:
                raise TopologyException(
                    f"Topics not co-partitioned: {_shown(external)} partitions; {_joins(group)} reads them "
                    "together, so they need the same number: recreate them, or put repartition() "
                    "before the join on one side"
                )
            needed = next(iter(external.values()))
        elif declared:
            _check_same(declared, group)
            needed = next(iter(declared.values()))
        else:
            needed = max((counts[topic] for topic in repartitions), default=0)
        for topic, node in repartitions.items():
            if node.partitions is None:
                counts[topic] = needed
            elif node.partitions != needed:
                raise TopologyException(
                    f"Number of partitions [{node.partitions}] of repartition topic [{topic}] doesn't match "
                    f"number of partitions [{needed}] of the source topic: {_joins(group)} reads it together "
                    f"with {_shown(external)}; set repartition() to {needed} partitions, or omit the number"
                )


def _check_same(declared: Mapping[str, int], group: CopartitionGroup) -> None:
    if len(set(declared.values())) > 1:
        raise TopologyException(
            f"Following topics do not have the same number of partitions: {_shown(declared)} partitions; "
            f"{_joins(group)} reads them together: give repartition() the same number on both sides, or none"
        )


def _shown(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} has {count}" for topic, count in sorted(counts.items()))


def _joins(group: CopartitionGroup) -> str:
    return group.joins[0] if len(group.joins) == 1 else f"each of {', '.join(group.joins)}"
