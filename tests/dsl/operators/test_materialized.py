"""Materialized: names of stores, their changelogs and serdes."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, records, rows
from pyspark.sql import functions as F

from millstream import Materialized, Serdes, StreamsBuilder
from millstream.model import PARTS_HEADER
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_a_changelog_has_its_stores_name_serdes_partitions_and_timestamps() -> None:
    """`<application.id>-<store>-changelog`; the timestamp is the largest of the records'."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("counts"))
    builder.stream("in", STRINGS).group_by_key().count()
    builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("unlogged").with_logging_disabled())
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 1_700_000_000_123), ("a", "y", 5))
        assert driver.produced_topic_names == {
            "app-counts-changelog",
            "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
        }
        (written,) = driver._output("app-counts-changelog")
        assert ([name for name, _ in written.headers], written.timestamp) == (
            [PARTS_HEADER],
            1_700_000_000_123,
        )
        (record,) = records(driver, "app-counts-changelog", "string", "long")
        assert (record.key, record.value, record.timestamp) == ("a", 2, 1_700_000_000_123)
        assert rows(driver, "counts") == {"a": 2}


def test_a_stores_serdes_are_those_given_or_those_that_the_columns_imply() -> None:
    """An int in a store of doubles; a key that was mapped to a number is an integer."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.group_by(lambda value: value.cast("int")).count(Materialized.as_("inferred"))
    stream.group_by_key().aggregate(
        lambda value: F.max(F.length(value)), Materialized.as_("given").with_value_serde(Serdes.double())
    )
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "7"))
        assert rows(driver, "inferred") == {7: 1}
        assert rows(driver, "given") == {"a": 1.0}
        (record,) = records(driver, "app-given-changelog", "bytes", "bytes")
        assert (record.key, record.value) == (b"a", Serdes.double().serialize(1.0))
