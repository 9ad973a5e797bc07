"""KStream.filter_not: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read

from millstream import StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_filter_not_drops_records_whose_predicate_is_true_and_null_is_not_true() -> None:
    """It is the complement of filter: each record is in one of the two, NULL answers in this one."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.filter(lambda value: value > "b").to("yes")
    stream.filter_not(lambda value: value > "b").to("no")
    stream.filter_not(lambda key, value: key == "k").filter_not(lambda value: value == "x").to("twice")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "a"), ("k", "c"), ("k", None), (None, "d"), ("l", "x"))
        assert read(driver, "yes") == [("k", "c"), (None, "d"), ("l", "x")]
        assert read(driver, "no") == [("k", "a"), ("k", None)]
        assert read(driver, "twice") == [(None, "d")]
