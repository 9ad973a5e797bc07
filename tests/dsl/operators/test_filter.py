"""KStream.filter: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import functions as F

from millstream import Consumed, Joined, Produced, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_filter_keeps_records_whose_predicate_is_true_and_null_is_not_true() -> None:
    """The predicate may take the value, key and value, or both and the record; a NULL answer drops."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.filter(lambda value: value > "b").to("by-value")
    stream.filter(lambda key, value: key == value).to("by-both")
    stream.filter(lambda key, value, record: record.offset == 1).to("by-record")
    stream.filter(lambda value: value.isNull()).to("null-values")
    stream.filter(lambda key, value: key.isNull()).to("null-keys")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "a"), ("k", "c"), ("k", None), (None, "d"))
        assert read(driver, "by-value") == [("k", "c"), (None, "d")]
        assert read(driver, "by-both") == [("a", "a")]
        assert read(driver, "by-record") == [("k", "c")]
        assert read(driver, "null-values") == [("k", None)]
        assert read(driver, "null-keys") == [(None, "d")]


def test_what_comes_after_a_filter_is_computed_for_what_it_kept_alone() -> None:
    """A cast behind a filter never meets what the filter dropped, also where the stream branches."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("all")
    numbers = stream.filter(lambda value: value.rlike("^[0-9]+$"))
    numbers.map_values(lambda value: value.cast("int")).filter(lambda value: value > 1).to("numbers")
    numbers.flat_map_values(lambda value: F.sequence(F.lit(1), value.cast("int"))).to("counted")
    numbers.select_key(lambda value: value.cast("int")).to(lambda key, value: F.concat(F.lit("by-"), value))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "1"), ("k", "many"), ("k", "2"))
        assert read(driver, "all") == [("k", "1"), ("k", "many"), ("k", "2")]
        assert read(driver, "numbers", value=Serdes.integer()) == [("k", 2)]
        assert read(driver, "counted", value=Serdes.integer()) == [("k", 1), ("k", 1), ("k", 2)]
        assert read(driver, "by-2", key=Serdes.integer()) == [(2, "2")]


def test_filters_are_asked_in_the_order_of_the_program() -> None:
    """Spark likes to ask a cheap one first: here that would meet what an earlier one drops, and fail."""
    builder = StreamsBuilder()
    (branch,) = (
        builder.stream("in", STRINGS)
        .split()
        .branch(lambda value: value.rlike("^[0-9]+$"))
        .no_default_branch()
        .values()
    )
    branch.filter(lambda value: value.cast("int") > 1).to("branched")
    (
        builder.stream("in2", STRINGS)
        .map_values(lambda value: {"text": value, "kind": F.regexp_extract(value, "^([a-z]+):", 1)})
        .filter(lambda value: value.kind == "n")
        .filter(lambda key, value: key.cast("int") > 1)
        .to("mapped", Produced.with_(Serdes.string()))
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "many"), ("k", "1"), ("k", "2"))
        assert read(driver, "branched") == [("k", "2")]
        pipe(driver, "in2", ("many", "t:"), ("1", "n:"), ("2", "n:x"))
        assert read(driver, "mapped", value="bytes") == [("2", b'{"text":"n:x","kind":"n"}')]


def test_a_condition_asks_for_its_parts_in_their_order() -> None:
    """With generated code, too, what a condition has twice is not computed for what its first part drops."""
    numbers = Consumed.with_(Serdes.string(), Serdes.long())
    builder = StreamsBuilder()
    names = builder.table("in", STRINGS)
    (
        builder.stream("numbers", numbers)
        .filter(lambda number: number > 1)
        .map(lambda key, number: (number.cast("string"), number))
        .join(names, lambda number, name: name, Joined.with_(Serdes.string(), Serdes.long(), Serdes.string()))
        .to("named")
    )
    (
        builder.stream("texts", STRINGS)
        .filter(lambda text: text.rlike("^[0-9]+$") & (text.cast("int") > 1) & (text.cast("int") < 9))
        .to("digits")
    )
    with TopologyTestDriver(builder.build(), {"spark.sql.codegen.factoryMode": "FALLBACK"}) as driver:
        pipe(driver, "in", ("5", "five"))  # four bytes, which are no long
        driver.create_input_topic("numbers").pipe_input("a", 5)
        pipe(driver, "texts", ("k", "x"), ("k", "5"))
        assert read(driver, "named") == [("5", "five")]
        assert read(driver, "digits") == [("k", "5")]
