"""KStream.select_key: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import functions as F

from millstream import Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_select_key_changes_the_key_and_keeps_the_value() -> None:
    """A record whose new key is null goes on; only what needs keys drops it."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.select_key(lambda value: value).to("by-value")
    stream.select_key(lambda key, value: F.length(key) + F.length(value)).to("by-size")
    stream.select_key(lambda key, value, record: record.topic).to("by-topic")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x"), ("b", None), (None, "z"))
        assert read(driver, "by-value") == [("x", "x"), (None, None), ("z", "z")]
        assert read(driver, "by-size", key=Serdes.integer()) == [(2, "x"), (None, None), (None, "z")]
        assert read(driver, "by-topic") == [("in", "x"), ("in", None), ("in", "z")]
