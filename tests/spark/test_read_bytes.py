"""The kernel's source on a real broker: how many bytes it says it has read."""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from millstream.broker import EmbeddedKafka
from millstream.model import TopicPartition
from millstream.spark.compile.source import read_topic
from millstream.spark.run.progress import new_reports, read_report

pytestmark = pytest.mark.kafka

RECORDS: list[dict[str, Any]] = [
    {"key": b"k", "value": b"v" * 100, "headers": [("h", b"12"), ("ü", None)]},
    {"key": None, "value": b"four"},
    {"key": b"gone", "value": None},
    {"key": b"", "value": b""},
]


def size(topic: str, record: dict[str, Any]) -> int:
    """Kafka Streams' own (ClientUtils.recordSizeInBytes)."""
    headers = sum(len(name.encode()) + len(value or b"") for name, value in record.get("headers", ()))
    return len(record["key"] or b"") + len(record["value"] or b"") + 8 + 8 + len(topic) + 4 + headers


def test_each_batch_tells_the_bytes_of_what_it_has_read(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """As Kafka Streams counts them, by partition; what the plan reads twice counts once."""
    topic = f"sizes-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number, record in enumerate(RECORDS * 25):
        producer.produce(topic, partition=number % 2, **record)
    assert producer.flush(60) == 0
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "30",
    }
    rows = read_topic(spark, topic, options)
    query = (
        rows.union(rows)
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    assert query.awaitTermination(100)
    reports = [read_report("p0", each, {}) for each in new_reports(query, None)]
    told = [report.read_bytes for report in reports if report.executed]
    assert len(told) > 2
    assert all(len(batch) == 2 for batch in told)
    total: Counter[TopicPartition] = Counter()
    for batch in told:
        total.update(batch)
    assert total == {
        TopicPartition(topic, number): 25 * sum(size(topic, record) for record in RECORDS[number::2])
        for number in range(2)
    }
