"""KIP-671's table, row by row: every response, for both kinds of thread, in every state of the client."""

from __future__ import annotations

import itertools
import logging
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import PipelineException, ProcessorStateException, StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.state.failure import (
    Exhausted,
    Failure,
    HandlerAnswer,
    Response,
    Retry,
    StreamsUncaughtExceptionResponse,
    StreamThreadExceptionResponse,
    in_short,
)
from millstream.runtime.state.supervision import (
    Action,
    CallHook,
    CloseToError,
    EndThread,
    Hopeless,
    Log,
    LogFailure,
    ReplaceThread,
    ShutdownApplication,
    View,
    decide,
)
from millstream.states import State

OPEN = [State.RUNNING, State.REBALANCING]
NOT_OPEN = [state for state in State if state not in OPEN]
KINDS = {
    False: Failure.of("t1", StreamsException("poison")),
    True: Failure.of("global", StreamsException("poison"), is_global=True),
}
WINDOW = timedelta(minutes=10)
PLANS: list[Retry | Exhausted | Hopeless] = [
    Retry(2, 0.4, 5),
    *(Exhausted(6, WINDOW, then) for then in list(Response)[1:]),
    *(Hopeless("the topic was deleted", then) for then in list(Response)[1:]),
]

# For each response: the actions by class, for a stream thread that is not the last one, for the last one,
# and for the global thread. `L` LogFailure, `l` Log, `R` ReplaceThread, `C` CloseToError, `A`
# ShutdownApplication, `E` EndThread, `H` CallHook.
EXPECTED = {
    Response.REPLACE_THREAD: ("LR", "LR", "lLC"),
    Response.SHUTDOWN_CLIENT: ("LC", "LC", "LC"),
    Response.SHUTDOWN_APPLICATION: ("LAC", "LAC", "LAC"),
    Response.SHUTDOWN_THREAD: ("LE", "lLC", "lLC"),
}
LETTERS: dict[type[Action], str] = {
    Log: "l",
    LogFailure: "L",
    ReplaceThread: "R",
    CloseToError: "C",
    ShutdownApplication: "A",
    EndThread: "E",
    CallHook: "H",
}


def letters(actions: tuple[Action, ...]) -> str:
    return "".join(LETTERS[type(action)] for action in actions)


def message(actions: tuple[Action, ...]) -> str:
    """What is logged with the exception."""
    (text,) = [action.message for action in actions if isinstance(action, LogFailure)]
    return text


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("response", Response)
@pytest.mark.parametrize(
    ("is_global", "live", "column"),
    [(False, 2, 0), (False, 3, 0), (False, 1, 1), (True, 0, 2), (True, 1, 2), (True, 2, 2)],
)
def test_each_response_has_its_actions(
    response: Response, is_global: bool, live: int, column: int, state: State
) -> None:
    """The whole table of a client that is open and a member of a group."""
    actions = decide(HandlerAnswer(response), KINDS[is_global], View(state, live, group=True))
    assert letters(actions) == EXPECTED[response][column]


def test_in_any_other_state_the_client_ends_as_what_it_was_going_to() -> None:
    """The failure is logged; of the answers only the one that is about all clients is stronger than that."""
    for response, state, is_global, live in itertools.product(Response, NOT_OPEN, (False, True), (1, 2)):
        for plan in PLANS:
            actions = decide(HandlerAnswer(response), KINDS[is_global], View(state, live, group=True), plan)
            tells = response is Response.SHUTDOWN_APPLICATION and state.is_shutting_down
            assert letters(actions) == ("LA" if tells else "L"), (response, state, is_global, live, plan)
            alone = decide(HandlerAnswer(response), KINDS[is_global], View(state, live), plan)
            assert letters(alone) == "L", (response, state, is_global, live, plan)
            assert f"failed while the client is {state}" in message(actions)
        assert letters(decide(HandlerAnswer(response, hook=True), KINDS[is_global], View(state, live))) == "L"


@pytest.mark.parametrize("state", OPEN)
@pytest.mark.parametrize("live", [0, 1, 2])
def test_an_answer_about_a_thread_that_is_being_removed_is_not_lost(state: State, live: int) -> None:
    """What is about the thread is no more than its removal; what is about more than it is carried out."""
    view = View(state, live, group=True, removed=True)
    for plan in PLANS:
        done = {
            response: letters(decide(HandlerAnswer(response), KINDS[False], view, plan))
            for response in Response
        }
        assert done == {
            Response.REPLACE_THREAD: "L",
            Response.SHUTDOWN_THREAD: "L",
            Response.SHUTDOWN_CLIENT: "LC",
            Response.SHUTDOWN_APPLICATION: "LAC",
        }
    assert letters(decide(HandlerAnswer(Response.SHUTDOWN_THREAD, hook=True), KINDS[False], view)) == "LH"
    bug = HandlerAnswer(Response.SHUTDOWN_CLIENT, problem=ValueError())
    assert letters(decide(bug, KINDS[False], view)) == "LC"


@pytest.mark.parametrize("then", list(Response)[1:])
def test_what_is_hopeless_is_not_tried(then: Response) -> None:
    """What the budget would end in comes at once, and the log says why."""
    plan = Hopeless("source topic 'a' was deleted", then)
    answer, view = HandlerAnswer(Response.REPLACE_THREAD), View(State.RUNNING, 2, group=True)
    said, *done = decide(answer, KINDS[False], view, plan)
    assert isinstance(said, Log)
    assert "source topic 'a' was deleted" in said.message
    assert done == list(decide(answer, KINDS[False], view, Exhausted(1, WINDOW, then))[1:])


@pytest.mark.parametrize("state", OPEN)
def test_shutdown_client_is_logged_in_upstreams_words(state: State) -> None:
    """Operators search for them."""
    actions = decide(HandlerAnswer(Response.SHUTDOWN_CLIENT), KINDS[False], View(state, 1))
    assert actions == (
        LogFailure(
            "Encountered the following exception during processing and the registered exception handler "
            "opted to SHUTDOWN_CLIENT. The streams client is going to shut down now."
        ),
        CloseToError(),
    )


def test_a_replacement_says_when_and_which_attempt_it_is() -> None:
    """The first one comes at once, later ones after the pause that was planned."""
    view = View(State.RUNNING, 1)
    log, replace = decide(HandlerAnswer(Response.REPLACE_THREAD), KINDS[False], view)
    assert isinstance(log, LogFailure)
    assert log.message == (
        "Replacing thread in the streams uncaught exception handler: thread 't1', now (attempt 1)"
    )
    assert replace == ReplaceThread(0.0, 1)
    log, replace = decide(HandlerAnswer(Response.REPLACE_THREAD), KINDS[False], view, Retry(3, 0.1234, 10))
    assert isinstance(log, LogFailure)
    assert log.message.endswith("in 0.123 s (attempt 3 of 10)")
    assert replace == ReplaceThread(0.1234, 3)


@pytest.mark.parametrize("plan", PLANS)
def test_the_global_thread_is_never_replaced(plan: Retry | Exhausted) -> None:
    """KIP-671: an error is logged, and the client shuts down; whatever the budget says."""
    actions = decide(
        HandlerAnswer(Response.REPLACE_THREAD), KINDS[True], View(State.RUNNING, 2, group=True), plan
    )
    assert actions[0] == Log(
        logging.ERROR, "The global thread cannot be replaced. Reverting to shutting down the client."
    )
    assert letters(actions) == "lLC"


@pytest.mark.parametrize(
    ("then", "live", "expected"),
    [
        (Response.SHUTDOWN_CLIENT, 2, "lLC"),
        (Response.SHUTDOWN_APPLICATION, 2, "lLAC"),
        (Response.SHUTDOWN_THREAD, 2, "lLE"),
        (Response.SHUTDOWN_THREAD, 1, "llLC"),
    ],
)
def test_a_budget_that_is_used_up_leads_to_what_it_names(then: Response, live: int, expected: str) -> None:
    """The log has the count and the time span."""
    failure = Failure.of("t1", PipelineException("broken", pipeline="p0"))
    plan = Exhausted(6, timedelta(minutes=10), then)
    actions = decide(
        HandlerAnswer(Response.REPLACE_THREAD), failure, View(State.RUNNING, live, group=True), plan
    )
    assert letters(actions) == expected
    first = actions[0]
    assert isinstance(first, Log)
    assert first.level == logging.ERROR
    assert "pipeline p0 has failed 6 times within 10 min" in first.message
    assert "the budget of REPLACE_THREAD is 5" in first.message
    assert f"Falling back to {then}" in first.message


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("response", list(Response)[1:])
def test_a_plan_counts_only_for_replacing(response: Response, plan: Retry | Exhausted) -> None:
    """Whoever wants to shut down is not asked about a budget."""
    view = View(State.RUNNING, 2, group=True)
    assert decide(HandlerAnswer(response), KINDS[False], view, plan) == decide(
        HandlerAnswer(response), KINDS[False], view
    )


def test_shutdown_application_carries_the_reason() -> None:
    """Who asked, what failed, and the root of it; this client closes at once."""
    error = PipelineException("pipeline p0: its query failed\nrow 'secret'", pipeline="p0")
    actions = decide(
        HandlerAnswer(Response.SHUTDOWN_APPLICATION),
        Failure.of("t1", error),
        View(State.RUNNING, 1, group=True),
    )
    assert message(actions).startswith(
        "Encountered the following exception during processing and sent shutdown request for the entire "
        "application."
    )
    assert actions[1] == ShutdownApplication(
        "thread 't1', pipeline p0: PipelineException: pipeline p0: its query failed"
    )
    assert actions[2] == CloseToError()


@pytest.mark.parametrize("is_global", [False, True])
@pytest.mark.parametrize("live", [1, 2])
def test_without_a_group_shutdown_application_closes_the_client_and_says_so(
    is_global: bool, live: int
) -> None:
    """There is nobody to tell, and it must not look as if somebody had been."""
    actions = decide(
        HandlerAnswer(Response.SHUTDOWN_APPLICATION), KINDS[is_global], View(State.RUNNING, live)
    )
    assert letters(actions) == "lLC"
    first = actions[0]
    assert isinstance(first, Log)
    assert "reaches this client only: it is not a member of a group" in first.message
    assert "sent" not in message(actions)


@pytest.mark.parametrize(("live", "left"), [(2, "the 1 that is left"), (4, "the 3 that are left")])
def test_a_thread_that_ends_leaves_its_work_to_the_others(live: int, left: str) -> None:
    """SHUTDOWN_THREAD, from KIP-671's earlier draft."""
    actions = decide(HandlerAnswer(Response.SHUTDOWN_THREAD), KINDS[False], View(State.RUNNING, live))
    assert "opted to SHUTDOWN_THREAD. Thread 't1' ends and is not replaced" in message(actions)
    assert left in message(actions)


@pytest.mark.parametrize(
    ("is_global", "live", "why"),
    [(False, 1, "'t1' was its last live thread"), (True, 2, "a client cannot run without its global thread")],
)
def test_the_last_thread_does_not_end_alone(is_global: bool, live: int, why: str) -> None:
    """It would leave a client that is RUNNING and does nothing."""
    actions = decide(HandlerAnswer(Response.SHUTDOWN_THREAD), KINDS[is_global], View(State.RUNNING, live))
    assert actions[0] == Log(logging.WARNING, f"SHUTDOWN_THREAD shuts down the client: {why}")
    assert actions[-1] == CloseToError()


@pytest.mark.parametrize("is_global", [False, True])
def test_a_handler_that_failed_shuts_the_client_down(is_global: bool) -> None:
    """The log does not claim that the handler opted for anything."""
    answer = HandlerAnswer(Response.SHUTDOWN_CLIENT, problem=ZeroDivisionError("in the handler"))
    actions = decide(answer, KINDS[is_global], View(State.RUNNING, 2, group=True))
    assert letters(actions) == "LC"
    assert "handler failed itself (ZeroDivisionError), which means SHUTDOWN_CLIENT" in message(actions)
    assert "opted" not in message(actions)


@pytest.mark.parametrize(
    ("is_global", "live", "expected"), [(False, 2, "LHE"), (False, 1, "LHC"), (True, 2, "LHC")]
)
def test_the_deprecated_hook_is_told_and_the_thread_dies(is_global: bool, live: int, expected: str) -> None:
    """As before KIP-671, but for the last thread: upstream's client stays RUNNING without any."""
    answer = HandlerAnswer(Response.SHUTDOWN_THREAD, hook=True)
    assert letters(decide(answer, KINDS[is_global], View(State.RUNNING, live))) == expected


@given(
    response=st.sampled_from(Response),
    state=st.sampled_from(State),
    live=st.integers(0, 4),
    is_global=st.booleans(),
    group=st.booleans(),
    hook=st.booleans(),
    problem=st.booleans(),
    plan=st.sampled_from(PLANS),
)
def test_no_decision_leaves_a_zombie(
    response: Response,
    state: State,
    live: int,
    is_global: bool,
    group: bool,
    hook: bool,
    problem: bool,
    plan: Retry | Exhausted | Hopeless,
) -> None:
    """Exactly one end, the exception logged exactly once; and who tells others closes itself, after that."""
    answer = HandlerAnswer(response, problem=ValueError() if problem else None, hook=hook)
    actions = letters(decide(answer, KINDS[is_global], View(state, live, group), plan))
    assert actions.count("L") == 1
    if state not in OPEN:
        assert actions in ("L", "LA")
        assert actions == "L" or (response is Response.SHUTDOWN_APPLICATION and group and not problem)
        return
    assert sum(actions.count(end) for end in "RCE") == 1
    assert actions[-1] in "RCE"
    assert "AC" in actions or "A" not in actions
    if actions[-1] == "E":
        assert live > 1
        assert not is_global
    if is_global:
        assert actions[-1] == "C"


# --- the values --------------------------------------------------------------------------------------------


def test_the_kips_name_is_the_same_class() -> None:
    """`StreamsUncaughtExceptionResponse` in KIP-671, renamed when it was built."""
    assert StreamsUncaughtExceptionResponse is StreamThreadExceptionResponse is Response
    assert [str(response) for response in Response] == [
        "REPLACE_THREAD",
        "SHUTDOWN_CLIENT",
        "SHUTDOWN_APPLICATION",
        "SHUTDOWN_THREAD",
    ]


def test_a_failure_takes_its_facts_from_the_exception() -> None:
    """What a PipelineException tells; the same with nothing to tell."""
    offsets = {TopicPartition("lines", 0): (10, 20)}
    error = PipelineException("x", pipeline="p0", offsets=offsets, batch_id=7, task_id=TaskId(1, 3))
    assert Failure.of("t1", error) == Failure("t1", error, False, "p0", TaskId(1, 3), offsets, 7)
    bare = ValueError()
    assert Failure.of("t1", bare, is_global=True) == Failure("t1", bare, True, None, None, {}, None)


@pytest.mark.parametrize(
    ("failure", "where"),
    [
        (Failure.of("t1", PipelineException("x", pipeline="p0", task_id=TaskId(0, 1))), "pipeline p0"),
        (Failure.of("t1", StreamsException("x", task_id=TaskId(0, 1))), "task 0_1"),
        (Failure.of("g", StreamsException("x"), is_global=True), "the global thread"),
        (Failure.of("t1", StreamsException("x")), "thread t1"),
    ],
)
def test_a_failure_says_where_it_was(failure: Failure, where: str) -> None:
    """The pipeline, else the task, else the thread."""
    assert failure.where == where


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ProcessorStateException("a disk is full\nmore"), "ProcessorStateException: a disk is full"),
        (ProcessorStateException(""), "ProcessorStateException"),
        (StreamsException("ValueError: record 4711"), "StreamsException"),
        (
            caused(StreamsException("ValueError: record 4711"), ValueError("record 4711")),
            "StreamsException caused by ValueError",
        ),
        (ValueError("record 4711"), "ValueError"),
        (ProcessorStateException("bell\x07 and \x1b[31mred"), "ProcessorStateException: bell and [31mred"),
    ],
)
def test_one_line_of_an_exception_quotes_no_record(error: BaseException, text: str) -> None:
    """It is the first line of a message of Millstream's own, without control characters."""
    assert in_short(error) == text


def test_one_line_of_an_exception_is_short() -> None:
    """It travels in the group's user data."""
    assert len(in_short(ProcessorStateException("x" * 10_000))) < 250


@pytest.mark.parametrize(
    ("window", "text"),
    [(timedelta(hours=2), "2 h"), (timedelta(minutes=90), "90 min"), (timedelta(seconds=2.5), "2.5 s")],
)
def test_spans_are_told_in_the_unit_that_fits(window: timedelta, text: str) -> None:
    """A window of 600 s is ten minutes to an operator."""
    actions = decide(
        HandlerAnswer(Response.REPLACE_THREAD), KINDS[False], View(State.RUNNING, 2), Exhausted(6, window)
    )
    first = actions[0]
    assert isinstance(first, Log)
    assert f"within {text} without" in first.message
