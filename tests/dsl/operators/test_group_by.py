"""KStream.group_by and group_by_key: what belongs together."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, records, rows
from pyspark.sql import functions as F

from millstream import Consumed, Grouped, Materialized, Repartitioned, Serdes, StreamsBuilder
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


def test_group_by_key_groups_by_the_key_there_is_and_group_by_by_a_new_one() -> None:
    """Neither takes records whose key is null; keys may be of any type, structs too."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.group_by_key().count(Materialized.as_("by-key"))
    stream.group_by(lambda value: value).count(Materialized.as_("by-value"))
    stream.group_by(lambda key, value: F.length(value)).count(Materialized.as_("by-size"))
    stream.group_by(lambda key, value: {"k": key, "size": F.length(value)}).count(
        Materialized.as_("by-struct")
    )
    stream.group_by(lambda key, value, record: record.partition).count(Materialized.as_("by-partition"))
    topology = builder.build()
    assert len(topology.pipelines) == 5  # each new key is a topic
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "in", ("a", "x"), ("a", "yy"), ("b", "x"), (None, "x"), ("b", None))
        assert rows(driver, "by-key") == {"a": 2, "b": 1}
        assert rows(driver, "by-value") == {"x": 3, "yy": 1}
        assert rows(driver, "by-size") == {1: 3, 2: 1}
        by_struct = driver.get_key_value_store("by-struct")
        assert by_struct.get({"k": "a", "size": 2}) == by_struct.get({"k": "b", "size": 1}) == 1
        assert rows(driver, "by-partition") == {0: 4}


def test_group_by_key_behind_a_repartition_groups_by_its_keys() -> None:
    """A topic the program asks for is between two pipelines; the timestamps come through it."""
    builder = StreamsBuilder()
    (
        builder.stream("in", Consumed.with_(Serdes.string(), Serdes.integer()))
        .select_key(lambda key, value: value % 2 == 0)
        .repartition(Repartitioned.as_("even"))
        .group_by_key(Grouped.with_(Serdes.boolean(), Serdes.integer()))
        .count(Materialized.as_("counts"))
        .to_stream()
        .to("out")
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", 1, 30), ("k", 2, 20), ("l", 3, 10), value="integer")
        assert rows(driver, "counts") == {True: 1, False: 2}
        assert sorted(records(driver, "out", "boolean", "long"), key=lambda record: record.key) == [
            TestRecord(False, 2, 30),
            TestRecord(True, 1, 20),
        ]
        store = driver.get_timestamped_key_value_store("counts")
        assert (store[False].timestamp, store[True].timestamp) == (30, 20)
