"""Every lifecycle method in every state: Kafka Streams' table with Millstream's decisions on top (design, 2).

`TABLE` is the specification; one test reads it, cell by cell.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fake_world import FakeWorld
from scenes import (
    SOON,
    Handler,
    Make,
    ended,
    global_only,
    listened,
    names_of,
    put_into,
    running,
    with_global_table,
)
from waiting import wait_until

from millstream.dsl.builder import StreamsBuilder
from millstream.errors import (
    IllegalStateException,
    PipelineException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    TopologyException,
)
from millstream.model import LagInfo
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.runtime.client import KafkaStreams
from millstream.runtime.close_options import CloseOptions, GroupMembershipOperation
from millstream.runtime.state.failure import Response
from millstream.states import State

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
ZERO, LITTLE = timedelta(0), timedelta(milliseconds=5)
ISE = IllegalStateException


def set_hook(client: KafkaStreams, hook: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        client.set_thread_exception_hook(hook)


CALLS: dict[str, Callable[[KafkaStreams], object]] = {
    "start": lambda client: client.start(),
    "close, no waiting": lambda client: client.close(ZERO),
    "close, a little": lambda client: client.close(LITTLE),
    "close, negative": lambda client: client.close(timedelta(seconds=-1)),
    "clean up": lambda client: client.clean_up(),
    "add thread": lambda client: client.add_stream_thread(),
    "remove thread, negative": lambda client: client.remove_stream_thread(timedelta(seconds=-1)),
    "state listener": lambda client: client.set_state_listener(lambda new, old: None),
    "no state listener": lambda client: client.set_state_listener(None),
    "handler": lambda client: client.set_uncaught_exception_handler(Handler(None)),
    "no handler": lambda client: client.set_uncaught_exception_handler(None),
    "hook": lambda client: set_hook(client, lambda args: None),
    "no hook": lambda client: set_hook(client, None),
    "restore listener": lambda client: client.set_global_state_restore_listener(None),
    "standby listener": lambda client: client.set_standby_update_listener(None),
    "store": lambda client: client.store(COUNTS).get("a"),
    "wait, a little": lambda client: client.wait(LITTLE),
    "until running, a little": lambda client: client.wait_until_running(LITTLE),
    "lags": lambda client: client.all_local_store_partition_lags(),
    "health": lambda client: (client.health.live, client.health.ready, client.health.status),
    "failures": lambda client: len(client.failures),
    "metrics": lambda client: len(client.metrics()) > 0,
    "threads": lambda client: len(client.metadata_for_local_threads()),
}

NOW = (StateStoreNotAvailableException, "is {state}")
NO_START = (ISE, r"is {state}; start\(\) works once")
CLEAN = (ISE, r"Cannot clean up while running\..*is {state}; close\(\) it first")
SET = "before calling start\\(\\). Current state is: {state}"
LISTENER, HANDLER, RESTORE, STANDBY = (
    (ISE, f"Can only set {what} {SET}")
    for what in (
        "StateListener",
        "UncaughtExceptionHandler",
        "GlobalStateRestoreListener",
        "StandbyUpdateListener",
    )
)
NEGATIVE = (ValueError, "Timeout can't be negative")
POISON = (PipelineException, "'p0' failed")
WAIT = (ISE, r"is CREATED.*call start\(\) first")
LAGS = {"counts": dict.fromkeys(range(3), LagInfo(0, 0))}
ANY = object()

COLUMNS = (
    State.CREATED,
    State.REBALANCING,
    State.RUNNING,
    State.PENDING_SHUTDOWN,
    State.NOT_RUNNING,
    State.PENDING_ERROR,
    State.ERROR,
)

# fmt: off
TABLE: dict[str, tuple[object, ...]] = {
    # CREATED, REBALANCING, RUNNING, PENDING_SHUTDOWN, NOT_RUNNING, PENDING_ERROR, ERROR
    "start":                   (None, *[NO_START] * 6),
    "close, no waiting":       (ANY, False, ANY, False, True, False, True),
    "close, a little":         (ANY, ANY, ANY, False, True, False, True),
    "close, negative":         (*[NEGATIVE] * 7,),
    "clean up":                (None, CLEAN, CLEAN, CLEAN, None, CLEAN, None),
    "add thread":              (None, "A-StreamThread-2", "A-StreamThread-2", None, None, None, None),
    "remove thread, negative": (*[NEGATIVE] * 7,),
    "state listener":          (None, *[LISTENER] * 6),
    "no state listener":       (None, *[LISTENER] * 6),
    "handler":                 (None, *[HANDLER] * 6),
    "no handler":              (None, *[HANDLER] * 6),
    "hook":                    (None, *[HANDLER] * 6),
    "no hook":                 (None, *[HANDLER] * 6),
    "restore listener":        (None, *[RESTORE] * 6),
    "standby listener":        (None, *[STANDBY] * 6),
    "store":                   ((StreamsNotStartedException, "start"),
                                (StreamsRebalancingException, "restor|REBALANCING"), None, *[NOW] * 4),
    "wait, a little":          (WAIT, State.REBALANCING, State.RUNNING, State.PENDING_SHUTDOWN,
                                State.NOT_RUNNING, POISON, POISON),
    "until running, a little": (WAIT, (TimeoutException, "REBALANCING after 0.005 s"), None,
                                *[(ISE, "is {state}; it was closed")] * 2, POISON, POISON),
    "lags":                    ({}, ANY, LAGS, ANY, {}, ANY, {}),
    "health":                  ((True, False, "created"), ANY, (True, True, "running"),
                                (True, False, "closing"), (False, False, "closed"),
                                (True, False, "closing"), (False, False, "failed")),
    "failures":                (0, 0, 0, 0, 0, 1, 1),
    "metrics":                 (True, True, True, True, False, True, False),
    "threads":                 (1, 1, 1, 1, 0, 0, 0),
}
# fmt: on
"""What each call gives, by state: a value, or (exception, its text). `ANY`: whatever comes first."""

CHANGES = {
    ("start", State.CREATED): {State.REBALANCING, State.RUNNING},
    **{
        (call, state): {State.PENDING_SHUTDOWN, State.NOT_RUNNING}
        for call in ("close, no waiting", "close, a little")
        for state in (State.CREATED, State.REBALANCING, State.RUNNING)
    },
    ("add thread", State.REBALANCING): {State.REBALANCING},
    ("add thread", State.RUNNING): {State.REBALANCING, State.RUNNING},
}
"""The states afterwards; no other call changes any."""


def test_the_table_is_whole() -> None:
    """Every call has a cell for every state."""
    assert TABLE.keys() == CALLS.keys()
    assert {len(row) for row in TABLE.values()} == {len(COLUMNS)}
    assert set(COLUMNS) == set(State)


@pytest.mark.parametrize("state", COLUMNS)
@pytest.mark.parametrize("call", TABLE)
def test_each_method_in_each_state(call: str, state: State, member: Make, world: FakeWorld) -> None:
    """Behaviour reference 1.5 with design 2 on top; what is refused changes nothing.

    Source: KafkaStreamsTest testCannotStartOnceClosed, testCloseIsIdempotent,
        testShouldTransitToNotRunningIfCloseRightAfterCreated, shouldNotAddThreadWhenCreated/Closed/Error,
        shouldThrowOnCleanupWhileRunning/WhileShuttingDown, shouldAllowCleanupBeforeStartAndAfterClose,
        shouldThrowExceptionSetting…NotInCreateState, shouldThrowOnNegativeTimeoutForClose,
        shouldReturnFalseOnCloseWhenThreadsHaventTerminated, shouldReturnEmptyLocalStorePartitionLags,
        shouldNotGetStoreWhenWhenNotRunningOrRebalancing.
    """
    client = member("A")
    put_into(state, client, world)
    threads = names_of(client)
    expected = TABLE[call][COLUMNS.index(state)]
    if isinstance(expected, tuple) and isinstance(expected[0], type):
        with pytest.raises(expected[0], match=expected[1].format(state=state)):
            CALLS[call](client)
    else:
        found = CALLS[call](client)
        assert expected is ANY or found == expected
    allowed = CHANGES.get((call, state))
    if allowed is None:
        assert client.state is state
        assert names_of(client) == threads
    else:
        assert client.state in allowed
    client.check()


@pytest.mark.parametrize("state", COLUMNS)
def test_removing_a_thread_in_each_state(state: State, member: Make, world: FakeWorld) -> None:
    """Its name while the client runs, else None. The client goes on without threads (design 2).

    Source: KafkaStreamsTest.shouldRemoveThread, shouldNotRemoveThreadWhenNotRunning.
    """
    client = member("A", num__stream__threads=2)
    put_into(state, client, world)
    if state is State.REBALANCING:
        world.gate.set()
    removed = client.remove_stream_thread(SOON if state.is_running_or_rebalancing else ZERO)
    assert removed == ("A-StreamThread-1" if state.is_running_or_rebalancing else None)
    if state.is_running_or_rebalancing:
        client.wait_until_running(SOON)
        assert names_of(client) == ["StreamThread-2"]
    else:
        assert client.state is state


@pytest.mark.parametrize("state", COLUMNS)
def test_pausing_in_each_state(state: State, member: Make, world: FakeWorld) -> None:
    """It changes no state, and is what it was told to be, twice as well.

    Source: KafkaStreamsTest testPauseResume, testShowPauseResumeAreIdempotent; KIP-834.
    """
    client = member("A")
    put_into(state, client, world)
    assert client.is_paused is False
    for paused in (True, True, False, False):
        (client.pause if paused else client.resume)()
        assert client.is_paused is paused
        assert client.state in ({state} if state is not State.RUNNING else {State.RUNNING, State.REBALANCING})
    client.check()


@pytest.mark.parametrize("call", ["handler", "state listener", "hook"])
def test_what_cannot_be_called_is_refused_at_once(call: str, make: Make) -> None:
    """TypeError when it is set, not when it is needed; and what was set before stays."""
    client = make()
    setter = {
        "handler": client.set_uncaught_exception_handler,
        "state listener": client.set_state_listener,
        "hook": lambda value: set_hook(client, value),
    }[call]
    for wrong in ("a text", 7, Response.REPLACE_THREAD, lambda: None):
        if call == "state listener" and callable(wrong):
            continue  # how many arguments it takes shows when it is called, and does no harm
        with pytest.raises(TypeError):
            setter(wrong)  # type: ignore[operator]
    assert client.state is State.CREATED


def test_after_start_the_state_is_what_a_setter_speaks_of(make: Make, world: FakeWorld) -> None:
    """The state is checked before the argument, as in Kafka Streams."""
    client = make()
    put_into(State.RUNNING, client, world)
    with pytest.raises(ISE, match="Can only set UncaughtExceptionHandler"):
        client.set_uncaught_exception_handler("nonsense")  # type: ignore[arg-type]


# --- close -------------------------------------------------------------------------------------------------


def test_closing_without_a_start_takes_nothing(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Source: KafkaStreamsTest.shouldCleanupResourcesOnCloseWithoutPreviousStart."""
    client = make(with_global_table())
    told = listened(client)
    assert client.close(SOON) is True
    assert [new for _, new in told] == [State.PENDING_SHUTDOWN, State.NOT_RUNNING]
    assert world.everything_closed
    assert world.connections == []
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_closing_takes_options_and_leaves_the_group(make: Make, world: FakeWorld) -> None:
    """CloseOptions say how long to wait. To remain in the group is refused where it is asked for."""
    client = make()
    running(client)
    assert client.close(CloseOptions().with_timeout(SOON)) is True
    assert client.state is State.NOT_RUNNING
    assert client.close(CloseOptions(SOON, GroupMembershipOperation.LEAVE_GROUP)) is True
    with pytest.raises(ValueError, match="no client would continue its work"):
        CloseOptions().with_group_membership_operation(GroupMembershipOperation.REMAIN_IN_GROUP)
    wrong: Any = 5
    with pytest.raises(ValueError, match="the timeout of CloseOptions must be a timedelta or None; got 5"):
        CloseOptions(wrong)
    with pytest.raises(ValueError, match=r"must be GroupMembershipOperation\.LEAVE_GROUP; got 5"):
        CloseOptions().with_group_membership_operation(wrong)
    asynchronous = make()
    running(asynchronous)
    asynchronous.close(CloseOptions(ZERO))
    wait_until(lambda: asynchronous.state is State.NOT_RUNNING, "it is closed in the background")


def test_a_client_closed_by_its_listener_as_it_starts_holds_nothing(make: Make, world: FakeWorld) -> None:
    """Closing is over before start() comes to open anything; nobody would close that again."""
    client = make()
    client.set_state_listener(lambda new, old: closed(client) if new is State.REBALANCING else None)

    def closed(client: KafkaStreams) -> None:
        client.close()
        assert client._closed.wait(20)

    client.start()
    assert client.state is State.NOT_RUNNING
    client.check()
    again = make()
    again.start()  # the state directory is free
    again.wait_until_running(SOON)


# --- pausing (KIP-834) -------------------------------------------------------------------------------------


def test_a_paused_client_runs_no_query_and_keeps_its_place(make: Make, world: FakeWorld) -> None:
    """Source: PauseResumeIntegrationTest.shouldPauseAndResumeKafkaStreams."""
    client = make()
    running(client)
    generation = world.group.generation
    client.pause()
    wait_until(lambda: not world.engine.running, "the query stops")
    wait_until(lambda: client.health.status == "paused", "health says so")
    assert (client.health.live, client.health.ready) == (True, False)
    assert client.store(COUNTS).get("a") is None
    assert client.state.is_running_or_rebalancing
    with pytest.raises(ISE, match="Cannot clean up while running"):
        client.clean_up()  # KafkaStreamsTest.shouldThrowOnCleanupWhilePaused
    client.resume()
    wait_until(lambda: world.engine.running == {"p0"}, "the query goes on")
    wait_until(lambda: client.health.ready, "health says so")
    assert world.group.generation == generation
    client.wait_until_running(SOON)


def test_a_client_can_start_paused(make: Make, world: FakeWorld) -> None:
    """Source: KafkaStreamsTest.testStartingPaused; PauseResumeIntegrationTest
    .shouldAllowForTopologiesToStartPaused. Differs: stores are restored meanwhile, so it gets to RUNNING.
    """
    client = make()
    client.pause()
    running(client)
    assert client.is_paused
    assert world.engine.started == []
    client.resume()
    wait_until(lambda: world.engine.running == {"p0"}, "the query starts")


def test_threads_that_come_later_are_paused_too(make: Make, world: FakeWorld) -> None:
    """Whether it is an added one that gets the pipeline."""
    client = make()
    running(client)
    client.pause()
    wait_until(lambda: not world.engine.running, "the query stops")
    client.add_stream_thread()
    client.remove_stream_thread(SOON)
    client.wait_until_running(SOON)
    assert names_of(client) == ["StreamThread-2"]
    assert world.engine.started == ["p0"]
    client.resume()
    wait_until(lambda: world.engine.running == {"p0"}, "the other thread runs it")


# --- topologies without stream threads ---------------------------------------------------------------------


def test_a_client_of_global_tables_alone_has_no_stream_threads(make: Make, world: FakeWorld) -> None:
    """Source: KafkaStreamsTest.shouldNotCreateStreamThreadsForGlobalOnlyTopology,
    shouldTransitToRunningWithGlobalOnlyTopology."""
    world.topics.add("users", 2)
    client = make(global_only(), num__stream__threads=3)
    told = listened(client)
    assert names_of(client) == []
    running(client)
    assert [new for _, new in told] == [State.REBALANCING, State.RUNNING]
    assert world.memberships == []
    assert world.engines == 0
    assert client.close(SOON)


def test_an_empty_topology_is_refused(make: Make) -> None:
    """Source: KafkaStreamsTest.shouldThrowTopologyExceptionOnEmptyTopology."""
    with pytest.raises(TopologyException):
        make(StreamsBuilder().build())


def test_a_thread_that_is_shut_down_from_outside_is_not_among_the_threads(
    make: Make, world: FakeWorld
) -> None:
    """Source: KafkaStreamsTest.shouldNotReturnDeadThreads, testStateThreadClose. Differs: nobody decided that
    it ends, so the client ends as well (design 2: never a zombie).
    """
    client = make(num__stream__threads=2)
    running(client)
    client._crew.threads[0].stop()
    assert ended(client) is State.ERROR
    assert names_of(client) == []


def test_a_global_thread_that_is_shut_down_from_outside_ends_the_client(make: Make, world: FakeWorld) -> None:
    """Source: KafkaStreamsTest.testStateGlobalThreadClose."""
    world.topics.add("users", 1)
    client = make(with_global_table())
    told = listened(client)
    running(client)
    assert client._global is not None
    client._global.stop()
    assert ended(client) is State.ERROR
    assert [new for _, new in told][-2:] == [State.PENDING_ERROR, State.ERROR]
