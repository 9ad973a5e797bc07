"""TopologyTestDriver's batches: records of several topics as one, and each record as one of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from driving import STRINGS, pipe, read

from millstream import (
    IllegalStateException,
    Materialized,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    UnknownStateStoreException,
)
from millstream.model import KafkaRecord
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

TEN = timedelta(milliseconds=10)


def counting() -> Topology:
    """Counts both topics together, behind a topic."""
    builder = StreamsBuilder()
    merged = builder.stream("left", STRINGS).merge(builder.stream("right", STRINGS))
    merged.repartition().group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    return builder.build()


def test_records_of_several_topics_can_be_one_batch() -> None:
    """Piped where they are, processed at the end; not at all, if it does not come to that."""
    with TopologyTestDriver(counting()) as driver:
        topics = [driver.create_input_topic(name, "string", "string") for name in ("left", "right")]
        with driver.one_batch():
            for topic in topics:
                topic.pipe_key_value_list([("a", "x"), ("a", "y")])
            assert read(driver, "out", value="long") == []
        assert read(driver, "out", value="long") == [("a", 4)]
        with suppress(RuntimeError), driver.one_batch():
            topics[0].pipe_input("a", "x")
            raise RuntimeError
        with driver.one_batch():
            pass
        with pytest.raises(IllegalStateException), driver.one_batch(), driver.one_batch():
            pass
        topics[0].pipe_input("a", "x")
        assert read(driver, "out", value="long") == [("a", 5)]


def test_each_record_can_be_a_batch_of_its_own() -> None:
    """This holds through an internal topic too: each record gives its update, with and without a cache."""
    for config in ({}, {"statestore.cache.max.bytes": 0}):
        with TopologyTestDriver(counting(), config, record_by_record=True) as driver:
            pipe(driver, "left", ("a", "x"), ("b", "x"), ("a", "x"))
            assert read(driver, "out", value="long") == [("a", 1), ("b", 1), ("a", 2)]
            with driver.one_batch():
                pipe(driver, "right", ("b", "x"))
                pipe(driver, "left", ("a", "x"), ("b", "x"))
            assert read(driver, "out", value="long") == [("b", 2), ("a", 3), ("b", 3)]


def test_what_waits_in_several_topics_is_taken_by_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Kafka Streams' driver does, which has one task for all: the record with the smallest time first; of
    one topic, in its order."""

    def record(topic: str, timestamp: int) -> KafkaRecord:
        return KafkaRecord(topic, 0, 0, None, None, timestamp)

    written = {
        record("in", 9): [record("a", 10), record("b", 3), record("a", 1), record("c", 7)],
        record("b", 3): [record("c", 2), record("b", 8)],
    }
    processed = []

    def process(records: Sequence[KafkaRecord], passed: int) -> list[list[KafkaRecord]]:
        processed.extend(records)
        return [written.get(records[0], [])]

    builder = StreamsBuilder()
    builder.table("in", STRINGS)
    with TopologyTestDriver(builder.build(), record_by_record=True) as driver:
        monkeypatch.setattr(driver, "_process", process)
        driver._pipe([record("in", 9), record("in", 0)])
    assert [(each.topic, each.timestamp) for each in processed] == [
        ("in", 9),
        ("b", 3),
        ("c", 7),
        ("c", 2),
        ("b", 8),
        ("a", 10),
        ("a", 1),
        ("in", 0),
    ]


def test_the_drivers_clock_goes_on_when_it_is_told_to() -> None:
    """This holds for topics that are created afterwards, as in Kafka Streams' driver."""
    start = datetime(2024, 5, 1, tzinfo=UTC)
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out")
    with TopologyTestDriver(builder.build(), initial_wall_clock_time=start) as driver:
        early = driver.create_input_topic("in", "string", "string")
        driver.advance_wall_clock_time(timedelta(seconds=2))
        with pytest.raises(ValueError, match="time only moves forward"):
            driver.advance_wall_clock_time(timedelta(seconds=-1))
        driver.create_input_topic("in", "string", "string").pipe_input("k", "late", headers=[("h", b"1")])
        early.pipe_input("k", "early")
        out = driver.create_output_topic("out", "string", "string")
        now = round(start.timestamp() * 1000)
        assert out.read_record() == TestRecord("k", "late", now + 2000, (("h", b"1"),))
        assert out.read_record() == TestRecord("k", "early", now)


def test_stores_and_metrics_are_there_as_a_whole() -> None:
    """Each store as its kind is; what was dropped, by task."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key()
    grouped.count(Materialized.as_("plain"))
    grouped.windowed_by(TimeWindows.of_size_with_no_grace(TEN)).count(Materialized.as_("windows"))
    grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(TEN)).count(
        Materialized.as_("sessions")
    )
    builder.stream("other", STRINGS).to("out")
    builder.global_table("everywhere", STRINGS, Materialized.as_("global"))
    with TopologyTestDriver(builder.build()) as driver:
        stores = driver.get_all_state_stores()
        assert {name: type(store) for name, store in stores.items()} == {
            "plain": ReadOnlyKeyValueStore,
            "windows": ReadOnlyWindowStore,
            "sessions": ReadOnlySessionStore,
            "global": ReadOnlyKeyValueStore,
        }
        pipe(driver, "in", ("a", "x", 100), ("a", "x", 5))
        assert stores["plain"].get("a") == 2
        with pytest.raises(UnknownStateStoreException):
            driver.get_state_store("nothing")
        dropped = {dict(name.tags)["task-id"]: metric.value for name, metric in driver.metrics.items()}
        assert dropped == {"0_0": 2, "1_0": 0}
        assert {(name.name, name.group) for name in driver.metrics} == {
            ("dropped-records-total", "stream-task-metrics")
        }


def test_serdes_may_be_given_for_records_of_any_kind() -> None:
    """Timestamps and headers come back as they were piped."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to("out")
    with TopologyTestDriver(builder.build(), record_by_record=True) as driver:
        topic = driver.create_input_topic("in", Serdes.string(), Serdes.string())
        topic.pipe_record_list(
            [TestRecord("a", "x", 7, (("h", b"1"), ("h", None))), TestRecord(None, None, 8)]
        )
        out = driver.create_output_topic("out", "string", "string")
        assert out.read_records_to_list() == [
            TestRecord("a", "x", 7, (("h", b"1"), ("h", None))),
            TestRecord(None, None, 8),
        ]
