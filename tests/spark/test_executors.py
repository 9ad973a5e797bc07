"""The loss of executors: which ones count, and that a real one is told of while the query goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

import pytest

from millstream.broker import EmbeddedKafka
from millstream.spark.jvm.executors import Absence, Executor, is_cluster, losses

_WORLD = textwrap.dedent(
    """
    import logging, os, sys, time
    from pathlib import Path
    import psutil
    from confluent_kafka import TopicPartition as NativePartition
    from engine_world import EngineWorld
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType
    from millstream import Consumed, ExecutorLostException, Materialized, Serdes, StreamsBuilder
    from millstream.model import TopicPartition
    from millstream.spark.compile.record_handlers import RecordHandlers
    from millstream.spark.run.task_run import is_up_to_date
    from spark_start import WITHOUT_CODE, java_options
    from waiting import wait_until

    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")

    class Kafka:
        bootstrap_servers = sys.argv[1]
        def create_topic(self, *_): pass
        def topics(self): return ()

    def world_on(cores, failures, **more):
        settings = {
            "spark.master": f"local-cluster[2,{cores},512]",
            "spark.executor.memory": "512m",
            "spark.task.maxFailures": str(failures),
            "spark.driver.extraJavaOptions": java_options(),
            "spark.executor.extraJavaOptions": java_options(),
            **WITHOUT_CODE,
        }
        return EngineWorld(Kafka(), Path(sys.argv[2]), None, **more, **settings)

    def executors():
        children = [each for each in psutil.Process().children(True) if each.status() != psutil.STATUS_ZOMBIE]
        return [each for each in children if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]

    strings = Consumed.with_(Serdes.string(), Serdes.string())
    builder = StreamsBuilder()
    """
)
_KILLED = textwrap.dedent(
    """
    def deadly(value):
        if value == "bad":
            executor = next(each for each in psutil.Process().parents() if "java" in each.name())
            executor.kill()
        return value

    def idle(executor):
        return not executor.children()  # it has no Python workers

    world = world_on(1, 1)
    lines = builder.stream("lost-in", strings)
    lines.map_values(lambda value: F.udf(deadly, StringType())(value)).to("lost-out")
    counts = Materialized.as_("counts").with_value_serde(Serdes.long())
    counted = lines.group_by_key().aggregate(lambda: 0, lambda key, value, count: count + 1, counts)
    counted.to_stream().to("lost-counts")
    [compiled] = world.compiled(builder.build())
    running = world.start(compiled)
    world.produce("lost-in", "a")
    world.read("lost-out", 1, 100)
    world.wait_until_committed("lost-in", 1)
    assert running.metadata().lost_executors == ()

    # The only task runs all the time.
    next(each for each in executors() if idle(each)).kill()
    (lost,) = wait_until(lambda: running.metadata().lost_executors, "the loss is seen", 60)
    assert world.ends.empty(), world.ends.get()
    print("lost", lost)
    world.produce("lost-in", "b", "c")
    world.read("lost-out", 3, 100)
    written = 2  # the executor that is left has its own Python worker, and the state
    while int.from_bytes(world.read("lost-counts", written, 100)[-1].value()) < 3:
        written += 1
    world.produce("lost-in", "bad")
    error = world.wait_for_end(100)
    assert isinstance(error, ExecutorLostException), repr(error)
    assert "executors of the Spark cluster were lost, and a task with them" in str(error), error
    world.close()
    """
)
_ASKED = textwrap.dedent(
    """
    handlers = RecordHandlers(deserialization=True)
    world = world_on(3, 4, transaction_timeout_ms=10_000, handlers=handlers)
    towns = builder.global_table("asked-towns", strings)
    joined = builder.stream("asked-in", Consumed.with_(Serdes.long(), Serdes.string())).join(
        towns, lambda value: value, lambda value, town: F.concat_ws("+", value, town)
    )
    joined.to("asked-out")
    joined.group_by_key().count(Materialized.as_("counts"))
    [compiled] = world.compiled(builder.build())
    reports = []

    def start():
        return world.engine.start(compiled, range(100), world.ends.put, reports.append)

    def written():
        return sum(each.written["asked-out"].records for each in reports if "asked-out" in each.written)

    def dropped():
        return sum(count for each in reports for count in each.dropped.values())

    at = TopicPartition("asked-in", 0)
    world.produce("asked-towns", "Rome", key="a")
    running = start()
    world.produce("asked-in", *["a"] * 9, key="a number")
    world.produce("asked-in", "a", key="no number")
    assert {each.value() for each in world.read("asked-out", 9, 100)} == {b"a+Rome"}
    wait_until(lambda: running.metadata().records == 10, "it is told what they have read")
    nothing = {TopicPartition("asked-in", partition): 0 for partition in (0, 1)}
    wait_until(lambda: running.metadata().lag == nothing, "and what is left")
    assert running.metadata().position[at] == 10
    wait_until(lambda: written() == 9 and dropped() == 1, "and what was written and dropped")

    world.produce("asked-towns", "Paris", key="a")
    assert is_up_to_date(world.engine.spark, "asked-towns", 60_000)
    world.produce("asked-in", "a", key="a number")
    assert world.read("asked-out", 10)[-1].value() == b"a+Paris"

    for each in executors():
        each.kill()
    world.produce("asked-in", *["a"] * 5, key="a number")
    world.read("asked-out", 15, 100)
    wait_until(lambda: len(running.metadata().lost_executors) == 2, "both losses are seen", 60)

    world.produce("asked-in", *["a"] * 1000, key="a number")
    wait_until(lambda: running.metadata().position[at] > 16, "more is read", 60)
    read = running.metadata().position[at]
    running.stop()
    assert world.ends.get(timeout=60).error is None
    world.wait_until_committed("asked-in", read)

    running = start()
    wait_until(lambda: running.metadata().position.get(at) == 1016, "the next one goes on", 100)
    world.wait_until_committed("asked-in", 1016)
    counts = [each.value() for each in world.read("engine-1-counts-changelog", 3)]
    while int.from_bytes(counts[-1]) < 1015:
        counts = [each.value() for each in world.read("engine-1-counts-changelog", len(counts) + 1)]
    assert int.from_bytes(counts[-1]) == 1015
    assert world.ends.empty(), world.ends.get()
    world.close()
    """
)


def test_what_spark_let_go_itself_is_no_loss_and_each_loss_counts_once() -> None:
    """Executors that were idle, or whose machine is wanted, go on purpose."""
    known: set[str] = set()
    here, crashed = Executor("0", "a:1"), Executor("1", "b:2", "Command exited with code 137")
    idle = Executor("2", "c:3", "Executor killed by driver.")
    wanted = Executor("3", "d:4", "Executor decommission: spot instance")
    assert losses([here, crashed, idle, wanted], known) == [crashed]
    assert losses([here, crashed, idle, wanted], known) == []
    unexplained = Executor("0", "a:1", "")
    assert losses([unexplained], known) == [unexplained]
    assert (str(crashed), str(unexplained)) == (
        "1 on b:2: Command exited with code 137",
        "0 on a:1: no reason given",
    )


def test_that_there_is_no_executor_is_told_each_minute() -> None:
    """And not while there is one, however long there was none before."""
    absence = Absence()
    seen = [(False, 0), (False, 59), (True, 61), (False, 70), (False, 129), (False, 130), (False, 140)]
    assert [now for some, now in [*seen, (False, 190)] if absence.is_report_due(some, now)] == [130, 190]


@pytest.mark.parametrize(
    ("master", "cluster"),
    [
        ("local", False),
        ("local[*]", False),
        ("local-cluster[2,1,512]", True),
        ("spark://a:1", True),
        ("yarn", True),
    ],
)
def test_a_local_spark_has_no_executors_to_lose(master: str, cluster: bool) -> None:
    """By the name of its master."""
    assert is_cluster(master) is cluster


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_an_executor_that_is_killed_is_told_of_and_the_query_goes_on(tmp_path: Path) -> None:
    """On a cluster of two executors on this machine: a warning, the pipeline's metadata, and no failure. It
    is one when Spark gives up on a task that is lost with its executor."""
    topics = {"lost-in": 1, "lost-out": 1, "lost-counts": 1, "engine-1-counts-changelog": 1}
    result = _run(_KILLED, tmp_path / "state", topics)
    assert "lost 0 on " in result.stdout or "lost 1 on " in result.stdout
    assert "Command exited with code 137" in result.stdout
    assert "millstream.spark.jvm.executors Spark has lost executor " in result.stderr


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_tasks_in_executors_answer_and_obey_the_driver() -> None:
    """It knows what they have read, written and dropped; they look up rows that it has refreshed; executors
    that are lost change no count, although their state was in directories of theirs, because they cannot
    have the client's; and what was read when it stops is committed, for the next run."""
    topics = {"asked-in": 2, "asked-out": 1, "asked-towns": 1, "engine-1-counts-changelog": 2}
    _run(_ASKED, Path("/proc/nowhere"), topics)


def _run(program: str, directory: Path, topics: Mapping[str, int]) -> subprocess.CompletedProcess[str]:
    """Each has a broker of its own, because their applications have the same name."""
    tests = Path(__file__).resolve().parent
    with EmbeddedKafka() as kafka:
        for topic, partitions in topics.items():
            kafka.create_topic(topic, partitions)
        result = subprocess.run(
            [sys.executable, "-c", _WORLD + program, kafka.bootstrap_servers, str(directory)],
            capture_output=True,
            text=True,
            timeout=280,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent), str(tests.parent.parent)]),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_TESTING": "true",  # workers then have temporary directories, and none beside PySpark
            },
        )
    assert result.returncode == 0, result.stderr[-4000:]
    return result
