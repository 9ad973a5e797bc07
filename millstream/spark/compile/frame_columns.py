"""DataFrames on both ends: the rows of a static one, and the writer of a streaming one.

A table made from a DataFrame is read through its topic, like any other: `changes` returns what a refresh has
to write there. Whether a DataFrame can be a table, or a writer can be started, is checked here, with a clear
error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from millstream.dsl.frames import check_columns, check_frame
from millstream.errors import StreamsException, TopologyException
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.spark.compile import serde_columns
from millstream.spark.compile.flow import HEADERS, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.spark.compile.trace import translated
from millstream.spark.jvm.kernel_jar import CATALOG, FUNCTIONS
from millstream.spark.jvm.stale import is_java_unreachable
from millstream.topology.functions import describe_function
from millstream.topology.nodes import FrameTable, SparkSink

__all__ = [
    "StaticFrame",
    "UserWriter",
    "changes",
    "dataframe_of",
    "last_rows",
    "pause_s",
    "place_of_record",
    "refuse_doubles",
    "user_writer",
]

log = logging.getLogger(__name__)

_MADE_NEW = "make it anew, with a function: from_dataframe(lambda spark: spark.read…, key=…)"


@dataclass(frozen=True)
class StaticFrame:
    """The DataFrame of a table, as it was when the topology was compiled.

    Attributes:
        schema: its schema, which stays the same while the client runs.
        key_serde, value_serde: the serdes of the table's topic. A value is a struct of all columns.
    """

    table: FrameTable
    schema: T.StructType
    key_serde: Serde
    value_serde: Serde

    @classmethod
    def of(cls, table: FrameTable, spark: SparkSession) -> StaticFrame:
        """Look at the DataFrame; its rows are not read yet.

        Raises:
            TopologyException: it cannot be a table.
        """
        frame = _frame(table, spark)
        schema = T.StructType.fromJson(frame.schema.jsonValue())
        for column in schema:
            _check_type(table, column.name, column.dataType, column.name)
        key = serde_columns.infer(_key_type(table, schema))
        return cls(table, schema, key, Serdes.json(schema))

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows as they are now: key and value, in bytes. A row without a key is left out.

        Raises:
            TopologyException: the DataFrame cannot be created, or its columns have changed since it was
                compiled.
        """
        frame = _frame(self.table, spark)
        if frame.schema.simpleString() != self.schema.simpleString():
            raise TopologyException(
                f"{self.table.name}: the DataFrame is {frame.schema.simpleString()} now, and was "
                f"{self.schema.simpleString()} when the topology was compiled; start a new client to use the "
                "new columns"
            )
        _look_again(frame)
        # What makes bytes of the rows is called in the session that the DataFrame was created with.
        frame.sparkSession.conf.set(f"spark.sql.catalog.{CATALOG}", FUNCTIONS)
        columns = [_column(name) for name in self.schema.fieldNames()]
        key = _key(self.table)
        key_bytes = serde_columns.to_bytes(self.key_serde, key, _key_type(self.table, self.schema), "the key")
        value_bytes = serde_columns.to_bytes(self.value_serde, F.struct(*columns), self.schema, "the value")
        there = [_column(name).isNotNull() for name in self.table.key]
        for other in there[1:]:
            there[0] = there[0] & other
        return frame.where(there[0]).select(key_bytes.alias("key"), value_bytes.alias("value"))


def changes(frame: StaticFrame, spark: SparkSession, kept: DataFrame) -> DataFrame:
    """What has to be written to the topic, which has `kept`: key, value, and how many rows have the key."""
    rows = (
        frame.rows(spark).groupBy("key").agg(F.first("value").alias("new"), F.count(F.lit(1)).alias("rows"))
    )
    both = kept.withColumnRenamed("value", "old").join(rows, "key", "full_outer")
    is_changed = (F.col("rows") > 1) | ~F.col("new").eqNullSafe(F.col("old"))
    return both.where(is_changed).select("key", F.col("new").alias("value"), "rows")


def last_rows(records: DataFrame) -> DataFrame:
    """The last value of each key in a topic of one partition: key and value."""
    return records.groupBy("key").agg(F.max_by("value", OFFSET).alias("value"))


def refuse_doubles(table: FrameTable, count: int) -> None:
    """Raises a StreamsException if `count`, the number of keys with more than one row, is not 0."""
    if count:
        columns = ", ".join(repr(name) for name in table.key)
        raise StreamsException(
            f"{table.name}: {count} {'keys have' if count > 1 else 'key has'} more than one row in the "
            f"DataFrame, but a table has one row for each key ({', '.join(table.key)}); drop the unwanted "
            f"rows, for example with .dropDuplicates([{columns}]), or add columns to the key"
        )


# --- the DataFrame -----------------------------------------------------------------------------------------


def _frame(table: FrameTable, spark: SparkSession) -> DataFrame:
    given = table.frame
    if isinstance(given, DataFrame):
        if not _is_of(given, spark):
            raise TopologyException(
                f"{table.name}: its DataFrame was created in another Spark than the client's, or in one that "
                f"has ended; {_MADE_NEW}. Or pass in the session that it was created with: "
                "KafkaStreams(topology, config, spark=spark)"
            )
        return given
    made = _called(table, given, spark)
    if made is None:
        raise TopologyException(f"{table.name}: its function returned None; is a `return` missing?")
    check_frame(made, table.name)
    check_columns(table.key, made.columns, table.name)
    frame: DataFrame = made
    return frame


def _is_of(frame: DataFrame, spark: SparkSession) -> bool:
    """Whether a DataFrame belongs to the same running Spark as a session."""
    try:
        theirs: Any = frame.sparkSession.sparkContext
        if theirs is not spark.sparkContext or theirs._jsc is None:
            return False
        frame.isStreaming  # noqa: B018 - it asks the JVM for an object that an earlier JVM had
        frame.sparkSession._jsparkSession.sparkContext().isStopped()
    except Exception:
        return False
    return True


def _look_again(frame: DataFrame) -> None:
    """Have the DataFrame's files listed again: Spark remembers those it found when it was created."""
    try:
        leaves = frame._jdf.queryExecution().analyzed().collectLeaves()
        for number in range(leaves.size()):
            leaf = leaves.apply(number)
            if leaf.getClass().getName().endswith(".LogicalRelation"):
                relation = leaf.relation()
                if relation.getClass().getName().endswith(".HadoopFsRelation"):
                    relation.location().refresh()
    except Exception:
        # A DataFrame of another kind, or another version of Spark: it is read as Spark would.
        log.debug("the files of a DataFrame were not listed again", exc_info=True)


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _key(table: FrameTable) -> Column:
    columns = [_column(name) for name in table.key]
    return columns[0] if len(columns) == 1 else F.struct(*columns)


def _key_type(table: FrameTable, schema: T.StructType) -> T.DataType:
    columns = [schema[name] for name in table.key]
    if len(columns) == 1:
        return columns[0].dataType
    return T.StructType([T.StructField(each.name, each.dataType) for each in columns])


_ATOMIC = (
    T.StringType,
    T.BinaryType,
    T.NumericType,
    T.BooleanType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.NullType,
)


def _check_type(table: FrameTable, name: str, type_: T.DataType, place: str) -> None:
    """Raises a TopologyException for types that JSON, the format of the table's topic, cannot carry, and for
    names that a query's state cannot have. `place` is the full name of the column, for the message."""
    if not name.isidentifier():
        raise TopologyException(
            f"{table.name}: the DataFrame has a column '{place}', but the state of a join allows only "
            "letters, digits and _ in names; rename it with withColumnRenamed()"
        )
    if isinstance(type_, T.StructType):
        for field in type_:
            _check_type(table, field.name, field.dataType, f"{place}.{field.name}")
    elif isinstance(type_, T.ArrayType):
        _check_type(table, name, type_.elementType, f"{place}[]")
    elif isinstance(type_, T.MapType) and isinstance(type_.keyType, T.StringType):
        _check_type(table, name, type_.valueType, f"{place}{{}}")
    elif not isinstance(type_, _ATOMIC):
        raise TopologyException(
            f"{table.name}: the column '{place}' of the DataFrame is {type_.simpleString()}, which the "
            "table's topic cannot carry: its rows are JSON there. Cast the column, or leave it out"
        )


def _called(node: FrameTable | SparkSink, function: Callable[[Any], Any], argument: Any) -> Any:
    """The result of a user's function; an error in it is reported with its place."""

    def call() -> Any:
        try:
            return function(argument)
        except (PySparkException, StreamsException):
            raise
        except Exception as error:
            if is_java_unreachable(error):
                raise
            where = f"{node.name} ({describe_function(function)})"
            raise TopologyException(f"{where}: {type(error).__name__}: {error}") from error

    return translated(node, function, call)


# --- the writer --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UserWriter:
    """The writer that `to_spark` returned, to be started on the checkpoint of its pipeline."""

    node: SparkSink
    writer: DataStreamWriter

    def start(self, checkpoint: str, name: str) -> StreamingQuery:
        """Start its query."""
        writer = self.writer.option("checkpointLocation", checkpoint)
        if _option_of(writer, "queryName") is None:
            writer = writer.queryName(name)
        return writer.start() if self.node.table is None else writer.toTable(self.node.table)


def user_writer(node: SparkSink, frame: DataFrame) -> UserWriter:
    """Call the function of a `to_spark`.

    Raises:
        TopologyException: it does not return a writer that can be started here.
    """
    made = _called(node, node.function, frame)
    what = _wrong_with(made)
    if what is not None:
        raise TopologyException(f"{node.name}: {what}")
    return UserWriter(node, made)


def _wrong_with(made: Any) -> str | None:
    right = "lambda df: df.writeStream.format('parquet').option('path', '…')"
    if made is None:
        return f"its function returned None; is a `return` missing? It has to return a writer: {right}"
    if isinstance(made, StreamingQuery):
        made.stop()
        return (
            "its function started the query itself; leave out start() and return the writer, which the "
            f"client starts and stops: {right}. For toTable(name) use to_spark(…, table=name)"
        )
    if isinstance(made, DataFrame):
        return f"its function returned a DataFrame; it has to return its writer: {right}"
    if not isinstance(made, DataStreamWriter):
        kind = type(made).__name__
        return f"its function returned {made!r}, a {kind}; it has to return a DataStreamWriter: {right}"
    location = _option_of(made, "checkpointLocation")
    if location is not None:
        return (
            f"its writer has the option checkpointLocation, '{location}'; leave it out: the query's "
            "checkpoint is in the application's checkpoint.location"
        )
    trigger = str(_private(made, "trigger", lambda value: value.toString()) or "")
    if any(kind in trigger for kind in ("OneTimeTrigger", "AvailableNow")):
        return (
            "its writer has a trigger with which the query ends by itself (once, availableNow), but a "
            "pipeline runs as long as its client; use trigger(processingTime='1 minute'), or leave it out"
        )
    return None


def _option_of(writer: DataStreamWriter, name: str) -> str | None:
    value = _private(writer, "extraOptions", lambda options: options.get(name))
    return str(value.get()) if value is not None and value.isDefined() else None


def _private(writer: DataStreamWriter, name: str, read: Callable[[Any], Any]) -> Any:
    """A private field of Spark's writer; None: it has no such field."""
    try:
        java: Any = writer._jwrite
        field = java.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return read(field.get(java))
    except Exception:
        log.debug("Spark's writer does not say its %s", name, exc_info=True)
        return None


# --- records -----------------------------------------------------------------------------------------------


def dataframe_of(records: DataFrame, key_serde: Serde, value_serde: Serde) -> DataFrame:
    """Records as they were read, in the form that the user's program sees."""
    where = place_of_record()
    key = serde_columns.from_bytes(key_serde, F.col("key"), F.concat(where, F.lit(" key")))
    value = serde_columns.from_bytes(value_serde, F.col("value"), F.concat(where, F.lit(" value")))
    return records.select(
        serde_columns.once(key_serde, key).alias("key"),
        serde_columns.once(value_serde, value).alias("value"),
        F.col(TIMESTAMP).alias("timestamp"),
        F.col(PARTITION).alias("partition"),
        F.col(OFFSET).alias("offset"),
        F.col(HEADERS).alias("headers"),
    )


def pause_s(took_s: float, fenced: int, chance: float) -> float:
    """How long a refresh waits before it starts again after another client's has fenced it; in seconds.

    The refresh that begins last fences the others, which notice when they write. It began after them, so it
    is done once they have waited for as long as they took. They wait somewhat longer, each for a time of its
    own, so that they do not fence each other again.

    Args:
        took_s: how long this one ran until it noticed.
        fenced: how often it was fenced.
        chance: from 0 to 1.
    """
    return took_s * (1 + min(fenced, _FURTHEST) * chance)


_FURTHEST = 8
"""How far apart clients spread at most, as a multiple of the time they took."""


def place_of_record() -> Column:
    """Names a record: `orders-0 offset 17`."""
    offset = F.col(OFFSET).cast("string")
    return F.concat(F.col(TOPIC), F.lit("-"), F.col(PARTITION).cast("string"), F.lit(" offset "), offset)
