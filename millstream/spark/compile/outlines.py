"""Frames with the columns of another and without its plan: Spark tells at once what one more column is."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn

from millstream.spark.jvm.java_names import java_class

__all__ = ["for_own_rows", "outlined", "references", "together"]


def outlined(df: DataFrame) -> DataFrame:
    """A frame with the same columns, and nothing else."""
    return DataFrame(_outline(df).of(df._jdf), df.sparkSession)


def together(outline: DataFrame, selected: DataFrame) -> DataFrame:
    """An outline with further columns, which were selected from it."""
    return DataFrame(_outline(outline).together(outline._jdf, selected._jdf), outline.sparkSession)


def references(selected: DataFrame) -> list[str]:
    """The names of the columns of an outline that the columns selected from it are computed from."""
    return list(_outline(selected).references(selected._jdf))


def for_own_rows(selected: DataFrame, control: str) -> Column | None:
    """A column, which was selected from an outline, with Python functions that are called with the rows of
    its stream alone; None if it has none.

    Args:
        control: the name of the column that is 0 in records.
    """
    found = java_class(selected.sparkSession._jvm, "io.millstream.kernel.task.OwnRows").of(
        selected._jdf, control
    )
    return None if found is None else ClassicColumn(found)


def _outline(df: DataFrame) -> Any:
    return java_class(df.sparkSession._jvm, "io.millstream.kernel.task.Outline")
