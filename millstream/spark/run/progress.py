"""Spark's progress reports: fetched as JSON, and parsed into values. Nothing here decides anything.

Spark keeps the last hundred reports of a query. It makes one after each batch; in batch mode also one
every ten seconds while idle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from millstream.kernel.constants import METRIC_BYTES, METRIC_WRITTEN
from millstream.model import BatchReport, TopicPartition, WrittenReport

__all__ = [
    "new_reports",
    "offsets_in",
    "positions",
    "read_report",
    "records_read",
    "sink_metrics",
]

"""What the kernel's source says of a batch (ReadBytes.java), in the form of offsets."""


def new_reports(query: StreamingQuery, seen: tuple[int, str] | None) -> list[Mapping[str, Any]]:
    """The query's progress reports after the one `seen` (batch and time), oldest first. Spark keeps a
    hundred.

    A batch can have several: reports while it waits for data, and then its own.
    """
    recent = query._jsq.recentProgress()
    new = []
    for index in reversed(range(len(recent))):
        if (recent[index].batchId(), recent[index].timestamp()) == seen:
            break
        # The raw JSON: PySpark's own parsing of it has raised KeyError on a query's first moments.
        new.append(json.loads(recent[index].json()))
    return new[::-1]


def read_report(
    pipeline: str,
    progress: Mapping[str, Any],
    dropped: Mapping[tuple[str, str], int],
) -> BatchReport:
    """A progress report as a value.

    Args:
        dropped: what the batch dropped, as found by `dropped.read_drops`.
    """
    parts = progress.get("durationMs") or {}
    read: dict[TopicPartition, int] = {}
    read_bytes: dict[TopicPartition, int] = {}
    lag: dict[TopicPartition, int] = {}
    for source in progress.get("sources") or ():
        start, end, latest = (
            offsets_in(source, name) for name in ("startOffset", "endOffset", "latestOffset")
        )
        for at, count in records_read(start, end).items():
            # A topic read for several outputs is a source for each, but counts once.
            place = TopicPartition(*at)
            read[place] = max(read.get(place, 0), count)
        for at, count in positions((source.get("metrics") or {}).get(METRIC_BYTES)).items():
            place = TopicPartition(*at)
            read_bytes[place] = max(read_bytes.get(place, 0), count)
        for at, offset in latest.items():
            if at in end:
                place = TopicPartition(*at)
                lag[place] = max(lag.get(place, 0), offset - end[at])
    return BatchReport(
        pipeline=pipeline,
        batch_id=int(progress.get("batchId", -1)),
        executed="addBatch" in parts,
        parts={name: int(took) for name, took in parts.items()},
        read=read,
        read_bytes=read_bytes,
        lag=lag or None,
        dropped=dropped,
        written=_written(progress),
        input_rate=float(progress.get("inputRowsPerSecond") or 0.0),
        processed_rate=float(progress.get("processedRowsPerSecond") or 0.0),
        times={what: tuple(span) for what, span in progress.get("tasks", {}).items()},
    )


def offsets_in(source: Mapping[str, Any], name: str) -> dict[tuple[str, int], int]:
    """Kafka's offsets of one name in a source's report, text or not; {} for another kind of source."""
    offsets = source.get(name)
    return positions(offsets if offsets is None or isinstance(offsets, str) else json.dumps(offsets))


def records_read(
    start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]
) -> dict[tuple[str, int], int]:
    """How many records of each partition were read, from a report's start to its end offsets.

    A partition that is new since the previous batch has no start and is read from its beginning, as in Spark.
    If no partition has a start, this is the first batch, and nothing is known.
    """
    return {at: offset - start.get(at, 0 if start else offset) for at, offset in end.items()}


def sink_metrics(progress: Mapping[str, Any]) -> Mapping[str, str]:
    """What the kernel's sink says of this batch (Written.java); {}: there is nothing, or it is about the
    previous batch."""
    metrics: Mapping[str, str] = (progress.get("sink") or {}).get("metrics") or {}
    return metrics if metrics.get("batch") == str(int(progress.get("batchId", -1))) else {}


def _written(progress: Mapping[str, Any]) -> dict[str, WrittenReport]:
    return {
        name.removeprefix(METRIC_WRITTEN): WrittenReport(*map(int, numbers.split()))
        for name, numbers in sink_metrics(progress).items()
        if name.startswith(METRIC_WRITTEN)
    }


def positions(text: str | None) -> dict[tuple[str, int], int]:
    """Offsets as Spark reports them: `{"topic": {"0": 12}}`."""
    offsets: Any = json.loads(text) if text else {}
    if not isinstance(offsets, dict):
        return {}
    return {
        (topic, int(partition)): int(offset)
        for topic, by_partition in offsets.items()
        if isinstance(by_partition, dict)  # other sources of the user's program may count differently
        for partition, offset in by_partition.items()
    }
