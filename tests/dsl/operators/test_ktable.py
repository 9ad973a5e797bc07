"""KTable's operations: filter, filter_not, map_values, select, to_stream."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, records, rows, stamped
from pyspark.sql import functions as F

from millstream import Consumed, Materialized, Serdes, StreamsBuilder
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


def test_a_row_that_does_not_pass_a_filter_is_a_deletion() -> None:
    """In the stream of changes and in the store; deletions pass, and NULL is not true."""
    builder = StreamsBuilder()
    table = builder.table("in", STRINGS)
    table.filter(lambda value: value > "b", Materialized.as_("late")).to_stream().to("late-changes")
    table.filter_not(lambda key, value: value > "b", Materialized.as_("early")).to_stream().to(
        "early-changes"
    )
    table.filter(lambda value: F.lit(None) == value).to_stream().to("null-answers")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("k", "c", 10), ("l", "a", 20), ("m", None, 30), (None, "z", 40))
        assert read(driver, "late-changes") == [("k", "c"), ("l", None), ("m", None)]
        assert read(driver, "early-changes") == [("k", None), ("l", "a"), ("m", None)]
        assert read(driver, "null-answers") == [("k", None), ("l", None), ("m", None)]
        assert stamped(driver, "late") == {"k": ("c", 10)}
        assert stamped(driver, "early") == {"l": ("a", 20)}
        pipe(driver, "in", ("k", "a", 50))
        assert rows(driver, "late") == {}
        assert rows(driver, "early") == {"l": "a", "k": "a"}
        assert records(driver, "app-late-changelog")[-1] == TestRecord("k", None, 50)


def test_map_values_changes_rows_and_leaves_deletions_alone() -> None:
    """The mapper is not asked about a deletion; the result is a table with a store if that has a name."""
    builder = StreamsBuilder()
    table = builder.table("in", STRINGS)
    sizes = table.map_values(lambda value: F.coalesce(F.length(value), F.lit(-1)), Materialized.as_("sizes"))
    sizes.map_values(lambda key, value: F.concat_ws(":", key, value)).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "four", 10), ("l", "x", 20), ("k", None, 30))
        assert read(driver, "out") == [("k", "k:4"), ("l", "l:1"), ("k", None)]
        assert stamped(driver, "sizes") == {"l": (1, 20)}


def test_fields_of_a_struct_are_selected_by_name() -> None:
    """`select` keeps some of the fields, `table[field]` makes one of them the value."""
    people = Serdes.json("name STRING, city STRING, age INT")
    builder = StreamsBuilder()
    table = builder.table("people", Consumed.with_(Serdes.string(), people))
    table.select("city", "name", materialized=Materialized.as_("cards"))
    table["age"].to_stream().to("ages")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "people", ("1", {"name": "Ann", "city": "Ghent", "age": 40}), ("2", None), value=people)
        assert rows(driver, "cards") == {"1": {"city": "Ghent", "name": "Ann"}}
        assert read(driver, "ages", value="integer") == [("1", 40), ("2", None)]


def test_to_stream_gives_changes_under_their_keys_or_new_ones() -> None:
    """A deletion is a record with a null value; the tables of aggregations have streams too."""
    builder = StreamsBuilder()
    builder.table("in", STRINGS).to_stream(lambda key, value: F.concat(key, F.lit("!"))).to("renamed")
    counts = builder.stream("events", STRINGS).group_by_key().count()
    counts.filter(lambda value: value != 2).map_values(lambda value: value * 10).to_stream().to("tens")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "v"), ("k", None))
        assert read(driver, "renamed") == [("k!", "v"), ("k!", None)]
        for _ in range(3):
            pipe(driver, "events", ("a", "x"))
        assert read(driver, "tens", value="long") == [("a", 10), ("a", None), ("a", 30)]
