"""What Spark's plan of some rows contains."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millstream.spark.jvm.java_names import java_class

__all__ = ["has_clock", "has_python"]


def has_python(rows: DataFrame) -> bool:
    """Whether there is a UDF, which Spark computes in batches."""
    return _has(rows, "PYTHON_UDF")


def has_clock(rows: DataFrame) -> bool:
    """Whether the current time is used, which Spark reads once for each batch."""
    return _has(rows, "CURRENT_LIKE")


def _has(rows: DataFrame, pattern: str) -> bool:
    patterns = java_class(rows.sparkSession._jvm, "org.apache.spark.sql.catalyst.trees.TreePattern")
    return bool(rows._jdf.queryExecution().analyzed().containsPattern(getattr(patterns, pattern)()))
