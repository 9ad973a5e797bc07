"""Real-Time Mode on real Kafka and Spark: records come out while a batch lasts, and a stop repeats none."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import Consumed, Materialized, Produced, Serdes, StreamsBuilder

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
