"""A window store on a damaged disk: an error, never a window that is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from segmented import MINUTE, TASK, open_segmented, record
from test_rocksdb_store import spoil_table

from millstream.errors import ProcessorStateException
from millstream.model import StoreKind
from millstream.stores.rocksdb_store import RocksDBStore

pytestmark = pytest.mark.disk

KEYS = [b"key-%05d" % n for n in range(3000)]
STARTS = [MINUTE, 7 * MINUTE]

READS: dict[str, Callable[[Any], Any]] = {
    "all": lambda store: list(store.fetch(None, None, None, None)),
    "all, backwards": lambda store: list(store.fetch(None, None, None, None, reverse=True)),
    "a range": lambda store: list(store.fetch(KEYS[1], KEYS[-2], None, None)),
    "a range, backwards": lambda store: list(store.fetch(KEYS[1], KEYS[-2], None, None, reverse=True)),
    "one key at a time": lambda store: [list(store.fetch(key, key, None, None)) for key in KEYS],
    "one key at a time, backwards": lambda store: [
        list(store.fetch(key, key, None, None, reverse=True)) for key in KEYS
    ],
    "one window at a time": lambda store: [store.fetch_one(key, start) for key in KEYS for start in STARTS],
}


@pytest.mark.parametrize("read", READS)
def test_a_damaged_block_is_an_error_and_never_a_missing_window(tmp_path: Path, read: str) -> None:
    """Any segment may be damaged; the next open starts empty, to be restored."""
    store = open_segmented(StoreKind.WINDOW, tmp_path)
    store.apply([record(key, start, value=b"value " * 20) for start in STARTS for key in KEYS], 5)
    store._inner._db.flush()
    store.close()
    spoil_table(tmp_path)
    store = open_segmented(StoreKind.WINDOW, tmp_path)
    with pytest.raises(ProcessorStateException, match=r"could not be read: Corruption.*restored from its"):
        READS[read](store)
    store.close()
    again = open_segmented(StoreKind.WINDOW, tmp_path)
    assert again.position is None
    assert again.stream_time_ms is None
    again.close()


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_damage_where_the_layout_is_kept_is_found_when_it_is_opened(
    kind: StoreKind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins afresh at once, with warnings; what was damaged is closed, so that nothing holds its lock."""
    store = open_segmented(kind, tmp_path)
    times = (MINUTE,) if kind is StoreKind.WINDOW else (MINUTE, MINUTE)
    store.apply([record(b"key-%02d" % n, *times, value=b"%d" % n * 30) for n in range(20)], 5)
    store.close()
    # Now it is in a table file, and only there; opened without a read, so that no block is cached.
    RocksDBStore("windows", TASK, tmp_path).close()
    table = max(tmp_path.glob("*.sst"), key=lambda file: file.stat().st_size)
    with table.open("r+b") as handle:
        handle.seek(20)  # in its only block of data
        handle.write(b"X" * 20)
    store = open_segmented(kind, tmp_path)
    assert "could not be read: Corruption" in caplog.text
    assert "is damaged" in caplog.text
    assert store.position is None
    store.apply([record(b"a", *times)], 1)
    store.close()
    store = open_segmented(kind, tmp_path)
    assert store.position == 1
    store.close()
