"""The output of functions that print in Spark's Python workers, brought to the program's own output.

A worker is a separate process, and on a cluster it runs on another machine; its stdout ends up in a log, if
anywhere. So the output is collected while a function runs, and sent in an accumulator, which Spark delivers
to the driver at the end of the task. The output of a task that fails goes to the worker's stderr.

This is for looking at records. The text of a task is kept in memory until the task ends.
"""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

__all__ = ["Text", "gathered", "outlet", "to_file", "to_stdout"]

log = logging.getLogger(__name__)

Text = Accumulator[list[str]]


class _Texts(AccumulatorParam[list[str]]):
    """Collects texts in a worker; in the driver it passes them on and keeps none."""

    def __init__(self, write: Callable[[str], None] | None = None) -> None:
        self._write = write

    def zero(self, value: list[str]) -> list[str]:
        return []

    def addInPlace(self, value1: list[str], value2: list[str]) -> list[str]:  # noqa: N802 - PySpark's name
        if self._write is None:
            value1 += value2
            return value1
        try:
            self._write("".join(value2))
        except Exception:  # this runs on PySpark's thread, and its jobs wait for it
            log.warning("the output of a function cannot be written", exc_info=True)
        return []

    def __reduce__(self) -> tuple[Any, ...]:
        return _Texts, ()  # what a worker gets


def outlet(spark: SparkSession, write: Callable[[str], None]) -> Text:
    """An accumulator for the workers' texts, which are then passed to `write` in this process."""
    return spark.sparkContext.accumulator([], _Texts(write))


def to_stdout(text: str) -> None:
    """Write to this program's current stdout."""
    if text and sys.stdout is not None:
        sys.stdout.write(text)
        sys.stdout.flush()


def to_file(path: str) -> Callable[[str], None]:
    """A function that appends to a file."""

    def write(text: str) -> None:
        if text:
            with open(path, "a", encoding="utf-8", newline="") as file:
                file.write(text)

    return write


@contextmanager
def gathered(text: Text) -> Iterator[None]:
    """Send what is printed meanwhile to `text`; if an exception ends it, to stderr."""
    written = io.BytesIO()
    printed = io.TextIOWrapper(written, "utf-8", errors="backslashreplace", newline="", write_through=True)
    try:
        with redirect_stdout(printed):
            yield
    except BaseException:
        sys.stderr.write(_content(written))
        sys.stderr.flush()
        raise
    if said := _content(written):
        text.add([said])


def _content(written: io.BytesIO) -> str:
    return written.getvalue().decode("utf-8", "backslashreplace")
