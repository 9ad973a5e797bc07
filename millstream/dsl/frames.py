"""Spark DataFrames at both ends of a program: as a source table, and as the output of a stream.

Nothing here imports pyspark: a DataFrame is recognized by its attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.globalktable import GlobalKTable
from millstream.dsl.options import Named, Produced, Repartitioned, name_of, option
from millstream.dsl.repartition import check_repartition
from millstream.errors import TopologyException
from millstream.serdes.serde import Serde
from millstream.topology import nodes
from millstream.topology.columns import Frame, Writer
from millstream.topology.functions import arity, describe_argument, describe_function
from millstream.topology.names import validate_name, validate_topic

if TYPE_CHECKING:
    from millstream.dsl.kstream import KStream

__all__ = ["DataFrameTable", "SparkOutputs", "StreamDataFrame", "add_frame_table", "check_frame"]

_FACTORY = "builder.from_dataframe(lambda spark: spark.read.parquet('…'), key='id')"


class DataFrameTable(GlobalKTable):
    """The rows of a DataFrame as a table, to join streams with. Made by `StreamsBuilder.from_dataframe`.

        orders.join(customers, lambda order, customer: {"id": order.id, "city": customer.city})
        orders.left_join(customers, lambda order: order.customer, lambda order, customer: …)

    With one function, a record is joined with the row of its key. With two, the first one returns the key of
    the row. A row's value is a struct of all its columns.

    Differs: Kafka Streams has no such table; a GlobalKTable comes closest, and `describe()` shows this one as
        one. It has no store that can be queried.
    """

    @property
    def name(self) -> str:
        """The name to refresh it by: `KafkaStreams.refresh_table`."""
        return self._draft.node.name

    def __repr__(self) -> str:
        return f"<DataFrameTable '{self.name}'>"


@dataclass(frozen=True)
class StreamDataFrame:
    """A stream for other Spark queries to read: `KafkaStreams.dataframe(this)` returns the DataFrame.

    Made by `KStream.to_dataframe`.

    Attributes:
        topic: the topic in between.
    """

    topic: str


def check_frame(frame: Any, what: str) -> None:
    """Raise unless this is a static DataFrame, in Spark's Java process on this machine.

    Raises:
        TopologyException: it is not.
    """
    kind = type(frame)
    if kind.__module__.startswith("pyspark.sql.connect."):
        raise TopologyException(
            f"{what}: this is a Spark Connect DataFrame, which Millstream does not support: it needs "
            f"Spark's Java process on this machine; give it a function instead, {_FACTORY}, which is called "
            "with a session that has one"
        )
    if not (hasattr(frame, "schema") and hasattr(frame, "isStreaming") and hasattr(frame, "sparkSession")):
        if hasattr(frame, "columns") or hasattr(frame, "schema"):
            raise TopologyException(
                f"{what}: {kind.__module__.partition('.')[0]}'s {kind.__name__} is not a Spark DataFrame; "
                "convert it: lambda spark: spark.createDataFrame(frame)"
            )
        raise TopologyException(
            f"{what}: takes a Spark DataFrame, or a function that gets a SparkSession and returns one, "
            f"{_FACTORY}; got {frame!r}, a {kind.__name__}"
        )
    if frame.isStreaming:
        raise TopologyException(
            f"{what}: this DataFrame is streaming (spark.readStream), and a table needs a static one "
            "(spark.read): it is read as a whole, and again on a refresh. For a stream use "
            "builder.stream() of its topic"
        )


def add_frame_table(
    drafts: Drafts,
    frame: Frame,
    key: str | Iterable[str],
    *,
    named: str | Named | None,
    refresh_on_start: bool,
) -> DataFrameTable:
    """As `StreamsBuilder.from_dataframe`."""
    if callable(frame) and not hasattr(frame, "isStreaming"):
        if arity(frame, most=1) != 1:
            raise TopologyException(
                f"from_dataframe(): the function ({describe_function(frame)}) must take one argument, a "
                f"SparkSession: {_FACTORY}"
            )
    else:
        check_frame(frame, "from_dataframe()")
    columns = (key,) if isinstance(key, str) else tuple(key) if isinstance(key, Iterable) else ()
    if not columns or not all(isinstance(each, str) and each for each in columns):
        raise TopologyException(
            f"from_dataframe(): key is the name of a column, or of several: key='id'; got {key!r}"
        )
    if hasattr(frame, "columns"):
        check_columns(columns, frame.columns, "from_dataframe()")
    name = name_of(named)
    source_name = None if name is None else validate_name(f"{name}-source")
    drafts.check(name, source_name, store=name)
    source_name = drafts.names.processor("DATAFRAME-SOURCE-", source_name)
    name = drafts.names.processor("DATAFRAME-TABLE-", name)
    node = nodes.FrameTable(
        name,
        (),
        topic=f"{name}-changelog",
        source_name=source_name,
        stored=nodes.Store(name, queryable=False),
        frame=frame,
        key=columns,
        reads_at_start=refresh_on_start,
    )
    drafts.check_internal_topic(node.topic)
    return DataFrameTable(drafts, drafts.add_source(node), None, None, name)


def check_columns(key: Iterable[str], columns: Iterable[str], what: str) -> None:
    """Raise if a key column is missing, or a column name occurs twice.

    Raises:
        TopologyException: one is missing or occurs twice.
    """
    there = list(columns)
    for each in key:
        if each not in there:
            raise TopologyException(
                f"{what}: the DataFrame has no column '{each}' for the key; it has "
                f"{', '.join(there) or 'none'}"
            )
    twice = sorted({each for each in there if there.count(each) > 1})
    if twice:
        raise TopologyException(
            f"{what}: the DataFrame has several columns called '{twice[0]}'; rename or drop all but one"
        )


class SparkOutputs:
    """How a stream reaches Spark's own readers and writers."""

    _drafts: Drafts
    _draft: Draft
    _key_serde: Serde | None
    _value_serde: Serde | None

    def to_spark(
        self,
        writer: Writer,
        repartitioned: Repartitioned | None = None,
        *,
        table: str | None = None,
        named: str | Named | None = None,
    ) -> None:
        """Write the stream with a Spark writer: to files, Delta, Iceberg, JDBC, or a function.

            stream.to_spark(lambda df: df.select("value.*").writeStream.format("parquet").option("path", "…"))

        `writer` gets a streaming DataFrame of the records and returns a DataStreamWriter, not started. It may
        use everything that Spark offers, aggregations included. The client starts it as a query of its own,
        which is a pipeline like any other: it starts and stops with the client, its failure reaches the
        uncaught exception handler, and health and metadata show it. Its checkpoint is with the others, so do
        not set a checkpointLocation.

        Between the stream and that query there is an internal topic, `<named>-repartition`. So the query runs
        at its own pace, and its output has the guarantees of its sink: Spark repeats an interrupted
        micro-batch, with the same records under the same number. See docs/dataframes.md.

        Shape: key, value, timestamp, partition int, offset bigint, headers array<struct<key, value>>.
            Partition and offset, those of the internal topic, identify a record.

        Args:
            repartitioned: serdes, number of partitions and name of that topic.
            table: start the writer with `toTable(table)`; None: with `start()`.

        Runs on: `writer` is called on the driver, once for each start of Spark.
        """
        _check_writer(writer)
        if table is not None and (not isinstance(table, str) or not table):
            raise TopologyException(f"to_spark(): table is the name of a table, got {table!r}")
        repartitioned = option(repartitioned, Repartitioned, "to_spark")
        if repartitioned.partitioner is not None:
            raise TopologyException(
                "to_spark(): a partitioner has no effect here; leave it out of Repartitioned"
            )
        name = name_of(named) or repartitioned.name
        self._drafts.check(name)
        check_repartition(self._drafts, name)
        name = self._drafts.names.processor("KSTREAM-TO-SPARK-", name)
        names = self._drafts.names.repartition(name)
        self._drafts.check_internal_topic(names.topic)
        topic = nodes.SparkTopic(
            names.source,
            (),
            topic=names.topic,
            sink_name=names.sink,
            key_serde=repartitioned.key_serde or self._key_serde,
            value_serde=repartitioned.value_serde or self._value_serde,
            partitions=repartitioned.number_of_partitions,
            implicit=False,
        )
        between = self._drafts.add(topic, self._draft)
        self._drafts.add(nodes.SparkSink(name, (), writer, table), between)

    def to_dataframe(
        self, topic: str, produced: Produced | None = None, *, named: str | Named | None = None
    ) -> StreamDataFrame:
        """Write the stream to a topic, as `to` does, for Spark queries that you start yourself.

            clean = stream.to_dataframe("clean-orders")
            …
            streams.start()
            df = streams.dataframe(clean)     # a streaming DataFrame, with the stream's types
            df.groupBy("value.region").count().writeStream.format("console").outputMode("complete").start()

        The client does not manage such a query: you give it a checkpoint, and you stop it. Use `to_spark` for
        a query that belongs to the application.
        """
        validate_topic(topic)
        stream = cast("KStream", self)  # this is mixed into KStream
        stream.to(topic, produced, named=named)
        return StreamDataFrame(topic)


def _check_writer(writer: Any) -> None:
    if not callable(writer) or arity(writer, most=1) != 1:
        what = describe_argument(writer)
        raise TopologyException(
            f"to_spark() takes a function of one argument, a streaming DataFrame; got {what}: "
            "stream.to_spark(lambda df: df.writeStream.format('parquet').option('path', '…'))"
        )
