"""Call the user's functions with Columns, once, when the topology is compiled.

A function takes one, two or three parameters: `value`, `key, value`, or `key, value, record`. What goes
wrong in it becomes a TopologyException that names the node, the function's file and line, and, for the
commonest slips, shows the mistake and the fix.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.errors import StreamsException, TopologyException
from millstream.spark.session import has_jvm_ended
from millstream.spark.stale import is_java_unreachable
from millstream.topology.functions import arity, describe_function
from millstream.topology.nodes import Function, Node

__all__ = ["RecordContext", "as_column", "trace", "translated"]

# PySpark logs every error of a DataFrame call as a JSON line with a JVM stack trace on stderr. The same
# error is raised, and reaches the user as a TopologyException; the log line would only bury it.
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The third parameter of a function: where the record came from, as Columns.

    `topic` string, `partition` int, `offset` bigint, `timestamp` timestamp,
    `headers` array<struct<key: string, value: binary>>. After an aggregation only `timestamp` is set.
    """

    topic: Column
    partition: Column
    offset: Column
    timestamp: Column
    headers: Column


def trace(node: Node, function: Function, key: Column, value: Column, record: RecordContext) -> Any:
    """What the function returns for these Columns.

    Raises:
        TopologyException: the function raised, returned None, or used a Column as a Python value.
    """
    if _takes_only_a_key(function):
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): a function with one parameter gets the value, "
            "and this one calls it 'key'; write `lambda key, value: ...` to get the key"
        )
    arguments = {1: (value,), 2: (key, value), 3: (key, value, record)}[arity(function) or 2]
    result = translated(node, function, lambda: function(*arguments))
    if result is None:
        raise TopologyException(
            f"{node.name} ({describe_function(function)}): the function returned None; it has to return a "
            "Column (is there a `return` missing?); a null is F.lit(None)"
        )
    return result


def _takes_only_a_key(function: Function) -> bool:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return False
    return names == ["key"]


def as_column(result: Any) -> Column:
    """A function's result as one Column; a dict becomes a struct, a list an array, a value a literal."""
    if isinstance(result, Column):
        return result
    if isinstance(result, Mapping):
        return F.struct(*(as_column(item).alias(str(name)) for name, item in result.items()))
    if isinstance(result, list):
        return F.array(*(as_column(item) for item in result))
    return F.lit(result)


def translated(node: Node, function: Function | None, step: Callable[[], Any]) -> Any:
    """Run one step of compiling `node`; what it raises becomes a TopologyException that names the node."""
    where = f"{node.name} ({describe_function(function)})" if function is not None else node.name
    try:
        return step()
    except TopologyException:
        raise
    except AnalysisException as error:
        raise TopologyException(f"{where}: {_first_lines(error)}") from error
    except PySparkException as error:
        if error.getCondition() == "CANNOT_CONVERT_COLUMN_INTO_BOOL":
            raise TopologyException(_BOOL.format(where=where)) from error
        raise TopologyException(f"{where}: {_first_lines(error)}") from error
    except Exception as error:
        if is_java_unreachable(error):
            raise _unreachable(where) from error
        if function is None:
            raise
        # The user's own function: whatever it raises is shown with its place.
        raise TopologyException(
            f"{where}: {type(error).__name__}: {error}\n"
            "The function runs once, on Spark Columns, when the topology is compiled; not once per record."
        ) from error


def _unreachable(where: str) -> StreamsException:
    """Why Java was not reached: it is gone, or the function holds something of an earlier one."""
    if has_jvm_ended():
        return StreamsException(f"{where}: Spark's Java process ended while the topology was compiled")
    return TopologyException(
        f"{where}: it uses a Column, or another object of Spark's, that was made before Spark's Java process "
        "ended and another one was started; make it inside the function, which is called anew each time"
    )


def _first_lines(error: BaseException) -> str:
    """Spark's message without the plan that follows it."""
    return str(error).split("\n", 1)[0].rstrip(";")


_BOOL = """{where}: a Column was used as a Python bool.
The function runs once, on Spark Columns, when the topology is compiled; not once per record.
  lambda key, value: value.amount > 10 and value.paid        # this
  lambda key, value: (value.amount > 10) & value.paid        # should be this
`&` for and, `|` for or, `~` for not, `F.when(...)` for if, `value.isin(...)` for in."""
