"""The conditions before anything runs: source topics exist, internal ones exist and fit.

The checks are pure and take descriptions; `prepare` queries the cluster and creates what is missing.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from millstream.errors import ConfigException, InternalTopicException, MissingSourceTopicException
from millstream.foreign import printable
from millstream.ports import TopicDescription, Topics
from millstream.runtime.topics.topic_news import matching_topics, source_patterns
from millstream.topology.internal_topics import InternalTopic, InternalTopics
from millstream.topology.names import internal_topic
from millstream.topology.nodes import FrameRead, Repartition, Sink, Source, TableSource
from millstream.topology.pipeline import Pipeline
from millstream.topology.topology import Topology

__all__ = [
    "check_dead_letters",
    "check_internal",
    "ensure_internal",
    "missing_sources",
    "sink_topics",
    "source_descriptions",
    "source_topics",
    "with_existing_counts",
]

log = logging.getLogger(__name__)


def source_topics(pipelines: Iterable[Pipeline]) -> tuple[str, ...]:
    """The topics that sources name, sorted."""
    topics: set[str] = set()
    for pipeline in pipelines:
        for node in pipeline.inputs:
            if isinstance(node, Source):
                topics.update(node.topics)
            elif isinstance(node, TableSource) and not isinstance(node, FrameRead):
                topics.add(node.topic)
    return tuple(sorted(topics))


def sink_topics(pipelines: Iterable[Pipeline]) -> tuple[str, ...]:
    """The output topics that sinks name, sorted."""
    return tuple(
        sorted(
            {
                node.topic
                for pipeline in pipelines
                for node in pipeline.outputs
                if isinstance(node, Sink) and node.topic is not None
            }
        )
    )


def missing_sources(
    missing: Sequence[str], existing: Iterable[str], servers: str
) -> MissingSourceTopicException:
    """The error for source topics that do not exist."""
    # Never suggest an internal topic, of this application or of another one.
    internal = ("-changelog", "-repartition")
    candidates = [name for name in existing if not name.startswith("__") and not name.endswith(internal)]
    hints = []
    for name in missing:
        near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
        hints.append(f"'{name}' (did you mean '{printable(near[0])}'?)" if near else f"'{name}'")
    plural = "s" if len(missing) > 1 else ""
    verb = "do" if len(missing) > 1 else "does"
    pronoun = "them" if len(missing) > 1 else "it"
    return MissingSourceTopicException(
        f"source topic{plural} {', '.join(hints)} {verb} not exist on '{servers}'; create {pronoun}, or "
        f"correct the topology. If the handler answers REPLACE_THREAD, the client checks again",
        tuple(sorted(missing)),
    )


def check_internal(wanted: InternalTopic, found: TopicDescription) -> None:
    """Check that an existing internal topic is the one the topology needs.

    Raises:
        InternalTopicException: another partition count, or another clean-up policy.

    Source: org.apache.kafka.streams.processor.internals.InternalTopicManager.validateTopic.
    Differs: Kafka Streams checks only the partition count, unless the topics are set up by hand.
    """
    way_out = (
        "If the application may start afresh, reset it with `millstream reset` or KafkaStreams.reset(); "
        "otherwise restore the topology and its source topics to their previous shape"
    )
    if found.partitions != wanted.partitions:
        raise InternalTopicException(
            f"internal topic '{wanted.name}' has {found.partitions} partitions; this topology needs "
            f"{wanted.partitions}. {way_out}"
        )
    policy = wanted.configs.get("cleanup.policy")
    there = found.configs.get("cleanup.policy")
    if policy is not None and there is not None and _words(policy) != _words(there):
        raise InternalTopicException(
            f"internal topic '{wanted.name}' has cleanup.policy '{there}'; it needs '{policy}'. Set it with "
            "kafka-configs --alter, or: " + way_out[0].lower() + way_out[1:]
        )


def ensure_internal(topics: Topics, wanted: Sequence[InternalTopic], replication_factor: int) -> None:
    """Create the missing internal topics, and check the existing ones.

    Raises:
        InternalTopicException: one does not fit, or cannot be created.
    """
    found = topics.describe([topic.name for topic in wanted])
    for topic in wanted:
        if topic.name in found:
            check_internal(topic, found[topic.name])
    missing = [topic for topic in wanted if topic.name not in found]
    if missing:
        log.info("creating internal topics %s", ", ".join(f"{t.name} ({t.partitions})" for t in missing))
        topics.create(missing, replication_factor)


def source_descriptions(
    topics: Topics, pipelines: Sequence[Pipeline], application_id: str, servers: str, *, create_missing: bool
) -> Mapping[str, TopicDescription]:
    """Each source topic, by name, including those that a pattern matches.

    With `create_missing`, source and output topics that do not exist are created with the broker's default
    number of partitions: a broker that this client has just brought along has none of them yet.

    Raises:
        MissingSourceTopicException: some do not exist.
    """
    named = source_topics(pipelines)
    outputs = sink_topics(pipelines)
    patterns = source_patterns(pipelines)

    def each_matches(existing: Iterable[str]) -> bool:
        found = matching_topics(patterns, existing, application_id)
        return all(any(pattern.fullmatch(name) for name in found) for pattern in patterns)

    existing = topics.names(each_matches)
    absent = [name for name in dict.fromkeys((*named, *outputs)) if name not in existing]
    if create_missing and absent:
        log.info("creating topics %s on the embedded broker", ", ".join(absent))
        topics.create([InternalTopic(name, -1, {}) for name in absent], -1)
    found = topics.confirm([*named, *matching_topics(patterns, existing, application_id)])
    missing = [name for name in named if name not in found]
    if missing:
        raise missing_sources(missing, existing, servers)
    if absent and not create_missing:
        there = topics.confirm(absent)
        for name in outputs:
            if name in absent and name not in there:
                log.warning(
                    "output topic '%s' does not exist on '%s'; create it before records reach it",
                    name,
                    servers,
                )
    return found


def check_dead_letters(
    topics: Topics,
    dead_letters: str | None,
    sources: Iterable[str],
    patterns: Sequence[re.Pattern[str]],
    servers: str,
    *,
    create_missing: bool,
) -> None:
    """Check that the topic for dead letters exists and is not a source.

    Without the topic, the first dropped record would end its pipeline.

    Raises:
        ConfigException: a source reads the topic, or it does not exist.
    """
    if dead_letters is None:
        return
    key = "errors.dead.letter.queue.topic.name"
    if dead_letters in set(sources) or any(pattern.fullmatch(dead_letters) for pattern in patterns):
        raise ConfigException(
            f"'{key}' is '{dead_letters}', which a source of the topology reads, so dead letters would come "
            f"back as records. Use a separate topic that no source pattern matches"
        )
    if dead_letters in topics.confirm([dead_letters]):
        return
    if not create_missing:
        raise ConfigException(
            f"'{key}' is '{dead_letters}', but there is no such topic on '{servers}'; create it, with any "
            f"number of partitions"
        )
    log.info("creating topic %s for dead letters on the embedded broker", dead_letters)
    topics.create([InternalTopic(dead_letters, -1, {})], -1)


def with_existing_counts(
    plan: InternalTopics, existing: Mapping[str, TopicDescription], topology: Topology, application_id: str
) -> InternalTopics:
    """The plan with the partition counts that internal topics already have.

    A changelog's count follows from the source topics' when it is created. Partitions that a source topic
    gains later do not affect it, because keys are distributed over its partitions by its own rule. Only
    explicitly configured counts must match.

    Differs: Kafka Streams refuses to start if partitions were added to a source topic.
    """
    asked = {
        internal_topic(application_id, node.topic)
        for node in topology.nodes
        if isinstance(node, Repartition) and node.partitions is not None
    }
    kept = {
        topic.name: existing[topic.name].partitions
        for topic in plan.topics
        if topic.name in existing
        and topic.name not in asked
        and existing[topic.name].partitions != topic.partitions
    }
    if not kept:
        return plan
    log.info("internal topics keep their current partitions: %s", kept)
    prefix = f"{application_id}-"
    stores = {
        name: replace(place, partitions=kept[place.topic])
        if place.topic in kept and not place.is_source
        else place
        for name, place in plan.stores.items()
    }
    tasks = dict(plan.tasks)
    for place in stores.values():
        tasks[place.subtopology] = max(tasks[place.subtopology], place.partitions)
    return InternalTopics(
        topics=tuple(
            replace(topic, partitions=kept.get(topic.name, topic.partitions)) for topic in plan.topics
        ),
        partitions={**plan.partitions, **{name.removeprefix(prefix): count for name, count in kept.items()}},
        tasks=tasks,
        stores=stores,
    )


def _words(policy: str) -> frozenset[str]:
    return frozenset(word.strip() for word in policy.split(","))
