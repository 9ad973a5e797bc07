"""Who does what: each thing once, evenly, and nothing moves without need."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.group.balance import Work, balance, warmed_up_first
from millstream.group.userdata import MemberInfo, Program
from millstream.group.userdata_layout import LATEST_OFFSET, UNKNOWN_OFFSET_SUM
from millstream.model import TaskId

Members = Mapping[str, MemberInfo]


def client(number: int, threads: int = 1, warm: bool = False, **state: Any) -> MemberInfo:
    return replace(MemberInfo(UUID(int=number), f"app-{number}", threads, warm=warm), **state)


def tasks_of(*texts: str) -> tuple[TaskId, ...]:
    return tuple(TaskId.parse(text) for text in texts)


def program(stateless: Sequence[TaskId], stateful: Sequence[TaskId], replicas: int = 0) -> Program:
    return Program((*stateless, *stateful), tuple(stateful), replicas)


def without_state(count: int) -> tuple[TaskId, ...]:
    """So many tasks of a subtopology that keeps no state."""
    return tuple(TaskId(7, number) for number in range(count))


def holding(*tasks: TaskId) -> dict[str, Any]:
    """What a client reports of tasks that it runs."""
    return {"running": frozenset(tasks), "tasks": dict.fromkeys(tasks, LATEST_OFFSET)}


def after(members: Members, work: Mapping[str, Work], standby_offset: int = 100) -> dict[str, MemberInfo]:
    """The same members, when they have done as they were told."""
    return {
        name: replace(
            info,
            running=frozenset(work[name].active),
            tasks={
                **dict.fromkeys(work[name].standby, standby_offset),
                **dict.fromkeys(work[name].active, LATEST_OFFSET),
            },
        )
        for name, info in members.items()
    }


def owners(work: Mapping[str, Work]) -> dict[TaskId, str]:
    return {task: name for name, each in work.items() for task in each.active}


def of_kind(each: Work, tasks: Collection[TaskId]) -> list[TaskId]:
    return [task for task in each.active if task in tasks]


def check(
    members: Members, stateless: Sequence[TaskId], stateful: Sequence[TaskId], replicas: int
) -> Mapping[str, Work]:
    """The work, after everything that must hold of any was seen to hold."""
    work = balance(members, program(stateless, stateful, replicas))
    assert work.keys() == members.keys()
    able = [name for name, info in members.items() if info.threads]
    assert all(work[name] == Work() for name in members if name not in able)
    if not able:
        return work
    assert sorted(task for each in work.values() for task in each.active) == sorted((*stateless, *stateful))
    evenly(members, able, {name: len(of_kind(work[name], stateful)) for name in able})
    evenly(members, able, {name: len(work[name].active) for name in able})
    copies = Counter(task for each in work.values() for task in each.standby)
    assert all(copies[task] == min(replicas, len(able) - 1) for task in stateful)
    assert not copies.keys() - set(stateful)
    for each in work.values():
        assert not set(each.active) & set(each.standby)
        assert len(set(each.standby)) == len(each.standby)
        assert list(each.active) == sorted(each.active)
    return work


def evenly(members: Members, able: Iterable[str], counts: Mapping[str, int]) -> None:
    """Things can be given to threads so that no thread has two more than another."""
    quotient, left = divmod(sum(counts.values()), sum(members[name].threads for name in able))
    for name in able:
        threads = members[name].threads
        assert quotient * threads <= counts[name] <= (quotient + bool(left)) * threads


# --- stories ---------------------------------------------------------------------------------------------


def test_the_worked_example() -> None:
    """Word count, a client with two stream threads and one with one, and a standby of each task with a
    store."""
    members = {"A": client(1, threads=2), "B": client(2)}
    words, counts = tasks_of("0_0", "0_1", "0_2", "0_3"), tasks_of("1_0", "1_1", "1_2", "1_3")
    work = check(members, words, counts, 1)
    assert [len(of_kind(work[name], counts)) for name in "AB"] == [3, 1]
    assert [len(work[name].active) for name in "AB"] == [5, 3]
    assert set(work["A"].standby) == set(of_kind(work["B"], counts))
    assert set(work["B"].standby) == set(of_kind(work["A"], counts))
    # A is killed: B has all of it, and no place for standbys.
    alone = check({"B": after(members, work)["B"]}, words, counts, 1)["B"]
    assert alone == Work((*words, *counts), ())


def test_without_a_thread_in_the_group_nothing_is_assigned() -> None:
    """A client whose threads were all removed is still a member."""
    assert balance({"A": client(1, threads=0)}, program((), tasks_of("0_0"), 1)) == {"A": Work()}
    assert balance({}, program(without_state(1), ())) == {}


def test_what_a_client_without_threads_held_goes_to_the_others() -> None:
    """It cannot do anything with it."""
    task = TaskId(0, 0)
    members = {"A": client(1, threads=0, **holding(task)), "B": client(2)}
    assert check(members, (), [task], 1)["B"] == Work((task,))


@pytest.mark.parametrize("has_state", [False, True])
def test_a_task_stays_where_it_is(has_state: bool) -> None:
    """It stays even if another client would be a better place for a new one."""
    tasks = without_state(1)
    members = {"A": client(1, **holding(*tasks)), "B": client(2, threads=5, warm=True)}
    work = check(members, () if has_state else tasks, tasks if has_state else (), 0)
    assert work["A"].active == tasks


def test_a_task_without_a_holder_goes_to_a_warm_client() -> None:
    """There Spark runs already: fail-over takes no start of a JVM."""
    members = {"A": client(1, threads=4), "B": client(2), "C": client(3, warm=True)}
    assert check(members, without_state(1), (), 0)["C"].active == without_state(1)


@pytest.mark.parametrize("has_state", [False, True])
def test_a_task_that_is_being_stopped_has_no_claim_to_stay(has_state: bool) -> None:
    """Otherwise it would turn round half-way."""
    (task,) = tasks = without_state(1)
    up_to_date = {"up_to_date": frozenset(tasks)} if has_state else {}
    members = {
        "A": client(1, **holding(task), stopping=frozenset({task})),
        "B": client(2, warm=True, tasks={task: 5} if has_state else {}, **up_to_date),
    }
    assert check(members, () if has_state else tasks, tasks if has_state else (), 0)["B"].active == tasks


def test_a_new_client_takes_over_as_many_tasks_as_balance_needs() -> None:
    """Three on one client, and another joins: one moves."""
    tasks = without_state(3)
    work = check({"A": client(1, **holding(*tasks)), "B": client(2)}, tasks, (), 0)
    assert (len(work["A"].active), len(work["B"].active)) == (2, 1)


def test_a_client_that_gives_away_half_keeps_half_of_each_subtopology() -> None:
    """They are busy at the same time, so both clients should have some of each."""
    tasks = tasks_of("0_0", "0_1", "0_2", "0_3", "1_0", "1_1", "1_2", "1_3")
    for stateful in (tasks, (), tasks[4:]):
        stateless = [task for task in tasks if task not in stateful]
        work = check({"A": client(1, **holding(*tasks)), "B": client(2)}, stateless, stateful, 0)
        for name in "AB":
            assert Counter(task.subtopology for task in work[name].active) == {0: 2, 1: 2}


def test_many_tasks_of_many_clients_are_balanced() -> None:
    """10,000 tasks over 100 clients, and again when one has left and one has come."""
    tasks = [TaskId(number % 10, number // 10) for number in range(10_000)]
    members: Members = {f"m{number}": client(number) for number in range(100)}
    before = check(members, tasks[:5000], tasks[5000:], 0)
    changed = {**after(members, before), "new": client(1000)}
    del changed["m5"]
    now = check(changed, tasks[:5000], tasks[5000:], 0)
    assert moved(before, now) == []


@pytest.mark.parametrize("has_state", [False, True])
def test_one_more_among_many_clients_gets_its_share_and_nothing_else_moves(has_state: bool) -> None:
    """10,000 tasks over 100 clients, and then over 101: of the 100 that each has, one or two are given."""
    tasks = [TaskId(number % 10, number // 10) for number in range(10_000)]
    members: Members = {f"m{number}": client(number) for number in range(100)}
    stateless, stateful = ((), tasks) if has_state else (tasks, ())
    before = check(members, stateless, stateful, 0)
    grown = {**after(members, before), "new": client(1000)}
    now = check(grown, stateless, stateful, 0)
    assert len(moved(before, now)) == fewest_moves(grown, before) == len(now["new"].active)


def test_of_two_that_claim_a_task_the_first_by_process_id_keeps_it() -> None:
    """A zombie and its successor may both believe that they hold it."""
    holds = {TaskId(0, 0): LATEST_OFFSET}
    for order in ("AB", "BA"):
        members = {name: client(ord(name), tasks=holds) for name in order}
        assert check(members, (), tasks_of("0_0"), 0)["A"].active == tasks_of("0_0")


def test_the_standby_that_is_furthest_becomes_active() -> None:
    """It has least to restore."""
    task = TaskId(0, 0)
    members = {
        "A": client(1, tasks={task: 10}),
        "B": client(2, tasks={task: UNKNOWN_OFFSET_SUM}),
        "C": client(3, tasks={task: 900}),
        "D": client(4),
    }
    assert check(members, (), [task], 0)["C"].active == (task,)
    with_standby = check(members, (), [task], 1)
    assert with_standby["A"].standby == (task,)


def test_a_task_that_has_to_move_goes_where_its_standby_is() -> None:
    """B joins as a standby client: what it gets is what it has."""
    tasks = tasks_of("0_0", "0_1", "0_2", "0_3")
    members = {
        "A": client(1, tasks=dict.fromkeys(tasks, LATEST_OFFSET)),
        "B": client(2, tasks={tasks[0]: 5, tasks[2]: 6}),
    }
    work = check(members, (), tasks, 0)
    assert work["B"].active == (tasks[0], tasks[2])


def test_the_tasks_of_a_subtopology_are_spread() -> None:
    """They are busy at the same time."""
    tasks = tasks_of("0_0", "0_1", "1_0", "1_1")
    work = check({"A": client(1), "B": client(2)}, (), tasks, 0)
    assert all({task.subtopology for task in work[name].active} == {0, 1} for name in "AB")


def test_tasks_are_in_the_order_of_their_numbers() -> None:
    """2_0 before 10_0, and 0_2 before 0_10."""
    tasks = tasks_of(*(f"0_{number}" for number in range(12)), *(f"{number}_0" for number in range(1, 12)))
    for stateful in ((), tasks, tasks[::2]):
        stateless = [task for task in tasks if task not in stateful]
        shuffled = random.Random(1).sample(stateless, len(stateless))
        assert check({"A": client(1)}, shuffled, stateful, 0)["A"].active == tasks


# --- whatever the group ----------------------------------------------------------------------------------

THINGS = st.tuples(st.integers(0, 6), st.integers(0, 14), st.integers(0, 3))


@st.composite
def groups(draw: st.DrawFn, smallest: int = 1) -> tuple[Members, list[TaskId], list[TaskId], int]:
    """Clients that hold anything, in any confusion."""
    others, count, replicas = draw(THINGS)
    names = list(without_state(others))
    tasks = [TaskId(number % 3, number // 3) for number in range(count)]
    members = {}
    for number in range(draw(st.integers(smallest, 5))):
        members[f"m{number}"] = client(
            number,
            threads=draw(st.integers(0, 3)),
            warm=draw(st.booleans()),
            tasks=draw(st.dictionaries(st.sampled_from(tasks), st.integers(-3, 9), max_size=8))
            if tasks
            else {},
        )
        if names:
            runs = frozenset(draw(st.lists(st.sampled_from(names), max_size=3)))
            stopping = frozenset(draw(st.lists(st.sampled_from(names), max_size=2)))
            info = members[f"m{number}"]
            members[f"m{number}"] = replace(
                info,
                running=runs | info.active_tasks,
                stopping=stopping & runs,
                tasks={**info.tasks, **dict.fromkeys(runs, LATEST_OFFSET)},
            )
    return members, names, tasks, replicas


@given(groups())
def test_each_thing_goes_to_one_member_and_evenly(
    group: tuple[Members, list[TaskId], list[TaskId], int],
) -> None:
    """This holds whatever the members hold, or believe that they hold."""
    check(*group)


@given(groups(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(
    group: tuple[Members, list[TaskId], list[TaskId], int], shuffler: random.Random
) -> None:
    """Two leaders that see the same decide the same."""
    members, names, tasks, replicas = group
    turned = {
        name: replace(
            members[name],
            tasks=dict(shuffler.sample(list(members[name].tasks.items()), len(members[name].tasks))),
        )
        for name in shuffler.sample(list(members), len(members))
    }
    shuffled = program(shuffler.sample(names, len(names)), shuffler.sample(tasks, len(tasks)), replicas)
    assert balance(turned, shuffled) == balance(members, program(names, tasks, replicas))


@given(groups())
def test_a_group_that_does_as_it_was_told_is_left_alone(
    group: tuple[Members, list[TaskId], list[TaskId], int],
) -> None:
    """Deciding again changes nothing, so rebalances come to an end."""
    members, names, tasks, replicas = group
    work = check(*group)
    done = {name: replace(info, stopping=frozenset()) for name, info in after(members, work).items()}
    assert balance(done, program(names, tasks, replicas)) == work


def fewest_moves(members: Members, before: Mapping[str, Work]) -> int:
    """How many of the tasks that a staying member holds have to leave it, whoever decides: what each holds
    beyond the most that balance allows it, when the remainder is given to those that hold most."""
    held = {
        name: len(before[name].active) if name in before else 0 for name in members if members[name].threads
    }
    total = sum(len(each.active) for each in before.values())
    quotient, left = divmod(total, sum(members[name].threads for name in held))
    over = 0
    spare = left
    for name, count in held.items():
        threads = members[name].threads
        extra = min(max(0, count - quotient * threads), threads, spare)
        spare -= extra
        over += max(0, count - quotient * threads - extra)
    return over


def moved(before: Mapping[str, Work], now: Mapping[str, Work]) -> list[TaskId]:
    """What went from a member that stays to another one."""
    old, new = owners(before), owners(now)
    return [task for task, name in new.items() if old[task] != name and old[task] in now]


@given(st.lists(st.integers(1, 3), min_size=2, max_size=5), st.integers(0, 8), st.data())
def test_no_task_without_state_moves_when_another_client_leaves(
    threads: list[int], count: int, data: st.DataObject
) -> None:
    """Shares only grow, so only what the leaver had finds a new place."""
    members = {f"m{number}": client(number, each) for number, each in enumerate(threads)}
    names = without_state(count)
    before = check(members, names, (), 0)
    leaver = data.draw(st.sampled_from(sorted(members)))
    staying = {name: info for name, info in after(members, before).items() if name != leaver}
    assert moved(before, check(staying, names, (), 0)) == []


@given(st.lists(st.integers(1, 3), min_size=2, max_size=5), st.integers(0, 14), st.data())
def test_no_task_moves_when_one_leaves(threads: list[int], count: int, data: st.DataObject) -> None:
    """The same for tasks, with standbys to promote."""
    members = {f"m{number}": client(number, each) for number, each in enumerate(threads)}
    tasks = [TaskId(number % 3, number // 3) for number in range(count)]
    before = check(members, (), tasks, 1)
    leaver = data.draw(st.sampled_from(sorted(members)))
    staying = {name: info for name, info in after(members, before).items() if name != leaver}
    assert moved(before, check(staying, (), tasks, 1)) == []


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 14), st.integers(1, 3))
def test_as_many_tasks_move_as_balance_needs_when_one_joins(
    threads: list[int], count: int, more: int
) -> None:
    """They move to the new member, and no more than necessary."""
    members = {f"m{number}": client(number, each) for number, each in enumerate(threads)}
    tasks = [TaskId(number % 3, number // 3) for number in range(count)]
    before = check(members, (), tasks, 1)
    grown = {**after(members, before), "new": client(99, more)}
    now = check(grown, (), tasks, 1)
    assert len(moved(before, now)) == fewest_moves(grown, before)
    assert {owners(now)[thing] for thing in moved(before, now)} <= {"new"}


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 8), st.integers(1, 3))
def test_as_many_tasks_without_state_move_as_balance_needs_when_one_joins(
    threads: list[int], count: int, more: int
) -> None:
    """The same for them."""
    members = {f"m{number}": client(number, each) for number, each in enumerate(threads)}
    names = without_state(count)
    before = check(members, names, (), 0)
    grown = {**after(members, before), "new": client(99, more, warm=True)}
    now = check(grown, names, (), 0)
    assert len(moved(before, now)) == fewest_moves(grown, before)
    assert {owners(now)[thing] for thing in moved(before, now)} <= {"new"}


# --- standbys --------------------------------------------------------------------------------------------


@given(st.integers(2, 6), st.integers(0, 20), st.integers(1, 4))
def test_standbys_are_spread_evenly(clients: int, count: int, replicas: int) -> None:
    """Among equal clients, no client has two more than another."""
    members = {f"m{number}": client(number) for number in range(clients)}
    work = check(members, (), [TaskId(number % 3, number // 3) for number in range(count)], replicas)
    loads = [len(each.standby) for each in work.values()]
    assert max(loads) - min(loads) <= 1


@given(st.integers(2, 5), st.integers(1, 14), st.integers(1, 2), st.data())
def test_no_standby_moves_when_nobody_comes_or_goes(
    clients: int, count: int, replicas: int, data: st.DataObject
) -> None:
    """The second round equals the first, whatever the lag of each standby."""
    members: Members = {f"m{number}": client(number) for number in range(clients)}
    tasks = [TaskId(0, number) for number in range(count)]
    work = check(members, (), tasks, replicas)
    for _ in range(2):
        members = {
            name: replace(
                info,
                tasks={
                    task: offset if offset == LATEST_OFFSET else data.draw(st.integers(0, 100))
                    for task, offset in info.tasks.items()
                },
            )
            for name, info in after(members, work).items()
        }
        assert balance(members, program((), tasks, replicas)) == work


@given(st.integers(2, 5), st.integers(1, 14), st.integers(1, 2), st.data())
def test_what_the_leaver_had_becomes_active_on_its_standbys(
    clients: int, count: int, replicas: int, data: st.DataObject
) -> None:
    """On a client that has a standby of it, wherever one has room; a standby that has to restore is the last
    resort, and there is none with one client gone of two."""
    members: Members = {f"m{number}": client(number) for number in range(clients)}
    tasks = [TaskId(0, number) for number in range(count)]
    before = check(members, (), tasks, replicas)
    leaver = data.draw(st.sampled_from(sorted(members)))
    staying = {name: info for name, info in after(members, before).items() if name != leaver}
    now = check(staying, (), tasks, replicas)
    cold = [
        task
        for name, each in now.items()
        for task in each.active
        if task not in (*before[name].active, *before[name].standby)
    ]
    evenly_able = -(-count // len(staying))
    for task in cold:
        warm = [name for name in staying if task in before[name].standby]
        assert all(len(now[name].active) >= evenly_able - 1 for name in warm), (task, warm)
    if clients == 2:
        assert cold == []


# --- warming up ------------------------------------------------------------------------------------------


def ready(members: Members, work: Mapping[str, Work]) -> dict[str, MemberInfo]:
    """The same members, when they have done as they were told and all of their state is up to date."""
    return {
        name: replace(info, up_to_date=frozenset(info.tasks)) for name, info in after(members, work).items()
    }


def decide(
    members: Members, tasks: Sequence[TaskId], replicas: int, most: int, stateless: Sequence[TaskId] = ()
) -> tuple[Mapping[str, Work], Mapping[str, tuple[TaskId, ...]]]:
    whole = program(stateless, tasks, replicas)
    return warmed_up_first(members, balance(members, whole), whole, most)


def test_a_task_moves_when_it_has_warmed_up() -> None:
    """Until then it stays active where it can be read, and the other client gets a standby; then that one
    is active, and what it was before is a standby if there are to be any."""
    tasks = tasks_of("0_0", "0_1", "0_2", "0_3")
    first = {"A": client(1)}
    members = {**ready(first, balance(first, program((), tasks, 1))), "B": client(2)}
    work, warming = decide(members, tasks, 1, 2)
    assert work["A"] == Work(tasks, ())
    assert work["B"].standby == tasks
    assert warming == {"B": tasks_of("0_2", "0_3")}
    members = ready(members, work)
    moved_now, warming = decide(members, tasks, 1, 2)
    assert warming == {}
    assert moved_now["B"].active == moved_now["A"].standby == tasks_of("0_2", "0_3")
    assert moved_now["A"].active == moved_now["B"].standby == tasks_of("0_0", "0_1")


def test_so_many_warm_up_at_a_time() -> None:
    """Without standbys, each task that warms up is one more copy. The others wait where they are."""
    tasks = tasks_of("0_0", "0_1", "0_2", "0_3", "0_4", "0_5")
    first = {"A": client(1)}
    members = {**ready(first, balance(first, program((), tasks))), "B": client(2)}
    seen = []
    for _ in range(3):
        work, warming = decide(members, tasks, 0, 2)
        seen.append((len(work["A"].active), len(work["B"].active), len(work["B"].standby)))
        assert warming.get("B", ()) == work["B"].standby
        members = ready(members, work)
    assert seen == [(6, 0, 2), (4, 2, 1), (3, 3, 0)]


def test_a_client_that_comes_back_warms_up_all_that_it_still_has_at_once() -> None:
    """It has little to catch up, and each round is a rebalance. What it has nothing of waits for that."""
    tasks = tasks_of(*(f"0_{number}" for number in range(12)))
    first = {"A": client(1)}
    on_disk = dict.fromkeys(tasks[8:], UNKNOWN_OFFSET_SUM)
    members = {**ready(first, balance(first, program((), tasks))), "B": client(2, tasks=on_disk)}
    seen = []
    for _ in range(4):
        work, _ = decide(members, tasks, 0, 1)
        seen.append((len(work["B"].active), len(work["B"].standby)))
        again, _ = decide(after(members, work), tasks, 0, 1)
        assert again == work, "a rebalance in between changes nothing"
        members = ready(members, work)
    assert seen == [(0, 4), (4, 1), (5, 1), (6, 0)]


def test_nothing_is_warmed_up_for_what_cannot_be_read_anyway() -> None:
    """A task that is being restored where it is, or whose client is gone, moves at once; so does every one
    if nobody is to wait."""
    tasks = tasks_of("0_0", "0_1")
    restoring = {"A": client(1, tasks=dict.fromkeys(tasks, LATEST_OFFSET)), "B": client(2)}
    assert decide(restoring, tasks, 0, 2) == (balance(restoring, program((), tasks)), {})
    gone = {"B": client(2)}
    assert decide(gone, tasks, 0, 2) == (balance(gone, program((), tasks)), {})
    able = {
        name: replace(info, up_to_date=frozenset(tasks) if name == "A" else frozenset())
        for name, info in restoring.items()
    }
    assert decide(able, tasks, 0, 0) == (balance(able, program((), tasks)), {})
    assert decide(able, tasks, 0, 1)[1] == {"B": tasks_of("0_1")}


def test_a_task_without_state_moves_when_it_could_run_at_once() -> None:
    """Until then it runs on where it is. It has nothing to fill, so it is no standby, and there is no limit
    to how many wait."""
    tasks = without_state(6)
    first = {"A": client(1)}
    members = {**ready(first, balance(first, program(tasks, ()))), "B": client(2)}
    work, warming = decide(members, (), 1, 1, tasks)
    assert (work["A"], work["B"]) == (Work(tasks), Work())
    assert warming == {"B": tasks[3:]}
    members["B"] = replace(members["B"], up_to_date=frozenset(tasks[3:]))
    work, warming = decide(members, (), 1, 1, tasks)
    assert (work["A"], work["B"], warming) == (Work(tasks[:3]), Work(tasks[3:]), {})


@given(groups(), st.integers(0, 3), st.data())
def test_whatever_warms_up_each_task_has_one_place_and_in_the_end_its_own(
    group: tuple[Members, list[TaskId], list[TaskId], int], most: int, data: st.DataObject
) -> None:
    """No task is lost, doubled, or active and standby at once; what moves is ready or was nowhere to be
    read; no more copies than allowed, but for those with state; and after some rounds it is as balance wants
    it, and stays so."""
    members, names, tasks, replicas = group
    members = {
        name: replace(
            info,
            up_to_date=frozenset(data.draw(st.sets(st.sampled_from(sorted(info.tasks)))))
            if info.tasks
            else frozenset(),
        )
        for name, info in members.items()
    }
    whole = program(names, tasks, replicas)
    for _ in range(len(tasks) + 3):
        target = balance(members, whole)
        work, warming = warmed_up_first(members, target, whole, most)
        placed = sorted(task for each in work.values() for task in each.active)
        assert placed == (sorted(whole.tasks) if any(info.threads for info in members.values()) else [])
        for name, each in work.items():
            assert not set(each.active) & set(each.standby)
            coming = set(warming.get(name, ()))
            assert coming <= set(target[name].active)
            assert coming.intersection(tasks) <= set(each.standby)
        copies = sum(len(each.standby) for each in work.values())
        with_state = sum(
            task in tasks and task in members[name].tasks for name, each in warming.items() for task in each
        )
        assert copies <= sum(len(each.standby) for each in target.values()) + max(most, with_state)
        if most:
            for name, each in work.items():
                for task in set(each.active) - members[name].up_to_date:
                    before = [
                        other
                        for other, info in members.items()
                        if other != name and task in info.active_tasks - info.stopping and info.threads
                    ]
                    assert (
                        not before
                        or task not in members[min(before)].up_to_date
                        or (task in members[name].active_tasks)
                    )
        members = {
            name: replace(info, up_to_date=info.up_to_date.union(warming.get(name, ())), stopping=frozenset())
            for name, info in ready(members, work).items()
        }
    assert warmed_up_first(members, balance(members, whole), whole, most) == (work, {})
    assert work == balance(members, whole)


# --- tags ------------------------------------------------------------------------------------------------


def zones(count: int, of: int, replicas: int = 1, **more: Any) -> tuple[dict[str, MemberInfo], Program]:
    """So many clients in so many zones, and sixty tasks with state."""
    members = {
        f"m{number}": client(number, tags={"zone": f"z{number % of}", **more}) for number in range(count)
    }
    return members, program((), [TaskId(0, number) for number in range(60)], replicas)


def copies(work: Mapping[str, Work], task: TaskId) -> list[str]:
    """Where a task and its standbys are."""
    return [name for name, gets in work.items() if task in gets.active or task in gets.standby]


@pytest.mark.parametrize("replicas", [1, 2])
def test_copies_of_a_task_are_in_different_zones(replicas: int) -> None:
    """Also when they are evened out, and when a client comes: what is apart stays where it is."""
    members, wanted = zones(6, 3, replicas)
    work = balance(members, wanted, ["zone"])
    for task in wanted.tasks:
        found = copies(work, task)
        assert len({members[name].tags["zone"] for name in found}) == len(found) == 1 + replicas
    assert max(len(each.standby) for each in work.values()) <= 10 * replicas + 3
    assert balance(after(members, work), wanted, ["zone"]) == work


def test_a_standby_is_where_it_can_be_if_there_are_too_few_zones() -> None:
    """Two zones hold two copies apart; the third one is in one of them. One zone holds all."""
    members, wanted = zones(6, 2, 2)
    for task in wanted.tasks:
        found = copies(balance(members, wanted, ["zone"]), task)
        assert len(found) == 3
        assert {members[name].tags["zone"] for name in found} == {"z0", "z1"}
    members, wanted = zones(2, 1)
    assert all(len(copies(balance(members, wanted, ["zone"]), task)) == 2 for task in wanted.tasks)


def test_a_tag_that_all_clients_share_keeps_nothing_apart() -> None:
    """And a client without the tag is apart from all."""
    members, wanted = zones(4, 2, cluster="c")
    work = balance(members, wanted, ["cluster", "zone"])
    for task in wanted.tasks:
        one, other = copies(work, task)
        assert members[one].tags["zone"] != members[other].tags["zone"]
    members["m0"] = replace(members["m0"], tags={})
    assert all(len(copies(balance(members, wanted, ["zone"]), task)) == 2 for task in wanted.tasks)


def test_state_of_a_task_goes_on_only_where_it_is_apart() -> None:
    """A client has state of it, but is in the zone of the active one: another one starts anew."""
    (task,) = tasks_of("0_0")
    members = {
        "a": client(1, tags={"zone": "x"}, **holding(task)),
        "b": client(2, tags={"zone": "x"}, tasks={task: 100}),
        "c": client(3, tags={"zone": "y"}),
    }
    assert balance(members, program((), [task], 1), ["zone"])["c"].standby == (task,)
    assert balance(members, program((), [task], 1))["b"].standby == (task,)
