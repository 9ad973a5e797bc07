"""A store's serdes as functions on bytes, with errors that name the store; and the windowed keys. Pure.

`Codecs` belong to one store and serve its readers. Entries are decoded in chunks, which is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import Any

from millstream.errors import SerializationException
from millstream.model import SessionWindow, StoreKind, TimeWindow, ValueAndTimestamp, Windowed
from millstream.serdes.serde import Serde
from millstream.stores.keys import MAX_TIME_MS
from millstream.stores.store_base import ClosedStoreError, timestamp_of

__all__ = ["Chunk", "Codecs", "Decoded", "Unfit", "plain"]

Decoded = tuple[list[Any], list[Any], bool]
"""The keys and the values of some entries, and whether all fit. The key of an entry that its serdes cannot
read is an `Unfit`."""

Chunk = Callable[[list[Any]], Decoded]
"""Decodes stored entries for the user."""

_WINDOWS_KEPT = 1024

_new_windowed = tuple.__new__
"""Windowed(…) without argument checks, because a scan creates one for each entry."""

_key_of, _stored_of = itemgetter(0), itemgetter(1)


class Unfit:
    """An entry that its serdes could not read; reaching it raises the error."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error: Exception = error


class Codecs:
    """Serializes and deserializes the keys and values of one store.

    Attributes:
        decode: a value from its stored bytes, which begin with the timestamp. `quick_decode`: the same, but
            it may raise any exception.
        timestamped: whether values come with their timestamps.

    Args:
        getters: find a key's value in each partition of a key-value store; for messages.

    Raises, from what it decodes:
        SerializationException: the bytes do not fit the serde.
    """

    def __init__(
        self,
        store: str,
        kind: StoreKind,
        key_serde: Serde,
        value_serde: Serde,
        *,
        window_size_ms: int | None = None,
        timestamped: bool = False,
        getters: Mapping[int, Callable[[bytes], bytes | None]] | None = None,
    ) -> None:
        self._getters = getters or {}
        self.store = store
        self.kind = kind
        self.key_serde = key_serde
        self.value_serde = value_serde
        self.window_size_ms = window_size_ms
        self.timestamped = timestamped
        self.decode: Callable[[bytes], Any] = _value_decoder(store, value_serde, timestamped=timestamped)
        self.quick_decode: Callable[[bytes], Any] = self.decode if timestamped else value_serde.decoder(8)

    def key_bytes(self, key: Any, what: str, write: Serde | None = None) -> bytes:
        """A key's bytes; `what` names the caller in errors. `write` is used instead of the store's own serde.

        Raises:
            TypeError: the key is None.
            SerializationException: the key does not fit the serde, or serializes to null.
        """
        if key is None:
            raise TypeError(f"{what} of store '{self.store}': the key must not be None")
        serde = self.key_serde if write is None else write
        try:
            data = serde.serialize(key)
        except Exception as error:  # whatever a serde raises, users expect one exception
            raise _unfit_key(self.store, self.key_serde, what, error) from error
        if data is None:
            raise _unfit_key(self.store, self.key_serde, what)
        return data

    def misread(self, what: str, key: bytes, error: Exception) -> SerializationException:
        """The error of an entry that cannot be read, met by a read of several: which one it is."""
        try:
            shown = repr(self.key_serde.deserialize(key))
        except Exception:  # whatever a serde raises
            shown = f"of {len(key)} bytes"
        where = [f"key {shown if len(shown) <= 100 else shown[:97] + '...'}"]
        with suppress(ClosedStoreError):
            where += [f"partition {at}" for at, get in self._getters.items() if get(key) is not None][:1]
        cause = error.__cause__ if isinstance(error, SerializationException) and error.__cause__ else error
        return SerializationException(
            f"a {what} of store '{self.store}' cannot be read: {cause} ({', '.join(where)}; a new record of "
            "the key replaces it)"
        )

    def chunks(self, *, starts: bool = False) -> Chunk:
        """The decoder for the entries of one iterator, in its order. With `starts`, keys are only the starts
        of windows, in ms.
        """
        decode_key: Callable[[Any], Any] = _key_decoder(self.store, self.key_serde)
        decode_values = _each(self.decode) if self.timestamped else self.value_serde.many_decoder(8)
        if starts:
            decode_key = itemgetter(1)
        elif self.kind is StoreKind.WINDOW:
            decode_key = _window_decoder(decode_key, self.window_size_ms or 0)
        elif self.kind is StoreKind.SESSION:
            decode_key = _session_decoder(decode_key)
        else:
            decode_keys = self.key_serde.many_decoder()
            return _by_chunks(decode_key, self.decode, decode_keys, decode_values, self.misread)
        return _by_chunks(decode_key, self.decode, _each(decode_key), decode_values, self.misread)


def _each(decode: Callable[[Any], Any]) -> Callable[[list[Any]], list[Any]]:
    return lambda data: list(map(decode, data))


def _by_chunks(
    decode_key: Callable[[Any], Any],
    decode: Callable[[bytes], Any],
    decode_keys: Callable[[list[Any]], list[Any]],
    decode_values: Callable[[list[bytes]], list[Any]],
    misread: Callable[[str, bytes, Exception], SerializationException],
) -> Chunk:
    """Decodes a whole chunk at once, or entry by entry if one of them is unfit."""

    def one_by_one(entries: list[Any]) -> Decoded:
        keys: list[Any] = []
        values: list[Any] = []
        for at, stored in entries:
            what = "key"
            try:
                key = decode_key(at)
                what = "value"
                value = decode(stored)
            except Exception as error:  # raised when the entry is reached
                unfit = misread(what, at if isinstance(at, bytes) else at[0], error)
                unfit.__cause__ = error
                key, value = Unfit(unfit), None
            keys.append(key)
            values.append(value)
        return keys, values, False

    def made(entries: list[Any]) -> Decoded:
        try:
            keys = decode_keys(list(map(_key_of, entries)))
            values = decode_values(list(map(_stored_of, entries)))
        except Exception:
            return one_by_one(entries)
        # A serde that raises StopIteration only seems to have come to the end.
        return (keys, values, True) if len(keys) == len(values) == len(entries) else one_by_one(entries)

    return made


def _unfit_key(store: str, serde: Serde, what: str, error: Exception | None = None) -> SerializationException:
    """The exception for a key that the store's serde cannot serialize; `what` names the caller.

    Args:
        error: the serde's exception; None if it returned no bytes.
    """
    if error is None:
        return SerializationException(
            f"{what} of store '{store}': serde '{serde.name}' returned no bytes for this key"
        )
    return SerializationException(f"{what} of store '{store}' (keys of serde '{serde.name}'): {error}")


def plain(serde: Serde, data: bytes) -> Any:
    """The value of these bytes, parsed if they are JSON. For output as JSON or Arrow."""
    read: Callable[[bytes], Any] = getattr(serde, "plain", serde.deserialize)
    return read(data)


def _key_decoder(store: str, serde: Serde) -> Callable[[bytes], Any]:
    """A key from its bytes."""
    deserialize = serde.deserialize

    def decode(key: bytes) -> Any:
        try:
            return deserialize(key)
        except Exception as error:  # whatever a serde raises, users expect one exception
            raise SerializationException(f"a key of store '{store}' cannot be read: {error}") from error

    return decode


def _value_decoder(store: str, serde: Serde, *, timestamped: bool) -> Callable[[bytes], Any]:
    """A value from its stored bytes, which begin with the timestamp."""
    deserialize = serde.deserialize

    def decode(stored: bytes) -> Any:
        try:
            value = deserialize(stored[8:])
        except Exception as error:  # whatever a serde raises, users expect one exception
            raise SerializationException(f"a value of store '{store}' cannot be read: {error}") from error
        return ValueAndTimestamp(value, timestamp_of(stored)) if timestamped else value

    return decode


def _window_decoder(
    decode_key: Callable[[bytes], Any], size_ms: int
) -> Callable[[tuple[bytes, int]], Windowed[Any]]:
    """The user's form of a window store's keys. For one iterator, in its order."""
    windows: dict[int, TimeWindow] = {}
    last: bytes | None = None
    key: Any = None

    def decode(local: tuple[bytes, int]) -> Windowed[Any]:
        nonlocal last, key
        data, start = local
        if data != last:  # a key's windows are adjacent
            key, last = decode_key(data), data
        window = windows.get(start)
        if window is None:  # many keys have the same windows
            if len(windows) >= _WINDOWS_KEPT:
                windows.clear()
            window = windows[start] = TimeWindow(start, min(start + size_ms, MAX_TIME_MS))
        return _new_windowed(Windowed, (key, window))

    return decode


def _session_decoder(
    decode_key: Callable[[bytes], Any],
) -> Callable[[tuple[bytes, int, int]], Windowed[Any]]:
    """The user's form of a session store's keys. For one iterator, in its order."""
    last: bytes | None = None
    key: Any = None

    def decode(local: tuple[bytes, int, int]) -> Windowed[Any]:
        nonlocal last, key
        data, start, end = local
        if data != last:
            key, last = decode_key(data), data
        return _new_windowed(Windowed, (key, SessionWindow(start, end)))

    return decode
