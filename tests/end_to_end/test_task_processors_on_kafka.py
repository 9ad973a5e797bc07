"""Processors in tasks over a broker: stores over a restart without a disk, the clock, and commits."""

from __future__ import annotations

import random
import shutil
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from processors.homes import MemoryHome, fed, plan_of, task_of
from pyspark.cloudpickle import register_pickle_by_value
from waiting import wait_until

from millstream import (
    Consumed,
    KafkaStreams,
    Processor,
    ProcessorContext,
    Produced,
    PunctuationType,
    QueryableStoreTypes,
    Record,
    Serdes,
    SessionWindow,
    StoreBuilder,
    StoreQueryParameters,
    Stores,
    StreamsBuilder,
    Topology,
    ValueAndTimestamp,
    Windowed,
)
from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

TEXT, LONG = Serdes.string(), Serdes.long()
SOON = timedelta(seconds=60)
MINUTE = timedelta(minutes=1)
KEYS = ("a", "b", "c")
BEGAN_MS = int(time.time()) * 1000 - 3_600_000
"""Not long ago: a changelog's versions are compacted once they are older than the history. The end of a
transaction has the present time, and closes the segment of records that are much older."""


@pytest.fixture
def name() -> str:
    return f"processors-{uuid.uuid4().hex[:8]}"


def stores() -> list[StoreBuilder]:
    return [
        Stores.key_value_store_builder(Stores.persistent_key_value_store("counts"), TEXT, LONG),
        Stores.timestamped_key_value_store_builder(Stores.in_memory_key_value_store("last"), TEXT, TEXT),
        Stores.window_store_builder(
            Stores.persistent_window_store("windows", 10 * MINUTE, timedelta(seconds=10)), TEXT, TEXT
        ),
        Stores.session_store_builder(Stores.persistent_session_store("sessions", 10 * MINUTE), TEXT, TEXT),
        Stores.versioned_key_value_store_builder(
            Stores.persistent_versioned_key_value_store("versions", 10 * MINUTE), TEXT, TEXT
        ),
    ]


class Telling(Processor):
    """Puts each record into a store of each kind, and forwards what they have of its key."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        names = ("counts", "last", "windows", "sessions", "versions")
        self.counts, self.last, self.windows, self.sessions, self.versions = map(
            context.get_state_store, names
        )

    def process(self, record: Record) -> None:
        key, at = record.key, record.timestamp
        told = list(self.told(key, at))
        self.counts.put(key, (self.counts.get(key) or 0) + 1)
        self.last.put(key, ValueAndTimestamp(record.value, at))
        self.windows.put(key, record.value, at // 10_000 * 10_000)
        self.sessions.put(Windowed(key, SessionWindow(at - 5, at)), record.value)
        self.versions.put(key, record.value if at % 3 else None, at)
        self.context.forward(record.with_value(" | ".join(told)))

    def told(self, key: str, at: int) -> Iterator[str]:
        yield str(self.counts.get(key))
        yield str(self.last.get(key))
        with self.windows.fetch(key, at - 60_000, at) as found:
            yield " ".join(f"{start}={value}" for start, value in found)
        with self.sessions.find_sessions(key, at - 60_000, at) as found:
            yield " ".join(f"{each.window.end_ms}={value}" for each, value in found)
        yield str(self.versions.get(key, max(0, at - 30_000)))


def telling(name: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}-in", Consumed.with_(TEXT, TEXT))
    stream.process(Telling, *stores()).to(f"{name}-out", Produced.with_(TEXT, TEXT))
    return builder.build()


def records(seed: int, round_: int) -> list[tuple[str, str, int]]:
    """Some that are late, and time that passes the retention of all stores."""
    dice = random.Random(seed * 10 + round_)
    start = BEGAN_MS + round_ * 1_000_000
    return [
        (dice.choice(KEYS), f"v{number}", start + number * 3_000 - dice.choice((0, 0, 50_000)))
        for number in range(300)
    ]


def read(kafka: EmbeddedKafka, topic: str) -> list[tuple[str, str]]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=5_000,
    )
    found = [(record.key.decode(), record.value.decode()) for record in consumer]
    consumer.close()
    return found


def counted(client: KafkaStreams) -> int:
    wanted = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    store: Any = client.store(wanted)
    with store.all() as entries:
        return sum(value for _, value in entries)


def test_stores_of_processors_go_on_from_kafka_alone(kafka: EmbeddedKafka, tmp_path: Path, name: str) -> None:
    """Each kind of store, in two tasks: the second client, without a disk, tells what one process would."""
    kafka.create_topic(f"{name}-in", 2)
    kafka.create_topic(f"{name}-out", 1)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for round_ in (0, 1):
        state = tmp_path / f"state-{round_}"
        config = {
            "application.id": name,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(state),
            "processing.guarantee": "exactly_once_v2",
            "commit.interval.ms": 100,
        }
        with KafkaStreams(telling(name), config) as client:
            client.wait_until_running(SOON)
            for partition in (0, 1):
                for key, value, at in records(partition, round_):
                    producer.send(f"{name}-in", value.encode(), key.encode(), None, partition, at)
            producer.flush()
            wait_until(lambda n=600 * (round_ + 1): counted(client) == n, "all is counted", 60)  # type: ignore[misc]
        shutil.rmtree(state)
    producer.close()
    expected = []
    for partition in (0, 1):
        home = MemoryHome()
        fed(task_of(plan_of(telling(name)), home), records(partition, 0) + records(partition, 1))
        expected += [((each.key or b"").decode(), (each.value or b"").decode()) for _, each in home.left]
    found = read(kafka, f"{name}-out")
    assert [pair for pair in found if pair not in expected] == []
    assert sorted(found) == sorted(expected)


class Ticking(Processor):
    """Forwards the time without any record, has that committed, and notes when it is closed."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(timedelta(milliseconds=20), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))
        self.context.commit()

    def process(self, record: Record) -> None:
        self.context.forward(record)

    def close(self) -> None:
        self.place.touch()


def test_the_clock_needs_no_record_and_a_commit_no_interval(
    kafka: EmbeddedKafka, tmp_path: Path, name: str
) -> None:
    """As often as the program says; what is forwarded is committed when it asks for that. In the end the
    processor is closed."""
    for topic in ("in", "out"):
        kafka.create_topic(f"{name}-{topic}", 1)
    builder = StreamsBuilder()
    stream = builder.stream(f"{name}-in", Consumed.with_(TEXT, TEXT))
    stream.process(partial(Ticking, tmp_path / "closed")).to(f"{name}-out", Produced.with_(TEXT, TEXT))
    config = {
        "application.id": name,
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(tmp_path / "state"),
        "processing.guarantee": "exactly_once_v2",
        "commit.interval.ms": 600_000,
    }
    consumer = KafkaConsumer(
        f"{name}-out",
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    ticks: list[int] = []

    def ticked() -> bool:
        for batch in consumer.poll(100).values():
            ticks.extend(int(record.value) for record in batch)
        return len(ticks) > 50

    with KafkaStreams(builder.build(), config) as client:
        client.wait_until_running(SOON)
        wait_until(ticked, "the clock has been heard", 60)
    consumer.close()
    wait_until((tmp_path / "closed").exists, "the processor is closed", 60)
    assert ticks == sorted(set(ticks))


class Keeping(Processor):
    """Fills a store with what others have written, and reads it for records of another topic."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.prices = context.get_state_store("prices")

    def process(self, record: Record) -> None:
        if record.value == "?":
            self.context.forward(record.with_value(f"is {self.prices.get(record.key)}"))
        else:
            self.prices.put(record.key, record.value)
            self.context.forward(record)


def pricing(name: str) -> Topology:
    kept = Stores.key_value_store_builder(Stores.persistent_key_value_store("prices"), TEXT, TEXT)
    topology = Topology().add_read_only_state_store(
        kept, "prices-in", f"{name}-prices", "fill", Keeping, key_serde=TEXT, value_serde=TEXT
    )
    topology.add_source("in", f"{name}-in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("read", Keeping, "in")
    topology.connect_processor_and_state_stores("read", "prices")
    return topology.add_sink("out", f"{name}-out", "read", "fill")


def test_a_read_only_store_goes_on_from_its_topic(kafka: EmbeddedKafka, tmp_path: Path, name: str) -> None:
    """KIP-813: up to where the task has read it, without a changelog and without a disk."""
    for topic in ("prices", "in", "out"):
        kafka.create_topic(f"{name}-{topic}", 1)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    expected: list[tuple[str, str]] = []
    for round_, prices in enumerate(((1, 2), (3,))):
        config = {
            "application.id": name,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(tmp_path / f"state-{round_}"),
            "commit.interval.ms": 100,
        }
        with KafkaStreams(pricing(name), config) as client:
            client.wait_until_running(SOON)
            for number in prices:
                producer.send(f"{name}-prices", b"%d" % number, b"k%d" % number)
                expected.append((f"k{number}", str(number)))
            wait_until(lambda: read(kafka, f"{name}-out") == expected, "the prices are there", 60)
            for number in (1, 2, 3):
                producer.send(f"{name}-in", b"?", b"k%d" % number)
                expected.append((f"k{number}", f"is {number if number in (1, 2, *prices) else None}"))
            wait_until(lambda: read(kafka, f"{name}-out") == expected, "all is answered", 60)
        shutil.rmtree(tmp_path / f"state-{round_}")
    producer.close()
