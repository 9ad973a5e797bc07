"""The kernel's cores, without Spark: what they tell of each record is what Kafka Streams sends.

Expected values are the traces of Kafka Streams (tests/snapshots/traces).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from java_programs import KernelJava
from snapshots.traces import Row, Step, Trace, step, traces

from millstream import DailyTimeWindows

MAIN = "io.millstream.kernel.task.TaskTracesMain"
FOLDS = ("count", "reduce", "aggregate")
OPERATIONS = {*FOLDS, "stream", "table", "group_by_key", "windowed_by", "suppress", "to_stream"}
FILES = ("unwindowed", "time", "session", "sliding", "emit_on_close", "suppress")
DIFFERS = {
    "time/random 2": "a window of nulls has a time; in Kafka Streams it is as if there were none",
}
"""Where a core does not what Kafka Streams does."""


def fold_of(trace: Trace) -> Mapping[str, Any]:
    """The aggregation; empty for a table that is not one."""
    return next((op for op in trace.program if op["op"] in FOLDS), {})


def can_be_said(trace: Trace) -> bool:
    """Whether cores, parts and rules can say what the program does; and Kafka Streams can run it."""
    operations = set(trace.operations)
    if not operations <= OPERATIONS or not operations & {*FOLDS, "suppress"} or trace.name in DIFFERS:
        return False
    if trace.operations.count("suppress") > 1 or trace.operation("suppress").get("bytes", 1) > 1:
        return False  # Kafka Streams counts the bytes of old values as well
    if any("greater than window startMs" in (each.error or "") for each in trace.steps):
        return False  # Kafka Streams has no sliding windows of no length
    function = fold_of(trace).get("function", "count")
    if function == "concat unless -":  # forgets what it had
        return False
    # For these, what comes after a null begins anew, or a null is a value; parts pass over nulls.
    keeps_nulls = fold_of(trace).get("op") == "reduce" and function in ("first", "last", "concat")
    return not (keeps_nulls and any(record.value is None for record in trace.records))


def loses_windows(trace: Trace) -> bool:
    """Kafka Streams asks its store for what closed, and that has dropped some of it when time jumps."""
    return fold_of(trace).get("emit") == "close" and "retention" not in fold_of(trace)


def chosen(*files: str) -> list[Trace]:
    return [trace for trace in traces(*files) if can_be_said(trace)]


def ask(kernel_java: KernelJava, cases: Iterable[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The steps of each case."""
    said = kernel_java(MAIN, "".join(f"{json.dumps(case)}\n" for case in cases))
    return [json.loads(line) for line in said.splitlines()]


def case_of(trace: Trace, **more: Any) -> dict[str, Any]:
    records = [[record.key, record.value, record.timestamp] for record in trace.records]
    return {"program": trace.program, "records": records, **more}


def plain(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Texts without the marks of merged sessions: parts have one rule for records and for sessions."""

    def row(each: Row) -> Row:
        return replace(each, value=each.value.replace("+", "") if isinstance(each.value, str) else each.value)

    return tuple(
        Step(out=tuple(map(row, each.out)), dropped=each.dropped, error=each.error and "full")
        for each in steps
    )


@pytest.mark.disk
def test_what_kafka_streams_loses_when_windows_close_is_told(kernel_java: KernelJava) -> None:
    """Kafka Streams' store drops windows before they are sent. The others are emitted as there, in their
    order."""
    some = [trace for trace in chosen("emit_on_close") if loses_windows(trace)]
    more = 0
    for trace, steps in zip(some, ask(kernel_java, map(case_of, some)), strict=True):
        theirs = [row for each in plain(trace.steps) for row in each.out]
        ours = [row for each in plain(map(step, steps)) for row in each.out]
        assert is_within(theirs, ours), trace.name
        assert len({(row.key, row.start, row.end) for row in ours}) == len(ours), trace.name
        more += len(ours) - len(theirs)
    assert more > 20


def is_within(some: Sequence[Row], rows: Iterable[Row]) -> bool:
    """In the same order."""
    rest = iter(rows)
    return all(row in rest for row in some)


def rows(steps: Iterable[Mapping[str, Any]], lane: str) -> list[list[Any]]:
    return [row for each in steps for row in each.get(lane, [])]


def last(told: Iterable[Sequence[Any]]) -> dict[tuple[Any, ...], list[Any]]:
    """The value and time of each window that is there in the end. Only what was there can be gone."""
    values: dict[tuple[Any, ...], list[Any]] = {}
    for key, value, at, *window in told:
        if value is None and (key, *window) in values:
            del values[(key, *window)]
        elif value is not None:
            values[(key, *window)] = [value, at]
    return values


WINDOWS = [
    {"windows": "time", "size": 10, "advance": 10, "grace": 5},
    {"windows": "time", "size": 10, "advance": 3, "grace": 0},
    {"windows": "sliding", "difference": 10, "grace": 5},
    {"windows": "session", "gap": 4, "grace": 20},
]


@pytest.mark.disk
def test_days_are_those_that_windows_for_has(kernel_java: KernelJava) -> None:
    """Clocks may skip or repeat the hour at which a day begins, midnight, or a whole day."""
    changes = (
        ("Europe/Berlin", 2, "2026-03-29T01:00"),
        ("Europe/Berlin", 2, "2026-10-25T01:00"),
        ("Europe/Berlin", 0, "1970-01-01T01:00"),
        ("America/St_Johns", 0, "2010-11-07T02:31"),
        ("America/Havana", 0, "2026-11-01T05:00"),
        ("Australia/Lord_Howe", 2, "2026-04-04T15:00"),
        ("Pacific/Apia", 0, "2011-12-30T10:00"),
    )
    for zone, hour, change in changes:
        at = int(datetime.fromisoformat(f"{change}Z").timestamp() * 1000)
        times = sorted(
            {max(0, at + minutes * 60_000 + 1) for minutes in range(-3000, 3000, 7)} | {at, at + 1}
        )
        asked = {"windows": "daily", "zone": zone, "hour": hour, "grace": 0, "op": "windowed_by"}
        program = [{"op": "stream"}, {"op": "group_by_key"}, asked, {"op": "count"}]
        ((*steps,),) = ask(
            kernel_java, [{"program": program, "records": [["a", "x", time] for time in times]}]
        )
        told = [(row[3], row[4]) for step in steps for row in step["out"]]
        days = DailyTimeWindows.of(zone, start_hour=hour)
        ours = [window for time in times for window in days.windows_for(time).values()]
        assert told == [(window.start_ms, window.end_ms) for window in ours], zone
        assert all(window.start_ms <= time < window.end_ms for window, time in zip(ours, times, strict=True))
        chain = sorted(set(told))
        assert len(chain) >= 3
        assert all(one[1] == other[0] for one, other in itertools.pairwise(chain)), zone
