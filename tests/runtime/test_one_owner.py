"""What happens to a client at the same time as something else: while it starts, closes, or decides.

Each of these was lost, or done twice, as long as several owners had a part of the client's state.
"""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from fake_world import FakeWorld
from scenes import (
    SOON,
    SOON_S,
    Handler,
    Make,
    assert_reported,
    at_rest,
    ended,
    listened,
    names_of,
    poison,
    running,
    two_pipelines,
    wait_for_state,
)
from waiting import wait_until

from millstream.errors import (
    ApplicationShutdownException,
    PipelineException,
    TaskAssignmentException,
    TimeoutException,
)
from millstream.group.userdata import Assignment
from millstream.model import TaskId
from millstream.runtime.state.failure import Response
from millstream.states import State, ThreadState

R = Response

# --- threads that come and go while start() is at work -----------------------------------------------------


@pytest.mark.parametrize("remove_first", [False, True])
def test_a_thread_that_is_added_while_start_is_at_work_begins_with_the_others(
    remove_first: bool, make: Make, world: FakeWorld
) -> None:
    """It was begun at once, failed, and start() began it a second time: ERROR, every time."""
    opening, go_on = threading.Event(), threading.Event()
    client = make(client__id="A", num__stream__threads=2)
    told, look = listened(client), world.topics.describe

    def slowly(names: object, **_: object) -> object:
        opening.set()
        assert go_on.wait(SOON_S)
        return look(names)  # type: ignore[arg-type]

    world.topics.describe = world.topics.look = slowly  # type: ignore[method-assign, assignment]
    with ThreadPoolExecutor(1) as pool:
        started = pool.submit(client.start)
        assert opening.wait(SOON_S)
        assert client.state is State.REBALANCING
        if remove_first:
            assert client.remove_stream_thread(SOON) == "A-StreamThread-1"
        assert client.add_stream_thread() == ("A-StreamThread-1" if remove_first else "A-StreamThread-3")
        go_on.set()
        started.result(SOON_S)
    client.wait_until_running(SOON)
    assert len(names_of(client)) == (2 if remove_first else 3)
    assert client.failures == ()
    assert [new for _, new in told] == [State.REBALANCING, State.RUNNING]


def test_a_listener_may_add_a_thread_to_a_client_that_starts(make: Make, world: FakeWorld) -> None:
    """It is told of REBALANCING before start() has opened anything."""
    client = make(client__id="A")
    client.set_state_listener(
        lambda new, old: client.add_stream_thread() if old is State.CREATED else None  # type: ignore[func-returns-value]
    )
    running(client)
    assert names_of(client) == ["StreamThread-1", "StreamThread-2"]
    assert client.failures == ()


# --- an answer for a thread that is being removed ----------------------------------------------------------


@pytest.mark.parametrize("by_itself", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("answer", [R.SHUTDOWN_CLIENT, R.SHUTDOWN_APPLICATION])
def test_an_answer_that_is_about_more_than_the_thread_outlives_its_removal(
    answer: Response, threads: int, by_itself: bool, member: Make, world: FakeWorld
) -> None:
    """It was dropped: the client stayed RUNNING, without a thread, and `failures` said that it was done."""
    client, other = member("A", num__stream__threads=threads), member("B")
    asked, removed = threading.Event(), threading.Event()

    def remove_all() -> None:
        for _ in range(threads):
            with suppress(TimeoutException):  # the one in the handler ends after it
                client.remove_stream_thread(timedelta(0))
        removed.set()

    def handler(exception: BaseException) -> Response:
        asked.set()
        if by_itself:
            remove_all()
        assert removed.wait(SOON_S)
        return answer

    client.set_uncaught_exception_handler(handler)
    running(client)
    running(other)
    at_rest(world, client, other)
    engine = world.engine_of("A")
    assert engine is not None
    engine.end("p0", poison())
    assert asked.wait(SOON_S)
    if not by_itself:
        remove_all()
    assert ended(client) is State.ERROR
    (record,) = client.failures
    assert record.response is answer
    if answer is R.SHUTDOWN_APPLICATION:
        assert ended(other) is State.ERROR
        with pytest.raises(ApplicationShutdownException, match="client 'A'"):
            other.wait(SOON)
    else:
        wait_until(lambda: world.runners("p0") == ["B"], "B takes over", SOON_S)


@pytest.mark.parametrize("answer", [R.REPLACE_THREAD, R.SHUTDOWN_THREAD])
def test_an_answer_that_is_about_the_thread_alone_is_no_more_than_its_removal(
    answer: Response, make: Make, world: FakeWorld
) -> None:
    """The thread is gone, and nobody takes its place."""
    client = make(num__stream__threads=2)

    def handler(exception: BaseException) -> Response:
        for _ in range(2):
            client.remove_stream_thread(timedelta(seconds=5))
        return answer

    client.set_uncaught_exception_handler(handler)
    running(client)
    world.engine.end("p0", poison())
    wait_until(lambda: names_of(client) == [], "both are gone", SOON_S)
    wait_for_state(client, State.RUNNING)
    assert client.health.status == "empty"


def test_a_client_that_closes_for_itself_still_asks_all_to(make: Make, world: FakeWorld) -> None:
    """SHUTDOWN_APPLICATION is stronger than the SHUTDOWN_CLIENT that came before it: it was only logged."""
    for name in "abcd":
        world.topics.add(name, 1)
    both = threading.Barrier(2, timeout=SOON_S)
    client = make(two_pipelines(), client__id="A", num__stream__threads=2)

    def handler(exception: PipelineException) -> Response:
        both.wait()
        if exception.pipeline == "p0":
            return R.SHUTDOWN_CLIENT
        wait_for_state(client, State.PENDING_ERROR)
        return R.SHUTDOWN_APPLICATION

    client.set_uncaught_exception_handler(handler)
    running(client)
    for name in ("p0", "p1"):
        world.engine.end(name, poison(name))
    assert ended(client) is State.ERROR
    assert "shutdown requested" in world.membership_of("A").reasons
    assert {record.response for record in client.failures} == {R.SHUTDOWN_CLIENT, R.SHUTDOWN_APPLICATION}


# --- RUNNING, and no earlier -------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [True, False])
def test_a_client_that_gets_its_first_thread_is_running_when_it_has_its_work(
    answers: bool, make: Make, world: FakeWorld
) -> None:
    """It said so before the group had given it any; as long as the broker was away, if that was so."""
    client = make(client__id="A")
    told = listened(client)
    running(client)
    assert client.remove_stream_thread(SOON)
    wait_for_state(client, State.RUNNING)
    assert world.group.wait_until_quiet()
    wait_until(lambda: told[-1][1] is State.RUNNING, "the listener knows", SOON_S)
    before = len(told)
    if not answers:
        world.group.hold()
    client.add_stream_thread()
    thread = client._crew.threads[0]
    if not answers:
        assert thread._machine.wait_until({ThreadState.RUNNING}, SOON_S)  # it has what there is: nothing
        assert client.state is State.REBALANCING
        assert world.engine.running == set()
        world.group.release()
    client.wait_until_running(SOON)
    assert world.engine.running == {"p0"}
    assert_reported(told, before, State.REBALANCING, State.RUNNING)


# --- close() while Spark starts ----------------------------------------------------------------------------


@pytest.fixture
def no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing gives Spark a moment to end in good order; not here."""
    monkeypatch.setattr("millstream.runtime.assembly._ENGINE_CLOSE_S", 0.05)


@pytest.mark.usefixtures("no_patience")
@pytest.mark.parametrize("inherited", [False, True])
def test_closing_does_not_wait_for_spark(inherited: bool, member: Make, world: FakeWorld) -> None:
    """Nor does it start the pipeline; the handler is not asked. Spark ends later.

    `inherited`: the second of two clients closes just after the first, whose work it has got while its Spark
    was starting.
    """
    first, client = member("A"), member("B")
    handler = Handler(R.REPLACE_THREAD)
    client.set_uncaught_exception_handler(handler)
    told = listened(client)
    if inherited:
        running(first)
        world.spark_asked.clear()
    world.spark_gate.clear()
    client.start()
    assert world.spark_asked.wait(SOON_S)
    if inherited:
        first.close(timedelta(0))
        wait_until(lambda: client.metadata_for_local_threads()[0].pipelines, "it has got the work", SOON_S)
    assert client.close(SOON)
    assert client.state is State.NOT_RUNNING
    assert [new for _, new in told][-2:] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    client.check()
    assert handler.exceptions == []
    assert client.failures == ()
    engine = world.engine_of("B")
    assert engine is None  # it was not there yet
    world.spark_gate.set()
    wait_until(lambda: world.engine_of("B") is not None, "Spark has started at last", SOON_S)
    engine = world.engine_of("B")
    assert engine is not None
    wait_until(lambda: engine.closed, "and is ended", SOON_S)
    assert (engine.compiled, engine.started) == ([], [])


@pytest.mark.usefixtures("no_patience")
def test_what_starts_spark_may_fail_after_the_client_has_closed(make: Make, world: FakeWorld) -> None:
    """The failure is not reported to anybody."""
    client = make()
    world.spark_gate.clear()
    client.start()
    assert world.spark_asked.wait(SOON_S)
    assert client.close(SOON)
    world.engine_error = OSError("no java")
    world.spark_gate.set()
    wait_until(lambda: not named("SparkStart"), "its thread has ended", SOON_S)
    assert client.failures == ()


@pytest.mark.parametrize("how", ["close", "wait"])
def test_a_client_that_can_start_no_thread_to_close_is_closed_by_who_waits_for_it(
    how: str, make: Make, world: FakeWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The machine has no more threads for it: nobody waits for ever, and nothing stays open."""
    client = make()
    running(client)
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.endswith("-CloseThread"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    if how == "close":
        assert client.close(SOON)
    else:
        assert client.close(timedelta(0)) is False
        assert client.wait(SOON) is State.NOT_RUNNING
    assert client.state is State.NOT_RUNNING
    assert "no thread could be started to close it" in caplog.text
    client.check()


def named(part: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if part in thread.name]


# --- assignments that cannot be carried out ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "named"),
    [
        (Assignment(active=(TaskId(7, 0),), leader="X"), "client 'X', .* does not have: '7_0'"),
        (Assignment(standby=(TaskId(5, 0), TaskId(0, 0)), leader="X"), "'5_0'"),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_bad_assignment_is_refused_and_reaches_the_handler(
    assignment: Assignment, named: str, again: bool, make: Make, world: FakeWorld
) -> None:
    """Work that the topology does not have left the client REBALANCING for good, or went unseen."""
    handler = Handler(R.REPLACE_THREAD if again else R.SHUTDOWN_CLIENT)
    client = make(client__id="A", num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    assert world.group.wait_until_quiet()
    world.membership_of("A").member.assigned(assignment.encode(), world.group.generation + 1)
    wait_until(lambda: bool(handler.exceptions), "the handler is asked", SOON_S)
    assert isinstance(handler.exceptions[0], TaskAssignmentException)
    assert re.search(named, str(handler.exceptions[0]))
    if again:
        client.wait_until_running(SOON)  # the group has agreed once more, and its leader was right this time
        assert world.engine.running == {"p0"}
    else:
        assert ended(client) is State.ERROR
        with pytest.raises(TaskAssignmentException):
            client.wait(SOON)
