"""Each serde twice, in Spark and in Python: the same bytes, and the same errors before it is too late."""

from __future__ import annotations

import math
import random
import struct
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream import Serde, Serdes, TopologyException
from millstream.spark import serdes

pytestmark = pytest.mark.spark

CHANCE = random.Random(7)
JSON = Serdes.json("a BIGINT, text STRING, list ARRAY<DOUBLE>, inner STRUCT<x: BOOLEAN, y: STRING>")


def whole(bits: int) -> list[Any]:
    """The edges of a signed number of so many bits, and some between."""
    most = 2 ** (bits - 1)
    edges = [0, 1, -1, 127, 128, -128, -129, 255, 256, most - 1, -most, 1 - most]
    return edges + [CHANCE.randrange(-most, most) for _ in range(100)]


def floating(form: str) -> list[Any]:
    """Special values, and such of random bits, as numbers of this width."""
    size = struct.calcsize(form)
    special = [0.0, -0.0, 1.5, -1.5, 1e-3, math.pi, math.inf, -math.inf, math.nan]
    limits = {
        4: [struct.unpack(">f", data)[0] for data in (b"\x7f\x7f\xff\xff", b"\0\0\0\1", b"\x80\x7f\xff\xff")],
        8: [1.7976931348623157e308, 5e-324, -2.2250738585072009e-308, 0.1, 1e16, 123456789.123456789],
    }
    bits = [CHANCE.randbytes(size) for _ in range(200)]
    numbers = [struct.unpack(form, data)[0] for data in bits]
    whole = [struct.unpack(form, struct.pack(form, number))[0] for number in special]
    return whole + limits[size] + [number for number in numbers if not math.isnan(number)]


TEXTS = [
    "",
    "a",
    "\x00",
    "tab\tnew\nline",
    "ü",
    "日本語",
    "🎉",
    "\u2028",
    "e\u0301",
    "\ufeff",
    "'\"\\/",
    "x" * 5000,
]
VALUES: dict[Serde, list[Any]] = {
    Serdes.bytes(): [b"", b"\x00", b"\xff\xfe", bytes(range(256))],
    Serdes.string(): TEXTS,
    Serdes.uuid(): [str(uuid.UUID(int=CHANCE.getrandbits(128))) for _ in range(20)] + [str(uuid.UUID(int=0))],
    Serdes.short(): whole(16),
    Serdes.integer(): whole(32),
    Serdes.long(): whole(64),
    Serdes.float(): floating(">f"),
    Serdes.double(): floating(">d"),
    Serdes.boolean(): [True, False],
    JSON: [
        {},
        {"a": -(2**63), "text": "", "list": [], "inner": {}},
        {
            "a": 2**63 - 1,
            "text": 'ü 🎉 " \\ / \n\t',
            "list": [1.5, -0.25, None],
            "inner": {"x": True, "y": "z"},
        },
        {"inner": {"x": False}},
        *({"text": text} for text in TEXTS if "\x00" not in text),
    ],
}
NAMES = {serde: f"c{index}" for index, serde in enumerate(VALUES)}
ROWS = max(map(len, VALUES.values())) + 1  # the last row is null in every column


def padded(values: list[Any]) -> list[Any]:
    return values + [None] * (ROWS - len(values))


def same(serde: Serde, one: Any, other: Any) -> bool:
    """Equal as the bytes are: so NaN is itself, and -0.0 is not 0.0."""
    return serde.serialize(one) == serde.serialize(other)


def column_of(serde: Serde) -> T.DataType:
    type_ = serdes.column_type(serde)
    assert type_ is not None
    return type_


def test_spark_writes_the_bytes_that_python_writes(spark: SparkSession) -> None:
    """For every serde, over edge and random values; null is null."""
    schema = T.StructType([T.StructField(NAMES[serde], column_of(serde)) for serde in VALUES])
    data = list(zip(*(padded(values) for values in VALUES.values()), strict=True))
    df = spark.createDataFrame(data, schema).coalesce(1)
    encoded = df.select(
        *(
            serdes.to_bytes(serde, F.col(name), schema[name].dataType, "test").alias(name)
            for serde, name in NAMES.items()
        )
    ).collect()
    for serde, values in VALUES.items():
        for row, value in zip(encoded, padded(values), strict=True):
            written = row[NAMES[serde]]
            assert (None if written is None else bytes(written)) == serde.serialize(value), (serde, value)


def test_spark_reads_the_values_that_python_reads(spark: SparkSession) -> None:
    """For every serde, from the bytes that Python wrote; null is null."""
    schema = T.StructType([T.StructField(name, T.BinaryType()) for name in NAMES.values()])
    columns = ([serde.serialize(value) for value in padded(values)] for serde, values in VALUES.items())
    df = spark.createDataFrame(list(zip(*columns, strict=True)), schema).coalesce(1)
    where = F.lit("orders-0 offset 17 value")
    decoded = df.select(
        *(serdes.from_bytes(serde, F.col(name), where).alias(name) for serde, name in NAMES.items())
    )
    assert [field.dataType for field in decoded.schema] == [column_of(serde) for serde in VALUES]
    rows = decoded.collect()
    for serde, values in VALUES.items():
        for row, value in zip(rows, padded(values), strict=True):
            read = row[NAMES[serde]]
            if isinstance(read, T.Row):
                read = read.asDict(recursive=True)
            assert same(serde, bytes(read) if isinstance(read, bytearray) else read, value), (serde, value)


@pytest.mark.parametrize(
    ("serde", "data", "takes"),
    [
        (Serdes.short(), b"\x00", "2 bytes"),
        (Serdes.integer(), b"", "4 bytes"),
        (Serdes.long(), b"123456789", "8 bytes"),
        (Serdes.float(), b"12345678", "4 bytes"),
        (Serdes.double(), b"1234", "8 bytes"),
        (Serdes.boolean(), b"\x02", "one byte, 0 or 1"),
        (Serdes.boolean(), b"\x00\x01", "one byte, 0 or 1"),
        (Serdes.uuid(), b"67c21fc8-5dd7-4b8c-8a5b-9e1e0d6ee2fg", "the 36 characters of a UUID"),
        (JSON, b"", "a JSON object that fits its schema"),
        (JSON, b"null", "a JSON object that fits its schema"),
        (JSON, b"[1]", "a JSON object that fits its schema"),
        (JSON, b'{"a": "secret"}', "a JSON object that fits its schema"),
        (JSON, b'{"a": 1', "a JSON object that fits its schema"),
        (JSON, b'{"a": 1}x', "a JSON object that fits its schema"),
        (JSON, b'{"a": 1}{"a": 2}', "a JSON object that fits its schema"),
        (JSON, b'[{"a": 1}]', "a JSON object that fits its schema"),
    ],
)
def test_bytes_that_do_not_fit_are_an_error_that_names_the_record(
    spark: SparkSession, serde: Serde, data: bytes, takes: str
) -> None:
    """Never a NULL or a guess; the error has the record's place and the length, and not the content."""
    df = spark.createDataFrame([(data,)], "data binary")
    decoded = df.select(serdes.from_bytes(serde, F.col("data"), F.lit("orders-0 offset 17 value")).alias("v"))
    with pytest.raises(Exception, match="USER_RAISED_EXCEPTION") as caught:
        decoded.collect()
    where = "orders-0 offset 17 value"
    said = f"{where}: serde '{serde.name}' cannot read these {len(data)} bytes: it takes {takes}"
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_uuid_is_written_in_small_letters_and_text_that_is_none_is_an_error(spark: SparkSession) -> None:
    """So that a key in Spark has the bytes of the same key in a query."""
    value = "67C21FC8-5DD7-4B8C-8A5B-9E1E0D6EE2F4"
    df = spark.createDataFrame([(value,), ("no uuid",)], "v string")
    encoded = serdes.to_bytes(Serdes.uuid(), F.col("v"), T.StringType(), "test").alias("b")
    (row,) = df.limit(1).select(encoded).collect()
    assert bytes(row.b) == Serdes.uuid().serialize(uuid.UUID(value))
    with pytest.raises(Exception, match="a value with the serde 'uuid' is not the 36 characters of a UUID"):
        df.select(encoded).collect()


def test_narrower_numbers_are_written_as_wider_ones(spark: SparkSession) -> None:
    """What loses nothing is allowed: bytes and shorts as integers, integers as longs and doubles."""
    wide = {
        Serdes.short(): ["tinyint"],
        Serdes.integer(): ["tinyint", "smallint"],
        Serdes.long(): ["tinyint", "smallint", "int"],
        Serdes.double(): ["tinyint", "smallint", "int", "float"],
    }
    cells = [(serde, type_) for serde, types in wide.items() for type_ in types]
    row = (
        spark.range(1)
        .select(
            *(
                serdes.to_bytes(serde, F.lit(-7).cast(type_), T.DataType.fromDDL(type_), "test").alias(
                    f"c{index}"
                )
                for index, (serde, type_) in enumerate(cells)
            )
        )
        .first()
    )
    assert row is not None
    for written, (serde, _) in zip(row, cells, strict=True):
        assert bytes(written) == serde.serialize(-7 if serde.name != "double" else -7.0)


def misfit(serde: Serde, column: Column, type_: str) -> str:
    with pytest.raises(TopologyException) as caught:
        serdes.to_bytes(serde, column, T._parse_datatype_string(type_), "KSTREAM-SINK-1: the value")
    return str(caught.value).removeprefix("Invalid topology: KSTREAM-SINK-1: the value has the serde ")


def test_a_serde_that_does_not_fit_its_column_is_refused_with_the_fix(spark: SparkSession) -> None:
    """The error shows the serde that would fit, or the cast."""
    column = F.col("v")
    assert misfit(Serdes.integer(), column, "bigint") == (
        "'integer', but its column is bigint; use Serdes.long(), or cast the column to int"
    )
    assert misfit(Serdes.string(), column, "double") == (
        "'string', but its column is double; use Serdes.double(), or cast the column to string"
    )
    assert misfit(Serdes.double(), column, "bigint") == (
        "'double', but its column is bigint; use Serdes.long(), or cast the column to double"
    )
    assert misfit(Serdes.string(), column, "struct<user:string,n:int>") == (
        "'string', but its column is struct<user:string,n:int>; use Serdes.json('user string, n int'), "
        "or cast the column to string"
    )
    assert misfit(JSON, column, "string") == (
        "'json', but its column is string; use Serdes.string(), or make it a struct: "
        "map_values(lambda value: {'value': value})"
    )
    narrow = Serdes.json("user STRING, n INT")
    assert misfit(narrow, column, "struct<user:string,age:int>") == (
        "json('struct<user:string,n:int>'), but its column struct<user:string,age:int> has the field 'age', "
        "which that schema lacks: a reader with the schema would lose it"
    )
    assert misfit(narrow, column, "struct<user:string,n:bigint>") == (
        "json('struct<user:string,n:int>'), but the field 'n' of its column is bigint and not int; "
        "use Serdes.json('user string, n bigint'), or cast the field"
    )
    assert misfit(narrow, column, "struct<user:array<int>>").startswith(
        "json('struct<user:string,n:int>'), but the field 'user' of its column is array<int> and not string; "
    )
    assert misfit(Serdes.long(), column, "array<int>") == (
        "'long', but its column is array<int>; use a serde of your own (Serdes.custom), "
        "or cast the column to bigint"
    )


def test_json_may_be_written_with_fewer_fields_and_narrower_numbers_than_its_schema(
    spark: SparkSession,
) -> None:
    """A reader with the schema loses nothing by it."""
    value = F.struct(F.lit(1).alias("a"), F.array(F.lit(1.5).cast("float")).alias("list"))
    type_ = T._parse_datatype_string("struct<a:int,list:array<float>>")
    (row,) = spark.range(1).select(serdes.to_bytes(JSON, value, type_, "test").alias("b")).collect()
    assert bytes(row.b) == b'{"a":1,"list":[1.5]}'


@pytest.mark.parametrize(
    ("type_", "serde"),
    [
        ("binary", Serdes.bytes()),
        ("string", Serdes.string()),
        ("tinyint", Serdes.short()),
        ("smallint", Serdes.short()),
        ("int", Serdes.integer()),
        ("bigint", Serdes.long()),
        ("float", Serdes.float()),
        ("double", Serdes.double()),
        ("boolean", Serdes.boolean()),
        ("void", Serdes.bytes()),
    ],
)
def test_the_serde_of_a_column_without_one_follows_from_its_type(
    spark: SparkSession, type_: str, serde: Serde
) -> None:
    """Simple types have Kafka's own formats."""
    assert serdes.infer(T._parse_datatype_string(type_)) == serde


def test_a_struct_is_json_and_what_no_serde_writes_is_refused_with_a_way_out(spark: SparkSession) -> None:
    """A struct brings its schema; a date has to be made text or a struct."""
    struct_type = T._parse_datatype_string("struct<a:int>")
    assert serdes.infer(struct_type) == Serdes.json(struct_type)
    with pytest.raises(TopologyException) as caught:
        serdes.infer(T.DateType())
    assert str(caught.value) == (
        "Invalid topology: no serde writes a column of type date; make it a struct, "
        "map_values(lambda value: {'items': value}), or cast it to a type that has one"
    )


def test_a_custom_serde_is_its_own_two_halves(spark: SparkSession) -> None:
    """Its Column functions are used as they are."""
    reversed_text = Serdes.custom(
        "reversed",
        serialize=lambda text: text[::-1].encode(),
        deserialize=lambda data: data.decode()[::-1],
        to_column=lambda data: F.reverse(data.cast("string")),
        from_column=lambda value: F.reverse(value).cast("binary"),
    )
    df = spark.createDataFrame([("abc",), (None,)], "v string")
    encoded = df.select(serdes.to_bytes(reversed_text, F.col("v"), T.StringType(), "test").alias("b"))
    assert [None if row.b is None else bytes(row.b) for row in encoded.collect()] == [b"cba", None]
    decoded = encoded.select(serdes.from_bytes(reversed_text, F.col("b"), F.lit("here")).alias("v"))
    assert [row.v for row in decoded.collect()] == ["abc", None]


def test_json_of_python_is_json_of_spark_for_times_decimals_and_binaries(spark: SparkSession) -> None:
    """To the byte; and Spark reads it back."""
    serde = Serdes.json("at TIMESTAMP, ntz TIMESTAMP_NTZ, day DATE, price DECIMAL(10, 2), raw BINARY")
    value = {
        "at": datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC),
        "ntz": datetime(2026, 1, 2, 3, 4, 5),
        "day": date(2026, 1, 2),
        "price": Decimal("12.30"),
        "raw": b"\x01\xff",
    }
    data = spark.createDataFrame([(bytearray(serde.serialize(value)),)], "v binary")
    read = data.select(serdes.from_bytes(serde, F.col("v"), F.lit("here")).alias("r"))
    (row,) = read.select(
        "r", serdes.to_bytes(serde, F.col("r"), read.schema["r"].dataType, "r").alias("b")
    ).collect()
    assert bytes(row.b) == serde.serialize(value)
    assert (row.r.ntz, row.r.day, row.r.price, bytes(row.r.raw)) == tuple(list(value.values())[1:])
