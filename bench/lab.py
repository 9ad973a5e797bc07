"""Where benchmarks run: one broker, one Spark, one Python process, shared by everything that is compared."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import SparkContext
from pyspark import __version__ as spark_version
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bench.children import end_all
from bench.words import QUIET
from millstream.broker import EmbeddedKafka
from millstream.jars import BROKER_SET
from millstream.java import find_java
from millstream.spark.jvm.session import SharedSession, with_settings
from millstream.spark.jvm.spark_settings import SQL_DEFAULTS

__all__ = [
    "Lab",
    "NotMeasured",
    "OutOfTimeError",
    "cpu_seconds",
    "first_begun",
    "machine_facts",
    "stop",
]


class NotMeasured(Exception):
    """A contestant cannot run here; the message says why."""


class OutOfTimeError(Exception):
    """A part of the benchmark took much longer than allowed; raised wherever the main thread is."""


class Lab:
    """The broker and the Spark session that the benchmarks of one run share; each starts when needed."""

    def __init__(self, patience: float = 1.0) -> None:
        """
        Args:
            patience: how many times as long as usual a contestant may take, for a busy machine.
        """
        self.patience = patience
        self._held = ExitStack()
        self._numbers = count(1)
        self._kafka: EmbeddedKafka | None = None
        self._session: SharedSession | None = None
        self.directory = Path(tempfile.mkdtemp(prefix="millstream-bench-"))
        self._held.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._held.callback(end_all)

    @property
    def kafka(self) -> EmbeddedKafka:
        if self._kafka is None:
            self._kafka = self._held.enter_context(EmbeddedKafka(heap_mb=768))
        return self._kafka

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, **QUIET})

    @property
    def bootstrap_servers(self) -> str:
        return self.kafka.bootstrap_servers

    def session(self, *, tuned: bool, settings: Mapping[str, str] | None = None) -> SparkSession:
        """A session in the one JVM, with the settings that Millstream gives its own or with Spark's defaults.

        Clients that start in the meantime join the same JVM, as several clients of one process do.
        """
        if self._session is None:
            self._session = SharedSession({}, "millstream-bench")
            self._held.callback(self._session.close)
        defaults = SQL_DEFAULTS if tuned else {}
        return with_settings(self._session.spark, {**defaults, **(settings or {})})

    def name(self, kind: str) -> str:
        """A name that nothing else in this run has."""
        return f"{kind}-{next(self._numbers)}"

    def topic(self, kind: str, partitions: int, configs: Mapping[str, str] | None = None) -> str:
        """A fresh topic."""
        name = self.name(kind)
        self.kafka.create_topic(name, partitions, configs)
        return name

    def committed(self, group: str, topic: str, partitions: int) -> int:
        """How many records of a topic a group has committed."""
        places = [TopicPartition(topic, number) for number in range(partitions)]
        asked = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        found = next(iter(asked.values())).result(10).topic_partitions
        return sum(max(0, place.offset) for place in found)

    def path(self, kind: str) -> Path:
        """The path of a fresh directory, which is not created."""
        return self.directory / self.name(kind)

    @contextmanager
    def cpu(self) -> Iterator[dict[str, float]]:
        """At the end, holds the CPU seconds that Python, Spark's JVM and the broker used in the block."""
        processes = {"python": psutil.Process(), "broker": psutil.Process(self.kafka.pid)}
        gateway = SparkContext._gateway
        if gateway is not None:
            processes["spark"] = psutil.Process(gateway.proc.pid)
        before = {name: cpu_seconds(process) for name, process in processes.items()}
        used: dict[str, float] = {}
        yield used
        used.update({name: cpu_seconds(process) - before[name] for name, process in processes.items()})

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()


def cpu_seconds(process: psutil.Process) -> float:
    """The CPU time that a process has used so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def first_begun(checkpoint: Path) -> float:
    """When the first micro-batch of a hand-written query began, in seconds since the epoch."""
    offsets = (checkpoint / "offsets" / "0").read_text().splitlines()
    begun: float = json.loads(offsets[1])["batchTimestampMs"] / 1000
    return begun


def stop(query: StreamingQuery) -> None:
    """Stop a hand-written query. If an error had ended it, that is raised."""
    error = query.exception()
    query.stop()
    if error is not None:
        raise error


def machine_facts() -> dict[str, Any]:
    """What the figures depend on besides the code, for example cores and versions."""
    java = find_java()
    memory = psutil.virtual_memory()
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory.total / 2**30, 1),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "java": f"{java.version} ({java.source})",
        "spark": spark_version,
        "kafka": BROKER_SET.removeprefix("kafka-broker-"),
        "commit": _commit(),
        "at": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return "unknown"
    done = subprocess.run(
        [git, "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=10, check=False
    )
    return done.stdout.strip() or "unknown"
