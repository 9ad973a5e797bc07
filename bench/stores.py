"""How fast the stores are, each number beside the raw binding's in the same run: `python -m bench.stores`."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rocksdict

from millstream.dsl.serdes import Serdes
from millstream.model import TaskId
from millstream.query.composite import ReadOnlyKeyValueStore, open_store
from millstream.query.parameters import QueryableStoreTypes, StoreQueryParameters
from millstream.query.provider import LocalStore, StoreDeclaration, StoreSnapshot
from millstream.stores.memory import MemoryStore
from millstream.stores.rocksdb import RocksDBStore

ENTRIES = 500_000
BATCH = 10_000
READS = 100_000
Entries = list[tuple[bytes, bytes | None, int]]
Row = tuple[str, float, str]


def entries(count: int = ENTRIES) -> Entries:
    """Entries in random order: string keys, long values."""
    made: Entries = [(b"key-%08d" % i, i.to_bytes(8, "big"), 1_700_000_000_000 + i) for i in range(count)]
    random.Random(1).shuffle(made)
    return made


def raw_database(path: Path, data: Entries) -> Any:
    """The binding alone, with what the store would hold."""
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
    """The shortest of some runs, in CPU seconds: the one that was disturbed least."""
    shortest = float("inf")
    for _ in range(times):
        started = time.thread_time()  # of this thread alone: other work on the machine does not count
        call()
        shortest = min(shortest, time.thread_time() - started)
    return shortest


def per_read_us(read: Callable[[Any], Any], keys: Sequence[Any]) -> float:
    """Microseconds per call."""

    def run() -> None:
        for key in keys:
            read(key)

    return best(run) / len(keys) * 1e6


def handle(store: Any, partitions: int = 1) -> ReadOnlyKeyValueStore[str, int]:
    """What `KafkaStreams.store` would return for one store, or for a list of its partitions."""
    parts = store if isinstance(store, list) else [store]
    snapshot = StoreSnapshot(
        "bench",
        "RUNNING",
        {"t1": "RUNNING"},
        {
            "counts": StoreDeclaration(
                "counts", Serdes.string(), Serdes.long(), lambda key: zlib.crc32(key) % partitions
            )
        },
        {"counts": [LocalStore(TaskId(0, number), part, "t1") for number, part in enumerate(parts)]},
    )

    class View:
        def snapshot(self) -> StoreSnapshot:
            return snapshot

    return open_store(
        View(), StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    )


def apply_rate(store: Any, data: Entries) -> float:
    """Records per second into a store, in batches."""
    started = time.perf_counter()
    for start in range(0, len(data), BATCH):
        store.apply(data[start : start + BATCH], start + BATCH)
    return len(data) / (time.perf_counter() - started)


def rate(iterable: Callable[[], Any], count: int) -> float:
    """Entries per second through an iterator."""

    def run() -> None:
        for _ in iterable():
            pass

    return count / best(run, 3)


def measure(directory: Path) -> list[Row]:
    """Everything, as rows of a table."""
    data = entries()
    keys = [key for key, _, _ in random.Random(2).sample(data, READS)]
    texts = [key.decode() for key in keys]
    raw = raw_database(directory / "raw", data)
    rows: list[Row] = []
    disk = RocksDBStore("disk", TaskId(0, 0), directory / "disk")
    memory = MemoryStore("memory", TaskId(0, 0))
    rows.append(("apply, RocksDB", apply_rate(disk, data), "records/s"))
    rows.append(("apply, memory", apply_rate(memory, data), "records/s"))
    baseline = per_read_us(raw.get, keys)
    rows.append(("get, raw rocksdict", baseline, "us"))
    for label, read, asked in (
        ("get, RocksDBStore", disk.get, keys),
        ("get, query handle on it", handle(disk).get, texts),
        ("get, MemoryStore", memory.get, keys),
        ("get, query handle on it", handle(memory).get, texts),
    ):
        cost = per_read_us(read, asked)
        rows.append((label, cost, f"us, {cost / baseline:.2f} x raw"))
    rows.append(("multi_get, raw rocksdict", READS / best(lambda: raw.get(keys)), "keys/s"))
    rows.append(("multi_get, RocksDBStore", READS / best(lambda: disk.multi_get(keys)), "keys/s"))
    rows.append(("multi_get, query handle", READS / best(lambda: handle(disk).multi_get(texts)), "keys/s"))
    rows.append(("scan, raw rocksdict", rate(raw.items, ENTRIES), "entries/s"))
    rows.append(("scan, RocksDBStore", rate(lambda: disk.range(None, None), ENTRIES), "entries/s"))
    rows.append(("scan, query handle", rate(handle(disk).all, ENTRIES), "entries/s"))
    rows.append(("reverse scan, query handle", rate(handle(disk).reverse_all, ENTRIES), "entries/s"))
    rows.append(("to_arrow, query handle", ENTRIES / best(handle(disk).to_arrow, 2), "entries/s"))
    disk.close()
    raw.close()
    return rows


def main() -> None:
    """Print the table."""
    directory = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
    try:
        for label, number, unit in measure(directory):
            shown = f"{number:>14,.2f}" if unit.startswith("us") else f"{number:>14,.0f}"
            print(f"{label:<28}{shown} {unit}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
