"""The windows of Python's making: those that Kafka Streams makes, with its own updates to compare with."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from window_oracle import Case, cases

from millstream.spark.window_state import update
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows


class Joined:
    """Values one after another, as WindowsAll.java has it."""

    is_associative = False

    def initial(self) -> str:
        return ""

    def add(self, aggregate: str, payload: str) -> str:
        return aggregate + payload

    def merge(self, one: str, other: str) -> str:
        return one + other


class Sorted(Joined):
    """The same with letters in order: what does not depend on it."""

    def add(self, aggregate: str, payload: str) -> str:
        return "".join(sorted(aggregate + payload))

    merge = add


class Associative(Joined):
    """The same, said to be what it is."""

    is_associative = True


def comparable(case: Case, updates: list[Any]) -> list[Any]:
    """The last update of each window, in an order of their own; values of sliding windows have none either.

    Kafka Streams deletes a session that has not changed its ends before it writes it anew.
    """
    last = {update[:3]: update[3:] for update in updates}
    if isinstance(case.windows, SlidingWindows):
        last = {window: ("".join(sorted(value)), timestamp) for window, (value, timestamp) in last.items()}
    # A deletion's timestamp is not compared: nothing reads it.
    return sorted((*window, value, 0 if value is None else at) for window, (value, at) in last.items())


@pytest.mark.parametrize("case", cases(), ids=str)
def test_each_record_changes_the_windows_that_it_changes_in_kafka_streams(case: Case) -> None:
    """Late records, hopping and merging windows and all: the same updates, record by record."""
    kept: dict[str, list[Any]] = {}
    stream_time = 0
    for number, ((key, value, timestamp), wanted) in enumerate(zip(case.records, case.updates, strict=True)):
        outcome = update(case.windows, Joined(), kept.get(key, []), [(timestamp, value)], stream_time)
        kept[key] = outcome.kept
        stream_time = max(stream_time, timestamp)
        mine = [(key, *change) for change in outcome.changes]
        assert comparable(case, mine) == comparable(case, wanted), f"record {number}: {case.records[number]}"


WINDOWS: list[Windows] = [
    TimeWindows(10, 4, 1000),
    SlidingWindows(6, 1000),
    SessionWindows(4, 1000),
    SessionWindows(0, 1000),
]


@pytest.mark.parametrize("seed", range(10))
def test_values_are_joined_to_what_they_are_folded_to(seed: int) -> None:
    """Sliding windows of a batch, with many records in each: joined piece by piece, or folded each anew."""
    rng = random.Random(seed)
    windows = SlidingWindows(rng.randint(0, 20), 30)
    kept: list[Any] = []
    stream_time = 0
    for _ in range(4):
        batch = [(rng.randrange(stream_time // 2, stream_time + 40), rng.choice("xyz")) for _ in range(20)]
        folded = update(windows, Joined(), kept, batch, stream_time)
        joined = update(windows, Associative(), kept, batch, stream_time)
        assert joined.changes == folded.changes
        merged = [[time, ["".join(values)]] for time, values in folded.kept]
        assert joined.kept == merged, "of a time with several records, one value is kept"
        assert len(folded.changes) > 5
        kept, stream_time = folded.kept, max(stream_time, *(at for at, _ in batch))


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
