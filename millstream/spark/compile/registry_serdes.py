"""The Spark half of serdes with a schema registry: the kernel's functions, called by their names.

The kernel reads and writes within Spark's JVMs; executors look up a record's schema id in the registry
themselves. Schemas for writing are registered, or looked up, when the topology is compiled.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.serdes import avro_types, protobuf_types
from millstream.serdes.registered import AvroSerde, ProtobufSerde, RegistrySerde
from millstream.spark.jvm.java_names import java_class
from millstream.spark.jvm.kernel_jar import CATALOG, FUNCTIONS

__all__ = ["column_type", "complaint", "from_bytes", "kernel_function", "settled", "to_bytes"]


def column_type(serde: RegistrySerde) -> T.DataType | None:
    """The type of its columns; None: it has no schema yet."""
    return _type(json.dumps(serde.type_json)) if serde.schema else None


@cache
def _type(text: str) -> T.DataType:
    parsed: T.DataType = T._parse_datatype_json_string(text)
    return parsed


def settled(serde: RegistrySerde, inherited: Any, type_: T.DataType) -> RegistrySerde:
    """With a schema for columns of this type: its own, else the one they were read with, else a derived
    one."""
    if serde.schema or isinstance(type_, T.NullType):
        return serde
    if type(inherited) is type(serde) and column_type(inherited) == type_:
        return replace(serde, schema=inherited.schema)
    return serde.derived(type_.jsonValue())


def from_bytes(serde: RegistrySerde, data: Column, wrong: Column) -> Column:
    """The value; `wrong` raises for bytes that cannot be read."""
    serde = serde.reading()
    type_ = column_type(serde)
    assert type_ is not None
    read = _called(serde, "read", type_, data)
    return F.when(data.isNotNull(), F.coalesce(read, wrong.cast(type_)))


def complaint(serde: RegistrySerde, data: Column) -> Column:
    """Why bytes cannot be read, as a text; they are read again for that."""
    serde = serde.reading()
    type_ = column_type(serde)
    assert type_ is not None
    return _called(serde, "complain", type_, data)


def to_bytes(serde: RegistrySerde, value: Column, type_: T.DataType, what: str) -> Column:
    """The bytes of a column; NULL stays NULL.

    Raises:
        TopologyException: the schema does not fit the column's type.
        SchemaRegistryException: the registry cannot be reached, or rejects the request.
    """
    serde = serde.writing().derived(type_.jsonValue())
    if isinstance(serde, AvroSerde):
        why = avro_types.misfit(serde.schema, type_.jsonValue())
        if why is not None:
            raise TopologyException(
                f"{what} has the serde {serde!r}, but {why}; change the schema, or make the column fit it, "
                "which is "
                f"{type_.simpleString()}"
            )
    if isinstance(serde, ProtobufSerde):
        wanted = column_type(serde)
        assert isinstance(wanted, T.StructType)
        value, type_ = _message(value, type_, wanted, what), wanted
    return _called(serde, "write", type_, value, serde.schema_id)


def _message(value: Column, type_: T.DataType, wanted: T.StructType, what: str) -> Column:
    """The column in the message's form: missing fields are null, and whole numbers may be widened."""
    if type_ == wanted:
        return value
    names = type_.fieldNames() if isinstance(type_, T.StructType) else None
    unknown = [] if names is None else [name for name in names if name not in wanted.fieldNames()]
    if names is None or unknown:
        fault = f"it has no field '{unknown[0]}'" if unknown else "the column is not a struct"
        raise TopologyException(
            f"{what} has the serde of a Protobuf message, {wanted.simpleString()}, but {fault}"
        )
    made = [
        (value[field.name] if field.name in names else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in wanted
    ]
    return F.when(value.isNotNull(), F.struct(*made))


def _called(
    serde: RegistrySerde, does: str, type_: T.DataType, argument: Column, id: int | None = None
) -> Column:
    described: dict[str, Any] = {"format": serde.name, "called": serde.name}
    if isinstance(serde, ProtobufSerde):
        described["message"] = protobuf_types.fields_of(serde.descriptor)
        described["indexes"] = protobuf_types.indexes_of(serde.descriptor)
    else:
        described["schemas"] = [serde.schema]
    if id is not None:
        described["id"] = id
    elif not isinstance(serde, ProtobufSerde):
        described["registry"] = serde.registry.settings.for_kernel()
    return kernel_function(described, does, type_, argument)


def kernel_function(described: dict[str, Any], does: str, type_: T.DataType, argument: Column) -> Column:
    """A call of the kernel's serdes/Function.java: `read`, `write` or `complain`."""
    described = {**described, "does": does, "type": type_.jsonValue()}
    context: Any = SparkContext._active_spark_context
    name = java_class(context._jvm, FUNCTIONS).nameOf(json.dumps(described))
    return F.call_function(f"{CATALOG}.{name}", argument)
