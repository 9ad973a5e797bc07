"""The record-level handlers in Spark: expressions that catch errors, and records for a dead letter queue.

A handler that answers 'continue' wraps what can fail in Spark's own TryEval, which returns NULL if its child
raises, so a failed record costs one Java exception. TryEval has no SQL name; it is created by its class
through the JVM. It cannot catch an exception in a Python worker, which ends the worker's task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.config import StreamsConfig
from millstream.spark.compile.flow import HEADERS, HEADERS_TYPE, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.spark.jvm.java_names import java_class

__all__ = [
    "FAIL",
    "MAX_REQUEST_SIZE",
    "PROCESSING_FAILED",
    "RECORD_TOO_LARGE",
    "SERIALIZATION_FAILED",
    "RecordHandlers",
    "attempt",
    "error_headers",
    "record_size",
]

MAX_REQUEST_SIZE = 1_048_576
"""Kafka's default of the producer's `max.request.size`."""

SERIALIZATION_FAILED = "org.apache.kafka.common.errors.SerializationException"
RECORD_TOO_LARGE = "org.apache.kafka.common.errors.RecordTooLargeException"
PROCESSING_FAILED = "org.apache.kafka.streams.errors.StreamsException"
"""The exception class in a dead letter: Kafka's names, which its readers know."""


@dataclass(frozen=True)
class RecordHandlers:
    """What happens to a record that fails: True drops it, or asks a handler; False ends the pipeline.

    Attributes:
        deserialization: its bytes cannot be read.
        processing: a function's Columns raise.
        production: it cannot be written, where that is known beforehand.
        dead_letter_topic: where dropped records go; None: nowhere.
        max_ratio: the share of dropped records above which the pipeline ends nevertheless.
        max_request_size: the producer's; larger records cannot be written.
        own: the user's own handlers, classes or instances, by the kind of failure.
        configs: what they are configured with.
    """

    deserialization: bool = False
    processing: bool = False
    production: bool = False
    dead_letter_topic: str | None = None
    max_ratio: float = 1.0
    max_request_size: int = MAX_REQUEST_SIZE
    own: Mapping[str, Any] = field(default_factory=dict)
    configs: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, config: StreamsConfig) -> RecordHandlers:
        """The handlers of a configuration."""
        return cls(
            deserialization=config.continues("deserialization"),
            processing=config.continues("processing"),
            production=config.continues("production"),
            dead_letter_topic=config.dead_letter_topic,
            max_ratio=config.continue_max_ratio,
            max_request_size=int(
                config.client_options("producer.").get("max.request.size", MAX_REQUEST_SIZE)
            ),
            own=config.own_handlers,
            configs=config.for_handlers,
        )

    @property
    def any(self) -> bool:
        """Whether anything can be dropped at all."""
        return self.deserialization or self.processing or self.production

    @property
    def dead_letters(self) -> bool:
        """Whether dropped records are written to a dead letter queue."""
        return self.dead_letter_topic is not None and any(
            getattr(self, kind) and kind not in self.own
            for kind in ("deserialization", "processing", "production")
        )

    @property
    def needs_source(self) -> bool:
        """Whether anything needs the source record that a record comes from."""
        return self.dead_letters or bool(self.own)


FAIL = RecordHandlers()
"""Nothing is dropped: the default."""


def attempt(kept: Column, *results: Column) -> Column:
    """A struct of these results (`r0`, `r1`, …); NULL if one of them raises, or if `kept` is not true.

    A NULL result is a NULL field of a non-NULL struct.
    """
    context: Any = SparkContext._active_spark_context
    jvm = context._jvm
    row = F.struct(*(result.alias(f"r{i}") for i, result in enumerate(results)))
    # The code that Spark generates computes what two expressions share before both of them, outside TryEval,
    # and an exception there is not caught. An expression behind a condition stays there; so there always is a
    # condition, one that cannot be folded away.
    sometime = F.coalesce(F.unix_micros(F.col(TIMESTAMP)) > F.lit(-(2**62)), F.lit(True))
    utils = getattr(java_class(jvm, "org.apache.spark.sql.classic.ExpressionUtils$"), "MODULE$")
    child = utils.expression(F.when(kept & sometime, row)._jc)
    tried = java_class(jvm, "org.apache.spark.sql.catalyst.expressions.TryEval")(child)
    return Column(utils.column(tried))


def error_headers(exception: Column, message: Column, place: str) -> Column:
    """The headers of a dead letter in addition to the record's own.

    Source: KIP-1034, org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils.
    Differs: `stacktrace` is the place in the program and not a Java stack, and `exception` and `message` of a
    failed function do not say what Spark raised: Spark does not report it.
    """
    texts = {
        "exception": exception,
        "message": message,
        "stacktrace": F.concat(exception, F.lit(": "), message, F.lit(f"\n\tat {place}")),
        "topic": F.col(TOPIC),
        "partition": F.coalesce(F.col(PARTITION).cast("string"), F.lit("-1")),
        "offset": F.coalesce(F.col(OFFSET).cast("string"), F.lit("-1")),
    }
    headers = [
        F.struct(F.lit(f"__streams.errors.{name}").alias("key"), text.cast("binary").alias("value"))
        for name, text in texts.items()
    ]
    return F.array(*headers).cast(HEADERS_TYPE)


def record_size(key: Column, value: Column, headers: Column | None = None) -> Column:
    """The bytes of a record as the producer counts them before it compares with `max.request.size`.

    Source: org.apache.kafka.common.record.AbstractRecords.estimateSizeInBytesUpperBound.
    """
    headers = F.col(HEADERS) if headers is None else headers
    zero = F.lit(0)
    listed = F.coalesce(
        F.aggregate(
            headers, zero, lambda size, h: size + _field(h["key"].cast("binary")) + _field(h["value"])
        ),
        zero,
    )
    count = _varint(F.coalesce(F.array_size(headers), zero))
    return F.lit(_BATCH + _RECORD) + _field(key) + _field(value) + listed + count


_BATCH, _RECORD = 61, 21
"""The overhead of a batch, and of a record in it, at most."""


def _field(data: Column) -> Column:
    length = F.octet_length(data)
    return F.when(data.isNull(), F.lit(1)).otherwise(length + _varint(length))


def _varint(number: Column) -> Column:
    """The number of bytes of a length: Kafka writes it zigzag, so the first byte has 6 bits of it."""
    size = F.lit(5)
    for bits, width in ((27, 4), (20, 3), (13, 2), (6, 1)):
        size = F.when(number < (1 << bits), F.lit(width)).otherwise(size)
    return size
