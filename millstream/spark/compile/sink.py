"""Turns lanes into records: one DataFrame whose rows name the topics that they are written to.

A flow with one output is a projection. A flow with several outputs builds an array with one element for each
output that a row belongs to, and explodes it. So output topics, repartition topics and changelogs are all
written by the query's single sink, and the source is read once.

The sink is the kernel's (`FORMAT`; kernel/src/io/millstream/kernel/sink). Unlike Spark's, it writes
timestamps and handles records that Kafka refuses.

Changelog records have a header with the epoch of the claim that the query runs under. A pipeline is compiled
once and may run under many claims, so the epoch is in no compiled column. Rows have the column FENCED
instead, and `with_epoch` turns it into the header in a last projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.kernel.constants import OPTION_RUN
from millstream.model import EPOCH_HEADER, PARTS_HEADER
from millstream.spark.compile.flow import (
    HEADERS,
    HEADERS_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOPIC,
    Flow,
    Lane,
)
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers

__all__ = [
    "FENCED",
    "FORMAT",
    "LETTER",
    "Output",
    "QuestionColumns",
    "Transactions",
    "headers_of",
    "letter_of",
    "output_rows",
    "refusal_options",
    "sink_options",
    "with_epoch",
    "written_fields",
    "written_type",
]

FORMAT = "io.millstream.kernel.sink.KafkaRecords"
"""The format of a writer that writes these rows to Kafka."""

FENCED = "fenced"
"""The column that is true for records of changelogs."""

_COLUMNS: Mapping[str, T.DataType] = {
    "topic": T.StringType(),
    "key": T.BinaryType(),
    "value": T.BinaryType(),
    "partition": T.IntegerType(),
    "route": T.BinaryType(),
    "timestamp": T.LongType(),
}
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
        route: for internal topics, the bytes whose murmur2 hash determines the partition: all windows of a
            key are in the partition of the key.
        partition: otherwise, the partition. None or NULL: chosen by Kafka's default partitioner.
        fenced: whether the topic is a changelog, whose records have the epoch.
        headers: whether to write the record's headers.
        errors: additional headers, as an array, that describe what is wrong with the record.
        parts: the parts of the aggregate, in bytes, for a header.
        letter: the name of the node in a dead letter if Kafka refuses the record; None: no dead letter.
        look: only observes the rows: takes the lane's condition, returns one that is always true.
        record: the record to write, complete, as a struct; the other fields do not apply.
        question: writes nothing, but asks a handler; `topic` is the topic of the record, or NULL.
    """

    topic: Column
    key: Column
    value: Column
    route: Column | None = None
    partition: Column | None = None
    fenced: bool = False
    headers: bool = False
    errors: Column | None = None
    parts: Column | None = None
    letter: str | None = None
    look: Callable[[Column], Column] | None = None
    record: Column | None = None
    question: QuestionColumns | None = None


@dataclass(frozen=True)
class Transactions:
    """How one run of a pipeline writes exactly once.

    Attributes:
        prefix: the prefix of its transactional ids.
        marker_topic: the topic for whose partition 0 it commits offsets that say which batches were written.
        epoch: the epoch of the claim that it runs under.
        timeout_ms: the timeout after which the broker aborts a transaction.
    """

    prefix: str
    marker_topic: str
    epoch: int
    timeout_ms: int


def output_rows(flow: Flow, outputs: list[tuple[Lane, Output]], *, letters: bool = False) -> DataFrame:
    """The records of one flow. With `letters`, they have a column with the fields of dead letters."""
    if len(outputs) == 1:
        lane, output = outputs[0]
        df = flow.df
        if output.look is not None:
            df = df.where(~output.look(flow.belongs_to(lane)))
        elif lane.keep is not None:
            df = df.where(F.col(lane.keep))
        return df.select(*written_fields(flow, output, letters))
    element = flow.names.new("o")
    keeps = [
        flow.belongs_to(lane)
        if output.look is None
        else F.col(flow.with_column("f", ~output.look(flow.belongs_to(lane))))
        for lane, output in outputs
    ]
    records = F.array(
        *(
            F.when(keep, F.struct(*written_fields(flow, out, letters)))
            for keep, (_, out) in zip(keeps, outputs, strict=True)
        )
    )
    exploded = flow.df.select(F.explode(records).alias(element)).where(F.col(element).isNotNull())
    return exploded.select(f"{element}.*")


def written_fields(flow: Flow, output: Output, letters: bool) -> list[Column]:
    """The columns of the records that an output writes."""
    if output.record is not None:
        names = (*_COLUMNS, "headers", FENCED, *((LETTER,) if letters else ()))
        return [output.record[name].alias(name) for name in names]
    headers = headers_of(output)
    if output.parts is not None:
        own = F.array(F.struct(F.lit(PARTS_HEADER).alias("key"), output.parts.alias("value")))
        headers = F.coalesce(headers, F.array().cast(HEADERS_TYPE))
        headers = F.when(output.parts.isNotNull(), F.concat(headers, own.cast(HEADERS_TYPE)))
    fields = [
        output.topic.alias("topic"),
        output.key.alias("key"),
        output.value.alias("value"),
        _or_null(output.partition, "int").alias("partition"),
        _or_null(output.route, "binary").alias("route"),
        F.unix_millis(F.col(TIMESTAMP)).alias("timestamp"),
        headers.alias("headers"),
        F.lit(output.fenced).alias(FENCED),
    ]
    if letters:
        fields.append(letter_of(flow, output).alias(LETTER))
    return fields


def headers_of(output: Output) -> Column:
    """The headers of the records that an output writes, without those of changelogs."""
    headers = F.col(HEADERS) if output.headers else F.lit(None).cast(HEADERS_TYPE)
    if output.errors is None:
        return headers
    return F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), output.errors)


def written_type(letters: bool) -> T.StructType:
    """The type of `written_fields`, as a struct whose fields may all be NULL."""
    type_ = T.StructType()
    for name, of_column in _COLUMNS.items():
        type_.add(name, of_column)
    type_.add("headers", HEADERS_TYPE).add(FENCED, T.BooleanType())
    return type_.add(LETTER, _LETTER_TYPE) if letters else type_


def _or_null(column: Column | None, type_: str) -> Column:
    return F.lit(None).cast(type_) if column is None else column


def letter_of(flow: Flow, output: Output) -> Column:
    """What a dead letter for a record that Kafka refuses says, or what a handler is asked; or NULL."""
    if output.letter is None:
        return F.lit(None).cast(_LETTER_TYPE)
    question = output.question
    # Results of an aggregation have no bytes that were read from a topic.
    raw = RAW_KEY in flow.df.columns
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


def with_epoch(rows: DataFrame, epoch: int | None) -> DataFrame:
    """The rows for the sink, with this epoch in the headers of changelog records. None: without an epoch."""
    headers = F.col("headers")
    if epoch is not None:
        none = F.array().cast(HEADERS_TYPE)
        own = F.struct(
            F.lit(EPOCH_HEADER).alias("key"), F.lit(bytearray(epoch.to_bytes(8, "big"))).alias("value")
        )
        all_of_them = F.concat(F.coalesce(headers, none), F.array(own).cast(HEADERS_TYPE))
        headers = F.when(F.col(FENCED), all_of_them).otherwise(headers)
    letter = [LETTER] if LETTER in rows.columns else []
    return rows.select(*_COLUMNS, headers.alias("headers"), *letter)


def sink_options(
    producer: Mapping[str, str],
    partitions: Mapping[str, int],
    *,
    run: str = "",
    handlers: RecordHandlers = FAIL,
    transactions: Transactions | None = None,
    asking: str | None = None,
    real_time: str | None = None,
) -> dict[str, str]:
    """The options of a writer of this format.

    Args:
        producer: the producer's settings by Kafka's names, with bootstrap.servers.
        partitions: the number of partitions of each internal topic.
        run: the unique name of this run of the query.
        transactions: write exactly once. None: at least once.
        asking: the program that calls the user's handlers, as text for the kernel.
        real_time: the name of the run in Real-Time Mode.
    """
    # Report a missing topic after 10 s instead of Kafka's minute.
    options = {f"kafka.{name}": value for name, value in {"max.block.ms": "10000", **producer}.items()}
    options |= {f"partitions.{topic}": str(count) for topic, count in partitions.items()}
    # A store would be wrong if a record of its changelog were skipped.
    options |= {f"complete.{topic}": "true" for topic in partitions if topic.endswith("-changelog")}
    options["run"] = run
    if real_time is not None:
        options[OPTION_RUN] = real_time
    if transactions is not None:
        options |= {
            "transactional.prefix": transactions.prefix,
            "marker.topic": transactions.marker_topic,
            "epoch": str(transactions.epoch),
            # This also limits how long a commit takes, and restarting a broker takes longer than 10 s.
            "kafka.max.block.ms": producer.get("max.block.ms", "60000"),
            "kafka.enable.idempotence": "true",
            "kafka.acks": "all",
            "kafka.transaction.timeout.ms": str(transactions.timeout_ms),
        }
    return options | refusal_options(handlers, asking)


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
