"""What PySpark keeps of a JVM that is gone: found wherever the program has it. Pure: no Java is started."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from millstream.spark.jvm.stale import forget_java_halves, is_java_unreachable


def test_every_function_that_has_a_java_half_loses_it() -> None:
    """In a class, in a closure, in a list; one that was never used has none."""

    def in_a_closure() -> Any:
        function: Any = F.pandas_udf(lambda values: values, StringType())
        return lambda column: function(column)

    class Program:
        clean: Any = F.udf(lambda value: value, StringType())

    closure = in_a_closure()
    listed: list[Any] = [F.arrow_udf(lambda values: values, StringType())]  # type: ignore[attr-defined]
    unused: Any = F.udf(lambda value: value, StringType())
    forget_java_halves()
    used = [Program.clean, closure.__closure__[0].cell_contents, listed[0]]
    for function in used:
        function._unwrapped._judf_placeholder = object()
    used[0]._unwrapped.transpiled = [object()]
    assert forget_java_halves() == 3
    assert all(function._unwrapped._judf_placeholder is None for function in [*used, unused])
    assert used[0]._unwrapped.transpiled == []
    assert forget_java_halves() == 0


def test_only_what_py4j_raised_says_that_java_is_not_there() -> None:
    """A program's own function may fail to connect to something else."""
    assert is_java_unreachable(Py4JNetworkError("answer is empty"))
    assert not is_java_unreachable(ValueError())
    from_py4j: dict[str, Any] = {"__name__": "py4j.java_gateway"}
    exec("def connect(): raise ConnectionRefusedError", from_py4j)
    caught = []
    for connect in (from_py4j["connect"], lambda: [][0]):
        try:
            connect()
        except (ConnectionError, IndexError) as error:
            caught.append(is_java_unreachable(error))
    try:
        raise ConnectionRefusedError("of a web service")
    except ConnectionError as error:
        caught.append(is_java_unreachable(error))
    assert caught == [True, False, False]
