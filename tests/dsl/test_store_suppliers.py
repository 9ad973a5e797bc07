"""Store suppliers: what each of `Stores` means for a table's store, and which tables it goes with."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from millstream import (
    Consumed,
    Materialized,
    Serdes,
    SessionWindows,
    Stores,
    StoreType,
    StreamsBuilder,
    TimeWindows,
    TopologyException,
)
from millstream.model import StoreKind, TaskId
from millstream.stores.memory_store import MemoryStore
from millstream.stores.opening import open_store
from millstream.topology.nodes import Store

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def table_store(supplier: Any) -> Store:
    """Of a table that is read from a topic."""
    builder = StreamsBuilder()
    table = builder.table("in", STRINGS, Materialized.as_(supplier))
    assert table.queryable_store_name == supplier.name
    (node,) = (node for node in builder.build().nodes if node.store is not None)
    assert node.store is not None
    return node.store


def windowed_store(supplier: Any, windows: Any) -> Store:
    """Of an aggregation with windows."""
    builder = StreamsBuilder()
    grouped = builder.stream("in", STRINGS).group_by_key()
    grouped.windowed_by(windows).count(Materialized.as_(supplier))
    (node,) = (node for node in builder.build().nodes if node.store is not None)
    assert node.store is not None
    return node.store


def test_key_value_suppliers_say_where_a_store_is() -> None:
    """And versioned ones how far back it goes."""
    rocks = table_store(Stores.persistent_key_value_store("s"))
    assert (rocks.name, rocks.persistent, rocks.type_is_default, rocks.history_ms) == ("s", True, False, None)
    assert rocks == table_store(Stores.persistent_timestamped_key_value_store("s"))
    assert not table_store(Stores.in_memory_key_value_store("s")).persistent
    versioned = table_store(Stores.persistent_versioned_key_value_store("s", HOUR, MINUTE))
    assert (versioned.persistent, versioned.history_ms) == (True, 3_600_000)
    with pytest.raises(TopologyException, match="historyRetention cannot be negative"):
        Stores.persistent_versioned_key_value_store("s", -HOUR)
    with pytest.raises(TopologyException, match="segmentInterval cannot be zero or negative"):
        Stores.persistent_versioned_key_value_store("s", HOUR, timedelta(0))
    with pytest.raises(TopologyException, match="store name"):
        Stores.in_memory_key_value_store("a b")


def test_window_and_session_suppliers_say_how_long_windows_are_kept() -> None:
    """With the windows' own size."""
    minutes, visits = (
        TimeWindows.of_size_with_no_grace(MINUTE),
        SessionWindows.of_inactivity_gap_with_no_grace(MINUTE),
    )
    for supplier, persistent in (
        (Stores.persistent_window_store("s", HOUR, MINUTE), True),
        (Stores.persistent_timestamped_window_store("s", HOUR, MINUTE), True),
        (Stores.in_memory_window_store("s", HOUR, MINUTE), False),
    ):
        store = windowed_store(supplier, minutes)
        assert (store.kind, store.persistent) == (StoreKind.WINDOW, persistent)
        assert (store.retention_ms, store.window_size_ms) == (3_600_000, 60_000)
    for supplier, persistent in (
        (Stores.persistent_session_store("s", HOUR), True),
        (Stores.in_memory_session_store("s", HOUR), False),
    ):
        store = windowed_store(supplier, visits)
        assert (store.kind, store.persistent) == (StoreKind.SESSION, persistent)
        assert store.retention_ms == 3_600_000


def test_a_supplier_goes_with_tables_of_its_kind() -> None:
    """Java's compiler sees that; and whoever reads windows goes by the size that the store has."""
    minutes = TimeWindows.of_size_with_no_grace(MINUTE)
    with pytest.raises(
        TopologyException, match=r"is a key-value store, .* a window store: use Stores.persistent_w"
    ):
        windowed_store(Stores.persistent_key_value_store("s"), minutes)
    with pytest.raises(TopologyException, match=r"is a window store, .* a key-value store"):
        table_store(Stores.persistent_window_store("s", HOUR, MINUTE))
    with pytest.raises(TopologyException, match="of another size than windowed_by"):
        windowed_store(Stores.in_memory_window_store("s", HOUR, 2 * MINUTE), minutes)
    with pytest.raises(
        TopologyException, match=r"no smaller than its window size. Got size=\[60000\], retention=\[0\]"
    ):
        Stores.persistent_window_store("s", timedelta(0), MINUTE)
    with pytest.raises(TopologyException, match="cannot retain duplicates"):
        windowed_store(Stores.persistent_window_store("s", HOUR, MINUTE, True), minutes)
    with pytest.raises(TopologyException, match="retentionPeriod cannot be negative"):
        Stores.in_memory_session_store("s", -HOUR)


def test_what_a_supplier_says_is_not_said_again() -> None:
    """As in Kafka Streams, for the type of the store; there a retention is then passed over."""
    made = Materialized.as_(Stores.persistent_key_value_store("s")).with_value_serde(Serdes.long())
    assert made.with_caching_disabled().with_logging_disabled().store_name == "s"
    said = "when store supplier is pre-configured"
    with pytest.raises(TopologyException, match=f"Cannot set store type {said}"):
        made.with_store_type(StoreType.IN_MEMORY)
    with pytest.raises(TopologyException, match=f"Cannot set retention {said}"):
        made.with_retention(HOUR)
    with pytest.raises(TopologyException, match=f"Cannot set history {said}"):
        made.with_history(HOUR)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("lru_map", "no key can be evicted"),
        ("lruMap", "no key can be evicted"),
        ("persistent_session_store_with_headers", "no headers"),
        ("inMemoryKeyValueStore", "Did you mean 'in_memory_key_value_store'"),
    ],
)
def test_what_is_not_there_says_why(name: str, why: str) -> None:
    """In one sentence."""
    with pytest.raises(AttributeError, match=why):
        getattr(Stores, name)


@pytest.mark.disk
def test_the_configured_type_is_for_stores_that_have_none(tmp_path: Path) -> None:
    """default.dsl.store=in_memory, and a store that the program wants in RocksDB."""
    for store, is_memory in (
        (Store("a"), True),
        (table_store(Stores.persistent_key_value_store("b")), False),
    ):
        with closing(open_store(store, TaskId(0, 0), tmp_path / store.name, in_memory=True)) as opened:
            assert isinstance(opened, MemoryStore) is is_memory
