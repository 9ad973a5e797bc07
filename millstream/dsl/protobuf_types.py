"""Which type of Spark's stands for which Protobuf message; and messages as dicts. Without Spark.

A schema is a file's descriptor in base64 and the full name of a message, as Confluent's clients for Python
register it. The kernel (ProtobufFormat.java) reads and writes by the table that `fields_of` makes.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from millstream.errors import ConfigException, TopologyException

__all__ = [
    "descriptor_of",
    "fields_of",
    "from_dict",
    "indexes_of",
    "message_of",
    "schema_of",
    "spark_type",
    "to_dict",
]

_KINDS = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    11: "message",
    12: "bytes",
    13: "uint32",
    14: "enum",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
"""By the number that FieldDescriptorProto.Type has."""

_WELL_KNOWN = frozenset(
    f"google/protobuf/{name}.proto"
    for name in (
        "any",
        "api",
        "descriptor",
        "duration",
        "empty",
        "field_mask",
        "source_context",
        "struct",
        "timestamp",
        "type",
        "wrappers",
    )
)

_SPARK = {
    "double": "double",
    "float": "float",
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "integer"),
    # The largest numbers of 64 bits without a sign are negative, as in Java.
    **dict.fromkeys(("int64", "uint64", "sint64", "fixed64", "sfixed64", "uint32", "fixed32"), "long"),
}


def schema_of(message: Any) -> tuple[str, str]:
    """The schema of a generated class, and the message's full name.

    Raises:
        TopologyException: it is none.
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "full_name"):
        raise TopologyException(
            "Serdes.protobuf() takes a class that protoc has generated, such as orders_pb2.Order, got "
            f"{message!r}"
        )
    others = [
        each.name for each in descriptor.file.dependencies if not each.name.startswith("google/protobuf/")
    ]
    if others:
        raise TopologyException(
            f"the file of {descriptor.full_name} imports {others[0]}, and only imports of google/protobuf/ "
            "can be "
            "followed; put the messages into one file"
        )
    return base64.b64encode(descriptor.file.serialized_pb).decode(), str(descriptor.full_name)


@cache
def descriptor_of(schema: str, name: str) -> Any:
    """The descriptor of a message; `name` is empty for the first one of the file.

    Raises:
        TopologyException: the schema has no such message, or is none.
    """
    pb2, pool_module = _library()
    file = pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema))
        pool = pool_module.DescriptorPool()
        for imported in file.dependency:
            _add_well_known(imported, pool)
        pool.Add(file)
        if not name:
            name = ".".join(part for part in (file.package, file.message_type[0].name) if part)
        return pool.FindMessageTypeByName(name)
    except (KeyError, IndexError):
        raise TopologyException(f"the Protobuf schema has no message '{name}'") from None
    except TopologyException:
        raise
    except Exception as error:  # what is no descriptor makes protobuf raise a class of its own
        raise TopologyException(f"this is no descriptor of a Protobuf file: {error}") from None


def _add_well_known(name: str, pool: Any) -> None:
    """Raises a TopologyException for files that are not Protobuf's own."""
    if name not in _WELL_KNOWN:
        raise TopologyException(
            f"the Protobuf schema imports {name}, and only imports of google/protobuf/ can be followed; put "
            "the messages into one file"
        )
    module = import_module(f"google.protobuf.{name.rpartition('/')[2].removesuffix('.proto')}_pb2")
    for needed in module.DESCRIPTOR.dependencies:
        _add_well_known(needed.name, pool)
    pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)


def spark_type(descriptor: Any, within: tuple[str, ...] = ()) -> Any:
    """The struct that stands for a message.

    Raises:
        TopologyException: it has itself as a part.
    """
    if descriptor.full_name in within:
        raise TopologyException(
            f"the Protobuf message {descriptor.full_name} has itself as a part, and no Column has such a type"
        )
    inside = (*within, descriptor.full_name)
    fields = [
        {"name": field.name, "type": _type(field, inside), "nullable": True, "metadata": {}}
        for field in descriptor.fields
    ]
    return {"type": "struct", "fields": fields}


def _type(field: Any, within: tuple[str, ...]) -> Any:
    if _is_map(field):
        key, value = field.message_type.fields
        return {
            "type": "map",
            "keyType": _type(key, within),
            "valueType": _type(value, within),
            "valueContainsNull": True,
        }
    kind = _kind(field)
    one = spark_type(field.message_type, within) if kind == "message" else _SPARK[kind]
    return {"type": "array", "elementType": one, "containsNull": True} if _repeated(field) else one


def fields_of(descriptor: Any) -> list[dict[str, Any]]:
    """The table of fields that the kernel works with, in their order."""
    return [_described(field) for field in descriptor.fields]


def _described(field: Any) -> dict[str, Any]:
    kind = "map" if _is_map(field) else _kind(field)
    said: dict[str, Any] = {
        "number": field.number,
        "kind": kind,
        "repeated": _repeated(field) and kind != "map",
        "explicit": bool(field.has_presence),
    }
    if kind in ("message", "map"):
        said["fields"] = fields_of(field.message_type)
    if kind == "enum":
        said["symbols"] = {value.name: value.number for value in field.enum_type.values}
    return said


def indexes_of(descriptor: Any) -> list[int]:
    """Where a message is in its file, from the outermost on."""
    pb2, _ = _library()
    file = pb2.FileDescriptorProto()
    descriptor.file.CopyToProto(file)
    path: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        beside = file.message_type if parent is None else parent.nested_types
        path.insert(0, [each.name for each in beside].index(descriptor.name))
        descriptor = parent
    return path


def message_of(descriptor: Any) -> Any:
    """A new message, with nothing in it."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)()


def to_dict(message: Any) -> dict[str, Any]:
    """A message as a dict with all its fields; None where one that can be absent is."""
    return {field.name: _read(message, field) for field in message.DESCRIPTOR.fields}


def _read(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    value = getattr(message, field.name)
    if _is_map(field):
        of = field.message_type.fields_by_name["value"]
        return {key: _plain(value[key], of) for key in value}
    return [_plain(each, field) for each in value] if _repeated(field) else _plain(value, field)


def _plain(value: Any, field: Any) -> Any:
    kind = _kind(field)
    if kind == "message":
        return to_dict(value)
    if kind == "enum":
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return value


def from_dict(value: Mapping[str, Any], message: Any) -> Any:
    """Fill a message with the values of a dict, and give it back.

    Raises:
        ValueError, TypeError: they do not fit.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for name, each in value.items():
        if name not in fields:
            raise ValueError(f"the message has no field '{name}'")
        if each is not None:
            _write(message, fields[name], each)
    return message


def _write(message: Any, field: Any, value: Any) -> None:
    if _is_map(field):
        of, into = field.message_type.fields_by_name["value"], getattr(message, field.name)
        for key in sorted(value):
            if _kind(of) == "message":
                from_dict(value[key], into[key])
            else:
                into[key] = _raw(value[key], of)
    elif _kind(field) == "message":
        into = getattr(message, field.name)
        if _repeated(field):
            for each in value:
                from_dict(each, into.add())
        else:
            into.SetInParent()
            from_dict(value, into)
    elif _repeated(field):
        getattr(message, field.name).extend(_raw(each, field) for each in value)
    else:
        setattr(message, field.name, _raw(value, field))


def _raw(value: Any, field: Any) -> Any:
    if _kind(field) != "enum" or not isinstance(value, str):
        return value
    known = field.enum_type.values_by_name.get(value)
    return int(value) if known is None else known.number


def _kind(field: Any) -> str:
    if field.type not in _KINDS:
        raise TopologyException(
            f"the field '{field.full_name}' is a group, which proto2 had once; make it a message"
        )
    return _KINDS[field.type]


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    return _repeated(field) and _kind(field) == "message" and field.message_type.GetOptions().map_entry


def _library() -> tuple[Any, Any]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool
    except ImportError:
        raise ConfigException(
            "Protobuf in Python needs the package protobuf: pip install 'millstream[protobuf]'"
        ) from None
    return descriptor_pb2, descriptor_pool
