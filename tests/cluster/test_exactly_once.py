"""Exactly once: Spark's Java process is killed between any two steps of a micro-batch; a zombie wakes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import Cluster
from stopping import Running
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

STEPS = {
    "p0-run.planned": "after the offset log, before anything is written",
    "p0-0.opened": "before the first record of a sink partition",
    "p0-1.flushed": "after the records of a stateless part, before its marker",
    "p0-2.marked": "after the marker of a stateless part, before the commit",
    "p0-3.committed": "after the commit of a stateless part, before its task ends",
    "p0-4.flushed": "after the records of a stateful part, before its marker",
    "p0-5.marked": "after the marker of a stateful part, before the commit",
    "p0-6.committed": "after the commit of a stateful part, before its task ends",
    "p0-run.written": "after all commits, before the commit log",
    "p1-run.planned": "behind a repartition topic, before anything is written",
    "p1-0.marked": "behind a repartition topic, after the marker, before the commit",
    "p1-run.written": "behind a repartition topic, after all commits, before the commit log",
    "p0-run.claimed": "while a run takes over, before older ones are fenced",
}
KILLS = (
    ("p1-run.planned", "p0-run.planned"),
    ("p1-0.marked", *(step for step in STEPS if step[3].isdigit() and step.startswith("p0"))),
    ("p1-run.written", "p0-run.written"),
)
"""The steps that a process is at when it is killed: each sink partition has a transaction of its own, so each
of them can be at another step, and so can the two pipelines."""
CLAIMED = "p0-run.claimed"
"""The process that takes over from the last one of these is killed there."""


@pytest.fixture
def clusters() -> Iterator[list[Cluster]]:
    """Clusters that are closed after the test."""
    started: list[Cluster] = []
    yield started
    for cluster in started:
        cluster.close()


@pytest.mark.timeout(600)
def test_a_batch_is_written_once_wherever_it_was_cut_off(
    kafka: EmbeddedKafka, tmp_path: Path, clusters: list[Cluster]
) -> None:
    """SIGKILL of the Java process that is at these steps; the same client goes on with another one, and
    readers of committed records see each record once. One application for all of the steps."""
    assert sorted([CLAIMED, *(place for places in KILLS for place in places)]) == sorted(STEPS)
    running = Running(kafka, tmp_path)
    clusters.append(running.cluster)
    client = running.start("a")
    running.cluster.wait_until_running()
    running.write()
    running.settle("all is there before the first kill")
    for places in KILLS:
        left = set(places)
        while left:
            reached: list[str] = []
            for pipeline in ("p1", "p0"):  # the second one first: it gets what the first one has committed
                if asked := [place for place in left if place.startswith(pipeline)]:
                    stops = {place: running.stopped_at(place) for place in asked}
                    running.write()
                    reached += running.those_reached(stops)
            for point in running.points.iterdir():
                if point.suffix != ".reached":
                    point.unlink(missing_ok=True)  # nobody came by, and the next process shall not stop
            left -= set(reached)
            if not left and places is KILLS[-1]:
                claimed = running.stopped_at(CLAIMED)
                client.kill_jvm()
                wait_until(claimed.exists, client.told("the next process takes over"), 60)
                reached.append(CLAIMED)
            client.kill_jvm()
            for point in running.points.iterdir():
                point.unlink()
            running.settle(f"all is there once after a kill {', and '.join(STEPS[each] for each in reached)}")


@pytest.mark.timeout(300)
def test_a_zombie_that_goes_on_writing_is_refused_by_the_broker(
    kafka: EmbeddedKafka, tmp_path: Path, clusters: list[Cluster]
) -> None:
    """SIGSTOP between its records and their commit; another client takes over and finishes the batch; then
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
