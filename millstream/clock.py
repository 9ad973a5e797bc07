"""Time as a port, so that what waits can be tested without waiting."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the time is."""

    def now(self) -> float:
        """Seconds that only go forward; for deadlines and durations."""

    def epoch_ms(self) -> int:
        """Milliseconds since the epoch; for timestamps that people or records carry."""


class SystemClock:
    """The machine's own clock."""

    def now(self) -> float:
        return time.monotonic()

    def epoch_ms(self) -> int:
        return time.time_ns() // 1_000_000
