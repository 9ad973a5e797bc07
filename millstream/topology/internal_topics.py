"""Which internal topics an application needs, how many partitions each has, and so which tasks there are.

Pure: topology, application id and the source topics' partition counts in, a plan out.

Source: RepartitionTopics, ChangelogTopics, RepartitionTopicConfig, UnwindowedUnversionedChangelogTopicConfig,
    WindowedChangelogTopicConfig.
Differs: a table's topic is its changelog.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import MissingSourceTopicException
from millstream.model import TaskId
from millstream.topology.copartition import settle_partitions
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import Process, Repartition, Store
from millstream.topology.subtopology import Subtopology
from millstream.topology.topology import Topology

__all__ = ["InternalTopic", "InternalTopics", "StoreSource", "plan_internal_topics"]

ANY_TIME = {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**63 - 1)}
"""What a source topic has taken, an internal topic takes too.

Differs: Kafka Streams leaves the second as the broker has it, so that since Kafka 4.0 a record from more than
an hour ahead ends the application.
"""
REPARTITION_CONFIGS = {
    "cleanup.policy": "delete",
    **ANY_TIME,
    "retention.ms": "-1",
    "segment.bytes": "52428800",
}
FRAME_CONFIGS = {
    "cleanup.policy": "compact",
    **ANY_TIME,
}
CHANGELOG_CONFIGS = {
    "cleanup.policy": "compact",
    **ANY_TIME,
}
WINDOWED_CHANGELOG_CONFIGS = {
    "cleanup.policy": "compact,delete",
    **ANY_TIME,
}
STREAM_CHANGELOG_CONFIGS = {
    "cleanup.policy": "delete",
    **ANY_TIME,
}
ADDITIONAL_RETENTION_MS = 86_400_000
"""The default of `windowstore.changelog.additional.retention.ms`."""
_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A required changelog or repartition topic; `name` is complete, with the application id."""

    name: str
    partitions: int
    configs: Mapping[str, str]


@dataclass(frozen=True)
class StoreSource:
    """Where a store is kept: one part in each task of its subtopology, filled from a topic.

    Attributes:
        topic: its changelog's whole name, or the topic of the table; None: it has neither, and so no data.
        is_source: whether that is the topic of the table.
    """

    store: Store
    subtopology: int
    partitions: int
    topic: str | None
    is_source: bool = False


@dataclass(frozen=True)
class InternalTopics:
    """The plan.

    Attributes:
        topics: those that have to exist, sorted by name.
        partitions: the partition count of each internal topic by its name without the application id; and
            of each processor, by the name of its node, how many tasks it has.
        tasks: how many tasks each subtopology has.
        stores: where each store is, by its name.
    """

    topics: tuple[InternalTopic, ...]
    partitions: Mapping[str, int]
    tasks: Mapping[int, int]
    stores: Mapping[str, StoreSource]

    @property
    def task_ids(self) -> tuple[TaskId, ...]:
        """Every task, ascending."""
        return tuple(
            TaskId(subtopology, partition)
            for subtopology, count in sorted(self.tasks.items())
            for partition in range(count)
        )


def plan_internal_topics(
    topology: Topology,
    application_id: str,
    source_partitions: Mapping[str, int],
    *,
    additional_retention_ms: int = ADDITIONAL_RETENTION_MS,
) -> InternalTopics:
    """The plan for this topology, with sources of so many partitions. Global tables add nothing to it.

    `source_partitions` has every source topic, and those that match the topology's patterns; others in it
    are ignored. `additional_retention_ms`: how much longer a changelog keeps windows than their store.

    Raises:
        MissingSourceTopicException: a source topic is not in `source_partitions`, or a pattern that a
            repartition's partition count depends on matches nothing.
        TopologyException: an internal topic's name would be longer than Kafka allows; or topics that a join
            reads together have different numbers of partitions.
    """
    missing = tuple(topic for topic in topology.source_topics if topic not in source_partitions)
    if missing:
        raise MissingSourceTopicException(
            f"source {_topics(missing)} missing; create the missing topics, or change the topology, "
            "then start a new client",
            missing,
        )
    repartitions = {node.topic: node for node in topology.nodes if isinstance(node, Repartition)}
    # A pattern that matches the application's own topics means others by it.
    internal = {internal_topic(application_id, topic) for topic in repartitions}
    internal |= {changelog_topic(application_id, store) for store in topology.stores}
    sources = {topic: count for topic, count in source_partitions.items() if topic not in internal}
    counts = _repartition_counts(topology.subtopologies, repartitions, sources)
    settle_partitions(topology.copartition_groups, counts, sources)
    tasks = {
        each.id: _most(_counts_of(each, repartitions, counts, sources)) or 0
        for each in topology.subtopologies
    }
    partitions = dict(counts)
    topics = []
    for pipeline in topology.pipelines:
        for node in pipeline.inputs:
            if isinstance(node, Repartition):
                name = internal_topic(application_id, node.topic)
                topics.append(InternalTopic(name, counts[node.topic], dict(REPARTITION_CONFIGS)))
    for table in topology.frame_tables.values():
        # One partition: a transaction's rows become visible together, and have one order.
        partitions[table.topic] = 1
        topics.append(InternalTopic(internal_topic(application_id, table.topic), 1, dict(FRAME_CONFIGS)))
    stores = {}
    for subtopology in topology.subtopologies:
        for processor in subtopology.processors:
            if isinstance(processor.node, Process):
                partitions[processor.name] = tasks[subtopology.id]
        for store in subtopology.stores:
            count = tasks[subtopology.id]
            topic = store.source_topic
            partitions[f"{store.name}-changelog"] = count
            if topic is None and store.logged:
                topic = changelog_topic(application_id, store.name)
                if count:  # a pattern may match nothing yet
                    configs = {**_changelog_configs(store, additional_retention_ms), **store.topic_config}
                    topics.append(InternalTopic(topic, count, configs))
            is_source = store.source_topic is not None
            stores[store.name] = StoreSource(store, subtopology.id, count, topic, is_source)
    return InternalTopics(tuple(sorted(topics, key=lambda topic: topic.name)), partitions, tasks, stores)


def _changelog_configs(store: Store, additional_retention_ms: int) -> dict[str, str]:
    """A windowed store's changelog is compacted, and loses what its store has lost; one of a store with
    history is compacted only behind the history; one of a store of a stream's records is not compacted.

    Source: WindowedChangelogTopicConfig, VersionedChangelogTopicConfig, StreamJoinedStoreFactory.
    """
    if store.history_ms is not None:
        lag_ms = min(store.history_ms + additional_retention_ms, _MAX)
        return {**CHANGELOG_CONFIGS, "min.compaction.lag.ms": str(lag_ms)}
    if store.retention_ms is None:
        return dict(CHANGELOG_CONFIGS)
    retention_ms = min(store.retention_ms + additional_retention_ms, _MAX)
    configs = STREAM_CHANGELOG_CONFIGS if store.duplicates else WINDOWED_CHANGELOG_CONFIGS
    return {**configs, "retention.ms": str(retention_ms)}


def _repartition_counts(
    subtopologies: Sequence[Subtopology],
    repartitions: Mapping[str, Repartition],
    sources: Mapping[str, int],
) -> dict[str, int]:
    """The partition count of each repartition topic: as asked for, else the most that its upstream reads.

    Source: RepartitionTopics.setRepartitionSourceTopicPartitionCount, computePartitionCount.
    """
    counts = {topic: node.partitions for topic, node in repartitions.items() if node.partitions is not None}
    while open_topics := [topic for topic in repartitions if topic not in counts]:
        progress = False
        for topic in open_topics:
            upstream = [
                count
                for subtopology in subtopologies
                if topic in subtopology.sink_topics
                for count in _counts_of(subtopology, repartitions, counts, sources)
            ]
            most = _most(upstream)
            if most is not None:
                counts[topic] = most
                progress = True
        if not progress:
            patterns = sorted(
                {pattern.pattern for subtopology in subtopologies for pattern in subtopology.source_patterns}
            )
            raise MissingSourceTopicException(
                f"the partition count of {_topics(open_topics)} unknown: no topic matches "
                f"{' or '.join(patterns)}; create the topics to read, then start a new client"
            )
    return counts


def _counts_of(
    subtopology: Subtopology,
    repartitions: Mapping[str, Repartition],
    counts: Mapping[str, int],
    sources: Mapping[str, int],
) -> Iterable[int | None]:
    """The partition counts of what a subtopology reads; None where it is not known yet."""
    for topic in subtopology.source_topics:
        yield counts.get(topic) if topic in repartitions else sources[topic]
    for pattern in subtopology.source_patterns:
        yield from _matching(pattern, sources)


def _matching(pattern: re.Pattern[str], sources: Mapping[str, int]) -> Iterable[int]:
    return (count for topic, count in sources.items() if pattern.fullmatch(topic))


def _most(counts: Iterable[int | None]) -> int | None:
    return max((count for count in counts if count is not None), default=None)


def _topics(topics: Sequence[str]) -> str:
    plural = "s" if len(topics) > 1 else ""
    return f"topic{plural} {', '.join(topics)} {'are' if plural else 'is'}"
