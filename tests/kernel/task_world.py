"""One task of the kernel on a real broker, in a process of its own that can be killed, without Spark."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as NativePartition
from java_programs import KernelCommand
from waiting import wait_until

from millstream.broker import EmbeddedKafka

__all__ = ["NAME", "TaskProcess", "TaskWorld", "World", "kill_at_random"]

MAIN = "io.millstream.kernel.task.TaskMain"
NAME = "0_0"
"""The task: partition 0 of subtopology 0."""


class TaskProcess:
    """A process that runs the task; its lines are in a file."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("w") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    @property
    def pid(self) -> int:
        return self._process.pid

    def text(self) -> str:
        return self._log.read_text(errors="replace")

    def lines(self, first: str) -> list[str]:
        """What follows in the lines that begin with this word."""
        parted = (line.partition(" ") for line in self.text().splitlines())
        return [rest for word, _, rest in parted if word == first]

    def wait_for(self, first: str, count: int = 1, timeout_s: float = 60) -> str:
        """The rest of the line that begins with this word: the one of this number."""

        def is_there() -> bool:
            enough = len(self.lines(first)) >= count
            assert enough or self.is_running(), f"it has ended: {self.text()}"
            return enough

        wait_until(is_there, f"{first} {count}", timeout_s)
        return self.lines(first)[count - 1]

    def ended(self, timeout_s: float = 60) -> int:
        return self._process.wait(timeout_s)

    def failure(self) -> str:
        """How it failed by itself: the class of the exception, without its package, and its message."""
        assert self.ended() == 3, self.text()
        (line,) = self.lines("failed")
        name, _, message = line.partition(" ")
        return f"{name.rpartition('.')[2]}: {message}"

    def is_running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(30)


class TaskWorld:
    """A source topic, an output topic, changelogs, and a directory, which processes of the task use.

    Records have keys, and their values are 1, 2, 3 ... for each key; what counts them writes the same.
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        command: KernelCommand,
        folder: Path,
        *,
        what: str = "count",
        stores: Sequence[str] = ("counts",),
        exactly_once: bool = True,
        sources: int = 1,
        partitions: int = 1,
        changelog: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
        consumer: Mapping[str, str] | None = None,
        producer: Mapping[str, str] | None = None,
    ) -> None:
        self.kafka = kafka
        self.name = f"app-{uuid.uuid4().hex[:10]}"
        self.folder = folder / self.name
        self.folder.mkdir(parents=True)
        self.directory = self.folder / "state"
        self.points = self.folder / "points"
        self.points.mkdir()
        self.what = what
        self.sources = [f"{self.name}-in{i or ''}" for i in range(sources)]
        self.output = f"{self.name}-out"
        self.changelogs = {store: f"{self.name}-{store}-changelog" for store in stores}
        for topic in self.sources:
            kafka.create_topic(topic, 1 if topic == self.sources[-1] else partitions)
        kafka.create_topic(self.output, partitions)
        for topic in self.changelogs.values():
            kafka.create_topic(topic, partitions, changelog)
        self.sent: dict[str, int] = defaultdict(int)
        self._command = command
        self._logs = 0
        self._memory = frozenset(store for store in stores if store.startswith("memory"))
        self.plan: dict[str, object] = {
            "run": "run",
            "application": self.name,
            "subtopology": 0,
            "topics": self.sources,
            "outputs": [self.output],
            "consumer": {
                "bootstrap.servers": kafka.bootstrap_servers,
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": "500",
                **(consumer or {}),
            },
            "producer": {
                "bootstrap.servers": kafka.bootstrap_servers,
                "transaction.timeout.ms": "10000",
                "linger.ms": "5",
                **(producer or {}),
            },
            "exactly_once": exactly_once,
            "commit_ms": 20,
            "idle_ms": 0,
            "headers": False,
            "directory": str(self.directory),
            "stores": [
                {"name": store, "changelog": topic, "in_memory": store in self._memory}
                for store, topic in self.changelogs.items()
            ],
            **(settings or {}),
        }

    # --- what is sent and read ---------------------------------------------------------------------------

    def send(self, count: int, keys: int = 7, source: int = 0, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers, "linger.ms": 5})
        for i in range(count):
            key = f"k{i % keys}"
            self.sent[key] += 1
            producer.produce(self.sources[source], key=key, value=str(self.sent[key]), partition=partition)
            producer.poll(0)
        assert producer.flush(30) == 0

    def read(self, topic: str, isolation: str = "read_committed") -> list[tuple[str, str]]:
        """Keys and values of a topic up to its end."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap_servers,
                "group.id": f"{topic}-reader",
                "isolation.level": isolation,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        found: list[tuple[str, str]] = []
        try:
            consumer.assign([NativePartition(topic, 0, 0)])

            def at_the_end() -> bool:
                for message in consumer.consume(1000, 0.1):
                    if message.error() is not None:
                        return True
                    found.append(((message.key() or b"").decode(), (message.value() or b"").decode()))
                return False

            wait_until(at_the_end, f"the end of {topic}", 30)
        finally:
            consumer.close()
        return found

    # --- processes ---------------------------------------------------------------------------------------

    @contextmanager
    def process(
        self,
        *arguments: str,
        pause_us: int = 0,
        partition: int = 0,
        directory: Path | None = None,
        options: Sequence[str] = (),
        **plan: object,
    ) -> Iterator[TaskProcess]:
        """A process that runs the task until it is stopped; it does not outlive the block."""
        self._logs += 1
        file = self.folder / f"plan-{self._logs}.json"
        more = {"directory": str(directory)} if directory else {}
        file.write_text(json.dumps({**self.plan, **plan, **more}))
        options = [
            f"-Dmillstream.kernel.failpoints={self.points}",
            "-Dorg.apache.logging.log4j.level=WARN",
            *options,
        ]
        line = self._command(
            MAIN,
            str(file),
            str(partition),
            self.what,
            self.output,
            str(pause_us * 1000),
            *arguments,
            options=options,
        )
        process = TaskProcess(line, self.folder / f"log-{self._logs}.txt")
        try:
            yield process
        finally:
            if process.is_running():
                process.kill()

    def stopped_at(self, point: str, process: TaskProcess, timeout_s: float = 60) -> None:
        """Wait until the process has reached a place, where it stands still."""
        reached = self.points / f"{NAME}.{point}.reached"

        def is_there() -> bool:
            assert reached.exists() or process.is_running(), f"it has ended: {process.text()}"
            return reached.exists()

        wait_until(is_there, f"the task is at {point}", timeout_s)

    def arm(self, point: str) -> None:
        self.disarm()
        (self.points / f"{NAME}.{point}").touch()

    def disarm(self) -> None:
        for file in self.points.iterdir():
            file.unlink()

    def drained(self, directory: Path | None = None, **plan: Any) -> dict[str, dict[str, str]]:
        """Run the task to the end of its sources; the content of its stores."""
        self.disarm()
        with self.process("drain", directory=directory, **plan) as process:
            assert process.ended(120) == 0, process.text()
            return self.stores_of(process)

    def stores_of(self, process: TaskProcess) -> dict[str, dict[str, str]]:
        stores: dict[str, dict[str, str]] = {store: {} for store in self.changelogs}
        for line in process.lines("entry"):
            store, key, value = line.split(" ")
            stores[store][key] = value
        return stores

    def transaction(self) -> str:
        """The state of the task's transaction, as the broker has it."""
        file = self.folder / "plan-transaction.json"
        file.write_text(json.dumps(self.plan))
        line = self._command(MAIN, str(file), "0", "transaction", f"{self.name}-{NAME.replace('_', '-')}")
        return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    # --- the verdict -------------------------------------------------------------------------------------

    def assert_exact(self) -> None:
        """Each key's outputs are 1, 2, 3 ..., once each; the stores have the last ones, from Kafka alone."""
        kept = self.drained()
        outputs: dict[str, list[int]] = defaultdict(list)
        for key, value in self.read(self.output):
            outputs[key].append(int(value))
        wanted = {key: list(range(1, count + 1)) for key, count in self.sent.items()}
        assert outputs == wanted, self._wrong(outputs, wanted)
        self._assert_stores(kept)

    def assert_stores_exact(self) -> None:
        """Outputs may come again, but none is missing; and the stores are exact, from Kafka alone."""
        kept = self.drained()
        outputs: dict[str, list[int]] = defaultdict(list)
        for key, value in self.read(self.output):
            outputs[key].append(int(value))
        for key, count in self.sent.items():
            assert set(outputs[key]) == set(range(1, count + 1)), f"of {key}: {outputs[key]}"
            assert outputs[key][-1] == count
        self._assert_stores(kept)

    def _assert_stores(self, kept: Mapping[str, Mapping[str, str]]) -> None:
        if not self.changelogs:
            return
        wanted = {key: str(count) for key, count in self.sent.items()}
        restored = self.drained(self.folder / f"empty-{uuid.uuid4().hex[:6]}")
        for store in self.changelogs:
            assert restored[store] == wanted, f"{store}, from Kafka alone: {restored[store]}"
            assert kept[store] == wanted, f"{store}, with its directory: {kept[store]}"

    @staticmethod
    def _wrong(outputs: Mapping[str, list[int]], wanted: Mapping[str, list[int]]) -> str:
        for key, values in wanted.items():
            for i, (one, other) in enumerate(zip(values, outputs.get(key, []), strict=False)):
                if one != other:
                    return f"{key}: after {i} came {other}"
            if len(values) != len(outputs.get(key, [])):
                return f"{key}: {len(outputs.get(key, []))} outputs, not {len(values)}"
        return "other keys"

    def lose_directory(self) -> None:
        shutil.rmtree(self.directory, ignore_errors=True)

    def copy_directory(self, to: str) -> Path:
        copy = self.folder / to
        shutil.rmtree(copy, ignore_errors=True)
        if self.directory.exists():
            shutil.copytree(self.directory, copy, ignore_dangling_symlinks=True)
        return copy

    def put_back(self, copy: Path) -> None:
        self.lose_directory()
        if copy.exists():
            shutil.copytree(copy, self.directory)


World = Callable[..., TaskWorld]


def kill_at_random(world: TaskWorld, kills: int, seed: int) -> None:
    """Send records and kill the process at a random time, again and again; its directory is kept, lost, or an
    older copy of it comes back.
    """
    dice = random.Random(seed)
    old = world.copy_directory("old")
    for _ in range(kills):
        world.send(300)
        with world.process(pause_us=1000) as process:
            if dice.random() < 0.8:
                process.wait_for("opened")
                pause = dice.uniform(0, 0.5)
            else:
                pause = dice.uniform(0, 1.5)
            began = time.monotonic()
            wait_until(lambda: time.monotonic() - began > pause, "the time to kill it")  # noqa: B023
            process.kill()
        fate = dice.choice(("kept", "kept", "lost", "old", "copied"))
        if fate == "lost":
            world.lose_directory()
        elif fate == "old":
            world.put_back(old)
        elif fate == "copied":
            old = world.copy_directory("old")
