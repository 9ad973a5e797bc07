"""How long windows take beside a tumbling count of Spark's own, over the same records, in turns.

Each job reads one topic of keyed records in its first micro-batch, and writes each result twice, to an output
and to a changelog. The time is from the trigger of the micro-batch to its commit. Jobs differ in how many
results they have; so beside the time there is the time for a result.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.lab import Lab, batch_times, stop
from bench.words import PARTITIONS, QUIET, is_up, produce, wait_for
from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)

__all__ = ["measure"]

_KEYS = 10_000
_EVERY_MS = 1
"""From one record to the next, so a key has one every ten seconds, at random."""
_TUMBLING = timedelta(seconds=20)
_GAP = timedelta(seconds=5)
_DIFFERENCE = timedelta(seconds=5)
_LABELS = {
    "spark": "tumbling, Spark's own count, by hand",
    "unwindowed": "Millstream, without windows",
    "tumbling": "Millstream, tumbling",
    "sessions": "Millstream, sessions",
    "sliding": "Millstream, sliding",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One job over the whole input: seconds, and results."""

    seconds: float
    results: int


class Jobs:
    """The variants, by name. Each call is one whole run."""

    def __init__(self, lab: Lab, source: str, records: int) -> None:
        self._lab, self._source, self._records = lab, source, records

    def run(self, name: str) -> Run:
        """Run a job by its name in `_LABELS`."""
        return self._by_hand() if name == "spark" else self._millstream(name)

    def _millstream(self, name: str) -> Run:
        lab = self._lab
        output, application, state = lab.topic("out", PARTITIONS), lab.name("app"), lab.path("state")
        config = {
            "application.id": application,
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(state),
        }
        with KafkaStreams(_topology(name, self._source, output), config) as streams:
            checkpoint = state / application / "checkpoints" / "p0.1"  # the first claim of it
            wait_for(lambda: _has_read(checkpoint, self._records), 600, "all records read", is_up(streams))
        return self._done(checkpoint, output)

    def _by_hand(self) -> Run:
        lab = self._lab
        output, changelog = lab.topic("out", PARTITIONS), lab.topic("changelog", PARTITIONS)
        checkpoint = lab.path("checkpoint")
        session = lab.session(tuned=True)
        query = _spark_count(session, lab.bootstrap_servers, self._source, output, changelog, checkpoint)
        try:
            wait_for(lambda: _has_read(checkpoint, self._records), 600, "all records", lambda: query.isActive)
        finally:
            stop(query)
        return self._done(checkpoint, output)

    def _done(self, checkpoint: Path, output: str) -> Run:
        times = batch_times(checkpoint)
        return Run(times.last_committed - times.first_begun, _written(self._lab.bootstrap_servers, output))


def _topology(name: str, source: str, output: str) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long())).group_by_key()
    store: Materialized = Materialized.as_("counts")
    if name == "unwindowed":
        table = grouped.count(store)
    elif name == "tumbling":
        table = grouped.windowed_by(TimeWindows.of_size_with_no_grace(_TUMBLING)).count(store)
    elif name == "sessions":
        table = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(_GAP)).count(store)
    else:
        windows = SlidingWindows.of_time_difference_with_no_grace(_DIFFERENCE)
        table = grouped.windowed_by(windows).count(store)
    table.to_stream().to(output)
    return builder.build()


def _spark_count(
    spark: SparkSession, servers: str, source: str, output: str, changelog: str, checkpoint: Path
) -> StreamingQuery:
    records = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"})
        .option("kafka.fetch.max.wait.ms", "10")
        .load()
        .withWatermark("timestamp", "0 seconds")
    )
    length = f"{_TUMBLING // timedelta(seconds=1)} seconds"
    counts = records.groupBy("key", F.window("timestamp", length)).agg(
        F.count("*").alias("n"), F.max("timestamp").alias("latest")
    )
    start = F.unhex(F.lpad(F.hex(F.unix_millis(F.col("window")["start"])), 16, "0"))
    row = (
        F.concat("key", start).alias("key"),
        F.unhex(F.lpad(F.hex("n"), 16, "0")).alias("value"),
    )
    rows = F.array(*(F.struct(F.lit(topic).alias("topic"), *row) for topic in (output, changelog)))
    return (
        counts.select(F.explode(rows).alias("row"))
        .select("row.*")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .start()
    )


def _has_read(checkpoint: Path, records: int) -> bool:
    """Whether the last micro-batch that is committed ends behind the last record."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not commits:
        return False
    offsets = json.loads((checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[2])
    return sum(sum(partitions.values()) for partitions in offsets.values()) >= records


def _written(servers: str, topic: str) -> int:
    client = KafkaConsumer({"bootstrap.servers": servers, "group.id": "none", **QUIET})
    try:
        return sum(
            client.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)[1]
            for partition in range(PARTITIONS)
        )
    finally:
        client.close()


def _records(count: int) -> Iterator[Mapping[str, Any]]:
    random_ = random.Random(1)
    for number in range(count):
        yield {
            "key": f"key-{random_.randrange(_KEYS)}",
            "value": number.to_bytes(8, "big"),
            "timestamp": 1_700_000_000_000 + number * _EVERY_MS,
        }


def measure(lab: Lab, *, quick: bool, tell: Progress, lines: int | None = None) -> Report:
    """Run each job once to warm up, then all of them in turns."""
    records = lines or (200_000 if quick else 500_000)
    source = lab.topic("keyed", PARTITIONS)
    tell(f"writing {records:,} records of {_KEYS:,} keys")
    produce(lab.bootstrap_servers, source, _records(records))
    jobs = Jobs(lab, source, records)
    runs: dict[str, list[Run]] = {name: [] for name in _LABELS}
    for name in _LABELS:
        tell(f"warming up: {_LABELS[name]}")
        jobs.run(name)
    repetitions = 2 if quick else 5
    for number, order in enumerate(rounds(list(_LABELS), repetitions), 1):
        for name in order:
            tell(f"round {number} of {repetitions}: {_LABELS[name]}")
            runs[name].append(jobs.run(name))
    return _report(records, runs)


def _report(records: int, runs: dict[str, list[Run]]) -> Report:
    times = {name: [run.seconds for run in of] for name, of in runs.items()}
    each: dict[str, list[float]] = {
        name: [run.seconds / max(1, run.results) for run in of] for name, of in runs.items()
    }
    rows = []
    for name, of in runs.items():
        taken, against = spread(times[name]), ratios(times[name], times["spark"])
        rows.append(
            (
                _LABELS[name],
                str(taken),
                f"{median([run.results for run in of]):,.0f}",
                f"{median(each[name]) * 1e6:.1f}",
                str(against),
            )
        )
    table = Table(
        f"Windows: a count of {records:,} records, {len(runs['spark'])} rounds in turns",
        ("job", "seconds", "results", "microseconds a result", "seconds against Spark's tumbling"),
        tuple(rows),
    )
    return Report(
        "windows",
        (table,),
        (
            Goal(
                "sessions against Spark's tumbling windows",
                ratios(times["sessions"], times["spark"]).median,
                1.5,
                "x",
            ),
            Goal(
                "sliding windows against them, for a result",
                ratios(each["sliding"], each["spark"]).median,
                2.5,
                "x",
            ),
        ),
        {"records": records, "runs": {name: [asdict(run) for run in of] for name, of in runs.items()}},
    )
