"""Tasks read little from other racks, balance stays, and nothing goes back and forth (KIP-925)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.group.balance import Racks, Work, balance, warmed_up_first
from millstream.group.racks import (
    BALANCE_SUBTOPOLOGY,
    MIN_TRAFFIC,
    NONE,
    Costs,
    RackRules,
    TaskRacks,
    cheapest,
    crossings,
)
from millstream.group.userdata import MemberInfo, Program
from millstream.group.userdata_layout import LATEST_OFFSET
from millstream.model import TaskId

RACKS = ("r0", "r1", "r2")
Members = Mapping[str, MemberInfo]
Replicas = Mapping[TaskId, tuple[frozenset[str], ...]]


def client(number: int, rack: int, threads: int = 1, *tasks: TaskId) -> MemberInfo:
    """A client in a rack that runs these tasks."""
    return replace(
        MemberInfo(UUID(int=number + 1), f"app-{number}", threads, rack=RACKS[rack], warm=True),
        running=frozenset(tasks),
        tasks=dict.fromkeys(tasks, LATEST_OFFSET),
        up_to_date=frozenset(tasks),
    )


def tasks_of(*counts: int) -> tuple[TaskId, ...]:
    """So many tasks of each subtopology."""
    return tuple(TaskId(number, each) for number, count in enumerate(counts) for each in range(count))


def at(*racks: int) -> frozenset[str]:
    """A partition with replicas in these racks."""
    return frozenset(RACKS[each] for each in racks)


def by_racks(
    read: Replicas, kept: Replicas | None = None, strategy: str = MIN_TRAFFIC, **costs: int | None
) -> Racks:
    rules = RackRules.of(strategy, costs.get("traffic"), costs.get("non_overlap"))
    return Racks(rules, TaskRacks(read, kept or {}))


def read_from_afar(members: Members, work: Mapping[str, Work], read: Replicas) -> int:
    """How many partitions are read from another rack."""
    return sum(
        crossings(read[task], members[name].rack) for name, each in work.items() for task in each.active
    )


def after(members: Members, work: Mapping[str, Work]) -> dict[str, MemberInfo]:
    """The same members, when they have done as they were told."""
    return {
        name: replace(
            info,
            running=frozenset(work[name].active),
            tasks={
                **dict.fromkeys(work[name].standby, 5),
                **dict.fromkeys(work[name].active, LATEST_OFFSET),
            },
            up_to_date=frozenset(work[name].active + work[name].standby),
        )
        for name, info in members.items()
    }


# --- stories ---------------------------------------------------------------------------------------------


def test_each_task_is_where_its_partition_is() -> None:
    """As in RackAwareTaskAssignorTest.shouldOptimizeActiveTasks: two clients that read everything from the
    other's rack change places."""
    tasks = tasks_of(4)
    read = {task: (at(task.partition % 2),) for task in tasks}
    members = {"a": client(0, 0, 1, tasks[1], tasks[3]), "b": client(1, 1, 1, tasks[0], tasks[2])}
    work = balance(members, Program(tasks, tasks), (), by_racks(read))
    assert work["a"].active == (tasks[0], tasks[2])
    assert work["b"].active == (tasks[1], tasks[3])


def test_a_task_that_costs_the_same_everywhere_stays() -> None:
    """A partition with a replica in each rack, or without one in any of them, moves no task."""
    tasks = tasks_of(2)
    members = {"a": client(0, 0, 1, tasks[1]), "b": client(1, 1, 1, tasks[0])}
    for read in ({task: (at(0, 1),) for task in tasks}, {task: (at(2),) for task in tasks}, {}):
        assert balance(members, Program(tasks, tasks), (), by_racks(read)) == balance(
            members, Program(tasks, tasks)
        )


@pytest.mark.parametrize(("non_overlap", "moves"), [(None, True), (9, True), (10, False), (100, False)])
def test_what_moving_costs_is_set_against_the_traffic(non_overlap: int | None, moves: bool) -> None:
    """Of two tasks that change places, each saves 10 by default."""
    tasks = tasks_of(2)
    read = {task: (at(task.partition),) for task in tasks}
    members = {"a": client(0, 0, 1, tasks[1]), "b": client(1, 1, 1, tasks[0])}
    work = balance(members, Program(tasks, tasks), (), by_racks(read, non_overlap=non_overlap))
    assert (work["a"].active == (tasks[0],)) is moves


def test_tasks_without_state_move_for_any_gain() -> None:
    """They have nothing to restore. As in Kafka Streams, the configured costs are not theirs."""
    tasks = tasks_of(2)
    read = {task: (at(task.partition),) for task in tasks}
    members = {"a": client(0, 0, 1, tasks[1]), "b": client(1, 1, 1, tasks[0])}
    work = balance(members, Program(tasks, ()), (), by_racks(read, non_overlap=100))
    assert work["a"].active == (tasks[0],)


def test_nothing_is_worth_more_than_balance() -> None:
    """All partitions are in one rack, and the client of the other still gets its half."""
    tasks = tasks_of(6)
    read = {task: (at(0),) for task in tasks}
    work = balance({"a": client(0, 0), "b": client(1, 1)}, Program(tasks, tasks), (), by_racks(read))
    assert [len(work[name].active) for name in "ab"] == [3, 3]


def test_all_partitions_of_a_task_count() -> None:
    """A join reads two; the task goes where more of them are."""
    tasks = tasks_of(2)
    read = {tasks[0]: (at(1), at(1), at(0)), tasks[1]: (at(1), at(0), at(0))}
    work = balance({"a": client(0, 0), "b": client(1, 1)}, Program(tasks, tasks), (), by_racks(read))
    assert (work["a"].active, work["b"].active) == ((tasks[1],), (tasks[0],))


def test_a_subtopologys_tasks_are_spread_if_that_is_asked_for() -> None:
    """As in RackAwareTaskAssignorTest: the least traffic would put each subtopology into one rack."""
    tasks = tasks_of(4, 4)
    read = {task: (at(task.subtopology),) for task in tasks}
    members = {"a": client(0, 0), "b": client(1, 1)}
    for strategy, counts in ((MIN_TRAFFIC, [4, 0]), (BALANCE_SUBTOPOLOGY, [2, 2])):
        work = balance(members, Program(tasks, tasks), (), by_racks(read, strategy=strategy))
        of_first = [sum(task.subtopology == 0 for task in work[name].active) for name in "ab"]
        assert of_first == counts


@pytest.mark.parametrize("copied", [0, 1])
def test_of_equal_tasks_the_one_leaves_of_which_there_is_a_copy(copied: int) -> None:
    """It has the least to restore."""
    tasks = tasks_of(4)
    racks_of_partitions = (1, 1, 0, 1)
    members = {
        "a": client(0, 0, 1, *tasks[:2]),
        "b": replace(client(1, 1), tasks={**dict.fromkeys(tasks[2:], LATEST_OFFSET), tasks[copied]: 5}),
    }
    read = {task: (at(racks_of_partitions[task.partition]),) for task in tasks}
    work = balance(members, Program(tasks, tasks), (), by_racks(read))
    assert work["b"].active == (tasks[copied], tasks[3])


def test_a_standby_runs_the_task_until_it_is_warm_in_its_rack() -> None:
    """The task's client has left. What its rack saves is no reason to wait for a restore."""
    (task,) = tasks = tasks_of(1)
    stand_in = replace(client(1, 1), tasks={task: 5}, up_to_date=frozenset(tasks))
    members = {"a": client(0, 0), "b": stand_in}
    program = Program(tasks, tasks)
    racks = by_racks({task: (at(0),)})
    work, warming = warmed_up_first(members, balance(members, program, (), racks), program, 2)
    assert (work["b"].active, work["a"].standby) == (tasks, tasks)
    assert warming == {"a": tasks}
    members = {
        "a": replace(members["a"], tasks={task: 5}, up_to_date=frozenset(tasks)),
        "b": client(1, 1, 1, task),
    }
    work, _ = warmed_up_first(members, balance(members, program, (), racks), program, 2)
    assert work["a"].active == tasks


def test_standbys_are_where_the_changelog_is() -> None:
    """And never beside their task; as many as before."""
    tasks = tasks_of(4)
    read = {task: (at(0, 1, 2),) for task in tasks}
    kept = {task: (at(1 + task.partition % 2),) for task in tasks}
    members = {
        "a": client(0, 0, 2, *tasks),
        "b": replace(client(1, 1, 2), tasks=dict.fromkeys(tasks[1::2], 5)),
        "c": replace(client(2, 2, 2), tasks=dict.fromkeys(tasks[::2], 5)),
    }
    # Of six threads, the first client keeps two tasks only if it has to.
    program = Program(tasks, tasks, 1)
    racks = by_racks(read, kept)
    work = balance(members, program, (), racks)
    plain = balance(members, program)
    assert [len(each.standby) for each in work.values()] == [len(each.standby) for each in plain.values()]
    assert far(members, work, kept) < far(members, plain, kept)
    assert all(not set(each.active) & set(each.standby) for each in work.values())


def test_tags_outrank_racks() -> None:
    """A standby in the task's zone would read its changelog from its own rack."""
    (task,) = tasks = tasks_of(1)
    other = TaskId(0, 1)
    members = {
        "a": replace(client(0, 0, 1, task), tags={"zone": "1"}),
        "b": replace(client(1, 0, 1, other), tags={"zone": "1"}),
        "c": replace(client(2, 1), tags={"zone": "2"}),
        "d": replace(client(3, 1), tags={"zone": "2"}),
    }
    every = (*tasks, other)
    kept = dict.fromkeys(every, (at(0),))
    work = balance(members, Program(every, every, 1), ("zone",), by_racks({}, kept))
    assert not any(work[name].standby for name in "ab")


def far(members: Members, work: Mapping[str, Work], kept: Replicas) -> int:
    """How many changelogs standbys read from another rack."""
    return sum(
        crossings(kept[task], members[name].rack) for name, each in work.items() for task in each.standby
    )


def test_the_defaults_are_those_of_the_high_availability_assignor() -> None:
    """10 and 1; and 1 and 0 for tasks without state, whatever is configured."""
    assert RackRules.of(MIN_TRAFFIC, None, None).stateful == Costs(10, 1)
    assert RackRules.of("MIN_TRAFFIC", 3, 0) == RackRules(MIN_TRAFFIC, Costs(3, 0))
    assert RackRules.of(MIN_TRAFFIC, 3, 5).stateless == Costs(1, 0)
    assert not RackRules.of(NONE, None, None).is_used


# --- the cheapest there is -------------------------------------------------------------------------------


@st.composite
def small(draw: st.DrawFn) -> dict[str, Any]:
    """A few members in racks, with a few tasks, some of which are with another member than balance says."""
    names = [f"m{number}" for number in range(draw(st.integers(2, 3)))]
    tasks = tasks_of(draw(st.integers(1, 3)), draw(st.integers(0, 3)))
    placed: dict[str, list[TaskId]] = {name: [] for name in names}
    for task in tasks:
        placed[draw(st.sampled_from(names))].append(task)
    homes = {task: draw(st.sampled_from([None, *names])) for task in tasks}
    slack = st.integers(0, 1)
    replicas = st.lists(st.frozensets(st.sampled_from(RACKS), min_size=1), max_size=3).map(tuple)
    return {
        "placed": placed,
        "home": {task: name for task, name in homes.items() if name is not None},
        "rack": {name: draw(st.sampled_from(RACKS)) for name in names},
        "partitions": {task: draw(replicas) for task in tasks},
        "costs": Costs(draw(st.integers(0, 10)), draw(st.integers(0, 10))),
        "limits": {
            name: (max(0, len(placed[name]) - draw(slack)), len(placed[name]) + draw(slack)) for name in names
        },
    }


def price(found: Mapping[str, Sequence[TaskId]], case: Mapping[str, Any]) -> int:
    """What a distribution costs."""
    first = {task: name for name, tasks in case["placed"].items() for task in tasks}
    homes = {**first, **case["home"]}
    costs = case["costs"]
    return sum(
        costs.traffic * crossings(case["partitions"][task], case["rack"][name])
        + costs.non_overlap * (homes[task] != name)
        for name, tasks in found.items()
        for task in tasks
    )


def allowed(found: Mapping[str, Sequence[TaskId]], case: Mapping[str, Any]) -> bool:
    """Whether each member has as many tasks as it may."""
    return all(least <= len(found[name]) <= most for name, (least, most) in case["limits"].items())


@given(small())
def test_no_other_distribution_costs_less(case: dict[str, Any]) -> None:
    """All are tried."""
    found = cheapest(**case)
    tasks = sorted(task for each in case["placed"].values() for task in each)
    assert sorted(task for each in found.values() for task in each) == tasks
    assert allowed(found, case)
    names = list(case["placed"])
    every = [
        {name: [task for task, to in zip(tasks, chosen, strict=True) if to == name] for name in names}
        for chosen in product(names, repeat=len(tasks))
    ]
    if len({case["rack"][name] for name in names}) > 1:
        assert price(found, case) == min(price(each, case) for each in every if allowed(each, case))
    if price(found, case) == price(case["placed"], case) and not case["home"]:
        assert found == case["placed"]


# --- whole groups ----------------------------------------------------------------------------------------


@st.composite
def groups(draw: st.DrawFn) -> tuple[Members, Program, Racks]:
    """Members in racks that run some of the tasks, of which some have state."""
    stateful, stateless = tasks_of(draw(st.integers(0, 6)), draw(st.integers(0, 6))), without_state(draw)
    tasks = (*stateful, *stateless)
    count = draw(st.integers(2, 4))
    held: dict[int, list[TaskId]] = {number: [] for number in range(-1, count)}
    for task in tasks:
        held[draw(st.integers(-1, count - 1))].append(task)
    members = {
        f"m{number}": client(number, draw(st.integers(0, 2)), draw(st.integers(1, 2)), *held[number])
        for number in range(count)
    }
    replicas = st.lists(st.frozensets(st.sampled_from(RACKS), min_size=1), min_size=1, max_size=2).map(tuple)
    racks = by_racks(
        {task: draw(replicas) for task in tasks},
        {task: draw(replicas) for task in stateful},
        draw(st.sampled_from([MIN_TRAFFIC, BALANCE_SUBTOPOLOGY])),
        traffic=draw(st.sampled_from([None, 0, 3])),
        non_overlap=draw(st.sampled_from([None, 0, 3])),
    )
    return members, Program(tasks, stateful, draw(st.integers(0, 2))), racks


def without_state(draw: st.DrawFn) -> tuple[TaskId, ...]:
    return tuple(TaskId(7, number) for number in range(draw(st.integers(0, 6))))


def evenly(members: Members, counts: Mapping[str, int]) -> None:
    """Things can be given to threads so that no thread has two more than another."""
    quotient, left = divmod(sum(counts.values()), sum(info.threads for info in members.values()))
    for name, info in members.items():
        assert quotient * info.threads <= counts[name] <= (quotient + bool(left)) * info.threads


@given(groups())
def test_balance_stays(group: tuple[Members, Program, Racks]) -> None:
    """Of all tasks, of those with state, and of standbys; each once, and no standby beside its task."""
    members, program, racks = group
    work, plain = balance(members, program, (), racks), balance(members, program)
    assert sorted(task for each in work.values() for task in each.active) == sorted(program.tasks)
    evenly(members, {name: len(each.active) for name, each in work.items()})
    stateful = set(program.stateful)
    evenly(members, {name: len(stateful.intersection(each.active)) for name, each in work.items()})
    copies = [Counter(task for each in of.values() for task in each.standby) for of in (work, plain)]
    assert copies[0] == copies[1]
    for each in work.values():
        assert not set(each.active) & set(each.standby)
        assert len(set(each.standby)) == len(each.standby)


@given(groups())
def test_a_group_that_does_as_it_was_told_is_left_alone(group: tuple[Members, Program, Racks]) -> None:
    """The same members get the same work again."""
    members, program, racks = group
    work = balance(members, program, (), racks)
    again = balance(after(members, work), program, (), racks)
    assert {name: each.active for name, each in again.items()} == {
        name: each.active for name, each in work.items()
    }
    third = balance(after(members, again), program, (), racks)
    assert third == again


@given(groups())
def test_no_more_is_read_from_afar(group: tuple[Members, Program, Racks]) -> None:
    """Where moving costs nothing and traffic does; subtopologies may demand otherwise."""
    members, program, racks = group
    racks = Racks(RackRules.of(MIN_TRAFFIC, None, 0), racks.where)
    stateful = replace(program, tasks=program.stateful)
    work, plain = balance(members, stateful, (), racks), balance(members, stateful)
    assert read_from_afar(members, work, racks.where.read) <= read_from_afar(members, plain, racks.where.read)


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(group: tuple[Members, Program, Racks], chance: Any) -> None:
    """Two leaders decide the same."""
    members, program, racks = group
    names, tasks = list(members), list(program.tasks)
    chance.shuffle(names)
    chance.shuffle(tasks)
    shuffled = Racks(
        racks.rules,
        TaskRacks(
            {task: racks.where.read[task] for task in tasks},
            dict(reversed(list(racks.where.kept.items()))),
        ),
    )
    other = balance(
        {name: members[name] for name in names}, replace(program, tasks=tuple(tasks)), (), shuffled
    )
    assert other == balance(members, program, (), racks)


def test_a_group_that_moves_task_by_task_arrives() -> None:
    """Whatever the order in which the tasks get warm: none moves twice, and what is left to do gets less."""
    tasks = tasks_of(4)
    read = {task: (at(0 if task.partition < 2 else 1),) for task in tasks}
    racks, program = by_racks(read), Program(tasks, tasks)
    for order in permutations(tasks):
        members = {"a": client(0, 0, 1, *tasks[2:]), "b": client(1, 1, 1, *tasks[:2])}
        moved: list[TaskId] = []
        for ready in order:
            target = balance(members, program, (), racks)
            assert target["a"].active == tasks[:2]
            giver, taker = ("b", "a") if ready.partition < 2 else ("a", "b")
            members = {
                giver: client(int(giver == "b"), int(giver == "b"), 1, *(members[giver].running - {ready})),
                taker: client(int(taker == "b"), int(taker == "b"), 1, *(members[taker].running | {ready})),
            }
            moved.append(ready)
        assert balance(members, program, (), racks)["a"].active == tasks[:2]
        assert Counter(moved).most_common(1)[0][1] == 1


def test_ten_thousand_tasks_are_few_kinds() -> None:
    """Counted, not timed: how often the tasks are hashed does not grow with the number of clients."""
    few, many = (hashed(clients) for clients in (4, 40))
    assert many < 2 * few


class CountedTask(TaskId):
    """A task that counts how often it is hashed."""

    hashed = 0

    def __hash__(self) -> int:
        CountedTask.hashed += 1
        return super().__hash__()


def hashed(clients: int) -> int:
    """How often tasks are hashed to place them on so many clients."""
    tasks = tuple(CountedTask(0, number) for number in range(2_000))
    members = {f"m{number:02}": client(number, number % 3) for number in range(clients)}
    read = {task: (at(task.partition % 3, task.partition // 3 % 3),) for task in tasks}
    CountedTask.hashed = 0
    work = balance(members, Program(tasks, tasks), (), by_racks(read))
    assert read_from_afar(members, work, read) == 0
    return CountedTask.hashed
