"""Which Spark type stands for which Avro schema, and the reverse. Pure, without Spark.

Types are what `DataType.jsonValue` gives. The kernel (AvroToSpark.java, AvroFromSpark.java) converts values
of a schema to those of the type given here.

Source: Spark's own SchemaConverters for spark-avro. Differs: every field can be null, as in a JSON serde; an
    Avro time of day is a number, and nanoseconds are too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.errors import TopologyException

__all__ = ["avro_record", "avro_schema", "misfit", "record_name", "spark_type"]

Type = Any
"""A Spark type as JSON: a name or an object."""

_PLAIN = {
    "null": "void",
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_OF_SPARK: Mapping[str, Any] = {
    "void": "null",
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "binary": "bytes",
    "string": "string",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
"""What type a column may have where the schema has a wider one: nothing is lost."""

Names = dict[str, dict[str, Any]]


def spark_type(text: str) -> Type:
    """The type that stands for a schema.

    Raises:
        TopologyException: it is not an Avro schema, or no type stands for it.
    """
    schema, names = _read(text)
    return _type(schema, "", names, (), "")


def avro_record(name: str, /, **fields: Any) -> dict[str, Any]:
    """The schema of an Avro record, for `Serdes.avro`.

        ORDER = avro_record("shop.Order", id="long", tags={"type": "array", "items": "string"})
        Serdes.avro(avro_record("shop.Checked", order=ORDER, note=["null", "string"]))

    Args:
        name: the record's full name.
        fields: the type of each field: a primitive type's name, a union as a list, or a schema as a dict,
            such as another record. A named type may be given more than once; Avro gets just its name the
            second time. For defaults and aliases, write out the schema.
    """
    typed = [{"name": field, "type": type_} for field, type_ in fields.items()]
    schema: Any = {"type": "record", "name": name, "fields": typed}
    names: Names = {}
    _define(schema, "", names)
    found: dict[str, Any] = _inlined(schema, "", names, set())
    return found


def record_name(text: str) -> str:
    """The full name of a record, an enum or a fixed; "" of what has none."""
    schema = _json(text)
    if not isinstance(schema, dict) or not isinstance(schema.get("name"), str):
        return ""
    name, space = str(schema["name"]), str(schema.get("namespace") or "")
    return name if "." in name or not space else f"{space}.{name}"


def avro_schema(type_: Type, name: str) -> str:
    """A schema for values of a type.

    Args:
        name: of its record; nested records are named after it and their fields.

    Raises:
        TopologyException: Avro has no such type, or does not allow the name.
    """
    return json.dumps(_schema(type_, name), separators=(",", ":"))


def misfit(text: str, type_: Type) -> str | None:
    """Why a column of this type cannot be written with a schema; None if it can.

    A null where the schema does not allow one is found when it is written.
    """
    schema, names = _read(text)
    return _misfit(schema, type_, "", names, "")


def whole(texts: Sequence[str]) -> str:
    """One schema of the last of these texts, with what it refers to of those before it where that comes
    first."""
    if len(texts) == 1:
        return texts[0]
    names: Names = {}
    for text in texts[:-1]:
        _define(_json(text), "", names)
    own: Names = {}
    schema = _json(texts[-1])
    _define(schema, "", own)
    others = {name: found for name, found in names.items() if name not in own}
    return json.dumps(_inlined(schema, "", others, set()), separators=(",", ":"))


def _inlined(schema: Any, space: str, names: Names, done: set[str]) -> Any:
    """`names` is what may be put in where it comes first, and then is among the `done`."""
    if isinstance(schema, list):
        return [_inlined(each, space, names, done) for each in schema]
    if isinstance(schema, str):
        full = _full(schema, space) if _full(schema, space) in names else schema
        if full not in names or full in done:
            return full
        return _inlined({**names[full], "name": full.rpartition(".")[2]}, space, names, done)
    if not isinstance(schema, dict):
        return schema
    made, kind = dict(schema), schema.get("type")
    if kind in ("record", "error", "enum", "fixed"):
        name = str(schema.get("name"))
        space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
        if _full(name, space) in names:
            if _full(name, space) in done:
                return _full(name, space)
            done.add(_full(name, space))
    elif isinstance(kind, str) and kind not in (*_PLAIN, "array", "map"):
        return _inlined(kind, space, names, done)
    if kind in ("record", "error"):
        made["fields"] = [
            {**field, "type": _inlined(field["type"], space, names, done)} for field in schema["fields"]
        ]
    for part in ("items", "values"):
        if part in schema:
            made[part] = _inlined(schema[part], space, names, done)
    return made


# --- reading schemas ----------------------------------------------------------------------------------------


def _read(text: str) -> tuple[Any, Names]:
    schema = _json(text)
    names: Names = {}
    _define(schema, "", names)
    return schema, names


def _json(text: str) -> Any:
    try:
        return json.loads(text) if text.strip()[:1] in '{["' else text.strip()
    except ValueError as error:
        raise TopologyException(f"this is not an Avro schema: it is not JSON ({error})") from None


def _define(schema: Any, space: str, names: Names) -> None:
    """Note what is defined, by its full name, with its namespace in it."""
    if isinstance(schema, list):
        for each in schema:
            _define(each, space, names)
    if not isinstance(schema, dict):
        return
    kind = schema.get("type")
    if kind in ("record", "error", "enum", "fixed"):
        name = str(schema.get("name"))
        space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
        names[_full(name, space)] = {**schema, "namespace": space}
        for field in schema.get("fields") or ():
            if isinstance(field, dict):
                _define(field.get("type"), space, names)
    for part in (schema.get("items"), schema.get("values"), kind):
        if isinstance(part, dict | list):
            _define(part, space, names)


def _full(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _resolved(schema: Any, space: str, names: Names, place: str) -> Any:
    """A name's definition; anything else as it is."""
    if not isinstance(schema, str) or schema in _PLAIN:
        return schema
    found = names.get(_full(schema, space)) or names.get(schema)
    if found is None:
        raise TopologyException(f"this is not an Avro schema: {_at(place)}nothing defines '{schema}'")
    return found


def _members(union: Sequence[Any]) -> list[Any]:
    return [each for each in union if each != "null" and each != {"type": "null"}]


def _numbers(members: Sequence[Any]) -> str | None:
    """The type that stands for a union of two kinds of numbers."""
    kinds = {each for each in members if isinstance(each, str)}
    if len(members) == 2 and kinds == {"int", "long"}:
        return "long"
    return "double" if len(members) == 2 and kinds == {"float", "double"} else None


def _type(schema: Any, space: str, names: Names, within: tuple[str, ...], place: str) -> Type:
    schema = _resolved(schema, space, names, place)
    if isinstance(schema, list):
        members = _members(schema)
        if not place and len(members) < len(schema):
            raise TopologyException(
                "this Avro schema is a union with null: in Kafka a missing value has no bytes at all; "
                "give only the schema of the other type"
            )
        if len(members) == 1:
            return _type(members[0], space, names, within, place)
        if not members:
            return "void"
        if (number := _numbers(members)) is not None:
            return number
        fields = [
            _field(f"member{i}", _type(each, space, names, within, f"{place}.member{i}"))
            for i, each in enumerate(members)
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(schema, str):
        return _PLAIN[schema]
    if not isinstance(schema, dict) or "type" not in schema:
        raise TopologyException(f"this is not an Avro schema: {_at(place)}it has no type")
    kind, logical = schema["type"], schema.get("logicalType")
    if kind in ("record", "error"):
        return _record(schema, space, names, within, place)
    if kind == "array":
        item = _type(schema.get("items"), space, names, within, f"{place}[]")
        return {"type": "array", "elementType": item, "containsNull": True}
    if kind == "map":
        item = _type(schema.get("values"), space, names, within, f"{place}[]")
        return {"type": "map", "keyType": "string", "valueType": item, "valueContainsNull": True}
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale", 0))
        if precision > 38:
            raise TopologyException(
                f"{_at(place)}a decimal of {precision} digits has no type in Spark, whose limit is 38"
            )
        return f"decimal({precision},{scale})"
    if isinstance(kind, str) and (kind, str(logical)) in _LOGICAL:
        return _LOGICAL[kind, str(logical)]
    if isinstance(kind, str) and kind in _PLAIN:
        return _PLAIN[kind]
    return _type(kind, space, names, within, place)


def _record(schema: Mapping[str, Any], space: str, names: Names, within: tuple[str, ...], place: str) -> Type:
    name = str(schema.get("name"))
    space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
    full = _full(name, space)
    if full in within:
        raise TopologyException(
            f"{_at(place)}the Avro record {full} contains itself, and no Column has such a type; read "
            "with a schema without that field"
        )
    fields, inside = schema.get("fields"), (*within, full)
    if not isinstance(fields, list):
        raise TopologyException(f"this is not an Avro schema: the record {full} has no list of fields")
    return {
        "type": "struct",
        "fields": [
            _field(each["name"], _type(each["type"], space, names, inside, _under(place, each["name"])))
            for each in fields
        ],
    }


def _field(name: str, type_: Type) -> dict[str, Any]:
    return {"name": name, "type": type_, "nullable": True, "metadata": {}}


# --- schemas for types --------------------------------------------------------------------------------------


def _schema(type_: Type, name: str) -> Any:
    if isinstance(type_, str):
        if (decimal := re.fullmatch(r"decimal\((\d+),(-?\d+)\)", type_)) is not None:
            precision, scale = map(int, decimal.groups())
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
        found = _OF_SPARK.get(type_)
        if found is None:
            raise TopologyException(f"Avro has no type for a column of type {type_}; cast it")
        return found
    kind = type_["type"]
    if kind == "array":
        return {"type": "array", "items": _or_null(type_["elementType"], name)}
    if kind == "map":
        if type_["keyType"] != "string":
            raise TopologyException("the keys of an Avro map are strings; cast them to string")
        return {"type": "map", "values": _or_null(type_["valueType"], name)}
    if kind != "struct":
        raise TopologyException(f"Avro has no type for a column of type {kind}; cast it")
    fields = []
    for field in type_["fields"]:
        if not re.fullmatch(r"[A-Za-z_]\w*", field["name"], re.ASCII):
            raise TopologyException(
                f"an Avro field name has letters, digits and _ only, and this one is '{field['name']}'; "
                "give it "
                "another name"
            )
        inner = _or_null(field["type"], f"{name}_{field['name']}")
        fields.append({"name": field["name"], "type": inner, "default": None})
    space, _, short = name.rpartition(".")
    return {"type": "record", "name": short, **({"namespace": space} if space else {}), "fields": fields}


def _or_null(type_: Type, name: str) -> Any:
    found = _schema(type_, name)
    return found if found == "null" else ["null", found]


# --- writing with a schema ----------------------------------------------------------------------------------


def _misfit(schema: Any, type_: Type, space: str, names: Names, place: str) -> str | None:
    if type_ == "void":
        return None
    schema = _resolved(schema, space, names, place)
    wanted = _type(schema, space, names, (), place or "value")
    if isinstance(schema, list):
        members = _members(schema)
        if len(members) == 1:
            return _misfit(members[0], type_, space, names, place)
    if isinstance(schema, dict) and schema["type"] in ("record", "error"):
        return _misfit_of_record(schema, type_, space, names, place)
    if isinstance(schema, dict) and isinstance(type_, dict) and schema["type"] == type_["type"] == "array":
        return _misfit(schema["items"], type_["elementType"], space, names, f"{place}[]")
    if isinstance(schema, dict) and isinstance(type_, dict) and schema["type"] == type_["type"] == "map":
        return _misfit(schema["values"], type_["valueType"], space, names, f"{place}[]")
    if type_ == wanted or (isinstance(type_, str) and wanted in _WIDER.get(type_, ())):
        return None
    if _is_decimal(type_) and _is_decimal(wanted):
        (whole, scale), (most, most_scale) = _decimal(type_), _decimal(wanted)
        if scale <= most_scale and whole - scale <= most - most_scale:
            return None
    of_members = isinstance(schema, list) and _is_struct(type_) and _is_struct(wanted)
    if of_members and _names(type_) == _names(wanted):
        return None  # a union of several
    return f"{_at(place) or 'the column '}is {_word(type_)} and not {_word(wanted)}"


def _misfit_of_record(
    schema: Mapping[str, Any], type_: Type, space: str, names: Names, place: str
) -> str | None:
    name = str(schema.get("name"))
    space = name.rpartition(".")[0] or str(schema.get("namespace", space) or "")
    if not isinstance(type_, dict) or type_["type"] != "struct":
        return f"{_at(place) or 'the column '}is {_word(type_)} and not the record {_full(name, space)}"
    fields = {each["name"]: each for each in schema["fields"]}
    for given in type_["fields"]:
        if given["name"] not in fields:
            return f"the field '{_under(place, given['name'])}' is not in the schema: a reader would lose it"
    have = {each["name"]: each["type"] for each in type_["fields"]}
    for each in schema["fields"]:
        inner = _under(place, each["name"])
        if each["name"] not in have:
            if "default" not in each:
                return f"the field '{inner}', which has no default in the schema, is missing"
            continue
        if (why := _misfit(each["type"], have[each["name"]], space, names, inner)) is not None:
            return why
    return None


def _is_decimal(type_: Type) -> bool:
    return isinstance(type_, str) and type_.startswith("decimal(")


def _decimal(type_: str) -> tuple[int, int]:
    whole, scale = re.findall(r"-?\d+", type_)
    return int(whole), int(scale)


def _is_struct(type_: Type) -> bool:
    return isinstance(type_, dict) and type_["type"] == "struct"


def _names(type_: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(each["name"], each["type"]) for each in type_.get("fields", ())]


def _under(place: str, name: str) -> str:
    return f"{place}.{name}" if place else name


def _at(place: str) -> str:
    return f"the field '{place}' " if place else ""


def _word(type_: Type) -> str:
    return (
        {"integer": "int", "long": "bigint"}.get(type_, type_)
        if isinstance(type_, str)
        else f"a {type_['type']}"
    )
