"""Each serde twice, in Spark and in Python: the same bytes, and the same errors before it is too late."""

from __future__ import annotations

import math
import random
import struct
import uuid
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream import Serde, Serdes, SerializationException, TopologyException
from millstream.spark.compile import serde_columns
from millstream.spark.compile.flow import TIMESTAMP
from millstream.spark.compile.record_handlers import attempt

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
    Serdes.list(Serdes.integer()): [[], [1, None, -1], [None]],
    Serdes.list(Serdes.string()): [[], ["a", None, "", "bc"]],
    Serdes.list(Serdes.list(Serdes.double())): [[], [[], None, [1.5, None]]],
    Serdes.json("ARRAY<STRING>"): [[], ["a", None, 'ü"']],
    Serdes.json("MAP<STRING, BIGINT>"): [{}, {"a": 1, "items": None}],
    Serdes.json("DOUBLE"): [0.5, -1.25, 1e16, 1e-5, 2.0**-44],
    Serdes.json("DECIMAL(38,0)"): [Decimal("9" * 38), Decimal(-1)],
    Serdes.list(Serdes.json("DOUBLE")): [[1.5, None, 1e16], []],
    Serdes.json("STRING"): ["", 'a "b"', "ü", "\x1f"],
    Serdes.custom(
        "pipes",
        serialize=lambda value: "|".join(value).encode(),
        deserialize=lambda data: data.decode().split("|"),
        type="ARRAY<STRING>",
    ): [["a"], ["a", "", "ü"]],
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
    type_ = serde_columns.column_type(serde)
    assert type_ is not None
    return type_


def test_spark_writes_the_bytes_that_python_writes(spark: SparkSession) -> None:
    """For every serde, over edge and random values; null is null."""
    schema = T.StructType([T.StructField(NAMES[serde], column_of(serde)) for serde in VALUES])
    data = list(zip(*(padded(values) for values in VALUES.values()), strict=True))
    df = spark.createDataFrame(data, schema).coalesce(1)
    encoded = df.select(
        *(
            serde_columns.to_bytes(serde, F.col(name), schema[name].dataType, "test").alias(name)
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
        *(serde_columns.from_bytes(serde, F.col(name), where).alias(name) for serde, name in NAMES.items())
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
        (JSON, b"", "JSON that is whole"),
        (JSON, b"null", "a JSON value, and this is null"),
        (JSON, b"[1]", "a JSON object, and this is other JSON"),
        (JSON, b'{"a": "secret"}', "BIGINT in the field 'a', and this is other JSON"),
        (JSON, b'{"a": 1', "JSON that is whole"),
        (JSON, b'{"a": 1}x', "JSON in UTF-8, and byte 8 does not belong there"),
        (JSON, b'{"a": 1},"c":2', "JSON in UTF-8, and byte 8 does not belong there"),
        (JSON, b'{"a": 1}{"a": 2}', "JSON in UTF-8, and byte 8 does not belong there"),
        (JSON, b'[{"a": 1}]', "a JSON object, and this is other JSON"),
    ],
)
def test_bytes_that_do_not_fit_are_an_error_that_names_the_record(
    spark: SparkSession, serde: Serde, data: bytes, takes: str
) -> None:
    """Never a NULL or a guess; the error has the record's place and the length, and not the content."""
    df = spark.createDataFrame([(data,)], "data binary")
    decoded = df.select(
        serde_columns.from_bytes(serde, F.col("data"), F.lit("orders-0 offset 17 value")).alias("v")
    )
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
    encoded = serde_columns.to_bytes(Serdes.uuid(), F.col("v"), T.StringType(), "test").alias("b")
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
                serde_columns.to_bytes(serde, F.lit(-7).cast(type_), T.DataType.fromDDL(type_), "test").alias(
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
        serde_columns.to_bytes(serde, column, T._parse_datatype_string(type_), "KSTREAM-SINK-1: the value")
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
        "'long', but its column is array<int>; use Serdes.json('array<int>'), or cast the column to bigint"
    )


def test_json_may_be_written_with_fewer_fields_and_narrower_numbers_than_its_schema(
    spark: SparkSession,
) -> None:
    """A reader with the schema loses nothing by it."""
    value = F.struct(F.lit(1).alias("a"), F.array(F.lit(1.5).cast("float")).alias("list"))
    type_ = T._parse_datatype_string("struct<a:int,list:array<float>>")
    (row,) = spark.range(1).select(serde_columns.to_bytes(JSON, value, type_, "test").alias("b")).collect()
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
    assert serde_columns.infer(T._parse_datatype_string(type_)) == serde


def test_a_struct_is_json_and_what_no_serde_writes_is_refused_with_a_way_out(spark: SparkSession) -> None:
    """A struct, a list and a map bring their schema; a date needs a word."""
    struct_type = T._parse_datatype_string("struct<a:int>")
    assert serde_columns.infer(struct_type) == Serdes.json(struct_type)
    assert serde_columns.infer(T.ArrayType(struct_type)) == Serdes.json(T.ArrayType(struct_type))
    with pytest.raises(TopologyException) as caught:
        serde_columns.infer(T.DateType())
    assert str(caught.value) == (
        "Invalid topology: no serde follows from the column type date; "
        "cast the column to a type that has one, or use Serdes.json('DATE')"
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
    encoded = df.select(serde_columns.to_bytes(reversed_text, F.col("v"), T.StringType(), "test").alias("b"))
    assert [None if row.b is None else bytes(row.b) for row in encoded.collect()] == [b"cba", None]
    decoded = encoded.select(serde_columns.from_bytes(reversed_text, F.col("b"), F.lit("here")).alias("v"))
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
    read = data.select(serde_columns.from_bytes(serde, F.col("v"), F.lit("here")).alias("r"))
    (row,) = read.select(
        "r", serde_columns.to_bytes(serde, F.col("r"), read.schema["r"].dataType, "r").alias("b")
    ).collect()
    assert bytes(row.b) == serde.serialize(value)
    assert (row.r.ntz, row.r.day, row.r.price, bytes(row.r.raw)) == tuple(list(value.values())[1:])


EVERYTHING = (
    "b BOOLEAN, t TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, text STRING, raw BINARY, "
    "day DATE, at TIMESTAMP, clock TIMESTAMP_NTZ, price DECIMAL(10, 2), big DECIMAL(38, 18), whole DECIMAL, "
    "list ARRAY<DECIMAL(5, 1)>, times ARRAY<TIMESTAMP>, days MAP<STRING, DATE>, "
    "inner STRUCT<x: DATE, y: ARRAY<STRUCT<z: BINARY>>>, `odd name` INT"
)
READ = [
    "{}",
    '{"b":true,"t":-128,"s":32767,"i":-2147483648,"l":9223372036854775807}',
    *(f'{{"{name}":null}}' for name in ("b", "l", "d", "text", "raw", "day", "at", "price", "list", "inner")),
    *(f'{{"b":{value}}}' for value in ("false", '"true"', "1", '""')),
    *(
        f'{{"t":{value}}}'
        for value in ("127", "128", "255", "256", "-129", "1.0", '"1"', '""', "true", "1e2")
    ),
    *(f'{{"i":{value}}}' for value in ("2147483648", "-0", "1.5", "[1]", "{}")),
    *(f'{{"l":{value}}}' for value in ("9223372036854775808", "-9223372036854775808", "1E3")),
    *(
        f'{{"{name}":{value}}}'
        for name in "fd"
        for value in (
            "0.1",
            "1",
            "-0.0",
            "1e400",
            "1e39",
            '"NaN"',
            "NaN",
            '"Infinity"',
            '"-INF"',
            '"1.5"',
            '""',
        )
    ),
    *(
        f'{{"text":{value}}}'
        for value in (
            '"a\\u00fc\\n"',
            '""',
            "1",
            "1.50",
            "true",
            '{"a":[1,"x"]}',
            "[1, 2]",
            "12345678901234567890.123",
            '"\\ud83d"',
        )
    ),
    *(f'{{"raw":{value}}}' for value in ('"eA=="', '"AP8="', '""', '"?"', "1", '"eA"')),
    *(
        f'{{"day":{value}}}'
        for value in ('"2024-02-29"', '"2023-02-29"', '"1969-12-31"', '"0001-01-01"', '"9999-12-31"')
    ),
    *(
        f'{{"day":{value}}}'
        for value in ('"2024-1-5"', '"2024"', '"2024-01-02T03:04:05"', '"x"', '""', "19000")
    ),
    *(
        f'{{"at":"{value}"}}'
        for value in (
            "2024-01-02T03:04:05.678Z",
            "2024-01-02T03:04:05.678901Z",
            "2024-01-02T03:04:05.6+02:00",
            "2024-01-02 03:04:05-11:30",
            "2024-01-02T03:04:05",
            "1969-12-31T23:59:59.999999Z",
            "1582-10-04T00:00:00Z",
            "0002-01-01T00:00:00Z",  # PySpark itself cannot make a row of year 1
            "9998-12-31T23:59:59.999Z",
            "2024-01-02",
            "2024-01-02T03:04",
            "2024-02-30T00:00:00Z",
            "2024-01-02T25:00:00Z",
            "never",
            "",
        )
    ),
    *(
        f'{{"at":{value}}}'
        for value in ("1700000000", "-1", "1.5", "true", "1691241070123", "1691241070123456")
    ),
    *(f'{{"at":"{value}"}}' for value in ("23456", "12:30", "2024", "2024-01-02T03:04 Europe/Paris")),
    *(
        f'{{"clock":"{value}"}}'
        for value in (
            "2024-01-02T03:04:05.678",
            "2024-01-02T03:04:05.678901",
            "1969-12-31 23:59:59",
            "2024-01-02",
            "x",
        )
    ),
    *(
        f'{{"price":{value}}}'
        for value in (
            "1",
            "1.5",
            "-1.50",
            "-0.01",
            "0.005",
            "-0.005",
            "0.00",
            "-0.0",
            "12345678.99",
            "99999999.995",
        )
    ),
    *(
        f'{{"price":{value}}}'
        for value in (
            "123456789.1",
            '"1.5"',
            '"x"',
            '""',
            "true",
            "1e3",
            "1e-9",
            "NaN",
            '"12,50"',
            '"1.234,56"',
        )
    ),
    *(
        f'{{"big":{value}}}'
        for value in (
            "12345678901234567890.123456789012345678",
            "0.1",
            "-1e-18",
            "1e20",
            "0.30000000000000004",
        )
    ),
    *(f'{{"whole":{value}}}' for value in ("7", "7.5", "9999999999", "10000000000")),
    '{"list":[1.25,null,-2]}',
    '{"list":[1,"x"]}',
    '{"list":1}',
    '{"times":["2024-01-02T03:04:05Z",null]}',
    '{"days":{"a":"2024-01-01","b":null,"":"1960-01-01"}}',
    '{"days":{"a":1}}',
    '{"inner":{"x":"2024-01-01","y":[{"z":"eA=="},{},null]}}',
    '{"inner":{"y":[{"z":1}]}}',
    '{"inner":[]}',
    '{"odd name":3,"unknown":{"a":1}}',
    '{"i":1,"i":2}',
    '{"i":"x","i":2}',
    '{"days":{"a":"2024-01-01","a":"2024-01-02"}}',
    "{'i':1}",
    '\ufeff{"i":1}',
    ' {"i" : 1}\n',
    '{"i":1}x',
    '{"i":1},"c":2',
    '{"i":1},{"i":2}',
    '{"i":1}{"i":2}',
    '{"i":1',
    "",
    "null",
    "1",
    "[]",
    '[{"i":1}]',
]


def test_python_reads_json_as_spark_does(spark: SparkSession) -> None:
    """By the schema, case by case: the same value, or a refusal. Timestamps are in UTC in Python."""
    serde = Serdes.json(EVERYTHING)
    type_ = serde_columns.column_type(serde)
    assert type_ is not None
    rows = spark.createDataFrame([(n, case.encode()) for n, case in enumerate(READ)], "n INT, data BINARY")
    rows = rows.withColumn(TIMESTAMP, F.lit(None).cast("timestamp"))
    read = serde_columns.from_bytes(serde, F.col("data"), F.lit("here"))
    # What is refused would end the query.
    attempts = rows.select("n", attempt(F.lit(True), read).alias("value")).collect()
    by_spark = {row.n: None if row.value is None else row.value.r0.asDict(recursive=True) for row in attempts}
    differ = []
    for n, case in enumerate(READ):
        try:
            value = serde.deserialize(case.encode())
        except SerializationException:
            value = None
        expected = in_utc(by_spark[n])
        if repr(in_utc(value)) != repr(expected):
            differ.append(f"{case}: {there(value)} in Python, {there(expected)} in Spark")
    assert not differ, "\n".join(differ)


WRITTEN: list[dict[str, Any]] = [
    {},
    {
        "b": True,
        "t": -1,
        "s": 2,
        "i": 3,
        "l": 2**62,
        "text": 'q"\\\n\u2028\x7fü🎉',
        "raw": b"\0\xff",
        "odd name": 1,
    },
    {"f": math.nan, "d": math.inf},
    {"f": -math.inf, "d": -0.0},
    {"d": 0.1},
    {"day": date(1969, 12, 31), "at": datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)},
    {"day": date(1, 1, 1), "at": datetime(2024, 1, 2, 3, 4, 5, 678901, timezone(timedelta(hours=-3)))},
    {"clock": datetime(2024, 1, 2, 3, 4, 5, 678901)},
    {"price": Decimal("-1.5"), "big": Decimal("-0.000000000000000001"), "whole": Decimal(7)},
    {"price": Decimal(0), "big": Decimal("1E+19"), "list": [Decimal("1.25"), None, Decimal(-2)]},
    {"times": [datetime(2024, 1, 2, tzinfo=UTC), None], "days": {"a": date(2024, 1, 1), "b": None}},
    {"inner": {"x": None, "y": [{"z": b"x"}, {"z": None}, None]}},
    {"inner": {}, "list": [], "days": {}},
]


def test_python_writes_json_as_spark_does(spark: SparkSession) -> None:
    """Whatever the order of the dict's keys."""
    serde = Serdes.json(EVERYTHING)
    type_ = serde_columns.column_type(serde)
    assert isinstance(type_, T.StructType)
    rows = spark.createDataFrame(
        [(n, value) for n, value in enumerate(WRITTEN)],
        T.StructType([T.StructField("n", T.IntegerType()), T.StructField("value", type_)]),
    )
    written = {
        row.n: bytes(row.data)
        for row in rows.select(
            "n", serde_columns.to_bytes(serde, F.col("value"), type_, "it").alias("data")
        ).collect()
    }
    for n, value in enumerate(WRITTEN):
        assert serde.serialize(dict(reversed(value.items()))) == written[n]
        assert serde.serialize(serde.deserialize(written[n])) == written[n]
        assert Serdes.json(type_).serialize(Serdes.json(type_).deserialize(written[n])) == written[n]


@pytest.mark.parametrize("tried", [False, True])
def test_json_is_parsed_once_however_often_it_is_asked_about(spark: SparkSession, tried: bool) -> None:
    """Spark would parse it for the filter, and of the rows that are left again."""
    when = datetime(2026, 1, 1, tzinfo=UTC)
    rows = spark.createDataFrame(
        [(b'{"a":1}', when), (b'{"a":2}', when)], f"data BINARY, {TIMESTAMP} TIMESTAMP"
    )
    read = serde_columns.from_bytes(JSON, F.col("data"), F.lit("it"))
    value = serde_columns.once(JSON, attempt(F.lit(True), read) if tried else read)
    kept = rows.withColumn("v", value).withColumn("v", F.col("v")["r0"] if tried else F.col("v"))
    kept = kept.where(F.col("v")["a"] > 1).select(
        F.col("v")["a"].alias("a"), F.col("v")["text"].alias("text")
    )
    plan: Any = kept._jdf.queryExecution().optimizedPlan()
    assert plan.toString().count("json_read") == 1
    assert [row.a for row in kept.collect()] == [2]


def test_json_with_a_type_that_the_kernel_does_not_know_is_sparks(spark: SparkSession) -> None:
    """A variant: it is read and written as before, and what is no JSON is refused."""
    serde = Serdes.json("a INT, v VARIANT")
    type_ = serde_columns.column_type(serde)
    assert type_ is not None
    rows = spark.createDataFrame([(b'{"a":1,"v":{"x":[1,"y"]}}',)], "data BINARY")
    value = serde_columns.from_bytes(serde, F.col("data"), F.lit("here"))
    (row,) = rows.select(serde_columns.to_bytes(serde, value, type_, "it").alias("b")).collect()
    assert bytes(row.b) == b'{"a":1,"v":{"x":[1,"y"]}}'
    wrong = spark.createDataFrame([(b'{"a":1}x',)], "data BINARY")
    with pytest.raises(Exception, match="it takes a JSON object that fits its schema"):
        wrong.select(value).collect()


@pytest.mark.parametrize("type_", ["TIMESTAMP", "TIMESTAMP_NTZ", "DATE"])
def test_times_that_no_reader_takes_are_not_written(spark: SparkSession, type_: str) -> None:
    """A computed year beyond 9999 is an error where it is written: Python has no such times."""
    serde = Serdes.json(type_)
    column = serde_columns.column_type(serde)
    assert column is not None
    # Not a literal, of which Spark would compute the bytes beforehand.
    rows = spark.range(1).select((F.timestamp_seconds(F.col("id") + 253402300800)).cast(column).alias("v"))
    with pytest.raises(Exception, match=f"a {type_} is beyond the years 1 to 9999"):
        rows.select(serde_columns.to_bytes(serde, F.col("v"), column, "it")).collect()


def in_utc(value: Any) -> Any:
    """What PySpark's rows have, with timestamps as they are in Python, but for `clock`, in one order."""
    return _in_utc(value, "")


def _in_utc(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return {key: _in_utc(each, key if name != "days" else name) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return [_in_utc(each, name) for each in value]
    if isinstance(value, datetime) and name != "clock":
        return value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray) else value


def there(value: dict[str, Any] | None) -> Any:
    """Its fields that are not null."""
    return None if value is None else {name: each for name, each in value.items() if each is not None}
