"""Serdes of windowed keys: a key's own bytes, and behind them its window, as Kafka lays them out."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from millstream.clock import milliseconds
from millstream.errors import TopologyException
from millstream.model import SessionWindow, TimeWindow, Windowed
from millstream.serdes.serde import Serde

__all__ = ["LATEST_MS", "WindowedSerde", "WindowedSerdes"]

_MAX = 2**63 - 1
LATEST_MS = 253_402_300_799_999
"""The end of the year 9999, the latest time that Spark's half can give to Python. Kafka has no window before
1970, and none that ends before it starts."""


@dataclass(frozen=True, repr=False)
class WindowedSerde(Serde):
    """A windowed key: its own bytes, and 8 of the window's start; or, of a session, 8 of its end and 8 of its
    start, big-endian, in milliseconds. In Spark it is a struct Column of `key` and `window`, which is one of
    `start` and `end`; here a `Windowed`.

    Attributes:
        inner: the serde of the key itself.
        window_size_ms: how long the windows are, which is not in the bytes; None: they are sessions.

    Source: TimeWindowedSerializer, SessionWindowedSerializer; WindowKeySchema, SessionKeySchema.
    """

    name: str = field(default="windowed", init=False)
    inner: Serde
    window_size_ms: int | None = None

    @property
    def tail(self) -> int:
        """How many bytes the window takes."""
        return 16 if self.window_size_ms is None else 8

    def __repr__(self) -> str:
        if self.window_size_ms is None:
            return f"WindowedSerdes.session_windowed_serde_from({self.inner!r})"
        size = timedelta(milliseconds=self.window_size_ms)
        return f"WindowedSerdes.time_windowed_serde_from({self.inner!r}, {size!r})"

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, Windowed):
            raise self._refuse_value(value, "a Windowed, such as Windowed('a', TimeWindow(0, 5000))")
        window = value.window
        times = (window.start_ms,) if self.window_size_ms is not None else (window.end_ms, window.start_ms)
        # Kafka writes a null key as no bytes at all.
        return (self.inner.serialize(value.key) or b"") + struct.pack(f">{len(times)}q", *times)

    def _decode(self, data: bytes) -> Windowed[Any]:
        if len(data) < self.tail:
            raise self._refuse_data(data, f"a key and {self.tail} bytes of its window")
        key = self.inner.deserialize(data[: -self.tail])
        (start,) = struct.unpack(">q", data[-8:])
        (end,) = struct.unpack(">q", data[-self.tail :][:8])  # of time windows, the start again
        if not 0 <= start <= end <= LATEST_MS:
            raise self._refuse_data(data, f"a key and {self.tail} bytes of its window")
        if self.window_size_ms is None:
            return Windowed(key, SessionWindow(start, end))
        return Windowed(key, TimeWindow(start, min(start + self.window_size_ms, _MAX)))


class WindowedSerdes:
    """Makes serdes of windowed keys.

    Source: org.apache.kafka.streams.kstream.WindowedSerdes.
    """

    @staticmethod
    def time_windowed_serde_from(inner: Serde, window_size: timedelta) -> Serde:
        """Keys with windows of this size (of sliding windows: their time difference).

        Raises:
            TopologyException: `inner` is no serde, or the size no timedelta, or negative.
        """
        size_ms = milliseconds(window_size, "the size of windows")
        if size_ms < 0:
            raise TopologyException(
                f"the size of windows is not negative, such as timedelta(minutes=5); got {window_size}"
            )
        return WindowedSerde(_checked(inner), size_ms)

    @staticmethod
    def session_windowed_serde_from(inner: Serde) -> Serde:
        """Keys with sessions.

        Raises:
            TopologyException: `inner` is no serde.
        """
        return WindowedSerde(_checked(inner))


def _checked(inner: Any) -> Serde:
    if not isinstance(inner, Serde):
        raise TopologyException(f"a windowed serde is made from the serde of the keys, got {inner!r}")
    return inner
