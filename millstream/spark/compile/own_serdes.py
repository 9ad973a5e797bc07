"""A user-defined serde, made of two Python functions: they run on Spark's workers, many values at a time.

An error that a function raises for a record is returned as text next to the values. So the other records are
still read, and a handler can be asked about this one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from millstream.errors import TopologyException
from millstream.serdes.formats import CustomSerde

__all__ = ["from_bytes", "to_bytes"]


def from_bytes(serde: CustomSerde, type_: T.DataType, data: Column, wrong: Column) -> Column:
    """The values; `wrong` raises for bytes that the function cannot read."""
    read = _vectorized(serde.deserializer, type_)(data)
    return F.when(data.isNotNull(), F.coalesce(read["made"], wrong.cast(type_)))


def to_bytes(serde: CustomSerde, own: T.DataType, value: Column, type_: T.DataType, what: str) -> Column:
    """The bytes of a column; NULL stays NULL.

    Raises:
        TopologyException: the column has another type than the serde.
    """
    if type_ != own and not _is_wider(type_, own):
        raise TopologyException(
            f"{what} has the serde '{serde.name}', whose type is {own.simpleString()}, but its column is "
            f"{type_.simpleString()}; cast the column, or use another serde"
        )
    written = _vectorized(serde.serializer, T.BinaryType())(value.cast(own))
    head = f"a value with the serde '{serde.name}' is not what its function accepts: "
    wrong = F.raise_error(F.concat(F.lit(head), written["error"])).cast("binary")
    return F.when(value.isNotNull(), F.coalesce(written["made"], wrong))


def _is_wider(type_: T.DataType, own: T.DataType) -> bool:
    """Whether nothing is lost: the types differ only in nullability, or by a narrower number."""
    numbers = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
    if isinstance(type_, numbers) and isinstance(own, numbers):
        return numbers.index(type(type_)) < numbers.index(type(own))
    return type_.simpleString() == own.simpleString()


def _vectorized(function: Callable[[Any], Any], type_: T.DataType) -> Callable[[Column], Column]:
    """A function of one value as a function of columns. NULL stays NULL, and what it raises is returned next
    to the value."""
    made_type = to_arrow_type(type_)
    returned = T.StructType([T.StructField("made", type_), T.StructField("error", T.StringType())])

    def each(values: Any) -> Any:
        made: list[Any] = []
        errors: list[str | None] = []
        for value in values.to_pylist():
            result, error = None, None
            if value is not None:
                try:
                    result = function(value)
                    pa.scalar(result, made_type)
                except Exception as raised:  # a user's function can raise anything
                    result, error = None, type(raised).__name__
            made.append(result)
            errors.append(error)
        columns = [pa.array(made, made_type), pa.array(errors, pa.string())]
        return pa.StructArray.from_arrays(columns, ["made", "error"])

    # Not by annotations, which are strings in this module.
    each.__annotations__ = {"values": pa.Array, "return": pa.Array}
    made_of_columns: Any = arrow_udf
    vectorized: Callable[[Column], Column] = made_of_columns(each, returnType=returned)
    return vectorized
