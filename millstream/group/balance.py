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
5. The standbys of a task, and the task itself, are where the tags of clients differ, as far as there are such
   clients (KIP-708).
6. If racks count, tasks and standbys then change places within the limits of 2. and 5., as far as less is
   read from other racks for it (`racks`, KIP-925). More tasks move for it than balance needs.

Without tags and racks, the time it takes is about linear in the number of tasks. Everything is sorted first,
so the order of the input does not matter: two leaders that see the same members decide the same. (Loads are
compared as floats: for numbers this small, quotients are equal exactly when the fractions are.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from typing import Any, Protocol, TypeVar

from millstream.group.racks import Costs, RackRules, TaskRacks, cheapest, exchanged
from millstream.group.userdata import MemberInfo, Program
from millstream.group.userdata_layout import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.model import TaskId

__all__ = ["Racks", "Work", "balance", "by_process", "warmed_up_first"]


class _Sortable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


T = TypeVar("T")
Item = TypeVar("Item", bound=_Sortable)


@dataclass(frozen=True)
class Work:
    """What one member gets; each part is sorted.

    Attributes:
        kept_for: tasks that nobody runs, and that are up to date here, but are to be another member's because
            of its rack.
    """

    active: tuple[TaskId, ...] = ()
    standby: tuple[TaskId, ...] = ()
    kept_for: tuple[TaskId, ...] = ()


@dataclass(frozen=True)
class Racks:
    """What it takes to count racks: all members that get work have one."""

    rules: RackRules
    where: TaskRacks


def balance(
    members: Mapping[str, MemberInfo],
    program: Program,
    tags: Sequence[str] = (),
    racks: Racks | None = None,
) -> Mapping[str, Work]:
    """The work of each member, by member id.

    With no thread in the whole group nothing is assigned. `tags`: the names of those that keep standbys
    apart. `racks`: None: racks do not count.
    """
    able = [member for member in by_process(members) if members[member].threads > 0]
    ids = sorted(set(program.tasks))
    if not able:
        return {member: Work() for member in members}
    stateful = set(program.stateful).intersection(ids)
    keeping = {member: _without_stopping(info, stateful) for member, info in members.items()}
    # As in Kafka Streams, those with state are distributed evenly on their own, as they are most of the work.
    none_yet = dict.fromkeys(able, 0)
    first = active = _place_tasks(keeping, able, sorted(stateful), none_yet)
    if racks is not None:
        active = _by_racks(keeping, able, first, none_yet, racks, racks.rules.stateful)
    busy = {member: len(active[member]) for member in able}
    others = _place_tasks(keeping, able, sorted({*ids} - stateful), busy)
    if racks is not None:
        others = _by_racks(keeping, able, others, busy, racks, racks.rules.stateless)
    kept_for = _kept_for(keeping, able, first, active) if racks is not None else {}
    active = {member: active[member] + others[member] for member in able}
    apart = _Apart(members, able, tags)
    standby = _place_standbys(members, able, sorted(stateful), active, program.standby_replicas, apart, racks)
    return {
        member: Work(
            tuple(sorted(active.get(member, ()))),
            tuple(sorted(standby.get(member, ()))),
            kept_for.get(member, ()),
        )
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
    having = _having(members, able)
    heir = {task: _furthest(members, having.get(task, ()), task) for task in ids if task not in holder}
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
            key=lambda task: (having.get(task) not in (None, [member]), rank[task], task),
        )
        kept[member] = ordered[: places[member]]
    open_ids = []
    for task in _without(ids, kept):
        able_to = [member for member in having.get(task, ()) if len(kept[member]) < places[member]]
        best = _furthest(members, able_to, task)
        if best is not None:
            kept[best].append(task)
        else:
            open_ids.append(task)
    of_kind: dict[tuple[str, int], int] = {}
    for member in able:
        for task in kept[member]:
            of_kind[member, task.subtopology] = of_kind.get((member, task.subtopology), 0) + 1
    for subtopology, open_tasks in _by_subtopology(open_ids):
        # The tasks of one subtopology are spread: they tend to be busy at the same time.
        def load(member: str, subtopology: int = subtopology) -> tuple[float, ...]:
            return (
                of_kind.get((member, subtopology), 0) / threads[member],
                (len(kept[member]) - places[member]) / threads[member],
                not members[member].warm,
            )

        free = _Least([member for member in able if len(kept[member]) < places[member]], load)
        for task in open_tasks:
            chosen = free.take()
            assert chosen is not None
            kept[chosen].append(task)
            of_kind[chosen, subtopology] = of_kind.get((chosen, subtopology), 0) + 1
            if len(kept[chosen]) < places[chosen]:
                free.put(chosen)
    return kept


def _by_racks(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    placed: Mapping[str, Sequence[TaskId]],
    busy: Mapping[str, int],
    racks: Racks,
    costs: Costs,
) -> dict[str, list[TaskId]]:
    """The same tasks, placed with the least costs. `busy`: how many others each member has."""
    threads = {member: members[member].threads for member in able}
    things = sum(len(placed[member]) + busy[member] for member in able)
    quotient, left = divmod(things, sum(threads.values()))
    ready: dict[TaskId, dict[str, int]] = {}
    for member in able:
        for task in members[member].tasks.keys() | members[member].up_to_date:
            ready.setdefault(task, {})[member] = 1 + (task not in members[member].up_to_date)
    home: dict[TaskId, str | None] = {
        **{task: None for member in able for task in placed[member] if task in members[member].stopping},
        **_first_claimant(able, {member: members[member].active_tasks for member in able}),
    }

    return cheapest(
        placed,
        home=home,
        rack={member: members[member].rack for member in able},
        partitions=racks.where.read,
        costs=costs,
        limits={
            member: (
                max(0, quotient * threads[member] - busy[member]),
                (quotient + bool(left)) * threads[member] - busy[member],
            )
            for member in able
        },
        spreads=racks.rules.spreads,
        readiness=ready,
    )


def _kept_for(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    first: Mapping[str, Sequence[TaskId]],
    active: Mapping[str, Sequence[TaskId]],
) -> dict[str, tuple[TaskId, ...]]:
    """The tasks without a holder that are up to date at the member that balance alone would give them to."""
    held = set().union(*(members[member].active_tasks for member in able))
    return {
        member: tuple(
            task
            for task in sorted({*first[member]} - {*active[member]} - held)
            if task in members[member].up_to_date
        )
        for member in able
    }


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

    def give(wanting: Callable[[str], bool], order: Callable[[str], tuple[float, ...]]) -> None:
        nonlocal left
        least = _Least(
            [member for member in able if extra[member] < threads[member] and wanting(member)], order
        )
        while left and (chosen := least.take()) is not None:
            extra[chosen] += 1
            left -= 1
            if extra[chosen] < threads[chosen] and wanting(chosen):
                least.put(chosen)

    for want in wants:
        give(
            lambda member, want=want: quotient * threads[member] + extra[member] < want[member],  # type: ignore[misc]
            lambda member: (extra[member] / threads[member],),
        )
    give(
        lambda member: True,
        lambda member: (extra[member] / threads[member], *prefers(member), -threads[member]),
    )
    return {member: quotient * threads[member] + extra[member] for member in able}


class _Least:
    """Members in the order of a load, which changes only for those that are not in it; then in their own."""

    def __init__(self, members: Sequence[str], load: Callable[[str], tuple[float, ...]]) -> None:
        self._load = load
        self._place = {member: number for number, member in enumerate(members)}
        self._heap = [(load(member), place, member) for member, place in self._place.items()]
        heapify(self._heap)

    def take(self, fits: Callable[[str], bool] = lambda member: True) -> str | None:
        """The first one that fits, which is then not in it; None: there is none."""
        passed = []
        found = None
        while self._heap and found is None:
            entry = heappop(self._heap)
            if fits(entry[2]):
                found = entry[2]
            else:
                passed.append(entry)
        for entry in passed:
            heappush(self._heap, entry)
        return found

    def put(self, member: str) -> None:
        heappush(self._heap, (self._load(member), self._place[member], member))


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


def _having(members: Mapping[str, MemberInfo], able: Sequence[str]) -> dict[TaskId, list[str]]:
    """The members with state of each task, in their order."""
    having: dict[TaskId, list[str]] = {}
    for member in able:
        for task in members[member].tasks:
            having.setdefault(task, []).append(member)
    return having


def _furthest(members: Mapping[str, MemberInfo], having: Iterable[str], task: TaskId) -> str | None:
    """The member with the most of a task's state; of several, the first."""
    return max(having, key=lambda member: _progress(members[member], task), default=None)


# --- standbys --------------------------------------------------------------------------------------------


def _place_standbys(
    members: Mapping[str, MemberInfo],
    able: Sequence[str],
    ids: Sequence[TaskId],
    active: Mapping[str, Collection[TaskId]],
    replicas: int,
    apart: _Apart,
    racks: Racks | None = None,
) -> dict[str, set[TaskId]]:
    """Place as many standbys of each task as wanted and possible, never where it is active; then even out,
    and exchange those that cost less elsewhere.

    Those that tags keep apart come first; where there are too few such clients, the others do.
    """
    wanted = min(replicas, len(able) - 1)
    owner = {task: member for member in able for task in active[member]}
    placed: dict[str, set[TaskId]] = {member: set() for member in able}
    if wanted <= 0:
        return placed
    threads = {member: members[member].threads for member in able}
    having = _having(members, able)
    places = {task: [owner[task]] for task in ids}
    """Where each task is, or is to be: first as an active one."""

    def place(task: TaskId, member: str) -> None:
        placed[member].add(task)
        places[task].append(member)

    def load(member: str) -> tuple[float, ...]:
        standbys = len(placed[member]) + 1
        return standbys / threads[member], (standbys + len(active[member])) / threads[member]

    for are_apart in (True, False) if apart.is_used else (False,):
        for task in ids:
            found = sorted(having.get(task, ()), key=lambda member: -_progress(members[member], task))
            for member in found:
                is_open = len(places[task]) <= wanted and member not in places[task]
                if is_open and not (are_apart and apart.collides(member, places[task])):
                    place(task, member)
        least = _Least(able, load)
        for task in ids:
            while len(places[task]) <= wanted:
                chosen = least.take(
                    lambda member, at=places[task], apart_=are_apart: (  # type: ignore[misc]
                        member not in at and not (apart_ and apart.collides(member, at))
                    )
                )
                if chosen is None:
                    break
                place(task, chosen)
                least.put(chosen)
    _even_out(able, placed, threads, _Movable(members, owner, placed, apart, places))
    if racks is not None:
        movable = _Movable(members, owner, placed, apart, places)  # without queues, which moves would cost
        exchanged(
            placed,
            rack={member: members[member].rack for member in able},
            partitions=racks.where.kept,
            costs=racks.rules.stateful,
            has=lambda member, task: task in members[member].tasks,
            may_move=movable.fits,
            move=movable.move,
        )
    return placed


class _Apart:
    """Which clients have tags in common, so that one failure may take them all (KIP-708).

    A tag that has no more values than there are copies of a task cannot keep the next one apart, and counts
    for nothing. Source: ClientTagAwareStandbyTaskAssignor.
    """

    def __init__(self, members: Mapping[str, MemberInfo], able: Sequence[str], tags: Sequence[str]) -> None:
        self._members = members
        self._counts = {tag: len({members[member].tags.get(tag) for member in able} - {None}) for tag in tags}

    @property
    def is_used(self) -> bool:
        return bool(self._counts)

    def draws_together(self, others: Collection[str], giver: str, taker: str) -> bool:
        """Whether copies have fewer values of a tag if one of them moves."""
        return any(
            len({self._members[member].tags.get(tag) for member in (*others, taker)})
            < len({self._members[member].tags.get(tag) for member in (*others, giver)})
            for tag in self._counts
        )

    def collides(self, member: str, others: Collection[str]) -> bool:
        """Whether it has a tag in common with one of others."""
        own = self._members[member].tags
        return any(
            own.get(tag) is not None and own[tag] == self._members[other].tags.get(tag)
            for tag, count in self._counts.items()
            if count > len(others)
            for other in others
        )


def _even_out(
    able: Sequence[str],
    placed: Mapping[str, set[TaskId]],
    threads: Mapping[str, int],
    movable: _Movable,
) -> None:
    """Move standbys, one at a time, from members with many to members with few, while that improves balance.

    Terminates, because each move lowers the sum over members of standbys squared divided by threads.
    """

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
        apart: _Apart,
        places: Mapping[TaskId, list[str]],
    ) -> None:
        self._members = members
        self._owner = owner
        self._placed = placed
        self._apart = apart
        self._places = places
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
            if task in self._placed[giver] and self.fits(task, giver, taker):
                return task
            heappop(queue)  # `move` puts it back if it fits again
        return None

    def fits(self, task: TaskId, giver: str, taker: str) -> bool:
        """Whether a giver's standby may be the taker's."""
        is_free = task not in self._placed[taker] and self._owner[task] != taker
        return is_free and not self._draws_together(task, giver, taker)

    def _draws_together(self, task: TaskId, giver: str, taker: str) -> bool:
        if not self._apart.is_used:
            return False
        others = [member for member in self._places[task] if member != giver]
        return self._apart.draws_together(others, giver, taker)

    def move(self, task: TaskId, giver: str, taker: str) -> None:
        """Move a task, and add it to the queues where it is new."""
        self._placed[giver].remove(task)
        self._placed[taker].add(task)
        self._places[task].remove(giver)
        self._places[task].append(taker)
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
    # Nothing stays with a member without threads, so of several claimants it is not the holder.
    claims = {member: _kept_by(members[member]) for member in able if members[member].threads}
    holder = _first_claimant(list(claims), claims)
    for member in able:
        # No balance needs what moves to another rack, so it does not have to be restored before it can run.
        holder |= {task: member for task in work[member].kept_for if task not in holder}
    moves = [
        (task, holder[task], taker)
        for taker in able
        for task in work[taker].active
        if holder.get(task, taker) != taker
        and task in members[holder[task]].up_to_date
        and task not in members[taker].up_to_date
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
