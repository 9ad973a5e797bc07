"""An application whose tasks stop between two steps, and that is killed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from cluster_world import ClientProcess, Cluster
from proof import PROGRAMS, Proof
from spark_start import java_options
from waiting import holds_for, wait_until

from millstream.broker import EmbeddedKafka

__all__ = ["Running"]

PARTITIONS = 4
WORDS = [f"w{number}" for number in range(7)]
SETTLE_S = 120.0


class Running:
    """An application of clients that stop where they are told to."""

    def __init__(
        self, kafka: EmbeddedKafka, directory: Path, programs: Iterable[str] = PROGRAMS, *, once: bool = True
    ) -> None:
        self.cluster = Cluster(kafka, directory)
        self.proof = Proof(self.cluster, programs, PARTITIONS, words=WORDS, once=once)
        self.points = directory / "points"
        self.points.mkdir()

    def start(self, name: str, **config: object) -> ClientProcess:
        return self.cluster.start(
            name,
            {
                "processing.guarantee": "exactly_once_v2" if self.proof.once else "at_least_once",
                "spark.driver.extraJavaOptions": (
                    f"{java_options()} -Dmillstream.kernel.failpoints={self.points}"
                ),
                **config,
            },
            fresh=True,
            **self.proof.spec(),
        )

    def stopped_at(self, place: str) -> Path:
        """Have the next task that comes by a place, `0_1.committing`, stop there."""
        (self.points / place).touch()
        return self.points / f"{place}.reached"

    def those_reached(self, stops: Mapping[str, Path]) -> list[str]:
        """The places where a task has stopped: all of them, unless there is nothing for one."""
        (client,) = self.cluster.clients
        what = client.told(f"one of {', '.join(stops)} is reached")
        wait_until(lambda: any(reached.exists() for reached in stops.values()), what, 60)
        with suppress(AssertionError):
            wait_until(lambda: all(reached.exists() for reached in stops.values()), "all are reached", 10)
        return [place for place, reached in stops.items() if reached.exists()]

    def refused_zombie(self) -> ClientProcess:
        """Freeze the owner between its records and their commit, have another client take over, and wake the
        owner's Java process alone, so that nothing but the broker can hold it off; the broker does.

        Returns the owner, whose Python is still frozen.
        """
        self.cluster.wait_until_running()
        self.write()
        self.settle("all is there before one is frozen")
        zombie = next(each for each in self.cluster.clients if "0_0" in each.tasks())
        stopped = self.stopped_at("0_0.offsets")
        self.write()
        wait_until(stopped.exists, zombie.told("records are on the broker, and not committed"), 60)
        zombie.freeze(jvm=True)
        self.settle("the other one writes all of it")
        committed = self.stopped_at("0_0.committed")
        stopped.unlink()
        zombie.wake_jvm()
        holds_for(5, lambda: not committed.exists(), "the broker refuses to commit what was left open")
        committed.with_suffix("").unlink()
        return zombie

    def kill_in_a_backlog(self) -> None:
        """SIGKILL to the only client when a task has results that are not committed; start it again."""
        (client,) = self.cluster.clients
        stopped = self.stopped_at("0_0.offsets")
        self.write(100)
        wait_until(stopped.exists, client.told("there are results that are not committed"), 90)
        client.kill()
        assert any(self.proof.wrong()), "it was killed when all was done"
        self.start_again()

    def kill_and_start_again(self) -> None:
        """SIGKILL to the only client, and so to its Java process; the same program again."""
        self.cluster.clients[0].kill()
        self.start_again()

    def start_again(self) -> None:
        for point in self.points.iterdir():
            point.unlink()
        self.cluster.again(self.cluster.clients[0])
        self.cluster.wait_until_running()

    def write(self, times: int = 10) -> None:
        self.proof.write(WORDS * times)

    def settle(self, what: str) -> None:
        """Until all is written; then it is there exactly once."""
        try:
            self.proof.settle(what, SETTLE_S)
        except AssertionError as error:
            raise AssertionError(
                "; ".join([str(error), *(c.end_of_log() for c in self.cluster.clients)])
            ) from error
