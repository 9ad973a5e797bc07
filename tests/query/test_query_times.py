"""What a time may be in a query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from millstream.query.times import to_ms


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, 0),
        (-5, -5),
        (2**70, 2**70),
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(2023, 11, 14, 22, 14, tzinfo=UTC), 1_700_000_040_000),
        (datetime(2023, 11, 14, 23, 14, tzinfo=timezone(timedelta(hours=1))), 1_700_000_040_000),
        (datetime(1970, 1, 1, 0, 0, 0, 1999, tzinfo=UTC), 1),
        (datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), -1),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999),
    ],
)
def test_a_time_is_milliseconds_since_the_epoch(time: Any, expected: int) -> None:
    """What is finer is cut off towards the past, and no float is involved."""
    assert to_ms(time, "the time") == expected


def test_a_datetime_without_a_time_zone_is_refused() -> None:
    """It would be another moment on another machine; the message shows what to write."""
    with pytest.raises(
        ValueError, match=r"the time is .* no time zone; add one, .*tzinfo=datetime.timezone.utc"
    ):
        to_ms(datetime(2023, 11, 14), "the time")


@pytest.mark.parametrize("time", [True, 1.5, "2023", None, timedelta(1)])
def test_anything_else_is_refused(time: Any) -> None:
    """A float would be seconds to one, milliseconds to another."""
    with pytest.raises(TypeError, match="the time must be a datetime, or milliseconds"):
        to_ms(time, "the time")
