"""The client's side of the group: what it says of itself, and what each answer means for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulation import PIPELINES, PLAN, TASKS

from millstream.errors import (
    ApplicationShutdownException,
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.group.codes import AssignorError
from millstream.group.userdata import Assignment
from millstream.model import TaskId
from millstream.runtime.state.assignment import Share
from millstream.runtime.state.client_state import ClientFacts, ClientState, Moment
from millstream.runtime.state.coordination import (
    WARM_TOGETHER_S,
    FailThreads,
    ShutDown,
    TakeWork,
)
from millstream.runtime.state.coordination import (
    react as meaning,
)
from millstream.runtime.state.events import (
    AddAsked,
    AgreementAsked,
    Answered,
    Assigned,
    Created,
    Event,
    FailThread,
    Give,
    GroupJoined,
    Instruction,
    OpeningBegins,
    OpeningEnded,
    Planned,
    Rejoin,
    Reported,
    Settled,
    StartAsked,
    ThreadMoved,
    TopicsLost,
    Warmed,
)
from millstream.runtime.state.failure import Failure, HandlerAnswer, Response
from millstream.runtime.state.reactions import react
from millstream.states import State, ThreadState

KNOWN = frozenset(int(code) for code in AssignorError)


# --- the table of error codes (StreamsRebalanceListenerTest) -----------------------------------------------


@pytest.mark.parametrize("code", [AssignorError.NONE, AssignorError.VERSION_PROBING])
def test_an_assignment_without_an_error_is_work(code: AssignorError) -> None:
    """Version probing is one: the members that can be read go on."""
    told = Assignment(error_code=code, active=(TaskId(0, 0),))
    assert meaning(told, "me") == TakeWork(told)


@pytest.mark.parametrize(
    ("assignment", "kind", "text"),
    [
        (
            Assignment(error_code=1, missing_topics=("b", "a"), leader="L"),
            MissingSourceTopicException,
            "One or more source topics were missing during rebalance: 'a', 'b', according to the group "
            "leader 'L'",
        ),
        (
            Assignment(error_code=1, leader="L"),
            MissingSourceTopicException,
            "rebalance: (not named), according to the group leader 'L'",
        ),
        (
            Assignment(error_code=3, reason="two topologies", leader="L"),
            TaskAssignmentException,
            "Hit an unexpected exception during task assignment phase of rebalance: two topologies",
        ),
        (
            Assignment(error_code=3, leader="L"),
            TaskAssignmentException,
            "see the log of the group leader 'L'",
        ),
        (
            Assignment(error_code=5, leader="L"),
            TaskAssignmentException,
            "Hit an unrecognized exception during rebalance: error code 5 from 'L'",
        ),
    ],
)
def test_an_error_fails_the_threads(assignment: Assignment, kind: type[StreamsException], text: str) -> None:
    """Upstream's text, and then the facts."""
    reaction = meaning(assignment, "me")
    assert isinstance(reaction, FailThreads)
    assert type(reaction.error) is kind
    assert text in str(reaction.error)


def test_missing_topics_are_in_the_exception() -> None:
    """Sorted, as everywhere."""
    reaction = meaning(Assignment(error_code=1, missing_topics=("b", "a")), "me")
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
    reaction = meaning(Assignment(error_code=4, asked_by=asked_by, reason=reason), "me")
    assert isinstance(reaction, ShutDown)
    assert isinstance(reaction.error, ApplicationShutdownException)
    assert reaction.error.client == (asked_by or "(unknown)")
    assert text in str(reaction.error)


@given(st.integers(-(2**31), 2**31 - 1))
def test_there_is_a_reaction_to_every_number(code: int) -> None:
    """Nothing that a leader of another version sends is left without one."""
    reaction = meaning(Assignment(error_code=code), "me")
    if code not in KNOWN:
        assert isinstance(reaction, FailThreads)
        assert "unrecognized" in str(reaction.error)


# --- what an agreement does to a client --------------------------------------------------------------------


def after(state: ClientState, *events: Event) -> tuple[ClientState, list[Instruction]]:
    """The client after these, and what was to be done about the last one."""
    done: tuple[Instruction, ...] = ()
    for event in events:
        state, done = react(state, event, Moment())
        state.check()
    return state, list(done)


def member(threads: int = 1) -> ClientState:
    """A client of two pipelines that has started, and is in its group."""
    state, _ = after(
        ClientState(ClientFacts("me", PIPELINES)),
        *(Created(threads), StartAsked(), OpeningBegins(), Planned(PLAN), GroupJoined(), OpeningEnded()),
    )
    return state


def rejoins(done: list[Instruction]) -> list[str]:
    return [each.reason for each in done if isinstance(each, Rejoin)]


GOOD = Assignment(active=(TaskId(0, 0),), leader="L", threads=1)


def test_work_that_the_topology_does_not_have_fails_the_threads_and_is_named() -> None:
    """A leader with another program gave it. More partitions than this client knows of are no reason."""
    grown = Assignment(active=(TaskId(0, 7),))
    bad = Assignment(active=(TaskId(8, 0),), standby=(TaskId(9, 1),), leader="\x1b[2J")
    first, done = after(member(), Assigned(grown, 1))
    assert first.group.agreed == grown
    assert [each for each in done if isinstance(each, FailThread)] == []
    second, done = after(first, Assigned(bad, 2))
    assert second.group.agreed == grown
    (failing,) = [each for each in done if isinstance(each, FailThread)]
    assert isinstance(failing.error, TaskAssignmentException)
    assert str(failing.error).startswith(
        "the group's leader, client '\\x1b[2J', assigned work to this client that its topology does not "
        "have: "
        "'8_0', '9_1'. It runs a different program"
    )


def test_what_could_not_be_agreed_is_agreed_anew_for_a_thread_that_begins() -> None:
    """The last good agreement is kept meanwhile, for health and metadata; the work is not."""
    state, done = after(member(2), Assigned(GOOD, 3), Assigned(Assignment(error_code=3), 4))
    assert (state.group.agreed, state.group.refused, state.group.took_part) == (GOOD, True, False)
    assert state.roster.work == Share()
    assert {each.name for each in done if isinstance(each, FailThread)} == {
        "me-StreamThread-1",
        "me-StreamThread-2",
    }
    state, done = after(state, AgreementAsked())
    assert rejoins(done) == ["a stream thread restarts after the group could not agree"]
    _, done = after(state, AgreementAsked())
    assert rejoins(done) == []


def test_an_assignment_that_cannot_be_read_fails_the_threads() -> None:
    """An assignment with an error code does the same."""
    error = TaskAssignmentException("garbage")
    _, done = after(member(), Assigned(error, 1))
    assert FailThread("me-StreamThread-1", error) in done


def test_no_two_joins_say_the_same() -> None:
    """A follower that says the same as before is not listened to (Kafka's `uniqueField`, testUniqueField)."""
    state, _ = after(member(), *[Reported(1, frozenset(), frozenset(), {})] * 300)
    assert state.group.reports == 300


def test_tasks_that_warm_up_are_reported_together_and_not_before_each_other() -> None:
    """Each report is a rebalance. One that takes long keeps the others waiting for ten seconds at most; and
    nothing is reported twice, however often it is looked at."""
    first, second, third = (TaskId(0, number) for number in range(3))
    waiting = Assignment(standby=(first, second, third), warming=(first, second), leader="L", threads=1)
    agreed, _ = after(member(), Reported(1, frozenset(), frozenset(), {}), Assigned(waiting, 1))

    def told(state: ClientState, now: float, *tasks: TaskId) -> tuple[ClientState, list[str]]:
        state, done = react(state, Warmed(frozenset(tasks)), Moment(now))
        return state, rejoins(list(done))

    state, said = told(agreed, 0.0, third)
    assert said == [], "nobody waits for it"
    state, said = told(state, 5.0, first)
    assert said == []
    both, said = told(state, 6.0, first, second)
    assert said == ["warmed up here: task(s) 0_0, 0_1"]
    assert told(both, 7.0, first, second)[1] == []

    state, said = told(state, 5.0 + WARM_TOGETHER_S, first, third)
    assert said == ["warmed up here: task(s) 0_0"]
    state, said = told(state, 6.0 + WARM_TOGETHER_S, first, third)
    assert said == []
    state, said = told(state, 7.0 + WARM_TOGETHER_S, first, second)
    assert said == ["warmed up here: task(s) 0_0, 0_1"]
    state, _ = after(state, Reported(1, frozenset(), frozenset((first, second)), {}))
    assert told(state, 8.0 + WARM_TOGETHER_S, first, second)[1] == []


def test_a_request_to_shut_down_stays_with_its_first_reason() -> None:
    """Each later join repeats it: the group may need to be asked twice."""
    state, done = after(
        member(2),
        *(asks("me-StreamThread-1", "first"), asks("me-StreamThread-2", "second")),
    )
    assert state.group.shutdown is not None
    assert "me-StreamThread-1" in state.group.shutdown
    assert rejoins(done) == ["shutdown requested"]


def asks(thread: str, text: str) -> Answered:
    """What a handler says that wants all clients to shut down."""
    return Answered(
        Failure.of(thread, StreamsException(text)), HandlerAnswer(Response.SHUTDOWN_APPLICATION), thread
    )


def test_the_group_is_told_of_a_task_that_was_let_go_of_and_of_nothing_else() -> None:
    """What counts is what was said last, not what was agreed; also if it was let go of while it was said."""
    both = Assignment(active=TASKS[:2], leader="L", threads=1)
    state, done = after(member(), Assigned(both, 1))
    (gift,) = [each for each in done if isinstance(each, Give)]
    state, done = after(state, Settled(gift.thread, gift.share, gift.ticket))
    assert rejoins(done) == []  # nothing was said yet
    state, done = after(state, Reported(1, frozenset(TASKS[:2]), frozenset(), {}))
    assert rejoins(done) == []
    state, done = after(state, Assigned(Assignment(active=TASKS[1:2], leader="L", threads=1), 2))
    assert rejoins(done) == []  # it still runs
    (gift,) = [each for each in done if isinstance(each, Give)]
    state, done = after(state, Settled(gift.thread, gift.share, gift.ticket))
    assert rejoins(done) == ["let go of a task"]
    _, done = after(state, Reported(1, frozenset(TASKS[1:2]), frozenset(), {}))
    assert rejoins(done) == []
    _, done = after(state, Reported(1, frozenset(TASKS[:2]), frozenset(), {}))
    assert rejoins(done) == ["let go of a task"]


def test_a_task_that_is_withheld_does_not_run_and_its_store_is_filled() -> None:
    """Another client still runs it."""
    told = Assignment(active=TASKS[:2], withheld=TASKS[:1], leader="L", threads=1)
    _, done = after(member(), Assigned(told, 1))
    (gift,) = [each for each in done if isinstance(each, Give)]
    assert gift.share.runs == TASKS[1:2]
    assert {each.task_id for each in gift.share.parts} == {*TASKS[:2]}


def test_an_agreement_for_a_client_without_threads_is_none_for_its_first_thread() -> None:
    """One that was under way when the thread was added; the leader says how many threads it knew of."""
    running, _ = after(
        member(0), Reported(0, frozenset(), frozenset(), {}), Assigned(Assignment(threads=0), 1)
    )
    assert running.state is State.RUNNING
    state, _ = after(running, AddAsked(), Reported(1, frozenset(), frozenset(), {}))
    late, _ = after(state, Assigned(Assignment(threads=0), 2))
    name = "me-StreamThread-1"
    for new in (ThreadState.STARTING, ThreadState.PARTITIONS_ASSIGNED):
        late, _ = after(late, ThreadMoved(name, new))
    late, _ = after(
        late, Settled(name, Share(), late.roster.tickets[name]), ThreadMoved(name, ThreadState.RUNNING)
    )
    assert late.state is State.REBALANCING
    late, _ = after(late, Assigned(Assignment(threads=1), 3))
    assert late.state is State.RUNNING


def test_what_is_written_and_gone_fails_whoever_is_concerned() -> None:
    """The threads that run tasks of the pipeline, and those that keep stores that are filled from it."""
    told = Assignment(active=(TASKS[0], TASKS[2]), leader="L", threads=2)
    state, done = after(member(2), Assigned(told, 1))
    gifts = {each.thread: each.share for each in done if isinstance(each, Give)}
    error = LostTopicException("gone", ("out",))
    _, done = after(state, TopicsLost("p1", error))
    (owner,) = [name for name, share in gifts.items() if "p1" in share.pipelines]
    assert [each.name for each in done if isinstance(each, FailThread)] == [owner]
    _, done = after(state, TopicsLost("p9", LostTopicException("gone", ("app-s-changelog",))))
    (keeper,) = [name for name, share in gifts.items() if share.parts]
    assert keeper != owner
    assert [each.name for each in done if isinstance(each, FailThread)] == [keeper]
