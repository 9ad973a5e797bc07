"""What a client writes is deleted or made anew while it runs: KIP-671 names that first. And topics that were
created so shortly before the start that brokers do not know of them yet.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from fake_world import FakeWorld
from scenes import (
    SOON_S,
    Handler,
    Make,
    at_rest,
    ended,
    pipelines_of,
    running,
    two_pipelines,
    with_global_table,
)
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import LostTopicException, MissingSourceTopicException
from millstream.kafka.topics import KafkaTopics
from millstream.runtime.client import KafkaStreams
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.state.failure import Response
from millstream.serdes.serdes import Serdes
from millstream.states import State

AGAIN = UncaughtExceptionPolicy.replace(
    100, backoff=timedelta(milliseconds=20), backoff_max=timedelta(milliseconds=50)
)


def test_a_deleted_output_is_told_to_who_writes_it_until_it_is_back(make: Make, world: FakeWorld) -> None:
    """The other pipeline runs on; the client is not RUNNING while the topic is away, and then is again."""
    for topic in ("a", "b", "c", "d"):
        world.topics.add(topic, 1)
    handler = Handler(AGAIN)
    client = make(two_pipelines(), num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    at_rest(world, client)
    writer = next(thread for thread, names in pipelines_of(client).items() if "p0" in names)
    world.topics.remove("b")
    wait_until(lambda: len(handler.exceptions) >= 3, "it is told, and tries again", SOON_S)
    assert all(isinstance(error, LostTopicException) for error in handler.exceptions)
    first = handler.exceptions[0]
    assert isinstance(first, LostTopicException)
    assert (first.topics, first.deleted) == (("b",), ("b",))
    assert "output topic 'b' was deleted while the client was running" in str(first)
    assert handler.threads[0].endswith(writer)
    assert not client.health.ready
    assert world.engine.started.count("p1") == 1, "the other one was never disturbed"
    world.topics.add("b", 3)
    client.wait_until_running(timedelta(seconds=SOON_S))
    wait_until(lambda: "p0" in world.engine.running, "p0 runs again", SOON_S)
    told = len(handler.exceptions)
    world.topics.recreate("b")
    wait_until(lambda: len(handler.exceptions) > told, "another topic of its name is told", SOON_S)
    error = handler.exceptions[-1]
    assert isinstance(error, LostTopicException)
    assert error.recreated == ("b",)
    client.wait_until_running(timedelta(seconds=SOON_S))
    assert len(handler.exceptions) == told + 1, "once: what is written goes to the new one"


@pytest.mark.parametrize("again", [False, True])
def test_a_changelog_that_is_gone_ends_all_who_keep_its_store(
    again: bool, member: Make, world: FakeWorld
) -> None:
    """This holds even if a new changelog exists already. No thread is replaced, because it would fail as
    well."""
    handlers = {name: Handler(Response.REPLACE_THREAD) for name in ("A", "B")}
    clients = [member(name, num__stream__threads=2) for name in handlers]
    for client, handler in zip(clients, handlers.values(), strict=True):
        client.set_uncaught_exception_handler(handler)
    running(*clients)
    at_rest(world, *clients)
    if again:
        world.topics.recreate("app-counts-changelog")
    else:
        world.topics.remove("app-counts-changelog")
    assert [ended(client) for client in clients] == [State.ERROR, State.ERROR]
    for handler in handlers.values():
        assert 1 <= len(handler.exceptions) <= 2, "each thread, once"
        for error in handler.exceptions:
            assert isinstance(error, LostTopicException)
            assert error.topics == ("app-counts-changelog",)
            what = "deleted and created again (topic id" if again else "deleted while the client was running"
            assert f"changelog 'app-counts-changelog' was {what}" in str(error)
            assert "millstream reset" in str(error)


@pytest.mark.parametrize("again", [False, True])
def test_a_global_tables_topic_that_is_gone_is_a_missing_source_topic(
    again: bool, make: Make, world: FakeWorld
) -> None:
    """The global thread fails; the handler is that of the stream threads."""
    world.topics.add("users", 2)
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make(with_global_table())
    client.set_uncaught_exception_handler(handler)
    running(client)
    if again:
        world.topics.recreate("users")
    else:
        world.topics.remove("users")
    assert ended(client) is State.ERROR
    (error,) = handler.exceptions
    assert isinstance(error, MissingSourceTopicException)
    assert error.topics == ("users",)
    assert "changelog" not in str(error)
    assert handler.contexts[0].is_global


def test_topics_that_were_created_a_moment_ago_are_not_missing(make: Make, world: FakeWorld) -> None:
    """Of a source, a pattern, a global table, and for dead letters: while a broker has not heard of them."""
    builder = StreamsBuilder()
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    lines = builder.stream("lines", strings)
    lines.group_by_key().count(Materialized.as_("counts"))
    builder.stream(re.compile("logs-.*"), strings).group_by_key().count(Materialized.as_("logged"))
    builder.global_table("users", strings, Materialized.as_("users"))
    topology = builder.build()
    for topic in ("logs-1", "users", "dead"):
        world.topics.add(topic, 2)
    for late in range(1, 8):
        handler = Handler(Response.SHUTDOWN_CLIENT)
        client = make(
            topology,
            application__id=f"app-{late}",
            deserialization__exception__handler="continue",
            errors__dead__letter__queue__topic__name="dead",
        )
        client.set_uncaught_exception_handler(handler)
        world.topics.late = late
        running(client)
        assert handler.exceptions == []
        assert client.close(timedelta(seconds=SOON_S))


@pytest.mark.kafka
def test_a_client_may_be_started_right_after_its_topics_were_created(
    kafka: EmbeddedKafka, world: FakeWorld, tmp_path: Path
) -> None:
    """As compose files do it: on a real broker, which may not know yet what the controller has decided."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    parts = replace(world.parts(), topics=KafkaTopics)
    for number in range(15):
        app = f"at-once-{number}"
        source, matched, table = f"{app}-in", f"{app}-logs-1", f"{app}-users"
        builder = StreamsBuilder()
        builder.stream(source, strings).group_by_key().count(Materialized.as_("counts"))
        logs = builder.stream(re.compile(f"{app}-logs-.*"), strings)
        logs.group_by_key().count(Materialized.as_("logged"))
        builder.global_table(table, strings, Materialized.as_("users"))
        topology = builder.build()
        config = {
            "application.id": app,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(tmp_path),
        }
        handler = Handler(Response.SHUTDOWN_CLIENT)
        client = KafkaStreams(topology, config, parts=parts)
        client.set_uncaught_exception_handler(handler)
        created = admin.create_topics([NewTopic(name, 1, 1) for name in (source, matched, table)])
        for future in created.values():
            future.result(30)
        running(client)
        assert handler.exceptions == []
        assert client.close(timedelta(seconds=SOON_S))
