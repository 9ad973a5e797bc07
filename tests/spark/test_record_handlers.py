"""Records that fail: what is dropped, what goes on, what is counted, and what a dead letter says."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import datetime
from functools import partial, reduce
from typing import Any

import pytest
from driving import STRINGS, pipe, read, records, rows
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Grouped,
    Materialized,
    PipelineException,
    Produced,
    Repartitioned,
    Serdes,
    SerializationException,
    StreamsBuilder,
    StreamsException,
)
from millstream.dsl.handlers import LogAndContinueExceptionHandler, LogAndContinueProcessingExceptionHandler
from millstream.spark.compile.building import CompileContext
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers, attempt, record_size
from millstream.spark.compile.task_compiler import compile_task
from millstream.spark.run.dropped import BatchDrops, DropWatch, exceeds, metric, read_drops
from millstream.spark.run.task_run import task_rows
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

READ = {"deserialization.exception.handler": LogAndContinueExceptionHandler}
PROCESS = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
WRITE = {"production.exception.handler": "continue"}
ALL = {**READ, **PROCESS, **WRITE}
QUEUE = {"errors.dead.letter.queue.topic.name": "dlq"}
JSON = Consumed.with_(Serdes.string(), Serdes.json("n STRING, d INT"))


def driver(program: Callable[[StreamsBuilder], Any], config: dict[str, Any]) -> TopologyTestDriver:
    builder = StreamsBuilder()
    program(builder)
    return TopologyTestDriver(builder.build(), config)


def letters(driver: TopologyTestDriver) -> list[tuple[Any, Any, dict[str, str]]]:
    """Key, value and what the headers say of each dead letter, in the order of offsets."""
    found = [
        (
            letter.key,
            letter.value,
            {
                name.removeprefix("__streams.errors."): (value or b"").decode()
                for name, value in letter.headers
            },
        )
        for letter in records(driver, "dlq", "bytes", "bytes")
    ]
    return sorted(found, key=lambda letter: int(letter[2]["offset"]))


def halves(builder: StreamsBuilder) -> None:
    builder.stream("in", JSON).map_values(lambda value: value.n.cast("int") / value.d).to("out")


GOOD_AND_BAD = [
    ("a", b'{"n":"1","d":1}', None, (("h", b"x"),)),
    ("b", b"junk", None, (("h", b"y"),)),
    ("c", b'{"n":"x","d":1}'),
    ("d", b'{"n":"6","d":0}'),
    ("e", b'{"n":"4","d":2}'),
]


# --- what goes on and what does not -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "offset"), [({}, 1), (READ, None), (PROCESS, 1)], ids=["default", "read", "process"]
)
def test_a_handler_that_fails_ends_the_pipeline(config: dict[str, Any], offset: int | None) -> None:
    """Each handler answers for its own kind of failure only; 'fail' is the default of all."""
    with driver(halves, config) as running, pytest.raises(StreamsException) as raised:
        pipe(running, "in", *GOOD_AND_BAD, value="bytes")
    if offset is not None:
        assert f"in-0 offset {offset} value" in str(raised.value)
    else:
        assert "CAST_INVALID_INPUT" in str(raised.value) or "DIVIDE_BY_ZERO" in str(raised.value)


def test_the_field_is_named_that_does_not_fit_and_the_exception_is_in_the_chain() -> None:
    """Also where a record ends a pipeline; its content is not told."""

    def program(builder: StreamsBuilder) -> None:
        schema = Serdes.json("m MAP<STRING, STRUCT<b: ARRAY<STRUCT<c: BIGINT>>>>")
        builder.stream("in", Consumed.with_(Serdes.string(), schema)).to("out")

    with driver(program, {}) as running, pytest.raises(PipelineException) as raised:
        pipe(running, "in", ("a", b'{"m":{"secret":{"b":[{"c":1},{"c":"secret"}]}}}'), value="bytes")
    unread = raised.value.__cause__
    assert isinstance(unread, SerializationException)
    assert (unread.topic, unread.partition, unread.offset) == ("in", 0, 0)
    assert str(unread) == (
        "in-0 offset 0 value: serde 'json' cannot read these 47 bytes: it takes BIGINT in the field "
        "'m[].b[].c', and this is other JSON"
    )
    assert str(unread) in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("queue", [{}, QUEUE], ids=["no queue", "queue"])
def test_good_records_go_on_and_bad_ones_are_counted(queue: dict[str, Any]) -> None:
    """Of five records, one cannot be read, a cast and a division fail; two arrive, with their headers."""
    with driver(halves, {**ALL, **queue}) as running:
        pipe(running, "in", *GOOD_AND_BAD, value="bytes")
        out = records(running, "out", "string", "double")
        assert [(r.key, r.value, r.headers) for r in out] == [("a", 1.0, (("h", b"x"),)), ("e", 2.0, ())]
        assert running.dropped_records == 3
        pipe(running, "in", ("f", b"no"), ("g", b'{"n":"9","d":3}'), value="bytes")
        assert read(running, "out", "string", "double") == [("g", 3.0)]
        assert running.dropped_records == 4


def test_a_dead_letter_has_the_bytes_the_headers_and_kafkas_own() -> None:
    """KIP-1034: raw key and value, the record's headers, and what, where and why in six more."""
    with driver(halves, {**ALL, **QUEUE}) as running:
        pipe(running, "in", *GOOD_AND_BAD, value="bytes")
        found = letters(running)
        assert [(key, value) for key, value, _ in found] == [
            (b"b", b"junk"),
            (b"c", b'{"n":"x","d":1}'),
            (b"d", b'{"n":"6","d":0}'),
        ]
        _, _, first = found[0]
        assert list(first) == ["h", "exception", "message", "stacktrace", "topic", "partition", "offset"]
        assert (first["h"], first["topic"], first["partition"], first["offset"]) == ("y", "in", "0", "1")
        assert first["exception"] == "org.apache.kafka.common.errors.SerializationException"
        assert first["message"] == (
            "in-0 offset 1 value: serde 'json' cannot read these 4 bytes: it takes JSON in UTF-8, and byte "
            "0 does not belong there"
        )
        _, _, second = found[1]
        assert second["exception"] == "org.apache.kafka.streams.errors.StreamsException"
        assert "KSTREAM-MAPVALUES-0000000001 (test_record_handlers.py:" in second["message"]
        assert "at KSTREAM-MAPVALUES-0000000001 (" in second["stacktrace"]


UNREADABLE: dict[str, tuple[Any, bytes, str]] = {
    "long": (Serdes.long(), b"123", "it takes 8 bytes"),
    "integer": (Serdes.integer(), b"", "it takes 4 bytes"),
    "short": (Serdes.short(), b"1", "it takes 2 bytes"),
    "float": (Serdes.float(), b"1", "it takes 4 bytes"),
    "double": (Serdes.double(), b"1", "it takes 8 bytes"),
    "boolean": (Serdes.boolean(), b"\x02", "it takes one byte, 0 or 1"),
    "uuid": (Serdes.uuid(), b"not one", "it takes the 36 characters of a UUID"),
    "json": (Serdes.json("a INT"), b"[]", "it takes a JSON object, and this is other JSON"),
    "digits": (
        Serdes.custom(
            "digits",
            to_column=lambda data: data.cast("string").cast("int"),
            from_column=lambda value: value.cast("string").cast("binary"),
            serialize=lambda value: str(value).encode(),
            deserialize=int,
        ),
        b"none",
        "cannot read these 4 bytes",
    ),
    "own": (
        Serdes.custom("own", serialize=lambda value: str(value).encode(), deserialize=int, type="INT"),
        b"",
        "cannot read these 0 bytes",
    ),
}
"""For each serde, bytes that it cannot read, and what it says of them."""


def test_every_serde_can_go_on() -> None:
    """A key or a value that it cannot read is a dead letter; a null is none."""

    def read_as(builder: StreamsBuilder, topic: str) -> Any:
        serde, _, _ = UNREADABLE[topic]
        stream = builder.stream(topic, Consumed.with_(serde, serde))
        return stream.map(lambda k, v: (F.lit(topic), F.concat_ws(",", k.isNull(), v.isNull())))

    def program(builder: StreamsBuilder) -> None:
        streams = [read_as(builder, topic) for topic in UNREADABLE]
        reduce(lambda one, other: one.merge(other), streams).to("out")

    with driver(program, {**READ, **QUEUE}) as running:
        with running.one_batch():
            for topic, (_, bad, _) in UNREADABLE.items():
                pipe(running, topic, (bad, b"v"), (None, bad), (None, None), key="bytes", value="bytes")
        assert sorted(read(running, "out")) == sorted((topic, "true,true") for topic in UNREADABLE)
        found = {(said["topic"], said["offset"]): (key, value, said) for key, value, said in letters(running)}
    assert found.keys() == {(topic, offset) for topic in UNREADABLE for offset in "01"}
    for (topic, offset), (key, value, said) in found.items():
        _, bad, why = UNREADABLE[topic]
        assert (key, value) == ((bad, b"v") if offset == "0" else (None, bad))
        side = "key" if offset == "0" else "value"
        assert f"{topic}-0 offset {offset} {side}: " in said["message"]
        assert why in said["message"], topic


# --- every operation ----------------------------------------------------------------------------------------

BAD_INT = "not a number"
OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "filter": lambda s: s.filter(lambda v: v.cast("int") > 0),
    "filter_not": lambda s: s.filter_not(lambda v: v.cast("int") < 0),
    "map": lambda s: s.map(lambda k, v: (k, v.cast("int") + v.cast("int"))),
    "map_values": lambda s: s.map_values(lambda v: v.cast("int")),
    "select_key": lambda s: s.select_key(lambda k, v: v.cast("int").cast("string")),
    "flat_map": lambda s: s.flat_map(lambda k, v: [(k, v.cast("int")), (k, v.cast("int") + 1)]),
    "flat_map_values": lambda s: s.flat_map_values(lambda v: F.array(v.cast("int"))),
    "raise_error": lambda s: s.map_values(
        lambda v: F.when(v == BAD_INT, F.raise_error(F.lit("no"))).otherwise(v)
    ),
    "index": lambda s: s.map_values(lambda v: F.split(v, "")[F.when(v == BAD_INT, 99).otherwise(0)]),
    "overflow": lambda s: s.map_values(lambda v: F.length(v) * F.lit(2**31 - 1) - (2**31 - 2)),
    "table": lambda s: s.to_table().filter(lambda v: v.cast("int") > 0).to_stream(),
    "table map": lambda s: s.to_table().map_values(lambda v: v.cast("int")).to_stream(),
}


@pytest.fixture(scope="module", params=[{}, QUEUE], ids=["no queue", "queue"])
def went_on(
    request: pytest.FixtureRequest,
) -> tuple[dict[str, list[Any]], int, list[Any] | None]:
    """All operations as branches of one stream: what each let through, the count of what was dropped, and the
    dead letters, if there is a queue for them."""

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", STRINGS)
        for name, operation in OPERATIONS.items():
            texts = operation(stream).map_values(lambda v: F.concat(F.lit("x"), v.cast("string")))
            texts.to(f"out-{name.replace(' ', '-')}", Produced.with_(Serdes.string(), Serdes.string()))

    with driver(program, {**PROCESS, **request.param}) as running:
        pipe(running, "in", ("a", "1"), ("b", BAD_INT), ("c", "2"))
        out = {name: read(running, f"out-{name.replace(' ', '-')}") for name in OPERATIONS}
        return out, running.dropped_records, letters(running) if request.param else None


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_can_go_on(
    name: str, went_on: tuple[dict[str, list[Any]], int, list[Any] | None]
) -> None:
    """Only the record it fails for is gone; what comes after it is not asked about that one."""
    found = went_on[0][name]
    assert {key for key, _ in found} == ({"1", "2"} if name == "select_key" else {"a", "c"})
    assert all(BAD_INT not in str(value) for _, value in found)


def test_each_operation_drops_its_record_by_itself(
    went_on: tuple[dict[str, list[Any]], int, list[Any] | None],
) -> None:
    """As each processor of Kafka Streams is given the record: one count and one dead letter for each."""
    _, dropped, found = went_on
    assert dropped == len(OPERATIONS)
    if found is not None:
        assert [(key, value) for key, value, _ in found] == [(b"b", BAD_INT.encode())] * len(OPERATIONS)
        operators = [re.findall(r"[A-Z-]+-\d{10}", headers["message"])[0] for _, _, headers in found]
        assert len(set(operators)) == len(OPERATIONS)


def test_what_cannot_be_computed_is_no_trouble_to_the_next_update_of_its_key() -> None:
    """An update has what was there before: that is not computed again without a catch. Nor is what a join of
    tables makes of two rows."""

    def program(builder: StreamsBuilder) -> None:
        table = builder.table("in", STRINGS, Materialized.as_("rows"))

        def number(value: Any) -> Any:
            return value.cast("int")

        table.map_values(number, Materialized.as_("mapped")).to_stream().to("mapped")
        table.filter(lambda k, v: number(v) > 1, Materialized.as_("passed")).to_stream().to("passed")
        grouped = Grouped.with_(Serdes.string(), Serdes.integer())
        total = table.group_by(lambda k, v: (F.lit("all"), number(v)), grouped)
        total.reduce(lambda one, other: one + other, lambda one, other: one - other).to_stream().to("sum")
        table.join(table, lambda one, other: number(one) + number(other)).to_stream().to("joined")

    with driver(program, {**PROCESS, "statestore.cache.max.bytes": 0}) as running:
        for value in ("2", BAD_INT, "5"):
            pipe(running, "in", ("a", value))
        assert read(running, "mapped", value="integer") == [("a", 2), ("a", 5)]
        assert [value for _, value in read(running, "passed")] == ["2", "5"]
        assert read(running, "joined", value="integer")[-1] == ("a", 10)
        assert read(running, "sum", value="integer")[0] == ("all", 2)


def test_the_same_expression_twice_is_caught_once() -> None:
    """Spark computes what two expressions share in front of both: it must not do so outside of the catch."""

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", STRINGS)
        stream.map_values(lambda v: v.cast("int") + v.cast("int") * v.cast("int")).to("out")
        stream.map(lambda k, v: (v.cast("int").cast("string"), v.cast("int"))).to("other")

    codegen = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "CODEGEN_ONLY"}
    with driver(program, {**PROCESS, **QUEUE, **codegen}) as running:
        pipe(running, "in", ("a", "3"), ("b", "no"))
        assert read(running, "out", value="integer") == [("a", 12)]
        assert read(running, "other", value="integer") == [("3", 3)]
        assert running.dropped_records == 2, "one for each branch, as in Kafka Streams"


@pytest.mark.parametrize("whole_stage", ["true", "false"])
@pytest.mark.parametrize("mode", ["CODEGEN_ONLY", "NO_CODEGEN"])
def test_an_attempt_catches_however_spark_computes(spark: SparkSession, whole_stage: str, mode: str) -> None:
    """With generated code and without; and NULL is a result."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
    before = [spark.conf.get(name, None) for name in names]
    spark.conf.set(names[0], whole_stage)
    spark.conf.set(names[1], mode)
    try:
        number = F.col("v").cast("int")
        now = datetime.now()
        data = [("1", now), ("x", now), (None, now)]
        df = spark.createDataFrame(data, "v string, _timestamp timestamp").repartition(1)
        df = df.withColumn("t", attempt(F.lit(True), number + 1, number + 2))
        got = {row.v: (None if row.t is None else tuple(row.t)) for row in df.select("v", "t").collect()}
        assert got == {"1": (2, 3), "x": None, None: (None, None)}
    finally:
        for name, value in zip(names, before, strict=True):
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


# --- shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queue", [{}, QUEUE], ids=["no queue", "queue"])
def test_a_dropped_record_does_not_reach_an_aggregation(queue: dict[str, Any]) -> None:
    """And what is counted is what passed."""

    def program(builder: StreamsBuilder) -> None:
        numbers = builder.stream("in", STRINGS).map_values(lambda v: v.cast("long"))
        grouped = numbers.group_by_key()
        grouped.count(Materialized.as_("n"))
        grouped.aggregate(lambda value: F.sum(value), Materialized.as_("sum"))

    with driver(program, {**ALL, **queue}) as running:
        pipe(running, "in", ("a", "1"), ("a", "x"), ("b", "y"), ("a", "2"))
        assert rows(running, "n") == {"a": 2}
        assert rows(running, "sum") == {"a": 3}
        assert running.dropped_records == 2
        if queue:
            assert [value for _, value, _ in letters(running)] == [b"x", b"y"]


def test_merged_and_branched_streams_and_a_repartition_topic_go_on() -> None:
    """Two sources in one flow, a fork, and a second pipeline that reads what the first one wrote."""

    def program(builder: StreamsBuilder) -> None:
        merged = builder.stream("in", STRINGS).merge(builder.stream("in2", STRINGS))
        branches = merged.split().branch(lambda v: v.cast("int") > 5).default_branch()
        large, small = branches.values()
        large.to("large")
        small.repartition(
            Repartitioned.as_("again").with_key_serde(Serdes.string()).with_value_serde(Serdes.string())
        ).map_values(lambda v: F.lit(6) / v.cast("int")).to("small")

    with driver(program, {**ALL, **QUEUE}) as running:
        pipe(running, "in", ("a", "7"), ("b", "x"), ("c", "0"))
        pipe(running, "in2", ("d", "y"), ("e", "3"))
        assert read(running, "large") == [("a", "7")]
        assert read(running, "small", value="double") == [("e", 2.0)]
        found = {(key, value, h["topic"]) for key, value, h in letters(running)}
        assert found == {
            (b"b", b"x", "in"),
            (b"d", b"y", "in2"),
            (b"c", b"0", "test-again-repartition"),
        }
        assert running.dropped_records == 3


def test_a_topic_that_cannot_be_chosen_is_a_failed_record() -> None:
    """The function that names the topic is a function like any other."""

    def program(builder: StreamsBuilder) -> None:
        builder.stream("in", STRINGS).to(
            lambda key, value: F.concat(F.lit("out-"), value.cast("int").cast("string"))
        )

    with driver(program, PROCESS) as running:
        pipe(running, "in", ("a", "1"), ("b", "x"))
        assert read(running, "out-1") == [("a", "1")]
        assert running.dropped_records == 1


# --- writing ------------------------------------------------------------------------------------------------


def test_a_record_that_is_too_large_or_cannot_be_written_is_dropped() -> None:
    """What the producer would refuse; the dead letter is what was read, not what was to be written."""

    def program(builder: StreamsBuilder) -> None:
        stream = builder.stream("in", STRINGS)
        stream.map_values(lambda v: F.repeat(v, 100)).to("out")
        stream.to("ids", Produced.with_(Serdes.string(), Serdes.uuid()))

    config = {**WRITE, **QUEUE, "producer.max.request.size": 1500}
    with driver(program, config) as running:
        pipe(running, "in", ("a", "x"), ("b", "y" * 20))
        assert read(running, "out") == [("a", "x" * 100)]
        assert read(running, "ids") == []
        found = [(key, value, h["exception"].rpartition(".")[2]) for key, value, h in letters(running)]
        assert sorted(found) == [
            (b"a", b"x", "SerializationException"),
            (b"b", b"y" * 20, "RecordTooLargeException"),
            (b"b", b"y" * 20, "SerializationException"),
        ]
        assert running.dropped_records == 3


def test_a_dead_letter_is_never_too_large_itself() -> None:
    """Its headers could make it so; then its value stays away, and the pipeline goes on."""
    with driver(halves, {**ALL, **QUEUE, "producer.max.request.size": 1500}) as running:
        pipe(running, "in", ("a", b"j" * 1400), value="bytes")
        ((key, value, headers),) = letters(running)
        assert (key, value) == (b"a", None)
        assert "these 1400 bytes" in headers["message"]


def _varint(number: int) -> int:
    number <<= 1
    size = 1
    while number >= 128:
        number >>= 7
        size += 1
    return size


def test_a_records_size_is_counted_as_the_producer_counts_it(spark: SparkSession) -> None:
    """61 bytes for a batch, 21 for a record, and every length as a varint."""
    sizes = [0, 1, 63, 64, 8191, 8192, 1048575, 1048576]
    kinds = "k binary, v binary, _headers array<struct<key: string, value: binary>>"
    data: list[Any] = [(bytearray(n), bytearray(n // 2), None) for n in sizes]
    data += [(None, None, []), (None, bytearray(3), [("ü", bytearray(70)), ("b", None)])]

    def size(row: Any) -> int:
        def field(part: Any) -> int:
            return 1 if part is None else _varint(len(part)) + len(part)

        headers = row[2] or []
        listed = sum(field(name.encode()) + field(value) for name, value in headers)
        return 61 + 21 + field(row[0]) + field(row[1]) + _varint(len(headers)) + listed

    df = spark.createDataFrame(data, kinds).repartition(1)
    got = sorted(row[0] for row in df.select(record_size(F.col("k"), F.col("v"))).collect())
    assert got == sorted(size(row) for row in data)


# --- counts and thresholds ----------------------------------------------------------------------------------


def test_the_default_plan_has_nothing_of_all_this(spark: SparkSession) -> None:
    """With all handlers at 'fail', no catch, no count, no bytes kept: the plan of before; and a queue or a
    threshold alone changes nothing."""
    builder = StreamsBuilder()
    halves(builder)
    builder.stream("in2", STRINGS).filter(lambda v: v != "").group_by_key().count(Materialized.as_("n"))
    pipelines = builder.build().pipelines

    def plans(handlers: RecordHandlers) -> list[str]:
        context = CompileContext("app", {"n-changelog": 1}, handlers=handlers)
        read = partial(task_rows, spark, "none")
        made = [compile_task(pipeline, context, read).rows for pipeline in pipelines]
        return [df._jdf.queryExecution().analyzed().toString() for df in made]

    usual = "\n".join(plans(FAIL)).lower()
    assert not any(word in usual for word in ("tryeval", "letter", "errors"))
    quiet = plans(RecordHandlers(dead_letter_topic="dlq", max_ratio=0.1))
    assert [_numberless(plan) for plan in quiet] == [_numberless(plan) for plan in plans(FAIL)]
    loud = "\n".join(plans(RecordHandlers(True, True, True, "dlq"))).lower()
    assert all(word in loud for word in ("tryeval", "letter", "errors"))


def _numberless(plan: str) -> str:
    return re.sub(r"#\d+L?|x_\d+|@[0-9a-f]+", "", plan)


def test_too_many_dropped_records_end_the_pipeline(caplog: pytest.LogCaptureFixture) -> None:
    """More than the share that is allowed: the exception says how many of how many, where, and what next."""
    config = {**ALL, **QUEUE, "errors.continue.max.ratio": 0.5}
    with driver(halves, config) as running, caplog.at_level(logging.WARNING):
        pipe(running, "in", *[("k", b"secret")] * 99, value="bytes")
        assert running.dropped_records == 99, "too few to judge by"
        pipe(running, "in", *[("k", b'{"n":"1","d":1}')] * 101, value="bytes")
        with pytest.raises(PipelineException) as raised:
            pipe(running, "in", *[("k", b"secret")] * 10, value="bytes")
    assert raised.value.pipeline == "p0"
    assert raised.value.batch_id == 2
    text = str(raised.value)
    assert "109 of the last 210 records were dropped" in text
    assert "deserialization in KSTREAM-SOURCE-0000000000: 109" in text
    assert "from in-0" in text
    assert "errors.continue.max.ratio=0.5" in text
    assert "dead letter queue 'dlq'" in text
    assert "secret" not in text + caplog.text


def batch(number: int, records: int, dropped: int) -> BatchDrops:
    return BatchDrops(number, records, {("processing", "n"): dropped} if dropped else {})


@pytest.mark.parametrize(
    ("batches", "ratio", "expected"),
    [
        ([], 0.0, False),
        ([batch(0, 1, 1)], 0.0, False),
        ([batch(0, 99, 99)], 0.5, False),
        ([batch(0, 100, 51)], 0.5, True),
        ([batch(0, 100, 50)], 0.5, False),
        ([batch(0, 100, 1)], 0.0, True),
        ([batch(0, 100, 300)], 1.0, False),
        ([batch(0, 50, 50), batch(1, 950, 0)], 0.05, False),
        ([batch(0, 50, 50), batch(1, 949, 0)], 0.05, True),
    ],
)
def test_whether_too_much_was_dropped(batches: list[BatchDrops], ratio: float, expected: bool) -> None:
    """More than the share, of at least a hundred records; 1 is never."""
    assert exceeds(batches, ratio) is expected


def report(number: int, dropped: int, first: int = 0, last: int = 0, **more: Any) -> dict[str, Any]:
    label = (0, "deserialization", "SOURCE")
    return {
        "batchId": number,
        "timestamp": f"t{number}",
        "numInputRows": 2 * (last - first),
        "sources": [{"startOffset": {"in": {"0": first}}, "endOffset": json.dumps({"in": {"0": last}})}],
        "observedMetrics": {
            "millstream.dropped.3": {metric(*label): dropped, metric(*label, where=True): ["in-0"]},
            "of.somebody.else": {"x": 1},
        },
        **more,
    }


def test_a_report_is_read_by_offsets_and_by_our_own_metrics() -> None:
    """A source that is read twice reports its rows twice; offsets do not lie."""
    got = read_drops(report(4, 7, 100, 150))
    expected = BatchDrops(4, 50, {("deserialization", "SOURCE"): 7}, frozenset({"in-0"}))
    assert got == expected
    assert got.dropped == 7
    assert read_drops(report(5, 0, 100, 150, sources=[{"startOffset": None, "endOffset": 3}])).records == 100
    assert read_drops({}) == BatchDrops(-1, 0)


def test_what_kafka_refused_is_read_from_the_sinks_own_metrics(caplog: pytest.LogCaptureFixture) -> None:
    """Of the batch that they are of: a report of a later one says the same again."""
    metrics = {
        "batch": "4",
        "dropped:a.b:RecordTooLargeException": "3",
        "example:a.b:RecordTooLargeException": "x",
    }
    told = {**report(4, 0, 100, 150, observedMetrics={}), "sink": {"metrics": metrics}}
    got = read_drops(told)
    assert got.drops == {("production", "topic 'a.b' (RecordTooLargeException)"): 3}
    assert got.examples == ("x",)
    assert read_drops({**report(5, 0, 150, 160), "sink": {"metrics": metrics}}).dropped == 0
    assert read_drops({**report(5, 0, 150, 160), "sink": {"metrics": None}}).dropped == 0
    watch = DropWatch("p1")
    with caplog.at_level(logging.WARNING):
        assert watch.look([told]) is None
    assert caplog.messages == [
        "pipeline p1: dropped a record: x",
        "pipeline p1: dropped 3 records in 1 batch of 50 records (production in topic 'a.b' "
        "(RecordTooLargeException): 3), from what Kafka refused; with errors.dead.letter.queue.topic.name "
        "set they would be in a topic",
    ]


def test_the_log_has_one_line_for_many_batches(caplog: pytest.LogCaptureFixture) -> None:
    """The first at once, then what gathered in ten seconds; and nothing is lost at the end."""
    now = [0.0]
    watch = DropWatch("p1", clock=lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            assert watch.look([report(number, 2, 10 * number, 10 * number + 10)]) is None
        assert [line.count("dropped 2 records in 1 batch of 10") for line in caplog.messages] == [1]
        now[0] = 11.0
        watch.look([report(5, 0, 50, 60)])
        assert "dropped 8 records in 4 batches of 40" in caplog.messages[-1]
        watch.look([report(6, 1, 60, 70)])
        assert len(caplog.messages) == 2
        watch.flush()
        assert "dropped 1 record in" in caplog.messages[-1]
    assert watch.total == 11
    assert watch.seen == (6, "t6")


def test_old_batches_leave_the_window() -> None:
    """A bad hour long ago does not end a pipeline that is well now."""
    watch = DropWatch("p0", 0.5)
    assert watch.look([report(0, 90, 0, 90)]) is None
    for number in range(1, 21):
        assert watch.look([report(number, 0, 100 * number, 100 * number + 100)]) is None
    assert watch.look([report(21, 60, 3000, 3090)]) is None
    assert watch.total == 150
