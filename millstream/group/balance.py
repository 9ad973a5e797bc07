"""Assigns tasks and standbys to the members of a group. Pure.

The rules, in order of priority:

1. Each task goes to exactly one member; members without a thread get nothing.
2. Balance. With `q` tasks for each thread and a remainder, each thread gets `q`, and some get one more: a
   member with three threads gets between 3q and 3q+3. The same holds for the tasks with state alone.
3. Nothing moves without need: within the limits of balance, a member keeps what it has, and a standby becomes
   active before a member that has nothing of the task. Balance decides how many move, never more. A task that
   is readable where it is moves only once it is readable at its destination (`warmed_up_first`).
4. Unassigned work goes where it starts fastest: a task to the member whose state is most advanced; then to
   members that keep Spark warm, and to the member with the most room.

Everything is sorted first, so the order of the input does not matter: two leaders that see the same members
decide the same. (Loads are compared as floats: for numbers this small, quotients are equal exactly when the
fractions are.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, Protocol, TypeVar

from millstream.group.userdata import MemberInfo, Program
from millstream.group.userdata_layout import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.model import TaskId

__all__ = ["Work", "balance", "by_process", "warmed_up_first"]


class _Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T")
Item = TypeVar("Item", bound=_Sortable)


@dataclass(frozen=True)
class Work:
    """What one member gets; each part is sorted."""

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()


def balance(members: Mapping[str, MemberInfo], program: Program) -> Mapping[str, Work]:
    """The work of each member, by member id.

    With no thread in the whole group nothing is assigned.
    """
    able = [member for member in by_process(members) if members[member].threads > 0]
    ids = sorted(set(program.tasks))
    if not able:
        return {member: Work() for member in members}
    stateful = set(program.stateful).intersection(ids)
    keeping = {member: _without_stopping(info, stateful) for member, info in members.items()}
    # As in Kafka Streams, those with state are distributed evenly on their own, as they are most of the work.
    active = _place_tasks(keeping, able, sorted(stateful), dict.fromkeys(able, 0))
    busy = {member: len(active[member]) for member in able}
    for member, tasks in _place_tasks(keeping, able, sorted({*ids} - stateful), busy).items():
        active[member] += tasks
    standby = _place_standbys(members, able, sorted(stateful), active, program.standby_replicas)
    return {
        member: Work(tuple(sorted(active.get(member, ()))), tuple(sorted(standby.get(member, ()))))
        for member in members
    }


def by_process(members: Mapping[str, MemberInfo]) -> list[str]:
    """The member ids, in the order of their process ids."""
    return sorted(members, key=lambda member: (members[member].process_id, member))


# --- active tasks ----------------------------------------------------------------------------------------


def _place_tasks(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    ids: Sequence[TaskId],
    busy: Mapping[str, int],
) -> dict[str, list[TaskId]]:
    """The tasks of each member, of these; `busy`: how many others each has."""
    threads = {member: members[member].threads for member in able}
    holder = _first_claimant(able, {member: members[member].active_tasks for member in able})
    heir = {task: _furthest(members, able, task) for task in ids if task not in holder}
    held = _gathered(able, ids, holder)
    inherited = _gathered(able, ids, {task: member for task, member in heir.items() if member is not None})
    firm = {member: busy[member] + len(held[member]) for member in able}
    room = _room(
        able,
        threads,
        len(ids) + sum(busy.values()),
        wants=[busy, firm, {member: firm[member] + len(inherited[member]) for member in able}],
        prefers=lambda member: (not members[member].warm,),
    )
    places = {member: room[member] - busy[member] for member in able}
    kept = {}
    for member in able:
        # What has to move goes to a member that already has state of it, if there is one; and what stays is
        # spread over the subtopologies.
        rank = {task: number for _, own in _by_subtopology(held[member]) for number, task in enumerate(own)}
        ordered = sorted(
            held[member],
            key=lambda task: (_has_other_state(members, able, member, task), rank[task], task),
        )
        kept[member] = ordered[: places[member]]
    open_ids = []
    for task in _without(ids, kept):
        able_to = [member for member in able if len(kept[member]) < places[member]]
        best = _furthest(members, able_to, task)
        if best is not None:
            kept[best].append(task)
        else:
            open_ids.append(task)
    of_kind: dict[tuple[str, int], int] = {}
    for member in able:
        for task in kept[member]:
            of_kind[member, task.subtopology] = of_kind.get((member, task.subtopology), 0) + 1
    for task in open_ids:
        free = [member for member in able if len(kept[member]) < places[member]]
        # The tasks of one subtopology are spread: they tend to be busy at the same time.
        chosen = min(
            free,
            key=lambda member: (
                of_kind.get((member, task.subtopology), 0) / threads[member],
                (len(kept[member]) - places[member]) / threads[member],
                not members[member].warm,
            ),
        )
        kept[chosen].append(task)
        of_kind[chosen, task.subtopology] = of_kind.get((chosen, task.subtopology), 0) + 1
    return kept


def _by_subtopology(tasks: Iterable[TaskId]) -> Iterator[tuple[int, Iterator[TaskId]]]:
    return groupby(sorted(tasks), key=lambda task: task.subtopology)


def _kept_by(member: MemberInfo) -> frozenset[TaskId]:
    """The tasks that a member may keep."""
    return member.active_tasks - member.stopping


def _without_stopping(member: MemberInfo, stateful: Collection[TaskId]) -> MemberInfo:
    """A member without the tasks that it is stopping. Their state, if they have any, will be on its disk."""
    if not member.stopping:
        return member
    tasks = {
        task: UNKNOWN_OFFSET_SUM if task in member.stopping else offset
        for task, offset in member.tasks.items()
        if task in stateful or task not in member.stopping
    }
    return replace(member, tasks=tasks)


def _room(
    able: Sequence[str],
    threads: Mapping[str, int],
    things: int,
    *,
    wants: Sequence[Mapping[str, int]],
    prefers: Callable[[str], tuple[bool, ...]],
) -> dict[str, int]:
    """How many of the things each member should have; the sum is exactly their number.

    Each thread gets the quotient. The remainder is distributed one by one, to one thread each: first to
    members that already have more according to `wants` (the first mapping before the second), then to the
    others.
    """
    quotient, left = divmod(things, sum(threads.values()))
    extra = dict.fromkeys(able, 0)

    def share(member: str) -> float:
        return extra[member] / threads[member]

    for want in wants:
        while left:
            short = [
                member
                for member in able
                if extra[member] < threads[member]
                and quotient * threads[member] + extra[member] < want[member]
            ]
            if not short:
                break
            extra[min(short, key=share)] += 1
            left -= 1
    while left:
        free = [member for member in able if extra[member] < threads[member]]
        chosen = min(free, key=lambda member: (share(member), *prefers(member), -threads[member]))
        extra[chosen] += 1
        left -= 1
    return {member: quotient * threads[member] + extra[member] for member in able}


def _first_claimant(able: Sequence[str], claims: Mapping[str, Iterable[T]]) -> dict[T, str]:
    """For each claimed thing, the first claimant by process id."""
    found: dict[T, str] = {}
    for member in able:
        for item in claims[member]:
            found.setdefault(item, member)
    return found


def _gathered(able: Sequence[str], items: Iterable[T], owner: Mapping[T, str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {member: [] for member in able}
    for item in items:
        if item in owner:
            found[owner[item]].append(item)
    return found


def _without(items: Iterable[T], kept: Mapping[str, Collection[T]]) -> list[T]:
    taken = {item for each in kept.values() for item in each}
    return [item for item in items if item not in taken]


def _progress(member: MemberInfo, task: TaskId) -> int:
    """The progress of its state of a task, as a growing number; -1: it has none, or it is unknown."""
    offset = member.tasks.get(task)
    if offset is None:
        return -1
    return 2**63 if offset == LATEST_OFFSET else max(offset, -1)


def _furthest(members: Mapping[str, MemberInfo], able: Sequence[str], task: TaskId) -> str | None:
    """The member with the most of a task's state; of several, the first by process id."""
    having = [member for member in able if task in members[member].tasks]
    return max(having, key=lambda member: _progress(members[member], task), default=None)


def _has_other_state(
    members: Mapping[str, MemberInfo], able: Sequence[str], holder: str, task: TaskId
) -> bool:
    return any(task in members[member].tasks for member in able if member != holder)


# --- standbys --------------------------------------------------------------------------------------------


def _place_standbys(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    ids: Sequence[TaskId],
    active: Mapping[str, Collection[TaskId]],
    replicas: int,
) -> dict[str, set[TaskId]]:
    """Place as many standbys of each task as wanted and possible, never where it is active; then even out."""
    wanted = min(replicas, len(able) - 1)
    owner = {task: member for member in able for task in active[member]}
    placed: dict[str, set[TaskId]] = {member: set() for member in able}
    if wanted <= 0:
        return placed
    threads = {member: members[member].threads for member in able}
    short: dict[TaskId, int] = {}
    for task in ids:
        having = [member for member in able if task in members[member].tasks and member != owner[task]]
        having.sort(key=lambda member: -_progress(members[member], task))
        for member in having[:wanted]:
            placed[member].add(task)
        short[task] = wanted - len(having[:wanted])
    for task in ids:
        for _ in range(short[task]):
            free = [member for member in able if member != owner[task] and task not in placed[member]]
            chosen = min(
                free,
                key=lambda member: (
                    (len(placed[member]) + 1) / threads[member],
                    (len(placed[member]) + len(active[member]) + 1) / threads[member],
                ),
            )
            placed[chosen].add(task)
    _even_out(members, able, owner, placed, threads)
    return placed


def _even_out(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    owner: Mapping[TaskId, str],
    placed: Mapping[str, set[TaskId]],
    threads: Mapping[str, int],
) -> None:
    """Move standbys, one at a time, from members with many to members with few, while that improves balance.

    Terminates, because each move lowers the sum over members of standbys squared divided by threads.
    """
    movable = _Movable(members, owner, placed)

    def load(member: str) -> float:
        return len(placed[member]) / threads[member]

    def move_one() -> bool:
        takers = sorted(able, key=load)
        for giver in sorted(able, key=load, reverse=True):
            for taker in takers:
                lowers = (2 * len(placed[taker]) + 1) * threads[giver] < (
                    2 * len(placed[giver]) - 1
                ) * threads[taker]
                if not lowers:
                    break
                task = movable.best(giver, taker)
                if task is not None:
                    movable.move(task, giver, taker)
                    return True
        return False

    while move_one():
        pass


class _Movable:
    """Finds the next standby to move from one member to another.

    It has a queue for each pair of members, created on first use: searching all of a member's standbys for
    every single move would take quadratic time.
    """

    def __init__(
        self,
        members: Mapping[str, MemberInfo],
        owner: Mapping[TaskId, str],
        placed: Mapping[str, set[TaskId]],
    ) -> None:
        self._members = members
        self._owner = owner
        self._placed = placed
        self._queues: dict[tuple[str, str], list[tuple[int, int, TaskId]]] = {}

    def best(self, giver: str, taker: str) -> TaskId | None:
        """The task that the taker has most state of, then the one that the giver has least of."""
        queue = self._queues.get((giver, taker))
        if queue is None:
            queue = [self._ranked(task, giver, taker) for task in self._placed[giver]]
            heapify(queue)
            self._queues[giver, taker] = queue
        while queue:
            task = queue[0][2]
            if task in self._placed[giver] and task not in self._placed[taker] and self._owner[task] != taker:
                return task
            heappop(queue)  # `move` puts it back if it fits again
        return None

    def move(self, task: TaskId, giver: str, taker: str) -> None:
        """Move a task, and add it to the queues where it is new."""
        self._placed[giver].remove(task)
        self._placed[taker].add(task)
        for (from_, to), queue in self._queues.items():
            if from_ == taker or (to == giver and task in self._placed[from_]):
                heappush(queue, self._ranked(task, from_, to))

    def _ranked(self, task: TaskId, giver: str, taker: str) -> tuple[int, int, TaskId]:
        return -_progress(self._members[taker], task), _progress(self._members[giver], task), task


# --- warming up ------------------------------------------------------------------------------------------


def warmed_up_first(
    members: Mapping[str, MemberInfo], work: Mapping[str, Work], program: Program, most: int
) -> tuple[Mapping[str, Work], Mapping[str, tuple[TaskId, ...]]]:
    """The current work: a task that would move from a member where it runs to one that would have to start
    Spark or to restore it stays for now. The other member gets a task with state as a standby, and reports
    that it is up to date once it could run it at once; the next round moves it. Also returns the tasks that
    each member is warming up.

    Args:
        most: the maximum number of such additional standbys at a time; no new one begins above it. One on a
            member that has state of the task, as a client that comes back has, is not new: it has little to
            catch up. 0: tasks move at once, and are restored at their destination.

    Source: KIP-441, HighAvailabilityTaskAssignor.assignTaskMovements. Differs: balance does not wait for the
    next probing rebalance: a member reports when it has warmed up. If a task has standbys anyway, its
    destination is one of them, at no extra cost.
    """
    if not most:
        return work, {}
    able = [member for member in by_process(members) if member in work]
    holder = _first_claimant(able, {member: _kept_by(members[member]) for member in able})
    moves = [
        (task, holder[task], taker)
        for taker in able
        for task in work[taker].active
        if holder.get(task, taker) != taker
        and task in members[holder[task]].up_to_date
        and task not in members[taker].up_to_date
        and members[holder[task]].threads
    ]
    stateful = frozenset(program.stateful)
    # Tasks that are already warming up, or have state at their destination, come before others.
    moves.sort(key=lambda move: (move[0] not in members[move[2]].tasks, move))
    active = {member: set(work[member].active) for member in able}
    standby = {member: set(work[member].standby) for member in able}
    warming: dict[str, list[TaskId]] = {}
    for task, giver, taker in moves:
        active[taker].remove(task)
        active[giver].add(task)
        if task not in stateful:
            warming.setdefault(taker, []).append(task)
            continue
        if task in standby[giver]:
            standby[giver].remove(task)
        elif most > 0 or task in members[taker].tasks:
            most -= 1
        else:
            continue
        standby[taker].add(task)
        warming.setdefault(taker, []).append(task)
    now = {member: Work(tuple(sorted(active[member])), tuple(sorted(standby[member]))) for member in work}
    return now, {member: tuple(sorted(tasks)) for member, tasks in warming.items()}
