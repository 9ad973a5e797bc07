"""KStream.flat_map_values: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, rows
from pyspark.sql import functions as F

from millstream import Materialized, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_flat_map_values_makes_any_number_of_values_and_keeps_the_key() -> None:
    """Null elements are records with null values; an empty or NULL array makes no record."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).flat_map_values(lambda value: F.split(value, " ")).to("words")
    builder.stream("in2", STRINGS).flat_map_values(
        lambda key, value: F.when(key == "k", F.array(value, F.lit(None))).otherwise(F.array())
    ).to("nulls")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x y x"), ("b", None), (None, "z"))
        pipe(driver, "in2", ("k", "1"), ("l", "2"))
        assert read(driver, "words") == [("a", "x"), ("a", "y"), ("a", "x"), (None, "z")]
        assert read(driver, "nulls") == [("k", "1"), ("k", None)]


def test_what_stands_beside_it_is_not_multiplied() -> None:
    """Other branches of the stream, aggregations too, have each record once."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.to("before")
    stream.group_by_key().count(Materialized.as_("records"))
    words = stream.flat_map_values(lambda value: F.split(value, " "))
    words.to("words")
    words.filter(lambda value: value != "x").flat_map_values(lambda value: F.array(value, value)).to("twice")
    words.group_by(lambda value: value).count(Materialized.as_("words-counted"))
    stream.to("after")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x y x"), ("b", "y"))
        assert read(driver, "before") == read(driver, "after") == [("a", "x y x"), ("b", "y")]
        assert read(driver, "words") == [("a", "x"), ("a", "y"), ("a", "x"), ("b", "y")]
        assert read(driver, "twice") == [("a", "y"), ("a", "y"), ("b", "y"), ("b", "y")]
        assert rows(driver, "records") == {"a": 1, "b": 1}
        assert rows(driver, "words-counted") == {"x": 2, "y": 2}
