"""How long a record takes from topic to topic, and from topic to an interactive query.

Two ways to send. One at a time: the next record is sent some moments after the last one has come out, so
that none waits for a micro-batch before its own. And 50 a second, at random moments: on two cores that is
more than one for each micro-batch, so a record waits for the one under way, and then for its own.

Millstream and the same query written by hand take turns; each turn is a fresh start, and is measured once its
first outputs have come and some seconds have passed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark.sql import functions as F

from bench.figures import Goal, Progress, Report, Table, percentile, ratios, rounds
from bench.lab import Lab, stop
from bench.words import QUIET, is_up, wait_for
from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
)

__all__ = ["measure"]

PARTITIONS = 2
_RATE = 50.0
_KEYS = 20
_PATIENCE_S = 120.0
_QUERY_KEY = "asked"


@dataclass
class Traffic:
    """Sends records to one topic, reads another, and knows when each came out.

    The value of a record is its number. A map gives the number back; a count gives how many records its key
    has had, which is out when that number or a higher one is: a micro-batch merges updates.
    """

    bootstrap_servers: str
    source: str
    output: str
    counts: bool
    sent: dict[tuple[bytes, int], float] = field(default_factory=dict)
    seen: dict[tuple[bytes, int], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stopping = threading.Event()
        self._producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 0, **QUIET})
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": f"latency-{self.output}",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                **QUIET,
            }
        )
        self._consumer.assign([TopicPartition(self.output, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])
        self._reached: dict[bytes, int] = {}
        self._sent_of: dict[bytes, int] = {}
        self._reader = threading.Thread(target=self._read, name=f"latency-{self.output}", daemon=True)
        self._reader.start()

    def send(self, seconds: float) -> None:
        """Send at random moments for so long."""
        random_ = random.Random(7)
        due = end = time.perf_counter()
        end += seconds
        while due < end:
            time.sleep(max(0.0, due - time.perf_counter()))
            self.send_one(b"k%d" % random_.randrange(_KEYS))
            due += random_.expovariate(_RATE)

    def send_one_at_a_time(self, times: int) -> list[float]:
        """Send so many, each after the last one has come out; how long each took, in ms."""
        random_ = random.Random(5)
        taken = []
        for _ in range(times):
            key = b"k%d" % random_.randrange(_KEYS)
            record = key, self.send_one(key)
            wait_for(lambda record=record: record in self.seen, _PATIENCE_S, "output")  # type: ignore[misc]
            taken.append((self.seen[record] - self.sent[record]) * 1000)
            time.sleep(random_.uniform(0, 0.1))
        return taken

    def send_one(self, key: bytes) -> int:
        """Send one record now; the number of records that its key has had."""
        number = self._sent_of[key] = self._sent_of.get(key, 0) + 1
        self.sent[key, number] = time.perf_counter()
        self._producer.produce(self.source, b"%d" % number, key)
        self._producer.poll(0)
        return number

    def forget(self) -> None:
        """Measure from here on."""
        self.wait_until_seen()
        self.sent.clear()
        self.seen.clear()

    def wait_until_seen(self, is_alive: Callable[[], bool] = lambda: True) -> None:
        wait_for(
            lambda: len(self.seen) >= len(self.sent), _PATIENCE_S, f"output in '{self.output}'", is_alive
        )

    def latencies_ms(self) -> list[float]:
        """Of each record that was sent since `forget`."""
        self.wait_until_seen()
        return [(self.seen[record] - sent) * 1000 for record, sent in self.sent.items()]

    def close(self) -> None:
        self._stopping.set()
        self._reader.join(10)
        self._producer.flush(10)

    def _read(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            now = time.perf_counter()
            key, value = message.key() or b"", message.value() or b""
            reached = int.from_bytes(value, "big") if self.counts else int(value[1:])
            for number in range(self._reached.get(key, 0) + 1, reached + 1):
                self.seen[key, number] = now
            self._reached[key] = max(reached, self._reached.get(key, 0))
        self._consumer.close()


@dataclass(frozen=True, slots=True)
class _Job:
    """A running job that reads `source` and writes `output`."""

    source: str
    output: str
    is_alive: Callable[[], bool]
    streams: KafkaStreams | None = None


@contextmanager
def _millstream(lab: Lab, counts: bool) -> Iterator[_Job]:
    source, output = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS)
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string()))
    if counts:
        stream.group_by_key().count(Materialized.as_("counts")).to_stream().to(output)
    else:
        stream.map_values(lambda value: F.upper(F.concat(F.lit("n"), value))).to(output)
    config = {
        "application.id": lab.name("app"),
        "bootstrap.servers": lab.bootstrap_servers,
        "state.dir": str(lab.path("state")),
    }
    with KafkaStreams(builder.build(), config) as streams:
        streams.wait_until_running()
        yield _Job(source, output, is_up(streams), streams)


@contextmanager
def _by_hand(lab: Lab, counts: bool) -> Iterator[_Job]:
    source, output = lab.topic("in", PARTITIONS), lab.topic("out", PARTITIONS)
    rows = (
        lab.session(tuned=True)
        .readStream.format("kafka")
        .options(
            **{
                "kafka.bootstrap.servers": lab.bootstrap_servers,
                "subscribe": source,
                "startingOffsets": "earliest",
                "kafka.fetch.max.wait.ms": "10",
            }
        )
        .load()
    )
    if counts:
        rows = rows.groupBy("key").agg(F.count("*").alias("n"))
        rows = rows.select("key", F.unhex(F.lpad(F.hex("n"), 16, "0")).alias("value"))
    else:
        text = F.col("value").cast("string")
        rows = rows.select("key", F.upper(F.concat(F.lit("n"), text)).cast("binary").alias("value"))
    query = (
        rows.writeStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": lab.bootstrap_servers, "topic": output})
        .option("checkpointLocation", str(lab.path("checkpoint")))
        .outputMode("update")
        .start()
    )
    try:
        yield _Job(source, output, lambda: bool(query.isActive))
    finally:
        stop(query)


def _queries_ms(streams: KafkaStreams, traffic: Traffic, times: int) -> list[float]:
    """From sending a record to the moment when `get` gives the new count, one after the other."""
    random_ = random.Random(11)
    store = streams.store(
        StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    )
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        wanted = traffic.send_one(_QUERY_KEY.encode())
        while store.get(_QUERY_KEY) != wanted:
            if time.perf_counter() - begun > _PATIENCE_S:
                raise TimeoutError(f"count {wanted} was not queryable within {_PATIENCE_S:g} s")
            time.sleep(0.001)
        taken.append((time.perf_counter() - begun) * 1000)
        time.sleep(random_.uniform(0, 0.1))
    return taken


_JOBS = {
    "Millstream, map": (_millstream, False),
    "by hand, map": (_by_hand, False),
    "Millstream, count": (_millstream, True),
    "by hand, count": (_by_hand, True),
}
_QUERY = "Millstream, count, to the query"
_BUSY = ", 50/s"


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Each job in turns; figures are of all rounds together, ratios of medians inside each round."""
    repetitions, seconds, warm_s, singles = (2, 6.0, 3.0, 30) if quick else (4, 12.0, 5.0, 60)
    lab.session(tuned=True)
    found: dict[str, list[list[float]]] = {
        name: [] for name in (*_JOBS, _QUERY, *(name + _BUSY for name in _JOBS))
    }
    for number, order in enumerate(rounds(list(_JOBS), repetitions + 1)):
        for name in order:
            tell(f"round {number} of {repetitions}: {name}" if number else f"warming up: {name}")
            start, counts = _JOBS[name]
            with start(lab, counts) as job:
                traffic = Traffic(lab.bootstrap_servers, job.source, job.output, counts)
                try:
                    traffic.send_one(b"first")
                    traffic.wait_until_seen(job.is_alive)
                    traffic.send(warm_s)
                    traffic.forget()
                    traffic.send(seconds)
                    busy = traffic.latencies_ms()
                    traffic.forget()
                    single = traffic.send_one_at_a_time(singles)
                    asked = (
                        _queries_ms(job.streams, traffic, singles)
                        if job.streams is not None and counts
                        else []
                    )
                finally:
                    traffic.close()
            if number:
                found[name].append(single)
                found[name + _BUSY].append(busy)
                if asked:
                    found[_QUERY].append(asked)
    return _report(found)


def _report(found: dict[str, list[list[float]]]) -> Report:
    pooled = {name: [value for values in of for value in values] for name, of in found.items()}
    medians = {name: [percentile(values, 50) for values in of] for name, of in found.items()}
    rows = []
    for name, values in pooled.items():
        against = ""
        if name.startswith("Millstream") and name != _QUERY:
            ratio = ratios(medians[name], medians[name.replace("Millstream", "by hand")])
            against = str(ratio)
        shown = (f"{percentile(values, percent):.0f}" for percent in (50, 90, 99, 100))
        rows.append((name, f"{len(values):,}", *shown, f"{min(medians[name]):.0f}", against))
    table = Table(
        f"Latency in ms, Kafka to Kafka, {PARTITIONS} partitions, {len(medians[_QUERY])} rounds in turns; "
        f"one record at a time, and {_RATE:.0f} a second at random moments",
        ("job", "records", "p50", "p90", "p99", "max", "best round's p50", "p50 / by hand"),
        tuple(rows),
        (
            "by hand: one output topic; Millstream's count writes its changelog too, and fills the store",
            "'to the query': from sending one record to the moment when store.get gives its count",
        ),
    )
    goals = (
        Goal("p50 of a map, one at a time", percentile(pooled["Millstream, map"], 50), 60, "ms"),
        Goal("p50 of a count, one at a time", percentile(pooled["Millstream, count"], 50), 100, "ms"),
        Goal("p50 to the query", percentile(pooled[_QUERY], 50), 150, "ms"),
    )
    return Report("latency", (table,), goals, {"milliseconds": found})
