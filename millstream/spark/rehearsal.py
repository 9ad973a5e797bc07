"""Runs a warm-up query, so that the first real one does not wait for Java to load and compile classes.

In a fresh JVM the first micro-batch takes 4 to 7 s on two busy cores, the second one 0.2 s. A client that
keeps Spark warm (`keep.spark.warm`) rehearses while it is idle: a stateful query like those of pipelines,
from generated rows to nowhere; a look at a source topic; a write of no records. No topic, checkpoint or
function of the user's is touched.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.spark.compile.flow import HEADERS_TYPE
from millstream.spark.compile.serde_columns import write_number
from millstream.spark.compile.sink import FORMAT

__all__ = ["rehearse"]

log = logging.getLogger(__name__)

_BATCHES = 3
_PATIENCE_S = 60.0
_LOOK_EVERY_S = 0.05


def rehearse(
    spark: SparkSession,
    kafka: Mapping[str, str],
    sink: Mapping[str, str],
    topic: str | None,
    closing: threading.Event,
) -> None:
    """Run everything once; failures are only logged.

    Args:
        kafka: options of the Kafka source, with the prefix `kafka.`.
        sink: options of the sink.
        topic: an existing topic; None: Kafka is left out.
        closing: ends it early.
    """
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("a stateful query", lambda: _count_nothing(spark, closing)),
        ("a look at Kafka", lambda: _look_at(spark, kafka, topic)),
        ("a write to Kafka", lambda: _write_nothing(spark, sink)),
    )
    for what, run in steps:
        if closing.is_set():
            return
        try:
            run()
        except PySparkException as error:
            log.debug("rehearsing %s failed: %s", what, error)


def _count_nothing(spark: SparkSession, closing: threading.Event) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "8").load()
    keyed = rows.select(F.explode(F.split(F.concat_ws(" ", "value", F.lit("word")), " ")).alias("key"))
    counted = keyed.where(F.col("key").isNotNull()).groupBy("key").agg(F.count(F.lit(1)).alias("count"))
    with tempfile.TemporaryDirectory(prefix="millstream-rehearsal-") as checkpoint:
        query = (
            _records(counted)
            .writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            deadline = time.monotonic() + _PATIENCE_S
            while query.isActive and time.monotonic() < deadline and not closing.wait(_LOOK_EVERY_S):
                progress = query._jsq.lastProgress()
                if progress is not None and progress.batchId() >= _BATCHES:
                    return
        finally:
            query.stop()


def _records(counted: DataFrame) -> DataFrame:
    """Records as in sink.py: an array with one record for each target, exploded."""
    key = F.encode("key", "UTF-8")
    record = F.struct(
        F.lit("nowhere").alias("topic"),
        key.alias("key"),
        write_number("long", F.col("count")).alias("value"),
        F.lit(None).cast("int").alias("partition"),
        key.alias("route"),
        F.lit(None).cast("bigint").alias("timestamp"),
        F.lit(None).cast(HEADERS_TYPE).alias("headers"),
    )
    records = F.array(F.when(F.col("count") > 0, record), F.when(F.col("count") > 1, record))
    return counted.select(F.explode(records).alias("record")).where("record IS NOT NULL").select("record.*")


def _look_at(spark: SparkSession, kafka: Mapping[str, str], topic: str | None) -> None:
    if topic is not None:
        spark.read.format("kafka").options(**kafka).option("subscribe", topic).load().limit(1).collect()


def _write_nothing(spark: SparkSession, sink: Mapping[str, str]) -> None:
    """Write no records; this creates the producer that pipelines will use."""
    counted = spark.range(1).where("id > 1").select(F.lit("word").alias("key"), F.col("id").alias("count"))
    _records(counted).write.format(FORMAT).options(**sink).mode("append").save()
