"""`peek`, `foreach` and `print`: a Python function over the rows of each batch.

It runs in Spark's Python workers, as an Arrow function in a filter: only key, value and timestamp of the rows
go to Python, the rows themselves stay in the JVM.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.serdes.serde import Serde
from millstream.spark.worker.printing import Text, gathered

__all__ = ["peek"]

Codec = tuple[Serde, Callable[[Column], Column]]


def peek(
    action: Callable[..., Any], parameters: int, codecs: tuple[Codec, Codec], text: Text
) -> Callable[[Column, Column, Column, Column], Column]:
    """A function from (keep, key, value, timestamp) to a boolean Column that is true for every row.

    An action with one parameter gets a pyarrow Table with the columns key, value (in Spark's types) and
    timestamp, once for each Arrow batch of each partition, so several times in each batch. An action
    with two parameters is called with key and value of each record, as Python values. Its output goes to
    `text`.
    """
    (key_serde, key_bytes), (value_serde, value_bytes) = codecs

    def rows(seen: pa.Array) -> pa.Array:
        present = seen.filter(seen.is_valid())
        if len(present):
            with gathered(text):
                if parameters == 1:
                    action(pa.Table.from_struct_array(present))
                else:
                    columns = (present.field("key").to_pylist(), present.field("value").to_pylist())
                    for key, value in zip(*columns, strict=True):
                        action(key_serde.deserialize(key), value_serde.deserialize(value))
        return pa.array([True] * len(seen), pa.bool_())

    # Marked as nondeterministic, so that Spark neither drops it, nor runs it twice, nor moves it.
    udf: Any = F.arrow_udf  # type: ignore[attr-defined]  # missing in PySpark's own stub
    seen = udf(rows, T.BooleanType()).asNondeterministic()

    def column(keep: Column, key: Column, value: Column, timestamp: Column) -> Column:
        if parameters != 1:
            key, value = key_bytes(key), value_bytes(value)
        row = F.struct(key.alias("key"), value.alias("value"), timestamp.alias("timestamp"))
        answered: Column = seen(F.when(keep, row))
        return answered

    return column
