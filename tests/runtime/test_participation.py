"""Source topics that are missing, deleted or made anew, on every thread of every client (KIP-662)."""

from __future__ import annotations

import re
import threading
from datetime import timedelta

import pytest
from fake_world import FakeWorld
from scenes import (
    SOON,
    SOON_S,
    Handler,
    Make,
    at_rest,
    ended,
    listened,
    names_of,
    poison,
    running,
    runs,
    wait_for_state,
)
from waiting import wait_until

from millstream.dsl.builder import StreamsBuilder
from millstream.errors import MissingSourceTopicException, StreamsException
from millstream.model import TopicPartition
from millstream.runtime.assembly import Assembly
from millstream.runtime.client import KafkaStreams
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.state.failure import Response
from millstream.runtime.state.work_plan import WorkPlan
from millstream.states import State
from millstream.topology.topology import Topology

AGAIN = UncaughtExceptionPolicy.replace(
    100, backoff=timedelta(milliseconds=2), backoff_max=timedelta(milliseconds=10)
)


def all_at_once(threads: int) -> Handler:
    """A handler that answers when it is asked on so many threads, so that none of them is stopped before."""
    barrier = threading.Barrier(threads, timeout=SOON_S)

    def answer() -> Response:
        barrier.wait()
        return Response.SHUTDOWN_CLIENT

    return Handler(answer)


def look(client: KafkaStreams) -> None:
    """What the client's watch does ten times a second anyway, now."""
    watch = client._participation._watch
    assert watch is not None
    watch.look_now()


def of_pattern() -> Topology:
    """One pipeline, of the topics `in-…`."""
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).to("out")
    return builder.build()


def only_missing(handler: Handler) -> list[MissingSourceTopicException]:
    """What it was asked about, which is nothing else."""
    for error in handler.exceptions:
        assert isinstance(error, MissingSourceTopicException)
    return [error for error in handler.exceptions if isinstance(error, MissingSourceTopicException)]


# --- missing before the start ------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_missing_topic_reaches_the_handler_on_each_thread_of_each_client(
    threads: int, clients: int, member: Make, world: FakeWorld
) -> None:
    """Once; REBALANCING, PENDING_ERROR, ERROR, and never RUNNING; nothing was started, nothing made.

    Source: KIP-662; JoinWithIncompleteMetadataIntegrationTest
        .testShouldAutoShutdownOnJoinWithIncompleteMetadata.
    """
    world.topics.remove("lines")
    handlers = {name: all_at_once(threads) for name in "AB"[:clients]}
    made = {name: member(name, num__stream__threads=threads) for name in handlers}
    told = {name: listened(client) for name, client in made.items()}
    for name, client in made.items():
        client.set_uncaught_exception_handler(handlers[name])
        client.start()
    for name, client in made.items():
        assert ended(client) is State.ERROR
        assert [new for _, new in told[name]] == [State.REBALANCING, State.PENDING_ERROR, State.ERROR]
        errors = only_missing(handlers[name])
        assert sorted(handlers[name].threads) == [f"{name}-StreamThread-{n + 1}" for n in range(threads)]
        assert {error.topics for error in errors} == {("lines",)}
        assert all("source topic 'lines' does not exist" in str(error) for error in errors)
        with pytest.raises(MissingSourceTopicException):
            client.wait(SOON)
    assert world.engines == 0
    assert world.topics.created == []


def test_replacing_waits_for_the_topic_and_then_runs(make: Make, world: FakeWorld) -> None:
    """The threads look again and again; health says what is missing. (Upstream: a loop of rebalances.)"""
    world.topics.remove("lines")
    handler = Handler(AGAIN)
    client = make(num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    client.start()
    wait_until(lambda: len(handler.exceptions) >= 4, "some tries", SOON_S)
    assert client.state is State.REBALANCING
    assert client.health.status in ("waiting", "missing")
    assert client.health.details["missing_topics"] == ["lines"]
    assert (client.health.live, client.health.ready) == (True, False)
    world.topics.add("lines", 3)
    client.wait_until_running(SOON)
    runs(world)
    assert len(names_of(client)) == 2
    assert client.health.ready
    assert client.health.details["missing_topics"] == []
    only_missing(handler)


def test_a_client_that_closes_while_it_looks_at_the_topics_joins_no_group(
    make: Make, world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look may have taken long. A member that joined would never leave."""
    client = make()
    plan = Assembly.plan

    def planned(assembly: Assembly) -> WorkPlan:
        found = plan(assembly)
        client.close(timedelta(0))
        return found

    monkeypatch.setattr(Assembly, "plan", planned)
    client.start()
    assert client.close(SOON)
    assert client.state is State.NOT_RUNNING
    assert world.memberships == []


def test_each_of_several_missing_topics_is_named(make: Make, world: FakeWorld) -> None:
    """One exception names all."""
    builder = StreamsBuilder()
    builder.stream("lines").to("out")
    builder.stream("gone").to("out")
    builder.stream("away").to("out")
    client = make(builder.build())
    client.start()
    with pytest.raises(MissingSourceTopicException) as raised:
        client.wait(SOON)
    assert raised.value.topics == ("away", "gone")


# --- deleted while running ---------------------------------------------------------------------------------


@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_deleted_topic_reaches_the_handler_on_each_thread_of_each_client(
    threads: int, clients: int, member: Make, world: FakeWorld
) -> None:
    """Once, though the leader's error assignment says it as well; it is not made again by anybody's asking.

    Source: HandlingSourceTopicDeletionIntegrationTest.shouldThrowErrorAfterSourceTopicDeleted.
    """
    handlers = {name: all_at_once(threads) for name in "AB"[:clients]}
    made = {name: member(name, num__stream__threads=threads) for name in handlers}
    for name, client in made.items():
        client.set_uncaught_exception_handler(handlers[name])
    running(*made.values())
    at_rest(world, *made.values())
    world.topics.remove("lines")
    for client in made.values():
        look(client)
    world.group.rebalance()
    for name, client in made.items():
        assert ended(client) is State.ERROR
        errors = only_missing(handlers[name])
        assert len(set(handlers[name].threads)) == len(errors) == threads
        assert {error.topics for error in errors} == {("lines",)}
    assert "lines" not in world.topics.names()
    assert "lines" not in [topic.name for topic in world.topics.created]


def test_the_leaders_word_alone_is_enough(member: Make, world: FakeWorld) -> None:
    """A client whose own watch has seen nothing yet learns it from the group (code 1)."""
    handler = Handler(Response.SHUTDOWN_CLIENT)
    leader, follower = member("A"), member("B")
    follower.set_uncaught_exception_handler(handler)
    leader.set_uncaught_exception_handler(AGAIN)
    running(leader)
    running(follower)
    at_rest(world, leader, follower)
    assert follower._participation._watch is not None
    follower._participation._watch.close()  # as one that cannot reach the cluster
    world.topics.remove("lines")
    look(leader)
    world.group.rebalance()
    assert ended(follower) is State.ERROR
    (error,) = only_missing(handler)
    assert (
        "One or more source topics were missing during rebalance: 'lines', according to the group leader 'A'"
        in str(error)
    )


@pytest.mark.parametrize("what", ["deleted", "recreated"])
def test_what_happened_to_a_topic_is_told(what: str, make: Make, world: FakeWorld) -> None:
    """Deleted, or deleted and created again, by its id (KIP-516)."""
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    if what == "deleted":
        world.topics.remove("lines")
    else:
        world.topics.recreate("lines")
    look(client)
    assert ended(client) is State.ERROR
    (error,) = only_missing(handler)
    assert error.topics == ("lines",)
    assert error.deleted == (("lines",) if what == "deleted" else ())
    assert error.recreated == (("lines",) if what == "recreated" else ())
    assert ("was deleted while" if what == "deleted" else "was deleted and created again") in str(error)


def test_a_pattern_that_matches_nothing_any_more_is_told(make: Make, world: FakeWorld) -> None:
    """The error has the topics that it matched."""
    world.topics.add("in-1", 1)
    world.topics.add("in-2", 1)
    client = make(of_pattern())
    running(client)
    world.topics.remove("in-1")
    world.topics.remove("in-2")
    look(client)
    with pytest.raises(
        MissingSourceTopicException, match=r"no topic matches the pattern 'in-\.\*' any longer"
    ) as raised:
        client.wait(SOON)
    assert raised.value.topics == ("in-1", "in-2")


def test_a_deleted_topic_stays_one_though_another_takes_its_name(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """No thread of this client can go on with other records at the old offsets, so none is replaced: what the
    budget ends in comes at once."""
    handler = Handler(UncaughtExceptionPolicy.replace(3, then=Response.SHUTDOWN_APPLICATION))
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.topics.remove("lines")
    look(client)
    world.topics.add("lines", 3)
    assert ended(client) is State.ERROR
    assert len(only_missing(handler)) == 1
    assert world.engine.started == ["p0"]
    (record,) = client.failures
    assert record.response is Response.SHUTDOWN_APPLICATION
    assert "Not replacing thread 'app" in caplog.text
    assert "topic 'lines' was deleted, and no thread of this client can continue" in caplog.text


def test_a_cluster_that_does_not_answer_is_no_missing_topic(make: Make, world: FakeWorld) -> None:
    """Nothing is known then, so nothing is told."""
    client = make()
    running(client)
    world.topics.away = True
    look(client)
    assert client.state is State.RUNNING
    assert client.failures == ()
    world.topics.away = False
    look(client)
    assert client.health.ready


# --- Spark's own error -------------------------------------------------------------------------------------


def test_sparks_error_for_the_same_cause_is_the_same_exception(make: Make, world: FakeWorld) -> None:
    """Whichever comes first: the handler is asked once, with what the cluster says; Spark's is the cause."""
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    sparks = MissingSourceTopicException("Spark says so", ("lines",))
    world.topics.remove("lines")
    world.engine.end("p0", sparks)
    assert ended(client) is State.ERROR
    (error,) = only_missing(handler)
    assert "'lines' was deleted while the client was running" in str(error)
    # The watch may have been quicker than Spark; its word is then the only one.
    assert error.__cause__ in (sparks, None)


def test_sparks_error_stands_where_the_cluster_has_the_topic(make: Make, world: FakeWorld) -> None:
    """It may know something that we do not; nothing is made up."""
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    sparks = MissingSourceTopicException("Spark says so", ("lines",))
    world.engine.end("p0", sparks)
    assert ended(client) is State.ERROR
    assert handler.exceptions == [sparks]


def test_another_failure_is_not_called_a_missing_topic(make: Make, world: FakeWorld) -> None:
    """A topic is missing at the same time."""
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    error = poison()
    world.topics.remove("lines")
    world.engine.end("p0", error)
    assert ended(client) is State.ERROR
    first = handler.exceptions[0]
    # Of two failures the first one counts; each is told as what it is.
    assert first is error or isinstance(first, MissingSourceTopicException)
    assert error.__cause__ is not first


# --- topics that grow --------------------------------------------------------------------------------------


def test_partitions_that_are_added_are_the_clients_too(member: Make, world: FakeWorld) -> None:
    """It names them to the group as its own, so that lag tools show them; nothing fails."""
    client = member("A")
    running(client)
    membership = world.membership_of("A")

    def named() -> list[TopicPartition]:
        assignment = world.group.assignments[membership.member_id]
        return list(membership.member.partitions(assignment))

    assert len(named()) == 3
    world.topics.grow("lines", 5)
    look(client)
    wait_until(lambda: len(named()) == 5, "five partitions", SOON_S)
    assert named() == [TopicPartition("lines", number) for number in range(5)]
    wait_until(lambda: world.engine.partitions("p0") == [set(range(5))], "it runs them", SOON_S)
    wait_for_state(client, State.RUNNING)
    assert client.failures == ()


def test_joined_topics_may_grow_one_after_the_other(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Records with the same key are in different partitions until both have grown; then both are read."""
    for name in ("orders", "users"):
        world.topics.add(name, 2)
    builder = StreamsBuilder()
    builder.stream("orders").join(builder.table("users"), lambda order, user: order).to("out")
    client = member("A", builder.build())
    running(client)
    assert world.shares("p0") == {"A": {0, 1}}
    for name in ("orders", "users"):
        world.topics.grow(name, 4)
        look(client)

        def is_known(name: str = name) -> bool:
            plan = client._owner.state.plan
            return plan is not None and plan.sources[name].partitions == 4

        wait_until(is_known, "the client knows it", SOON_S)
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2, 3}}, "both are read", SOON_S)
    wait_for_state(client, State.RUNNING)
    assert client.failures == ()
    assert "could not be handled" not in caplog.text


# --- what else is in the way -------------------------------------------------------------------------------


def test_a_cluster_that_is_away_when_a_thread_joins_is_that_threads_failure(
    make: Make, world: FakeWorld
) -> None:
    """A replacement tries again, and gets there when the cluster is back."""
    world.topics.remove("lines")
    handler = Handler(AGAIN)
    client = make()
    client.set_uncaught_exception_handler(handler)
    client.start()
    wait_until(lambda: len(handler.exceptions) >= 1, "the first try", SOON_S)
    world.topics.away = True
    wait_until(
        lambda: any(not isinstance(error, MissingSourceTopicException) for error in handler.exceptions),
        "a try without a cluster",
        SOON_S,
    )
    assert all(isinstance(error, StreamsException) for error in handler.exceptions)
    world.topics.add("lines", 3)
    world.topics.away = False
    client.wait_until_running(SOON)
    runs(world)


def test_a_missing_topic_uses_up_the_budget_of_each_thread_not_of_all(make: Make, world: FakeWorld) -> None:
    """Four threads that wait for a topic wait as long as one."""
    world.topics.remove("lines")
    handler = Handler(
        UncaughtExceptionPolicy.replace(
            max_failures=3, backoff=timedelta(milliseconds=1), backoff_max=timedelta(milliseconds=1)
        )
    )
    client = make(num__stream__threads=4)
    client.set_uncaught_exception_handler(handler)
    client.start()
    assert client._closed.wait(SOON.total_seconds())
    lines: dict[int, list[int]] = {}
    for record in client.failures:
        lines.setdefault(record.line, []).append(record.attempt)
    assert max(map(len, lines.values())) == 4
    assert all(attempts == list(range(1, len(attempts) + 1)) for attempts in lines.values())
