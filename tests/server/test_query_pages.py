"""Pages: all of a range, once, in order; of one client and of several."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.model import StoreKind
from millstream.query.read import Read, remaining
from millstream.remote.answers import Refused
from millstream.remote.json_codec import to_base64
from millstream.remote.pages import Page, PageStart, Row, merged, page_of, place_of

KINDS = st.sampled_from(list(StoreKind))
ROWS = st.lists(
    st.builds(
        Row,
        st.binary(max_size=3),
        st.binary(max_size=5),
        st.none(),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=30,
)


def in_order(rows: Sequence[Row], kind: StoreKind, *, reverse: bool) -> list[Row]:
    return sorted(rows, key=place_of(kind), reverse=reverse)


@given(ROWS, KINDS, st.booleans(), st.integers(1, 5), st.integers(1, 12))
def test_the_pages_of_a_range_are_the_range(
    rows: list[Row], kind: StoreKind, reverse: bool, limit: int, most_bytes: int
) -> None:
    """Several rows may have the same place, and pages may end because of their size."""
    whole = in_order(rows, kind, reverse=reverse)
    order = place_of(kind)
    found: list[Row] = []
    place: PageStart | None = None
    for _ in range(len(rows) + 2):
        page = page_of(whole, order, place, reverse=reverse, limit=limit, most_bytes=most_bytes)
        assert len({order(row) for row in page.rows}) <= limit
        found += page.rows
        place = page.next
        if place is None:
            break
        place = PageStart.parse(place.token())
    assert place is None
    assert found == whole


@given(st.lists(ROWS, min_size=1, max_size=4), KINDS, st.booleans(), st.integers(1, 5), st.integers(4, 40))
def test_the_merged_pages_of_several_clients_are_all_their_rows(
    parts: list[list[Row]], kind: StoreKind, reverse: bool, limit: int, most_bytes: int
) -> None:
    """Pages end anywhere, and several clients may have the same key."""
    order = place_of(kind)
    shares = [in_order(part, kind, reverse=reverse) for part in parts]
    found: list[Row] = []
    place: PageStart | None = None
    for _ in range(sum(map(len, shares)) + 2):
        pages = [
            page_of(share, order, place, reverse=reverse, limit=limit, most_bytes=most_bytes)
            for share in shares
        ]
        page = merged(pages, order, reverse=reverse, limit=limit, most_bytes=most_bytes)
        assert len({order(row) for row in page.rows}) <= limit
        found += page.rows
        place = page.next
        if place is None:
            break
    assert place is None
    assert found == in_order([row for share in shares for row in share], kind, reverse=reverse)


def test_replicas_are_taken_once() -> None:
    """Stale reads may find a partition at two clients."""
    rows = [Row(b"a", b"1"), Row(b"b", b"2"), Row(b"c", b"3")]
    order = place_of(StoreKind.KEY_VALUE)
    pages = [Page(rows), Page(rows[1:])]
    first = merged(pages, order, reverse=False, limit=2, most_bytes=100, distinct=True)
    assert (first.rows, first.next) == (rows[:2], PageStart((b"b", 0, 0)))
    whole = merged(pages, order, reverse=False, limit=3, most_bytes=100, distinct=True)
    assert (whole.rows, whole.next) == (rows, None)


@pytest.mark.parametrize("reverse", [False, True])
def test_replicas_of_windows_with_several_values_are_taken_once(reverse: bool) -> None:
    """All values of one client's, though another one has as many, or not yet all."""
    rows = [Row(b"a", value, 1, 5, 9) for value in (b"1", b"2", b"3")] + [Row(b"b", b"4", 1, 5, 9)]
    rows = rows[::-1] if reverse else rows
    order = place_of(StoreKind.WINDOW)
    pages = [Page(rows), Page(rows), Page(rows[:2])]
    whole = merged(pages, order, reverse=reverse, limit=9, most_bytes=100, distinct=True)
    assert (whole.rows, whole.next) == (rows, None)


def test_a_row_that_is_larger_than_a_page_is_a_page() -> None:
    """Otherwise it could never be read."""
    rows = [Row(b"a", bytes(100)), Row(b"b", bytes(100))]
    page = page_of(rows, place_of(StoreKind.KEY_VALUE), None, reverse=False, limit=10, most_bytes=10)
    assert page.rows == rows[:1]
    assert page.next == PageStart((b"a", 0, 0))


def test_a_long_scan_is_checked_now_and_then() -> None:
    """A deadline ends it, also while rows are skipped."""
    checks: list[None] = []
    rows = [Row(b"a", b"", None, number) for number in range(1000)]
    place = PageStart((b"a", 998, 0))
    order = place_of(StoreKind.WINDOW)
    page_of(rows, order, place, reverse=False, limit=5, most_bytes=9, check=lambda: checks.append(None))
    assert checks


TIMES = st.none() | st.integers(-1, 5)
KEYS = st.sampled_from([b"a", b"a\0", b"b"])
TIMED_ROWS = st.lists(
    st.builds(
        lambda key, start, length: Row(key, b"", None, start, start + length),
        KEYS,
        st.integers(0, 4),
        st.integers(0, 3),
    ),
    max_size=20,
)


@settings(max_examples=examples(200))
@given(
    TIMED_ROWS,
    KINDS,
    st.builds(Read, st.just("s"), low=st.none() | KEYS, high=st.none() | KEYS),
    st.tuples(TIMES, TIMES, st.booleans(), KEYS, st.integers(0, 4), st.integers(0, 4)),
)
def test_what_remains_after_a_place_is_what_comes_after_it(
    rows: list[Row], kind: StoreKind, keys: Read, given_: tuple[Any, ...]
) -> None:
    """Whatever the place: the scans that remain have the rest of the range, in order, and nothing twice."""
    earliest, latest, reverse, *place = given_
    scan = replace(keys, kind=kind, earliest=earliest, latest=latest, reverse=reverse)
    order = place_of(kind)
    if kind is StoreKind.KEY_VALUE:
        rows, place = [row._replace(start=None, end=None) for row in rows], [place[0], 0, 0]
    after = PageStart((place[0], place[1], place[2] if kind is StoreKind.SESSION else 0))

    def scanned(part: Read) -> list[Row]:
        return in_order([row for row in rows if fits(row, part)], kind, reverse=reverse)

    found = [row for part in remaining(replace(scan, after=after.order)) for row in scanned(part)]
    page = page_of(found, order, after, reverse=reverse, limit=100, most_bytes=1000)
    whole = page_of(scanned(scan), order, after, reverse=reverse, limit=100, most_bytes=1000)
    assert page == whole


def fits(row: Row, scan: Read) -> bool:
    """Whether a row is in a range, as the stores have it."""
    if not (scan.low is None or scan.low <= row.key):
        return False
    if not (scan.high is None or row.key <= scan.high):
        return False
    if scan.kind is StoreKind.KEY_VALUE:
        return True
    assert row.start is not None
    assert row.end is not None
    first = row.end if scan.kind is StoreKind.SESSION else row.start
    return (scan.earliest is None or scan.earliest <= first) and (
        scan.latest is None or row.start <= scan.latest
    )


@given(st.binary(max_size=60))
def test_a_cursor_is_a_place_or_refused(data: bytes) -> None:
    """A client may send anything."""
    place = None
    with contextlib.suppress(Refused):
        place = PageStart.parse(to_base64(data))
    assert (place is None) is (len(data) < 17 or data[0] != 1)
    assert place is None or PageStart.parse(place.token()) == place


@pytest.mark.parametrize("token", ["", "x", "AA==", "!"])
def test_a_short_cursor_is_refused(token: str) -> None:
    """It says what a cursor is."""
    with pytest.raises(Refused):
        PageStart.parse(token)
