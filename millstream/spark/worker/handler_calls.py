"""The user's handlers are asked about failed records: what goes to Python, and what comes back.

A failed record travels to the sink as a row of its own (sink.Question). The kernel's sink collects these, has
a Python worker ask the handler about many at once, and applies the answers in the transaction in which it
writes. The test driver asks in its own process. A worker is started when the first record fails.

The other end is `kernel/src/io/millstream/kernel/sink/Question.java` and `HandlerResult.java`. Numbers are
big-endian; a text or a byte string is preceded by its length, an int32, -1 for null.

    question: int32 place | node, exception, message, topic, raw key, raw value: strings | int32 partition
              int64 offset | int64 timestamp | to, key, value: strings | int32 partition to write to | headers
    answer:   byte 0 continue, 1 fail, 2 not asked because of an earlier fail | said: string
              int32 count of dead letters, each: topic, key, value: strings | int32 partition, -1 by the key
              int64 timestamp, -1 now | headers
    headers:  int32 count, -1 none | each name and value: strings
"""

from __future__ import annotations

import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from millstream.dsl.error_handlers import (
    ConsumerRecord,
    ErrorHandlerContext,
    ErrorHandlerResponse,
    ErrorHandlerResult,
    FailedRecord,
    Headers,
    ProducerRecord,
    SerializationExceptionOrigin,
)
from millstream.errors import SerializationException, StreamsException
from millstream.kernel.constants import ANSWER_CONTINUE, ANSWER_FAIL, ANSWER_NOT_ASKED, PLACE_REFUSED
from millstream.model import TaskId
from millstream.serdes.serde import Serde

__all__ = [
    "Asking",
    "FailurePlace",
    "FieldReader",
    "HandlerError",
    "HandlerResult",
    "Question",
]


class HandlerError(Exception):
    """A handler raised, or did not return an ErrorHandlerResponse. Ends the pipeline, as in Kafka Streams."""


@dataclass(frozen=True)
class FailurePlace:
    """A place in a pipeline where records can fail.

    Attributes:
        kind: 'deserialization', 'processing' or 'production'.
        node: the node's name.
        key, value: how the record's key and value are read in Python; None: as bytes.
        origin: what could not be written; None: the failure was not a write.
    """

    kind: str
    node: str
    key: FieldReader | None = None
    value: FieldReader | None = None
    origin: SerializationExceptionOrigin | None = None


@dataclass(frozen=True)
class FieldReader:
    """A serde, and the `field` to take of what it reads."""

    serde: Serde
    field: str | None = None

    def __call__(self, data: bytes | None) -> Any:
        if data is None:
            return None
        value = self.serde.deserialize(data)
        return value if self.field is None else value[self.field]


@dataclass(frozen=True, slots=True)
class Question:
    """A record that failed. `to` and `partition_to`: where it was to be written, if anywhere."""

    place: int
    node: str
    exception: str
    message: str
    topic: str | None
    raw_key: bytes | None
    raw_value: bytes | None
    partition: int
    offset: int
    timestamp: int
    to: str | None
    key: bytes | None
    value: bytes | None
    partition_to: int
    headers: Headers


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """What to do: `result` is an `ANSWER_` constant of the kernel; `said` is a sentence, why it fails."""

    result: int
    said: str | None = None
    letters: tuple[ProducerRecord, ...] = ()


class Asking:
    """The program of a worker (program_worker.py): questions in, answers out.

    Args:
        handlers: a class or an instance, by kind.
        configs: what `configure` gets.
        places: the pipeline's places.
        subtopology: the one all places belong to.
    """

    def __init__(
        self,
        handlers: Mapping[str, Any],
        configs: Mapping[str, Any],
        places: Sequence[FailurePlace],
        subtopology: int,
    ) -> None:
        self._handlers = dict(handlers)
        self._configs = dict(configs)
        self._places = tuple(places)
        self._subtopology = subtopology
        self._made: dict[str, Any] = {}

    def __call__(self, frames: list[Any], alive: Callable[[], None]) -> list[list[bytes | None]]:
        (questions,) = frames
        return [[_packed(answer) for answer in self.answers(map(_question, questions), alive)]]

    def answers(self, questions: Any, alive: Callable[[], None] = lambda: None) -> list[HandlerResult]:
        """One answer for each question. After one that says 'fail', no more handlers are called.

        Raises:
            HandlerError: a handler raised, or did not return an ErrorHandlerResponse.
        """
        answers: list[HandlerResult] = []
        failed = False
        for question in questions:
            alive()
            answers.append(HandlerResult(ANSWER_NOT_ASKED) if failed else self._asked(question))
            failed |= answers[-1].result == ANSWER_FAIL
        return answers

    def _asked(self, question: Question) -> HandlerResult:
        if question.place == PLACE_REFUSED:
            place = FailurePlace("production", question.node)
        else:
            place = self._places[question.place]
        handler = self._handler(place.kind)
        task = None
        if question.topic is not None:
            task = TaskId(self._subtopology, question.partition)
        context = ErrorHandlerContext(
            topic=question.topic,
            partition=question.partition,
            offset=question.offset,
            headers=question.headers,
            processor_node_id=place.node,
            task_id=task,
            timestamp=question.timestamp,
            source_raw_key=question.raw_key,
            source_raw_value=question.raw_value,
        )
        record: Any = None
        try:
            record = _record(place, question)
            response = _call(handler, place, context, record, _exception(place, question, task))
        except Exception as error:
            raise HandlerError(_raised(handler, place, error)) from error
        return _checked(handler, place, question, response)

    def _handler(self, kind: str) -> Any:
        if kind not in self._made:
            given = self._handlers[kind]
            try:
                handler = given() if isinstance(given, type) else given
                handler.configure(self._configs)
            except Exception as error:
                raise HandlerError(
                    f"the handler {_name(given)} of {kind}.exception.handler cannot be created: "
                    f"{_shown(error)}{_where(error)}"
                ) from error
            self._made[kind] = handler
        return self._made[kind]


def _record(place: FailurePlace, question: Question) -> Any:
    if place.kind == "deserialization":
        return ConsumerRecord(
            question.topic or "",
            question.partition,
            question.offset,
            question.raw_key,
            question.raw_value,
            question.timestamp,
            question.headers,
        )
    key = question.key if place.key is None else place.key(question.key)
    value = question.value if place.value is None else place.value(question.value)
    if place.kind == "processing":
        return FailedRecord(key, value, question.timestamp, question.headers)
    to = None if question.partition_to < 0 else question.partition_to
    return ProducerRecord(question.to or "", key, value, to, question.timestamp, question.headers)


def _exception(place: FailurePlace, question: Question, task: TaskId | None) -> Exception:
    if place.kind == "deserialization":
        return SerializationException(
            question.message,
            topic=question.topic,
            partition=question.partition,
            offset=question.offset,
            task_id=task,
        )
    if place.origin is not None:
        return SerializationException(question.message, task_id=task)
    return StreamsException(question.message, task_id=task)


def _call(
    handler: Any, place: FailurePlace, context: ErrorHandlerContext, record: Any, exception: Exception
) -> Any:
    if place.origin is not None:
        return handler.handle_serialization_error(context, record, exception, place.origin)
    return handler.handle_error(context, record, exception)


def _checked(handler: Any, place: FailurePlace, question: Question, response: Any) -> HandlerResult:
    if not isinstance(response, ErrorHandlerResponse):
        got = "None; is a `return` missing?" if response is None else type(response).__name__
        raise HandlerError(
            f"the handler {_name(handler)} of {place.kind}.exception.handler returned {got}. It must return "
            "ErrorHandlerResponse.resume() or ErrorHandlerResponse.fail()"
        )
    for letter in response.dead_letter_queue_records:
        _check_letter(handler, place, letter)
    letters = response.dead_letter_queue_records
    if response.result is ErrorHandlerResult.RESUME:
        return HandlerResult(ANSWER_CONTINUE, None, letters)
    said = f"{question.message}; the handler {_name(handler)} of {place.kind}.exception.handler says "
    if response.result is ErrorHandlerResult.FAIL:
        return HandlerResult(ANSWER_FAIL, f"{said}'fail'", letters)
    if place.kind != "production":
        raise HandlerError(
            f"the handler {_name(handler)} of {place.kind}.exception.handler returned 'retry', which is only "
            "for records that are being written"
        )
    return HandlerResult(
        ANSWER_FAIL, f"{said}'retry', but a second write does not help, so it counts as 'fail'", letters
    )


def _check_letter(handler: Any, place: FailurePlace, letter: Any) -> None:
    whose = f"the handler {_name(handler)} of {place.kind}.exception.handler made a dead letter"
    if not isinstance(letter, ProducerRecord):
        raise HandlerError(f"{whose} that is a {type(letter).__name__}; it must be a ProducerRecord")
    if not isinstance(letter.topic, str) or not letter.topic:
        raise HandlerError(f"{whose} for the topic {letter.topic!r}; it must be the name of a topic")
    for part, number in (("partition", letter.partition), ("timestamp", letter.timestamp)):
        if number is not None and type(number) is not int:
            raise HandlerError(f"{whose} whose {part} is {number!r}; it must be an int or None")
    if not all(
        isinstance(each, tuple) and len(each) == 2 and type(each[0]) is str for each in letter.headers
    ):
        raise HandlerError(f"{whose} whose headers are {letter.headers!r}; they must be pairs (name, bytes)")
    parts = {"key": letter.key, "value": letter.value, **{f"header {k!r}": v for k, v in letter.headers}}
    for part, data in parts.items():
        if data is not None and not isinstance(data, bytes | bytearray):
            raise HandlerError(
                f"{whose} for topic '{letter.topic}' whose {part} is a {type(data).__name__}; it must be "
                "bytes or None"
            )


def _name(handler: Any) -> str:
    of = handler if isinstance(handler, type) else type(handler)
    return f"{of.__module__}.{of.__qualname__}"


def _shown(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _where(error: BaseException) -> str:
    """The innermost line of the program that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""


def _raised(handler: Any, place: FailurePlace, error: Exception) -> str:
    return (
        f"the handler {_name(handler)} of {place.kind}.exception.handler, called for a record at "
        f"{place.node}, raised {_shown(error)}{_where(error)}. A handler that raises ends the pipeline"
    )


# --- bytes -------------------------------------------------------------------------------------------------


@dataclass
class _Bytes:
    data: bytes
    at: int = 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return found

    def string(self) -> bytes | None:
        (size,) = self.numbers(">i")
        if size < 0:
            return None
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str | None:
        data = self.string()
        return None if data is None else data.decode(errors="replace")

    def headers(self) -> Headers:
        (count,) = self.numbers(">i")
        return tuple((self.text() or "", self.string()) for _ in range(count))


def _question(data: bytes) -> Question:
    of = _Bytes(data)
    (place,) = of.numbers(">i")
    node, exception, message, topic = of.text(), of.text(), of.text(), of.text()
    raw_key, raw_value = of.string(), of.string()
    partition, offset, timestamp = of.numbers(">iqq")
    to, key, value = of.text(), of.string(), of.string()
    (partition_to,) = of.numbers(">i")
    return Question(
        place=place,
        node=node or "",
        exception=exception or "",
        message=message or "",
        topic=topic,
        raw_key=raw_key,
        raw_value=raw_value,
        partition=partition,
        offset=offset,
        timestamp=timestamp,
        to=to,
        key=key,
        value=value,
        partition_to=partition_to,
        headers=of.headers(),
    )


def _string(data: bytes | None) -> bytes:
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def _packed(answer: HandlerResult) -> bytes:
    said = None if answer.said is None else answer.said.encode(errors="replace")
    parts = [struct.pack(">b", answer.result), _string(said), struct.pack(">i", len(answer.letters))]
    for letter in answer.letters:
        partition = -1 if letter.partition is None else letter.partition
        timestamp = -1 if letter.timestamp is None else max(0, letter.timestamp)
        parts += [_string(letter.topic.encode()), _string(letter.key), _string(letter.value)]
        parts.append(struct.pack(">iqi", partition, timestamp, len(letter.headers)))
        for name, value in letter.headers:
            parts += [_string(name.encode()), _string(value)]
    return b"".join(parts)
