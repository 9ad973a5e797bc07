"""A store's serdes as functions of bytes, with errors that name the store; and its windowed keys. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from millstream.errors import SerializationException
from millstream.model import SessionWindow, TimeWindow, ValueAndTimestamp, Windowed
from millstream.query.provider import Serde
from millstream.stores.api import timestamp_of
from millstream.stores.keys import MAX_TIME_MS

__all__ = [
    "key_decoder",
    "key_encoder",
    "plain",
    "session_decoder",
    "unfit_key",
    "value_decoder",
    "values_decoder",
    "window_decoder",
]

_WINDOWS_KEPT = 1024

_new_windowed = tuple.__new__
"""Windowed(…) without the checks of its arguments: a scan makes one for each entry."""


def unfit_key(store: str, serde: Serde, what: str, error: Exception | None = None) -> SerializationException:
    """What a key that the store's serde cannot write is answered with; `what` says who asks.

    Args:
        error: the serde's own; None: it gave no bytes.
    """
    if error is None:
        return SerializationException(
            f"{what} of store '{store}': serde '{serde.name}' has no bytes for this key"
        )
    return SerializationException(f"{what} of store '{store}' (keys of serde '{serde.name}'): {error}")


def key_encoder(store: str, serde: Serde, what: str) -> Callable[[Any], bytes]:
    """A key's bytes; `what` says who asks, in the error.

    Raises, from the function:
        SerializationException: the key does not fit the serde, or has no bytes.
    """

    def encode(key: Any) -> bytes:
        try:
            data = serde.serialize(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise unfit_key(store, serde, what, error) from error
        if data is None:
            raise unfit_key(store, serde, what)
        return data

    return encode


def plain(serde: Serde, data: bytes) -> Any:
    """The value that these bytes are, as JSON has it if it is JSON: for who is told it in JSON or Arrow."""
    read: Callable[[bytes], Any] = getattr(serde, "plain", serde.deserialize)
    return read(data)


def key_decoder(store: str, serde: Serde) -> Callable[[bytes], Any]:
    """A key from its bytes."""
    deserialize = serde.deserialize

    def decode(key: bytes) -> Any:
        try:
            return deserialize(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise SerializationException(f"a key of store '{store}' cannot be read: {error}") from error

    return decode


def value_decoder(store: str, serde: Serde, *, timestamped: bool) -> Callable[[bytes], Any]:
    """A value from what is stored, which begins with its timestamp."""
    deserialize = serde.deserialize

    def decode(stored: bytes) -> Any:
        try:
            value = deserialize(stored[8:])
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise SerializationException(f"a value of store '{store}' cannot be read: {error}") from error
        return ValueAndTimestamp(value, timestamp_of(stored)) if timestamped else value

    return decode


def values_decoder(
    serde: Serde, decode: Callable[[bytes], Any], *, timestamped: bool
) -> Callable[[Iterable[bytes]], Iterable[Any]]:
    """Many values; `decode` is the `value_decoder` of the same. Where that raises, this raises, anything."""
    return partial(map, decode if timestamped else serde.decoder(8))


def window_decoder(
    decode_key: Callable[[bytes], Any], size_ms: int
) -> Callable[[tuple[bytes, int]], Windowed[Any]]:
    """What a window store's iterator has for keys, as users see it. For one iterator, in its order."""
    windows: dict[int, TimeWindow] = {}
    last: bytes | None = None
    key: Any = None

    def decode(local: tuple[bytes, int]) -> Windowed[Any]:
        nonlocal last, key
        data, start = local
        if data != last:  # a key's windows come one after the other
            key, last = decode_key(data), data
        window = windows.get(start)
        if window is None:  # many keys have the same windows
            if len(windows) >= _WINDOWS_KEPT:
                windows.clear()
            window = windows[start] = TimeWindow(start, min(start + size_ms, MAX_TIME_MS))
        return _new_windowed(Windowed, (key, window))

    return decode


def session_decoder(
    decode_key: Callable[[bytes], Any],
) -> Callable[[tuple[bytes, int, int]], Windowed[Any]]:
    """What a session store's iterator has for keys, as users see it. For one iterator, in its order."""
    last: bytes | None = None
    key: Any = None

    def decode(local: tuple[bytes, int, int]) -> Windowed[Any]:
        nonlocal last, key
        data, start, end = local
        if data != last:
            key, last = decode_key(data), data
        return _new_windowed(Windowed, (key, SessionWindow(start, end)))

    return decode
