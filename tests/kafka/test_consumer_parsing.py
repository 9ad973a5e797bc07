"""What the changelog consumer makes of messages, whatever is in them. Pure: no broker is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.model import EPOCH_HEADER, TaskId, TopicPartition
from millstream.stores.memory import MemoryStore

OURS, THEIRS = TopicPartition("app-counts-changelog", 0), TopicPartition("orders", 0)
INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.just(b"\xff" * 8), st.just(b"\xff" * 16))
HEADERS = st.lists(st.tuples(st.sampled_from((EPOCH_HEADER, "", "h")), BYTES), max_size=4)


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
        assert len(batch.entries) + batch.dropped == len(keyed)
        times = [message.time for message in keyed]
        taken = [entry[2] for entry in batch.entries]
        assert taken == times if where == THEIRS else Counter(taken) <= Counter(times)
        assert where == OURS or batch.epoch == 0
        store = MemoryStore("counts", TaskId(0, 0))
        store.apply(batch.entries, batch.next_offset, batch.epoch)
        assert store.position == batch.next_offset
