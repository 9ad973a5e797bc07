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
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.model import TaskId
from millstream.stores.directory import StateDirectory
from millstream.stores.rocksdb import RocksDBStore

pytestmark = pytest.mark.cluster

APP = Path(__file__).parent / "table_app.py"
PARTITIONS = 2
KILLS = 50


class Writer:
    """Writes updates and deletions of few keys to a topic, without a pause, and knows what it wrote where.

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
            if number - self.written > 5_000:
                self._producer.poll(0.05)

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


def test_after_fifty_kills_the_stores_equal_the_topic_at_their_positions(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """kill -9 at random moments, half of them while the client starts and restores: nothing that was applied
    is lost, nothing is there that was not written, and the last client reaches the end."""
    random = Random(11)
    topic, application = "kills", "kills-app"
    kafka.create_topic(topic, PARTITIONS)
    directory = StateDirectory(tmp_path, application)
    writer = Writer(kafka.bootstrap_servers, topic)
    expected = [Expected(log) for log in writer.log]
    grown = 0

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, str(APP), kafka.bootstrap_servers, application, topic, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def check() -> list[int]:
        positions = []
        for partition in range(PARTITIONS):
            path = directory.global_store_path("table", partition)
            if not path.exists():
                positions.append(0)
                continue
            store = RocksDBStore("table", TaskId(0, partition), path)
            position = store.position or 0
            found = {key: stored[8:] for key, stored in store.range(None, None)}
            store.close()
            assert found == expected[partition].at(position)
            positions.append(position)
        return positions

    before = [0] * PARTITIONS
    try:
        for number in range(KILLS):
            with start() as client:
                assert client.stdout is not None
                if number % 2:
                    assert client.stdout.readline().strip() == "RUNNING"
                until = writer.written + random.randrange(1, 12_000)
                wait_until(lambda until=until: writer.written >= until or writer.failure, "it is written")
                client.send_signal(signal.SIGKILL)
            positions = check()
            grown += positions != before
            before = positions
    finally:
        writer.close()
    assert writer.failure is None
    assert grown > KILLS // 2, "the kills hit clients that had applied something"
    with start() as client:
        assert client.stdout is not None
        assert client.stdin is not None
        assert client.stdout.readline().strip() == "RUNNING"  # a global table is restored before that
        client.stdin.close()
        assert client.wait(30) == 0
    assert check() == [max(log) + 1 for log in writer.log]
