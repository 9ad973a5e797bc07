"""Kafka Streams itself, on the same machine, broker and data, to compare Millstream with."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from bench.children import Child, Failed
from bench.lab import Lab, NotMeasured
from bench.stores import Entries, as_records, range_bounds
from bench.words import produce
from millstream.errors import StreamsException
from millstream.jars import BROKER_SET, COMPILER_SET, Jar, ensure_jars
from millstream.jars.jar_cache import ensure
from millstream.java import find_java

__all__ = ["FAST", "QUICK_TO_ANSWER", "JavaReads", "JavaStreams", "java_command"]

_JARS = (
    Jar(
        "org.apache.kafka:kafka-streams:4.3.1",
        2277950,
        "bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b",
    ),
    Jar(
        "org.rocksdb:rocksdbjni:10.1.3",
        72725808,
        "e7f925287d9fe2574fb7c7a86f7facaa9b8ab602a2eed0e598bf633528121498",
    ),
)
_SOURCES = tuple(
    Path(__file__).with_name(f"{name}.java") for name in ("KafkaStreamsReads", "KafkaStreamsJobs")
)
_PATIENCE_S = 120.0
_FILLED_S = 300.0

FAST: Mapping[str, str] = {
    "topology.optimization": "all",
    "statestore.cache.max.bytes": str(256 * 2**20),
    "commit.interval.ms": "500",
    "consumer.max.poll.records": "10000",
    "consumer.fetch.min.bytes": "1",
    "producer.batch.size": str(256 * 2**10),
    "producer.linger.ms": "20",
    "producer.compression.type": "lz4",
}
"""Sensible settings for throughput: no second changelog, large caches and batches. A commit writes what the
caches hold back."""
QUICK_TO_ANSWER: Mapping[str, str] = {
    "topology.optimization": "all",
    "statestore.cache.max.bytes": "0",
    "commit.interval.ms": "1000",
    "producer.linger.ms": "0",
    "consumer.fetch.max.wait.ms": "10",
}
"""Sensible settings for latency: nothing is held back."""


def java_command(lab: Lab, heap: str) -> list[str]:
    """Java with Kafka Streams and the compiled programs on its class path; a class and its arguments follow.

    Raises:
        NotMeasured: the jars are not available, or the programs do not compile.
    """
    try:
        jars = (*ensure_jars(BROKER_SET), *ensure(_JARS, "Kafka Streams"))
        (compiler,) = ensure_jars(COMPILER_SET)
        java = find_java().java
    except StreamsException as error:
        raise NotMeasured(str(error)) from error
    classes = lab.directory / "kafka-streams-classes"
    if not classes.exists():
        command = [
            str(java),
            "-XX:TieredStopAtLevel=1",
            "-jar",
            str(compiler),
            "-17",
            "-nowarn",
            "-proc:none",
        ]
        command += ["-cp", os.pathsep.join(map(str, jars)), "-d", str(classes), *map(str, _SOURCES)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        if done.returncode:
            raise NotMeasured(f"the programs of Kafka Streams do not compile: {done.stderr.strip()[-500:]}")
    path = os.pathsep.join(map(str, (*jars, classes)))
    return [str(java), f"-Xmx{heap}", "-XX:+UseG1GC", "-cp", path]


class JavaReads:
    """A Java process with the same entries in a Kafka Streams table, which it reads on request.

    Raises:
        NotMeasured: its jars are not available, or it failed.
    """

    def __init__(self, lab: Lab, data: Entries, keys: Sequence[str], partitions: int) -> None:
        self._entries = len(data)
        topic = lab.topic("table", partitions)
        produce(lab.bootstrap_servers, topic, as_records(data))
        directory = lab.path("kafka-streams")
        directory.mkdir(parents=True)
        (directory / "keys").write_text("\n".join(keys))
        arguments = [lab.bootstrap_servers, topic, directory / "state", directory / "keys", len(data)]
        command = [*java_command(lab, "1g"), "KafkaStreamsReads", *arguments]
        self._child = Child("Kafka Streams", command, directory / "log")
        self.filled_s = int(self._answer(_FILLED_S)) / 1e9

    def get(self) -> float:
        """Read each key once. Returns CPU seconds."""
        return self._ask("get")

    def scan(self) -> float:
        """Entries per second of a whole scan: the best of three."""
        return self._entries / min(self._ask("scan") for _ in range(3))

    def ranges(self) -> float:
        """Entries per second of ranges of a thousand: the best of three."""
        return 1000 * len(range_bounds(self._entries)) / min(self._ask("ranges") for _ in range(3))

    def _ask(self, what: str) -> float:
        self._child.say(what)
        return int(self._answer(_PATIENCE_S)) / 1e9

    def _answer(self, timeout_s: float) -> str:
        try:
            return self._child.answer(timeout_s)
        except Failed as error:
            self._child.kill()
            raise NotMeasured(str(error)) from error

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def __enter__(self) -> JavaReads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JavaStreams:
    """A Java process with Kafka Streams, which runs one job after the other and is warm after the first.

    Raises:
        NotMeasured: its jars are not available.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        directory = lab.path("kafka-streams")
        self.child = Child("Kafka Streams", [*java_command(lab, "2g"), "KafkaStreamsJobs"], directory / "log")
        self.process = psutil.Process(self.child.pid)

    def start(self, application: str, settings: Mapping[str, str], *job: str) -> float:
        """Start a job, given as its kind and topics, on as many threads as there are cores.

        Returns:
            when it was RUNNING, in seconds since the epoch
        """
        options = {
            "application.id": application,
            "bootstrap.servers": self._lab.bootstrap_servers,
            "state.dir": self._lab.path("state"),
            "auto.offset.reset": "earliest",
            "num.stream.threads": os.cpu_count(),
            **settings,
        }
        return self.ask("start", *job, *(f"{name}={value}" for name, value in options.items())) / 1000

    def first_record(self) -> float:
        """When it read the first record, in seconds since the epoch; 0 if it has not yet."""
        return self.ask("first") / 1000

    def ask(self, *words: object) -> int:
        """Its answer to a line.

        Raises:
            Failed: it has ended, or does not answer.
        """
        self.child.say(" ".join(map(str, words)))
        return int(self.child.answer(_PATIENCE_S))

    def close(self) -> None:
        """End the process."""
        self.child.close()

    def __enter__(self) -> JavaStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
