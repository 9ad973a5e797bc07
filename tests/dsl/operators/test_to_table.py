"""KStream.to_table: a stream's last values."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, records, rows, stamped
from pyspark.sql import functions as F

from millstream import Materialized, StreamsBuilder
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


def test_on_unchanged_keys_a_table_takes_the_last_record_by_offset() -> None:
    """Whatever its timestamp; a null value deletes, a null key is skipped, each update is passed on."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to_table(Materialized.as_("table")).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "1", 20), ("b", "1", 20), (None, "x", 20), ("a", "2", 10), ("b", None, 30))
        updates = [("a", "1"), ("b", "1"), ("a", "2"), ("b", None)]
        assert read(driver, "out") == updates
        assert stamped(driver, "table") == {"a": ("2", 10)}
        changelog = records(driver, "app-table-changelog")
        logged = [(record.key, record.value, record.timestamp) for record in changelog]
        assert logged == [("a", "2", 10), ("b", None, 30)], "what there is at a commit"
        pipe(driver, "in", ("b", "2", 5))
        assert rows(driver, "table") == {"a": "2", "b": "2"}


def test_behind_a_change_of_keys_too_a_table_takes_the_last_record_to_arrive() -> None:
    """As Kafka Streams does behind its repartition topic: whatever the timestamps; a deletion is one more."""
    builder = StreamsBuilder()
    (
        builder.stream("in", STRINGS)
        .select_key(lambda key, value: F.lower(key))
        .to_table(Materialized.as_("table"))
        .to_stream()
        .to("out")
    )
    topology = builder.build()
    assert len(topology.pipelines) == 2
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "in", ("A", "1", 20), ("a", "2", 10), ("B", "1", 7), ("b", "2", 7), (None, "x", 7))
        assert read(driver, "out") == [("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]
        assert stamped(driver, "table") == {"a": ("2", 10), "b": ("2", 7)}
        pipe(driver, "in", ("a", None, 30))
        assert rows(driver, "table") == {"b": "2"}
        pipe(driver, "in", ("a", "late", 25))
        assert read(driver, "out") == [("a", None), ("a", "late")]
        assert stamped(driver, "table") == {"a": ("late", 25), "b": ("2", 7)}


def test_a_table_without_a_name_has_no_store_and_passes_updates_on() -> None:
    """Only what was named can be queried; nothing is written for what was not."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).to_table().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "1", 5), (None, "x"), ("a", None, 4))
        assert records(driver, "out") == [TestRecord("a", "1", 5), TestRecord("a", None, 4)]
        assert driver.produced_topic_names == {"out"}
