"""How costs grow: one thing at a time is made larger, with 50 records a second through a count.

The age of a result is the time since its record was sent. More than 20 keys are in the topic beforehand, and
are counted first, which the group's committed offsets tell. CPU seconds are those of the client, its JVM, and
whatever else belongs to it. The large store is filled without Kafka, in the way a restore does it, and read
at random.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import Any

from bench.children import Failed, usage
from bench.contest import PythonContestant
from bench.figures import Progress, Report, Table, median
from bench.lab import Lab, NotMeasured, OutOfTimeError
from bench.latency import Traffic
from bench.standalone import standalone
from bench.words import produce, wait_for
from millstream.model import TaskId
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.updater import MAX_RECORDS

__all__ = ["Point", "again", "measure", "report"]

_RATE = 50.0
_WARM_S, _NEW_WARM_S = 3.0, 15.0
"""How long records flow before anything is measured; the latter in a new process."""
_READ_S = 120.0
_KEYS_A_SECOND = 20_000
"""A client that counts the keys more slowly than this is given up."""
_WORKERS, _CORES = 2, 2
"""Spark needs a slot, here a core of a worker, for each partition, and one that stays free."""
_VALUE = 1000


@dataclass(frozen=True, slots=True)
class Point:
    """One size of one thing."""

    what: int
    age_ms: float
    cores: float
    memory_mb: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Sizes:
    partitions: Sequence[int]
    pipelines: Sequence[int]
    keys: Sequence[int]
    clients: Sequence[int]
    store_gb: Sequence[float]
    seconds: float


_FULL = _Sizes((1, 4, 16, 64), (1, 4, 16), (10_000, 1_000_000, 10_000_000), (1, 2, 4, 8), (1, 10), 10.0)
_QUICK = _Sizes((1, 8), (4,), (200_000,), (2,), (0.1,), 3.0)


def measure(lab: Lab, *, quick: bool, tell: Progress, budget_s: float) -> Report:
    """One thing after the other, while there is time."""
    sizes = _QUICK if quick else _FULL
    until = time.monotonic() + budget_s
    found: dict[str, list[Point]] = {}
    why: dict[str, str] = {}

    def each(what: str, sizes: Sequence[float], point: Callable[[int], Point]) -> None:
        for size in sizes:
            tell(f"{what}: {size:,}")
            if time.monotonic() > until:
                why[f"{what} of {size:,}"] = "there was no time left"
                continue
            try:
                measured = point(int(size))
                found.setdefault(what, []).append(measured)
            except (Failed, NotMeasured, RuntimeError, TimeoutError, OSError) as error:
                why[f"{what} of {size:,}"] = str(error)
                tell(f"{what}: {size:,}: FAILED: {error}")

    try:
        each(
            "store, MB",
            [1000 * gigabytes for gigabytes in sizes.store_gb],
            lambda size: _store(lab, size, tell),
        )
        with ExitStack() as held:
            client = _Client(lab, held, {})
            each(
                "partitions",
                sizes.partitions,
                lambda size: client.point(size, partitions=size, seconds=sizes.seconds),
            )
            each(
                "pipelines",
                sizes.pipelines,
                lambda size: client.point(size, pipelines=size, seconds=sizes.seconds),
            )
            each("keys", sizes.keys, lambda size: client.point(size, keys=size, seconds=sizes.seconds))
            each(
                "clients", sizes.clients, lambda size: client.point(size, clients=size, seconds=sizes.seconds)
            )
        each(
            "workers of a standalone cluster",
            (_WORKERS,),
            lambda size: _on_a_cluster(lab, size, sizes.seconds),
        )
    except OutOfTimeError as error:
        why["the rest"] = str(error)
    return report(found, why)


class _Client:
    """Millstream in a process, which keeps running. One that has failed is restarted."""

    def __init__(self, lab: Lab, held: ExitStack, settings: dict[str, object]) -> None:
        self._lab, self._settings = lab, settings
        self._contestant: PythonContestant | None = None
        held.callback(self._close)

    def _close(self) -> None:
        if self._contestant is not None:
            self._contestant.close()
            self._contestant = None

    def point(
        self,
        what: int,
        *,
        seconds: float,
        partitions: int = 2,
        pipelines: int = 1,
        keys: int = 20,
        clients: int = 1,
    ) -> Point:
        """Run a count for this many seconds."""
        lab = self._lab
        left, output = lab.name("in"), lab.topic("out", partitions)
        job = f"counts-{pipelines}"
        for number in range(pipelines):
            lab.kafka.create_topic(f"{left}-{number}", partitions)
        source = f"{left}-0"
        if keys > 20:
            records = ({"key": f"k{number}", "value": "keep-0"} for number in range(keys))
            produce(lab.bootstrap_servers, source, records)
        application = lab.name("scale")
        settings = {**self._settings, "application.id": application}
        try:
            with ExitStack() as held:
                warm_s = _WARM_S if self._contestant else _NEW_WARM_S
                if self._contestant is None:
                    self._contestant = PythonContestant(lab, "millstream", self._settings)
                    self._contestant.wait_until_ready()
                mine = self._contestant
                mine.start(job, left, "", output, settings)
                all_of_them = [mine]
                for _ in range(clients - 1):
                    other = PythonContestant(lab, "millstream", {**self._settings, "keep": False})
                    held.callback(other.close)
                    other.start(job, left, "", output, settings)
                    all_of_them.append(other)
                before = int(keys > 20)
                wait_for(
                    lambda: lab.committed(application, source, partitions) >= before * keys,
                    _READ_S + keys / _KEYS_A_SECOND,
                    "commit of all keys",
                    lambda: _is_well(mine),
                )
                traffic = Traffic(
                    lab, held, source, output, "long", mine.check, partitions=partitions, before=before
                )
                traffic.at(_RATE, warm_s, _READ_S, keys)
                used, begun = sum(one.used().cpu_s for one in all_of_them), time.monotonic()
                ages = traffic.at(_RATE, seconds, _READ_S, keys)
                cores = (sum(one.used().cpu_s for one in all_of_them) - used) / (time.monotonic() - begun)
                memory = sum(one.used().memory_mb for one in all_of_them)
                for one in reversed(all_of_them):
                    one.stop()
                return Point(what, median(ages), cores, memory)
        except BaseException:
            self._close()
            raise


def _is_well(contestant: PythonContestant) -> bool:
    contestant.check()  # raises what has ended it
    return True


def _on_a_cluster(lab: Lab, workers: int, seconds: float) -> Point:
    """The same count on executors of a standalone cluster: a master and workers on the loopback."""
    with standalone(lab.path("cluster"), workers, cores=_CORES) as cluster, ExitStack() as held:
        client, pids = _Client(lab, held, dict(cluster.settings)), [cluster.master, *cluster.workers]
        before, begun = sum(usage(pid).cpu_s for pid in pids), time.monotonic()
        point = client.point(workers, seconds=seconds)
        used = (sum(usage(pid).cpu_s for pid in pids) - before) / (time.monotonic() - begun)
        memory = sum(usage(pid).memory_mb for pid in pids)
        note = f"the workers used {used:.2f} cores, including their start"
        return Point(workers, point.age_ms, point.cores, point.memory_mb + memory, note)


def _store(lab: Lab, megabytes: int, tell: Progress) -> Point:
    """A store of this many MB: how fast it is filled, and read at random."""
    folder = lab.path("large")
    if shutil.disk_usage(lab.directory).free < 3e6 * megabytes:
        raise NotMeasured(f"there is no room for a store of {megabytes:,} MB")
    store = RocksDBStore("large", TaskId(0, 0), folder)
    chance = random.Random(1)
    pool = chance.randbytes(1_000_000)  # incompressible values
    count = megabytes * 1_000_000 // _VALUE
    used, begun = usage(os.getpid()).cpu_s, time.monotonic()
    try:
        for start in range(0, count, MAX_RECORDS):
            some = range(start, min(count, start + MAX_RECORDS))
            store.apply([(b"key-%012d" % n, _value(pool, n), n) for n in some], some.stop)
            if start // MAX_RECORDS % 1000 == 0:
                tell(f"store: {start * _VALUE / 1e6:,.0f} of {megabytes:,} MB")
        filled = time.monotonic() - begun
        cores = (usage(os.getpid()).cpu_s - used) / filled
        asked = [b"key-%012d" % chance.randrange(count) for _ in range(5_000)]
        begun = time.monotonic()
        missing = sum(store.get(key) is None for key in asked)
        per_read = (time.monotonic() - begun) / len(asked) * 1e6
        if missing:
            raise RuntimeError(f"{missing} keys are not in the store")
        note = f"filled at {megabytes / filled:,.0f} MB/s; {per_read:.0f} us per random get"
        return Point(megabytes, 0.0, cores, usage(os.getpid()).memory_mb, note)
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


def _value(pool: bytes, number: int) -> bytes:
    at = number * 7919 % (len(pool) - _VALUE)
    return pool[at : at + _VALUE]


def report(found: dict[str, list[Point]], why: dict[str, str]) -> Report:
    """A table for each thing."""
    tables = []
    for what, points in found.items():
        rows = tuple(
            (
                f"{point.what:,}",
                f"{point.age_ms:.0f}" if point.age_ms else "-",
                f"{point.cores:.2f}",
                f"{point.memory_mb:,.0f}",
                point.note,
            )
            for point in points
        )
        columns = (what, "median age of a result, ms", "cores busy", "MB", "")
        tables.append(Table(f"Scale: {what}", columns, rows))
    if why:
        notes = tuple((what, reason) for what, reason in why.items())
        tables.append(Table("Scale: not measured", ("what", "why"), notes))
    data = {what: [asdict(point) for point in points] for what, points in found.items()}
    return Report("scale", tuple(tables), (), {**data, **({"why": why} if why else {})})


def again(data: Mapping[str, Any], machine: str) -> Report:
    """The report of an earlier run, from its figures. `machine` says where and when that was."""
    found = {what: [Point(**point) for point in points] for what, points in data.items() if what != "why"}
    made = report(found, data.get("why", {}))
    note = f"Scale was measured in a run of its own: {machine}"
    noted = [replace(table, notes=(*table.notes, note)) for table in made.tables[:1]]
    return replace(made, tables=(*noted, *made.tables[1:]))
