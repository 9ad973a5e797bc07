"""Windows: which spans of time an aggregation has one value for, instead of one for all time.

A record that comes later than the grace allows is dropped. "Later" is measured by stream time, the largest
timestamp seen so far in the partition that its key is in, and not by a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import ClassVar
from zoneinfo import ZoneInfo

from millstream.clock import milliseconds
from millstream.errors import TopologyException
from millstream.model import MAX_TIMESTAMP_MS, TimeWindow
from millstream.serdes.serde import Serde
from millstream.serdes.windowed_serdes import WindowedSerde

__all__ = [
    "DailyTimeWindows",
    "JoinWindows",
    "SessionWindows",
    "SlidingWindows",
    "TimeWindows",
    "UnlimitedWindows",
    "Windows",
    "windowed_serde",
]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeWindows:
    """Windows of one size that begin every `advance`: tumbling if the two are equal, otherwise hopping.

    They are aligned to the epoch. A window includes its start but not its end.

    `TimeWindows.of_size_with_no_grace(timedelta(minutes=5)).advance_by(timedelta(minutes=1))`

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
        """Tumbling windows of this size; records after a window's end are dropped."""
        return cls.of_size_and_grace(size, timedelta(0))

    @classmethod
    def of_size_and_grace(cls, size: timedelta, after_window_end: timedelta) -> TimeWindows:
        """Tumbling windows of this size, each open this long after its end."""
        size_ms = milliseconds(size, "the size of windows")
        return cls(size_ms, size_ms, milliseconds(after_window_end, "the grace period"))

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Hopping windows: one begins every `advance`."""
        return replace(self, advance_ms=milliseconds(advance, "the advance of windows"))

    @property
    def closes_after_ms(self) -> int:
        """How far stream time must pass a window's end before the window closes."""
        return self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store must keep a window, counted from its start."""
        return self.size_ms + self.grace_ms

    def check_retention(self, store: str, retention_ms: int) -> None:
        """Raise if a store that keeps windows for so long would lose some that are open."""
        if retention_ms < self.least_retention_ms:
            raise TopologyException(
                f"The retention period of the window store {store} must be no smaller than its window size "
                f"plus the grace period. Got size=[{self.size_ms}], grace=[{self.grace_ms}], "
                f"retention=[{retention_ms}]"
            )

    def windows_for(self, timestamp: int) -> dict[int, TimeWindow]:
        """The windows that a record of this time (in ms) belongs to, by their start; the earliest first.

        Source: org.apache.kafka.streams.kstream.TimeWindows.windowsFor.
        """
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        starts = range(first, timestamp + 1, self.advance_ms)
        return {start: TimeWindow(start, start + self.size_ms) for start in starts}

    def __str__(self) -> str:
        hops = "" if self.advance_ms == self.size_ms else f" every {_shown(self.advance_ms)}"
        return f"windows of {_shown(self.size_ms)}{hops}, {_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class UnlimitedWindows(TimeWindows):
    """One window for each key, from 1970 or later, that never closes.

    `UnlimitedWindows.of().start_on(datetime(2026, 1, 1, tzinfo=UTC))`

    Source: org.apache.kafka.streams.kstream.UnlimitedWindows.
    Differs: it ends with the year 9999, the latest time of a record here, and not at the 64-bit limit.
    """

    size_ms: int = MAX_TIMESTAMP_MS
    advance_ms: int = MAX_TIMESTAMP_MS
    grace_ms: int = 0
    start_ms: int = 0

    @classmethod
    def of(cls) -> UnlimitedWindows:
        """One window for all time."""
        return cls()

    def start_on(self, start: datetime) -> UnlimitedWindows:
        """One window from this time on; earlier records are in no window, and do not count as late.

        Raises:
            TopologyException: it is not a datetime, has no zone, or is before 1970.
        """
        if not isinstance(start, datetime) or start.tzinfo is None:
            raise TopologyException(
                "the start of unlimited windows is a datetime with a time zone, such as "
                f"datetime(2026, 1, 1, tzinfo=UTC); got {start!r}"
            )
        start_ms = (start - _EPOCH) // timedelta(milliseconds=1)
        if start_ms < 0:
            raise TopologyException(f"Window start time (startMs) cannot be negative, got {start_ms} ms")
        length_ms = MAX_TIMESTAMP_MS - start_ms
        return UnlimitedWindows(length_ms, length_ms, 0, start_ms)

    def windows_for(self, timestamp: int) -> dict[int, TimeWindow]:
        """The one window, unless it begins after this time (in ms).

        Source: org.apache.kafka.streams.kstream.UnlimitedWindows.windowsFor.
        """
        if timestamp < self.start_ms:
            return {}
        return {self.start_ms: TimeWindow(self.start_ms, MAX_TIMESTAMP_MS)}

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Refused: there is one window.

        Raises:
            TopologyException: always.
        """
        raise TopologyException("unlimited windows do not advance: there is one for all time")

    @classmethod
    def of_size_and_grace(cls, size: timedelta, after_window_end: timedelta) -> TimeWindows:
        """Refused: the window has no end.

        Raises:
            TopologyException: always.
        """
        raise TopologyException("unlimited windows have no size: UnlimitedWindows.of()")

    def __str__(self) -> str:
        if self.start_ms == 0:
            return "unlimited windows"
        return f"unlimited windows from {_EPOCH + timedelta(milliseconds=self.start_ms):%Y-%m-%d %H:%M:%S%z}"


@dataclass(frozen=True, slots=True)
class DailyTimeWindows(TimeWindows):
    """Days of a time zone: each from one hour of its clock to the same hour of the next day.

    They are 23 or 25 hours long when clocks change. If clocks skip the hour, the day begins at the change; if
    they show it twice, the first time. The first day begins in 1970 at the earliest.

    `DailyTimeWindows.of("Europe/Berlin", start_hour=18)`

    Source: DailyTimeWindows of Confluent's kafka-streams-examples, a custom class of windows.
    Differs: a day ends when the next one begins; there, a day that begins later because of a clock change
        also ends later.
        Other custom windows are not supported: which windows a record is in is found out inside Spark,
        without Python. A window's true end is known where it is made: in `to_stream()`, when it closes and
        in what is late. As there, bytes of a key do not have it: whoever reads them, and a store, sees 24
        hours.
        Kafka Streams lets each day close after 24 hours with `EmitStrategy.on_window_close()`.
    """

    size_ms: int = 86_400_000
    advance_ms: int = 86_400_000
    grace_ms: int = 0
    zone: ZoneInfo = field(default_factory=lambda: ZoneInfo("UTC"))
    start_hour: int = 0

    _HINT: ClassVar = 'DailyTimeWindows.of("Europe/Berlin", start_hour=18)'

    @classmethod
    def of(
        cls, zone: ZoneInfo | str, *, start_hour: int = 0, grace: timedelta = timedelta(0)
    ) -> DailyTimeWindows:
        """Days that begin at this hour, 0 to 23, each open this long after its end.

        Raises:
            TopologyException: there is no such zone or hour.
        """
        if isinstance(start_hour, bool) or not isinstance(start_hour, int) or not 0 <= start_hour <= 23:
            raise TopologyException(f"a day begins at an hour from 0 to 23, got {start_hour!r}")
        if isinstance(zone, str):
            try:
                zone = ZoneInfo(zone)
            except (ValueError, OSError, KeyError) as error:
                raise TopologyException(f"unknown time zone {zone!r}; write it as in {cls._HINT}") from error
        if not isinstance(zone, ZoneInfo) or not zone.key:
            raise TopologyException(f"the time zone of days is a name or a ZoneInfo, as in {cls._HINT}")
        return cls(grace_ms=milliseconds(grace, "the grace period"), zone=zone, start_hour=start_hour)

    def advance_by(self, advance: timedelta) -> TimeWindows:
        """Refused: a day begins when the previous one ends.

        Raises:
            TopologyException: always.
        """
        raise TopologyException("days have no advance: each begins when the previous one ends")

    @classmethod
    def of_size_and_grace(cls, size: timedelta, after_window_end: timedelta) -> TimeWindows:
        """Refused: a day's length is fixed.

        Raises:
            TopologyException: always.
        """
        raise TopologyException("days have no other size: DailyTimeWindows.of(zone, start_hour=…, grace=…)")

    def windows_for(self, timestamp: int) -> dict[int, TimeWindow]:
        """The day that has this time (in ms). Source: the kernel's DailyWindows."""
        at = (_EPOCH + timedelta(milliseconds=timestamp)).astimezone(self.zone)
        # Where clocks are put back around midnight, a day may have begun whose date it is not yet again.
        day = at.date() + timedelta(days=1)
        while self._begin(day) > timestamp:
            day -= timedelta(days=1)
        start = max(0, self._begin(day))
        return {start: TimeWindow(start, self._begin(day + timedelta(days=1)))}

    def _begin(self, day: date) -> int:
        begin = datetime.combine(day, time(self.start_hour), self.zone)
        return (begin.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)

    def __str__(self) -> str:
        return f"days of {self.zone.key} from {self.start_hour:02}:00, {_grace(self.grace_ms)}"


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Windows that begin and end at records: each has all records that are no further apart than this.

    A window includes both ends. One ends at each record, and one begins just after each record, if it
    contains a record.

    `SlidingWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))`

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
        """Windows of this length; records after a window's end are dropped."""
        return cls.of_time_difference_and_grace(time_difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference: timedelta, after_window_end: timedelta
    ) -> SlidingWindows:
        """Windows of this length, each open this long after its end."""
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
        """How far stream time must pass a window's end before the window closes."""
        return self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store must keep a window, counted from its start."""
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
    """How far apart in time two joined records may be: the right one from `before_ms` before the left one to
    `after_ms` after it, both included.

    `JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5)).before(timedelta(0))` pairs a record
    with those of the right side that come up to five minutes later.

    Source: org.apache.kafka.streams.kstream.JoinWindows.
    Differs: no `of()` and `grace()`, which are deprecated there: the constructors set the grace period.
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
        """Records this far apart in either order; late records are not joined."""
        return cls.of_time_difference_and_grace(time_difference, timedelta(0))

    @classmethod
    def of_time_difference_and_grace(
        cls, time_difference: timedelta, after_window_end: timedelta
    ) -> JoinWindows:
        """The same, with a grace period for late records."""
        difference_ms = milliseconds(time_difference, "the time difference of join windows")
        return cls(difference_ms, difference_ms, milliseconds(after_window_end, "the grace period"))

    def before(self, time_difference: timedelta) -> JoinWindows:
        """The same, with right records from this long before the left one; negative: from after it."""
        return replace(self, before_ms=milliseconds(time_difference, "the time before of join windows"))

    def after(self, time_difference: timedelta) -> JoinWindows:
        """The same, with right records until this long after the left one; negative: until before it."""
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
    """Sessions: runs of records with no gap between them longer than this. A session includes both ends.

    A record between two sessions can join them into one; the two are then deleted.

    `SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=30))`

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
        """Sessions that end after this long without records."""
        return cls.of_inactivity_gap_and_grace(inactivity_gap, timedelta(0))

    @classmethod
    def of_inactivity_gap_and_grace(
        cls, inactivity_gap: timedelta, after_window_end: timedelta
    ) -> SessionWindows:
        """The same, with a grace period for late records."""
        return cls(
            milliseconds(inactivity_gap, "the inactivity gap of sessions"),
            milliseconds(after_window_end, "the grace period"),
        )

    @property
    def closes_after_ms(self) -> int:
        """How far stream time must pass a session's end before the session closes."""
        return self.gap_ms + self.grace_ms

    @property
    def least_retention_ms(self) -> int:
        """How long a store must keep a session, counted from its end."""
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


def windowed_serde(windows: Windows | None, key_serde: Serde) -> Serde:
    """The serde of the keys of a table, from that of its group's keys; None: it has no windows."""
    if windows is None:
        return key_serde
    return WindowedSerde(key_serde, None if isinstance(windows, SessionWindows) else windows.size_ms)


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
