"""Timestamp extractors: what time a record of a source has.

For a source, `Consumed.with_timestamp_extractor`; for all that have none, `default.timestamp.extractor`. One
is a ready-made extractor of this file, or a function that returns a Column of the record: a timestamp, or
whole milliseconds since 1970. The time that it gives takes the place of Kafka's in everything that follows:
windows, stream time, stores, the records that are written.

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
    """What the ready-made extractors have in common. One of your own is a function and no subclass."""


@dataclass(frozen=True, slots=True)
class FailOnInvalidTimestamp(TimestampExtractor):
    """The time that Kafka has for a record; one before 1970 ends the pipeline. It is the default.

    Source: org.apache.kafka.streams.processor.FailOnInvalidTimestamp.
    Differs: a record that a filter drops need not end it; Spark may ask the filter first.
    """


@dataclass(frozen=True, slots=True)
class LogAndSkipOnInvalidTimestamp(TimestampExtractor):
    """The time that Kafka has for a record; a record from before 1970 is dropped, and counted.

    Source: org.apache.kafka.streams.processor.LogAndSkipOnInvalidTimestamp.
    Differs: one warning for some batches, with counts, and not one for each record.
    """


@dataclass(frozen=True, slots=True)
class UsePartitionTimeOnInvalidTimestamp(TimestampExtractor):
    """The time that Kafka has for a record; one from before 1970 has the largest of its partition so far.

    Where there is none yet, the pipeline ends, as in Kafka Streams.

    Source: org.apache.kafka.streams.processor.UsePartitionTimeOnInvalidTimestamp.
    Differs: "so far" is in the micro-batch; Kafka Streams goes on from the partition time that it has
        committed. A topic with such records at the beginning of a micro-batch needs a function instead.
    """


@dataclass(frozen=True, slots=True)
class WallclockTimestampExtractor(TimestampExtractor):
    """The time at which a record is processed: that at which its micro-batch was begun.

    A micro-batch that is repeated has the same time again.

    Source: org.apache.kafka.streams.processor.WallclockTimestampExtractor.
    Differs: the records of one micro-batch have one time.
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
    """What was given as an extractor: one, its class, its name (Kafka's, too), a function, or None.

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
            f"{where}: {describe_function(kind)} has to take value, or key, value, or key, value, record"
        )
    own: Callable[..., Any] = kind
    return own
