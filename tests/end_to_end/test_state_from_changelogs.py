"""A pipeline that begins on a new checkpoint with what its changelogs have, on real Kafka and Spark.

Nothing in a client does this yet: the test gives the engine what it would have to have.
"""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.checkpoints.offset_log import positions_of
from millstream.checkpoints.starts import STARTS, Starts, TopicStart
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition
from millstream.spark.compile.compiler import CompileContext
from millstream.spark.compile.restore import from_changelogs
from millstream.spark.compile.source import kafka_options
from millstream.spark.engine import SparkEngine

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
BEGIN = time.time_ns() // 1_000_000 - 600_000
"""Ten minutes ago: what is old the broker deletes from changelogs of windows, by its timestamp."""


def program(source: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long())).group_by_key()
    grouped.count(Materialized.as_("n"))
    grouped.aggregate(lambda key, value: F.avg(value), Materialized.as_("mean"))
    grouped.aggregate(lambda key, value: F.max_by(value, value % 7), Materialized.as_("by"))
    minutes = TimeWindows.of_size_and_grace(timedelta(seconds=4), DAY)
    grouped.windowed_by(minutes).aggregate(lambda key, value: F.var_pop(value), Materialized.as_("windows"))
    sliding = SlidingWindows.of_time_difference_and_grace(3 * SECOND, DAY)
    grouped.windowed_by(sliding).count(Materialized.as_("sliding"))
    sessions = SessionWindows.of_inactivity_gap_and_grace(2 * SECOND, DAY)
    grouped.windowed_by(sessions).aggregate(
        lambda key, value: F.array_join(F.collect_list(value.cast("string")), " "),
        Materialized.as_("sessions"),
    )
    return builder.build()


STORES = ("n", "mean", "by", "windows", "sliding", "sessions")


def records(numbers: Iterable[int]) -> list[tuple[str, int, int]]:
    """Of some keys, with gaps between them; some are late."""
    return [
        (f"k{number % 5}", number * number % 101, BEGIN + number * 450 - (number % 4 == 0) * 3_000)
        for number in numbers
    ]


def write(world: World, topic: str, batch: list[tuple[str, int, int]]) -> None:
    for key, value, at in batch:
        world.produce(topic, [(key.encode(), value.to_bytes(8, "big", signed=True))], timestamp=at)


def committed(world: World, app: str, count: int) -> dict[TopicPartition, int]:
    files = LocalCheckpointFiles(world.directory / "state" / app / "checkpoints")

    def positions() -> dict[TopicPartition, int]:
        return dict(positions_of(files, "p0") or {})

    wait_until(lambda: sum(positions().values()) == count, f"{count} are committed", 120)
    return positions()


def everything(world: World, client: KafkaStreams, app: str, store: str) -> dict[tuple[int, bytes], Any]:
    """What a changelog has of each key: the value, the timestamp, and the headers but for the epoch."""
    topics = KafkaTopics(client._config)
    topic = f"{app}-{store}-changelog"
    ends = topics.end_offsets([TopicPartition(topic, number) for number in range(2)])
    topics.close()
    newest = {
        (record.partition, record.key or b""): (record.value, record.timestamp, record.headers[:-1])
        for record in world.consume(topic, sum(ends.values()))
    }
    # Of a session that was merged within one micro-batch nobody was told.
    return {key: kept for key, kept in newest.items() if kept[0] is not None}


def test_a_new_checkpoint_goes_on_from_changelogs_and_offsets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without windows and with each kind of them: what comes out is, record for record, what comes out of a
    client that kept its checkpoint; and later it goes on as any other.
    """
    source, app, other = world.topic("in"), world.name("app"), world.name("kept")
    topology = program(source)
    first, second, third = records(range(60)), records(range(60, 90)), records(range(90, 100))
    for name in (app, other):
        client = world.client(topology, name)
        if name == app:
            write(world, source, first)
        offsets = committed(world, name, len(first))
        client.close(timedelta(seconds=30))

    # Spark's state and offsets are gone; where to begin is told as a reset tells it.
    checkpoints = world.directory / "state" / app / "checkpoints"
    shutil.rmtree(checkpoints)
    checkpoints.mkdir()
    topics = KafkaTopics(client._config)
    begin = {at.partition: offset for at, offset in offsets.items()}
    start = TopicStart(topics.describe([source])[source].topic_id, begin)
    topics.close()
    (checkpoints / STARTS).write_bytes(Starts("2026-01-01T00:00:00Z", topics={source: start}).to_bytes())
    plain = SparkEngine._context

    def restoring(engine: SparkEngine, *args: Any, **more: Any) -> CompileContext:
        options = kafka_options({"bootstrap.servers": world.kafka.bootstrap_servers})
        context = plain(engine, *args, **more)
        return replace(context, restored=from_changelogs(engine.spark, options))

    write(world, source, second)
    with monkeypatch.context() as patched:
        patched.setattr(SparkEngine, "_context", restoring)
        client = world.client(topology, app)
        committed(world, app, len(first + second))
        client.close(timedelta(seconds=30))
    write(world, source, third)
    every = first + second + third
    client = world.client(topology, other)
    committed(world, other, len(every))
    client.close(timedelta(seconds=30))
    client = world.client(topology, app)
    committed(world, app, len(every))
    values = defaultdict(list)
    for key, value, _ in every:
        values[key].append(value)
    counts, means = key_value_store(client, "n"), key_value_store(client, "mean")
    numbers = {key: len(each) for key, each in values.items()}
    averages = {key: pytest.approx(sum(each) / len(each)) for key, each in values.items()}
    wait_until(lambda: content(counts) == numbers, f"the counts are {numbers}", 60)
    wait_until(lambda: content(means) == averages, f"the averages are {averages}", 60)
    client.close(timedelta(seconds=30))
    for store in STORES:
        mine, theirs = (everything(world, client, name, store) for name in (app, other))
        assert len(mine) >= 5
        assert mine == theirs, store
