"""Times as users give them to a query: a datetime, or milliseconds since the epoch. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["Time", "to_ms"]

Time = datetime | int
"""A point in time: a datetime with a time zone, or milliseconds since the epoch."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def to_ms(time: Time, what: str) -> int:
    """Milliseconds since the epoch; finer units are truncated, as by Java's Instant.toEpochMilli.

    `what` names the time in messages.

    Raises:
        TypeError: the time is neither a datetime nor an int.
        ValueError: the time is a datetime without a time zone, which is not a definite point in time.
    """
    if isinstance(time, datetime):
        if time.utcoffset() is None:
            raise ValueError(
                f"{what} is {time!r}, which has no time zone; add one, such as {time.replace(tzinfo=UTC)!r}"
            )
        return (time - _EPOCH) // _MILLISECOND
    if isinstance(time, bool) or not isinstance(time, int):
        raise TypeError(f"{what} must be a datetime, or milliseconds since the epoch as an int; got {time!r}")
    return time
