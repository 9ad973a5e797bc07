"""Reading one's own writes through real Kafka and Spark: IQv2 with a bound, and SQL after it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import Producer
from world import World

from millstream import (
    Consumed,
    KeyQuery,
    Materialized,
    Position,
    PositionBound,
    Serdes,
    StateQueryRequest,
    StreamsBuilder,
    TopicPartition,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SOON = timedelta(seconds=60)


def test_what_was_written_is_read(world: World) -> None:
    """Each record, at once, in a count behind a repartition topic and in a table of the topic itself."""
    lines, users = world.topic("lines"), world.topic("users")
    text = Consumed.with_(Serdes.string(), Serdes.string())
    builder = StreamsBuilder()
    builder.stream(lines, text).repartition().group_by_key().count(Materialized.as_("counts"))
    builder.table(users, text, Materialized.as_("users"))
    client = world.client(builder.build())
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers, "linger.ms": 0})

    def write(topic: str, key: str, value: str) -> dict[TopicPartition, int]:
        written: dict[TopicPartition, int] = {}

        def delivered(error: object, message: object) -> None:
            assert error is None, error
            at = TopicPartition(message.topic(), message.partition())  # type: ignore[attr-defined]
            written[at] = message.offset()  # type: ignore[attr-defined]

        producer.produce(topic, key=key, value=value, on_delivery=delivered)
        assert producer.flush(30) == 0
        return written

    for number in range(1, 6):
        for key in ("a", "b"):
            bound = client.position_bound_after("counts", write(lines, key, "x"), SOON)
            request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key(key))
            found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
            assert found is not None
            assert found.result == number
    assert client.sql("select key, value from counts order by key").to_pylist() == [
        {"key": "a", "value": 5},
        {"key": "b", "value": 5},
    ]

    written = write(users, "eva", "Eva")
    bound = client.position_bound_after("users", written)
    assert bound == PositionBound.at(Position(written))
    request = StateQueryRequest.in_store("users").with_query(KeyQuery.with_key("eva"))
    found = client.query(request.with_position_bound(bound), wait=SOON).only_partition_result
    assert found is not None
    assert found.result == "Eva"
    assert client.position_bound_now("users") == bound
