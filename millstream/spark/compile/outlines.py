"""Frames with the columns of another and without its plan: Spark tells at once what one more column is."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from millstream.spark.jvm.java_names import java_class

__all__ = ["outlined", "references"]


def outlined(df: DataFrame) -> DataFrame:
    """A frame with the same columns, and nothing else."""
    return DataFrame(_outline(df).of(df._jdf), df.sparkSession)


def references(outline: DataFrame) -> list[str]:
    """The names of the columns that its last column, which was just added, is computed from."""
    return list(_outline(outline).references(outline._jdf))


def _outline(df: DataFrame) -> Any:
    return java_class(df.sparkSession._jvm, "io.millstream.kernel.task.Outline")
