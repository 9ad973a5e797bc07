"""Spark starts while a client joins its group, if it is alone there; and ends if it was not."""

from __future__ import annotations

import threading

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Make, at_rest, ended, running, runs
from waiting import wait_until

from millstream import KafkaStreams
from millstream.errors import SetupException
from millstream.states import State


def _has_looked() -> None:
    """Wait until nobody asks for the members of the group."""
    wait_until(
        lambda: not any(thread.name.endswith("-StartAhead") for thread in threading.enumerate()),
        "it knows whether it is alone",
        SOON_S,
    )


def test_spark_starts_while_a_client_that_is_alone_joins(member: Make, world: FakeWorld) -> None:
    """The first member of a group waits for others, by Kafka's default for 3 s."""
    world.group.hold()
    client: KafkaStreams = member("A")
    client.start()
    assert world.engine_made.wait(SOON_S)
    wait_until(lambda: world.engine.compiled == ["p0"], "it is compiled", SOON_S)
    assert client.state is State.REBALANCING
    assert world.engine.started == []
    world.group.release()
    running(client)
    assert (world.engines, world.engine.started, world.engine.compiled) == (1, ["p0"], ["p0"])


def test_a_client_that_joins_others_starts_no_spark(member: Make, world: FakeWorld) -> None:
    """It will perhaps have nothing to run: here there is one task."""
    world.topics.remove("lines")
    world.topics.add("lines", 1)
    first = member("A")
    running(first)
    second: KafkaStreams = member("B")
    second.start()
    _has_looked()
    running(second)
    at_rest(world, first, second)
    assert world.engine_of("B") is None


def test_spark_that_was_started_for_nothing_ends(member: Make, world: FakeWorld) -> None:
    """Two that start at once may each take themselves to be alone. Later it starts as it would have."""
    world.tells_members = False
    world.topics.remove("lines")
    world.topics.add("lines", 1)
    first = member("A")
    running(first)
    world.group.hold()
    second: KafkaStreams = member("B")
    second.start()
    wait_until(lambda: world.engine_of("B") is not None, "the second one starts Spark", SOON_S)
    world.group.release()
    running(second)
    at_rest(world, first, second)
    idle = world.engine_of("B")
    assert idle is not None
    wait_until(lambda: idle.closed, "Spark has ended", SOON_S)
    assert idle.started == []
    assert world.runners("p0") == ["A"]
    first.close()
    runs(world)
    assert world.runners("p0") == ["B"]
    assert world.engines == 3


def test_what_goes_wrong_ahead_is_told_once_and_when_it_matters(member: Make, world: FakeWorld) -> None:
    """The error is the same as if the thread that needs Spark had started it, without a second try."""
    world.group.hold()
    world.engine_error = SetupException("there is no Java")
    client: KafkaStreams = member("A")
    client.start()
    wait_until(lambda: world.engines == 1, "Spark is started", SOON_S)
    _has_looked()
    assert client.state is State.REBALANCING
    assert client.failures == ()
    world.group.release()
    assert ended(client) is State.ERROR
    assert world.engines == 1
    with pytest.raises(SetupException, match="there is no Java"):
        client.wait(SOON)
    assert len(client.failures) == 1


def test_spark_that_starts_ahead_ends_with_its_client(member: Make, world: FakeWorld) -> None:
    """No thread has needed it, and nothing is left of it."""
    world.group.hold()
    client: KafkaStreams = member("A")
    client.start()
    assert world.engine_made.wait(SOON_S)
    client.close()
    wait_until(lambda: world.everything_closed, "Spark has ended, too", SOON_S)
    assert world.engine.started == []
