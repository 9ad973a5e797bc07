"""Exactly once on the engine: what makes a batch repeatable, and what is refused before one begins."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_world import EngineWorld
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream import Consumed, Serdes, StreamsBuilder
from millstream.broker import EmbeddedKafka
from millstream.errors import CheckpointException, ConfigException, PipelineException
from millstream.ports import CompiledPipeline
from millstream.spark.compile.source import FORMAT, kafka_options
from millstream.spark.run.transactions import check_session
from millstream.topology.names import markers_topic

pytestmark = pytest.mark.spark

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark, transaction_timeout_ms=60_000)
    kafka.create_topic(markers_topic(world.application_id), 1)
    yield world
    world.close()


def copying(world: EngineWorld) -> tuple[str, str, CompiledPipeline]:
    source, output = world.topic("in"), world.topic("out")
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).to(output)
    [compiled] = world.compiled(builder.build())
    return source, output, compiled


def test_a_repeated_batch_has_the_same_partitions_in_the_same_order(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    """Four partitions, two topics; Spark's own source has them in another order after a restart."""
    world = EngineWorld(kafka, tmp_path, spark)
    topics = [world.topic("b", 2), world.topic("a", 2)]
    for topic in topics:
        for partition in (1, 0):
            world.producer.produce(topic, value="v", partition=partition)
    assert world.producer.flush(20) == 0
    seen: list[list[tuple[str, int]]] = []

    def look(rows: DataFrame, batch: int) -> None:
        found = rows.select(F.spark_partition_id().alias("at"), "topic", "partition").collect()
        seen.append([(row["topic"], row["partition"]) for row in sorted(found, key=lambda row: row["at"])])

    def run() -> None:
        reader = spark.readStream.format(FORMAT).options(
            **kafka_options({"bootstrap.servers": kafka.bootstrap_servers})
        )
        rows = reader.option("subscribe", ",".join(topics)).option("startingOffsets", "earliest").load()
        query = (
            rows.writeStream.foreachBatch(look)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)

    run()
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    run()
    everything = sorted((topic, partition) for topic in topics for partition in (0, 1))
    assert seen == [everything, everything]
    world.close()


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(world: EngineWorld) -> None:
    """As one that was put back from a backup: its next batch would be taken for one that is there."""
    source, output, compiled = copying(world)
    world.produce(source, "a")  # the first batch has it, as it is there before the query starts
    before = world.claim(epoch=1, directory="checkpoint")
    running = world.start(compiled, before)
    world.wait_until_committed(before, source, 1)
    world.produce(source, "b")
    world.wait_until_committed(before, source, 2)
    running.stop()
    assert world.wait_for_end() is None
    checkpoint = world.directory / "checkpoint"
    claim = world.claim(epoch=2, directory="checkpoint")
    assert world.engine.written(claim) == 2
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).glob("*1*"):
            file.unlink()
    with pytest.raises(CheckpointException, match="older than what it has written") as raised:
        world.start(compiled, claim)
    assert "markers up to micro-batch 1, and the checkpoint has begun 0 at most" in str(raised.value)
    assert [message.value() for message in world.read(output, 2)] == [b"a", b"b"]


def test_a_new_checkpoint_begins_anew_whatever_markers_there_are(world: EngineWorld) -> None:
    """Its batches are counted from 0 again, and are other ones."""
    source, output, compiled = copying(world)
    world.produce(source, "a")
    running = world.start(compiled, world.claim(epoch=1, directory="first"))
    assert [message.value() for message in world.read(output, 1)] == [b"a"]
    running.stop()
    assert world.wait_for_end() is None
    world.start(compiled, world.claim(epoch=2, directory="second"))
    # The marker of the first transaction is at offset 1.
    assert [message.value() for message in world.read(output, 2)] == [b"a", b"a"]


def test_a_timeout_that_the_broker_does_not_allow_is_refused_with_the_fix(
    kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession
) -> None:
    """transaction.max.timeout.ms is 15 minutes unless somebody has changed it."""
    world = EngineWorld(kafka, tmp_path, spark, transaction_timeout_ms=900_001)
    kafka.create_topic(markers_topic(world.application_id), 1)
    _, _, compiled = copying(world)
    with pytest.raises(PipelineException, match=r"lower producer\.transaction\.timeout\.ms"):
        world.start(compiled)
    world.close()


def test_a_session_that_changes_partitions_between_attempts_is_refused(
    world: EngineWorld, spark: SparkSession
) -> None:
    """By the setting's name. Spark's default is true; a client's own session has false, unless it is told."""
    name = "spark.sql.adaptive.streaming.stateless.enabled"
    assert world.engine.spark.conf.get(name) == "false"
    session = spark.newSession()
    session.conf.set(name, "true")
    with pytest.raises(ConfigException, match=name):
        check_session(session)
    session.conf.set(name, "false")
    check_session(session)
