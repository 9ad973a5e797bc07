"""Transactions of the sink, step by step on a real broker: a process ends between any two of them, a batch
comes again, another run takes over.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as NativePartition
from java_programs import KernelJava
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.kafka

Steps = Callable[..., list[str]]


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    name = f"out-{uuid.uuid4().hex[:10]}"
    kafka.create_topic(name, 1)
    kafka.create_topic(f"{name}-marker", 1)
    return name


@pytest.fixture
def steps(kafka: EmbeddedKafka, kernel_java: KernelJava, topic: str) -> Steps:
    """Runs steps in a process of their own; returns what came of each."""

    def run(*lines: str, timeout_ms: int = 60_000) -> list[str]:
        said = kernel_java(
            "io.millstream.kernel.sink.TransactionsMain",
            "".join(f"{line}\n" for line in lines),
            kafka.bootstrap_servers,
            topic,
            f"{topic}-marker",
            f"app-p0-{topic}",
            str(timeout_ms),
        )
        return [line.partition(" -> ")[2] for line in said.splitlines() if " -> " in line]

    return run


def committed(kafka: EmbeddedKafka, topic: str) -> list[str]:
    """What a reader of committed records finds up to the end of the topic."""
    servers = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic}
    consumer = Consumer(
        {
            **servers,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    found: list[str] = []
    try:
        consumer.assign([NativePartition(topic, 0, 0)])

        def at_the_end() -> bool:
            for message in consumer.consume(100, 0.1):
                if message.error() is not None:
                    return True
                found.append((message.value() or b"").decode())
            return False

        wait_until(at_the_end, "the end of the topic", 30)
    finally:
        consumer.close()
    return found


WRITTEN = ("open a 1 0", "send a one", "send a two", "flush a")
KILLS = {
    "before anything is written": ("open a 1 0",),
    "while records are written": ("open a 1 0", "send a one", "flush a"),
    "after the records, before the marker": WRITTEN,
    "after the marker, before the commit": (*WRITTEN, "mark a"),
    "after the commit": (*WRITTEN, "commit a"),
}


@pytest.mark.parametrize("step", KILLS)
def test_a_batch_is_written_once_wherever_its_process_is_killed(
    kafka: EmbeddedKafka, steps: Steps, topic: str, step: str
) -> None:
    """The next run writes what was not committed, and skips what was; the batch after it is written."""
    assert steps(*KILLS[step], "kill")[0] == "to be written"
    was_committed = step == "after the commit"
    rest = () if was_committed else ("send b one", "send b two", "flush b", "commit b")
    found = steps("open b 2 0", *rest, "close b")
    assert found[0] == ("written" if was_committed else "to be written")
    assert set(found[1:]) == {"ok"}
    assert committed(kafka, topic) == ["one", "two"]
    came = steps("open b 2 0", "close b", "open c 2 1", "send c three", "flush c", "commit c", "close c")
    assert (came[0], came[2]) == ("written", "to be written")
    assert committed(kafka, topic) == ["one", "two", "three"]


def test_a_producer_is_used_again_and_knows_what_it_has_written(
    kafka: EmbeddedKafka, steps: Steps, topic: str
) -> None:
    """It does not ask the broker, and a transaction that was aborted is not counted."""
    came = steps(
        *("open a 1 0", "send a one", "flush a", "commit a", "close a"),
        *("open b 1 0", "close b"),
        *("open c 1 1", "send c lost", "flush c", "give-up c"),
        *(
            "open d 1 1",
            "send d spoilt",
            "flush d",
            "restart d",
            "send d two",
            "flush d",
            "commit d",
            "close d",
        ),
        *("open e 1 2", "commit e", "close e", "open f 1 2"),
    )
    assert [line for line in came if line != "ok"] == [
        "to be written",
        "written",
        "to be written",
        "to be written",
        "to be written",
        "to be written",  # nothing was in it, so nothing was committed
    ]
    assert committed(kafka, topic) == ["one", "two"]


def test_a_producer_is_not_used_again_if_another_executor_may_have_come_between(
    kafka: EmbeddedKafka, steps: Steps, topic: str
) -> None:
    """It is fenced then, and to use it would look as if the transaction were lost. Batch 1 was not here."""
    came = steps(
        *("open a 1 0", "send a one", "flush a", "commit a"),
        *("open elsewhere 1 1", "send elsewhere two", "flush elsewhere", "commit elsewhere"),
        "close a",
        *("open b 1 2", "send b three", "flush b", "commit b", "close b"),
        *("open c 1 3", "send c four", "flush c", "commit c"),
    )
    assert [line for line in came if line != "ok"] == ["to be written"] * 4
    assert committed(kafka, topic) == ["one", "two", "three", "four"]


def test_a_newer_run_fences_the_older_one_for_good(kafka: EmbeddedKafka, steps: Steps, topic: str) -> None:
    """One that is in the middle of a batch, and one that comes only then, which does not even disturb it."""
    came = steps(
        *("claim 1", "provide 1 1"),
        *("open old 1 0", "send old lost", "flush old"),
        "claim 2",
        "commit old",
        "give-up old",
        "open late 1 0",
        *("open new 2 0", "send new one", "flush new", "commit new", "close new"),
        "open late 1 1",
    )[2:]
    assert came[4].startswith("FencedException: transactional.id 'app-p0-")
    assert "of epoch 1 was fenced by the run of epoch 2" in came[4]
    assert "of epoch 1 was fenced by the run of epoch 2" in came[6]
    assert came[7:12] == ["to be written", "ok", "ok", "ok", "ok"]
    assert "was fenced by the run of epoch 2" in came[12]
    assert committed(kafka, topic) == ["one"]
    # A process that knows nothing of it finds the marker.
    (late,) = steps("open late 1 1")
    assert "was fenced by the run of epoch 2" in late
    came = steps("open new 2 1", "send new two", "flush new", "commit new")
    assert came == ["to be written", "ok", "ok", "ok"]
    assert committed(kafka, topic) == ["one", "two"]


def test_an_older_run_cannot_write_to_a_partition_that_nobody_has_used(
    kafka: EmbeddedKafka, steps: Steps, topic: str
) -> None:
    """It cannot, whether it has counted the partition already or not; it claims nothing back."""
    came = steps(
        *("claim 1", "provide 1 2", "open a 1 0", "send a one", "flush a", "commit a"),
        "claim 2",
        *("open b 1 0 1", "provide 1 3", "claim 1"),
        *("provide 2 3", "open c 2 0 2", "send c two", "flush c", "commit c"),
    )
    assert came[:7] == ["ok", "ok", "to be written", "ok", "ok", "ok", "ok"]
    for refused in came[7:10]:
        assert "of epoch 1 was fenced by the run of epoch 2" in refused
    assert came[10:] == ["ok", "to be written", "ok", "ok", "ok"]
    assert committed(kafka, topic) == ["one", "two"]


def test_a_zombie_that_has_begun_a_transaction_before_it_is_fenced_cannot_end_it(
    kafka: EmbeddedKafka, steps: Steps, topic: str
) -> None:
    """Its records are on the broker already, with their marker, when it is fenced."""
    came = steps(
        *("claim 1", "provide 1 1", "open old 1 0", "send old lost", "flush old", "mark old"),
        "claim 2",
        "commit old",
        "send old lost-again",
    )
    assert came[:6] == ["ok", "ok", "to be written", "ok", "ok", "ok"]
    assert came[6] == "ok"
    assert "FencedException" in came[7]
    assert committed(kafka, topic) == []
    assert steps("provide 2 1", "open new 2 0") == ["ok", "to be written"]


def test_batches_are_counted_by_the_query_whose_checkpoint_they_are_of(steps: Steps) -> None:
    """Markers of a checkpoint that was thrown away say nothing of a new one's batches."""
    came = steps(
        *("claim 1", "provide 1 2", "open a 1 41 1", "send a one", "flush a", "commit a"),
        *("written 1 query-1", "written 1 query-2"),
    )
    assert came[-2:] == ["42", "0"]


def test_a_marker_that_is_not_settled_is_waited_for_and_not_taken_for_none(steps: Steps) -> None:
    """Kafka's client leaves it out of its answer; the first one, and one that follows another."""
    batches = [
        came
        for batch in (0, 1)
        for came in steps(
            *(f"open a 1 {batch}", "send a one", "flush a", "mark a", "marker 0"),
            *("commit a", "marker 0", "marker 7"),
        )[4:]
    ]
    for unsettled in (batches[0], batches[4]):
        assert unsettled.startswith("TimeoutException: Kafka did not return the markers of [app-p0-")
        assert "a transaction that writes them is open" in unsettled
    assert batches[1:4] == ["ok", "1", "0"]
    assert batches[5:] == ["ok", "2", "0"]


def test_one_of_two_runs_of_the_same_epoch_is_last(steps: Steps) -> None:
    """If a file system gives two clients the same claim, the broker does not."""
    came = steps("claim 1", "provide 1 1", "claim 1 0 other", "open a 1 0", "provide 1 2")
    assert came[2] == "ok"
    assert "of epoch 1 was fenced by the run of epoch 1 (run-1other); what this run (run-1)" in came[3]
    assert "FencedException" in came[4]


def test_a_transaction_that_is_open_for_too_long_is_repeated(
    kafka: EmbeddedKafka, steps: Steps, topic: str
) -> None:
    """The broker takes it back, which is not taken for another client's doing; the next attempt writes it."""
    came = steps(
        *("claim 1", "provide 1 1", "open a 1 0", "outlast a", "give-up a"),
        *("open b 1 0", "send b one", "flush b", "commit b", "close b"),
        timeout_ms=500,
    )
    assert came[2:] == ["to be written", "TransactionLostException", "ok", "to be written", *["ok"] * 4]
    assert committed(kafka, topic) == ["one"]
