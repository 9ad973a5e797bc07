"""A client whose subtopologies are tasks, which commit by themselves: to queries, and over a restart."""

from __future__ import annotations

import shutil
import uuid
from datetime import timedelta
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import (
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Produced,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
    Topology,
)
from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

TEXT = Serdes.string()
SOON = timedelta(seconds=60)


@pytest.fixture
def name() -> str:
    return f"tasks-{uuid.uuid4().hex[:8]}"


def counting(name: str) -> Topology:
    """Lines in capitals; and how often each word occurs, behind a repartition topic."""
    builder = StreamsBuilder()
    lines = builder.stream(f"{name}-lines", Consumed.with_(TEXT, TEXT))
    lines.map_values(lambda value: F.upper(value)).to(f"{name}-upper", Produced.with_(TEXT, TEXT))
    words = lines.flat_map_values(lambda value: F.split(value, " "))
    by_word = words.group_by(lambda key, value: value, Grouped.with_(TEXT, TEXT))
    counts = by_word.count(Materialized.as_("counts"))
    counts.to_stream().to(f"{name}-counts", Produced.with_(TEXT, Serdes.long()))
    return builder.build()


def counted(client: KafkaStreams, word: str) -> int | None:
    wanted = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    found: int | None = client.store(wanted).get(word)
    return found


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_counts_go_on_from_kafka_alone(
    kafka: EmbeddedKafka, tmp_path: Path, name: str, guarantee: str
) -> None:
    """The second client has nothing but the topics of the first one: the state directory is gone."""
    for topic in ("lines", "upper", "counts"):
        kafka.create_topic(f"{name}-{topic}", 2)
    producer = KafkaProducer(bootstrap_servers=kafka.bootstrap_servers)
    for round_ in (1, 2):
        state = tmp_path / f"state-{round_}"
        config = {
            "application.id": name,
            "bootstrap.servers": kafka.bootstrap_servers,
            "state.dir": str(state),
            "processing.guarantee": guarantee,
            "commit.interval.ms": 100,
        }
        with KafkaStreams(counting(name), config) as client:
            client.wait_until_running(SOON)
            for number in range(200):
                producer.send(f"{name}-lines", key=b"k%d" % (number % 7), value=b"a b w%d" % (number % 10))
            producer.flush()
            wanted = 200 * round_
            wait_until(lambda n=wanted: counted(client, "a") == n, "all is counted", 60)  # type: ignore[misc]
            wait_until(
                lambda n=wanted: counted(client, "w3") == n // 10,  # type: ignore[misc]
                "all words are counted",
                60,
            )
        shutil.rmtree(state)
    consumer = KafkaConsumer(
        f"{name}-counts",
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=5_000,
    )
    outputs: dict[bytes, list[int]] = {}
    for record in consumer:
        outputs.setdefault(record.key, []).append(int.from_bytes(record.value, "big"))
    consumer.close()
    producer.close()
    assert outputs[b"a"][-1] == 400
    assert outputs[b"a"] == sorted(set(outputs[b"a"])), "no count is repeated, and none goes back"
