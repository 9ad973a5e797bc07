"""Python functions that the kernel calls, and how they reach a worker.

The kernel starts Python workers of its own (`kernel/src/io/millstream/kernel/python`). Through Spark's public
interfaces, an operator in Java cannot reach Spark's workers. An operator in Python is called, and reads its
state, key by key, at nearly a millisecond each.
"""

from __future__ import annotations

from typing import Any

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import SparkSession

from millstream.spark.jvm.java_names import java_class
from millstream.spark.worker.program_worker import START, Program

__all__ = ["python_program"]

_WORKER = "millstream.spark.worker.program_worker"
"""Identifies the process in process lists."""


def python_program(spark: SparkSession, program: Program, patience_ms: int) -> Any:
    """A Python function in the kernel's form; workers run like Spark's own, in the same environment.

    Args:
        patience_ms: how long it may take for one record.
    """
    context: Any = spark.sparkContext
    pickler: Any = CloudPickleSerializer
    return java_class(context._jvm, "io.millstream.kernel.python.Program")(
        [context.pythonExec, "-c", START, _WORKER],
        {**context.environment, "PYTHONUNBUFFERED": "YES"},
        list(context._python_includes),
        context.pythonVer,
        bytearray(pickler().dumps(program)),
        patience_ms,
    )
