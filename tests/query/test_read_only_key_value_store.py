"""The handle on a key-value store: its reads, and which exception of KIP-216 each meets when."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from racing import race
from worlds import PARTITIONS, Client, key_in, partition_of

import millstream.query
from millstream.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    UnknownStateStoreException,
)
from millstream.model import KeyValue, StoreKind, ValueAndTimestamp
from millstream.query.composite import ReadOnlyKeyValueStore, open_store
from millstream.query.provider import LocalStore, PartRole
from millstream.query.request import KeyQuery, StateQueryRequest
from millstream.query.result import FailureReason
from millstream.query.state_query import run_query
from millstream.query.windowed_handles import ReadOnlySessionStore, ReadOnlyWindowStore
from millstream.serdes.serdes import Serdes
from millstream.stores.memory_store import MemoryStore

Store = ReadOnlyKeyValueStore[str, Any]
WORDS = ["a", "aa", "ab", "b", "bbb", "c", "d"]


@pytest.fixture
def client() -> Client:
    made = Client()
    made.put(*WORDS)
    assert len({partition_of(word.encode()) for word in WORDS}) == PARTITIONS
    return made


# --- answers ---------------------------------------------------------------------------------------------


def test_get_finds_a_key_in_its_partition(client: Client) -> None:
    """The store has three local partitions; a key without a value gives None."""
    store = client.store()
    assert [store.get(word) for word in WORDS] == [len(word) for word in WORDS]
    assert store.get("missing") is None


def test_get_goes_straight_to_the_partition_of_the_key(client: Client) -> None:
    """The partition follows from the key's bytes: what another partition has under that key is not seen."""
    wrong = (partition_of(b"x") + 1) % PARTITIONS
    client.put_into(wrong, "x")
    assert client.store().get("x") is None
    assert client.store().multi_get(["x"]) == [None]


def test_without_a_partition_rule_every_local_partition_is_asked() -> None:
    """Tables read from a topic are partitioned by whoever writes it."""
    client = Client(routed=False)
    client.put_into(2, "x")
    store = client.store()
    assert store.get("x") == 1
    assert store.multi_get(["x", "y"]) == [1, None]
    assert "x" in store


def test_multi_get_answers_in_order(client: Client) -> None:
    """Across partitions, with missing and repeated keys."""
    assert client.store().multi_get(["d", "?", "aa", "d"]) == [1, None, 2, 1]
    assert client.store().multi_get([]) == []


def test_ranges_are_in_key_order_over_all_partitions(client: Client) -> None:
    """Kafka gives one partition after the other; bounds are included, None is open."""
    store = client.store()

    def keys(entries: Any) -> list[str]:
        with entries:
            return [key for key, _ in entries]

    assert keys(store.all()) == WORDS
    assert keys(store.reverse_all()) == WORDS[::-1]
    assert keys(store.range("aa", "bbb")) == ["aa", "ab", "b", "bbb"]
    assert keys(store.reverse_range("aa", "bbb")) == ["bbb", "b", "ab", "aa"]
    assert keys(store.range(None, "ab")) == ["a", "aa", "ab"]
    assert keys(store.range("c", None)) == ["c", "d"]
    assert keys(store.reverse_range(None, "aa")) == ["aa", "a"]
    assert keys(store.range("b", "b")) == ["b"]
    assert keys(store.range("x", "z")) == []


def test_entries_are_key_values(client: Client) -> None:
    """They unpack, and have names."""
    with client.store().all() as entries:
        first = next(entries)
    assert first == KeyValue("a", 1)
    assert (first.key, first.value) == ("a", 1)
    assert type(first) is KeyValue


def test_a_reversed_range_is_empty_and_says_so(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka Streams does the same. The end is not included either."""
    for read in (client.store().range, client.store().reverse_range):
        assert list(read("c", "a")) == []
        assert list(read("c", "")) == []
    assert caplog.text.count("is empty") == 4


def test_a_range_up_to_the_empty_key_has_the_empty_key(client: Client) -> None:
    """No bytes are a key like any other."""
    client.put("")
    assert list(client.store().range(None, "")) == [("", 0)]
    assert list(client.store().range("", "")) == [("", 0)]


def test_prefix_scan_gives_exactly_the_keys_with_the_prefix(client: Client) -> None:
    """The prefix is in bytes: of the key's serde, or of the given serializer."""
    store = client.store()
    assert [key for key, _ in store.prefix_scan("a")] == ["a", "aa", "ab"]
    assert [key for key, _ in store.prefix_scan("ab")] == ["ab"]
    assert [key for key, _ in store.prefix_scan("")] == WORDS
    assert list(store.prefix_scan("zz")) == []

    class Raw:
        name = "raw"

        def serialize(self, value: Any) -> bytes:
            return bytes(value)

        def deserialize(self, data: bytes) -> Any:
            return data

    assert [key for key, _ in store.prefix_scan([0x62], Raw())] == ["b", "bbb"]
    assert list(store.prefix_scan([0xFF, 0xFF], Raw())) == []


def test_a_prefix_scan_of_the_greatest_bytes_has_no_upper_end() -> None:
    """No key comes after every key that begins with FF."""
    client = Client(1, routed=False)
    client.stores[0].apply(
        [(b"\xff", b"\0" * 8, 1), (b"\xff\xff\x01", b"\0" * 8, 1), (b"\xfe", b"\0" * 8, 1)], 1
    )
    declaration = client.snapshot().stores["counts"]
    client.change(stores={"counts": replace(declaration, key_serde=Serdes.bytes())})
    store: Any = client.store()
    assert [key for key, _ in store.prefix_scan(b"\xff")] == [b"\xff", b"\xff\xff\x01"]
    assert [key for key, _ in store.prefix_scan(b"\xff\xff")] == [b"\xff\xff\x01"]
    assert [key for key, _ in store.prefix_scan(b"\xfe")] == [b"\xfe"]


def test_the_timestamped_type_gives_value_and_timestamp(client: Client) -> None:
    """get, multi_get and ranges return both."""
    client.put("late", timestamp=1_700_000_000_123)
    store = client.store(timestamped=True)
    expected = ValueAndTimestamp(4, 1_700_000_000_123)
    assert store.get("late") == expected
    assert store.multi_get(["late"]) == [expected]
    assert list(store.range("late", "late")) == [KeyValue("late", expected)]


def test_the_number_of_entries_is_the_sum_over_partitions(client: Client) -> None:
    """Only local partitions are counted."""
    assert client.store().approximate_num_entries() == len(WORDS)
    only = partition_of(b"a")
    expected = sum(partition_of(word.encode()) == only for word in WORDS)
    assert client.store(partition=only).approximate_num_entries() == expected


def test_a_handle_for_one_partition_reads_only_that(client: Client) -> None:
    """A key of another partition has no value there."""
    only = partition_of(b"a")
    store = client.store(partition=only)
    mine = [word for word in WORDS if partition_of(word.encode()) == only]
    assert [key for key, _ in store.all()] == mine
    assert [word for word in WORDS if store.get(word) is not None] == mine
    assert store.multi_get(WORDS) == [len(word) if word in mine else None for word in WORDS]


def test_a_store_behaves_like_a_mapping_where_that_is_meant(client: Client) -> None:
    """`in`, `[]`, iteration over keys, dict(); a missing key is a KeyError."""
    store = client.store()
    assert "aa" in store
    assert "?" not in store
    assert store["aa"] == 2
    with pytest.raises(KeyError, match=r"\?"):
        store["?"]
    assert list(store) == list(store.keys()) == WORDS
    assert list(store.values()) == [len(word) for word in WORDS]
    assert dict(store) == dict(store.items()) == {word: len(word) for word in WORDS}


def test_a_handle_shows_what_it_is(client: Client) -> None:
    """Its repr never raises."""
    store = client.store()
    assert repr(store) == (
        "<ReadOnlyKeyValueStore 'counts' (string -> long), partitions 0, 1, 2 on client 'orders-1', "
        "about 7 entries>"
    )
    client.client_is("ERROR")
    assert repr(store) == (
        "<ReadOnlyKeyValueStore 'counts', not readable now: StateStoreNotAvailableException>"
    )


# --- bad input -------------------------------------------------------------------------------------------

BY_KEY: dict[str, Callable[[Store, Any], Any]] = {
    "get": lambda store, key: store.get(key),
    "multi_get": lambda store, key: store.multi_get(["a", key]),
    "prefix_scan": lambda store, key: store.prefix_scan(key),
    "__contains__": lambda store, key: key in store,
    "__getitem__": lambda store, key: store[key],
}


@pytest.mark.parametrize("method", BY_KEY)
def test_a_key_that_is_none_is_a_type_error_that_names_the_method(client: Client, method: str) -> None:
    """Kafka: NullPointerException."""
    with pytest.raises(TypeError, match=rf"{method}\(\) of store 'counts': the key must not be None"):
        BY_KEY[method](client.store(), None)


@pytest.mark.parametrize("method", [*BY_KEY, "range", "reverse_range"])
def test_a_key_of_another_type_is_a_serialization_exception(client: Client, method: str) -> None:
    """It names the method, the store and the serde."""
    read = BY_KEY.get(method, lambda store, key: getattr(store, method)(None, key))
    with pytest.raises(
        SerializationException, match=rf"{method}\(\) of store 'counts' \(keys of serde 'string'\)"
    ):
        read(client.store(), 5)


def test_bytes_that_are_no_value_are_a_serialization_exception(client: Client) -> None:
    """A store that was written with another serde; from get and from iterators, with the store's name."""
    client.stores[partition_of(b"bad")].apply([(b"bad", b"123", 1)], 99)
    store = client.store()
    with pytest.raises(SerializationException, match="a value of store 'counts' cannot be read") as caught:
        store.get("bad")
    assert caught.value.__cause__ is not None
    with pytest.raises(SerializationException), store.range("bad", "bad") as entries:
        next(entries)


@pytest.mark.parametrize("alone", [True, False])
def test_an_iterator_goes_on_after_an_entry_that_is_no_value(client: Client, alone: bool) -> None:
    """It raises when that entry is reached and not before; what is behind it is given."""
    partition = partition_of(b"bad")
    client.put_into(partition, "a-first", "z-last")
    client.stores[partition].apply([(b"bad", b"123", 1)], 99)
    found: list[str] = []
    with client.store(partition=partition if alone else None).all() as entries:
        while True:
            try:
                found.append(next(entries).key)
            except SerializationException:
                found.append("bad")
            except StopIteration:
                break
    assert found == sorted(found)
    assert {"a-first", "bad", "z-last"} <= set(found)


def test_something_that_is_no_parameters_is_a_type_error(client: Client) -> None:
    """It shows what is."""
    with pytest.raises(TypeError, match=r"a store's name, or StoreQueryParameters\.from_name_and_type"):
        open_store(client, b"counts")  # type: ignore[arg-type]


def test_a_name_alone_is_enough(client: Client) -> None:
    """The topology knows the kind; a name that it does not know is told as always."""
    assert type(open_store(client, "counts")) is ReadOnlyKeyValueStore
    assert open_store(client, "counts").get("a") == 1
    for kind, handle in ((StoreKind.WINDOW, ReadOnlyWindowStore), (StoreKind.SESSION, ReadOnlySessionStore)):
        declared = client.snapshot().stores["counts"]
        client.change(stores={"counts": replace(declared, kind=kind)})
        assert type(open_store(client, "counts")) is handle
    with pytest.raises(UnknownStateStoreException, match="Did you mean 'counts'"):
        open_store(client, "count")


# --- KIP-216 ---------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Store], Any]] = {
    "get": lambda store: store.get("a"),
    "multi_get": lambda store: store.multi_get(["a"]),
    "range": lambda store: store.range("a", "b"),
    "reverse_range": lambda store: store.reverse_range("a", "b"),
    "all": lambda store: store.all(),
    "reverse_all": lambda store: store.reverse_all(),
    "prefix_scan": lambda store: store.prefix_scan("a"),
    "approximate_num_entries": lambda store: store.approximate_num_entries(),
    "in": lambda store: "a" in store,
    "[]": lambda store: store["a"],
    "iteration": lambda store: list(store),
    "values": lambda store: list(store.values()),
    "to_arrow": lambda store: store.to_arrow(),
}


def test_a_held_handle_meets_the_state_of_its_client_at_each_read(client: Client) -> None:
    """Stopping, stopped and failed clients: not available; never the parent class."""
    client.put("a")
    store = client.store()
    for read in READS.values():
        read(store)
    for state in ("PENDING_SHUTDOWN", "NOT_RUNNING", "PENDING_ERROR", "ERROR"):
        client.client_is(state)
        for read in READS.values():
            with pytest.raises(StateStoreNotAvailableException, match=f"client 'orders-1' is {state}"):
                read(store)
    client.client_is("RUNNING")
    for read in READS.values():
        read(store)


def test_store_checks_everything_before_it_returns_a_handle() -> None:
    """The order is Kafka's: the client's state, the name; then type and partition, which Kafka checks later.
    The order is Kafka's: the client's state, the name; then type and partition, which Kafka checks later."""
    client = Client([0, 1])
    with pytest.raises(
        InvalidStateStorePartitionException, match="partition 2 of store 'counts' is not on client"
    ):
        client.store(partition=2)
    with pytest.raises(
        InvalidStateStorePartitionException, match="has no partition 7; it has 3, counted from 0"
    ):
        client.store(partition=7)
    with pytest.raises(InvalidStateStoreTypeException, match="'windows' is a window store"):
        client.store(name="windows")
    with pytest.raises(UnknownStateStoreException, match="it has 'counts', 'totals', 'windows'"):
        client.store(name="conts")
    with pytest.raises(StateStoreMigratedException, match="store 'totals' is not here"):
        client.store(name="totals")
    client.client_is("CREATED")
    with pytest.raises(StreamsNotStartedException, match=r"call start\(\)"):
        client.store(name="conts")
    client.client_is("NOT_RUNNING")
    with pytest.raises(StateStoreNotAvailableException):
        client.store(name="conts")


def test_before_the_assignment_everything_is_rebalancing() -> None:
    """No partition is here yet, serdes may not be known yet: retry."""
    client = Client([])
    client.change(client_state="REBALANCING", threads={"t1": "STARTING"})
    for options in ({}, {"partition": 1}, {"stale": True}, {"name": "totals"}):
        with pytest.raises(StreamsRebalancingException, match="thread 't1' is STARTING"):
            client.store(**options)  # type: ignore[arg-type]
    declarations = client.snapshot().stores
    client.change(stores={"counts": replace(declarations["counts"], key_serde=None, value_serde=None)})
    with pytest.raises(StreamsRebalancingException):
        client.store()


@pytest.mark.parametrize(
    "state", ["CREATED", "STARTING", "PARTITIONS_REVOKED", "PARTITIONS_ASSIGNED", "PENDING_SHUTDOWN"]
)
def test_a_thread_that_is_not_running_closes_its_own_partitions_only(client: Client, state: str) -> None:
    """Keys of the others are still answered; what needs all partitions is rebalancing."""
    client.thread_is(0, state)
    store = client.store()
    for word in WORDS:
        if partition_of(word.encode()) == 0:
            with pytest.raises(StreamsRebalancingException, match=f"partition 0 .*thread 't0' is {state}"):
                store.get(word)
            with pytest.raises(StreamsRebalancingException):
                store.multi_get(["?", word])
        else:
            assert store.get(word) == len(word)
    for read in ("all", "range", "reverse_all", "prefix_scan", "approximate_num_entries", "to_arrow"):
        with pytest.raises(StreamsRebalancingException):
            READS[read](store)
    with pytest.raises(StreamsRebalancingException):
        client.store(partition=0)
    assert client.store(partition=1).approximate_num_entries() > 0


def test_while_the_client_rebalances_a_missing_partition_may_be_coming(client: Client) -> None:
    """A read of its keys raises a rebalancing error instead of returning None; local partitions are read."""
    partial = Client([0])
    partial.client_is("REBALANCING")
    store = partial.store()
    assert store.get(key_in(0)) is None
    with pytest.raises(StreamsRebalancingException):
        store.get(key_in(1))
    with pytest.raises(StreamsRebalancingException):
        store.all()
    with pytest.raises(StreamsRebalancingException):
        partial.store(partition=1)
    partial.client_is("RUNNING")
    assert store.get(key_in(1)) is None
    assert list(store.all()) == []


def test_a_store_that_is_not_restored_yet_is_not_visible(client: Client) -> None:
    """No partly restored value is returned, although its thread is RUNNING."""
    client.role_is(1, PartRole.RESTORING)
    store = client.store()
    with pytest.raises(StreamsRebalancingException, match="partition 1"):
        store.get(key_in(1))
    with pytest.raises(StreamsRebalancingException):
        store.all()
    with pytest.raises(StreamsRebalancingException):
        client.store(partition=1)
    assert client.store(partition=1, stale=True).approximate_num_entries() > 0


def test_a_standby_answers_only_stale_reads(client: Client) -> None:
    """Other reads find no value and call its partition invalid, as in Kafka Streams."""
    client.role_is(2, PartRole.STANDBY)
    word = next(word for word in WORDS if partition_of(word.encode()) == 2)
    assert client.store().get(word) is None
    assert word not in [key for key, _ in client.store().all()]
    with pytest.raises(
        InvalidStateStorePartitionException, match=r"as a standby, which enable_stale_stores\(\)"
    ):
        client.store(partition=2)
    assert client.store(stale=True).get(word) == len(word)
    assert client.store(stale=True, partition=2).get(word) == len(word)
    assert [key for key, _ in client.store(stale=True).all()] == WORDS


def test_stale_reads_go_on_during_a_rebalance(client: Client) -> None:
    """They read what is here, but not while a thread is created or shutting down."""
    store = client.store(stale=True)
    client.change(client_state="REBALANCING")
    client.thread_is(0, "PARTITIONS_REVOKED")
    assert [key for key, _ in store.all()] == WORDS
    assert store.multi_get(WORDS) == [len(word) for word in WORDS]
    client.thread_is(0, "PENDING_SHUTDOWN")
    with pytest.raises(StreamsRebalancingException):
        store.all()


def test_a_partition_that_leaves_is_told_to_the_handles_that_read_it(client: Client) -> None:
    """Its keys are not silently None, and ranges not silently short; a new handle is over what is left."""
    held, for_partition = client.store(), client.store(partition=1)
    client.move_away(1)
    for word in WORDS:
        if partition_of(word.encode()) == 1:
            with pytest.raises(StateStoreMigratedException, match="partition 1 of store 'counts'"):
                held.get(word)
        else:
            assert held.get(word) == len(word)
    for read in ("all", "range", "prefix_scan", "approximate_num_entries", "iteration", "to_arrow"):
        with pytest.raises(StateStoreMigratedException, match="holds partitions 0, 2 of it"):
            READS[read](held)
    with pytest.raises(StateStoreMigratedException):
        for_partition.get("a")
    with pytest.raises(InvalidStateStorePartitionException, match="on client 'orders-1', which holds 0, 2;"):
        client.store(partition=1)
    fresh = client.store()
    assert [key for key, _ in fresh.all()] == [word for word in WORDS if partition_of(word.encode()) != 1]
    assert fresh.get(key_in(1)) is None


def test_a_partition_that_becomes_a_standby_has_left(client: Client) -> None:
    """The handle that read it as active is told."""
    store = client.store()
    client.role_is(1, PartRole.STANDBY)
    with pytest.raises(StateStoreMigratedException):
        store.get(key_in(1))
    with pytest.raises(StateStoreMigratedException):
        store.all()


def test_a_partition_that_comes_back_is_read_by_the_same_handle(client: Client) -> None:
    """Another thread has taken the task over: the handle finds the new store."""
    store = client.store()
    before = client.snapshot()
    client.move_away(1)
    client.thread_is(1, "DEAD")
    client.client_is("REBALANCING")
    with pytest.raises(StreamsRebalancingException):
        store.get(key_in(1))
    again = MemoryStore("counts", before.local["counts"][1].task_id)
    again.apply([(key_in(1).encode(), (77).to_bytes(8, "big"), 1)], 1)
    client.change(
        client_state="RUNNING",
        threads={**client.snapshot().threads, "t9": "RUNNING"},
        local={"counts": [*client.snapshot().local["counts"], LocalStore(again.task_id, again, "t9")]},
    )
    assert store.get(key_in(1)) == 77
    assert key_in(1) in [key for key, _ in store.all()]


def test_without_any_partition_reads_have_migrated() -> None:
    """All have left, or none was ever here."""
    client = Client([0])
    held = client.store()
    client.move_away(0)
    for partition in range(PARTITIONS):
        with pytest.raises(StateStoreMigratedException, match="holds no partition of it"):
            held.get(key_in(partition))
    with pytest.raises(StateStoreMigratedException, match=r"get a new handle from KafkaStreams\.store\(\)"):
        held.all()
    with pytest.raises(StateStoreMigratedException) as fresh:
        client.store()
    # Asking for a handle is just what was done.
    assert str(fresh.value) == (
        "store 'counts' is not here: client 'orders-1' is RUNNING and holds no partition of it; "
        "query_metadata_for_key('counts', key) names the client that has a key now"
    )


def test_a_partition_that_does_not_exist_is_told_whatever_the_client_does(client: Client) -> None:
    """store() and query() agree: trying again would not make one."""
    request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a")).with_partitions([99])
    for state in ("RUNNING", "REBALANCING"):
        client.client_is(state)
        with pytest.raises(
            InvalidStateStorePartitionException, match="'counts' has no partition 99; it has 3"
        ):
            client.store(partition=99)
        result = run_query(client, request).partition_results[99]
        assert result.failure_reason is FailureReason.DOES_NOT_EXIST


def test_without_a_partition_rule_a_missing_key_may_have_left() -> None:
    """Found: answered. Not found: None only if nothing is missing."""
    client = Client(routed=False)
    client.put_into(0, "x")
    client.put_into(1, "y")
    store = client.store()
    assert store.get("z") is None
    client.thread_is(1, "STARTING")
    assert store.get("x") == 1
    with pytest.raises(StreamsRebalancingException):
        store.get("z")
    client.thread_is(1, "RUNNING")
    client.move_away(1)
    assert store.get("x") == 1
    with pytest.raises(StateStoreMigratedException):
        store.get("y")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", StateStoreMigratedException),
        ("REBALANCING", StreamsRebalancingException),
        ("PENDING_SHUTDOWN", StateStoreNotAvailableException),
        ("PENDING_ERROR", StateStoreNotAvailableException),
    ],
)
def test_a_store_that_is_closed_under_a_read(
    client: Client, state: str, expected: type[InvalidStateStoreException]
) -> None:
    """The snapshot still lists it: the leaf follows from the client's state, and its cause is kept."""
    store = client.store()
    for part in client.stores.values():
        part.close()
    client.client_is(state)
    for read in READS.values():
        with pytest.raises(expected):
            read(store)


def test_the_cause_of_a_refused_read_is_kept(client: Client) -> None:
    """Kafka drops it."""
    store = client.store()
    client.stores[partition_of(b"a")].close()
    with pytest.raises(StateStoreMigratedException, match="was closed under a read") as caught:
        store.get("a")
    assert "store 'counts' is closed" in str(caught.value.__cause__)


def test_a_read_that_meets_a_closed_store_looks_where_it_is_now(client: Client) -> None:
    """The snapshot changed between the plan and the read: the new store answers."""
    store = client.store()
    assert store.get("a") == 1
    old = client.snapshot()
    partition = partition_of(b"a")
    fresh = MemoryStore("counts", client.stores[partition].task_id)
    fresh.apply([(b"a", (42).to_bytes(8, "big"), 1)], 1)
    client.stores[partition].close()
    new = replace(
        old,
        local={
            "counts": [
                replace(part, store=fresh) if part.task_id.partition == partition else part
                for part in old.local["counts"]
            ]
        },
    )
    reads: list[tuple[Callable[[], Any], Any]] = [
        (lambda: store.get("a"), 42),
        (lambda: store.multi_get(["a"]), [42]),
        (lambda: store["a"], 42),
        (lambda: list(store.range("a", "a")), [("a", 42)]),
    ]
    for early, (read, expected) in itertools.product(range(4), reads):
        answers = iter([old] * early)
        store._reader._snapshot = lambda answers=answers: next(
            answers, new
        )  # the first looks come just too early
        assert read() == expected


def test_a_view_that_makes_a_new_snapshot_each_time_is_right_too(client: Client) -> None:
    """It is only slower. A closed store still ends in an exception, not in a loop."""
    store = client.store()
    store._reader._snapshot = lambda: replace(client.snapshot())
    assert store.get("a") == 1
    assert [key for key, _ in store.all()] == WORDS
    client.stores[partition_of(b"a")].close()
    with pytest.raises(StateStoreMigratedException):
        store.get("a")


def test_readers_meet_only_documented_exceptions_while_everything_changes() -> None:
    """Four readers, while threads change state, partitions go and come back, and the client closes: right
    values, or the leaves of KIP-216."""
    client = Client()
    client.put(*WORDS)

    def check(held: Store) -> None:
        assert held.get("a") == 1
        assert held.multi_get(WORDS) == [len(word) for word in WORDS]
        with held.all() as entries:
            assert [key for key, _ in entries] == WORDS
        assert held["aa"] == 2

    def reopened(_: int, old: MemoryStore, close: Callable[[], None]) -> MemoryStore:
        content = list(old.range(None, None))
        close()
        fresh = MemoryStore("counts", old.task_id)
        fresh.apply([(key, stored[8:], 5) for key, stored in content], len(content))
        return fresh

    race(client, client.store, check, reopened, turns=60)


def test_the_parent_class_is_never_raised() -> None:
    """No source line makes an InvalidStateStoreException itself (KIP-216)."""
    sources = [path.read_text() for path in Path(millstream.query.__path__[0]).glob("*.py")]
    assert len(sources) >= 6
    assert not any("InvalidStateStoreException(" in source for source in sources)
