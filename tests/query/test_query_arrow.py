"""A store as an Arrow table."""

from __future__ import annotations

import uuid

import pyarrow as pa
import pytest
from worlds import Client

from millstream.model import ValueAndTimestamp
from millstream.query.arrow import to_table


def test_a_store_is_a_table_of_keys_and_values() -> None:
    """Types follow the serdes, rows the order of the keys."""
    client = Client()
    client.put("b", "aa", "ccc")
    table = client.store().to_arrow()
    assert table.schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert table.to_pydict() == {"key": ["aa", "b", "ccc"], "value": [2, 1, 3]}


def test_an_empty_store_is_an_empty_table_with_the_same_types() -> None:
    """So that what reads it does not break."""
    table = Client().store(timestamped=True).to_arrow()
    assert table.num_rows == 0
    assert table.schema == pa.schema(
        [("key", pa.string()), ("value", pa.int64()), ("timestamp", pa.timestamp("ms", tz="UTC"))]
    )


def test_a_timestamped_store_has_a_third_column() -> None:
    """In UTC, to the millisecond."""
    client = Client()
    client.put("a", timestamp=1_700_000_000_123)
    row = client.store(timestamped=True).to_arrow().to_pylist()[0]
    assert (row["key"], row["value"]) == ("a", 1)
    assert row["timestamp"].isoformat() == "2023-11-14T22:13:20.123000+00:00"


@pytest.mark.parametrize(
    ("serde", "value", "kind"),
    [
        ("bytes", b"\xff", pa.binary()),
        ("string", "x", pa.string()),
        ("short", 1, pa.int16()),
        ("integer", 1, pa.int32()),
        ("long", 2**62, pa.int64()),
        ("float", 0.5, pa.float32()),
        ("double", 0.1, pa.float64()),
        ("boolean", True, pa.bool_()),
    ],
)
def test_each_serde_has_its_arrow_type(serde: str, value: object, kind: pa.DataType) -> None:
    """The one that holds exactly its values."""
    table = to_table([(value, value)], serde, serde, timestamped=False)
    assert table.schema.types == [kind, kind]
    assert table.to_pylist() == [{"key": value, "value": value}]


def test_a_uuid_is_its_text() -> None:
    """As it is in Spark."""
    one = uuid.uuid4()
    assert to_table([(one, 1)], "uuid", "long", timestamped=False)["key"].to_pylist() == [str(one)]


def test_json_values_become_structs() -> None:
    """A field that is missing is null."""
    table = to_table([("a", {"x": 1, "y": "t"}), ("b", {"x": 2})], "string", "json", timestamped=False)
    assert table.schema.field("value").type == pa.struct([("x", pa.int64()), ("y", pa.string())])
    assert table["value"].to_pylist() == [{"x": 1, "y": "t"}, {"x": 2, "y": None}]


def test_json_values_without_a_common_shape_become_text() -> None:
    """With timestamps too; nothing is lost."""
    values = [("a", ValueAndTimestamp({"x": 1}, 1)), ("b", ValueAndTimestamp([1], 2))]
    table = to_table(values, "string", "json", timestamped=True)
    assert table["value"].to_pylist() == ['{"x": 1}', "[1]"]


def test_a_store_is_a_data_frame() -> None:
    """With the columns of the table."""
    client = Client()
    client.put("a", "bb")
    frame = client.store().to_pandas()
    assert frame.to_dict("list") == {"key": ["a", "bb"], "value": [1, 2]}
