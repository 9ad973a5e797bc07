"""What a serde is: how a key or a value is written as bytes, and read back.

A serde has two parts that must agree: a Python codec, here, for interactive queries and tests; and a pair of
Column expressions for Spark, which spark/compile/serde_columns.py derives from the serde's name (and schema).
They use exactly Kafka's byte formats; None is written as None (no key, or a tombstone) and read back as None.

Serdes are frozen, compare by value, and can be pickled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.errors import SerializationException

__all__ = ["Serde", "SerdePair"]


@dataclass(frozen=True)
class Serde(ABC):
    """A pair of codecs with a name, such as `string`, `long` or `json`.

    Source: org.apache.kafka.common.serialization.Serde.
    """

    name: str

    def serialize(self, value: Any) -> bytes | None:
        """The value as Kafka carries it; None stays None.

        Raises:
            SerializationException: the value has another type, or is out of range.
        """
        return None if value is None else self._encode(value)

    def deserialize(self, data: bytes | None) -> Any:
        """The value that `data` carries; None stays None.

        Raises:
            SerializationException: `data` was not written with this serde.
        """
        return None if data is None else self._decode(bytes(data))

    def decoder(self, offset: int = 0) -> Callable[[bytes], Any]:
        """A fast function that deserializes the bytes from an offset on, for many values.

        If `deserialize` would raise, the function also raises, but any exception.
        """
        deserialize = self.deserialize
        return (lambda data: deserialize(data[offset:])) if offset else deserialize

    def many_decoder(self, offset: int = 0) -> Callable[[list[bytes]], list[Any]]:
        """The same for a list at a time: all its values, or any exception if one of them does not fit."""
        decode = self.decoder(offset)
        return lambda data: list(map(decode, data))

    def encoder(self) -> Callable[[Any], bytes | None]:
        """A fast `serialize` for many values."""
        return self.serialize

    def __repr__(self) -> str:
        return f"Serdes.{self.name}()"

    @abstractmethod
    def _encode(self, value: Any) -> bytes: ...

    @abstractmethod
    def _decode(self, data: bytes) -> Any: ...

    def _refuse_value(self, value: Any, wanted: str) -> SerializationException:
        # The type and never the value, which must not be logged.
        return SerializationException(
            f"serde '{self.name}' cannot write this {type(value).__name__}: it takes {wanted}; "
            "convert the value, or give this key or value another serde"
        )

    def _refuse_data(self, data: bytes, wanted: str) -> SerializationException:
        # The length and never the content, which must not be logged.
        return SerializationException(
            f"serde '{self.name}' cannot read these {len(data)} bytes: it takes {wanted}; "
            "give the topic or store the serde that it was written with"
        )


SerdePair: TypeAlias = tuple[Serde | None, Serde | None]
"""The serdes of keys and of values; None: not known yet."""
