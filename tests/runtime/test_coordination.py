"""The client's side of the group: what it says of itself, and what each answer means for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import (
    ApplicationShutdownException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.group.codes import AssignorError
from millstream.group.trust import unknown_work
from millstream.group.userdata import Assignment
from millstream.model import TaskId
from millstream.runtime.coordination import (
    FailThreads,
    ShutDown,
    TakeWork,
    react,
)

KNOWN = frozenset(int(code) for code in AssignorError)


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


def test_work_that_the_topology_does_not_have_is_refused_and_named() -> None:
    """A leader with another program gave it. More partitions than this client knows of are no reason."""
    pipelines, tasks = ("p0", "p1"), (TaskId(0, 0), TaskId(1, 0))
    grown = Assignment(pipelines=("p1",), active=(TaskId(0, 7),))
    assert unknown_work(grown, pipelines, tasks) is None
    bad = Assignment(pipelines=("p0", "no\npe"), standby=(TaskId(9, 1),), leader="\x1b[2J")
    assert str(unknown_work(bad, pipelines, tasks)).startswith(
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
