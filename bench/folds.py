"""How many records a second Python functions take: Millstream's against Quix Streams', in turns.

A fold, and a function of one record (a UDF). Both call the same for each record. Of a fold they write totals
and a changelog: Quix Streams for each record, Millstream for each key of a micro-batch. The time of Quix
Streams is from its first output to its last one, so without its start; that of Millstream is from the trigger
of its first micro-batch, whose Python workers are already running, as in a stream that has run for a while.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.lab import Lab, batch_times, has_committed
from bench.words import PARTITIONS, OutputWatcher, from_big_endian, is_up, produce, wait_for
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder
from millstream.cache import cache_dir
from millstream.topology.topology import Topology

__all__ = ["ORDERS", "compared", "measure"]

KEYS = 10_000
_QUIX = "quixstreams==3.28.1"
_PATIENCE_S = 300.0
_PROGRAM = Path(__file__).with_name("quix_streams.py")
ORDERS = Serdes.json("user STRING, amount BIGINT")


class NotMeasured(Exception):
    """There is no Quix Streams to compare with here; says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One job over the whole input: seconds, and how many records it wrote to the output."""

    seconds: float
    written: int


def topology(what: str, source: str, output: str) -> Topology:
    """A total for each key, folded in Python; or twice the amount of each record."""
    builder = StreamsBuilder()
    orders = builder.stream(source, Consumed.with_(Serdes.string(), ORDERS))
    if what == "map":
        doubled = F.udf(lambda amount: amount * 2, LongType())
        orders.map_values(lambda order: doubled(order["amount"])).to(output)
        return builder.build()
    (
        orders.group_by_key()
        .aggregate(
            lambda: 0,
            lambda key, order, total: total + order["amount"],
            Materialized.as_("totals").with_value_serde(Serdes.long()),
        )
        .to_stream()
        .to(output)
    )
    return builder.build()


Build = Callable[[str, str, str], Topology]
"""From what is done, and the topics to read and write, to Millstream's program."""


class Jobs:
    """The contestants, by name. Each call is one whole run."""

    def __init__(self, lab: Lab, what: str, source: str, expected: int, build: Build) -> None:
        self._lab, self._what, self._source, self._expected = lab, what, source, expected
        self._build = build
        self._python: Path | None = None

    def millstream(self) -> Run:
        lab = self._lab
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        settings = {
            "application.id": application,
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(state),
        }
        watcher = OutputWatcher(lab.bootstrap_servers, output, PARTITIONS, self._expected, from_big_endian)
        with KafkaStreams(self._build(self._what, self._source, output), settings) as streams:
            watcher.wait(_PATIENCE_S, is_up(streams))
            checkpoint = state / application / "checkpoints" / "p0.1"  # the first claim of it
            wait_for(lambda: has_committed(checkpoint), 60, "commit", is_up(streams))
        return Run(watcher.complete_at - batch_times(checkpoint).first_begun, watcher.records)

    def quix(self) -> Run:
        lab = self._lab
        python = self._python = self._python or quix_python()
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        watcher = OutputWatcher(lab.bootstrap_servers, output, PARTITIONS, self._expected, int)
        log = lab.path("quix-log")
        with log.open("wb") as to:
            what = "map" if self._what == "map" else "fold"
            arguments = [what, lab.bootstrap_servers, self._source, output, application, state]
            process = subprocess.Popen(
                [python, _PROGRAM, *map(str, arguments)], stdout=to, stderr=subprocess.STDOUT
            )
        try:
            watcher.wait(_PATIENCE_S, lambda: process.poll() is None)
        finally:
            process.kill()
            process.wait(10)
        return Run(watcher.complete_at - watcher.first_at, watcher.records)


def quix_python() -> Path:
    """The Python of an environment that has Quix Streams; it is made the first time.

    Raises:
        NotMeasured: it cannot be installed.
    """
    folder = cache_dir("bench", f"{_QUIX.replace('==', '-')}-python-3.{sys.version_info.minor}")
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        return python
    for command in (
        [sys.executable, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "-q", _QUIX],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotMeasured(f"{_QUIX} cannot be installed: {error}") from error
        if done.returncode:
            why = done.stderr.strip().splitlines()
            raise NotMeasured(f"{_QUIX} cannot be installed: {why[-1] if why else done.returncode}")
    ready.touch()
    return python


def orders(what: str, count: int, *, seed: int = 1) -> tuple[int, Iterator[Mapping[str, Any]]]:
    """What the results add up to, and orders as `produce` takes them: of 10,000 users, or each with a key."""
    chosen = random.Random(seed)
    amounts = chosen.choices(range(1, 100), k=count)
    users = chosen.choices(range(KEYS), k=count) if what != "map" else range(count)
    return sum(amounts) * (1 if what != "map" else 2), (
        {"key": f"user-{user:05d}", "value": f'{{"user":"user-{user:05d}","amount":{amount}}}'}
        for user, amount in zip(users, amounts, strict=True)
    )


_TITLES = {
    "fold": f"A fold in Python of {KEYS:,} keys",
    "map": "A UDF",
    "process": f"A processor, one get and one put a record, of {KEYS:,} keys",
}
_LABELS = {"millstream": "Millstream", "quix": "Quix Streams"}


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Each once to warm up, then in turns."""
    count = 60_000 if quick else 600_000
    lab.session(tuned=True)  # it stays, so that no run starts Spark
    tables, goals, data = [], [], {}
    for what in ("fold", "map"):
        table, faster, runs = compared(lab, what, count, 3, tell, topology)
        tables.append(table)
        data[what] = {name: [asdict(run) for run in of] for name, of in runs.items()}
        if faster is not None:
            of = f"throughput against Quix Streams: {_TITLES[what]}"
            goals.append(Goal(of, faster, 3.0, "x", at_least=True))
    return Report("folds", tuple(tables), tuple(goals), {"records": count, "runs": data})


def compared(
    lab: Lab, what: str, count: int, repetitions: int, tell: Progress, build: Build
) -> tuple[Table, float | None, dict[str, list[Run]]]:
    """Both over one input, in turns; and how many times as fast Millstream is, if Quix Streams is there."""
    source = lab.topic("orders", PARTITIONS)
    expected, records = orders(what, count)
    produce(lab.bootstrap_servers, source, records)
    jobs = Jobs(lab, what, source, expected, build)
    names, notes = list(_LABELS), []
    runs: dict[str, list[Run]] = {}
    cold: dict[str, Run] = {}
    for name in list(names):
        tell(f"{_TITLES[what]}: warming up {_LABELS[name]}")
        try:
            cold[name] = getattr(jobs, name)()
            runs[name] = []
        except NotMeasured as error:
            names.remove(name)
            notes.append(f"{_LABELS[name]} is not measured: {error}")
    for number, order in enumerate(rounds(names, repetitions), 1):
        for name in order:
            tell(f"{_TITLES[what]}: round {number} of {repetitions}: {_LABELS[name]}")
            runs[name].append(getattr(jobs, name)())
    rows = []
    for name, of in runs.items():
        taken = spread([run.seconds for run in of])
        rows.append(
            (
                _LABELS[name],
                str(taken),
                f"{count / taken.median:,.0f}",
                f"{cold[name].seconds:.2f}",
                f"{median([run.written for run in of]):,.0f}",
            )
        )
    table = Table(
        f"{_TITLES[what]}: {count:,} records, {repetitions} rounds in turns",
        ("job", "seconds", "records/s", "seconds the first time", "records written"),
        tuple(rows),
        tuple(notes),
    )
    faster = None
    if "quix" in runs:
        seconds = {name: [run.seconds for run in of] for name, of in runs.items()}
        faster = ratios(seconds["quix"], seconds["millstream"]).median
    return table, faster, runs
