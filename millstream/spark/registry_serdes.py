"""The Spark half of serdes with a schema registry: the kernel's functions, called by their names.

The kernel reads and writes within Spark's JVMs; what a record's schema id stands for, executors ask the
registry themselves. Schemas of what is written are registered, or looked up, when the topology is compiled.
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

from millstream.dsl import avro_types
from millstream.dsl.registry_serdes import AvroSerde, RegistrySerde
from millstream.errors import TopologyException
from millstream.spark.java_names import java_class
from millstream.spark.kernel import CATALOG, FUNCTIONS

__all__ = ["column_type", "complaint", "from_bytes", "settled", "to_bytes"]


def column_type(serde: RegistrySerde) -> T.DataType | None:
    """The type of its columns; None: it has no schema yet."""
    return _type(json.dumps(serde.type_json)) if serde.schema else None


@cache
def _type(text: str) -> T.DataType:
    parsed: T.DataType = T._parse_datatype_json_string(text)
    return parsed


def settled(serde: RegistrySerde, inherited: Any, type_: T.DataType) -> RegistrySerde:
    """With a schema for columns of this type: its own, else what they were read with, else what follows."""
    if serde.schema or isinstance(type_, T.NullType):
        return serde
    if type(inherited) is type(serde) and column_type(inherited) == type_:
        return replace(serde, schema=inherited.schema)
    return serde.derived(type_.jsonValue())


def from_bytes(serde: RegistrySerde, data: Column, wrong: Column) -> Column:
    """The value; `wrong` raises, for bytes that cannot be read."""
    serde = serde.reading()
    type_ = column_type(serde)
    assert type_ is not None
    read = _called(serde, "read", type_, data)
    return F.when(data.isNotNull(), F.coalesce(read, wrong.cast(type_)))


def complaint(serde: RegistrySerde, data: Column) -> Column:
    """Why bytes cannot be read, as a text; they are looked at again for it."""
    serde = serde.reading()
    type_ = column_type(serde)
    assert type_ is not None
    return _called(serde, "complain", type_, data)


def to_bytes(serde: RegistrySerde, value: Column, type_: T.DataType, what: str) -> Column:
    """The bytes of a column; NULL stays NULL.

    Raises:
        TopologyException: the schema does not fit the column's type.
        SchemaRegistryException: the registry cannot be asked, or says no.
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
    return _called(serde, "write", type_, value, serde.schema_id)


def _called(
    serde: RegistrySerde, does: str, type_: T.DataType, argument: Column, id: int | None = None
) -> Column:
    described: dict[str, Any] = {
        "format": serde.name,
        "called": serde.name,
        "does": does,
        "type": type_.jsonValue(),
        "schemas": [serde.schema],
    }
    if id is None:
        described["registry"] = serde.registry.settings.for_kernel()
    else:
        described["id"] = id
    context: Any = SparkContext._active_spark_context
    name = java_class(context._jvm, FUNCTIONS).name(json.dumps(described))
    return F.call_function(f"{CATALOG}.{name}", argument)
