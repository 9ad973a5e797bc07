"""A store as it was: the handle that `as_of` gives, and the queries for versions."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from worlds import PARTITIONS, Client, partition_of

from millstream.errors import (
    InvalidStateStoreTypeException,
    StateStoreMigratedException,
    StreamsRebalancingException,
)
from millstream.model import TaskId, ValueAndTimestamp
from millstream.query.metadata import default_partition
from millstream.query.provider import LocalStore
from millstream.query.request import MultiVersionedKeyQuery, Query, StateQueryRequest, VersionedKeyQuery
from millstream.query.result import FailureReason, VersionedRecord
from millstream.query.state_query import run_query
from millstream.stores.memory_store import MemoryStore
from millstream.stores.versioned import VersionedStore

HISTORY = 1_000


@pytest.fixture
def client() -> Client:
    """`counts` with a history of a second, in three partitions: what happens is told by `put`."""
    made = Client([])
    stores = {
        number: VersionedStore(MemoryStore("counts", TaskId(1, number)), HISTORY)
        for number in range(PARTITIONS)
    }
    made.stores = stores  # type: ignore[assignment]
    made.change(
        threads={f"t{number}": "RUNNING" for number in stores},
        stores={"counts": replace(made.snapshot().stores["counts"], history_ms=HISTORY)},
        local={
            "counts": [LocalStore(store.task_id, store, f"t{number}") for number, store in stores.items()]
        },
    )
    for at in range(5):
        put(made, at * 100, **dict.fromkeys("abcdef", at))
    put(made, 500, b=None)
    return made


def put(client: Client, at: int, **values: int | None) -> None:
    for key, value in values.items():
        store = client.stores[partition_of(key.encode())]
        data = None if value is None else value.to_bytes(8, "big")
        store.apply([(key.encode(), data, at)], (store.position or 0) + 1)


def test_a_store_is_read_as_it_was(client: Client) -> None:
    """Every read of a handle works, over all partitions."""
    then = client.store().as_of(250)
    assert then.get("a") == 2
    assert then.multi_get(["b", "?", "c"]) == [2, None, 2]
    assert list(then.all()) == [(key, 2) for key in "abcdef"]
    assert list(then.reverse_range("b", "d")) == [(key, 2) for key in "dcb"]
    assert list(then.prefix_scan("c")) == [("c", 2)]
    assert list(then) == list("abcdef")
    assert "b" in then
    assert then["b"] == 2
    assert then.to_arrow().to_pydict() == {"key": list("abcdef"), "value": [2] * 6}
    assert then.approximate_num_entries() == 5


def test_now_is_not_then(client: Client) -> None:
    """The handle that it was asked of goes on as before; a deletion is seen from its time on."""
    now = client.store()
    assert now.get("b") is None
    assert now.as_of(499).get("b") == 4
    assert now.as_of(500).get("b") is None
    assert list(now.as_of(500)) == list("acdef")
    assert now.as_of(10**9).get("a") == now.get("a") == 4


def test_a_time_is_a_datetime_or_milliseconds(client: Client) -> None:
    """One without a time zone says nothing."""
    at = datetime(1970, 1, 1, 0, 0, 0, 250_000, tzinfo=UTC)
    assert client.store().as_of(at).get("a") == 2
    with pytest.raises(ValueError, match="time zone"):
        client.store().as_of(datetime(1970, 1, 1))
    with pytest.raises(TypeError, match="as_of"):
        client.store().as_of("yesterday")  # type: ignore[arg-type]


def test_timestamps_are_those_of_then(client: Client) -> None:
    """They belong to the record that was valid."""
    assert client.store(timestamped=True).as_of(250).get("a") == ValueAndTimestamp(2, 200)


def test_a_late_record_changes_what_was(client: Client) -> None:
    """An existing handle sees the change, too."""
    then = client.store().as_of(250)
    put(client, 240, a=77)
    assert then.get("a") == 77
    assert client.store().get("a") == 4


def test_a_time_before_the_history_is_refused(client: Client) -> None:
    """The error is raised at the request, and at each read after the history has moved on."""
    then = client.store().as_of(250)
    for key in "abcdef":
        put(client, 2_000, **{key: 9})
    for read in (lambda: then.get("a"), lambda: list(then.all()), lambda: then.multi_get(["a"])):
        with pytest.raises(ValueError, match=r"keeps 0:00:01 of history.*goes back to"):
            read()
    with pytest.raises(ValueError, match="history"):
        client.store().as_of(250)


def test_a_store_without_history_says_how_to_get_one() -> None:
    """It is of another type."""
    with pytest.raises(InvalidStateStoreTypeException, match=r"with_history\(timedelta"):
        Client().store().as_of(250)


def test_the_handle_meets_the_same_leaves(client: Client) -> None:
    """A partition that waits, and one that has left."""
    then = client.store().as_of(250)
    number = partition_of(b"a")
    assert then.get("a") == 2
    client.thread_is(number, "PARTITIONS_ASSIGNED")
    with pytest.raises(StreamsRebalancingException):
        then.get("a")
    client.thread_is(number, "RUNNING")
    assert then.get("a") == 2
    client.move_away(number)
    with pytest.raises(StateStoreMigratedException):
        then.get("a")


def test_one_partition_can_be_asked_for(client: Client) -> None:
    """Other stores allow that, too."""
    number = partition_of(b"a")
    keys = [key for key in "abcdef" if default_partition(key.encode(), PARTITIONS) == number]
    assert list(client.store(partition=number).as_of(250)) == keys


# --- queries of versions ---------------------------------------------------------------------------------


def only(client: Client, query: Query[Any]) -> Any:
    found = run_query(client, StateQueryRequest.in_store("counts").with_query(query))
    number = partition_of(b"a")
    return found.partition_results[number].result


def test_a_versioned_key_query_gives_the_record_of_then(client: Client) -> None:
    """KIP-960: the latest without a time; None where there was none."""
    assert only(client, VersionedKeyQuery.with_key("a")) == VersionedRecord(4, 400)
    assert only(client, VersionedKeyQuery.with_key("a").as_of(250)) == VersionedRecord(2, 200, 300)
    assert only(client, VersionedKeyQuery.with_key("a").as_of(-1)) is None
    found = run_query(
        client, StateQueryRequest.in_store("counts").with_query(VersionedKeyQuery.with_key("a").as_of(250))
    )
    assert found.only_partition_result is not None
    assert found.only_partition_result.result == VersionedRecord(2, 200, 300)


def test_a_multi_versioned_key_query_gives_all_records_of_a_span(client: Client) -> None:
    """KIP-968: newest first, or oldest first."""
    query = MultiVersionedKeyQuery.with_key("a").from_time(150).to_time(300)
    newest_first = (VersionedRecord(3, 300, 400), VersionedRecord(2, 200, 300), VersionedRecord(1, 100, 200))
    assert only(client, query) == newest_first
    assert only(client, query.with_descending_timestamps()) == newest_first
    assert only(client, query.with_ascending_timestamps()) == newest_first[::-1]
    assert only(client, MultiVersionedKeyQuery.with_key("?")) == ()
    found = run_query(client, StateQueryRequest.in_store("counts").with_query(query)).only_partition_result
    assert found is not None
    assert found.result == newest_first


def test_a_versioned_query_before_the_history_fails_in_its_partition(client: Client) -> None:
    """The others answer."""
    number = partition_of(b"a")
    put(client, 5_000, a=1)
    request = StateQueryRequest.in_store("counts").with_query(VersionedKeyQuery.with_key("a").as_of(250))
    results = run_query(client, request).partition_results
    assert results[number].failure_reason is FailureReason.STORE_EXCEPTION
    assert "history" in results[number].failure_message
    assert sum(each.is_success for each in results.values()) == PARTITIONS - 1
