"""Python functions that the kernel calls: the operators that run them, and how they get to a worker.

The kernel starts Python workers of its own (`kernel/src/io/millstream/kernel/python`). With Spark's public
interfaces an operator in Java has no way to one of Spark's workers, and one in Python is called, or asks for
its state, key by key, at nearly a millisecond each.
"""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame

from millstream.spark.worker import Program

__all__ = ["fold_in_python"]

_WORKER = "millstream.spark.worker"


def fold_in_python(rows: DataFrame, program: Program, patience_ms: int) -> DataFrame:
    """One row for each group that has records: `group`, `aggregate` (NULL: it has none now), `timestamp`.

    Args:
        rows: `bucket` int, `place` bigint, `group` and `value` binary, `timestamp` bigint; sorted within
            partitions by bucket, place and the order of a group's records. A place is a hash of the group.
        program: takes and returns the frames that folding.py says.
        patience_ms: how long a function may take for one record.
    """
    jvm: Any = rows.sparkSession.sparkContext._jvm
    folded = jvm.io.millstream.kernel.python.Folds.fold(rows._jdf, _program(rows, program, patience_ms))
    return DataFrame(folded, rows.sparkSession)


def _program(rows: DataFrame, program: Program, patience_ms: int) -> Any:
    """A Python function as the kernel takes it; workers run as Spark's own do, in the same environment."""
    context: Any = rows.sparkSession.sparkContext
    pickler: Any = CloudPickleSerializer
    return context._jvm.io.millstream.kernel.python.Program(
        [context.pythonExec, "-m", _WORKER],
        {**context.environment, "PYTHONUNBUFFERED": "YES"},
        list(context._python_includes),
        context.pythonVer,
        bytearray(pickler().dumps(program)),
        patience_ms,
    )
