"""Exactly once: Spark's Java process is killed between any two steps of a task; a zombie wakes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import Cluster
from stopping import Running

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

STEPS = {
    "sending": "before the first record of a transaction",
    "committing": "before a commit, when its outputs are on their way",
    "logged": "after the changes of its stores, before its offsets",
    "offsets": "after its offsets, before the commit",
    "committed": "after the commit, before its stores have it",
    "opening": "when it takes over, before it has restored anything",
}
TASKS = tuple(f"{subtopology}_{partition}" for subtopology in range(3) for partition in range(2))
"""Those that stop: without state, with it, and behind a topic between the two."""


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """Clusters that are closed after the test."""
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.close()


@pytest.mark.timeout(600)
def test_each_record_counts_once_wherever_its_task_was_cut_off(
    kafka: EmbeddedKafka, tmp_path: Path, clusters: list[Cluster]
) -> None:
    """SIGKILL of the Java process whose tasks are at these steps; the same client goes on with another one,
    and readers of committed records see each record once. One application for all of the steps."""
    running = Running(kafka, tmp_path)
    clusters.append(running.cluster)
    client = running.start("a")
    running.cluster.wait_until_running()
    running.write()
    running.settle("all is there before the first kill")
    for step, when in STEPS.items():
        stops = {f"{task}.{step}": running.stopped_at(f"{task}.{step}") for task in TASKS}
        if step == "opening":
            client.kill_jvm()
        running.write()
        assert running.those_reached(stops)
        client.kill_jvm()
        for point in running.points.iterdir():
            point.unlink(missing_ok=True)
        running.settle(f"all is there once after a kill {when}")


@pytest.mark.timeout(300)
def test_a_zombie_that_goes_on_writing_is_refused_by_the_broker(
    kafka: EmbeddedKafka, tmp_path: Path, clusters: list[Cluster]
) -> None:
    """SIGSTOP between its records and their commit; another client takes over; then
    its Java process wakes up alone, so that nothing but the broker can hold it off."""
    both = Running(kafka, tmp_path, ("map", "count"))
    clusters.append(both.cluster)
    for name in "ab":
        both.start(name, **{"keep.spark.warm": True})
    zombie = both.refused_zombie()
    both.settle("all is there once when the zombie has woken up")
    zombie.wake()
    both.write()
    both.settle("both go on, and all is there once")
    assert not any("fenced" in call["text"] for call in zombie.handled()), zombie.handled()
