"""Readers of windows and sessions, the writer and `close()` at once: right answers, or ClosedStoreError."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from segmented import MINUTE, open_segmented, record
from test_store_races import Crowd

from millstream.model import StoreKind
from millstream.stores.store_base import ClosedStoreError, timestamp_of

pytestmark = pytest.mark.disk

KEYS = [b"%03d" % n for n in range(40)]
RETENTION = 4 * MINUTE
"""Two segments of two minutes, and a third that comes and goes."""


def path_of(place: str, tmp_path: Path) -> Path | None:
    return None if place == "memory" else tmp_path / "store"


@pytest.mark.parametrize("place", ["memory", "rocksdb", "rocksdb, writer waits"])
@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
def test_a_scan_of_several_segments_sees_one_batch(
    place: str, kind: StoreKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each batch writes every live window of every key anew, adds a minute, and so drops what is too old; a
    scan has all of one batch and nothing of another. Close ends all with one error."""
    if place == "rocksdb, writer waits":  # what it comes to when a write falls between again and again
        monkeypatch.setattr("millstream.stores.rocksdb_store._SCAN_ATTEMPTS", 0)
    store = open_segmented(kind, path_of(place, tmp_path), RETENTION)
    minute = 0

    def times(number: int) -> tuple[int, ...]:
        return (number * MINUTE,) if kind is StoreKind.WINDOW else (0, number * MINUTE)

    def write() -> None:
        nonlocal minute
        store.apply(
            [
                record(key, *times(minute - back), at=minute)
                for back in range(4)
                for key in KEYS
                if minute >= back
            ],
            minute + 1,
        )
        minute += 1

    def scan(*bounds: Any, reverse: bool = False) -> list[Any]:
        method = store.fetch if kind is StoreKind.WINDOW else store.find
        return list(method(*bounds, reverse=reverse))

    for _ in range(5):
        write()

    def check(entries: list[Any], keys: list[bytes]) -> None:
        stamps = {timestamp_of(stored) for _, stored in entries}
        assert len(stamps) == 1, stamps
        newest = stamps.pop()
        expected = [(key, *times(number)) for key in keys for number in range(newest - 3, newest + 1)]
        assert sorted(key for key, _ in entries) == expected

    crowd = Crowd()
    crowd.start("write", write)
    crowd.start("scan", lambda: check(scan(None, None, None, None), KEYS))
    crowd.start("scan backwards", lambda: check(scan(None, None, None, None, reverse=True), KEYS))
    crowd.start("range", lambda: check(scan(KEYS[5], KEYS[9], None, None), KEYS[5:10]))
    crowd.start("one key", lambda: check(scan(KEYS[7], KEYS[7], None, None), KEYS[7:8]))
    crowd.wait_until_each_took(20)
    store.close()
    crowd.join()
    assert [type(error) for error in crowd.raised] == [ClosedStoreError] * 5, crowd.raised


@pytest.mark.parametrize("place", ["memory", "rocksdb"])
def test_readers_of_windows_that_race_close_meet_only_closed_store_error(place: str, tmp_path: Path) -> None:
    """Opened and closed many times under running readers; the directory can be opened again each time."""
    for turn in range(5):
        store = open_segmented(StoreKind.WINDOW, path_of(place, tmp_path), RETENTION)
        store.apply([record(key, number * MINUTE) for key in KEYS for number in range(4)], turn)

        def fetch_one(store: Any = store) -> None:
            assert store.fetch_one(KEYS[7], 3 * MINUTE) is not None

        def fetch(store: Any = store) -> None:
            assert len(list(store.fetch(KEYS[7], KEYS[7], None, None))) == 4

        def scan(store: Any = store) -> None:
            entries = store.fetch(None, None, None, None, reverse=True)
            assert next(entries)[0] == (KEYS[-1], 3 * MINUTE)
            assert len(list(entries)) == 4 * len(KEYS) - 1

        crowd = Crowd()
        for name, step in (("one", fetch_one), ("fetch", fetch), ("fetch 2", fetch), ("scan", scan)):
            crowd.start(name, step)
        crowd.wait_until_each_took(3)
        store.close()
        crowd.join()
        assert [type(error) for error in crowd.raised] == [ClosedStoreError] * 4, crowd.raised
