"""From Kafka topics to rows: key, value, and where each record came from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.dsl.timestamps import Extractor
from millstream.model import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from millstream.spark.compile.flow import HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.spark.run.backlog import limit_options
from millstream.spark.run.real_time_batches import read_options
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

__all__ = ["in_range", "kafka_options", "read_kafka", "read_topic", "without_internal"]

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
    default_extractor: Extractor | None,
    run: str,
    is_real_time: bool,
) -> DataFrame:
    """The records of an input: `key`, `value` binary, and the columns of flow.CONTEXT.

    Args:
        run: the name of the query's runs. They limit its batches, except in Real-Time Mode.
    """
    reader = spark.readStream.format(FORMAT).options(**_OPTIONS)
    if is_real_time:
        reader = reader.options(**read_options(run))
    elif not isinstance(node, GlobalRead):  # which comes first, whole
        own = None if isinstance(node, Repartition) else node.timestamp_extractor or default_extractor
        reader = reader.options(**limit_options(run, own))
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
            reader = reader.option("subscribePattern", without_internal(node.pattern.pattern, application_id))
        else:
            topics = node.topics if isinstance(node, Source) else (node.topic,)
            reader = reader.option("subscribe", ",".join(topics))
    if isinstance(reset, OffsetResetByDuration):
        since = max(0, time.time_ns() // 1_000_000 - reset.duration_ms)
        reader = reader.option("startingTimestamp", str(since))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")  # if nothing is so new
    else:  # with NONE there is a checkpoint, or the pipeline does not begin (checkpoints/starts.py)
        known = OffsetReset.EARLIEST if reset is OffsetReset.NONE else reset
        reader = reader.option("startingOffsets", known.value)
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


def in_range(time_ms: Column) -> Column:
    """A record's timestamp, which is never out of the range that everything after can compute with."""
    lowest, highest = (F.lit(limit).cast("bigint") for limit in (MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS))
    return F.timestamp_millis(F.least(F.greatest(time_ms, lowest), highest))


def without_internal(pattern: str, application_id: str) -> str:
    """The pattern without the application's own internal topics, whatever it would match.

    Spark compares the whole name, in Java's syntax; this much of it Python's has too.
    """
    return rf"(?!{internal_pattern(application_id)}$)(?:{pattern})"
