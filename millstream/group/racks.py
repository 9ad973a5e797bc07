"""Which client has which task, so that the fewest partitions are read from another rack (KIP-925). Pure.

`balance` says first where each task goes. Then tasks change places as far as that costs less:

- `traffic_cost` for each partition that a task reads and that has no replica in its client's rack;
- `non_overlap_cost` for each task that leaves the client that has it.

Balance stays: how many tasks each client has is between two limits. Within them the sum is the smallest there
is; of equal ones, the one in which the fewest tasks move. So a group that has done as it was told is left
alone, and one that is on its way goes on: each task that has moved makes what is left cheaper, by as much as
the move costs.

A minimum-cost flow finds it. Tasks that cost the same everywhere are one node, and so are the clients of one
rack: a large group has thousands of tasks, but few racks.

A standby must not be where another copy of its task is, so standbys are exchanged between two clients at a
time.

Source: KIP-925, RackAwareTaskAssignor, MinTrafficGraphConstructor, BalanceSubtopologyGraphConstructor.
Differs: moving is measured from where tasks are, and not from a distribution without a memory; and where
balance allows it, a client may get one task more or less for each thread. So the result stays the same while
tasks move one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from millstream.group.cheapest_flow import CheapestFlow
from millstream.model import TaskId

__all__ = [
    "BALANCE_SUBTOPOLOGY",
    "MIN_TRAFFIC",
    "NONE",
    "Costs",
    "RackRules",
    "TaskRacks",
    "cheapest",
    "crossings",
    "exchanged",
]

NONE = "none"
MIN_TRAFFIC = "min_traffic"
BALANCE_SUBTOPOLOGY = "balance_subtopology"

_MOST_PAIRS = 10_000

PartitionRacks = tuple[frozenset[str], ...]


@dataclass(frozen=True)
class Costs:
    """What it costs to read a partition from another rack, and to move a task."""

    traffic: int
    non_overlap: int


@dataclass(frozen=True)
class RackRules:
    """The configuration: `rack.aware.assignment.…`.

    Attributes:
        strategy: NONE, MIN_TRAFFIC or BALANCE_SUBTOPOLOGY.
        stateful: the costs of tasks with state, and of standbys.
        stateless: those of tasks without, which are free to move.

    Source: HighAvailabilityTaskAssignor.DEFAULT_HIGH_AVAILABILITY_TRAFFIC_COST,
        RackAwareTaskAssignor.STATELESS_TRAFFIC_COST.
    """

    strategy: str = NONE
    stateful: Costs = Costs(traffic=10, non_overlap=1)
    stateless: Costs = Costs(traffic=1, non_overlap=0)

    @classmethod
    def of(cls, strategy: str, traffic_cost: int | None, non_overlap_cost: int | None) -> RackRules:
        """The rules with these costs of tasks with state; None: the default."""
        usual = cls.stateful
        return cls(
            strategy.lower(),
            Costs(
                usual.traffic if traffic_cost is None else traffic_cost,
                usual.non_overlap if non_overlap_cost is None else non_overlap_cost,
            ),
        )

    @property
    def is_used(self) -> bool:
        """Whether racks count."""
        return self.strategy != NONE

    @property
    def spreads(self) -> bool:
        """Whether each subtopology's tasks are spread over the clients, too."""
        return self.strategy == BALANCE_SUBTOPOLOGY


@dataclass(frozen=True)
class TaskRacks:
    """The racks in which each partition of a task has replicas.

    Attributes:
        read: of the source and repartition topics.
        kept: of the changelogs.
    """

    read: Mapping[TaskId, PartitionRacks] = field(default_factory=dict)
    kept: Mapping[TaskId, PartitionRacks] = field(default_factory=dict)


def crossings(partitions: PartitionRacks, rack: str) -> int:
    """How many partitions have no replica in a rack."""
    return sum(rack not in racks for racks in partitions)


# --- active tasks ----------------------------------------------------------------------------------------

_Kind = tuple[int, tuple[int, ...], str]
"""Tasks that cost the same everywhere: their subtopology, if it counts; what they cost in each rack; and the
member where they stay for nothing, or ""."""


def cheapest(
    placed: Mapping[str, Sequence[TaskId]],
    *,
    home: Mapping[TaskId, str | None],
    rack: Mapping[str, str],
    partitions: Mapping[TaskId, PartitionRacks],
    costs: Costs,
    limits: Mapping[str, tuple[int, int]],
    spreads: bool = False,
    readiness: Mapping[TaskId, Mapping[str, int]] | None = None,
) -> dict[str, list[TaskId]]:
    """Each member's tasks, such that the sum of the costs is the smallest possible. `placed`, if it is.

    Args:
        placed: where balance puts each task, by member.
        home: the member that has each task, where it stays for nothing; without an entry, the one of
            `placed`; None: it has to move anyway.
        rack: of each member.
        partitions: of each task. One that is not in it costs the same everywhere.
        limits: the fewest and the most tasks of each member; `placed` is between them.
        spreads: no member has more of a subtopology than its part of it, rounded up.
        readiness: the members that have something of a task; where costs are equal, the lowest number wins.
    """
    members = list(placed)
    at = {task: member for member in members for task in placed[member]}
    ids = sorted(at)
    racks = sorted({rack[member] for member in members})
    if len(racks) < 2:
        return {member: list(placed[member]) for member in members}
    stays = {task: home.get(task, at[task]) or "" for task in ids}
    kinds: dict[_Kind, list[TaskId]] = {}
    known: dict[PartitionRacks, tuple[int, ...]] = {}
    for task in ids:
        where = partitions.get(task, ())
        if where not in known:
            counts = [crossings(where, each) for each in racks]
            known[where] = tuple(costs.traffic * (count - min(counts)) for count in counts)
        kind = (task.subtopology if spreads else 0, known[where], stays[task])
        kinds.setdefault(kind, []).append(task)
    network = _Network(members, racks, rack, kinds, placed, costs, limits, spreads)
    ready = readiness or {}
    found = _chosen(network, kinds, at, ready)
    gain = network.gain(at)
    if gain is None or gain > 0:
        return found

    def restores(work: Mapping[str, Sequence[TaskId]]) -> int:
        return sum(
            ready.get(task, {}).get(member, _NOTHING)
            for member, tasks in work.items()
            for task in tasks
            if member != stays[task]
        )

    return (
        found if restores(found) < restores(placed) else {member: list(placed[member]) for member in members}
    )


class _Network:
    """The flow of tasks: kinds, then racks, then members.

    Costs have three digits, so to speak, in a base larger than the number of tasks: what counts, then the
    number of moves, then the difference from the numbers that balance gave.
    """

    def __init__(
        self,
        members: Sequence[str],
        racks: Sequence[str],
        rack: Mapping[str, str],
        kinds: Mapping[_Kind, Sequence[TaskId]],
        placed: Mapping[str, Sequence[TaskId]],
        costs: Costs,
        limits: Mapping[str, tuple[int, int]],
        spreads: bool,
    ) -> None:
        self.members, self.rack, self._racks, self._kinds = members, rack, racks, kinds
        self._place = {name: number for number, name in enumerate(racks)}
        self._sizes: dict[int, int] = {}
        for (part, _, _), tasks in kinds.items():
            self._sizes[part] = self._sizes.get(part, 0) + len(tasks)
        self._total = total = sum(self._sizes.values())
        base = total + 1
        self._counted = base * base
        self._move = costs.non_overlap * self._counted + base
        self._spreads, self._limits = spreads, limits
        flow = CheapestFlow()
        source, sink, surplus = flow.node(), flow.node(), flow.node()
        hubs = {(part, name): flow.node() for part in self._sizes for name in racks}
        own = {member: flow.node() for member in members}
        doors = {
            (part, member): flow.node() if spreads else own[member]
            for part in self._sizes
            for member in members
        }
        self._leave: dict[tuple[_Kind, str], int] = {}
        self._enter: dict[tuple[int, str], int] = {}
        for kind, tasks in kinds.items():
            part, prices, stays = kind
            node, count = flow.node(), len(tasks)
            flow.edge(source, node, count, 0)
            if stays:
                price = prices[self._place[rack[stays]]]
                flow.edge(node, doors[part, stays], count, price * self._counted)
            for name, price in zip(racks, prices, strict=True):
                self._leave[kind, name] = flow.edge(
                    node, hubs[part, name], count, price * self._counted + self._move
                )
        for (part, member), door in doors.items():
            self._enter[part, member] = flow.edge(hubs[part, rack[member]], door, total, 0)
            if spreads:
                flow.edge(door, own[member], self._most(part, member), 0)
        for member in members:
            least, most = limits[member]
            count = len(placed[member])
            flow.edge(own[member], sink, least, 0)
            flow.edge(own[member], surplus, count - least, 0)
            flow.edge(own[member], surplus, most - count, 1)
        flow.edge(surplus, sink, total - sum(least for least, _ in limits.values()), 0)
        self._flow = flow
        amount, self._cost = flow.run(source, sink)
        assert amount == total, f"{total - amount} of {total} tasks have no place"

    def _most(self, part: int, member: str) -> int:
        """Source: BalanceSubtopologyGraphConstructor.constructEdges."""
        return -(-self._limits[member][1] * self._sizes[part] // max(self._total, 1))

    def gain(self, at: Mapping[TaskId, str]) -> int | None:
        """How much less it costs than another distribution; None: that one has too much of a subtopology."""
        counts: dict[tuple[int, str], int] = {}
        cost = 0
        for (part, prices, stays), tasks in self._kinds.items():
            for task in tasks:
                member = at[task]
                counts[part, member] = counts.get((part, member), 0) + 1
                cost += prices[self._place[self.rack[member]]] * self._counted
                cost += self._move * (member != stays)
        if self._spreads and any(count > self._most(*where) for where, count in counts.items()):
            return None
        return cost - self._cost

    def leaving(self, kind: _Kind) -> dict[str, int]:
        """How many tasks of a kind leave for each rack."""
        found = {name: self._flow.amount(self._leave[kind, name]) for name in self._racks}
        return {name: amount for name, amount in found.items() if amount}

    def entering(self) -> dict[tuple[int, str], int]:
        """How many tasks that leave others enter each member, by subtopology."""
        found = {where: self._flow.amount(edge) for where, edge in self._enter.items()}
        return {where: amount for where, amount in found.items() if amount}


def _chosen(
    network: _Network,
    kinds: Mapping[_Kind, Sequence[TaskId]],
    at: Mapping[TaskId, str],
    readiness: Mapping[TaskId, Mapping[str, int]],
) -> dict[str, list[TaskId]]:
    """The tasks of each member, one by one: those that leave go where something of them is, if they can."""
    entering = network.entering()
    leaving = {kind: network.leaving(kind) for kind in kinds}
    places = {member: number for number, member in enumerate(network.members)}
    kind_of = {task: kind for kind, going in leaving.items() if going for task in kinds[kind]}
    wishes = []
    for task, (_, _, stays) in kind_of.items():
        there = dict(readiness.get(task, {}))
        there.setdefault(at[task], _WHERE_BALANCE_PUT_IT)
        wishes += [
            (ready, task, places[member])
            for member, ready in there.items()
            if member in places and member != stays
        ]
    new: dict[TaskId, str] = {}
    for _, task, number in sorted(wishes):
        kind, member = kind_of[task], network.members[number]
        going, rack = leaving[kind], network.rack[member]
        if task not in new and going.get(rack) and entering.get((kind[0], member)):
            new[task] = member
            going[rack] -= 1
            entering[kind[0], member] -= 1
    for kind, going in leaving.items():
        left = sorted((at[task] == kind[2], task) for task in kinds[kind] if task not in new)
        for rack in sorted(going):
            for _ in range(going[rack]):
                task = left.pop(0)[1]
                new[task] = next(
                    member
                    for member in network.members
                    if network.rack[member] == rack and entering.get((kind[0], member))
                )
                entering[kind[0], new[task]] -= 1
    found: dict[str, list[TaskId]] = {member: [] for member in network.members}
    for kind, tasks in kinds.items():
        for task in tasks:
            found[new.get(task, kind[2])].append(task)
    return found


_WHERE_BALANCE_PUT_IT, _NOTHING = 3, 4
"""After all that have something of a task."""


# --- standbys --------------------------------------------------------------------------------------------


def exchanged(
    placed: Mapping[str, set[TaskId]],
    *,
    rack: Mapping[str, str],
    partitions: Mapping[TaskId, PartitionRacks],
    costs: Costs,
    has: Callable[[str, TaskId], bool],
    may_move: Callable[[TaskId, str, str], bool],
    move: Callable[[TaskId, str, str], None],
) -> None:
    """Exchange standbys between two members in different racks, one for one, as long as that costs less.

    Terminates, because each exchange lowers the sum of the costs. Of more than some hundred members not all
    pairs are looked at: the leader must answer in time.

    Args:
        placed: the standbys of each member; `move` changes it.
        partitions: of the changelogs of each task.
        has: whether a member has state of a task already.
        may_move: whether a standby may go from one member to another.

    Source: RackAwareTaskAssignor.optimizeStandbyTasks. Differs: it goes on until nothing gets cheaper.
    """
    price: dict[tuple[TaskId, str], int] = {}
    names = sorted(set(rack.values()))
    for name in names:
        for tasks in placed.values():
            for task in tasks:
                price[task, name] = costs.traffic * crossings(partitions.get(task, ()), name)

    def gain(task: TaskId, giver: str, taker: str) -> int:
        moving = (not has(taker, task)) - (not has(giver, task))
        return price[task, rack[giver]] - price[task, rack[taker]] - costs.non_overlap * moving

    hopes: dict[tuple[str, str], list[tuple[int, TaskId]]] = {}
    """A member's standbys, by the most that there can be to gain if each leaves for a rack."""

    def hopeful(giver: str, taker: str) -> list[tuple[int, TaskId]]:
        key = giver, rack[taker]
        if key not in hopes:
            away = ((price[task, rack[giver]] - price[task, rack[taker]], task) for task in placed[giver])
            hopes[key] = sorted(
                (-gained - costs.non_overlap * (not has(giver, task)), task) for gained, task in away
            )
        return hopes[key]

    def ranked(giver: str, taker: str) -> list[tuple[int, TaskId]]:
        """The standbys that may go, by what is lost; only those that another exchange can make up for."""
        most = hopeful(taker, giver)[0][0]
        found = []
        for loss, task in hopeful(giver, taker):
            if loss + most >= 0:
                break
            lost = -gain(task, giver, taker)
            if lost + most < 0 and may_move(task, giver, taker):
                found.append((lost, task))
        return sorted(found)

    has_changed = True
    while has_changed:
        has_changed = False
        for one, other in islice(combinations(placed, 2), _MOST_PAIRS):
            if rack[one] == rack[other] or not placed[one] or not placed[other]:
                continue
            pairs = zip(ranked(one, other), ranked(other, one), strict=False)  # both before anything moves
            for (loss, there), (other_loss, back) in pairs:
                if loss + other_loss >= 0:
                    break
                move(there, one, other)
                move(back, other, one)
                has_changed = True
                for name in names:
                    hopes.pop((one, name), None)
                    hopes.pop((other, name), None)
