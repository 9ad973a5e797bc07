"""Java objects that PySpark created in a JVM that is gone, and still holds.

PySpark keeps the Java half of a Python function in the function object that `udf`, `pandas_udf` and
`arrow_udf` return. Such objects live as long as the user's program, mostly at module level. Their Java half
dies with the JVM, or with the SparkContext if the function was large enough to be broadcast. PySpark has no
way to renew it, and no list of these objects.
"""

from __future__ import annotations

import gc
import logging

from py4j.protocol import Py4JNetworkError
from pyspark.sql.udf import UserDefinedFunction

__all__ = ["forget_java_halves", "is_java_unreachable"]

log = logging.getLogger(__name__)


def forget_java_halves() -> int:
    """Have PySpark make the Java half of each Python function anew, at its next use; how many had one.

    To be called before a new SparkContext is used. The garbage collector knows every object, wherever the
    user's program keeps it: in a module, a class, a closure. Asking it takes some 30 ms.
    """
    halves = 0
    for item in gc.get_objects():
        # By its class, and not isinstance(): that asks proxies what they stand for.
        if issubclass(type(item), UserDefinedFunction) and item._judf_placeholder is not None:
            item._judf_placeholder = None
            # Spark's rewriting of the function is made of Columns (transpilePyUDFs, off by default); without
            # it the function runs in Python.
            if getattr(item, "transpiled", None):
                item.transpiled = []
                item._transpiled_input_categories = []
            halves += 1
    if halves:
        log.debug("%d Python functions are made known to Spark anew", halves)
    return halves


def is_java_unreachable(error: BaseException) -> bool:
    """Whether py4j did not reach the JVM of the object that was used."""
    if isinstance(error, Py4JNetworkError):
        return True
    if not isinstance(error, ConnectionError):
        return False
    place = error.__traceback__
    while place is not None:
        if str(place.tb_frame.f_globals.get("__name__")).startswith("py4j."):
            return True
        place = place.tb_next
    return False
