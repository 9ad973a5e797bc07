"""The offsets of a source topic's records, by which a record that cannot be read is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from millstream import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.model import TopicPartition


@dataclass
class Message:
    """As librdkafka gives it."""

    at: tuple[str, int]
    number: int
    of: bytes | None = b"k"

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.of

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return 1, 5

    def error(self) -> Any:
        return None


def test_each_entry_of_a_source_topic_has_its_offset() -> None:
    """Markers of transactions, null keys and records of other partitions may come in between."""
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "localhost:1"})
    consumer = KafkaChangelogConsumer(config)
    first, second = ("users", 0), ("users", 1)
    messages = [Message(first, 3), Message(first, 5, None), Message(second, 0), Message(first, 7)]
    batches = {each.partition: each for each in consumer._batches(messages)}
    consumer.close()
    one, other = batches[TopicPartition("users", 0)], batches[TopicPartition("users", 1)]
    assert (list(one.offsets), len(one.entries), one.next_offset) == ([3, 7], 2, 8)
    assert (list(other.offsets), len(other.entries), other.next_offset) == ([0], 1, 1)
