"""IQv2 on window stores and session stores."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import partition_of

from millstream.model import SessionWindow, StoreKind, TimeWindow, Windowed
from millstream.query.iterators import WindowStoreIterator
from millstream.query.request import (
    KeyQuery,
    Query,
    RangeQuery,
    SessionRangeQuery,
    StateQueryRequest,
    WindowKeyQuery,
    WindowRangeQuery,
)
from millstream.query.result import FailureReason
from millstream.query.state_query import run_query

KEYS = ["a", "b", "c", "d"]


@pytest.fixture
def windows() -> WindowedClient:
    """Each key has windows at `now`, and one and two minutes before; values count them."""
    made = WindowedClient(StoreKind.WINDOW)
    for key in KEYS:
        for back in (2, 1, 0):
            made.add(key, now - back * MINUTE)
    made.keep_time()
    return made


@pytest.fixture
def sessions() -> WindowedClient:
    """Each key has a session of a minute, that ends at `now`, and one of no length, two minutes before."""
    made = WindowedClient(StoreKind.SESSION)
    for key in KEYS:
        made.add(key, now - 3 * MINUTE, now - 3 * MINUTE)
        made.add(key, now - MINUTE, now)
    made.keep_time()
    return made


def found(client: WindowedClient, query: Query[Any]) -> list[Any]:
    """The entries of all partitions, one after the other."""
    results = run_query(client, StateQueryRequest.in_store("counts").with_query(query)).partition_results
    return [entry for number in sorted(results) for entry in results[number].result]


def test_the_windows_of_a_key_are_found_by_their_start(windows: WindowedClient) -> None:
    """Both ends are included. The result has starts and values, from the key's partition."""
    query = WindowKeyQuery.with_key_and_window_start_range("b", now - MINUTE, now)
    assert found(windows, query) == [(now - MINUTE, 5), (now, 6)]
    at = datetime.fromtimestamp(now / 1000, UTC)
    assert found(windows, WindowKeyQuery.with_key_and_window_start_range("b", at, at)) == [(now, 6)]
    assert found(windows, WindowKeyQuery.with_key_and_window_start_range("b", now, now - 1)) == []
    results = run_query(windows, StateQueryRequest.in_store("counts").with_query(query)).partition_results
    for number, result in results.items():
        with result.result as entries:
            assert isinstance(entries, WindowStoreIterator)
            assert len(list(entries)) == (2 if number == partition_of(b"b") else 0)


def test_the_last_windows_of_all_end_with_time() -> None:
    """Their end would not fit into 64 bits: handle, query and table agree on one that does."""
    last = 2**63 - 1
    client = WindowedClient(StoreKind.WINDOW)
    starts = (last - MINUTE - 1, last - 1, last)
    for start in starts:
        client.add("a", start)
    expected = [TimeWindow(start, min(start + MINUTE, last)) for start in starts]
    query = WindowRangeQuery.with_window_start_range(0, last)
    assert [entry.key.window for entry in found(client, query)] == expected
    store = client.windowed()
    assert [windowed.window for windowed in store] == expected
    ends = store.to_arrow()["window_end"].cast("int64").to_pylist()
    assert ends == [window.end_ms for window in expected]


def test_the_windows_of_all_keys_are_found_by_their_start(windows: WindowedClient) -> None:
    """The keys are windowed; the end follows from the store's window size."""
    entries = found(windows, WindowRangeQuery.with_window_start_range(now, now + 1))
    assert sorted(entries, key=lambda entry: entry.key.key) == [
        (Windowed(key, TimeWindow(now, now + MINUTE)), 3 * number + 3) for number, key in enumerate(KEYS)
    ]


def test_the_sessions_of_a_key_are_found(sessions: WindowedClient) -> None:
    """All of them, as Kafka's session stores do; or those that touch a span of time."""
    both = [
        (Windowed("c", SessionWindow(now - 3 * MINUTE, now - 3 * MINUTE)), 5),
        (Windowed("c", SessionWindow(now - MINUTE, now)), 6),
    ]
    assert found(sessions, WindowRangeQuery.with_key("c")) == both
    assert found(sessions, SessionRangeQuery.with_key("c")) == both
    assert found(sessions, SessionRangeQuery.with_key("c").between(now - MINUTE, None)) == both[1:]
    assert found(sessions, SessionRangeQuery.with_key("c").between(None, now - 2 * MINUTE)) == both[:1]


def test_the_sessions_of_a_range_of_keys_are_found(sessions: WindowedClient) -> None:
    """Both ends are included; None is open."""
    ended_now = SessionRangeQuery.with_key_range("b", "c").between(now, now)
    assert sorted(entry.key.key for entry in found(sessions, ended_now)) == ["b", "c"]
    everything = found(sessions, SessionRangeQuery.with_all_keys())
    assert len(everything) == 2 * len(KEYS)


@pytest.mark.parametrize(
    ("kind", "query", "hint"),
    [
        (StoreKind.WINDOW, KeyQuery.with_key("a"), "this kind of store"),
        (StoreKind.WINDOW, RangeQuery.with_no_bounds(), "this kind of store"),
        (StoreKind.WINDOW, WindowRangeQuery.with_key("a"), "with_window_start_range"),
        (StoreKind.WINDOW, SessionRangeQuery.with_all_keys(), "this kind of store"),
        (
            StoreKind.SESSION,
            WindowRangeQuery.with_window_start_range(0, 1),
            r"support WindowRangeQuery\.with_key",
        ),
        (
            StoreKind.SESSION,
            WindowKeyQuery.with_key_and_window_start_range("a", 0, 1),
            "this kind of store",
        ),
    ],
)
def test_a_store_of_another_kind_does_not_know_the_query(
    kind: StoreKind, query: Query[Any], hint: str
) -> None:
    """The message names the query that the store supports."""
    request = StateQueryRequest.in_store("counts").with_query(query).with_partitions({0})
    result = run_query(WindowedClient(kind), request).partition_results[0]
    assert result.failure_reason is FailureReason.UNKNOWN_QUERY_TYPE
    with pytest.raises(ValueError, match=hint):
        _ = result.result
