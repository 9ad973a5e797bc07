"""Joins by a foreign key on Spark, beside those of Kafka Streams' traces (test_joins_on_spark.py)."""

from __future__ import annotations

from typing import Any

import pytest
from driving import STRINGS, records
from pyspark.sql import functions as F

from millstream import Consumed, Serdes, StreamsBuilder, Topology, TopologyException
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

MANY = 500
"""Rows that refer to one row: more than the kernel has on a page, by far."""


def driven(topology: Topology) -> TopologyTestDriver:
    return TopologyTestDriver(topology, {"application.id": "app", "statestore.cache.max.bytes": 0})


def together(left: Any, right: Any) -> Any:
    return F.concat_ws("+", left, right)


def test_many_rows_of_one_foreign_key_move_to_another() -> None:
    """Each hears of every change of the row that it refers to, in the order of keys; and of no other."""
    builder = StreamsBuilder()
    users = builder.table("users", STRINGS)
    orders = builder.table("orders", STRINGS)
    orders.join(users, lambda user: user, together).to_stream().to("out")
    keys = sorted(str(number) for number in range(MANY))
    with driven(builder.build()) as driver:
        user = driver.create_input_topic("users", Serdes.string(), Serdes.string())
        order = driver.create_input_topic("orders", Serdes.string(), Serdes.string())

        def came() -> list[tuple[Any, Any, int]]:
            return [
                (r.key, r.value, r.timestamp)
                for r in records(driver, "out", Serdes.string(), Serdes.string())
            ]

        order.pipe_record_list([TestRecord(key, "u", 1) for key in keys])
        user.pipe_input("u", "U", timestamp=2)
        assert came() == [(key, "u+U", 2) for key in keys]
        order.pipe_record_list([TestRecord(key, "w", 3) for key in keys[::2]])
        assert sorted(came()) == [(key, None, 3) for key in keys[::2]]
        order.pipe_record_list([TestRecord(key, None, 4) for key in keys[1::4]])
        assert sorted(came()) == [(key, None, 4) for key in keys[1::4]]
        user.pipe_input("u", "V", timestamp=5)
        assert came() == [(key, "u+V", 5) for key in keys[3::4]]
        user.pipe_input("w", "W", timestamp=6)
        assert came() == [(key, "w+W", 6) for key in keys[::2]]


def test_rows_that_change_at_once_have_the_result_of_the_last_change() -> None:
    """In one micro-batch: an answer for a value that a row does not have any more is no result."""
    builder = StreamsBuilder()
    users = builder.table("users", STRINGS)
    orders = builder.table("orders", STRINGS)
    orders.left_join(users, lambda user: F.substring(user, 1, 1), together).to_stream().to("out")
    with driven(builder.build()) as driver:
        user = driver.create_input_topic("users", Serdes.string(), Serdes.string())
        user.pipe_record_list([TestRecord("u", "U", 1), TestRecord("w", "W", 1)])
        order = driver.create_input_topic("orders", Serdes.string(), Serdes.string())
        order.pipe_record_list(
            [TestRecord("a", value, 2 + at) for at, value in enumerate(("u1", "w1", "u2", "w2", "u3"))]
        )
        found = [
            (r.key, r.value, r.timestamp) for r in records(driver, "out", Serdes.string(), Serdes.string())
        ]
        assert found == [("a", "u3+U", 6)]


def test_mistakes_are_told_with_their_place() -> None:
    """A foreign key of another type than the keys that it names, and what is no column at all."""

    def topology(extractor: Any) -> Topology:
        builder = StreamsBuilder()
        users = builder.table("users", STRINGS)
        orders = builder.table(
            "orders", Consumed.with_(Serdes.string(), Serdes.json("user INT, item STRING"))
        )
        orders.join(users, extractor, lambda order, user: user).to_stream().to("out")
        return builder.build()

    told = (
        r"KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-\d+: the foreign key has the serde 'string', but its "
        "column is int"
    )
    with pytest.raises(TopologyException, match=told):
        driven(topology(lambda order: order.user))
    with pytest.raises(TopologyException, match=r"(?s)KTABLE-FK-JOIN.*<lambda>.*returned None"):
        driven(topology(lambda order: None))
