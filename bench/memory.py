"""The memory of Millstream's Python side while records flow through, which has to stay flat.

The client is a process of its own, which runs this file and reports its resident memory once a second.
Spark's JVM is another process and is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil

from bench.figures import Goal, Progress, Report, Table, slope

__all__ = ["measure"]

_PATIENCE_S = 1800.0
_SECOND = timedelta(seconds=1)
_SETTLED_AFTER = 0.2
"""The fraction of the records after which memory should be level; until then, caches are filling."""


def measure(lab: Any, *, quick: bool, tell: Progress) -> Report:
    """Let records flow through a client and watch its process."""
    from bench.words import PARTITIONS, produce_lines

    lines = 1_000_000 if quick else 10_000_000
    source, output = lab.topic("lines", PARTITIONS), lab.topic("out", PARTITIONS)
    points: list[dict[str, float]] = []
    producer = threading.Thread(
        target=produce_lines, args=(lab.bootstrap_servers, source, lines), name="bench-producer", daemon=True
    )
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "bench.memory", lab.bootstrap_servers, source, output),
            *(str(lines), str(lab.path("child"))),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    producer.start()
    try:
        for line in child.stdout:
            points.append(json.loads(line))
            tell(f"{points[-1]['records']:,.0f} of {lines:,} lines, {points[-1]['mib']:.0f} MiB")
        if child.wait(60) != 0:
            raise RuntimeError(f"the client exited with code {child.returncode}")
    finally:
        if child.poll() is None:
            child.kill()
            child.wait()
    return _report(lines, points)


def _report(lines: int, points: list[dict[str, float]]) -> Report:
    flowing = [point for point in points if point["records"] > 0]
    settled = [point for point in flowing if point["records"] >= _SETTLED_AFTER * lines]
    growth = slope([(point["records"] / 1e6, point["mib"]) for point in settled])
    memory = [point["mib"] for point in points]
    rate = lines / (flowing[-1]["at"] - points[0]["at"])
    table = Table(
        f"Memory of the Python side, {lines:,} lines of 5 words",
        ("", "MiB"),
        (
            ("RUNNING", f"{memory[0]:.0f}"),
            ("first fifth read", f"{settled[0]['mib']:.0f}"),
            ("peak", f"{max(memory):.0f}"),
            ("end", f"{memory[-1]:.0f}"),
            ("growth per million lines, after the first fifth", f"{growth:+.2f}"),
        ),
        (f"{len(points)} samples; {rate:,.0f} lines/s while they were still being written",),
    )
    goal = Goal("growth per million lines", growth, 1.0, "MiB")
    return Report("memory", (table,), (goal,), {"lines": lines, "points": points})


# --- the child -------------------------------------------------------------------------------------------


def _child(servers: str, source: str, output: str, lines: int, directory: Path) -> None:
    os.environ.setdefault("MILLSTREAM_SPARK_LOG", os.devnull)
    from bench.words import topology
    from millstream import KafkaStreams

    config = {"application.id": f"memory-{output}", "bootstrap.servers": servers, "state.dir": str(directory)}
    process = psutil.Process()
    begun = time.monotonic()
    with KafkaStreams(topology(source, output), config) as streams:
        streams.wait_until_running()
        records = 0
        while records < lines:
            if time.monotonic() - begun > _PATIENCE_S:
                raise TimeoutError(f"{records} of {lines} lines within {_PATIENCE_S:g} s")
            streams.wait(_SECOND)
            records = sum(
                pipeline.records
                for thread in streams.metadata_for_local_threads()
                for pipeline in thread.pipelines
            )
            point = {
                "at": time.monotonic() - begun,
                "records": records,
                "mib": process.memory_info().rss / 2**20,
            }
            print(json.dumps(point), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for argument in ("servers", "source", "output"):
        parser.add_argument(argument)
    parser.add_argument("lines", type=int)
    parser.add_argument("directory", type=Path)
    _child(**vars(parser.parse_args()))
