"""A client that joins is killed: no record loses its match, and what is counted behind the join is exact."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from cluster_world import Cluster
from proof import Proof, entries_of
from spark_start import java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

WORDS = [f"w{number}" for number in range(7)]


class Joining:
    """An application whose one client runs app.py's `build_joined`."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, guarantee: str) -> None:
        self.cluster = Cluster(kafka, directory)
        self.proof = Proof(self.cluster, ())
        self.out = self.cluster.topic("out")
        rows = self.cluster.topic("rows", 3)
        for word in WORDS:
            self.cluster.produce(rows, [f"row of {word}"], key=word.encode())
        self.points = directory / "points"
        self.points.mkdir()
        self.client = self.cluster.start(
            "a",
            {
                "processing.guarantee": guarantee,
                "spark.driver.extraJavaOptions": (
                    f"{java_options()} -Dmillstream.kernel.failpoints={self.points}"
                ),
                "max.batch.records": 300,
            },
            fresh=True,
            source=self.proof.source,
            rows=rows,
            output=self.out,
            handler="patient",
        )
        self.cluster.wait_until_running()

    def wait_until_stopped(self) -> None:
        """Until Java waits at a place that it was to stop at."""
        wait_until(lambda: list(self.points.glob("*.reached")), self.client.told("a place is reached"), 60)

    def kill(self) -> None:
        """SIGKILL to the client, and so to its Java process; the same program is started again."""
        self.client.kill()
        for point in self.points.iterdir():
            point.unlink()
        self.client = self.cluster.again(self.client)
        self.cluster.wait_until_running()

    def joined(self) -> Counter[str]:
        """How often each record was joined."""
        entries, _ = entries_of(self.cluster.servers, self.out)
        for word, value, _ in entries:
            assert value.decode().endswith(f"-{word} row of {word}")
        return Counter(value.decode().partition(" ")[0] for _, value, _ in entries)

    def settle(self) -> None:
        """Until all records are joined and counted."""
        expected = self.proof.words
        told = self.client.told
        wait_until(lambda: self.joined().keys() == self.proof.ids, told("each record is joined"), 90)
        wait_until(lambda: self.client.counts() == expected, told(f"the counts are {expected}"), 90)


@pytest.mark.timeout(300)
def test_a_killed_join_goes_on_with_its_table_and_counts_nothing_twice(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """At least once: twice between the micro-batches of a backlog, or within one."""
    joining = Joining(kafka, tmp_path, "at_least_once")
    try:
        for _ in range(2):
            before = len(joining.joined())
            joining.proof.write(WORDS * 300)
            wait_until(partial(_more_than, joining, before), joining.client.told("it joins"), 90)
            joining.kill()
        joining.settle()
    finally:
        joining.cluster.close()


@pytest.mark.timeout(300)
def test_with_exactly_once_a_killed_join_has_each_result_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Where some sink partitions of a micro-batch are committed and others are not; and where all are, and
    Spark does not know it."""
    joining = Joining(kafka, tmp_path, "exactly_once_v2")
    try:
        for places in (["p0-0.marked", "p0-2.marked", "p0-4.marked"], ["p0-run.written"]):
            stops = [joining.points / f"{joining.cluster.application_id}-{place}" for place in places]
            for stop in stops:
                stop.touch()
            joining.proof.write(WORDS * 10)
            joining.wait_until_stopped()
            joining.kill()
            joining.settle()
            assert set(joining.joined().values()) == {1}
    finally:
        joining.cluster.close()


def _more_than(joining: Joining, before: int) -> bool:
    return len(joining.joined()) > before
