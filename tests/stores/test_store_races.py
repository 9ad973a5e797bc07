"""Readers, the writer and `close()` at once: right answers, or ClosedStoreError, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millstream.model import TaskId
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError, timestamp_of

pytestmark = pytest.mark.disk

TASK = TaskId(0, 0)
KEYS = [b"%03d" % i for i in range(200)]


def open_kind(kind: str, path: Path) -> Any:
    return MemoryStore("s", TASK) if kind == "memory" else RocksDBStore("s", TASK, path)


class Crowd:
    """Threads that run a function until it raises; what each raised is kept."""

    def __init__(self) -> None:
        self.raised: list[BaseException] = []
        self.turns: dict[str, int] = {}
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, step: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while True:
                    step()
                    with self._changed:
                        self.turns[name] = self.turns.get(name, 0) + 1
                        self._changed.notify_all()
            except BaseException as error:
                with self._changed:
                    self.raised.append(error)
                    self._changed.notify_all()

        self._threads.append(threading.Thread(target=run, name=name, daemon=True))
        self._threads[-1].start()

    def wait_until_each_took(self, turns: int) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: (
                    bool(self.raised)
                    or (len(self.turns) == len(self._threads) and min(self.turns.values()) >= turns)
                ),
                30,
            )
            assert done, self.turns
            assert not self.raised, self.raised

    def join(self) -> None:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), thread.name


def check_whole(values: list[bytes | None]) -> None:
    """Every batch writes the same timestamp to every key: one read sees one batch."""
    stamps = {timestamp_of(value) for value in values if value is not None}
    assert len(stamps) <= 1, stamps
    assert None not in values


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_a_batch_is_seen_as_a_whole_while_readers_read(kind: str, tmp_path: Path) -> None:
    """A range and (in RocksDB: per snapshot) never mix two batches, and close ends all with one error."""
    store = open_kind(kind, tmp_path)
    store.apply([(key, b"v", 0) for key in KEYS], 0)
    crowd = Crowd()
    offset = 0

    def write() -> None:
        nonlocal offset
        offset += 1
        store.apply([(key, b"v", offset) for key in KEYS], offset)

    def scan() -> None:
        entries = list(store.range(None, None))
        assert len(entries) == len(KEYS)
        check_whole([value for _, value in entries])

    def scan_backwards() -> None:
        check_whole([value for _, value in store.range(KEYS[50], None, reverse=True)])

    def get() -> None:
        for key in KEYS:
            assert store.get(key) is not None

    def multi_get() -> None:
        found = store.multi_get(KEYS)
        assert None not in found

    for name, step in (
        ("write", write),
        ("scan", scan),
        ("scan backwards", scan_backwards),
        ("get", get),
        ("multi_get", multi_get),
    ):
        crowd.start(name, step)
    crowd.wait_until_each_took(5)
    store.close()
    crowd.join()
    assert [type(error) for error in crowd.raised] == [ClosedStoreError] * 5


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_readers_that_race_close_meet_only_closed_store_error(kind: str, tmp_path: Path) -> None:
    """Opened and closed many times under running readers; the directory can be opened again each time."""
    for turn in range(6):
        store = open_kind(kind, tmp_path / "s")
        store.apply([(key, b"v", turn) for key in KEYS], turn)
        crowd = Crowd()

        def get(store: Any = store) -> None:
            assert store.get(b"007") is not None

        def multi_get(store: Any = store) -> None:
            assert None not in store.multi_get(KEYS)

        def scan(store: Any = store) -> None:
            with_one = store.range(b"007", b"100")
            assert next(with_one)[0] == b"007"
            assert len(list(with_one)) == 93

        def count(store: Any = store) -> None:
            store.approximate_num_entries()

        for name, step in (
            ("get", get),
            ("get 2", get),
            ("multi_get", multi_get),
            ("scan", scan),
            ("count", count),
        ):
            crowd.start(name, step)
        crowd.wait_until_each_took(3)
        store.close()
        crowd.join()
        assert [type(error) for error in crowd.raised] == [ClosedStoreError] * 5, crowd.raised


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_close_waits_for_a_batch_that_is_being_applied(kind: str, tmp_path: Path) -> None:
    """The batch is whole or not there; the writer meets ClosedStoreError at the next one."""
    store = open_kind(kind, tmp_path)
    crowd = Crowd()
    offset = 0

    def write() -> None:
        nonlocal offset
        store.apply([(key, b"v", offset) for key in KEYS], offset + 1)
        offset += 1

    crowd.start("write", write)
    crowd.wait_until_each_took(3)
    store.close()
    crowd.join()
    assert [type(error) for error in crowd.raised] == [ClosedStoreError]
    if kind == "rocksdb":
        again = open_kind(kind, tmp_path)
        assert again.position == offset
        check_whole([value for _, value in again.range(None, None)])
        again.close()
