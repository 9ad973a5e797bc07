"""The kernel's operators, as functions from DataFrames to DataFrames.

The kernel is a Java library in Spark's JVM: `kernel/src`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame

__all__ = ["fold_in_python"]

_WORKER = "millstream.spark.worker"
_PATIENCE_MS = 300_000


def fold_in_python(rows: DataFrame, program: Callable[[list[Any]], list[list[bytes | None]]]) -> DataFrame:
    """One row for each group that has records: `group`, `aggregate` (NULL: it has none now), `timestamp`.

    Args:
        rows: `bucket` int, `group` and `value` binary, `timestamp` bigint; sorted within partitions by bucket,
            group and the order of a group's records.
        program: what folding.py says.
    """
    jvm: Any = rows.sparkSession.sparkContext._jvm
    folded = jvm.io.millstream.kernel.python.Folds.fold(rows._jdf, _program(rows, program))
    return DataFrame(folded, rows.sparkSession)


def _program(rows: DataFrame, program: Callable[..., Any]) -> Any:
    """A Python function as the kernel takes it; workers run as Spark's own do, in the same environment."""
    context: Any = rows.sparkSession.sparkContext
    return context._jvm.io.millstream.kernel.python.Program(
        [context.pythonExec, "-m", _WORKER],
        {**context.environment, "PYTHONUNBUFFERED": "YES"},
        list(context._python_includes),
        context.pythonVer,
        bytearray(CloudPickleSerializer().dumps(program)),
        _PATIENCE_MS,
    )
