"""Frames with the columns of another and without its plan: Spark tells at once what one more column is."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as T
from pyspark.sql.classic.column import Column as ClassicColumn

from millstream.spark.jvm.java_names import java_class

__all__ = ["add", "outlined", "type_of"]


def outlined(df: DataFrame) -> DataFrame:
    """A frame with the same columns, and nothing else."""
    return DataFrame(_outline(df).of(df._jdf), df.sparkSession)


def add(outline: DataFrame, name: str, column: Column, control: str) -> tuple[DataFrame, Column, list[str]]:
    """An outline with a further column.

    Args:
        control: the name of the column that is 0 in records.

    Returns:
        The outline; the column, whose Python functions are called with the rows of its stream alone; and the
        names of the columns that it is computed from.
    """
    added = _outline(outline).add(outline._jdf, name, column._jc, control)
    names = str(added.references())
    return (
        DataFrame(added.outline(), outline.sparkSession),
        ClassicColumn(added.column()),
        names.split("\n") if names else [],
    )


def type_of(outline: DataFrame, name: str) -> T.DataType:
    return T._parse_datatype_json_string(_outline(outline).type(outline._jdf, name))


def _outline(df: DataFrame) -> Any:
    return java_class(df.sparkSession._jvm, "io.millstream.kernel.task.Outline")
