"""KStream.merge: rows in, rows out."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, rows
from pyspark.sql import functions as F

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, TopologyException
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_merge_has_the_records_of_both_streams() -> None:
    """Of one source or of two; a record that is in both is there twice, one that is in neither not at all."""
    builder = StreamsBuilder()
    one, two = builder.stream("one", STRINGS), builder.stream("two", STRINGS)
    one.merge(two).to("sources")
    one.merge(one).to("itself")
    small, large = one.filter(lambda value: value < "c"), one.filter(lambda value: value > "a")
    small.merge(large).to("overlap")
    branches = two.split().branch(lambda value: value == "x").branch(lambda value: value == "y")
    first, second = branches.no_default_branch().values()
    first.map_values(lambda value: F.upper(value)).merge(second.filter(lambda key, value: key == "l")).to(
        "branches"
    )
    one.group_by_key().count(Materialized.as_("beside"))
    one.merge(two).group_by_key().count(Materialized.as_("behind"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "one", ("k", "a"), ("k", "b"), (None, "c"))
        assert read(driver, "sources") == [("k", "a"), ("k", "b"), (None, "c")]
        assert read(driver, "itself") == [
            ("k", "a"),
            ("k", "a"),
            ("k", "b"),
            ("k", "b"),
            (None, "c"),
            (None, "c"),
        ]
        assert read(driver, "overlap") == [("k", "a"), ("k", "b"), ("k", "b"), (None, "c")]
        pipe(driver, "two", ("k", "x"), ("l", "y"), ("m", "z"), ("n", None))
        assert read(driver, "sources") == [("k", "x"), ("l", "y"), ("m", "z"), ("n", None)]
        assert read(driver, "branches") == [("k", "X"), ("l", "y")]
        assert read(driver, "overlap") == []
        assert rows(driver, "beside") == {"k": 2}
        assert rows(driver, "behind") == {"k": 3, "l": 1, "m": 1}


def test_merge_refuses_streams_of_other_types() -> None:
    """Keys and values of both have to be of one type; the error names both nodes and types."""
    builder = StreamsBuilder()
    numbers = builder.stream("numbers", Consumed.with_(Serdes.string(), Serdes.long()))
    builder.stream("texts", STRINGS).merge(numbers).to("out")
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(builder.build())
    assert str(caught.value) == (
        "Invalid topology: KSTREAM-MERGE-0000000002: merged streams need the same types, but the value of "
        "KSTREAM-SOURCE-0000000001 is string and that of KSTREAM-SOURCE-0000000000 bigint"
    )
