"""Which thread gets which tasks. Pure: the same input always gives the same result."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from millstream.model import TaskId, TopicPartition
from millstream.topology.nodes import Store

__all__ = ["Share", "StorePart", "share_out"]


@dataclass(frozen=True)
class StorePart:
    """One task's part of one store, and the changelog partition that fills it.

    Attributes:
        standby: whether it is only kept warm here, in case its active instance fails.
    """

    task_id: TaskId
    store: Store
    changelog: TopicPartition
    standby: bool = False


@dataclass(frozen=True)
class Share:
    """What one thread owns: the tasks that it runs, and parts of stores, of these tasks and of standbys."""

    runs: tuple[TaskId, ...] = ()
    parts: tuple[StorePart, ...] = ()

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """All of its tasks, sorted."""
        return tuple(sorted({*self.runs, *(part.task_id for part in self.parts)}))

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The pipelines of the tasks that it runs, in their order."""
        return tuple(dict.fromkeys(task.pipeline for task in self.runs))

    def partitions(self, pipeline: str) -> frozenset[int]:
        """The partitions that it runs of a pipeline."""
        return frozenset(task.partition for task in self.runs if task.pipeline == pipeline)

    @property
    def active_tasks(self) -> tuple[TaskId, ...]:
        """The active tasks, sorted."""
        stored = {part.task_id for part in self.parts if not part.standby}
        return tuple(sorted(stored.union(self.runs)))

    @property
    def standby_tasks(self) -> tuple[TaskId, ...]:
        """The standby tasks, sorted."""
        return tuple(sorted({part.task_id for part in self.parts if part.standby}))

    def without(self, tasks: Collection[TaskId]) -> Share:
        """This share without those tasks."""
        return Share(
            tuple(task for task in self.runs if task not in tasks),
            tuple(part for part in self.parts if part.task_id not in tasks),
        )

    def not_running(self, pipeline: str) -> Share:
        """This share without running any task of a pipeline."""
        return replace(self, runs=tuple(task for task in self.runs if task.pipeline != pipeline))

    def joined(self, other: Share) -> Share:
        """The union of two shares."""
        return Share(
            tuple(sorted({*self.runs, *other.runs})),
            tuple({part.changelog: part for part in (*self.parts, *other.parts)}.values()),
        )


def share_out(
    work: Share,
    threads: Sequence[str],
    held: Mapping[str, frozenset[TaskId]] | None = None,
) -> dict[str, Share]:
    """A share for each thread, by the thread's name.

    The sizes of two shares differ by at most one, and nothing moves without need: a thread keeps what it
    holds unless that is too much. The rest is distributed, always to the thread with the least. A task stays
    whole. A standby counts like an active task, because filling it is the same work;
    so a task that becomes active stays with its thread.
    """
    if not threads:
        return {}
    held = held or {}
    wanted = work.tasks
    least, more = divmod(len(wanted), len(threads))
    got: dict[str, list[TaskId]] = {name: [] for name in threads}
    given: set[TaskId] = set()
    for name in threads:
        for task in wanted:
            if task in held.get(name, ()) and task not in given:
                got[name].append(task)
                given.add(task)
    # Threads that hold the most keep one more than the least, while such places remain.
    for name in sorted(threads, key=lambda name: -len(got[name])):
        room = least
        if more and len(got[name]) > least:
            room, more = least + 1, more - 1
        given.difference_update(got[name][room:])
        del got[name][room:]
    for task in wanted:
        if task not in given:
            name = min(threads, key=lambda name: len(got[name]))
            got[name].append(task)
    ordered = sorted(work.parts, key=lambda part: (part.task_id, part.store.name))
    return {
        name: Share(
            runs=tuple(task for task in sorted(work.runs) if task in tasks),
            parts=tuple(part for part in ordered if part.task_id in tasks),
        )
        for name, tasks in ((name, set(each)) for name, each in got.items())
    }
