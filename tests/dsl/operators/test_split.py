"""KStream.split and branch: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, rows
from pyspark.sql import functions as F

from millstream import Branched, Materialized, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_split_routes_each_record_to_the_first_branch_that_says_yes() -> None:
    """A NULL answer is a no; what nobody takes goes to the default branch."""
    builder = StreamsBuilder()
    branches = (
        builder.stream("in", STRINGS)
        .split(named="by-")
        .branch(lambda value: value < "c", Branched.as_("early"))
        .branch(lambda key, value: value < "x", Branched.as_("middle"))
        .branch(lambda key, value, record: record.offset == 4, Branched.as_("offset"))
        .default_branch(Branched.as_("rest"))
    )
    for name, stream in branches.items():
        stream.to(name)
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "a"), ("k", "m"), ("k", None), (None, "b"), ("k", "z"), ("k", "y"))
        assert read(driver, "by-early") == [("k", "a"), (None, "b")]
        assert read(driver, "by-middle") == [("k", "m")]
        assert read(driver, "by-offset") == [("k", "z")]
        assert read(driver, "by-rest") == [("k", None), ("k", "y")]


def test_branches_go_on_independently() -> None:
    """Splits within splits, functions and consumers of branches, an aggregation in one of them."""
    builder = StreamsBuilder()
    (
        builder.stream("in", STRINGS)
        .split()
        .branch(
            lambda value: value.rlike("^[0-9]+$"),
            Branched.with_consumer(
                lambda numbers: (
                    numbers.map_values(lambda value: value.cast("int"))
                    .split()
                    .branch(lambda value: value > 1, Branched.with_consumer(lambda large: large.to("large")))
                    .no_default_branch()
                )
            ),
        )
        .default_branch(
            Branched.with_consumer(
                lambda words: words.group_by(lambda value: F.upper(value)).count(Materialized.as_("words"))
            )
        )
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "1"), ("k", "2"), ("k", "a"), ("k", "A"), ("k", None))
        assert read(driver, "large", value="integer") == [("k", 2)]
        assert rows(driver, "words") == {"A": 2}
