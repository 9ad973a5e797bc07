"""What tasks write, on a real broker, and what comes of a record that is refused."""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from engine_world import EngineWorld
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import Consumed, Produced, Serdes, StreamsBuilder
from millstream.broker import EmbeddedKafka
from millstream.errors import PipelineException, TaskMigratedException
from millstream.ports import RunningPipeline
from millstream.spark.compile.record_handlers import RecordHandlers

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
LARGE = random.Random(1).randbytes(50_000)
"""More than a topic of these tests takes, also where the producer compresses it."""


World = Callable[..., EngineWorld]


@pytest.fixture
def worlds(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    made: list[EngineWorld] = []

    def make(handlers: RecordHandlers, **more: Any) -> EngineWorld:
        world = EngineWorld(kafka, tmp_path, spark, handlers=handlers, **more)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def keys(messages: list[Message]) -> set[bytes | None]:
    return {message.key() for message in messages}


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize("exactly_once", [False, True], ids=["at least once", "exactly once"])
def test_records_that_kafka_refuses_are_dropped_and_no_others(
    worlds: World, exactly_once: bool, compression: str
) -> None:
    """One too large for the broker, one without a key for a compacted topic, two for partitions that there
    are not. Also not those that were in one request, or in one transaction, with them. Each has a dead letter
    of what it came of.
    """
    queue = f"dlq-{exactly_once}-{compression}"
    handlers = RecordHandlers(production=True, dead_letter_topic=queue)
    world = worlds(
        handlers,
        transaction_timeout_ms=10_000 if exactly_once else None,
        producer={"compression.type": compression, "max.block.ms": "3000"},
    )
    source, three = world.topic("in"), world.topic("three", 3)
    small, compacted = f"small-{world.number}", f"compacted-{world.number}"
    world.kafka.create_topic(queue, 1)
    world.kafka.create_topic(small, 1, {"max.message.bytes": "20000"})
    world.kafka.create_topic(compacted, 1, {"cleanup.policy": "compact"})
    builder, written = StreamsBuilder(), Produced.with_(Serdes.string(), Serdes.bytes())
    stream = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.bytes()))
    stream.to(small, written)
    stream.select_key(lambda key, value: F.when(key != "8", key)).to(compacted, written)
    stream.to(
        three,
        written.with_stream_partitioner(
            lambda key, value: F.when(key == "3", 9).when(key == "4", -1).otherwise(0)
        ),
    )
    [compiled] = world.compiled(builder.build())
    for number in range(20):
        world.produce(source, LARGE if number == 7 else b"good", key=str(number))
    running = world.start(compiled)
    everybody = {b"%d" % number for number in range(20)}
    assert keys(world.read(small, 19)) == everybody - {b"7"}
    assert keys(world.read(compacted, 19)) == everybody - {b"8"}
    assert keys(world.read(three, 18)) == everybody - {b"3", b"4"}
    letters = {letter.key(): letter for letter in world.read(queue, 4)}
    assert set(letters) == {b"7", b"8", b"3", b"4"}
    said = {name: (value or b"").decode() for name, value in letters[b"8"].headers() or []}
    assert letters[b"8"].value() == b"good"
    assert said["__streams.errors.exception"] == "org.apache.kafka.common.InvalidRecordException"
    assert f"topic '{compacted}' did not take a record (key: null" in said["__streams.errors.message"]
    assert [said[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")] == [
        source,
        "0",
        "8",
    ]
    wait_until(lambda: running.metadata().dropped == 4, "they are counted")


def shortened(world: EngineWorld) -> tuple[str, str, RunningPipeline]:
    """A pipeline into a topic that takes 20,000 bytes; returns source, target and the pipeline."""
    source, small = world.topic("in"), f"small-{world.number}"
    world.kafka.create_topic(small, 1, {"max.message.bytes": "20000"})
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).to(small, Produced.with_(Serdes.string(), Serdes.string()))
    [compiled] = world.compiled(builder.build())
    return source, small, world.start(compiled)


def test_a_pipeline_drops_what_kafka_refuses_counts_and_tells_it(
    worlds: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With production.exception.handler=continue: in the metric, the log with topic and reason, the queue."""
    world = worlds(RecordHandlers(production=True, dead_letter_topic="dlq-of-sink"))
    if "dlq-of-sink" not in world.kafka.topics():
        world.kafka.create_topic("dlq-of-sink", 1)
    with caplog.at_level(logging.WARNING):
        source, small, running = shortened(world)
        world.produce(source, "a", "x" * 50000, "b")
        assert [m.value() for m in world.read(small, 2)] == [b"a", b"b"]
        [letter] = world.read("dlq-of-sink", 1)
        assert (letter.key(), letter.value()) == (b"k", b"x" * 50000)
        wait_until(lambda: running.metadata().dropped == 1, "it is counted")
        running.stop()
        assert world.wait_for_end() is None
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert f"production in topic '{small}' (RecordTooLargeException): 1" in told
    assert f"topic '{small}' did not take a record (key: 1 bytes, value: 50000 bytes" in told


def test_a_pipeline_that_may_drop_nothing_ends_with_the_sentence(worlds: World) -> None:
    """Which names topic, sizes, reason and fix."""
    world = worlds(RecordHandlers())
    source, small, _ = shortened(world)
    world.produce(source, "x" * 50000)
    error = world.wait_for_end()
    assert isinstance(error, PipelineException)
    assert not isinstance(error, TaskMigratedException)
    assert re.fullmatch(
        rf"pipeline p0: its query failed: topic '{small}' did not take a record \(key: 1 bytes, "
        r"value: 50000 bytes, 0 headers; about \d+ bytes in all\): RecordTooLargeException: "
        r".*; raise the topic's .*",
        str(error),
    ), str(error)
