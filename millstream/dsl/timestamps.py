"""Timestamp extractors: how a source's records get their time.

For one source, `Consumed.with_timestamp_extractor`; for all others, `default.timestamp.extractor`. An
extractor is a ready-made one of this file, or a function that returns a Column of the record: a timestamp, or
whole milliseconds since 1970. Its time replaces Kafka's in everything that follows: windows, stream time,
stores, output records.

Source: org.apache.kafka.streams.processor.TimestampExtractor and its implementations.
Differs: a function gets no partition time; UsePartitionTimeOnInvalidTimestamp has it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.errors import TopologyException
from millstream.topology.columns import Mapper
from millstream.topology.functions import arity, describe_function

__all__ = [
    "Extractor",
    "FailOnInvalidTimestamp",
    "LogAndSkipOnInvalidTimestamp",
    "TimestampExtractor",
    "UsePartitionTimeOnInvalidTimestamp",
    "WallclockTimestampExtractor",
    "extractor",
]


@dataclass(frozen=True, slots=True)
class TimestampExtractor:
    """The base of the ready-made extractors. Your own is a function, not a subclass."""


@dataclass(frozen=True, slots=True)
class FailOnInvalidTimestamp(TimestampExtractor):
    """Kafka's time of a record; a time before 1970 ends the pipeline. This is the default.

    Source: org.apache.kafka.streams.processor.FailOnInvalidTimestamp.
    Differs: a record that a filter drops may not end it; Spark may run the filter first.
    """


@dataclass(frozen=True, slots=True)
class LogAndSkipOnInvalidTimestamp(TimestampExtractor):
    """Kafka's time of a record; a record from before 1970 is dropped and counted.

    Source: org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp.
    Differs: one warning with counts for several batches, rather than one for each record.
    """


@dataclass(frozen=True, slots=True)
class UsePartitionTimeOnInvalidTimestamp(TimestampExtractor):
    """Kafka's time of a record; a record from before 1970 gets the largest time of its partition so far.

    If there is none yet, the pipeline ends, as in Kafka Streams.

    Source: org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp.
    """


@dataclass(frozen=True, slots=True)
class WallclockTimestampExtractor(TimestampExtractor):
    """The time at which a task takes a record.

    Source: org.apache.kafka.streams.processor.WallclockTimestampExtractor.
    """


Extractor: TypeAlias = "TimestampExtractor | Mapper"
"""A ready-made extractor, or a function of `value`, `key, value` or `key, value, record`."""

_READY_MADE: dict[str, type[TimestampExtractor]] = {
    kind.__name__: kind
    for kind in (
        FailOnInvalidTimestamp,
        LogAndSkipOnInvalidTimestamp,
        UsePartitionTimeOnInvalidTimestamp,
        WallclockTimestampExtractor,
    )
}


def extractor(given: Any, where: str) -> Extractor | None:
    """The extractor for an argument: an extractor, its class, its name (also Kafka's), a function, or None.

    Raises:
        TopologyException: it is something else.
    """
    if given is None or isinstance(given, TimestampExtractor):
        return given
    kind = _READY_MADE.get(given.rpartition(".")[2]) if isinstance(given, str) else given
    if isinstance(kind, type) and issubclass(kind, TimestampExtractor) and kind is not TimestampExtractor:
        return kind()
    if isinstance(kind, type) or not callable(kind):
        raise TopologyException(
            f"{where} is {', '.join(f'{name}()' for name in _READY_MADE)}, or a function such as "
            f"lambda value: value.time; got {given!r}"
        )
    if arity(kind) is None:
        raise TopologyException(
            f"{where}: {describe_function(kind)} must take value, or key, value, or key, value, record"
        )
    own: Callable[..., Any] = kind
    return own
