"""How the command line shows and writes records: serdes by name, and unknown bytes. Pure."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer

from millstream.errors import SerializationException
from millstream.foreign import printable
from millstream.model import KafkaRecord

__all__ = [
    "Reader",
    "RecordForm",
    "as_bytes",
    "bytes_of",
    "parse_header",
    "parse_time",
    "record_as_dict",
    "record_line",
    "shown_time",
    "takes_json",
    "written",
]


_BYTES = "$bytes"


class RecordForm(StrEnum):
    """How bytes are read and written: serdes by name, and three forms that only the command line has."""

    AUTO = "auto"
    """Text if the bytes are text, or else 0x and hexadecimal digits."""
    BYTES = "bytes"
    """Base64."""
    JSON = "json"
    STRING = "string"
    SHORT = "short"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    BOOLEAN = "boolean"
    UUID = "uuid"
    AVRO = "avro"
    JSON_SCHEMA = "json_schema"
    PROTOBUF = "protobuf"


Reader = Callable[[bytes], Any]


def text_or_bytes(data: bytes) -> Any:
    """Text, if it can be printed, or else the bytes, as in `as_bytes`."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return as_bytes(data)
    return text if all(each.isprintable() or each in "\n\t" for each in text) else as_bytes(data)


def as_bytes(data: bytes) -> dict[str, str]:
    """Bytes in a form for JSON; `bytes_of` reads it."""
    return {_BYTES: base64.b64encode(data).decode("ascii")}


def bytes_of(part: object) -> bytes | None:
    """The bytes in the form of `as_bytes`; None if `part` is something else.

    Raises:
        ValueError: they are not base64.
    """
    if not isinstance(part, dict) or set(part) != {_BYTES}:
        return None
    return base64.b64decode(str(part[_BYTES]), validate=True)


def reader_of(form: RecordForm, serde: Callable[[str], Any]) -> Reader:
    """The function that reads bytes in a form; `serde` returns a serde by its name."""
    match form:
        case RecordForm.AUTO:
            return text_or_bytes
        case RecordForm.BYTES:
            return lambda data: base64.b64encode(data).decode("ascii")
        case RecordForm.JSON:
            return _json
        case _:
            deserialize = serde(form.value).deserialize
            return lambda data: deserialize(data)


def _json(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise SerializationException(f"not JSON: {printable(error, 100)}") from None


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is not a JSON number")


def written(form: RecordForm, text: str | None, serde: Callable[[str], Any]) -> bytes | None:
    """The bytes of typed text; None: a tombstone or no key.

    Raises:
        typer.BadParameter: the text does not fit the form.
    """
    if text is None:
        return None
    try:
        match form:
            case RecordForm.AUTO | RecordForm.STRING:
                return text.encode("utf-8")
            case RecordForm.BYTES:
                return base64.b64decode(text, validate=True)
            case RecordForm.JSON:
                return _as_utf8(json.loads(text))
            case _:
                data: bytes | None = serde(form.value).serialize(_value(form, text))
                return data
    except (ValueError, SerializationException) as error:
        raise typer.BadParameter(f"{printable(text, 80)!r} is not valid as {form.value}: {error}") from None


def _as_utf8(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    except UnicodeEncodeError:  # half a surrogate pair, which JSON's escapes can represent
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def takes_json(form: RecordForm) -> bool:
    """Whether a text in this form is JSON, so that strings need quotes."""
    return form in (RecordForm.JSON, RecordForm.AVRO, RecordForm.JSON_SCHEMA, RecordForm.PROTOBUF)


def _value(form: RecordForm, text: str) -> Any:
    match form:
        case RecordForm.SHORT | RecordForm.INTEGER | RecordForm.LONG:
            return int(text)
        case RecordForm.FLOAT | RecordForm.DOUBLE:
            return float(text)
        case RecordForm.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError("true or false")
            return text.lower() == "true"
        case RecordForm.UUID:
            from uuid import UUID

            return UUID(text)
        case _:
            return json.loads(text)


def record_as_dict(record: KafkaRecord, key: Reader, value: Reader) -> dict[str, Any]:
    """A record for `as_json`. A part that cannot be read has an error, and is `{"$bytes": base64}`.

    So is a part that JSON would misrepresent: an existing value that reads as None, or a number such as NaN.
    The errors are `key_error` and `value_error`.
    `record_of_line` turns it back into the same record, with the same serdes.
    """
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data, read in (("key", record.key, key), ("value", record.value, value)):
        try:
            shown[name] = None if data is None else _readable(data, read(data))
        except SerializationException as error:
            shown[name] = as_bytes(data or b"")
            shown[f"{name}_error"] = str(error)
    shown["headers"] = [
        [name, None if data is None else text_or_bytes(data)] for name, data in record.headers
    ]
    return shown


def _readable(data: bytes, read: Any) -> Any:
    is_none = read is None or (isinstance(read, float) and not math.isfinite(read))
    is_like_bytes = isinstance(read, dict) and set(read) == {_BYTES}
    is_not_all = isinstance(read, str) and "\ufffd" in read  # it replaces bytes that are not text
    return as_bytes(data) if is_none or is_like_bytes or is_not_all else read


def record_line(shown: Mapping[str, Any], *, headers: bool) -> str:
    """One record on one line: position, time, key and value. Nothing in it can control the terminal."""
    parts = [
        f"{printable(shown['topic'])}-{shown['partition']}@{shown['offset']}",
        shown_time(int(shown["timestamp"])),
        _one(shown, "key"),
        _one(shown, "value"),
    ]
    if headers and shown["headers"]:
        parts.append(" ".join(f"{printable(name)}={_shown(value)}" for name, value in shown["headers"]))
    return "  ".join(parts)


def _one(shown: Mapping[str, Any], name: str) -> str:
    value = shown[name]
    if f"{name}_error" in shown:
        return f"<{name}: {printable(shown[f'{name}_error'], 120)}>"
    if value is None:
        return "null"
    return _shown(value)


def _shown(value: object) -> str:
    data = bytes_of(value)
    if data is not None:
        return printable(f"0x{data.hex()}", 2_000)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return printable(text, 2_000)


def shown_time(timestamp: int) -> str:
    """A record's time in UTC, to the millisecond."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def parse_time(text: str, hint: str) -> int:
    """Milliseconds since the epoch, from that number or an ISO 8601 time, in UTC unless it names a zone.

    Raises:
        typer.BadParameter: it is neither.
    """
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a time; use one like 2026-05-01T12:00:00Z, or milliseconds since 1970",
            param_hint=hint,
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def parse_header(text: str) -> tuple[str, bytes]:
    """`name=value`.

    Raises:
        typer.BadParameter: it is not in this form.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not a header; use name=value", param_hint="--header")
    return name, value.encode("utf-8")
