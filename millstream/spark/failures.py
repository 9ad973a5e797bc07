"""Translate what Spark reports into Millstream's exceptions: one table, and the only reader of its texts."""

from __future__ import annotations

import re

from py4j.protocol import Py4JNetworkError

from millstream.errors import MissingSourceTopicException, PipelineException, StreamsException

__all__ = ["translate"]

_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_GENERIC = {"STREAM_FAILED"}

_MEANING: tuple[tuple[str, str], ...] = (
    (
        "not present in metadata after",
        "a topic that the pipeline writes to does not exist; create it, then start a new client",
    ),
    ("KAFKA_DATA_LOSS", "records were deleted from a source topic before they were read"),
    ("CONCURRENT_STREAM_LOG_UPDATE", "another client runs this pipeline on the same checkpoint"),
    ("No space left on device", "a disk is full"),
    ("OutOfMemoryError", "Spark ran out of memory; give it more: spark.driver.memory"),
    (": serde '", "a record does not fit its serde"),
)


def translate(pipeline: str, topics: tuple[str, ...], error: BaseException) -> StreamsException:
    """The exception that a thread sees for a query that ended with `error`.

    `topics` are the pipeline's source topics, for what Spark says without a name.
    """
    if isinstance(error, (ConnectionError, Py4JNetworkError)):
        return PipelineException(
            f"pipeline {pipeline}: Spark's Java process is gone; it was killed, or ran out of memory "
            f"(spark.driver.memory); {type(error).__name__}: {error}",
            pipeline=pipeline,
        )
    text = str(error)
    if "UnknownTopicOrPartitionException" in text and "not present in metadata" not in text:
        return MissingSourceTopicException(
            f"pipeline {pipeline}: a source topic is gone: one of {', '.join(sorted(topics))}; "
            "create it or change the topology, then start a new client",
            tuple(sorted(topics)),
        )
    classes = [name for name in _ERROR_CLASS.findall(text) if name not in _GENERIC]
    meaning = next((meaning for mark, meaning in _MEANING if mark in text), None)
    head = f"pipeline {pipeline}: its query failed" + (f": {meaning}" if meaning else "")
    return PipelineException(
        f"{head}\n{_telling(text)}", pipeline=pipeline, error_class=classes[0] if classes else None
    )


def _telling(text: str) -> str:
    """Spark's message without the plan and the JVM's stack."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith(("\tat ", "=== ", "== ", "JVM stacktrace", "Driver stacktrace")):
            if kept:
                break
            continue
        kept.append(line)
    return "\n".join(kept[:40]).strip()
