"""Time as a port, so that waiting code can be tested without waiting."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Protocol

from millstream.errors import TopologyException

__all__ = ["Clock", "SystemClock", "in_words", "milliseconds", "seconds_of"]


class Clock(Protocol):
    """The source of the time."""

    def now(self) -> float:
        """Seconds that only increase; for deadlines and durations."""

    def epoch_ms(self) -> int:
        """Milliseconds since the epoch; for timestamps in records and in output."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000


def seconds_of(timeout: timedelta) -> float:
    """A caller's timeout in seconds.

    Raises:
        TypeError: it is not a timedelta.
        ValueError: it is negative.
    """
    if not isinstance(timeout, timedelta):
        raise TypeError(f"a timeout must be a timedelta, such as timedelta(seconds=10); got {timeout!r}")
    if timeout < timedelta(0):
        raise ValueError(f"Timeout can't be negative; got {in_words(timeout)}")
    return timeout.total_seconds()


def milliseconds(duration: Any, what: str) -> int:
    """A duration in Kafka's form: whole milliseconds in 64 bits; smaller fractions are truncated.

    Raises:
        TopologyException: it is not a timedelta.
    """
    if not isinstance(duration, timedelta):
        raise TopologyException(f"{what} is a timedelta, such as timedelta(minutes=5); got {duration!r}")
    return duration // timedelta(milliseconds=1)


def in_words(span: timedelta) -> str:
    """A time span in readable form: `-1 ms`, `90 s`. `str` shows a negative one as days and a time."""
    for unit, length in (("s", timedelta(seconds=1)), ("ms", timedelta(milliseconds=1))):
        if not span % length or (unit == "s" and abs(span) > length):
            return f"{span / length:,.10g} {unit}"
    return f"{span / timedelta(microseconds=1):,.10g} us"
