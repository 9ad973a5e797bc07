"""From the start of a process to its first output, phase by phase, beside the same query written by hand.

Each start is a process of its own, which runs this file. The broker is already there, with one line in the
source topic. File caches may be cold in the first starts of a run, but not later.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.figures import Progress, Report, Table, median, ratios, rounds

__all__ = ["measure"]

_PATIENCE_S = 180.0
_PHASES = {
    "imported": "imports",
    "built": "topology and client",
    "prepared": "start(): Kafka, topics",
    "spark": "Spark's JVM and session",
    "compiled": "compile",
    "query": "query start",
    "running": "stores restored, RUNNING",
    "output": "first output",
}
_HAND_PHASES = ("imported", "spark", "query", "output")


def measure(lab: Any, *, quick: bool, tell: Progress) -> Report:
    """Start each a few times, in turns."""
    from bench.words import PARTITIONS, OutputWatcher, from_big_endian, produce_lines

    repetitions = 2 if quick else 5
    source = lab.topic("lines", PARTITIONS)
    produce_lines(lab.bootstrap_servers, source, 1)
    found: dict[str, list[dict[str, float]]] = {"millstream": [], "by_hand": []}
    for number, order in enumerate(rounds(list(found), repetitions), 1):
        for name in order:
            tell(f"start {number} of {repetitions}: {name}")
            output = lab.topic("out", PARTITIONS)
            decode: Callable[[bytes], int] = from_big_endian if name == "millstream" else int
            watcher = OutputWatcher(lab.bootstrap_servers, output, PARTITIONS, 5, decode)
            begun = time.time()
            child = subprocess.Popen(
                [
                    *(sys.executable, "-m", "bench.startup", name, lab.bootstrap_servers),
                    *(source, output, str(lab.path("child"))),
                ],
                stdout=subprocess.PIPE,
                stdin=subprocess.PIPE,
                text=True,
            )
            try:
                watcher.wait(_PATIENCE_S, lambda child=child: child.poll() is None)  # type: ignore[misc]
                said, _ = child.communicate("end\n", timeout=60)
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
            at = json.loads(said.splitlines()[-1])
            found[name].append({phase: moment - begun for phase, moment in at.items()})
            found[name][-1]["output"] = watcher.complete_at - begun
    return _report(found)


def _report(found: dict[str, list[dict[str, float]]]) -> Report:
    rows = []
    for phase, label in _PHASES.items():
        cells = []
        for name in found:
            until = [run[phase] for run in found[name] if phase in run]
            before = [_before(run, phase) for run in found[name] if phase in run]
            cells.append(f"{median(until) - median(before):.2f} ({median(until):.2f})" if until else "")
        rows.append((label, *cells))
    total = {name: [run["output"] for run in of] for name, of in found.items()}
    ratio = ratios(total["millstream"], total["by_hand"])
    table = Table(
        f"Start of a process to its first output, seconds; median of {len(total['by_hand'])}",
        ("phase", "Millstream: phase (until then)", "by hand"),
        tuple(rows),
        (
            f"whole start, Millstream / by hand: {ratio}",
            "whole starts: "
            + "; ".join(
                f"{name} {', '.join(f'{seconds:.1f}' for seconds in of)}" for name, of in total.items()
            ),
        ),
    )
    return Report("startup", (table,), (), {"seconds": found})


def _before(run: dict[str, float], phase: str) -> float:
    """When the phase before this one ended. Phases overlap, so this is the latest moment before its end."""
    return max((moment for moment in run.values() if moment < run[phase]), default=0.0)


# --- the child -------------------------------------------------------------------------------------------


def _child(name: str, servers: str, source: str, output: str, directory: Path) -> None:
    os.environ.setdefault("MILLSTREAM_SPARK_LOG", os.devnull)
    at: dict[str, float] = {}
    if name == "millstream":
        _start_millstream(at, servers, source, output, directory)
    else:
        _start_by_hand(at, servers, source, output, directory)


def _start_millstream(at: dict[str, float], servers: str, source: str, output: str, directory: Path) -> None:
    from bench.words import topology
    from millstream import KafkaStreams

    at["imported"] = time.time()
    streams = KafkaStreams(
        topology(source, output),
        {"application.id": f"start-{output}", "bootstrap.servers": servers, "state.dir": str(directory)},
    )
    at["built"] = time.time()
    streams.start()
    at["prepared"] = time.time()
    _note_engine_phases(at)
    streams.wait_until_running()
    at["running"] = time.time()
    sys.stdin.readline()
    print(json.dumps(at), flush=True)
    streams.close()


def _note_engine_phases(at: dict[str, float]) -> None:
    """Note when the engine's steps end. The engine starts on a thread after `start()`, and takes seconds."""
    from millstream.spark.engine import SparkEngine

    def noting(phase: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            at[phase] = time.time()
            return result

        return run

    SparkEngine.compile = noting("compiled", SparkEngine.compile)  # type: ignore[method-assign]
    SparkEngine.start = noting("query", SparkEngine.start)  # type: ignore[method-assign]
    make = SparkEngine.__init__
    SparkEngine.__init__ = noting("spark", make)  # type: ignore[method-assign]


def _start_by_hand(at: dict[str, float], servers: str, source: str, output: str, directory: Path) -> None:
    from bench.words import naive
    from millstream.spark.jvm.session import SharedSession

    at["imported"] = time.time()
    session = SharedSession({}, "by-hand")
    at["spark"] = time.time()
    query = naive(session.spark, servers, source, output, directory, {"kafka.fetch.max.wait.ms": "10"})
    at["query"] = time.time()
    sys.stdin.readline()
    print(json.dumps(at), flush=True)
    query.stop()
    session.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("name", "servers", "source", "output"):
        parser.add_argument(argument)
    parser.add_argument("directory", type=Path)
    _child(**vars(parser.parse_args()))
