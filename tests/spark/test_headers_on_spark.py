"""The headers of results, on Spark: those that Kafka Streams gives them (tests/snapshots/traces)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from driving import STRINGS, pipe, records
from pyspark.sql import functions as F
from snapshots.traces import Row, Step, Trace, traces
from test_joins_on_spark import Made, joiner
from test_joins_on_spark import Program as JoinedProgram
from test_traces_on_spark import CACHED, UNCACHED, folded_in_python, suppressed, windows_of
from trace_driving import in_bytes, pipe_in_order, pipe_in_turns, row_of, topology_of

from millstream import (
    BufferConfig,
    EmitStrategy,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    Materialized,
    Serde,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    WindowedSerdes,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

CACHED_AS_WELL = {
    "headers/reduce",
    "headers/table, aggregate",
    "headers/tables, left_join of a count with a store",
    "headers/time limit of a count",
    "headers/foreign key, left_join",
}
"""Of these the driver of Kafka Streams gives the same with a cache, which it empties after each record."""

SINGLY = {
    # A window that closes is told when the batch ends, with the headers of the record that came then.
    "headers/time windows that close",
    "headers/sliding windows that close",
    # Of a key's updates in a batch, the last one alone is looked up.
    "headers/foreign key, join",
    "headers/foreign key, left_join",
}
"""Of these each record is a batch."""


def headers_to_text() -> type[FixedKeyProcessor]:
    """A text of the headers of each record, but the one that says whose it is."""

    class HeadersToText(FixedKeyProcessor):  # in here: the worker does not know this module
        def init(self, context: FixedKeyProcessorContext) -> None:
            self.context = context

        def process(self, record: FixedKeyRecord) -> None:
            others = record.headers[1:]
            texts = (f"{name}={'_' if value is None else value.decode()}" for name, value in others)
            self.context.forward(record.with_value(",".join(texts)))

    return HeadersToText


@dataclass
class Program(JoinedProgram):
    """One trace's program: joins and tables as in test_joins_on_spark, and what windows have besides."""

    def _step(
        self, source: Any, before: Made | None, other: Made | None, op: Mapping[str, Any], place: int
    ) -> Made:
        if op["op"] in ("stream", "table"):
            return super()._step(source, before, other, op, place)
        assert before is not None
        it, values, windows = before.it, before.values, before.windows
        store = Materialized.as_(f"store-{self.number}-{place}")
        match op["op"]:
            case "windowed_by":
                return Made(it.windowed_by(windows_of(op)), values, windows=op)
            case "select_key" if windows is not None:
                return Made(it.select_key(lambda key, value: key.key), values)
            case "suppress":
                return Made(it.suppress(suppressed(op)), values, True, windows)
            case "process_values":
                made = it.process_values(headers_to_text(), value_serde=Serdes.string())
                return Made(made, "string", windows=windows)
            case "cogroup":
                assert other is not None

                def added(key: str, value: str, so_far: str) -> str:
                    return so_far + value

                both = it.cogroup(added).cogroup(other.it, added)
                return Made(
                    both.aggregate(lambda: "", store.with_value_serde(Serdes.string())), "string", True
                )
            case "reduce" | "aggregate" if not before.of_table:
                if "retention" in op:
                    store = store.with_retention(timedelta(milliseconds=op["retention"]))
                if op.get("emit") == "close":
                    it = it.emit_strategy(EmitStrategy.on_window_close())
                merges = windows is not None and "gap" in windows
                return Made(folded_in_python(it, op, store, merges=merges), "string", True, windows)
        return super()._step(source, before, other, op, place)

    @property
    def key_serde(self) -> Serde:
        windows = None if self.windows is None else windows_of(self.windows)
        if windows is None:
            return Serdes.string()
        if isinstance(windows, SessionWindows):
            return WindowedSerdes.session_windowed_serde_from(Serdes.string())
        return WindowedSerdes.time_windowed_serde_from(
            Serdes.string(), timedelta(milliseconds=windows.size_ms)
        )


def came(driver: TopologyTestDriver, program: Program) -> list[tuple[Row, Any]]:
    """What came out, and with which headers; without the one that says whose a record is."""
    found = records(driver, f"out-{program.number}", program.key_serde, program.value_serde)
    return [
        (row_of(each), tuple(header for header in each.headers if header[0] != "number")) for each in found
    ]


def sent(program: Program, steps: Sequence[Step]) -> list[tuple[Row, Any]]:
    """What Kafka Streams sent, and with which headers."""
    return [
        (row, in_bytes(headers))
        for step in steps
        for row, headers in zip(step.out, step.headers, strict=True)
    ]


@pytest.mark.timeout(300)  # the plans of many programs
def test_each_result_has_the_headers_that_kafka_streams_gives_it() -> None:
    """Behind each operation: several, of one name, null, none; changelogs have none. In batches with as
    many records as do not change it."""
    chosen = [each for each in traces("headers") if not is_cached(each)]
    chosen.sort(key=lambda trace: trace.name in SINGLY)  # so that these share a query
    programs = [Program(number, trace) for number, trace in enumerate(chosen)]
    wrong = []
    with TopologyTestDriver(topology_of(programs), UNCACHED) as driver:
        pipe_in_order(driver, programs, singly=SINGLY)
        for program in programs:
            found, expected = came(driver, program), sent(program, program.trace.steps)
            if found != expected:
                wrong.append(f"{program.trace.name}:\n  {found} for\n  {expected}")
        assert_changelogs_have_none(driver)
    assert not wrong, "\n".join(wrong)


@pytest.mark.timeout(300)  # the plans of many programs
def test_with_a_cache_each_result_has_the_headers_that_kafka_streams_gives_it() -> None:
    """Which empties its cache after each record: so each is a batch."""
    chosen = [each for each in traces("headers") if is_cached(each) or each.name in CACHED_AS_WELL]
    programs = [Program(number, trace) for number, trace in enumerate(chosen)]
    wrong = []
    with TopologyTestDriver(topology_of(programs), CACHED) as driver:
        for step in range(max(len(trace.records) for trace in chosen)):
            pipe_step(driver, programs, step)
            for program in programs:
                # A batch tells a key's windows in the order of their times.
                found = sorted(came(driver, program), key=str)
                expected = sorted(sent(program, program.trace.steps[step : step + 1]), key=str)
                if found != expected:
                    record = program.trace.records[step : step + 1]
                    wrong.append(f"{program.trace.name}, {record}:\n  {found} for\n  {expected}")
        assert_changelogs_have_none(driver)
    assert not wrong, "\n".join(wrong)


def pipe_step(driver: TopologyTestDriver, programs: Sequence[Program], step: int) -> None:
    """One record of each program, and one batch of each source."""
    pipe_in_turns(
        driver, programs, {program.number: program.trace.records[step : step + 1] for program in programs}
    )


def assert_changelogs_have_none(driver: TopologyTestDriver) -> None:
    for topic in driver.produced_topic_names:
        if topic.endswith("-changelog"):
            names = {name for each in records(driver, topic, "bytes", "bytes") for name, _ in each.headers}
            # Kafka Streams' own says in which form a suppress has written what it holds back.
            assert names <= {"millstream.parts", "v"}, topic


def is_cached(trace: Trace) -> bool:
    return any("cached" in op for op in trace.program)


# --- several records in a batch ----------------------------------------------------------------------


def header(name: str) -> tuple[tuple[str, bytes | None], ...]:
    return (("h", name.encode()),)


def several() -> StreamsBuilder:
    """Programs with each way in which a batch's records come together."""
    builder = StreamsBuilder()
    source = builder.stream("in", STRINGS)
    grouped = source.group_by_key()
    window = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
    for name, table in {
        "combined": builder.stream("alone", STRINGS).group_by_key().count(),
        "count": grouped.count(),
        "in-python": grouped.reduce(lambda one, other: one + other),
        "by-value": source.group_by(lambda key, value: value).count(),
        "windows": grouped.windowed_by(window).count(),
        "closed": grouped.windowed_by(window).emit_strategy(EmitStrategy.on_window_close()).count(),
        "held": grouped.windowed_by(window)
        .count()
        .suppress(Suppressed.until_window_closes(BufferConfig.unbounded())),
    }.items():
        keyed = table.to_stream(lambda key, value: key.key) if name in WINDOWED else table.to_stream()
        keyed.map_values(lambda value: value.cast("string")).to(name)
    return builder


WINDOWED = ("windows", "closed", "held")


def test_of_several_records_in_a_micro_batch_the_last_one_has_the_headers() -> None:
    """With a cache: those of the key's last record, and none if it has none; whatever came before."""
    builder = several()
    with TopologyTestDriver(builder.build(), CACHED) as driver:

        def told(topic: str) -> dict[Any, Any]:
            return {each.key: each.headers for each in records(driver, topic)}

        first = [
            ("a", "x", 30, header("a1")),  # later than the next one, which counts nevertheless
            ("b", "x", 21, ()),
            ("a", "x", 22, header("a2")),
            ("b", "y", 23, header("b1")),
            ("c", "y", 24, header("c1")),
            ("c", "z", 25, ()),
        ]
        for topic in ("in", "alone"):
            pipe(driver, topic, *first)
        by_key = {"a": header("a2"), "b": header("b1"), "c": ()}
        for name in ("combined", "count", "in-python"):
            assert told(name) == by_key, name
        assert told("by-value") == {"x": header("a2"), "y": header("c1"), "z": ()}
        # The record of a at 22 is late; then b and c are, as well.
        assert told("windows") == {"a": header("a1")}
        assert (told("closed"), told("held")) == ({}, {})
        second = [("d", "x", 40, header("d1")), ("b", "x", 41, header("b2")), ("a", "x", 35, header("a3"))]
        for topic in ("in", "alone"):
            pipe(driver, topic, *second)
        by_key = {"d": header("d1"), "b": header("b2"), "a": header("a3")}
        for name in ("combined", "count", "in-python"):
            assert told(name) == by_key, name
        assert told("closed") == {"a": header("d1")}  # those of the record that closed it
        assert told("held") == {"a": header("a1")}  # its own


def test_a_record_has_its_headers_behind_an_operator() -> None:
    """An expression reads them, also where a stream looks up a row of a global table."""
    builder = StreamsBuilder()
    table = builder.global_table("rows", STRINGS)
    joined = builder.stream("in", STRINGS).join(table, lambda key, value: value, joiner)
    joined.filter(lambda key, value, record: F.element_at(record.headers, 1)["key"] == "h").to("looked-up")
    count = builder.stream("in", STRINGS).group_by_key().count().to_stream()
    count.map_values(lambda key, value, record: F.element_at(record.headers, 1)["value"].cast("string")).to(
        "count"
    )
    with TopologyTestDriver(builder.build(), CACHED) as driver:
        pipe(driver, "rows", ("x", "X", 1, header("row")))
        pipe(driver, "in", ("a", "x", 1, header("a")), ("b", "x", 1, (("g", b"b"),)), ("c", "x", 1))
        assert [(each.key, each.value, each.headers) for each in records(driver, "looked-up")] == [
            ("a", "x+X", header("a"))
        ]
        assert {each.key: each.value for each in records(driver, "count")} == {"a": "a", "b": "b", "c": None}
