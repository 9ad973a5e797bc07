"""Kafka Streams' own metrics, and its own sensors at work: reads the snapshot, and writes it anew.

`metrics.txt` has one line for each metric of Kafka Streams 4.3.1, with group, name, tags and description;
then the values of a sensor. `PYTHONPATH=tests python -m snapshots.metric_names` writes it anew with
`MetricsAll.java`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from snapshots.kafka_streams import KafkaStreams

__all__ = ["FILE", "KafkaMetric", "asked", "kafka_metrics", "measured", "written"]

HERE = Path(__file__).resolve().parent
FILE = HERE / "metrics.txt"
RUNNER = HERE / "MetricsAll.java"


class KafkaMetric(NamedTuple):
    """A metric as Kafka Streams has it; tags are their names, in order."""

    group: str
    name: str
    tags: tuple[str, ...]
    description: str


def asked() -> Iterator[str]:
    """What a sensor is to record and to measure: bursts, pauses that empty a window, and silence."""
    draw = random.Random(20)
    now = 1_000_000
    yield f"measure {now}"
    for _ in range(150):
        now += draw.choice((0, 1, 40, 900, 7_000, 29_999, 30_000, 31_000, 61_000, 130_000))
        if draw.random() < 0.6:
            yield f"record {now} {draw.choice((0.0, 0.5, 3.0, 17.0, 1000.0))}"
        else:
            yield f"measure {now}"


def written(classes: Path) -> list[str]:
    """The snapshot, from Kafka Streams as it is."""
    return KafkaStreams(classes, RUNNER).ask(asked())


def _lines() -> list[str]:
    return FILE.read_text("utf-8").splitlines()


def kafka_metrics() -> list[KafkaMetric]:
    """All of Kafka Streams', those of its Kafka clients included."""
    found = [line.split(" ", 3) for line in _lines() if not line.startswith(("record ", "measure "))]
    return [KafkaMetric(group, name, tuple(tags.split(",")), told) for group, name, tags, told in found]


def measured() -> list[str]:
    """What a sensor of Kafka's records and measures, line by line."""
    return [line for line in _lines() if line.startswith(("record ", "measure "))]


def main() -> None:
    """Write it anew."""
    with tempfile.TemporaryDirectory() as classes:
        lines = written(Path(classes))
    FILE.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    print(f"{len(lines)} lines")


if __name__ == "__main__":
    main()
