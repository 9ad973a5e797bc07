"""What contestants are compared by: records, their expected results, and the tables."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.contest import Outcome, Run
from bench.contestant import program
from bench.throughput import report
from bench.workloads import TEXT, WINDOW, WORKLOADS, Tally


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_a_program_and_has_so_many_records(name: str) -> None:
    """Its stream has the size it is given; each run makes the same."""
    workload = WORKLOADS[name]
    program(name, "left", "right", "output")
    left, right, expected = workload.make(3_000)
    again = workload.make(3_000)
    records = list(left)
    assert len(records) + (len(list(right)) if name == "join" else 0) == 3_000
    assert (records, expected) == (list(again[0]), again[2])
    assert expected > 0


def test_a_lookup_has_the_table_before_the_stream() -> None:
    """The table's timestamps are earlier, so that a contestant that goes by timestamps finds every row."""
    stream, table, _ = WORKLOADS["lookup"].make(100)
    assert max(row["timestamp"] for row in table) < min(record["timestamp"] for record in stream)


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.one_of(st.none(), st.integers(0, 99)))))
def test_a_tally_is_of_the_last_results(results: list[tuple[bytes, int | None]]) -> None:
    """The last one of each key counts; one without a value removes the key."""
    tally, last = Tally(TEXT), {}
    for key, number in results:
        tally.add(key, None if number is None else b"%d" % number)
        last[key] = number or 0
    assert (tally.total, tally.records) == (sum(last.values()), len(results))


def test_a_window_of_quix_streams_has_its_start_in_the_key() -> None:
    """Two windows of one key are two results."""
    tally = Tally(WINDOW)
    for start, count in ((0, 1), (0, 2), (20_000, 5)):
        tally.add(b"k", b'{"start": %d, "end": 1, "value": %d}' % (start, count))
    assert tally.total == 7


def test_a_contestant_that_failed_has_a_row_and_its_reason() -> None:
    """Ratios are taken within each round; a contestant that failed stays in the table, without figures."""
    mine = Outcome(tuple(Run(seconds, 1000, 1000, 2.0, 700.0) for seconds in (1.0, 2.0)))
    java = Outcome(tuple(Run(seconds, 1000, 1000, 1.0, 300.0) for seconds in (2.0, 4.0)))
    found = {
        "map": {"millstream": mine, "java": java, "spark": Outcome(why="it fell over"), "quix": Outcome()}
    }
    (table,) = report(found).tables
    rows = {row[0]: row for row in table.rows}
    assert rows["Kafka Streams"][-1] == "2.00 (2.00 to 2.00)"
    assert rows["Millstream"][1] == "750"
    assert rows["Spark by hand"][1] == "-"
    assert table.notes == ("Spark by hand: it fell over",)
    assert report(found).data["map"]["spark"] == {"runs": [], "why": "it fell over"}


def test_lines_that_are_dropped_are_not_expected() -> None:
    """One in ten is."""
    lines, _, expected = WORKLOADS["map"].make(25)
    kept = [line for line in islice(lines, 25) if not str(line["value"]).startswith("drop")]
    assert len(kept) == expected
    assert {len(str(line["value"])) for line in kept} == {100}
