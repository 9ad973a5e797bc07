"""`ports.Engine`: the fake, the engine that counts without Spark, and Spark keep one contract."""

from __future__ import annotations

import queue
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from counting_engine import CountingEngine
from fake_ports import FakeEngine
from waiting import holds_for, wait_until

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, Topology
from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import PipelineException
from millstream.ports import CompiledPipeline, Engine, PipelineEnd

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


@dataclass
class World:
    """An engine, one compiled pipeline for it, and a way to make that fail as it runs."""

    engine: Engine
    compiled: CompiledPipeline
    fail: Callable[[], None]

    def __post_init__(self) -> None:
        self.ends: queue.Queue[PipelineEnd] = queue.Queue()


def counting(source: str, number: Callable[[Any], Any] = int) -> Topology:
    """Of values that `number` makes numbers of; any other text fails."""
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS).map_values(lambda value: number(value))
    stream.group_by_key().count(Materialized.as_("counts"))
    return builder.build()


def fake() -> Iterator[World]:
    engine = FakeEngine()
    [pipeline] = counting("lines").pipelines
    yield World(engine, engine.compile(pipeline, {}), lambda: engine.end(pipeline.name))


def real(
    kafka: EmbeddedKafka,
    start: Callable[[str, str], Engine],
    number: Callable[[Any], Any] = int,
) -> Iterator[World]:
    from confluent_kafka import Producer

    from millstream.topology.internal_topics import plan_internal_topics

    application, source = (f"{kind}-{uuid.uuid4().hex[:8]}" for kind in ("engine", "lines"))
    kafka.create_topic(source, 2)
    topology = counting(source, number)
    plan = plan_internal_topics(topology, application, {source: 2})
    for topic in plan.topics:
        kafka.create_topic(topic.name, topic.partitions)
    engine = start(application, kafka.bootstrap_servers)
    [pipeline] = topology.pipelines
    compiled = engine.compile(pipeline, {name: count or 1 for name, count in plan.partitions.items()})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})

    def fail() -> None:
        producer.produce(source, b"no number", b"k", partition=0)
        assert producer.flush(20) == 0

    yield World(engine, compiled, fail)
    engine.close()


def on_spark(kafka: EmbeddedKafka, tmp_path: Path, session: Any) -> Iterator[World]:
    from millstream.spark.engine import SparkEngine, SparkSettings
    from millstream.spark.run.task_run import TaskSettings

    def start(application: str, servers: str) -> Engine:
        cluster = {"bootstrap.servers": servers}
        tasks = TaskSettings(
            exactly_once=False,
            commit_ms=100,
            idle_ms=0,
            directory=str(tmp_path / "tasks"),
            consumer=cluster,
            producer=cluster,
            global_consumer=cluster,
        )
        return SparkEngine(SparkSettings(application, servers, tasks, str(tmp_path / "checkpoints")), session)

    return real(kafka, start, lambda value: value.cast("long"))


def without_spark(kafka: EmbeddedKafka) -> Iterator[World]:
    def start(application: str, servers: str) -> Engine:
        return CountingEngine(StreamsConfig({"application.id": application, "bootstrap.servers": servers}))

    return real(kafka, start)


@pytest.fixture(
    params=[
        "fake",
        pytest.param("counting", marks=pytest.mark.kafka),
        pytest.param("spark", marks=[pytest.mark.spark, pytest.mark.kafka]),
    ]
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    match request.param:
        case "fake":
            yield from fake()
        case "counting":
            yield from without_spark(request.getfixturevalue("kafka"))
        case _:
            kafka, session = request.getfixturevalue("kafka"), request.getfixturevalue("spark")
            yield from on_spark(kafka, tmp_path, session)


def test_compiling_settles_the_serdes_of_every_store(world: World) -> None:
    """The serdes are listed by the store's name."""
    assert world.compiled.pipeline.name == "p0"
    assert world.compiled.store_serdes.keys() == {"counts"}


def test_a_pipeline_runs_until_it_is_stopped_and_its_end_is_told_once(world: World) -> None:
    """The end has no error, the status is right before and after it, and the pipeline can start again."""
    for _ in range(2):
        running = world.engine.start(world.compiled, [0], world.ends.put)
        found = running.metadata()
        assert (found.name, found.running) == ("p0", True)
        wait_until(lambda: running.metadata().opening is None, "its tasks run", 60)  # noqa: B023
        running.stop()
        assert world.ends.get(timeout=20) == PipelineEnd("p0", None)
        running.stop()
        holds_for(0.1, world.ends.empty, "its end is told once")
        assert not running.metadata().running
    assert world.engine.is_alive


def test_a_pipeline_that_fails_tells_its_error_once_and_can_be_started_again(world: World) -> None:
    """A PipelineException with its name; stopping what has ended tells nothing more."""
    running = world.engine.start(world.compiled, [0], world.ends.put)
    world.fail()
    end = world.ends.get(timeout=60)
    assert end.pipeline == "p0"
    assert isinstance(end.error, PipelineException)
    assert end.error.pipeline == "p0"
    wait_until(lambda: not running.metadata().running, "it says so itself", 10)
    running.stop()
    holds_for(0.1, world.ends.empty, "its end is told once")
    assert world.engine.is_alive
    again = world.engine.start(world.compiled, [0], world.ends.put)
    again.stop()
    world.ends.get(timeout=20)


def test_partitions_move_from_one_run_to_another(world: World) -> None:
    """A pipeline runs twice at once, with other partitions; when a run has given one up, the other one takes
    it, and both go on. Each end is told once."""
    one = world.engine.start(world.compiled, [0, 1], world.ends.put)
    assert one.assign([1])
    two = world.engine.start(world.compiled, [0], world.ends.put)
    assert two.assign([0])
    assert (one.metadata().running, two.metadata().running) == (True, True)
    assert one.assign([])
    assert two.assign([0, 1])
    one.stop()
    assert world.ends.get(timeout=20) == PipelineEnd("p0", None)
    assert two.metadata().running
    world.fail()
    assert isinstance(world.ends.get(timeout=60).error, PipelineException)


def test_closing_stops_what_runs_and_is_the_end(world: World) -> None:
    """Each end is told, without an error; closing again does nothing."""
    running = world.engine.start(world.compiled, [0], world.ends.put)
    world.engine.close()
    world.engine.close()
    assert world.ends.get(timeout=20) == PipelineEnd("p0", None)
    assert not running.metadata().running
    assert not world.engine.is_alive
    running.stop()
    holds_for(0.1, world.ends.empty, "its end is told once")


def test_what_is_prepared_is_taken_by_the_next_start(world: World) -> None:
    """Its failure is told as any other's. What nobody takes can be forgotten, and ends with the engine."""
    world.engine.prepare(world.compiled)
    world.engine.prepare(world.compiled)
    running = world.engine.start(world.compiled, [0, 1], world.ends.put)
    wait_until(lambda: running.metadata().opening is None, "its tasks run", 60)
    world.fail()
    assert isinstance(world.ends.get(timeout=60).error, PipelineException)
    world.engine.prepare(world.compiled)
    world.engine.forget_prepared()
    world.engine.start(world.compiled, [0], world.ends.put).stop()
    assert world.ends.get(timeout=20) == PipelineEnd("p0", None)
    world.engine.prepare(world.compiled)
    world.engine.close()
    holds_for(0.1, world.ends.empty, "nobody is told of what was only prepared")


def test_tasks_that_are_followed_catch_up_and_start_as_others(world: World) -> None:
    """What is not followed any more is not told; one that is starts, and ends, as usual."""
    follow = world.engine.follow
    assert follow(world.compiled, []) == frozenset()
    wait_until(lambda: follow(world.compiled, [0, 1]) == {0, 1}, "both have caught up", 60)
    wait_until(lambda: follow(world.compiled, [1]) == {1}, "one is left", 10)
    running = world.engine.start(world.compiled, [0, 1], world.ends.put)
    wait_until(lambda: running.metadata().opening is None, "its tasks run", 60)
    assert follow(world.compiled, []) == frozenset()
    running.stop()
    assert world.ends.get(timeout=20).error is None


def test_warming_up_starts_nothing(world: World) -> None:
    """This holds with and without a topic, and a pipeline then starts as usual."""
    world.engine.warm_up(None)
    assert world.ends.empty()
    running = world.engine.start(world.compiled, [0], world.ends.put)
    running.stop()
    assert world.ends.get(timeout=20).error is None
