"""What the leader answers: to everyone, always, in upstream's order; and that no task ever runs twice."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StreamsException
from millstream.group.assignor import LeaderFacts, Memory, assign
from millstream.group.balance import balance, warmed_up_first
from millstream.group.codes import AssignorError
from millstream.group.racks import BALANCE_SUBTOPOLOGY, MIN_TRAFFIC, NONE, Costs, RackRules, TaskRacks
from millstream.group.userdata import (
    MOST_TRAILER_BYTES,
    MOST_USER_DATA_BYTES,
    Assignment,
    MemberInfo,
    Program,
)
from millstream.group.userdata_layout import LATEST_OFFSET, SubscriptionInfo
from millstream.model import TaskId

STATELESS = (TaskId(0, 0), TaskId(0, 1))
STATEFUL = (TaskId(1, 0), TaskId(1, 1))
TASKS = (*STATELESS, *STATEFUL)
FACTS = LeaderFacts(tasks=TASKS, stateful=STATEFUL, topology="t1")
A = MemberInfo(UUID(int=1), "A", topology="t1", endpoint="a:1")
B = MemberInfo(UUID(int=2), "B", topology="t1", endpoint="b:2")
C = MemberInfo(UUID(int=3), "C", topology="t1")

GARBAGE = b"\xff\0garbage"
FUTURE = b"\0\0\0\x0c\0\0\0\x0c"


def bytes_of(info: MemberInfo | bytes) -> bytes:
    return info if isinstance(info, bytes) else info.to_subscription().encode()


def answers(
    facts: LeaderFacts = FACTS,
    leader: str = "A",
    memory: Memory | None = None,
    look_up: Callable[[], TaskRacks] = TaskRacks,
    **members: MemberInfo | bytes,
) -> dict[str, Assignment]:
    """One for each member, decoded."""
    told = assign(facts, {name: bytes_of(info) for name, info in members.items()}, leader, memory, look_up)
    assert told.keys() == members.keys()
    return {name: Assignment.decode(data) for name, data in told.items()}


def running(info: MemberInfo, *tasks: TaskId, **more: Any) -> MemberInfo:
    """The same member, when it runs these tasks."""
    return replace(info, running=frozenset(tasks), tasks=dict.fromkeys(tasks, LATEST_OFFSET), **more)


def codes(told: Mapping[str, Assignment]) -> dict[str, str]:
    return {name: AssignorError(answer.error_code).name for name, answer in told.items()}


# --- the order of the decisions --------------------------------------------------------------------------


def test_a_group_that_agrees_shares_the_work() -> None:
    """Each member knows where everything is."""
    serdes = {"counts": ("k", "v")}
    told = answers(replace(FACTS, standby_replicas=1), a=replace(A, serdes=serdes), b=B)
    assert codes(told) == {"a": "NONE", "b": "NONE"}
    assert sorted(told["a"].runs + told["b"].runs) == sorted(TASKS)
    assert (len(told["a"].active), len(told["b"].active)) == (2, 2)
    assert told["b"].standby == tuple(task for task in told["a"].active if task in STATEFUL)
    assert told["b"].hosts == {
        "a:1": (told["a"].active, told["a"].standby),
        "b:2": (told["b"].active, told["b"].standby),
    }
    assert told["b"].members == {"A": told["a"].runs, "B": told["b"].runs}
    assert told["b"].serdes == serdes
    assert (told["b"].leader, told["b"].rebalance_wanted) == ("A", False)


def test_a_member_that_cannot_be_read_is_told_so_and_the_others_go_on() -> None:
    """No bytes of one client can stop the others."""
    told = answers(a=A, broken=GARBAGE, empty=b"")
    assert codes(told) == {"a": "NONE", "broken": "ASSIGNMENT_ERROR", "empty": "ASSIGNMENT_ERROR"}
    assert told["a"].runs == TASKS
    assert "your user data cannot be read" in told["broken"].reason


def test_a_member_of_a_newer_version_is_told_ours_and_the_others_go_on() -> None:
    """Version probing: it joins again, with a version that we know."""
    told = answers(a=A, future=FUTURE)
    assert codes(told) == {"a": "NONE", "future": "VERSION_PROBING"}
    assert told["a"].runs == TASKS


def test_one_request_to_shut_down_outranks_everything() -> None:
    """KIP-671; all learn who asked, and why."""
    asks = replace(B, error_code=AssignorError.SHUTDOWN_REQUESTED, reason="poison", topology="t2")
    facts = replace(FACTS, missing_topics=("lines",))
    told = answers(facts, a=A, b=asks, broken=GARBAGE, future=FUTURE)
    assert set(codes(told).values()) == {"SHUTDOWN_REQUESTED"}
    assert {(each.asked_by, each.reason, each.leader) for each in told.values()} == {("B", "poison", "A")}
    assert all(not each.active and not each.standby for each in told.values())


def test_a_request_to_shut_down_of_kafka_streams_itself_counts() -> None:
    """It has none of our tags."""
    told = answers(a=A, java=SubscriptionInfo(error_code=4).encode())
    assert set(codes(told).values()) == {"SHUTDOWN_REQUESTED"}


def test_missing_source_topics_are_told_to_all_with_their_names() -> None:
    """KIP-662; StreamsPartitionAssignorTest.shouldEncodeMissingSourceTopicError."""
    told = answers(replace(FACTS, missing_topics=("words", "lines")), a=A, b=B)
    assert set(codes(told).values()) == {"INCOMPLETE_SOURCE_TOPIC_METADATA"}
    assert all(each.missing_topics == ("lines", "words") for each in told.values())


# --- who belongs together --------------------------------------------------------------------------------


def test_a_member_with_another_topology_is_told_what_differs() -> None:
    """The one that works stays, and hears nothing of it."""
    works = running(B, TASKS[0])
    told = answers(a=works, c=replace(C, topology="t2"))
    assert codes(told) == {"a": "NONE", "c": "ASSIGNMENT_ERROR"}
    reason = told["c"].reason
    assert all(part in reason for part in ("'C'", "'B'", "(t2)", "(t1)", "Run the same program"))


def test_the_side_that_works_stays_even_when_it_is_smaller() -> None:
    """A wrong program that is rolled out to most hosts must not take the work away."""
    works = running(C, TASKS[0])
    told = answers(a=replace(A, topology="t2"), b=replace(B, topology="t2"), c=works)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "ASSIGNMENT_ERROR", "c": "NONE"}


def test_state_on_disk_is_no_work() -> None:
    """A changed program may find the stores of the one before it."""
    disk = replace(A, topology="t2", tasks=dict.fromkeys(STATEFUL, 5))
    assert codes(answers(a=disk, b=B, c=C))["a"] == "ASSIGNMENT_ERROR"


def test_without_work_the_majority_stays_and_then_the_smallest_process_id() -> None:
    """All leaders choose the same side."""
    odd = replace(A, topology="t2")
    assert codes(answers(a=odd, b=B, c=C))["a"] == "ASSIGNMENT_ERROR"
    assert codes(answers(a=odd, b=B)) == {"a": "NONE", "b": "ASSIGNMENT_ERROR"}


def test_a_leader_that_is_the_odd_one_leads_the_others_all_the_same() -> None:
    """It knows their tasks from themselves, and does not trouble them with its own missing topics."""
    program = Program((TaskId(4, 0), TaskId(5, 0)), (TaskId(5, 0),), 1)
    others = [replace(each, topology="t2", program=program) for each in (B, C)]
    facts = replace(FACTS, missing_topics=("lines",))
    told = answers(facts, a=A, b=running(others[0], TaskId(5, 0)), c=others[1])
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE", "c": "NONE"}
    assert (told["b"].runs, told["c"].runs) == ((TaskId(5, 0),), (TaskId(4, 0),))
    assert (told["b"].standby, told["c"].standby) == ((), (TaskId(5, 0),))


def test_a_leader_that_does_not_know_a_topology_takes_nothing_away() -> None:
    """Members that do not say what their topology has keep what they hold."""
    told = answers(a=A, b=running(B, TaskId(4, 0), TaskId(5, 0), topology="t2"))
    assert told["b"].runs == (TaskId(4, 0), TaskId(5, 0))


# --- words and deeds -------------------------------------------------------------------------------------


BIGGER = running(A, *(TaskId(9, number) for number in range(500)), client_id="bigger", topology="t2")


def test_who_took_part_before_keeps_the_work_whatever_others_say_they_hold() -> None:
    """Members say that they hold more than it does."""
    memory = Memory()
    assert codes(answers(memory=memory, b=B)) == {"b": "NONE"}
    crowd = {f"a{number}": replace(BIGGER, process_id=UUID(int=50 + number)) for number in range(9)}
    told = answers(memory=memory, **crowd, b=B)
    assert codes(told) == {**dict.fromkeys(crowd, "ASSIGNMENT_ERROR"), "b": "NONE"}
    assert told["b"].active == TASKS


def test_who_took_part_before_with_another_program_is_no_better_known_for_it() -> None:
    """It says that it is one of them first, and changes its mind when it is believed."""
    memory = Memory()
    turncoat = replace(A, tasks={})
    assert set(codes(answers(memory=memory, a=turncoat, b=B)).values()) == {"NONE"}
    turned = replace(BIGGER, process_id=turncoat.process_id)
    assert codes(answers(memory=memory, a=turned, b=B)) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}


def test_a_leader_that_took_part_before_knows_itself() -> None:
    """The leader that knew everybody has gone."""
    memory = Memory()
    memory.own = bytes_of(B)
    told = answers(memory=memory, a=BIGGER, b=B)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}


def test_a_copied_state_directory_is_told_to_the_copy() -> None:
    """The original is the one that took part before."""
    copy = running(A, *TASKS, client_id="copy")
    memory = Memory()
    answers(memory=memory, b=A)
    told = answers(memory=memory, a=copy, b=A)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}
    assert all(part in told["a"].reason for part in ("'copy'", "'A'", str(A.process_id), "state.dir"))
    assert told["b"].runs == TASKS


def test_of_two_with_one_process_id_neither_is_believed_and_both_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One repeats all that the other says; the real one must not fail for it."""
    real, memory = running(A, TASKS[0]), Memory()
    for _ in range(3):
        told = answers(memory=memory, a=real, copy=real, b=B)
        assert set(codes(told).values()) == {"NONE"}
    assert [record.message for record in caplog.records if "have one process id" in record.message] == [
        "Group members 'a', 'copy' have one process id, 00000000-0000-0000-0000-000000000001, and its owner "
        "cannot be determined: a state directory was copied, or one member impersonates another. The state "
        "that they "
        "claim to hold is ignored"
    ]


def test_what_the_program_does_not_have_nobody_holds(caplog: pytest.LogCaptureFixture) -> None:
    """It is left out, and said once; the rest of what the member holds counts."""
    boasts = replace(
        A,
        running=frozenset({TASKS[0], TaskId(8, 0)}),
        stopping=frozenset({TaskId(8, 1)}),
        tasks=dict.fromkeys([TASKS[0], *(TaskId(7, number) for number in range(16_000))], LATEST_OFFSET),
        up_to_date=frozenset({TaskId(8, 2)}),
    )
    memory, facts = Memory(), replace(FACTS, tasks=STATELESS, stateful=())
    for _ in range(2):
        told = answers(facts, memory=memory, a=boasts, b=B)
        assert (told["a"].runs, told["b"].runs) == (TASKS[:1], TASKS[1:2])
    (said,) = [record.message for record in caplog.records if "does not have" in record.message]
    assert "'a' claims 16,003 task(s) that this application does not have" in said
    assert said.endswith(": '7_0', '7_1', '7_2' and 16,000 more")


def test_user_data_too_long_are_not_read() -> None:
    """The others go on; the broker could not keep more of them."""
    told = answers(a=A, b=b"\0" * (MOST_USER_DATA_BYTES + 1))
    assert codes(told) == {"a": "NONE", "b": "ASSIGNMENT_ERROR"}
    assert "they take 524,289 bytes, but the limit is 524,288" in told["b"].reason


@pytest.mark.parametrize("tasks", [1_000, 16_000])
def test_the_leaders_work_grows_with_the_tasks_and_not_with_their_square(tasks: int) -> None:
    """Counted, not timed: how often the tasks of members are looked at."""
    ids = tuple(CountedTask(0, number) for number in range(tasks))
    first, second = (replace(each, threads=2) for each in (A, B))
    having = dict.fromkeys(ids, LATEST_OFFSET)
    members = {
        "a": replace(first, running=frozenset(ids), tasks=having, up_to_date=frozenset(ids)),
        "b": second,
        "c": replace(C, tasks=dict.fromkeys(ids[: tasks // 2], 5)),
    }
    program = Program(ids, ids, 1)
    CountedTask.compared = 0
    work, _ = warmed_up_first(members, balance(members, program), program, 2)
    assert sum(len(each.active) for each in work.values()) == tasks
    assert CountedTask.compared < 400 * tasks


class CountedTask(TaskId):
    """A task that counts how often it is hashed: each look into a set or a dict is one."""

    compared = 0

    def __hash__(self) -> int:
        CountedTask.compared += 1
        return super().__hash__()


# --- racks -----------------------------------------------------------------------------------------------

BY_RACKS = replace(FACTS, racks=RackRules(MIN_TRAFFIC))
IN_TWO = {"a": replace(A, rack="r1"), "b": replace(B, rack="r2")}
"""Members in two racks. By their process ids, the first one would get the first task of each kind."""
CROSSED = TaskRacks({task: (frozenset({f"r{2 - task.partition}"}),) for task in TASKS})


def test_tasks_are_where_their_partitions_are() -> None:
    """KIP-925: the leader looks up the racks of partitions, and tasks go there."""
    told = answers(BY_RACKS, look_up=lambda: CROSSED, **IN_TWO)
    assert told["a"].active == tuple(task for task in TASKS if task.partition == 1)
    assert told["b"].active == tuple(task for task in TASKS if task.partition == 0)


@pytest.mark.parametrize(
    ("facts", "members"),
    [
        (FACTS, IN_TWO),
        (BY_RACKS, {"a": IN_TWO["a"], "b": replace(B, rack="r1")}),
        (BY_RACKS, {**IN_TWO, "c": C}),
        (BY_RACKS, {"a": IN_TWO["a"], "b": replace(IN_TWO["b"], threads=0)}),
        (replace(BY_RACKS, topology="another"), IN_TWO),
    ],
    ids=["not asked for", "one rack", "a client without one", "one client with threads", "another topology"],
)
def test_racks_are_only_looked_up_if_they_matter(
    facts: LeaderFacts, members: dict[str, MemberInfo], caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise the tasks are assigned as without them; a client without a rack is named, once."""

    def look_up() -> TaskRacks:
        raise AssertionError

    memory = Memory()
    for _ in range(2):
        assert answers(facts, memory=memory, look_up=look_up, **members) == answers(
            replace(facts, racks=RackRules()), **members
        )
    told = [record.getMessage() for record in caplog.records]
    assert told == (
        ["Tasks are assigned without regard to racks: client(s) 'C' have no client.rack"]
        if "c" in members
        else []
    )


def test_without_the_racks_of_brokers_the_tasks_are_assigned_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The reason is logged once."""

    def look_up() -> TaskRacks:
        raise StreamsException("a broker has no broker.rack")

    memory = Memory()
    for _ in range(2):
        told = answers(BY_RACKS, memory=memory, look_up=look_up, **IN_TWO)
        assert told == answers(FACTS, **IN_TWO)
    assert [record.getMessage() for record in caplog.records] == [
        "Tasks are assigned without regard to racks: a broker has no broker.rack"
    ]


# --- handing over ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stateful", [False, True])
def test_a_task_that_changes_hands_is_held_back_until_its_holder_has_released_it(stateful: bool) -> None:
    """Two clients never run it at once because the group said so, whether or not it has state."""
    one, other = TASKS[:2]
    facts = replace(FACTS, tasks=(one, other), stateful=(one, other) if stateful else ())
    holds = running(A, one, other)
    first = answers(facts, a=holds, b=B)
    assert (first["a"].active, first["a"].withheld, first["a"].runs) == ((one,), (), (one,))
    assert (first["b"].active, first["b"].withheld, first["b"].runs) == ((other,), (other,), ())
    assert first["a"].rebalance_wanted
    assert first["b"].rebalance_wanted
    assert first["b"].members == {"A": (one,), "B": ()}
    # A is still stopping it, and somebody else has the group agree anew. B fills its store meanwhile.
    waits = replace(B, tasks={other: LATEST_OFFSET} if stateful else {})
    stopping = answers(facts, a=replace(holds, stopping=frozenset({other})), b=waits)
    assert stopping == first
    second = answers(facts, a=running(A, one), b=waits)
    assert (second["a"].runs, second["b"].runs) == ((one,), (other,))
    assert second["a"].members == {"A": (one,), "B": (other,)}
    assert not any(each.rebalance_wanted or each.withheld for each in second.values())


def test_only_what_another_member_runs_is_held_back() -> None:
    """What nobody runs starts at once, and so does what only has state elsewhere."""
    holds = running(A, STATELESS[0], TASKS[3])
    told = answers(a=replace(holds, tasks={**holds.tasks, STATEFUL[0]: 5}), b=B)
    assert (told["a"].active, told["b"].active) == ((STATELESS[0], TASKS[3]), (TASKS[1], TASKS[2]))
    assert not any(each.rebalance_wanted or each.withheld for each in told.values())
    # It has state, and runs on a client without threads: that one has to stop it first.
    told = answers(a=replace(holds, threads=0), b=B)
    assert (told["a"].active, told["b"].active) == ((), TASKS)
    assert told["b"].withheld == (STATELESS[0], TASKS[3])


def test_a_task_that_an_odd_member_holds_is_not_waited_for() -> None:
    """It stops when it has read that it does not belong here; its tasks are fenced by the broker at once."""
    odd = running(B, TASKS[1], topology="t2")
    works = running(A, TASKS[0], TASKS[2])
    told = answers(a=works, b=odd)
    assert codes(told) == {"a": "NONE", "b": "ASSIGNMENT_ERROR"}
    assert (told["a"].runs, told["a"].rebalance_wanted) == (TASKS, False)


@pytest.mark.parametrize("tasks", [STATELESS, STATEFUL])
def test_a_zombie_that_wakes_does_not_stop_its_successor(tasks: tuple[TaskId, ...]) -> None:
    """It is stopping what is fenced already; the one that runs it well goes on."""
    facts = replace(FACTS, tasks=tasks)
    stopping = frozenset(tasks[:1])
    for zombie in (replace(A, running=stopping), running(A, tasks[0])):
        told = answers(facts, a=replace(zombie, stopping=stopping), b=running(B, tasks[0]))
        assert (told["a"].runs, told["b"].runs) == (tasks[1:], tasks[:1])
    # Nor does its claim decide which of two tasks its successor hands over.
    told = answers(facts, a=replace(A, running=stopping, stopping=stopping), b=running(B, *tasks))
    assert (told["b"].runs, told["a"].active, told["a"].withheld) == (tasks[:1], tasks[1:], tasks[1:])


def test_a_zombie_that_gets_a_task_back_waits_for_its_successor_too() -> None:
    """It has state of the task, so balance gives it that one; but it does not run it well yet."""
    facts = replace(FACTS, tasks=STATEFUL)
    back = STATEFUL[0]
    zombie = running(A, back, stopping=frozenset({back}))
    first = answers(facts, a=zombie, b=running(B, *STATEFUL))
    assert first["a"].active == first["a"].withheld == (back,)
    assert first["b"].runs == STATEFUL[1:]
    assert first["a"].rebalance_wanted
    # One that nobody else runs it simply starts again.
    second = answers(facts, a=zombie, b=running(B, STATEFUL[1]))
    assert (second["a"].runs, second["b"].runs) == ((back,), STATEFUL[1:])
    assert not second["a"].rebalance_wanted


def test_a_task_that_changes_hands_is_warmed_up_first() -> None:
    """Its holder keeps it, and says so to all; the other one has it as a standby and knows what for. When
    that one is up to date, it gets it, and runs it when the holder has released it."""
    facts = replace(FACTS, tasks=STATEFUL, max_warmups=2)
    holds = running(A, *STATEFUL, up_to_date=frozenset(STATEFUL))
    first = answers(facts, a=holds, b=B)
    assert (first["a"].runs, first["b"].active) == (STATEFUL, ())
    (moves,) = first["b"].standby
    assert first["b"].warming == (moves,)
    assert first["a"].warming == ()
    assert first["a"].hosts == {"a:1": (STATEFUL, ()), "b:2": ((), (moves,))}
    assert not any(each.rebalance_wanted or each.withheld for each in first.values())
    warm = replace(B, tasks={moves: 7}, up_to_date=frozenset({moves}))
    second = answers(facts, a=holds, b=warm)
    stays = tuple(task for task in STATEFUL if task != moves)
    assert second["b"].active == second["b"].withheld == (moves,)
    assert second["b"].warming == second["b"].standby == ()
    assert second["a"].active == stays
    assert second["a"].rebalance_wanted
    has = replace(warm, tasks={moves: LATEST_OFFSET})
    third = answers(facts, a=running(A, *stays, up_to_date=frozenset(stays)), b=has)
    assert (third["a"].runs, third["b"].runs) == (stays, (moves,))
    assert not third["a"].rebalance_wanted


def test_a_task_without_state_has_no_standby_and_fills_nothing_before_it_moves() -> None:
    """It waits only until Spark runs at its destination, however few tasks may warm up at a time, and then
    until its holder has released it."""
    stateful, moves = TASKS[:3], TASKS[3]
    facts = replace(FACTS, stateful=stateful, max_warmups=1)
    holds = running(A, *TASKS, up_to_date=frozenset(TASKS))
    first = answers(facts, a=holds, b=B)
    assert (first["a"].runs, first["b"].active) == (TASKS, ())
    (fills,) = first["b"].standby
    assert first["b"].warming == (fills, moves)
    assert fills in stateful
    assert not any(each.rebalance_wanted or each.withheld for each in first.values())
    warm = replace(B, warm=True, tasks={fills: 5}, up_to_date=frozenset({moves}))
    second = answers(facts, a=holds, b=warm)
    assert second["a"].runs == stateful
    assert second["b"].active == second["b"].withheld == (moves,)
    assert second["b"].standby == second["b"].warming == (fills,)
    third = answers(facts, a=running(A, *stateful, up_to_date=frozenset(stateful)), b=warm)
    assert third["b"].runs == (moves,)
    # Nor does it get one where there are to be standbys.
    told = answers(replace(facts, standby_replicas=1), a=holds, b=B)
    assert (told["a"].runs, told["a"].standby) == (TASKS, ())
    assert (told["b"].active, told["b"].standby) == ((), stateful)
    assert moves in told["b"].warming
    told = answers(replace(facts, stateful=(), standby_replicas=1), a=holds, b=B)
    assert told["a"].runs == TASKS
    assert len(told["b"].warming) == 2
    assert not any(each.standby for each in told.values())


def test_a_task_without_state_moves_at_once_if_nothing_is_to_warm_up() -> None:
    """Or if it does not run well where it is."""
    facts = replace(FACTS, stateful=(), standby_replicas=1)
    holds = running(A, *TASKS)
    for most, ready in ((0, TASKS), (2, ())):
        told = answers(replace(facts, max_warmups=most), a=replace(holds, up_to_date=frozenset(ready)), b=B)
        assert told["b"].active == told["b"].withheld
        assert (len(told["a"].runs), len(told["b"].active)) == (2, 2)
        assert not any(each.standby or each.warming for each in told.values())


IN_RACKS = ("r1", "r2", "r3")


@dataclass
class Client:
    """A client that does as it is told, and takes its time to stop.

    Attributes:
        runs, stopping: the tasks that it runs, and those that it is stopping.
        active, standby: the tasks that it has, or is going to run.
        warming: what it is going to have, as soon as it is ready.
        ready: Spark runs, and it has filled all of its stores.
    """

    info: MemberInfo
    stateful: frozenset[TaskId]
    runs: set[TaskId] = field(default_factory=set)
    stopping: set[TaskId] = field(default_factory=set)
    active: set[TaskId] = field(default_factory=set)
    standby: set[TaskId] = field(default_factory=set)
    warming: set[TaskId] = field(default_factory=set)
    ready: bool = False

    def said(self) -> MemberInfo:
        active = self.runs | self.stopping | (self.active & self.stateful)
        tasks = {**dict.fromkeys(self.standby, 5), **dict.fromkeys(active, LATEST_OFFSET)}
        ready = tasks.keys() | (self.warming - self.stateful) if self.ready else ()
        return replace(
            self.info,
            running=frozenset(self.runs | self.stopping),
            stopping=frozenset(self.stopping),
            tasks=tasks,
            up_to_date=frozenset(ready),
        )

    def told(self, answer: Assignment) -> None:
        # What it is given back it starts again, when it has stopped it.
        self.stopping = (self.stopping | self.runs) - set(answer.runs)
        self.runs = set(answer.runs)
        self.active, self.standby = set(answer.active), set(answer.standby)
        self.warming = set(answer.warming)


@dataclass
class Group:
    """Clients that come and go, and the rounds in which they agree."""

    chance: random.Random
    facts: LeaderFacts
    where: TaskRacks = field(default_factory=TaskRacks)
    clients: dict[str, Client] = field(default_factory=dict)
    joined: int = 0

    @classmethod
    def of(cls, chance: random.Random, max_warmups: int) -> Group:
        """An application with a few tasks, some of which have state, and no client."""
        tasks = [
            TaskId(number, each)
            for number in range(chance.randint(1, 3))
            for each in range(chance.randint(1, 5))
        ]
        stateful = tuple(task for task in tasks if task.subtopology % 2)
        facts = replace(FACTS, tasks=tuple(tasks), stateful=stateful, max_warmups=max_warmups)
        strategy = chance.choice([NONE, MIN_TRAFFIC, BALANCE_SUBTOPOLOGY])
        rules = RackRules(strategy, Costs(10, chance.choice([0, 1, 10])))
        facts = replace(facts, standby_replicas=chance.randint(0, 2), racks=rules)
        where = {task: (frozenset(chance.choices(IN_RACKS, k=chance.randint(1, 2))),) for task in tasks}
        return cls(chance, facts, TaskRacks(where, where))

    def join(self) -> None:
        """One more client."""
        threads = self.chance.randint(1, 3)
        info = replace(A, process_id=UUID(int=self.chance.getrandbits(64)), threads=threads)
        info = replace(info, rack=self.chance.choice(IN_RACKS))
        self.clients[f"m{self.joined}"] = Client(info, frozenset(self.facts.stateful))
        self.joined += 1

    def rebalance(self) -> dict[str, Assignment]:
        """One round. No task runs twice then, not even while it is being stopped."""
        said = {name: each.said() for name, each in self.clients.items()}
        told = answers(self.facts, look_up=lambda: self.where, **said)
        for name, answer in told.items():
            self.clients[name].told(answer)
        held = [task for each in self.clients.values() for task in each.runs | each.stopping]
        assert len(held) == len(set(held))
        return told

    def settle(self) -> None:
        """Rounds until nothing changes any more, as everybody is quick now. Each task runs then."""
        told: dict[str, Assignment] = {}
        for _ in range(2 * len(self.facts.tasks) + 3):
            for each in self.clients.values():
                each.stopping.clear()
                each.ready = True
            before, told = told, self.rebalance()
        assert told == before
        assert not any(answer.rebalance_wanted or answer.warming for answer in told.values())
        ran = sorted(task for each in self.clients.values() for task in each.runs)
        assert ran == sorted(self.facts.tasks)


@given(st.integers(0, 10**9))
def test_no_task_ever_runs_twice_and_all_run_in_the_end(seed: int) -> None:
    """Clients come, go, and stop slowly; rebalances come at any moment."""
    chance = random.Random(seed)
    group = Group.of(chance, max_warmups=chance.randint(0, 2))
    for _ in range(20):
        match chance.choice(["join", "leave", "stopped", "filled", "rebalance"]):
            case "join" if len(group.clients) < 4:
                group.join()
            case "leave" if group.clients:
                del group.clients[chance.choice(sorted(group.clients))]
            case "stopped" if group.clients:
                group.clients[chance.choice(sorted(group.clients))].stopping.clear()
            case "filled" if group.clients:
                each = group.clients[chance.choice(sorted(group.clients))]
                each.ready = not each.ready
        group.rebalance()
    if group.clients:
        group.settle()


@given(st.integers(0, 10**9))
def test_a_task_that_moves_starts_once_and_does_not_go_back_and_forth(seed: int) -> None:
    """However many rounds it takes until all is released, and in whatever order, while nobody comes or goes:
    who is stopping a task does not get it back, and who has started one keeps it. Unless it has only stood in
    for a client that left, until the task was warm in its own rack."""
    chance = random.Random(seed)
    group = Group.of(chance, max_warmups=chance.randint(0, 1))
    for _ in range(chance.randint(1, 3)):
        group.join()
    group.settle()
    for _ in range(chance.randint(0, 2)):
        group.join()
    orphans: set[TaskId] = set()
    if len(group.clients) > 1 and chance.random() < 0.5:
        orphans = group.clients.pop(chance.choice(sorted(group.clients))).runs
    started: list[TaskId] = []

    def rebalance() -> None:
        before = {name: (set(each.runs), set(each.stopping)) for name, each in group.clients.items()}
        for name, answer in group.rebalance().items():
            runs, stopping = before[name]
            assert not stopping.intersection(answer.active)
            started.extend(set(answer.runs) - runs)

    for _ in range(8):
        rebalance()
        for each in group.clients.values():
            each.stopping = {task for task in sorted(each.stopping) if chance.random() < 0.6}
            each.ready = chance.random() < 0.5
    for _ in range(2 * len(group.facts.tasks) + 3):
        for each in group.clients.values():
            each.stopping.clear()
            each.ready = True
        rebalance()
    group.settle()
    stood_in = orphans.intersection(group.facts.stateful) if group.facts.racks.is_used else set()
    assert all(count <= 1 + (task in stood_in) for task, count in Counter(started).items())


# --- never without an answer -----------------------------------------------------------------------------


def test_a_fault_of_ours_is_an_answer_too(caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be encoded, here: everyone is told, and the leader's log has the traceback."""
    long = "x" * (MOST_USER_DATA_BYTES - 1000)
    many = {
        f"m{number}": replace(A, process_id=UUID(int=number), serdes={str(number): (long, "")})
        for number in range(MOST_TRAILER_BYTES // MOST_USER_DATA_BYTES + 1)
    }
    with caplog.at_level(logging.ERROR):
        told = answers(**many, b=B)
    assert set(codes(told).values()) == {"ASSIGNMENT_ERROR"}
    assert "'A', which leads the group, failed: TaskAssignmentException" in told["b"].reason
    assert "Caught an error in the task assignment" in caplog.text


@given(
    st.dictionaries(
        st.text(max_size=5),
        st.one_of(
            st.binary(max_size=60),
            st.builds(
                lambda info, change, place: bytes(
                    change if number == place else byte for number, byte in enumerate(bytes_of(info))
                ),
                st.sampled_from([A, B, running(A, TASKS[0], stopping=frozenset(TASKS[:1]))]),
                st.integers(0, 255),
                st.integers(0, 250),
            ),
        ),
        max_size=4,
    )
)
def test_everyone_gets_an_answer_that_can_be_read(members: dict[str, bytes]) -> None:
    """Members may send any bytes."""
    told = assign(FACTS, members, "A")
    assert told.keys() == members.keys()
    held = [task for data in told.values() for task in Assignment.decode(data).active]
    assert len(held) == len(set(held))
