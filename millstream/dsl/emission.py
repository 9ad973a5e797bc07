"""When the results of an aggregation are emitted: emit strategies, and the options of `KTable.suppress()`.

Both hold back values that later ones would replace. An emit strategy belongs to a windowed aggregation;
suppress is a step of its own after any table, with a buffer that can be limited.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING

from millstream.clock import milliseconds
from millstream.errors import TopologyException
from millstream.topology.names import validate_name

if TYPE_CHECKING:
    from typing import Any, Self

__all__ = ["BufferConfig", "EagerBufferConfig", "EmitStrategy", "StrictBufferConfig", "Suppressed"]


class StrategyType(Enum):
    """Source: org.apache.kafka.streams.kstream.EmitStrategy.StrategyType."""

    ON_WINDOW_UPDATE = 0
    ON_WINDOW_CLOSE = 1


@dataclass(frozen=True)
class EmitStrategy:
    """Which values of a window are emitted: each one, or only the last.

    Attributes:
        type: which of the two.

    Source: org.apache.kafka.streams.kstream.EmitStrategy (KIP-825).
    """

    type: StrategyType

    def __post_init__(self) -> None:
        if not isinstance(self.type, StrategyType):
            raise TopologyException(
                f"an emit strategy is EmitStrategy.on_window_close() or EmitStrategy.on_window_update(); its "
                f"type cannot be {self.type!r}"
            )

    @classmethod
    def on_window_close(cls) -> EmitStrategy:
        """The last value, once stream time has passed the window's end and its grace period.

        Stream time advances only with records: a later record in the same partition closes a window.
        """
        return cls(StrategyType.ON_WINDOW_CLOSE)

    @classmethod
    def on_window_update(cls) -> EmitStrategy:
        """The value whenever it has changed, with a cache once per commit. This is the default."""
        return cls(StrategyType.ON_WINDOW_UPDATE)


@dataclass(frozen=True, kw_only=True)
class BufferConfig:
    """How much a `suppress()` may hold back, and what it does when the buffer is full.

    Start with `BufferConfig.unbounded()`, `.max_records(n)` or `.max_bytes(n)`. The limits apply to each
    task, that is, to each partition.

    Attributes:
        record_limit: the maximum number of keys; None: no limit.
        byte_limit: the maximum number of bytes; None: no limit.
        logging_enabled: whether the buffer has a changelog.
        topic_config: configs of the changelog topic, on top of the defaults.

    Source: org.apache.kafka.streams.kstream.Suppressed.BufferConfig, BufferConfigInternal.
    """

    record_limit: int | None = None
    byte_limit: int | None = None
    logging_enabled: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for word, limit in (("max_records", self.record_limit), ("max_bytes", self.byte_limit)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
                raise TopologyException(f"{word} of a buffer is a number that is not negative, got {limit!r}")

    @property
    @abstractmethod
    def stops_when_full(self) -> bool:
        """Whether a full buffer ends the program, rather than emitting its oldest records early."""

    @staticmethod
    def unbounded() -> StrictBufferConfig:
        """No limit. A key or window that never closes stays forever."""
        return StrictBufferConfig()

    @staticmethod
    def max_records(record_limit: int) -> EagerBufferConfig:
        """At most this many keys; beyond that, the oldest is emitted."""
        return EagerBufferConfig(record_limit=_limit("max_records", record_limit))

    @staticmethod
    def max_bytes(byte_limit: int) -> EagerBufferConfig:
        """At most this many bytes of keys and values; beyond that, the oldest is emitted."""
        return EagerBufferConfig(byte_limit=_limit("max_bytes", byte_limit))

    def with_max_records(self, record_limit: int) -> Self:
        """The same with another limit on keys."""
        return replace(self, record_limit=_limit("max_records", record_limit))

    def with_max_bytes(self, byte_limit: int) -> Self:
        """The same with another limit on bytes."""
        return replace(self, byte_limit=_limit("max_bytes", byte_limit))

    def with_no_bound(self) -> StrictBufferConfig:
        """The same without limits."""
        return StrictBufferConfig(logging_enabled=self.logging_enabled, topic_config=self.topic_config)

    def shut_down_when_full(self) -> StrictBufferConfig:
        """The same, but a full buffer is an error, which ends the pipeline: nothing is emitted early."""
        return StrictBufferConfig(**self._all)

    def emit_early_when_full(self) -> EagerBufferConfig:
        """The same, but a full buffer emits its oldest record."""
        return EagerBufferConfig(**self._all)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> Self:
        """The same with a changelog, whose topic gets these configs on top of the defaults."""
        for key, value in (config or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TopologyException(
                    f"configs of a changelog topic map text to text, got {key!r}: {value!r}"
                )
        return replace(self, logging_enabled=True, topic_config=dict(config or {}))

    def with_logging_disabled(self) -> Self:
        """The same without a changelog."""
        return replace(self, logging_enabled=False, topic_config={})

    @property
    def _all(self) -> dict[str, Any]:
        return dict(vars(self))


class StrictBufferConfig(BufferConfig):
    """A buffer that emits nothing early.

    Source: org.apache.kafka.streams.kstream.Suppressed.StrictBufferConfig.
    """

    @property
    def stops_when_full(self) -> bool:
        return True


class EagerBufferConfig(BufferConfig):
    """A buffer that emits its oldest record when it is full.

    Source: org.apache.kafka.streams.kstream.Suppressed.EagerBufferConfig.
    """

    @property
    def stops_when_full(self) -> bool:
        return False


@dataclass(frozen=True)
class Suppressed:
    """How long a table's updates are held back.

    Attributes:
        buffer: what holds them.
        wait: how long, in stream time; None: until their windows close.
        name: the step's name, in place of `KTABLE-SUPPRESS-0000000003`; its buffer is then `<name>-store`.

    Source: org.apache.kafka.streams.kstream.Suppressed (KIP-328).
    """

    buffer: BufferConfig
    wait: timedelta | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.buffer, BufferConfig):
            raise TopologyException(
                "a suppress() needs a buffer, such as BufferConfig.unbounded() or "
                f"BufferConfig.max_records(10_000); got {self.buffer!r}"
            )
        if self.wait is None and not self.buffer.stops_when_full:
            raise TopologyException(
                "until_window_closes() emits nothing early, so its buffer cannot emit when it is "
                "full; use BufferConfig.unbounded(), or add .shut_down_when_full()"
            )
        if self.wait is not None:
            milliseconds(self.wait, "the time limit of until_time_limit()")
        if self.name is not None:
            validate_name(self.name)

    @staticmethod
    def until_window_closes(buffer_config: StrictBufferConfig) -> Suppressed:
        """Emit only a window's last value, when the window has closed. Only for tables of windows.

        A window closes when stream time has passed its end and its grace period.
        """
        return Suppressed(buffer_config)

    @staticmethod
    def until_time_limit(time_to_wait_for_more_events: timedelta, buffer_config: BufferConfig) -> Suppressed:
        """Emit the last of a key's updates when the first of them is this old, in stream time."""
        milliseconds(time_to_wait_for_more_events, "the time limit of until_time_limit()")
        return Suppressed(buffer_config, time_to_wait_for_more_events)

    def with_name(self, name: str) -> Suppressed:
        """The same with another name."""
        return replace(self, name=validate_name(name))


def _limit(word: str, limit: Any) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TopologyException(f"{word} of a buffer is a number, got {limit!r}")
    return limit
