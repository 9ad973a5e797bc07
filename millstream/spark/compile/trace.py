"""Calls the user's functions with Columns, once, when the topology is compiled.

A function takes one, two or three parameters: `value`, `key, value`, or `key, value, record`. An error in it
becomes a TopologyException that names the node, the function's file and line, and, for the most common
mistakes, shows the mistake and the fix (guarded.py, hints.py).
"""

from __future__ import annotations

import builtins
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import pyspark
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.errors import StreamsException, TopologyException
from millstream.spark.compile import hints
from millstream.spark.compile.guarded import CLOCKS, SlipError, guarded, refuse_text, slip_with_method
from millstream.spark.jvm.session import has_jvm_ended
from millstream.spark.jvm.stale import is_java_unreachable
from millstream.spark.run.failures import first_line, without_plan
from millstream.topology.columns import RecordContext
from millstream.topology.functions import (
    arity,
    compared_with_none,
    describe_function,
    name_called,
    swapped,
)
from millstream.topology.nodes import Function, Node

__all__ = ["as_column", "called", "planned", "trace", "translated"]

# PySpark logs every error of a DataFrame call as a JSON line with a JVM stack trace on stderr. The same
# error is raised, and reaches the user as a TopologyException; the log line would only bury it.
logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL + 1)


def trace(node: Node, function: Function, key: Column, value: Column, record: RecordContext) -> Any:
    """What the function returns for these Columns.

    Raises:
        TopologyException: the function raised, returned None, or used a Column as a Python value.
    """
    where = f"{node.name} ({describe_function(function)})"
    if _takes_only_a_key(function):
        raise TopologyException(
            f"{where}: a function with one parameter gets the value, and this one calls it 'key'; "
            "write `lambda key, value: ...` to get the key"
        )
    if swapped(function):
        raise TopologyException(
            f"{where}: a function gets the key first and then the value, and this one calls them the other "
            "way round; write `lambda key, value: ...`"
        )
    arguments = {1: (value,), 2: (key, value), 3: (key, value, record)}[arity(function) or 2]
    result = called(node, function, *arguments)
    if result is None:
        raise TopologyException(
            f"{where}: the function returned None; it has to return a "
            "Column (is there a `return` missing?); a null is F.lit(None)"
        )
    return result


def called(node: Node, function: Function, *arguments: Any) -> Any:
    """What a function returns for these Columns, of any type; its mistakes are reported.

    Raises:
        TopologyException: the function raised, or used a Column as a Python value.
    """
    where = f"{node.name} ({describe_function(function)})"
    wrong = _wrong(function)
    if wrong is not None:
        raise TopologyException(f"{where}: {wrong}")

    def call() -> Any:
        with guarded(where, function) as seen:
            returned = function(*arguments)
        refuse_text(returned)
        _warn_constants(where, function, seen.constants)
        return returned

    return translated(node, function, call)


def _wrong(function: Function) -> str | None:
    """What is wrong with a function before it is called."""
    tested = compared_with_none(function)
    if tested is not None:
        return (
            f"`{tested} is None` (or `is not None`) asks about the Column, which is always there, and not "
            f"about a record's value: use {tested}.isNull(), {tested}.isNotNull() or "
            f"F.coalesce({tested}, ...)"
        )
    if any(function is getattr(builtins, name) for name in ("sum", "max", "min", "len", "any", "all")):
        return hints.of_builtin(function.__name__)
    return None


def _warn_constants(where: str, function: Function, constants: list[str]) -> None:
    """Of what a function called that answers once for all records."""
    random = [each for each in constants if each not in CLOCKS]
    if random:
        raise SlipError(
            f"{random[0]} was called once, when the topology was compiled, and all records would have that "
            "one value: use F.rand(), F.randn() or F.uuid(); if one value for all is meant, make it outside "
            "the function"
        )
    if constants:
        code = getattr(inspect.unwrap(function), "__code__", _warn_constants.__code__)
        warnings.warn_explicit(
            f"{where}: {constants[0]} was called once, when the topology was compiled, and all records get "
            "that one time: use record.timestamp (`lambda key, value, record: ...`) or "
            "F.current_timestamp(); if one time for all is meant, take it outside the function",
            UserWarning,
            code.co_filename,
            code.co_firstlineno,
        )


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
    except SlipError as error:
        raise TopologyException(f"{where}: {error}\n{_ONCE}") from error
    except AnalysisException as error:
        cause = without_plan(error)
        raise TopologyException(f"{where}: {cause}{_meant(error)}") from cause
    except PySparkException as error:
        if error.getCondition() == "CANNOT_CONVERT_COLUMN_INTO_BOOL":
            asked = hints.of_builtin(_called(error))
            said = _BOOL.format(where=where)
            raise TopologyException(said if asked is None else f"{where}: {asked}\n{_ONCE}") from error
        raise TopologyException(
            f"{where}: {_slip_of(error) or first_line(str(error)).rstrip(';')}"
        ) from error
    except Exception as error:
        if is_java_unreachable(error):
            raise _unreachable(where) from error
        if function is None:
            raise
        # The user's own function: whatever it raises is shown with its place.
        said = _slip_of(error) or f"{type(error).__name__}: {error}"
        raise TopologyException(f"{where}: {said}\n{_ONCE}") from error


@contextmanager
def planned(what: str) -> Iterator[None]:
    """What Spark's analysis refuses here is about a plan as a whole, and no function of the program's."""
    try:
        yield
    except AnalysisException as error:
        cause = without_plan(error)
        raise StreamsException(
            f"{what}: Spark does not accept its plan, which the log has at level DEBUG: {cause}; if there is "
            "no DataFrame of the program's in it, this is a bug, please report it"
        ) from cause


def _slip_of(error: Exception) -> str | None:
    """What a function did, and should do, where Python or PySpark only says that it cannot be."""
    if isinstance(error, PySparkException):
        condition = error.getCondition()
        if condition == "NOT_ITERABLE":
            asked = hints.of_builtin(_called(error))
            return f"{asked or _NOT_ITERABLE}\n{_ONCE}"
        if condition == "CANNOT_APPLY_IN_FOR_COLUMN":
            return f"{_NO_IN}\n{_ONCE}"
    elif isinstance(error, TypeError):
        if "'Column' object is not callable" in str(error):
            return hints.no_method(_called(error))
        if (hint := hints.of_error(str(error))) is not None:
            return hint
        return None
    return slip_with_method(error) if isinstance(error, (TypeError, AttributeError)) else None


def _called(error: BaseException) -> str | None:
    """The name that was called where the program itself was, when this was raised."""
    at: TracebackType | None = error.__traceback__
    frame: tuple[FrameType, int] | None = None
    root = str(Path(pyspark.__file__).parent)
    while at is not None:
        if not at.tb_frame.f_code.co_filename.startswith(root) and at.tb_frame.f_code.co_filename != __file__:
            frame = at.tb_frame, at.tb_lasti
        at = at.tb_next
    return None if frame is None else name_called(frame[0].f_code, frame[1])


def _meant(error: AnalysisException) -> str:
    """What to write where Spark says that types do not go together."""
    if error.getCondition() != "DATATYPE_MISMATCH.BINARY_OP_WRONG_TYPE":
        return ""
    said = str(error).split("\n", 1)[0]
    if " + " in said.partition("due to")[0] and 'not "STRING"' in said:
        return '\n+ adds numbers; text is joined with F.concat(value.a, F.lit("!"))'
    return ""


def _unreachable(where: str) -> StreamsException:
    """Why Java was not reached: it is gone, or the function holds something of an earlier one."""
    if has_jvm_ended():
        return StreamsException(f"{where}: Spark's Java process ended while the topology was compiled")
    return TopologyException(
        f"{where}: it uses a Column, or another object of Spark's, that was made before Spark's Java process "
        "ended and another one was started; make it inside the function, which is called anew each time"
    )


_ONCE = "The function runs once, on Spark Columns, when the topology is compiled; not once per record."
_NOT_ITERABLE = (
    "a Column has no elements that Python could go through, neither with `for` nor by unpacking: use "
    "F.transform(value.tags, lambda tag: ...) for each element of an array; flat_map_values takes the array "
    "itself, `lambda value: value.tags`"
)
_NO_IN = (
    "`in` does not know Columns: use value.a.contains(...) for text, F.array_contains(value.tags, ...) for "
    "an array, value.a.isin(...) for one of several values"
)
_BOOL = """{where}: a Column was used as a Python bool.
The function runs once, on Spark Columns, when the topology is compiled; not once per record.
  lambda key, value: value.amount > 10 and value.paid        # this
  lambda key, value: (value.amount > 10) & value.paid        # should be this
`&` for and, `|` for or, `~` for not, `F.when(...)` for if, `value.isin(...)` for in."""
