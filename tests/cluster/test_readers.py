"""Eight threads read while everything changes under them: right answers and documented exceptions only."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cluster_world import DOCUMENTED, WITHOUT_SPARK, ClientProcess, Cluster
from waiting import wait_until

pytestmark = [pytest.mark.cluster, WITHOUT_SPARK]

WORDS = [f"w{number:02d}" for number in range(60)]
SECONDS = 6


class Flow:
    """Records without a pause, until it is closed."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic = cluster, topic
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="flow", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self._cluster.produce(self._topic, WORDS)

    def close(self) -> None:
        self._ended.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.mark.timeout(400)
def test_eight_readers_while_tasks_migrate_threads_are_replaced_and_the_client_closes(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Counts, windows and sessions of it. Counts never go down, ranges are in order, and what
    is raised is a leaf of KIP-216. In the end all three stores have every record once."""
    flag = tmp_path / "poison"
    flag.touch()
    spec: dict[str, Any] = {
        "source": cluster.topic("in", 4),
        "poison": str(flag),
        "handler": "REPLACE_THREAD",
        "windows": True,
    }
    config = {"num.stream.threads": 2, "keep.spark.warm": True}
    first = cluster.start("a", config, **spec)
    second = cluster.start("b", config, **spec)
    cluster.wait_until_running()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    owner = cluster.reader()  # who meets the poison
    other = second if owner is first else first
    owner.ask("read", [*WORDS, "poison"], 8)
    flow = Flow(cluster, spec["source"])

    def settled(*clients: ClientProcess) -> None:
        cluster.wait_until_running(*clients)

    def replace() -> None:
        handled = len(owner.handled())
        flag.write_bytes(b"x")
        cluster.produce(spec["source"], ["poison"], partition=0)
        wait_until(lambda: len(owner.handled()) > handled, owner.told("the handler is asked"))
        settled(owner)

    def more_threads() -> None:
        owner.ask("add")
        settled(owner)
        owner.ask("remove")
        settled(owner)

    def migrate() -> None:
        nonlocal other
        other.ask("close")
        other.end()
        settled(owner)
        other = cluster.again(other)
        settled(owner, other)

    faults = [more_threads, migrate, replace]
    random = Random(4)
    done: list[str] = []
    begun = time.monotonic()
    while len(done) < len(faults) or time.monotonic() - begun < SECONDS:
        fault = faults[len(done)] if len(done) < len(faults) else random.choice(faults)
        fault()
        done.append(fault.__name__)
    flow.close()
    counts = cluster.wait_until_counted()
    wait_until(lambda: cluster.windowed_counts() == [counts, counts], "windows and sessions have all, once")
    closed = owner.ask("close")
    found = owner.ask("stop reading")
    print(f"\n{done}; {found}")
    assert closed
    assert found["wrong"] == []
    assert found["alive"] == []
    assert set(found["refused"]) <= DOCUMENTED
    assert found["refused"]["StateStoreNotAvailableException"] > 0, "they read on while the client closed"
    assert sum(found["reads"].values()) > 1000
