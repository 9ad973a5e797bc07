"""A client that joins is killed: no record loses its match, and what is counted behind the join is exact."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cluster_world import Cluster
from proof import Proof, entries_of
from spark_start import java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

WORDS = [f"w{number}" for number in range(7)]
by_keys_of_both_kinds = pytest.mark.parametrize("foreign_keys", [False, True], ids=["key", "foreign key"])


class Joining:
    """An application whose one client runs app.py's `build_joined`, or the same by foreign keys."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, guarantee: str, *, foreign_keys: bool) -> None:
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
                "max.batch.records": 100,
            },
            fresh=True,
            source=self.proof.source,
            rows=rows,
            output=self.out,
            handler="patient",
            foreign_keys=foreign_keys,
        )
        self.cluster.wait_until_running()

    def wait_until_stopped(self) -> None:
        """Until Java waits at a place that it was to stop at."""
        wait_until(lambda: list(self.points.glob("*.reached")), self.client.told("a place is reached"), 60)

    def start_again(self) -> None:
        """The same program, after SIGKILL to the client, and so to its Java process."""
        for point in self.points.iterdir():
            point.unlink()
        self.client = self.cluster.again(self.client)
        self.cluster.wait_until_running()

    def joined(self) -> Counter[str]:
        """How often each record was joined."""
        entries, _ = entries_of(self.cluster.servers, self.out)
        for key, value, _ in entries:
            word = key.rpartition("-")[2]  # a record's own key, or its value
            assert value.decode().endswith(f"-{word} row of {word}")
        return Counter(value.decode().partition(" ")[0] for _, value, _ in entries)

    def settle(self) -> None:
        """Until all records are joined and counted."""
        expected = self.proof.words
        told = self.client.told
        wait_until(lambda: self.joined().keys() == self.proof.ids, told("each record is joined"), 90)
        wait_until(lambda: self.client.counts() == expected, told(f"the counts are {expected}"), 90)


@by_keys_of_both_kinds
@pytest.mark.timeout(300)
def test_a_killed_join_goes_on_with_its_table_and_counts_nothing_twice(
    kafka: EmbeddedKafka, tmp_path: Path, foreign_keys: bool
) -> None:
    """At least once: in the middle of a backlog of some micro-batches."""
    joining = Joining(kafka, tmp_path, "at_least_once", foreign_keys=foreign_keys)
    try:
        joining.proof.write(WORDS * 150)
        wait_until(joining.joined, joining.client.told("it joins"), 90)
        joining.client.kill()
        assert joining.joined().keys() < joining.proof.ids, "it was killed when all was done"
        joining.start_again()
        joining.settle()
    finally:
        joining.cluster.close()


@by_keys_of_both_kinds
@pytest.mark.timeout(300)
def test_with_exactly_once_a_killed_join_has_each_result_once(
    kafka: EmbeddedKafka, tmp_path: Path, foreign_keys: bool
) -> None:
    """Where some sink partitions of a micro-batch are committed and others are not; and where all are, and
    Spark does not know it."""
    joining = Joining(kafka, tmp_path, "exactly_once_v2", foreign_keys=foreign_keys)
    last = "p1" if foreign_keys else "p0"
    try:
        for places in (["p0-0.marked", "p0-2.marked", "p0-4.marked"], [f"{last}-run.written"]):
            stops = [joining.points / f"{joining.cluster.application_id}-{place}" for place in places]
            for stop in stops:
                stop.touch()
            joining.proof.write(WORDS * 10)
            joining.wait_until_stopped()
            joining.client.kill()
            joining.start_again()
            joining.settle()
            assert set(joining.joined().values()) == {1}
    finally:
        joining.cluster.close()
