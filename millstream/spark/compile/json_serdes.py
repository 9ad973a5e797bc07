"""The Spark half of JSON: the kernel's functions, called by their names.

Spark's own functions are only used for types that the kernel does not know (an interval, a variant), because
`from_json` takes much that is no JSON, or another value than it says: single quotes, commas in a decimal, and
milliseconds as seconds (docs/decisions/0073).
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.spark.compile.registry_serdes import kernel_function

__all__ = ["complaint", "from_bytes", "to_bytes"]

_KNOWN = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.StringType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
    T.NullType,
)


def from_bytes(data: Column, schema: T.DataType, wrong: Column, *, headed: bool = False) -> Column:
    """The value; `wrong` raises for bytes that cannot be read. `headed`: after the id of a schema."""
    type_ = _as_read(schema)
    if type_ is not None:
        read = kernel_function(_described(headed), "read", type_, data)
        return F.when(data.isNotNull(), F.coalesce(read, wrong.cast(type_)))
    if headed:
        behind = F.when(F.substring(data, 1, 1) == F.lit(bytearray(b"\0")), F.substring(data, 6, 2**31 - 1))
        read = _from_json(behind, schema, wrong)
        return F.when(data.isNotNull(), F.coalesce(read, wrong.cast(schema)))
    return _from_json(data, schema, wrong)


def complaint(data: Column, schema: T.DataType, *, headed: bool = False) -> Column:
    """What it takes that these bytes are not, as a text; they are read again for that."""
    type_ = _as_read(schema)
    if type_ is None:
        return F.lit("a JSON object that fits its schema")
    return kernel_function(_described(headed), "complain", type_, data)


def to_bytes(value: Column, type_: T.DataType, id: int | None = None) -> Column:
    """The bytes of a column; NULL stays NULL. `id`: of the schema that they are headed with."""
    if _is_written(type_):
        described = _described(id is not None)
        return kernel_function(described if id is None else {**described, "id": id}, "write", type_, value)
    written = _to_json(value, type_).cast("binary")
    return written if id is None else F.concat(F.lit(bytearray(b"\0" + id.to_bytes(4, "big"))), written)


def _described(headed: bool) -> dict[str, Any]:
    return {"format": "json", "called": "json_schema" if headed else "json", "headed": headed}


def _as_read(type_: T.DataType) -> T.DataType | None:
    """The type of what the kernel reads, in which all may be null; None: it does not know it."""
    if isinstance(type_, T.StructType):
        fields = {field.name: _as_read(field.dataType) for field in type_}
        if len(fields) < len(type_) or None in fields.values():
            return None
        return T.StructType(
            [T.StructField(name, inner) for name, inner in fields.items() if inner is not None]
        )
    if isinstance(type_, T.ArrayType):
        element = _as_read(type_.elementType)
        return None if element is None else T.ArrayType(element)
    if isinstance(type_, T.MapType):
        value = _as_read(type_.valueType)
        is_text = isinstance(type_.keyType, T.StringType)
        return T.MapType(type_.keyType, value) if value is not None and is_text else None
    if isinstance(type_, T.CharType | T.VarcharType):
        return T.StringType()
    return type_ if isinstance(type_, _KNOWN) else None


def _is_written(type_: T.DataType) -> bool:
    if isinstance(type_, T.StructType):
        return all(_is_written(field.dataType) for field in type_)
    if isinstance(type_, T.ArrayType):
        return _is_written(type_.elementType)
    if isinstance(type_, T.MapType):
        return isinstance(type_.keyType, _KNOWN) and _is_written(type_.valueType)
    return isinstance(type_, _KNOWN)


# --- of types that the kernel does not know ----------------------------------------------------------------

_VALUE = "value"
_CORRUPT = "_millstream_corrupt"
"""A field that Spark's JSON parser fills when it could not read the others."""


def _from_json(data: Column, schema: T.DataType, wrong: Column) -> Column:
    # Not FAILFAST: its error does not name the record, but quotes its content. Spark's parser stops after the
    # value, whatever follows. So the value is put into an array, where something must follow, and which then
    # must have only one element.
    text = F.concat(F.lit(f'{{"{_VALUE}":['), data.cast("string"), F.lit("]}"))
    values = T.ArrayType(schema)
    marked = T.StructType([T.StructField(_VALUE, values), T.StructField(_CORRUPT, T.StringType())])
    parsed = F.from_json(text, marked, {"columnNameOfCorruptRecord": _CORRUPT})

    def check(row: Column) -> Column:
        value = F.get(row[_VALUE], F.lit(0))
        fits = value.isNotNull() & row[_CORRUPT].isNull() & (F.size(row[_VALUE]) == 1)
        return F.when(fits, value).otherwise(wrong.cast(schema))

    # A lambda over an array of one element is the only way to name a value within an expression, and so to
    # parse it once.
    return F.when(data.isNotNull(), F.get(F.transform(F.array(parsed), check), F.lit(0)))


def _to_json(value: Column, type_: T.DataType) -> Column:
    if isinstance(type_, T.StructType | T.ArrayType | T.MapType):
        return F.to_json(value)
    # Spark does not write a single value, but a list of it without the brackets is the same.
    listed = F.to_json(F.array(value))
    return F.when(value.isNotNull(), F.substring(listed, F.lit(2), F.length(listed) - 2))
