"""What a lane writes: topic, key, value and headers, and what is known of records that fail.

Each output is a column of the rows, which the task's sink writes (kernel/src/io/millstream/kernel/sink).
Unlike Spark's, it writes timestamps and handles records that Kafka refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.spark.compile.flow import (
    HEADERS,
    HEADERS_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TOPIC,
    Flow,
)
from millstream.spark.compile.record_handlers import RecordHandlers

__all__ = [
    "LETTER",
    "Output",
    "QuestionColumns",
    "headers_of",
    "letter_of",
    "refusal_options",
]

LETTER = "letter"
_LETTER_TYPE = T.StructType(
    [
        T.StructField("key", T.BinaryType()),
        T.StructField("value", T.BinaryType()),
        T.StructField("topic", T.StringType()),
        T.StructField("partition", T.IntegerType()),
        T.StructField("offset", T.LongType()),
        T.StructField("place", T.StringType()),
        T.StructField("asked", T.IntegerType()),
        T.StructField("exception", T.StringType()),
        T.StructField("message", T.StringType()),
        T.StructField("failed_key", T.BinaryType()),
        T.StructField("failed_value", T.BinaryType()),
    ]
)
"""The fields of a dead letter for a record that Kafka refuses: the record that it was computed from. A
question also has the record itself and the exception."""


@dataclass(frozen=True)
class QuestionColumns:
    """A question to a handler about a record that failed (handler_calls.py).

    Attributes:
        place: the number of the place where it failed (handler_calls.py).
        exception, message: as in a dead letter.
        key, value: the record, in bytes.
    """

    place: Column
    exception: Column
    message: Column
    key: Column
    value: Column


@dataclass(frozen=True)
class Output:
    """Where the rows of a lane go.

    Attributes:
        topic, key, value: the record to write; key and value in bytes.
        partition: None or NULL: chosen by Kafka's default partitioner.
        headers: whether to write the record's headers.
        errors: additional headers, as an array, that describe what is wrong with the record.
        letter: the name of the node in a dead letter if Kafka refuses the record; None: no dead letter.
        look: only observes the rows: takes the lane's condition, returns one that is always true.
        record: the record to write, complete, as a struct; the other fields do not apply.
        question: writes nothing, but asks a handler; `topic` is the topic of the record, or NULL.
    """

    topic: Column
    key: Column
    value: Column
    partition: Column | None = None
    headers: bool = False
    errors: Column | None = None
    letter: str | None = None
    look: Callable[[Column], Column] | None = None
    record: Column | None = None
    question: QuestionColumns | None = None


def headers_of(output: Output) -> Column:
    """The headers of the records that an output writes, and what is wrong with them."""
    headers = F.col(HEADERS) if output.headers else F.lit(None).cast(HEADERS_TYPE)
    if output.errors is None:
        return headers
    return F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), output.errors)


def letter_of(flow: Flow, output: Output) -> Column:
    """What a dead letter for a record that Kafka refuses says, or what a handler is asked; or NULL."""
    if output.letter is None:
        return F.lit(None).cast(_LETTER_TYPE)
    question = output.question
    # Results of an aggregation have no bytes that were read from a topic.
    raw = flow.has(RAW_KEY)
    nothing = F.lit(None).cast("binary")
    return F.struct(
        (F.col(RAW_KEY) if raw else nothing).alias("key"),
        (F.col(RAW_VALUE) if raw else nothing).alias("value"),
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.lit(output.letter).alias("place"),
        (F.lit(None) if question is None else question.place).alias("asked"),
        (F.lit(None) if question is None else question.exception).alias("exception"),
        (F.lit(None) if question is None else question.message).alias("message"),
        (nothing if question is None else question.key).alias("failed_key"),
        (nothing if question is None else question.value).alias("failed_value"),
    ).cast(_LETTER_TYPE)


def refusal_options(handlers: RecordHandlers, asking: str | None) -> dict[str, str]:
    """Those of these options that say what happens to records that failed."""
    options: dict[str, str] = {}
    if asking is not None:
        options["asking.secret"] = asking  # Spark redacts options with this name
    if handlers.production:
        asks = "production" in handlers.own
        options["on.refused"] = "ask" if asks else "continue"
        if handlers.dead_letter_topic is not None and not asks:
            options["dead.letter.topic"] = handlers.dead_letter_topic
    return options
