"""What there is to do, now that the topics are known: a value that events and the client's state carry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from millstream.model import TaskId, TopicPartition
from millstream.ports import TopicDescription
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.topics.topic_news import Written
from millstream.topology.internal_topics import InternalTopics
from millstream.topology.topology import Topology

__all__ = ["WorkPlan", "store_parts", "tasks_of"]


def store_parts(plan: InternalTopics) -> list[StorePart]:
    """Every part of every store that a topic fills."""
    return [
        StorePart(TaskId(place.subtopology, partition), place.store, TopicPartition(place.topic, partition))
        for place in plan.stores.values()
        if place.topic is not None
        for partition in range(place.partitions)
    ]


def tasks_of(topology: Topology, counts: Mapping[int, int]) -> tuple[TaskId, ...]:
    """The tasks of subtopologies that have so many; a user's query, which is not cut into tasks, counts as
    one."""
    whole = {pipeline.subtopology for pipeline in topology.pipelines if pipeline.spark_sink is not None}
    return tuple(
        TaskId(number, each)
        for number, count in sorted(counts.items())
        for each in range(min(count, 1) if number in whole else count)
    )


@dataclass(frozen=True)
class WorkPlan:
    """What there is to do, now that the topics are known.

    Attributes:
        sources: the source topics as they were when the plan was made.
        parts: every part of every store, of all clients.
        tasks: all tasks, ascending.
        written: the topics that pipelines write, and that are no sources.
        outputs: those of them that are there.
    """

    sources: Mapping[str, TopicDescription]
    internal: InternalTopics
    parts: tuple[StorePart, ...]
    tasks: tuple[TaskId, ...] = ()
    written: tuple[Written, ...] = ()
    outputs: Mapping[str, TopicDescription] = field(default_factory=dict)

    @property
    def stateful(self) -> tuple[TaskId, ...]:
        """The tasks that keep state, ascending."""
        return tuple(sorted({part.task_id for part in self.parts}))

    def with_tasks(self, more: Iterable[TaskId]) -> WorkPlan:
        """The same with these tasks, too."""
        return replace(self, tasks=tuple(sorted({*self.tasks, *more})))

    def parts_of(self, active: Iterable[TaskId], standby: Iterable[TaskId] = ()) -> tuple[StorePart, ...]:
        """The parts of these tasks. One that is in both is active."""
        actives = set(active)
        standbys = set(standby) - actives
        return tuple(
            replace(part, standby=part.task_id in standbys)
            for part in self.parts
            if part.task_id in actives or part.task_id in standbys
        )
