"""Reading one's own writes through real Kafka and Spark: IQv2 with a bound, and SQL after it."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F
from world import World

from millstream import (
    Consumed,
    JoinWindows,
    KeyQuery,
    Materialized,
    Position,
    PositionBound,
    Repartitioned,
    Serdes,
    StateQueryRequest,
    StreamsBuilder,
    TopicPartition,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SOON = timedelta(seconds=60)


def write(world: World, topic: str, key: str, value: str) -> dict[TopicPartition, int]:
    """One record, and where it is."""
    settings = {"bootstrap.servers": world.kafka.bootstrap_servers, "linger.ms": 0}
    producer = Producer({**settings, "partitioner": "murmur2_random"})  # as the application writes
    written: dict[TopicPartition, int] = {}

    def delivered(error: object, message: object) -> None:
        assert error is None, error
        at = TopicPartition(message.topic(), message.partition())  # type: ignore[attr-defined]
        written[at] = message.offset()  # type: ignore[attr-defined]

    producer.produce(topic, key=key, value=value, on_delivery=delivered)
    assert producer.flush(30) == 0
    return written


def test_what_was_written_is_read(world: World) -> None:
    """Each record, at once, in a count behind a repartition topic and in a table of the topic itself;
    although tasks commit every ten minutes."""
    lines, users = world.topic("lines"), world.topic("users")
    text = Consumed.with_(Serdes.string(), Serdes.string())
    builder = StreamsBuilder()
    builder.stream(lines, text).repartition().group_by_key().count(Materialized.as_("counts"))
    builder.table(users, text, Materialized.as_("users"))
    topology, application = builder.build(), world.name("own")
    client = world.client(topology, application, commit_interval_ms=600_000)
    for number in range(1, 6):
        for key in ("a", "b"):
            bound = client.position_bound_after("counts", write(world, lines, key, "x"), SOON)
            request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key(key))
            found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
            assert found is not None
            assert found.result == number
    assert client.sql("select key, value from counts order by key").to_pylist() == [
        {"key": "a", "value": 5},
        {"key": "b", "value": 5},
    ]

    written = write(world, users, "eva", "Eva")
    bound = client.position_bound_after("users", written)
    assert bound == PositionBound.at(Position(written))
    request = StateQueryRequest.in_store("users").with_query(KeyQuery.with_key("eva"))
    found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
    assert found is not None
    assert found.result == "Eva"
    assert client.position_bound_now("users") == bound

    assert client.close(SOON)
    client = world.client(topology, application, commit_interval_ms=600_000)
    # Nothing comes to the partitions of the other keys.
    bound = client.position_bound_after("counts", write(world, lines, "a", "x"), SOON)
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
    found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
    assert found is not None
    assert found.result == 6


def test_a_pipeline_that_writes_to_itself_reads_all_of_it_once(world: World) -> None:
    """What is behind the topic is joined with what is in front of it, so one query has both; a restart."""
    lines, others, out = (world.topic(name) for name in ("lines", "others", "out"))
    text = Consumed.with_(Serdes.string(), Serdes.string())
    builder = StreamsBuilder()
    left, right = builder.stream(lines, text), builder.stream(others, text)
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(days=1))
    left.join(right, lambda line, other: F.concat(line, other), near).to(out)
    again = left.select_key(lambda line: line).repartition(
        Repartitioned.with_(Serdes.string(), Serdes.string())
    )
    again.join(right, lambda line, other: F.concat(line, other), near).to(out)
    again.group_by_key().count(Materialized.as_("counts"))
    topology = builder.build()
    assert len(topology.pipelines) == 1
    application = world.name("itself")
    write(world, others, "a", "!")
    for run in (0, 1):
        with closing(world.client(topology, application, processing_guarantee="exactly_once_v2")) as client:
            for number in (1, 2):
                bound = client.position_bound_after("counts", write(world, lines, "k", "a"), SOON)
                request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
                found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
                assert found is not None
                assert found.result == 2 * run + number
    assert [(record.key, record.value) for record in world.consume(out, 4)] == [(b"a", b"a!")] * 4
