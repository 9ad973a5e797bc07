"""Translates Spark's errors into Millstream's exceptions: one table, and the only code that parses them.

It has two halves. `report_of` asks the JVM for everything it knows about a query's end: the chain of
exceptions with their classes, the offsets, the batch. `translate` is pure: a report in, an exception
out. It also accepts a text alone, for when the JVM can no longer be asked.

What a Python function raised arrives as text, and the exception is rebuilt from it (worker_errors.py).

A record's content can be part of Spark's messages. So a marker is searched for only where Spark, Hadoop or
Kafka wrote the text: in an error class, the name of a Java class, or the beginning of a message.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import AnalysisException

from millstream.errors import (
    ExecutorLostException,
    LostTopicException,
    MissingSourceTopicException,
    PipelineException,
    PythonWorkerException,
    SchemaRegistryException,
    SerializationException,
    StreamsException,
    TaskMigratedException,
)
from millstream.model import TopicPartition
from millstream.spark.run.worker_errors import rebuilt
from millstream.spark.worker.handler_calls import HandlerError
from millstream.spark.worker.processing import ProcessorError

__all__ = [
    "Report",
    "causes_of",
    "first_line",
    "is_fenced",
    "is_jvm_lost",
    "report_of",
    "report_of_java",
    "translate",
    "unreadable",
    "without_plan",
]

log = logging.getLogger(__name__)

_ERROR_CLASS = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_GENERIC = {"STREAM_FAILED", "TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR"}
_PYTHON = "PYTHON_EXCEPTION"
_RAISED = "USER_RAISED_EXCEPTION"
_PYTHON_BATCH = "FOREACH_BATCH_USER_FUNCTION_ERROR"
"""A user's function that gets batches, on the driver."""
_STATEFUL = "TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR"
"""Says that the kernel's operator failed, but not why."""
_MAX_CAUSES = 12

_Kind = tuple[type[PipelineException], str]
_CHECKPOINT: _Kind = (
    PipelineException,
    "files of its checkpoint (checkpoint.location) are missing or damaged; restore them, or delete the "
    "checkpoint: the query then reads its topic from the beginning",
)
_LOSS: _Kind = (PipelineException, "records were deleted from a source topic before they were read")
_WORKER: _Kind = (
    PythonWorkerException,
    "a Python worker was killed or crashed: out of memory, or native code of a function's library failed",
)
_EXECUTORS: _Kind = (
    ExecutorLostException,
    "executors of the Spark cluster were lost, and a task with them more often than Spark retries it; see "
    "the cluster's log, and give them more memory (spark.executor.memory)",
)

_BY_CLASS: tuple[tuple[str, _Kind], ...] = (
    ("KAFKA_DATA_LOSS", _LOSS),
    ("STREAMING_CHECKPOINT_MISSING_METADATA_FILE", _CHECKPOINT),
    ("STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY", _CHECKPOINT),
    ("CANNOT_LOAD_STATE_STORE", _CHECKPOINT),
    ("MALFORMED_LOG_FILE", _CHECKPOINT),
    ("CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED", _CHECKPOINT),
)
"""The beginning of a Spark error class, our exception for it, and what it means."""

_BY_MARK: tuple[tuple[str, _Kind], ...] = (
    ("Some data may have been lost", _LOSS),
    ("ExecutorLostFailure", _EXECUTORS),
    (
        "RecordTooLargeException",
        (PipelineException, "a record is larger than the topic or the producer accepts (max.request.size)"),
    ),
    (
        "ArithmeticException: a sum does not fit a bigint",
        (PipelineException, "a sum does not fit a bigint; sum decimals or doubles"),
    ),
    ("No space left on device", (PipelineException, "a disk is full")),
    (
        "OutOfMemoryError",
        (PipelineException, "Spark ran out of memory; give it more: spark.driver.memory"),
    ),
    ("Python worker exited unexpectedly", _WORKER),
    ("Failed to read log file", _CHECKPOINT),
    (
        "as configured by transaction.max.timeout.ms",
        (
            PipelineException,
            "transaction.timeout.ms is larger than the brokers allow: lower producer.transaction.timeout.ms "
            "to their transaction.max.timeout.ms, or raise the latter. It has to be longer than from one "
            "commit to the next",
        ),
    ),
    (
        "TransactionalIdAuthorizationException",
        (
            PipelineException,
            "this client's Kafka user is not allowed to use the application's transactional ids: allow it "
            "Describe and Write on transactional ids with the prefix '<application.id>-' (kafka-acls --add "
            "--allow-principal User:<user> --operation Describe --operation Write --transactional-id "
            "<application.id>- --resource-pattern-type prefixed)",
        ),
    ),
    (
        "GroupAuthorizationException",
        (
            PipelineException,
            "this client's Kafka user is not allowed to use the application's group: allow it Read on the "
            "group '<application.id>' (kafka-acls --add --allow-principal User:<user> --operation Read "
            "--group <application.id>)",
        ),
    ),
    (
        "AuthorizationException",
        (PipelineException, "Kafka refuses: this client's user lacks the permissions it needs"),
    ),
    (
        "while awaiting InitProducerId",
        (
            PipelineException,
            "Kafka did not confirm the beginning of a transaction within producer.max.block.ms; check its "
            "brokers, including those of the topic __transaction_state",
        ),
    ),
    (
        "while awaiting AddOffsetsToTxn",
        (
            PipelineException,
            "Kafka did not accept the offsets of a commit within producer.max.block.ms; check its brokers, "
            "including those of the topic __consumer_offsets",
        ),
    ),
    (
        "while awaiting EndTxn",
        (
            PipelineException,
            "Kafka did not confirm the end of a transaction within producer.max.block.ms; check its "
            "brokers. If it was committed, it is not repeated",
        ),
    ),
    (
        "Timed out waiting for a node assignment",
        (PipelineException, "the Kafka cluster did not answer"),
    ),
)
"""The same for the name of a Java class or a message, where no error class says more."""

# Anchored at the beginning of a word, and no longer than a name: a message may quote a record of megabytes,
# and matching from each of its characters would take hours.
_UNREADABLE = re.compile(
    r"(?<![\w.-])(?P<topic>[\w.-]{1,249})-(?P<partition>\d{1,10}) offset (?P<offset>\d+) (?:key|value): "
    r"serde '[^']+' cannot read these \d+ bytes[^\n]*?(?= SQLSTATE|\n|\Z)"
)
_NO_TIMESTAMP = re.compile(
    r"Record at topic (?P<topic>\S+) partition (?P<partition>\d+) offset (?P<offset>\d+) "
    r"has timestamp value (?P<value>-?\d+) that overflows"
)
_UNWRITABLE = re.compile(r"a value with the serde '\w+' is not [^\n\[]*?(?= SQLSTATE|\n|\Z)")
_CALLED_FROM = re.compile(
    r"== DataFrame ==\n\"(?P<what>\w+)\" was called from\n"
    r"(?P<file>[^\n]{1,4096}?):(?P<line>\d{1,9}) \((?P<place>[^\n]{1,4096})\)(?=\n|\Z)"
)
"""What guarded.py has Spark remember about an expression."""
_NO_SINK_TOPIC = re.compile(r"Topic (\S+) not present in metadata")
_EXPIRED = re.compile(r"Expiring \d+ record\(s\) for (\S+)-\d+:")
_REFUSED = "io.millstream.kernel.sink.RecordRefusedException"
"""What the sink says about a record that Kafka refused: topic, sizes, reason and remedy."""
_FAILED = "io.millstream.kernel.sink.RecordFailedException"
"""What the sink says about a record for which the user's own handler returned 'fail'."""
_NOT_ASKED = "io.millstream.kernel.serdes.RegistryError"
"""What an executor says if it could not reach the schema registry."""
_TASK_MOVED = "io.millstream.kernel.task.TaskMovedException"
_TOPIC_LOST = "io.millstream.kernel.task.TopicLostException"
_NO_OFFSET = "io.millstream.kernel.task.NoOffsetException"
_LOST_TOPIC = re.compile(r"topic '([^']+)' (?:(was deleted and made anew)|does not exist(; its id was)?)")
_UNWRITTEN = "io.millstream.kernel.serdes.UnwritableException"
_TAKEN_BACK = frozenset(
    (
        "org.apache.kafka.common.errors.ProducerFencedException",
        "org.apache.kafka.common.errors.InvalidProducerEpochException",
        "org.apache.kafka.common.errors.InvalidPidMappingException",
        "org.apache.kafka.common.errors.UnknownProducerIdException",
        "org.apache.kafka.common.errors.TransactionAbortableException",
    )
)
"""The errors by which a task has migrated. Source: RecordCollectorImpl, StreamsProducer.isRecoverable."""


@dataclass(frozen=True, slots=True)
class Report:
    """What is known about a query's end.

    Attributes:
        text: Spark's message, without the plan and the JVM's stack.
        causes: class and message of the exceptions behind it, the outermost first.
        start, end: the offsets committed and those reached, as Spark writes them.
        batch_id: the batch that was running or next; None: unknown.
        jvm: how the JVM ended, if it has.
    """

    text: str
    causes: tuple[tuple[str, str], ...] = ()
    start: str = ""
    end: str = ""
    batch_id: int | None = None
    jvm: str = ""

    @classmethod
    def of_text(cls, text: str) -> Report:
        """The report that an exception's text alone gives."""
        return cls(
            _without_plan(text),
            (),
            _line(text, "Current Committed Offsets:"),
            _line(text, "Current Available Offsets:"),
        )


def report_of(query: Any, error: BaseException) -> Report:
    """Everything the JVM knows about the end of a StreamingQuery. Never raises."""
    report = Report.of_text(_text(error))
    if is_jvm_lost(error):
        return report
    try:
        found = query._jsq.exception()
        if found.isDefined():
            java = found.get()
            start, end = str(java.startOffset() or ""), str(java.endOffset() or "")
            report = replace(report, causes=tuple(causes_of(java.getCause())), start=start, end=end)
        batch = int(query._jsq.streamingQuery().getLatestExecutionContext().batchId())
        return replace(report, batch_id=batch if batch >= 0 else None)
    except Exception:  # Spark's classes differ by version; the text is available in any case
        log.debug("what Spark knows of a failure could not be read", exc_info=True)
        return report


def translate(
    pipeline: str,
    topics: tuple[str, ...],
    error: BaseException,
    *,
    report: Report | None = None,
) -> StreamsException:
    """The exception that a thread sees for a query that ended with `error`; that, or what a Python function
    raised, is its `__cause__`.

    Args:
        topics: the pipeline's source topics, for Spark's errors that name none.
        report: what `report_of` found; by default, what the text of `error` says.
    """
    report = report or Report.of_text(_text(error))
    head = f"pipeline {pipeline}: its query failed"
    classes = _classes(report)
    error_class = classes[0] if classes else None
    offsets = _ranges(report)
    translated: StreamsException
    cause = error
    if is_jvm_lost(error):
        translated = PipelineException(
            f"pipeline {pipeline}: Spark's Java process is gone: {report.jvm or _LOST}; "
            f"{type(error).__name__}: {error}",
            pipeline=pipeline,
        )
    elif any(name.startswith("CONCURRENT_STREAM_LOG_UPDATE") for name in classes):
        translated = TaskMigratedException(
            f"pipeline {pipeline}: another client continues from its checkpoint, and unfinished work of this "
            "one does not count"
        )
    elif moved := _message(report, _TASK_MOVED) or _transaction_lost(report):
        translated = TaskMigratedException(
            f"pipeline {pipeline}: {moved}. What this client had not committed does not count. If no other "
            "client has the task and this happens repeatedly, allow longer transactions "
            "(producer.transaction.timeout.ms, and the brokers' transaction.max.timeout.ms)"
        )
    elif missing := _lost_by_task(pipeline, topics, report) or _missing(pipeline, topics, report, classes):
        translated = missing
    elif gone := _lost(pipeline, report, classes):
        translated = gone
    else:
        kind, message = PipelineException, f"{head}\n{report.text}"
        remote = rebuilt(_python_text(report)) if error_class == _PYTHON else None
        if f"[{_PYTHON_BATCH}]" in report.text[:300]:
            remote, error_class = rebuilt(report.text), _PYTHON_BATCH
        if remote is not None:
            cause = remote.error
            message = f"{head}: a Python function raised {remote.line}"
            message += f"\n{remote.place}" if remote.place else ""
            if isinstance(cause, HandlerError | ProcessorError):
                message, cause = f"{head}: {cause}", cause.__cause__ or cause
        elif (said := _message(report, _FAILED)) is not None:
            message, cause = f"{head}: {said}", unreadable(said)
            cause.__cause__ = error
        elif error_class == _PYTHON:
            message = f"{head}: a Python function failed\n{report.text}"
        elif (said := _message(report, _NOT_ASKED)) is not None:
            cause = SchemaRegistryException(said)
            cause.__cause__ = error
            message = f"{head}: {said}"
        elif unfit := _unfit(report, classes):
            cause = unfit
            cause.__cause__ = error
            message = f"{head}: {_which(unfit)}\n{unfit}{_remedy(str(unfit))}"
        elif said := _message(report, _REFUSED) or _message(report, _NO_OFFSET):
            message = f"{head}: {said}"
        elif (expression := _expression(_text(error), report)) is not None:
            message = f"{head}: {expression}\n{report.text}"
        elif (found := _meaning(report, classes)) is not None:
            kind, message = found[0], f"{head}: {found[1]}\n{report.text}"
        translated = kind(
            message,
            pipeline=pipeline,
            error_class=error_class,
            offsets=offsets,
            batch_id=report.batch_id if offsets else None,
        )
    translated.__cause__ = cause
    return translated


def report_of_java(error: BaseException) -> Report | None:
    """What a call of the kernel's was refused for; None: Java has not said."""
    if not isinstance(error, Py4JJavaError):
        return None
    causes = tuple(causes_of(error.java_exception))
    return Report("; ".join(f"{name}: {message}" for name, message in causes[:1]), causes=causes)


def first_line(text: str) -> str:
    """The first non-empty line of a text."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def without_plan(error: Exception) -> Exception:
    """An AnalysisException without the plan in its message, which the log gets instead, at DEBUG; any other
    exception as it is.

    The plan of a pipeline is a hundred thousand characters, in which the sentence before it is lost.
    """
    if not isinstance(error, AnalysisException):
        return error
    log.debug("Spark's analysis failed: %s", error)
    line = first_line(_text(error)).rstrip(";")
    if len(line) > _SENTENCE:
        line = f"{line[:_SENTENCE]}..."
    condition = error.getCondition()
    return AnalysisException(line.removeprefix(f"[{condition}] "), errorClass=condition)


_SENTENCE = 600
"""How much of the sentence is given: it may have the whole type of a row in it."""


# --- what kind of failure ----------------------------------------------------------------------------------


def is_jvm_lost(error: BaseException | None) -> bool:
    """Whether Spark's JVM did not answer because it is gone."""
    return isinstance(error, (ConnectionError, EOFError, Py4JNetworkError))


_LOST = "it was killed, or ran out of memory (spark.driver.memory)"


def is_fenced(report: Report) -> bool:
    """Whether a producer was fenced by another one with the same transactional id."""
    fenced = ("ProducerFencedException", "InvalidProducerEpochException")
    said = "\n".join((report.text, *(name for name, _ in report.causes)))
    return any(name in said for name in fenced)


def _transaction_lost(report: Report) -> str | None:
    """What Kafka says if it has aborted a transaction."""
    return next((message for name, message in report.causes if name in _TAKEN_BACK), None)


def _message(report: Report, name: str) -> str | None:
    """What the kernel's exception of this class says; None: there was none."""
    for found, message in report.causes:
        if found == name:
            return first_line(message)
    return first_line(report.text.partition(f"{name}: ")[2]) or None


def _lost_by_task(
    pipeline: str, topics: tuple[str, ...], report: Report
) -> MissingSourceTopicException | LostTopicException | None:
    """What a task says of a topic that is not the one that it was."""
    said = _message(report, _TOPIC_LOST)
    found = None if said is None else _LOST_TOPIC.match(said)
    if said is None or found is None:
        return None
    topic, recreated, was_there = found.groups()
    patterns = [each.removeprefix("pattern '")[:-1] for each in topics if each.startswith("pattern '")]
    is_source = topic in topics or any(re.fullmatch(pattern, topic) for pattern in patterns)
    kind = MissingSourceTopicException if is_source else LostTopicException
    what = f"source topic '{topic}'" if is_source else f"topic '{topic}', which it writes to,"
    if recreated:
        ids = said.partition(": ")[2].partition(";")[0]
        keep = ", or give source.lost.policy=from-beginning, which keeps the state" if is_source else ""
        text = f"{what} was deleted and created again under it ({ids}). Reset the application{keep}"
    elif is_source:
        text = f"{what} is gone; create it or change the topology, then start a new client"
    else:
        text = f"{what} does not exist; create it, then start a new client"
    return kind(
        f"pipeline {pipeline}: {text}",
        (topic,),
        deleted=(topic,) if was_there else (),
        recreated=(topic,) if recreated else (),
    )


def unreadable(said: str) -> StreamsException:
    """The exception for an unreadable record, from a sentence that names it if its bytes cannot be read."""
    if (read := _UNREADABLE.match(said)) is None:
        return StreamsException(said)
    return SerializationException(
        said, topic=read["topic"], partition=int(read["partition"]), offset=int(read["offset"])
    )


def _missing(
    pipeline: str, topics: tuple[str, ...], report: Report, classes: list[str]
) -> MissingSourceTopicException | None:
    """Whether a source topic is gone, or was replaced by another of the same name."""
    if classes and not classes[0].startswith("KAFKA_"):
        return None
    marks = " ".join((*(name for name, _ in report.causes), report.text))
    if "UnknownTopicOrPartitionException" not in marks or "Job aborted" in report.text:
        return None  # in a task it is the sink that met it
    names = tuple(sorted(topics))
    which = (
        f"source topic '{names[0]}' is gone"
        if len(names) == 1
        else (f"a source topic is gone: one of {', '.join(names)}")
    )
    was_read = {at.topic for at in _positions(report.start)}
    return MissingSourceTopicException(
        f"pipeline {pipeline}: {which}; create it or change the topology, then start a new client",
        names,
        deleted=names if len(names) == 1 and was_read.issuperset(names) else (),
    )


def _lost(pipeline: str, report: Report, classes: list[str]) -> LostTopicException | None:
    """Whether a topic that is written is gone."""
    if classes:
        return None
    missing = _NO_SINK_TOPIC.search(report.text)
    if missing is None and "UnknownTopicOrPartitionException" not in report.text:
        return None
    which = f"topic '{missing[1]}', which it writes to, does" if missing else "a topic that it writes to does"
    return LostTopicException(
        f"pipeline {pipeline}: {which} not exist; create it, then start a new client",
        (missing[1],) if missing else (),
    )


def _unfit(report: Report, classes: list[str]) -> SerializationException | None:
    """What cannot be read of a record, which is named, or a value that cannot be written."""
    said = "\n".join(message for _, message in report.causes) or report.text
    if not classes and (time := _NO_TIMESTAMP.search(said)):
        at = f"{time['topic']}-{time['partition']} offset {time['offset']}"
        return SerializationException(
            f"{at}: its timestamp {time['value']} is not a valid time in milliseconds for Spark's Kafka "
            "connector (was it written in nanoseconds?), so no handler can skip it. Have the broker refuse "
            "such records with the topic's message.timestamp.after.max.ms, or stamp them itself with "
            "message.timestamp.type=LogAppendTime; then let the application continue after this record with "
            "`millstream reset`",
            topic=time["topic"],
            partition=int(time["partition"]),
            offset=int(time["offset"]),
        )
    for name, message in report.causes:
        if name == _UNWRITTEN:
            return SerializationException(first_line(message))
    if _RAISED not in classes:
        return None
    said = "\n".join(message for _, message in report.causes if message.startswith(f"[{_RAISED}]")) or said
    if read := _UNREADABLE.search(said):
        return SerializationException(
            read[0], topic=read["topic"], partition=int(read["partition"]), offset=int(read["offset"])
        )
    written = _UNWRITABLE.search(said)
    return SerializationException(written[0]) if written else None


def _which(unfit: SerializationException) -> str:
    """The record by its position: this line goes to other clients and dashboards, so it quotes no data."""
    if unfit.offset is None:
        return "a record cannot be read or written"
    return f"the record at {unfit.topic}-{unfit.partition} offset {unfit.offset} cannot be read"


def _remedy(unfit: str) -> str:
    """What to do about bytes that cannot be read; nothing for a record that no handler can skip."""
    return f"; {_SKIPPING}" if _UNREADABLE.match(unfit) else ""


_SKIPPING = "to skip such records, set deserialization.exception.handler (docs/how-to/handle-bad-records.md)"


def _expression(whole: str, report: Report) -> str | None:
    """The expression that could not be computed for a record: the function, and its line.

    Spark puts it after its message, which may quote a record; so the last match is the right one.
    """
    said = [message for _, message in report.causes] or [whole]
    found = [match for text in said for match in _CALLED_FROM.finditer(text)]
    if not found:
        return None
    last = found[-1]
    what = _OPERATORS.get(last["what"], last["what"])
    text = f"{last['place']}: {what} at {Path(last['file']).name}:{last['line']} failed for a record"
    if what == "+" and "CAST_INVALID_INPUT" in report.text:
        text += "; + adds numbers, text is joined with F.concat(...)"
    return text


_OPERATORS = {
    "__add__": "+",
    "__radd__": "+",
    "__sub__": "-",
    "__rsub__": "-",
    "__neg__": "-",
    "__mul__": "*",
    "__rmul__": "*",
    "__truediv__": "/",
    "__rtruediv__": "/",
    "__mod__": "%",
    "__rmod__": "%",
    "__pow__": "**",
    "__rpow__": "**",
    "__getitem__": "[...]",
    "__getattr__": "a field",
    "__eq__": "==",
    "__ne__": "!=",
    "__lt__": "<",
    "__le__": "<=",
    "__gt__": ">",
    "__ge__": ">=",
}
"""How a program writes what PySpark names differently."""


def _meaning(report: Report, classes: list[str]) -> _Kind | None:
    """The failure's kind, and its meaning in our words; None: Spark says it best."""
    for name in [name for name in classes if not name.startswith(_STATEFUL)][:1]:
        # Where Spark has a name for it, the rest may be a record's content.
        return next((kind for beginning, kind in _BY_CLASS if name.startswith(beginning)), None)
    expired = _EXPIRED.search(report.text)
    if expired is not None:
        return (
            PipelineException,
            f"topic '{expired[1]}', which the pipeline writes to, accepted no records within "
            "delivery.timeout.ms; check that it exists with as many partitions as before, and that its "
            "brokers work",
        )
    said = "\n".join((report.text, *(f"{name}: {message}" for name, message in report.causes)))
    return next((kind for mark, kind in _BY_MARK if mark in said), None)


def _classes(report: Report) -> list[str]:
    """Spark's error classes, the most informative one first."""
    said = [message[:200] for _, message in report.causes] if report.causes else [report.text]
    return [name for text in said for name in _ERROR_CLASS.findall(text) if name not in _GENERIC]


def _python_text(report: Report) -> str:
    """The worker's own exception text, rather than one that quotes it and adds something."""
    said = [message for _, message in report.causes if _PYTHON in message[:200]]
    own = [message for message in said if message.startswith(f"[{_PYTHON}]")]
    return next(iter([*own, *said]), report.text)


# --- reading Spark's texts ---------------------------------------------------------------------------------


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # PySpark's exceptions call the JVM, which may be gone
        return repr(type(error))


def causes_of(java: Any) -> Iterator[tuple[str, str]]:
    """Class and message of a Java exception and of its causes."""
    for _ in range(_MAX_CAUSES):
        if java is None:
            return
        yield str(java.getClass().getName()), str(java.getMessage() or "")
        java = java.getCause()


def _without_plan(text: str) -> str:
    """Spark's message without the plan and the JVM's stack."""
    kept: list[str] = []
    for line in text.splitlines():
        if line.startswith(("\tat ", "=== ", "== ", "JVM stacktrace", "Driver stacktrace")):
            if kept:
                break
            continue
        kept.append(line)
    return "\n".join(kept[:40]).strip()


def _line(text: str, label: str) -> str:
    """What follows the last occurrence of a label at the beginning of a line."""
    return next(
        (line[len(label) :].strip() for line in reversed(text.splitlines()) if line.startswith(label)), ""
    )


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects within a text."""
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        try:
            found, at = decoder.raw_decode(text, at)
        except ValueError:
            at += 1
            continue
        if isinstance(found, dict):
            yield found


def _positions(text: str) -> dict[TopicPartition, list[int]]:
    """The offsets in a text, by partition; several if several sources read the same topic."""
    positions: dict[TopicPartition, list[int]] = {}
    for found in _objects(text):
        for topic, partitions in found.items():
            if not isinstance(partitions, dict):
                continue
            for partition, offset in partitions.items():
                if isinstance(offset, int) and str(partition).isdecimal():
                    positions.setdefault(TopicPartition(topic, int(partition)), []).append(offset)
    return positions


def _ranges(report: Report) -> dict[TopicPartition, tuple[int, int]]:
    """What the failing batch was to read; empty if there was nothing, or Spark did not say.

    Otherwise it includes the partitions with nothing to read: the positions in all partitions show whether
    the query has got past the previous failure.
    """
    before, after = _positions(report.start), _positions(report.end)
    if not before:
        return {}
    ranges = {at: (min(before.get(at, [0])), max(offsets)) for at, offsets in after.items()}
    return ranges if any(end > first for first, end in ranges.values()) else {}
