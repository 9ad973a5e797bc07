"""`ports.ChangelogConsumer` on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient
from forgetful_broker import ForgetfulBroker
from kafka import KafkaProducer
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.kafka.topics import KafkaTopics
from millstream.model import PARTS_HEADER, PARTS_OF_NULL, TopicPartition
from millstream.ports import ChangelogBatch, OffsetOutOfRange

pytestmark = pytest.mark.kafka

DEADLINE_S = 20.0


@pytest.fixture
def consumer(kafka: EmbeddedKafka) -> Iterator[KafkaChangelogConsumer]:
    made = KafkaChangelogConsumer(
        StreamsConfig({"application.id": "consumer-test", "bootstrap.servers": kafka.bootstrap_servers})
    )
    yield made
    made.close()


@pytest.fixture
def producer(kafka: EmbeddedKafka) -> Producer:
    return Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 5})


@pytest.fixture
def topic(kafka: EmbeddedKafka) -> str:
    """One that the application owns, by its name."""
    name = f"consumer-test-{uuid.uuid4().hex[:12]}-changelog"
    kafka.create_topic(name, 2)
    return name


@pytest.fixture
def forgetful(kafka: EmbeddedKafka) -> Iterator[ForgetfulBroker]:
    made = ForgetfulBroker(kafka.bootstrap_servers)
    yield made
    made.close()


def poll_until(
    consumer: KafkaChangelogConsumer, enough: Callable[[list[ChangelogBatch]], bool]
) -> list[ChangelogBatch]:
    """Batches until there are enough."""
    batches: list[ChangelogBatch] = []
    deadline = time.monotonic() + DEADLINE_S
    while not enough(batches):
        assert time.monotonic() < deadline, f"only {batches}"
        batches += consumer.poll(0.2)
    return batches


def entries(
    batches: list[ChangelogBatch], partition: TopicPartition
) -> list[tuple[bytes, bytes | None, int]]:
    return [entry for batch in batches if batch.partition == partition for entry in batch.entries]


def count(batches: list[ChangelogBatch]) -> int:
    return sum(len(batch.entries) for batch in batches)


def test_records_come_in_order_with_key_value_and_timestamp(
    consumer: KafkaChangelogConsumer, producer: Producer, topic: str
) -> None:
    """Reading starts at the beginning, a tombstone is None, and `next_offset` is after the last record."""
    for number in range(5):
        producer.produce(
            topic, None if number == 3 else b"v%d" % number, b"k%d" % number, 0, timestamp=100 + number
        )
    producer.flush(10)
    first = TopicPartition(topic, 0)
    consumer.assign({first: None})
    batches = poll_until(consumer, lambda batches: count(batches) >= 5)
    assert entries(batches, first) == [
        (b"k%d" % number, None if number == 3 else b"v%d" % number, 100 + number) for number in range(5)
    ]
    assert max(batch.next_offset for batch in batches) == 5


def test_an_empty_value_is_null_where_a_header_says_so_in_our_topics_alone(
    kafka: EmbeddedKafka, consumer: KafkaChangelogConsumer, producer: Producer, topic: str
) -> None:
    """In a topic of somebody else's, which is a table's changelog too, headers say nothing: not even those
    whose names no text can be."""

    class NoText(str):
        """The key of a header that is not UTF-8."""

        def encode(self, *_: object) -> bytes:
            return b"\xff\xfe"

    theirs = f"orders-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(theirs, 1)
    some: list[tuple[bytes, list[tuple[str, bytes | None]]]] = [
        (b"", [(PARTS_HEADER, PARTS_OF_NULL)]),
        (b"", [("x", b"1"), (PARTS_HEADER, PARTS_OF_NULL + b"{}"), ("y", None)]),
        (b"v", [(PARTS_HEADER, PARTS_OF_NULL)]),
        (b"", [(PARTS_HEADER, None)]),
        (b"", [("x", PARTS_OF_NULL)]),
        (b"", []),
    ]
    for number, (value, headers) in enumerate(some):
        for where in (topic, theirs):
            producer.produce(where, value, b"k", 0, timestamp=number, headers=list(headers))
    producer.flush(10)
    raw = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for where in (topic, theirs):
        raw.send(where, b"", b"k", headers=[(NoText("x"), b"")] * 1000, partition=0, timestamp_ms=8).get(10)
    raw.close()
    ours, foreign = TopicPartition(topic, 0), TopicPartition(theirs, 0)
    consumer.assign({ours: None, foreign: None})
    batches = poll_until(consumer, lambda batches: count(batches) >= 2 * len(some) + 2)
    assert [value for _, value, _ in entries(batches, ours)] == [None, None, b"v", b"", b"", b"", b""]
    assert [value for _, value, _ in entries(batches, foreign)] == [b"", b"", b"v", b"", b"", b"", b""]


def test_reading_goes_on_from_the_offset_given(
    consumer: KafkaChangelogConsumer, producer: Producer, topic: str
) -> None:
    """Another assignment replaces all of the first one."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    for number in range(6):
        for partition in (first, second):
            producer.produce(topic, b"v", b"%d" % number, partition.partition)
    producer.flush(10)
    consumer.assign({first: 4, second: 5})
    batches = poll_until(consumer, lambda batches: count(batches) >= 3)
    assert [entry[0] for entry in entries(batches, first)] == [b"4", b"5"]
    assert [entry[0] for entry in entries(batches, second)] == [b"5"]
    consumer.assign({second: 3})
    batches = poll_until(consumer, lambda batches: count(batches) >= 3)
    assert {batch.partition for batch in batches} == {second}


def test_one_poll_gives_a_batch_per_partition_and_no_more_records_than_asked(
    consumer: KafkaChangelogConsumer, producer: Producer, topic: str
) -> None:
    """Memory is bounded."""
    for number in range(100):
        producer.produce(topic, b"v", b"%d" % number, number % 2)
    producer.flush(10)
    consumer.assign({TopicPartition(topic, 0): None, TopicPartition(topic, 1): None})
    seen, deadline = 0, time.monotonic() + DEADLINE_S
    while seen < 100:
        assert time.monotonic() < deadline
        batches = consumer.poll(0.2, 30)
        assert len({batch.partition for batch in batches}) == len(batches)
        assert count(batches) <= 30
        seen += count(batches)


def test_a_record_without_a_key_moves_the_position_only(
    consumer: KafkaChangelogConsumer, producer: Producer, topic: str
) -> None:
    """A source topic that serves as a changelog may have them; a table does not."""
    producer.produce(topic, b"v", None, 0)
    producer.flush(10)
    consumer.assign({TopicPartition(topic, 0): None})
    batches = poll_until(consumer, bool)
    assert [(list(batch.entries), batch.next_offset) for batch in batches] == [([], 1)]


def test_the_end_behind_offsets_that_are_no_records_is_told(
    consumer: KafkaChangelogConsumer, kafka: EmbeddedKafka, topic: str
) -> None:
    """A transaction's marker takes an offset: a batch without entries moves the position past it, once."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce(topic, b"v", b"k", 0)
    producer.commit_transaction(10)
    partition = TopicPartition(topic, 0)
    deadline = time.monotonic() + DEADLINE_S
    while consumer.end_offsets([partition]) != {partition: 2}:  # the marker is written after the commit
        assert time.monotonic() < deadline
    consumer.assign({partition: None})
    batches = poll_until(consumer, lambda batches: any(batch.next_offset == 2 for batch in batches))
    assert count(batches) == 1
    assert consumer.poll(0.5) == []


def test_every_partition_written_in_one_transaction_is_read_to_its_end(
    kafka: EmbeddedKafka, producer: Producer
) -> None:
    """Ends of partitions may come between records of other partitions that have more to read."""
    name = f"in-one-transaction-{uuid.uuid4().hex[:12]}"
    kafka.create_topic(name, 16)
    parts = [TopicPartition(name, number) for number in range(16)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": name})
    producer.init_transactions(10)
    producer.begin_transaction()
    for number in range(5_000):
        producer.produce(name, b"v", b"k", number if number < len(parts) else 0)
    producer.commit_transaction(20)
    options = {
        "application.id": "consumer-test",
        "bootstrap.servers": kafka.bootstrap_servers,
        "restore.consumer.max.partition.fetch.bytes": "1000",
    }
    consumer = KafkaChangelogConsumer(StreamsConfig(options))
    try:
        ends = dict.fromkeys(parts, 2) | {parts[0]: 5_000 - 15 + 1}
        wait_until(lambda: consumer.end_offsets(parts) == ends, "the markers are written", DEADLINE_S)
        consumer.assign(dict.fromkeys(parts))
        assert consumer.end_offsets(parts) == ends  # meanwhile, records arrive
        reached: dict[TopicPartition, int] = {}

        def at_ends() -> bool:
            reached.update((batch.partition, batch.next_offset) for batch in consumer.poll(0.2))
            return reached == ends

        wait_until(at_ends, "all partitions are read", DEADLINE_S)
    finally:
        consumer.close()


def test_the_end_of_an_empty_partition_is_told_once(consumer: KafkaChangelogConsumer, topic: str) -> None:
    """The end has the partition's offset."""
    partition = TopicPartition(topic, 0)
    consumer.assign({partition: None})
    (batch,) = poll_until(consumer, bool)
    assert (batch.partition, list(batch.entries), batch.next_offset) == (partition, [], 0)


def test_nothing_new_is_an_empty_list_after_the_timeout(consumer: KafkaChangelogConsumer, topic: str) -> None:
    """The list is not returned earlier, nor much later."""
    consumer.assign({TopicPartition(topic, 0): 0})
    poll_started = time.monotonic()
    assert consumer.poll(0.3) == []
    assert time.monotonic() - poll_started < 3


def test_a_record_is_there_at_once(consumer: KafkaChangelogConsumer, producer: Producer, topic: str) -> None:
    """A poll returns with the first record, it does not wait for more."""
    consumer.assign({TopicPartition(topic, 0): 0})
    consumer.poll(0.5)
    latencies = []
    for _ in range(10):
        before = time.monotonic()
        producer.produce(topic, b"v", b"k", 0)
        producer.flush(10)
        poll_until(consumer, lambda batches: count(batches) > 0)
        latencies.append(time.monotonic() - before)
    assert sorted(latencies)[5] < 0.2


@pytest.mark.parametrize("position", [2, 99])
def test_a_position_that_the_log_does_not_have_is_out_of_range(
    position: int, consumer: KafkaChangelogConsumer, producer: Producer, kafka: EmbeddedKafka, topic: str
) -> None:
    """It is before the first record, as after truncation, or after the end, as in a recreated topic."""
    for _ in range(10):
        producer.produce(topic, b"v", b"k", 0)
    producer.flush(10)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    for future in admin.delete_records([NativePartition(topic, 0, 5)]).values():
        future.result(10)
    partition = TopicPartition(topic, 0)
    assert consumer.beginning_offsets([partition]) == {partition: 5}
    consumer.assign({partition: position})
    with pytest.raises(OffsetOutOfRange) as raised:
        poll_until(consumer, bool)
    assert raised.value.partition == partition
    assert f"position {position} of changelog partition '{partition}'" in str(raised.value)
    # The consumer goes on from where it is told to.
    consumer.assign({partition: 5})
    assert count(poll_until(consumer, lambda batches: count(batches) >= 5)) == 5


def test_a_topic_that_does_not_exist_is_an_error_that_names_it(kafka: EmbeddedKafka) -> None:
    """The topic is not created."""
    consumer = KafkaChangelogConsumer(
        StreamsConfig(
            {
                "application.id": "a",
                "bootstrap.servers": kafka.bootstrap_servers,
            }
        )
    )
    consumer.assign({TopicPartition("no-such-topic", 0): 0})
    with pytest.raises(StreamsException, match="changelog 'no-such-topic' no longer exists"):
        poll_until(consumer, bool)
    consumer.close()
    assert "no-such-topic" not in kafka.topics()


def test_a_topic_that_is_deleted_while_it_is_read_is_an_error(
    consumer: KafkaChangelogConsumer, producer: Producer, kafka: EmbeddedKafka, topic: str
) -> None:
    """librdkafka alone would be silent."""
    producer.produce(topic, b"v", b"k", 0)
    producer.flush(10)
    consumer.assign({TopicPartition(topic, 0): None})
    poll_until(consumer, bool)
    kafka.delete_topic(topic)
    with pytest.raises(StreamsException, match=f"changelog '{topic}'"):
        poll_until(consumer, lambda batches: False)


def test_a_broker_that_is_away_raises_nothing() -> None:
    """It may come back; asking for offsets has a deadline."""
    consumer = KafkaChangelogConsumer(
        StreamsConfig(
            {"application.id": "a", "bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": "300"}
        )
    )
    partition = TopicPartition("t", 0)
    consumer.assign({partition: 0})
    for _ in range(3):
        assert consumer.poll(0.1) == []
    with pytest.raises(StreamsException, match=r"bootstrap\.servers is '127\.0\.0\.1:1'"):
        consumer.end_offsets([partition])
    consumer.close()


def test_an_only_broker_that_says_there_are_none_is_found_again(
    forgetful: ForgetfulBroker, producer: Producer, topic: str
) -> None:
    """librdkafka alone may never ask anybody again. Reading goes on where it was, and offsets are told."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = KafkaChangelogConsumer(
        StreamsConfig(
            {
                "application.id": "consumer-test",
                "bootstrap.servers": forgetful.bootstrap_servers,
                "restore.consumer.metadata.recovery.strategy": "none",
            }
        )
    )
    try:
        consumer.assign({first: None, second: None})
        producer.produce(topic, b"v", b"before", 0)
        producer.flush(10)
        before = poll_until(consumer, lambda batches: count(batches) >= 1)
        forgetful.knows_brokers = False
        wait_until(lambda: consumer.poll(0.05) == [] and forgetful.denied >= 1, "it hears of no brokers")
        forgetful.knows_brokers = True
        producer.produce(topic, b"v", b"after", 0)
        producer.produce(topic, b"v", b"the other", 1)
        producer.flush(10)
        after = poll_until(consumer, lambda batches: count(batches) >= 2)
        assert [key for key, _, _ in entries(before + after, first)] == [b"before", b"after"]
        assert [key for key, _, _ in entries(after, second)] == [b"the other"]

        forgetful.knows_brokers = False
        denied = forgetful.denied
        wait_until(lambda: consumer.poll(0.05) == [] and forgetful.denied > denied, "and again")
        forgetful.knows_brokers = True
        assert consumer.end_offsets([first, second]) == {first: 2, second: 1}
    finally:
        consumer.close()


def test_a_broker_that_is_only_starting_is_asked_for_offsets_again(
    forgetful: ForgetfulBroker, producer: Producer, topic: str
) -> None:
    """Whichever of its errors it answers with: Java's client asks again after these. A refusal that will not
    end is told at once, with the partition."""
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer = KafkaChangelogConsumer(
        StreamsConfig({"application.id": "consumer-test", "bootstrap.servers": forgetful.bootstrap_servers})
    )
    topics = KafkaTopics(
        StreamsConfig({"application.id": "consumer-test", "bootstrap.servers": forgetful.bootstrap_servers})
    )
    again = (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    )
    try:
        producer.produce(topic, b"v", b"k", 1)
        producer.flush(10)
        for ask in (consumer.end_offsets, topics.end_offsets):
            forgetful.refusals += again
            assert ask([first, second]) == {first: 0, second: 1}
            assert forgetful.refusals == []
        forgetful.refusals += [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2
        with pytest.raises(StreamsException, match=f"offsets of '{topic}-.*TOPIC_AUTHORIZATION_FAILED"):
            consumer.end_offsets([first, second])
    finally:
        topics.close()
        consumer.close()


def test_the_offsets_of_many_partitions_are_asked_for_at_once(
    kafka: EmbeddedKafka, consumer: KafkaChangelogConsumer, producer: Producer
) -> None:
    """The broker answers after the fetch under way, a tenth of a second; asked for one after the other, those
    of 30 partitions would take three seconds, and with them a standby that becomes active."""
    kafka.create_topic("offsets-of-many", 30)
    partitions = [TopicPartition("offsets-of-many", number) for number in range(30)]
    for number in range(30):
        for _ in range(number):
            producer.produce("offsets-of-many", b"v", b"k", number)
    producer.flush(10)
    consumer.assign({partition: partition.partition for partition in partitions})
    for _ in range(3):
        consumer.poll(0.1)  # at the ends, so that fetches wait
    begun = time.monotonic()
    assert consumer.end_offsets(partitions) == {each: each.partition for each in partitions}
    assert consumer.beginning_offsets(partitions) == dict.fromkeys(partitions, 0)
    assert consumer.end_offsets([]) == {}
    assert time.monotonic() - begun < 1.5


def test_nothing_is_committed_and_no_group_is_made(
    consumer: KafkaChangelogConsumer, producer: Producer, kafka: EmbeddedKafka, topic: str
) -> None:
    """The application's group belongs to its members."""
    producer.produce(topic, b"v", b"k", 0)
    producer.flush(10)
    consumer.assign({TopicPartition(topic, 0): None})
    poll_until(consumer, bool)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    groups = admin.list_consumer_groups(request_timeout=10).result(10).valid
    assert "consumer-test" not in {group.group_id for group in groups}


def test_a_closed_one_says_so(consumer: KafkaChangelogConsumer) -> None:
    """Closing it twice is allowed."""
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalStateException, match="closed"):
        consumer.poll(0)
