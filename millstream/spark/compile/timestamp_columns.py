"""Timestamp extractors as Columns: the time of each record of a source, and which records are dropped.

Source: RecordQueue.updateHead: a record that cannot be read has no time; one whose time is negative is
    dropped and counted; an exception of an extractor ends the thread, whatever the handlers say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.dsl.timestamps import (
    Extractor,
    FailOnInvalidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    TimestampExtractor,
    UsePartitionTimeOnInvalidTimestamp,
)
from millstream.errors import TopologyException
from millstream.model import MAX_TIMESTAMP_MS
from millstream.spark.compile.flow import OFFSET, PARTITION, TIMESTAMP, TOPIC, Flow, Lane
from millstream.spark.compile.source import in_range
from millstream.topology.functions import describe_function

__all__ = ["stamp", "stamp_by_task"]


_ANOTHER = (
    "read the topic with another timestamp extractor, such as "
    "Consumed.with_timestamp_extractor(LogAndSkipOnInvalidTimestamp())"
)


def stamp(
    where: str,
    extractor: Extractor,
    flow: Flow,
    lane: Lane,
    traced: Callable[[Callable[..., Any]], str],
) -> str | None:
    """Give the lane's records the time that the extractor has for them.

    Args:
        where: the source's name, for messages.
        traced: adds a column with what a function returns for a record of the lane, and names it.

    Returns:
        The name of a flag of the records that have none, and are to be dropped; None: all have one.

    Raises:
        TopologyException: a function returns something else than a time.
    """
    kept, time = flow.belongs_to(lane), F.unix_millis(TIMESTAMP)
    if not isinstance(extractor, TimestampExtractor):
        extracted = flow.with_column("s", flow.own(lane, _millis(where, extractor, flow, traced(extractor))))
        skipped = flow.with_column("d", kept & (F.col(extracted) < 0))
        _set_time(flow, kept, in_range(F.col(extracted)))
        return skipped
    match extractor:
        case FailOnInvalidTimestamp():
            _refuse(flow, kept & (time < 0), where, time, "; " + _ANOTHER)
            return None
        case LogAndSkipOnInvalidTimestamp():
            return flow.with_column("d", kept & (time < 0))
    raise AssertionError(f"the task itself has the times of {extractor}")


def stamp_by_task(
    where: str,
    extractor: Extractor,
    flow: Flow,
    lane: Lane,
    traced: Callable[[Callable[..., Any]], str],
) -> tuple[DataFrame | None, str | None]:
    """The same where a task orders records by their times, and has them from the extractor.

    Returns:
        What the task computes them from: for each record of the source `how`, one of the numbers below, and
        `time`, that of a function, in ms; None: they have Kafka's. And the flag of records that have none.
    """
    if isinstance(extractor, FailOnInvalidTimestamp | LogAndSkipOnInvalidTimestamp):
        return None, stamp(where, extractor, flow, lane, traced)
    kept, now = flow.belongs_to(lane), F.unix_millis(TIMESTAMP)
    if not isinstance(extractor, TimestampExtractor):
        before = flow.df
        time = flow.own(lane, _millis(where, extractor, flow, traced(extractor)))
        time = F.least(time, F.lit(MAX_TIMESTAMP_MS).cast("bigint"))
        times = flow.df.select(F.when(kept, F.lit(_OF_FUNCTION)).alias("how"), time.alias("time"))
        flow.df = before
        return times, flow.with_column("d", kept & (now < 0))
    how = _OF_PARTITION if isinstance(extractor, UsePartitionTimeOnInvalidTimestamp) else _OF_DAY
    if how == _OF_PARTITION:
        unknown = ", and no record of its partition before it has a valid one; "
        _refuse(flow, kept & (now < 0), where, now, unknown + _ANOTHER)
    nothing = F.lit(None).cast("bigint")
    return flow.df.select(F.when(kept, F.lit(how)).alias("how"), nothing.alias("time")), None


_OF_FUNCTION, _OF_PARTITION, _OF_DAY = 0, 1, 2
"""Whose time a record has (Times.java)."""


def _millis(where: str, function: Callable[..., Any], flow: Flow, column: str) -> Column:
    """What a function has returned in milliseconds; NULL is an error."""
    type_ = flow.type_of(column)
    if isinstance(type_, T.TimestampType):
        time = F.unix_millis(column)
    elif isinstance(type_, T.IntegralType):
        time = F.col(column).cast("bigint")
    else:
        raise TopologyException(
            f"{where} ({describe_function(function)}): a timestamp extractor returns a timestamp or a bigint "
            f"of milliseconds since 1970, this one returns {type_.simpleString()}"
        )
    message = F.concat(
        F.lit(f"{where} ({describe_function(function)}): the timestamp extractor returned NULL for "),
        _record(),
        F.lit("; F.coalesce(…, record.timestamp) takes Kafka's time then, a negative number drops it"),
    )
    return F.coalesce(time, F.raise_error(message).cast("bigint"))


def _refuse(flow: Flow, rows: Column, where: str, time: Column, more: str) -> None:
    """Have the query end at such a row."""
    message = F.concat(
        F.lit(f"{where}: "),
        _record(),
        F.lit(" has the timestamp "),
        time.cast("string"),
        F.lit(f", which is before 1970{more}"),
    )
    # A filter and no column: a column that nobody asks for is not computed.
    flow.guard(F.when(rows, F.raise_error(message).cast("boolean")).otherwise(F.lit(True)))


def _record() -> Column:
    return F.concat(
        F.col(TOPIC),
        F.lit("-"),
        F.col(PARTITION).cast("string"),
        F.lit(" offset "),
        F.col(OFFSET).cast("string"),
    )


def _set_time(flow: Flow, rows: Column, time: Column) -> None:
    flow.df = flow.df.withColumn(TIMESTAMP, F.when(rows, time).otherwise(F.col(TIMESTAMP)))
