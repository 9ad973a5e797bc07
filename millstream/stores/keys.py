"""The byte layout of the keys of window and session stores. Pure.

Changelogs use Kafka's layout, so Kafka's tools and other programs can read them:

    window    key | start, 8 bytes | sequence number, 4 bytes
    session   key | end, 8 bytes   | start, 8 bytes

On disk and in memory, the layout is Millstream's own. Kafka's layout does not preserve the order of keys of
different lengths ("a" with a late window comes after "a\\0" with an early one), so a range of keys would have
to be filtered and sorted. Here a key has an unambiguous end, and its parts sort from left to right:

    window    segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session   segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes

Only a store that keeps duplicates has the sequence number. A zero byte in the key is written as 00 FF. So
00 00 does not occur in the key, and sorts before anything else that could follow. All numbers are big-endian;
times are milliseconds since the epoch and never negative.

Source: org.apache.kafka.streams.state.internals.WindowKeySchema, SessionKeySchema.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct, error

__all__ = [
    "END_OF_KEY",
    "MAX_TIME_MS",
    "escaped",
    "pack_segment",
    "pack_time",
    "session_key",
    "session_key_parts",
    "unescaped",
    "window_key",
    "window_key_parts",
]

MAX_TIME_MS = 2**63 - 1
"""The largest time in eight bytes, as in Kafka."""

END_OF_KEY = b"\0\0"
"""The end of an escaped key."""

_TIME = Struct(">q")
_WINDOW = Struct(">qi")
_SESSION = Struct(">qq")

pack_time: Callable[[int], bytes] = _TIME.pack
"""A time or a segment number as 8 bytes, which sort like the numbers because none is negative."""

pack_segment = pack_time


# --- Kafka's layouts -------------------------------------------------------------------------------------


def window_key(key: bytes, start_ms: int, sequence: int = 0) -> bytes:
    """The key of a window's record in the changelog.

    Source: WindowKeySchema.toStoreKeyBinary.
    """
    return key + _WINDOW.pack(start_ms, sequence)


def window_key_parts(data: bytes) -> tuple[bytes, int, int]:
    """Key, start in milliseconds, sequence number.

    Raises:
        ValueError: the data is too short for a window's key.
    """
    try:
        start, sequence = _WINDOW.unpack_from(data, -12)
    except error as short:
        raise ValueError(
            f"{len(data)} bytes are too few for the key of a window, which has at least 12"
        ) from short
    return data[:-12], start, sequence


def session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """The key of a session's record in the changelog. The session's end comes before its start.

    Source: SessionKeySchema.toBinary.
    """
    return key + _SESSION.pack(end_ms, start_ms)


def session_key_parts(data: bytes) -> tuple[bytes, int, int]:
    """Key, start and end in milliseconds.

    Raises:
        ValueError: the data is too short for a session's key.
    """
    try:
        end, start = _SESSION.unpack_from(data, -16)
    except error as short:
        raise ValueError(
            f"{len(data)} bytes are too few for the key of a session, which has at least 16"
        ) from short
    return data[:-16], start, end


# --- Millstream's layout ---------------------------------------------------------------------------------


def escaped(key: bytes) -> bytes:
    """The key in a form that sorts correctly even if other bytes follow it."""
    return key.replace(b"\0", b"\0\xff") + END_OF_KEY


def unescaped(data: bytes) -> bytes:
    """The original key of `escaped`."""
    return data[:-2].replace(b"\0\xff", b"\0")
