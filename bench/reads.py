"""How fast a store is read and written, beside the raw binding on the same data (parts: `stores.py`)."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Goal, Progress, Report, Table, ratios, spread
from bench.lab import Lab
from bench.stores import BATCH, Entries, apply_rate, entries, handle, rate, raw_database
from millstream.model import TaskId
from millstream.stores.memory import MemoryStore
from millstream.stores.rocksdb import RocksDBStore

__all__ = ["measure"]

_PARTITIONS = 4
_ROUNDS = 7


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Point reads in turns with the raw binding's; then scans and writes."""
    data = entries(100_000 if quick else 500_000)
    count = 20_000 if quick else 100_000
    keys = [key for key, _, _ in random.Random(2).sample(data, count)]
    texts = [key.decode() for key in keys]
    directory = lab.path("stores")
    directory.mkdir(parents=True)
    tell(f"writing {len(data):,} entries")
    raw = raw_database(directory / "raw", data)
    disk, memory = RocksDBStore("disk", TaskId(0, 0), directory / "disk"), MemoryStore("memory", TaskId(0, 0))
    parts = _partitioned(directory, data)
    written = {"apply, RocksDBStore": apply_rate(disk, data), "apply, MemoryStore": apply_rate(memory, data)}
    whole, spread_out, in_memory = handle(disk), handle(parts, _PARTITIONS), handle(memory)

    tell("get, in turns")
    gets: dict[str, Callable[[], None]] = {
        "get, raw rocksdict": _each(raw.get, keys),
        "get, RocksDBStore": _each(disk.get, keys),
        "get, query handle, 1 partition": _each(whole.get, texts),
        f"get, query handle, {_PARTITIONS} partitions": _each(spread_out.get, texts),
        "get, query handle on MemoryStore": _each(in_memory.get, texts),
    }
    many: dict[str, Callable[[], None]] = {
        "multi_get of 100, raw rocksdict": _hundreds(raw.get, keys),
        "multi_get of 100, RocksDBStore": _hundreds(disk.multi_get, keys),
        "multi_get of 100, query handle": _hundreds(whole.multi_get, texts),
    }
    seconds = _in_turns({**gets, **many})
    tell("scans")
    scans = {
        "scan, raw rocksdict": rate(raw.items, len(data)),
        "scan, RocksDBStore": rate(lambda: disk.range(None, None), len(data)),
        "scan, query handle, 1 partition": rate(whole.all, len(data)),
        f"scan, query handle, {_PARTITIONS} partitions": rate(spread_out.all, len(data)),
        "range of 1000, query handle, 1 partition": _ranges(whole, data),
        "reverse scan, query handle": rate(whole.reverse_all, len(data)),
    }
    disk.close()
    memory.close()
    for part in parts:
        part.close()
    raw.close()

    rows = []
    for group in (gets, many):
        baseline = seconds[next(iter(group))]
        for name in group:
            per_key = spread([taken / count * 1e6 for taken in seconds[name]])
            against = ratios(seconds[name], baseline)
            rows.append(
                (
                    name,
                    f"{per_key.median:.2f} us ({per_key.low:.2f} to {per_key.high:.2f})",
                    f"{1e6 / per_key.median:,.0f} keys/s",
                    f"{against.median:.2f} ({against.low:.2f} to {against.high:.2f})",
                )
            )
    for name, per_second in scans.items():
        rows.append(
            (name, "", f"{per_second:,.0f} entries/s", f"{scans['scan, raw rocksdict'] / per_second:.2f}")
        )
    for name, per_second in written.items():
        rows.append((name, "", f"{per_second:,.0f} records/s", ""))
    table = Table(
        f"Stores: {len(data):,} entries, {count:,} reads of random keys, {_ROUNDS} rounds in turns",
        ("what", "per key", "rate", "time / raw"),
        tuple(rows),
        (
            "CPU time of the reading thread, so that other work on the machine does not count",
            f"apply: batches of {BATCH:,}, position and data in one atomic write",
        ),
    )
    get = ratios(seconds["get, query handle, 1 partition"], seconds["get, raw rocksdict"])
    goals = (
        Goal("get through the query handle against raw rocksdict", get.median, 2.0, "x"),
        Goal("get through the query handle (Kafka Streams: 4.5)", _us(seconds, count), 4.5, "us"),
        Goal("scan", scans["scan, query handle, 1 partition"], 500_000, "entries/s", at_least=True),
    )
    return Report("reads", (table,), goals, {"seconds": seconds, "reads": count, **scans, **written})


def _us(seconds: dict[str, list[float]], count: int) -> float:
    return spread([taken / count * 1e6 for taken in seconds["get, query handle, 1 partition"]]).median


def _partitioned(directory: Path, data: Entries) -> list[RocksDBStore]:
    stores = [
        RocksDBStore("disk", TaskId(0, number), directory / f"disk-{number}") for number in range(_PARTITIONS)
    ]
    for number, store in enumerate(stores):
        mine = [entry for entry in data if zlib.crc32(entry[0]) % _PARTITIONS == number]
        for start in range(0, len(mine), BATCH):
            store.apply(mine[start : start + BATCH], start + BATCH)
    return stores


def _each(read: Callable[[Any], Any], keys: list[Any]) -> Callable[[], None]:
    def run() -> None:
        for key in keys:
            read(key)

    return run


def _hundreds(read: Callable[[Any], Any], keys: list[Any]) -> Callable[[], None]:
    pages = [keys[start : start + 100] for start in range(0, len(keys), 100)]
    return _each(read, pages)


def _ranges(store: Any, data: Entries) -> float:
    """Entries per second in ranges of a thousand."""
    starts = range(0, len(data) - 1000, max(1000, len(data) // 100))
    bounds = [(f"key-{start:08d}", f"key-{start + 999:08d}") for start in starts]

    def run() -> Any:
        for low, high in bounds:
            yield from store.range(low, high)

    return rate(run, 1000 * len(bounds))


def _in_turns(runs: dict[str, Callable[[], None]]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(_ROUNDS + 1):
        for name, run in runs.items():
            begun = time.thread_time()  # a read is work of this thread alone; others' work does not count
            run()
            if number:  # the first round warms caches
                seconds[name].append(time.thread_time() - begun)
    return seconds
