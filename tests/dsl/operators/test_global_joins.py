"""KStream.join and left_join with a global table, on Spark."""

from __future__ import annotations

import pytest
from driving import STRINGS, read
from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import Consumed, Serdes, StreamsBuilder
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

PEOPLE = Consumed.with_(Serdes.string(), Serdes.string())


def both(left: Column, right: Column) -> Column:
    return F.concat_ws("+", left, F.coalesce(right, F.lit("_")))


def test_each_record_finds_the_row_that_it_names_and_records_keep_their_order() -> None:
    """Rows of a micro-batch are there before its records; null selectors and values as in Kafka Streams."""
    builder = StreamsBuilder()
    towns = builder.global_table("towns", PEOPLE)
    orders = builder.stream("orders", STRINGS)
    orders.join(towns, lambda key, value: F.substring(value, 1, 1), both).to("inner")
    orders.left_join(towns, lambda value: F.nullif(F.substring(value, 1, 1), F.lit("-")), both).to("left")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        text = Serdes.string()
        asked = [("a", f"{letter}{number}", number) for number, letter in enumerate("bcxbc-b")]
        rows = [("b", "Bonn", 50), ("c", "Cork", 60), (None, "nobody", 70)]
        with driver.one_batch():
            for topic, records in (("orders", asked), ("towns", rows)):
                driver.create_input_topic(topic, text, text).pipe_record_list(
                    [TestRecord(key, value, time) for key, value, time in records]
                )
        assert read(driver, "inner") == [
            ("a", value) for value in ("b0+Bonn", "c1+Cork", "b3+Bonn", "c4+Cork", "b6+Bonn")
        ]
        found = ("b0+Bonn", "c1+Cork", "x2+_", "b3+Bonn", "c4+Cork", "-5+_", "b6+Bonn")
        assert read(driver, "left") == [("a", value) for value in found]
        driver.create_input_topic("towns", text, text).pipe_input("b", None)
        later = driver.create_input_topic("orders", text, text)
        later.pipe_record_list(
            [TestRecord("k", "b9", 9), TestRecord(None, "c9", 9), TestRecord("k", None, 9)]
        )
        assert read(driver, "inner") == [(None, "c9+Cork")]
        assert sorted(read(driver, "left"), key=str) == [("k", "b9+_"), (None, "c9+Cork")]
