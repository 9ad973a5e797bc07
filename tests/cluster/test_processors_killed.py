"""A client with processors is killed: their stores are exact; with exactly once, so is what they forward."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from cluster_world import Cluster
from proof import Proof, entries_of
from spark_start import java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster

WORDS = [f"w{number}" for number in range(7)]


class Processed:
    """An application whose one client runs app.py's `build_processed`. The key of a record is a word."""

    def __init__(self, kafka: EmbeddedKafka, directory: Path, guarantee: str) -> None:
        self.cluster = Cluster(kafka, directory)
        self.writer = Proof(self.cluster, ())
        self.output = self.cluster.topic("out", 2)
        self.words: Counter[str] = Counter()
        self.numbers = itertools.count()
        self.points = directory / "points"
        self.points.mkdir()
        failpoints = f"-Dmillstream.kernel.failpoints={self.points}"
        self.client = self.cluster.start(
            "a",
            {
                "processing.guarantee": guarantee,
                "spark.driver.extraJavaOptions": f"{java_options()} {failpoints}",
                "max.batch.records": 100,
            },
            fresh=True,
            source=self.writer.source,
            processed=self.output,
            handler="patient",
        )
        self.cluster.wait_until_running()

    def write(self, words: Iterable[str]) -> None:
        producer = self.writer._writer
        producer.begin_transaction()
        for word in words:
            self.words[word] += 1
            producer.produce(self.writer.source, key=word.encode(), value=str(next(self.numbers)).encode())
        producer.commit_transaction(60)

    def kill(self) -> None:
        """SIGKILL to the client, and so to its Java process and the Python workers; and the same again."""
        self.client.kill()
        for point in self.points.iterdir():
            point.unlink()
        self.client = self.cluster.again(self.client)
        self.cluster.wait_until_running()

    def forwarded(self) -> list[tuple[str, list[int]]]:
        """The word of each record in the output; its number, its place among those of its word, and how many
        windows there were by then."""
        entries, _ = entries_of(self.cluster.servers, self.output)
        return [(key, list(map(int, value.split()))) for key, value, _ in entries]

    def settle(self, *, once: bool) -> None:
        """Until all is there, and exactly that."""
        told = self.client.told
        total = self.words.total()
        wait_until(lambda: len({at[0] for _, at in self.forwarded()}) == total, told(f"{total} records"), 120)
        forwarded = self.forwarded()
        assert all(place == count for _, (_, place, count) in forwarded), "a store has forgotten a record"
        expected = Counter((word, n) for word, count in self.words.items() for n in range(1, count + 1))
        found = Counter((word, place) for word, (_, place, _) in forwarded)
        if once:
            assert found == expected
        else:
            assert found.keys() == expected.keys()
            # What is repeated is what was there before.
            assert len({(word, *at) for word, at in forwarded}) == total
        wait_until(lambda: self.client.counts() == self.words, told(f"the counts are {self.words}"), 90)


@pytest.mark.timeout(300)
def test_stores_of_processors_are_exact_after_a_kill(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """At least once, in the middle of a backlog of some micro-batches: a record may be forwarded twice, and
    the same both times."""
    processed = Processed(kafka, tmp_path, "at_least_once")
    try:
        for _ in range(2):
            there = [len(processed.forwarded())]
            processed.write(WORDS * 600)

            def goes_on(there: list[int] = there) -> bool:
                there.append(len(processed.forwarded()))
                return there[-1] > there[0]

            wait_until(goes_on, processed.client.told("it processes"), 90)
            assert there[-1] < processed.words.total(), "it is killed when all is done"
            processed.kill()
            processed.settle(once=False)
    finally:
        processed.cluster.close()


@pytest.mark.timeout(300)
def test_with_exactly_once_killed_processors_forward_each_record_once(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Where some sink partitions of a micro-batch are committed and others are not; and where all are, and
    Spark does not know it."""
    processed = Processed(kafka, tmp_path, "exactly_once_v2")
    try:
        for places in (["p0-0.marked", "p0-1.marked"], ["p0-run.written"]):
            for place in places:
                (processed.points / f"{processed.cluster.application_id}-{place}").touch()
            processed.write(WORDS * 10)
            told = processed.client.told("a place is reached")
            wait_until(lambda: list(processed.points.glob("*.reached")), told, 60)
            processed.kill()
            processed.settle(once=True)
    finally:
        processed.cluster.close()
