"""KGroupedStream.reduce: a Spark expression, or a fold in Python."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, stamped
from pyspark.sql import functions as F

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, TopologyException
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_reduce_makes_one_value_of_the_values_of_a_key() -> None:
    """By an expression, or by a function whose first aggregate is the first value; nulls are skipped."""
    builder = StreamsBuilder()
    group = builder.stream("in", STRINGS).group_by_key()
    group.reduce(lambda value: F.max(value), Materialized.as_("largest"))
    group.reduce(lambda text, value: f"{text}+{value}", Materialized.as_("joined")).to_stream().to("out")
    topology = builder.build()
    assert len(topology.pipelines) == 1
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "in", ("a", "y", 10), ("b", "z", 20), ("a", "x", 30), ("a", None, 99), (None, "q", 99))
        pipe(driver, "in", ("a", "w", 5))
        assert stamped(driver, "largest") == {"a": ("y", 30), "b": ("z", 20)}
        assert stamped(driver, "joined") == {"a": ("y+x+w", 30), "b": ("z", 20)}
        assert sorted(read(driver, "out")) == [("a", "y+x"), ("a", "y+x+w"), ("b", "z")]


def test_a_sum_of_integers_is_a_long_and_has_to_be_written_as_one() -> None:
    """The value's own serde is refused where the result does not fit it; another one may be given."""
    integers = Consumed.with_(Serdes.string(), Serdes.integer())
    builder = StreamsBuilder()
    builder.stream("in", integers).group_by_key().reduce(lambda value: F.sum(value), Materialized.as_("sums"))
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(builder.build())
    assert str(caught.value) == (
        "Invalid topology: KSTREAM-REDUCE-0000000001: the value of store 'sums' has the serde 'integer', "
        "but its column is bigint; use Serdes.long(), or cast the column to int"
    )
    builder = StreamsBuilder()
    builder.stream("in", integers).group_by_key().reduce(
        lambda value: F.sum(value), Materialized.as_("sums").with_value_serde(Serdes.long())
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", 2**31 - 1, 1), ("a", 1, 2), value="integer")
        assert stamped(driver, "sums") == {"a": (2**31, 2)}
