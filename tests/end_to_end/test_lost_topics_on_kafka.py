"""Topics and checkpoints that are not what an application's progress belongs to, on real Kafka and Spark."""

from __future__ import annotations

import logging
import re
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    IllegalStateException,
    KafkaStreams,
    LostCheckpointException,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StreamsException,
    StreamThreadExceptionResponse,
    TimeWindows,
    Topology,
)
from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.checkpoints.offset_log import positions_of
from millstream.config import runs_tasks
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
KEYS = [f"k{number}" for number in range(30)]


def counting(topic: str, out: str) -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream(topic, STRINGS).group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def each_key(value: int) -> dict[str, int]:
    return dict.fromkeys(KEYS, value)


def write(world: World, topic: str, times: int = 1) -> None:
    world.produce(topic, [(key.encode(), b"x") for key in KEYS] * times)


def recreate(world: World, topic: str, partitions: int = 2) -> None:
    world.kafka.delete_topic(topic)
    wait_until(lambda: topic not in world.kafka.topics(), f"{topic} is gone")
    world.kafka.create_topic(topic, partitions)


def start_and_wait(client: KafkaStreams) -> None:
    client.start()
    client.wait(timedelta(seconds=60))


def refused(client: KafkaStreams) -> StreamsException:
    """What ends a client before it has processed anything. What may yet come right, as a source topic, is its
    handler's to decide about; all else is raised by start().
    """
    told: list[BaseException] = []

    def handler(error: BaseException) -> StreamThreadExceptionResponse:
        told.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client.set_uncaught_exception_handler(handler)
    with pytest.raises(StreamsException) as raised:
        start_and_wait(client)
    client.close(timedelta(seconds=30))
    assert told == ([raised.value] if isinstance(raised.value, MissingSourceTopicException) else [])
    return raised.value


def counted(world: World, client: KafkaStreams, expected: dict[str, int], read: int) -> None:
    """The store has these counts, and Spark has committed so many records of the source."""
    store = key_value_store(client, "n")
    wait_until(lambda: content(store) == expected, "everything is counted", 60)
    if runs_tasks():
        return  # what they have not committed is in no store
    files = LocalCheckpointFiles(world.directory / "state" / world.name("app") / "checkpoints")
    wait_until(
        lambda: sum((positions_of(files, "p0") or {}).values()) == read, f"{read} records are committed", 60
    )


@pytest.mark.timeout(300)  # Spark starts a query five times
def test_a_pattern_goes_on_without_a_topic_that_is_deleted(
    world: World, caplog: pytest.LogCaptureFixture, engine: str
) -> None:
    """While a client runs and while none does; what is there of its name later is read from its beginning.

    Kafka Streams 4.3.1 goes on as well, after the minute in which its consumer tries to commit offsets of the
    deleted topic; and once the last topic is gone, its handler is asked, too.
    """
    one, two = world.topic("logs-1"), world.topic("logs-2")
    number = one.rpartition("-")[2]
    out = world.topic("out", 1)
    builder = StreamsBuilder()
    logs = builder.stream(re.compile(f"logs-[0-9]+-{number}"), STRINGS)
    counts = logs.group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    topology = builder.build()
    told: list[BaseException] = []

    def handler(error: BaseException) -> StreamThreadExceptionResponse:
        told.append(error)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client = world.created(topology)
    client.set_uncaught_exception_handler(handler)
    client.start()
    client.wait_until_running(timedelta(seconds=90))
    write(world, one)
    write(world, two, 2)
    counted(world, client, each_key(3), 90)

    # 1. It is deleted while the client runs, and created again while it runs.
    with caplog.at_level(logging.WARNING, "millstream"):
        world.kafka.delete_topic(two)
        told_by_thread = f"topic '{two}', which a pattern matched, was deleted, and pipeline p0 continues"
        wait_until(lambda: told_by_thread in caplog.text, "it is told", 60)
        if engine == "batches":  # whose checkpoint has to be put right
            wait_until(lambda: f"source topic '{two}' was deleted (" in caplog.text, "it is told", 60)
    if engine == "batches":
        assert f"what the pattern matches now: '{one}'" in caplog.text
        assert re.search(
            r"read of it: up to offset \d+ in partition 0, offset \d+ in partition 1", caplog.text
        )
    write(world, one)
    counted(world, client, each_key(4), 60)
    world.kafka.create_topic(two, 3 if engine == "batches" else 2)  # a task has a partition of the store
    write(world, two)
    counted(world, client, each_key(5), 90)

    # 2. It is another one when the next client starts.
    client.close(timedelta(seconds=30))
    recreate(world, two)
    write(world, two, 3)
    client = world.created(topology)
    client.set_uncaught_exception_handler(handler)
    client.start()
    client.wait_until_running(timedelta(seconds=90))
    counted(world, client, each_key(8), 150)
    assert told == []

    # 3. The last one is gone.
    world.kafka.delete_topic(two)
    wait_until(lambda: caplog.text.count(f"topic '{two}', which a pattern matched") == 2, "dropped", 60)
    world.kafka.delete_topic(one)
    wait_until(lambda: told, "the handler is asked", 60)
    assert isinstance(told[0], MissingSourceTopicException)
    assert told[0].deleted == (one,)
    assert "no topic matches the pattern" in str(told[0])


@pytest.mark.timeout(300)  # Spark starts a query five times
def test_what_was_deleted_while_no_client_ran_is_told_and_can_be_mended(world: World, tmp_path: Path) -> None:
    """A source, a changelog, a checkpoint: named, with the ways out, and nothing is skipped or lost."""
    source, out, app = world.topic("in"), world.topic("out"), world.name("app")
    changelog = f"{app}-n-changelog"
    topology = counting(source, out)
    client = world.client(topology)
    write(world, source, 2)
    counted(world, client, each_key(2), 60)
    client.close(timedelta(seconds=30))

    # The source is another topic of the same name.
    recreate(world, source)
    write(world, source, 3)
    error = refused(world.created(topology))
    assert isinstance(error, MissingSourceTopicException)
    assert error.recreated == (source,)
    assert f"source topic '{source}' was deleted and created again (topic id " in str(error)
    assert "source.lost.policy=from-beginning" in str(error)
    client = world.client(topology, source_lost_policy="from-beginning")
    counted(world, client, each_key(5), 90)
    committed = KafkaTopics(client._config)
    both = [TopicPartition(source, 0), TopicPartition(source, 1)]
    wait_until(lambda: sum(committed.committed(app, both).values()) == 90, "the group has committed", 30)
    committed.close()
    client.close(timedelta(seconds=30))

    # The checkpoint is gone, as in a container without its volume; and then it is back.
    checkpoints = tmp_path / "state" / app / "checkpoints"
    shutil.move(checkpoints, tmp_path / "elsewhere")
    shutil.rmtree(tmp_path / "state")
    error = refused(world.created(topology))
    assert isinstance(error, LostCheckpointException)
    assert f"changelog '{changelog}' has records up to offset" in str(error)
    assert f"the group has committed '{source}' up to" in str(error)
    shutil.rmtree(checkpoints, ignore_errors=True)
    shutil.move(tmp_path / "elsewhere", checkpoints)
    client = world.client(topology)
    counted(world, client, each_key(5), 90)
    write(world, source)
    counted(world, client, each_key(6), 120)
    with pytest.raises(IllegalStateException, match="has members"):
        world.created(topology, state_dir=str(tmp_path / "other")).clean_up(checkpoints=True)
    client.close(timedelta(seconds=30))

    # It starts afresh: the keys that the source does not have any more are gone from store and changelog.
    recreate(world, source)
    world.produce(source, [(b"new", b"x")])
    world.created(topology).clean_up(checkpoints=True)
    client = world.client(topology)
    counted(world, client, {"new": 1}, 1)
    assert {record.key for record in world.consume(changelog, 1)} == {b"new"}
    client.close(timedelta(seconds=30))

    # The changelog is gone: by hand, or by Kafka's own reset tool.
    world.kafka.delete_topic(changelog)
    wait_until(lambda: changelog not in world.kafka.topics(), "the changelog is gone")
    error = refused(world.created(topology))
    assert isinstance(error, LostTopicException)
    assert error.deleted == (changelog,)
    assert "changelog.lost.policy=rebuild" in str(error)
    assert changelog not in world.kafka.topics(), "it was not made anew, empty"
    client = world.client(topology, changelog_lost_policy="rebuild")
    counted(world, client, {"new": 1}, 1)


def latest(
    world: World, client: KafkaStreams, changelog: str
) -> dict[tuple[int, bytes], tuple[bytes | None, int]]:
    """What a store would have of a changelog: by partition and key, the last value and its timestamp."""
    topics = KafkaTopics(client._config)
    parts = [TopicPartition(changelog, number) for number in range(2)]
    count = sum(topics.end_offsets(parts).values())
    topics.close()
    return {
        (record.partition, record.key or b""): (
            record.value,
            record.timestamp,
        )
        for record in world.consume(changelog, count)
    }


def test_changelogs_are_written_anew_as_they_were(world: World) -> None:
    """Of several aggregations in one operator, windows of each kind, an average, a function that only Spark
    can compute, a fold, and a table behind a shuffle: the same keys, bytes, partitions and timestamps, with
    the epoch of the new claim.
    """
    source, app = world.topic("in"), world.name("app")
    builder = StreamsBuilder()
    records = builder.stream(source, STRINGS)
    grouped = records.group_by_key()
    grouped.count(Materialized.as_("n"))
    grouped.aggregate(lambda key, value: F.avg(F.length(value)), Materialized.as_("mean"))
    windows = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(days=1))
    grouped.windowed_by(windows).count(Materialized.as_("per-minute"))
    second = timedelta(seconds=1)
    sliding = SlidingWindows.of_time_difference_and_grace(second, timedelta(days=1))
    grouped.windowed_by(sliding).count(Materialized.as_("sliding"))
    sessions = SessionWindows.of_inactivity_gap_and_grace(second, timedelta(days=1))
    grouped.windowed_by(sessions).aggregate(
        lambda key, value: F.max(F.length(value)), Materialized.as_("sessions")
    )
    grouped.aggregate(lambda key, value: F.median(F.length(value)), Materialized.as_("median"))
    grouped.aggregate(
        lambda: 0,
        lambda key, value, total: total + len(value),
        Materialized.as_("total").with_value_serde(Serdes.long()),
    )
    records.select_key(lambda key, value: value).to_table(Materialized.as_("by-value"))
    topology = builder.build()
    windowed = ["per-minute", "sliding", "sessions"]
    stores = ["n", "mean", "median", "total", "by-value", *windowed]
    client = world.client(topology)
    world.produce(source, [(key.encode(), b"x" * (number % 5)) for number, key in enumerate(KEYS * 4)])
    files = LocalCheckpointFiles(world.directory / "state" / app / "checkpoints")
    wait_until(lambda: sum((positions_of(files, "p0") or {}).values()) == 120, "all is committed", 90)
    client.close(timedelta(seconds=30))
    changelogs = {store: f"{app}-{store}-changelog" for store in stores}
    before = {store: latest(world, client, topic) for store, topic in changelogs.items()}
    sizes = {store: len(kept) for store, kept in before.items()}
    each_once = {"n": 30, "mean": 30, "median": 30, "total": 30, "by-value": 5}
    assert {store: sizes[store] for store in each_once} == each_once
    assert all(sizes[store] >= 30 for store in windowed)

    for topic in changelogs.values():
        world.kafka.delete_topic(topic)
    wait_until(lambda: not world.kafka.topics() & set(changelogs.values()), "they are gone")
    client = world.client(topology, changelog_lost_policy="rebuild")
    after = {store: latest(world, client, topic) for store, topic in changelogs.items()}
    assert after == before
    counts = key_value_store(client, "n")
    wait_until(lambda: content(counts) == each_key(4), "the store is filled from it")
    world.produce(source, [(KEYS[0].encode(), b"x")])
    wait_until(lambda: counts.get(KEYS[0]) == 5, "and the pipeline goes on")
