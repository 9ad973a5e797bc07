"""Runs a task once, so that the first real one does not wait for Java to load and compile classes.

A client that keeps Spark warm (`keep.spark.warm`) rehearses while it is idle: a task with a store, over
memory, and a look at a source topic. No topic, state or function of the user's is touched.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Produced
from millstream.errors import StreamsException
from millstream.model import KafkaRecord
from millstream.serdes.serdes import Serdes
from millstream.spark.memory_engine import MemoryEngine

__all__ = ["rehearse", "visit_executors"]

log = logging.getLogger(__name__)

_NAME = "millstream-rehearsal"


def rehearse(
    spark: SparkSession, kafka: Mapping[str, str], topic: str | None, closing: threading.Event
) -> None:
    """Run everything once; failures are only logged.

    Args:
        kafka: options of the Kafka source, with the prefix `kafka.`.
        topic: an existing topic; None: Kafka is left out.
        closing: ends it early.
    """
    steps: tuple[tuple[str, Callable[[], None]], ...] = (
        ("a task", lambda: _count_once(spark)),
        ("a look at Kafka", lambda: _look_at(spark, kafka, topic)),
    )
    for what, run in steps:
        if closing.is_set():
            return
        try:
            run()
        except (PySparkException, Py4JError, StreamsException) as error:
            log.debug("rehearsing %s failed: %s", what, error)


def visit_executors(spark: SparkSession, slots: int) -> None:
    """Run a job on each slot of a cluster, so that its executors have the kernel before tasks come.

    A failure is only logged.
    """
    try:
        spark.range(0, slots, 1, slots).selectExpr("max(hash(id))").collect()
    except (PySparkException, Py4JError) as error:
        log.debug("visiting the executors failed: %s", error)


def _count_once(spark: SparkSession) -> None:
    builder, text = StreamsBuilder(), Serdes.string()
    words = builder.stream("words", Consumed.with_(text, text))
    words.group_by_key().count().to_stream().to("counts", Produced.with_(text, Serdes.long()))
    (pipeline,) = builder.build().queries
    # As in a client's session; the test driver has another setting.
    engine = MemoryEngine(spark, {"spark.sql.codegen.wholeStage": "true"})
    with tempfile.TemporaryDirectory(prefix=f"{_NAME}-") as directory:
        running = engine.pipeline(
            pipeline,
            application_id=_NAME,
            partitions={f"{store.name}-changelog": 1 for store in pipeline.stores},
            default_key_serde=None,
            default_value_serde=None,
            checkpoint=directory,
        )
        try:
            running.process({pipeline.inputs[0]: [KafkaRecord("words", 0, 0, b"word", b"", 0)]})
        finally:
            running.close()


def _look_at(spark: SparkSession, kafka: Mapping[str, str], topic: str | None) -> None:
    if topic is not None:
        spark.read.format("kafka").options(**kafka).option("subscribe", topic).load().limit(1).collect()
