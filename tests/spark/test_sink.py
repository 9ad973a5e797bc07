"""The kernel's sink on a real broker: what a row becomes, and what comes of a record that is refused."""

from __future__ import annotations

import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as NativePartition
from engine_world import EngineWorld
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import Consumed, Produced, Serdes, StreamsBuilder
from millstream.broker import EmbeddedKafka
from millstream.errors import PipelineException, TaskMigratedException
from millstream.ports import RunningPipeline
from millstream.query.metadata import default_partition
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.compile.sink import FORMAT, sink_options

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TIME = 1_700_000_000_123
ROW = (
    "topic string, key binary, value binary, partition int, route binary, timestamp bigint, "
    "headers array<struct<key: string, value: binary>>"
)
SOURCE = "key: binary, value: binary, topic: string, partition: int, `offset`: bigint, place: string"
LETTER = f", letter struct<{SOURCE}>"
HEADERS = [("h", b"1")]
SOON = {"kafka.max.block.ms": "3000"}
"""Of tests in which something is not there: that it is not is known sooner."""
STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
Row = tuple[Any, ...]
LARGE = random.Random(1).randbytes(50_000)
"""More than a topic of these tests takes, also where the producer compresses it."""


class Sink:
    """Topics of a test's own, and rows written to them."""

    def __init__(self, kafka: EmbeddedKafka, spark: SparkSession, directory: Path) -> None:
        self.kafka, self.spark, self.directory = kafka, spark, directory
        self.name = uuid.uuid4().hex[:10]

    def topic(self, base: str, partitions: int = 1, **configs: str) -> str:
        name = f"{base}-{self.name}"
        self.kafka.create_topic(
            name, partitions, {key.replace("_", "."): value for key, value in configs.items()}
        )
        return name

    def options(self, **producer: str) -> dict[str, str]:
        given = {name.replace("_", "."): value for name, value in producer.items()}
        return sink_options({"bootstrap.servers": self.kafka.bootstrap_servers, **given}, {})

    def rows(self, rows: Sequence[Row], schema: str = ROW) -> DataFrame:
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def write(self, rows: DataFrame, **options: str) -> None:
        rows.write.format(FORMAT).options(**{**self.options(), **options}).mode("append").save()

    def stream(self, source: Path, **options: str) -> Any:
        """A query whose micro-batches are files: its first commits are made anew where they were deleted."""
        rows = self.spark.readStream.schema(ROW + LETTER).option("maxFilesPerTrigger", 1).parquet(str(source))
        return (
            rows.coalesce(1)
            .writeStream.format(FORMAT)
            .options(**{**self.options(), **options})
            .option("checkpointLocation", str(self.directory / "checkpoint"))
            .trigger(availableNow=True)
            .outputMode("update")
            .start()
        )

    def read(self, topic: str, partitions: int = 1) -> list[Message]:
        """All committed records of a topic, by partition and offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": self.name,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found: list[Message] = []
        ends: set[int] = set()

        def read_all() -> bool:
            for message in consumer.consume(10_000, 0.1):
                if message.error() is None:
                    found.append(message)
                else:
                    ends.add(message.partition() or 0)
            return len(ends) == partitions

        try:
            consumer.assign([NativePartition(topic, number, 0) for number in range(partitions)])
            wait_until(read_all, f"all of {topic} is read", 60)
        finally:
            consumer.close()
        return sorted(found, key=lambda message: (message.partition() or 0, message.offset() or 0))


@pytest.fixture
def sink(kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(kafka, spark, tmp_path)


# --- records ------------------------------------------------------------------------------------------------


def test_a_row_is_written_as_it_is(sink: Sink) -> None:
    """Null and empty keys and values, headers twice and without a value. NULL is now, before 1970 is 1970."""
    topic = sink.topic("out")
    headers = [("h", b"1"), ("h", None), ("", b"")]
    begun = time.time() * 1000
    sink.write(
        sink.rows(
            [
                (topic, b"k", b"v", None, None, TIME, headers),
                (topic, None, b"v", None, None, 0, None),
                (topic, b"k", None, None, None, -5, []),
                (topic, b"", b"", None, None, None, None),
            ]
        )
    )
    first, second, third, fourth = sink.read(topic)
    assert (first.key(), first.value(), first.headers(), first.timestamp()[1]) == (b"k", b"v", headers, TIME)
    assert (second.key(), second.value(), second.headers(), second.timestamp()[1]) == (None, b"v", None, 0)
    assert (third.key(), third.value(), third.headers(), third.timestamp()[1]) == (b"k", None, None, 0)
    assert (fourth.key(), fourth.value()) == (b"", b"")
    assert begun - 1000 <= fourth.timestamp()[1] <= time.time() * 1000 + 1000


def test_a_key_lies_where_every_kafka_client_expects_it(sink: Sink) -> None:
    """As librdkafka's murmur2_random has it; a route goes before the key, a partition before both."""
    ours, theirs, routed = sink.topic("ours", 7), sink.topic("theirs", 7), sink.topic("routed", 7)
    keys = [
        b"",
        *(b"%d" % number * (number % 9 + 1) for number in range(300)),
        b"\xff\x80\0",
        "\u2603".encode(),
    ]
    producer = Producer({"bootstrap.servers": sink.kafka.bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce(theirs, key=key, value=b"")
    assert producer.flush(30) == 0
    sink.write(
        sink.rows(
            [
                *((ours, key, b"", None, None, TIME, None) for key in keys),
                *((routed, b"other", key, None, key, TIME, None) for key in keys),
                *((routed, b"chosen", key, 3, key, TIME, None) for key in keys[:1]),
            ]
        )
    )
    expected = {message.key(): message.partition() for message in sink.read(theirs, 7)}
    assert {message.key(): message.partition() for message in sink.read(ours, 7)} == expected
    found = sink.read(routed, 7)
    assert {m.value(): m.partition() for m in found if m.key() == b"other"} == expected
    assert {m.partition() for m in found if m.key() == b"chosen"} == {3}
    assert {key: default_partition(key, 7) for key in keys} == expected


def numbered(sink: Sink, topic: str, count: int, key: Column) -> DataFrame:
    """Rows of four tasks, by a column "id"."""
    return sink.spark.range(0, count, 1, 4).select(
        F.lit(topic).alias("topic"),
        key.cast("string").cast("binary").alias("key"),
        F.lit("v" * 50).cast("binary").alias("value"),
        F.lit(None).cast("int").alias("partition"),
        F.lit(None).cast("binary").alias("route"),
        (F.lit(TIME) + F.col("id")).alias("timestamp"),
        F.lit(None).cast("array<struct<key: string, value: binary>>").alias("headers"),
    )


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_large_batch_arrives_whole(sink: Sink, compression: str) -> None:
    """100,000 records from several tasks, through one producer, with its options."""
    topic = sink.topic("out", 3, max_message_bytes="2000000")
    rows = numbered(sink, topic, 100_000, F.col("id"))
    sink.write(rows, **{"kafka.compression.type": compression, "kafka.linger.ms": "5"})
    found = sink.read(topic, 3)
    assert len(found) == 100_000
    assert all(m.timestamp()[1] == TIME + int(m.key() or b"-1") for m in found)


# --- what Kafka refuses -------------------------------------------------------------------------------------


def refusing(sink: Sink) -> tuple[str, str, str, list[Row]]:
    """Three topics, and rows for them of which some are refused: one too large for the broker, one without a
    key for a compacted topic, two for partitions that there are not."""
    small = sink.topic("small", 1, max_message_bytes="20000")
    compacted, three = sink.topic("compacted", 1, cleanup_policy="compact"), sink.topic("three", 3)
    rows: list[Row] = []
    for number in range(20):
        key, source = b"%d" % number, (b"%d" % number, b"raw", "in", 0, number, "KSTREAM-SINK-1")
        value = LARGE if number == 7 else b"good"
        rows.append((small, key, value, None, None, TIME, None, source))
        rows.append(
            (compacted, None if number == 8 else key, b"good", None, None, TIME, [("h", b"1")], source)
        )
        rows.append((three, key, b"good", {3: 9, 4: -1}.get(number, 1), None, TIME, None, source))
    return small, compacted, three, rows


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_records_that_kafka_refuses_are_dropped_and_no_others(sink: Sink, compression: str) -> None:
    """Also not those that were in one request with them. Each has a dead letter of what it came of."""
    small, compacted, three, rows = refusing(sink)
    queue = sink.topic("dlq")
    drops = {"on.refused": "continue", "dead.letter.topic": queue, "kafka.compression.type": compression}
    sink.write(sink.rows(rows, ROW + LETTER), **drops, **SOON)
    everybody = {b"%d" % number for number in range(20)}
    assert {m.key() for m in sink.read(small)} == everybody - {b"7"}
    assert {m.key() for m in sink.read(compacted)} == everybody - {b"8"}
    assert {m.key() for m in sink.read(three, 3)} == everybody - {b"3", b"4"}
    letters = {m.key(): m for m in sink.read(queue)}
    assert set(letters) == {b"7", b"8", b"3", b"4"}
    said = {name: (value or b"").decode() for name, value in letters[b"8"].headers() or []}
    assert (letters[b"8"].value(), letters[b"8"].timestamp()[1], said["h"]) == (b"raw", TIME, "1")
    assert said["__streams.errors.exception"] == "org.apache.kafka.common.InvalidRecordException"
    assert (
        f"topic '{compacted}' did not take a record (key: null, value: 4 bytes, 1 header"
        in (said["__streams.errors.message"])
    )
    assert said["__streams.errors.stacktrace"].endswith("\n\tat KSTREAM-SINK-1")
    assert [said[f"__streams.errors.{name}"] for name in ("topic", "partition", "offset")] == ["in", "0", "8"]


def test_tasks_lose_nothing_by_what_others_send(sink: Sink) -> None:
    """They share a producer and its requests; some records of each have no key."""
    topic = sink.topic("compacted", 3, cleanup_policy="compact")
    rows = numbered(sink, topic, 20_000, F.when(F.col("id") % 997 != 5, F.col("id")))
    sink.write(rows, **{"on.refused": "continue"})
    found = sorted(int(m.key() or b"-1") for m in sink.read(topic, 3))
    assert found == [number for number in range(20_000) if number % 997 != 5]


@pytest.mark.parametrize(
    ("which", "sentence"),
    [
        (
            "small",
            r"'small-\w+' did not take a record \(key: 1 bytes, value: 50000 bytes, .*max\.message\.bytes",
        ),
        (
            "compacted",
            r"topic 'compacted-\w+' did not take a record \(key: null, .*accepts no record without a key",
        ),
        ("three", r"partition 9 of topic 'three-\w+', which has 3 partitions, 0 to 2; let the partitioner"),
    ],
)
def test_a_refused_record_fails_the_task_with_a_sentence(sink: Sink, which: str, sentence: str) -> None:
    """Topic, sizes, reason, and what to do."""
    *_, rows = refusing(sink)
    with pytest.raises(Py4JJavaError) as raised:
        sink.write(sink.rows([row[:-1] for row in rows if row[0].startswith(which)]), **SOON)
    assert re.search(sentence, str(raised.value)), str(raised.value)[:2000]


def test_a_topic_that_is_not_there_is_no_refusal(sink: Sink) -> None:
    """Whatever the handler says: nothing would ever be written."""
    row = (f"nowhere-{sink.name}", b"k", b"v", None, None, TIME, None)
    with pytest.raises(Py4JJavaError, match=f"Topic nowhere-{sink.name} not present in metadata"):
        sink.write(sink.rows([row]), **{"on.refused": "continue"}, **SOON)


# --- exactly once -------------------------------------------------------------------------------------------


def batches(sink: Sink, *rows: Sequence[Row]) -> Path:
    """Files, one for each micro-batch to be."""
    source = sink.directory / "source"
    for number, each in enumerate(rows):
        target = sink.directory / f"part-{number}"
        sink.rows(each, ROW + LETTER).write.parquet(str(target))
        source.mkdir(exist_ok=True)
        (file,) = target.glob("*.parquet")
        file.rename(source / f"{number}.parquet")
        wait_until(lambda: time.time() > (source / f"{number}.parquet").stat().st_mtime, "the clock goes on")  # noqa: B023
    return source


def transactional(sink: Sink, epoch: int) -> dict[str, str]:
    return {
        "transactional.prefix": f"app-{sink.name}-p0",
        "marker.topic": f"marker-{sink.name}",
        "epoch": str(epoch),
        "run": f"run-{epoch}",
    }


def test_a_batch_that_comes_again_is_not_written_again(sink: Sink) -> None:
    """Spark's commit log has lost it, as after a kill; another run goes on, and the older one is fenced."""
    topic = sink.topic("out")
    sink.topic("marker")
    rows = [[(topic, b"%d" % number, b"v", None, None, TIME, None, None)] for number in range(3)]
    source = batches(sink, *rows[:2])
    first = sink.stream(source, **transactional(sink, 1))
    first.awaitTermination(60)
    assert [m.key() for m in sink.read(topic)] == [b"0", b"1"]
    for commit in (sink.directory / "checkpoint" / "commits").glob("*1*"):
        commit.unlink()
    batches_again = sink.stream(source, **transactional(sink, 2))
    batches_again.awaitTermination(60)
    assert [m.key() for m in sink.read(topic)] == [b"0", b"1"], "batch 1 was repeated, and not written"
    sink.rows(rows[2], ROW + LETTER).write.parquet(str(sink.directory / "late"))
    (file,) = (sink.directory / "late").glob("*.parquet")
    file.rename(source / "2.parquet")
    zombie = sink.stream(source, **transactional(sink, 1))
    with pytest.raises(PySparkException, match="of epoch 1 was fenced by the run of epoch 2"):
        zombie.awaitTermination(60)
    sink.stream(source, **transactional(sink, 2)).awaitTermination(60)
    assert [m.key() for m in sink.read(topic)] == [b"0", b"1", b"2"]


def test_what_is_refused_in_a_transaction_is_dropped_and_the_rest_is_written_once(sink: Sink) -> None:
    """Kafka gives up the whole transaction; it is written again, with dead letters in their place."""
    small, compacted, three, rows = refusing(sink)
    queue = sink.topic("dlq")
    sink.topic("marker")
    source = batches(sink, rows)
    drops = {"on.refused": "continue", "dead.letter.topic": queue, **SOON, **transactional(sink, 1)}
    query = sink.stream(source, **drops)
    query.awaitTermination(60)
    everybody = [b"%d" % number for number in range(20)]
    assert [m.key() for m in sink.read(small)] == [key for key in everybody if key != b"7"]
    assert [m.key() for m in sink.read(compacted)] == [key for key in everybody if key != b"8"]
    assert [m.key() for m in sink.read(three, 3)] == [key for key in everybody if key not in (b"3", b"4")]
    assert {m.key() for m in sink.read(queue)} == {b"7", b"8", b"3", b"4"}
    metrics = query.lastProgress["sink"]["metrics"]
    counts = {name: value for name, value in metrics.items() if name.startswith("dropped:")}
    assert counts == {
        f"dropped:{small}:RecordTooLargeException": "1",
        f"dropped:{compacted}:InvalidRecordException": "1",
        f"dropped:{three}:NoSuchPartitionException": "2",
    }
    written = {name: value.split()[0] for name, value in metrics.items() if name.startswith("written:")}
    counts = {small: "19", compacted: "19", three: "18", queue: "4"}
    assert written == {f"written:{topic}": count for topic, count in counts.items()}


# --- a pipeline ---------------------------------------------------------------------------------------------


World = Callable[[RecordHandlers], EngineWorld]


@pytest.fixture
def worlds(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[World]:
    made: list[EngineWorld] = []

    def make(handlers: RecordHandlers) -> EngineWorld:
        world = EngineWorld(kafka, tmp_path, spark, handlers=handlers)
        made.append(world)
        return world

    yield make
    for world in made:
        world.close()


def shortened(world: EngineWorld) -> tuple[str, str, RunningPipeline]:
    """A pipeline into a topic that takes 20,000 bytes; returns source, target and the pipeline."""
    source, small = world.topic("in"), f"small-{world.number}"
    world.kafka.create_topic(small, 1, {"max.message.bytes": "20000"})
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).to(small, Produced.with_(Serdes.string(), Serdes.string()))
    [compiled] = world.compiled(builder.build())
    return source, small, world.start(compiled)


def test_a_pipeline_drops_what_kafka_refuses_counts_and_tells_it(
    worlds: World, caplog: pytest.LogCaptureFixture
) -> None:
    """With production.exception.handler=continue: in the metric, the log with topic and reason, the queue."""
    world = worlds(RecordHandlers(production=True, dead_letter_topic="dlq-of-sink"))
    if "dlq-of-sink" not in world.kafka.topics():
        world.kafka.create_topic("dlq-of-sink", 1)
    with caplog.at_level(logging.WARNING):
        source, small, running = shortened(world)
        world.produce(source, "a", "x" * 50000, "b")
        assert [m.value() for m in world.read(small, 2)] == [b"a", b"b"]
        [letter] = world.read("dlq-of-sink", 1)
        assert (letter.key(), letter.value()) == (b"k", b"x" * 50000)
        wait_until(lambda: running.metadata().dropped == 1, "it is counted")
        running.stop()
        assert world.wait_for_end() is None
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert f"production in topic '{small}' (RecordTooLargeException): 1" in told
    assert f"topic '{small}' did not take a record (key: 1 bytes, value: 50000 bytes" in told


def test_a_pipeline_that_may_drop_nothing_ends_with_the_sentence(worlds: World) -> None:
    """Which names topic, sizes, reason and fix."""
    world = worlds(RecordHandlers())
    source, small, _ = shortened(world)
    world.produce(source, "x" * 50000)
    error = world.wait_for_end()
    assert isinstance(error, PipelineException)
    assert not isinstance(error, TaskMigratedException)
    assert re.fullmatch(
        rf"pipeline p0: its query failed: topic '{small}' did not take a record \(key: 1 bytes, "
        r"value: 50000 bytes, 0 headers; about \d+ bytes in all\): RecordTooLargeException: "
        r".*; raise the topic's .*",
        str(error),
    ), str(error)
