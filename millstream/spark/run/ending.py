"""The end of a streaming query: waiting for it, and its outcome."""

from __future__ import annotations

import logging
import re
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors.exceptions.captured import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from millstream.spark.jvm.session import has_jvm_ended, is_jvm_ending

__all__ = ["of_ended_jvm", "raise_failure", "wait_for_end"]

log = logging.getLogger(__name__)

_FATAL = re.compile(r"\bjava\.lang\.(\w+MemoryError|StackOverflowError|InternalError|UnknownError)\b")
"""What Spark ends its process for, after it has reported the task."""
_SOON_SECONDS = 2.0


def wait_for_end(query: StreamingQuery, timeout_s: float | None = None) -> bool:
    """Wait until a query has ended, successfully or not. Returns whether it has.

    Differs: `awaitTermination` raises what the query failed with, and PySpark makes about a hundred calls to
    the JVM to build that exception and its causes: 0.15 s in which nothing is done about the failure.

    Raises:
        Exception: the JVM is gone; or, where only `awaitTermination` is available, what that raises.
    """
    try:
        thread = query._jsq.streamingQuery().queryExecutionThread()
    except Py4JNetworkError:
        raise
    except Py4JError:  # a Spark version that keeps it elsewhere
        log.debug("waiting with awaitTermination", exc_info=True)
        return query.awaitTermination(timeout_s) is not False  # type: ignore[arg-type]  # takes a float
    if timeout_s is None:
        thread.join()
        return True
    thread.join(max(1, int(timeout_s * 1000)))
    return not thread.isAlive()


def of_ended_jvm(error: Exception) -> Exception:
    """The same, or an error that says that the JVM has ended, if that is the reason.

    A call that waits for an answer while the JVM is killed fails with an error of py4j that names no reason.
    And while a JVM ends itself, its queries fail with what they meet in a Spark that is being stopped.
    """
    if isinstance(error, StreamingQueryException):
        text = str(error._desc)  # its own `__str__` calls the JVM
        # Spark reports the task before it ends the JVM.
        gone = is_jvm_ending(_SOON_SECONDS if _FATAL.search(text) else 0.0)
        error_said = text.strip().split("\n", 1)[0]
    else:
        gone = type(error) is Py4JError and has_jvm_ended()
        error_said = str(error)
    if not gone:
        return error
    said: Exception = Py4JNetworkError(f"the JVM has ended: {error_said}")
    said.__cause__ = error
    return said


def raise_failure(query: StreamingQuery) -> None:
    """Raise the exception that ended a query, if it failed.

    Raises:
        StreamingQueryException: PySpark's own, with the JVM's message and stack.
    """
    found: Any = query._jsq.exception()
    if not found.isDefined():
        return
    java = found.get()
    utils: Any = getattr(SparkContext._jvm, "org.apache.spark.util.Utils")
    # Without the query's state and plan, which would add a hundred lines to the log for each attempt.
    message = str(java.getMessage()).partition("\n=== Streaming Query ===")[0]
    error = StreamingQueryException(desc=message, stackTrace=utils.exceptionString(java))
    error._origin = java  # for its condition and its parameters
    raise error
