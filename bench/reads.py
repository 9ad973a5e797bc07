"""How fast a store is read and written, compared with the raw binding on the same data (see `stores.py`)."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.figures import Goal, Progress, Report, Table, median, percentile, ratios, spread
from bench.kafka_streams import JavaReads
from bench.lab import Lab, NotMeasured
from bench.stores import (
    BATCH,
    Entries,
    apply_rate,
    entries,
    handle,
    range_bounds,
    rate,
    raw_database,
    window_handle,
)
from millstream.model import StoreKind, TaskId
from millstream.query.metadata import default_partition
from millstream.query.windowed_handles import ReadOnlyWindowStore
from millstream.stores.keys import window_key
from millstream.stores.memory_store import MemoryStore
from millstream.stores.opening import open_store
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.updater import MAX_RECORDS
from millstream.topology.nodes import Store

__all__ = ["measure"]

_PARTITIONS = 4
_MINUTE_MS = 60_000
_ROUNDS = 7
_HANDLE_GET = "get, query handle, 1 partition"
_PARTED_GET = f"get, query handle, {_PARTITIONS} partitions"
_JAVA_GET = f"get, Kafka Streams, {_PARTITIONS} partitions"


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Point reads, in turns with those of the raw binding; then scans and writes."""
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

    tell("filling a table of Kafka Streams")
    try:
        java, without_java = JavaReads(lab, data, texts, _PARTITIONS), ""
    except NotMeasured as error:
        java, without_java = None, f"without Kafka Streams: {error}"
    tell("get, in turns")
    gets: dict[str, Callable[[], float | None]] = {
        "get, raw rocksdict": _each(raw.get, keys),
        "get, RocksDBStore": _each(disk.get, keys),
        _HANDLE_GET: _each(whole.get, texts),
        _PARTED_GET: _each(spread_out.get, texts),
        "get, query handle on MemoryStore": _each(in_memory.get, texts),
        **({_JAVA_GET: java.get} if java else {}),
    }
    many: dict[str, Callable[[], float | None]] = {
        "multi_get of 100, raw rocksdict": _hundreds(raw.get, keys),
        "multi_get of 100, RocksDBStore": _hundreds(disk.multi_get, keys),
        "multi_get of 100, query handle": _hundreds(whole.multi_get, texts),
    }
    seconds = _in_turns({**gets, **many})
    tell("get during writes")
    beside = _beside_writes(disk, whole, data, texts, 1.0 if quick else 5.0)
    tell("scans")
    scans = {
        "scan, raw rocksdict": rate(raw.items, len(data)),
        "scan, RocksDBStore": rate(lambda: disk.range(None, None), len(data)),
        "scan, query handle, 1 partition": rate(whole.all, len(data)),
        f"scan, query handle, {_PARTITIONS} partitions": rate(spread_out.all, len(data)),
        "range of 1000, query handle, 1 partition": _ranges(whole, data),
        "reverse scan, query handle": rate(whole.reverse_all, len(data)),
        f"range of 1000, query handle, {_PARTITIONS} partitions": _ranges(spread_out, data),
        **(
            {
                f"scan, Kafka Streams, {_PARTITIONS} partitions": java.scan(),
                f"range of 1000, Kafka Streams, {_PARTITIONS} partitions": java.ranges(),
            }
            if java
            else {}
        ),
    }
    if java is not None:
        java.close()
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
                    str(against),
                )
            )
    for name, per_second in scans.items():
        rows.append(
            (name, "", f"{per_second:,.0f} entries/s", f"{scans['scan, raw rocksdict'] / per_second:.2f}")
        )
    for name, per_second in written.items():
        rows.append((name, "", f"{per_second:,.0f} records/s", ""))
    table = Table(
        f"Stores: {len(data):,} entries, {count:,} reads of random keys, alternating rounds: {_ROUNDS}",
        ("what", "per key", "rate", "time / raw"),
        tuple(rows),
        (
            "CPU time of the reading thread, so that other work on the machine does not count",
            f"apply: batches of {MAX_RECORDS:,}, position and data in one atomic write",
            without_java or "Kafka Streams: KafkaStreams.store() in Java, compiled, without its record cache",
        ),
    )
    get = ratios(seconds[_HANDLE_GET], seconds["get, raw rocksdict"])
    waits = Table(
        f"get through the query handle, during continuous writes in batches of {MAX_RECORDS}; ms",
        ("reads", "p50", "p99", "p99.9", "longest"),
        ((f"{len(beside):,}", *(f"{percentile(beside, each):.3f}" for each in (50, 99, 99.9, 100))),),
        ("wall-clock time, so other work on the machine counts",),
    )
    tell("windows")
    windows, of_windows = _windows(directory / "windows", 100_000 if quick else 500_000)
    goals = (
        *of_windows,
        Goal("get during writes, p99.9", percentile(beside, 99.9), 3.0, "ms"),
        Goal("get through the query handle against raw rocksdict", get.median, 2.0, "x"),
        *(
            [
                Goal(
                    "get against Kafka Streams",
                    ratios(seconds[_PARTED_GET], seconds[_JAVA_GET]).median,
                    0.5,
                    "x",
                )
            ]
            if java
            else []
        ),
        Goal("scan", scans["scan, query handle, 1 partition"], 500_000, "entries/s", at_least=True),
    )
    return Report(
        "reads",
        (table, waits, windows),
        goals,
        {
            "seconds": seconds,
            "reads": count,
            "partitions": _PARTITIONS,
            "of_millstream": {
                "get_us": median(seconds[_PARTED_GET]) / count * 1e6,
                "scan": scans[f"scan, query handle, {_PARTITIONS} partitions"],
                "range": scans[f"range of 1000, query handle, {_PARTITIONS} partitions"],
            },
            "of_java": {
                "get_us": median(seconds[_JAVA_GET]) / count * 1e6,
                "scan": scans[f"scan, Kafka Streams, {_PARTITIONS} partitions"],
                "range": scans[f"range of 1000, Kafka Streams, {_PARTITIONS} partitions"],
            }
            if java
            else {},
            **scans,
            **written,
        },
    )


def _partitioned(directory: Path, data: Entries) -> list[RocksDBStore]:
    stores = [
        RocksDBStore("disk", TaskId(0, number), directory / f"disk-{number}") for number in range(_PARTITIONS)
    ]
    for number, store in enumerate(stores):
        mine = [entry for entry in data if default_partition(entry[0], _PARTITIONS) == number]
        for start in range(0, len(mine), BATCH):
            store.apply(mine[start : start + BATCH], start + BATCH)
    return stores


def _windows(path: Path, entries: int) -> tuple[Table, tuple[Goal, ...]]:
    """A window store, with ten windows of a minute for each key: writes, reads and scans."""
    keys, first = [f"key-{number:06d}" for number in range(entries // 10)], 1_700_000_040_000
    records: list[tuple[bytes, bytes | None, int]] = [
        (window_key(key.encode(), first + minute * _MINUTE_MS), minute.to_bytes(8, "big"), first)
        for minute in range(10)
        for key in keys
    ]
    declared = Store("w", kind=StoreKind.WINDOW, window_size_ms=_MINUTE_MS, retention_ms=60 * _MINUTE_MS)
    store = open_store(declared, TaskId(0, 0), path)
    applied = apply_rate(store, records)
    windows: ReadOnlyWindowStore[str, int] = window_handle(store, declared)
    asked = random.Random(3).sample(keys, min(len(keys), 10_000))
    at = datetime.fromtimestamp(first / 1000, UTC)
    until = at + timedelta(minutes=9)

    def each(read: Callable[[str], object]) -> float:
        begun = time.thread_time()
        for key in asked:
            read(key)
        return (time.thread_time() - begun) / len(asked) * 1e6

    one = each(lambda key: windows.fetch(key, at))
    ten = each(lambda key: list(windows.fetch(key, at, until)))
    scan = rate(windows.all, len(records))
    store.close()
    table = Table(
        f"A window store in RocksDB: {len(records):,} windows of {len(keys):,} keys",
        ("apply", "fetch(key, time)", "fetch of ten windows", "scan"),
        ((f"{applied:,.0f} records/s", f"{one:.1f} us", f"{ten:.1f} us", f"{scan:,.0f} entries/s"),),
        ("CPU time",),
    )
    return table, (
        Goal("apply, windows", applied, 200_000, "records/s", at_least=True),
        Goal("scan, windows", scan, 500_000, "entries/s", at_least=True),
    )


def _beside_writes(
    store: RocksDBStore, reads: Any, data: Entries, keys: list[Any], seconds: float
) -> list[float]:
    """How long each read took, in milliseconds, while another thread was applying batch after batch."""
    ended = threading.Event()

    def write() -> None:
        position = store.position or 0
        while not ended.is_set():
            for start in range(0, len(data), MAX_RECORDS):
                if ended.is_set():
                    return
                position += MAX_RECORDS
                store.apply(data[start : start + MAX_RECORDS], position)

    writer = threading.Thread(target=write, name="bench-writer", daemon=True)
    writer.start()
    found = []
    begun = time.perf_counter()
    try:
        while time.perf_counter() - begun < seconds:
            for key in keys[:1000]:
                before = time.perf_counter()
                reads.get(key)
                found.append((time.perf_counter() - before) * 1000)
    finally:
        ended.set()
        writer.join(30)
    return found


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
    bounds = range_bounds(len(data))

    def run() -> Any:
        for low, high in bounds:
            yield from store.range(low, high)

    return rate(run, 1000 * len(bounds))


def _in_turns(runs: dict[str, Callable[[], float | None]]) -> dict[str, list[float]]:
    """The seconds of each run in each round. A run in another process reports its own time."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(_ROUNDS + 1):
        for name, run in runs.items():
            begun = time.thread_time()  # a read is work of this thread only; other work does not count
            told = run()
            if number:  # the first round warms caches
                seconds[name].append(time.thread_time() - begun if told is None else told)
    return seconds
