"""The store updater on a real broker and RocksDB: over restarts and re-creation of the changelog."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.model import TaskId, TopicPartition
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import to_stored
from millstream.stores.updater import StoreUpdater

pytestmark = pytest.mark.kafka

SOON = 30.0
Changes = list[tuple[bytes, bytes | None, int]]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells; with a deadline."""
    wait_until(condition, "it happens", SOON, every_s=0.01)


class Changelog:
    """A compacted topic with two partitions, and what its tables should hold."""

    def __init__(self, kafka: EmbeddedKafka) -> None:
        self.kafka = kafka
        self.topic = f"updater-test-{uuid.uuid4().hex[:8]}-changelog"
        self.tables: list[dict[bytes, bytes]] = [{}, {}]
        self._producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})
        self.create()

    def create(self) -> None:
        self.kafka.create_topic(self.topic, 2, {"cleanup.policy": "compact"})
        self.tables = [{}, {}]

    def partition(self, number: int) -> TopicPartition:
        return TopicPartition(self.topic, number)

    def write(self, number: int, changes: Changes) -> None:
        for key, value, timestamp in changes:
            self._producer.produce(
                self.topic,
                value,
                key,
                number,
                timestamp=timestamp,
            )
            self._producer.poll(0)
            if value is None:
                self.tables[number].pop(key, None)
            else:
                self.tables[number][key] = to_stored(value, timestamp)
        assert self._producer.flush(SOON) == 0


class Client:
    """A consumer, an updater and two stores on disk."""

    def __init__(self, changelog: Changelog, path: Path) -> None:
        self.changelog = changelog
        config = StreamsConfig(
            {"application.id": "updater-test", "bootstrap.servers": changelog.kafka.bootstrap_servers}
        )
        self.failures: list[BaseException] = []
        self.restoring: list[TopicPartition] = []
        self.updater = StoreUpdater(
            "updater-test-StateUpdater",
            KafkaChangelogConsumer(config),
            on_failure=self.failures.append,
            on_restoring=self.restoring.append,
        )
        self.stores = [RocksDBStore("counts", TaskId(1, n), path / f"1_{n}") for n in range(2)]
        for number, store in enumerate(self.stores):
            self.updater.add(store, changelog.partition(number))
        self.updater.start()

    def equals_the_changelog(self) -> bool:
        return [dict(store.range(None, None)) for store in self.stores] == self.changelog.tables

    def close(self) -> None:
        self.updater.close()
        for store in self.stores:
            store.close()
        assert self.failures == []


@pytest.fixture
def changelog(kafka: EmbeddedKafka) -> Iterator[Changelog]:
    made = Changelog(kafka)
    yield made
    kafka.delete_topic(made.topic)


def changes(first: int, end: int) -> Changes:
    return [
        (b"k%d" % (i % 97), None if i % 10 == 0 else b"v%d" % i, 1_700_000_000_000 + i)
        for i in range(first, end)
    ]


def test_a_store_equals_its_changelog_over_restarts(changelog: Changelog, tmp_path: Path) -> None:
    """Restored, followed, and after a restart only what is new is read."""
    changelog.write(0, changes(0, 2000))
    changelog.write(1, changes(0, 500))
    client = Client(changelog, tmp_path)
    assert client.updater.wait_until_restored(SOON)
    assert client.equals_the_changelog()
    assert client.updater.records_applied == 2500
    changelog.write(1, changes(500, 700))
    eventually(client.equals_the_changelog)
    client.close()
    changelog.write(0, changes(2000, 2300))
    again = Client(changelog, tmp_path)
    assert again.updater.wait_until_restored(SOON)
    assert again.equals_the_changelog()
    assert again.updater.records_applied == 300
    assert [store.position for store in again.stores] == [2300, 700]
    again.close()


def test_a_changelog_that_was_made_anew_while_the_client_was_away_is_restored_anew(
    changelog: Changelog, tmp_path: Path
) -> None:
    """The saved position is beyond its end: wiped, nothing of the old one stays."""
    changelog.write(0, changes(0, 300))
    client = Client(changelog, tmp_path)
    assert client.updater.wait_until_restored(SOON)
    client.close()
    changelog.kafka.delete_topic(changelog.topic)
    eventually(lambda: changelog.topic not in changelog.kafka.topics())
    changelog.create()
    changelog.write(0, [(b"new", b"1", 1)])
    again = Client(changelog, tmp_path)
    assert again.updater.wait_until_restored(SOON)
    assert again.equals_the_changelog()
    again.close()


def test_closing_takes_no_longer_than_a_moment(changelog: Changelog, tmp_path: Path) -> None:
    """It is waiting for records that do not come."""
    client = Client(changelog, tmp_path)
    assert client.updater.wait_until_restored(SOON)
    started = time.monotonic()
    client.close()
    assert time.monotonic() - started < 5.0
