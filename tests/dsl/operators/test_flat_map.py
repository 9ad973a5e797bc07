"""KStream.flat_map: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import functions as F

from millstream import Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_flat_map_makes_any_number_of_records_of_one() -> None:
    """A list of pairs or an array of structs; an empty or NULL array makes none; order is kept."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.flat_map(lambda key, value: [(key, value), (value, key)]).to("pairs")
    stream.flat_map(
        lambda key, value: F.transform(F.split(value, " "), lambda word: F.struct(word, F.length(word)))
    ).to("words")
    stream.flat_map(
        lambda key, value, record: F.when(
            record.offset == 0, F.array_repeat(F.struct(key, value), F.lit(2))
        ).otherwise(F.array_repeat(F.struct(key, value), F.lit(0)))
    ).to("first-twice")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x yy"), ("b", None))
        assert read(driver, "pairs") == [("a", "x yy"), ("x yy", "a"), ("b", None), (None, "b")]
        assert read(driver, "words", value=Serdes.integer()) == [("x", 1), ("yy", 2)]
        assert read(driver, "first-twice") == [("a", "x yy"), ("a", "x yy")]
