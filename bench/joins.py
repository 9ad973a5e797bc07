"""How many records a second joins process: Millstream's, Kafka Streams', and Spark's own, in turns.

All run on one broker, over the same records and partitions, with as many threads as there are cores.
Their results are compared with what the benchmark itself computes: how many there are, and a checksum.

- A stream with a table. The table is loaded first. Then all records of the stream appear at once: they were
  written in a transaction, which is committed when the clock starts. So the time includes no start and no
  producer.
- Two tables, and two streams. All records are there beforehand. The clock starts when the first record is
  read; for Spark's own join, when its first micro-batch is triggered, according to its checkpoint.

The clock stops at the broker's timestamp of the last result. Kafka Streams is closed as soon as it has
processed everything, since its caches would hold results back until the next commit, for 30 seconds. All Java
is warm: one JVM runs all jobs of Kafka Streams, and another one all those of Spark.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
import zlib
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from bench.figures import Goal, Progress, Report, Table, median, ratios, rounds, spread
from bench.kafka_streams import JavaStreams
from bench.lab import Lab, NotMeasured, cpu_seconds, first_begun, stop
from bench.words import PARTITIONS, QUIET, first_read, is_up, positions, produce, producer_options
from millstream import Consumed, JoinWindows, KafkaStreams, Serdes, StreamsBuilder, Topology

__all__ = ["Total", "measure", "pairs_of", "records_read", "tables_of", "total"]

_PATIENCE_S = 600.0
_TELL_EVERY_S = 2.0
_STILL_S = 0.1
_BEGIN_MS = 1_700_000_000_000
_APART = timedelta(seconds=5)
_GRACE = timedelta(seconds=10)
_STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
_MURMUR = {"partitioner": "murmur2_random"}
"""The partitioner of Kafka's own clients, so that a stream and its table are co-partitioned for everyone."""

Record = Mapping[str, Any]
"""What `Producer.produce` takes."""


# --- records, and their expected results -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Total:
    """What a topic contains, in any order: how many entries, and a checksum of them."""

    entries: int
    checksum: int


def total(entries: Iterable[tuple[bytes, bytes]]) -> Total:
    """The total of keys and values."""
    count = checksum = 0
    for key, value in entries:
        count += 1
        checksum += zlib.crc32(value, zlib.crc32(key))
    return Total(count, checksum)


def _key(number: int) -> bytes:
    return b"key-%07d" % number


def _text(number: int, length: int) -> bytes:
    """Text that compresses to not much less than half its length; different for each number."""
    return hashlib.shake_128(number.to_bytes(8, "big")).hexdigest(length // 2).encode()


def _rows(keys: int, length: int) -> Iterator[Record]:
    """A table: one row for each key."""
    for number in range(keys):
        yield {"key": _key(number), "value": _text(number, length), "timestamp": _BEGIN_MS + number // 100}


def _lookups(records: int, keys: int) -> Iterator[tuple[int, Record]]:
    """A stream, after the table, with the number of each record's key. A tenth are not in the table."""
    chosen = random.Random(2)
    for number in range(records):
        key = chosen.randrange(keys + keys // 9)
        yield (
            key,
            {
                "key": _key(key),
                "value": b"record-%07d" % number,
                "timestamp": _BEGIN_MS + keys // 100 + 1 + number // 100,
            },
        )


def _updates(records: int, keys: int, name: bytes, seed: int) -> Iterator[Record]:
    """A stream, or a changing table: one record per millisecond, of any key."""
    chosen = random.Random(seed)
    for number in range(records):
        yield {
            "key": _key(chosen.randrange(keys)),
            "value": b"%s-%07d" % (name, number),
            "timestamp": _BEGIN_MS + number,
        }


def pairs_of(left: Iterable[Record], right: Iterable[Record], apart_ms: int) -> Iterator[tuple[bytes, bytes]]:
    """All pairs of records with the same key, at most `apart_ms` apart in time."""
    times: dict[bytes, list[int]] = defaultdict(list)
    values: dict[bytes, list[bytes]] = defaultdict(list)
    for record in right:
        times[record["key"]].append(record["timestamp"])
        values[record["key"]].append(record["value"])
    for record in left:
        key, at, value = record["key"], record["timestamp"], record["value"]
        if key in times:
            first, last = bisect_left(times[key], at - apart_ms), bisect_right(times[key], at + apart_ms)
            for other in values[key][first:last]:
                yield key, value + b"," + other


def tables_of(left: Iterable[Record], right: Iterable[Record]) -> dict[bytes, bytes]:
    """The joined rows, at the end, of the keys in both tables."""
    others = {record["key"]: record["value"] for record in right}
    return {
        key: value + b"," + others[key]
        for key, value in {record["key"]: record["value"] for record in left}.items()
        if key in others
    }


@dataclass
class Case:
    """A join: its records, and their expected results.

    Attributes:
        keys: how many keys the tables or the streams have.
        records: how many records are joined in the measured time, of both sides together.
        length: the length of a row's value, in bytes.
        per_batch: how many records of a source Spark takes in one micro-batch; None means all.
    """

    what: str
    keys: int
    records: int
    length: int = 64
    per_batch: int | None = None
    expected: Total = Total(0, 0)
    left: str = ""
    right: str = ""

    @property
    def is_lookup(self) -> bool:
        return self.what == "lookup"

    @property
    def is_table(self) -> bool:
        """Whether only the last result of each key counts."""
        return self.what == "tables"

    def prepare(self, lab: Lab) -> None:
        """Write the records, except those of a stream that looks rows up. Compute the expected results."""
        self.right = self._written(lab, "right", self._right())
        if self.is_lookup:
            joined = (
                (record["key"], record["value"] + b"," + _text(key, self.length))
                for key, record in _lookups(self.records, self.keys)
                if key < self.keys
            )
            self.expected = total(joined)
            return
        self.left = self._written(lab, "left", self._left())
        if self.is_table:
            self.expected = total(tables_of(self._left(), self._right()).items())
        else:
            self.expected = total(pairs_of(self._left(), self._right(), _APART // timedelta(milliseconds=1)))

    def _left(self) -> Iterator[Record]:
        return _updates(self.records // 2, self.keys, b"left", 3)

    def _right(self) -> Iterator[Record]:
        if self.is_lookup:
            return _rows(self.keys, self.length)
        return _updates(self.records // 2, self.keys, b"right", 4)

    @staticmethod
    def _written(lab: Lab, kind: str, records: Iterator[Record]) -> str:
        topic = lab.topic(kind, PARTITIONS)
        produce(
            lab.bootstrap_servers,
            topic,
            records,
            Producer({**producer_options(lab.bootstrap_servers), **_MURMUR}),
        )
        return topic

    def topology(self, left: str, output: str) -> Topology:
        """The join as a user writes it."""
        builder = StreamsBuilder()
        joiner: Callable[..., Any] = lambda one, other: F.concat(one, F.lit(","), other)  # noqa: E731
        if self.is_lookup:
            builder.stream(left, _STRINGS).join(builder.table(self.right, _STRINGS), joiner).to(output)
        elif self.is_table:
            table = builder.table(left, _STRINGS).join(builder.table(self.right, _STRINGS), joiner)
            table.to_stream().to(output)
        else:
            windows = JoinWindows.of_time_difference_and_grace(_APART, _GRACE)
            builder.stream(left, _STRINGS).join(builder.stream(self.right, _STRINGS), joiner, windows).to(
                output
            )
        return builder.build()

    def by_hand(self, spark: SparkSession, servers: str, output: str, checkpoint: Path) -> StreamingQuery:
        """The same join of streams in Structured Streaming."""

        def side(topic: str, name: str) -> Any:
            reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
            reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
            reader = reader.option("kafka.fetch.max.wait.ms", "10")
            if self.per_batch is not None:
                reader = reader.option("maxOffsetsPerTrigger", str(self.per_batch))
            rows = reader.load().select(
                F.col("key").cast("string").alias(f"{name}_key"),
                F.col("value").cast("string").alias(f"{name}_value"),
                F.col("timestamp").alias(f"{name}_at"),
            )
            return rows.withWatermark(f"{name}_at", f"{_GRACE // timedelta(seconds=1)} seconds")

        apart = F.expr(f"interval {_APART // timedelta(seconds=1)} seconds")
        near = F.col("right_at").between(F.col("left_at") - apart, F.col("left_at") + apart)
        joined = side(self.left, "left").join(
            side(self.right, "right"), (F.col("left_key") == F.col("right_key")) & near
        )
        value = F.concat(F.col("left_value"), F.lit(","), F.col("right_value"))
        query: StreamingQuery = (
            joined.select(F.lit(output).alias("topic"), F.col("left_key").alias("key"), value.alias("value"))
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )
        return query


# --- who joins -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One job.

    Attributes:
        seconds: until the last result.
        loaded_s: how long the table took to load before.
        written: how many results there are.
        cpu_s: the CPU seconds of the contestant, which say more if the machine is busy.
    """

    seconds: float
    loaded_s: float
    written: int
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Timed:
    """What is known about a job before its results are read: when it began, and the rest as in `Run`."""

    begun: float
    cpu_s: float
    loaded_s: float = 0.0


class Cpu:
    """The CPU time that processes use from now on."""

    def __init__(self, *processes: psutil.Process) -> None:
        self._before = [(process, cpu_seconds(process)) for process in processes]

    @classmethod
    def of_spark(cls) -> Cpu:
        """Of Spark's JVM, and of this process, which has Millstream's stores."""
        assert SparkContext._gateway is not None
        return cls(psutil.Process(), psutil.Process(SparkContext._gateway.proc.pid))

    def used(self) -> float:
        """The seconds used so far."""
        return sum(cpu_seconds(process) - before for process, before in self._before)


_TUNED = {
    "topology.optimization": "all",
    "statestore.cache.max.bytes": str(256 * 2**20),
    "consumer.max.poll.records": "10000",
    "producer.batch.size": str(256 * 2**10),
    "producer.compression.type": "lz4",
}
"""What one would try first for throughput: no second changelog, large caches and batches."""


class Jobs:
    """The contestants of one case, by name. Each call is one whole run."""

    def __init__(self, lab: Lab, case: Case, java: JavaStreams | None, tell: Progress) -> None:
        self._lab, self._case, self._java, self._tell = lab, case, java, tell

    def run(self, name: str) -> Run:
        """Run the job, check its results, and delete its topics."""
        lab = self._lab
        output = lab.topic("out", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
        application = lab.name("join")
        with ExitStack() as cleaning:
            cleaning.callback(self._clean, (output, application))
            timed: Timed = getattr(self, f"_{name}")(application, output)
            found, written, last = self._results(output)
        if found != self._case.expected:
            raise RuntimeError(
                f"{name} joined '{self._case.what}' to {found}; it should be {self._case.expected}"
            )
        return Run(last - timed.begun, timed.loaded_s, written, timed.cpu_s)

    def _clean(self, names: tuple[str, ...]) -> None:
        for topic in self._lab.kafka.topics():
            if topic in names or topic.startswith(names[-1] + "-"):
                self._lab.kafka.delete_topic(topic)

    def _millstream(self, application: str, output: str) -> Timed:
        lab, case, state = self._lab, self._case, self._lab.path("state")
        config = {
            "application.id": application,
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(state),
            "isolation.level": "read_committed",
        }
        left = self._written_stream()
        cpu = Cpu.of_spark()
        with KafkaStreams(case.topology(left.topic, output), config) as streams:

            def read_all(records: int) -> None:
                self._wait(lambda: positions(streams), records, "records read", is_up(streams))

            begun = first_read(streams, _PATIENCE_S)
            if not case.is_lookup:
                read_all(case.records)
                return Timed(begun, cpu.used())
            read_all(case.keys)
            loaded = time.time() - begun
            cpu = Cpu.of_spark()
            begun = left.commit()
            read_all(case.keys + case.records + PARTITIONS)  # the end of a transaction is a record too
            return Timed(begun, cpu.used(), loaded)

    def _spark(self, _: str, output: str) -> Timed:
        checkpoint = self._lab.path("checkpoint")
        session = self._lab.session(tuned=True)
        cpu = Cpu.of_spark()
        query = self._case.by_hand(session, self._lab.bootstrap_servers, output, checkpoint)
        try:
            self._wait(
                lambda: records_read(checkpoint), self._case.records, "records read", lambda: query.isActive
            )
        finally:
            stop(query)
        return Timed(first_begun(checkpoint), cpu.used())

    def _java_default(self, application: str, output: str) -> Timed:
        return self._in_java(application, output, {})

    def _java_tuned(self, application: str, output: str) -> Timed:
        return self._in_java(application, output, _TUNED)

    def _in_java(self, application: str, output: str, settings: Mapping[str, str]) -> Timed:
        java, case = self._java, self._case
        assert java is not None
        left = self._written_stream()
        settings = {"consumer.isolation.level": "read_committed", **settings}
        begun = java.start(application, settings, case.what, left.topic, case.right, output)
        loaded = 0.0
        cpu = Cpu(java.process)

        def processed(records: int) -> None:
            self._wait(lambda: java.ask("seen"), records, "records processed", lambda: True)
            seen = 0
            while seen < (seen := java.ask("seen")):  # until it is idle
                time.sleep(_STILL_S)

        if case.is_lookup:
            processed(case.keys)
            loaded = time.time() - begun
            cpu = Cpu(java.process)
            begun = left.commit()
        processed(case.records + (case.keys if case.is_lookup else 0))
        if not case.is_lookup:
            begun = java.first_record()
        java.ask("stop")
        return Timed(begun, cpu.used(), loaded)

    def _written_stream(self) -> _Stream:
        """The left topic. For a stream that looks rows up, it is a new one that nobody can read yet."""
        case = self._case
        if not case.is_lookup:
            return _Stream(case.left)
        lab, topic = self._lab, self._lab.topic("stream", PARTITIONS)
        transaction = {"transactional.id": topic, "transaction.timeout.ms": 900_000}
        producer = Producer({**producer_options(lab.bootstrap_servers), **_MURMUR, **transaction})
        producer.init_transactions()
        producer.begin_transaction()
        lookups = (record for _, record in _lookups(case.records, case.keys))
        produce(lab.bootstrap_servers, topic, lookups, producer)
        return _Stream(topic, producer)

    def _wait(self, seen: Callable[[], int], records: int, what: str, is_alive: Callable[[], bool]) -> None:
        """Wait until there are this many, and report progress."""
        begun = told = time.monotonic()
        while (count := seen()) < records:
            now = time.monotonic()
            if now - told > _TELL_EVERY_S:
                told = now
                self._tell(f"{count:,} of {records:,} {what}")
            if now - begun > _PATIENCE_S:
                raise TimeoutError(f"{count} of {records} {what} within {_PATIENCE_S:g} s")
            if not is_alive():
                raise RuntimeError(f"it ended with {count} of {records} {what}")
            time.sleep(0.01)

    def _results(self, output: str) -> tuple[Total, int, float]:
        """The total of the results that count, how many were written, and when the last one was."""
        last_ms = 0
        written = 0
        latest: dict[bytes, bytes] = {}

        def entries() -> Iterator[tuple[bytes, bytes]]:
            nonlocal last_ms, written
            for key, value, at in _all_of(self._lab.bootstrap_servers, output):
                written += 1
                last_ms = max(last_ms, at)
                if self._case.is_table:
                    latest[key] = value
                yield key, value

        found = total(entries())
        if self._case.is_table:
            found = total(latest.items())
        return found, written, last_ms / 1000


@dataclass(frozen=True, slots=True)
class _Stream:
    """A topic; and the transaction that has its records, if they cannot be read yet."""

    topic: str
    transaction: Producer | None = None

    def commit(self) -> float:
        """Make its records readable. Returns the time of day."""
        assert self.transaction is not None
        begun = time.time()
        self.transaction.commit_transaction(60)
        return begun


def records_read(checkpoint: Path) -> int:
    """How many records precede the end of the last committed micro-batch, in all sources together."""
    commits = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not commits:
        return 0
    sources = (checkpoint / "offsets" / str(max(commits))).read_text().splitlines()[2:]
    return sum(
        offset
        for source in sources
        if source != "-"  # nothing has been read from it
        for partitions in json.loads(source).values()
        for offset in partitions.values()
    )


def _all_of(servers: str, topic: str) -> Iterator[tuple[bytes, bytes, int]]:
    """The records of a topic that nobody is writing to: key, value, and timestamp."""
    client = Consumer(
        {"bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False, **QUIET}
    )
    try:
        parts = [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        left = sum(client.get_watermark_offsets(part, timeout=30)[1] for part in parts)
        client.assign(parts)
        deadline = time.monotonic() + _PATIENCE_S
        while left > 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{left} records of '{topic}' could not be read")
            for message in client.consume(20_000, 0.1):
                if message.error() is None:
                    left -= 1
                    yield message.key() or b"", message.value() or b"", message.timestamp()[1]
    finally:
        client.close()


# --- what is compared ------------------------------------------------------------------------------------

_LABELS = {
    "millstream": "Millstream",
    "java_default": "Kafka Streams, defaults",
    "java_tuned": "Kafka Streams, tuned",
    "spark": "Spark's own join by hand, same settings",
}


@dataclass(frozen=True)
class Contest:
    """A case and its contestants, of which the first is Millstream."""

    title: str
    case: Case
    names: tuple[str, ...]
    against: str
    least: float | None


def contests(*, quick: bool) -> tuple[Contest, ...]:
    """All of them."""
    keys, records = (200_000, 200_000) if quick else (1_000_000, 1_000_000)
    java = ("millstream", "java_default", "java_tuned")
    large = Case("lookup", keys, records // 2, length=500)
    megabytes = keys * (large.length + len(_key(0))) / 1e6
    return (
        Contest(
            f"A stream with a table of {keys:,} keys",
            Case("lookup", keys, records),
            java,
            "java_default",
            2.0,
        ),
        Contest(
            f"A stream with a table of {megabytes:.0f} MB",
            large,
            ("millstream", "java_default"),
            "java_default",
            None,
        ),
        Contest(
            # Not with Kafka Streams' defaults: with its small caches some of its last values are not those
            # that the topics lead to, and others in each run.
            f"Two tables of {keys // 4:,} keys",
            Case("tables", keys // 4, records),
            ("millstream", "java_tuned"),
            "java_tuned",
            2.0,
        ),
        Contest("Two streams", Case("pairs", 10_000, records), ("millstream", "spark"), "spark", 0.9),
        Contest(
            "Two streams, Spark's in ten micro-batches",
            Case("pairs", 10_000, records, per_batch=records // 20),
            ("millstream", "spark"),
            "spark",
            0.9,
        ),
    )


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Run each contestant once to warm up, then all in turns, one case after the other."""
    repetitions = 3 if quick else 5
    tables: list[Table] = []
    goals: list[Goal] = []
    data: dict[str, Any] = {}
    failed: list[str] = []
    lab.session(tuned=True)  # it keeps running, so no run starts Spark
    with ExitStack() as held:
        missing = ""
        java: JavaStreams | None = None
        try:
            java = held.enter_context(JavaStreams(lab))
        except NotMeasured as error:
            missing = str(error)
        for contest in contests(quick=quick):
            names = [name for name in contest.names if java is not None or not name.startswith("java")]
            try:
                runs = _measured(lab, contest, names, java, repetitions, tell)
            except RuntimeError as error:  # the others can still be compared
                tell(f"{contest.title}: FAILED: {error}")
                failed.append(f"{contest.title}: {error}")
                continue
            table, faster = _compared(contest, runs, missing)
            tables.append(table)
            data[contest.title] = {name: [asdict(run) for run in of] for name, of in runs.items()}
            if faster is not None and contest.least is not None:
                of = f"throughput against {_LABELS[contest.against]}: {contest.title}"
                goals.append(Goal(of, faster, contest.least, "x", at_least=True))
    return Report("joins", tuple(tables), tuple(goals), data, failed="; ".join(failed))


def _measured(
    lab: Lab,
    contest: Contest,
    names: list[str],
    java: JavaStreams | None,
    repetitions: int,
    tell: Progress,
) -> dict[str, list[Run]]:
    tell(f"{contest.title}: writing its records")
    contest.case.prepare(lab)
    runs: dict[str, list[Run]] = {name: [] for name in names}

    def one(name: str, when: str) -> Run:
        what = f"{contest.title}: {when}: {_LABELS[name]}"
        tell(what)
        run = Jobs(lab, contest.case, java, lambda said: tell(f"{what}: {said}")).run(name)
        tell(f"{what}: {run.seconds:.2f} s, {run.written:,} results")
        return run

    for name in names:
        one(name, "warming up")
    for number, order in enumerate(rounds(names, repetitions), 1):
        for name in order:
            runs[name].append(one(name, f"round {number} of {repetitions}"))
    return runs


def _compared(contest: Contest, runs: Mapping[str, list[Run]], missing: str) -> tuple[Table, float | None]:
    """The table, and Millstream's throughput as a multiple of that of `contest.against`."""
    rows = []
    records = contest.case.records
    seconds = {name: [run.seconds for run in of] for name, of in runs.items()}
    for name, of in runs.items():
        taken, faster = spread(seconds[name]), ratios(seconds[name], seconds["millstream"])
        loaded = median([run.loaded_s for run in of])
        rows.append(
            (
                _LABELS[name],
                str(taken),
                f"{records / taken.median:,.0f}",
                f"{median([run.cpu_s for run in of]):.1f}",
                f"{contest.case.keys / loaded:,.0f}" if loaded else "",
                f"{median([run.written for run in of]):,.0f}",
                "" if name == "millstream" else str(faster),
            )
        )
    expected = contest.case.expected
    table = Table(
        f"Joins: {contest.title}: {records:,} records, alternating rounds: {len(seconds['millstream'])}",
        (
            "job",
            "seconds",
            "records/s",
            "CPU s",
            "loading, rows/s",
            "results",
            "Millstream's throughput / this",
        ),
        tuple(rows),
        (
            f"all have the same {expected.entries:,} results, checksum {expected.checksum:x}"
            + (", counting only the last one of each key" if contest.case.is_table else ""),
            *([f"Kafka Streams is not measured: {missing}"] if missing else []),
        ),
    )
    if contest.against not in runs:
        return table, None
    return table, ratios(seconds[contest.against], seconds["millstream"]).median
