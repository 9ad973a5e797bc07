"""The Spark half of each serde: Columns from bytes, and bytes from Columns.

The byte formats are Kafka's own serializers': big-endian two's complement integers, IEEE 754 floating point,
one byte for a boolean, UTF-8 for a string, the 36 characters of a UUID. The other half, the Python codec that
interactive queries use, is in serdes/; a test holds that both give the same bytes.

Every expression here is Spark SQL, or a function of the kernel's that Spark compiles into its plans
(serdes/FixedWidth.java); no row visits Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from pyspark.errors import ParseException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import TopologyException
from millstream.serdes.formats import BytesSerde, CustomSerde, JsonSerde, ListSerde, StringSerde
from millstream.serdes.registered import JsonSchemaSerde, RegistrySerde
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.serdes.windowed_serdes import LATEST_MS, WindowedSerde
from millstream.spark.compile import json_serdes, own_serdes, registry_serdes
from millstream.spark.compile.trace import as_column
from millstream.spark.jvm.kernel_jar import CATALOG

__all__ = [
    "column_type",
    "complaint",
    "from_bytes",
    "infer",
    "once",
    "read_number",
    "to_bytes",
    "write_number",
]


@dataclass(frozen=True)
class _Codec:
    """The Spark implementation of one serde.

    Attributes:
        column: the Spark type of its values.
        decode, encode: for non-NULL values.
        accepts: other types that it writes without loss.
        valid: whether bytes are of this format; None: all are.
        takes: `valid` in words.
    """

    column: T.DataType
    decode: Callable[[Column], Column]
    encode: Callable[[Column], Column]
    accepts: tuple[type[T.DataType], ...] = ()
    valid: Callable[[Column], Column] | None = None
    takes: str = ""


def _number(column: T.DataType, size: int, name: str, *accepts: type[T.DataType]) -> _Codec:
    return _Codec(
        column,
        lambda c: read_number(name, c),
        lambda c: write_number(name, c),
        accepts,
        lambda c: F.octet_length(c) == size,
        f"{size} bytes",
    )


def read_number(name: str, data: Column) -> Column:
    """The `short`, `integer`, `long`, `float` or `double` that these bytes are; NULL stays NULL."""
    return F.call_function(f"{CATALOG}.read_{name}", data)


def write_number(name: str, number: Column) -> Column:
    """The bytes of a `short`, `integer`, `long`, `float` or `double`; NULL stays NULL."""
    return F.call_function(f"{CATALOG}.write_{name}", number)


def _byte(data: bytes) -> Column:
    return F.lit(bytearray(data))


def _canonical_uuid(text: Column) -> Column:
    wrong = F.raise_error(F.lit("a value with the serde 'uuid' is not the 36 characters of a UUID"))
    return F.when(text.rlike(_UUID), F.lower(text)).otherwise(wrong.cast("string"))


_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\\z"

_CODECS: dict[str, _Codec] = {
    "bytes": _Codec(T.BinaryType(), lambda c: c, lambda c: c),
    "string": _Codec(T.StringType(), lambda c: c.cast("string"), lambda c: c.cast("binary")),
    "uuid": _Codec(
        T.StringType(),
        lambda c: F.lower(c.cast("string")),
        lambda c: _canonical_uuid(c).cast("binary"),
        valid=lambda c: c.cast("string").rlike(_UUID),
        takes="the 36 characters of a UUID",
    ),
    "short": _number(T.ShortType(), 2, "short", T.ByteType),
    "integer": _number(T.IntegerType(), 4, "integer", T.ByteType, T.ShortType),
    "long": _number(T.LongType(), 8, "long", T.ByteType, T.ShortType, T.IntegerType),
    "float": _number(T.FloatType(), 4, "float"),
    "double": _number(T.DoubleType(), 8, "double", T.FloatType, T.IntegerType, T.ShortType, T.ByteType),
    "void": _Codec(
        T.NullType(),
        lambda c: F.lit(None),
        lambda c: F.lit(None).cast("binary"),
        valid=lambda c: F.lit(False),
        takes="no bytes at all",
    ),
    "boolean": _Codec(
        T.BooleanType(),
        lambda c: c == _byte(b"\x01"),
        lambda c: F.when(c, _byte(b"\x01")).otherwise(_byte(b"\x00")),
        valid=lambda c: (c == _byte(b"\x00")) | (c == _byte(b"\x01")),
        takes="one byte, 0 or 1",
    ),
}


_KEEP_NULL = frozenset(("bytes", "string", "short", "integer", "long", "float", "double"))
"""The serdes whose `encode` maps NULL to NULL by itself. Spark plans every expression again for each
batch."""


def column_type(serde: Serde) -> T.DataType | None:
    """The type of the Column that `from_bytes` returns; None if a user's own serde is part of it, or its
    schema is not known yet."""
    if isinstance(serde, RegistrySerde):
        return registry_serdes.column_type(serde)
    if isinstance(serde, ListSerde):
        inner = column_type(serde.inner)
        return None if inner is None else T.ArrayType(inner)
    if isinstance(serde, CustomSerde) and serde.schema is not None:
        return type_of(serde.schema)
    if isinstance(serde, JsonSerde):
        return _schema(serde)
    return None if isinstance(serde, CustomSerde | WindowedSerde) else _CODECS[serde.name].column


def is_of_spark(serde: Serde) -> bool:
    """Whether Spark reads and writes its bytes without calling Python."""
    if isinstance(serde, CustomSerde):
        return serde.to_column is not None and serde.from_column is not None
    return not isinstance(serde, ListSerde | WindowedSerde) or is_of_spark(serde.inner)


def from_bytes(serde: Serde, data: Column, where: Column) -> Column:
    """The value of these bytes; NULL stays NULL.

    `where` is a string Column that names the record (`orders-0 offset 17`): bytes of the wrong length end
    the query with an error that carries it. Nothing is skipped or turned into NULL.
    """
    if isinstance(serde, CustomSerde):
        if serde.to_column is None:
            return own_serdes.from_bytes(serde, type_of(serde.schema), data, _wrong(serde, data, where, ""))
        return as_column(serde.to_column(data))
    if isinstance(serde, ListSerde):
        return _from_list(serde, data, where)
    if isinstance(serde, JsonSchemaSerde):
        serde = serde.reading()
        schema = column_type(serde)
        assert schema is not None
        return json_serdes.from_bytes(data, schema, F.raise_error(complaint(serde, data, where)), headed=True)
    if isinstance(serde, RegistrySerde):
        return registry_serdes.from_bytes(serde, data, F.raise_error(complaint(serde, data, where)))
    if isinstance(serde, JsonSerde):
        return json_serdes.from_bytes(data, _schema(serde), F.raise_error(complaint(serde, data, where)))
    if isinstance(serde, WindowedSerde):
        return _from_windowed(serde, data, where)
    codec = _CODECS[serde.name]
    if codec.valid is None:
        return codec.decode(data)
    wrong = _wrong(serde, data, where, codec.takes)
    return F.when(
        data.isNotNull(), F.when(codec.valid(data), codec.decode(data)).otherwise(wrong.cast(codec.column))
    )


def once(serde: Serde, read: Column) -> Column:
    """The value read by a serde, as a column of its own that Spark computes once for each row.

    Spark moves filters in front of the columns they use, and computes those twice: to select rows, and again
    for the remaining ones. It does not move nondeterministic columns.
    """
    if isinstance(serde, StringSerde | BytesSerde):
        return read  # cheap anyway
    return F.when(F.spark_partition_id() >= 0, read)


def _wrong(serde: Serde, data: Column, where: Column, takes: str) -> Column:
    """Ends the query. The message has the length, never the content: record data does not belong in a log."""
    return F.raise_error(_complaint(serde, data, where, takes))


def complaint(serde: Serde, data: Column, where: Column) -> Column:
    """The message about bytes that the serde cannot read, as a text Column."""
    if isinstance(serde, CustomSerde):
        return _complaint(serde, data, where, "")
    if isinstance(serde, ListSerde):
        return _complaint(serde, data, where, _LIST_TAKES)
    if isinstance(serde, JsonSchemaSerde):
        schema = column_type(serde.reading())
        assert schema is not None
        return _complaint(serde, data, where, json_serdes.complaint(data, schema, headed=True))
    if isinstance(serde, JsonSerde):
        return _complaint(serde, data, where, json_serdes.complaint(data, _schema(serde)))
    if isinstance(serde, RegistrySerde):
        return _complaint(serde, data, where, registry_serdes.complaint(serde, data))
    if isinstance(serde, WindowedSerde):
        return _complaint(serde, data, where, _windowed_takes(serde))
    return _complaint(serde, data, where, _CODECS[serde.name].takes)


def _complaint(serde: Serde, data: Column, where: Column, takes: str | Column) -> Column:
    size = F.octet_length(data).cast("string")
    said = F.concat(where, F.lit(f": serde '{serde.name}' cannot read these "), size, F.lit(" bytes"))
    return F.concat(said, F.lit(": it takes "), F.lit(takes)) if isinstance(takes, Column) or takes else said


_PARTS = T.ArrayType(T.BinaryType())
"""What the kernel splits a list into: the bytes of its elements."""

_LIST_TAKES = "a list of such elements, as Kafka's ListSerializer writes it"


def to_bytes(serde: Serde, value: Column, type_: T.DataType, what: str) -> Column:
    """The bytes of a Column; NULL stays NULL. `what` names the owner of the serde in errors.

    Raises:
        TopologyException: the serde does not fit the Column's type.
    """
    if isinstance(serde, CustomSerde):
        if serde.from_column is None:
            return own_serdes.to_bytes(serde, type_of(serde.schema), value, type_, what)
        return as_column(serde.from_column(value))
    if isinstance(type_, T.NullType):
        return value.cast("binary")
    if isinstance(serde, ListSerde):
        return _list_to_bytes(serde, value, type_, what)
    if isinstance(serde, JsonSchemaSerde):
        serde = serde.writing().derived(type_.jsonValue())
        schema = column_type(serde)
        assert schema is not None
        _check_json(schema, type_, what)
        return json_serdes.to_bytes(value, type_, serde.schema_id)
    if isinstance(serde, RegistrySerde):
        return registry_serdes.to_bytes(serde, value, type_, what)
    if isinstance(serde, WindowedSerde):
        return _windowed_to_bytes(serde, value, type_, what)
    if isinstance(serde, JsonSerde):
        _check_json(_schema(serde), type_, what)
        return json_serdes.to_bytes(value, type_)
    codec = _CODECS[serde.name]
    if not isinstance(type_, (type(codec.column), *codec.accepts)):
        raise TopologyException(
            f"{what} has the serde '{serde.name}', but its column is {type_.simpleString()}; "
            f"use {_suggestion(type_)}, or cast the column to {codec.column.simpleString()}"
        )
    encoded = codec.encode(value if type_ == codec.column else value.cast(codec.column))
    return encoded if serde.name in _KEEP_NULL else F.when(value.isNotNull(), encoded)


def _from_list(serde: ListSerde, data: Column, where: Column) -> Column:
    inner = serde.inner
    described = {"format": "list", "called": serde.name, "size": serde.size}
    parts = registry_serdes.kernel_function(described, "read", _PARTS, data)
    whole = F.coalesce(parts, _wrong(serde, data, where, _LIST_TAKES).cast(_PARTS))
    return F.when(data.isNotNull(), F.transform(whole, lambda each: from_bytes(inner, each, where)))


def _list_to_bytes(serde: ListSerde, value: Column, type_: T.DataType, what: str) -> Column:
    if not isinstance(type_, T.ArrayType):
        raise TopologyException(
            f"{what} has the serde {serde!r}, but its column is {type_.simpleString()}; "
            f"use {_suggestion(type_)}, or make it an array"
        )
    element = type_.elementType
    described = {"format": "list", "called": serde.name, "size": serde.size}
    value = F.transform(value, lambda each: to_bytes(serde.inner, each, element, f"{what}, an element,"))
    return registry_serdes.kernel_function(described, "write", _PARTS, value)


def type_of(schema: Any) -> T.DataType:
    """The type of a DDL text, or the one that the program passed."""
    return schema if isinstance(schema, T.DataType) else _parsed(str(schema))


def _windowed_takes(serde: WindowedSerde) -> str:
    return f"a key and {serde.tail} bytes of its window"


def _from_windowed(serde: WindowedSerde, data: Column, where: Column) -> Column:
    size = F.octet_length(data)
    is_whole = size >= serde.tail
    inner = from_bytes(serde.inner, F.when(is_whole, F.substring(data, F.lit(1), size - serde.tail)), where)

    def time(position: Column) -> Column:
        return read_number("long", F.substring(data, position, F.lit(8)))

    start = time(size - 7)
    end = time(size - 15) if serde.window_size_ms is None else start + serde.window_size_ms
    fits = is_whole & (start >= 0) & (start <= LATEST_MS)
    if serde.window_size_ms is None:
        fits &= (end >= start) & (end <= LATEST_MS)
    window = F.struct(F.timestamp_millis(start).alias("start"), F.timestamp_millis(end).alias("end"))
    read = F.struct(inner.alias("key"), window.alias("window"))
    wrong = _wrong(serde, data, where, _windowed_takes(serde))
    # The error is a field of its own struct: only Spark knows the key's type.
    return F.when(F.coalesce(fits, F.lit(False)), read).when(data.isNotNull() & wrong.cast("boolean"), read)


def _windowed_to_bytes(serde: WindowedSerde, value: Column, type_: T.DataType, what: str) -> Column:
    if not isinstance(type_, T.StructType) or type_.fieldNames() != ["key", "window"]:
        raise TopologyException(
            f"{what} has the serde of a windowed key, {serde!r}, but its column is {type_.simpleString()}; "
            f"use {_suggestion(type_)}"
        )
    inner = to_bytes(serde.inner, value["key"], type_["key"].dataType, what)
    window = value["window"]
    times = [write_number("long", F.unix_millis(window["start"]))]
    if serde.window_size_ms is None:
        times.insert(0, write_number("long", F.unix_millis(window["end"])))
    return F.when(value.isNotNull(), F.concat(F.coalesce(inner, F.lit(bytearray())), *times))


def infer(type_: T.DataType) -> Serde:
    """The serde for a Column without a declared one: it follows from the type.

    Differs: Kafka Streams cannot know the type and asks for a serde.
    """
    by_type: dict[type[T.DataType], Callable[[], Serde]] = {
        T.BinaryType: Serdes.bytes,
        T.StringType: Serdes.string,
        T.LongType: Serdes.long,
        T.IntegerType: Serdes.integer,
        T.ShortType: Serdes.short,
        T.ByteType: Serdes.short,
        T.DoubleType: Serdes.double,
        T.FloatType: Serdes.float,
        T.BooleanType: Serdes.boolean,
        T.NullType: Serdes.bytes,  # only nulls: any serde would do
    }
    make = by_type.get(type(type_))
    if make is not None:
        return make()
    if isinstance(type_, T.StructType | T.ArrayType | T.MapType):
        return Serdes.json(type_)
    raise TopologyException(
        f"no serde follows from the column type {type_.simpleString()}; cast the column to a type that has "
        f"one, or use Serdes.json('{type_.simpleString().upper()}')"
    )


@cache
def _parsed(ddl: str) -> T.DataType:
    return T.DataType.fromDDL(ddl)


def _schema(serde: JsonSerde) -> T.DataType:
    schema = serde.schema
    if isinstance(schema, T.DataType):
        return schema
    try:
        return _parsed(str(schema))
    except ParseException as error:
        place = f" at {serde.made_at}" if serde.made_at else ""
        said = str(error).strip().split("\n", 1)[0]
        raise TopologyException(f"{serde!r}{place}: Spark cannot read this schema: {said}") from error


def _check_json(schema: T.DataType, type_: T.DataType, what: str) -> None:
    if not isinstance(schema, T.StructType):
        if not _readable(type_, schema):
            raise TopologyException(
                f"{what} has the serde json('{schema.simpleString()}'), but its column is "
                f"{type_.simpleString()}; "
                f"use {_suggestion(type_)}, or cast the column"
            )
        return
    if not isinstance(type_, T.StructType):
        raise TopologyException(
            f"{what} has the serde 'json', but its column is {type_.simpleString()}; "
            f"use {_suggestion(type_)}, or make it a struct: map_values(lambda value: {{'value': value}})"
        )
    unknown = [name for name in type_.fieldNames() if name not in schema.fieldNames()]
    if unknown:
        raise TopologyException(
            f"{what} has the serde json('{schema.simpleString()}'), but its column {type_.simpleString()} "
            f"has the field '{unknown[0]}', which that schema lacks: a reader with the schema would lose it"
        )
    for field in type_:
        wanted = schema[field.name].dataType
        if not _readable(field.dataType, wanted):
            raise TopologyException(
                f"{what} has the serde json('{schema.simpleString()}'), but the field '{field.name}' of its "
                f"column is {field.dataType.simpleString()} and not {wanted.simpleString()}; "
                f"use {_suggestion(type_)}, or cast the field"
            )


_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType, T.FloatType, T.DoubleType)
"""Each is read without loss as one further right, if both are whole numbers or neither is."""


def _readable(written: T.DataType, schema: T.DataType) -> bool:
    """Whether JSON written from one type is read as the other without loss."""
    if isinstance(written, T.NullType):
        return True
    if isinstance(written, T.StructType) and isinstance(schema, T.StructType):
        names = schema.fieldNames()
        return all(
            field.name in names and _readable(field.dataType, schema[field.name].dataType)
            for field in written
        )
    if isinstance(written, T.ArrayType) and isinstance(schema, T.ArrayType):
        return _readable(written.elementType, schema.elementType)
    if isinstance(written, T.MapType) and isinstance(schema, T.MapType):
        return _readable(written.valueType, schema.valueType)
    if isinstance(written, _NUMBERS) and isinstance(schema, _NUMBERS):
        return _NUMBERS.index(type(written)) <= _NUMBERS.index(type(schema))
    return written == schema


def _suggestion(type_: T.DataType) -> str:
    if isinstance(type_, T.StructType):
        fields = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in type_)
        return f"Serdes.json('{fields}')"
    if isinstance(type_, T.ArrayType | T.MapType):
        return f"Serdes.json('{type_.simpleString()}')"
    try:
        return repr(infer(type_))
    except TopologyException:
        return "a serde of your own (Serdes.custom)"
