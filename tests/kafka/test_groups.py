"""`ports.Groups` on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as NativePartition
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.kafka.groups import KafkaGroups
from millstream.model import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def groups(kafka: EmbeddedKafka) -> Iterator[KafkaGroups]:
    groups = KafkaGroups(
        StreamsConfig({"application.id": "groups", "bootstrap.servers": kafka.bootstrap_servers})
    )
    yield groups
    groups.close()
    groups.close()


def test_a_group_is_seen_emptied_and_told_where_to_begin(
    kafka: EmbeddedKafka, groups: KafkaGroups, group: str
) -> None:
    """One that is not there has no members, and can be told all the same."""
    topic = f"t-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(topic, 2)
    assert groups.members(group) == {}
    assert group not in groups.names()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group, "client.id": "c\x1b[31m"}
    consumer = Consumer({**settings, "session.timeout.ms": 45_000})
    consumer.subscribe([topic])

    def joined() -> bool:
        consumer.poll(0.05)
        return bool(consumer.assignment())

    wait_until(joined, "it has joined", 60)
    ((member, called),) = groups.members(group).items()
    assert called.startswith(r"'c\x1b[31m' at ")  # who joins a group does not command a terminal
    with pytest.raises(StreamsException, match=f"could not set the offsets of group '{group}'"):
        groups.commit(group, {TopicPartition(topic, 0): 7})
    groups.remove_members(group, [member, "nobody"])
    assert groups.members(group) == {}
    groups.commit(group, {TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 0})
    assert group in groups.names()
    other = Consumer(settings)
    asked = [NativePartition(topic, number) for number in range(2)]
    assert [each.offset for each in other.committed(asked, timeout=30)] == [7, 0]
    consumer.close()
    other.close()


def test_a_cluster_that_is_not_there_is_named(group: str) -> None:
    """The error is raised within the time that a request may take."""
    away = KafkaGroups(
        StreamsConfig(
            {"application.id": "groups", "bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": 300}
        )
    )
    with pytest.raises(StreamsException, match=r"bootstrap.servers is '127.0.0.1:1'"):
        away.members(group)
    away.close()
