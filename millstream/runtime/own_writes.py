"""The position a store must reach to include what the caller has just written: for read-your-own-writes.

A record goes from a source topic through pipelines, and the topics between them, to a changelog. Once a
pipeline has finished the record, all its results are in the pipeline's outputs, and their end offsets are the
position that the next one must reach. Pure, except for the functions it is given to query and to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from millstream.errors import TimeoutException
from millstream.model import TopicPartition
from millstream.query.position import Position, PositionBound
from millstream.topology.names import changelog_topic, internal_topic
from millstream.topology.nodes import ForeignKeyJoin, Repartition, Source, Store
from millstream.topology.pipeline import Pipeline, writers_first
from millstream.topology.topology import Topology

__all__ = ["ClientProgress", "bound_after", "bound_at_ends", "topic_of"]


class ClientProgress(Protocol):
    """What must be known about a running client."""

    def finished(self, pipeline: str, needed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The next offset of each topic partition that the pipeline's tasks on this client read, and for the
        needed ones of other clients what these have committed. The tasks here finish the needed offsets as
        soon as they have read them.
        """

    def ends(self, topics: Iterable[str]) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition of the topics."""

    def wait_until(self, fits: Callable[[], bool]) -> bool:
        """Wait until `fits` is true; False at the deadline."""


def topic_of(store: Store, application_id: str) -> str:
    """The topic that fills a store."""
    return store.source_topic or changelog_topic(application_id, store.name)


def bound_at_ends(store: Store, application_id: str, progress: ClientProgress) -> PositionBound:
    """A bound at everything that is in the store's changelog now."""
    ends = progress.ends([topic_of(store, application_id)])
    return PositionBound.at(Position({at: end - 1 for at, end in ends.items() if end > 0}))


def bound_after(
    store: Store,
    written: Mapping[TopicPartition, int],
    topology: Topology,
    application_id: str,
    progress: ClientProgress,
) -> PositionBound:
    """The bound at which the store has the results of records; waits for the pipelines in between.

    `written` has the offset of the last such record of each topic partition.

    Raises:
        ValueError: the store is not built from these topics.
        TimeoutException: the deadline came before they were processed.
    """
    own_topic = topic_of(store, application_id)
    bound = Position({at: offset for at, offset in written.items() if at.topic == own_topic})
    needed = {at: offset + 1 for at, offset in written.items() if at.topic != own_topic}
    reached = not bound.is_empty
    # In a foreign-key join, one pipeline writes to another, which writes back; and a pipeline that is joined
    # with the result of its own topic writes to itself.
    circles = sum(isinstance(node, ForeignKeyJoin) for node in topology.nodes)
    for pipeline in topology.queries:
        circles += sum(isinstance(node, Repartition) for node in {*pipeline.inputs} & {*pipeline.outputs})
    for pipeline in writers_first(topology.queries) * (1 + 2 * circles):
        inputs = _topics_read(pipeline, application_id, {at.topic for at in needed})
        mine = {at: offset for at, offset in needed.items() if at.topic in inputs}
        if not mine:
            continue
        _wait(pipeline, mine, progress)
        if any(each.name == store.name for each in pipeline.stores):
            bound = bound.merge(bound_at_ends(store, application_id, progress).position)
            reached = True
        between = [node for node in pipeline.outputs if isinstance(node, Repartition)]
        needed.update(progress.ends(internal_topic(application_id, node.topic) for node in between))
    if not reached:
        topics = ", ".join(sorted({f"'{at.topic}'" for at in written})) or "nothing"
        raise ValueError(
            f"store '{store.name}' is not built from {topics}; give offsets of its source topics"
        )
    return PositionBound.at(bound)


def _wait(pipeline: Pipeline, needed: Mapping[TopicPartition, int], progress: ClientProgress) -> None:
    def done() -> bool:
        finished = progress.finished(pipeline.name, needed)
        return all(finished.get(at, 0) >= offset for at, offset in needed.items())

    if not progress.wait_until(done):
        finished = progress.finished(pipeline.name, needed)
        behind = {
            str(at): finished.get(at, 0) for at, offset in needed.items() if finished.get(at, 0) < offset
        }
        facts = ", ".join(f"{at} up to {offset}" for at, offset in behind.items())
        raise TimeoutException(
            f"pipeline '{pipeline.name}' did not process the written records in time: it has finished "
            f"{facts}. Allow more time; other clients commit every commit.interval.ms"
        )


def _topics_read(pipeline: Pipeline, application_id: str, topics: set[str]) -> set[str]:
    """The topics among these that a pipeline reads."""
    read: set[str] = set()
    for node in pipeline.inputs:
        if isinstance(node, Repartition):
            read.add(internal_topic(application_id, node.topic))
        elif isinstance(node, Source):
            pattern = node.pattern
            read.update(node.topics)
            read.update(topic for topic in topics if pattern is not None and pattern.fullmatch(topic))
        else:
            read.add(node.topic)
    return read & topics
