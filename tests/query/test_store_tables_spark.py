"""Stores as Spark DataFrames, with a real session."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import Client

from millstream.model import StoreKind
from millstream.serdes.serdes import Serdes

pytestmark = pytest.mark.spark


def test_a_store_is_a_data_frame_of_spark(spark: Any) -> None:
    """Types follow the serdes; a struct's fields can be named."""
    serde = Serdes.json("user STRING, amount DOUBLE")
    client = Client([0], routed=False)
    declaration = replace(client.snapshot().stores["counts"], value_serde=serde)
    client.change(stores={"counts": declaration})
    data = serde.serialize({"user": "eva", "amount": 2})
    client.stores[0].apply([(b"a", data, 1_700_000_000_123)], 1)
    frame = client.store(timestamped=True).to_spark(spark)
    assert frame.dtypes == [
        ("key", "string"),
        ("value", "struct<user:string,amount:double>"),
        ("timestamp", "timestamp"),
    ]
    row = frame.selectExpr("key", "value.user", "value.amount", "unix_millis(timestamp)").collect()
    assert [tuple(each) for each in row] == [("a", "eva", 2.0, 1_700_000_000_123)]


def test_windows_are_columns_in_spark(spark: Any) -> None:
    """A query can join with them."""
    client = WindowedClient(StoreKind.WINDOW)
    client.add("a", now)
    client.keep_time()
    frame = client.windowed().to_spark(spark)
    rows = frame.selectExpr("key", "unix_millis(window_start)", "unix_millis(window_end)", "value").collect()
    assert [tuple(each) for each in rows] == [("a", now, now + MINUTE, 1)]


def test_an_empty_store_is_an_empty_data_frame(spark: Any) -> None:
    """It has its types."""
    frame = Client().store().to_spark(spark)
    assert frame.dtypes == [("key", "string"), ("value", "bigint")]
    assert frame.count() == 0
