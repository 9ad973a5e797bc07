"""Record-level handlers of the user's own, in the test driver: what they are given, what answers do."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from driving import STRINGS, pipe, read, records, rows
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    ErrorHandlerResponse,
    Materialized,
    PipelineException,
    ProcessingExceptionHandler,
    Produced,
    ProducerRecord,
    ProductionExceptionHandler,
    Serdes,
    SerializationException,
    SerializationExceptionOrigin,
    StreamsBuilder,
    TaskId,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

Asked = tuple[str, ErrorHandlerContext, Any, Exception]


class Notes:
    """Notes what it is asked, and has a dead letter written for each record."""

    asked: ClassVar[list[Asked]] = []

    def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
        self.asked.append((type(self).__name__, context, record, exception))
        return ErrorHandlerResponse.resume([context.dead_letter("dlq", exception)])


class Reading(Notes, DeserializationExceptionHandler):
    pass


class Processing(Notes, ProcessingExceptionHandler):
    pass


class Writing(Notes, ProductionExceptionHandler):
    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        exception: Exception,
        origin: SerializationExceptionOrigin,
    ) -> ErrorHandlerResponse:
        self.asked.append((origin.name, context, record, exception))
        return ErrorHandlerResponse.resume()


OWN = {
    "deserialization.exception.handler": Reading,
    "processing.exception.handler": Processing(),
    "production.exception.handler": Writing,
}


@pytest.fixture(autouse=True)
def asked() -> list[Asked]:
    Notes.asked.clear()
    return Notes.asked


def driver(program: Callable[[StreamsBuilder], Any], config: Mapping[str, Any]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    program(builder)
    return TopologyTestDriver(builder.build(), dict(config))


def test_each_handler_is_asked_about_its_own_failures(asked: list[Asked]) -> None:
    """KIP-1033, KIP-1034: with where it was, the record as it was there, and what is wrong; records that do
    not fail reach nobody, and dead letters are written as they were made."""

    def program(builder: StreamsBuilder) -> None:
        numbers = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.json("n STRING, d INT")))
        tenths = numbers.map_values(lambda value: value.n.cast("int") / value.d)
        tenths.to("out", Produced.with_(Serdes.string(), Serdes.double()))
        texts = numbers.map_values(lambda value: F.repeat(value.n, value.d))
        texts.to("uuids", Produced.with_(Serdes.string(), Serdes.uuid()))
        texts.to("texts", Produced.with_(Serdes.string(), Serdes.string()))
        tenths.group_by_key().count(Materialized.as_("n"))

    uuid = "7f0f3a6e-5a5c-4a58-8f0e-2d3c1f9f3b11"
    with driver(program, {**OWN, "producer.max.request.size": 1000}) as running:
        pipe(
            running,
            "in",
            ("a", b'{"n":"1","d":1}', 5, (("h", b"x"),)),
            ("b", b'{"d":[]}', 6, (("h", b"y"),)),
            ("c", b'{"n":"6","d":0}', 7, (("h", b"z"),)),
            ("d", b'{"n":"6","d":2000}', 8),
            ("e", b'{"n":"%s","d":1}' % uuid.encode(), 9),
            value="bytes",
        )
        assert sorted(read(running, "out", value="double")) == [("a", 1.0), ("d", 0.003)]
        assert read(running, "uuids") == [("e", uuid)]
        assert sorted(read(running, "texts")) == [("a", "1"), ("c", ""), ("e", uuid)]
        assert rows(running, "n") == {"a": 1, "d": 1}
        letters = records(running, "dlq", "bytes", "bytes")
        # b cannot be read; c and e cannot be computed; a, c and d are no UUIDs; d is too large.
        assert running.dropped_records == len(asked) == 7

    by_kind: dict[str, list[Asked]] = {}
    for each in asked:
        by_kind.setdefault(each[0], []).append(each)
    assert {kind: len(each) for kind, each in by_kind.items()} == {
        "Reading": 1,
        "Processing": 2,
        "VALUE": 3,
        "Writing": 1,
    }

    ((_, context, record, error),) = by_kind["Reading"]
    assert (record.topic, record.partition, record.offset) == ("in", 0, 1)
    assert (record.key, record.value, record.timestamp, record.headers) == (
        b"b",
        b'{"d":[]}',
        6,
        (("h", b"y"),),
    )
    assert isinstance(error, SerializationException)
    assert (error.topic, error.partition, error.offset) == ("in", 0, 1)
    unread = "in-0 offset 1 value: serde 'json' cannot read these 8 bytes: it takes INT in the field 'd'"
    assert unread in str(error)
    assert context.processor_node_id == "KSTREAM-SOURCE-0000000000"
    assert context.task_id == TaskId(0, 0)

    (_, context, record, error) = by_kind["Processing"][0]
    assert (record.key, record.value) == ("c", {"n": "6", "d": 0})
    assert (record.timestamp, record.headers) == (7, (("h", b"z"),))
    assert (context.topic, context.partition, context.offset, context.timestamp) == ("in", 0, 2, 7)
    assert (context.source_raw_key, context.source_raw_value) == (b"c", b'{"n":"6","d":0}')
    assert (context.processor_node_id, context.headers) == ("KSTREAM-MAPVALUES-0000000001", (("h", b"z"),))
    assert "KSTREAM-MAPVALUES-0000000001 (test_own_handlers.py:" in str(error)

    assert sorted((each[2].topic, each[2].key, each[2].value[:9]) for each in by_kind["VALUE"]) == [
        ("uuids", "a", "1"),
        ("uuids", "c", ""),
        ("uuids", "d", "666666666"),
    ]
    ((_, context, record, error),) = by_kind["Writing"]
    assert (record.topic, record.key, record.value) == ("texts", b"d", b"6" * 2000)
    assert "max.request.size of the producer is 1000" in str(error)

    found = {letter.key: letter for letter in letters}
    assert sorted(found) == [b"b", b"c", b"d", b"e"]
    assert found[b"c"].value == b'{"n":"6","d":0}'
    headers = dict(found[b"c"].headers)
    assert headers["h"] == b"z"
    assert headers["__streams.errors.exception"] == b"millstream.errors.StreamsException"
    assert headers["__streams.errors.topic"] == b"in"
    assert headers["__streams.errors.offset"] == b"2"


def halves(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).map_values(lambda v: v.cast("int")).to("out")


def test_the_example_in_the_documents_does_what_it_says() -> None:
    """Nobody to share with is nothing, an amount that is no number goes aside, and without a key it ends."""
    text = (Path(__file__).parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
    shown = next(part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "Aside" in part)
    names: dict[str, Any] = {"__name__": __name__}
    exec(shown.partition("streams =")[0], names)
    topology = names["builder"].build()
    with TopologyTestDriver(topology, {"processing.exception.handler": names["Aside"]}) as running:
        good, none, no_number = (
            b'{"amount":"6","parts":2}',
            b'{"amount":"6","parts":0}',
            b'{"amount":"x","parts":2}',
        )
        pipe(running, "orders", ("a", good), ("b", none), ("c", no_number), value="bytes")
        assert read(running, "shares", value="double") == [("a", 3.0)]
        assert read(running, "orders-aside", value="bytes") == [("c", no_number)]
        with pytest.raises(PipelineException, match=r"Aside of processing\.exception\.handler says 'fail'"):
            pipe(running, "orders", (None, no_number), value="bytes")


class Strict(ProcessingExceptionHandler):
    """Answers as its records say."""

    def handle_error(self, context: Any, record: Any, exception: Exception) -> Any:
        match record.value:
            case "fail":
                return self.Response.fail()
            case "retry":
                return self.Response.retry()
            case "nothing":
                return None
            case "text":
                return self.Response.resume([ProducerRecord("dlq", "text")])
        raise LookupError(f"{record.value}?")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("fail", "KSTREAM-MAPVALUES-0000000001"),
        ("nothing", "returned None; is a `return` missing?"),
        ("retry", "'retry', which is only for records that are being written"),
        ("text", "made a dead letter for topic 'dlq' whose key is a str; it must be bytes or None"),
        ("other", "called for a record at KSTREAM-MAPVALUES-0000000001, raised LookupError: other? ("),
    ],
)
def test_a_handler_that_fails_raises_or_answers_nonsense_ends_the_pipeline(value: str, said: str) -> None:
    """As in Kafka Streams; the message names the handler, and what it raised is the cause."""
    config = {"processing.exception.handler": Strict}
    with driver(halves, config) as running, pytest.raises(PipelineException) as raised:
        pipe(running, "in", ("a", "1"), ("b", value))
    assert said in str(raised.value)
    assert "test_own_handlers.Strict of processing.exception.handler" in str(raised.value)
    assert isinstance(raised.value.__cause__, LookupError) == (value == "other")


def test_what_no_serde_writes_a_handler_gets_all_the_same(asked: list[Asked]) -> None:
    """Arrays between operators; and the results of an aggregation, which come of no record."""

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", STRINGS)
        lists = stream.map_values(lambda v: F.split(v, ","))
        lists.map_values(lambda v: v[1].cast("int")).to("out")
        stream.group_by_key().count(Materialized.as_("n")).to_stream().map_values(
            lambda v: F.lit(1) / (v - 2)
        ).to("counts")

    with driver(program, {"processing.exception.handler": Processing}) as running:
        pipe(running, "in", ("a", "1,2"), ("b", "1"))
        pipe(running, "in", ("a", "1,2"))
        assert read(running, "out", value="integer") == [("a", 2), ("a", 2)]
        letters = records(running, "dlq", "bytes", "bytes")
    (_, _, listed, _), (_, context, counted, _) = asked
    assert (listed.key, listed.value) == ("b", ["1"])
    assert (counted.key, counted.value) == ("a", 2)
    assert (context.topic, context.partition, context.offset, context.task_id) == (None, -1, -1, None)
    assert [letter.key for letter in letters] == [b"b", None]
