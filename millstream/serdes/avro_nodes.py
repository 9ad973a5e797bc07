"""Avro schemas as nodes, what their values mean, and the defaults of their fields. Pure.

Values are those that fastavro takes for writing: datetimes for timestamps, dates, times, Decimals, UUIDs.
"""

from __future__ import annotations

import json
import re
import struct
import uuid
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal
from typing import Any

__all__ = ["NAMED", "AvroNode", "Field", "MisreadError", "default", "is_called", "meaning", "parsed"]

NAMED = frozenset(("record", "error", "enum", "fixed"))
_PRIMITIVE = frozenset(("null", "boolean", "bytes", "string", "int", "long", "float", "double"))


class MisreadError(ValueError):
    """Bytes that are not a record of the schema. The message has nothing of their content."""


@dataclass(eq=False)
class AvroNode:
    """A schema. `inner` are a union's members, or what an array or a map consists of."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    inner: list[AvroNode] = field(default_factory=list)
    fields: dict[str, Field] = field(default_factory=dict)


@dataclass(eq=False)
class Field:
    node: AvroNode
    aliases: tuple[str, ...]
    has_default: bool
    default: Any


def parsed(texts: Sequence[str]) -> AvroNode:
    names: dict[str, AvroNode] = {}
    made = None
    for text in texts:
        made = _node(json.loads(text) if text.strip()[:1] in '{["' else text.strip(), "", names)
    assert made is not None
    return made


def _node(schema: Any, space: str, names: dict[str, AvroNode]) -> AvroNode:
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return AvroNode(schema)
        found = names.get(_full(schema, space)) or names.get(schema)
        if found is None:
            raise ValueError(f"this is not an Avro schema: nothing defines '{schema}'")
        return found
    if isinstance(schema, list):
        return AvroNode("union", inner=[_node(each, space, names) for each in schema])
    kind = schema["type"]
    if not isinstance(kind, str) or kind not in (*_PRIMITIVE, *NAMED, "array", "map"):
        return _node(kind, space, names)
    made = AvroNode(kind, logical=str(schema.get("logicalType") or ""))
    if made.logical == "decimal":
        made.precision, made.scale = int(schema["precision"]), int(schema.get("scale", 0))
    if kind in ("array", "map"):
        made.inner = [_node(schema["items" if kind == "array" else "values"], space, names)]
    if kind in NAMED:
        space = schema["name"].rpartition(".")[0] or str(schema.get("namespace", space) or "")
        made.name = _full(schema["name"].rpartition(".")[2], space)
        made.aliases = tuple(_full(each, space) for each in schema.get("aliases") or ())
        names[made.name] = made
    if kind == "fixed":
        made.size = int(schema["size"])
    if kind == "enum":
        made.symbols, made.default = tuple(schema["symbols"]), schema.get("default")
    if kind in ("record", "error"):
        made.kind = "record"
        for each in schema["fields"]:
            node = _node(each["type"], space, names)
            aliases = tuple(each.get("aliases") or ())
            made.fields[each["name"]] = Field(node, aliases, "default" in each, each.get("default"))
    return made


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def is_called(writer: AvroNode, reader: AvroNode) -> bool:
    return writer.name == reader.name or writer.name in reader.aliases


# --- what numbers, bytes and texts mean ---------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)
_DAY_MICROS = 86_400_000_000
_UUID = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXACT = Context(prec=60)
_TIMES = "Avro whose times are of a day, or of the years 1 to 9999"


def meaning(node: AvroNode) -> Callable[[Any], Any] | None:
    """What a value stands for, by its logical type; None: for itself."""
    kind = (node.kind, node.logical)
    if node.logical == "decimal" and node.kind in ("bytes", "fixed"):
        return _decimal(node.precision, node.scale)
    return _MEANINGS.get(kind)


def _decimal(precision: int, scale: int) -> Callable[[bytes], Decimal]:
    most = 10**precision

    def read(data: bytes) -> Decimal:
        unscaled = int.from_bytes(data, "big", signed=True)
        if not data or not -most < unscaled < most:
            raise MisreadError("Avro whose decimals have the digits that its schema says")
        return Decimal(unscaled).scaleb(-scale, _EXACT)

    return read


def _date(days: int) -> date:
    try:
        return date.fromordinal(719_163 + days)
    except (ValueError, OverflowError):
        raise MisreadError(_TIMES) from None


def _time(unit: int) -> Callable[[int], time]:
    def read(number: int) -> time:
        micros = number * unit
        if not 0 <= micros < _DAY_MICROS:
            raise MisreadError(_TIMES)
        seconds, micros = divmod(micros, 1_000_000)
        return time(seconds // 3600, seconds // 60 % 60, seconds % 60, micros)

    return read


def _timestamp(epoch: datetime, unit: int) -> Callable[[int], datetime]:
    def read(number: int) -> datetime:
        try:
            return epoch + timedelta(microseconds=number * unit)
        except OverflowError:
            raise MisreadError(_TIMES) from None

    return read


def _as_uuid(text: str) -> uuid.UUID:
    if not _UUID.fullmatch(text):
        raise MisreadError("Avro whose UUIDs have 36 characters")
    return uuid.UUID(text)


_MEANINGS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time(1000),
    ("long", "time-micros"): _time(1),
    ("long", "timestamp-millis"): _timestamp(_EPOCH, 1000),
    ("long", "timestamp-micros"): _timestamp(_EPOCH, 1),
    ("long", "local-timestamp-millis"): _timestamp(_LOCAL_EPOCH, 1000),
    ("long", "local-timestamp-micros"): _timestamp(_LOCAL_EPOCH, 1),
    ("string", "uuid"): _as_uuid,
}


# --- defaults ---


def default(node: AvroNode, given: Any) -> Callable[[], Any]:
    """Gives a new field's value, which is its own for each record."""
    value = _of_json(node, given)
    return (lambda: deepcopy(value)) if isinstance(value, list | dict) else lambda: value


def _of_json(node: AvroNode, given: Any) -> Any:
    """The value of a default as a schema has it.

    Raises:
        ValueError: it does not fit.
    """
    if node.kind == "union":
        for each in node.inner:
            try:
                return _of_json(each, given)
            except ValueError:
                continue
    raw = _raw(node, given)
    read = meaning(node)
    return raw if read is None else read(raw)


def _raw(node: AvroNode, given: Any) -> Any:
    whole = isinstance(given, int) and not isinstance(given, bool)
    match node.kind:
        case "null" if given is None:
            return None
        case "boolean" if isinstance(given, bool):
            return given
        case "int" | "long" if whole and -(2**63) <= given < 2**63:
            return given
        case "float" if whole or isinstance(given, float):
            return struct.unpack("f", struct.pack("f", given))[0]
        case "double" if whole or isinstance(given, float):
            return float(given)
        case "bytes" | "fixed" if isinstance(given, str):
            return given.encode("latin-1")
        case "string" | "enum" if isinstance(given, str):
            return given
        case "array" if isinstance(given, list):
            return [_of_json(node.inner[0], each) for each in given]
        case "map" if isinstance(given, dict):
            return {name: _of_json(node.inner[0], each) for name, each in given.items()}
        case "record" if isinstance(given, dict):
            made = {}
            for name, each in node.fields.items():
                if name not in given and not each.has_default:
                    break
                made[name] = _of_json(each.node, given.get(name, each.default))
            else:
                return made
    raise ValueError(f"a default does not fit its type {node.kind}")
