"""Timestamp extractors as they run: the time of each record, and what becomes of one that has none."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from driving import pipe, records, stamped
from engine_world import EngineWorld
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import (
    Consumed,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    Materialized,
    Serdes,
    StreamsBuilder,
    StreamsException,
    TimeWindows,
    Topology,
    TopologyException,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.broker import EmbeddedKafka
from millstream.dsl.timestamps import Extractor
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def copying(extractor: Extractor | None, consumed: Consumed = STRINGS) -> Topology:
    """From "in" to "out", less what has no x."""
    builder = StreamsBuilder()
    stream = builder.stream("in", consumed.with_timestamp_extractor(extractor))
    stream.filter(lambda value: value.contains("x")).to("out")
    return builder.build()


def times(driver: TopologyTestDriver) -> list[tuple[Any, Any]]:
    return [(record.value, record.timestamp) for record in records(driver, "out")]


def test_a_functions_time_takes_the_place_of_kafkas_everywhere() -> None:
    """In outputs, in stores, and in stream time, which windows go by. A timestamp, or milliseconds."""
    builder = StreamsBuilder()
    consumed = Consumed.with_(Serdes.string(), Serdes.json("at bigint")).with_timestamp_extractor(
        lambda value: value.at
    )
    stream = builder.stream("in", consumed)
    stream.map_values(lambda key, value, record: F.unix_millis(record.timestamp)).to("out")
    stream.group_by_key().count(Materialized.as_("counts"))
    builder.stream(
        "other",
        STRINGS.with_timestamp_extractor(
            lambda key, value, record: F.timestamp_millis(F.unix_millis(record.timestamp) + value.cast("int"))
        ),
    ).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", {"at": 7}, 50), ("a", {"at": 3}, 60), value=Serdes.json("at bigint"))
        assert [(r.value, r.timestamp) for r in records(driver, "out", "string", "long")] == [(7, 7), (3, 3)]
        assert stamped(driver, "counts") == {"a": (2, 7)}
        pipe(driver, "other", ("a", "5", 50))
        assert times(driver) == [("5", 55)]


def test_by_default_a_time_before_1970_ends_the_pipeline() -> None:
    """The message says which record it is."""
    for extractor in (None, FailOnInvalidTimestamp()):
        with TopologyTestDriver(copying(extractor)) as driver:
            pipe(driver, "in", ("a", "x", 0))
            assert times(driver) == [("x", 0)]
            with pytest.raises(
                StreamsException,
                match="KSTREAM-SOURCE-0000000000: in-0 offset 2 has the timestamp -1, which is before 1970; ",
            ):
                pipe(driver, "in", ("a", "x", 5), ("a", "x", -1))


def test_a_record_without_a_time_is_skipped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """By LogAndSkipOnInvalidTimestamp, by a function that returns a negative number, as configured. No
    threshold of failed records knows of it, and no dead letter queue."""
    skipping = LogAndSkipOnInvalidTimestamp()
    config = {
        "errors.continue.max.ratio": 0.0,
        "deserialization.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "letters",
    }
    for topology, more in (
        (copying(skipping), {}),
        (copying(lambda key, value, record: F.unix_millis(record.timestamp)), {}),
        (copying(None), {"default.timestamp.extractor": "LogAndSkipOnInvalidTimestamp"}),
    ):
        caplog.clear()
        with TopologyTestDriver(topology, {**config, **more}) as driver, caplog.at_level(logging.WARNING):
            pipe(driver, "in", *[("a", "x1", 5), ("a", "x2", -1), ("a", "y", -2), ("a", "x3", 4)] * 50)
            assert times(driver) == [("x1", 5), ("x3", 4)] * 50
            assert driver.dropped_records == 100
            assert "letters" not in driver.produced_topic_names
            driver._pipelines[0].drops.flush()
        said = [record.getMessage() for record in caplog.records]
        assert said == [
            "pipeline p0: in 1 batch of 200 records some were dropped for a negative timestamp: "
            "100 in KSTREAM-SOURCE-0000000000"
        ]


def test_a_record_that_cannot_be_read_is_not_asked_for_its_time() -> None:
    """As in Kafka Streams: it is dropped before."""
    numbers = Consumed.with_(Serdes.string(), Serdes.long())
    builder = StreamsBuilder()
    builder.stream("in", numbers.with_timestamp_extractor(lambda value: value)).to("out")
    builder.stream("all", numbers).to("out")
    config = {
        "deserialization.exception.handler": "continue",
        "errors.dead.letter.queue.topic.name": "letters",
    }
    with TopologyTestDriver(builder.build(), config) as driver:
        eight = (9).to_bytes(8, "big")
        pipe(driver, "in", ("a", b"short", 1), ("a", eight, 1), value=Serdes.bytes())
        pipe(driver, "all", ("a", b"short", -1), ("a", eight, 1), value=Serdes.bytes())
        assert [r.timestamp for r in records(driver, "out", "string", "long")] == [9, 1]
        assert [r.value for r in records(driver, "letters", "string", "bytes")] == [b"short", b"short"]
        assert driver.dropped_records == 2


def test_partition_time_is_the_largest_so_far() -> None:
    """Where there is none, the pipeline ends."""
    with TopologyTestDriver(copying(UsePartitionTimeOnInvalidTimestamp())) as driver:
        pipe(driver, "in", ("a", "x1", 9), ("a", "y", 12), ("a", "x2", 7), ("a", "x3", -1), ("a", "x4", 13))
        assert times(driver) == [("x1", 9), ("x2", 7), ("x3", 12), ("x4", 13)]
        pipe(driver, "in", ("a", "x1", -5), ("a", "x2", 7))
        assert times(driver) == [("x1", 13), ("x2", 7)]
    with (
        TopologyTestDriver(copying(UsePartitionTimeOnInvalidTimestamp())) as driver,
        pytest.raises(
            StreamsException, match="in-0 offset 0 has the timestamp -5, which is before 1970, and no"
        ),
    ):
        pipe(driver, "in", ("a", "x1", -5), ("a", "x2", 7))


def test_the_wall_clocks_time_is_that_at_which_a_record_is_read() -> None:
    """And no time of Kafka's is invalid then."""
    before = time.time_ns() // 1_000_000
    with TopologyTestDriver(copying(WallclockTimestampExtractor())) as driver:
        pipe(driver, "in", ("a", "x1", 5), ("a", "x2", -5))
        (_, one), (_, other) = times(driver)
    assert before <= one <= other <= time.time_ns() // 1_000_000


def test_records_come_in_the_order_of_the_times_that_a_function_gives_them() -> None:
    """Of several topics, as Kafka Streams has it: each by its first record."""
    builder = StreamsBuilder()
    consumed = STRINGS.with_timestamp_extractor(lambda value: value.cast("bigint"))
    builder.stream("one", consumed).merge(builder.stream("two", STRINGS)).to("out")
    with TopologyTestDriver(builder.build()) as driver, driver.one_batch():
        pipe(driver, "one", ("a", "9", 1), ("a", "3", 2), ("a", "-7", 3), ("a", "20", 4))
        pipe(driver, "two", ("a", "x", 5), ("a", "y", 10))
    assert times(driver) == [("x", 5), ("9", 9), ("3", 3), ("y", 10), ("20", 20)]


def test_a_tables_updates_have_the_time_of_its_extractor() -> None:
    """A store that is a view of its topic has that of the topic."""
    builder = StreamsBuilder()
    consumed = STRINGS.with_timestamp_extractor(lambda value: value.cast("bigint"))
    builder.table("in", consumed, Materialized.as_("store")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "7", 50))
        assert times(driver) == [("7", 7)]
        assert stamped(driver, "store") == {"a": ("7", 50)}


def test_what_a_function_returns_has_to_be_a_time() -> None:
    """Its type is known when the topology is compiled; a NULL when it comes."""
    with pytest.raises(
        TopologyException, match=r"test_timestamps.py:\d+ <lambda>\): a timestamp extractor returns a "
    ):
        TopologyTestDriver(copying(lambda value: value))
    wanted = r"<lambda>\): the timestamp extractor returned NULL for in-0 offset 0; F.coalesce"
    with (
        TopologyTestDriver(copying(lambda value: value.try_cast("bigint"))) as driver,
        pytest.raises(StreamsException, match=wanted),
    ):
        pipe(driver, "in", ("a", "x", 50))


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark)
    yield world
    world.close()


@pytest.mark.kafka
def test_a_client_counts_what_has_no_time_and_what_is_late_without_any_handler(world: EngineWorld) -> None:
    """On a real broker, which is given the extracted times."""
    source, out = world.topic("in"), world.topic("out")
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS.with_timestamp_extractor(lambda value: value.cast("bigint")))
    stream.to(out)
    windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
    stream.group_by_key().windowed_by(windows).count()
    (compiled,) = world.compiled(builder.build())
    running = world.start(compiled)
    world.produce(source, "100", "-1", "5", "101")
    assert [message.timestamp()[1] for message in world.read(out, 3)] == [100, 5, 101]
    wait_until(lambda: running.metadata().dropped == 2, "one without a time, one that is late")
