"""Functions of the user's for Spark, of each kind: they see the records of their own stream alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import functions as F

from millstream import Consumed, Produced, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

NUMBERS = Consumed.with_(Serdes.string(), Serdes.long())
LARGE = 2**60 + 1


def functions() -> dict[str, Callable[..., Any]]:
    """One of each kind. They are made here, so that workers need not import this module."""

    def plain(value: int) -> int:
        assert value is not None
        return value + 1

    def series(values: pd.Series) -> pd.Series:
        assert len(values)
        assert values.notna().all()
        return values + 1

    def many_series(batches: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for values in batches:
            assert len(values)
            yield values + 1

    def array(values: pa.Array) -> pa.Array:
        assert len(values)
        assert not values.null_count
        return pc.add(values, 1)

    def many_arrays(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for values in batches:
            assert len(values)
            yield pc.add(values, 1)

    return {
        "plain": F.udf(plain, "long"),
        "arrow": F.udf(plain, "long", useArrow=True),
        "series": F.pandas_udf(series, "long"),
        "many-series": F.pandas_udf(many_series, "long"),
        "array": F.arrow_udf(array, "long"),
        "many-arrays": F.arrow_udf(many_arrays, "long"),
        "by-name": lambda value: F.udf(plain, "long")(value=value),
        "twice": lambda value: F.udf(plain, "long")(F.udf(plain, "long")(value)) - 1,
        "large": F.udf(lambda value, _table=b"x" * 2_000_000: value + 1, "long"),
        "nothing": lambda value: value + F.udf(lambda: 1, "long")(),
    }


def test_functions_of_each_kind_see_the_records_of_their_own_stream_alone() -> None:
    """Beside another stream, behind a filter, and with the rows with which tasks commit."""
    builder = StreamsBuilder()
    kinds = functions()
    numbers, others = builder.stream("numbers", NUMBERS), builder.stream("others", NUMBERS)
    for name, function in kinds.items():
        even = numbers.filter(lambda value: value % 2 == 1)
        even.map_values(lambda value, function=function: function(value)).to(
            name, Produced.with_(Serdes.string(), Serdes.long())
        )
    others.map_values(lambda value: F.udf(lambda other: 100 // other, "long")(value)).to("divided")
    numbers.merge(others).to("all")
    with TopologyTestDriver(builder.build()) as driver:
        for topic, values in (("numbers", [1, 2, 3, LARGE]), ("others", [7, 50])):
            driver.create_input_topic(topic, "string", "long").pipe_value_list(values)
        for name in kinds:
            found = driver.create_output_topic(name, "string", "long").read_values_to_list()
            assert found == [2, 4, LARGE + 1], name
        assert driver.create_output_topic("divided", "string", "long").read_values_to_list() == [14, 2]
        assert len(driver.create_output_topic("all", "string", "long").read_values_to_list()) == 6


def test_a_function_as_a_condition_or_a_topic_sees_its_records_alone() -> None:
    """And one that is called where the user's own condition says so has Spark's rules within its stream."""
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed.with_(Serdes.string(), Serdes.string()))
    words.filter(F.udf(lambda word: word.startswith("a"), "boolean")).to("begin")
    words.filter(lambda word: word != "to").to(F.udf(lambda key, word: f"out-{len(word)}", "string"))
    words.flat_map_values(lambda word: F.udf(lambda each: list(each.upper()), "array<string>")(word)).to(
        "each"
    )
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("words", "string", "string").pipe_value_list(["ab", "to", "b"])
        found = {
            name: driver.create_output_topic(name, "string", "string").read_values_to_list()
            for name in ("begin", "out-2", "out-1", "each")
        }
        assert found == {"begin": ["ab"], "out-2": ["ab"], "out-1": ["b"], "each": ["A", "B", "T", "O", "B"]}
