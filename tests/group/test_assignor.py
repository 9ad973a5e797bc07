"""What the leader answers: to everyone, always, in upstream's order; and that no pipeline ever runs twice."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.group.assignor import LeaderFacts, Memory, assign
from millstream.group.balance import balance, warmed_up_first
from millstream.group.codes import AssignorError
from millstream.group.userdata import (
    MOST_TRAILER_BYTES,
    MOST_USER_DATA_BYTES,
    Assignment,
    MemberInfo,
    Program,
)
from millstream.group.userdata_layout import LATEST_OFFSET, SubscriptionInfo
from millstream.model import TaskId

TASKS = (TaskId(1, 0), TaskId(1, 1))
FACTS = LeaderFacts(pipelines=("p0", "p1"), tasks=TASKS, topology="t1")
A = MemberInfo(UUID(int=1), "A", topology="t1", endpoint="a:1")
B = MemberInfo(UUID(int=2), "B", topology="t1", endpoint="b:2")
C = MemberInfo(UUID(int=3), "C", topology="t1")

GARBAGE = b"\xff\0garbage"
FUTURE = b"\0\0\0\x0c\0\0\0\x0c"


def bytes_of(info: MemberInfo | bytes) -> bytes:
    return info if isinstance(info, bytes) else info.to_subscription().encode()


def answers(
    facts: LeaderFacts = FACTS, leader: str = "A", memory: Memory | None = None, **members: MemberInfo | bytes
) -> dict[str, Assignment]:
    """One for each member, decoded."""
    told = assign(facts, {name: bytes_of(info) for name, info in members.items()}, leader, memory)
    assert told.keys() == members.keys()
    return {name: Assignment.decode(data) for name, data in told.items()}


def codes(told: Mapping[str, Assignment]) -> dict[str, str]:
    return {name: AssignorError(answer.error_code).name for name, answer in told.items()}


# --- the order of the decisions --------------------------------------------------------------------------


def test_a_group_that_agrees_shares_the_work() -> None:
    """Each member knows where everything is."""
    serdes = {"counts": ("k", "v")}
    told = answers(replace(FACTS, standby_replicas=1), a=replace(A, serdes=serdes), b=B)
    assert codes(told) == {"a": "NONE", "b": "NONE"}
    assert sorted(told["a"].pipelines + told["b"].pipelines) == ["p0", "p1"]
    assert sorted(told["a"].active + told["b"].active) == sorted(TASKS)
    assert told["b"].standby == told["a"].active
    assert told["b"].hosts == {
        "a:1": (told["a"].active, told["a"].standby),
        "b:2": (told["b"].active, told["b"].standby),
    }
    assert told["b"].members["A"] == (told["a"].pipelines, told["a"].active)
    assert told["b"].serdes == serdes
    assert (told["b"].leader, told["b"].rebalance_wanted) == ("A", False)


def test_a_member_that_cannot_be_read_is_told_so_and_the_others_go_on() -> None:
    """No bytes of one client can stop the others."""
    told = answers(a=A, broken=GARBAGE, empty=b"")
    assert codes(told) == {"a": "NONE", "broken": "ASSIGNMENT_ERROR", "empty": "ASSIGNMENT_ERROR"}
    assert told["a"].pipelines == ("p0", "p1")
    assert "your user data cannot be read" in told["broken"].reason


def test_a_member_of_a_newer_version_is_told_ours_and_the_others_go_on() -> None:
    """Version probing: it joins again, with a version that we know."""
    told = answers(a=A, future=FUTURE)
    assert codes(told) == {"a": "NONE", "future": "VERSION_PROBING"}
    assert told["a"].pipelines == ("p0", "p1")


def test_one_request_to_shut_down_outranks_everything() -> None:
    """KIP-671; all learn who asked, and why."""
    asks = replace(B, error_code=AssignorError.SHUTDOWN_REQUESTED, reason="poison", topology="t2")
    facts = replace(FACTS, missing_topics=("lines",))
    told = answers(facts, a=A, b=asks, broken=GARBAGE, future=FUTURE)
    assert set(codes(told).values()) == {"SHUTDOWN_REQUESTED"}
    assert {(each.asked_by, each.reason, each.leader) for each in told.values()} == {("B", "poison", "A")}
    assert all(not each.pipelines and not each.active for each in told.values())


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
    works = replace(B, pipelines=frozenset({"p0"}))
    told = answers(a=works, c=replace(C, topology="t2"))
    assert codes(told) == {"a": "NONE", "c": "ASSIGNMENT_ERROR"}
    reason = told["c"].reason
    assert all(part in reason for part in ("'C'", "'B'", "(t2)", "(t1)", "Run the same program"))


def test_the_side_that_works_stays_even_when_it_is_smaller() -> None:
    """A wrong program that is rolled out to most hosts must not take the work away."""
    works = replace(C, pipelines=frozenset({"p0"}))
    told = answers(a=replace(A, topology="t2"), b=replace(B, topology="t2"), c=works)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "ASSIGNMENT_ERROR", "c": "NONE"}


def test_state_on_disk_is_no_work() -> None:
    """A changed program may find the stores of the one before it."""
    disk = replace(A, topology="t2", tasks={TASKS[0]: 5, TASKS[1]: 5})
    assert codes(answers(a=disk, b=B, c=C))["a"] == "ASSIGNMENT_ERROR"


def test_without_work_the_majority_stays_and_then_the_smallest_process_id() -> None:
    """All leaders choose the same side."""
    odd = replace(A, topology="t2")
    assert codes(answers(a=odd, b=B, c=C))["a"] == "ASSIGNMENT_ERROR"
    assert codes(answers(a=odd, b=B)) == {"a": "NONE", "b": "ASSIGNMENT_ERROR"}


def test_a_leader_that_is_the_odd_one_leads_the_others_all_the_same() -> None:
    """It knows their pipelines from themselves, and does not trouble them with its own missing topics."""
    program = Program(("q0",), (TaskId(5, 0),), 0)
    others = [replace(each, topology="t2", program=program) for each in (B, C)]
    facts = replace(FACTS, missing_topics=("lines",))
    told = answers(facts, a=A, b=replace(others[0], pipelines=frozenset({"q0"})), c=others[1])
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE", "c": "NONE"}
    assert (told["b"].pipelines, told["c"].pipelines) == (("q0",), ())
    assert told["b"].active + told["c"].active == (TaskId(5, 0),)


def test_a_leader_that_does_not_know_a_topology_takes_nothing_away() -> None:
    """Members that do not say what their topology has keep what they hold."""
    holds = {TaskId(5, 0): LATEST_OFFSET}
    told = answers(a=A, b=replace(B, topology="t2", pipelines=frozenset({"q0"}), tasks=holds))
    assert (told["b"].pipelines, told["b"].active) == (("q0",), (TaskId(5, 0),))


# --- words and deeds -------------------------------------------------------------------------------------


BIGGER = replace(
    A,
    client_id="bigger",
    topology="t2",
    pipelines=frozenset(f"q{number}" for number in range(500)),
    tasks={TaskId(9, number): LATEST_OFFSET for number in range(500)},
)


def test_who_took_part_before_keeps_the_work_whatever_others_say_they_hold() -> None:
    """Members say that they hold more than it does."""
    memory = Memory()
    facts = replace(FACTS, pipelines=())
    assert codes(answers(facts, memory=memory, b=B)) == {"b": "NONE"}
    crowd = {f"a{number}": replace(BIGGER, process_id=UUID(int=50 + number)) for number in range(9)}
    told = answers(facts, memory=memory, **crowd, b=B)
    assert codes(told) == {**dict.fromkeys(crowd, "ASSIGNMENT_ERROR"), "b": "NONE"}
    assert told["b"].active == TASKS


def test_who_took_part_before_with_another_program_is_no_better_known_for_it() -> None:
    """It says that it is one of them first, and changes its mind when it is believed."""
    memory = Memory()
    facts = replace(FACTS, pipelines=())
    turncoat = replace(A, tasks={})
    assert set(codes(answers(facts, memory=memory, a=turncoat, b=B)).values()) == {"NONE"}
    turned = replace(BIGGER, process_id=turncoat.process_id)
    assert codes(answers(facts, memory=memory, a=turned, b=B)) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}


def test_a_leader_that_took_part_before_knows_itself() -> None:
    """The leader that knew everybody has gone."""
    memory = Memory()
    memory.own = bytes_of(B)
    told = answers(replace(FACTS, pipelines=()), memory=memory, a=BIGGER, b=B)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}


def test_a_copied_state_directory_is_told_to_the_copy() -> None:
    """The original is the one that took part before."""
    copy = replace(A, client_id="copy", pipelines=frozenset({"p0", "p1"}))
    memory = Memory()
    answers(memory=memory, b=A)
    told = answers(memory=memory, a=copy, b=A)
    assert codes(told) == {"a": "ASSIGNMENT_ERROR", "b": "NONE"}
    assert all(part in told["a"].reason for part in ("'copy'", "'A'", str(A.process_id), "state.dir"))
    assert told["b"].pipelines == ("p0", "p1")


def test_of_two_with_one_process_id_neither_is_believed_and_both_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One repeats all that the other says; the real one must not fail for it."""
    real, memory = replace(A, pipelines=frozenset({"p0"})), Memory()
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
        pipelines=frozenset({"p0", "nope"}),
        tasks=dict.fromkeys([TASKS[0], *(TaskId(7, number) for number in range(16_000))], LATEST_OFFSET),
    )
    memory = Memory()
    for _ in range(2):
        told = answers(memory=memory, a=boasts, b=B)
        assert told["a"].pipelines + told["b"].pipelines == ("p0", "p1")
        assert (told["a"].active, told["b"].active) == (TASKS[:1], TASKS[1:])
    (said,) = [record.message for record in caplog.records if "does not have" in record.message]
    assert "'a' claims pipelines or tasks that this application does not have" in said
    assert "1 pipeline(s): 'nope' and 16,000 task(s): '7_0', '7_1', '7_2' and 15,997 more" in said


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
        "a": replace(first, tasks=having, up_to_date=frozenset(ids)),
        "b": second,
        "c": replace(C, tasks=dict.fromkeys(ids[: tasks // 2], 5)),
    }
    CountedTask.compared = 0
    work, _ = warmed_up_first(members, balance(members, ("p0",), ids, 1), 2)
    assert sum(len(each.active) for each in work.values()) == tasks
    assert CountedTask.compared < 400 * tasks


class CountedTask(TaskId):
    """A task that counts how often it is hashed: each look into a set or a dict is one."""

    compared = 0

    def __hash__(self) -> int:
        CountedTask.compared += 1
        return super().__hash__()


# --- handing over ----------------------------------------------------------------------------------------


def test_a_pipeline_that_changes_hands_is_held_back_for_one_round() -> None:
    """Two clients never run it at once because the group said so; tasks need no such care."""
    holds = replace(A, pipelines=frozenset({"p0", "p1"}))
    first = answers(a=holds, b=B)
    assert (first["a"].pipelines, first["b"].pipelines) == (("p0",), ())
    assert first["a"].rebalance_wanted
    assert first["b"].rebalance_wanted
    assert first["b"].members["B"][0] == ()
    # A is still stopping it, and somebody else has the group agree anew.
    stopping = answers(a=replace(holds, stopping=frozenset({"p1"})), b=B)
    assert (stopping["a"].pipelines, stopping["b"].pipelines) == (("p0",), ())
    second = answers(a=replace(A, pipelines=frozenset({"p0"})), b=B)
    assert (second["a"].pipelines, second["b"].pipelines) == (("p0",), ("p1",))
    assert not second["a"].rebalance_wanted


def test_a_pipeline_that_an_odd_member_holds_is_not_waited_for() -> None:
    """It stops when it has read that it does not belong here; its tasks are fenced by the broker at once."""
    odd = replace(B, topology="t2", pipelines=frozenset({"p1"}))
    works = replace(A, pipelines=frozenset({"p0"}), tasks={TASKS[0]: LATEST_OFFSET})
    told = answers(a=works, b=odd)
    assert codes(told) == {"a": "NONE", "b": "ASSIGNMENT_ERROR"}
    assert (told["a"].pipelines, told["a"].rebalance_wanted) == (("p0", "p1"), False)


def test_a_zombie_that_wakes_does_not_stop_its_successor() -> None:
    """It is stopping what is fenced already; the one that runs it well goes on."""
    zombie = replace(A, pipelines=frozenset({"p0"}), stopping=frozenset({"p0"}))
    told = answers(a=zombie, b=replace(B, pipelines=frozenset({"p0", "p1"})))
    assert "p0" in told["b"].pipelines
    assert "p0" not in told["a"].pipelines


def test_a_task_that_changes_hands_is_warmed_up_first() -> None:
    """Its holder keeps it, and says so to all; the other one has it as a standby and knows what for. When
    that one is up to date, it gets it."""
    facts = replace(FACTS, pipelines=(), max_warmups=2)
    holds = replace(A, tasks=dict.fromkeys(TASKS, LATEST_OFFSET), up_to_date=frozenset(TASKS))
    first = answers(facts, a=holds, b=B)
    assert (first["a"].active, first["b"].active) == (TASKS, ())
    (moves,) = first["b"].standby
    assert first["b"].warming == (moves,)
    assert first["a"].warming == ()
    assert first["a"].hosts == {"a:1": (TASKS, ()), "b:2": ((), (moves,))}
    warm = replace(B, tasks={moves: 7}, up_to_date=frozenset({moves}))
    second = answers(facts, a=holds, b=warm)
    assert second["b"].active == (moves,)
    assert second["b"].warming == second["b"].standby == ()
    assert second["a"].active == tuple(task for task in TASKS if task != moves)


@dataclass
class Client:
    """A client that does as it is told, and takes its time to stop."""

    info: MemberInfo
    runs: set[str] = field(default_factory=set)
    stopping: set[str] = field(default_factory=set)

    def said(self) -> MemberInfo:
        return replace(
            self.info,
            pipelines=frozenset(self.runs | self.stopping),
            stopping=frozenset(self.stopping),
        )

    def told(self, pipelines: tuple[str, ...]) -> None:
        # What it is given back it starts again, when it has stopped it.
        self.stopping = (self.stopping | self.runs) - set(pipelines)
        self.runs = set(pipelines)


@given(st.integers(0, 10**9))
def test_no_pipeline_ever_runs_twice_and_all_run_in_the_end(seed: int) -> None:
    """Clients come, go, and stop slowly; rebalances come at any moment."""
    chance = random.Random(seed)
    names = tuple(f"p{number}" for number in range(chance.randint(1, 5)))
    facts = replace(FACTS, pipelines=names)
    group: dict[str, Client] = {}

    def rebalance() -> bool:
        told = answers(facts, **{name: each.said() for name, each in group.items()})
        for name, answer in told.items():
            group[name].told(answer.pipelines)
        held = [each for member in group.values() for each in member.runs | member.stopping]
        assert len(held) == len(set(held))
        return any(answer.rebalance_wanted for answer in told.values())

    for step in range(20):
        match chance.choice(["join", "leave", "stopped", "rebalance"]):
            case "join" if len(group) < 4:
                threads = chance.randint(1, 3)
                info = replace(A, process_id=UUID(int=chance.getrandbits(64)), threads=threads)
                group[f"m{step}"] = Client(info)
            case "leave" if group:
                del group[chance.choice(sorted(group))]
            case "stopped" if group:
                group[chance.choice(sorted(group))].stopping.clear()
        rebalance()
    if group:
        for _ in range(3):
            for each in group.values():
                each.stopping.clear()
            wanted = rebalance()
        assert not wanted
        assert sorted(name for each in group.values() for name in each.runs) == sorted(names)


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
                st.sampled_from([A, B, replace(A, pipelines=frozenset({"p0"}), tasks={TASKS[0]: 7})]),
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
    held = [name for data in told.values() for name in Assignment.decode(data).pipelines]
    assert len(held) == len(set(held))
