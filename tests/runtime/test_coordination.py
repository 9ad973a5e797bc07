"""The client's side of the group: what it says of itself, and what each answer means for it."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import (
    ApplicationShutdownException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.group.assignor import Facts
from millstream.group.codes import AssignorError
from millstream.group.layout import SubscriptionInfo
from millstream.group.userdata import Assignment, MemberInfo
from millstream.model import TaskId, TopicPartition
from millstream.runtime.coordination import (
    Coordination,
    FailThreads,
    Reaction,
    ShutDown,
    TakeWork,
    react,
)

KNOWN = frozenset(int(code) for code in AssignorError)


class Host:
    """A client that remembers what it was told."""

    def __init__(self, *pipelines: str) -> None:
        self.pipelines = pipelines
        self.process_id = uuid.uuid4()
        self.agreed: list[tuple[Reaction, int]] = []
        self.lost: list[str] = []
        self.failed: list[StreamsException] = []

    def member_info(self) -> MemberInfo:
        return MemberInfo(
            process_id=self.process_id, client_id="me", threads=1, pipelines=frozenset(self.pipelines)
        )

    def facts(self) -> Facts:
        return Facts(("p0", "p1"), (TaskId(0, 0),))

    def source_partitions(self, pipelines: Iterable[str]) -> Iterable[TopicPartition]:
        return [TopicPartition(name, 0) for name in pipelines]

    def group_agreed(self, reaction: Reaction, generation: int) -> None:
        self.agreed.append((reaction, generation))

    def group_lost(self, reason: str) -> None:
        self.lost.append(reason)

    def group_failed(self, error: StreamsException) -> None:
        self.failed.append(error)

    def finished_offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition("p0", 0): 3}


def said(coordination: Coordination) -> MemberInfo:
    return MemberInfo.from_subscription(SubscriptionInfo.decode(coordination.user_data()))


# --- the table of error codes (StreamsRebalanceListenerTest) -----------------------------------------------


@pytest.mark.parametrize("code", [AssignorError.NONE, AssignorError.VERSION_PROBING])
def test_an_assignment_without_an_error_is_work(code: AssignorError) -> None:
    """Version probing is one: the members that can be read go on."""
    told = Assignment(error_code=code, pipelines=("p0",))
    assert react(told, "me") == TakeWork(told)


@pytest.mark.parametrize(
    ("assignment", "kind", "text"),
    [
        (
            Assignment(error_code=1, missing_topics=("b", "a"), leader="L"),
            MissingSourceTopicException,
            "One or more source topics were missing during rebalance: 'a', 'b', as 'L' sees it",
        ),
        (Assignment(error_code=1, leader="L"), MissingSourceTopicException, "rebalance: (not named), as 'L'"),
        (
            Assignment(error_code=3, reason="two topologies", leader="L"),
            TaskAssignmentException,
            "Hit an unexpected exception during task assignment phase of rebalance: two topologies",
        ),
        (Assignment(error_code=3, leader="L"), TaskAssignmentException, "see the log of 'L'"),
        (
            Assignment(error_code=5, leader="L"),
            TaskAssignmentException,
            "Hit an unrecognized exception during rebalance: error code 5 from 'L'",
        ),
    ],
)
def test_an_error_fails_the_threads(assignment: Assignment, kind: type[StreamsException], text: str) -> None:
    """Upstream's text, and then the facts."""
    reaction = react(assignment, "me")
    assert isinstance(reaction, FailThreads)
    assert type(reaction.error) is kind
    assert text in str(reaction.error)


def test_work_that_the_topology_does_not_have_fails_the_threads_and_is_named() -> None:
    """A leader with another program gave it. More partitions than this client knows of are no reason."""
    host = Host()
    coordination = Coordination("me", host)
    grown = Assignment(pipelines=("p1",), active=(TaskId(0, 7),))
    bad = Assignment(pipelines=("p0", "no\npe"), standby=(TaskId(9, 1),), leader="\x1b[2J")
    for number, told in enumerate((grown, bad)):
        coordination.assigned(told.encode(), number)
    (first, _), (second, _) = host.agreed
    assert first == TakeWork(grown)
    assert coordination.agreed == grown
    assert isinstance(second, FailThreads)
    assert isinstance(second.error, TaskAssignmentException)
    assert str(second.error).startswith(
        "the group's leader, client '\\x1b[2J', gave this client work that its topology does not have: "
        "'no\\npe', '9_1'. It leads with another program"
    )


def test_missing_topics_are_in_the_exception() -> None:
    """Sorted, as everywhere."""
    reaction = react(Assignment(error_code=1, missing_topics=("b", "a")), "me")
    assert isinstance(reaction, FailThreads)
    assert isinstance(reaction.error, MissingSourceTopicException)
    assert reaction.error.topics == ("a", "b")


@pytest.mark.parametrize(
    ("asked_by", "reason", "text"),
    [
        ("other", "it broke", "requesting to shutdown the application: client 'other', because of: it broke"),
        ("me", "it broke", "requesting to shutdown the application: this client, because of: it broke"),
        ("", "", "requesting to shutdown the application: client '(unknown)', because of: (no reason given)"),
    ],
)
def test_a_shutdown_says_who_asked_and_why(asked_by: str, reason: str, text: str) -> None:
    """KIP-671. Differs: upstream's other clients learn neither."""
    reaction = react(Assignment(error_code=4, asked_by=asked_by, reason=reason), "me")
    assert isinstance(reaction, ShutDown)
    assert isinstance(reaction.error, ApplicationShutdownException)
    assert reaction.error.client == (asked_by or "(unknown)")
    assert text in str(reaction.error)


@given(st.integers(-(2**31), 2**31 - 1))
def test_there_is_a_reaction_to_every_number(code: int) -> None:
    """Nothing that a leader of another version sends is left without one."""
    reaction = react(Assignment(error_code=code), "me")
    if code not in KNOWN:
        assert isinstance(reaction, FailThreads)
        assert "unrecognized" in str(reaction.error)


# --- what is sent ------------------------------------------------------------------------------------------


def test_no_two_joins_say_the_same() -> None:
    """A follower that says the same as before is not listened to (Kafka's `uniqueField`, testUniqueField)."""
    coordination = Coordination("me", Host())
    sent = [coordination.user_data() for _ in range(300)]
    assert all(before != after for before, after in itertools.pairwise(sent))
    fields = {SubscriptionInfo.decode(data).unique_field for data in sent}
    assert fields <= set(range(-128, 128))


def test_a_request_to_shut_down_stays_in_what_is_said_with_its_first_reason() -> None:
    """In each join that follows: the group may have to be asked twice."""
    coordination = Coordination("me", Host())
    assert said(coordination).error_code is AssignorError.NONE
    assert not coordination.shutdown_requested
    coordination.request_shutdown("first")
    coordination.request_shutdown("second")
    assert coordination.shutdown_requested
    for _ in range(2):
        info = said(coordination)
        assert (info.error_code, info.reason) == (AssignorError.SHUTDOWN_REQUESTED, "first")


def test_the_group_is_told_of_a_pipeline_that_was_let_go_of_and_of_nothing_else() -> None:
    """What counts is what was said last, not what was agreed."""
    host = Host("p0", "p1")
    coordination = Coordination("me", host)
    assert not coordination.must_rejoin(())  # nothing was said yet
    coordination.user_data()
    assert not coordination.must_rejoin(("p0", "p1"))
    assert not coordination.must_rejoin(("p0", "p1", "p2"))
    assert coordination.must_rejoin(("p0",))
    host.pipelines = ("p0",)
    coordination.user_data()
    assert not coordination.must_rejoin(("p0",))


# --- what comes --------------------------------------------------------------------------------------------


def test_the_last_good_agreement_is_kept() -> None:
    """Health and metadata go on with it while an error lasts."""
    host = Host()
    coordination = Coordination("me", host)
    assert coordination.agreed is None
    good = Assignment(pipelines=("p0",), leader="L")
    coordination.assigned(good.encode(), 3)
    coordination.assigned(Assignment(error_code=3).encode(), 4)
    assert coordination.agreed == good
    assert [generation for _, generation in host.agreed] == [3, 4]


@given(st.binary(max_size=200))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    """Nothing that comes from the network raises here; what cannot be read fails the threads."""
    host = Host()
    coordination = Coordination("me", host)
    coordination.assigned(data, 1)
    list(coordination.partitions(data))
    ((reaction, generation),) = host.agreed
    assert generation == 1
    if coordination.agreed is None:
        assert isinstance(reaction, FailThreads | ShutDown)
    else:
        assert reaction == TakeWork(Assignment.decode(data))


def test_a_leader_answers_for_all() -> None:
    """With what its client knows; itself included."""
    host = Host()
    coordination = Coordination("me", host)
    plan = coordination.lead({"m1": coordination.user_data(), "m2": b"garbage"})
    assert plan.keys() == {"m1", "m2"}
    mine, garbage = Assignment.decode(plan["m1"]), Assignment.decode(plan["m2"])
    assert (mine.pipelines, mine.active, mine.leader) == (("p0", "p1"), (TaskId(0, 0),), "me")
    assert garbage.error_code == AssignorError.ASSIGNMENT_ERROR
    assert list(coordination.partitions(plan["m1"])) == [TopicPartition("p0", 0), TopicPartition("p1", 0)]


def test_the_rest_is_passed_on() -> None:
    """Lost, failed, offsets."""
    host = Host()
    coordination = Coordination("me", host)
    coordination.lost("silence")
    coordination.failed(error := TaskAssignmentException("refused"))
    assert (host.lost, host.failed) == (["silence"], [error])
    assert coordination.offsets() == {TopicPartition("p0", 0): 3}
