"""`ports.ChangelogConsumer`: the fake and a real broker keep one contract."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fake_ports import FakeChangelogConsumer, FakeLog
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.model import TopicPartition
from millstream.ports import ChangelogBatch, ChangelogConsumer, OffsetOutOfRange

Entry = tuple[bytes, bytes | None, int]


@dataclass
class Changelog:
    """A consumer, and a topic of two partitions that others write.

    write: records.
    gap: an offset that is no record.
    """

    consumer: ChangelogConsumer
    partitions: tuple[TopicPartition, TopicPartition]
    write: Callable[..., None]
    gap: Callable[[TopicPartition], None]
    truncate: Callable[[TopicPartition, int], None]

    def read(self, records: int) -> list[ChangelogBatch]:
        """Batches, until so many records have come."""
        batches: list[ChangelogBatch] = []

        def enough() -> bool:
            batches.extend(self.consumer.poll(0.2))
            return sum(len(batch.entries) for batch in batches) >= records

        wait_until(enough, f"{records} records", 30)
        return batches


def entries(batches: list[ChangelogBatch], partition: TopicPartition) -> list[Entry]:
    return [entry for batch in batches if batch.partition == partition for entry in batch.entries]


def fake() -> Iterator[Changelog]:
    log = FakeLog()
    consumer = FakeChangelogConsumer(log)
    partitions = (TopicPartition("app-counts-changelog", 0), TopicPartition("app-counts-changelog", 1))

    def write(at: TopicPartition, *records: Entry) -> None:
        log.append(at, *records)

    yield Changelog(consumer, partitions, write, lambda at: log.gap(at) and None, log.truncate)


def real(kafka: EmbeddedKafka) -> Iterator[Changelog]:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as Native
    from confluent_kafka.admin import AdminClient

    from millstream.config import StreamsConfig
    from millstream.kafka.consumer import KafkaChangelogConsumer

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    application = f"contract-{uuid.uuid4().hex[:10]}"
    topic = f"{application}-counts-changelog"
    kafka.create_topic(topic, 2)
    producer, admin = Producer(servers), AdminClient(servers)
    in_transactions = Producer({**servers, "transactional.id": topic})
    in_transactions.init_transactions(30)
    ends = Consumer({**servers, "group.id": application})
    consumer = KafkaChangelogConsumer(StreamsConfig({"application.id": application, **servers}))

    def write(at: TopicPartition, *records: Entry) -> None:
        for key, value, stamp in records:
            producer.produce(at.topic, value, key, at.partition, timestamp=stamp)
        assert producer.flush(20) == 0

    def end_of(at: TopicPartition) -> int:
        return int(ends.get_watermark_offsets(Native(at.topic, at.partition), 10)[1])

    def gap(at: TopicPartition) -> None:
        """A transaction that was given up: its record is skipped, and so is its marker."""
        before = end_of(at)
        in_transactions.begin_transaction()
        in_transactions.produce(at.topic, b"never", b"k", at.partition)
        in_transactions.flush(20)
        in_transactions.abort_transaction(20)
        wait_until(lambda: end_of(at) == before + 2, "the transaction's marker is there", 20)

    def truncate(at: TopicPartition, first: int) -> None:
        for future in admin.delete_records([Native(at.topic, at.partition, first)]).values():
            future.result(20)

    yield Changelog(consumer, (TopicPartition(topic, 0), TopicPartition(topic, 1)), write, gap, truncate)
    consumer.close()
    ends.close()


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def changelog(request: pytest.FixtureRequest) -> Iterator[Changelog]:
    yield from fake() if request.param == "fake" else real(request.getfixturevalue("kafka"))


def some(*numbers: int) -> list[Entry]:
    """Records; each third one deletes its key."""
    return [(b"k%d" % each, None if each % 3 == 2 else b"v%d" % each, 100 + each) for each in numbers]


def test_each_partition_is_read_in_order_from_where_it_was_asked_to(changelog: Changelog) -> None:
    """Reading starts at the beginning or at an offset and continues at `next_offset`. The value None deletes.
    Reading starts at the beginning or at an offset and continues at `next_offset`. The value None deletes."""
    first, second = changelog.partitions
    changelog.write(first, *some(0, 1, 2, 3))
    changelog.write(second, *some(10, 11, 12))
    changelog.consumer.assign({first: None, second: 1})
    batches = changelog.read(6)
    assert entries(batches, first) == some(0, 1, 2, 3)
    assert entries(batches, second) == some(11, 12)
    reached = {batch.partition: batch.next_offset for batch in batches}
    assert reached == {first: 4, second: 3}
    changelog.write(first, *some(4))
    assert entries(changelog.read(1), first) == some(4)


def test_what_is_assigned_replaces_what_was(changelog: Changelog) -> None:
    """A partition that is assigned again starts at the offset of the new assignment."""
    first, second = changelog.partitions
    changelog.write(first, *some(0, 1))
    changelog.write(second, *some(10))
    changelog.consumer.assign({first: None})
    assert entries(changelog.read(2), first) == some(0, 1)
    changelog.consumer.assign({second: 0, first: 1})
    batches = changelog.read(2)
    assert (entries(batches, first), entries(batches, second)) == (some(1), some(10))
    changelog.consumer.assign({})
    changelog.write(first, *some(2))
    assert changelog.consumer.poll(0.05) == []


def test_a_poll_without_news_ends_at_its_deadline_and_with_news_at_once(changelog: Changelog) -> None:
    """It is empty then, and no error."""
    first, _ = changelog.partitions
    changelog.consumer.assign({first: None})
    assert changelog.consumer.poll(0.01) == []
    changelog.write(first, *some(0))
    began = time.monotonic()
    assert entries(changelog.read(1), first) == some(0)
    assert time.monotonic() - began < 10


def test_a_poll_gives_no_more_records_than_it_was_asked_for(changelog: Changelog) -> None:
    """The limit counts for all partitions together; later polls return the rest, in order."""
    changelog.write(changelog.partitions[0], *some(*range(20)))
    changelog.write(changelog.partitions[1], *some(*range(20)))
    changelog.consumer.assign(dict.fromkeys(changelog.partitions))
    found: list[ChangelogBatch] = []

    def all_of_them() -> bool:
        batches = changelog.consumer.poll(0.2, 7)
        assert sum(len(batch.entries) for batch in batches) <= 7
        found.extend(batches)
        return sum(len(batch.entries) for batch in found) == 40

    wait_until(all_of_them, "all records, at most seven at a time", 30)
    for partition in changelog.partitions:
        assert entries(found, partition) == some(*range(20))


def test_offsets_that_are_no_records_are_passed(changelog: Changelog) -> None:
    """Markers of transactions and uncommitted records are skipped."""
    first, _ = changelog.partitions
    changelog.write(first, *some(0))
    changelog.gap(first)
    changelog.write(first, *some(1))
    changelog.consumer.assign({first: None})
    batches = changelog.read(2)
    assert entries(batches, first) == some(0, 1)
    assert batches[-1].next_offset == changelog.consumer.end_offsets([first])[first]


def test_a_position_that_is_not_in_the_log_is_told_with_its_partition(changelog: Changelog) -> None:
    """Truncated before it, or the topic made anew and shorter; the beginning is what is left."""
    first, second = changelog.partitions
    changelog.write(first, *some(0, 1, 2, 3))
    changelog.truncate(first, 2)
    assert changelog.consumer.beginning_offsets([first, second]) == {first: 2, second: 0}
    assert changelog.consumer.end_offsets([first, second]) == {first: 4, second: 0}
    for position in (0, 9):
        changelog.consumer.assign({first: position})

        def told() -> OffsetOutOfRange | None:
            try:
                changelog.consumer.poll(0.2)
            except OffsetOutOfRange as error:
                return error
            return None

        assert wait_until(told, f"position {position} is out of range", 20).partition == first
    changelog.consumer.assign({first: None})
    assert entries(changelog.read(2), first) == some(2, 3)


def test_a_consumer_is_closed_more_than_once(changelog: Changelog) -> None:
    """Whether it had anything to read or not."""
    changelog.consumer.close()
    changelog.consumer.close()
