"""Exactly once: Spark's Java process is killed between any two steps of a micro-batch; a zombie wakes up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import ClientProcess, Cluster
from proof import Proof
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

STEPS = {
    "after the offset log, before anything is written": "p0-run.planned",
    "before the first record of a sink partition": "p0-1.opened",
    "after the records of a stateless part, before its marker": "p0-1.flushed",
    "after the marker of a stateless part, before the commit": "p0-1.marked",
    "after the commit of a stateless part, before its task ends": "p0-1.committed",
    "after the records of a stateful part, before its marker": "p0-4.flushed",
    "after the marker of a stateful part, before the commit": "p0-4.marked",
    "after the commit of a stateful part, before its task ends": "p0-4.committed",
    "after all commits, before the commit log": "p0-run.written",
    "behind a repartition topic, before anything is written": "p1-run.planned",
    "behind a repartition topic, after the marker, before the commit": "p1-0.marked",
    "behind a repartition topic, after all commits, before the commit log": "p1-run.written",
    "while a run takes over, before older ones are fenced": "p0-run.claimed",
}
WORDS = [f"w{number}" for number in range(7)]


class Running:
    """One client that is killed and goes on, for all tests of this module."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path) -> None:
        self.cluster = Cluster(kafka, directory)
        self.proof = Proof(self.cluster)
        self.points = directory / "points"
        self.points.mkdir()
        self.client = self.start("a")
        self.cluster.wait_until_running()

    def start(self, name: str, **config: object) -> ClientProcess:
        """A client that stops where it is told to."""
        return self.cluster.start(
            name,
            {
                "processing.guarantee": "exactly_once_v2",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 "
                f"-Dmillstream.kernel.failpoints={self.points}",
                "max.batch.records": 400,
                **config,
            },
            fresh=True,
            **self.proof.spec(),
        )

    def stopped_at(self, place: str) -> Path:
        """Have the next one who comes by a place stop there."""
        name = f"{self.cluster.application_id}-{place}"
        (self.points / name).touch()
        return self.points / f"{name}.reached"

    def settle(self, timeout_s: float = 180.0) -> None:
        """Until all is written; then it is there exactly once."""
        wrong: list[str] = []

        def right() -> bool:
            wrong[:] = self.proof.wrong()
            assert not any("more than once" in each or "were there before" in each for each in wrong), wrong
            return not wrong

        try:
            wait_until(right, "all is there", timeout_s)
        except AssertionError as error:
            raise AssertionError(f"{wrong}; {self.client.end_of_log()}") from error


@pytest.fixture(scope="module")
def running(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(kafka, tmp_path_factory.mktemp("kills"))
    yield running
    running.cluster.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_is_written_once_wherever_it_was_cut_off(running: Running, step: str) -> None:
    """SIGKILL of the Java process that is at this step; readers of committed records see each record once."""
    running.proof.write(WORDS * 10)
    running.settle()
    place = STEPS[step]
    reached = running.stopped_at(place)
    if place.endswith(".claimed"):
        running.client.kill_jvm()
    running.proof.write(WORDS * 10)
    wait_until(reached.exists, running.client.told(f"the batch is at {place}"), 60)
    running.client.kill_jvm()
    reached.unlink()
    running.settle()


@pytest.mark.timeout(600)
def test_a_zombie_that_goes_on_writing_is_refused_by_the_broker(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """SIGSTOP between its records and their commit; another client takes over and finishes the batch; then
    its Java process wakes up alone, so that nothing but the broker can hold it off."""
    both = Running(kafka, tmp_path)
    try:
        zombie, heir = both.client, both.start("b", **{"keep.spark.warm": True})
        both.proof.write(WORDS * 10)
        both.settle()
        reached, refused, done = (
            both.stopped_at(f"p0-1.{place}") for place in ("flushed", "refused", "committed")
        )
        both.proof.write(WORDS * 10)
        wait_until(reached.exists, zombie.told("records are on the broker, and not committed"), 60)
        zombie.freeze(jvm=True)
        done.with_suffix("").unlink()  # it is the zombie's that would be wrong
        both.client = heir
        both.settle()
        both.stopped_at("p0-1.committed")
        reached.unlink()
        zombie.wake_jvm()
        wait_until(refused.exists, "the broker refuses", 60)
        assert not done.exists()
        done.with_suffix("").unlink()
        refused.unlink()
        both.settle()
        zombie.wake()
        both.proof.write(WORDS * 10)
        both.settle()
        assert not any("fenced" in call["text"] for call in zombie.handled()), zombie.handled()
    finally:
        both.cluster.close()
