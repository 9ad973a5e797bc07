"""From Kafka topics to rows: key, value, and where each record came from."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.model import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from millstream.spark.flow import HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.spark.real_time import read_options
from millstream.topology.names import internal_pattern
from millstream.topology.nodes import (
    FrameRead,
    GlobalRead,
    OffsetReset,
    OffsetResetByDuration,
    OffsetResetPolicy,
    Repartition,
    Source,
    TableSource,
)

__all__ = ["in_range", "kafka_options", "read_kafka", "read_record", "read_topic"]

FORMAT = "io.millstream.kernel.source.KafkaSource"
"""Spark's Kafka source, with its partitions in the same order whenever a batch is run."""

_OPTIONS: Mapping[str, str] = {
    # With the records in hand Spark's reader asks where the partition begins and ends, over the connection
    # on which Kafka's client has just asked for more; a broker answers one request after the other. So each
    # small micro-batch took as much longer as that one waits: 500 ms by default. What a reader asks for is
    # there, so it need not wait. 1 and not 0: where something is not there after all, it asks less often.
    "kafka.fetch.max.wait.ms": "1",
    # After each poll Spark's reader asks the broker twice where the partition begins and ends. With Kafka's
    # default of 500 records a poll that was a quarter of the time of a large micro-batch.
    "kafka.max.poll.records": "10000",
    # Asking for a topic must not create it: a deleted source topic has to be noticed.
    "kafka.allow.auto.create.topics": "false",
    # Records that are gone before they were read are an error, never skipped silently.
    "failOnDataLoss": "true",
    "includeHeaders": "true",
}


def kafka_options(options: Mapping[str, str]) -> dict[str, str]:
    """Kafka client options as Spark's source and sink take them: with the prefix `kafka.`."""
    return {f"kafka.{name}": value for name, value in options.items()}


def read_kafka(
    spark: SparkSession,
    node: Source | TableSource | Repartition,
    *,
    application_id: str,
    options: Mapping[str, str],
    default_reset: OffsetResetPolicy,
    max_records_per_batch: int | None,
    run: str | None = None,
) -> DataFrame:
    """The records of an input: `key`, `value` binary, and the columns of flow.CONTEXT.

    Args:
        run: in Real-Time Mode, which has no bound for a batch.
    """
    reader = spark.readStream.format(FORMAT).options(**_OPTIONS)
    if run is not None:
        reader, max_records_per_batch = reader.options(**read_options(run)), None
    reader = reader.options(**options)
    reset: OffsetResetPolicy = default_reset
    if isinstance(node, FrameRead):
        reader = reader.option("subscribe", f"{application_id}-{node.topic}")
        # A refresh is one transaction, also where the application writes at least once.
        reader = reader.option("kafka.isolation.level", "read_committed")
        reset = OffsetReset.EARLIEST
    elif isinstance(node, Repartition):
        reader = reader.option("subscribe", f"{application_id}-{node.topic}")
        reset = OffsetReset.EARLIEST
    else:
        reset = node.offset_reset or default_reset
        if isinstance(node, Source) and node.pattern is not None:
            reader = reader.option(
                "subscribePattern", _without_internal(node.pattern.pattern, application_id)
            )
        else:
            topics = node.topics if isinstance(node, Source) else (node.topic,)
            reader = reader.option("subscribe", ",".join(topics))
    if isinstance(reset, OffsetResetByDuration):
        since = max(0, time.time_ns() // 1_000_000 - reset.duration_ms)
        reader = reader.option("startingTimestamp", str(since))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")  # if nothing is so new
    else:  # with NONE there is a checkpoint, or the pipeline does not begin (runtime/starts.py)
        known = OffsetReset.EARLIEST if reset is OffsetReset.NONE else reset
        reader = reader.option("startingOffsets", known.value)
    if max_records_per_batch is not None and not isinstance(node, GlobalRead):  # which comes first, whole
        reader = reader.option("maxOffsetsPerTrigger", str(max_records_per_batch))
    return _records(reader.load())


def _records(df: DataFrame) -> DataFrame:
    return df.select(
        "key",
        "value",
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        in_range(F.unix_millis("timestamp")).alias(TIMESTAMP),
        F.col("headers").alias(HEADERS),
    )


def read_topic(
    spark: SparkSession, topic: str, options: Mapping[str, str], *, streaming: bool = True
) -> DataFrame:
    """The records of one topic: `key`, `value` binary, and the columns of flow.CONTEXT."""
    reader: Any = spark.readStream.format(FORMAT) if streaming else spark.read.format("kafka")
    df: DataFrame = reader.options(**_OPTIONS).options(**options).option("subscribe", topic).load()
    return _records(df)


def read_record(
    spark: SparkSession, options: Mapping[str, str], topic: str, partition: int, offset: int
) -> tuple[bytes | None, bytes | None]:
    """The bytes of the key and the value of one record; None if it is gone."""
    chosen = {
        "assign": json.dumps({topic: [partition]}),
        "startingOffsets": json.dumps({topic: {partition: offset}}),
        "endingOffsets": json.dumps({topic: {partition: offset + 1}}),
    }
    reader: Any = spark.read.format("kafka")
    row = reader.options(**_OPTIONS).options(**options).options(**chosen).load().select("key", "value").head()
    return (None, None) if row is None else (_bytes(row[0]), _bytes(row[1]))


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def in_range(time_ms: Column) -> Column:
    """A record's timestamp, which is never out of the range that everything after can compute with."""
    lowest, highest = (F.lit(limit).cast("bigint") for limit in (MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS))
    return F.timestamp_millis(F.least(F.greatest(time_ms, lowest), highest))


def _without_internal(pattern: str, application_id: str) -> str:
    """The pattern without the application's own internal topics, whatever it would match.

    Spark compares the whole name, in Java's syntax; this much of it Python's has too.
    """
    return rf"(?!{internal_pattern(application_id)}$)(?:{pattern})"
