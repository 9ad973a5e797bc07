"""How many records a second each contestant processes, workload by workload, in alternating rounds."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from bench.contest import LABELS, NAMES, Contest, Outcome, hire, in_rounds
from bench.figures import Progress, Report, Table, median, ratios, spread
from bench.lab import Lab, OutOfTimeError
from bench.workloads import WORKLOADS, Input, Workload

__all__ = ["WEIGHTS", "measure", "report"]

WEIGHTS: Mapping[str, float] = {"map": 1.5, "words": 3.0}
"""Workloads that get a larger share of the available time than the others."""
_QUICK = ("map", "words", "fold")


def measure(lab: Lab, *, quick: bool, tell: Progress, budget_s: float) -> Report:
    """Run all workloads, or for a quick run one round of each of a few."""
    chosen = [WORKLOADS[name] for name in (_QUICK if quick else WORKLOADS)]
    found: dict[str, dict[str, Outcome]] = {}
    tell("starting contestants")
    late = ""
    with Contest(lab, NAMES, lambda name: hire(lab, name)) as contest:
        try:
            _contend(lab, contest, chosen, quick, tell, time.monotonic() + budget_s, found)
        except OutOfTimeError as error:
            late = f"{error}; what it has so far is shown"
            tell(late)
    return report(found, late)


def _contend(
    lab: Lab,
    contest: Contest,
    chosen: Sequence[Workload],
    quick: bool,
    tell: Progress,
    end: float,
    found: dict[str, dict[str, Outcome]],
) -> None:
    left = sum(WEIGHTS.get(workload.name, 1.0) for workload in chosen)
    for workload in chosen:
        weight = WEIGHTS.get(workload.name, 1.0)
        until = time.monotonic() + (end - time.monotonic()) * weight / left
        left -= weight
        tell(f"{workload.title}: writing its records")
        inputs = _inputs(lab, workload, quick)
        found[workload.name] = in_rounds(
            contest,
            workload,
            inputs,
            most=1 if quick else 3,
            until=until,
            deadline_s=40.0 if quick else 60.0,
            tell=tell,
        )
        for given in {given.left: given for given in inputs.values()}.values():
            lab.kafka.delete_topic(given.left)
            lab.kafka.delete_topic(given.right)


def _inputs(lab: Lab, workload: Workload, quick: bool) -> dict[str, Input]:
    """The topics, for each contestant and for warming up; a smaller one for slow contestants."""
    size = workload.quick if quick else workload.size
    all_of_it = workload.write(lab, size)
    some = all_of_it if workload.slow == 1.0 else workload.write(lab, int(size * workload.slow))
    return {**dict.fromkeys(NAMES, all_of_it), "quix": some, "warm": some}


def report(found: Mapping[str, Mapping[str, Outcome]], late: str = "") -> Report:
    """A table for each workload, and all figures."""
    tables = tuple(_table(WORKLOADS[name], outcomes) for name, outcomes in found.items())
    data = {
        name: {
            who: {"runs": [asdict(run) for run in outcome.runs], "why": outcome.why}
            for who, outcome in outcomes.items()
        }
        for name, outcomes in found.items()
    }
    return Report("throughput", tables, (), data, failed=late)


def _table(workload: Workload, outcomes: Mapping[str, Outcome]) -> Table:
    rows, notes = [], []
    mine = [run.rate for run in outcomes["millstream"].runs]
    for name in NAMES:
        outcome = outcomes.get(name, Outcome())
        if outcome.why:
            notes.append(f"{LABELS[name]}: {outcome.why}")
        if not outcome.runs:
            rows.append((LABELS[name], "-", "", "", "", "", ""))
            continue
        runs = outcome.runs
        rates = [run.rate for run in runs]
        paired = min(len(mine), len(rates))
        against = "" if name == "millstream" or not paired else str(ratios(mine[:paired], rates[:paired]))
        per_million = median([run.cpu_s / run.records * 1e6 for run in runs])
        rows.append(
            (
                LABELS[name],
                f"{median(rates):,.0f}",
                f"{min(rates):,.0f} to {max(rates):,.0f}",
                str(spread([run.seconds for run in runs])),
                f"{per_million:.1f}",
                f"{median([run.memory_mb for run in runs]):,.0f}",
                against,
            )
        )
    sizes = {run.records for outcome in outcomes.values() for run in outcome.runs}
    counts = {len(outcome.runs) for outcome in outcomes.values() if outcome.runs}
    many = " or ".join(f"{size:,}" for size in sorted(sizes, reverse=True))
    return Table(
        f"Throughput: {workload.title}; {many} records, alternating rounds: {max(counts, default=0)}",
        (
            "job",
            "records/s",
            "spread",
            "seconds",
            "CPU s per million",
            "MB",
            "Millstream's throughput / this",
        ),
        tuple(rows),
        tuple(notes),
    )
