"""Which thread gets which pipelines and tasks. Pure: the same input always gives the same answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.model import TaskId, TopicPartition
from millstream.topology.nodes import Store

__all__ = ["Share", "StorePart", "distribute"]


@dataclass(frozen=True)
class StorePart:
    """One task's part of one store, and the changelog partition that fills it."""

    task_id: TaskId
    store: Store
    changelog: TopicPartition


@dataclass(frozen=True)
class Share:
    """What one thread owns: pipelines by name, and parts of stores by task."""

    pipelines: tuple[str, ...] = ()
    parts: tuple[StorePart, ...] = ()

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks of its parts, sorted."""
        return tuple(sorted({part.task_id for part in self.parts}))


def distribute(
    pipelines: Sequence[str], parts: Sequence[StorePart], threads: Sequence[str]
) -> dict[str, Share]:
    """A share for each thread, by the thread's name.

    Pipelines go round the threads in their order, then tasks, beginning with the thread after the last that
    got a pipeline; so the numbers of things that two threads have differ by one at most. A task stays whole.
    """
    if not threads:
        return {}
    count = len(threads)
    tasks = sorted({part.task_id for part in parts})
    turn = {task: (len(pipelines) + index) % count for index, task in enumerate(tasks)}
    ordered = sorted(parts, key=lambda part: (part.task_id, part.store.name))
    return {
        name: Share(
            pipelines=tuple(pipelines[index::count]),
            parts=tuple(part for part in ordered if turn[part.task_id] == index),
        )
        for index, name in enumerate(threads)
    }
