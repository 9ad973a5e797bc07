"""How many records a second Python functions process: in Millstream and in Quix Streams, in turns.

The cases are a fold, and a function of one record (a UDF); processors.py has more. All call the same
function for each record. A fold writes totals and a changelog: in Quix Streams for each record, in Millstream
for each key that has changed since the last commit. The time runs from the first record that is read to the
last output.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from bench.children import Child
from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.kafka_streams import JavaStreams
from bench.lab import Lab, NotMeasured
from bench.quix import PROGRAM, quix_python
from bench.words import PARTITIONS, OutputWatcher, first_read, from_big_endian, is_up, produce
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder
from millstream.topology.topology import Topology

__all__ = ["KEYS", "ORDERS", "Case", "in_json", "measure", "orders", "report"]

KEYS = 10_000
_REPETITIONS = 3
_PATIENCE_S = 300.0
_ANSWER_S = 10.0
ORDERS = Serdes.json("user STRING, amount BIGINT")


@dataclass(frozen=True, slots=True)
class Run:
    """One job over the whole input: its seconds, and how many records it wrote to the output."""

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


def in_json(user: str, amount: int) -> str:
    """An order."""
    return f'{{"user":"{user}","amount":{amount}}}'


@dataclass(frozen=True, slots=True)
class Case:
    """What is compared.

    Attributes:
        what: what is done with the orders, `fold` or `map`.
        build: makes Millstream's program from the topics to read and to write.
        least: the goal, as a multiple of the throughput of Quix Streams.
        rate: the goal in records a second; None if there is none.
        value: serializes an order.
        registry: the address of the schema registry, if orders are in Avro.
        names: the contestants.
        notes: what else to know about the figures.
    """

    what: str
    title: str
    build: Callable[[str, str], Topology]
    least: float
    rate: float | None = None
    value: Callable[[str, int], str | bytes] = in_json
    registry: str = ""
    names: tuple[str, ...] = ("millstream", "quix")
    notes: tuple[str, ...] = ()


class Jobs:
    """The contestants, by name. Each call is one whole run. `held` ends what is kept between runs."""

    def __init__(self, lab: Lab, case: Case, source: str, expected: int, held: ExitStack) -> None:
        self._lab, self._case, self._source, self._expected = lab, case, source, expected
        self._held = held
        self._streams: JavaStreams | None = None

    def millstream(self) -> Run:
        lab = self._lab
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        settings = {
            "application.id": application,
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(state),
            **({"schema.registry.url": self._case.registry} if self._case.registry else {}),
        }
        watcher = self._watcher(output, from_big_endian)
        with KafkaStreams(self._case.build(self._source, output), settings) as streams:
            begun = first_read(streams, _PATIENCE_S)
            watcher.wait(_PATIENCE_S, is_up(streams))
        return Run(watcher.complete_at - begun, watcher.records)

    def quix(self) -> Run:
        lab = self._lab
        python = quix_python()
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        watcher = self._watcher(output, int)
        job = "udf" if self._case.what == "map" else self._case.what
        arguments = [job, lab.bootstrap_servers, self._source, "-", output, application, state]
        arguments += [self._case.registry] if self._case.registry else []
        with Child("Quix Streams", [python, PROGRAM, *arguments], lab.path("quix-log")) as child:
            watcher.wait(_PATIENCE_S, lambda: child.is_alive)
            begun = float(json.loads(child.answer(_ANSWER_S))["at"])
            child.kill()
        return Run(watcher.complete_at - begun, watcher.records)

    def java(self) -> Run:
        lab = self._lab
        java = self._streams = self._streams or self._held.enter_context(JavaStreams(lab))
        output = lab.topic("out", PARTITIONS)
        watcher = self._watcher(output, from_big_endian)
        java.start(lab.name("app"), {}, "process", self._source, "-", output)
        try:
            watcher.wait(_PATIENCE_S, lambda: java.ask("seen") >= 0)  # raises the error that ended it
            begun = java.first_record()
        finally:
            java.ask("stop")
        return Run(watcher.complete_at - begun, watcher.records)

    def _watcher(self, output: str, decode: Callable[[bytes], int]) -> OutputWatcher:
        return OutputWatcher(self._lab.bootstrap_servers, output, PARTITIONS, self._expected, decode)


def orders(case: Case, count: int, *, seed: int = 1) -> tuple[int, Iterator[Mapping[str, Any]]]:
    """What the results add up to, and the orders as `produce` takes them: of 10,000 users, or a key each."""
    chosen = random.Random(seed)
    amounts = chosen.choices(range(1, 100), k=count)
    users = chosen.choices(range(KEYS), k=count) if case.what != "map" else range(count)
    return sum(amounts) * (1 if case.what != "map" else 2), (
        {"key": key, "value": case.value(key, amount)}
        for key, amount in zip((f"user-{user:05d}" for user in users), amounts, strict=True)
    )


_LABELS = {
    "millstream": "Millstream",
    "quix": "Quix Streams",
    "java": "Kafka Streams, defaults",
}


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Run each once to warm up, then all in turns."""
    cases = (
        Case("fold", f"A fold in Python of {KEYS:,} keys", partial(topology, "fold"), 3.0),
        Case("map", "A UDF", partial(topology, "map"), 3.0),
    )
    return report("folds", lab, cases, 60_000 if quick else 600_000, tell)


def report(name: str, lab: Lab, cases: Sequence[Case], count: int, tell: Progress) -> Report:
    """All cases, one after the other, each over this many records."""
    lab.session(tuned=True)  # it keeps running, so no run starts Spark
    tables: list[Table] = []
    goals: list[Goal] = []
    data = {}
    for case in cases:
        cold, runs, notes = _measured(lab, case, count, tell)
        table, wanted = compared(case, count, cold, runs, notes)
        tables.append(table)
        goals += wanted
        data[case.title] = {name: [asdict(run) for run in of] for name, of in runs.items()}
    return Report(name, tuple(tables), tuple(goals), {"records": count, "runs": data})


def _measured(
    lab: Lab, case: Case, count: int, tell: Progress
) -> tuple[dict[str, Run], dict[str, list[Run]], list[str]]:
    """The first run of each, the runs in turns, and notes on what is not measured."""
    source = lab.topic("orders", PARTITIONS)
    expected, records = orders(case, count)
    produce(lab.bootstrap_servers, source, records)
    cold: dict[str, Run] = {}
    notes = []
    with ExitStack() as held:
        jobs = Jobs(lab, case, source, expected, held)
        for name in case.names:
            tell(f"{case.title}: warming up {_LABELS[name]}")
            try:
                cold[name] = getattr(jobs, name)()
            except NotMeasured as error:
                notes.append(f"{_LABELS[name]} is not measured: {error}")
        runs: dict[str, list[Run]] = {name: [] for name in cold}
        for number, order in enumerate(rounds(list(runs), _REPETITIONS), 1):
            for name in order:
                tell(f"{case.title}: round {number} of {_REPETITIONS}: {_LABELS[name]}")
                runs[name].append(getattr(jobs, name)())
    return cold, runs, notes


def compared(
    case: Case, count: int, cold: Mapping[str, Run], runs: Mapping[str, list[Run]], notes: Sequence[str]
) -> tuple[Table, list[Goal]]:
    """The table, and the goals: for Millstream alone, and against Quix Streams if it was measured."""
    seconds = {name: [run.seconds for run in of] for name, of in runs.items()}
    rows = []
    for name, of in runs.items():
        taken = spread(seconds[name])
        rows.append(
            (
                _LABELS[name],
                str(taken),
                f"{count / taken.median:,.0f}",
                f"{cold[name].seconds:.2f}",
                f"{median([run.written for run in of]):,.0f}",
                "" if name == "millstream" else str(ratios(seconds[name], seconds["millstream"])),
            )
        )
    table = Table(
        f"{case.title}: {count:,} records, alternating rounds: {len(seconds['millstream'])}",
        (
            "job",
            "seconds",
            "records/s",
            "seconds, first run",
            "records written",
            "Millstream's throughput / this",
        ),
        tuple(rows),
        (*case.notes, *notes),
    )
    goals = []
    if case.rate is not None:
        rate = count / median(seconds["millstream"])
        goals.append(Goal(f"records a second: {case.title}", rate, case.rate, "/s", at_least=True))
    if "quix" in seconds:
        faster = ratios(seconds["quix"], seconds["millstream"]).median
        of_quix = f"throughput against Quix Streams: {case.title}"
        goals.append(Goal(of_quix, faster, case.least, "x", at_least=True))
    return table, goals
