"""Whether a reader with one Avro schema can read data written with another. Pure.

Source: the Avro specification, "Schema Resolution".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["incompatibility"]

_PROMOTED: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""For each type, the other types as which its values can be read."""

_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

Named = dict[str, dict[str, Any]]


def incompatibility(*, reader: Sequence[str], writer: Sequence[str]) -> str | None:
    """Why the last reader's schema cannot read data of the last writer's; None if it can.

    Each list starts with the schemas that the last one refers to.
    """
    try:
        (mine, my_names), (theirs, their_names) = _parsed(reader), _parsed(writer)
        return _Check(my_names, their_names).why(mine, theirs, "")
    except _NoSchemaError as error:
        return str(error)
    except RecursionError:
        return "it is nested too deeply"
    except (TypeError, AttributeError, KeyError, ValueError):  # a part is of another type
        return "it is not an Avro schema"


class _NoSchemaError(Exception):
    """Not an Avro schema."""


def _parsed(texts: Sequence[str]) -> tuple[Any, Named]:
    names: Named = {}
    last: Any = None
    for text in texts:
        last = _named(json.loads(text) if text.strip()[:1] in '{["' else text, "", names)
    return last, names


def _named(schema: Any, space: str, names: Named) -> Any:
    """The schema with full names; adds its definitions to the names."""
    if isinstance(schema, str):
        if schema in _PRIMITIVE:
            return schema
        full = schema if "." in schema or not space else f"{space}.{schema}"
        if full in names:
            return full
        if schema in names:
            return schema
        raise _NoSchemaError(f"it has the type '{schema}', which is not defined")
    if isinstance(schema, list):
        return [_named(each, space, names) for each in schema]
    if not isinstance(schema, dict) or "type" not in schema:
        raise _NoSchemaError("a schema must be a name, a list, or an object with a type")
    kind = schema["type"]
    if kind == "array":
        return {"type": "array", "items": _named(schema.get("items"), space, names)}
    if kind == "map":
        return {"type": "map", "values": _named(schema.get("values"), space, names)}
    if kind not in ("record", "error", "enum", "fixed"):
        return _named(kind, space, names)
    name = schema.get("name")
    if not isinstance(name, str):
        raise _NoSchemaError(f"a {kind} has no name")
    inner = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
    full = name if "." in name or not inner else f"{inner}.{name}"
    made = dict(schema)
    names[full] = made
    if kind in ("record", "error"):
        fields = schema.get("fields")
        if not isinstance(fields, list) or any(not isinstance(f, dict) or "name" not in f for f in fields):
            raise _NoSchemaError(f"the record {full} has no list of fields with names")
        made["fields"] = [{**field, "type": _named(field.get("type"), inner, names)} for field in fields]
    if kind == "enum" and not isinstance(schema.get("symbols"), list):
        raise _NoSchemaError(f"the enum {full} has no list of symbols")
    if kind == "fixed" and not isinstance(schema.get("size"), int):
        raise _NoSchemaError(f"the fixed {full} has no size")
    return full


_MOST_STEPS = 200_000
_HERE = "\0"
"""Stands for the place of two records that are compared once, and may be in several places."""


class _Check:
    def __init__(self, mine: Named, theirs: Named) -> None:
        self._mine, self._theirs = mine, theirs
        self._known: dict[tuple[str, str], str | None] = {}
        self._steps = 0

    def why(self, reader: Any, writer: Any, place: str) -> str | None:
        """`place` is the field, for the message."""
        self._steps += 1
        if self._steps > _MOST_STEPS:  # each type of a union is compared with each of another
            raise _NoSchemaError("it is too large to be compared")
        if isinstance(writer, list):
            return next((why for each in writer if (why := self.why(reader, each, place))), None)
        if isinstance(reader, list):
            if any(self.why(each, writer, place) is None for each in reader):
                return None
            return f"{_at(place)}no type of the union can read {_word(writer)}"
        mine, theirs = self._of(reader, self._mine), self._of(writer, self._theirs)
        kind, written = _kind(mine), _kind(theirs)
        if kind != written:
            if kind in _PROMOTED.get(written, ()):
                return None
            return f"{_at(place)}{_word(writer)} cannot be read as {_word(reader)}"
        if kind == "array":
            return self.why(mine["items"], theirs["items"], place)
        if kind == "map":
            return self.why(mine["values"], theirs["values"], place)
        if kind in ("record", "error", "enum", "fixed"):
            return self._why_named(str(reader), str(writer), mine, theirs, place)
        return None

    def _why_named(
        self, reader: str, writer: str, mine: dict[str, Any], theirs: dict[str, Any], place: str
    ) -> str | None:
        aliases = {str(each).rpartition(".")[2] for each in mine.get("aliases", ())}
        short = writer.rpartition(".")[2]
        if reader.rpartition(".")[2] != short and short not in aliases:
            return f"{_at(place)}{writer} cannot be read as {reader}"
        if mine["type"] == "fixed":
            same = mine["size"] == theirs["size"]
            return None if same else f"{_at(place)}the sizes of {reader} differ"
        if mine["type"] == "enum":
            missing = [each for each in theirs["symbols"] if each not in mine["symbols"]]
            if missing and "default" not in mine:
                return f"{_at(place)}the enum {reader} has no symbol {missing[0]}, and no default"
            return None
        if (reader, writer) not in self._known:
            self._known[reader, writer] = None  # while it is under way
            self._known[reader, writer] = self._why_fields(mine, theirs, _HERE)
        why = self._known[reader, writer]
        if why is None:
            return None
        return why.replace(_at(_HERE), _at(place)).replace(f"{_HERE}.", f"{place}." if place else "")

    def _why_fields(self, mine: dict[str, Any], theirs: dict[str, Any], place: str) -> str | None:
        written = {field["name"]: field for field in theirs["fields"]}
        for field in mine["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            found = next((written[name] for name in names if name in written), None)
            inner = f"{place}.{field['name']}" if place else str(field["name"])
            if found is None:
                if "default" not in field:
                    return f"the field '{inner}' is new and has no default"
                continue
            if why := self.why(field["type"], found["type"], inner):
                return why
        return None

    @staticmethod
    def _of(schema: Any, names: Named) -> Any:
        return names[schema] if isinstance(schema, str) and schema in names else schema


def _kind(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema["type"])


def _word(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _at(place: str) -> str:
    return f"the field '{place}': " if place else ""
