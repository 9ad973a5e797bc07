"""Where a source begins that has no checkpoint yet, on a real broker."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from waiting import wait_until
from world import World

from millstream import AutoOffsetReset, Consumed, KafkaStreams, Serdes, StreamsBuilder, Topology
from millstream.topology.nodes import OffsetResetPolicy

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

HOUR_MS = 3_600_000


def copying(topic: str, out: str, policy: OffsetResetPolicy) -> Topology:
    builder = StreamsBuilder()
    consumed = Consumed.with_(Serdes.string(), Serdes.string(), policy)
    builder.stream(topic, consumed).to(out)
    return builder.build()


@pytest.mark.timeout(240)
def test_a_source_begins_so_far_back(world: World) -> None:
    """It begins with the first record that is not older. A partition without one begins with its next record.
    It begins with the first record that is not older. A partition without one begins with its next record."""
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
    wait_until(lambda: client.state is KafkaStreams.State.ERROR, "it has ended", 90)
    (failure,) = client.failures
    assert "has AutoOffsetReset.none(), and neither a checkpoint nor a reset" in str(failure.exception)
