"""Java classes by their full names, without asking Java repeatedly what a name is.

py4j asks Java about each part of a dotted name. For a name that is not a class, such as `java` in
`jvm.java.util`, Java then searches each jar of Spark's class path, and again for each package that PySpark
imports: some milliseconds. PySpark's own column functions ask for names without a package, with the same
cost.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import Column, SparkSession

__all__ = ["java_class", "kernel_column", "know_classes"]

_SHORT = {
    "functions": "org.apache.spark.sql.functions",
    "PythonUtils": "org.apache.spark.api.python.PythonUtils",
    "PythonSQLUtils": "org.apache.spark.sql.api.python.PythonSQLUtils",
}
"""Names that PySpark looks up without a package whenever it creates a column."""

_WHOLE = (
    *_SHORT.values(),
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
)
"""Names that it looks up repeatedly, in full."""


def java_class(jvm: Any, name: str) -> Any:
    """A class by its full name; `jvm` is `SparkContext._jvm`, which remembers it."""
    known = vars(jvm).get(name)
    if known is None:
        known = vars(jvm)[name] = getattr(jvm, name)
    return known


def kernel_column(name: str, function: str, *arguments: Any) -> Column:
    """What a function of the kernel's tasks makes of columns."""
    found = java_class(SparkSession.active()._jvm, f"io.millstream.kernel.task.{name}")
    given = (each._jc if isinstance(each, Column) else each for each in arguments)
    return Column(getattr(found, function)(*given))


def know_classes(jvm: Any) -> None:
    """Cache the names that PySpark looks up most often."""
    for name in _WHOLE:
        java_class(jvm, name)
    for short, name in _SHORT.items():
        vars(jvm)[short] = java_class(jvm, name)
