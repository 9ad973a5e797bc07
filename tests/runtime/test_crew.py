"""Stream threads that are added and removed while the client runs (KIP-663)."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from fake_world import FakeWorld
from scenes import (
    SOON,
    SOON_S,
    Handler,
    Make,
    at_rest,
    listened,
    names_of,
    pipelines_of,
    poison,
    running,
    runs,
    two_pipelines,
)
from waiting import wait_until

from millstream.errors import TimeoutException
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import Response
from millstream.states import State


@pytest.fixture
def two(make: Make, world: FakeWorld) -> KafkaStreams:
    """A client of two pipelines on two threads, RUNNING."""
    for name in "abcd":
        world.topics.add(name, 1)
    client = make(two_pipelines(), client__id="A", num__stream__threads=2)
    running(client)
    return client


def ends_running(client: KafkaStreams) -> None:
    client.wait_until_running(SOON)
    client.check()


def test_a_thread_is_added(make: Make, world: FakeWorld) -> None:
    """Its name is returned, the client goes through REBALANCING, and work is shared anew.

    Source: AdjustStreamThreadCountTest.shouldAddStreamThread; KafkaStreamsTest.shouldAddThreadWhenRunning.
    """
    client = make(client__id="A", num__stream__threads=2)
    told = listened(client)
    running(client)
    assert names_of(client) == ["StreamThread-1", "StreamThread-2"]
    assert client.add_stream_thread() == "A-StreamThread-3"
    ends_running(client)
    assert names_of(client) == ["StreamThread-1", "StreamThread-2", "StreamThread-3"]
    wait_until(
        lambda: all(thread.active_tasks for thread in client.metadata_for_local_threads()),
        "one of the three tasks each",
        SOON_S,
    )
    ends_running(client)
    assert [new for _, new in told][-2:] == [State.REBALANCING, State.RUNNING]


def test_a_thread_is_removed(two: KafkaStreams, world: FakeWorld) -> None:
    """Its name is returned, and another thread has what it had; the client is RUNNING only then.

    Source: AdjustStreamThreadCountTest.shouldRemoveStreamThread; KafkaStreamsTest.shouldRemoveThread.
    """
    assert two.remove_stream_thread() == "A-StreamThread-1"
    ends_running(two)
    assert pipelines_of(two) == {"StreamThread-2": ["p1", "p0"]} or pipelines_of(two) == {
        "StreamThread-2": ["p0", "p1"]
    }
    assert two.failures == ()
    assert world.overlaps == []


def test_a_removal_that_is_not_in_time_goes_on(two: KafkaStreams, world: FakeWorld) -> None:
    """TimeoutException; what the thread had goes over when it has let go, and the client is RUNNING then.

    Source: AdjustStreamThreadCountTest shouldnNotRemoveStreamThreadWithinTimeout,
        testRebalanceHappensBeforeStreamThreadGetDown (Differs: RUNNING again when it is down).
    """
    world.stop_gate.clear()
    with pytest.raises(TimeoutException, match="Thread A-StreamThread-1 did not stop in the allotted time"):
        two.remove_stream_thread(timedelta(milliseconds=5))
    assert two.state is State.REBALANCING
    assert world.engine.running == {"p0", "p1"}
    assert len(world.engine.started) == 2
    world.stop_gate.set()
    ends_running(two)
    assert names_of(two) == ["StreamThread-2"]
    assert world.engine.running == {"p0", "p1"}


def test_each_removal_removes_another_thread(two: KafkaStreams, world: FakeWorld) -> None:
    """This holds while the previously removed thread is still ending."""
    world.stop_gate.clear()
    for name in ("A-StreamThread-1", "A-StreamThread-2"):
        with pytest.raises(TimeoutException, match=name):
            two.remove_stream_thread(timedelta(0))
    assert two.remove_stream_thread(timedelta(0)) is None
    world.stop_gate.set()
    ends_running(two)
    assert names_of(two) == []


def test_a_negative_timeout_removes_nothing(two: KafkaStreams) -> None:
    """Differs: upstream removes the thread all the same, and then raises."""
    with pytest.raises(ValueError, match="can't be negative"):
        two.remove_stream_thread(timedelta(seconds=-30))
    assert names_of(two) == ["StreamThread-1", "StreamThread-2"]
    assert two.state is State.RUNNING


def test_names_are_used_again(two: KafkaStreams) -> None:
    """The lowest one that is free.

    Source: AdjustStreamThreadCountTest.shouldAddAndRemoveStreamThreadsWhileKeepingNamesCorrect.
    """
    assert two.add_stream_thread() == "A-StreamThread-3"
    ends_running(two)
    removed = two.remove_stream_thread(SOON)
    assert removed == "A-StreamThread-1"
    assert two.add_stream_thread() == removed
    ends_running(two)
    assert sorted(names_of(two)) == ["StreamThread-1", "StreamThread-2", "StreamThread-3"]


def test_threads_come_and_go_at_the_same_time(two: KafkaStreams, world: FakeWorld) -> None:
    """Source: AdjustStreamThreadCountTest.shouldAddAndRemoveThreadsMultipleTimes."""

    def again_and_again(times: int) -> None:
        for _ in range(times):
            assert two.add_stream_thread() is not None
            assert two.remove_stream_thread(SOON) is not None

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(again_and_again, times) for times in (4, 6)]:
            done.result(SOON_S)
    ends_running(two)
    assert len(names_of(two)) == 2
    wait_until(lambda: world.engine.running == {"p0", "p1"}, "both run", SOON_S)
    assert two.failures == ()


def test_threads_may_be_looked_at_meanwhile(two: KafkaStreams) -> None:
    """Source: AdjustStreamThreadCountTest.testConcurrentlyAccessThreads."""
    together = threading.Barrier(5)

    def look() -> None:
        together.wait(SOON_S)
        for _ in range(4):
            assert two.add_stream_thread() is not None
            assert two.metadata_for_local_threads()
            assert two.health.reason
            assert two.remove_stream_thread(SOON) is not None

    with ThreadPoolExecutor(5) as pool:
        for done in [pool.submit(look) for _ in range(5)]:
            done.result(SOON_S)
    ends_running(two)
    assert len(names_of(two)) == 2


def test_without_its_last_thread_the_client_says_so_and_can_have_another(
    two: KafkaStreams, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """RUNNING, with health that says it is not; the next one is number 1 again (reference 1.5)."""
    assert two.remove_stream_thread(SOON) == "A-StreamThread-1"
    assert two.remove_stream_thread(SOON) == "A-StreamThread-2"
    assert two.remove_stream_thread(SOON) is None
    assert "There are no threads eligible for removal" in caplog.text
    ends_running(two)
    assert two.state is State.RUNNING
    assert (two.health.status, two.health.live, two.health.ready) == ("empty", False, False)
    assert world.engine.running == set()
    assert two.add_stream_thread() == "A-StreamThread-1"
    wait_until(lambda: world.engine.running == {"p0", "p1"}, "both run again", SOON_S)
    ends_running(two)
    assert two.health.live


def test_the_work_of_a_client_without_threads_goes_to_others(member: Make, world: FakeWorld) -> None:
    """It comes back when the client has a thread again and work is shared anew."""
    first, second = member("A"), member("B")
    running(first)
    running(second)
    at_rest(world, first, second)
    assert sorted(world.shares("p0")) == ["A", "B"]
    assert first.remove_stream_thread(SOON) is not None
    wait_until(lambda: world.shares("p0") == {"B": {0, 1, 2}}, "B runs all", SOON_S)
    second.wait_until_running(SOON)
    assert second.close(SOON)
    assert first.add_stream_thread() == "A-StreamThread-1"
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "A runs all", SOON_S)
    assert world.overlaps == []


def test_a_failure_while_a_thread_is_being_removed(two: KafkaStreams, world: FakeWorld) -> None:
    """The one that is left fails, and is replaced, though the other one is stuck in ending."""
    world.stop_gate.clear()
    with pytest.raises(TimeoutException):
        two.remove_stream_thread(timedelta(0))
    left = pipelines_of(two)["StreamThread-2"]
    world.engine.end(left[0], poison(left[0]))
    # Nobody set a handler: with one thread failing and the other ending, nobody is left.
    world.stop_gate.set()
    assert two._closed.wait(SOON_S)
    assert two.state is State.ERROR


def test_an_added_thread_fails_and_is_replaced_like_any_other(make: Make, world: FakeWorld) -> None:
    """Its name is free again once it is DEAD."""
    client = make(client__id="A")
    client.set_uncaught_exception_handler(Handler(Response.REPLACE_THREAD))
    running(client)
    client.add_stream_thread()
    client.remove_stream_thread(SOON)
    ends_running(client)
    assert pipelines_of(client) == {"StreamThread-2": ["p0"]}
    world.engine.end("p0", poison())
    runs(world, times=3)
    ends_running(client)
    assert pipelines_of(client) == {"StreamThread-1": ["p0"]}
