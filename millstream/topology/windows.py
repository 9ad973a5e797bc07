"""Windows: which spans of time an aggregation has one value for, instead of one for all time.

A record that comes later than the grace allows is dropped. "Later" is measured by stream time, the largest
timestamp seen so far in the partition that its key is in, and not by a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from millstream.errors import TopologyException

__all__ = ["JoinWindows", "SessionWindows", "SlidingWindows", "TimeWindows", "Windows", "milliseconds"]


def milliseconds(duration: Any, what: str) -> int:
    """A duration as Kafka has it: whole milliseconds in 64 bits; what is smaller is cut off.

    Raises:
        TopologyException: it is not a timedelta.
    """
    if not isinstance(duration, timedelta):
        raise TopologyException(f"{what} is a timedelta, such as timedelta(minutes=5); got {duration!r}")
    return duration // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size that begin every `advance`: tumbling where the two are equal, else hopping.

    They are aligned to the epoch. A window has its start and not its end.

    Source: org.apache.kafka.streams.kstream.TimeWindows.
    """

    size_ms: int
    advance_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.size_ms <= 0:
            raise TopologyException(
                f"Window size (sizeMs) must be larger than zero, got {self.size_ms} ms; "
                "give one such as timedelta(minutes=5)"
            )
        if self.advance_ms <= 0 or self.advance_ms > self.size_ms:
            raise TopologyException(
                "Window advancement interval should be more than zero and not more than the window duration, "
                f"which is {self.size_ms} ms, but the given advancement interval is {self.advance_ms} ms"
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of_size_with_no_grace(cls, size: timedelta) -> TimeWindows:
        """Tumbling windows of this size; what comes after a window's end is dropped."""
        return cls.of_size_and_grace(size, timedelta(0))

    @classmethod
    def of_size_and_grace(cls, size: timedelta, after_window_end: timedelta) -> TimeWindows:
        """Tumbling windows of this size, each open for so long after its end."""
        size_ms = milliseconds(size, "the size of windows")
        return cls(size_ms, size_ms, milliseconds(after_window_end, "the grace period"))

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Hopping windows: one begins every `advance`."""
        return replace(self, advance_ms=milliseconds(advance, "the advance of windows"))

    @property
    def closes_after_ms(self) -> int:
        """How far beyond a window's end stream time is when the window closes."""
        return self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store has to keep a window, counted from its start."""
        return self.size_ms + self.grace_ms

    def check_retention(self, store: str, retention_ms: int) -> None:
        """Raise if a store that keeps windows for so long would lose some that are open."""
        if retention_ms < self.least_retention_ms:
            raise TopologyException(
                f"The retention period of the window store {store} must be no smaller than its window size "
                f"plus the grace period. Got size=[{self.size_ms}], grace=[{self.grace_ms}], "
                f"retention=[{retention_ms}]"
            )

    def __str__(self) -> str:
        hops = "" if self.advance_ms == self.size_ms else f" every {_shown(self.advance_ms)}"
        return f"windows of {_shown(self.size_ms)}{hops}, {_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that begin and end where records are: each has all records that are no further apart than this.

    Both ends belong to a window. There is one that ends at each record, and one that begins just after each
    record, if there is any record in it.

    Source: org.apache.kafka.streams.kstream.SlidingWindows (KIP-450).
    """

    time_difference_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.time_difference_ms < 0:
            raise TopologyException(
                f"Window time difference must not be negative, got {self.time_difference_ms} ms"
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: timedelta) -> SlidingWindows:
        """Windows of this length; what comes after a window's end is dropped."""
        return cls.of_time_difference_and_grace(time_difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference: timedelta, after_window_end: timedelta
    ) -> SlidingWindows:
        """Windows of this length, each open for so long after its end."""
        return cls(
            milliseconds(time_difference, "the time difference of sliding windows"),
            milliseconds(after_window_end, "the grace period"),
        )

    @property
    def size_ms(self) -> int:
        """From the start of a window to its end."""
        return self.time_difference_ms

    @property
    def closes_after_ms(self) -> int:
        """How far beyond a window's end stream time is when the window closes."""
        return self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store has to keep a window, counted from its start."""
        return 2 * self.time_difference_ms + self.grace_ms

    def check_retention(self, store: str, retention_ms: int) -> None:
        """Raise if a store that keeps windows for so long would lose some that are open."""
        if retention_ms < self.least_retention_ms:
            raise TopologyException(
                f"The retention period of the window store {store} must be no smaller than 2 * time "
                f"difference plus the grace period. Got time difference=[{self.time_difference_ms}], "
                f"grace=[{self.grace_ms}], retention=[{retention_ms}]"
            )

    def __str__(self) -> str:
        return f"sliding windows of {_shown(self.time_difference_ms)}, {_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class JoinWindows:
    """How far apart in time two records may be that a join pairs: the right one from `before_ms` before the
    left one to `after_ms` after it, both included.

    `JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5)).before(timedelta(0))` pairs a record
    with those of the right side that come up to five minutes later.

    Source: org.apache.kafka.streams.kstream.JoinWindows.
    Differs: no `of()` and `grace()`, which are deprecated there: how late a record may come is said at once.
    """

    before_ms: int
    after_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.before_ms + self.after_ms < 0:
            raise TopologyException(
                "Window interval (ie, beforeMs+afterMs) must not be negative, got "
                f"{self.before_ms} ms before and {self.after_ms} ms after"
            )
        _check_grace(self.grace_ms)

    @classmethod
    def of_time_difference_with_no_grace(cls, time_difference: timedelta) -> JoinWindows:
        """Records so far apart, the one or the other being first; none that comes later is joined."""
        return cls.of_time_difference_and_grace(time_difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference: timedelta, after_window_end: timedelta
    ) -> JoinWindows:
        """The same, and records that come later are joined, by as much."""
        difference_ms = milliseconds(time_difference, "the time difference of join windows")
        return cls(difference_ms, difference_ms, milliseconds(after_window_end, "the grace period"))

    def before(self, time_difference: timedelta) -> JoinWindows:
        """The same, with right records from so long before the left one; negative: from after it."""
        return replace(self, before_ms=milliseconds(time_difference, "the time before of join windows"))

    def after(self, time_difference: timedelta) -> JoinWindows:
        """The same, with right records until so long after the left one; negative: until before it."""
        return replace(self, after_ms=milliseconds(time_difference, "the time after of join windows"))

    @property
    def size_ms(self) -> int:
        """From the first to the last time of a right record that is joined with a left one."""
        return self.before_ms + self.after_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store has to keep a record for those that it can be joined with."""
        return self.size_ms + self.grace_ms

    def __str__(self) -> str:
        if self.before_ms == self.after_ms:
            return f"records up to {_shown(self.before_ms)} apart, {_grace(self.grace_ms)}"
        return (
            f"records from {_shown(self.before_ms)} before to {_shown(self.after_ms)} after, "
            f"{_grace(self.grace_ms)}"
        )


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """Sessions: runs of records with no gap between them longer than this. Both ends belong to a session.

    A record between two sessions can make one of them; the two are then deleted.

    Source: org.apache.kafka.streams.kstream.SessionWindows.
    """

    gap_ms: int
    grace_ms: int

    def __post_init__(self) -> None:
        if self.gap_ms < 0:
            raise TopologyException(f"Gap time cannot be negative, got {self.gap_ms} ms")
        _check_grace(self.grace_ms)

    @classmethod
    def of_inactivity_gap_with_no_grace(cls, inactivity_gap: timedelta) -> SessionWindows:
        """Sessions that end when nothing has come for so long."""
        return cls.of_inactivity_gap_and_grace(inactivity_gap, timedelta(0))

    @classmethod
    def of_inactivity_gap_and_grace(
        cls, inactivity_gap: timedelta, after_window_end: timedelta
    ) -> SessionWindows:
        """The same, and each takes records that come later, by as much."""
        return cls(
            milliseconds(inactivity_gap, "the inactivity gap of sessions"),
            milliseconds(after_window_end, "the grace period"),
        )

    @property
    def closes_after_ms(self) -> int:
        """How far beyond a session's end stream time is when the session closes."""
        return self.gap_ms + self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store has to keep a session, counted from its end."""
        return self.gap_ms + self.grace_ms

    def check_retention(self, store: str, retention_ms: int) -> None:
        """Raise if a store that keeps sessions for so long would lose some that are open."""
        if retention_ms < self.least_retention_ms:
            raise TopologyException(
                f"The retention period of the session store {store} must be no smaller than the session "
                f"inactivity gap plus the grace period. Got gap=[{self.gap_ms}], grace=[{self.grace_ms}], "
                f"retention=[{retention_ms}]"
            )

    def __str__(self) -> str:
        return f"sessions with gaps of {_shown(self.gap_ms)}, {_grace(self.grace_ms)}"


Windows = TimeWindows | SlidingWindows | SessionWindows


def _check_grace(grace_ms: int) -> None:
    if grace_ms < 0:
        raise TopologyException(f"Grace period must not be negative, got {grace_ms} ms")


def _grace(grace_ms: int) -> str:
    return f"grace {_shown(grace_ms)}" if grace_ms else "no grace"


def _shown(duration_ms: int) -> str:
    """A duration in the largest unit that it is a whole number of."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if duration_ms and duration_ms % length == 0:
            return f"{duration_ms // length} {unit}"
    return f"{duration_ms} ms"
