"""What writing to Kafka costs: the kernel's sink against Spark's own, on the same records, in turns.

One topic is copied to another, once in two large micro-batches and once in many small ones. Spark's sink
writes neither timestamps nor transactions. The kernel's always writes timestamps; with transactions it has a
row of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.lab import Lab
from bench.words import PARTITIONS, produce, wait_for
from millstream.spark.compile.sink import FORMAT, sink_options

__all__ = ["measure"]

_SMALL = 250
_SMALL_BATCHES = 40
_PATIENCE_S = 300
_Written = tuple[DataFrame, str, dict[str, str]]
"""Rows, and the format and options of their writer."""
_LABELS = {
    "kernel": "the kernel's sink, at least once",
    "transactions": "the kernel's sink, exactly once",
    "spark": "Spark's own sink",
}


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Run each once to warm up, then all in turns."""
    records, repetitions = (100_000, 3) if quick else (500_000, 5)
    source = lab.topic("records", PARTITIONS)
    tell(f"writing {records:,} records")
    produce(
        lab.bootstrap_servers,
        source,
        (
            {"key": b"key-%07d" % number, "value": b"v" * 60, "timestamp": 1_700_000_000_000}
            for number in range(records)
        ),
    )
    copies, half = _Copies(lab, source), records // 2
    first: dict[str, list[float]] = {name: [] for name in _LABELS}
    large: dict[str, list[float]] = {name: [] for name in _LABELS}
    small: dict[str, list[float]] = {name: [] for name in _LABELS}
    for name in _LABELS:
        tell(f"warming up: {_LABELS[name]}")
        copies.run(name, half, 2)
    for number, order in enumerate(rounds(list(_LABELS), repetitions), 1):
        for name in order:
            tell(f"round {number} of {repetitions}: {_LABELS[name]}")
            begun, then = copies.run(name, half, 2)
            first[name].append(begun)
            large[name].append(then)
            small[name].append(median(copies.run(name, _SMALL, _SMALL_BATCHES)[1:]))
    rows = []
    for name, label in _LABELS.items():
        taken, each = spread(large[name]), spread(small[name])
        against, against_small = ratios(large[name], large["spark"]), ratios(small[name], small["spark"])
        rows.append(
            (
                label,
                f"{median(first[name]):.2f}",
                str(taken),
                f"{half / taken.median:,.0f}",
                str(against),
                f"{each.median * 1000:.0f} ({each.low * 1000:.0f} to {each.high * 1000:.0f})",
                str(against_small),
            )
        )
    table = Table(
        f"Sink: two batches of {half:,} records of 71 bytes, alternating rounds: {repetitions}",
        (
            "sink",
            "first batch, s",
            "second, s",
            "records/s",
            "of Spark's",
            f"ms per batch of {_SMALL}",
            "of Spark's",
        ),
        tuple(rows),
    )
    once = ratios(large["transactions"], large["kernel"])
    goals = (
        Goal("a large batch against Spark's sink", ratios(large["kernel"], large["spark"]).median, 1.05, "x"),
        Goal("exactly once against at least once", once.median, 1.1, "x"),
    )
    return Report(
        "sink", (table,), goals, {"records": records, "first": first, "large": large, "small": small}
    )


class _Copies:
    def __init__(self, lab: Lab, source: str) -> None:
        self._lab, self._source = lab, source
        self._session = lab.session(tuned=True)

    def run(self, name: str, records: int, batches: int) -> list[float]:
        """Copy. Returns how many seconds each micro-batch of this many records took.

        The first one includes creating the producers and, with exactly-once, taking over from earlier runs.
        """
        lab = self._lab
        target = lab.topic("copy", PARTITIONS)
        servers = {"kafka.bootstrap.servers": lab.bootstrap_servers}
        reader = self._session.readStream.format("kafka").options(**servers)
        reader = reader.option("subscribe", self._source).option("startingOffsets", "earliest")
        reader = reader.option("kafka.fetch.max.wait.ms", "10")
        reader = reader.option("maxOffsetsPerTrigger", str(records))
        rows, format_, options = getattr(self, f"_{name}")(reader.load(), target, servers)
        writer = rows.writeStream.format(format_).options(**options).outputMode("update")
        writer = writer.option("checkpointLocation", str(lab.path("checkpoint")))
        query = writer.start()
        try:
            _wait_for_batches(query, batches)
        finally:
            query.stop()
        error = query.exception()
        if error is not None:
            raise error
        reports = [report for report in query.recentProgress if report["numInputRows"]]
        return [report["durationMs"]["addBatch"] / 1000 for report in reports[:batches]]

    def _spark(self, df: DataFrame, target: str, servers: dict[str, str]) -> _Written:
        return df.select(F.lit(target).alias("topic"), "key", "value"), "kafka", servers

    def _kernel(self, df: DataFrame, target: str, servers: dict[str, str]) -> _Written:
        null: Callable[[str], Column] = lambda type_: F.lit(None).cast(type_)  # noqa: E731
        rows = df.select(
            F.lit(target).alias("topic"),
            "key",
            "value",
            null("int").alias("partition"),
            null("binary").alias("route"),
            F.unix_millis("timestamp").alias("timestamp"),
            null("array<struct<key: string, value: binary>>").alias("headers"),
        )
        return rows, FORMAT, sink_options({"bootstrap.servers": servers["kafka.bootstrap.servers"]}, {})

    def _transactions(self, df: DataFrame, target: str, servers: dict[str, str]) -> _Written:
        rows, format_, options = self._kernel(df, target, servers)
        marker = self._lab.topic("marker", 1)
        once = {"transactional.prefix": target, "marker.topic": marker, "epoch": "1", "run": target}
        return rows, format_, {**options, **once}


def _wait_for_batches(query: StreamingQuery, count: int) -> None:
    def enough() -> bool:
        last = query._jsq.lastProgress()
        return last is not None and last.batchId() >= count - 1

    wait_for(enough, _PATIENCE_S, f"{count} micro-batches", lambda: query.isActive)
