"""One factory opens each kind of store, on disk or in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from segmented import MINUTE, TASK, record

from millstream.errors import LockException
from millstream.metrics.rocksdb_metrics import HasProperties
from millstream.model import StoreKind
from millstream.stores.memory_store import MemoryStore
from millstream.stores.opening import open_store
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.segments import SegmentedSessionStore, SegmentedWindowStore
from millstream.topology.nodes import Store

pytestmark = pytest.mark.disk

KEY_VALUE = Store("s")
WINDOW = Store("s", kind=StoreKind.WINDOW, window_size_ms=MINUTE, retention_ms=10 * MINUTE)
DUPLICATES = replace(WINDOW, duplicates=True)
SESSION = Store("s", kind=StoreKind.SESSION, retention_ms=10 * MINUTE)
TYPES = {
    StoreKind.KEY_VALUE: RocksDBStore,
    StoreKind.WINDOW: SegmentedWindowStore,
    StoreKind.SESSION: SegmentedSessionStore,
}


@pytest.mark.parametrize("store", [KEY_VALUE, WINDOW, SESSION], ids=str)
def test_each_kind_is_what_it_says(store: Store, tmp_path: Path) -> None:
    """A store on disk is in the given directory and has RocksDB's figures."""
    opened = open_store(store, TASK, tmp_path / "s")
    assert type(opened) is TYPES[store.kind]
    assert (opened.name, opened.task_id, opened.is_open) == ("s", TASK, True)
    assert isinstance(opened, HasProperties)
    assert opened.properties()["background-errors"] == 0
    assert (tmp_path / "s" / "CURRENT").exists()
    opened.close()


@pytest.mark.parametrize("store", [KEY_VALUE, WINDOW, SESSION], ids=str)
@pytest.mark.parametrize("how", ["in_memory", "not persistent", "no path"])
def test_a_store_in_memory_leaves_nothing_on_disk(store: Store, how: str, tmp_path: Path) -> None:
    """The configuration, the declaration or a missing path puts it there; it has no figures of RocksDB."""
    declared = replace(store, persistent=how != "not persistent")
    path = None if how == "no path" else tmp_path / "s"
    opened = open_store(declared, TASK, path, in_memory=how == "in_memory")
    assert not isinstance(opened, HasProperties)
    assert list(tmp_path.iterdir()) == []
    assert isinstance(opened, MemoryStore if store is KEY_VALUE else TYPES[store.kind])
    opened.close()


@pytest.mark.parametrize("retention", [None, 0, -5])
@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_windows_need_a_retention(kind: StoreKind, retention: int | None, tmp_path: Path) -> None:
    """Nothing is opened without one."""
    with pytest.raises(
        ValueError, match=f"{kind.value} store 's' is declared with a retention of {retention}"
    ):
        open_store(Store("s", kind=kind, retention_ms=retention), TASK, tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("before", [KEY_VALUE, WINDOW, DUPLICATES, SESSION], ids=str)
@pytest.mark.parametrize("after", [KEY_VALUE, WINDOW, DUPLICATES, SESSION], ids=str)
def test_a_store_of_another_kind_starts_afresh(
    before: Store, after: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is on disk under its name means nothing to it; the changelog has everything."""
    store = open_store(before, TASK, tmp_path)
    store.apply([record(b"a", 1, 2) if before is SESSION else record(b"a", 1)], 1)
    store.close()
    store = open_store(after, TASK, tmp_path)
    same = before is after
    assert store.position == (1 if same else None)
    assert ("it is wiped, and restored from its changelog" in caplog.text) is not same
    assert (store.approximate_num_entries() > 0) is same
    store.close()


def test_a_store_that_is_open_elsewhere_is_not_opened(tmp_path: Path) -> None:
    """This holds for any kind; the open store continues."""
    store = open_store(WINDOW, TASK, tmp_path)
    for other in (KEY_VALUE, WINDOW, SESSION):
        with pytest.raises(LockException):
            open_store(other, TASK, tmp_path)
    store.apply([record(b"a", 1)], 1)
    store.close()
