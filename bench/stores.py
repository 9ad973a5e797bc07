"""Stores to measure, handles on them, and how fast they are written and scanned."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import rocksdict

from millstream.model import TaskId
from millstream.query.composite import QueryableStoreTypes, ReadOnlyKeyValueStore, open_store
from millstream.query.metadata import default_partition
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import LocalStore, StoreDeclaration, StoreSnapshot
from millstream.query.windowed_handles import ReadOnlyWindowStore
from millstream.serdes.serdes import Serdes
from millstream.states import State, ThreadState
from millstream.stores.updater import MAX_RECORDS
from millstream.topology.nodes import Store

BATCH = 10_000
Entries = list[tuple[bytes, bytes | None, int]]


def entries(count: int) -> Entries:
    """Entries in random order: string keys, long values."""
    made: Entries = [(b"key-%08d" % i, i.to_bytes(8, "big"), 1_700_000_000_000 + i) for i in range(count)]
    random.Random(1).shuffle(made)
    return made


def range_bounds(count: int) -> list[tuple[str, str]]:
    """The first and last keys of ranges of a thousand entries: a hundred ranges, or as many as fit."""
    starts = range(0, count - 1000, max(1000, count // 100))
    return [(f"key-{start:08d}", f"key-{start + 999:08d}") for start in starts]


def as_records(data: Entries) -> Iterator[Mapping[str, Any]]:
    """The entries as `bench.words.produce` takes them."""
    return ({"key": key, "value": value, "timestamp": timestamp} for key, value, timestamp in data)


def raw_database(path: Path, data: Entries) -> Any:
    """The binding alone, with the data that the store would have."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    db = rocksdict.Rdict(str(path), options)
    for start in range(0, len(data), BATCH):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value, timestamp in data[start : start + BATCH]:
            batch.put(key, timestamp.to_bytes(8, "big") + (value or b""))
        db.write(batch)
    return db


def best(call: Callable[[], Any], times: int = 5) -> float:
    """The shortest of several runs, in CPU seconds: the one that was disturbed least."""
    shortest = float("inf")
    for _ in range(times):
        started = time.thread_time()  # this thread's time only, so other work on the machine does not count
        call()
        shortest = min(shortest, time.thread_time() - started)
    return shortest


def handle(store: Any, partitions: int = 1) -> ReadOnlyKeyValueStore[str, int]:
    """What `KafkaStreams.store` would return for one store, or for a list of its partitions."""
    parts = store if isinstance(store, list) else [store]
    snapshot = StoreSnapshot(
        "bench",
        State.RUNNING,
        {"t1": ThreadState.RUNNING},
        {
            "counts": StoreDeclaration(
                "counts", Serdes.string(), Serdes.long(), lambda key: default_partition(key, partitions)
            )
        },
        {"counts": [LocalStore(TaskId(0, number), part, "t1") for number, part in enumerate(parts)]},
    )

    return open_store(
        _View(snapshot),
        StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store()),
    )


def window_handle(store: Any, declared: Store) -> ReadOnlyWindowStore[str, int]:
    """The same for a window store of one partition."""
    declaration = StoreDeclaration(
        declared.name,
        Serdes.string(),
        Serdes.long(),
        lambda key: 0,
        1,
        declared.kind,
        declared.window_size_ms,
        declared.retention_ms,
    )
    local = {declared.name: [LocalStore(TaskId(0, 0), store, "t1")]}
    snapshot = StoreSnapshot(
        "bench", State.RUNNING, {"t1": ThreadState.RUNNING}, {declared.name: declaration}, local
    )
    return open_store(
        _View(snapshot),
        StoreQueryParameters.from_name_and_type(declared.name, QueryableStoreTypes.window_store()),
    )


class _View:
    """A client that does not change."""

    def __init__(self, snapshot: StoreSnapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self) -> StoreSnapshot:
        return self._snapshot


def apply_rate(store: Any, data: Entries) -> float:
    """Records per second into a store, in batches like those of the updater."""
    started = time.perf_counter()
    for start in range(0, len(data), MAX_RECORDS):
        store.apply(data[start : start + MAX_RECORDS], start + MAX_RECORDS)
    return len(data) / (time.perf_counter() - started)


def rate(iterable: Callable[[], Any], count: int) -> float:
    """Entries per second through an iterator."""

    def run() -> None:
        for _ in iterable():
            pass

    return count / best(run, 3)
