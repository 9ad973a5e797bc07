"""TopologyTestDriver itself: what it promises to tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream import (
    IllegalStateException,
    KeyValue,
    Materialized,
    Serdes,
    SerializationException,
    StateStoreMigratedException,
    StreamsBuilder,
    Topology,
    TopologyException,
    UnknownStateStoreException,
    ValueAndTimestamp,
)
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

START = datetime(2024, 5, 1, tzinfo=UTC)
START_MS = 1_714_521_600_000


def counting() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("copy")
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    return builder.build()


def test_records_are_piped_in_every_form_and_stamped_as_told() -> None:
    """A value, key and value, TestRecords, lists; timestamps given, counted on, or of the wall clock."""
    with TopologyTestDriver(counting(), {"application.id": "app"}, initial_wall_clock_time=START) as driver:
        topic = driver.create_input_topic(
            "in", "string", Serdes.string(), start_timestamp=START, auto_advance=timedelta(seconds=1)
        )

        def stamp() -> int | None:
            return (
                driver.create_output_topic("app-counts-changelog", "string", "long").read_record().timestamp
            )

        topic.pipe_input("a", "x")
        assert stamp() == START_MS
        topic.pipe_input("b", "x")
        assert stamp() == START_MS + 1000
        topic.advance_time(timedelta(minutes=1))
        topic.pipe_input("c", "x")
        assert stamp() == START_MS + 62_000
        topic.pipe_input("d", "x", timestamp=5, headers=[("h", b"1")])
        assert stamp() == 5
        topic.pipe_input("e", "x", timestamp=START + timedelta(milliseconds=7))
        assert stamp() == START_MS + 7
        topic.pipe_input(TestRecord("f", "x", 6, (("h", None),)))
        assert stamp() == 6
        topic.pipe_input("only a value")
        topic.pipe_value_list(["v1", "v2"])
        topic.pipe_key_value_list([("g", "x"), KeyValue("g", "y")])
        assert stamp() == START_MS + 67_000  # six were given none before this one
        driver.create_input_topic("in", "string", "string").pipe_input("h", "x")
        assert stamp() == START_MS
        copied = driver.create_output_topic("copy", "string", "string").read_records_to_list()
        assert [(r.key, r.value) for r in copied[6:9]] == [(None, t) for t in ("only a value", "v1", "v2")]
        assert [r.headers for r in copied[3:6]] == [(("h", b"1"),), (), (("h", None),)]
        with pytest.raises(TypeError, match="takes a value, a key and a value, or a TestRecord; got 3"):
            topic.pipe_input("too", "many", "values")
        with pytest.raises(ValueError, match="time only moves forward"):
            topic.advance_time(timedelta(seconds=-1))


def test_output_is_read_once_in_every_form() -> None:
    """It is read as records, key and value, or value; one by one, as lists, or as the last value of each
    key."""
    with TopologyTestDriver(counting()) as driver:
        out = driver.create_output_topic("copy", "string", "string")
        assert out.is_empty
        with pytest.raises(LookupError, match="no more records in topic 'copy'; written to so far: nothing"):
            out.read_record()
        pipe(driver, "in", *((f"k{number % 2}", f"v{number}") for number in range(8)))
        assert out.queue_size == 8
        assert (record := out.read_record()) == TestRecord("k0", "v0", record.timestamp)
        assert out.read_key_value() == KeyValue("k1", "v1")
        assert out.read_value() == "v2"
        pipe(driver, "in", ("k0", None))
        assert out.read_key_values_to_map() == {"k0": None, "k1": "v7"}
        assert out.is_empty
        pipe(driver, "in", ("a", "b"))
        again = driver.create_output_topic("copy", "bytes", "bytes")
        assert again.read_values_to_list() == [b"b"]
        assert out.read_key_values_to_list() == []
        assert driver.produced_topic_names == {"copy", "out", "test-counts-changelog"}
        with pytest.raises(LookupError, match="written to so far: copy, out, test-counts-changelog"):
            out.read_record()
        with pytest.raises(SerializationException):
            driver.create_output_topic("out", "long", "long").read_record()


def test_stores_are_read_as_a_client_reads_them() -> None:
    """get, range, all and others work, with and without timestamps; contents change with each record."""
    with TopologyTestDriver(counting()) as driver:
        pipe(driver, "in", ("a", "x", 1), ("b", "x", 2), ("c", "x", 3), ("a", "x", 4))
        counts = driver.get_key_value_store("counts")
        assert (counts["a"], counts.get("z"), "b" in counts) == (2, None, True)
        with counts.range("b", "c") as entries:
            assert list(entries) == [KeyValue("b", 1), KeyValue("c", 1)]
        with counts.reverse_all() as entries:
            assert [key for key, _ in entries] == ["c", "b", "a"]
        stamped = driver.get_timestamped_key_value_store("counts")
        assert stamped["a"] == ValueAndTimestamp(2, 4)
        pipe(driver, "in", ("a", "x", 3))
        assert (counts["a"], stamped["a"]) == (3, ValueAndTimestamp(3, 4))
        with pytest.raises(UnknownStateStoreException, match="'counts'"):
            driver.get_key_value_store("count")


def test_drivers_of_one_topology_do_not_share_anything() -> None:
    """Each begins empty, side by side or one after the other, whatever the application's id is."""
    topology = counting()
    with TopologyTestDriver(topology) as one, TopologyTestDriver(topology) as other:
        pipe(one, "in", ("a", "x"))
        assert one.get_key_value_store("counts")["a"] == 1
        assert other.get_key_value_store("counts").get("a") is None
        pipe(other, "in", ("a", "x"))
        assert read(other, "out", value="long") == read(one, "out", value="long") == [("a", 1)]


def test_a_closed_driver_refuses_records_and_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing twice is fine, and so is closing after a mistake in the topology."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    driver = TopologyTestDriver(counting())
    topic = driver.create_input_topic("in", "string", "string")
    topic.pipe_input("a", "x")
    store = driver.get_key_value_store("counts")
    assert list(tmp_path.iterdir())
    driver.close()
    driver.close()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(IllegalStateException, match="this TopologyTestDriver is closed; create a new one"):
        topic.pipe_input("a", "x")
    with pytest.raises(StateStoreMigratedException):
        store.get("a")

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).filter(lambda value: value.nothing).to("out")
    with pytest.raises(TopologyException):
        TopologyTestDriver(builder.build())
    assert list(tmp_path.iterdir()) == []


def test_a_driver_uses_the_session_and_the_settings_it_is_given(spark: SparkSession) -> None:
    """`spark.*` of the configuration reaches the query: here, whether a wrong cast is NULL or an error."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(lambda value: value.cast("int")).to("out")
    with TopologyTestDriver(builder.build(), {"spark.sql.ansi.enabled": "false"}, spark=spark) as driver:
        pipe(driver, "in", ("k", "one"), ("k", "1"))
        assert read(driver, "out", value="integer") == [("k", None), ("k", 1)]
    assert spark.range(1).select(F.lit(1)).first() is not None


def test_a_program_that_feeds_itself_is_stopped_with_a_sentence() -> None:
    """One that comes to an end has as many rounds as it needs."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(lambda value: F.concat(value, F.lit("!"))).to("in")
    with TopologyTestDriver(builder.build(), max_rounds=2) as driver:
        with pytest.raises(TopologyException) as caught:
            pipe(driver, "in", ("a", "x"))
        assert str(caught.value) == (
            "Invalid topology: the piped records have come back to 'in' in 3 successive batches, "
            "without an end in sight. A program that writes to its own source topic never finishes: write to "
            "another topic, or filter out records that were there before; if it does finish, increase "
            "TopologyTestDriver(..., max_rounds=...)"
        )
    builder = StreamsBuilder()
    longer = builder.stream("in", STRINGS).filter(lambda value: F.length(value) > 1)
    longer.map_values(lambda value: F.substring(value, 2, 9)).to("in")
    with TopologyTestDriver(builder.build(), max_rounds=2) as driver:
        pipe(driver, "in", ("a", "xyz"))
        assert read(driver, "in") == [("a", "yz"), ("a", "z")]


def test_records_of_several_inputs_that_one_batch_wrote_are_one_batch() -> None:
    """A pipeline behind two internal topics gives one update for a key that is in both."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    left, right = stream.repartition(named="left"), stream.repartition(named="right")
    left.merge(right).group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x"), ("a", "y"))
        assert read(driver, "out", value="long") == [("a", 4)]
