"""StreamsBuilder.table: a topic as a table."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, rows, stamped
from pyspark.sql import functions as F

from millstream import Materialized, StreamsBuilder, UnknownStateStoreException
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_a_tables_store_is_filled_from_its_own_topic() -> None:
    """A null value deletes, a null key is skipped; there is no changelog besides the topic, and no query."""
    builder = StreamsBuilder()
    builder.table("in", STRINGS, Materialized.as_("table"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "1", 10), ("b", "1", 20), (None, "x", 30), ("a", "2", 5), ("b", None, 40))
        assert stamped(driver, "table") == {"a": ("2", 5)}
        pipe(driver, "in", ("b", "3", 50))
        assert rows(driver, "table") == {"a": "2", "b": "3"}
        assert driver.produced_topic_names == frozenset()


def test_a_tables_changes_can_be_aggregated_and_written() -> None:
    """The table's stream is a stream like any other, with deletions as null values."""
    builder = StreamsBuilder()
    changes = builder.table("in", STRINGS, Materialized.as_("table")).to_stream()
    changes.to("changes")
    changes.group_by(lambda value: F.upper(value)).count(Materialized.as_("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x"), ("b", "X"), (None, "x"), ("a", None))
        assert read(driver, "changes") == [("a", "x"), ("b", "X"), ("a", None)]
        assert rows(driver, "counts") == {"X": 2}
        assert rows(driver, "table") == {"b": "X"}


def test_a_table_without_a_name_cannot_be_queried() -> None:
    """Its changes are passed on; asking for a store names those there are."""
    builder = StreamsBuilder()
    builder.table("in", STRINGS).to_stream().to("out")
    builder.table("named", STRINGS, Materialized.as_("known"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x"), (None, "y"))
        assert read(driver, "out") == [("a", "x")]
        with pytest.raises(UnknownStateStoreException, match="known"):
            driver.get_key_value_store("unknown")
