"""The command: `python -m bench [names…] [--quick]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

_OUT = Path("build") / "bench"
_OUT.mkdir(parents=True, exist_ok=True)
# What Spark's JVM prints would break up the tables. Set before anything starts it.
os.environ.setdefault("MILLSTREAM_SPARK_LOG", str((_OUT / "spark.log").absolute()))
_PANDAS = "PySpark does not yet fully support pandas"
warnings.filterwarnings("ignore", message=_PANDAS)
os.environ.setdefault("PYTHONWARNINGS", f"ignore:{_PANDAS}")  # for the processes that benchmarks start

from rich.console import Console  # noqa: E402
from rich.status import Status  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

from bench import (  # noqa: E402
    failures,
    folds,
    joins,
    latency,
    memory,
    processors,
    reads,
    restore,
    server,
    sink,
    startup,
    throughput,
    windows,
)
from bench.figures import Report  # noqa: E402
from bench.lab import Lab, machine_facts  # noqa: E402

_BENCHMARKS: dict[str, Callable[..., Report]] = {
    "throughput": throughput.measure,
    "latency": latency.measure,
    "windows": windows.measure,
    "joins": joins.measure,
    "sink": sink.measure,
    "folds": folds.measure,
    "processors": processors.measure,
    "reads": reads.measure,
    "server": server.measure,
    "startup": startup.measure,
    "restore": restore.measure,
    "memory": memory.measure,
    "failures": failures.measure,
}


def main() -> int:
    """Run what was asked for, print tables, write `build/bench/latest.json`; 1 when a goal was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(_BENCHMARKS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="less input, fewer rounds: a first look")
    parser.add_argument("--lines", type=int, help="how many lines throughput counts (1000000)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a goal is missed")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(_BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark '{unknown[0]}'; there are {', '.join(_BENCHMARKS)}")
    console = Console(width=max(120, Console().width))
    facts = machine_facts()
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), highlight=False)
    reports: list[Report] = []
    begun = time.monotonic()
    with Lab() as lab:
        for name in given.names or _BENCHMARKS:
            with console.status(name) as status:

                def tell(what: str, name: str = name, status: Status = status) -> None:
                    status.update(f"{name}: {what}")
                    if not console.is_terminal:  # where the line above shows nothing
                        print(f"{time.monotonic() - begun:4.0f} s  {name}: {what}", file=sys.stderr)

                size = {"lines": given.lines} if name == "throughput" and given.lines else {}
                report = _BENCHMARKS[name](lab, quick=given.quick, tell=tell, **size)
            reports.append(report)
            _show(console, report)
            _write(facts, given.quick, reports)
    missed = [goal for report in reports for goal in report.goals if not goal.met]
    console.print(f"{time.monotonic() - begun:.0f} s; figures are in {_OUT / 'latest.json'}")
    return 1 if missed and given.strict else 0


def _show(console: Console, report: Report) -> None:
    for table in report.tables:
        shown = RichTable(title=table.title, title_justify="left", title_style="bold")
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(f"  {note}", style="dim", highlight=False)
    for goal in report.goals:
        console.print(f"  {goal}", style="green" if goal.met else "yellow", highlight=False)
    console.print()


def _write(facts: dict[str, object], quick: bool, reports: list[Report]) -> None:
    """After each benchmark, so that an interrupted run leaves what it has."""
    found = {"machine": facts, "quick": quick, "benchmarks": [report.as_json() for report in reports]}
    (_OUT / "latest.json").write_text(json.dumps(found, indent=1, default=str))


if __name__ == "__main__":
    sys.exit(main())
