"""Which thread gets which pipelines and tasks. Pure: the same input always gives the same result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millstream.model import TaskId, TopicPartition
from millstream.topology.nodes import Store

__all__ = ["Share", "StorePart", "share_out"]

Thing = str | TaskId
"""A unit of work for a thread: a pipeline, by its name, or a task."""


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
    """What one thread owns: pipelines by name, and parts of stores by task."""

    pipelines: tuple[str, ...] = ()
    parts: tuple[StorePart, ...] = ()

    @property
    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks of its parts, active and standby, sorted."""
        return tuple(sorted({part.task_id for part in self.parts}))

    @property
    def active_tasks(self) -> tuple[TaskId, ...]:
        """The active tasks, sorted."""
        return tuple(sorted({part.task_id for part in self.parts if not part.standby}))

    @property
    def standby_tasks(self) -> tuple[TaskId, ...]:
        """The standby tasks, sorted."""
        return tuple(sorted({part.task_id for part in self.parts if part.standby}))

    @property
    def things(self) -> frozenset[Thing]:
        """Its pipelines and its tasks."""
        return frozenset((*self.pipelines, *(part.task_id for part in self.parts)))

    def without(self, things: frozenset[Thing]) -> Share:
        """This share without those things."""
        return Share(
            tuple(name for name in self.pipelines if name not in things),
            tuple(part for part in self.parts if part.task_id not in things),
        )

    def joined(self, other: Share) -> Share:
        """The union of two shares."""
        return Share(
            tuple(dict.fromkeys((*self.pipelines, *other.pipelines))),
            tuple({part.changelog: part for part in (*self.parts, *other.parts)}.values()),
        )


def share_out(
    pipelines: Sequence[str],
    parts: Sequence[StorePart],
    threads: Sequence[str],
    held: Mapping[str, frozenset[Thing]] | None = None,
) -> dict[str, Share]:
    """A share for each thread, by the thread's name.

    The sizes of two shares differ by at most one, and nothing moves without need: a thread keeps what it
    holds unless that is too much. The rest is distributed, pipelines before tasks, always to the thread with
    the least. A task stays whole. A standby counts like an active task, because filling it is the same work;
    so a task that becomes active stays with its thread.
    """
    if not threads:
        return {}
    held = held or {}
    tasks = sorted({part.task_id for part in parts})
    wanted: list[Thing] = [*pipelines, *tasks]
    least, more = divmod(len(wanted), len(threads))
    got: dict[str, list[Thing]] = {name: [] for name in threads}
    given: set[Thing] = set()
    for name in threads:
        for thing in wanted:
            if thing in held.get(name, ()) and thing not in given:
                got[name].append(thing)
                given.add(thing)
    # Threads that hold the most keep one more than the least, while such places remain.
    for name in sorted(threads, key=lambda name: -len(got[name])):
        room = least
        if more and len(got[name]) > least:
            room, more = least + 1, more - 1
        given.difference_update(got[name][room:])
        del got[name][room:]
    for thing in wanted:
        if thing not in given:
            name = min(threads, key=lambda name: len(got[name]))
            got[name].append(thing)
    ordered = sorted(parts, key=lambda part: (part.task_id, part.store.name))
    return {
        name: Share(
            pipelines=tuple(each for each in pipelines if each in things),
            parts=tuple(part for part in ordered if part.task_id in things),
        )
        for name, things in got.items()
    }
