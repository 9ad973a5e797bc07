"""Exactly-once checks before a query starts: older runs are fenced, and the checkpoint is up to date.

A micro-batch is written once because, when it is repeated, each sink partition finds in its marker (in Kafka)
that it has already been written (kernel/src/io/millstream/kernel/sink). That compares batch numbers, which
are meaningful only together with the checkpoint that counts them. A checkpoint that was restored from a
backup, or lost its last files in a power cut, uses some numbers twice, with different records. Then the
markers are ahead of it, and that is refused here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.errors import CheckpointException, ConfigException, StreamsException
from millstream.ports import CheckpointClaim, CheckpointFiles
from millstream.spark.jvm.java_names import java_class
from millstream.spark.run.failures import Report, causes_of, translate

__all__ = ["check_session", "end_run", "report_of_java", "take_over", "written"]

log = logging.getLogger(__name__)

_REFUSED: Mapping[str, tuple[str, str]] = {
    "spark.speculation": ("true", "two attempts at a task would take the transaction from each other"),
    "spark.sql.adaptive.streaming.stateless.enabled": (
        "true",
        "a batch that is repeated could have other sink partitions",
    ),
}
"""Settings of Spark with which a batch would not come out the same when it is repeated."""


def check_session(spark: SparkSession) -> None:
    """Raises a ConfigException where the session has a setting that exactly once does not go with."""
    context: Any = spark.sparkContext
    for name, (refused, why) in _REFUSED.items():
        value = _in_effect(spark, name) if name.startswith("spark.sql.") else context.getConf().get(name)
        if str(value).lower() == refused:
            raise ConfigException(
                f"'{name}' is {value}, which does not go with processing.guarantee=exactly_once_v2: {why}; "
                "leave it out"
            )


def take_over(
    spark: SparkSession, sink: Mapping[str, str], files: CheckpointFiles, claim: CheckpointClaim
) -> None:
    """Have Kafka fence all earlier runs of the pipeline, and compare its markers with the checkpoint.

    Args:
        sink: the writer's options, of a run that has not begun.
        files: of the claimed checkpoint itself.

    Raises:
        CheckpointException: the checkpoint is older than what was written.
        StreamsException: Kafka refuses, or cannot be reached.
    """
    try:
        runs = _of_kernel(spark, "Run")
        query, last, done = _query_of(files), _last(files, "offsets"), _last(files, "commits")
        if last is not None and last != done and not runs.isKnown(sink):
            log.warning(
                "pipeline %s: micro-batch %d was begun, and Kafka has no marker of it: it was begun with "
                "another processing.guarantee, or so long ago that the broker has forgotten the marker "
                "(offsets.retention.minutes). Records that it has written by then are written again",
                claim.pipeline,
                last,
            )
        # What sink partitions there will be is not known yet; the run counts more of them when it has them.
        runs.claim(sink, 0)
        next_batch = int(runs.written(sink, query)) if query is not None else 0
    except (Py4JError, OSError) as error:
        raise _translated(error, claim)  # noqa: B904 - it has a cause
    if last is not None and last != done and next_batch == last + 1:
        log.warning(
            "pipeline %s: micro-batch %d was written in part; it is repeated without the records that are "
            "already there",
            claim.pipeline,
            last,
        )
    if next_batch > (0 if last is None else last + 1):
        raise CheckpointException(
            f"pipeline {claim.pipeline}: its checkpoint is older than what it has written: Kafka has markers "
            f"up to micro-batch {next_batch - 1}, and the checkpoint has begun "
            f"{'none' if last is None else f'{last} at most'}. It was put back from a backup, or has lost "
            "files. Going on would leave records out; put the newest checkpoint back, or start afresh with "
            "`millstream reset`",
            pipeline=claim.pipeline,
            path=claim.path,
        )


def written(
    spark: SparkSession, sink: Mapping[str, str], files: CheckpointFiles, claim: CheckpointClaim
) -> int:
    """As `Engine.written`. All earlier runs are fenced: what they have left open is settled by that."""
    try:
        query, runs = _query_of(files), _of_kernel(spark, "Run")
        if query is None:
            return 0
        runs.claim(sink, 0)
        return int(runs.written(sink, query))
    except (Py4JError, OSError) as error:
        raise _translated(error, claim)  # noqa: B904 - it has a cause


def end_run(spark: SparkSession, sink: Mapping[str, str]) -> None:
    """Close what a run has left in Spark's Java process; its query has ended."""
    try:
        _of_kernel(spark, "Producers").endRun(sink["run"])
    except Exception:  # the process may be gone, and all of it with it
        log.debug("the producers of a run could not be closed", exc_info=True)


def _in_effect(spark: SparkSession, name: str) -> str | None:
    """A setting's value, which may be Spark's own default; None: this Spark does not have the setting."""
    try:
        return spark.conf.get(name)
    except PySparkException:
        return None


def _translated(error: Py4JError | OSError, claim: CheckpointClaim) -> StreamsException:
    return translate(claim.pipeline, (), error, claim=claim, report=report_of_java(error))


def report_of_java(error: BaseException) -> Report | None:
    """What a call of the kernel's was refused for; None: Java has not said."""
    if not isinstance(error, Py4JJavaError):
        return None
    causes = tuple(causes_of(error.java_exception))
    return Report("; ".join(f"{name}: {message}" for name, message in causes[:1]), causes=causes)


def _of_kernel(spark: SparkSession, name: str) -> Any:
    return java_class(spark._jvm, f"io.millstream.kernel.sink.{name}")


def _query_of(files: CheckpointFiles) -> str | None:
    """The id of the query that the checkpoint is of; None: it is new."""
    content = files.read("metadata")
    try:
        return None if content is None else str(json.loads(content)["id"])
    except (ValueError, KeyError, TypeError):
        return None  # Spark will say that it is damaged


def _last(files: CheckpointFiles, directory: str) -> int | None:
    """The newest micro-batch that a log of the checkpoint has."""
    return max((int(name) for name in files.list(directory) if name.isdecimal()), default=None)
