"""A client that is killed: nothing is lost, and nothing is counted twice in its stores."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path
from random import Random

import psutil
import pytest
from confluent_kafka import Producer
from single import App
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster


def test_a_killed_client_resumes_with_exact_counts_and_leaves_no_process(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """kill -9 while records flow: Spark's JVM dies with the client, and the counts come out exact. While the
    next one runs, a second client on its state directory is told so: the lock names the process that has it,
    and what to do."""
    random = Random(20)
    words = [f"w{n}" for n in range(50)]
    expected: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 1})
    kafka.create_topic("crash-lines", 3)
    arguments = (kafka.bootstrap_servers, "crash-app", "crash-lines", str(tmp_path / "state"))

    def produce(lines: int) -> None:
        for _ in range(lines):
            chosen = random.choices(words, k=5)
            expected.update(chosen)
            producer.produce("crash-lines", " ".join(chosen).encode())
        assert producer.flush(30) == 0

    app = App(*arguments, log=tmp_path / "app.log")
    assert app.next_line() == "RUNNING"
    produce(10_000)
    wait_until(lambda: sum(app.counts().values()) > 0, "it counts")
    produce(10_000)
    children = app.children()
    assert any("java" in child.name() for child in children)
    app.process.send_signal(signal.SIGKILL)
    app.process.wait(10)
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive, f"survived its client: {alive}"

    app = App(*arguments, log=tmp_path / "app.log")
    assert app.next_line() == "RUNNING"
    second = App(*arguments, log=tmp_path / "second.log")
    assert second.process.wait(60) == 1
    said = (tmp_path / "second.log").read_text()
    assert "LockException" in said
    assert str(app.process.pid) in said
    assert "state.dir" in said
    wait_until(lambda: sum(app.counts().values()) >= sum(expected.values()), "all words are counted")
    assert app.counts() == expected
    assert app.process.stdin is not None
    app.process.stdin.close()
    assert app.process.wait(30) == 0
