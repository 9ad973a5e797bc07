"""Topics and checkpoints that are not what an application's progress belongs to, on real Kafka and Spark."""

from __future__ import annotations

import logging
import re
from datetime import timedelta

import pytest
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    KafkaStreams,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    Produced,
    Serdes,
    StreamsBuilder,
    StreamsException,
    StreamThreadExceptionResponse,
    Topology,
)
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
KEYS = [f"k{number}" for number in range(30)]


def counting(topic: str, out: str) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream(topic, STRINGS).group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def each_key(value: int) -> dict[str, int]:
    return dict.fromkeys(KEYS, value)


def write(world: World, topic: str, times: int = 1) -> None:
    world.produce(topic, [(key.encode(), b"x") for key in KEYS] * times)


def recreate(world: World, topic: str, partitions: int = 2) -> None:
    world.kafka.delete_topic(topic)
    wait_until(lambda: topic not in world.kafka.topics(), f"{topic} is gone")
    world.kafka.create_topic(topic, partitions)


def start_and_wait(client: KafkaStreams) -> None:
    client.start()
    client.wait(timedelta(seconds=60))


def refused(client: KafkaStreams) -> StreamsException:
    """What ends a client before it has processed anything: its tasks find it, and its handler is asked."""
    told: list[BaseException] = []

    def handler(error: BaseException) -> StreamThreadExceptionResponse:
        told.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client.set_uncaught_exception_handler(handler)
    with pytest.raises(StreamsException) as raised:
        start_and_wait(client)
    client.close(timedelta(seconds=30))
    assert told == [raised.value]
    return raised.value


def counted(client: KafkaStreams, expected: dict[str, int]) -> None:
    """The store has these counts: what is not committed is in no store."""
    store = key_value_store(client, "n")
    wait_until(lambda: content(store) == expected, "everything is counted", 60)


@pytest.mark.timeout(300)  # Spark starts a query five times
def test_a_pattern_goes_on_without_a_topic_that_is_deleted(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """While a client runs and while none does; what is there of its name later is read from its beginning.

    Kafka Streams 4.3.1 goes on as well, after the minute in which its consumer tries to commit offsets of the
    deleted topic; and once the last topic is gone, its handler is asked, too.
    """
    one, two = world.topic("logs-1"), world.topic("logs-2")
    number = one.rpartition("-")[2]
    out = world.topic("out", 1)
    builder = StreamsBuilder()
    logs = builder.stream(re.compile(f"logs-[0-9]+-{number}"), STRINGS)
    counts = logs.group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    topology = builder.build()
    told: list[BaseException] = []

    def handler(error: BaseException) -> StreamThreadExceptionResponse:
        told.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client = world.created(topology)
    client.set_uncaught_exception_handler(handler)
    client.start()
    client.wait_until_running(timedelta(seconds=90))
    write(world, one)
    write(world, two, 2)
    counted(client, each_key(3))

    # 1. It is deleted while the client runs, and created again while it runs.
    with caplog.at_level(logging.WARNING, "millstream"):
        world.kafka.delete_topic(two)
        told_by_thread = f"topic '{two}', which a pattern matched, was deleted, and pipeline p0 continues"
        wait_until(lambda: told_by_thread in caplog.text, "it is told", 60)
    write(world, one)
    counted(client, each_key(4))
    world.kafka.create_topic(two, 2)
    write(world, two)
    counted(client, each_key(5))

    # 2. It is another one when the next client starts.
    client.close(timedelta(seconds=30))
    recreate(world, two)
    write(world, two, 3)
    client = world.created(topology)
    client.set_uncaught_exception_handler(handler)
    client.start()
    client.wait_until_running(timedelta(seconds=90))
    counted(client, each_key(8))
    assert told == []

    # 3. The last one is gone.
    world.kafka.delete_topic(two)
    wait_until(lambda: caplog.text.count(f"topic '{two}', which a pattern matched") == 2, "dropped", 60)
    world.kafka.delete_topic(one)
    wait_until(lambda: told, "the handler is asked", 60)
    assert isinstance(told[0], MissingSourceTopicException)
    assert told[0].deleted == (one,)
    assert "no topic matches the pattern" in str(told[0])


@pytest.mark.timeout(300)  # Spark starts a query five times
def test_what_was_deleted_while_no_client_ran_is_told(world: World) -> None:
    """A source, a changelog: named, with the ways out, and nothing is skipped or lost."""
    source, out, app = world.topic("in"), world.topic("out"), world.name("app")
    changelog = f"{app}-n-changelog"
    topology = counting(source, out)
    client = world.client(topology)
    write(world, source, 2)
    counted(client, each_key(2))
    client.close(timedelta(seconds=30))

    # The source is another topic of the same name.
    recreate(world, source)
    write(world, source, 3)
    error = refused(world.created(topology))
    assert isinstance(error, MissingSourceTopicException)
    assert error.recreated == (source,)
    assert f"source topic '{source}' was deleted and created again" in str(error)
    assert "source.lost.policy=from-beginning" in str(error)
    client = world.client(topology, source_lost_policy="from-beginning")
    counted(client, each_key(5))
    committed = KafkaTopics(client._config)
    both = [TopicPartition(source, 0), TopicPartition(source, 1)]
    wait_until(lambda: sum(committed.committed(app, both).values()) == 90, "the group has committed", 30)
    committed.close()
    client.close(timedelta(seconds=30))

    # The changelog is gone: by hand, or by Kafka's own reset tool. It is made anew, as Kafka Streams does it,
    # but what is committed knows the id that it had (Kafka Streams goes on without what was counted).
    world.kafka.delete_topic(changelog)
    wait_until(lambda: changelog not in world.kafka.topics(), "the changelog is gone")
    for _ in range(2):
        error = refused(world.created(topology))
        assert isinstance(error, LostTopicException)
        assert error.recreated == (changelog,)
        assert "Reset the application" in str(error)

    # A reset is the way out: then it is another topic for good.
    world.created(topology).reset()
    client = world.client(topology)
    counted(client, each_key(3))
