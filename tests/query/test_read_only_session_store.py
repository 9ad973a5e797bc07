"""The handle on a session store: its reads, and which exception of KIP-216 each meets when."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from datetime import datetime
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
    StreamsRebalancingException,
)
from millstream.model import SessionWindow, StoreKind, Windowed
from millstream.query.composite import QueryableStoreTypes, open_store
from millstream.query.iterators import KeyValueIterator
from millstream.query.parameters import StoreQueryParameters
from millstream.query.windowed_handles import ReadOnlySessionStore
from millstream.stores.store_base import ClosedStoreError

WORDS = ["a", "aa", "b", "c", "d"]
SPANS = [(now - 50 * MINUTE, now - 40 * MINUTE), (now - 45 * MINUTE, now - 30 * MINUTE), (now - MINUTE, now)]


@pytest.fixture(params=["memory", "rocksdb"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WindowedClient]:
    """Every word has each of the sessions."""
    made = WindowedClient(StoreKind.SESSION, path=tmp_path if request.param == "rocksdb" else None)
    assert len({partition_of(word.encode()) for word in WORDS}) == PARTITIONS
    made.keep_time()
    for span in reversed(SPANS):
        for word in WORDS:
            made.add(word, *span)
    yield made
    made.close()


def value_of(word: str, span: tuple[int, int]) -> int:
    """What `client` has put there."""
    return (2 - SPANS.index(span)) * len(WORDS) + WORDS.index(word) + 1


def session(word: str, span: tuple[int, int]) -> Windowed[str]:
    return Windowed(word, SessionWindow(*span))


def entries(words: list[str], spans: list[tuple[int, int]]) -> list[tuple[Windowed[str], int]]:
    return [(session(word, span), value_of(word, span)) for word in words for span in spans]


# --- answers ---------------------------------------------------------------------------------------------


def test_fetch_gives_a_keys_sessions_in_order(client: WindowedClient) -> None:
    """They are ordered by their ends; backward_fetch returns the last first. An unknown key has none."""
    store = client.windowed()
    assert type(store) is ReadOnlySessionStore
    with store.fetch("aa") as found:
        assert type(found) is KeyValueIterator
        assert list(found) == entries(["aa"], SPANS)
    assert list(store.backward_fetch("aa")) == entries(["aa"], SPANS)[::-1]
    assert list(store.fetch("?")) == list(store.backward_fetch("?")) == []


def test_fetch_with_two_keys_gives_a_range_in_one_order(client: WindowedClient) -> None:
    """The order spans all partitions; Kafka returns one partition after the other. None is an open end."""
    store = client.windowed()
    assert list(store.fetch("aa", "c")) == entries(["aa", "b", "c"], SPANS)
    assert list(store.backward_fetch("aa", "c")) == entries(["aa", "b", "c"], SPANS)[::-1]
    assert list(store.fetch(None, "aa")) == entries(["a", "aa"], SPANS)
    assert list(store.fetch("c", None)) == entries(["c", "d"], SPANS)
    assert list(store.backward_fetch("c", None)) == entries(["c", "d"], SPANS)[::-1]
    assert list(store.fetch(None, None)) == list(store.all()) == entries(WORDS, SPANS)
    assert list(store.backward_all()) == entries(WORDS, SPANS)[::-1]


def test_find_sessions_gives_those_that_meet_a_span(client: WindowedClient) -> None:
    """They end at the first time or later, and start at the second or earlier; datetimes or milliseconds."""
    store = client.windowed()
    first, second, third = SPANS
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for convert in (int, at):
            assert list(store.find_sessions("b", convert(first[1]), convert(second[0]))) == entries(
                ["b"], [first, second]
            )
            assert list(store.find_sessions("b", convert(first[1] + 1), convert(now))) == entries(
                ["b"], [second, third]
            )
            assert (
                list(store.backward_find_sessions("b", convert(0), convert(third[0] - 1)))
                == entries(["b"], [first, second])[::-1]
            )
            assert list(store.find_sessions("a", "b", convert(now), convert(now))) == entries(
                ["a", "aa", "b"], [third]
            )
            assert (
                list(store.backward_find_sessions(None, None, convert(now), convert(now)))
                == entries(WORDS, [third])[::-1]
            )
        assert list(store.find_sessions("b", now + 1, now + 2)) == []
        assert list(store.find_sessions("b", None, None)) == entries(["b"], SPANS)
        assert list(store.find_sessions("b", 2**80, None)) == []
        assert list(store.find_sessions("b", None, -1)) == []


def test_a_long_session_ends_after_the_first_time_and_starts_before_the_second(
    client: WindowedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """A first time after the second is no mistake, and nothing is logged."""
    number = client.add("long", now - 50 * MINUTE, now)
    store = client.windowed()
    found = list(store.find_sessions("long", now - MINUTE, now - 40 * MINUTE))
    assert found == [(session("long", (now - 50 * MINUTE, now)), number)]
    assert caplog.text == ""


def test_fetch_session_gives_exactly_one(client: WindowedClient) -> None:
    """Its start and its end select it; None if there is none."""
    store = client.windowed()
    for word in WORDS:
        for start, end in SPANS:
            assert store.fetch_session(word, start, end) == value_of(word, (start, end))
            assert store.fetch_session(word, at(start), at(end)) == value_of(word, (start, end))
    assert store.fetch_session("a", now - MINUTE, now - 1) is None
    assert store.fetch_session("a", now, now - MINUTE) is None
    assert store.fetch_session("?", now, now) is None
    assert store.fetch_session("a", -1, 2**80) is None


def test_without_a_partition_rule_all_partitions_are_merged() -> None:
    """Kafka gives the sessions of the first partition that has any, and the first one's value, or none."""
    client = WindowedClient(StoreKind.SESSION, routed=False)
    client.keep_time()
    spans = [(now - n * MINUTE, now - n * MINUTE) for n in range(6)]
    values = [client.add("x", *span, partition=n % PARTITIONS) for n, span in enumerate(spans)]
    store = client.windowed()
    assert [store.fetch_session("x", *span) for span in spans] == values
    expected = [(session("x", span), value) for span, value in zip(spans, values, strict=True)]
    assert list(store.backward_fetch("x")) == expected
    assert list(store.fetch("x")) == expected[::-1]
    assert [key for key, _ in store.find_sessions("x", now - MINUTE, now)] == [
        key for key, _ in expected[1::-1]
    ]


def test_sessions_of_several_partitions_are_in_the_order_of_their_ends() -> None:
    """Starts do not matter: a long session comes after a short one that began later."""
    client = WindowedClient(StoreKind.SESSION, routed=False)
    client.keep_time()
    long, short = (now - 9 * MINUTE, now), (now - 5 * MINUTE, now - 4 * MINUTE)
    client.add("x", *long, partition=0)
    client.add("x", *short, partition=1)
    store = client.windowed()
    for found in (store.fetch("x"), store.fetch("x", "x"), store.all()):
        assert [key.window for key, _ in found] == [SessionWindow(*short), SessionWindow(*long)]
    assert [key.window for key, _ in store.backward_all()] == [SessionWindow(*long), SessionWindow(*short)]


def test_what_is_older_than_the_retention_is_not_there(client: WindowedClient) -> None:
    """A session is as old as its end."""
    client.add("a", now, SPANS[0][1] + 60 * MINUTE)
    store = client.windowed()
    assert store.fetch_session("a", *SPANS[0]) is None
    assert store.fetch_session("a", *SPANS[1]) is not None
    assert len(list(store.fetch("a"))) == 3


def test_a_handle_for_one_partition_reads_only_that(client: WindowedClient) -> None:
    """A key of another partition has no sessions there."""
    only = partition_of(b"a")
    store = client.windowed(partition=only)
    mine = [word for word in WORDS if partition_of(word.encode()) == only]
    assert list(store.all()) == entries(mine, SPANS)
    assert [word for word in WORDS if list(store.fetch(word))] == mine


def test_a_session_store_behaves_like_a_mapping_where_that_is_meant(client: WindowedClient) -> None:
    """Its keys are windowed, and a missing one is a KeyError."""
    store = client.windowed()
    key = session("aa", SPANS[1])
    assert key in store
    assert store[key] == value_of("aa", SPANS[1])
    assert session("aa", (0, 1)) not in store
    with pytest.raises(KeyError):
        store[session("?", SPANS[0])]
    with pytest.raises(TypeError, match="takes a Windowed; got 'aa'"):
        store["aa"]
    assert list(store) == [key for key, _ in entries(WORDS, SPANS)]
    assert list(store.values()) == [value for _, value in entries(WORDS, SPANS)]
    assert repr(store).startswith("<ReadOnlySessionStore 'counts' (string -> long), partitions 0, 1, 2")


def test_to_arrow_has_starts_and_ends(client: WindowedClient) -> None:
    """A session's end is its last record's time."""
    table = client.windowed().to_arrow()
    assert table.column_names == ["key", "window_start", "window_end", "value"]
    assert table.num_rows == len(WORDS) * len(SPANS)
    assert table.to_pylist()[0] == {
        "key": "a",
        "window_start": at(SPANS[0][0]),
        "window_end": at(SPANS[0][1]),
        "value": value_of("a", SPANS[0]),
    }


def test_an_empty_store_has_an_empty_table() -> None:
    """The columns have their types."""
    table = WindowedClient(StoreKind.SESSION).windowed().to_arrow()
    assert table.num_rows == 0
    assert [str(column.type) for column in table.columns] == [
        "string",
        "timestamp[ms, tz=UTC]",
        "timestamp[ms, tz=UTC]",
        "int64",
    ]


# --- bad input -------------------------------------------------------------------------------------------

NONE_KEYS: dict[str, Callable[[Any], Any]] = {
    "fetch": lambda store: store.fetch(None),
    "backward_fetch": lambda store: store.backward_fetch(None),
    "find_sessions": lambda store: store.find_sessions(None, 0, now),
    "backward_find_sessions": lambda store: store.backward_find_sessions(None, 0, now),
    "fetch_session": lambda store: store.fetch_session(None, 0, now),
}


@pytest.mark.parametrize("form", NONE_KEYS)
def test_a_key_that_is_needed_must_not_be_none(client: WindowedClient, form: str) -> None:
    """Kafka Streams raises a NullPointerException there. In ranges, None is an open end."""
    with pytest.raises(TypeError, match=rf"{form}\(\) of store 'counts': the key must not be None"):
        NONE_KEYS[form](client.windowed())


def test_a_key_of_the_wrong_type_is_a_serialization_error(client: WindowedClient) -> None:
    """Every form of read raises it."""
    store = client.windowed()
    for read in (
        lambda: store.fetch(7),
        lambda: store.fetch("a", 7),
        lambda: store.find_sessions(7, 0, now),
        lambda: store.fetch_session(7, 0, now),
    ):
        with pytest.raises(SerializationException, match=r"store 'counts' \(keys of serde 'string'\)"):
            read()


def test_times_must_be_times_and_arguments_as_many_as_there_are(client: WindowedClient) -> None:
    """The message names the method, the store and the forms."""
    store = client.windowed()
    with pytest.raises(
        TypeError, match=r"find_sessions\(\) of store 'counts': the earliest end must be a datetime"
    ):
        store.find_sessions("a", "now", None)
    with pytest.raises(TypeError, match=r"fetch_session\(\) of store 'counts': the start must be a datetime"):
        store.fetch_session("a", None, now)
    with pytest.raises(ValueError, match=r"the latest start is .*no time zone"):
        store.backward_find_sessions("a", "b", None, datetime(2023, 1, 1))
    for arguments in ((), ("a", "b", now)):
        with pytest.raises(
            TypeError, match=r"fetch\(\) of store 'counts' takes \(key\) or \(key_from, key_to\)"
        ):
            store.fetch(*arguments)
    for arguments in (("a",), ("a", "b", 1, 2, 3)):
        with pytest.raises(TypeError, match=r"find_sessions\(\) of store 'counts' takes \(key, earliest_"):
            store.find_sessions(*arguments)


def test_a_reversed_range_of_keys_is_empty_and_says_so(
    client: WindowedClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is raised, as in Kafka Streams."""
    store = client.windowed()
    assert list(store.fetch("c", "a")) == list(store.backward_fetch("c", "a")) == []
    assert list(store.find_sessions("c", "a", None, None)) == []
    assert caplog.text.count("because its first key comes after its last one") == 3


# --- which exception when --------------------------------------------------------------------------------

READS: dict[str, Callable[[Any, str], Any]] = {
    "fetch": lambda store, key: store.fetch(key),
    "backward_fetch": lambda store, key: store.backward_fetch(key),
    "find_sessions": lambda store, key: store.find_sessions(key, 0, now),
    "backward_find_sessions": lambda store, key: store.backward_find_sessions(key, 0, now),
    "fetch_session": lambda store, key: store.fetch_session(key, now, now),
    "in": lambda store, key: session(key, (now, now)) in store,
    "[]": lambda store, key: store[session(key, (now, now))],
    "fetch of a range": lambda store, key: store.fetch(key, key),
    "backward_fetch of a range": lambda store, key: store.backward_fetch(key, key),
    "find_sessions of a range": lambda store, key: store.find_sessions(key, key, 0, now),
    "backward_find_sessions of a range": lambda store, key: store.backward_find_sessions(key, key, 0, now),
    "reversed range": lambda store, _: store.fetch("b", "a"),
    "all": lambda store, _: store.all(),
    "backward_all": lambda store, _: store.backward_all(),
    "keys": lambda store, _: next(store.keys()),
    "approximate_num_entries": lambda store, _: store.approximate_num_entries(),
    "to_arrow": lambda store, _: store.to_arrow(),
}


@pytest.fixture
def quick() -> WindowedClient:
    """In memory, with one session in each partition."""
    made = WindowedClient(StoreKind.SESSION)
    for partition in range(PARTITIONS):
        made.add(key_in(partition), now, now)
    return made


def test_every_read_raises_the_leaf_for_what_has_happened(quick: WindowedClient) -> None:
    """A rebalance, a store closed under the read, one that has left, a client that stops: in that order."""
    store = quick.windowed()

    def met() -> dict[str, tuple[type, type | None] | None]:
        return {name: leaf_of(lambda: read(store, key_in(1))) for name, read in READS.items()}  # noqa: B023

    assert met() == dict.fromkeys(READS)
    quick.thread_is(1, "PARTITIONS_REVOKED")
    assert met() == dict.fromkeys(READS, (StreamsRebalancingException, None))
    quick.thread_is(1, "RUNNING")
    quick.stores[1].close()
    assert met() == dict.fromkeys(READS, (StateStoreMigratedException, ClosedStoreError))
    quick.move_away(1)
    assert met() == dict.fromkeys(READS, (StateStoreMigratedException, None))
    quick.client_is("PENDING_SHUTDOWN")
    assert met() == dict.fromkeys(READS, (StateStoreNotAvailableException, None))


def leaf_of(read: Callable[[], Any]) -> tuple[type, type | None] | None:
    """What the read raises, and the cause that it chains; None for an answer."""
    try:
        read()
    except InvalidStateStoreException as error:
        return type(error), None if error.__cause__ is None else type(error.__cause__)
    return None


def test_an_iterator_of_sessions_raises_the_leaf_when_its_store_goes(client: WindowedClient) -> None:
    """And a closed one that it is closed."""
    store = client.windowed()
    closed = store.fetch("a")
    closed.close()
    with pytest.raises(IllegalStateException, match=r"Iterator for store counts has already been closed\."):
        next(closed)
    found = store.all()
    next(found)
    client.close()
    with pytest.raises(StateStoreMigratedException, match="was closed under an open iterator"):
        next(found)


def test_store_checks_type_and_partition() -> None:
    """The checks come before the first read."""
    client = WindowedClient(StoreKind.SESSION, [0, 1])
    with pytest.raises(InvalidStateStorePartitionException):
        client.windowed(partition=2)
    for kind in (QueryableStoreTypes.key_value_store(), QueryableStoreTypes.timestamped_window_store()):
        parameters: Any = StoreQueryParameters.from_name_and_type("counts", kind)
        with pytest.raises(InvalidStateStoreTypeException, match="'counts' is a session store, which"):
            open_store(client, parameters)
    key = key_in(2)
    assert client.windowed().fetch_session(key, now, now) is None
    assert list(client.windowed().fetch(key)) == []
