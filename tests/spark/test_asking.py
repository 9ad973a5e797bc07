"""What handlers of the user's own are asked, without Spark: in order, and nobody behind a 'fail'."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from millstream import (
    ErrorHandlerResponse,
    ProcessingExceptionHandler,
    ProductionExceptionHandler,
    Serdes,
    SerializationException,
    StreamsConfig,
    StreamsException,
)
from millstream.dsl.error_handlers import FailedRecord, ProducerRecord, SerializationExceptionOrigin
from millstream.kernel.constants import ANSWER_CONTINUE, ANSWER_FAIL, ANSWER_NOT_ASKED, PLACE_REFUSED
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.run.failures import Report, translate
from millstream.spark.worker.handler_calls import (
    Asking,
    FailurePlace,
    FieldReader,
    HandlerError,
    Question,
)
from millstream.spark.worker.program_worker import _traceback_of

QUESTION = Question(
    place=0,
    node="SINK",
    exception="org.apache.kafka.common.errors.RecordTooLargeException",
    message="too large",
    topic="in",
    raw_key=b"k",
    raw_value=b"v",
    partition=1,
    offset=17,
    timestamp=5,
    to="out",
    key=b"key",
    value=b"value",
    partition_to=-1,
    headers=(("h", None),),
)
PLACES = (
    FailurePlace(
        "processing", "MAP", FieldReader(Serdes.string()), FieldReader(Serdes.json("value INT"), "value")
    ),
    FailurePlace(
        "production", "SINK", FieldReader(Serdes.string()), None, SerializationExceptionOrigin.VALUE
    ),
)


class Counting(ProcessingExceptionHandler):
    """Fails at the value that it was configured with."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def configure(self, configs: Mapping[str, Any]) -> None:
        self.last = configs["last"]

    def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
        self.seen.append(record)
        return self.Response.fail() if record.value == self.last else self.Response.resume()


def test_nobody_is_asked_behind_a_record_that_ends_the_pipeline() -> None:
    """As in Kafka Streams, which gets no further; an instance is configured before it is asked."""
    handler = Counting()
    asking = Asking({"processing": handler}, {"last": 2}, PLACES, 0)
    values = (b'{"value":1}', None, b'{"value":2}', b'{"value":3}')
    calls: list[None] = []
    questions = [replace(QUESTION, value=value) for value in values]
    answers = asking.answers(questions, lambda: calls.append(None))
    assert [answer.result for answer in answers] == [
        ANSWER_CONTINUE,
        ANSWER_CONTINUE,
        ANSWER_FAIL,
        ANSWER_NOT_ASKED,
    ]
    said = "too large; the handler test_asking.Counting of processing.exception.handler says 'fail'"
    assert answers[2].said == said
    assert handler.seen == [FailedRecord("key", value, 5, (("h", None),)) for value in (1, None, 2)]
    assert len(calls) == 4, "for each it is told that the worker gets on"


class Writing(ProductionExceptionHandler):
    def handle_error(
        self, context: Any, record: ProducerRecord, exception: Exception
    ) -> ErrorHandlerResponse:
        assert (context.processor_node_id, str(context.task_id)) == ("SINK", "3_1")
        assert (record.topic, record.key, record.value, record.partition) == ("out", b"key", b"value", None)
        return ErrorHandlerResponse.retry()


def test_what_kafka_refuses_is_asked_about_by_its_node() -> None:
    """KIP-1065: to try it again does not help, so that is a 'fail'."""
    asking = Asking({"production": Writing}, {}, PLACES, 3)
    (answer,) = asking.answers([replace(QUESTION, place=PLACE_REFUSED)])
    assert answer.result == ANSWER_FAIL
    assert "says 'retry', but a second write does not help, so it counts as 'fail'" in str(answer.said)


def test_what_cannot_be_written_fails_unless_the_handler_says_otherwise() -> None:
    """KIP-399: its own method is asked, whose default is to fail."""
    (answer,) = Asking({"production": Writing}, {}, PLACES, None).answers([replace(QUESTION, place=1)])
    assert (answer.result, answer.letters) == (ANSWER_FAIL, ())


def test_a_handler_that_cannot_be_made_ends_the_pipeline() -> None:
    """The message says which, and where it raised."""

    class NeedsMore(Writing):
        def configure(self, configs: Mapping[str, Any]) -> None:
            raise LookupError(configs["application.id"])

    asking = Asking({"production": NeedsMore}, {"application.id": "a"}, PLACES, None)
    with pytest.raises(
        HandlerError, match=r"NeedsMore of production.exception.handler cannot be created: LookupErr"
    ):
        asking.answers([QUESTION, replace(QUESTION, place=1)][1:])


@pytest.mark.parametrize(
    ("letter", "said"),
    [
        ({"partition": "3"}, "whose partition is '3'"),
        ({"timestamp": 1.5}, "whose timestamp is 1.5"),
        ({"headers": {"a": b"1"}}, "they must be pairs"),
        ({"headers": ((b"a", b"1"),)}, "they must be pairs"),
        ({"value": "text"}, "whose value is a str"),
    ],
)
def test_a_dead_letter_that_cannot_be_written_is_told_with_its_handler(
    letter: dict[str, Any], said: str
) -> None:
    """Kafka and Java would say something else."""

    class Misled(ProcessingExceptionHandler):
        def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
            return ErrorHandlerResponse.resume([ProducerRecord("letters", **letter)])

    with pytest.raises(HandlerError, match=rf"Misled of processing.*{said}"):
        Asking({"processing": Misled}, {}, PLACES, None).answers([replace(QUESTION, value=None)])


class Raising(ProcessingExceptionHandler):
    def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
        raise LookupError("no\nsuch")


def test_what_a_handler_raised_in_a_worker_is_the_cause() -> None:
    """The message says which handler, where and at which node; its own exception is rebuilt behind it."""
    asking = Asking({"processing": Raising}, {}, PLACES, None)
    with pytest.raises(HandlerError) as raised:
        asking.answers([replace(QUESTION, value=None)])
    traceback = _traceback_of(raised.value).decode()
    text = f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {traceback}"
    report = Report("[STREAM_FAILED] Job aborted", (("io.millstream.kernel.python.PythonException", text),))
    error = translate("p0", ("in",), RuntimeError("Spark's"), report=report)
    assert str(error).startswith(
        "pipeline p0: its query failed: the handler test_asking.Raising of processing.exception.handler, "
        "called for a record at MAP, raised LookupError: no\nsuch ("
    )
    assert isinstance(error.__cause__, LookupError)


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            "in-3 offset 17 value: serde 'long' cannot read these 2 bytes: it takes 8 bytes",
            SerializationException,
        ),
        ("KSTREAM-MAPVALUES-0000000001 (app.py:3 <lambda>): cannot be computed", StreamsException),
    ],
)
def test_a_fail_is_told_with_its_record(message: str, cause: type[StreamsException]) -> None:
    """What cannot be read names topic, partition and offset, as without a handler."""
    said = f"{message}; the handler app.Mine of deserialization.exception.handler says 'fail'"
    name = "io.millstream.kernel.sink.RecordFailedException"
    report = Report("[STREAM_FAILED] Job aborted", ((name, said),))
    for found in (report, Report(f"Lost task 0.0: {name}: {said}\n\tat x")):
        error = translate("p0", ("in",), RuntimeError("Spark's"), report=found)
        assert str(error) == f"pipeline p0: its query failed: {said}"
        assert type(error.__cause__) is cause
        if isinstance(error.__cause__, SerializationException):
            at = error.__cause__
            assert (at.topic, at.partition, at.offset) == ("in", 3, 17)


def test_secrets_of_the_configuration_do_not_reach_workers() -> None:
    """What `configure` gets travels with the query."""
    config = StreamsConfig(
        {
            "application.id": "words",
            "bootstrap.servers": "localhost:9092",
            "sasl.username": "me",
            "sasl.password": "hush",
            "processing.exception.handler": Counting,
        }
    )
    told = RecordHandlers.of(config).configs
    assert told["application.id"] == "words"
    assert told["sasl.username"] == "me"
    assert "hush" not in json.dumps(told)
