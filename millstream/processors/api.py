"""The API for a user's processors: records, contexts, and the base classes.

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
"""Names and values; a name may occur more than once."""


class PunctuationType(Enum):
    """Which time drives a punctuator: stream time (of the records) or wall-clock time.

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

    Immutable: `record.with_value(...)` returns a new record.

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
    """A record whose key cannot be changed.

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
        """Stop calling the punctuator."""


class ProcessingContext(Protocol):
    """A processor's access to its environment: stores, punctuators, configuration. Keep it in `init`.

    Source: org.apache.kafka.streams.processor.api.ProcessingContext.
    Differs: no state directory and no metrics, because a processor runs in Spark's workers.
    """

    @property
    def application_id(self) -> str:
        """The `application.id`."""

    @property
    def task_id(self) -> TaskId:
        """The task that the processor belongs to."""

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """The source of the current record. In a punctuator and in `init`, its topic is None, and its
        partition and offset are -1. None if no task is running."""

    @property
    def key_serde(self) -> Any:
        """The configured `default.key.serde`."""

    @property
    def value_serde(self) -> Any:
        """The configured `default.value.serde`."""

    def get_state_store(self, name: str) -> Any:
        """A store that the processor is connected to, or a global store.

        Raises:
            StreamsException: the processor is not connected to such a store.
        """

    def schedule(
        self,
        interval: timedelta,
        type: PunctuationType,
        punctuator: Callable[[int], Any],
        *,
        start_time: Time | None = None,
    ) -> Cancellable:
        """Call a function with the time, in milliseconds, whenever the interval has passed.

        Stream time: called after the record that reaches that time, for the first time at the first record.
        Intervals count from 1970, or from `start_time`. Without records, stream time stands still. Wall-clock
        time: called first when the interval has passed, or at `start_time`. Missed calls are not made up.

        Raises:
            ValueError: the interval is shorter than a millisecond.
        """

    def commit(self) -> None:
        """Request a commit, which then comes soon."""

    def app_configs(self) -> Mapping[str, Any]:
        """The client's configuration."""

    def app_configs_with_prefix(self, prefix: str) -> Mapping[str, Any]:
        """The entries whose keys start with `prefix`, with the prefix removed."""

    def current_system_time_ms(self) -> int:
        """The time of day, in milliseconds since the epoch."""

    def current_stream_time_ms(self) -> int:
        """The newest timestamp of the task's records so far; -1 if there was none."""


class ProcessorContext(ProcessingContext, Protocol):
    """The context of a Processor.

    Source: org.apache.kafka.streams.processor.api.ProcessorContext.
    """

    def forward(self, record: Record, child: str | None = None) -> None:
        """Forward a record to all downstream steps, or to the named one.

        Depth first: when it returns, every processor downstream has processed the record.

        Raises:
            StreamsException: there is no such step.
            SerializationException: the record goes to a topic or to Spark, and does not fit the serdes.
        """


class FixedKeyProcessorContext(ProcessingContext, Protocol):
    """The context of a FixedKeyProcessor.

    Source: org.apache.kafka.streams.processor.api.FixedKeyProcessorContext.
    """

    def forward(self, record: FixedKeyRecord, child: str | None = None) -> None:
        """Forward a record to all downstream steps, or to the named one. Its key must be that of the input
        record; in a punctuator, any key is allowed.

        Raises:
            StreamsException: there is no such step, or the key differs.
        """


class Processor(ABC):
    """Code that processes one record at a time. Subclass it, and pass the class to `KStream.process`.

    Each task has its own instance, created where the task runs, and again whenever the task restarts. Its
    fields are lost in a restart; its stores are not.

    Source: org.apache.kafka.streams.processor.api.Processor.
    """

    fixed_key = False

    def init(self, context: ProcessorContext) -> None:  # noqa: B027  # most have nothing to do
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, on a best-effort basis. Stores cannot be used then."""


class FixedKeyProcessor(ABC):
    """The same for `KStream.process_values`: keys cannot be changed.

    Source: org.apache.kafka.streams.processor.api.FixedKeyProcessor.
    """

    fixed_key = True

    def init(self, context: FixedKeyProcessorContext) -> None:  # noqa: B027
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: FixedKeyRecord) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, on a best-effort basis. Stores cannot be used then."""


class ValueTransformerWithKey(ABC):
    """Code that gives the rows of a table new values. Subclass it, and pass the class to
    `KTable.transform_values`.

    Each task has its own instance, as with a Processor. It returns the result: its context has no forward().

    Source: org.apache.kafka.streams.kstream.ValueTransformerWithKey.
    """

    def init(self, context: ProcessingContext) -> None:  # noqa: B027
        """Called once, before the first row."""

    @abstractmethod
    def transform(self, key: Any, value: Any) -> Any:
        """The new value of a row; None deletes the row. Also called for a deletion, with None.

        If a downstream step needs the previous value and the result has no store of its own, it is also
        called for the old value, after the new one.
        """

    def close(self) -> None:  # noqa: B027
        """Called at the end, on a best-effort basis. Stores cannot be used then."""
