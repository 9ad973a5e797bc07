"""RocksDB's figures, from real stores."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from waiting import wait_until

from millstream.metrics.client_metrics import MetricsView, client_metrics, rocksdb_readings
from millstream.metrics.rocksdb_metrics import RocksDBMetricsRecorder
from millstream.metrics.rocksdb_properties import PROPERTIES
from millstream.model import StoreKind, TaskId
from millstream.ports import KeyValueBytesStore
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError

pytestmark = pytest.mark.disk


def test_the_figures_of_open_stores_are_kept_by_task_and_store(tmp_path: Path) -> None:
    """Those that RocksDB keeps; one that has closed is left out the next time."""
    one = RocksDBStore("counts", TaskId(0, 1), tmp_path / "one")
    two = RocksDBStore("counts", TaskId(0, 2), tmp_path / "two")
    stores: list[KeyValueBytesStore] = [one, two, MemoryStore("m", TaskId(0, 3))]
    one.apply([(b"%d" % number, b"v", 0) for number in range(10)], 10)
    recorder = RocksDBMetricsRecorder("app-1", lambda: stores)
    assert recorder.values() == {}
    recorder.record()
    assert set(recorder.values()) == {(TaskId(0, 1), "counts"), (TaskId(0, 2), "counts")}
    figures = recorder.values()[TaskId(0, 1), "counts"]
    assert figures["estimate-num-keys"] == 10
    assert figures["cur-size-all-mem-tables"] > 0
    assert figures["block-cache-capacity"] == 64 << 20
    places = {(TaskId(0, 1), "counts"): ("t1", StoreKind.WINDOW)}
    readings = rocksdb_readings(recorder.values(), places)
    metrics = client_metrics(MetricsView("app-1", "app", "uuid", "1", "RUNNING"), readings)
    assert metrics.value("estimate-num-keys", thread_id="t1", rocksdb_window_state_id="counts") == 10
    one.close()
    recorder.record()
    assert set(recorder.values()) == {(TaskId(0, 2), "counts")}
    two.close()


def test_each_figure_has_kafkas_name_and_description(tmp_path: Path) -> None:
    """What a store gives is what the table describes; a closed store gives nothing."""
    store = RocksDBStore("counts", TaskId(0, 1), tmp_path)
    assert set(store.properties()) == set(PROPERTIES)
    assert all(PROPERTIES.values())
    store.close()
    with pytest.raises(ClosedStoreError):
        store.properties()


class Broken(MemoryStore):
    """Its figures cannot be read."""

    def properties(self) -> dict[str, int]:
        raise OSError("the disk is gone")


def test_a_store_without_figures_is_told_and_the_others_are_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One broken store is not all of them."""
    store = RocksDBStore("counts", TaskId(0, 1), tmp_path)
    recorder = RocksDBMetricsRecorder("app-1", lambda: [Broken("b", TaskId(0, 0)), store])
    recorder.record()
    assert set(recorder.values()) == {(TaskId(0, 1), "counts")}
    assert "no figures of store 'b' of task 0_0: the disk is gone" in caplog.text
    store.close()


def test_the_thread_reads_again_and_again_and_outlives_failures(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After it is stopped, the last figures stay."""
    store = RocksDBStore("counts", TaskId(0, 1), tmp_path)
    calls: list[str] = []

    def stores() -> list[KeyValueBytesStore]:
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            raise RuntimeError("not now")
        return [store]

    recorder = RocksDBMetricsRecorder("app-1", stores, every_s=0.005)
    recorder.start()
    wait_until(lambda: len(calls) > 3, "several readings")
    store.apply([(b"k", b"v", 0)], 1)
    key = (TaskId(0, 1), "counts")
    wait_until(lambda: recorder.values().get(key, {}).get("estimate-num-keys") == 1, "the new figure")
    assert recorder.stop()
    assert set(calls) == {"app-1-RocksDBMetrics"}
    assert key in recorder.values()
    assert "could not be read; retrying" in caplog.text
    store.close()


def test_stopping_does_not_wait_for_the_next_reading() -> None:
    """It may be stopped twice, or before the start."""
    assert RocksDBMetricsRecorder("app-1", list).stop()
    recorder = RocksDBMetricsRecorder("app-1", list, every_s=3600)
    recorder.start()
    before = time.monotonic()
    assert recorder.stop()
    assert recorder.stop()
    assert time.monotonic() - before < 5
