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
    return _type(schema, schema, "", 0)


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


def _type(schema: Any, root: Any, place: str, depth: int) -> Any:
    if depth > 50:
        raise TopologyException(
            f"the JSON Schema contains itself at '{place}', and no Column has such a type"
        )
    if not isinstance(schema, dict):
        raise TopologyException(f"this JSON Schema gives no type for '{place or 'the value'}'")
    if isinstance(schema.get("$ref"), str):
        return _type(_found(schema["$ref"], root), root, place, depth + 1)
    for word in ("oneOf", "anyOf"):
        if word in schema:
            rest = [each for each in schema[word] if each != {"type": "null"}]
            if len(rest) != 1:
                raise TopologyException(
                    f"'{place or 'the value'}' has one of several types in the JSON Schema ({word}), and a "
                    "Column has one type; read with a schema without that field"
                )
            return _type(rest[0], root, place, depth + 1)
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else "number" if set(kinds) == {"integer", "number"} else None
    if kind is None and "properties" in schema:
        kind = "object"
    if kind is None and "enum" in schema:
        kind = "string"
    if kind == "object":
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
        of = _type(values, root, f"{place}[]", depth + 1) if isinstance(values, dict) else "string"
        return {"type": "map", "keyType": "string", "valueType": of, "valueContainsNull": True}
    if kind == "array":
        item = _type(schema.get("items"), root, f"{place}[]", depth + 1)
        return {"type": "array", "elementType": item, "containsNull": True}
    if kind == "string":
        if schema.get("contentEncoding") == "base64":
            return "binary"
        return _FORMATS.get(str(schema.get("format")), "string")
    if kind not in _PLAIN:
        raise TopologyException(f"this JSON Schema gives no type for '{place or 'the value'}'")
    return _PLAIN[kind]


def _found(reference: str, root: Any) -> Any:
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
