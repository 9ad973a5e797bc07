"""The producer that demonstrations and tools write with: each record once, and a failure is told."""

from __future__ import annotations

import time

import pytest

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException
from millstream.kafka.producer import RecordProducer
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition

pytestmark = pytest.mark.kafka


def config(servers: str, **options: object) -> StreamsConfig:
    return StreamsConfig({"application.id": "producer", "bootstrap.servers": servers, **options})


def test_each_record_is_written_once(kafka: EmbeddedKafka) -> None:
    """More than fit into the client's queue; the topic's ends add up to what was sent."""
    kafka.create_topic("produced", 3)
    settings = config(kafka.bootstrap_servers, **{"producer.queue.buffering.max.messages": 5_000})
    with RecordProducer(settings) as producer:
        for number in range(20_000):
            producer.send("produced", b"%d" % number, key=None if number % 2 else b"k")
        producer.flush()
        topics = KafkaTopics(settings)
        ends = topics.end_offsets([TopicPartition("produced", number) for number in range(3)])
        topics.close()
    assert sum(ends.values()) == 20_000


def test_a_record_that_cannot_be_written_is_told(kafka: EmbeddedKafka) -> None:
    """A topic that does not exist is not created, and flush() says so."""
    settings = config(kafka.bootstrap_servers, **{"request.timeout.ms": 3_000})
    with RecordProducer(settings) as producer:
        producer.send("nowhere", b"x")
        with pytest.raises(StreamsException, match="could not"):
            producer.flush()
    assert "nowhere" not in kafka.topics()


def test_a_cluster_that_is_not_there_is_told_in_time() -> None:
    """With its address."""
    began = time.monotonic()
    with RecordProducer(config("127.0.0.1:1", **{"request.timeout.ms": 500})) as producer:
        producer.send("lines", b"x")
        with pytest.raises(StreamsException, match=r"127\.0\.0\.1:1"):
            producer.flush()
    assert time.monotonic() - began < 10


def test_a_closed_producer_drops_what_was_not_written() -> None:
    """And takes nothing any more; closing twice is fine."""
    producer = RecordProducer(config("127.0.0.1:1"))
    producer.send("lines", b"x")
    producer.close()
    producer.close()
    with pytest.raises(IllegalStateException, match="closed"):
        producer.send("lines", b"y")
