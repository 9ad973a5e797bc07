"""Tables with a column for each field, and what a notebook shows of a store."""

from __future__ import annotations

import pyarrow as pa
import pytest
from test_store_tables import client_with
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import Client

from millstream.model import StoreKind
from millstream.query.store_tables import flat
from millstream.serdes.serdes import Serdes

ORDER = "customer string, amount double, address struct<city string, zip string>"


def test_pandas_has_a_column_for_each_field() -> None:
    """Keys, values and nested fields have columns. A field of a null value or struct is null."""
    key = Serdes.json("region string, number long")
    client = client_with(
        key,
        Serdes.json(ORDER),
        (
            {"region": "eu", "number": 1},
            {"customer": "ann", "amount": 1.5, "address": {"city": "Bonn", "zip": "5"}},
        ),
        ({"region": "eu", "number": 2}, {"customer": "bob", "amount": 2.0, "address": None}),
    )
    frame = client.store().to_pandas()
    assert list(frame.columns) == [
        "key.region",
        "key.number",
        "value.customer",
        "value.amount",
        "value.address.city",
        "value.address.zip",
    ]
    assert frame["value.amount"].sum() == 3.5
    assert frame["value.address.city"].tolist() == ["Bonn", None]
    assert list(client.store().to_arrow().column_names) == ["key", "value"], "Arrow has structs"


def test_an_empty_store_has_the_same_columns() -> None:
    """The schema tells them; a struct without fields stays one column."""
    frame = client_with(Serdes.string(), Serdes.json(ORDER)).store().to_pandas()
    assert list(frame.columns)[:2] == ["key", "value.customer"]
    assert len(frame) == 0
    bare = pa.table({"key": ["a"], "value": pa.array([{}], pa.struct([]))})
    assert flat(bare).column_names == ["key", "value"]


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_windows_have_a_start_and_an_end(kind: StoreKind) -> None:
    """They are times, in columns of their own."""
    client = WindowedClient(kind)
    client.add("ann", *([now - MINUTE, now] if kind is StoreKind.SESSION else [now]))
    frame = client.windowed().to_pandas()
    assert list(frame.columns)[:3] == ["key", "window_start", "window_end"]
    assert (frame["window_end"] - frame["window_start"]).dt.total_seconds().tolist() == [60.0]


def test_a_notebook_shows_the_first_entries() -> None:
    """Ten of them, whatever is in them as text; no iterator is left open."""
    client = Client()
    client.put("<script>", *(f"key-{number}" for number in range(20)))
    html = client.store()._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script" not in html
    assert html.count("<tr") == 11
    assert "to_pandas() has all" in html
    assert [len(part._iterators) for part in client.stores.values()] == [0, 0, 0]
