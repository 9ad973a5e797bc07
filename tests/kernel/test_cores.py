"""The kernel's cores, without Spark: what they tell of each record is what Kafka Streams sends.

Expected values are the traces of Kafka Streams (tests/snapshots/traces).
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from java_programs import KernelJava
from snapshots.traces import Row, Step, Trace, difference, step, traces

from millstream import DailyTimeWindows

MAIN = "io.millstream.kernel.core.TracesMain"
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
@pytest.mark.parametrize("file", FILES)
def test_each_record_leads_to_what_kafka_streams_sends(file: str, kernel_java: KernelJava) -> None:
    """Each record a micro-batch of its own: what is kept in between is all that there is."""
    exact = [trace for trace in chosen(file) if not loses_windows(trace)]
    assert len(exact) >= 30
    for trace, steps in zip(exact, ask(kernel_java, map(case_of, exact)), strict=True):
        theirs = replace(trace, steps=plain(trace.steps))
        assert difference(theirs, plain(map(step, steps)), ignore=["log"]) is None


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


@pytest.mark.disk
@pytest.mark.parametrize("file", ["unwindowed", "time", "session", "sliding", "emit_on_close"])
def test_micro_batches_end_with_the_same_values(file: str, kernel_java: KernelJava) -> None:
    """However the records are divided, if each change is told once a micro-batch, and if the cache is full in
    the middle of one. What closes is told once, and in the same order."""
    chance = random.Random(file)
    some = chosen(file)
    cases = [
        case_of(
            trace,
            batches=batches(chance, len(trace.records)),
            at_once=False,
            capacity=chance.choice([1, 2, 5, 200_000]),
            span=chance.choice([1, 3, 64]),
        )
        for trace in some
    ]
    singly = ask(kernel_java, map(case_of, some))
    for trace, case, expected, steps in zip(some, cases, singly, ask(kernel_java, cases), strict=True):
        said = f"{trace.name} in batches of {case['batches']}, capacity {case['capacity']}"
        if fold_of(trace).get("emit") == "close":
            assert rows(steps, "out") == rows(expected, "out"), said
        lane = "updates" if fold_of(trace).get("emit") == "close" else "out"
        assert last(rows(steps, lane)) == last(rows(expected, lane)), said
        assert sum(each.get("dropped", 0) for each in steps) == trace.dropped, said


def batches(chance: random.Random, records: int) -> list[int]:
    """Sizes of micro-batches for so many records; sometimes of all, or of none."""
    sizes: list[int] = []
    while sum(sizes) < records:
        sizes.append(min(chance.choice([0, 1, 2, 5, 100]), records - sum(sizes)))
    return sizes


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
@pytest.mark.parametrize("emit", ["update", "close"])
@pytest.mark.parametrize("windows", WINDOWS, ids=lambda windows: f"{windows['windows']} {windows['grace']}")
def test_what_has_closed_is_given_up(windows: dict[str, Any], emit: str, kernel_java: KernelJava) -> None:
    """This includes keys that never come again: the state only has the last few windows, however long it
    runs."""
    records = [[f"k{n}", "x", n] for n in range(2_000)]
    program = [{"op": "windowed_by", **windows}, {"op": "count", "emit": emit}]
    case = {"program": program, "records": records, "batches": [50] * 40, "at_once": False}
    (steps,) = ask(kernel_java, [case])
    kept = [each["kept"] for each in steps]
    assert len(kept) == 40
    assert max(kept) < 1_000
    assert max(kept[30:]) <= max(kept[5:15]) + 10
    (steps,) = ask(kernel_java, [{**case, "records": [*records, ["last", "x", 1_000_000]]}])
    assert steps[-1]["kept"] <= 10


@pytest.mark.disk
def test_nothing_is_told_of_a_session_that_nobody_has_heard_of(kernel_java: KernelJava) -> None:
    """It began and became a part of another in one micro-batch. One that was told before is gone."""
    program = [{"op": "windowed_by", "windows": "session", "gap": 10, "grace": 100}, {"op": "count"}]
    records = [["a", "x", 0], ["a", "x", 30], ["a", "x", 40], ["a", "x", 20], ["a", "x", 10]]
    (steps,) = ask(
        kernel_java, [{"program": program, "records": records, "batches": [1, 4], "at_once": False}]
    )
    assert [each["out"] for each in steps] == [
        [["a", 1, 0, 0, 0]],
        [["a", None, 0, 0, 0], ["a", 5, 40, 0, 40]],
    ]


@pytest.mark.disk
def test_a_session_takes_the_place_of_one_that_its_store_has_forgotten(kernel_java: KernelJava) -> None:
    """Of the same times: it has that one's key in the store, and is what is told of it."""
    program = [{"op": "windowed_by", "windows": "session", "gap": 1, "grace": 0}, {"op": "aggregate"}]
    program[1] |= {"function": "concat"}
    records = [["a", "x", 8], ["b", "y", 9], ["a", "z", 8], ["a", "v", 9]]
    case = {"program": program, "records": records, "at_once": False}
    (once,) = ask(kernel_java, [{**case, "records": records[:3], "batches": [3]}])
    assert once[0]["out"] == [["a", "z", 8, 8, 8], ["b", "y", 9, 9, 9]]
    (steps,) = ask(kernel_java, [{**case, "batches": [2, 2]}])
    assert steps[1]["out"] == [["a", "z", 8, 8, 8], ["a", "v", 9, 9, 9]]


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
