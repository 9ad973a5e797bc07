"""In which racks the partitions of each task are (KIP-925).

Which topics those are is pure: `topics_of_tasks`. `RackLookup` asks the cluster for their racks, on a thread
of its own, because the group's thread must not wait long.

Source: RackAwareTaskAssignor.validateTopicPartitionRack.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.foreign import listed
from millstream.group.racks import RackRules, TaskRacks
from millstream.model import TaskId
from millstream.ports import TopicDescription
from millstream.runtime.state.work_plan import WorkPlan
from millstream.runtime.topics.topic_uses import TopicRole, topics_of
from millstream.topology.topology import Topology

__all__ = ["RackLookup", "TaskTopics", "rack_rules", "racks_of", "topics_of_tasks"]

_READ = (TopicRole.SOURCE, TopicRole.TABLE, TopicRole.REPARTITION_READ, TopicRole.DATAFRAME)


def rack_rules(config: StreamsConfig) -> RackRules:
    """What `rack.aware.assignment.…` says."""
    prefix = "rack.aware.assignment."
    return RackRules.of(
        config[prefix + "strategy"],
        config.get(prefix + "traffic_cost"),
        config.get(prefix + "non_overlap_cost"),
    )


@dataclass(frozen=True)
class TaskTopics:
    """The topics of tasks.

    Attributes:
        tasks: all tasks.
        read: the source and repartition topics of each subtopology.
        kept: the topics that fill its stores.
        whole: the subtopologies whose only task reads all partitions, as a user's query does.
    """

    tasks: tuple[TaskId, ...]
    read: Mapping[int, tuple[str, ...]]
    kept: Mapping[int, tuple[str, ...]]
    whole: frozenset[int] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """All of them."""
        return frozenset(name for each in (self.read, self.kept) for names in each.values() for name in names)


def topics_of_tasks(topology: Topology, application_id: str, plan: WorkPlan) -> TaskTopics:
    """The topics of a plan's tasks."""
    read: dict[int, set[str]] = {}
    kept: dict[int, set[str]] = {}
    for pipeline in topology.pipelines:
        uses = topics_of(pipeline, application_id, plan.sources)
        read.setdefault(pipeline.subtopology, set()).update(use.topic for use in uses if use.role in _READ)
    for part in plan.parts:
        kept.setdefault(part.task_id.subtopology, set()).add(part.changelog.topic)
    return TaskTopics(
        plan.tasks,
        {number: tuple(sorted(names)) for number, names in read.items()},
        {number: tuple(sorted(names)) for number, names in kept.items()},
        frozenset(each.subtopology for each in topology.pipelines if each.spark_sink is not None),
    )


def racks_of(topics: TaskTopics, found: Mapping[str, TopicDescription]) -> TaskRacks:
    """The racks of the partitions of tasks. A topic may have fewer partitions than there are tasks.

    Raises:
        StreamsException: some are not known.
    """
    unknown = sorted(name for name in topics.names if name not in found or not found[name].racks)
    if unknown:
        raise StreamsException(f"where the partitions of topics {listed(unknown, 3)} are is not known")
    without = sorted(
        name for name in topics.names if any("" in racks or not racks for racks in found[name].racks)
    )
    if without:
        raise StreamsException(f"brokers that have topics {listed(without, 3)} have no broker.rack")

    def racks(task: TaskId, names: Iterable[str]) -> tuple[frozenset[str], ...]:
        whole = task.subtopology in topics.whole
        return tuple(
            each
            for name in names
            for each in found[name].racks[slice(None) if whole else slice(task.partition, task.partition + 1)]
        )

    return TaskRacks(
        {task: racks(task, topics.read.get(task.subtopology, ())) for task in topics.tasks},
        {task: racks(task, topics.kept.get(task.subtopology, ())) for task in topics.tasks},
    )


class RackLookup:
    """Asks the cluster for racks, and knows the answer for a while. One caller at a time.

    Args:
        look: `Topics.look`.
        patience_s: how long a caller waits for an answer. One that comes later serves the next caller.
        keeps_s: how long an answer is good.
    """

    def __init__(
        self,
        look: Callable[[Iterable[str]], Mapping[str, TopicDescription]],
        *,
        patience_s: float,
        keeps_s: float,
        thread_name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._patience_s, self._keeps_s, self._clock = look, patience_s, keeps_s, clock
        self._thread_name = thread_name
        self._found: dict[str, TopicDescription] = {}
        self._good_until = -float("inf")
        self._error: StreamsException | None = None
        self._asking: threading.Thread | None = None

    def racks(self, topics: TaskTopics) -> TaskRacks:
        """The racks of the partitions of tasks.

        Raises:
            StreamsException: they are not known.
        """
        wanted = topics.names
        if self._clock() >= self._good_until or not wanted <= self._found.keys():
            self._ask(wanted)
        return racks_of(topics, self._found)

    def _ask(self, wanted: frozenset[str]) -> None:
        if self._asking is None or not self._asking.is_alive():
            self._error = None
            self._asking = threading.Thread(
                target=self._answer, args=(wanted,), name=self._thread_name, daemon=True
            )
            self._asking.start()
        self._asking.join(self._patience_s)
        if self._asking.is_alive():
            raise StreamsException(f"the cluster has not said in {self._patience_s:g} s where partitions are")
        if self._error is not None:
            raise self._error

    def _answer(self, wanted: frozenset[str]) -> None:
        try:
            self._found = dict(self._look(wanted))
            self._good_until = self._clock() + self._keeps_s
        except StreamsException as error:
            self._error = error
        except Exception as error:
            # Nothing depends on it: without racks, tasks are assigned all the same.
            self._error = StreamsException(f"where partitions are cannot be looked up: {error!r}")
