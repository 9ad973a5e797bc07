"""Which type a JSON Schema has, and which schemas are refused with a remedy."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millstream import Serdes, TopologyException
from millstream.serdes.json_schema_types import spark_type

TAG = {
    "definitions": {"tag": {"type": "integer"}},
    "$defs": {"base": {"properties": {"a": {"type": "string"}}}},
}


def doubling(levels: int) -> Any:
    """A small schema whose parts each refer twice to the next one."""
    twice = [[{"$ref": f"#/$defs/d{level + 1}"}] * 2 for level in range(levels)]
    parts = {f"d{level}": {"allOf": both} for level, both in enumerate(twice)}
    return {"$ref": "#/$defs/d0", "$defs": {**parts, f"d{levels}": {"type": "string"}}}


def struct(**fields: Any) -> Any:
    made = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields.items()]
    return {"type": "struct", "fields": made}


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"oneOf": [{"type": "null", "title": "Not included"}, {"type": "string"}]}, "string"),
        ({"anyOf": [{"type": "null", "description": "x"}, {"$ref": "#/definitions/tag"}]}, "long"),
        ({"oneOf": [{"const": None}, {"type": "number"}]}, "double"),
        ({"oneOf": [{"enum": ["a"]}, {"type": "string", "format": "email"}]}, "string"),
        ({"oneOf": [{"type": "null"}]}, "void"),
        ({"allOf": [{"$ref": "#/definitions/tag"}], "description": "x"}, "long"),
        (
            {"allOf": [{"$ref": "#/$defs/base"}, {"type": "object", "properties": {"b": {"const": True}}}]},
            struct(a="string", b="boolean"),
        ),
        ({"oneOf": [{"const": "A"}, {"const": "B", "title": "b"}]}, "string"),
        ({"const": 1}, "long"),
        ({"enum": [1, 2]}, "long"),
        ({"enum": [1, 2.5, None]}, "double"),
        ({"type": ["integer", "null"], "enum": [1, None]}, "long"),
        ({"additionalProperties": {"type": "number"}}, None),
        ({"items": {"type": "string"}}, {"type": "array", "elementType": "string", "containsNull": True}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "oneOf": [{"required": ["a"]}]},
            struct(a="string"),
        ),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_schema_that_allows_one_type_has_that_type(schema: dict[str, Any], type_: Any) -> None:
    """It may allow null as well, in parts that all have to hold, or list the allowed values."""
    if type_ is None:
        type_ = {"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}
    assert spark_type(json.dumps({**schema, **TAG})) == type_


def test_a_schema_whose_parts_refer_to_each_other_twice_takes_no_time() -> None:
    """A few hundred bytes double the work with each level."""
    with pytest.raises(TopologyException, match="refer to each other too often"):
        spark_type(json.dumps(doubling(20)))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            {"type": "object"},
            "'x' is an object of any properties .* with its \"properties\", or with the type",
        ),
        ({"type": "object", "additionalProperties": True}, "an object of any properties"),
        ({}, "no type for 'x', which may be anything; give Serdes.json_schema"),
        (True, "no type for 'x', which may be anything"),
        (False, "no type for 'x'"),
        ({"type": "array"}, r"no type for 'x\[\]', which may be anything"),
        ({"type": "array", "items": [{"type": "string"}]}, "elements of 'x' have types of their own"),
        ({"oneOf": [{"const": "A"}, {"const": 1}]}, r"one of several types .* \(integer, string\)"),
        ({"enum": ["a", 1]}, r"one of several types .* \(integer, string\)"),
        ({"type": ["string", "integer"]}, r"one of several types .* \(integer, string\)"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, r"one of several types .* \(anyOf\)"),
        ({"$ref": "#"}, "contains itself"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)
def test_a_schema_that_allows_several_types_is_refused(schema: Any, said: str) -> None:
    """Instead of a map of texts or a text, as which its numbers and objects would be written on."""
    with pytest.raises(TopologyException, match=said):
        Serdes.json_schema({"type": "object", "properties": {"x": schema}})
