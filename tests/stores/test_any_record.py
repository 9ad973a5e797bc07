"""Stores take every record that can be in a topic: what no layout has a place for is left out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.model import StoreKind, TaskId
from millstream.stores.opening import open_store
from millstream.topology.nodes import Store

STORES = {
    "key-value": {},
    "versioned": {"history_ms": 1_000},
    "window": {"kind": StoreKind.WINDOW, "window_size_ms": 1_000, "retention_ms": 5_000},
    "session": {"kind": StoreKind.SESSION, "retention_ms": 5_000},
}
EDGES = (0, 1, -1, 2**62, -(2**62), 2**63 - 1, -(2**63))
TIMES = st.one_of(st.sampled_from(EDGES), st.integers(-(2**63), 2**63 - 1))
KEYS = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.binary(max_size=3), TIMES, TIMES).map(
        lambda parts: parts[0] + b"".join(time.to_bytes(8, "big", signed=True) for time in parts[1:])
    ),
)
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=5)), TIMES), max_size=12)


@pytest.mark.parametrize("kind", STORES)
@given(batches=st.lists(RECORDS, min_size=1, max_size=3))
@example(batches=[[(b"k", b"v", time), (b"k", b"w", other)] for time in EDGES for other in EDGES])
def test_a_store_takes_any_record(kind: str, batches: list[list[Any]]) -> None:
    """One after the other, with times at both ends of what 64 bits can be; it is complete up to the last."""
    options: Any = STORES[kind]
    store: Any = open_store(Store("any", **options), TaskId(0, 0), None)
    offset = 0
    for records in batches:
        offset += len(records)
        store.apply(records, offset)
        assert store.position == offset
    store.close()
