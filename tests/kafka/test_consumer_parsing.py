"""What the changelog consumer makes of messages, whatever is in them. Pure: no broker is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.model import PARTS_HEADER, PARTS_OF_NULL, TaskId, TopicPartition, is_of_null
from millstream.stores.memory_store import MemoryStore

OURS, THEIRS = TopicPartition("app-counts-changelog", 0), TopicPartition("orders", 0)
INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.just(b""), st.just(PARTS_OF_NULL))
HEADERS = st.lists(st.tuples(st.sampled_from((PARTS_HEADER, "", "h")), BYTES), max_size=4)


@dataclass
class Message:
    """As confluent-kafka gives one."""

    where: TopicPartition
    at: int
    the_key: bytes | None
    the_value: bytes | None
    time: int
    the_headers: list[tuple[str, bytes | None]] | None

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.the_key

    def value(self) -> bytes | None:
        return self.the_value

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        assert self.where == OURS, "headers of others are not even looked at"
        return self.the_headers


class End(Message):
    """How librdkafka says, once for each position, that a partition has no more: a message with an error."""

    def __init__(self, where: TopicPartition, at: int) -> None:
        super().__init__(where, at, None, None, 0, None)

    def error(self) -> KafkaError:  # type: ignore[override]
        return KafkaError(KafkaError._PARTITION_EOF)


def interleavings(queues: tuple[tuple[Message, ...], ...]) -> Iterator[tuple[Message, ...]]:
    """Every order in which the messages may come, if each queue keeps its own."""
    if not any(queues):
        yield ()
    for at, queue in enumerate(queues):
        if queue:
            for rest in interleavings((*queues[:at], queue[1:], *queues[at + 1 :])):
                yield (queue[0], *rest)


ANY_HEADERS = st.one_of(st.none(), HEADERS)
MESSAGES = st.lists(st.tuples(st.sampled_from((OURS, THEIRS)), BYTES, BYTES, INT64, ANY_HEADERS), max_size=30)


@pytest.fixture(scope="module")
def consumer() -> Iterator[KafkaChangelogConsumer]:
    """One that nobody answers."""
    made = KafkaChangelogConsumer(
        StreamsConfig({"application.id": "app", "bootstrap.servers": "127.0.0.1:1"})
    )
    yield made
    made.close()


@given(drawn=MESSAGES)
def test_no_message_raises_and_what_comes_of_it_a_store_takes(
    consumer: KafkaChangelogConsumer, drawn: list[Any]
) -> None:
    """Timestamps are 64 bits, headers of others say nothing, null keys are left out, offsets go on."""
    consumer.assign({OURS: 0, THEIRS: 0})
    messages = [Message(where, at, *rest) for at, (where, *rest) in enumerate(drawn)]
    batches = {batch.partition: batch for batch in consumer._batches(messages)}
    for where, batch in batches.items():
        mine = [message for message in messages if message.where == where]
        assert batch.next_offset == mine[-1].at + 1
        keyed = [message for message in mine if message.the_key is not None]
        assert [(key, at) for key, _, at in batch.entries] == [(each.the_key, each.time) for each in keyed]
        for (_, value, _), message in zip(batch.entries, keyed, strict=True):
            is_null = where == OURS and message.the_value == b"" and is_of_null(message.the_headers or ())
            assert value == (None if is_null else message.the_value)
        store = MemoryStore("counts", TaskId(0, 0))
        store.apply(batch.entries, batch.next_offset)
        assert store.position == batch.next_offset


def test_no_order_of_ends_and_records_sets_a_position_back(consumer: KafkaChangelogConsumer) -> None:
    """After each poll a position is behind the last message of its partition: an end behind the markers of a
    transaction comes once, before or after records of other partitions, in one poll or in several."""
    parts = tuple(TopicPartition("orders", number) for number in range(3))
    first, second, third = parts

    def record(where: TopicPartition, at: int) -> Message:
        return Message(where, at, b"k", b"%d" % at, at, None)

    queues = (
        (record(first, 0), End(first, 2), record(first, 2), End(first, 4)),
        (record(second, 0), End(second, 2)),
        (record(third, 0),),
    )
    orders = list(interleavings(queues))
    assert len(orders) == 105
    wrong = []
    for order in orders:
        for cut in range(len(order)):
            consumer.assign(dict.fromkeys(parts, 0))
            reached, read = dict.fromkeys(parts, 0), Counter[TopicPartition]()
            for begin, until in ((0, cut), (cut, len(order))):
                for batch in consumer._batches(list(order[begin:until])):
                    reached[batch.partition] = batch.next_offset
                    read[batch.partition] += len(batch.entries)
                for each in parts:
                    mine = [message for message in order[:until] if message.where == each]
                    end = 0 if not mine else mine[-1].at + (not isinstance(mine[-1], End))
                    if reached[each] != end:
                        wrong.append((cut, [(type(m).__name__, *m.where, m.at) for m in order], each, end))
            assert read == {first: 2, second: 1, third: 1}
    assert wrong == []
