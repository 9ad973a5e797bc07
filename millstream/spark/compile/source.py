"""From Kafka topics to rows: key, value, and where each record came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.model import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS
from millstream.spark.compile.flow import HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.topology.names import internal_pattern

__all__ = ["in_range", "kafka_options", "read_topic", "without_internal"]

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
    """Kafka client options as Spark's source takes them: with the prefix `kafka.`."""
    return {f"kafka.{name}": value for name, value in options.items()}


def read_topic(
    spark: SparkSession, topic: str, options: Mapping[str, str], *, streaming: bool = True
) -> DataFrame:
    """The records of one topic: `key`, `value` binary, and the columns of flow.CONTEXT."""
    reader: Any = spark.readStream if streaming else spark.read
    df: DataFrame = (
        reader.format("kafka").options(**_OPTIONS).options(**options).option("subscribe", topic).load()
    )
    return df.select(
        "key",
        "value",
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        in_range(F.unix_millis("timestamp")).alias(TIMESTAMP),
        F.col("headers").alias(HEADERS),
    )


def in_range(time_ms: Column) -> Column:
    """A record's timestamp, which is never out of the range that everything after can compute with."""
    lowest, highest = (F.lit(limit).cast("bigint") for limit in (MIN_TIMESTAMP_MS, MAX_TIMESTAMP_MS))
    return F.timestamp_millis(F.least(F.greatest(time_ms, lowest), highest))


def without_internal(pattern: str, application_id: str) -> str:
    """The pattern without the application's own internal topics, whatever it would match.

    The whole name is compared, in Java's syntax; this much of it Python's has too.
    """
    return rf"(?!{internal_pattern(application_id)}$)(?:{pattern})"
