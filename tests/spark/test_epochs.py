"""Epochs: a restart under another claim, what changelog records carry, and that a fenced query stops."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from engine_world import EngineWorld, stamp
from pyspark.sql import SparkSession

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, Topology
from millstream.broker import EmbeddedKafka
from millstream.errors import TaskMigratedException
from millstream.topology.nodes import Repartition

pytestmark = pytest.mark.spark

TIME = 1_700_000_000_123
STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark)
    yield world
    world.close()


def counting(source: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).group_by_key().count(Materialized.as_("counts"))
    return builder.build()


def epochs(world: EngineWorld, count: int) -> list[tuple[int, int]]:
    """Value and epoch of the first records of the changelog of `counts`."""
    found = []
    for message in world.read(f"{world.application_id}-counts-changelog", count):
        header = stamp(message)
        assert header is not None
        assert len(header) == 8
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, TIME)
        found.append((int.from_bytes(message.value() or b"", "big"), int.from_bytes(header, "big")))
    return found


def write(world: EngineWorld, topic: str, *values: str) -> None:
    for value in values:
        world.producer.produce(topic, key="k", value=value, partition=0, timestamp=TIME)
    assert world.producer.flush(20) == 0


def test_a_restart_from_the_same_checkpoint_goes_on_with_the_new_epoch(world: EngineWorld) -> None:
    """Compiled once; the count goes on. The first output after the restart takes well under a second; the
    bound here leaves room for a busy machine."""
    source = world.topic("in")
    [compiled] = world.compiled(counting(source))
    claim = world.claim(epoch=3, directory="checkpoint")
    first = world.start(compiled, claim)
    write(world, source, "a")
    assert epochs(world, 1) == [(1, 3)]
    world.wait_until_committed(claim, source, 1)
    first.stop()
    assert world.wait_for_end() is None
    write(world, source, "b")
    begun = time.monotonic()
    second = world.start(compiled, world.claim(epoch=7, directory="checkpoint"))
    assert epochs(world, 2) == [(1, 3), (2, 7)]
    assert time.monotonic() - begun < 10
    assert second.metadata().running
    assert not first.metadata().running


def test_a_query_whose_checkpoint_was_claimed_ends_as_migrated_and_writes_nothing_more(
    world: EngineWorld,
) -> None:
    """The claim: its directory is renamed and a file stands in its place. The new owner counts on exactly."""
    source = world.topic("in")
    [compiled] = world.compiled(counting(source))
    claim = world.claim(epoch=1)
    running = world.start(compiled, claim)
    write(world, source, "a")
    assert epochs(world, 1) == [(1, 1)]
    world.wait_until_committed(claim, source, 1)
    os.rename(claim.path, f"{claim.path}-taken")
    Path(claim.path).touch()
    write(world, source, "b")
    error = world.wait_for_end()
    assert isinstance(error, TaskMigratedException)
    assert "pipeline p0: another client has taken over its checkpoint" in str(error)
    assert "at epoch 1" in str(error)
    assert error.__cause__ is not None
    assert not running.metadata().running
    # Another client goes on; all that the changelog has after it is the new owner's.
    world.start(compiled, world.claim(epoch=2, directory="p0.1-taken"))
    assert epochs(world, 2) == [(1, 1), (2, 2)]
    # To start under the claim that was lost is the same thing.
    with pytest.raises(TaskMigratedException):
        world.engine.start(compiled, claim, world.ends.put)


def test_records_of_other_topics_have_no_epoch(world: EngineWorld) -> None:
    """All have the record's own timestamp."""
    source, out = world.topic("in"), world.topic("out")
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS)
    stream.to(out)
    stream.select_key(lambda key, value: value).repartition().to(world.topic("again"))
    topology = builder.build()
    for compiled in world.compiled(topology):
        world.start(compiled, world.claim(compiled.pipeline.name, 9))
    write(world, source, "a")
    [message] = world.read(out, 1)
    assert (message.headers(), message.timestamp()[1]) == (None, TIME)
    [node] = [node for node in topology.nodes if isinstance(node, Repartition)]
    [message] = world.read(f"{world.application_id}-{node.topic}", 1)
    assert (message.headers(), message.timestamp()[1]) == (None, TIME)


def test_a_header_in_a_repartition_topic_is_data(world: EngineWorld) -> None:
    """Whatever its name: it travels on, and the record's own timestamp is its time."""
    source = world.topic("in")
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS).repartition()
    stream.to(world.topic("out"))
    stream.repartition().group_by_key().count(Materialized.as_("counts"))
    topology = builder.build()
    compiled = world.compiled(topology)
    first = next(node for node in topology.nodes if isinstance(node, Repartition))
    for each in compiled:
        if first in each.pipeline.inputs:
            world.start(each, world.claim(each.pipeline.name, 4))
    headers = [("millstream.epoch", b"\2" * 8)]
    topic = f"{world.application_id}-{first.topic}"
    world.producer.produce(topic, key="k", value="v", headers=headers, timestamp=TIME)
    assert world.producer.flush(20) == 0
    second = [node for node in topology.nodes if isinstance(node, Repartition)][1]
    [message] = world.read(f"{world.application_id}-{second.topic}", 1)
    assert (message.headers(), message.timestamp()[1]) == (headers, TIME)
