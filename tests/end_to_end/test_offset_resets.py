"""Where a source begins that has no checkpoint yet, or no valid offset, on a real broker."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import timedelta

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from waiting import wait_until
from world import World

from millstream import AutoOffsetReset, Consumed, KafkaStreams, Serdes, StreamsBuilder, Topology
from millstream.topology.nodes import OffsetReset, OffsetResetPolicy

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HOUR_MS = 3_600_000


def copying(topic: str, out: str, policy: OffsetResetPolicy) -> Topology:
    builder = StreamsBuilder()
    consumed = Consumed.with_(Serdes.string(), Serdes.string(), policy)
    builder.stream(topic, consumed).to(out)
    return builder.build()


@pytest.mark.timeout(240)
def test_a_source_begins_so_far_back(world: World) -> None:
    """With the first record that is not older. A partition without one begins with its next record."""
    topic, out = world.topic("in"), world.topic("out", 1)
    now_ms = time.time_ns() // 1_000_000
    for hours, value in ((5, b"old"), (1, b"new"), (3, b"old, behind a new one")):
        world.produce(topic, [(b"k", value)], partition=0, timestamp=now_ms - hours * HOUR_MS)
    world.produce(topic, [(b"k", b"old")], partition=1, timestamp=now_ms - 4 * HOUR_MS)
    world.client(copying(topic, out, AutoOffsetReset.by_duration(timedelta(hours=2))))
    assert [record.value for record in world.consume(out, 2)] == [b"new", b"old, behind a new one"]
    world.produce(topic, [(b"k", b"next")], partition=1, timestamp=now_ms)
    assert [record.value for record in world.consume(out, 3)][2:] == [b"next"]


@pytest.mark.timeout(240)
def test_a_source_that_is_to_begin_nowhere_ends_the_client(world: World) -> None:
    """The message says what to do."""
    topic, out = world.topic("in"), world.topic("out", 1)
    client = world.created(copying(topic, out, AutoOffsetReset.none()))
    client.start()
    nowhere = "has no committed offset of it, and auto.offset.reset is none; set it to earliest or latest"
    assert nowhere in ended(client)


def ended(client: KafkaStreams) -> str:
    """What it says about the failure that ends it."""
    wait_until(lambda: client.state is KafkaStreams.State.ERROR, "it has ended", 90)
    (failure,) = client.failures
    return str(failure.exception)


def test_each_source_of_a_task_begins_where_its_policy_says(world: World) -> None:
    """The configured one is for those without their own."""
    topics = {name: world.topic(name, 1) for name in ("configured", "earliest", "latest", "since")}
    out = world.topic("out", 1)
    for topic in topics.values():
        world.produce(topic, [(b"k", b"old " + topic.encode())])
    policies: dict[str, OffsetResetPolicy] = {
        "earliest": AutoOffsetReset.earliest(),
        "latest": AutoOffsetReset.latest(),
        "since": AutoOffsetReset.by_duration(timedelta(hours=1)),
    }
    builder = StreamsBuilder()
    text = Serdes.string()
    merged = builder.stream(topics["configured"], Consumed.with_(text, text))
    for name, policy in policies.items():
        merged = merged.merge(builder.stream(topics[name], Consumed.with_(text, text, policy)))
    merged.to(out)
    world.client(builder.build(), auto_offset_reset="latest")
    found = {record.value for record in world.consume(out, 2)}
    assert found == {f"old {topics[name]}".encode() for name in ("earliest", "since")}
    for topic in topics.values():
        world.produce(topic, [(b"k", topic.encode())])
    found = {record.value for record in world.consume(out, 6)[2:]}
    assert found == {topic.encode() for topic in topics.values()}


@pytest.mark.parametrize("where", ["before the first record", "behind the last record"])
@pytest.mark.parametrize(
    "policy", [AutoOffsetReset.earliest(), AutoOffsetReset.latest(), AutoOffsetReset.none()]
)
def test_a_committed_offset_out_of_range_is_reset(world: World, policy: OffsetReset, where: str) -> None:
    """As Kafka Streams resets it, by the policy of the source."""
    topic, out, application = world.topic("in", 1), world.topic("out", 1), world.name("app")
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers})
    world.produce(topic, [(b"k", b"%d" % number) for number in range(6)])
    behind = where.startswith("behind")
    committed = TopicPartition(topic, 0, 100 if behind else 2)
    for committing in admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(application, [committed])]
    ).values():
        committing.result(30)
    for deleting in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        deleting.result(30)
    client = world.created(copying(topic, out, policy), application)
    client.start()
    if policy is AutoOffsetReset.none():
        assert "auto.offset.reset is none; set it to earliest or latest" in ended(client)
        return
    left = [b"4", b"5"] if policy is AutoOffsetReset.earliest() else []

    def is_read() -> bool:
        world.produce(topic, [(b"k", b"next")])  # until it is there: one may come before the reset
        with suppress(AssertionError):
            world.consume(out, len(left) + 1, 2)
            return True
        return False

    wait_until(is_read, "the next record is read", 60)
    assert [record.value for record in world.consume(out, len(left) + 1)][: len(left) + 1] == [*left, b"next"]
