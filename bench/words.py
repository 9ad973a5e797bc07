"""The word count that benchmarks run: its input, Millstream's topology, and the job written by hand."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder
from millstream.topology.topology import Topology

__all__ = [
    "DISTINCT",
    "PARTITIONS",
    "QUIET",
    "WORDS_PER_LINE",
    "OutputWatcher",
    "first_read",
    "from_big_endian",
    "is_up",
    "naive",
    "positions",
    "produce",
    "produce_lines",
    "producer_options",
    "topology",
    "wait_for",
]

WORDS_PER_LINE = 5
DISTINCT = 10_000
PARTITIONS = 4
QUIET = {"log_level": 0, "log.connection.close": False}
_CHUNK = 50_000


def producer_options(bootstrap_servers: str) -> dict[str, Any]:
    """Producer options for writing many records."""
    return {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,  # in order, and once, even if a broker is slow
        "linger.ms": 20,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 500_000,
        "sticky.partitioning.linger.ms": 50,
        **QUIET,
    }


def produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Mapping[str, Any]],
    producer: Producer | None = None,
) -> None:
    """Write records, given as arguments of `Producer.produce`. All are in the topic when this returns.

    Raises:
        RuntimeError: some could not be written in time.
    """
    producer = producer or Producer(producer_options(bootstrap_servers))
    for record in records:
        while True:
            try:
                producer.produce(topic, **record)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    left = producer.flush(120)
    if left:
        raise RuntimeError(f"{left} records could not be written to '{topic}' within 120 s")


def produce_lines(bootstrap_servers: str, topic: str, lines: int, *, seed: int = 1) -> None:
    """Write lines of random words, each word as likely as any other."""
    random_ = random.Random(seed)
    vocabulary = [f"word{number:05d}" for number in range(DISTINCT)]

    def records() -> Iterator[Mapping[str, Any]]:
        for start in range(0, lines, _CHUNK):
            size = min(_CHUNK, lines - start)
            words = random_.choices(vocabulary, k=size * WORDS_PER_LINE)
            for number in range(size):
                yield {"value": " ".join(words[number * WORDS_PER_LINE : (number + 1) * WORDS_PER_LINE])}

    produce(bootstrap_servers, topic, records())


def topology(source: str, output: str, store: str = "counts") -> Topology:
    """The word count as a user writes it."""
    builder = StreamsBuilder()
    (
        builder.stream(source, Consumed.with_(Serdes.bytes(), Serdes.string()))
        .flat_map_values(lambda line: F.split(F.lower(line), " "))
        .group_by(lambda _, word: word)
        .count(Materialized.as_(store))
        .to_stream()
        .to(output)
    )
    return builder.build()


def _counts(spark: SparkSession, servers: str, source: str, options: dict[str, str]) -> DataFrame:
    lines = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"})
        .options(**options)
        .load()
    )
    words = lines.select(
        F.explode(F.split(F.lower(F.col("value").cast("string")), " ")).alias("word"), "timestamp"
    )
    return words.groupBy("word").agg(F.count("*").alias("n"), F.max("timestamp").alias("latest"))


def naive(
    spark: SparkSession, servers: str, source: str, output: str, checkpoint: Path, options: dict[str, str]
) -> StreamingQuery:
    """What one would write first: counts as text to one topic, and no table to query."""
    rows = _counts(spark, servers, source, options).select(
        F.lit(output).alias("topic"), F.col("word").alias("key"), F.col("n").cast("string").alias("value")
    )
    return _started(rows, servers, checkpoint)


def _started(rows: DataFrame, servers: str, checkpoint: Path) -> StreamingQuery:
    return (
        rows.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("update")
        .start()
    )


def from_big_endian(data: bytes) -> int:
    """The count in Millstream's records."""
    return int.from_bytes(data, "big")


@dataclass
class OutputWatcher:
    """Reads an output topic until its counts add up to `expected`, and notes when that was.

    It runs on a thread of its own and starts before the query, so that it waits for the query and not the
    other way around.
    """

    bootstrap_servers: str
    topic: str
    partitions: int
    expected: int
    decode: Callable[[bytes], int]
    records: int = 0
    first_at: float = 0.0
    complete_at: float = 0.0

    def __post_init__(self) -> None:
        self._total = 0
        self._done = threading.Event()
        self._stopping = False
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"watch-{self.topic}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 20,
                **QUIET,
            }
        )
        self._consumer.assign(
            [TopicPartition(self.topic, number, OFFSET_BEGINNING) for number in range(self.partitions)]
        )
        self._thread = threading.Thread(target=self._watch, name=f"watch-{self.topic}", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        latest: dict[bytes, int] = {}
        while not self._stopping and self._total < self.expected:
            for message in self._consumer.consume(20_000, 0.02):
                if message.error() is not None:
                    continue
                self.first_at = self.first_at or time.time()
                self.records += 1
                key, count = message.key() or b"", self.decode(message.value() or b"")
                self._total += count - latest.get(key, 0)
                latest[key] = count
        self.complete_at = time.time()
        self._consumer.close()
        self._done.set()

    def wait(self, timeout_s: float, is_alive: Callable[[], bool]) -> None:
        """Wait until all counts are there.

        Raises:
            TimeoutError: they were not there in time.
            RuntimeError: the counting job ended, or counted too much.
        """
        try:
            wait_for(self._done.is_set, timeout_s, f"{self.expected} words in '{self.topic}'", is_alive)
        finally:
            self._stopping = True
            self._thread.join(10)
        if self._total != self.expected:
            raise RuntimeError(f"'{self.topic}' says {self._total} words; there are {self.expected}")


def wait_for(
    condition: Callable[[], bool], timeout_s: float, what: str, is_alive: Callable[[], bool] = lambda: True
) -> None:
    """Check every 10 ms until the condition holds.

    Raises:
        TimeoutError: it did not hold in time.
        RuntimeError: the process or client it depends on has ended.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:g} s")
        if not is_alive():
            raise RuntimeError(f"the source of {what} has ended")
        time.sleep(0.01)


def is_up(streams: KafkaStreams) -> Callable[[], bool]:
    """For `wait_for`: whether a client is still running. Its failure is raised."""

    def check() -> bool:
        if streams.state in (KafkaStreams.State.ERROR, KafkaStreams.State.PENDING_ERROR):
            streams.wait()
        return streams.state not in (KafkaStreams.State.ERROR, KafkaStreams.State.NOT_RUNNING)

    return check


def positions(streams: KafkaStreams) -> int:
    """How far a client has read its topics, in records of all partitions."""
    running = (each for thread in streams.metadata_for_local_threads() for each in thread.pipelines)
    return sum(sum(each.position.values()) for each in running)


def first_read(streams: KafkaStreams, timeout_s: float) -> float:
    """Wait until a client has read something. Returns the time of day."""
    wait_for(lambda: positions(streams) > 0, timeout_s, "record that is read", is_up(streams))
    return time.time()
