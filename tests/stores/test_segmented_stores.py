"""What every window store and every session store does: the same tests in memory and on disk."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ports import ManualClock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from machines import QUICK
from rocksdict import Rdict
from segmented import MINUTE, TASK, Model, open_segmented, record, reference_fetch, reference_find

from millstream.errors import IllegalStateException
from millstream.model import StoreKind
from millstream.stores.keys import MAX_TIME_MS, session_key, window_key
from millstream.stores.segments import segment_interval
from millstream.stores.store_base import ClosedStoreError, to_stored

WINDOW, SESSION = StoreKind.WINDOW, StoreKind.SESSION
RETENTION = 10 * MINUTE
Open = Callable[..., Any]


@pytest.fixture(params=["memory", "rocksdb"])
def open_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens stores of both kinds, in memory or on disk, and closes them afterwards."""
    opened: list[Any] = []

    def open_next(kind: StoreKind = WINDOW, retention_ms: int = RETENTION, **options: Any) -> Any:
        path = None if request.param == "memory" else tmp_path / f"store-{len(opened)}"
        opened.append(open_segmented(kind, path, retention_ms, **options))
        return opened[-1]

    yield open_next
    for store in opened:
        store.close()


@pytest.fixture
def windows(open_one: Open) -> Any:
    return open_one(WINDOW)


@pytest.fixture
def sessions(open_one: Open) -> Any:
    return open_one(SESSION)


def keys(entries: Iterator[tuple[Any, bytes]]) -> list[Any]:
    return [key for key, _ in entries]


# --- windows ---------------------------------------------------------------------------------------------


def test_a_new_store_is_open_empty_and_has_no_position(windows: Any, sessions: Any) -> None:
    """Nothing was ever applied: there is no position, and no time."""
    for store in (windows, sessions):
        assert store.is_open
        assert (store.name, store.task_id) == ("windows", TASK)
        assert (store.position, store.stream_time_ms) == (None, None)
        assert store.approximate_num_entries() == 0
        assert store.retention_ms == RETENTION
    assert list(windows.fetch(None, None, None, None)) == []
    assert list(sessions.find(None, None, None, None)) == []
    assert windows.fetch_one(b"a", 0) is None
    assert sessions.fetch_session(b"a", 0, 0) is None


def test_a_window_is_found_by_key_and_start(windows: Any) -> None:
    """What is stored is the timestamp and the value; another start, or another key, is another window."""
    windows.apply([record(b"a", 5 * MINUTE, value=b"1", at=258)], 1)
    assert windows.fetch_one(b"a", 5 * MINUTE) == b"\0\0\0\0\0\0\x01\x021"
    assert windows.fetch_one(b"a", 5 * MINUTE + 1) is None
    assert windows.fetch_one(b"b", 5 * MINUTE) is None
    assert windows.approximate_num_entries() == 1


@pytest.mark.parametrize("far", [-1, MAX_TIME_MS + 1, -(2**70)])
def test_a_time_that_no_window_can_have_has_none(windows: Any, sessions: Any, far: int) -> None:
    """It is before the epoch, or after the last time of Kafka."""
    windows.apply([record(b"a", 0)], 1)
    sessions.apply([record(b"a", 0, 0)], 1)
    assert windows.fetch_one(b"a", far) is None
    assert sessions.fetch_session(b"a", far, 0) is None
    assert sessions.fetch_session(b"a", 0, far) is None
    expected = [(b"a", 0)] if far < 0 else []
    assert keys(windows.fetch(b"a", b"a", far, None)) == expected
    assert keys(windows.fetch(b"a", b"a", None, far)) == ([] if far < 0 else [(b"a", 0)])


def test_the_last_time_of_all_is_a_time_like_any_other(windows: Any) -> None:
    """The bounds of a scan do not overflow."""
    windows.apply([record(b"a", MAX_TIME_MS), record(b"b", MAX_TIME_MS - 1)], 1)
    assert keys(windows.fetch(None, None, None, None)) == [(b"a", MAX_TIME_MS), (b"b", MAX_TIME_MS - 1)]
    assert keys(windows.fetch(b"a", b"a", MAX_TIME_MS, MAX_TIME_MS)) == [(b"a", MAX_TIME_MS)]


def test_one_keys_windows_come_in_the_order_of_time(windows: Any) -> None:
    """They span several segments, both ends included, forwards and backwards; other keys are left out."""
    starts = [n * MINUTE for n in (9, 1, 4, 2, 8, 5)]
    windows.apply([record(key, start) for start in starts for key in (b"a", b"aa", b"", b"b", b"a\0")], 1)

    def fetch(key: bytes, *times: int | None, reverse: bool = False) -> list[int]:
        found = list(windows.fetch(key, key, *times, reverse=reverse))
        assert {each for (each, _), _ in found} <= {key}
        return [start // MINUTE for (_, start), _ in found]

    for key in (b"a", b"aa", b"", b"a\0"):
        assert fetch(key, None, None) == [1, 2, 4, 5, 8, 9]
        assert fetch(key, None, None, reverse=True) == [9, 8, 5, 4, 2, 1]
        assert fetch(key, 2 * MINUTE, 8 * MINUTE) == [2, 4, 5, 8]
        assert fetch(key, 2 * MINUTE, 8 * MINUTE, reverse=True) == [8, 5, 4, 2]
        assert fetch(key, 2 * MINUTE + 1, 8 * MINUTE - 1) == [4, 5]
        assert fetch(key, 5 * MINUTE, 5 * MINUTE) == [5]
        assert fetch(key, 6 * MINUTE, 7 * MINUTE) == []
        assert fetch(key, 8 * MINUTE, 2 * MINUTE) == []
    assert fetch(b"c", None, None) == []


def test_a_range_of_keys_is_in_the_order_of_keys_and_then_of_time(windows: Any) -> None:
    """Kafka gives one segment after the other; both ends are included, None is open."""
    names = [b"", b"a", b"a\0", b"a\0\xff", b"ab", b"b", b"\xff"]
    starts = [9 * MINUTE, 1 * MINUTE, 5 * MINUTE]
    windows.apply([record(key, start) for start in starts for key in names], 1)
    whole = [(key, start) for key in sorted(names) for start in sorted(starts)]
    assert keys(windows.fetch(None, None, None, None)) == whole
    assert keys(windows.fetch(None, None, None, None, reverse=True)) == whole[::-1]
    some = [(key, start) for key, start in whole if b"a" <= key <= b"ab" and start >= 5 * MINUTE]
    assert keys(windows.fetch(b"a", b"ab", 5 * MINUTE, None)) == some
    assert keys(windows.fetch(b"a", b"ab", 5 * MINUTE, None, reverse=True)) == some[::-1]
    assert keys(windows.fetch(None, b"a", None, MINUTE)) == [(b"", MINUTE), (b"a", MINUTE)]
    assert keys(windows.fetch(b"b", None, MINUTE, MINUTE)) == [(b"b", MINUTE), (b"\xff", MINUTE)]
    assert keys(windows.fetch(b"b", b"a", None, None)) == []


def test_a_batch_puts_deletes_and_moves_the_position(windows: Any, sessions: Any) -> None:
    """The last record of a window in a batch wins; None deletes."""
    for store, times in ((windows, (MINUTE,)), (sessions, (MINUTE, MINUTE))):
        store.apply([record(b"a", *times), record(b"b", *times)], 2)
        store.apply(
            [
                record(b"a", *times, value=None),
                record(b"b", *times, value=b"1"),
                record(b"b", *times, value=b"2", at=7),
                record(b"x", *times, value=None),
            ],
            6,
        )
        assert store.position == 6
        store.apply([], 9)
        assert store.position == 9
    assert list(windows.fetch(None, None, None, None)) == [((b"b", MINUTE), to_stored(b"2", 7))]
    assert list(sessions.find(None, None, None, None)) == [((b"b", MINUTE, MINUTE), to_stored(b"2", 7))]


# --- duplicates ------------------------------------------------------------------------------------------


def test_a_store_that_keeps_duplicates_gives_all_of_them_in_the_order_they_were_put(open_one: Open) -> None:
    """Over several keys, starts and segments, forwards and backwards; and after what was too old has gone."""
    store = open_one(WINDOW, duplicates=True)
    starts = [5 * MINUTE, MINUTE, 5 * MINUTE, 9 * MINUTE, 5 * MINUTE]
    puts = [(key, start) for start in starts for key in (b"a", b"a\0", b"b")]
    values: dict[tuple[bytes, int], list[bytes]] = {}
    for number, put in enumerate(puts, 254):  # their bytes are in the order of the numbers
        store.apply([(window_key(*put, number), b"%d" % number, 7)], number)
        values.setdefault(put, []).append(to_stored(b"%d" % number, 7))
    whole = [(put, value) for put in sorted(values) for value in values[put]]
    assert list(store.fetch(None, None, None, None)) == whole
    assert list(store.fetch(None, None, None, None, reverse=True)) == whole[::-1]
    at_five = [entry for entry in whole if entry[0] == (b"a", 5 * MINUTE)]
    assert len(at_five) == 3
    assert list(store.fetch(b"a", b"a", 5 * MINUTE, 5 * MINUTE)) == at_five
    assert list(store.fetch(b"a", b"a", 2 * MINUTE, 8 * MINUTE, reverse=True)) == at_five[::-1]
    assert store.fetch_one(b"a", 5 * MINUTE) == at_five[-1][1]
    assert store.fetch_one(b"a", 2 * MINUTE) is None
    store.apply([(window_key(b"c", 15 * MINUTE, 2**31 - 1), b"last", 7)], 999)
    kept = [entry for entry in whole if entry[0][1] == 9 * MINUTE]
    assert list(store.fetch(None, b"b", None, None)) == kept
    assert store.fetch_one(b"a", 5 * MINUTE) is None


def test_one_duplicate_is_deleted_and_the_others_stay(open_one: Open) -> None:
    """A sequence number names it; one that none can have is no window's key."""
    store = open_one(WINDOW, duplicates=True)
    store.apply([(window_key(b"a", MINUTE, number), b"x", number) for number in (1, 2, 3, -1)], 4)
    store.apply([(window_key(b"a", MINUTE, 2), None, 9)], 5)
    there = [to_stored(b"x", number) for number in (1, 3)]
    assert [stored for _, stored in store.fetch(b"a", b"a", None, None)] == there


# --- retention -------------------------------------------------------------------------------------------


def test_what_is_older_than_the_retention_is_not_there(windows: Any) -> None:
    """The limit is exact, by the newest start of any key, and applies before a segment is dropped."""
    windows.apply([record(b"a", 0), record(b"a", 1)], 1)
    windows.apply([record(b"b", RETENTION - 1)], 2)
    assert keys(windows.fetch(b"a", b"a", None, None)) == [(b"a", 0), (b"a", 1)]
    windows.apply([record(b"b", RETENTION)], 3)
    assert windows.fetch_one(b"a", 0) is None
    assert windows.fetch_one(b"a", 1) is not None
    assert keys(windows.fetch(b"a", b"a", None, None)) == [(b"a", 1)]
    assert keys(windows.fetch(None, None, 0, 1)) == [(b"a", 1)]
    assert keys(windows.fetch(None, None, 0, 1, reverse=True)) == [(b"a", 1)]


def test_a_session_is_as_old_as_its_end(sessions: Any) -> None:
    """One that began long ago and still goes on is there."""
    sessions.apply([record(b"a", 0, RETENTION), record(b"b", 0, 0), record(b"c", 0, 1)], 1)
    assert keys(sessions.find(None, None, None, None)) == [(b"a", 0, RETENTION), (b"c", 0, 1)]
    assert sessions.fetch_session(b"b", 0, 0) is None
    assert sessions.fetch_session(b"c", 0, 1) is not None


def test_a_tombstone_moves_the_time_as_well(windows: Any) -> None:
    """Kafka Streams does the same when it restores: the record counts, whatever its value."""
    windows.apply([record(b"a", 0)], 1)
    windows.apply([record(b"b", RETENTION, value=None)], 2)
    assert windows.stream_time_ms == RETENTION
    assert list(windows.fetch(None, None, None, None)) == []


def test_late_records_are_counted_and_left_out(open_one: Open, caplog: pytest.LogCaptureFixture) -> None:
    """Those that are too old when they come, and those that the same batch makes too old."""
    windows, sessions = open_one(WINDOW), open_one(SESSION)
    with caplog.at_level(logging.DEBUG, "millstream.stores.segments"):
        windows.apply([record(b"a", 2 * RETENTION)], 1)
        windows.apply([record(b"late", RETENTION), record(b"b", RETENTION + 1)], 3)
        sessions.apply([record(b"old", 0, 5), record(b"a", 0, 3 * RETENTION), record(b"late", 0, 7)], 3)
    assert windows.expired_records == 1
    assert windows.position == 3
    assert keys(windows.fetch(None, None, None, None)) == [(b"a", 2 * RETENTION), (b"b", RETENTION + 1)]
    assert sessions.expired_records == 2
    assert keys(sessions.find(None, None, None, None)) == [(b"a", 0, 3 * RETENTION)]
    assert "skipped 1 records that are older than its retention of 600000 ms" in caplog.text
    assert "late" not in caplog.text, "no key is logged"


def test_late_records_are_told_of_now_and_then(open_one: Open, caplog: pytest.LogCaptureFixture) -> None:
    """The first at once, then not for ten seconds; none is left out of the count. So with wrong keys."""
    store = open_one()
    clock = store._clock = ManualClock()
    store.apply([record(b"a", 2 * RETENTION)], 1)
    with caplog.at_level(logging.DEBUG, "millstream.stores.segments"):
        for offset in range(100):
            store.apply([record(b"late", 0), (b"wrong", b"v", 1)], offset + 2)
        assert store.expired_records == 100
        assert [entry.levelname for entry in caplog.records] == ["WARNING", "DEBUG"]
        clock.advance(11)
        store.apply([record(b"late", 0)], 200)
    assert "skipped 99 changelog records whose keys" in caplog.text
    assert "skipped 100 records that are older" in caplog.text
    assert len(caplog.records) == 4


def test_a_segment_goes_in_the_write_that_makes_it_too_old(windows: Any) -> None:
    """What is gone from reads is gone from the store as well, a segment at a time."""
    interval = segment_interval(RETENTION)
    assert interval == 5 * MINUTE
    windows.apply([record(b"%03d" % n, n * MINUTE) for n in range(10)], 10)
    inner = windows._inner
    assert len(list(inner.range(None, None))) == 10 + 1  # and the mark
    windows.apply([record(b"new", 15 * MINUTE - 2)], 11)
    assert len(list(inner.range(None, None))) == 10 + 1 + 1, "4:59.999 is within the retention"
    windows.apply([record(b"new", 15 * MINUTE - 1)], 12)
    assert len(list(inner.range(None, None))) == 5 + 1 + 2 + 3  # and the floor
    windows.apply([record(b"far", 1000 * MINUTE)], 13)
    assert len(list(inner.range(None, None))) == 1 + 1 + 3
    assert keys(windows.fetch(None, None, None, None)) == [(b"far", 1000 * MINUTE)]
    assert keys(windows.fetch(None, None, None, None, reverse=True)) == [(b"far", 1000 * MINUTE)]


def test_a_retention_of_less_than_a_minute_is_honoured(open_one: Open) -> None:
    """Segments are a minute at least; reads are exact all the same."""
    store = open_one(WINDOW, retention_ms=1000)
    store.apply([record(b"a", start) for start in (0, 500, 1000, 1499)], 4)
    assert [start for (_, start), _ in store.fetch(b"a", b"a", None, None)] == [500, 1000, 1499]


def test_a_retention_without_end_keeps_everything(open_one: Open) -> None:
    """The greatest number there is, as for windows that never end."""
    store = open_one(WINDOW, retention_ms=MAX_TIME_MS)
    store.apply([record(b"a", 0), record(b"a", 10**13)], 2)
    assert len(list(store.fetch(b"a", b"a", None, None))) == 2


# --- sessions --------------------------------------------------------------------------------------------


def test_a_session_is_found_by_key_start_and_end(sessions: Any) -> None:
    """Exactly those."""
    sessions.apply([record(b"a", 10, 20, value=b"1", at=3), record(b"a", 10, 21), record(b"a", 11, 20)], 3)
    assert sessions.fetch_session(b"a", 10, 20) == to_stored(b"1", 3)
    assert sessions.fetch_session(b"a", 9, 20) is None
    assert sessions.fetch_session(b"a", 20, 10) is None
    assert sessions.fetch_session(b"b", 10, 20) is None


def test_sessions_are_found_by_the_span_they_meet(sessions: Any) -> None:
    """They end at one time or later, and start at another or earlier; the order is by end, then by start."""
    spans = [(0, 10), (20, 30), (5, 30), (40, 5 * MINUTE), (6 * MINUTE, 6 * MINUTE)]
    sessions.apply([record(key, *span) for span in spans for key in (b"a", b"aa", b"b")], 9)

    def find(*bounds: int | None, reverse: bool = False) -> list[tuple[int, int]]:
        found = keys(sessions.find(b"a", b"a", *bounds, reverse=reverse))
        assert {key for key, _, _ in found} <= {b"a"}
        return [(start, end) for _, start, end in found]

    ordered = [(0, 10), (5, 30), (20, 30), (40, 5 * MINUTE), (6 * MINUTE, 6 * MINUTE)]
    assert find(None, None) == ordered
    assert find(None, None, reverse=True) == ordered[::-1]
    assert find(30, 20) == [(5, 30), (20, 30)]
    assert find(31, 39) == []
    assert find(11, None) == ordered[1:]
    assert find(None, 5) == [(0, 10), (5, 30)]
    assert find(10, 40) == ordered[:4]
    assert keys(sessions.find(b"a", b"aa", 31, None, reverse=True)) == [
        (b"aa", 6 * MINUTE, 6 * MINUTE),
        (b"aa", 40, 5 * MINUTE),
        (b"a", 6 * MINUTE, 6 * MINUTE),
        (b"a", 40, 5 * MINUTE),
    ]
    assert len(keys(sessions.find(None, b"b", None, None))) == 15


# --- what is no window -----------------------------------------------------------------------------------


def test_what_is_no_windows_key_is_left_out_with_a_warning(
    windows: Any, sessions: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Too short, before the epoch, a duplicate's number, an end before its start; no content is logged."""
    windows.apply(
        [
            (b"secret", b"v", 1),
            (window_key(b"a", -5), b"v", 1),
            (window_key(b"a", 5, 1), b"v", 1),
            record(b"a", 7),
        ],
        4,
    )
    sessions.apply(
        [
            (b"secret", b"v", 1),
            (session_key(b"a", -5, 5), b"v", 1),
            (session_key(b"a", 6, 5), b"v", 1),
            record(b"a", 7, 8),
        ],
        4,
    )
    assert keys(windows.fetch(None, None, None, None)) == [(b"a", 7)]
    assert keys(sessions.find(None, None, None, None)) == [(b"a", 7, 8)]
    assert windows.position == sessions.position == 4
    assert "skipped 3 changelog records whose keys are not those of a window" in caplog.text
    assert "skipped 3 changelog records whose keys are not those of a session" in caplog.text
    assert "secret" not in caplog.text


# --- snapshots, iterators, closing -----------------------------------------------------------------------


def test_an_iterator_is_a_snapshot_over_all_segments(windows: Any) -> None:
    """Nothing of a later batch is in it, and nothing is missing that a later batch has dropped."""
    windows.apply([record(b"%03d" % n, n * MINUTE) for n in range(10)], 10)
    fresh = windows.fetch(None, None, None, None)
    begun = windows.fetch(None, None, None, None, reverse=True)
    assert next(begun)[0] == (b"009", 9 * MINUTE)
    windows.apply([record(b"new", 1000 * MINUTE)], 11)
    windows.wipe()
    assert [key for key, _ in keys(fresh)] == [b"%03d" % n for n in range(10)]
    assert [key for key, _ in keys(begun)] == [b"%03d" % n for n in range(8, -1, -1)]


def test_a_long_scan_is_complete_in_both_directions(windows: Any) -> None:
    """Reading ahead in chunks, of several segments, loses nothing at their borders."""
    whole = [(b"%04d" % key, n * MINUTE) for key in range(400) for n in range(9)]
    windows.apply([record(key, start) for key, start in whole], len(whole))
    assert keys(windows.fetch(None, None, None, None)) == whole
    assert keys(windows.fetch(None, None, None, None, reverse=True)) == whole[::-1]
    some = [entry for entry in whole if b"0100" <= entry[0] <= b"0300" and entry[1] == 7 * MINUTE]
    assert keys(windows.fetch(b"0100", b"0300", 7 * MINUTE, 7 * MINUTE)) == some
    assert keys(windows.fetch(b"0100", b"0300", 7 * MINUTE, 7 * MINUTE, reverse=True)) == some[::-1]


def test_a_scan_that_leaves_out_nearly_everything_still_finds_the_rest(windows: Any) -> None:
    """Many entries of other times, in the same segment, are read before it."""
    windows.apply([record(b"%04d" % key, MINUTE) for key in range(3000)] + [record(b"x", 2 * MINUTE)], 1)
    assert keys(windows.fetch(None, None, 2 * MINUTE, 2 * MINUTE)) == [(b"x", 2 * MINUTE)]
    assert keys(windows.fetch(None, b"x", 2 * MINUTE, None, reverse=True)) == [(b"x", 2 * MINUTE)]
    assert keys(windows.fetch(b"0", b"1", 2 * MINUTE, 2 * MINUTE)) == []


def test_a_backward_read_does_not_step_over_what_was_dropped(windows: Any) -> None:
    """RocksDB would, entry by entry, 40 ms long, while nothing else runs; now it takes 0.05 ms."""
    windows.apply([record(b"%05d" % key, 0) for key in range(60_000)], 1)
    windows.apply([record(b"a", 5 * MINUTE), record(b"b", 6 * MINUTE)], 2)
    windows.apply([record(b"b", 15 * MINUTE - 1)], 3)

    def took() -> float:
        begin = time.thread_time()
        assert keys(windows.fetch(b"a", b"a", None, None, reverse=True)) == [(b"a", 5 * MINUTE)]
        assert keys(windows.fetch(b"0", b"0", None, None, reverse=True)) == []
        assert len(keys(windows.fetch(None, None, None, None, reverse=True))) == 3
        return time.thread_time() - begin

    assert min(took() for _ in range(10)) < 0.01


def test_wipe_forgets_the_time_as_well(windows: Any) -> None:
    """The store stays open and can be filled again, with older records."""
    windows.apply([record(b"a", 100 * RETENTION)], 4)
    windows.wipe()
    assert (windows.position, windows.stream_time_ms) == (None, None)
    assert list(windows.fetch(None, None, None, None)) == []
    windows.apply([record(b"a", 1)], 1)
    assert keys(windows.fetch(None, None, None, None)) == [(b"a", 1)]
    assert windows.approximate_num_entries() >= 1


def test_a_closed_iterator_has_no_more_entries(windows: Any) -> None:
    """Closing is idempotent."""
    windows.apply([record(b"a", n) for n in range(5)], 5)
    iterator = windows.fetch(None, None, None, None)
    next(iterator)
    iterator.close()
    iterator.close()
    assert list(iterator) == []


CALLS: dict[str, tuple[StoreKind, Callable[[Any], Any]]] = {
    "fetch_one": (WINDOW, lambda store: store.fetch_one(b"a", 1)),
    "fetch_one, impossible": (WINDOW, lambda store: store.fetch_one(b"a", -1)),
    "fetch": (WINDOW, lambda store: store.fetch(b"a", b"a", None, None)),
    "fetch_session": (SESSION, lambda store: store.fetch_session(b"a", 1, 1)),
    "find": (SESSION, lambda store: store.find(None, None, None, None)),
    "apply": (WINDOW, lambda store: store.apply([record(b"a", 1)], 1)),
    "wipe": (SESSION, lambda store: store.wipe()),
    "position": (WINDOW, lambda store: store.position),
    "approximate_num_entries": (WINDOW, lambda store: store.approximate_num_entries()),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_store_raises_only_closed_store_error(open_one: Open, call: str) -> None:
    """Every method raises it; `close` itself is idempotent."""
    kind, method = CALLS[call]
    store = open_one(kind)
    store.apply([record(b"a", *([1] if kind is WINDOW else [1, 1]))], 1)
    store.close()
    store.close()
    assert not store.is_open
    with pytest.raises(ClosedStoreError, match="'windows' is closed"):
        method(store)


def test_closing_a_store_ends_its_iterators(windows: Any) -> None:
    """Fresh, begun and with entries read ahead: the next step raises, and raises again."""
    windows.apply([record(b"%04d" % n, (n % 9) * MINUTE) for n in range(500)], 500)
    fresh = windows.fetch(None, None, None, None)
    begun = windows.fetch(None, None, None, None, reverse=True)
    of_one = windows.fetch(b"0001", b"0001", None, None)
    next(begun)
    windows.close()
    for iterator in (fresh, begun, of_one, fresh):
        with pytest.raises(ClosedStoreError):
            next(iterator)
        iterator.close()


def test_open_iterators_are_bounded(open_one: Open) -> None:
    """The one too many is told what to do; closed and dropped ones do not count."""
    store = open_one(WINDOW, max_iterators=3)
    store.apply([record(b"a", 1), record(b"b", 1)], 2)
    for _ in range(10):
        store.fetch(None, None, None, None).close()
        next(store.fetch(b"a", b"a", None, None))
    held = [store.fetch(None, None, None, None) for _ in range(3)]
    with pytest.raises(IllegalStateException, match=r"'windows' has 3 open iterators.*close each one"):
        store.fetch(b"a", b"a", None, None)
    held[0].close()
    held.append(store.fetch(None, None, None, None))


# --- on disk ---------------------------------------------------------------------------------------------


@pytest.mark.disk
@pytest.mark.parametrize("kind", [WINDOW, SESSION])
def test_a_store_is_the_same_after_it_was_closed_and_opened(kind: StoreKind, tmp_path: Path) -> None:
    """Entries, position and the time: what was too old before is so afterwards."""
    times = (RETENTION,) if kind is WINDOW else (0, RETENTION)
    old = (0,) if kind is WINDOW else (0, 0)
    store = open_segmented(kind, tmp_path)
    store.apply([record(b"a", *old), record(b"b", *times)], 2)
    store.close()
    store = open_segmented(kind, tmp_path)
    assert (store.position, store.stream_time_ms) == (2, RETENTION)
    found = store.fetch(None, None, None, None) if kind is WINDOW else store.find(None, None, None, None)
    assert keys(found) == [(b"b", *times)]
    store.apply([record(b"late", *old)], 3)
    assert store.expired_records == 1
    store.close()


@pytest.mark.disk
def test_nothing_holds_the_lock_after_close(tmp_path: Path) -> None:
    """Iterators of every form are open, and some begun; the database opens again at once."""
    store = open_segmented(WINDOW, tmp_path)
    store.apply([record(b"%03d" % n, (n % 9) * MINUTE) for n in range(300)], 300)
    held = [
        store.fetch(from_key, to_key, None, None, reverse=reverse)
        for from_key, to_key in ((None, None), (b"001", b"001"), (b"001", b"200"))
        for reverse in (False, True)
        for _ in range(5)
    ]
    for iterator in held[::2]:
        next(iterator)
    store.close()
    Rdict(str(tmp_path), column_families=None).close()
    assert len(held) == 30


@pytest.mark.disk
@pytest.mark.parametrize("retention_ms", [RETENTION + 1, RETENTION * 10, RETENTION // 10])
def test_another_retention_starts_afresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, retention_ms: int
) -> None:
    """The layout depends on it, also where its digits begin alike; the changelog has everything."""
    store = open_segmented(WINDOW, tmp_path)
    store.apply([record(b"a", 1)], 1)
    store.close()
    store = open_segmented(WINDOW, tmp_path, retention_ms=retention_ms)
    assert store.position is None
    assert list(store.fetch(None, None, None, None)) == []
    assert "with another retention; it is wiped, and restored from its changelog" in caplog.text
    store.close()


# --- against a model -------------------------------------------------------------------------------------

KEYS = st.sampled_from([b"", b"a", b"a\0", b"a\0\0", b"ab", b"b", b"\xff", b"\xff\xff"])
BOUNDS = st.none() | KEYS
STEPS = st.integers(-14, 4)
"""In minutes, from the newest time: most are in the past, as records that come late are."""


class SegmentedMachine(RuleBasedStateMachine):
    """A store does what a dict, an offset and the newest time do."""

    kind = WINDOW

    def open_store(self) -> Any:
        raise NotImplementedError

    def reopen(self) -> None:
        """Close and open again; a store that does not survive that is left open."""

    @initialize()
    def start(self) -> None:
        self.store = self.open_store()
        self.model = Model(RETENTION)
        self.position: int | None = None
        self.snapshots: list[tuple[Any, list[Any]]] = []

    def times(self, step: int, length: int) -> tuple[int, ...]:
        end = max(0, self.model.time + step * MINUTE)
        return (end,) if self.kind is WINDOW else (max(0, end - length), end)

    @rule(
        batch=st.lists(
            st.tuples(
                KEYS, STEPS, st.integers(0, 3 * MINUTE), st.none() | st.binary(max_size=4), st.integers(0, 99)
            ),
            max_size=12,
        )
    )
    def apply(self, batch: list[tuple[bytes, int, int, bytes | None, int]]) -> None:
        self.position = (self.position or 0) + len(batch)
        changes = [(key, self.times(step, length), value) for key, step, length, value, _ in batch]
        self.store.apply([record(key, *times, value=value) for key, times, value in changes], self.position)
        self.model.apply(changes, lambda value: to_stored(value, 5))

    def read(self, *bounds: Any, reverse: bool) -> Any:
        method = self.store.fetch if self.kind is WINDOW else self.store.find
        return method(*bounds, reverse=reverse)

    def expected(self, *bounds: Any, reverse: bool) -> list[Any]:
        method = reference_fetch if self.kind is WINDOW else reference_find
        return method(self.model.live(), *bounds, reverse=reverse)

    def bounds(self, steps: tuple[int | None, int | None]) -> list[int | None]:
        return [None if step is None else self.model.time + step * MINUTE for step in steps]

    @rule(
        first=BOUNDS,
        last=BOUNDS,
        steps=st.tuples(st.none() | STEPS, st.none() | STEPS),
        reverse=st.booleans(),
    )
    def scan(
        self,
        first: bytes | None,
        last: bytes | None,
        steps: tuple[int | None, int | None],
        reverse: bool,
    ) -> None:
        bounds = self.bounds(steps)
        expected = self.expected(first, last, *bounds, reverse=reverse)
        assert list(self.read(first, last, *bounds, reverse=reverse)) == expected

    @rule(key=KEYS, steps=st.tuples(st.none() | STEPS, st.none() | STEPS), reverse=st.booleans())
    def scan_one(self, key: bytes, steps: tuple[int | None, int | None], reverse: bool) -> None:
        bounds = self.bounds(steps)
        assert list(self.read(key, key, *bounds, reverse=reverse)) == self.expected(
            key, key, *bounds, reverse=reverse
        )

    @rule(reverse=st.booleans())
    @precondition(lambda self: len(self.snapshots) < 5)
    def open_scan(self, reverse: bool) -> None:
        expected = self.expected(None, None, None, None, reverse=reverse)
        self.snapshots.append((self.read(None, None, None, None, reverse=reverse), expected))

    @rule()
    @precondition(lambda self: self.snapshots)
    def finish_scan(self) -> None:
        iterator, expected = self.snapshots.pop(0)
        assert list(iterator) == expected

    @rule()
    def read_each(self) -> None:
        live = self.model.live()
        for key, times in self.model.values:
            found = (
                self.store.fetch_one(key, *times)
                if self.kind is WINDOW
                else self.store.fetch_session(key, *times)
            )
            assert found == live.get((key, times))

    @rule()
    def wipe(self) -> None:
        self.store.wipe()
        self.model, self.position = Model(RETENTION), None

    @rule()
    def close_and_open(self) -> None:
        self.reopen()

    @invariant()
    def position_is_kept(self) -> None:
        if hasattr(self, "store"):
            assert self.store.position == self.position
            assert self.store.stream_time_ms == (None if self.model.time < 0 else self.model.time)

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


@pytest.mark.parametrize("of_kind", [WINDOW, SESSION])
def test_a_store_in_memory_does_what_a_dict_does(of_kind: StoreKind) -> None:
    """Any sequence of batches, expiry, reads in all forms, and wipes."""

    class InMemory(SegmentedMachine):
        kind = of_kind

        def open_store(self) -> Any:
            return open_segmented(of_kind, None)

    InMemory.TestCase.settings = QUICK
    InMemory.TestCase("runTest").runTest()


@pytest.mark.parametrize("of_kind", [WINDOW, SESSION])
@pytest.mark.disk
def test_a_store_on_disk_does_what_a_dict_does(of_kind: StoreKind, tmp_path: Path) -> None:
    """Any sequence of batches, expiry, reads in all forms, wipes, and of closing and opening again."""
    opened = 0

    class OnDisk(SegmentedMachine):
        kind = of_kind

        def open_store(self) -> Any:
            nonlocal opened
            opened += 1
            self.path = tmp_path / str(opened)
            return open_segmented(of_kind, self.path)

        def reopen(self) -> None:
            self.store.close()
            for iterator, _ in self.snapshots:
                with pytest.raises(ClosedStoreError):
                    next(iterator)
            self.snapshots = []
            self.store = open_segmented(of_kind, self.path)

    OnDisk.TestCase.settings = settings(QUICK, max_examples=10)
    OnDisk.TestCase("runTest").runTest()
