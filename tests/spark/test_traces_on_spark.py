"""Aggregations on Spark, given the records of Kafka Streams' traces (tests/snapshots/traces).

Many programs run side by side in one query, and one batch has all records: what comes of them is what
Kafka Streams sends record by record, in its order (trace_driving.py).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import Column
from pyspark.sql import functions as F
from snapshots.traces import Row, Trace, traces
from trace_driving import came, ms, own, pipe_part, topology_of

from millstream import (
    BufferConfig,
    DailyTimeWindows,
    EmitStrategy,
    KStream,
    KTable,
    Materialized,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
    UnlimitedWindows,
    WindowedSerdes,
    windowed_text,
)
from millstream.testing import TopologyTestDriver
from millstream.topology.windows import Windows

pytestmark = pytest.mark.spark

FOLDS = ("count", "reduce", "aggregate", "to_table")
STATEFUL = {*FOLDS, "suppress"}
STREAM_STEPS = {"select_key", "map_values", "filter", "group_by", "group_by_key", "windowed_by", "to_stream"}
CACHED = {"application.id": "app"}
UNCACHED = {**CACHED, "statestore.cache.max.bytes": 0}

BEGINS_ANEW = {"time/random 2"}
"""There a window has nothing but nulls, and so no value. Kafka Streams sends that; then it is as if there
were no window, and the next record gives it a new time."""


def folds_of(trace: Trace) -> list[Mapping[str, Any]]:
    return [op for op in trace.program if op["op"] in FOLDS]


def can_be_said(trace: Trace, *, in_python: bool) -> bool:
    """Whether Spark's expressions, or Python's functions, can say what the program does; and Kafka Streams
    can run it."""
    operations, folds = trace.operations, folds_of(trace)
    if not set(operations[1:]) <= {*STREAM_STEPS, *STATEFUL} or not STATEFUL & {*operations}:
        return False
    if any(step.error for step in trace.steps) or trace.name in BEGINS_ANEW:
        return False
    if trace.operation("suppress").get("bytes", 1) > 1:
        return False  # Kafka Streams counts the bytes of old values as well
    if any(op.get("emit") == "close" and "retention" not in op for op in folds):
        return (
            False  # Kafka Streams asks its store what has closed, and that drops some of it when time jumps
        )
    # A table's filter deletes what does not pass, also what never did. Where Kafka Streams knows old values,
    # it tells no such deletion.
    if any("store" in op for op in trace.program if op["op"] in ("filter", "map_values")):
        return False
    if "filter" in operations and (operations[0] == "table" or is_table_of_windows(trace)):
        return False
    if in_python and not any(op["op"] in ("aggregate", "reduce") for op in folds):
        return False
    if any(op.get("function") == "concat unless -" for op in folds):
        return False  # forgets what it had, which here is known when the batch is over
    # For these a null in a window is a value, or has what comes after it begin anew.
    functions = {op.get("function", "") for op in folds if op["op"] == "reduce"}
    keeps_nulls = bool(functions & {"first", "last", "concat"})
    passes_over = trace.operation("windowed_by").get("windows") in (None, "sliding")
    return not keeps_nulls or passes_over or has_no_nulls(trace)


def is_table_of_windows(trace: Trace) -> bool:
    """Whether what it filters is a table of windows."""
    before = trace.operations[: trace.operations.index("filter")]
    return "windowed_by" in before and "to_stream" not in before[before.index("windowed_by") :]


def has_no_nulls(trace: Trace) -> bool:
    return all(record.value is not None for record in trace.records)


HELD_BY_CORES = ("unwindowed", "time", "session", "sliding", "emit_on_close", "suppress")
"""The files of which the kernel's cores are tested with each trace (tests/kernel/test_cores.py). What is seen
here is what is around the cores."""


def chosen(file: str, count: int, *, in_python: bool = False) -> list[Trace]:
    """Some of those that can be said, from edges to random ones."""
    every = [trace for trace in traces(file) if can_be_said(trace, in_python=in_python)]
    count = min(len(every), count)
    return [every[place * len(every) // count] for place in range(count)]


# --- programs --------------------------------------------------------------------------------------------


def windows_of(op: Mapping[str, Any]) -> Windows | None:
    match op.get("windows"):
        case "time":
            return TimeWindows.of_size_and_grace(ms(op["size"]), ms(op["grace"])).advance_by(
                ms(op["advance"])
            )
        case "sliding":
            return SlidingWindows.of_time_difference_and_grace(ms(op["difference"]), ms(op["grace"]))
        case "daily":
            return DailyTimeWindows.of(op["zone"], start_hour=op["hour"], grace=ms(op["grace"]))
        case "unlimited":
            return UnlimitedWindows.of().start_on(datetime.fromtimestamp(op["start"] / 1000, UTC))
        case "session":
            return SessionWindows.of_inactivity_gap_and_grace(ms(op["gap"]), ms(op["grace"]))
    return None


def suppressed(op: Mapping[str, Any]) -> Suppressed:
    buffer: Any = BufferConfig.unbounded()
    if "records" in op:
        buffer = buffer.with_max_records(op["records"])
    if "bytes" in op:
        buffer = buffer.with_max_bytes(op["bytes"])
    if op["until"] == "window closes":
        return Suppressed.until_window_closes(buffer)
    return Suppressed.until_time_limit(ms(op["ms"]), buffer.emit_early_when_full())


def folded_in_python(
    grouped: Any, op: Mapping[str, Any], materialized: Materialized, *, merges: bool
) -> KTable:
    """By functions that do what those of TraceAll.java do."""
    function = op["function"]

    def reduced(one: Any, other: Any) -> Any:
        if function == "concat":
            return one + ("_" if other is None else other)
        if function in ("first", "last"):
            return one if function == "first" else other
        if one is None or other is None:
            return other if one is None else one
        return {"sum": operator.add, "min": min, "max": max}[function](one, other)

    def added(key: Any, value: Any, so_far: str) -> str | None:
        if function == "concat unless -" and value == "-":
            return None
        return so_far + ("_" if value is None else str(value))

    if op["op"] == "reduce":
        return grouped.reduce(reduced, materialized)  # type: ignore[no-any-return]
    merger = [lambda key, one, other: f"{one}+{other}"] if merges else []
    kept = materialized.with_value_serde(Serdes.string())
    return grouped.aggregate(lambda: "", added, *merger, kept)  # type: ignore[no-any-return]


def folded(grouped: Any, op: Mapping[str, Any], materialized: Materialized) -> KTable:
    def concat(value: Column) -> Column:
        return F.array_join(F.collect_list(F.coalesce(value.cast("string"), F.lit("_"))), "")

    if op["op"] == "count":
        return grouped.count(materialized)  # type: ignore[no-any-return]
    function: Any = {
        "concat": concat,
        "sum": F.sum,
        "min": F.min,
        "max": F.max,
        "first": F.first,
        "last": F.last,
    }[op["function"]]
    return grouped.aggregate(lambda value: function(value), materialized)  # type: ignore[no-any-return]


FUNCTIONS: Mapping[str, Any] = {
    "twice": lambda value: 2 * value,
    "upper": F.upper,
    "null": lambda value: F.lit(None).cast("string"),
    "even": lambda value: value % 2 == 0,
    "above 1": lambda value: value > 1,
    "not x": lambda value: value != "x",
}
KEYS: Mapping[str, Any] = {
    "value": lambda key, value: value.cast("string"),
    "all": lambda key, value: F.lit("all"),
    "key": lambda key, value: key.key,
    "text": lambda key, value: windowed_text(key),
    "key and start": lambda key, value: F.concat(key.key, F.lit("@"), F.unix_millis(key.window.start)),
}


@dataclass
class Program:
    """One trace's program, under a number."""

    number: int
    trace: Trace
    in_python: bool = False

    def build(self, source: KStream) -> None:
        made: Any = own(source, self)
        if self.trace.program[0]["values"] == "long":
            made = made.map_values(lambda value: value.cast("long"))
        if self.trace.program[0]["op"] == "table":
            made = made.to_table()
        for place, op in enumerate(self.trace.program[1:]):
            made = self._step(made, op, place)
        made.to(f"out-{self.number}")

    def _step(self, made: Any, op: Mapping[str, Any], place: int) -> Any:
        match op["op"]:
            case "select_key" | "group_by" as name:
                return getattr(made, name)(KEYS[op["key"]])
            case "map_values":
                mapper = FUNCTIONS[op["function"]]
                return made.map_values(lambda value: mapper(value))
            case "filter":
                predicate = FUNCTIONS[op["function"]]
                return made.filter(lambda value: predicate(value))
            case "group_by_key":
                return made.group_by_key()
            case "windowed_by":
                return made.windowed_by(windows_of(op))
            case "to_stream":
                return made.to_stream()
            case "suppress":
                return made.suppress(suppressed(op))
        materialized = Materialized.as_(f"store-{self.number}-{place}")
        if "retention" in op:
            materialized = materialized.with_retention(ms(op["retention"]))
        if op["op"] == "to_table":
            return made.to_table(materialized)
        if op.get("emit") == "close":
            made = made.emit_strategy(EmitStrategy.on_window_close())
        if self.in_python and op["op"] != "count":
            merges = "gap" in self.trace.program[place]  # before it
            return folded_in_python(made, op, materialized, merges=merges)
        return folded(made, op, materialized)

    @property
    def first_store(self) -> str:
        place = min(self.trace.operations.index(op["op"]) for op in folds_of(self.trace))
        return f"store-{self.number}-{place - 1}"

    @property
    def key_serde(self) -> Serde:
        """Of what comes out."""
        windows = None
        for op in self.trace.program:
            if op["op"] in ("windowed_by", "select_key"):
                windows = windows_of(op)
        if windows is None:
            return Serdes.string()
        if isinstance(windows, SessionWindows):
            return WindowedSerdes.session_windowed_serde_from(Serdes.string())
        return WindowedSerdes.time_windowed_serde_from(Serdes.string(), ms(windows.size_ms))

    @property
    def value_serde(self) -> Serde:
        kind = self.trace.program[0]["values"]
        for op in folds_of(self.trace):
            if op["op"] == "count":
                kind = "long"
            elif op["op"] == "aggregate" and op["function"].startswith("concat"):
                kind = "string"
        return Serdes.long() if kind == "long" else Serdes.string()


def theirs(program: Program) -> list[Row]:
    """What Kafka Streams sent. Without the marks of merged sessions, unless functions made them: parts have
    one rule for records and for sessions."""
    sent = [each for step in program.trace.steps for each in step.out]
    if program.in_python:
        return sent
    return [
        replace(each, value=each.value.replace("+", "") if isinstance(each.value, str) else each.value)
        for each in sent
    ]


def too_late(trace: Trace) -> int:
    """How many times a record was too late for a window. Kafka Streams counts in the same metric what has no
    key, and what has no value where that is passed over."""
    skips_nulls = trace.operation("windowed_by")["windows"] == "sliding"
    nulls = sum(record.key is None or (skips_nulls and record.value is None) for record in trace.records)
    return int(trace.dropped) - nulls


def tells_what_is_late(trace: Trace) -> bool:
    """Whether what it has dropped was late for its one aggregation."""
    return trace.operations[1:3] == ("group_by_key", "windowed_by") and len(folds_of(trace)) == 1


WINDOWS = ("time", "session", "sliding", "unwindowed")


def test_with_a_cache_each_window_has_its_last_value_once_a_micro_batch() -> None:
    """Whatever was in between; and what was never told is never gone."""
    updates = [
        trace
        for file in WINDOWS
        for trace in chosen(file, 16)
        if "to_table" not in trace.operations and has_no_nulls(trace)
    ]
    programs = [Program(number, trace) for number, trace in enumerate(updates[::2])]
    values: list[dict[Any, Any]] = [{} for _ in programs]
    with TopologyTestDriver(topology_of(programs), CACHED) as driver:
        for part in range(2):
            pipe_part(driver, programs, part, 2)
            for program, mine in zip(programs, values, strict=True):
                found = came(driver, program)
                told = [(each.key, each.start, each.end) for each in found]
                assert len(set(told)) == len(told), program.trace.line
                assert {name for name, each in zip(told, found, strict=True) if each.value is None} <= set(
                    mine
                )
                mine.update(zip(told, (each.value for each in found), strict=True))
        for program, mine in zip(programs, values, strict=True):
            wanted = {(each.key, each.start, each.end): each.value for each in theirs(program)}
            assert there(mine) == there(wanted), program.trace.line


def there(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in values.items() if value is not None}
