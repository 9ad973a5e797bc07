"""The parameter and result types of functions of Columns, for type checkers and for writing a `def`.

A function takes `value`, `key, value`, or `key, value, record`. Its arguments are decided by
`topology/functions.py: arity`, and the conversion of its result by `spark/compile/trace.py: as_column`. These
types agree with both, so a checker rejects what compiling the topology would reject. PySpark is not imported
for them: they are strings until they are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

__all__ = [
    "Action",
    "ArrayMapper",
    "Expression",
    "Folder",
    "ForeignKey",
    "Frame",
    "Joiner",
    "Literal",
    "Mapper",
    "PairMapper",
    "PairsMapper",
    "Partitioner",
    "Predicate",
    "RecordContext",
    "Reducer",
    "RowFunction",
    "Supplier",
    "TopicName",
    "Value",
    "Writer",
]


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The third parameter of a function: the record's origin, as Columns.

    `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp,
    `headers` array<struct<key: string, value: binary>>. Behind an aggregation, only `timestamp`
    and `headers` are set.

    Source: org.apache.kafka.streams.processor.api.RecordMetadata, RecordContext.
    """

    topic: Column
    partition: Column
    offset: Column
    timestamp: Column
    headers: Column


Literal: TypeAlias = str | bytes | bool | int | float | Decimal | date | timedelta
"""A Python value that is the same for every record (a datetime is a date). For null, use `F.lit(None)`."""

Value: TypeAlias = "Column | Literal | Mapping[str, Value] | list[Value]"
"""A value that can become a Column: a dict becomes a struct, a list an array."""

Pair: TypeAlias = "tuple[Value, Value]"
"""A key and a value."""

R = TypeVar("R")
Of: TypeAlias = (
    "Callable[[Column], R] | Callable[[Column, Column], R] | Callable[[Column, Column, RecordContext], R]"
)

Predicate: TypeAlias = "Of[Column | bool]"
"""`lambda key, value: value.amount > 10`."""

Mapper: TypeAlias = "Of[Value]"
"""`lambda key, value: value.amount * 2`."""

PairMapper: TypeAlias = "Of[Pair]"
"""`lambda key, value: (value.id, value.amount)`."""

PairsMapper: TypeAlias = (
    "Of[Column | list[tuple[Value, Value]] | list[Column] | list[Column | tuple[Value, Value]]]"
)
"""An array of structs of key and value, or a list of pairs."""

ArrayMapper: TypeAlias = "Of[Column | list[Column] | list[Value]]"
"""`lambda value: F.split(value, ' ')`."""

TopicName: TypeAlias = "Of[Column | str]"
"""The name of the topic that a record is written to."""

Partitioner: TypeAlias = "Of[Column | int]"
"""The number of the partition that a record is written to."""

ForeignKey: TypeAlias = "Callable[[Column], Value] | Callable[[Column, Column], Value]"
"""Maps a row's value, or its key and value, to the key of a row of another table."""

Joiner: TypeAlias = "Callable[[Column, Column], Value] | Callable[[Column, Column, Column], Value]"
"""A function of the two values, or of the key and the two values."""

Expression: TypeAlias = Mapper
"""A Spark aggregate expression: `lambda key, value: F.sum(value.amount)`."""

Reducer: TypeAlias = "Callable[[Column], Value] | Callable[[Any, Any], Any]"
"""A Spark aggregate expression of the value; or a Python function of aggregate and value."""

Folder: TypeAlias = Callable[[Any, Any, Any], Any]
"""A Python function of key, value and aggregate, which returns the next aggregate."""

RowFunction: TypeAlias = (
    Callable[[Any, Any], Any]
    | Callable[[Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any], Any]
    | Callable[[Any, Any, Any, Any, Any], Any]
)
"""A Python function of a row's key and value, and of up to three stores."""

Action: TypeAlias = Callable[[Any, Any], object] | Callable[[Any], object]
"""A Python function of each record's key and value; or of a pyarrow Table of many."""

Frame: TypeAlias = "DataFrame | Callable[[SparkSession], DataFrame]"
"""A DataFrame, or `lambda spark: spark.read…`, which takes the client's session and returns one."""

Writer: TypeAlias = "Callable[[DataFrame], DataStreamWriter]"
"""`lambda df: df.writeStream.format("parquet").option("path", "…")`: takes a streaming DataFrame."""

T_co = TypeVar("T_co", covariant=True)


class Gives(Protocol[T_co]):
    """An object that creates others, like Kafka Streams' suppliers."""

    def get(self) -> T_co:
        """A new object."""
        ...


Supplier: TypeAlias = Callable[[], R] | Gives[R]
"""A supplier of processors: a class, a function without parameters, or an object with `get()`."""
