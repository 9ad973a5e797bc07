"""The handle on a window store: its reads, and which exception of KIP-216 each meets when."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from windowed_worlds import MINUTE, WindowedClient, at, now
from worlds import PARTITIONS, key_in, partition_of

from millstream.errors import (
    IllegalStateException,
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    StreamsRebalancingException,
)
from millstream.model import KeyValue, SessionWindow, StoreKind, TimeWindow, ValueAndTimestamp, Windowed
from millstream.query.composite import QueryableStoreTypes, open_store
from millstream.query.iterators import KeyValueIterator, WindowStoreIterator
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import PartRole
from millstream.query.windowed_handles import ReadOnlyWindowStore
from millstream.stores.store_base import ClosedStoreError

WORDS = ["a", "aa", "ab", "b", "bbb", "c", "d"]
STARTS = [now - 40 * MINUTE, now - MINUTE, now]


@pytest.fixture(params=["memory", "rocksdb"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WindowedClient]:
    """Every word has a window at every start."""
    made = WindowedClient(StoreKind.WINDOW, path=tmp_path if request.param == "rocksdb" else None)
    assert len({partition_of(word.encode()) for word in WORDS}) == PARTITIONS
    made.keep_time()
    for start in reversed(STARTS):
        for word in WORDS:
            made.add(word, start)
    yield made
    made.close()


def value_of(word: str, start: int) -> int:
    """What `client` has put there."""
    return (2 - STARTS.index(start)) * len(WORDS) + WORDS.index(word) + 1


def windowed(word: str, start: int) -> Windowed[str]:
    return Windowed(word, TimeWindow(start, start + MINUTE))


def entries(words: list[str], starts: list[int]) -> list[tuple[Windowed[str], int]]:
    return [(windowed(word, start), value_of(word, start)) for word in words for start in starts]


# --- answers ---------------------------------------------------------------------------------------------


def test_the_type_of_the_query_picks_the_handle(client: WindowedClient) -> None:
    """It is a window store's, for windows."""
    assert type(client.windowed()) is ReadOnlyWindowStore
    assert type(client.windowed(timestamped=True)) is ReadOnlyWindowStore


def test_fetch_with_a_time_gives_the_value_of_one_window(client: WindowedClient) -> None:
    """The time is a datetime or milliseconds, which are not deprecated here; None if there is no such window.
    The time is a datetime or milliseconds, which are not deprecated here; None if there is no such window."""
    store = client.windowed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for word in WORDS:
            for start in STARTS:
                assert store.fetch(word, start) == store.fetch(word, at(start)) == value_of(word, start)
        assert store.fetch("a", now + 1) is None
        assert store.fetch("?", now) is None
        assert store.fetch("a", -1) is store.fetch("a", 2**80) is None


def test_fetch_with_two_times_gives_the_keys_windows(client: WindowedClient) -> None:
    """Entries are (start in milliseconds, value); both ends are included; backward_fetch returns the last
    first."""
    store = client.windowed()
    whole = [KeyValue(start, value_of("aa", start)) for start in STARTS]
    with store.fetch("aa", at(STARTS[0]), at(STARTS[2])) as found:
        assert type(found) is WindowStoreIterator
        assert list(found) == whole
    assert list(store.backward_fetch("aa", at(STARTS[0]), at(STARTS[2]))) == whole[::-1]
    assert list(store.fetch("aa", at(STARTS[1]), at(STARTS[1]))) == whole[1:2]
    assert list(store.fetch("aa", at(STARTS[0] + 1), at(STARTS[2] - 1))) == whole[1:2]
    assert list(store.fetch("aa", None, at(STARTS[1]))) == whole[:2]
    assert list(store.backward_fetch("aa", at(STARTS[1]), None)) == whole[:0:-1]
    assert list(store.fetch("?", None, None)) == []


def test_fetch_with_two_keys_gives_a_range_in_one_order(client: WindowedClient) -> None:
    """Entries of all partitions are ordered by key and then by time; Kafka returns one partition after the
    other."""
    store = client.windowed()
    some = entries(["aa", "ab", "b"], STARTS[1:])
    with store.fetch("aa", "b", at(STARTS[1]), at(STARTS[2])) as found:
        assert type(found) is KeyValueIterator
        assert list(found) == some
    assert list(store.backward_fetch("aa", "b", at(STARTS[1]), at(STARTS[2]))) == some[::-1]
    assert list(store.fetch(None, "aa", None, None)) == entries(["a", "aa"], STARTS)
    assert list(store.fetch("c", None, at(now), None)) == entries(["c", "d"], [now])
    assert list(store.fetch("b", "b", None, at(STARTS[0]))) == entries(["b"], STARTS[:1])
    assert list(store.backward_fetch(None, None, None, None)) == entries(WORDS, STARTS)[::-1]


def test_all_and_fetch_all_give_every_key(client: WindowedClient) -> None:
    """They return one order over all partitions, or its reverse."""
    store = client.windowed()
    whole = entries(WORDS, STARTS)
    assert list(store.all()) == whole
    assert list(store.backward_all()) == whole[::-1]
    late = entries(WORDS, STARTS[1:])
    assert list(store.fetch_all(at(STARTS[1]), at(now))) == late
    assert list(store.backward_fetch_all(at(STARTS[1]), at(now))) == late[::-1]
    assert list(store.fetch_all(None, None)) == whole
    assert list(store.backward_fetch_all(None, None)) == whole[::-1]


def test_a_window_knows_its_length(client: WindowedClient) -> None:
    """The length is the topology's, and it prints as in Kafka Streams."""
    with client.windowed().all() as found:
        key = found.peek_next_key()
    assert key == Windowed("a", TimeWindow(STARTS[0], STARTS[0] + MINUTE))
    assert str(key) == f"[a@{STARTS[0]}/{STARTS[0] + MINUTE}]"
    assert key.window.start == at(STARTS[0])


def test_what_is_older_than_the_retention_is_not_there(client: WindowedClient) -> None:
    """The time of its partition decides."""
    client.add("a", STARTS[0] + 60 * MINUTE)
    store = client.windowed()
    assert store.fetch("a", STARTS[0]) is None
    assert [start for start, _ in store.fetch("a", None, None)] == [*STARTS[1:], STARTS[0] + 60 * MINUTE]


def test_the_timestamped_type_gives_value_and_timestamp(client: WindowedClient) -> None:
    """Every form of read returns both."""
    number = client.add("late", now, timestamp=1_700_000_000_123)
    store = client.windowed(timestamped=True)
    expected = ValueAndTimestamp(number, 1_700_000_000_123)
    assert store.fetch("late", now) == expected
    assert list(store.fetch("late", None, None)) == [(now, expected)]
    assert list(store.fetch("late", "late", None, None)) == [(windowed("late", now), expected)]


def test_a_key_goes_straight_to_its_partition(client: WindowedClient) -> None:
    """The plain key's bytes select it; an entry of the key in another partition is not seen."""
    wrong = (partition_of(b"x") + 1) % PARTITIONS
    client.add("x", now, partition=wrong)
    store = client.windowed()
    assert store.fetch("x", now) is None
    assert list(store.fetch("x", None, None)) == []
    assert len(list(store.fetch("x", "x", None, None))) == 1


def test_without_a_partition_rule_all_partitions_are_merged() -> None:
    """One key's windows may then be anywhere; Kafka gives those of the first partition that has any."""
    client = WindowedClient(StoreKind.WINDOW, routed=False)
    client.keep_time()
    values = [client.add("x", now - n * MINUTE, partition=n % PARTITIONS) for n in range(6)]
    store = client.windowed()
    assert [store.fetch("x", now - n * MINUTE) for n in range(6)] == values
    expected = [(now - n * MINUTE, values[n]) for n in range(6)]
    assert list(store.backward_fetch("x", None, None)) == expected
    assert list(store.fetch("x", None, None)) == expected[::-1]
    assert list(store.fetch("y", None, None)) == []
    assert store.fetch("y", now) is None


def test_a_handle_for_one_partition_reads_only_that(client: WindowedClient) -> None:
    """A key of another partition has no windows there."""
    only = partition_of(b"a")
    store = client.windowed(partition=only)
    mine = [word for word in WORDS if partition_of(word.encode()) == only]
    assert list(store.all()) == entries(mine, STARTS)
    assert [word for word in WORDS if store.fetch(word, now) is not None] == mine
    assert [word for word in WORDS if list(store.fetch(word, None, None))] == mine


def test_a_window_store_behaves_like_a_mapping_where_that_is_meant(client: WindowedClient) -> None:
    """Its keys are windowed, and a missing one is a KeyError."""
    store = client.windowed()
    key = windowed("aa", now)
    assert key in store
    assert store[key] == value_of("aa", now)
    assert windowed("aa", now + 1) not in store
    with pytest.raises(KeyError):
        store[windowed("?", now)]
    with pytest.raises(TypeError, match="takes a Windowed; got 'aa'"):
        store["aa"]
    assert dict(store.items())[key] == value_of("aa", now)
    assert list(store) == list(store.keys()) == [key for key, _ in entries(WORDS, STARTS)]
    assert list(store.values()) == [value for _, value in entries(WORDS, STARTS)]
    assert store.approximate_num_entries() >= len(WORDS) * len(STARTS)


def test_to_arrow_has_the_windows_as_columns(client: WindowedClient) -> None:
    """Starts and ends are times in UTC; the timestamped type has the timestamp as well."""
    table = client.windowed(timestamped=True).to_arrow()
    assert table.column_names == ["key", "window_start", "window_end", "value", "timestamp"]
    assert [str(column.type) for column in table.columns] == [
        "string",
        "timestamp[ms, tz=UTC]",
        "timestamp[ms, tz=UTC]",
        "int64",
        "timestamp[ms, tz=UTC]",
    ]
    assert table.to_pylist()[0] == {
        "key": "a",
        "window_start": at(STARTS[0]),
        "window_end": at(STARTS[0] + MINUTE),
        "value": value_of("a", STARTS[0]),
        "timestamp": at(5),
    }
    assert table.num_rows == len(WORDS) * len(STARTS)
    assert client.windowed().to_arrow().column_names == ["key", "window_start", "window_end", "value"]


def test_to_pandas_has_the_same_columns(client: WindowedClient) -> None:
    """One row for each window."""
    frame = client.windowed().to_pandas()
    assert list(frame.columns) == ["key", "window_start", "window_end", "value"]
    assert len(frame) == len(WORDS) * len(STARTS)


def test_a_handle_says_what_it_is(client: WindowedClient) -> None:
    """It shows its store, serdes, partitions and client, or why it cannot be read."""
    store = client.windowed()
    assert repr(store).startswith(
        "<ReadOnlyWindowStore 'counts' (string -> long), partitions 0, 1, 2 on client"
    )
    client.client_is("ERROR")
    assert repr(store) == (
        "<ReadOnlyWindowStore 'counts', not readable now: StateStoreNotAvailableException>"
    )


# --- bad input -------------------------------------------------------------------------------------------

MILLISECONDS: dict[str, Callable[[Any], Any]] = {
    "fetch of a key": lambda store: store.fetch("a", now, now),
    "fetch of a range": lambda store: store.fetch("a", "b", None, now),
    "backward_fetch of a key": lambda store: store.backward_fetch("a", now, None),
    "backward_fetch of a range": lambda store: store.backward_fetch("a", "b", now, now),
    "fetch_all": lambda store: store.fetch_all(now, now),
    "backward_fetch_all": lambda store: store.backward_fetch_all(now, now),
}


@pytest.mark.parametrize("form", MILLISECONDS)
def test_milliseconds_are_deprecated_where_kafka_deprecates_them(client: WindowedClient, form: str) -> None:
    """They work, and the warning points at the caller's line."""
    with pytest.warns(DeprecationWarning, match="with times in milliseconds is deprecated") as warned:
        found = list(MILLISECONDS[form](client.windowed()))
    assert [warning.filename for warning in warned] == [__file__]
    assert found


NONE_KEYS: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda store: store.fetch(None, now),
    "fetch of a key": lambda store: store.fetch(None, at(now), at(now)),
    "backward_fetch of a key": lambda store: store.backward_fetch(None, at(now), at(now)),
}


@pytest.mark.parametrize("form", NONE_KEYS)
def test_a_key_that_is_needed_must_not_be_none(client: WindowedClient, form: str) -> None:
    """Kafka Streams raises a NullPointerException there. In ranges, None is an open end."""
    with pytest.raises(TypeError, match=r"fetch\(\) of store 'counts': the key must not be None"):
        NONE_KEYS[form](client.windowed())


def test_a_key_of_the_wrong_type_is_a_serialization_error(client: WindowedClient) -> None:
    """Every form of read raises it, with the serde's name."""
    store = client.windowed()
    for read in (
        lambda: store.fetch(7, now),
        lambda: store.fetch(7, None, None),
        lambda: store.fetch("a", 7, None, None),
        lambda: store.backward_fetch(7, None, None, None),
    ):
        with pytest.raises(SerializationException, match=r"store 'counts' \(keys of serde 'string'\)"):
            read()


@pytest.mark.parametrize("arguments", [(), ("a",), ("a", "b", 1, 2, 3)])
def test_another_number_of_arguments_is_told_the_forms(
    client: WindowedClient, arguments: tuple[Any, ...]
) -> None:
    """All of them."""
    with pytest.raises(TypeError, match=r"takes \(key, time\), \(key, time_from, time_to\) or \(key_from"):
        client.windowed().fetch(*arguments)
    with pytest.raises(TypeError, match=r"takes \(key, time_from, time_to\) or \(key_from, key_to"):
        client.windowed().backward_fetch(*arguments)


def test_a_time_must_be_a_time(client: WindowedClient) -> None:
    """A float, a text, a datetime without a zone: the message names the store and which time it is."""
    store = client.windowed()
    with pytest.raises(
        TypeError, match=r"fetch\(\) of store 'counts': the time must be a datetime, or milliseconds"
    ):
        store.fetch("a", 1.5)
    with pytest.raises(TypeError, match=r"fetch_all\(\) of store 'counts': the last time must be a datetime"):
        store.fetch_all(None, "now")
    with pytest.raises(
        ValueError, match=r"backward_fetch\(\) of store 'counts': the first time is .*no time zone"
    ):
        store.backward_fetch("a", datetime(2023, 1, 1), None)


def test_a_reversed_range_is_empty_and_says_so(
    client: WindowedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Keys or times may be reversed. Nothing is raised, as in Kafka Streams."""
    store = client.windowed()
    late, early = at(now), at(now) - timedelta(minutes=5)
    assert list(store.fetch("a", late, early)) == []
    assert list(store.backward_fetch("a", late, early)) == []
    assert list(store.fetch("a", "c", late, early)) == []
    assert list(store.fetch_all(late, early)) == []
    assert list(store.backward_fetch_all(late, early)) == []
    assert caplog.text.count("because it starts after its end") == 5
    assert list(store.fetch("c", "a", None, None)) == []
    assert list(store.backward_fetch("c", "a", early, late)) == []
    assert caplog.text.count("because its first key comes after its last one") == 2


# --- iterators -------------------------------------------------------------------------------------------


def test_an_iterator_looks_ahead_and_ends(client: WindowedClient) -> None:
    """The key of a key's window is its start; an empty iterator has nothing to look at."""
    found = client.windowed().fetch("a", None, None)
    assert found.has_next()
    assert found.peek_next_key() == STARTS[0]
    assert found.next() == KeyValue(STARTS[0], value_of("a", STARTS[0]))
    assert len(list(found)) == 2
    assert not found.has_next()
    for empty in (client.windowed().fetch("?", None, None), client.windowed().fetch("x", "z", None, None)):
        assert not empty.has_next()
        with pytest.raises(StopIteration):
            empty.next()
        with pytest.raises(StopIteration):
            empty.peek_next_key()


def test_a_closed_iterator_says_so(client: WindowedClient) -> None:
    """Each kind, even one that found nothing."""
    store = client.windowed()
    for found in (store.fetch("a", None, None), store.all(), store.backward_fetch("?", None, None)):
        found.close()
        found.close()
        with pytest.raises(
            IllegalStateException, match=r"Iterator for store counts has already been closed\."
        ):
            next(found)
    assert repr(found) == "<WindowStoreIterator of store 'counts', closed>"


def test_an_iterator_whose_store_is_closed_raises_the_leaf(client: WindowedClient) -> None:
    """Migrated while the client runs, not available once it stops; then the same again."""
    store = client.windowed()
    word = key_in(1)
    client.add(word, now)
    moved = store.fetch(word, None, None)
    client.move_away(1)
    for _ in range(2):
        with pytest.raises(StateStoreMigratedException) as raised:
            next(moved)
    assert "was closed under an open iterator" in str(raised.value)
    left = client.windowed(stale=True).fetch_all(None, None)
    client.client_is("PENDING_SHUTDOWN")
    client.close()
    with pytest.raises(StateStoreNotAvailableException):
        next(left)


# --- which exception when --------------------------------------------------------------------------------

READS: dict[str, Callable[[Any, str], Any]] = {
    "fetch": lambda store, key: store.fetch(key, now),
    "fetch of a key": lambda store, key: store.fetch(key, None, None),
    "backward_fetch of a key": lambda store, key: store.backward_fetch(key, None, None),
    "in": lambda store, key: windowed(key, now) in store,
    "[]": lambda store, key: store[windowed(key, now)],
}
WHOLE_READS: dict[str, Callable[[Any, str], Any]] = {
    "fetch of a range": lambda store, key: store.fetch(key, key, None, None),
    "backward_fetch of a range": lambda store, key: store.backward_fetch(key, key, None, None),
    "reversed range": lambda store, key: store.fetch("b", "a", None, None),
    "all": lambda store, _: store.all(),
    "backward_all": lambda store, _: store.backward_all(),
    "fetch_all": lambda store, _: store.fetch_all(None, None),
    "reversed times": lambda store, _: store.fetch_all(at(1), at(0)),
    "backward_fetch_all": lambda store, _: store.backward_fetch_all(None, None),
    "keys": lambda store, _: next(store.keys()),
    "approximate_num_entries": lambda store, _: store.approximate_num_entries(),
    "to_arrow": lambda store, _: store.to_arrow(),
}
ALL_READS = {**READS, **WHOLE_READS}


@pytest.fixture
def quick() -> WindowedClient:
    """In memory, with one window in each partition."""
    made = WindowedClient(StoreKind.WINDOW)
    for partition in range(PARTITIONS):
        made.add(key_in(partition), now)
    return made


def test_every_read_raises_the_leaf_for_what_has_happened_before_it_returns(quick: WindowedClient) -> None:
    """KIP-216, of the call itself and not of what it returns; every state is in test_query_table.py."""
    store = quick.windowed()
    met = {"before": all_that(store, key_in(1))}
    quick.client_is("REBALANCING")
    quick.thread_is(1, "PARTITIONS_ASSIGNED")
    met["while it rebalances"] = all_that(store, key_in(1))
    met["a key that stays here"] = {name: leaf_of(read, store, key_in(0)) for name, read in READS.items()}
    quick.client_is("RUNNING")
    quick.thread_is(1, "RUNNING")
    met["after it"] = all_that(store, key_in(1))
    quick.stores[1].close()
    met["closed under it"] = all_that(store, key_in(1))
    quick.move_away(1)
    met["left"] = all_that(store, key_in(1))
    quick.client_is("PENDING_SHUTDOWN")
    met["closing"] = all_that(store, key_in(1))
    assert met == {
        "before": dict.fromkeys(ALL_READS),
        "while it rebalances": dict.fromkeys(ALL_READS, (StreamsRebalancingException, None)),
        "a key that stays here": dict.fromkeys(READS),
        "after it": dict.fromkeys(ALL_READS),
        "closed under it": dict.fromkeys(ALL_READS, (StateStoreMigratedException, ClosedStoreError)),
        "left": dict.fromkeys(ALL_READS, (StateStoreMigratedException, None)),
        "closing": dict.fromkeys(ALL_READS, (StateStoreNotAvailableException, None)),
    }
    with pytest.raises(StateStoreNotAvailableException):
        quick.windowed()


def all_that(store: Any, key: str) -> dict[str, tuple[type, type | None] | None]:
    return {name: leaf_of(read, store, key) for name, read in ALL_READS.items()}


def leaf_of(read: Callable[[Any, str], Any], store: Any, key: str) -> tuple[type, type | None] | None:
    """What the read raises, and the cause that it chains; None for an answer."""
    try:
        read(store, key)
    except InvalidStateStoreException as error:
        return type(error), None if error.__cause__ is None else type(error.__cause__)
    return None


def test_a_key_whose_partition_was_never_here_has_no_windows() -> None:
    """Kafka Streams does the same. The read raises if the client may still get the partition."""
    client = WindowedClient(StoreKind.WINDOW, [0, 1])
    store = client.windowed()
    assert store.fetch(key_in(2), now) is None
    assert list(store.fetch(key_in(2), None, None)) == []
    client.thread_is(0, "PARTITIONS_ASSIGNED")
    for read in (lambda: store.fetch(key_in(2), now), lambda: store.fetch(key_in(2), None, None)):
        with pytest.raises(StreamsRebalancingException):
            read()


def test_store_checks_type_and_partition_and_state() -> None:
    """The checks come before the first read."""
    client = WindowedClient(StoreKind.WINDOW, [0, 1])
    with pytest.raises(InvalidStateStorePartitionException):
        client.windowed(partition=2)
    for kind in (
        QueryableStoreTypes.key_value_store(),
        QueryableStoreTypes.timestamped_key_value_store(),
        QueryableStoreTypes.session_store(),
    ):
        parameters: Any = StoreQueryParameters.from_name_and_type("counts", kind)
        with pytest.raises(InvalidStateStoreTypeException, match="'counts' is a window store, which"):
            open_store(client, parameters)
    client.client_is("CREATED")
    with pytest.raises(StreamsNotStartedException):
        client.windowed()


def test_stale_reads_answer_from_what_is_restored_yet(quick: WindowedClient) -> None:
    """A part that is not up to date is no answer, unless stale stores are asked for."""
    quick.role_is(1, PartRole.RESTORING)
    with pytest.raises(StreamsRebalancingException):
        quick.windowed().fetch(key_in(1), now)
    assert quick.windowed(stale=True).fetch(key_in(1), now) is not None
    assert len(list(quick.windowed(stale=True).all())) == PARTITIONS


def test_a_read_follows_a_store_that_was_opened_anew(quick: WindowedClient) -> None:
    """A replaced thread closes its store and opens another; the handle goes on."""
    store = quick.windowed()
    old = quick.stores[1]
    other = WindowedClient(StoreKind.WINDOW)
    number = other.add(key_in(1), now)
    old.close()
    quick.change(local=other.snapshot().local)
    assert store.fetch(key_in(1), now) == number


def test_a_session_is_no_window_of_a_window_store(client: WindowedClient) -> None:
    """A lookup by a windowed key goes by its start."""
    assert Windowed("a", SessionWindow(now, now)) in client.windowed()
