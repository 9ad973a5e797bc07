"""Figures over a moving window: rates, averages and maxima, counted exactly as by Kafka's own sensors.

The window is two consecutive samples of 30 s. A sample begins with the first value after the previous one is
full, and expires 60 s after its last value. A rate is divided by the time since the oldest sample began, and
by at least 30 s, so that a burst right after the start does not look like a rate.

Nothing here reads a clock: the caller passes the time, in milliseconds of one clock.

Source: org.apache.kafka.common.metrics.stats.SampledStat, Rate, Avg, Max and Min; `metrics.sample.window.ms`
and `metrics.num.samples` with their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, nan

__all__ = ["SAMPLES", "WINDOW_MS", "Sensor"]

WINDOW_MS = 30_000
SAMPLES = 2


@dataclass(slots=True)
class _Sample:
    """The values of one part of the window."""

    start_ms: int
    last_ms: int
    count: int = 0
    total: float = 0.0
    most: float = -inf
    least: float = inf


class Sensor:
    """Recorded values, as a total and over the window. Used by one thread at a time."""

    __slots__ = ("_current", "_samples", "_window_ms", "count", "last", "total")

    def __init__(self, window_ms: int = WINDOW_MS) -> None:
        self.count = 0
        """The number of all values so far."""
        self.total = 0.0
        """Their sum."""
        self.last = nan
        """The latest value."""
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Record one value."""
        self.record_all(1, value, value, value, now_ms)
        self.last = value

    def record_all(self, count: int, total: float, least: float, most: float, now_ms: int) -> None:
        """Record several values at once, of which only these totals are known. `last` is unchanged."""
        self.count += count
        self.total += total
        if not self._samples:
            self._samples.append(_Sample(now_ms, now_ms))
        elif now_ms - self._samples[self._current].start_ms >= self._window_ms:
            self._advance(now_ms)
        sample = self._samples[self._current]
        sample.last_ms = now_ms
        sample.count += count
        sample.total += total
        sample.most = max(sample.most, most)
        sample.least = min(sample.least, least)

    def _advance(self, now_ms: int) -> None:
        # One sample more than the window has, because one overlaps the window's beginning.
        self._current = (self._current + 1) % (SAMPLES + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms, now_ms))
        else:
            self._samples[self._current] = _Sample(now_ms, now_ms)

    def rate(self, now_ms: int) -> float:
        """The sum of the window's values, per second."""
        return sum(sample.total for sample in self._window(now_ms)) / self._seconds(now_ms)

    def count_rate(self, now_ms: int) -> float:
        """The number of the window's values, per second."""
        return sum(sample.count for sample in self._window(now_ms)) / self._seconds(now_ms)

    def average(self, now_ms: int) -> float:
        """The window's average; NaN if it is empty."""
        window = self._window(now_ms)
        count = sum(sample.count for sample in window)
        return sum(sample.total for sample in window) / count if count else nan

    def maximum(self, now_ms: int) -> float:
        """The window's largest value; NaN if it is empty."""
        return max((sample.most for sample in self._window(now_ms) if sample.count), default=nan)

    def minimum(self, now_ms: int) -> float:
        """The window's smallest value; NaN if it is empty."""
        return min((sample.least for sample in self._window(now_ms) if sample.count), default=nan)

    def _window(self, now_ms: int) -> list[_Sample]:
        """The samples that still count; those that are too old are reset."""
        for number, sample in enumerate(self._samples):
            if now_ms - sample.last_ms >= SAMPLES * self._window_ms:
                self._samples[number] = _Sample(now_ms, now_ms)
        return self._samples

    def _seconds(self, now_ms: int) -> float:
        elapsed = now_ms - min((sample.start_ms for sample in self._samples), default=now_ms)
        missing = SAMPLES - 1 - elapsed // self._window_ms
        if missing > 0:
            elapsed += missing * self._window_ms
        return max(elapsed, 1) / 1000
