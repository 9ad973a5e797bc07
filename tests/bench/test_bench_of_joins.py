"""What joins are compared by: the expected results, their checksum, and how far a query is."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from bench.joins import Total, contests, pairs_of, records_read, tables_of, total

entries = st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=20)
records = st.lists(
    st.builds(
        lambda key, at, value: {"key": b"%d" % key, "timestamp": at, "value": b"%d" % value},
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(0, 9),
    ),
    max_size=30,
).map(lambda all_: sorted(all_, key=lambda record: int(record["timestamp"])))


@given(entries, st.randoms())
def test_a_checksum_does_not_depend_on_the_order(given_: list[tuple[bytes, bytes]], chance: object) -> None:
    """Results come in any order."""
    mixed = list(given_)
    chance.shuffle(mixed)  # type: ignore[attr-defined]
    assert total(mixed) == total(given_)


@given(entries.filter(bool))
def test_a_checksum_tells_what_is_missing(given_: list[tuple[bytes, bytes]]) -> None:
    """A missing entry changes the total, and so does one with another value."""
    key, value = given_[0]
    assert total(given_[1:]) != total(given_)
    assert total([(key, value + b"x"), *given_[1:]]).checksum != total(given_).checksum


@given(records, records)
def test_pairs_are_those_of_one_key_and_near(
    left: list[dict[str, bytes | int]], right: list[dict[str, bytes | int]]
) -> None:
    """The same pairs as a slow comparison of each record with each other one."""
    expected = [
        (one["key"], bytes(one["value"]) + b"," + bytes(other["value"]))  # type: ignore[arg-type]
        for one in left
        for other in right
        if one["key"] == other["key"] and abs(int(one["timestamp"]) - int(other["timestamp"])) <= 5
    ]
    assert sorted(pairs_of(left, right, 5)) == sorted(expected)  # type: ignore[type-var]


def test_tables_have_the_last_rows_of_both() -> None:
    """A key that one side lacks has no row."""
    left = [{"key": b"a", "value": b"1"}, {"key": b"b", "value": b"2"}, {"key": b"a", "value": b"3"}]
    right = [{"key": b"a", "value": b"x"}, {"key": b"c", "value": b"y"}]
    assert tables_of(left, right) == {b"a": b"3,x"}


def test_a_query_has_read_what_its_last_commit_covers(tmp_path: Path) -> None:
    """All sources count; a micro-batch that has only begun does not."""
    for part in ("offsets", "commits"):
        (tmp_path / part).mkdir()
    assert records_read(tmp_path) == 0
    (tmp_path / "offsets" / "9").write_text('v1\n{}\n{"a": {"0": 3, "1": 4}}\n-')
    (tmp_path / "offsets" / "10").write_text('v1\n{}\n{"a": {"0": 3, "1": 9}}\n{"b": {"0": 5}}')
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    assert records_read(tmp_path) == 7
    (tmp_path / "commits" / "10").write_text("v1\n{}")
    assert records_read(tmp_path) == 17


def test_contests_are_of_what_the_goals_are_about() -> None:
    """A million keys, and a table of 500 MB."""
    first, large, *_ = contests(quick=False)
    assert (first.case.keys, first.least) == (1_000_000, 2.0)
    assert large.case.keys * large.case.length == 500_000_000
    assert all(contest.names[0] == "millstream" for contest in contests(quick=True))
    assert first.case.expected == Total(0, 0)  # until its records are written
