"""A client that is closed while its Spark starts: real Spark, a real broker, and a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from cluster_world import Cluster
from spark_start import java_options

pytestmark = pytest.mark.cluster

_PROGRAM = textwrap.dedent(
    """
    import json, logging, sys, time
    from contextlib import suppress
    from datetime import timedelta
    import psutil
    from millstream import KafkaStreams, StreamsBuilder
    from millstream.polling import looks

    logging.basicConfig(level=logging.INFO)
    servers, topic, directory, moment, java = sys.argv[1:]
    builder = StreamsBuilder()
    builder.stream(topic).group_by_key().count().to_stream().to(topic + "-out")
    asked = []
    streams = KafkaStreams(
        builder.build(),
        {
            "application.id": topic,
            "bootstrap.servers": servers,
            "state.dir": directory,
            "spark.driver.extraJavaOptions": java,
        },
    )
    streams.set_uncaught_exception_handler(lambda error: asked.append(repr(error)))
    states = []
    streams.set_state_listener(lambda new, old: states.append(new.name))
    streams.start()

    def java():
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "java" in child.name():
                    return True
        return False

    def context():
        spark = getattr(sys.modules.get("pyspark"), "SparkContext", None)
        return spark is not None and spark._gateway is not None

    come = {"the JVM starts": java, "the context starts": context}[moment]
    came = any(come() for _ in looks(90, every_s=0.005))
    begun = time.monotonic()
    closed = streams.close(timedelta(seconds=30))
    print(json.dumps({
        "came": came,
        "closed": closed,
        "seconds": time.monotonic() - begun,
        "states": states,
        "asked": asked,
    }))
    """
)


@pytest.mark.parametrize("moment", ["the JVM starts", "the context starts"])
def test_closing_does_not_wait_for_spark(moment: str, cluster: Cluster, tmp_path: Path) -> None:
    """Closed in a few seconds, as NOT_RUNNING; nothing has run; and when the program ends, so has the JVM."""
    topic = cluster.topic("closing")
    cluster.kafka.create_topic(f"{topic}-out", 1)
    cluster.topic("closing-out")
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, cluster.servers, topic, str(tmp_path), moment, java_options()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    line = program.stdout.readline()
    family = psutil.Process(program.pid).children(recursive=True) if program.poll() is None else []
    _, told = program.communicate(timeout=120)
    assert program.returncode == 0, told[-3000:]
    report = json.loads(line)
    assert report["came"]
    assert report["closed"]
    assert report["states"] == ["REBALANCING", "PENDING_SHUTDOWN", "NOT_RUNNING"]
    assert report["asked"] == []
    assert "State transition from REBALANCING to PENDING_SHUTDOWN" in told
    assert report["seconds"] < 15, report  # far less than the wait for Spark that it must not be
    assert psutil.wait_procs(family, timeout=20)[1] == []
