"""What has to hold before anything runs: source topics exist, internal ones exist and fit.

The checks are pure and take descriptions; `prepare` asks the cluster and creates what is missing.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping, Sequence

from millstream.errors import InternalTopicException, MissingSourceTopicException
from millstream.ports import InternalTopic, TopicDescription, Topics
from millstream.topology.nodes import Sink, Source, TableSource
from millstream.topology.pipeline import Pipeline

__all__ = [
    "check_internal",
    "ensure_internal",
    "matched_topics",
    "missing_sources",
    "sink_topics",
    "source_partitions",
    "source_topics",
]

log = logging.getLogger(__name__)


def source_topics(pipelines: Iterable[Pipeline]) -> tuple[str, ...]:
    """The topics that sources name, sorted."""
    topics: set[str] = set()
    for pipeline in pipelines:
        for node in pipeline.inputs:
            if isinstance(node, Source):
                topics.update(node.topics)
            elif isinstance(node, TableSource):
                topics.add(node.topic)
    return tuple(sorted(topics))


def matched_topics(pipelines: Iterable[Pipeline], existing: Iterable[str]) -> tuple[str, ...]:
    """The topics there are that a source's pattern matches, sorted."""
    patterns = [
        node.pattern
        for pipeline in pipelines
        for node in pipeline.inputs
        if isinstance(node, Source) and node.pattern is not None
    ]
    return tuple(sorted(name for name in existing if any(p.fullmatch(name) for p in patterns)))


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
    candidates = [name for name in existing if not name.startswith("__")]
    hints = []
    for name in missing:
        near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.7)
        hints.append(f"'{name}' (did you mean '{near[0]}'?)" if near else f"'{name}'")
    plural = "s" if len(missing) > 1 else ""
    verb = "do" if len(missing) > 1 else "does"
    pronoun = "them" if len(missing) > 1 else "it"
    return MissingSourceTopicException(
        f"source topic{plural} {', '.join(hints)} {verb} not exist on '{servers}'; create {pronoun}, or "
        f"correct the "
        "topology, then start a new client",
        tuple(sorted(missing)),
    )


def check_internal(wanted: InternalTopic, found: TopicDescription) -> None:
    """Whether an internal topic that exists is the one the topology needs.

    Raises:
        InternalTopicException: another partition count, or another clean-up policy.

    Source: org.apache.kafka.streams.processor.internals.InternalTopicManager.validateTopic.
    Differs: upstream checks the partition count only, unless the topics are set up by hand.
    """
    way_out = (
        f"If the application may start afresh, delete the topic '{wanted.name}' and call "
        "KafkaStreams.clean_up(checkpoints=True); else give the topology, and its source topics, the shape "
        "they had"
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
    """Create the internal topics that are missing, and check those that are there.

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


def source_partitions(
    topics: Topics, pipelines: Sequence[Pipeline], servers: str, *, create_missing: bool
) -> Mapping[str, int]:
    """The partition count of each source topic, by name.

    With `create_missing`, source and output topics that do not exist are created with the broker's default
    number of partitions: a broker that this client has just brought along has none of them yet.

    Raises:
        MissingSourceTopicException: some do not exist.
    """
    named = source_topics(pipelines)
    outputs = sink_topics(pipelines)
    existing = topics.names()
    absent = [name for name in dict.fromkeys((*named, *outputs)) if name not in existing]
    if create_missing and absent:
        log.info("creating topics %s on the embedded broker", ", ".join(absent))
        topics.create([InternalTopic(name, -1, {}) for name in absent], -1)
    found = topics.describe([*named, *matched_topics(pipelines, existing)])
    missing = [name for name in named if name not in found]
    if missing:
        raise missing_sources(missing, existing, servers)
    for name in outputs:
        if name in absent and not create_missing:
            log.warning(
                "output topic '%s' does not exist on '%s'; create it before records reach it", name, servers
            )
    return {name: topic.partitions for name, topic in found.items()}


def _words(policy: str) -> frozenset[str]:
    return frozenset(word.strip() for word in policy.split(","))
