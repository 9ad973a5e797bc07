"""Every topic that a pipeline reads and writes, and what for. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import FrameRead, Repartition, Sink, Source, TableSource
from millstream.topology.pipeline import Pipeline

__all__ = ["TopicRole", "TopicUse", "topics_of"]


class TopicRole(Enum):
    """What a pipeline does with a topic."""

    SOURCE = "source topic"
    TABLE = "table's topic"
    REPARTITION_READ = "repartition topic read as a source"
    REPARTITION = "repartition topic"
    DATAFRAME = "topic with the rows of a DataFrame"
    CHANGELOG = "changelog"
    OUTPUT = "output topic"
    DEAD_LETTERS = "dead letter topic"

    @property
    def is_internal(self) -> bool:
        """Whether Millstream created it."""
        return self in (
            TopicRole.REPARTITION_READ,
            TopicRole.REPARTITION,
            TopicRole.CHANGELOG,
            TopicRole.DATAFRAME,
        )


@dataclass(frozen=True)
class TopicUse:
    """One topic in one role; a topic that is both read and written has two of these."""

    topic: str
    role: TopicRole
    by_pattern: bool = False


def topics_of(
    pipeline: Pipeline,
    application_id: str,
    existing: Iterable[str] = (),
    dead_letters: str | None = None,
) -> tuple[TopicUse, ...]:
    """Every topic that a pipeline reads and writes, by its full name, in the order of its nodes.

    Topics that a function names for each record are not known here.

    Args:
        existing: topics that patterns may match, without internal ones (topic_news.matching_topics).
        dead_letters: the topic for failed records, if they are kept.
    """
    uses: dict[tuple[str, TopicRole], None] = {}
    matched: set[str] = set()
    named: set[str] = set()
    for node in pipeline.inputs:
        match node:
            case Source(pattern=None):
                uses.update({(topic, TopicRole.SOURCE): None for topic in node.topics})
                named.update(node.topics)
            case Source():
                assert node.pattern is not None
                matching = [topic for topic in sorted(existing) if node.pattern.fullmatch(topic)]
                uses.update({(topic, TopicRole.SOURCE): None for topic in matching})
                matched.update(matching)
            case FrameRead():
                uses[internal_topic(application_id, node.topic), TopicRole.DATAFRAME] = None
            case TableSource():
                uses[node.topic, TopicRole.TABLE] = None
            case _:
                uses[internal_topic(application_id, node.topic), TopicRole.REPARTITION_READ] = None
    for out in pipeline.outputs:
        if isinstance(out, Repartition):
            uses[internal_topic(application_id, out.topic), TopicRole.REPARTITION] = None
        elif isinstance(out, Sink) and out.topic is not None:
            uses[out.topic, TopicRole.OUTPUT] = None
    for store in pipeline.stores:
        if store.logged and store.source_topic is None:
            uses[changelog_topic(application_id, store.name), TopicRole.CHANGELOG] = None
    if dead_letters is not None:
        uses[dead_letters, TopicRole.DEAD_LETTERS] = None
    return tuple(
        TopicUse(topic, role, by_pattern=role is TopicRole.SOURCE and topic in matched - named)
        for topic, role in uses
    )
