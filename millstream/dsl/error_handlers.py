"""Your own record-level handlers: classes that decide about each failed record, in Python.

Only failed records reach them, in batches, in a Python worker beside the task that met them. That task
carries out their answers, in its transaction. Configure a handler as a class or an instance:

    {"processing.exception.handler": Refusals}

    class Refusals(ProcessingExceptionHandler):
        def handle_error(self, context, record, exception):
            return ErrorHandlerResponse.resume([context.dead_letter("refused", exception)])

Source: KIP-161, KIP-210, KIP-1033, KIP-1034, KIP-1065; org.apache.kafka.streams.errors.
"""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from millstream.model import TaskId

__all__ = [
    "ConsumerRecord",
    "DeserializationExceptionHandler",
    "ErrorHandlerContext",
    "ErrorHandlerResponse",
    "ErrorHandlerResult",
    "ExceptionHandler",
    "FailedRecord",
    "ProcessingExceptionHandler",
    "ProducerRecord",
    "ProductionExceptionHandler",
    "SerializationExceptionOrigin",
]

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record as it was read: key and value in bytes, `timestamp` in milliseconds since the epoch.

    Source: org.apache.kafka.clients.consumer.ConsumerRecord.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record to write. `partition` None: by the key; `timestamp` in milliseconds, None: now.

    Key and value of a dead letter are bytes or None. The record passed to `handle_serialization_error` has
    the values that could not be written.

    Source: org.apache.kafka.clients.producer.ProducerRecord.
    """

    topic: str
    key: Any = None
    value: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record as passed to the node: key and value as Python values, `timestamp` in milliseconds.

    Source: org.apache.kafka.streams.processor.api.Record, in a ProcessingExceptionHandler.
    """

    key: Any
    value: Any
    timestamp: int
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class ErrorHandlerContext:
    """Where a record failed.

    Attributes:
        topic, partition, offset: of the source record that was being processed; None, -1 and -1 for the
            results of an aggregation, which do not come from a single record.
        headers: of the record.
        processor_node_id: the node, `KSTREAM-MAPVALUES-0000000001`.
        task_id: None if unknown: for a result of an aggregation, or in a pipeline of several subtopologies.
        timestamp: of the record, in milliseconds since the epoch.
        source_raw_key, source_raw_value: the bytes that were read; None when `topic` is.

    Source: org.apache.kafka.streams.errors.ErrorHandlerContext.
    Differs: a production handler also gets the bytes that were read.
    """

    topic: str | None
    partition: int
    offset: int
    headers: Headers
    processor_node_id: str
    task_id: TaskId | None
    timestamp: int
    source_raw_key: bytes | None
    source_raw_value: bytes | None

    def dead_letter(self, topic: str, exception: Exception) -> ProducerRecord:
        """The record that a ready-made handler would write to a dead letter queue: the bytes that were read,
        with headers that say what failed, where and why.

        Source: KIP-1034, org.apache.kafka.streams.errors.internals.ExceptionHandlerUtils.
        """
        name = f"{type(exception).__module__}.{type(exception).__qualname__}"
        texts = {
            "exception": name.removeprefix("builtins."),
            "message": str(exception),
            "stacktrace": "".join(traceback.format_exception(exception)) + f"\tat {self.processor_node_id}",
            "topic": self.topic or "",
            "partition": str(self.partition),
            "offset": str(self.offset),
        }
        said = tuple((f"__streams.errors.{name}", text.encode()) for name, text in texts.items())
        return ProducerRecord(
            topic,
            self.source_raw_key,
            self.source_raw_value,
            timestamp=self.timestamp,
            headers=self.headers + said,
        )


class ErrorHandlerResult(Enum):
    """What happens to a failed record and its pipeline."""

    RESUME = "resume"
    FAIL = "fail"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class ErrorHandlerResponse:
    """A handler's answer; made by `resume`, `fail` and `retry`.

    Source: DeserializationExceptionHandler.Response and its like in Kafka Streams 4.2.
    """

    result: ErrorHandlerResult
    dead_letter_queue_records: tuple[ProducerRecord, ...] = ()

    @classmethod
    def resume(cls, dead_letter_queue_records: Iterable[ProducerRecord] = ()) -> ErrorHandlerResponse:
        """The record goes no further, and is counted as dropped; these records are written."""
        return cls(ErrorHandlerResult.RESUME, tuple(dead_letter_queue_records))

    @classmethod
    def fail(cls, dead_letter_queue_records: Iterable[ProducerRecord] = ()) -> ErrorHandlerResponse:
        """The pipeline ends, and its thread's uncaught exception handler is called.

        With processing.guarantee=at_least_once these records are written first; with exactly-once they are
        rolled back with the transaction.
        """
        return cls(ErrorHandlerResult.FAIL, tuple(dead_letter_queue_records))

    @classmethod
    def retry(cls) -> ErrorHandlerResponse:
        """Of a production handler: write the record again.

        As in Kafka Streams it means fail where writing again cannot help. Here that is every case a handler
        sees: the producer itself retries what can be retried.
        """
        return cls(ErrorHandlerResult.RETRY)


class SerializationExceptionOrigin(Enum):
    """Which part of a record could not be written.

    Source: ProductionExceptionHandler.SerializationExceptionOrigin, KIP-1033.
    """

    KEY = "key"
    VALUE = "value"


class ExceptionHandler(ABC):  # noqa: B024 - the abstract method has another type in each
    """The common base of the three handlers.

    A class is instantiated without arguments in each Python worker; an instance is pickled and sent
    there. So each worker has its own, and does not share its state. What it prints goes to the client's
    stderr.
    """

    Response: ClassVar[type[ErrorHandlerResponse]] = ErrorHandlerResponse
    """Kafka Streams' name for it: `ProcessingExceptionHandler.Response.resume()`."""

    def configure(self, configs: Mapping[str, Any]) -> None:  # noqa: B027 - optional
        """Called once in each worker, before anything else, with the client's configuration.

        It gets the settings that are text, numbers or booleans, or lists of them. Secrets are left out: they
        do not leave the client. A handler that needs one reads it where it runs.

        Source: org.apache.kafka.common.Configurable.
        """


class DeserializationExceptionHandler(ExceptionHandler):
    """Called for each record whose key or value the serde cannot read.

    Source: org.apache.kafka.streams.errors.DeserializationExceptionHandler, KIP-161.
    Differs: not called for changelogs. A store that reads a table's topic calls it on the client, besides the
        pipeline; then the record has no headers, and dead letters are not written.
    """

    @abstractmethod
    def handle_error(
        self, context: ErrorHandlerContext, record: ConsumerRecord, exception: Exception
    ) -> ErrorHandlerResponse:
        """Decide about one record; `exception` is a SerializationException that names it."""


class ProcessingExceptionHandler(ExceptionHandler):
    """Called for each record for which the Columns of a function raise.

    Source: org.apache.kafka.streams.errors.ProcessingExceptionHandler, KIP-1033.
    Differs: not called for an exception in Python (a UDF, a fold, `peek`) or in the Columns of `aggregate`,
        which
    ends the pipeline: Spark cannot tell which record it was.
    """

    @abstractmethod
    def handle_error(
        self, context: ErrorHandlerContext, record: FailedRecord, exception: Exception
    ) -> ErrorHandlerResponse:
        """Decide about one record.

        `exception` is a StreamsException that names the node, the function and its line. Spark does not
        report the original exception; `record` has the function's input.
        """


class ProductionExceptionHandler(ExceptionHandler):
    """Called for each record that its serde cannot write, or that Kafka rejects.

    Source: org.apache.kafka.streams.errors.ProductionExceptionHandler, KIP-210, KIP-399, KIP-1065.
    Differs: not called for failures that are no record's fault (no such topic, no permission, no answer), nor
        for
    changelog records, without which a store would be wrong: these end the pipeline.
    """

    @abstractmethod
    def handle_error(
        self, context: ErrorHandlerContext, record: ProducerRecord, exception: Exception
    ) -> ErrorHandlerResponse:
        """Decide about a record that is too large, or that Kafka rejects; `exception` says why."""

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> ErrorHandlerResponse:
        """Decide about a record whose key or value the serde cannot write. The default is to fail."""
        return ErrorHandlerResponse.fail()
