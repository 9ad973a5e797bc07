"""How long a record takes from topic to topic: the contestants in turns, with nothing else running.

Records are sent in three ways. One at a time: the next record is sent shortly after the last one has come
out. And 50 or 1,000 a second, at random moments, regardless of the results. Each turn is a fresh start of a
job, and is measured once it has had some traffic: 20 s of it the first time that a contestant with Spark does
a job, because Java has all of Spark to compile, and 6 s otherwise. All are set up for latency: Millstream and
Kafka Streams have no cache, the latter no linger; a count by hand writes a changelog too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from bench.children import Child, Failed
from bench.contest import LABELS, Contest, hire
from bench.figures import Progress, Report, Table, percentile, rounds
from bench.lab import Lab, NotMeasured, OutOfTimeError
from bench.traffic import KEYS, PARTITIONS, latencies_ms

__all__ = ["MODES", "Traffic", "Turn", "measure", "report"]

JOBS: Mapping[str, str] = {"map": "filter and map", "count": "count"}
MODES: Mapping[str, str] = {
    "single": "one at a time",
    "50": "50/s",
    "1000": "1,000/s",
    "minutes": "50/s, for minutes",
}
_PERCENTILES = (50, 90, 99)
_STARTED_S = 60.0
_SLACK_S = 45.0

Found = dict[str, dict[str, dict[str, list[float]]]]
"""Milliseconds, by job, contestant and mode."""


@dataclass(frozen=True, slots=True)
class Turn:
    """How much traffic of each kind a contestant gets in one turn."""

    warm_s: float
    singles: int
    seconds: float
    busy_s: float


_FULL = Turn(6.0, 40, 5.0, 2.0)
_QUICK = Turn(1.0, 10, 2.0, 0.0)
_WITH_SPARK = ("millstream", "spark")
_FIRST_TIME = 20 / 6
"""How much longer a contestant with Spark warms up the first time that it does a job."""


def measure(lab: Lab, *, quick: bool, tell: Progress, budget_s: float) -> Report:
    """Map and count; then Millstream for minutes, if there is time."""
    turn = _QUICK if quick else _FULL
    names = ["millstream", "java", "spark", "quix"]
    long_s = 0.0 if quick else min(100.0, budget_s / 4)
    end = time.monotonic() + budget_s - long_s
    found: Found = {job: {} for job in JOBS}
    why: dict[str, str] = {}
    try:
        with Contest(lab, names, lambda name: _hire(lab, name)) as contest:
            why |= {LABELS[name]: reason for name, reason in contest.absent.items()}
            turns = _Turns(lab, contest, tell, found, why)
            turns.in_rounds([name for name in names if name in contest.names], turn, 1 if quick else 3, end)
            if long_s:
                turns.for_minutes("millstream", long_s)
    except OutOfTimeError as error:
        why["the rest"] = str(error)
    return report(found, why)


class _Turns:
    """Runs turns. Results go to `found`, and the reasons for missing ones to `why`."""

    def __init__(self, lab: Lab, contest: Contest, tell: Progress, found: Found, why: dict[str, str]) -> None:
        self._lab, self._contest, self._tell, self._found, self._why = lab, contest, tell, found, why
        self._warm: set[tuple[str, str]] = set()

    def in_rounds(self, names: Sequence[str], turn: Turn, most: int, end: float) -> None:
        """Both jobs of all contestants in turns, while there is time, but at least once."""
        took = 0.0
        for number, order in enumerate(rounds(names, most), 1):
            if number > 1 and time.monotonic() + took > end:
                return
            begun = time.monotonic()
            for job in JOBS:
                for name in order:
                    self._one(name, job, turn, f"round {number}")
            took = time.monotonic() - begun

    def for_minutes(self, name: str, seconds: float) -> None:
        """A count at 50/s for a long time, for the highest percentiles."""
        turn = Turn(_FULL.warm_s * _FIRST_TIME, 0, seconds, 0.0)
        self._one(name, "count", turn, f"{seconds:.0f} s of 50/s", {"50": "minutes"})

    def _one(
        self, name: str, job: str, turn: Turn, what: str, names: Mapping[str, str] | None = None
    ) -> None:
        self._tell(f"{JOBS[job]}: {what}: {LABELS[name]}")
        if name in _WITH_SPARK and (name, job) not in self._warm and names is None:
            turn = replace(turn, warm_s=_FIRST_TIME * turn.warm_s)
        try:
            taken = _turn(self._lab, self._contest, name, job, turn)
        except (Failed, NotMeasured, RuntimeError, ValueError) as error:
            self._contest.dismiss(name)
            self._warm -= {(name, each) for each in JOBS}
            self._why[f"{LABELS[name]}, {JOBS[job]}"] = str(error)
            self._tell(f"{JOBS[job]}: {LABELS[name]} FAILED: {error}")
            return
        self._warm.add((name, job))
        for mode, values in taken.items():
            by_mode = self._found[job].setdefault(name, {})
            by_mode.setdefault((names or {}).get(mode, mode), []).extend(values)


def _hire(lab: Lab, name: str) -> Any:
    return hire(lab, name, quick_to_answer=True)


class Traffic:
    """A sender, and a reader of the results from now on; each is a process of its own (`bench.traffic`)."""

    def __init__(
        self,
        lab: Lab,
        held: ExitStack,
        source: str,
        output: str,
        kind: str,
        check: Callable[[], None],
        *,
        partitions: int = PARTITIONS,
        before: int = 0,
    ) -> None:
        """
        Args:
            held: ends the processes.
            kind: how the results are written, one of `traffic.FORMATS`.
            check: raises what has ended the job.
            before: how many records each key has had.
        """

        def child(role: str, *arguments: object) -> Child:
            command = [sys.executable, "-m", "bench.traffic", role, lab.bootstrap_servers, source, *arguments]
            return held.enter_context(Child(f"{role}er", command, lab.path("log")))

        self._sender, self._reader = child("send", before), child("read", output, kind, partitions)
        self._check, self._numbers = check, dict[str, int]()
        self._reader.ask(_STARTED_S, do="until", numbers={}, timeout=0)  # now it is where the output ends

    def at(self, rate: float, seconds: float, slack_s: float = _SLACK_S, keys: int = KEYS) -> list[float]:
        """Send for this time, and wait for all results. Returns how long each took, in ms."""
        asked = {"rate": rate, "seconds": seconds, "keys": keys}
        sent = self._sender.ask(seconds + _SLACK_S, **asked)["sent"]
        for key, number, _ in sent:
            self._numbers[key] = max(number, self._numbers.get(key, 0))
        self._check()
        seen = self._reader.ask(slack_s + 5, do="until", numbers=self._numbers, timeout=slack_s)["seen"]
        return latencies_ms([(key, number, when) for key, number, when in sent], seen)

    def singles(self, times: int) -> list[float]:
        """Send this many, each shortly after the previous result. Returns how long each took, in ms."""
        taken: list[float] = self._reader.ask(_SLACK_S, do="singles", times=times)["ms"]
        return taken


def _turn(lab: Lab, contest: Contest, name: str, job: str, turn: Turn) -> dict[str, list[float]]:
    """One contestant, from the start of a job to its end; milliseconds by mode."""
    source, output = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS)
    kind = "map" if job == "map" else "text" if name == "quix" else "long"
    contestant = contest.of(name)
    contestant.wait_until_ready()
    with ExitStack() as held:
        traffic = Traffic(lab, held, source, output, kind, contestant.check)
        contestant.start(job, source, "", output)
        traffic.at(20.0, 0.5, _STARTED_S)
        traffic.at(50.0, turn.warm_s)
        found = {}
        if turn.singles:
            found["single"] = traffic.singles(turn.singles)
        if turn.seconds:
            found["50"] = traffic.at(50.0, turn.seconds)
        if turn.busy_s:
            traffic.at(1000.0, turn.busy_s / 4)
            found["1000"] = traffic.at(1000.0, turn.busy_s)
        contestant.stop()
    for topic in (source, output):
        lab.kafka.delete_topic(topic)
    return found


def report(found: Mapping[str, Mapping[str, Mapping[str, list[float]]]], why: Mapping[str, str]) -> Report:
    """A table for each job, over all rounds together."""
    tables = []
    data: dict[str, Any] = {}
    for job, by_name in found.items():
        rows = []
        for name, by_mode in by_name.items():
            for mode, values in by_mode.items():
                figures = {f"p{percent}": percentile(values, percent) for percent in _PERCENTILES}
                figures["p99.9"] = percentile(values, 99.9)
                data.setdefault(job, {}).setdefault(name, {})[mode] = {**figures, "records": len(values)}
                cells = [f"{figures[f'p{percent}']:.1f}" for percent in _PERCENTILES]
                tail = f"{figures['p99.9']:.1f}" if len(values) >= 1000 else ""
                rows.append((LABELS[name], MODES[mode], f"{len(values):,}", *cells, tail))
        order = list(MODES.values())
        rows.sort(key=lambda row: order.index(row[1]))
        title = f"Latency in ms: {JOBS[job]}, topic to topic, {PARTITIONS} partitions"
        columns = ("job", "records sent", "records", "p50", "p90", "p99", "p99.9")
        tables.append(Table(title, columns, tuple(rows)))
    if tables:
        last = tables.pop()
        notes = tuple(f"{who}: {reason}" for who, reason in why.items())
        tables.append(Table(last.title, last.columns, last.rows, notes))
    return Report("latency", tuple(tables), (), {**data, "why": dict(why)})
