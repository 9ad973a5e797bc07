"""A client that is killed again and again in the middle of heavy writes: its stores are whole every time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaError, Message, Producer
from tiers import examples
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.model import TaskId
from millstream.stores.directory import StateDirectory
from millstream.stores.rocksdb_store import RocksDBStore

pytestmark = pytest.mark.cluster

APP = Path(__file__).parent / "table_app.py"
PARTITIONS = 2
KILLS = examples(40)


class Writer:
    """Writes updates and deletions of few keys to a topic all the time, and knows what it wrote where.

    Attributes:
        log: for each partition, key and value of each offset.
    """

    def __init__(self, servers: str, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": servers, "linger.ms": 2, "enable.idempotence": True, "acks": "all"}
        )
        self._topic = topic
        self._random = Random(3)
        self._ended = threading.Event()
        self.written = 0
        self.failure: str | None = None
        self.log: list[dict[int, tuple[bytes, bytes | None]]] = [{} for _ in range(PARTITIONS)]
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            key = b"key-%d" % self._random.randrange(2000)
            value = None if self._random.random() < 0.1 else b"value-%d" % number
            partition = number % PARTITIONS
            number += 1
            try:
                self._producer.produce(
                    self._topic, value, key, partition=partition, on_delivery=self._delivered
                )
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
            if number % 200 == 0:
                self._ended.wait(0.04)  # some thousands a second; the client needs the processor as well

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = str(error)
            return
        partition, offset, key = message.partition(), message.offset(), message.key()
        assert partition is not None
        assert offset is not None
        assert isinstance(key, bytes)
        value = message.value()
        self.log[partition][offset] = (key, None if value is None else bytes(value))
        self.written += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join(30)
        assert self._producer.flush(30) == 0


class Expected:
    """What a store of one partition holds, as its position grows."""

    def __init__(self, log: dict[int, tuple[bytes, bytes | None]]) -> None:
        self._log = log
        self._position = 0
        self._content: dict[bytes, bytes] = {}

    def at(self, position: int) -> dict[bytes, bytes]:
        assert position >= self._position, "what was applied is gone"
        wait_until(lambda: position == 0 or position - 1 in self._log, "the writer knows what it wrote")
        for offset in range(self._position, position):
            key, value = self._log[offset]
            if value is None:
                self._content.pop(key, None)
            else:
                self._content[key] = value
        self._position = position
        return self._content


class Table:
    """A topic that is written all the time, and a client that keeps it as a table in its stores."""

    def __init__(self, kafka: EmbeddedKafka, name: str, directory: Path) -> None:
        kafka.create_topic(name, PARTITIONS)
        self._arguments = (kafka.bootstrap_servers, f"{name}-app", name, str(directory))
        self.state = StateDirectory(directory, f"{name}-app")
        self.log = directory / "client.log"
        self.writer = Writer(kafka.bootstrap_servers, name)
        self._expected = [Expected(log) for log in self.writer.log]

    def start(self) -> subprocess.Popen[str]:
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, str(APP), *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def run_once(self) -> None:
        """A client that starts, which restores the table, and closes."""
        with self.start() as client:
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline().strip() == "RUNNING", self.log.read_text()[-3000:]
            client.stdin.close()
            assert client.wait(30) == 0

    def path(self, partition: int) -> Path:
        return self.state.global_store_path("table", partition)

    def positions(self) -> list[int]:
        """The positions of the stores, which have what the topic has up to there."""
        return [self._position(partition) if self.path(partition).exists() else 0 for partition in range(2)]

    def _position(self, partition: int) -> int:
        store = RocksDBStore("table", TaskId(0, partition), self.path(partition))
        position = store.position or 0
        found = {key: stored[8:] for key, stored in store.range(None, None)}
        store.close()
        assert found == self._expected[partition].at(position)
        return position


@pytest.mark.timeout(400)
def test_after_many_kills_the_stores_equal_the_topic_at_their_positions(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """kill -9 at random moments, half of them while the client starts and restores: nothing that was applied
    is lost, nothing is there that was not written, and the last client reaches the end."""
    random = Random(11)
    table = Table(kafka, "kills", tmp_path)
    writer = table.writer
    before, grown = [0] * PARTITIONS, 0
    starting = 6_000  # what is written while a client starts, on this machine
    try:
        for number in range(KILLS):
            with table.start() as client:
                assert client.stdout is not None
                began = writer.written
                span = starting * 3 // 2
                if number % 2:
                    assert client.stdout.readline().strip() == "RUNNING"
                    starting = writer.written - began
                    span = starting // 2
                until = writer.written + random.randrange(1, span)
                wait_until(lambda until=until: writer.written >= until or writer.failure, "it is written")
                client.send_signal(signal.SIGKILL)
            positions = table.positions()
            grown += positions != before
            before = positions
    finally:
        writer.close()
    assert writer.failure is None
    assert grown >= KILLS // 2, "the kills hit clients that had applied something"
    table.run_once()
    assert table.positions() == [max(log) + 1 for log in writer.log]


def _harm(file: Path, damage: str) -> None:
    match damage:
        case "cut":
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        case "overwritten":
            file.write_bytes(b"\xa5" * file.stat().st_size)
        case _:
            file.unlink()


def test_a_store_that_is_damaged_on_disk_is_restored_by_the_next_client(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Files that are cut off, overwritten or gone: it is noticed, told, deleted and restored, and no more."""
    table = Table(kafka, "damage", tmp_path)
    wait_until(lambda: table.writer.written > 10_000 or table.writer.failure, "it is written")
    table.writer.close()
    table.run_once()
    ends = [max(log) + 1 for log in table.writer.log]
    assert table.positions() == ends
    for damage in ("cut", "overwritten", "deleted"):
        untouched = {path: path.stat().st_mtime_ns for path in table.path(1).glob("*.sst")}
        harmed = [path for kind in ("*.sst", "MANIFEST-*") for path in table.path(0).glob(kind)]
        assert harmed, damage
        for path in harmed:
            _harm(path, damage)
        told = table.log.read_text().count("is damaged")
        table.run_once()
        assert table.log.read_text().count("is damaged") > told, damage
        assert table.positions() == ends, damage
        assert all(path.stat().st_mtime_ns == at for path, at in untouched.items()), (
            f"{damage}: the other store is as it was"
        )
