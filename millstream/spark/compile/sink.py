"""From lanes to records: one DataFrame of rows that each carry the topic they go to.

A flow with one output is a projection. A flow with several makes an array with one element for each output
that a row belongs to, and explodes it; so outputs, repartition topics and changelogs leave through the one
sink of the query, and the source is read once.

That sink is the kernel's (`FORMAT`; kernel/src/io/millstream/kernel/sink), which writes what Spark's own
cannot: the record's timestamp, and an answer to what Kafka refuses.

Records of changelogs carry the epoch of the claim that their query runs under (design D5), as a header. A
pipeline is compiled once and may run under many claims, so the epoch is in no traced column: the rows have a
column FENCED, of which `with_epoch` makes that header by one last projection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

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
from millstream.spark.run.real_time_batches import RUN

__all__ = [
    "FENCED",
    "FORMAT",
    "LETTER",
    "Output",
    "QuestionColumns",
    "Transactions",
    "output_rows",
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
"""What a dead letter says of the record that another one comes from, which Kafka refuses. Of a question, also
what it is about."""


@dataclass(frozen=True)
class QuestionColumns:
    """What a handler is asked about a record that failed (handler_calls.py).

    Attributes:
        place: the number of the asking.Place.
        exception, message: as a dead letter has them.
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
        topic, key, value: what to write; key and value in bytes.
        route: the bytes whose murmur2 gives the partition, for a topic of the application's own; a windowed
            key's windows all have their place by the key itself.
        partition: else the partition; None, or NULL: as Kafka's default partitioner has it.
        fenced: the topic is a changelog, whose records carry the epoch.
        headers: carry the record's own headers.
        errors: further headers, an array: what is wrong with the record.
        parts: what the aggregate is made of, in bytes, for a header.
        letter: the node whose name a dead letter gives, should Kafka refuse the record; None: it gets none.
        look: writes nothing, and is shown the rows instead: gets whether a row belongs to the lane, is true
            for every row.
        question: writes nothing, and asks a handler; `topic` is where the record was to go, or NULL.
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
        prefix: of its transactional ids.
        marker_topic: of its partition 0, offsets tell which batches were written.
        epoch: of the claim that it runs under.
        timeout_ms: after which the broker takes back a transaction.
    """

    prefix: str
    marker_topic: str
    epoch: int
    timeout_ms: int


def output_rows(flow: Flow, outputs: list[tuple[Lane, Output]], *, letters: bool = False) -> DataFrame:
    """The records of one flow; `letters`: with what dead letters say, in a column of its own."""
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
    headers = F.col(HEADERS) if output.headers else F.lit(None).cast(HEADERS_TYPE)
    if output.errors is not None:
        headers = F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), output.errors)
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
        fields.append(_letter(flow, output.letter, output.question).alias(LETTER))
    return fields


def written_type(letters: bool) -> T.StructType:
    """The type of `written_fields`, as a struct in which anything may be NULL."""
    type_ = T.StructType()
    for name, of_column in _COLUMNS.items():
        type_.add(name, of_column)
    type_.add("headers", HEADERS_TYPE).add(FENCED, T.BooleanType())
    return type_.add(LETTER, _LETTER_TYPE) if letters else type_


def _or_null(column: Column | None, type_: str) -> Column:
    return F.lit(None).cast(type_) if column is None else column


def _letter(flow: Flow, place: str | None, question: QuestionColumns | None) -> Column:
    if place is None:
        return F.lit(None).cast(_LETTER_TYPE)
    # The results of an aggregation were not read from a topic.
    raw = RAW_KEY in flow.df.columns
    nothing = F.lit(None).cast("binary")
    return F.struct(
        (F.col(RAW_KEY) if raw else nothing).alias("key"),
        (F.col(RAW_VALUE) if raw else nothing).alias("value"),
        F.col(TOPIC).alias("topic"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.lit(place).alias("place"),
        (F.lit(None) if question is None else question.place).alias("asked"),
        (F.lit(None) if question is None else question.exception).alias("exception"),
        (F.lit(None) if question is None else question.message).alias("message"),
        (nothing if question is None else question.key).alias("failed_key"),
        (nothing if question is None else question.value).alias("failed_value"),
    ).cast(_LETTER_TYPE)


def with_epoch(rows: DataFrame, epoch: int | None) -> DataFrame:
    """Rows as a sink takes them, their changelog records with this epoch; None: without one."""
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
        producer: the producer's, in Kafka's names, bootstrap.servers among them.
        partitions: how many partitions each topic of the application's own has.
        run: names this run of the query; no other has this name.
        transactions: write exactly once; None: at least once.
        asking: the program that asks handlers of the user's own, as a text of the kernel's.
        real_time: names the run in Real-Time Mode.
    """
    # A topic that does not exist is an error after 10 s, not after Kafka's minute.
    options = {f"kafka.{name}": value for name, value in {"max.block.ms": "10000", **producer}.items()}
    options |= {f"partitions.{topic}": str(count) for topic, count in partitions.items()}
    # Without one of its records a store would be wrong.
    options |= {f"complete.{topic}": "true" for topic in partitions if topic.endswith("-changelog")}
    options["run"] = run
    if real_time is not None:
        options[RUN] = real_time
    if transactions is not None:
        options |= {
            "transactional.prefix": transactions.prefix,
            "marker.topic": transactions.marker_topic,
            "epoch": str(transactions.epoch),
            # Waiting for a commit ends after this, and a broker that is only started again takes longer than
            # a topic that does not exist.
            "kafka.max.block.ms": producer.get("max.block.ms", "60000"),
            "kafka.enable.idempotence": "true",
            "kafka.acks": "all",
            "kafka.transaction.timeout.ms": str(transactions.timeout_ms),
        }
    if asking is not None:
        options["asking.secret"] = asking  # by this name Spark does not show it
    if handlers.production:
        asks = "production" in handlers.own
        options["on.refused"] = "ask" if asks else "continue"
        if handlers.dead_letter_topic is not None and not asks:
            options["dead.letter.topic"] = handlers.dead_letter_topic
    return options
