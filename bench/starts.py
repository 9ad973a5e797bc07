"""From the start of a process to the first output of a word count, and the CPU time that takes.

Each start is a process of its own. The broker is already there, with one line in the source topic. The
output's time is the broker's. A client without pipelines, which joins one that has them, is measured until it
is RUNNING. `make bench ARGS=startup` shows the phases of a start.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from bench.children import Failed
from bench.contest import LABELS, Contestant, PythonContestant, hire
from bench.figures import Progress, Report, Table, median, rounds, spread
from bench.lab import Lab, NotMeasured
from bench.words import PARTITIONS, WORDS_PER_LINE, produce_lines
from bench.workloads import LONG, TEXT, Tally, finish

__all__ = ["Start", "measure", "report"]

_NAMES = ("millstream", "java", "spark", "quix")
_PATIENCE_S = 90.0


@dataclass(frozen=True, slots=True)
class Start:
    """One start: seconds until the first output or until RUNNING, and what it used."""

    seconds: float
    cpu_s: float
    memory_mb: float


def measure(lab: Lab, *, quick: bool, tell: Progress, budget_s: float) -> Report:
    """Start each several times, in turns. One that fails is left out from then on."""
    source = lab.topic("lines", PARTITIONS)
    produce_lines(lab.bootstrap_servers, source, 1)
    most = 1 if quick else 5
    end = time.monotonic() + budget_s
    found: dict[str, list[Start]] = {name: [] for name in _NAMES}
    without: list[tuple[float, Start]] = []
    why: dict[str, str] = {}
    took = 0.0
    for number, order in enumerate(rounds(_NAMES, most), 1):
        if number > 1 and time.monotonic() + took > end:
            break
        begun = time.monotonic()
        for name in order:
            if name in why:
                continue
            tell(f"start {number} of {most}: {LABELS[name]}")
            try:
                found[name].append(_start(lab, name, source, without))
            except (Failed, NotMeasured, TimeoutError, RuntimeError) as error:
                why[name] = str(error)
                tell(f"{LABELS[name]} FAILED: {error}")
        took = time.monotonic() - begun
    return report(found, without, why)


def _start(lab: Lab, name: str, source: str, without: list[tuple[float, Start]]) -> Start:
    output = lab.topic("out", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    tally = Tally(TEXT if name == "quix" else LONG)
    begun = time.time()
    contestant = _hired(lab, name)
    try:
        if isinstance(contestant, PythonContestant):
            contestant.begin("words", source, "", output)
        else:
            contestant.start("words", source, "", output)
        until = time.monotonic() + _PATIENCE_S
        done = finish(lab, output, WORDS_PER_LINE, tally, until, lambda: None)
        used = contestant.used()
        if isinstance(contestant, PythonContestant):
            contestant.begun_running()
            if name == "millstream":
                without.append(_without_pipelines(lab, source, output))
    finally:
        contestant.close()
    return Start(done.at - begun, used.cpu_s, used.memory_mb)


def _hired(lab: Lab, name: str) -> Contestant:
    return hire(lab, name, settings={"keep": False} if name == "millstream" else {})


def _without_pipelines(lab: Lab, source: str, output: str) -> tuple[float, Start]:
    """A client that joins: how long it took from `start()` to RUNNING, and the whole process."""
    begun = time.time()
    joining = _hired(lab, "millstream")
    assert isinstance(joining, PythonContestant)
    try:
        joining.begin("words", source, "", output)
        running_s = joining.begun_running()
        ended, used = time.time(), joining.used()
    finally:
        joining.close()
    return running_s, Start(ended - begun, used.cpu_s, used.memory_mb)


def report(found: dict[str, list[Start]], without: list[tuple[float, Start]], why: dict[str, str]) -> Report:
    """One table."""
    rows = []
    data: dict[str, object] = {"why": why}

    def row(label: str, starts: list[Start]) -> None:
        seconds = spread([start.seconds for start in starts])
        cpu, memory = median([s.cpu_s for s in starts]), median([s.memory_mb for s in starts])
        rows.append((label, str(seconds), f"{cpu:.1f}", f"{memory:,.0f}"))

    for name, starts in found.items():
        if starts:
            row(LABELS[name], starts)
            data[name] = [asdict(start) for start in starts]
    if without:
        row("Millstream, a client without pipelines, to RUNNING", [start for _, start in without])
        data["without"] = [{"running_s": seconds, **asdict(start)} for seconds, start in without]
    notes = [f"{LABELS[name]}: {reason}" for name, reason in why.items()]
    if without:
        own = median([seconds for seconds, _ in without])
        notes.append(
            f"without pipelines, from start() to RUNNING: {own:.2f} s; the rest is Python's own start"
        )
    table = Table(
        "Start of a process to the first output of a word count",
        ("job", "seconds", "CPU s", "MB"),
        tuple(rows),
        tuple(notes),
    )
    return Report("starts", (table,), (), data)
