"""Aggregations on Spark, given the records of Kafka Streams' traces (tests/snapshots/traces).

Many programs run side by side in one query, and one micro-batch has all records: what comes of them is what
Kafka Streams sends record by record, in its order. A record's header says whose it is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from driving import STRINGS, records
from pyspark.sql import Column
from pyspark.sql import functions as F
from snapshots.traces import Row, Trace, traces
from tiers import EVERYTHING

from millstream import (
    KStream,
    KTable,
    Materialized,
    Serde,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
    Windowed,
    WindowedSerdes,
)
from millstream.spark.dropped import new_reports, read_drops
from millstream.testing import TestRecord, TopologyTestDriver
from millstream.topology.windows import Windows

pytestmark = pytest.mark.spark

FOLDS = ("count", "reduce", "aggregate", "to_table")
STREAM_STEPS = {"select_key", "map_values", "filter", "group_by", "group_by_key", "windowed_by", "to_stream"}
TOGETHER = 8
"""How many programs read one source: all of these are one operator."""
CACHED = {"application.id": "app"}
UNCACHED = {**CACHED, "statestore.cache.max.bytes": 0}

BEGINS_ANEW = {"time/random 2"}
"""There a window has nothing but nulls, and so no value. Kafka Streams sends that; then it is as if there
were no window, and the next record gives it a new time."""


def fold_of(trace: Trace) -> Mapping[str, Any]:
    return next((op for op in trace.program if op["op"] in FOLDS), {})


def can_be_said(trace: Trace) -> bool:
    """Whether Spark's expressions can say what the program does; and Kafka Streams can run it."""
    fold, function = fold_of(trace), fold_of(trace).get("function", "count")
    operations = trace.operations
    if operations[0] != "stream" or not fold or not set(operations[1:]) <= {*STREAM_STEPS, *FOLDS}:
        return False
    if sum(op in FOLDS for op in operations) > 1 or "emit" in fold or trace.name in BEGINS_ANEW:
        return False
    if any(op["op"] in ("filter", "map_values") and "store" in op for op in trace.program):
        return False
    # A table's filter deletes what does not pass, also what never did: Kafka Streams tells no such deletion.
    if "filter" in operations[operations.index(fold["op"]) :]:
        return False
    if any(step.error for step in trace.steps) or function == "concat unless -":  # forgets what it had
        return False
    # For these a null in a window is a value, or has what comes after it begin anew.
    keeps_nulls = fold["op"] == "reduce" and function in ("first", "last", "concat")
    passes_over = trace.operation("windowed_by").get("windows") in (None, "sliding")
    return not keeps_nulls or passes_over or all(record.value is not None for record in trace.records)


def chosen(*files: str) -> list[Trace]:
    """A few of those that can be said, or all; the first ones are about edges, the last ones at random."""
    every = [trace for trace in traces(*files) if can_be_said(trace)]
    step = 1 if EVERYTHING else 3
    return every[::step]


# --- programs --------------------------------------------------------------------------------------------


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def windows_of(trace: Trace) -> Windows | None:
    op = trace.operation("windowed_by")
    match op.get("windows"):
        case "time":
            return TimeWindows.of_size_and_grace(ms(op["size"]), ms(op["grace"])).advance_by(
                ms(op["advance"])
            )
        case "sliding":
            return SlidingWindows.of_time_difference_and_grace(ms(op["difference"]), ms(op["grace"]))
        case "session":
            return SessionWindows.of_inactivity_gap_and_grace(ms(op["gap"]), ms(op["grace"]))
    return None


def folded(grouped: Any, op: Mapping[str, Any], materialized: Materialized) -> KTable:
    def concat(value: Column) -> Column:
        return F.array_join(F.collect_list(F.coalesce(value, F.lit("_"))), "")

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
    "key and start": lambda key, value: F.concat(key.key, F.lit("@"), F.unix_millis(key.window.start)),
}


@dataclass
class Program:
    """One trace's program, under a number."""

    number: int
    trace: Trace

    def build(self, source: KStream) -> None:
        made: Any = source.filter(
            lambda key, value, record: (
                F.element_at(record.headers, 1)["value"].cast("string") == str(self.number)
            )
        )
        if self.trace.program[0]["values"] == "long":
            made = made.map_values(lambda value: value.cast("long"))
        for op in self.trace.program[1:]:
            made = self._step(made, op)
        made.to(f"out-{self.number}")

    def _step(self, made: Any, op: Mapping[str, Any]) -> Any:
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
                return made.windowed_by(windows_of(self.trace))
            case "to_stream":
                return made.to_stream()
        materialized = Materialized.as_(f"store-{self.number}")
        if "retention" in op:
            materialized = materialized.with_retention(ms(op["retention"]))
        if op["op"] == "to_table":
            return made.to_table(materialized)
        return folded(made, op, materialized)

    @property
    def key_serde(self) -> Serde:
        """Of what comes out."""
        windows = windows_of(self.trace)
        after = self.trace.operations[self.trace.operations.index(fold_of(self.trace)["op"]) :]
        if windows is None or "select_key" in after:
            return Serdes.string()
        if isinstance(windows, SessionWindows):
            return WindowedSerdes.session_windowed_serde_from(Serdes.string())
        return WindowedSerdes.time_windowed_serde_from(Serdes.string(), ms(windows.size_ms))

    @property
    def value_serde(self) -> Serde:
        fold, kind = fold_of(self.trace), self.trace.program[0]["values"]
        return Serdes.long() if fold["op"] == "count" or kind == "long" else Serdes.string()


def topology_of(programs: Sequence[Program]) -> Topology:
    """All of them in one topology. What reads one source is one query, with one operator."""
    builder = StreamsBuilder()
    for first in range(0, len(programs), TOGETHER):
        source = builder.stream(f"in-{first // TOGETHER}", STRINGS)
        for program in programs[first : first + TOGETHER]:
            program.build(source)
    return builder.build()


def pipe_part(driver: TopologyTestDriver, programs: Sequence[Program], part: int, parts: int) -> None:
    """A part of all records, as one micro-batch of each source; the programs' records in turns."""
    by_topic: dict[str, list[TestRecord]] = defaultdict(list)
    for step in range(max(len(program.trace.records) for program in programs)):
        for program in programs:
            mine = program.trace.records
            for record in mine[step : step + 1] if step * parts // len(mine) == part else ():
                value = None if record.value is None else str(record.value)
                header = ("number", str(program.number).encode())
                by_topic[f"in-{program.number // TOGETHER}"].append(
                    TestRecord(record.key, value, record.timestamp, (header,))
                )
    for topic, batch in by_topic.items():
        driver.create_input_topic(topic, Serdes.string(), Serdes.string()).pipe_record_list(batch)


def came(driver: TopologyTestDriver, program: Program) -> list[Row]:
    """What the program has written since it was asked last."""
    found = records(driver, f"out-{program.number}", program.key_serde, program.value_serde)
    return [row(each) for each in found]


def row(record: TestRecord) -> Row:
    key = record.key
    if isinstance(key, Windowed):
        return Row(key.key, record.value, record.timestamp, key.window.start_ms, key.window.end_ms)
    return Row(key, record.value, record.timestamp)


def theirs(trace: Trace) -> list[Row]:
    """What Kafka Streams sent; without the marks of merged sessions, for parts have one rule for records and
    for sessions."""
    return [
        replace(each, value=each.value.replace("+", "") if isinstance(each.value, str) else each.value)
        for step in trace.steps
        for each in step.out
    ]


def late(driver: TopologyTestDriver) -> Counter[str]:
    """How many records were late, by node."""
    found: Counter[str] = Counter()
    for running in driver._pipelines:
        assert running._query is not None
        for report in new_reports(running._query, None):
            for (kind, node), count in read_drops(report).drops.items():
                assert kind == "late"
                found[node] += count
    return found


def too_late(trace: Trace) -> int:
    """How many times a record was too late for a window. Kafka Streams counts in the same metric what has no
    key, and what has no value where that is passed over."""
    skips_nulls = trace.operation("windowed_by")["windows"] == "sliding"
    nulls = sum(record.key is None or (skips_nulls and record.value is None) for record in trace.records)
    return int(trace.dropped) - nulls


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("file", ["time", "session", "sliding", "unwindowed", "chains"])
def test_without_a_cache_a_micro_batch_writes_what_kafka_streams_sends_of_its_records(
    file: str, parts: int
) -> None:
    """Each update, in the same order, with the same time; and what is late is counted, and why."""
    programs = [Program(number, trace) for number, trace in enumerate(chosen(file)[parts // 3 :: 2])]
    topology = topology_of(programs)
    nodes = {node.store.name: node.name for node in topology.nodes if node.store is not None}
    with TopologyTestDriver(topology, UNCACHED) as driver:
        for part in range(parts):
            pipe_part(driver, programs, part, parts)
        counts = late(driver)
        for program in programs:
            trace = program.trace
            assert came(driver, program) == theirs(trace), trace.line
            if trace.operations[1:3] == ("group_by_key", "windowed_by"):
                assert counts[nodes[f"store-{program.number}"]] == too_late(trace), trace.line
    assert sum(counts.values()) > 0 or file in ("unwindowed", "chains")


@pytest.mark.parametrize("file", ["time", "session", "sliding", "unwindowed"])
def test_with_a_cache_each_window_has_its_last_value_once_a_micro_batch(file: str) -> None:
    """Whatever was in between; and what was never told is never gone."""
    programs = [Program(number, trace) for number, trace in enumerate(chosen(file)[::2])]
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
            wanted = {(each.key, each.start, each.end): each.value for each in theirs(program.trace)}
            assert there(mine) == there(wanted), program.trace.line


def there(values: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in values.items() if value is not None}
