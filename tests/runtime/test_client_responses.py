"""Each response of the handler, end to end through the client: states, threads, records, logs (KIP-671, 696).

What is decided is a pure function with tests of its own (test_supervision.py); here it is performed.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

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
    global_only,
    listened,
    names_of,
    pipelines_of,
    poison,
    running,
    runs,
    two_pipelines,
    wait_for_state,
    with_global_table,
)
from waiting import wait_until

from millstream.errors import ApplicationShutdownException, StreamsException
from millstream.model import TopicPartition
from millstream.runtime.client import KafkaStreams
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.state.failure import Response
from millstream.states import State

NO_BACKOFF = {"replace__thread__backoff__ms": 0, "replace__thread__backoff__max__ms": 0}


def at_once(most: int, then: Response = Response.SHUTDOWN_CLIENT) -> UncaughtExceptionPolicy:
    """Replace so often, without a pause."""
    zero = timedelta(0)
    return UncaughtExceptionPolicy.replace(most, then=then, backoff=zero, backoff_max=zero)


class Hook:
    """The deprecated one."""

    def __init__(self) -> None:
        self.calls: list[threading.ExceptHookArgs] = []

    def __call__(self, args: threading.ExceptHookArgs) -> None:
        self.calls.append(args)


def set_hook(client: KafkaStreams, hook: Hook) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.set_thread_exception_hook(hook)


# --- the table ---------------------------------------------------------------------------------------------

BUG = ValueError("a handler with a bug")


class Answer(Enum):
    """Where there is no handler to answer."""

    NO_HANDLER = "no handler"
    HOOK = "hook"


def shown(value: object) -> str:
    """In a test's name."""
    return value.name if isinstance(value, Enum) else repr(value)[:24]


@dataclass(frozen=True)
class Row:
    """What comes of an answer, with so many threads; thread 1 is the one that fails."""

    answer: object
    threads: int
    state: State
    left: tuple[int, ...]
    recorded: Response
    says: str
    others: State = State.RUNNING
    """What a second client ends up as."""


R = Response
RUNNING, ERROR = State.RUNNING, State.ERROR
CLOSES = "opted to SHUTDOWN_CLIENT. The streams client is going to shut down now."
FAILED = "which means SHUTDOWN_CLIENT. The streams client is going to shut down now."
REPLACING = "Replacing thread in the streams uncaught exception handler"
SENT = "sent shutdown request for the entire application"
LAST = "was its last live thread"
NOT_REPLACED = "ends and is not replaced"

# fmt: off
ROWS = (
    Row(R.REPLACE_THREAD,       1, RUNNING, (2,),   R.REPLACE_THREAD,       REPLACING),
    Row(R.REPLACE_THREAD,       2, RUNNING, (2, 3), R.REPLACE_THREAD,       REPLACING),
    Row(R.SHUTDOWN_CLIENT,      1, ERROR,   (),     R.SHUTDOWN_CLIENT,      CLOSES),
    Row(R.SHUTDOWN_CLIENT,      2, ERROR,   (),     R.SHUTDOWN_CLIENT,      CLOSES),
    Row(R.SHUTDOWN_APPLICATION, 1, ERROR,   (),     R.SHUTDOWN_APPLICATION, SENT, ERROR),
    Row(R.SHUTDOWN_APPLICATION, 2, ERROR,   (),     R.SHUTDOWN_APPLICATION, SENT, ERROR),
    Row(R.SHUTDOWN_THREAD,      1, ERROR,   (),     R.SHUTDOWN_CLIENT,      LAST),
    Row(R.SHUTDOWN_THREAD,      2, RUNNING, (2,),   R.SHUTDOWN_THREAD,      NOT_REPLACED),
    Row(BUG,                    1, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row(BUG,                    2, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row(SystemExit(3),          2, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row(None,                   1, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row(None,                   2, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row("REPLACE_THREAD",       1, ERROR,   (),     R.SHUTDOWN_CLIENT,      "not its name"),
    Row("REPLACE_THREAD",       2, ERROR,   (),     R.SHUTDOWN_CLIENT,      FAILED),
    Row(Answer.NO_HANDLER,      1, ERROR,   (),     R.SHUTDOWN_CLIENT,      CLOSES),
    Row(Answer.NO_HANDLER,      2, ERROR,   (),     R.SHUTDOWN_CLIENT,      CLOSES),
    Row(Answer.HOOK,            1, ERROR,   (),     R.SHUTDOWN_CLIENT,      LAST),
    Row(Answer.HOOK,            2, RUNNING, (2,),   R.SHUTDOWN_THREAD,      NOT_REPLACED),
)
# fmt: on


def all_run(world: FakeWorld) -> bool:
    """Whether each partition of the word count runs, once."""
    return sorted(each for ran in world.shares("p0").values() for each in ran) == [0, 1, 2]


def partition_of(client: KafkaStreams, thread: str) -> int:
    """One that this thread runs of the word count."""
    (found,) = (
        each for each in client.metadata_for_local_threads() if each.thread_name.endswith(f"-{thread}")
    )
    return found.active_tasks[0].task_id.partition


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{shown(row.answer)}-{row.threads}")
def test_what_comes_of_an_answer(
    row: Row, clients: int, member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's and the threads' states, who is told, what is remembered and logged; and a second client.

    Source: StreamsUncaughtExceptionHandlerIntegrationTest shouldShutdownClient, shouldReplaceThreads,
        shouldReplaceSingleThread, shouldShutdownSingleThreadApplication,
        shouldShutdownMultipleThreadApplication, shouldShutdownThreadUsingOldHandler
        (Differs: never RUNNING without threads).
    """
    handler, hook, others = Handler(row.answer), Hook(), Handler(R.REPLACE_THREAD)
    first = member("A", num__stream__threads=row.threads)
    if row.answer is Answer.HOOK:
        set_hook(first, hook)
    elif row.answer is not Answer.NO_HANDLER:
        first.set_uncaught_exception_handler(handler)
    told = listened(first)
    running(first)
    second = member("B") if clients == 2 else None
    if second is not None:
        second.set_uncaught_exception_handler(others)
        running(second)
        at_rest(world, first, second)
    failing, ran = "StreamThread-1", world.shares("p0")
    assert all_run(world)
    wait_until(lambda: told[-1][1] is RUNNING, "the listener knows", SOON_S)
    before, engine = len(told), world.engine_of("A")
    assert engine is not None
    error = poison()
    engine.end("p0", error, partition=partition_of(first, failing))

    if row.state is ERROR:
        assert ended(first) is ERROR
        assert_reported(told, before, State.PENDING_ERROR, ERROR)
        assert names_of(first) == []
        with pytest.raises(StreamsException) as raised:
            first.wait(SOON)
        assert raised.value is error
    else:
        left = [f"StreamThread-{number}" for number in row.left]
        wait_until(lambda: names_of(first) == left, f"threads {left}", SOON_S)
        wait_until(lambda: all_run(world), "A goes on", SOON_S)
        first.wait_until_running(SOON)
        assert "A" in world.shares("p0")
        if row.answer is R.REPLACE_THREAD:
            assert world.shares("p0") == ran
        assert_reported(told, before, State.REBALANCING, RUNNING)
        assert first.health.status == ("running" if len(row.left) == row.threads else "degraded")
        assert first.health.ready

    (record,) = first.failures
    assert (record.response, record.pipeline, record.attempt) == (row.recorded, "p0", 1)
    assert record.thread == f"A-{failing}"
    assert record.exception is error
    if row.answer is Answer.HOOK:
        (call,) = hook.calls
        assert (call.exc_value, call.thread and call.thread.name) == (error, f"A-{failing}")
    elif row.answer is not Answer.NO_HANDLER:
        assert handler.exceptions == [error]
        assert handler.threads == [f"A-{failing}"]
    assert row.says in caplog.text
    assert "poison pill" in caplog.text  # with the story of the original

    if second is not None:
        if row.others is ERROR:
            assert ended(second) is ERROR
            with pytest.raises(
                ApplicationShutdownException, match=r"client 'A', because of: .*PipelineException"
            ):
                second.wait(SOON)
        else:
            wait_until(lambda: all_run(world), "all goes on", SOON_S)
            second.wait_until_running(SOON)
            assert sorted(world.shares("p0")) == (["B"] if row.state is ERROR else ["A", "B"])
        assert others.exceptions == []
        assert second.failures == ()
    assert world.overlaps == []


# --- the global thread -------------------------------------------------------------------------------------

NO_GLOBAL = "a client cannot run without its global thread"
GLOBAL_ROWS: tuple[tuple[object, Response, str], ...] = (
    (R.REPLACE_THREAD, R.SHUTDOWN_CLIENT, "The global thread cannot be replaced. Reverting to shutting down"),
    (R.SHUTDOWN_CLIENT, R.SHUTDOWN_CLIENT, CLOSES),
    (R.SHUTDOWN_APPLICATION, R.SHUTDOWN_APPLICATION, SENT),
    (R.SHUTDOWN_THREAD, R.SHUTDOWN_CLIENT, NO_GLOBAL),
    (BUG, R.SHUTDOWN_CLIENT, FAILED),
    (None, R.SHUTDOWN_CLIENT, FAILED),
    ("x", R.SHUTDOWN_CLIENT, FAILED),
    (Answer.NO_HANDLER, R.SHUTDOWN_CLIENT, CLOSES),
    (Answer.HOOK, R.SHUTDOWN_CLIENT, NO_GLOBAL),
)


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("answer", "recorded", "says"), GLOBAL_ROWS, ids=shown)
def test_what_comes_of_an_answer_to_the_global_thread(
    answer: object,
    recorded: Response,
    says: str,
    threads: int,
    clients: int,
    member: Make,
    world: FakeWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The client always ends in ERROR; other clients with it, if the answer says so.

    Source: KIP-671; StreamsUncaughtExceptionHandlerIntegrationTest
        .shouldShutDownClientIfGlobalStreamThreadWantsToReplaceThread.
    """
    world.topics.add("users", 1)
    handler, hook = Handler(answer), Hook()
    first = member("A", with_global_table(), num__stream__threads=threads)
    if answer is Answer.HOOK:
        set_hook(first, hook)
    elif answer is not Answer.NO_HANDLER:
        first.set_uncaught_exception_handler(handler)
    running(first)
    second = member("B", with_global_table()) if clients == 2 else None
    if second is not None:
        running(second)
        at_rest(world, first, second)
    # start() waits for the global tables first, so the first consumer is theirs.
    world.consumers[0].fail(OSError("the topic is gone"))

    assert ended(first) is ERROR
    (record,) = first.failures
    assert (record.is_global, record.response) == (True, recorded)
    assert record.thread == "A-GlobalStreamThread"
    assert isinstance(record.exception.__cause__, OSError)
    if answer is Answer.HOOK:
        assert [call.exc_value for call in hook.calls] == [record.exception]
    elif answer is not Answer.NO_HANDLER:
        assert handler.threads == ["A-GlobalStreamThread"]
        (context,) = handler.contexts
        assert (context.is_global, context.pipeline, context.attempt) == (True, None, 1)
    assert says in caplog.text
    if second is not None:
        if answer is R.SHUTDOWN_APPLICATION:
            assert ended(second) is ERROR
        else:
            wait_until(lambda: world.shares("p0") == {"B": {0, 1, 2}}, "B takes over", SOON_S)
            second.wait_until_running(SOON)


def test_the_application_is_not_shut_down_without_a_group(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A client of global tables alone is in none, and says so."""
    world.topics.add("users", 1)
    client = make(global_only())
    client.set_uncaught_exception_handler(Handler(R.SHUTDOWN_APPLICATION))
    running(client)
    world.consumers[0].fail(OSError("gone"))
    assert ended(client) is ERROR
    assert "SHUTDOWN_APPLICATION reaches this client only" in caplog.text
    assert [record.response for record in client.failures] == [R.SHUTDOWN_CLIENT]


# --- what the handler gets ---------------------------------------------------------------------------------


def test_the_context_tells_where_it_happened(member: Make, world: FakeWorld) -> None:
    """Thread, pipeline, offsets, attempt, and what failed before."""
    handler = Handler(R.REPLACE_THREAD)
    client = member("A")
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.engine.end("p0", poison("p0", 5, 8))
    runs(world, times=2)
    world.engine.end("p0", poison("p0", 5, 8))
    runs(world, times=3)
    first, second = handler.contexts
    assert (first.client_id, first.thread, first.pipeline) == ("A", "A-StreamThread-1", "p0")
    assert first.offsets == {TopicPartition("lines", 0): (5, 8)}
    assert (first.attempt, second.attempt) == (1, 2)
    assert first.client_state.is_running_or_rebalancing
    assert first.previous == ()
    assert [record.thread for record in second.previous] == ["A-StreamThread-1"]
    assert second.thread == "A-StreamThread-2"


@pytest.mark.parametrize("error", [OSError("no java"), SystemExit(1), KeyboardInterrupt()])
def test_the_handler_gets_a_streams_exception_whatever_happened(
    error: BaseException, make: Make, world: FakeWorld
) -> None:
    """The original exception is its cause, even one that would end a program."""
    handler = Handler(R.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    world.engine_error = error
    client.start()
    assert ended(client) is ERROR
    (told,) = handler.exceptions
    assert isinstance(told, StreamsException)
    assert told.__cause__ is error


def test_a_failing_updater_is_a_failure_of_its_thread(make: Make, world: FakeWorld) -> None:
    """The updater is replaced as well: the next thread opens the stores anew."""
    handler = Handler(R.REPLACE_THREAD)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.consumers[0].fail(OSError("disk"))
    wait_until(lambda: names_of(client) == ["StreamThread-2"], "the replacement", SOON_S)
    client.wait_until_running(SOON)
    assert isinstance(handler.exceptions[0].__cause__, OSError)
    assert len(world.stores) == 6
    assert sum(store.is_open for store in world.stores) == 3
    runs(world)


def test_two_threads_may_be_in_the_handler_at_once(make: Make, world: FakeWorld) -> None:
    """It is called on each of them, and neither waits for the other one."""
    both = threading.Barrier(2, timeout=SOON_S)

    def answer() -> Response:
        both.wait()
        return R.REPLACE_THREAD

    for name in "abcd":
        world.topics.add(name, 1)
    handler = Handler(answer)
    client = make(two_pipelines(), num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.engine.end("p0", poison("p0"))
    world.engine.end("p1", poison("p1"))
    for pipeline in ("p0", "p1"):
        runs(world, pipeline, times=2)
    client.wait_until_running(SOON)
    assert len(names_of(client)) == 2
    assert len(set(handler.threads)) == 2


# --- closing from within -----------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [None, timedelta(seconds=30)])
@pytest.mark.parametrize("answer", [*Response, None])
def test_close_in_the_handler_never_blocks(
    answer: object, timeout: timedelta | None, make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream waits for itself there. The client ends as what it was going to: NOT_RUNNING, and the answer
    counts for nothing (reference 2.5).
    """
    client = make(num__stream__threads=2)
    answers: list[bool] = []

    def handler(exception: BaseException) -> object:
        answers.append(client.close(timeout))
        return answer

    client.set_uncaught_exception_handler(handler)  # type: ignore[arg-type]
    running(client)
    world.engine.end("p0", poison())
    assert ended(client) is State.NOT_RUNNING
    assert answers == [False]
    assert "does not wait" in caplog.text
    assert "failed while the client is PENDING_SHUTDOWN; it is closing already" in caplog.text
    assert world.engine.started == ["p0", "p0"]  # each thread did, once


@pytest.mark.parametrize("at", [State.PENDING_ERROR, State.ERROR])
def test_close_in_the_listener_of_a_failing_client_does_nothing(
    at: State, make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-696: a warning, and ERROR it is."""
    client = make()
    answers: list[bool] = []
    client.set_state_listener(lambda new, old: answers.append(client.close()) if new is at else None)
    running(client)
    world.engine.end("p0", poison())
    assert ended(client) is ERROR
    wait_until(lambda: answers == [at is ERROR], "the listener is told", SOON_S)
    assert "close() does nothing: the client is" in caplog.text


@pytest.mark.parametrize("answer", list(Response))
def test_a_client_closed_while_the_handler_thinks_ends_as_closed(
    answer: Response, make: Make, world: FakeWorld
) -> None:
    """REPLACE_THREAD comes too late then, and so does every other answer."""
    client = make(num__stream__threads=2)
    asked, go_on = threading.Event(), threading.Event()

    def think() -> Response:
        asked.set()
        assert go_on.wait(SOON_S)
        return answer

    client.set_uncaught_exception_handler(Handler(think))
    running(client)
    world.engine.end("p0", poison())
    assert asked.wait(SOON_S)
    assert client.close(timedelta(0)) is False
    go_on.set()
    assert ended(client) is State.NOT_RUNNING
    assert world.engine.started == ["p0", "p0"]  # each thread did, once
    (record,) = client.failures
    assert record.next_try is None


@pytest.mark.parametrize(
    ("act", "names"),
    [
        (lambda client: client.add_stream_thread(), ["StreamThread-2", "StreamThread-3", "StreamThread-4"]),
        (lambda client: client.remove_stream_thread(), ["StreamThread-2"]),
        (lambda client: client.pause() or client.resume(), ["StreamThread-2", "StreamThread-3"]),
        (lambda client: (client.health, client.metrics()), ["StreamThread-2", "StreamThread-3"]),
    ],
    ids=["add", "remove", "pause", "look"],
)
def test_the_handler_may_use_the_client(
    act: Callable[[KafkaStreams], object], names: list[str], make: Make, world: FakeWorld
) -> None:
    """Nothing of it waits for the failing thread."""
    client = make(num__stream__threads=2)
    used: list[object] = []

    def use() -> Response:
        used.append(act(client))
        return R.REPLACE_THREAD

    client.set_uncaught_exception_handler(Handler(use))
    running(client)
    world.engine.end("p0", poison(), partition=partition_of(client, "StreamThread-1"))
    wait_until(lambda: all_run(world), "all goes on", SOON_S)
    wait_until(lambda: sorted(names_of(client)) == names, f"threads {names}", SOON_S)
    client.wait_until_running(SOON)
    assert len(used) == 1


# --- replacing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_replacement_takes_over_without_a_round_of_the_group(
    threads: int, member: Make, world: FakeWorld
) -> None:
    """The group is asked nothing; stores and pipelines of other threads go on. The name is the lowest that is
    free while the failed thread still has its own, as in Kafka Streams.

    Source: AdjustStreamThreadCountTest.shouldResizeCacheAfterThreadReplacement (names).
    """
    for name in "abcd":
        world.topics.add(name, 1)
    client = member("A", two_pipelines(), num__stream__threads=threads)
    client.set_uncaught_exception_handler(Handler(R.REPLACE_THREAD))
    running(client)
    generation, asked = world.group.generation, len(world.memberships[0].reasons)
    (failing,) = [name for name, what in pipelines_of(client).items() if "p0" in what]
    world.engine.end("p0", poison())
    runs(world, times=2)
    client.wait_until_running(SOON)
    assert world.group.wait_until_quiet()
    assert (world.group.generation, len(world.memberships[0].reasons)) == (generation, asked)
    assert failing not in names_of(client)
    assert f"StreamThread-{threads + 1}" in names_of(client)
    assert "p0" in pipelines_of(client)[f"StreamThread-{threads + 1}"]
    assert world.engine.started.count("p1") == (2 if threads == 1 else 1)


@pytest.mark.parametrize("threads", [1, 2])
def test_failing_as_often_as_there_are_threads_and_then_going_on(
    threads: int, make: Make, world: FakeWorld
) -> None:
    """Source: StreamsUncaughtExceptionHandlerIntegrationTest shouldReplaceThreads, shouldReplaceSingleThread,
    shouldEmitSameRecordAfterFailover (the same records are tried again: their offsets are not committed)."""
    client = make(
        num__stream__threads=threads, replace__thread__backoff__ms=0, replace__thread__backoff__max__ms=0
    )
    client.set_uncaught_exception_handler(Handler(R.REPLACE_THREAD))
    running(client)
    for failed in range(threads):
        runs(world, times=threads + failed)
        world.engine.end("p0", poison("p0", 0, 1))  # that of the thread that has run for longest
    runs(world, times=2 * threads)
    wait_until(lambda: all_run(world), "all goes on", SOON_S)
    client.wait_until_running(SOON)
    assert len(names_of(client)) == threads
    assert client.metrics().value("failed-stream-threads") == threads
    assert client.metrics().value("alive-stream-threads") == threads
    assert client.close(SOON)
    assert client.state is State.NOT_RUNNING


# --- pauses and budgets ------------------------------------------------------------------------------------


def test_a_replacement_that_waits_says_until_when_and_holds_nobody_up(make: Make, world: FakeWorld) -> None:
    """`health` and the record have the same time; the other pipeline runs on; close() does not wait."""
    for name in "abcd":
        world.topics.add(name, 1)
    client = make(two_pipelines(), num__stream__threads=2)
    client.set_uncaught_exception_handler(
        UncaughtExceptionPolicy.replace(max_failures=3, first_delay=timedelta(minutes=10))
    )
    running(client)
    world.engine.end("p0", poison())
    wait_until(lambda: client.health.status == "waiting", "it waits", SOON_S)
    (record,) = client.failures
    assert record.next_try is not None
    assert client.health.next_try is not None
    assert abs(client.health.next_try - record.next_try) < timedelta(seconds=2)
    assert record.next_try - record.at == timedelta(minutes=10)
    assert "waits to restart pipeline p0 (attempt 1 of 3) until" in client.health.reason
    assert (client.health.live, client.health.ready) == (True, False)
    assert world.engine.running == {"p1"}
    assert world.engine.started == ["p0", "p1"] or world.engine.started == ["p1", "p0"]
    assert client.close(SOON)
    assert client.state is State.NOT_RUNNING


def test_a_failure_of_no_pipeline_waits_outside_of_everything(make: Make, world: FakeWorld) -> None:
    """The thread itself waits; it opens nothing before its time."""
    client = make()
    client.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace(first_delay=timedelta(minutes=10)))
    running(client)
    world.consumers[0].fail(OSError("disk"))
    wait_until(lambda: client.health.status == "waiting", "it waits", SOON_S)
    assert "waits to restart its work" in client.health.reason
    wait_until(lambda: not any(store.is_open for store in world.stores), "all is let go of", SOON_S)
    assert world.engine.running == set()
    assert client.close(SOON)


@pytest.mark.parametrize(
    ("then", "threads", "state"),
    [
        (R.SHUTDOWN_CLIENT, 1, ERROR),
        (R.SHUTDOWN_APPLICATION, 1, ERROR),
        (R.SHUTDOWN_THREAD, 1, ERROR),
        (R.SHUTDOWN_THREAD, 2, RUNNING),
    ],
)
@pytest.mark.parametrize("by", ["policy", "configuration"])
def test_when_the_budget_is_used_up_what_follows_is_then(
    by: str,
    then: Response,
    threads: int,
    state: State,
    make: Make,
    world: FakeWorld,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The policy says what follows, or the configuration for a plain REPLACE_THREAD."""
    client = make(
        num__stream__threads=threads,
        replace__thread__max__failures=2,
        replace__thread__then=then.name,
        **NO_BACKOFF,
    )
    policy = at_once(2, then)
    client.set_uncaught_exception_handler(policy if by == "policy" else Handler(R.REPLACE_THREAD))
    running(client)
    for failed in range(3):
        runs(world, times=threads + failed)
        world.engine.end("p0", poison("p0", 3, 4), partition=0)
    if state is ERROR:
        assert ended(client) is ERROR
    else:
        wait_until(lambda: world.engine.partitions("p0") == [{0, 1, 2}], "one runs all", SOON_S)
        client.wait_until_running(SOON)
        assert len(names_of(client)) == 1
    assert [(record.attempt, record.response is R.REPLACE_THREAD) for record in client.failures] == [
        (1, True),
        (2, True),
        (3, False),
    ]
    assert "the budget of REPLACE_THREAD is 2" in caplog.text
    assert f"Falling back to {then}" in caplog.text


def test_progress_past_the_failing_records_begins_the_count_anew(make: Make, world: FakeWorld) -> None:
    """Batches that begin where the last failure ended; and only those."""
    client = make()
    client.set_uncaught_exception_handler(at_once(2))
    running(client)
    batches = [(0, 5), (5, 9), (9, 20), (9, 20), (20, 21), (21, 30)]
    for number, (first, end) in enumerate(batches, 1):
        runs(world, times=number)
        world.engine.end("p0", poison("p0", first, end))
    runs(world, times=len(batches) + 1)
    assert [record.attempt for record in client.failures] == [1, 1, 1, 2, 1, 1]
    client.wait_until_running(SOON)


def test_each_pipeline_has_a_budget_of_its_own(make: Make, world: FakeWorld) -> None:
    """One that fails often does not take the tries of another."""
    for name in "abcd":
        world.topics.add(name, 1)
    client = make(two_pipelines())
    client.set_uncaught_exception_handler(at_once(2))
    running(client)
    for number, pipeline in enumerate(("p0", "p1", "p1", "p0"), 1):
        runs(world, pipeline, times=number)  # one thread: both start anew each time
        world.engine.end(pipeline, poison(pipeline))
    for pipeline in ("p0", "p1"):
        runs(world, pipeline, times=5)
    assert [record.attempt for record in client.failures] == [1, 1, 2, 2]
    client.wait_until_running(SOON)


def test_a_thread_that_failed_is_dead_before_the_pipeline_starts_anew(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """One holder at a time, in the client as well."""
    client = make()
    client.set_uncaught_exception_handler(Handler(R.REPLACE_THREAD))
    running(client)
    with caplog.at_level(logging.INFO):
        world.engine.end("p0", poison())
        runs(world, times=2)
        wait_for_state(client, RUNNING)
    said = [record.getMessage() for record in caplog.records]

    def first(thread: str, state: str) -> int:
        return next(at for at, text in enumerate(said) if f"{thread}] State" in text and text.endswith(state))

    assert first("StreamThread-1", "DEAD") < first("StreamThread-2", "PARTITIONS_ASSIGNED")
