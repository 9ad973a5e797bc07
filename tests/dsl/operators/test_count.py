"""KGroupedStream.count: rows in, a table out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, records, rows, stamped
from pyspark.sql import functions as F

from millstream import Materialized, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_count_counts_records_with_a_key_and_a_value() -> None:
    """A list is one micro-batch and gives one update a key; piped one by one, each record gives its own."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "1"), ("b", "1"), ("a", "2"), (None, "x"), ("a", None), ("c", None))
        assert sorted(read(driver, "out", value="long")) == [("a", 2), ("b", 1)]
        for _ in range(2):
            pipe(driver, "in", ("a", "again"))
        assert read(driver, "out", value="long") == [("a", 3), ("a", 4)]
        pipe(driver, "in", (None, "x"), ("a", None))
        assert read(driver, "out", value="long") == []
        assert rows(driver, "counts") == {"a": 4, "b": 1}


def test_a_count_has_the_largest_timestamp_of_its_records_and_no_headers() -> None:
    """In the store and in its changelog, whose key and value are in the store's serdes."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    counts = stream.group_by(lambda value: F.length(value)).count(Materialized.as_("counts"))
    counts.to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", (None, "x", 30, (("h", b"x"),)), ("k", "y", 40), ("k", "z", 20))
        pipe(driver, "in", ("k", "late", 1), ("k", "x", 35))
        assert stamped(driver, "counts") == {1: (4, 40), 4: (1, 1)}
        changelog = records(driver, "app-counts-changelog", "integer", "long")
        logged = [(record.key, record.value, record.timestamp) for record in changelog]
        assert logged[0] == (1, 3, 40)
        assert sorted(logged[1:]) == [(1, 4, 40), (4, 1, 1)]
        assert all(record.headers == () for record in records(driver, "out", "integer", "long"))


def test_counts_and_stateless_outputs_of_one_stream_stand_side_by_side() -> None:
    """Two counts by different keys, a copy and a branch: one reads what has new keys from a topic."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("copy")
    stream.group_by_key().count(Materialized.as_("by-key"))
    stream.filter(lambda value: value != "x").group_by(lambda value: F.length(value)).count(
        Materialized.as_("by-size")
    )
    stream.flat_map_values(lambda value: F.split(value, "")).to("letters")
    topology = builder.build()
    assert len(topology.pipelines) == 2
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "in", ("a", "x"), ("a", "yz"), (None, "w"))
        pipe(driver, "in", ("b", "uv"))
        assert read(driver, "copy") == [("a", "x"), ("a", "yz"), (None, "w"), ("b", "uv")]
        assert [value for _, value in read(driver, "letters")] == ["x", "y", "z", "w", "u", "v"]
        assert rows(driver, "by-key") == {"a": 2, "b": 1}
        assert rows(driver, "by-size") == {1: 1, 2: 2}


def test_a_count_of_counts_goes_through_a_topic_between_two_pipelines() -> None:
    """Where keys change; each update of the first is a record for the second."""
    builder = StreamsBuilder()
    counts = builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("first"))
    counts.to_stream().group_by(lambda value: value).count(Materialized.as_("second")).to_stream().to("out")
    topology = builder.build()
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0", "p1"]
    with TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "1", 10), ("a", "2", 30), ("b", "1", 20))
        pipe(driver, "in", ("b", "2", 40))
        assert rows(driver, "first") == {"a": 2, "b": 2}
        assert stamped(driver, "second") == {1: (1, 20), 2: (2, 40)}
        assert "app-second-repartition" in driver.produced_topic_names
        assert sorted(read(driver, "out", "long", Serdes.long())) == [(1, 1), (2, 1), (2, 2)]


def test_a_count_of_counts_without_a_change_of_keys_is_one_query() -> None:
    """What the first one writes passes through the second."""
    builder = StreamsBuilder()
    first = builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("first")).to_stream()
    first.filter(lambda value: value > 1).to("several")
    second = first.group_by_key().count(Materialized.as_("second")).to_stream()
    second.to("out")
    topology = builder.build()
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0"]
    with TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "1", 10), ("a", "2", 30), ("b", "1", 20))
        pipe(driver, "in", ("a", "3", 5), (None, "x", 6))
        assert rows(driver, "first") == {"a": 3, "b": 1}
        assert stamped(driver, "second") == {"a": (2, 30), "b": (1, 20)}
        assert read(driver, "several", value="long") == [("a", 2), ("a", 3)]
        assert sorted(read(driver, "out", value="long")) == [("a", 1), ("a", 2), ("b", 1)]
        changelogs = {"app-first-changelog", "app-second-changelog"}
        assert set(driver.produced_topic_names) == {*changelogs, "several", "out"}
