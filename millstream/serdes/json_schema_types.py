"""Which Spark type stands for which JSON Schema, and the reverse. Pure, without Spark.

Types are what `DataType.jsonValue` gives. Other constraints of a JSON Schema (lengths, patterns, ranges,
required fields) are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millstream.errors import TopologyException

__all__ = ["json_schema", "spark_type", "title"]

_PLAIN = {"boolean": "boolean", "integer": "long", "number": "double", "string": "string", "null": "void"}
_OF_SPARK: Mapping[str, Mapping[str, Any]] = {
    "boolean": {"type": "boolean"},
    **{name: {"type": "integer"} for name in ("byte", "short", "integer", "long")},
    **{name: {"type": "number"} for name in ("float", "double")},
    "string": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
}
_FORMATS = {"date": "date", "date-time": "timestamp"}


def spark_type(text: str) -> Any:
    """The type that stands for a schema.

    Raises:
        TopologyException: it is not a JSON Schema, or no type stands for it.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise TopologyException(f"this is not a JSON Schema: it is not JSON ({error})") from None
    return _type(schema, _Whole(schema), "", 0)


def title(text: str) -> str:
    """The schema's own name; "" if it has none."""
    schema = json.loads(text)
    return str(schema.get("title") or "") if isinstance(schema, dict) else ""


def json_schema(type_: Any, name: str) -> str:
    """A schema for values of a type.

    Raises:
        TopologyException: JSON Schema has no such type.
    """
    whole = {"$schema": "http://json-schema.org/draft-07/schema#", "title": name, **_schema(type_)}
    return json.dumps(whole, separators=(",", ":"))


class _Whole:
    """A whole schema, and how often it may still be looked into: parts that refer to each other twice double
    that at each level."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self._left = 10_000

    def step(self, place: str, depth: int) -> None:
        self._left -= 1
        if depth > 50:
            raise TopologyException(
                f"the JSON Schema contains itself at '{place}', and no Column has such a type"
            )
        if self._left < 0:
            raise TopologyException(
                f"the parts of the JSON Schema refer to each other too often, at '{place}' for example; give "
                "Serdes.json_schema() a schema with fewer references"
            )


def _type(schema: Any, root: _Whole, place: str, depth: int) -> Any:
    schema = _resolved(schema, root, place, depth)
    for word in ("oneOf", "anyOf"):
        if word in schema and not {"type", "properties"} & schema.keys():  # else it is about these
            return _alternatives(schema[word], word, root, place, depth)
    kind = _kind(schema, place)
    if kind == "object":
        return _object(schema, root, place, depth)
    if kind == "array":
        items = schema.get("items", True)
        if isinstance(items, list) or "prefixItems" in schema:
            raise TopologyException(
                f"the elements of '{place or 'the value'}' have types of their own in the JSON Schema, and "
                f"those of a Column have one type; {_REMEDY}"
            )
        item = _type(items, root, f"{place}[]", depth + 1)
        return {"type": "array", "elementType": item, "containsNull": True}
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return "binary"
        return _FORMATS.get(str(schema.get("format")), "string")
    return _PLAIN[kind]


def _alternatives(given: Any, word: str, root: _Whole, place: str, depth: int) -> Any:
    members = [_resolved(each, root, place, depth) for each in given]
    members = [each for each in members if not _is_null(each)]
    if not members:
        return "void"
    values = [_values(each) for each in members]
    if all(values):
        return _type({"enum": [each for one in values for each in one or ()]}, root, place, depth + 1)
    first, *others = (_type(each, root, place, depth + 1) for each in members)
    if any(other != first for other in others):
        raise TopologyException(
            f"'{place or 'the value'}' has one of several types in the JSON Schema ({word}), and a "
            f"Column has one type; {_REMEDY}"
        )
    return first


_REMEDY = "give Serdes.json_schema() a schema in which it has one type, or that does not have it"


def _object(schema: Any, root: _Whole, place: str, depth: int) -> Any:
    properties = schema.get("properties")
    if properties:
        fields = [
            {
                "name": name,
                "type": _type(inner, root, f"{place}.{name}" if place else name, depth + 1),
                "nullable": True,
                "metadata": {},
            }
            for name, inner in properties.items()
        ]
        return {"type": "struct", "fields": fields}
    values = schema.get("additionalProperties")
    if not isinstance(values, dict):
        # As a map of texts, numbers and objects in it would be written on as texts.
        raise TopologyException(
            f"'{place or 'the value'}' is an object of any properties in the JSON Schema, and a Column needs "
            'their types; give Serdes.json_schema() a schema with its "properties", or with the type of all '
            'of them ("additionalProperties": {"type": "string"}, say), or one that does not have it'
        )
    of = _type(values, root, f"{place}[]", depth + 1)
    return {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": True}


def _kind(schema: Mapping[str, Any], place: str) -> str:
    """The name of a schema's type.

    Raises:
        TopologyException: it has none, or several.
    """
    kind = schema.get("type")
    kinds = {each for each in kind if each != "null"} if isinstance(kind, list) else {kind}
    if kinds == {None}:
        kinds = {_of_value(each) for each in _values(schema) or () if each is not None}
    if not kinds and (kind is not None or _values(schema)):
        kinds = {"null"}
    if not kinds and ("properties" in schema or "additionalProperties" in schema):
        kinds = {"object"}
    if not kinds and "items" in schema:
        kinds = {"array"}
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    found = next(iter(kinds), None)
    if len(kinds) > 1:
        raise TopologyException(
            f"'{place or 'the value'}' has one of several types in the JSON Schema "
            f"({', '.join(sorted(map(str, kinds)))}), and a Column has one type; {_REMEDY}"
        )
    if found not in (*_PLAIN, "object", "array"):
        raise TopologyException(
            f"this JSON Schema gives no type for '{place or 'the value'}', which may be anything; {_REMEDY}"
        )
    return str(found)


def _resolved(schema: Any, root: _Whole, place: str, depth: int) -> dict[str, Any]:
    """A schema with what it refers to, and with all that has to hold at once (allOf) in one."""
    if schema is True:
        return {}
    if not isinstance(schema, dict):
        raise TopologyException(f"this JSON Schema gives no type for '{place or 'the value'}'")
    root.step(place, depth)
    parts = [_found(schema["$ref"], root.schema)] if isinstance(schema.get("$ref"), str) else []
    parts += schema.get("allOf") or ()
    own = {word: each for word, each in schema.items() if word not in ("$ref", "allOf")}
    made: dict[str, Any] = {}
    for each in [*(_resolved(part, root, place, depth + 1) for part in parts), own]:
        fields = {**made.get("properties", {}), **each.get("properties", {})}
        made = {**made, **each, **({"properties": fields} if fields else {})}
    return made


def _is_null(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "null" or _values(schema) == [None]


def _values(schema: Mapping[str, Any]) -> list[Any] | None:
    """The only values that a schema allows; None: it has no list of them."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _of_value(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def _found(reference: str, root: Any) -> Any:
    if reference == "#":
        return root
    if not reference.startswith("#/"):
        raise TopologyException(
            f"the JSON Schema refers to '{reference}', which is not in it; give a schema that has all its "
            "parts"
        )
    found = root
    for part in reference[2:].split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _schema(type_: Any) -> dict[str, Any]:
    if isinstance(type_, str):
        if type_.startswith("decimal("):
            return {"type": "number"}
        if type_ not in _OF_SPARK:
            raise TopologyException(f"JSON Schema has no type for a column of type {type_}; cast it")
        return dict(_OF_SPARK[type_])
    if type_["type"] == "array":
        return {"type": "array", "items": _schema(type_["elementType"])}
    if type_["type"] == "map":
        return {"type": "object", "additionalProperties": _schema(type_["valueType"])}
    return {
        "type": "object",
        "properties": {field["name"]: _schema(field["type"]) for field in type_["fields"]},
    }
