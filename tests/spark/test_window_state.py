"""The windows of Python's making: those that Kafka Streams makes, with its own updates to compare with."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import pytest
from snapshots.traces import Row, Trace, traces

from millstream.spark.window_state import update
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows

RETENTION = "a session is not dropped by the retention of a store"
ARRIVAL = (
    "a record that is too late for the window that ends at it counts in those that are open all the same"
)
DIFFERS = {
    "session/no grace": RETENTION,
    "session/grace: the last moment and the first too late": RETENTION,
    "session/dropped by the store's retention": RETENTION,
    "session/other keys let time go on": RETENTION,
    "session/gap 0": RETENTION,
    "session/random 24": RETENTION,
    "session/random 28": RETENTION,
    "sliding/grace: the last moment and the first too late": ARRIVAL,
    "sliding/other keys let time go on": ARRIVAL,
    "sliding/in memory": ARRIVAL,
    "sliding/random 0": ARRIVAL,
}
"""Where windows of Python's making are not those of Kafka Streams."""


class Joined:
    """Values one after another, `_` for None, as the traces have it."""

    def initial(self) -> str:
        return ""

    def add(self, aggregate: str, payload: str | None) -> str:
        return aggregate + ("_" if payload is None else payload)

    def merge(self, one: str, other: str) -> str:
        return one + other


class Sorted(Joined):
    """The same with letters in order: what does not depend on it."""

    def add(self, aggregate: str, payload: str | None) -> str:
        return "".join(sorted(aggregate + (payload or "")))

    def merge(self, one: str, other: str) -> str:
        return self.add(one, other)


def windows_of(trace: Trace) -> Windows:
    op = trace.operation("windowed_by")
    if op["windows"] == "time":
        return TimeWindows(op["size"], op["advance"], op["grace"])
    if op["windows"] == "sliding":
        return SlidingWindows(op["difference"], op["grace"])
    return SessionWindows(op["gap"], op["grace"])


def folds() -> list[Trace]:
    """The traces of folds that join values, and that Kafka Streams can run."""
    return [
        trace
        for trace in traces("time", "session", "sliding")
        if trace.operation("aggregate").get("function") == "concat"
        and not any(step.error for step in trace.steps)
    ]


def comparable(windows: Windows, updates: Iterable[Row]) -> list[Any]:
    """The last update of each window, in an order of their own; values of sliding windows have none either.

    Kafka Streams deletes a session that has not changed its ends before it writes it anew.
    """
    last = {(row.start, row.end): (row.value, row.timestamp) for row in updates}
    found = []
    for window, (value, at) in last.items():
        text = value.replace("+", "") if isinstance(value, str) else value
        if isinstance(windows, SlidingWindows):
            text = sorted(str(text))
        # A deletion's timestamp is not compared: nothing reads it.
        found.append((*window, text, 0 if text is None else at))
    return sorted(found, key=str)


def differing_record(trace: Trace) -> int | None:
    """The number of the first record of which something else comes."""
    windows, stream_time = windows_of(trace), 0
    kept: dict[str, list[Any]] = {}
    for number, (record, step) in enumerate(zip(trace.records, trace.steps, strict=True)):
        key = record.key
        if key is None or (isinstance(windows, SlidingWindows) and record.value is None):
            continue  # aggregate.Pending.belongs
        one = (record.timestamp, record.value)
        outcome = update(windows, Joined(), kept.get(key, []), [one], stream_time)
        kept[key] = outcome.kept
        stream_time = max(stream_time, record.timestamp)
        mine = [
            Row(key, each.aggregate, each.timestamp, each.start_ms, each.end_ms) for each in outcome.changes
        ]
        if comparable(windows, mine) != comparable(windows, step.out):
            return number
    return None


def test_each_record_changes_the_windows_that_it_changes_in_kafka_streams() -> None:
    """Late records, hopping and merging windows and all: the same updates, record by record."""
    every = folds()
    assert len(every) > 70
    assert {str(trace) for trace in every if differing_record(trace) is not None} == set(DIFFERS)


WINDOWS: list[Windows] = [
    TimeWindows(10, 4, 1000),
    SlidingWindows(6, 1000),
    SessionWindows(4, 1000),
    SessionWindows(0, 1000),
]


@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@pytest.mark.parametrize("seed", range(10))
def test_a_batch_leaves_what_its_records_leave_one_by_one(windows: Windows, seed: int) -> None:
    """With nothing late: the same windows with the same values are there at the end, each told once, and what
    was never told is never deleted."""
    rng = random.Random(seed)
    records = [(rng.randrange(60), rng.choice("xyz")) for _ in range(rng.randint(1, 25))]
    table: dict[Any, Any] = {}
    kept: list[Any] = []
    for record in records:
        outcome = update(windows, Sorted(), kept, [record], 0)
        kept = outcome.kept
        table.update({change[:2]: change[2] for change in outcome.changes})
    there = {window: value for window, value in table.items() if value is not None}

    half = len(records) // 2
    first = update(windows, Sorted(), [], records[:half], 0)
    second = update(windows, Sorted(), json.loads(json.dumps(first.kept)), records[half:], 0)
    told: dict[Any, Any] = {}
    for outcome in (first, second):
        windows_told = [change[:2] for change in outcome.changes]
        assert len(set(windows_told)) == len(windows_told)
        deleted = {change[:2] for change in outcome.changes if change.aggregate is None}
        assert deleted <= set(told)
        told.update({change[:2]: change[2] for change in outcome.changes})
    assert {window: value for window, value in told.items() if value is not None} == there
    assert second.kept == kept


@pytest.mark.parametrize(
    "windows", [TimeWindows(10, 4, 3), SlidingWindows(6, 3), SessionWindows(4, 3)], ids=str
)
def test_what_is_kept_expires_when_no_record_can_touch_it(windows: Windows) -> None:
    """At the time that is told, and not a millisecond before: then a record in the middle still counts."""
    kept, _, expires = update(windows, Sorted(), [], [(100, "x")], 0)
    assert kept
    last = expires - windows.grace_ms
    for timestamp in range(90, 130):  # nothing that comes after changes anything
        alone = update(windows, Sorted(), [], [(timestamp, "y")], expires + 1).changes
        assert update(windows, Sorted(), kept, [(timestamp, "y")], expires + 1).changes == alone
    touched = [
        update(windows, Sorted(), kept, [(timestamp, "y")], expires - 1).changes
        for timestamp in range(90, last + 1)
    ]
    assert any("xy" in str(changes) for changes in touched)
