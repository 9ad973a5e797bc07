"""From lanes to records: one DataFrame of rows that each carry the topic they go to.

A flow with one output is a projection. A flow with several makes an array with one element for each output
that a row belongs to, and explodes it; so outputs, repartition topics and changelogs leave through the one
Kafka sink of the query, and the source is read once.

What a Spark sink cannot carry: the timestamp of a record (Spark ignores such a column when it writes). The
records of internal topics carry it in the header `millstream.ts`, which their readers use; records of output
topics get the time at which they are written.

Records of changelogs also carry the epoch of the claim that their query runs under (design D5), in the same
header. A pipeline is compiled once and may run under many claims, so the epoch is in no traced column: the
rows have a column STAMP, which `with_epoch` turns into that header by one last projection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millstream.model import TIMESTAMP_HEADER
from millstream.spark.flow import HEADERS, HEADERS_TYPE, TIMESTAMP, Flow, Lane

__all__ = ["STAMP", "Output", "output_rows", "with_epoch", "written_fields"]

STAMP = "stamp"
"""The column with the timestamp of a changelog record, 8 bytes; NULL in records of other topics."""
_WRITTEN = ("topic", "key", "value", "partition", "headers", STAMP)


@dataclass(frozen=True)
class Output:
    """Where the rows of a lane go.

    Attributes:
        topic, key, value: what to write; key and value in bytes.
        partitions: the topic's partition count, for a topic that is partitioned by crc32(key).
        partition_by: the bytes that count for that, where it is not the key as it is written: a windowed
            key's windows all have their place by the key itself.
        partition: else the partition; None, or NULL: as Kafka's default partitioner has it.
        timestamped: carry the record's timestamp in a header.
        fenced: carry the epoch there too: the topic is a changelog.
        headers: carry the record's own headers.
        errors: further headers, an array: what is wrong with the record.
        look: writes nothing, and is shown the rows instead: gets whether a row belongs to the lane, is true
            for every row.
    """

    topic: Column
    key: Column
    value: Column
    partitions: int | None = None
    partition_by: Column | None = None
    partition: Column | None = None
    timestamped: bool = False
    fenced: bool = False
    headers: bool = False
    errors: Column | None = None
    look: Callable[[Column], Column] | None = None
    made: Column | None = None


def output_rows(flow: Flow, outputs: list[tuple[Lane, Output]]) -> DataFrame:
    """The records of one flow."""
    if len(outputs) == 1:
        lane, output = outputs[0]
        df = flow.df
        if output.look is not None:
            df = df.where(~output.look(flow.kept(lane)))
        elif lane.keep is not None:
            df = df.where(F.col(lane.keep))
        return df.select(*written_fields(output))
    element = flow.names.new("o")
    keeps = [
        flow.kept(lane)
        if output.look is None
        else F.col(flow.with_column("f", ~output.look(flow.kept(lane))))
        for lane, output in outputs
    ]
    records = F.array(
        *(F.when(keep, F.struct(*written_fields(out))) for keep, (_, out) in zip(keeps, outputs, strict=True))
    )
    exploded = flow.df.select(F.explode(records).alias(element)).where(F.col(element).isNotNull())
    return exploded.select(f"{element}.*")


def written_fields(output: Output) -> list[Column]:
    """The columns of the records that an output writes."""
    if output.made is not None:
        return [output.made[name].alias(name) for name in _WRITTEN]
    partition = F.lit(None).cast("int") if output.partition is None else output.partition
    if output.partitions is not None:
        # A record without a key has no place of its own; it goes where the empty key goes.
        key = output.key if output.partition_by is None else output.partition_by
        key = F.coalesce(key, F.lit(bytearray()))
        partition = (F.crc32(key) % output.partitions).cast("int")
    none = F.lit(None).cast(HEADERS_TYPE)
    headers = F.col(HEADERS) if output.headers else none
    later = F.lit(None).cast("binary")
    if output.timestamped:
        stamp = F.unhex(F.lpad(F.hex(F.unix_millis(F.col(TIMESTAMP))), 16, "0"))
        own = _header(stamp)
        if output.fenced:
            own, later = none, stamp
        headers = F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), own) if output.headers else own
    if output.errors is not None:
        headers = F.concat(F.coalesce(headers, F.array().cast(HEADERS_TYPE)), output.errors)
    return [
        output.topic.alias("topic"),
        output.key.alias("key"),
        output.value.alias("value"),
        partition.alias("partition"),
        headers.alias("headers"),
        later.alias(STAMP),
    ]


def with_epoch(rows: DataFrame, epoch: int | None) -> DataFrame:
    """Rows as a sink takes them, their changelog records with this epoch; None: with the timestamp alone."""
    tail = b"" if epoch is None else epoch.to_bytes(8, "big")
    stamped = _header(F.concat(F.col(STAMP), F.lit(bytearray(tail))))
    headers = F.when(F.col(STAMP).isNotNull(), stamped).otherwise(F.col("headers"))
    return rows.select("topic", "key", "value", "partition", headers.alias("headers"))


def _header(stamp: Column) -> Column:
    return F.array(F.struct(F.lit(TIMESTAMP_HEADER).alias("key"), stamp.alias("value"))).cast(HEADERS_TYPE)
