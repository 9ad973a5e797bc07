"""A store as an Arrow table."""

from __future__ import annotations

import pyarrow as pa
from worlds import Client


def test_a_store_is_a_table_of_keys_and_values() -> None:
    """Types follow the serdes, rows the order of the keys."""
    client = Client()
    client.put("b", "aa", "ccc")
    table = client.store().to_arrow()
    assert table.schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert table.to_pydict() == {"key": ["aa", "b", "ccc"], "value": [2, 1, 3]}


def test_an_empty_store_is_an_empty_table_with_the_same_types() -> None:
    """The code that reads it does not break."""
    table = Client().store(timestamped=True).to_arrow()
    assert table.num_rows == 0
    assert table.schema == pa.schema(
        [("key", pa.string()), ("value", pa.int64()), ("timestamp", pa.timestamp("ms", tz="UTC"))]
    )


def test_a_timestamped_store_has_a_third_column() -> None:
    """It is in UTC, to the millisecond."""
    client = Client()
    client.put("a", timestamp=1_700_000_000_123)
    row = client.store(timestamped=True).to_arrow().to_pylist()[0]
    assert (row["key"], row["value"]) == ("a", 1)
    assert row["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


def test_a_store_is_a_data_frame() -> None:
    """It has the columns of the table."""
    client = Client()
    client.put("a", "bb")
    frame = client.store().to_pandas()
    assert frame.to_dict("list") == {"key": ["a", "bb"], "value": [1, 2]}
