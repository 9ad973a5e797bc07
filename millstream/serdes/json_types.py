"""The types of a JSON serde's fields in Python: how a value is read by its schema, and written.

A Spark schema is compiled once into functions: one for each type and direction. They take what the kernel
takes for a pipeline (`serdes/JsonToSpark.java`), and write its bytes; a test compares both with odd
documents. A schema with a type that is not in the tables here (an interval, a variant) has no such functions;
its values are then plain JSON values.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import cached_property
from operator import index
from typing import Any

from millstream.serdes.json_text import (
    DEEPEST,
    AsWrittenError,
    Number,
    as_written,
    checked,
    compact,
    double_text,
    is_plain,
    quoted,
    single,
    single_text,
)

__all__ = ["Codec", "MisfitError", "compiled"]

Read = Callable[[Any], Any]
Write = Callable[[Any], str]


class MisfitError(Exception):
    """A value does not fit its field.

    Attributes:
        path: the field, from the inside out.
        wanted: its type.
        value: what does not fit.
        reason: what is wrong, if not the type.
    """

    def __init__(self, wanted: str, value: Any, reason: str = "") -> None:
        super().__init__(wanted)
        self.path: list[str] = []
        self.wanted = wanted
        self.value = value
        self.reason = reason

    @property
    def field(self) -> str:
        """The field's name, with the names of the fields around it."""
        return ".".join(reversed(self.path)).replace(".[]", "[]").replace(".{}", "{}")


class _UnknownError(Exception):
    """A schema that is not supported here."""


@dataclass(frozen=True)
class _Type:
    """One type.

    Attributes:
        shown: as in a schema.
        read: converts what `json` has read, never None.
        write: as JSON; never None.
        exact: whether numbers must be read exactly as written.
    """

    shown: str
    read: Read
    write: Write
    exact: bool = False


@dataclass(frozen=True)
class Codec:
    """A compiled schema."""

    _of: _Type

    @property
    def shown(self) -> str:
        """The type, in words."""
        return self._of.shown

    def read(self, data: bytes) -> Any:
        """The value of these bytes.

        Raises:
            MisfitError: it does not fit the schema.
            ValueError, RecursionError: it is not JSON.
        """
        text = checked(data)
        try:
            return self._read(self._decoder.decode(text))
        except json.JSONDecodeError:
            raise
        except (AsWrittenError, ValueError, ArithmeticError):  # or a number too long for int, or for Decimal
            return self._read(as_written(text))

    def quick_read(self, otherwise: Read) -> Read:
        """The same for many values; `otherwise`, unless the bytes are plain JSON in UTF-8 that fits."""
        decode = self._decoder.raw_decode
        read, shallow = self._of.read, 2 * DEEPEST

        def quick(data: bytes) -> Any:
            try:
                text = data.decode()
                if ("\\" not in text and len(text) <= shallow) or is_plain(data):
                    value, end = decode(text)
                    if end == len(text) and value is not None:
                        return read(value)
            except (ValueError, ArithmeticError, RecursionError, MisfitError, AsWrittenError):
                pass
            return otherwise(data)

        return quick

    @cached_property
    def _decoder(self) -> json.JSONDecoder:
        return json.JSONDecoder(parse_float=Decimal if self._of.exact else None)

    def _read(self, value: Any) -> Any:
        if value is None:
            raise MisfitError(self.shown, None, "this is null; a record without a value has no bytes")
        return self._of.read(value)

    def write(self, value: Any) -> bytes:
        """The value as a pipeline writes it.

        Raises:
            MisfitError: it does not fit the schema.
            ValueError: it has text that UTF-8 cannot express.
        """
        return self._of.write(value).encode()


def compiled(schema: Any) -> Codec | None:
    """The functions of a DDL string or a type of Spark's; None: it has a type that is not known here."""
    try:
        if isinstance(schema, str):
            return Codec(_Ddl(schema).whole())
        if hasattr(schema, "jsonValue"):
            return Codec(_of_json(schema.jsonValue()))
    except (_UnknownError, KeyError, TypeError, ValueError):
        pass
    return None


# --- one type each ------------------------------------------------------------------------------------------


def _as_int(value: Any) -> int | None:
    if type(value) is int:
        return value
    is_whole = type(value) is Number and len(value) <= 20 and value.lstrip("-").isdigit()
    return int(value) if is_whole else None


def _whole_number(shown: str, bits: int) -> _Type:
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(value: Any) -> int:
        if type(value) is int and least <= value <= most:
            return value
        number = _as_int(value)
        if number is None or not least <= number <= most:
            raise MisfitError(shown, value)
        return number

    def write(value: Any) -> str:
        if isinstance(value, bool):
            raise MisfitError(shown, value)
        try:
            number = index(value)
        except TypeError:
            raise MisfitError(shown, value) from None
        if not least <= number <= most:
            raise MisfitError(shown, value)
        return str(number)

    return _Type(shown, read, write)


_NOT_FINITE = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "INF": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}


def _floating(shown: str, *, narrow: bool) -> _Type:
    to_text = single_text if narrow else double_text

    def read(value: Any) -> float:
        if type(value) is float:
            return single(value) if narrow else value
        if type(value) is str and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if type(value) not in (int, Decimal, Number):
            raise MisfitError(shown, value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf if value > 0 else -math.inf
        return single(number) if narrow else number

    def write(value: Any) -> str:
        if isinstance(value, bool | str | bytes):
            raise MisfitError(shown, value)
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise MisfitError(shown, value) from None
        if math.isfinite(number):
            number = single(number) if narrow else number
            if math.isinf(number):
                raise MisfitError(shown, value)
            return to_text(number)
        return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'

    return _Type(shown, read, write)


_A_DECIMAL = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:[eE]([+-]?)0*(\d*))?", re.ASCII)
_LONG_EXPONENT = 15  # digits: Decimal has 18 of them


def _as_decimal(value: Any) -> Decimal | None:
    """The number; None, if it is none."""
    if isinstance(value, str):
        found = _A_DECIMAL.fullmatch(value)
        if found is None or value[-1] in "eE+-":
            return None
        number, sign, exponent = found.groups()
        if len(exponent or "") > _LONG_EXPONENT:
            value = f"{number}e{sign}{'9' * _LONG_EXPONENT}"
    elif type(value) not in (int, float, Decimal):
        return None
    return Decimal(repr(value) if isinstance(value, float) else value)


def _decimal(shown: str, precision: int, scale: int) -> _Type:
    unit = Decimal(1).scaleb(-scale)
    most = Decimal(10) ** (precision - scale)

    def fitted(value: Any) -> Decimal:
        number = _as_decimal(value)
        try:
            if number is not None:
                with localcontext() as context:
                    context.prec = 2 * max(precision, len(number.as_tuple().digits)) + 2
                    number = number.quantize(unit, ROUND_HALF_UP)
        except InvalidOperation:
            number = None
        if number is None or not number.is_finite() or number.copy_abs() >= most:
            raise MisfitError(shown, value)
        return number if number else number.copy_abs()  # there is no negative zero

    def read(value: Any) -> Decimal:
        try:
            return fitted(value)
        except MisfitError as misfit:
            if type(value) is str and "," in value:
                misfit.reason = "this is text with a comma: read STRING, then replace it and cast"
            raise

    return _Type(shown, read, lambda value: str(fitted(value)), exact=True)


def _read_boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise MisfitError("BOOLEAN", value)
    return value


def _write_boolean(value: Any) -> str:
    return "true" if _read_boolean(value) else "false"


def _read_string(value: Any) -> str:
    # Of other JSON than text, that JSON.
    return value if type(value) is str else compact(value)


def _write_string(value: Any) -> str:
    if not isinstance(value, str):
        raise MisfitError("STRING", value)
    return quoted(value)


def _read_binary(value: Any) -> bytes:
    try:
        if type(value) is str:
            return base64.b64decode(value, validate=True)
    except ValueError:
        pass
    raise MisfitError("BINARY", value)


def _or_text(read: Read, write: Write) -> Write:
    """Writes a text that can be read as such a value unchanged, and else the value."""

    def write_either(value: Any) -> str:
        if isinstance(value, str):
            read(value)
            return quoted(value)
        return write(value)

    return write_either


def _write_binary(value: Any) -> str:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise MisfitError("BINARY", value)
    return f'"{base64.b64encode(value).decode()}"'


_A_TIME = re.compile(
    r"(\d{4})-(\d\d?)-(\d\d?)(?:[T ](\d\d?):(\d\d?)(?::(\d\d?)(?:\.(\d*))?)?(?: *([^\d .:].*))?)?", re.ASCII
)
_AN_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:(\d\d?)(?::(\d\d)(?::(\d\d))?)?|(\d\d)(\d\d))", re.ASCII)
_FARTHEST = timedelta(hours=18)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _read_date(value: Any) -> date:
    try:
        if type(value) is str and (found := _time(value)) is not None:
            return found[0].date()
    except ValueError:
        pass
    raise MisfitError("DATE", value)


def _write_date(value: Any) -> str:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise MisfitError("DATE", value)
    return f'"{value.isoformat()}"'


def _time(value: str) -> tuple[datetime, timezone | None] | None:
    """The time of a clock and its zone, if it has one.

    Raises:
        ValueError: there is no such time, or no such zone.
    """
    found = _A_TIME.fullmatch(value)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    micros = int((fraction or "")[:6].ljust(6, "0"))
    clock = datetime(
        int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros
    )
    return clock, None if zone is None else _zone(zone)


def _zone(zone: str) -> timezone:
    if zone in ("Z", "UTC", "GMT", "UT"):
        return UTC
    found = _AN_OFFSET.fullmatch(zone)
    if found is None:
        raise ValueError(zone)
    hours, minutes, seconds = (
        int(each or 0) for each in (found[2] or found[5], found[3] or found[6], found[4])
    )
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if minutes > 59 or seconds > 59 or offset > _FARTHEST:
        raise ValueError(zone)
    return timezone(offset if found[1] == "+" else -offset)


_SECONDS = (
    "this number of seconds is beyond the years 1 to 9999; milliseconds? read BIGINT, then F.timestamp_millis"
)


def _read_timestamp(value: Any) -> datetime:
    reason = ""
    try:
        # As Spark writes it: Python's own reader is quick, but takes other forms besides, and 24 hours.
        if (
            type(value) is str
            and len(value) == 24
            and value[4:17:3] == "--T::"
            and value[19::4] == ".Z"
            and value[11:13] != "24"
        ):
            return datetime.fromisoformat(value)
        if type(value) is str and (found := _time(value)) is not None:
            clock, zone = found
            return clock.replace(tzinfo=zone or UTC).astimezone(UTC)
        seconds = _as_int(value)
        if seconds is not None:
            reason = _SECONDS
            return _EPOCH + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        pass
    raise MisfitError("TIMESTAMP", value, reason)


def _write_timestamp(value: Any) -> str:
    if not isinstance(value, datetime):
        raise MisfitError("TIMESTAMP", value)
    # One without a zone is local time, as in PySpark.
    return f'"{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds")}Z"'


def _read_clock(value: Any) -> datetime:
    reason = ""
    try:
        if type(value) is str and (found := _time(value)) is not None:
            clock, zone = found
            if zone is None:
                return clock
            reason = "this time has a zone"
    except ValueError:
        pass
    raise MisfitError("TIMESTAMP_NTZ", value, reason)


def _write_clock(value: Any) -> str:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise MisfitError("TIMESTAMP_NTZ", value, "it has a zone" if isinstance(value, datetime) else "")
    return f'"{value.isoformat(timespec="milliseconds")}"'


def _void(value: Any) -> Any:
    raise MisfitError("VOID", value)


_STRING = _Type("STRING", _read_string, _write_string)
_TIMESTAMP = _Type("TIMESTAMP", _read_timestamp, _or_text(_read_timestamp, _write_timestamp))
_BY_NAME: dict[str, _Type] = {
    "boolean": _Type("BOOLEAN", _read_boolean, _write_boolean),
    **dict.fromkeys(("byte", "tinyint"), _whole_number("TINYINT", 8)),
    **dict.fromkeys(("short", "smallint"), _whole_number("SMALLINT", 16)),
    **dict.fromkeys(("int", "integer"), _whole_number("INT", 32)),
    **dict.fromkeys(("long", "bigint"), _whole_number("BIGINT", 64)),
    **dict.fromkeys(("float", "real"), _floating("FLOAT", narrow=True)),
    "double": _floating("DOUBLE", narrow=False),
    **dict.fromkeys(("string", "varchar", "char", "character"), _STRING),
    "void": _Type("VOID", _void, _void),
    "binary": _Type("BINARY", _read_binary, _or_text(_read_binary, _write_binary)),
    "date": _Type("DATE", _read_date, _or_text(_read_date, _write_date)),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), _TIMESTAMP),
    "timestamp_ntz": _Type("TIMESTAMP_NTZ", _read_clock, _or_text(_read_clock, _write_clock)),
}


def _simple(name: str, sizes: tuple[int, ...] = ()) -> _Type:
    name = name.lower()
    if name in ("dec", "decimal", "numeric"):
        precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
        return _decimal(f"DECIMAL({precision},{scale})", precision, scale)
    if name not in _BY_NAME:
        raise _UnknownError(name)
    return _BY_NAME[name]


# --- types of types -----------------------------------------------------------------------------------------


def _struct(fields: list[tuple[str, _Type, bool]]) -> _Type:
    """Fields with their names and types, and whether they may be null."""
    reads = [(name, type_.read) for name, type_, _ in fields]
    writes = [(name, f"{quoted(name)}:", type_, nullable) for name, type_, nullable in fields]
    names = {name for name, _, _ in fields}
    shown = f"STRUCT<{', '.join(f'{name}: {type_.shown}' for name, type_, _ in fields)}>"

    def read(value: Any) -> dict[str, Any]:
        if type(value) is not dict and not isinstance(value, dict):
            raise MisfitError(shown, value)
        found, get, name = {}, value.get, ""
        try:
            for name, read_one in reads:
                one = get(name)
                found[name] = None if one is None else read_one(one)
        except MisfitError as misfit:
            misfit.path.append(name)
            raise
        return found

    def write(value: Any) -> str:
        if not isinstance(value, Mapping):
            raise MisfitError(shown, value)
        if not names.issuperset(value):
            raise MisfitError(shown, value, f"the schema has no field {min(map(repr, value.keys() - names))}")
        parts = []
        for name, begin, type_, nullable in writes:
            one = value.get(name)
            try:
                if one is not None:
                    parts.append(begin + type_.write(one))
                elif not nullable:
                    raise MisfitError(f"{type_.shown} NOT NULL", None)
            except MisfitError as misfit:
                misfit.path.append(name)
                raise
        return f"{{{','.join(parts)}}}"

    return _Type(shown, read, write, any(type_.exact for _, type_, _ in fields))


def _part(function: Callable[[Any], Any], name: str, value: Any) -> Any:
    """A part read or written; if it does not fit, the error says which one."""
    try:
        return function(value)
    except MisfitError as misfit:
        misfit.path.append(name)
        raise


def _array(element: _Type) -> _Type:
    shown = f"ARRAY<{element.shown}>"

    def read(value: Any) -> list[Any]:
        if type(value) is not list:
            raise MisfitError(shown, value)
        return [None if one is None else _part(element.read, "[]", one) for one in value]

    def write(value: Any) -> str:
        if not isinstance(value, list | tuple):
            raise MisfitError(shown, value)
        parts = ("null" if one is None else _part(element.write, "[]", one) for one in value)
        return f"[{','.join(parts)}]"

    return _Type(shown, read, write, element.exact)


def _map(values: _Type) -> _Type:
    shown = f"MAP<STRING, {values.shown}>"

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise MisfitError(shown, value)
        # A key is of the record, and does not belong in a message.
        return {key: None if one is None else _part(values.read, "[]", one) for key, one in value.items()}

    def write(value: Any) -> str:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise MisfitError(shown, value)
        pairs = (
            f"{quoted(key)}:{'null' if one is None else _part(values.write, key, one)}"
            for key, one in value.items()
        )
        return f"{{{','.join(pairs)}}}"

    return _Type(shown, read, write, values.exact)


# --- schemas ------------------------------------------------------------------------------------------------

_SIZED = re.compile(r"(\w+)\s*(?:\(\s*(-?\d+)\s*(?:,\s*(-?\d+)\s*)?\))?")


def _of_json(described: Any) -> _Type:
    """Spark's JSON form."""
    if isinstance(described, str):
        sized = _SIZED.match(described)
        if sized is None:
            raise _UnknownError(described)
        return _simple(sized[1], tuple(int(size) for size in sized.groups()[1:] if size is not None))
    match described["type"]:
        case "struct":
            return _struct(
                [
                    (each["name"], _of_json(each["type"]), bool(each.get("nullable", True)))
                    for each in described["fields"]
                ]
            )
        case "array":
            return _array(_of_json(described["elementType"]))
        case "map":
            return _map(_of_json(described["valueType"]))
    raise _UnknownError(described["type"])


_TOKEN = re.compile(
    r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))", re.ASCII
)


class _Ddl:
    """Reads `user STRING, tags ARRAY<STRING>, home STRUCT<street: STRING> NOT NULL COMMENT '…'`."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        self._at = at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise _UnknownError(text)
            for kind, token in zip(("name", "text", "word", "sign"), found.groups(), strict=True):
                if token is not None:
                    self._tokens.append((kind, token.replace("``", "`") if kind == "name" else token))
            at = found.end()

    def whole(self) -> _Type:
        # `a INT` is a schema, and so is a type: `STRUCT<a: INT>`, `ARRAY<INT>`, `INT`.
        is_type = self._peek(1) in ("<", "(") or len(self._tokens) == 1
        found = self._type() if is_type else self._fields()
        if self._at != len(self._tokens):
            raise _UnknownError("more than a schema")
        return found

    def _fields(self) -> _Type:
        fields = [self._field()]
        while self._skip(","):
            fields.append(self._field())
        return _struct(fields)

    def _field(self) -> tuple[str, _Type, bool]:
        kind, name = self._take()
        if kind not in ("name", "word"):
            raise _UnknownError(name)
        self._skip(":")
        type_ = self._type()
        nullable = True
        if self._skip("not"):
            self._expect("null")
            nullable = False
        if self._skip("comment"):
            self._take()
        return name, type_, nullable

    def _type(self) -> _Type:
        name = self._take()[1].lower()
        if name in ("struct", "array", "map"):
            self._expect("<")
            if name == "struct":
                found = self._fields()
            elif name == "array":
                found = _array(self._type())
            else:
                self._type()  # of the key, which is text in JSON
                self._expect(",")
                found = _map(self._type())
            self._expect(">")
            return found
        sizes = []
        if self._skip("("):
            while not self._skip(")"):
                sizes.append(int(self._take()[1]))
                self._skip(",")
        return _simple(name, tuple(sizes))

    def _peek(self, ahead: int = 0) -> str:
        at = self._at + ahead
        kind, token = self._tokens[at] if at < len(self._tokens) else ("", "")
        return token.lower() if kind in ("word", "sign") else ""

    def _is(self, token: str) -> bool:
        return self._peek() == token

    def _skip(self, token: str) -> bool:
        found = self._is(token)
        self._at += found
        return found

    def _expect(self, token: str) -> None:
        if not self._skip(token):
            raise _UnknownError(token)

    def _take(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise _UnknownError("the end")
        self._at += 1
        return self._tokens[self._at - 1]
