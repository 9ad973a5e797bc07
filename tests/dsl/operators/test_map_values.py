"""KStream.map_values: rows in, rows out."""

from __future__ import annotations

from typing import Any

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import functions as F

from millstream import Consumed, Serdes, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark


def test_map_values_changes_the_value_and_keeps_the_key() -> None:
    """The mapper sees null values too, may return a Column, a dict, a list in it or a Python value."""
    builder = StreamsBuilder()
    stream = builder.stream("in", STRINGS)
    stream.map_values(lambda value: F.upper(value)).to("upper")
    stream.map_values(lambda key, value: F.concat_ws("+", key, value)).to("both")
    stream.map_values(lambda value: {"size": F.length(value), "parts": [value, F.lit("x")]}).to("struct")
    stream.map_values(lambda value: 1.5).to("constant")
    stream.map_values(lambda value: F.lit(None)).to("nothing")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "v"), ("l", None), (None, "w"))
        assert read(driver, "upper") == [("k", "V"), ("l", None), (None, "W")]
        assert read(driver, "both") == [("k", "k+v"), ("l", "l"), (None, "w")]
        shape = Serdes.json("size INT, parts ARRAY<STRING>")
        assert read(driver, "struct", value=shape) == [
            ("k", {"size": 1, "parts": ["v", "x"]}),
            ("l", {"size": None, "parts": [None, "x"]}),
            (None, {"size": 1, "parts": ["w", "x"]}),
        ]
        assert read(driver, "constant", value=Serdes.double()) == [("k", 1.5), ("l", 1.5), (None, 1.5)]
        assert read(driver, "nothing", value=Serdes.bytes()) == [("k", None), ("l", None), (None, None)]


def test_the_third_parameter_tells_where_a_record_came_from() -> None:
    """`record` has topic, partition, offset, timestamp and headers of the source's record."""

    def context(key: Any, value: Any, record: Any) -> Any:
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "ms": F.unix_millis(record.timestamp),
            "header": F.get(record.headers, F.lit(0))["value"].cast("string"),
        }

    builder = StreamsBuilder()
    builder.stream(["one", "two"], STRINGS).map_values(context).to("out")
    shape = Serdes.json("topic STRING, partition INT, offset BIGINT, ms BIGINT, header STRING")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "one", (None, "", 1_700_000_000_123), (None, "", 0, (("h", b"hi"),)))
        pipe(driver, "two", (None, "", 5))
        assert [value for _, value in read(driver, "out", value=shape)] == [
            {"topic": "one", "partition": 0, "offset": 0, "ms": 1_700_000_000_123, "header": None},
            {"topic": "one", "partition": 0, "offset": 1, "ms": 0, "header": "hi"},
            {"topic": "two", "partition": 0, "offset": 0, "ms": 5, "header": None},
        ]


def test_a_json_value_is_a_struct_whose_fields_are_columns() -> None:
    """Fields are reached by attribute or by name; a whole struct passes through unchanged."""
    orders = Serdes.json("user STRING, amount DOUBLE, item STRUCT<id: INT, tags: ARRAY<STRING>>")
    builder = StreamsBuilder()
    stream = builder.stream("orders", Consumed.with_(Serdes.string(), orders))
    stream.filter(lambda value: (value.amount > 10) & F.array_contains(value["item"].tags, "new")).to("copy")
    stream.map_values(lambda value: value["item"]["id"]).to("ids")
    big = {"user": "ann", "amount": 10.5, "item": {"id": 1, "tags": ["new"]}}
    small = {"user": "bob", "amount": 10.0, "item": {"id": 2, "tags": []}}
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "orders", ("a", big), ("b", small), ("c", {}), ("d", None), value=orders)
        assert read(driver, "copy", value=orders) == [("a", big)]
        ids = read(driver, "ids", value=Serdes.integer())
        assert ids == [("a", 1), ("b", 2), ("c", None), ("d", None)]


def test_a_python_function_is_used_through_pysparks_own_udf() -> None:
    """`F.udf` inside the lambda runs Python on the workers, record by record."""
    builder = StreamsBuilder()
    reverse = F.udf(lambda text: None if text is None else text[::-1], "string")
    builder.stream("in", STRINGS).map_values(lambda value: reverse(value)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "abc"), ("l", None))
        assert read(driver, "out") == [("k", "cba"), ("l", None)]
