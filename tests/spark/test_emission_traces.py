"""Emit strategies, suppress, aggregations in a row: what goes on, record by record, is Kafka Streams' own.

Expected values are its traces (tests/snapshots/traces). The programs of many traces are one topology, whose
records say which of them they are for; each step of all of them is one micro-batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import functions as F
from snapshots.traces import Row, Step, Trace, difference, traces

from millstream import (
    BufferConfig,
    Consumed,
    EmitStrategy,
    KStream,
    KTable,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

PIPED = Serdes.json("trace int, text string, number bigint")
WRITTEN = Serdes.json("value string, at bigint")
GROUP = 15
"""How many programs are one topology."""

Op = Mapping[str, Any]


# --- programs --------------------------------------------------------------------------------------------


def can_be_said(trace: Trace) -> bool:
    """Whether expressions of Spark and the operations below say what the program does."""
    if any(record.value is None for record in trace.records) and "stream" in trace.operations:
        return False
    if trace.operation("suppress").get("bytes", 1) > 1 or any(step.error for step in trace.steps):
        return False
    for op in trace.program:
        function = op.get("function", "")
        if op.get("emit") == "close" and "retention" not in op:
            return False  # Kafka Streams asks its store what has closed, which drops some when time jumps
        if op["op"] in ("group_by", "select_key") and op["key"] != "key":
            return False
        if op["op"] in ("aggregate", "reduce") and function not in ("concat", "sum", "min", "max"):
            return False
        if op["op"] == "reduce" and function == "concat":
            return False
        if op["op"] == "aggregate" and trace.operation("windowed_by").get("windows") == "session":
            return False  # a merger has to be told to merge
    return trace.operations[-1] == "to_stream"


def windows(op: Op) -> Any:
    grace = ms(op["grace"])
    match op["windows"]:
        case "time":
            return TimeWindows.of_size_and_grace(ms(op["size"]), grace).advance_by(ms(op["advance"]))
        case "sliding":
            return SlidingWindows.of_time_difference_and_grace(ms(op["difference"]), grace)
    return SessionWindows.of_inactivity_gap_and_grace(ms(op["gap"]), grace)


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def suppressed(op: Op) -> Suppressed:
    buffer: Any = BufferConfig.unbounded()
    if "records" in op:
        buffer = buffer.with_max_records(op["records"])
    if "bytes" in op:
        buffer = buffer.with_max_bytes(op["bytes"])
    if op["until"] == "window closes":
        return Suppressed.until_window_closes(buffer)
    if op.get("full") != "stop":
        buffer = buffer.emit_early_when_full()
    return Suppressed.until_time_limit(ms(op["ms"]), buffer)


FOLDS: Mapping[str, Callable[[Any], Any]] = {
    "sum": F.sum,
    "min": F.min,
    "max": F.max,
    "concat": lambda value: F.concat_ws("", F.collect_list(F.coalesce(value.cast("string"), F.lit("_")))),
}


def told(stream: KStream, trace: Trace, number: int) -> None:
    """The program of a trace behind the records that are for it; what comes out of it goes to its topic."""
    kind = "number" if trace.program[0]["values"] == "long" else "text"
    here: Any = stream.filter(lambda value: value.trace == number).map_values(lambda value: value[kind])
    if trace.program[0]["op"] == "table":
        here = here.to_table()
    windowed = False
    stores = 0
    for op in trace.program[1:]:
        match op["op"]:
            case "group_by_key":
                here = here.group_by_key()
            case "select_key":
                here = here.select_key(lambda key, value: key.key)
                windowed = False
            case "windowed_by":
                here = here.windowed_by(windows(op))
                windowed = True
            case "count" | "reduce" | "aggregate":
                if op.get("emit") == "close":
                    here = here.emit_strategy(EmitStrategy.on_window_close())
                store = Materialized.as_(f"s-{number}-{stores}")
                if "retention" in op:
                    store = store.with_retention(ms(op["retention"]))
                stores += 1
                if op["op"] == "count":
                    here = here.count(store)
                else:
                    fold = FOLDS[op["function"]]
                    here = here.aggregate(lambda key, value, fold=fold: fold(value), store)
            case "suppress":
                here = here.suppress(suppressed(op))
            case "map_values":
                here = here.map_values(lambda value: value * 2)
            case "filter":
                even = op["function"] == "even"
                here = here.filter(lambda value, even=even: value % 2 == 0 if even else value > 1)
            case "to_table":
                here = here.to_table()
            case "to_stream":
                assert isinstance(here, KTable)
                here = here.to_stream()
            case other:
                raise AssertionError(other)

    def row(key: Any, value: Any, record: Any) -> Any:
        name = key
        if windowed:
            window = (F.unix_millis(key.window[side]).cast("string") for side in ("start", "end"))
            name = F.concat_ws("|", key.key, *window)
        return name, {"value": value.cast("string"), "at": F.unix_millis(record.timestamp)}

    here.map(row).to(f"out-{number}", Produced.with_(Serdes.string(), WRITTEN))


def steps_of(group: Sequence[Trace]) -> Iterator[list[Step]]:
    """What comes out for each record of each trace."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), PIPED))
    for number, trace in enumerate(group):
        told(stream, trace, number)
    steps: list[list[Step]] = [[] for _ in group]
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", Serdes.string(), PIPED)
        outputs = [
            driver.create_output_topic(f"out-{number}", Serdes.string(), WRITTEN)
            for number in range(len(group))
        ]
        for step in range(max(len(trace.records) for trace in group)):
            records = []
            for number, trace in enumerate(group):
                if step < len(trace.records):
                    record = trace.records[step]
                    side = "number" if isinstance(record.value, int) else "text"
                    value = {"trace": number, side: record.value}
                    records.append(TestRecord(record.key, value, record.timestamp))
            topic.pipe_record_list(records)
            for number, trace in enumerate(group):
                out = tuple(row_of(record, trace) for record in outputs[number].read_records_to_list())
                if step < len(trace.records):
                    steps[number].append(Step(out=out))
                else:
                    assert not out, trace.name
    return iter(steps)


def row_of(record: TestRecord, trace: Trace) -> Row:
    value: Any = record.value.get("value")  # none after a deletion
    numbers = next(op for op in reversed(trace.program) if op["op"] in KINDS)
    if value is not None and KINDS[numbers["op"]](numbers):
        value = int(value)
    key, *window = record.key.split("|")
    return Row(key, value, record.value["at"], *map(int, window))


KINDS: Mapping[str, Callable[[Op], bool]] = {
    "count": lambda op: True,
    "reduce": lambda op: op["function"] in ("sum", "min", "max"),
    "aggregate": lambda op: False,
    "table": lambda op: op["values"] == "long",
    "stream": lambda op: op["values"] == "long",
}
"""By operation: whether what comes of it are numbers."""


# --- tests -----------------------------------------------------------------------------------------------


def chosen(file: str) -> list[list[Trace]]:
    """Groups of the traces of a file: all of them in CI, else the first one of them."""
    some = [trace for trace in traces(file) if can_be_said(trace)]
    count = -(-len(some) // GROUP)
    groups = [some[start::count] for start in range(count)]
    return groups if "CI" in os.environ else groups[:1]


def compare(file: str, differs: Mapping[str, str]) -> None:
    wrong = []
    for group in chosen(file):
        for trace, steps in zip(group, steps_of(group), strict=True):
            found = difference(trace, steps, ignore=("log", "dropped", "headers", "error"))
            if (found is not None) != (trace.name in differs):
                wrong.append(found or f"{trace.name}: does not differ any more")
    assert not wrong, "\n\n".join(wrong)


def test_what_closes_goes_on_as_in_kafka_streams() -> None:
    """EmitStrategy.on_window_close() for all kinds of windows (KIP-825)."""
    compare("emit_on_close", {})


def test_what_is_held_back_goes_on_as_in_kafka_streams() -> None:
    """Suppress until windows close and until a time limit, with limits of the buffer (KIP-328)."""
    compare("suppress", {})


def test_aggregations_in_a_row_are_those_of_kafka_streams() -> None:
    """Without a change of keys between them, in one query; with one, through a topic."""
    compare("chains", {})
