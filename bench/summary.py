"""The table at the end: what was measured, for each contestant, and whether it meets its goal. Pure.

It is computed from the figures in `build/bench/latest.json`, so it can be made again from that file.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench.figures import Table, median, number

__all__ = ["COLUMNS", "Check", "Row", "rows", "table"]

COLUMNS = ("what", "Millstream", "Kafka Streams", "Spark by hand", "Quix Streams", "goal", "")
_OTHERS = ("java", "spark", "quix")
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Check:
    """A goal: its text, and whether it is met; None if its figures were not measured."""

    text: str
    met: bool | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line: the texts of the four contestants, and goals."""

    what: str
    millstream: str
    others: tuple[str, str, str] = (_NONE, _NONE, _NONE)
    checks: tuple[Check, ...] = ()

    @property
    def verdict(self) -> str:
        if not self.checks:
            return ""
        if any(check.met is False for check in self.checks):
            return "missed"
        return "met" if all(check.met for check in self.checks) else "not measured"

    def cells(self) -> tuple[str, ...]:
        return (
            self.what,
            self.millstream,
            *self.others,
            "; ".join(check.text for check in self.checks),
            self.verdict,
        )


def table(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """The table of a run, given its parts by name, each as `Report.as_json` has it."""
    lines = rows(found)
    counts = {verdict: sum(line.verdict == verdict for line in lines) for verdict in ("met", "missed")}
    notes = [f"{counts['met']} goals met, {counts['missed']} missed"]
    notes += [
        f"{name} was not measured: {part['failed']}" for name, part in found.items() if part.get("failed")
    ]
    return Table(
        "Figures and goals",
        COLUMNS,
        tuple(line.cells() for line in lines),
        tuple(notes),
    )


def rows(found: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """All lines. Parts that did not run have none."""
    made: list[Row] = []
    for name, lines in (
        ("throughput", _throughput),
        ("latency", _latency),
        ("starts", _starts),
        ("throughput", _memory),
        ("reads", _reads),
        ("restore", _restored),
    ):
        data = found.get(name, {}).get("data")
        if data:
            made += lines(data)
    for name in ("restore", "failures", "scale"):
        made += _of_goals(name, found.get(name, {}).get("goals", ()))
    return made


# --- goals -----------------------------------------------------------------------------------------------


def _at_least(times: float, of: str, mine: float | None, other: float | None) -> Check:
    text = f"≥ {times:g} times {of}"
    if not mine or not other:
        return Check(text, None)
    return Check(f"{text}: {mine / other:.2f}", mine >= times * other)


def _at_most_of(times: float, of: str, mine: float | None, other: float | None, what: str = "") -> Check:
    text = f"{what}≤ {times:g} times {of}"
    if not mine or not other:
        return Check(text, None)
    return Check(f"{text}: {mine / other:.2f}", mine <= times * other)


def _limit(
    what: str, limit: float, measured: float | None, is_met: Callable[[float, float], bool] = operator.le
) -> Check:
    return Check(f"{what} ≤ {limit:g}", None if measured is None else is_met(measured, limit))


# --- parts -----------------------------------------------------------------------------------------------

_THROUGHPUT: Mapping[str, tuple[str, tuple[tuple[float, str], ...]]] = {
    "map": ("filter and map, records/s", ((0.97, "spark"),)),
    "words": ("word count, lines/s", ((0.97, "spark"), (5.0, "java"))),
    "windows": ("count in tumbling windows, records/s", ((0.97, "spark"), (1.0, "java"))),
    "sessions": ("count in sessions, records/s", ((1.0, "java"),)),
    "join": ("join of two streams, records/s", ((0.9, "spark"),)),
    "lookup": ("join of a stream with a table, records/s", ((2.0, "java"),)),
    "fold": ("fold in Python, records/s", ((3.0, "quix"),)),
    "udf": ("function in Python, records/s", ((3.0, "quix"),)),
}
_SHORT = {"spark": "Spark", "java": "Kafka Streams", "quix": "Quix"}


def _runs(data: Mapping[str, Any], workload: str, name: str, figure: Callable[[Any], float]) -> float | None:
    runs = data.get(workload, {}).get(name, {}).get("runs", ())
    return median([figure(run) for run in runs]) if runs else None


def _throughput(data: Mapping[str, Any]) -> Iterable[Row]:
    for workload, (what, goals) in _THROUGHPUT.items():
        if workload not in data:
            continue
        rates = {
            name: _runs(data, workload, name, lambda run: run["records"] / run["seconds"])
            for name in ("millstream", *_OTHERS)
        }
        failed = {name: bool(data[workload].get(name, {}).get("why")) for name in rates}
        texts = {
            name: f"{rate:,.0f}" if rate else "failed" if failed[name] and name == "millstream" else _NONE
            for name, rate in rates.items()
        }
        checks = tuple(
            _at_least(times, _SHORT[other], rates["millstream"], rates[other]) for times, other in goals
        )
        yield Row(what, texts["millstream"], _three(texts), checks)


def _three(texts: Mapping[str, str]) -> tuple[str, str, str]:
    java, spark, quix = (texts.get(name, _NONE) for name in _OTHERS)
    return java, spark, quix


_LIMITS: Mapping[tuple[str, str], tuple[tuple[str, float], ...]] = {
    ("map", "single"): (("p50", 2.5), ("p99", 8)),
    ("map", "50"): (("p99", 15),),
    ("count", "single"): (("p50", 5), ("p99", 12)),
    ("count", "50"): (("p50", 5), ("p99", 12)),
}
_MODES = {"single": "one at a time", "50": "50/s", "1000": "1,000/s"}


def _latency(data: Mapping[str, Any]) -> Iterable[Row]:
    for job in ("map", "count"):
        by_name = data.get(job, {})
        for mode, said in _MODES.items():
            texts = {name: _percentiles(of[mode]) for name, of in by_name.items() if mode in of}
            if not texts:
                continue
            mine = by_name.get("millstream", {}).get(mode)
            limits = _LIMITS.get((job, mode), ())
            checks = tuple(_limit(name, limit, mine and mine[name]) for name, limit in limits)
            yield Row(f"{job}, {said}, p50 / p90 / p99 ms", _percentiles(mine), _three(texts), checks)
    minutes = data.get("count", {}).get("millstream", {}).get("minutes")
    if minutes:
        checks = (_limit("p99.9", 150, minutes["p99.9"]),)
        text = f"{_percentiles(minutes)} / {minutes['p99.9']:.0f}"
        yield Row("count, 50/s for minutes, and p99.9", text, checks=checks)


def _percentiles(figures: Mapping[str, float] | None) -> str:
    if not figures:
        return _NONE
    return " / ".join(f"{figures[name]:.1f}" for name in ("p50", "p90", "p99"))


def _starts(data: Mapping[str, Any]) -> Iterable[Row]:
    def middle(name: str, figure: str) -> float | None:
        return median([start[figure] for start in data[name]]) if data.get(name) else None

    names = ("millstream", *_OTHERS)
    for figure, what, limit in (
        ("seconds", "start of the process to the first output, s", 5),
        ("cpu_s", "the same, CPU seconds", 8),
    ):
        found = {name: middle(name, figure) for name in names}
        texts = {name: _NONE if value is None else f"{value:.1f}" for name, value in found.items()}
        yield Row(what, texts["millstream"], _three(texts), (_limit("", limit, found["millstream"]),))
    if data.get("without"):
        running = middle("without", "running_s")
        yield Row(
            "a client without pipelines, start() to RUNNING, s",
            f"{running:.2f}",
            checks=(_limit("", 0.5, running),),
        )


def _memory(data: Mapping[str, Any]) -> Iterable[Row]:
    job = "words" if "words" in data else next(iter(data))
    memory = {name: _runs(data, job, name, lambda run: run["memory_mb"]) for name in ("millstream", *_OTHERS)}
    texts = {name: f"{value:,.0f}" if value else _NONE for name, value in memory.items()}
    checks = (_at_most_of(1.0, "Spark", memory["millstream"], memory["spark"]),)
    yield Row("memory with its JVM, MB", texts["millstream"], _three(texts), checks)


def _reads(data: Mapping[str, Any]) -> Iterable[Row]:
    mine, java = data.get("of_millstream") or {}, data.get("of_java") or {}
    if not mine:
        return
    parts = f"{data['partitions']} partitions"

    def row(what: str, name: str, form: str, check: Check) -> Row:
        return Row(
            what,
            format(mine[name], form),
            (format(java[name], form) if java else _NONE, _NONE, _NONE),
            (check,),
        )

    yield row(
        f"get, {parts}, us of CPU time",
        "get_us",
        ".2f",
        _at_most_of(0.5, "Kafka Streams", mine["get_us"], java.get("get_us")),
    )
    for name, what in (("range", "range of 1,000"), ("scan", "whole scan")):
        check = _at_least(1.0, "Kafka Streams", mine[name], java.get(name))
        yield row(f"{what}, {parts}, entries/s", name, ",.0f", check)


def _restored(data: Mapping[str, Any]) -> Iterable[Row]:
    rate = data["records"] / median(data["seconds"]["to RocksDB"])
    java = data.get("java_filled_s")
    others = (f"{data['records'] / java:,.0f}" if java else _NONE, _NONE, _NONE)
    yield Row("a table filled from a topic, records/s", f"{rate:,.0f}", others)


def _of_goals(part: str, goals: Sequence[Mapping[str, Any]]) -> Iterable[Row]:
    for goal in goals:
        sign = "≥" if goal["at_least"] else "≤"
        check = Check(f"{sign} {number(goal['limit'])}", goal["met"])
        yield Row(f"{part}: {goal['what']}, {goal['unit']}", number(goal["measured"]), checks=(check,))
