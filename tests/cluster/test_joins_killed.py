"""A client that joins is killed: no record loses its match, and what is counted behind the join is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_world import Cluster
from proof import Proof, entries_of
from spark_start import java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

WORDS = [f"w{number}" for number in range(7)]
RESULTS: dict[str, Callable[[str, str], tuple[str, str]]] = {
    "table": lambda name, word: (word, f"{name} row of {word}"),
    "global": lambda name, word: (name, f"{word} row of {word}"),
    "stream": lambda name, word: (name, f"{word} {word}"),
    "tables": lambda name, word: (name, f"{word} 1"),
    "foreign": lambda name, word: (name, f"{word} row of {word}"),
}
"""What comes of a record in each output: key and value."""


class Joining:
    """An application whose one client runs app.py's `build_joined`."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, guarantee: str) -> None:
        self.cluster = Cluster(kafka, directory)
        self.proof = Proof(self.cluster, ())
        self.outputs = {name: self.cluster.topic(f"out-{name}") for name in (*RESULTS, "grouped")}
        rows, everywhere = self.cluster.topic("rows", 3), self.cluster.topic("everywhere", 2)
        for topic in (rows, everywhere):
            for word in WORDS:
                self.cluster.produce(topic, [f"row of {word}"], key=word.encode())
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
            everywhere=everywhere,
            outputs=self.outputs,
            handler="patient",
        )
        self.cluster.wait_until_running()

    def stop_at(self, *places: str) -> None:
        """Write, and wait until Java waits at one of these places."""
        stops = [self.points / f"{self.cluster.application_id}-{place}" for place in places]
        for stop in stops:
            stop.touch()
        reached = [stop.with_name(f"{stop.name}.reached") for stop in stops]
        self.proof.write(WORDS * 10)
        told = self.client.told(f"one of {', '.join(places)} is reached")
        wait_until(lambda: any(each.exists() for each in reached), told, 60)

    def start_again(self) -> None:
        """The same program, after SIGKILL to the client, and so to its Java process."""
        for point in self.points.iterdir():
            point.unlink()
        self.client = self.cluster.again(self.client)
        self.cluster.wait_until_running()

    def joined(self, how: str = "table") -> Counter[str]:
        """How often each record was joined in this way."""
        entries, _ = entries_of(self.cluster.servers, self.outputs[how])
        found: Counter[str] = Counter()
        for key, value, _ in entries:
            name = value.decode().partition(" ")[0] if how == "table" else key
            assert (key, value.decode()) == RESULTS[how](name, name.partition("-")[2])
            found[name] += 1
        return found

    def grouped(self) -> dict[str, int]:
        """What was told last of each value."""
        entries, _ = entries_of(self.cluster.servers, self.outputs["grouped"])
        return {key: int.from_bytes(value, "big") for key, value, _ in entries}

    def incomplete(self) -> list[str]:
        """The outputs in which records are missing."""
        return [how for how in RESULTS if self.joined(how).keys() != self.proof.ids]

    def settle(self) -> None:
        """Until all records are joined in each way, and counted."""
        expected = self.proof.words
        told = self.client.told
        joined = told("each record is joined in each way")
        wait_until(lambda: not self.incomplete(), joined, 120, every_s=0.2)  # each look reads whole topics
        wait_until(lambda: self.client.counts() == expected, told(f"the counts are {expected}"), 90)
        wait_until(
            lambda: self.grouped() == expected, told(f"rows are grouped as {expected}"), 90, every_s=0.2
        )


@pytest.mark.timeout(300)
def test_a_killed_join_goes_on_with_its_table_and_counts_nothing_twice(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """At least once: in the middle of a backlog of some micro-batches."""
    joining = Joining(kafka, tmp_path, "at_least_once")
    try:
        joining.proof.write(WORDS * 40)
        wait_until(joining.joined, joining.client.told("it joins"), 90)
        joining.client.kill()
        assert joining.joined().keys() < joining.proof.ids, "it was killed when all was done"
        joining.start_again()
        joining.settle()
    finally:
        joining.cluster.close()


@pytest.mark.timeout(300)
def test_with_exactly_once_a_killed_join_has_each_result_once(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Killed where some sink partitions of a micro-batch are committed and others are not. (Where all are,
    and Spark does not know it: test_exactly_once.py.)"""
    joining = Joining(kafka, tmp_path, "exactly_once_v2")
    try:
        joining.stop_at("p0-0.marked", "p0-2.marked", "p0-4.marked")
        joining.client.kill()
        joining.start_again()
        joining.settle()
        for how in RESULTS:
            assert set(joining.joined(how).values()) == {1}, how
    finally:
        joining.cluster.close()
