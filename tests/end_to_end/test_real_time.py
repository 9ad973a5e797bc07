"""Real-Time Mode on real Kafka and Spark: records come out while a batch lasts, and a stop repeats none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    JoinWindows,
    Materialized,
    PipelineException,
    Produced,
    Serdes,
    StreamsBuilder,
    TopologyException,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
LONG = 600_000
"""Milliseconds: no batch of this length ends by itself while a test runs."""


def test_a_word_count_comes_out_while_its_batch_lasts_and_a_stop_repeats_nothing(world: World) -> None:
    """One source is counted and copied, and is read once; a client that closes has committed what it read."""
    lines, out, copies = world.topic("lines", 3), world.topic("counts-out"), world.topic("copies", 1)
    builder = StreamsBuilder()
    stream = builder.stream(lines, STRINGS)
    stream.map_values(lambda line: F.upper(line)).to(copies)
    (
        stream.flat_map_values(lambda line: F.split(line, " "))
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts"))
        .to_stream()
        .to(out, Produced.with_(Serdes.string(), Serdes.long()))
    )
    topology = builder.build()
    texts = ["to be or not to be", "that is the question", "to die to sleep"]
    expected = Counter(word for text in texts for word in text.split())
    mode = {"processing_mode": "real-time", "real_time_batch_ms": LONG}

    client = world.client(topology, **mode)
    world.produce(lines, [(None, text.encode()) for text in texts])
    store = key_value_store(client, "counts")
    wait_until(lambda: content(store) == expected, "the counts are right")
    updates = world.consume(out, expected.total())
    latest = {r.key: int.from_bytes(r.value or b"", "big") for r in updates}
    assert latest == {word.encode(): count for word, count in expected.items()}
    assert {r.value for r in world.consume(copies, 3)} == {text.upper().encode() for text in texts}

    assert client.close(timedelta(seconds=30))
    world.produce(lines, [(None, b"be")])
    again = world.client(topology, **mode)
    wait_until(lambda: key_value_store(again, "counts").get("be") == 3, "the count went on from 2")
    assert content(key_value_store(again, "counts")) == {**expected, "be": 3}
    assert [r.value for r in world.consume(copies, 4)][3:] == [b"BE"]


@pytest.mark.parametrize("counts", [False, True], ids=["copied", "counted"])
def test_the_mode_can_change_where_the_checkpoint_allows_it(
    world: World, counts: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark keeps to the format that a checkpoint was begun in, and has Real-Time Mode for the newer one."""
    source, out = world.topic("in", 1), world.topic("out", 1)
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS)
    if counts:
        stream.group_by_key().count().to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    else:
        stream.to(out)
    topology = builder.build()

    def run(application: str, mode: str, written: int) -> bool:
        """Whether it ran in micro-batches that nobody asked for."""
        caplog.clear()
        client = world.client(topology, application, processing_mode=mode, real_time_batch_ms=LONG)
        world.produce(source, [(b"k", b"x")])
        checkpoint = world.directory / "state" / application / "checkpoints"

        def is_done() -> bool:
            planned, done = (len(list(checkpoint.glob(f"**/{log}/[0-9]*"))) for log in ("offsets", "commits"))
            return planned == done and end_of(world, out) == written

        wait_until(is_done, f"{written} records are written, and nothing will be repeated", 60)
        assert client.close(timedelta(seconds=30))
        return "its checkpoint was written by micro-batches" in caplog.text

    caplog.set_level("INFO", "millstream")
    old, new = world.name("old"), world.name("new")
    assert not run(old, "micro-batch", 1)
    assert run(old, "auto", 2)
    refused = world.created(topology, old, processing_mode="real-time")
    refused.start()
    with pytest.raises(TopologyException, match=r"p0 cannot run in Real-Time Mode: .*reset"):
        refused.wait(timedelta(seconds=60))
    assert refused.close(timedelta(seconds=30))
    # The new application begins with the two records that are there.
    assert not run(new, "auto", 5)
    assert not run(new, "micro-batch", 6)
    assert not run(new, "real-time", 7)


def test_a_pause_and_a_removed_thread_repeat_nothing_and_bad_records_are_put_aside(world: World) -> None:
    """Each of them ends the batch; what comes then is told by the next one."""
    source, out, queue = world.topic("in", 1), world.topic("out", 1), world.topic("dlq", 1)
    builder = StreamsBuilder()
    numbers = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long()))
    numbers.group_by_key().count().to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    client = world.client(
        builder.build(),
        num_stream_threads=2,
        processing_mode="real-time",
        real_time_batch_ms=LONG,
        deserialization_exception_handler="LogAndContinueExceptionHandler",
        errors_dead_letter_queue_topic_name=queue,
    )

    def owner() -> str | None:
        """The thread on which the pipeline runs."""
        for thread in client.metadata_for_local_threads():
            if any(pipeline.running for pipeline in thread.pipelines):
                return thread.thread_name
        return None

    def one_more(written: int) -> None:
        world.produce(source, [(b"k", (1).to_bytes(8, "big"))])
        told = [int.from_bytes(record.value or b"", "big") for record in world.consume(out, written)]
        assert told == list(range(1, written + 1))

    world.produce(source, [(b"k", b"poison")])
    assert [letter.value for letter in world.consume(queue, 1)] == [b"poison"]
    one_more(1)
    client.pause()
    wait_until(lambda: owner() is None, "it pauses")
    client.resume()
    one_more(2)
    first = wait_until(owner, "it runs again")
    client.remove_stream_thread(timedelta(seconds=30))
    if owner() == first:
        client.add_stream_thread()
        client.remove_stream_thread(timedelta(seconds=30))
    assert wait_until(owner, "another thread has it") != first
    one_more(3)
    assert end_of(world, queue) == 1


def test_joins_run_where_they_are_asked_for(world: World) -> None:
    """Two streams are joined, and a stream with a table, in the order in which records arrive."""
    orders, payments, users = (world.topic(name, 1) for name in ("orders", "payments", "users"))
    paid, named = world.topic("paid", 1), world.topic("named", 1)
    builder = StreamsBuilder()
    stream = builder.stream(orders, STRINGS)
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(days=1))
    both = stream.join(builder.stream(payments, STRINGS), lambda one, other: F.concat(one, other), near)
    both.to(paid)
    stream.join(builder.table(users, STRINGS), lambda one, user: F.concat(one, user)).to(named)
    world.client(builder.build(), processing_mode="real-time", real_time_batch_ms=LONG)
    world.produce(users, [(b"k", b"Ann")])

    def joins(topic: str) -> bool:
        world.produce(orders, [(b"k", b"book ")])
        return end_of(world, topic) > 0

    wait_until(lambda: joins(named), "an order has met its user")
    assert {record.value for record in world.consume(named, 1)} == {b"book Ann"}
    world.produce(payments, [(b"k", b"cash")])
    assert {record.value for record in world.consume(paid, 1)} == {b"book cash"}


def test_a_record_that_kafka_refuses_ends_the_pipeline_while_its_batch_lasts(world: World) -> None:
    """The producer is told some time after the row was written, when no row may come any more."""
    source, out = world.topic("large", 1), world.name("small")
    world.kafka.create_topic(out, 1, {"max.message.bytes": "1000"})
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).map_values(lambda value: F.repeat(value, 2000)).to(out)
    client = world.client(builder.build(), processing_mode="auto", real_time_batch_ms=LONG)
    world.produce(source, [(b"k", b"x")])
    with pytest.raises(PipelineException, match=r"larger than|too large"):
        client.wait(timedelta(seconds=60))


def test_tasks_without_a_slot_are_told_in_a_sentence(world: World) -> None:
    """If a topic had more partitions than Spark has slots, some tasks would wait forever."""
    source = world.topic("wide", 20)
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).to(world.topic("out", 1))
    client = world.client(builder.build(), processing_mode="real-time")
    with pytest.raises(PipelineException, match=r"p0 has 20 tasks.*there are 16.*local\[21\]"):
        client.wait(timedelta(seconds=60))


def end_of(world: World, topic: str) -> int:
    """How many records the partition of a topic has."""
    consumer = Consumer({"bootstrap.servers": world.kafka.bootstrap_servers, "group.id": "none"})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1])
    finally:
        consumer.close()


def test_after_kill_9_nothing_is_lost_and_counts_are_exact(world: World, tmp_path: Path) -> None:
    """A process that has committed some batches dies in the middle of one: what that wrote is written again,
    and what it counted is counted once."""
    source, out, application = world.topic("keys", 2), world.topic("counted", 1), world.name("app")
    program = Path(__file__).with_name("real_time_program.py")
    arguments = [world.kafka.bootstrap_servers, str(tmp_path / "state"), application, source, out]
    path = os.pathsep.join([str(Path(__file__).parent.parent), *sys.path])
    running = subprocess.Popen(
        [sys.executable, str(program), *arguments], env={**os.environ, "PYTHONPATH": path}
    )
    offsets = tmp_path / "state" / application / "checkpoints"
    sent = 0

    def committed(batches: int) -> bool:
        nonlocal sent
        world.produce(source, [(f"k{n % 5}".encode(), b"x") for n in range(10)])
        sent += 10
        return len([each for each in offsets.glob("**/commits/*") if each.name.isdecimal()]) >= batches

    try:
        wait_until(lambda: committed(2), "two batches are committed", 100)
        before = end_of(world, out)
        wait_until(lambda: committed(0) and end_of(world, out) > before, "one more has begun")
    finally:
        running.kill()
        running.wait(30)
    builder = StreamsBuilder()
    counts = builder.stream(source, STRINGS).group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    client = world.client(builder.build(), application, processing_mode="real-time", real_time_batch_ms=LONG)
    expected = {f"k{n}": sent // 5 for n in range(5)}
    wait_until(lambda: content(key_value_store(client, "counts")) == expected, f"the counts are {expected}")

    def is_complete() -> bool:
        told = Counter(
            (r.key, int.from_bytes(r.value or b"", "big")) for r in world.consume(out, end_of(world, out))
        )
        assert max(told.values()) <= 2
        return set(told) == {(key.encode(), n) for key in expected for n in range(1, sent // 5 + 1)}

    wait_until(is_complete, "each count was written")
