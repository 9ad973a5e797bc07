"""What a user's processor is written against: records, contexts, and the classes to inherit.

Source: org.apache.kafka.streams.processor.api.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Protocol

from millstream.model import TaskId

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
]

Headers = tuple[tuple[str, bytes | None], ...]
"""Names and values; a name may be there more than once."""


class PunctuationType(Enum):
    """Which time a punctuator goes by: that of the records, or that of the clock."""

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
        return replace(self, key=key)

    def with_value(self, value: Any) -> Record:
        """The same with another value."""
        return replace(self, value=value)

    def with_timestamp(self, timestamp: int) -> Record:
        """The same with another timestamp."""
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> Record:
        """The same with these headers."""
        return replace(self, headers=tuple(headers))


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
        return replace(self, value=value)

    def with_timestamp(self, timestamp: int) -> FixedKeyRecord:
        """The same with another timestamp."""
        return replace(self, timestamp=timestamp)

    def with_headers(self, headers: Iterable[tuple[str, bytes | None]]) -> FixedKeyRecord:
        """The same with these headers."""
        return replace(self, headers=tuple(headers))


class Cancellable(Protocol):
    """What `schedule` returns."""

    def cancel(self) -> None:
        """Do not punctuate any more."""


class ProcessingContext(Protocol):
    """What a processor knows of where it runs, and can ask for.

    Source: org.apache.kafka.streams.processor.api.ProcessingContext.
    """

    @property
    def application_id(self) -> str: ...

    @property
    def task_id(self) -> TaskId: ...

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the record was read that is being processed; None in `init`."""

    def get_state_store(self, name: str) -> Any:
        """A store that the processor is connected with."""

    def schedule(
        self,
        interval: timedelta,
        type: PunctuationType,
        punctuator: Callable[[int], Any],
        *,
        start_time: datetime | None = None,
    ) -> Cancellable:
        """Call a function with the time, again and again."""

    def commit(self) -> None:
        """Ask for a commit; a micro-batch commits anyway when it ends."""

    def app_configs(self) -> Mapping[str, Any]:
        """The configuration."""

    def current_system_time_ms(self) -> int: ...

    def current_stream_time_ms(self) -> int: ...


class ProcessorContext(ProcessingContext, Protocol):
    """The context of a Processor."""

    def forward(self, record: Record, child: str | None = None) -> None:
        """Give a record to all steps that come after this one, or to the one of that name."""


class FixedKeyProcessorContext(ProcessingContext, Protocol):
    """The context of a FixedKeyProcessor."""

    def forward(self, record: FixedKeyRecord, child: str | None = None) -> None:
        """Give a record to all steps that come after this one, or to the one of that name."""


class Processor(ABC):
    """Code that is given one record after the other. Inherit it, and give the class to `KStream.process`."""

    def init(self, context: ProcessorContext) -> None:  # noqa: B027  # most have nothing to do
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: Record) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, as well as that can be done."""


class FixedKeyProcessor(ABC):
    """The same for `KStream.process_values`: keys stay as they are."""

    def init(self, context: FixedKeyProcessorContext) -> None:  # noqa: B027
        """Called once, before the first record."""

    @abstractmethod
    def process(self, record: FixedKeyRecord) -> None:
        """Called for each record."""

    def close(self) -> None:  # noqa: B027
        """Called at the end, as well as that can be done."""
