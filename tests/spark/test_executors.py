"""The loss of executors: which ones count, and that a real one is told of while the query goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from millstream.broker import EmbeddedKafka
from millstream.spark.jvm.executors import Absence, Executor, is_cluster, losses

_PROGRAM = textwrap.dedent(
    """
    import logging, os, sys, time
    from pathlib import Path
    import psutil
    from engine_world import EngineWorld
    from pyspark.sql import functions as F
    from pyspark.sql.types import StringType
    from millstream import Consumed, ExecutorLostException, Materialized, Serdes, StreamsBuilder
    from spark_start import WITHOUT_CODE, java_options
    from waiting import wait_until

    logging.basicConfig(level=logging.WARNING, format="%(name)s %(message)s")

    class Kafka:
        bootstrap_servers = sys.argv[1]
        def create_topic(self, *_): pass
        def topics(self): return ()

    def deadly(value):
        if value == "bad":
            executor = next(each for each in psutil.Process().parents() if "java" in each.name())
            executor.kill()
        return value

    settings = {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "1",
        "spark.driver.extraJavaOptions": java_options(),
        "spark.executor.extraJavaOptions": java_options(),
        **WITHOUT_CODE,
    }
    world = EngineWorld(Kafka(), Path(sys.argv[2]), None, **settings)
    builder = StreamsBuilder()
    lines = builder.stream("lost-in", Consumed.with_(Serdes.string(), Serdes.string()))
    lines.map_values(lambda value: F.udf(deadly, StringType())(value)).to("lost-out")
    counts = Materialized.as_("counts").with_value_serde(Serdes.long())
    counted = lines.group_by_key().aggregate(lambda: 0, lambda key, value, count: count + 1, counts)
    counted.to_stream().to("lost-counts")
    [compiled] = world.compiled(builder.build())
    running = world.start(compiled)
    world.produce("lost-in", "a")
    world.read("lost-out", 1, 100)
    world.wait_until_committed(world.claim(), "lost-in", 1)
    assert running.metadata().lost_executors == ()

    world.engine.check_reach(sys.argv[2])
    began = time.monotonic()
    world.engine.check_reach(sys.argv[2])
    assert time.monotonic() - began < 1, "all have looked, and still it waits for others to start"

    def executors():
        children = [each for each in psutil.Process().children(True) if each.status() != psutil.STATUS_ZOMBIE]
        return [each for each in children if "CoarseGrainedExecutorBackend" in " ".join(each.cmdline())]

    executors()[0].kill()
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
def test_an_executor_that_is_killed_is_told_of_and_the_query_goes_on(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """On a cluster of two executors on this machine: a warning, the pipeline's metadata, and no failure. It
    is one when Spark gives up on a task that is lost with its executor, here at once. Before that each looks
    once whether it has the directory of the checkpoints, however many pipelines ask."""
    kafka.create_topic("lost-in", 2)
    kafka.create_topic("lost-out", 1)
    kafka.create_topic("lost-counts", 1)
    kafka.create_topic("engine-1-counts-changelog", 1)
    tests = Path(__file__).resolve().parent
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, kafka.bootstrap_servers, str(tmp_path / "checkpoints")],
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
    assert "lost 0 on " in result.stdout or "lost 1 on " in result.stdout
    assert "Command exited with code 137" in result.stdout
    assert "millstream.spark.jvm.executors Spark has lost executor " in result.stderr
