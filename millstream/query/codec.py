"""A store's serdes as functions of bytes, with errors that name the store. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import SerializationException
from millstream.model import ValueAndTimestamp
from millstream.query.provider import Serde
from millstream.stores.api import timestamp_of

__all__ = ["key_decoder", "key_encoder", "value_decoder"]


def key_encoder(store: str, serde: Serde, what: str) -> Callable[[Any], bytes]:
    """A key's bytes; `what` says who asks, in the error.

    Raises, from the function:
        SerializationException: the key does not fit the serde, or has no bytes.
    """

    def encode(key: Any) -> bytes:
        try:
            data = serde.serialize(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise SerializationException(
                f"{what} of store '{store}' (keys of serde '{serde.name}'): {error}"
            ) from error
        if data is None:
            raise SerializationException(
                f"{what} of store '{store}': serde '{serde.name}' has no bytes for this key"
            )
        return data

    return encode


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
