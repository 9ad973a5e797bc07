"""A client whose Spark is a standalone cluster: a master, and workers that have nothing of ours."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster_world import is_alive
from confluent_kafka import Producer
from single import App
from spark_start import WITHOUT_CODE, java_options
from waiting import wait_until

from bench.standalone import Standalone, standalone
from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(480)]

LENGTHS = """
def lower(line):
    return line.lower()

def added(key, word, total):
    return total + len(word)
"""
BACKLOG = 20_000
"""How many lines are still being counted when a worker is killed."""
WORDS = ["alpha", "beta", "gamma", "delta", "be"]


def bare_python(directory: Path) -> Path:
    """A Python that has what is installed here, but for Millstream, which is here by way of a `.pth` file."""
    python = directory / "bare-python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH=$PYTHONPATH:{packages} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)

    def importing(name: str) -> bytes:
        command = [python, "-c", f"import {name}"]
        return subprocess.run(command, env={}, cwd=directory, capture_output=True, check=False).stderr

    assert importing("pyarrow") == b""
    assert b"No module named 'millstream'" in importing("millstream")
    return python


def executor_of(worker: int) -> psutil.Process | None:
    """The executor of a worker."""
    for each in psutil.Process(worker).children(recursive=True):
        if is_alive(each) and "CoarseGrainedExecutorBackend" in " ".join(each.cmdline()):
            return each
    return None


def both(cluster: Standalone) -> list[psutil.Process]:
    """The executors, when each worker has one."""
    executors = [executor_of(worker) for worker in cluster.workers]
    return [each for each in executors if each is not None] if all(executors) else []


class Counting:
    """standalone_app.py on a cluster, and what it is to have counted."""

    def __init__(
        self, kafka: EmbeddedKafka, directory: Path, cluster: Standalone, python: Path, application_id: str
    ) -> None:
        self._topic = f"{application_id}-lines"
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
        self._expected: Counter[str] = Counter()
        self._directory = directory
        (directory / "lengths.py").write_text(LENGTHS)
        settings = {
            **cluster.settings,
            **WITHOUT_CODE,
            "spark.driver.extraJavaOptions": java_options(),
            "spark.pyspark.python": str(python),
            "spark.submit.pyFiles": str(directory / "lengths.py"),
        }
        kafka.create_topic(self._topic, 2)
        self.app = App(
            *(kafka.bootstrap_servers, application_id, self._topic, str(directory / "state")),
            json.dumps(settings),
            log=directory / "app.log",
            program="standalone_app.py",
        )

    def produce(self, lines: int) -> None:
        for number in range(lines):
            words = [WORDS[number % len(WORDS)], "each"]
            self._expected.update(words)
            self._producer.produce(self._topic, " ".join(words).upper(), key=str(number))
            self._producer.poll(0)
        assert self._producer.flush(30) == 0

    def ask(self) -> dict[str, Any]:
        assert self.app.process.stdin is not None
        self.app.process.stdin.write("\n")
        self.app.process.stdin.flush()
        return dict(json.loads(self.app.next_line()))

    def counted(self) -> int:
        return sum(self.ask()["counts"].values())

    @property
    def total(self) -> int:
        return self._expected.total()

    def is_exact(self) -> bool:
        said = self.ask()
        lengths = {word: count * len(word) for word, count in self._expected.items()}
        return said["counts"] == self._expected and said["lengths"] == lengths

    def close(self) -> None:
        assert self.app.process.stdin is not None
        self.app.process.stdin.close()
        try:
            assert self.app.process.wait(60) == 0
        finally:
            self.app.process.kill()


def test_counts_on_a_cluster_are_exact_though_a_worker_is_killed(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors get kernel, connector and package from the client, and share no directory. A worker is killed
    in the middle of a backlog: that is told in health and log, and the client goes on."""
    monkeypatch.syspath_prepend(tmp_path)  # where the client finds `lengths`
    python = bare_python(tmp_path)
    options = java_options().split()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    # Six tasks run all the time, and one slot stays free, also when a worker is lost.
    with standalone(
        tmp_path / "cluster", 2, cores=7, memory_mb=512, java_options=options, environment=environment
    ) as cluster:
        counting = Counting(kafka, tmp_path, cluster, python, "standalone")
        try:
            assert counting.app.next_line(180) == "RUNNING"
            counting.produce(50)
            wait_until(counting.is_exact, "what is there is counted", 60)
            wait_until(partial(both, cluster), "both workers have an executor", 30)
            assert counting.ask()["health"]["details"]["lost_executors"] == []

            before = counting.counted()
            counting.produce(BACKLOG)
            wait_until(lambda: counting.counted() > before, "it counts the backlog", 60)
            os.kill(cluster.workers[0], signal.SIGKILL)
            wait_until(lambda: counting.ask()["health"]["details"]["lost_executors"], "it is told", 60)
            assert counting.counted() < counting.total, "all was counted before the worker was killed"
            wait_until(counting.is_exact, "all is counted", 100)
            health = counting.ask()["health"]
            assert health["ready"], health
            assert "Spark has lost 1 executor in the last ten minutes" in health["reason"]
            assert "Spark has lost executor" in (tmp_path / "app.log").read_text()
        finally:
            counting.close()
