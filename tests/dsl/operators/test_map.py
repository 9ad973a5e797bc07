"""KStream.map: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, records
from pyspark.sql import functions as F

from millstream import Serdes, StreamsBuilder
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark


def test_map_makes_each_record_another_one_of_any_types() -> None:
    """Key and value come as a pair of Columns or Python values; their serdes follow from their types."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.map(lambda key, value: (value, key)).to("swapped")
    stream.map(lambda value: (F.length(value), {"text": value, "long": F.length(value) > 1})).to("typed")
    stream.map(lambda key, value, record: (record.offset, 7)).to("by-offset")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "xy"), ("b", None), (None, "z"))
        assert read(driver, "swapped") == [("xy", "a"), (None, "b"), ("z", None)]
        assert read(driver, "typed", Serdes.integer(), Serdes.json("text STRING, long BOOLEAN")) == [
            (2, {"text": "xy", "long": True}),
            (None, {"text": None, "long": None}),
            (1, {"text": "z", "long": False}),
        ]
        assert read(driver, "by-offset", Serdes.long(), Serdes.integer()) == [(0, 7), (1, 7), (2, 7)]


def test_headers_and_timestamps_travel_through_every_stateless_step() -> None:
    """A record keeps its time and its headers, null ones included, whatever becomes of its key and value."""
    builder = StreamsBuilder()
    mapped = builder.stream("in", STRINGS).map(lambda key, value: (value, key))
    words = mapped.select_key(lambda value: F.upper(value)).flat_map_values(
        lambda value: F.array(value, value)
    )
    branches = words.filter(lambda value: value.isNotNull()).split().default_branch()
    next(iter(branches.values())).merge(mapped).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        headers = (("trace", b"\x00\xff"), ("trace", b"2"), ("empty", None))
        pipe(driver, "in", ("k", "v", 5, headers), ("l", "w", 6))
        assert sorted(records(driver, "out"), key=lambda record: (record.key, record.headers)) == [
            TestRecord("K", "k", 5, headers),
            TestRecord("K", "k", 5, headers),
            TestRecord("L", "l", 6),
            TestRecord("L", "l", 6),
            TestRecord("v", "k", 5, headers),
            TestRecord("w", "l", 6),
        ]
