"""Kafka Streams itself, on the same machine, broker and data: what Millstream is compared with."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import psutil

from bench.lab import Lab, NotMeasured, end_with_its_input
from bench.stores import Entries, as_records
from bench.words import produce
from millstream.errors import StreamsException
from millstream.jars import BROKER_SET, Jar, ensure_jars
from millstream.jars.cache import ensure
from millstream.java import find_java

__all__ = ["JavaReads", "JavaStreams"]

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
_DEADLINE_S = 600.0
_READS = Path(__file__).with_name("KafkaStreamsReads.java")
_JOBS = Path(__file__).with_name("KafkaStreamsJobs.java")


def _java_command(heap: str) -> list[str]:
    """Java with Kafka Streams on its class path; a source file and its arguments are to follow.

    Raises:
        NotMeasured: its jars cannot be had.
    """
    try:
        jars = (*ensure_jars(BROKER_SET), *ensure(_JARS, "Kafka Streams"))
        java = find_java()
    except StreamsException as error:
        raise NotMeasured(str(error)) from error
    return [str(java.java), f"-Xmx{heap}", "-cp", ":".join(map(str, jars))]


class JavaReads:
    """A Java process with the same entries in a Kafka Streams table, which reads them when it is told to.

    Raises:
        NotMeasured: its jars cannot be had, Java has no compiler, or it failed.
    """

    def __init__(self, lab: Lab, data: Entries, keys: Sequence[str]) -> None:
        self._entries = len(data)
        topic = lab.topic("table", 1)
        produce(lab.bootstrap_servers, topic, as_records(data))
        directory = lab.path("kafka-streams")
        directory.mkdir(parents=True)
        (directory / "keys").write_text("\n".join(keys))
        self._log = directory / "log"
        command = _java_command("1g")
        arguments = [lab.bootstrap_servers, topic, directory / "state", directory / "keys", len(data)]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, _READS, *map(str, arguments)],
                stdin=subprocess.PIPE,  # it ends with it, so also when this process is killed
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._deadline = threading.Timer(_DEADLINE_S, self._process.kill)
        self._deadline.daemon = True
        self._deadline.start()
        self._answer()

    def get(self) -> float:
        """Read each key once; CPU seconds."""
        return self._ask("get")

    def scan(self) -> float:
        """Entries per second of a whole scan: the best of three."""
        return self._entries / min(self._ask("scan") for _ in range(3))

    def _ask(self, what: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return int(self._answer()) / 1e9

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            last = self._log.read_text().strip().splitlines()[-1:]
            raise NotMeasured(f"Kafka Streams ended: {''.join(last) or 'no reason given'}")
        return line

    def close(self) -> None:
        """End the process."""
        self._deadline.cancel()
        end_with_its_input(self._process)

    def __enter__(self) -> JavaReads:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class JavaStreams:
    """A Java process with Kafka Streams, which runs one job after the other: it is warm after the first.

    Raises:
        NotMeasured: its jars cannot be had.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        directory = lab.path("kafka-streams")
        directory.mkdir(parents=True)
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*_java_command("2g"), _JOBS],
                stdin=subprocess.PIPE,  # it ends with it, so also when this process is killed
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.process = psutil.Process(self._process.pid)

    def start(self, application: str, settings: Mapping[str, str], *job: str) -> float:
        """Start a job, with its kind and topics, on as many threads as there are cores.

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

    def ask(self, *words: object) -> int:
        """What it answers to a line.

        Raises:
            RuntimeError: it has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline().strip()
        except OSError:
            line = ""
        if not line:
            raise RuntimeError(f"Kafka Streams has ended: {self._log.read_text()[-2_000:]}")
        return int(line)

    def close(self) -> None:
        """End the process."""
        end_with_its_input(self._process)

    def __enter__(self) -> JavaStreams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
