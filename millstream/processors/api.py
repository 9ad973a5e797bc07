"""What a user's processor is written against: records, contexts, and the classes to inherit.

Source: org.apache.kafka.streams.processor.api.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Protocol

from millstream.model import TaskId
from millstream.query.times import Time

__all__ = [
    "Cancellable",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "Headers",
    "Processor",
    "ProcessorContext",
    "PunctuationType",
    "Record",
    "RecordMetadata",
    "ValueTransformerWithKey",
]

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values; a name may be there more than once."""


class PunctuationType(Enum):
    """Which time a punctuator goes by: that of the records, or that of the clock.

    Source: org.apache.kafka.streams.processor.PunctuationType.
    """

    STREAM_TIME = "stream-time"
    WALL_CLOCK_TIME = "wall-clock-time"


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where a record was read.

    Source: org.apache.kafka.streams.processor.api.RecordMetadata.
    """

    topic: str | None
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Record:
    """A record: key and value as Python values, the timestamp in milliseconds since the epoch.

    It is not changed: `record.with_value(...)` is another one.

    Source: org.apache.kafka.streams.processor.api.Record.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_key(self, key: Any) -> Record:
        """The same with another key."""
        return Record(key, self.value, self.timestamp, self.headers)

    def with_value(self, value: Any) -> Record:
        """The same with another value."""
        return Record(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> Record:
        """The same with another timestamp."""
        return Record(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Record:
        """The same with these headers."""
        return Record(self.key, self.value, self.timestamp, tuple(headers))


@dataclass(frozen=True, slots=True)
class FixedKeyRecord:
    """A record whose key stays.

    Source: org.apache.kafka.streams.processor.api.FixedKeyRecord.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()

    def with_value(self, value: Any) -> FixedKeyRecord:
        """The same with another value."""
        return FixedKeyRecord(self.key, value, self.timestamp, self.headers)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        """The same with another timestamp."""
        return FixedKeyRecord(self.key, self.value, timestamp, self.headers)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> FixedKeyRecord:
        """The same with these headers."""
        return FixedKeyRecord(self.key, self.value, self.timestamp, tuple(headers))


class Cancellable(Protocol):
    """What `schedule` returns.

    Source: org.apache.kafka.streams.processor.Cancellable.
    """

    def cancel(self) -> None:
        """Do not punctuate any more."""


class ProcessingContext(Protocol):
    """What a processor knows of where it runs, and can ask for. Keep it in `init`.

    Source: org.apache.kafka.streams.processor.api.ProcessingContext.
    Differs: there is no state directory, and there are no metrics: a processor runs where Spark's workers
        are.
    """

    @property
    def application_id(self) -> str:
        """The `application.id`."""

    @property
    def task_id(self) -> TaskId:
        """The task that the processor is for."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the record was read that is being processed. In a punctuator, and in `init`, its topic is
        None, and its partition and offset are -1. None where no task is at work."""

    @property
    def key_serde(self) -> Any:
        """The configured `default.key.serde`."""

    @property
    def value_serde(self) -> Any:
        """The configured `default.value.serde`."""

    def get_state_store(self, name: str) -> Any:
        """A store that the processor is connected with, or a global store.

        Raises:
            StreamsException: it is not connected with such a store.
        """

    def schedule(
        self,
        interval: timedelta,
        type: PunctuationType,
        punctuator: Callable[[int], Any],
        *,
        start_time: Time | None = None,
    ) -> Cancellable:
        """Have a function called with the time, in milliseconds, whenever the interval has passed.

        By stream time: after the record that brings that time, first with the first record; intervals are
        counted from 1970, or from `start_time`. Where no records come, it stands still. By wall-clock time:
        first when the interval has passed, or at `start_time`. What was missed is not made up for.

        Raises:
            ValueError: the interval is shorter than a millisecond.
        """

    def commit(self) -> None:
        """Ask for a commit. A micro-batch commits anyway when it ends, so nothing else comes of it."""

    def app_configs(self) -> Mapping[str, Any]:
        """The configuration that the client was given."""

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """Those of its keys that begin so, without that."""

    def current_system_time_ms(self) -> int:
        """The time of day, in milliseconds since the epoch."""

    def current_stream_time_ms(self) -> int:
        """The newest timestamp of the task's records so far; -1: there was none."""


class ProcessorContext(ProcessingContext, Protocol):
    """The context of a Processor.

    Source: org.apache.kafka.streams.processor.api.ProcessorContext.
    """

    def forward(self, record: Record, child: str | None = None) -> None:
        """Give a record to all steps that come after this one, or to the one of that name.

        Depth first: when it returns, every processor behind has processed the record.

        Raises:
            StreamsException: there is no such step.
            SerializationException: it is written to a topic, or handed to Spark, and does not fit the serdes.
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol):
    """The context of a FixedKeyProcessor.

    Source: org.apache.kafka.streams.processor.api.FixedKeyProcessorContext.
    """

    def forward(self, record: FixedKeyRecord, child: str | None = None) -> None:
        """Give a record to all steps that come after this one, or to the one of that name. It has the key of
        the one that came in; in a punctuator it may have any.

        Raises:
            StreamsException: there is no such step, or it has another key.
        """


class Processor(ABC):
    """Code that is given one record after the other. Inherit it, and give the class to `KStream.process`.

    Each task has one of its own, which is made where the task runs, and made anew whenever that begins again.
    So what it keeps in its fields is lost then; what is in its stores is not.

    Source: org.apache.kafka.streams.processor.api.Processor.
    """

    fixed_key = False

    def init(self, context: ProcessorContext) -> None:  # noqa: B027  # most have nothing to do
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, as well as that can be done. Stores cannot be used then."""


class FixedKeyProcessor(ABC):
    """The same for `KStream.process_values`: keys stay as they are.

    Source: org.apache.kafka.streams.processor.api.FixedKeyProcessor.
    """

    fixed_key = True

    def init(self, context: FixedKeyProcessorContext) -> None:  # noqa: B027
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: FixedKeyRecord) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, as well as that can be done. Stores cannot be used then."""


class ValueTransformerWithKey(ABC):
    """Code that gives the rows of a table other values. Inherit it, and give the class to
    `KTable.transform_values`.

    Each task has one of its own, as with a Processor. It returns what goes on: its context has no forward().

    Source: org.apache.kafka.streams.kstream.ValueTransformerWithKey.
    """

    def init(self, context: ProcessingContext) -> None:  # noqa: B027
        """Called once, before the first row."""

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """The new value of a row; None: it is deleted. Called for a deletion as well, with None.

        Where what comes behind has to know what was there before, and the result has no store of its own, it
        is called for the old value, too, after the new one.
        """

    def close(self) -> None:  # noqa: B027
        """Called at the end, as well as that can be done. Stores cannot be used then."""
