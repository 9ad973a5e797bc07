"""The command: `python -m bench [names…] [--quick] [--publish]`."""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_OUT = Path("build") / "bench"
_OUT.mkdir(parents=True, exist_ok=True)
# The output of Spark's JVM would break up the tables. Set before anything starts it.
os.environ.setdefault("MILLSTREAM_SPARK_LOG", str((_OUT / "spark.log").absolute()))
# Otherwise each process would compile everything it imports, which no user's process does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
_PANDAS = "PySpark does not yet fully support pandas"
warnings.filterwarnings("ignore", message=_PANDAS)
os.environ.setdefault("PYTHONWARNINGS", f"ignore:{_PANDAS}")  # for the benchmarks' processes

from rich.console import Console  # noqa: E402
from rich.status import Status  # noqa: E402
from rich.table import Table as RichTable  # noqa: E402

import millstream  # noqa: E402
from bench import (  # noqa: E402
    failures,
    folds,
    joins,
    latency,
    memory,
    page,
    processors,
    reads,
    restore,
    scale,
    server,
    sizing,
    starts,
    startup,
    summary,
    tasks,
    throughput,
)
from bench.figures import Report  # noqa: E402
from bench.lab import Lab, NotMeasured, OutOfTimeError, machine_facts  # noqa: E402
from bench.quix import quix_python  # noqa: E402

_DOCS = Path("docs")
_ALL_OF_IT_S, _QUICK_S = 890.0, 235.0
"""The time limits of a run that names no part."""
_LEAST_S = 10.0
_OWN_RUN = "scale"
"""A part that takes longer than a whole run may. A published page has the figures of its own last run."""
_PREPARED_S = 1200.0


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run.

    Attributes:
        seconds, quick: its time limit, in a full and in a quick run. It is given up after one and a half
            times as long, plus a minute.
        usual: whether it belongs to a run that names no part, and to a quick one of those.
        brief: a run that names no part measures its quick form.
        paced: it gets its time limit as `budget_s`, and runs fewer rounds on a slow machine.
    """

    measure: Callable[..., Report]
    seconds: float
    quick: float
    usual: tuple[bool, bool] = (False, False)
    brief: bool = False
    paced: bool = False


_PARTS: Mapping[str, Part] = {
    "throughput": Part(throughput.measure, 260, 80, (True, True), paced=True),
    "latency": Part(latency.measure, 370, 90, (True, True), paced=True),
    "starts": Part(starts.measure, 50, 30, (True, True), paced=True),
    "reads": Part(reads.measure, 90, 25, (True, True), brief=True),
    "restore": Part(restore.measure, 180, 35, (True, False), brief=True),
    "failures": Part(failures.measure, 600, 70, (True, False), brief=True),
    "scale": Part(scale.measure, 1500, 90, paced=True),
    "joins": Part(joins.measure, 900, 300),
    "folds": Part(folds.measure, 400, 120),
    "processors": Part(processors.measure, 400, 120),
    "startup": Part(startup.measure, 300, 120),
    "server": Part(server.measure, 120, 60),
    "memory": Part(memory.measure, 600, 120),
    "tasks": Part(tasks.measure, 900, 200),
}


def main() -> int:
    """Run the requested parts and print tables.

    Returns:
        2 if a part failed; 1, with `--strict`, if a goal was missed
    """
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"any of {', '.join(_PARTS)}; default: the usual ones"
    )
    parser.add_argument("--quick", action="store_true", help="less input, fewer rounds: a first look")
    parser.add_argument("--publish", action="store_true", help="write docs/performance.md and docs/sizing.md")
    parser.add_argument(
        "--patience",
        type=float,
        default=1.0,
        metavar="N",
        help="multiply all time limits by N, for a busy machine",
    )
    parser.add_argument("--strict", action="store_true", help="exit with status 1 if a goal is missed")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - set(_PARTS))
    if unknown:
        parser.error(f"no benchmark '{unknown[0]}'; the benchmarks are {', '.join(_PARTS)}")
    if given.publish and given.names:
        parser.error("--publish needs a whole run; leave out the names of parts")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything started is ended
    console = Console(width=max(120, Console().width))
    facts = machine_facts()
    console.print(page.machine(facts), highlight=False)
    with suppress(NotMeasured):  # each part reports it later
        quix_python()  # the first call installs it, which must not count in any part
    _prepare(console)
    begun = time.monotonic()
    end = math.inf if given.names else begun + given.patience * (_QUICK_S if given.quick else _ALL_OF_IT_S)
    reports: list[Report] = []
    for name in given.names or [name for name, part in _PARTS.items() if part.usual[given.quick]]:
        quick = given.quick or (not given.names and _PARTS[name].brief)
        reports.append(_report(name, console, begun, end, quick=quick, patience=given.patience))
        _show(console, reports[-1])
        _write(facts, given.quick, reports)
        if name == _OWN_RUN and not quick and not reports[-1].failed:
            kept = {"machine": facts, "part": reports[-1].as_json()}
            (_OUT / f"{name}.json").write_text(json.dumps(kept, indent=1, default=str))
    found = {report.name: report.as_json() for report in reports}
    whole = summary.table(found)
    if whole.rows:
        _show(console, Report("summary", (whole,)))
    if given.publish:
        _publish(facts, given.quick, found, reports)
    console.print(f"{time.monotonic() - begun:.0f} s; figures are in {_OUT / 'latest.json'}")
    if any(report.failed for report in reports):
        return 2
    missed = any(row[-1] == "missed" for row in whole.rows) or any(
        not goal.met for report in reports for goal in report.goals
    )
    return 1 if missed and given.strict else 0


def _prepare(console: Console) -> None:
    """Have the class-data archive made if this checkout's programs have none.

    Otherwise the first client makes it in the background while it is measured, which takes a minute of CPU
    time and several hundred MB.
    """
    known = _OUT / "prepared.json"
    kernel = Path(millstream.__file__).parent / "kernel"
    with suppress(OSError, ValueError, KeyError):
        archive = json.loads(known.read_text())["archive"]
        made = known.stat().st_mtime
        # An archive fits only the jars it was made from, the kernel's among them.
        is_of_this_kernel = all(jar.stat().st_mtime < made for jar in kernel.glob("*.jar"))
        if is_of_this_kernel and (archive is None or Path(archive).exists()):
            return
    with console.status("preparing this machine, once (`millstream prepare`)"):
        if not console.is_terminal:
            print("preparing this machine, once (`millstream prepare`)", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", "millstream", "prepare", "--json"]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=_PREPARED_S)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 1)
    if done.returncode:
        console.print("`millstream prepare` failed; the first measurements may be slow", style="yellow")
    else:
        known.write_text(done.stdout)


def _report(name: str, console: Console, begun: float, end: float, *, quick: bool, patience: float) -> Report:
    """Measure one part, with a broker of its own. If it fails, the report says so."""
    part = _PARTS[name]
    budget_s = patience * (part.quick if quick else part.seconds)
    most_s = min(1.5 * budget_s + 60, end - time.monotonic())
    with console.status(name) as status:

        def tell(what: str, status: Status = status) -> None:
            status.update(f"{name}: {what}")
            if not console.is_terminal:  # without a terminal, the line above shows nothing
                print(f"{time.monotonic() - begun:4.0f} s  {name}: {what}", file=sys.stderr, flush=True)

        paced = {"budget_s": budget_s} if part.paced else {}
        try:
            if most_s < _LEAST_S:
                raise OutOfTimeError("the earlier parts used up all the time")
            with Lab(patience) as lab, _at_most(most_s):
                return part.measure(lab, quick=quick, tell=tell, **paced)
        except Exception as error:
            tell(f"FAILED: {type(error).__name__}: {error}")
            return Report(name, failed=f"{type(error).__name__}: {error}")


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises `OutOfTimeError` in the main thread after this time."""

    def give_up(*_: object) -> None:
        raise OutOfTimeError(f"given up after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _show(console: Console, report: Report) -> None:
    if report.failed:
        console.print(f"{report.name} FAILED: {report.failed}", style="red", highlight=False)
    for table in report.tables:
        shown = RichTable(title=table.title, title_justify="left", title_style="bold")
        for number, column in enumerate(table.columns):
            shown.add_column(column, justify="left" if number == 0 else "right")
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
        for note in table.notes:
            console.print(f"  {note}", style="dim", highlight=False, markup=False)
    for goal in report.goals:
        console.print(f"  {goal}", style="green" if goal.met else "yellow", highlight=False)
    console.print()


def _write(facts: dict[str, object], quick: bool, reports: list[Report]) -> None:
    """Write the figures; called after each part, so that an interrupted run keeps its results."""
    found = {"machine": facts, "quick": quick, "benchmarks": [report.as_json() for report in reports]}
    (_OUT / "latest.json").write_text(json.dumps(found, indent=1, default=str))


def _of_own_run() -> dict[str, Any] | None:
    """The figures of the last full run of `_OWN_RUN`; None if there was none."""
    with suppress(OSError, ValueError):
        read: dict[str, Any] = json.loads((_OUT / f"{_OWN_RUN}.json").read_text())
        return read
    return None


def _publish(
    facts: dict[str, object],
    quick: bool,
    found: Mapping[str, Mapping[str, Any]],
    reports: Sequence[Report],
) -> None:
    """Write the pages under docs/, their plots, and the figures in them."""
    shown = {**facts, "quick": "yes, so take none of the figures seriously"} if quick else facts
    tables = {report.name: report.tables for report in reports if report.tables}
    own = _of_own_run()
    if own is not None:
        found = {**found, _OWN_RUN: own["part"]}
        tables[_OWN_RUN] = scale.again(own["part"]["data"], page.machine(own["machine"])).tables
    (_DOCS / "performance.md").write_text(page.page(shown, found, tables))
    (_DOCS / "sizing.md").write_text(sizing.page(facts, found))
    (_DOCS / "performance.json").write_text(
        json.dumps({"machine": shown, "parts": found}, indent=1, default=str) + "\n"
    )
    for name, plot in page.plots(found).items():
        (_DOCS / name).write_text(plot)


if __name__ == "__main__":
    sys.exit(main())
