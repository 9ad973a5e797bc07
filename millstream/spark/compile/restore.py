"""Restores an operator's state from changelogs, for a pipeline that begins with a new checkpoint.

A changelog has the result of each aggregate. If the result does not determine them, it also has the parts
that it was merged from (model.PARTS_HEADER). The kernel keeps nothing else but the window in the key and the
timestamp; stream time is the latest timestamp of a partition.

Only tests use this so far; they show that the changelog is enough (docs/decisions/0031). One thing is
missing: the offsets to which a changelog belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.errors import TopologyException
from millstream.model import PARTS_HEADER, StoreKind
from millstream.serdes.serde import Serde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.kernel_operators import parts_from_bytes
from millstream.spark.compile.mergeable import Mergeable
from millstream.topology.windows import DailyTimeWindows, SlidingWindows, TimeWindows, Windows

__all__ = ["RestoredAggregate", "end_of_day", "from_changelogs"]


@dataclass(frozen=True)
class RestoredAggregate:
    """An aggregation to restore from its changelog.

    Attributes:
        value: the serde of its results.
        parts: the parts that it merges.
    """

    kind: StoreKind
    windows: Windows | None
    value: Serde
    parts: Mergeable


def from_changelogs(
    spark: SparkSession, options: Mapping[str, str]
) -> Callable[[str, RestoredAggregate], DataFrame]:
    """For `CompileContext.restored`: reads changelogs as they are when the first micro-batch begins.

    Epochs are ignored: no one else must have written, or their records are included too.

    Args:
        options: those of Spark's Kafka source (source.kafka_options).
    """

    def read(topic: str, into: RestoredAggregate) -> DataFrame:
        records = (
            spark.read.format("kafka")
            .options(**options)
            .options(subscribe=topic, startingOffsets="earliest", endingOffsets="latest")
            .option("includeHeaders", "true")
            .load()
        )
        newest = F.max_by(F.struct("value", "headers", "timestamp"), "offset").alias("newest")
        last = records.groupBy("partition", "key").agg(newest).where(F.col("newest")["value"].isNotNull())
        key, start, end = _windowed(F.col("key"), into)
        return last.select(
            key.alias("key"),
            start.alias("start"),
            end.alias("end"),
            F.unix_millis(F.col("newest")["timestamp"]).alias("at"),
            _parts(F.col("newest"), into).alias("parts"),
        )

    return read


def _windowed(key: Column, into: RestoredAggregate) -> tuple[Column, Column, Column]:
    """Key, start and end from a key in a changelog (building._windowed_bytes)."""
    if into.windows is None:
        nothing = F.lit(0).cast("bigint")
        return key, nothing, nothing
    size = F.octet_length(key)
    if into.kind is StoreKind.SESSION:
        return F.substring(key, F.lit(1), size - 16), _number(key, size - 7), _number(key, size - 15)
    start = _number(key, size - 11)
    if isinstance(into.windows, DailyTimeWindows):
        return F.substring(key, F.lit(1), size - 12), start, end_of_day(start, into.windows)
    if isinstance(into.windows, TimeWindows):
        length = into.windows.size_ms
    elif isinstance(into.windows, SlidingWindows):
        length = into.windows.time_difference_ms
    else:
        raise TopologyException("unknown kind of windows; this is a bug, please report it")
    return F.substring(key, F.lit(1), size - 12), start, start + length


def end_of_day(start: Column, days: DailyTimeWindows) -> Column:
    """The end of a window of the kernel's DailyWindows: the same clock time on the next day."""
    clock = F.from_utc_timestamp(F.timestamp_millis(start), days.zone.key)
    # The very first window begins at 0, which may be before its hour.
    begun = F.when((start == 0) & (F.hour(clock) < days.start_hour), 0).otherwise(1)
    day = F.date_add(F.to_date(clock), begun)
    ends = F.timestamp_seconds(86_400 * F.unix_date(day) + 3600 * days.start_hour)
    return F.unix_millis(F.to_utc_timestamp(ends, days.zone.key))


def _number(content: Column, place: Column) -> Column:
    """A big-endian, non-negative number of 8 bytes."""
    return serde_columns.read_number("long", F.substring(content, place, F.lit(8)))


def _parts(newest: Column, into: RestoredAggregate) -> Column:
    """A struct of the parts, by position."""
    if into.parts.of_result is not None:
        value = serde_columns.from_bytes(into.value, newest["value"], F.lit("a changelog"))
        return F.struct(into.parts.of_result(value, newest["timestamp"]).alias("part0"))
    own = F.filter(newest["headers"], lambda header: header["key"] == PARTS_HEADER)
    missing = F.raise_error(
        F.lit(
            "a changelog does not contain the parts of a result: they were too large, or an older version "
            "wrote the record"
        )
    )
    content = F.when(F.size(own) > 0, own[0]["value"]).otherwise(missing.cast("binary"))
    return parts_from_bytes(content, into.parts.parts)
