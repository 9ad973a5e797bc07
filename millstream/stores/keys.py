"""How the keys of window and session stores are laid out in bytes. Pure.

In changelogs they are Kafka's, so that Kafka's tools and other programs can read them:

    window    key | start, 8 bytes | sequence number, 4 bytes
    session   key | end, 8 bytes   | start, 8 bytes

On disk, and in memory, they are ours. Kafka's layout does not keep the order of keys of different lengths
("a" with a late window comes after "a\\0" with an early one), so a range over keys would have to be filtered
and sorted. Here a key ends where no other key goes on, and what comes first decides the order:

    window    segment, 8 bytes | key, escaped | 00 00 | start, 8 bytes [| sequence number, 4 bytes]
    session   segment, 8 bytes | key, escaped | 00 00 | end, 8 bytes | start, 8 bytes

The sequence number is there in a store that keeps duplicates. A zero byte of the key is written 00 FF, so
that 00 00 is nowhere in it, and less than whatever else might follow. All numbers are big-endian; times are
milliseconds since the epoch and never negative.

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
"""The last time that eight bytes can say, as in Kafka."""

END_OF_KEY = b"\0\0"
"""What follows an escaped key."""

_TIME = Struct(">q")
_WINDOW = Struct(">qi")
_SESSION = Struct(">qq")

pack_time: Callable[[int], bytes] = _TIME.pack
"""A time, or a number of a segment, as 8 bytes; in the order of the numbers, as none is negative."""

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
        ValueError: it is too short to be the key of a window.
    """
    try:
        start, sequence = _WINDOW.unpack_from(data, -12)
    except error as short:
        raise ValueError(
            f"{len(data)} bytes are too few for the key of a window; it has 12 and more"
        ) from short
    return data[:-12], start, sequence


def session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """The key of a session's record in the changelog. Its end comes first there.

    Source: SessionKeySchema.toBinary.
    """
    return key + _SESSION.pack(end_ms, start_ms)


def session_key_parts(data: bytes) -> tuple[bytes, int, int]:
    """Key, start and end in milliseconds.

    Raises:
        ValueError: it is too short to be the key of a session.
    """
    try:
        end, start = _SESSION.unpack_from(data, -16)
    except error as short:
        raise ValueError(
            f"{len(data)} bytes are too few for the key of a session; it has 16 and more"
        ) from short
    return data[:-16], start, end


# --- our own ---------------------------------------------------------------------------------------------


def escaped(key: bytes) -> bytes:
    """The key, such that it can be followed by something and keeps its order among other keys."""
    return key.replace(b"\0", b"\0\xff") + END_OF_KEY


def unescaped(data: bytes) -> bytes:
    """The key that `escaped` was given."""
    return data[:-2].replace(b"\0\xff", b"\0")
