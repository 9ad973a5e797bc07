"""The formats without a schema registry: Kafka's own, JSON, and a user's functions."""

from __future__ import annotations

import base64
import json
import re
import struct
import sys
import uuid
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cached_property
from operator import index, itemgetter
from typing import Any

from millstream.errors import SerializationException
from millstream.serdes.json_text import checked
from millstream.serdes.json_types import Codec, MisfitError, compiled
from millstream.serdes.serde import Serde

__all__ = [
    "BooleanSerde",
    "BytesSerde",
    "CustomSerde",
    "FloatingSerde",
    "IntegralSerde",
    "JsonSerde",
    "ListSerde",
    "StringSerde",
    "UuidSerde",
    "VoidSerde",
]

# --- Kafka's own formats ---------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class BytesSerde(Serde):
    """Bytes as they are."""

    name: str = field(default="bytes", init=False)

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self._refuse_value(value, "bytes")
        return bytes(value)

    def _decode(self, data: bytes) -> bytes:
        return data

    def many_decoder(self, offset: int = 0) -> Callable[[list[bytes]], list[Any]]:
        return _from(offset)


@dataclass(frozen=True, repr=False)
class StringSerde(Serde):
    """Text in UTF-8. Like Java's, it reads bytes that are not UTF-8 as U+FFFD and does not fail."""

    name: str = field(default="string", init=False)

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise self._refuse_value(value, "a str")
        try:
            return value.encode()
        except UnicodeEncodeError as error:
            raise self._refuse_value(value, "a str that UTF-8 can express (no lone surrogates)") from error

    def _decode(self, data: bytes) -> str:
        return _as_text(data)

    def decoder(self, offset: int = 0) -> Callable[[bytes], Any]:
        return (lambda data: _as_text(data[offset:])) if offset else _as_text

    def many_decoder(self, offset: int = 0) -> Callable[[list[bytes]], list[Any]]:
        cut = _from(offset)

        def decode(data: list[bytes]) -> list[str]:
            texts = cut(data)
            try:
                return list(map(bytes.decode, texts))  # a third of the time that the other takes
            except UnicodeDecodeError:
                return list(map(_as_text, texts))

        return decode

    def encoder(self) -> Callable[[Any], bytes | None]:
        serialize = self.serialize

        def encode(value: Any) -> bytes | None:
            if type(value) is str:
                try:
                    return value.encode()
                except UnicodeEncodeError:
                    pass
            return serialize(value)

        return encode


def _as_text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        # Java makes one character of half a pair, for which Python makes three.
        return _HALF_A_PAIR.sub(b"\xef\xbf\xbd", data).decode(errors="replace")


_HALF_A_PAIR = re.compile(b"\xed[\xa0-\xbf][\x80-\xbf]")


def _from(offset: int) -> Callable[[list[bytes]], list[bytes]]:
    """Cuts off what is before the offset."""
    if not offset:
        return list
    cut = itemgetter(slice(offset, None))
    return lambda data: list(map(cut, data))


@dataclass(frozen=True, repr=False)
class IntegralSerde(Serde):
    """A signed whole number, big-endian, in a fixed number of bytes: `short` 2, `integer` 4, `long` 8."""

    size: int

    def _encode(self, value: Any) -> bytes:
        bits = 8 * self.size
        wanted = f"an int from -2**{bits - 1} to 2**{bits - 1} - 1"
        if isinstance(value, bool):
            raise self._refuse_value(value, wanted)
        try:
            return index(value).to_bytes(self.size, "big", signed=True)
        except (TypeError, OverflowError) as error:
            raise self._refuse_value(value, wanted) from error

    def _decode(self, data: bytes) -> int:
        if len(data) != self.size:
            raise self._refuse_data(data, f"{self.size}")
        return int.from_bytes(data, "big", signed=True)

    def decoder(self, offset: int = 0) -> Callable[[bytes], Any]:
        unpack = struct.Struct(f">{offset}x{_INTEGRAL[self.size]}").unpack  # refuses any other length
        return lambda data: unpack(data)[0]

    def many_decoder(self, offset: int = 0) -> Callable[[list[bytes]], list[Any]]:
        return _numbers(_INTEGRAL[self.size], self.size, offset) or super().many_decoder(offset)

    def encoder(self) -> Callable[[Any], bytes | None]:
        serialize, pack = self.serialize, struct.Struct(f">{_INTEGRAL[self.size]}").pack

        def encode(value: Any) -> bytes | None:
            if type(value) is int:
                try:
                    return pack(value)
                except struct.error:
                    pass
            return serialize(value)

        return encode


_INTEGRAL = {2: "h", 4: "i", 8: "q"}


def _numbers(code: str, size: int, offset: int) -> Callable[[list[bytes]], list[Any]] | None:
    """Reads big-endian numbers all at once; None if the offset is not a multiple of their size.

    Raises, from what it returns:
        ValueError: another length.
    """
    before, odd = divmod(offset, size)
    if odd:
        return None

    def decode(data: list[bytes]) -> list[Any]:
        if list(map(len, data)).count(offset + size) != len(data):
            raise ValueError(f"not all have {offset + size} bytes")
        numbers = array(code, b"".join(data))[before :: before + 1]
        if sys.byteorder == "little":
            numbers.byteswap()
        return numbers.tolist()

    return decode


@dataclass(frozen=True, repr=False)
class FloatingSerde(Serde):
    """An IEEE 754 number, big-endian: `float` in 4 bytes, `double` in 8."""

    size: int

    def _encode(self, value: Any) -> bytes:
        wanted = "a float" if self.size == 8 else "a float that 32 bits can hold"
        if isinstance(value, bool | str | bytes):
            raise self._refuse_value(value, wanted)
        try:
            return struct.pack(self._format, value)
        except (struct.error, OverflowError) as error:
            raise self._refuse_value(value, wanted) from error

    def _decode(self, data: bytes) -> float:
        if len(data) != self.size:
            raise self._refuse_data(data, f"{self.size}")
        value: float = struct.unpack(self._format, data)[0]
        return value

    def decoder(self, offset: int = 0) -> Callable[[bytes], Any]:
        unpack = struct.Struct(f">{offset}x{self._format[1:]}").unpack
        return lambda data: unpack(data)[0]

    def many_decoder(self, offset: int = 0) -> Callable[[list[bytes]], list[Any]]:
        return _numbers(self._format[1:], self.size, offset) or super().many_decoder(offset)

    @property
    def _format(self) -> str:
        return ">f" if self.size == 4 else ">d"


@dataclass(frozen=True, repr=False)
class BooleanSerde(Serde):
    """One byte: 1 for true, 0 for false."""

    name: str = field(default="boolean", init=False)

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, bool):
            raise self._refuse_value(value, "a bool")
        return b"\x01" if value else b"\x00"

    def _decode(self, data: bytes) -> bool:
        if data not in (b"\x00", b"\x01"):
            raise self._refuse_data(data, "one byte, 0 or 1")
        return data == b"\x01"


@dataclass(frozen=True, repr=False)
class UuidSerde(Serde):
    """A UUID as its 36 ASCII characters. In Spark it is a string Column; here a `uuid.UUID`."""

    name: str = field(default="uuid", init=False)

    def _encode(self, value: Any) -> bytes:
        if isinstance(value, str) and _UUID.fullmatch(value):
            return value.lower().encode("ascii")
        if not isinstance(value, uuid.UUID):
            raise self._refuse_value(value, "a uuid.UUID, or its 36 characters")
        return str(value).encode("ascii")

    def _decode(self, data: bytes) -> uuid.UUID:
        text = data.decode(errors="replace")
        if not _UUID.fullmatch(text):
            raise self._refuse_data(data, "the 36 ASCII characters of a UUID")
        return uuid.UUID(text)


_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@dataclass(frozen=True, repr=False)
class VoidSerde(Serde):
    """No value: only nulls are written and read. In Spark a Column of type void."""

    name: str = field(default="void", init=False)

    def _encode(self, value: Any) -> bytes:
        raise self._refuse_value(value, "None alone")

    def _decode(self, data: bytes) -> Any:
        raise self._refuse_data(data, "no bytes at all")


@dataclass(frozen=True, repr=False)
class ListSerde(Serde):
    """A list of what another serde writes, some of it None. An array Column in Spark.

    Bytes: elements of a fixed size follow each other, after the positions of those that are None; others are
    preceded by their length.

    Source: KIP-466, org.apache.kafka.common.serialization.ListSerializer.
    """

    name: str = field(default="list", init=False)
    inner: Serde

    def __repr__(self) -> str:
        return f"Serdes.list({self.inner!r})"

    @property
    def size(self) -> int:
        """How many bytes each element has; 0: they differ."""
        return _SIZES.get(self.inner.name, 0)

    def _encode(self, value: Any) -> bytes:
        if not isinstance(value, list | tuple):
            raise self._refuse_value(value, "a list")
        parts = [self.inner.serialize(each) for each in value]
        if self.size:
            nulls = [at for at, part in enumerate(parts) if part is None]
            head = struct.pack(f">bi{len(nulls)}i", 0, len(nulls), *nulls)
            return head + struct.pack(">i", len(parts)) + b"".join(part or b"" for part in parts)
        written = (struct.pack(">i", -1 if part is None else len(part)) + (part or b"") for part in parts)
        return struct.pack(">bi", 1, len(parts)) + b"".join(written)

    def _decode(self, data: bytes) -> list[Any]:
        try:
            parts = list(self._parts(data))
        except (struct.error, IndexError, ValueError) as error:
            raise self._refuse_data(data, "a list of such elements that is whole") from error
        return [self.inner.deserialize(part) for part in parts]

    def _parts(self, data: bytes) -> Iterator[bytes | None]:
        if data[0] != (0 if self.size else 1):
            raise ValueError("elements of another kind")
        at, nulls = 1, set()
        if self.size:
            (count,) = struct.unpack_from(">i", data, at)
            nulls = set(struct.unpack_from(f">{count}i", data, at + 4))
            at += 4 + 4 * count
        (count,) = struct.unpack_from(">i", data, at)
        if count < 0:
            raise ValueError("a negative number of elements")
        at += 4
        for place in range(count):
            length = self.size
            if not self.size:
                (length,) = struct.unpack_from(">i", data, at)
                at += 4
            if place in nulls or length == -1:
                yield None
                continue
            if length < 0 or at + length > len(data):
                raise ValueError("cut off")
            yield data[at : at + length]
            at += length
        if at != len(data):
            raise ValueError("bytes are left")


_SIZES = {"short": 2, "integer": 4, "long": 8, "float": 4, "double": 8, "uuid": 36}
"""Whose elements stand side by side."""


# --- formats with a description of their own -------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class JsonSerde(Serde):
    """A JSON value in UTF-8: mostly an object, which is a struct Column in Spark, a dict in Python.

    Attributes:
        schema: a DDL string (`"user STRING, amount DOUBLE"`) or a Spark type. A type that is not a struct
            describes the whole value: `"ARRAY<STRING>"` is a list, `"MAP<STRING, BIGINT>"` a dict with any
            keys, `"DOUBLE"` a number.
        made_at: the line of the program that made it, for messages.

    Python reads a dict with all fields of the schema, with None for null or missing ones: datetimes, dates,
    Decimals and bytes where the schema has a timestamp, a date, a decimal or a binary. Values to write must
    fit the schema; text in the right format is also accepted for times and binaries.

    Bytes: those of a pipeline: no spaces, no fields that are null, in the order of the schema, timestamps in
    milliseconds, numbers as Java writes them.
    Differs: PySpark's rows have naive timestamps in the process's time zone; here they are aware, in UTC. A
        timestamp written
    without a zone is local time, as in PySpark. A schema with a type that JSON cannot express (an interval, a
    variant)
    is not checked: values are plain JSON values.
    """

    name: str = field(default="json", init=False)
    schema: Any = None
    made_at: str = field(default="", compare=False)

    def __repr__(self) -> str:
        return f"Serdes.json({self.schema!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_codec"}

    @property
    def is_object(self) -> bool:
        """Whether its values are objects with the fields of a schema."""
        codec = self._codec
        return codec is None or codec.shown.startswith("STRUCT<")

    @cached_property
    def _codec(self) -> Codec | None:
        return compiled(self.schema)

    def plain(self, data: bytes) -> dict[str, Any]:
        """The value as plain JSON, with text for times and binaries, and without missing fields.

        Raises:
            SerializationException: it is not a JSON object.
        """
        try:
            value = json.loads(checked(data))
        except (ValueError, RecursionError) as error:
            raise self._refuse_data(data, "a JSON object in UTF-8") from error
        if not isinstance(value, dict):
            raise self._refuse_data(data, "a JSON object (this is another JSON value)")
        return value

    def _encode(self, value: Any) -> bytes:
        if self.is_object and not isinstance(value, Mapping):
            raise self._refuse_value(value, "a dict")
        try:
            if self._codec is not None:
                return self._codec.write(value)
            return _text(_without_nulls(value)).encode()
        except MisfitError as misfit:
            raise self._refuse_field(misfit) from None
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise self._refuse_value(
                value, f"a dict that JSON can express ({type(error).__name__})"
            ) from error

    def decoder(self, offset: int = 0) -> Callable[[bytes], Any]:
        read = None if self._codec is None else self._codec.quick_read(self.deserialize)
        if read is None:
            return super().decoder(offset)
        return (lambda data: read(data[offset:])) if offset else read

    def _decode(self, data: bytes) -> Any:
        if self._codec is None:
            return self.plain(data)
        try:
            return self._codec.read(data)
        except MisfitError as misfit:
            whole = "a JSON object" if self.is_object else f"JSON of the type {misfit.wanted}"
            what = f"{misfit.wanted} in the field '{misfit.field}'" if misfit.field else whole
            raise self._refuse_data(data, f"{what}, and {misfit.reason or 'this is other JSON'}") from None
        except (ValueError, ArithmeticError, RecursionError) as error:
            raise self._refuse_data(
                data, "a JSON object in UTF-8" if self.is_object else "JSON in UTF-8"
            ) from error

    def _refuse_field(self, misfit: MisfitError) -> SerializationException:
        place = f"the field '{misfit.field}'" if misfit.field else "the value"
        if misfit.reason.startswith("the schema"):
            return SerializationException(
                f"serde 'json' cannot write {place}: {misfit.reason}, and a reader with the schema would "
                f"lose it; add the field to {self!r}, or leave it out"
            )
        if misfit.value is None:
            return SerializationException(
                f"serde 'json' cannot write {place}, which is {misfit.wanted} in {self!r}: it is missing, or "
                "None; give it a value, or leave out NOT NULL"
            )
        reason = f" ({misfit.reason})" if misfit.reason else ""
        return SerializationException(
            f"serde 'json' cannot write {place}, which is {misfit.wanted}: the value is a "
            f"{type(misfit.value).__name__}{reason}; convert it, or give the field another type"
        )


def _text(value: Any) -> str:
    """JSON, where `json` can write it; else with what Spark's `to_json` has a form for besides."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except TypeError:
        return _spark_text(value)


def _spark_text(value: Any) -> str:
    """The same by parts.

    Raises:
        TypeError: JSON and Spark have no form for something.
        ValueError: a Decimal is no number.
    """
    if isinstance(value, Mapping):
        # The key with its quotes is what json writes of {key: 0}, without the rest.
        fields = (f"{_text({key: 0})[1:-3]}:{_text(inner)}" for key, inner in value.items())
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if isinstance(value, bytes | bytearray):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")}Z"'
    if isinstance(value, datetime):
        return f'"{value.isoformat(timespec="milliseconds")}"'
    if isinstance(value, date):
        return f'"{value.isoformat()}"'
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{value} is not a JSON value")
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _without_nulls(value: Any) -> Any:
    """`value` without the null fields of objects, at every depth; nulls in lists stay."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list | tuple):
        return [_without_nulls(inner) for inner in value]
    return value


@dataclass(frozen=True, repr=False)
class CustomSerde(Serde):
    """A user's serde: a Python codec and two Column functions that must agree.

    Attributes:
        serializer: Python value to bytes.
        deserializer: bytes to Python value.
        to_column: binary Column to value Column; what Spark reads with.
        from_column: value Column to binary Column; what Spark writes with.
        schema: the type of the Column, if there are no functions of Columns: Spark then calls the Python
            functions, for many values at a time.

    It can be pickled when its functions can (that is, when they are not lambdas).
    """

    serializer: Callable[[Any], bytes]
    deserializer: Callable[[bytes], Any]
    to_column: Callable[[Any], Any] | None = None
    from_column: Callable[[Any], Any] | None = None
    schema: Any = None

    def __repr__(self) -> str:
        return f"Serdes.custom({self.name!r})"

    def _encode(self, value: Any) -> bytes:
        try:
            data = self.serializer(value)
        except Exception as error:  # the user's function can raise anything
            raise self._refuse_value(
                value, f"what its own function takes ({type(error).__name__})"
            ) from error
        if not isinstance(data, bytes):
            raise SerializationException(
                f"the serializer of serde '{self.name}' returned a {type(data).__name__} for a "
                f"{type(value).__name__}; it must return bytes"
            )
        return data

    def _decode(self, data: bytes) -> Any:
        try:
            return self.deserializer(data)
        except Exception as error:  # the user's function can raise anything
            raise self._refuse_data(data, f"what its own function takes ({type(error).__name__})") from error
