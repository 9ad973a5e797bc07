"""Records that fail, on a real broker: what goes on, the dead letter queue, and when it is too much."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, key_value_store

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    PipelineException,
    Produced,
    Serdes,
    StreamsBuilder,
)
from millstream.config import StreamsConfig
from millstream.ports import PipelineEnd, RunningPipeline
from millstream.runtime.wiring import _tasks
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.engine import SparkEngine, SparkSettings

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


def run(
    world: World,
    program: Callable[[StreamsBuilder], Any],
    partitions: dict[str, int],
    directory: Path,
    ends: list[PipelineEnd],
    **options: Any,
) -> tuple[SparkEngine, RunningPipeline]:
    """The one pipeline of a program, running. Keys of `options` are written with underscores for dots."""
    builder = StreamsBuilder()
    program(builder)
    topology = builder.build()
    (pipeline,) = topology.pipelines
    given = {key.replace("_", "."): value for key, value in options.items()}
    servers = world.kafka.bootstrap_servers
    config = StreamsConfig({"application.id": world.name("app"), "bootstrap.servers": servers, **given})
    settings = SparkSettings(
        application_id=config.application_id,
        bootstrap_servers=servers,
        spark={},
        producer=config.with_prefix("producer."),
        handlers=RecordHandlers.of(config),
        tasks=_tasks(config),
        checkpoints=str(directory),
    )
    engine = SparkEngine(settings)
    return engine, engine.start(engine.compile(pipeline, partitions), range(100), ends.append)


def test_poison_goes_to_the_dead_letter_queue_and_a_flood_of_it_ends_the_pipeline(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Good records reach output and changelog, bad ones the queue as they were; then there are too many."""
    source, out, queue = world.topic("in", 2), world.topic("out", 1), world.topic("dlq", 2)
    changelog = f"{world.name('app')}-n-changelog"
    world.kafka.create_topic(changelog, 2)
    ends: list[PipelineEnd] = []

    def program(builder: StreamsBuilder) -> None:
        numbers = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long()))
        tenths = numbers.map_values(lambda value: F.lit(10) / value)
        tenths.to(out, Produced.with_(Serdes.string(), Serdes.double()))
        tenths.group_by_key().count(Materialized.as_("n"))

    engine, pipeline = run(
        world,
        program,
        {"n-changelog": 2},
        tmp_path,
        ends,
        deserialization_exception_handler="continue",
        processing_exception_handler="org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler",
        errors_dead_letter_queue_topic_name=queue,
        errors_continue_max_ratio=0.6,
        commit_interval_ms=100,
        state_dir=str(tmp_path / "state"),
    )
    try:
        with caplog.at_level(logging.WARNING, "millstream"):
            numbers = [(b"k", n.to_bytes(8, "big")) for n in range(200)]
            world.produce(
                source, [*numbers, (b"bad", b"\xff\x00\xfepoison"), (None, b"short")], headers=[("h", b"1")]
            )
            assert len(world.consume(out, 199)) == 199
            wait_until(
                lambda: world.consume(changelog, 1)[-1].value == (199).to_bytes(8, "big"), "all are counted"
            )
            letters = world.consume(queue, 3)
            assert {(r.key, r.value) for r in letters} == {
                (b"bad", b"\xff\x00\xfepoison"),
                (None, b"short"),
                (b"k", bytes(8)),
            }
            headers = {r.key: dict(r.headers) for r in letters}
            assert headers[b"bad"]["h"] == b"1"
            assert headers[b"bad"]["__streams.errors.topic"] == source.encode()
            assert int(headers[b"bad"]["__streams.errors.partition"] or b"") in (0, 1)
            assert b"it takes 8 bytes" in (headers[b"bad"]["__streams.errors.message"] or b"")
            assert b"KSTREAM-MAPVALUES" in (headers[b"k"]["__streams.errors.message"] or b"")
            wait_until(lambda: pipeline.metadata().dropped == 3, "three are counted")
            assert pipeline.metadata().running
            assert ends == []

            world.produce(source, [(b"bad", b"poison")] * 1000)
            wait_until(lambda: ends, "the flood has ended the pipeline")
    finally:
        engine.close()
    (end,) = ends
    assert isinstance(end.error, PipelineException)
    assert end.error.pipeline == "p0"
    assert "errors.continue.max.ratio=0.6" in str(end.error)
    assert f"they are in the dead letter queue '{queue}'" in str(end.error)
    assert not pipeline.metadata().running
    dropped = pipeline.metadata().dropped  # the flood may have come in more than one report
    assert 3 < dropped <= 1003
    # What was dropped behind the last report is there, too.
    assert dropped <= len(world.consume(queue, dropped)) <= 1003
    assert "dropped" in caplog.text
    assert "poison" not in caplog.text


def test_a_client_drops_what_its_configuration_says(world: World) -> None:
    """The whole way: configuration, client, Spark, dead letter queue, store; the client stays RUNNING."""
    source, out, queue = world.topic("in", 2), world.topic("out", 1), world.topic("dlq", 1)
    builder = StreamsBuilder()
    numbers = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long()))
    numbers.group_by_key().count(Materialized.as_("n")).to_stream().to(out)
    client = world.client(
        builder.build(),
        deserialization_exception_handler="LogAndContinueExceptionHandler",
        errors_dead_letter_queue_topic_name=queue,
    )
    world.produce(source, [(b"a", (1).to_bytes(8, "big")), (b"b", b"poison"), (b"a", (2).to_bytes(8, "big"))])
    (letter,) = world.consume(queue, 1)
    assert (letter.key, letter.value) == (b"b", b"poison")
    headers = dict(letter.headers)
    assert headers["__streams.errors.topic"] == source.encode()
    store = key_value_store(client, "n")
    wait_until(lambda: store.get("a") == 2, "both good records are counted", 30.0)
    assert store.get("b") is None
    assert client.state is KafkaStreams.State.RUNNING
    assert client.failures == ()
    check_counts(client)


def check_counts(client: KafkaStreams) -> None:
    """Its metrics say what was read and dropped."""
    wait_until(lambda: _counted(client) == 3, "three records are counted", 30.0)
    metrics = client.metrics()
    assert metrics.value("dropped-records-total", group="stream-task-metrics") == 1
    assert metrics.value("dropped-records-total", kind="deserialization") == 1
    by_task = {
        dict(name.tags)["task-id"]: each.value
        for name, each in metrics.items()
        if (name.group, name.name) == ("stream-topic-metrics", "records-consumed-total")
    }
    assert set(by_task) == {"0_0", "0_1"}
    assert sum(map(float, by_task.values())) == 3


def _counted(client: KafkaStreams) -> object:
    return client.metrics().value("process-total", group="stream-thread-metrics")
