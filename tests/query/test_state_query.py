"""IQv2: each partition answers by itself, with a value or a reason."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from worlds import PARTITIONS, Client, key_in, partition_of

from millstream.errors import (
    IllegalStateException,
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)
from millstream.model import TopicPartition, ValueAndTimestamp
from millstream.query.position import Position, PositionBound
from millstream.query.provider import PartRole, Presence, StoreSnapshot
from millstream.query.request import (
    KeyQuery,
    Query,
    RangeQuery,
    SessionRangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from millstream.query.result import FailureReason, QueryResult, StateQueryResult
from millstream.query.state_query import answerable, run_query, to_answer
from millstream.stores.memory_store import MemoryStore

WORDS = ["a", "aa", "ab", "b", "bbb", "c", "d"]
TOPIC = "app-counts-changelog"


def with_changelogs(client: Client) -> Client:
    """The same client, whose snapshot says what fills each part."""
    local = client.snapshot().local["counts"]
    client.change(
        local={
            "counts": [
                replace(part, changelog=TopicPartition(TOPIC, part.task_id.partition)) for part in local
            ]
        }
    )
    return client


@pytest.fixture
def client() -> Client:
    made = with_changelogs(Client())
    made.put(*WORDS)
    return made


def ask(client: Client, query: Query[Any], store: str = "counts") -> StateQueryRequest[Any]:
    return StateQueryRequest.in_store(store).with_query(query)


def reasons(result: StateQueryResult[Any]) -> dict[int, FailureReason | None]:
    return {number: each.failure for number, each in result.partition_results.items()}


# --- the decision, cell by cell --------------------------------------------------------------------------

CELLS = list(itertools.product([True, False], [True, False], Presence, [True, False], [True, False]))


def expected(
    fits: bool, exists: bool, presence: Presence, settled: bool, up_to_bound: bool
) -> FailureReason | None:
    """The table, row by row; the first that holds."""
    nothing_here = {Presence.ABSENT, Presence.LEFT, Presence.CLOSED}
    table: list[tuple[bool, FailureReason | None]] = [
        (not fits, FailureReason.UNKNOWN_QUERY_TYPE),
        (not exists, FailureReason.DOES_NOT_EXIST),
        (presence in nothing_here and settled, FailureReason.NOT_PRESENT),
        (presence in nothing_here and not settled, FailureReason.NOT_ACTIVE),
        (presence in {Presence.STANDBY, Presence.WAITING}, FailureReason.NOT_ACTIVE),
        (not up_to_bound, FailureReason.NOT_UP_TO_BOUND),
        (True, None),
    ]
    return next(reason for holds, reason in table if holds)


@pytest.mark.parametrize(("fits", "exists", "presence", "settled", "up_to_bound"), CELLS)
def test_each_cell_of_the_table(
    fits: bool, exists: bool, presence: Presence, settled: bool, up_to_bound: bool
) -> None:
    """What the query, the partition, its presence, the client and the bound come to."""
    got = answerable(fits=fits, exists=exists, presence=presence, settled=settled, up_to_bound=up_to_bound)
    assert got is expected(fits, exists, presence, settled, up_to_bound)


@pytest.mark.parametrize(
    ("asked", "here", "count", "settled", "answers"),
    [
        ({2, 0}, {0}, 3, True, (0, 2)),
        ({9}, set(), 3, True, (9,)),
        (None, {1}, 3, True, (1,)),
        (None, {1}, 3, False, (0, 1, 2)),
        (None, set(), 3, True, (0, 1, 2)),
        (None, set(), 3, False, (0, 1, 2)),
        (None, set(), None, False, (0,)),
        (None, {4}, None, False, (0, 4)),
    ],
)
def test_the_partitions_that_get_a_result(
    asked: set[int] | None, here: set[int], count: int | None, settled: bool, answers: tuple[int, ...]
) -> None:
    """Those asked for; else those here, and those that may come; never none."""
    chosen = None if asked is None else frozenset(asked)
    assert to_answer(asked=chosen, here=frozenset(here), count=count, settled=settled) == answers


# --- answers ---------------------------------------------------------------------------------------------


def test_a_key_is_found_in_its_partition(client: Client) -> None:
    """Every partition answers; the only one with a value is the key's."""
    result = run_query(client, ask(client, KeyQuery.with_key("bbb")))
    assert sorted(result.partition_results) == list(range(PARTITIONS))
    only = result.only_partition_result
    assert only is not None
    assert only.result == 3
    assert only is result.partition_results[partition_of(b"bbb")]
    assert [each.result for each in result.partition_results.values()].count(None) == PARTITIONS - 1


def test_a_key_that_is_nowhere_has_no_result(client: Client) -> None:
    """Every partition says None, with success."""
    result = run_query(client, ask(client, KeyQuery.with_key("?").skip_cache()))
    assert result.only_partition_result is None
    assert all(each.is_success and each.result is None for each in result.partition_results.values())


def test_a_timestamped_key_query_gives_value_and_timestamp(client: Client) -> None:
    """The timestamped store type returns the same."""
    only = run_query(client, ask(client, TimestampedKeyQuery.with_key("aa"))).only_partition_result
    assert only is not None
    assert only.result == ValueAndTimestamp(2, 5)


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        (RangeQuery.with_no_bounds(), WORDS),
        (RangeQuery.with_range("aa", "b"), ["aa", "ab", "b"]),
        (RangeQuery.with_lower_bound("bbb").with_ascending_keys(), ["bbb", "c", "d"]),
        (RangeQuery.with_upper_bound("aa").with_descending_keys(), ["aa", "a"]),
        (RangeQuery.with_range("c", "a"), []),
        (RangeQuery.with_range("c", "a").with_descending_keys(), []),
    ],
)
def test_a_range_has_each_partitions_entries_in_order(
    client: Client, query: RangeQuery, keys: list[str]
) -> None:
    """Bounds are included; a range from a later key to an earlier one is empty."""
    result = run_query(client, ask(client, query))
    got = {number: [key for key, _ in each.result] for number, each in result.partition_results.items()}
    for number, of_part in got.items():
        assert of_part == [key for key in keys if partition_of(key.encode()) == number]
    assert sum(map(len, got.values())) == len(keys)


def test_a_timestamped_range_gives_values_and_timestamps(client: Client) -> None:
    """This holds in each partition."""
    result = run_query(client, ask(client, TimestampedRangeQuery.with_range("d", "d")))
    found = [entry for each in result.partition_results.values() for entry in each.result]
    assert found == [("d", ValueAndTimestamp(1, 5))]


def test_only_the_partitions_that_were_asked_for_answer(client: Client) -> None:
    """A partition that is not here has a reason."""
    request = ask(client, KeyQuery.with_key("a"))
    assert request.is_all_partitions
    assert not request.with_partitions({1}).is_all_partitions
    assert reasons(run_query(client, request.with_partitions({1}))) == {1: None}
    client.move_away(2)
    assert reasons(run_query(client, request.with_partitions({1, 2}))) == {
        1: None,
        2: FailureReason.NOT_PRESENT,
    }
    assert reasons(run_query(client, request.with_partitions({1}).with_all_partitions())) == {
        0: None,
        1: None,
    }


def test_an_iterator_is_a_snapshot_and_closes(client: Client) -> None:
    """What is written after the query is not seen; a closed iterator says so."""
    number = partition_of(b"a")
    request = ask(client, RangeQuery.with_no_bounds()).with_partitions({number})
    entries = run_query(client, request).partition_results[number].result
    keys = [word for word in WORDS if partition_of(word.encode()) == number]
    client.put_into(number, "zzz")
    assert [key for key, _ in entries] == keys
    entries.close()
    with pytest.raises(IllegalStateException, match="closed"):
        next(entries)


def test_an_iterator_whose_store_is_closed_says_that_it_migrated(client: Client) -> None:
    """The leaf that every iterator raises."""
    number = partition_of(b"a")
    request = ask(client, RangeQuery.with_no_bounds()).with_partitions({number})
    entries = run_query(client, request).partition_results[number].result
    client.move_away(number)
    with pytest.raises(StateStoreMigratedException, match="open iterator"):
        next(entries)


# --- reasons ---------------------------------------------------------------------------------------------


def test_an_unknown_store_is_raised_in_any_state(client: Client) -> None:
    """Kafka does the same. The message has the names that exist."""
    for state in ("CREATED", "RUNNING", "NOT_RUNNING"):
        client.client_is(state)
        with pytest.raises(UnknownStateStoreException, match="'counts'"):
            run_query(client, ask(client, KeyQuery.with_key("a"), "count"))


@pytest.mark.parametrize(
    ("state", "error"),
    [
        ("CREATED", StreamsNotStartedException),
        ("PENDING_SHUTDOWN", StateStoreNotAvailableException),
        ("NOT_RUNNING", StateStoreNotAvailableException),
        ("PENDING_ERROR", StateStoreNotAvailableException),
        ("ERROR", StateStoreNotAvailableException),
    ],
)
def test_a_client_that_cannot_answer_raises(client: Client, state: str, error: type[Exception]) -> None:
    """That is so before it starts, and after it has ended."""
    client.client_is(state)
    with pytest.raises(error):
        run_query(client, ask(client, KeyQuery.with_key("a")))


def test_an_active_answer_can_be_required(client: Client) -> None:
    """Standbys and what is restoring answer by default, and are NOT_ACTIVE if they may not."""
    client.role_is(0, PartRole.STANDBY)
    client.role_is(1, PartRole.RESTORING)
    request = ask(client, KeyQuery.with_key("a"))
    assert set(reasons(run_query(client, request)).values()) == {None}
    result = run_query(client, request.require_active())
    assert reasons(result) == {0: FailureReason.NOT_ACTIVE, 1: FailureReason.NOT_ACTIVE, 2: None}
    assert "was not active" in result.partition_results[0].failure_message


def test_a_thread_that_does_not_run_is_named(client: Client) -> None:
    """The words are Kafka's."""
    client.thread_is(1, "PARTITIONS_ASSIGNED")
    request = ask(client, KeyQuery.with_key("a")).require_active()
    assert (
        run_query(client, request)
        .partition_results[1]
        .failure_message.startswith(
            "Query requires a running active task, but partition was in state "
            "PARTITIONS_ASSIGNED and was active"
        )
    )


def test_a_client_that_has_nothing_yet_lists_what_may_come() -> None:
    """Kafka gives an empty map, which looks as if the store were empty."""
    client = Client([])
    client.client_is("REBALANCING")
    result = run_query(client, ask(client, KeyQuery.with_key("a")))
    assert reasons(result) == dict.fromkeys(range(PARTITIONS), FailureReason.NOT_ACTIVE)
    only = result.only_partition_result
    assert only is not None
    assert only.is_failure
    client.client_is("RUNNING")
    assert set(reasons(run_query(client, ask(client, KeyQuery.with_key("a")))).values()) == {
        FailureReason.NOT_PRESENT
    }


def test_a_partition_that_there_is_not_does_not_exist(client: Client) -> None:
    """Kafka says NOT_PRESENT, which is what another client could help with."""
    result = run_query(client, ask(client, KeyQuery.with_key("a")).with_partitions({7}))
    assert reasons(result) == {7: FailureReason.DOES_NOT_EXIST}
    assert "it has 3" in result.partition_results[7].failure_message


@pytest.mark.parametrize(
    "query",
    [
        WindowKeyQuery.with_key_and_window_start_range("a", 0, 1),
        WindowRangeQuery.with_key("a"),
        WindowRangeQuery.with_window_start_range(0, 1),
        SessionRangeQuery.with_all_keys(),
        VersionedKeyQuery.with_key("a"),
    ],
)
def test_a_query_for_another_kind_of_store_is_unknown(client: Client, query: Query[Any]) -> None:
    """This is the result in every partition; reading it raises."""
    result = run_query(client, ask(client, query))
    assert set(reasons(result).values()) == {FailureReason.UNKNOWN_QUERY_TYPE}
    assert type(query).__name__ in result.partition_results[0].failure_message
    with pytest.raises(
        ValueError, match=r"Cannot get result for failed query\. Failure is UNKNOWN_QUERY_TYPE"
    ):
        _ = result.partition_results[0].result


def test_serdes_that_are_not_known_yet_are_waited_for(client: Client) -> None:
    """The topology is not compiled: nothing can be read, and that will pass."""
    declaration = replace(client.snapshot().stores["counts"], key_serde=None)
    client.change(stores={"counts": declaration})
    result = run_query(client, ask(client, KeyQuery.with_key("a")))
    assert set(reasons(result).values()) == {FailureReason.NOT_ACTIVE}


def test_a_store_that_was_closed_since_the_snapshot_is_not_active(client: Client) -> None:
    """The others answer."""
    client.stores[1].close()
    result = run_query(client, ask(client, KeyQuery.with_key("a")))
    assert reasons(result) == {0: None, 1: FailureReason.NOT_ACTIVE, 2: None}


def test_what_a_store_raises_is_one_partitions_reason(client: Client) -> None:
    """A value that its serde cannot read: that partition fails, the others answer."""
    number = partition_of(b"a")
    client.stores[number].apply([(b"a", b"short", 1)], 99)
    result = run_query(client, ask(client, KeyQuery.with_key("a")))
    failed = result.partition_results[number]
    assert failed.failure_reason is FailureReason.STORE_EXCEPTION
    assert isinstance(failed.cause, SerializationException)
    assert sum(each.is_success for each in result.partition_results.values()) == PARTITIONS - 1


def test_a_key_of_another_type_is_the_callers_mistake(client: Client) -> None:
    """It is raised, and no partition's failure."""
    with pytest.raises(SerializationException, match="KeyQuery"):
        run_query(client, ask(client, KeyQuery.with_key(7)))
    with pytest.raises(TypeError, match="must not be None"):
        KeyQuery.with_key(None)
    with pytest.raises(TypeError, match="StateQueryRequest"):
        run_query(client, "select")  # type: ignore[arg-type]


# --- positions -------------------------------------------------------------------------------------------


def test_a_result_has_the_position_of_its_store(client: Client) -> None:
    """The offset of the last record that is in it, by changelog partition; the whole is taken together."""
    result = run_query(client, ask(client, KeyQuery.with_key("a")))
    for number, store in client.stores.items():
        assert store.position
        position = result.partition_results[number].position
        assert position == Position().with_component(TOPIC, number, store.position - 1)
    assert result.position.partition_positions(TOPIC) == {
        number: (store.position or 0) - 1 for number, store in client.stores.items()
    }


def test_a_bound_is_met_once_the_store_is_there(client: Client) -> None:
    """Read your own writes: each partition is measured by its own offset alone."""
    number = partition_of(b"new")
    after = (client.stores[number].position or 0) + 1 - 1
    bound = PositionBound.at(Position().with_component(TOPIC, number, after))
    request = ask(client, KeyQuery.with_key("new")).with_position_bound(bound)
    result = run_query(client, request)
    assert reasons(result)[number] is FailureReason.NOT_UP_TO_BOUND
    assert result.partition_results[number].failure_reason.retriable
    assert sum(each.is_success for each in result.partition_results.values()) == PARTITIONS - 1
    assert "not yet up to the bound" in result.partition_results[number].failure_message
    client.put("new")
    only = run_query(client, request).only_partition_result
    assert only is not None
    assert only.result == 3


def test_a_bound_counts_for_an_active_store_too(client: Client) -> None:
    """Kafka drops it with require_active(); here an active store follows its changelog like any other."""
    bound = PositionBound.at(Position().with_component(TOPIC, 0, 10_000))
    request = ask(client, KeyQuery.with_key("a")).require_active().with_position_bound(bound)
    assert reasons(run_query(client, request))[0] is FailureReason.NOT_UP_TO_BOUND


def test_a_position_of_another_store_is_no_bound(client: Client) -> None:
    """Only the store's own changelog counts: other positions do not block it."""
    bound = PositionBound.at(Position().with_component("other", 0, 10_000))
    result = run_query(client, ask(client, KeyQuery.with_key("a")).with_position_bound(bound))
    assert set(reasons(result).values()) == {None}


def test_a_store_of_which_nothing_is_read_yet_is_not_up_to_any_bound() -> None:
    """While it is restoring, an absent value means nothing. Once it is active, the store is empty."""
    client = with_changelogs(Client([0]))
    client.role_is(0, PartRole.RESTORING)
    request = ask(client, KeyQuery.with_key("a"))
    result = run_query(client, request)
    assert reasons(result) == {0: FailureReason.NOT_UP_TO_BOUND}
    assert "not initialized" in result.partition_results[0].failure_message
    client.role_is(0, PartRole.ACTIVE)
    result = run_query(client, request)
    assert reasons(result) == {0: None}
    assert result.position.is_empty


# --- global stores ---------------------------------------------------------------------------------------


@pytest.fixture
def world() -> Client:
    made = with_changelogs(Client(routed=False))
    declaration = replace(made.snapshot().stores["counts"], is_global=True)
    made.change(stores={"counts": declaration})
    for number, word in enumerate(WORDS):
        made.put_into(number % PARTITIONS, word)
    return made


def test_a_global_store_has_one_result(world: Client) -> None:
    """Kafka: 'Global stores do not yet support the KafkaStreams#query API'."""
    result = run_query(world, ask(world, KeyQuery.with_key("bbb")))
    assert result.partition_results == {}
    assert result.global_result is not None
    assert result.global_result.result == 3
    assert set(result.position.partition_positions(TOPIC)) == set(range(PARTITIONS))


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_of_a_global_store_is_in_order_over_its_partitions(world: Client, reverse: bool) -> None:
    """One iterator, over all of them."""
    query = RangeQuery.with_no_bounds()
    result = run_query(world, ask(world, query.with_descending_keys() if reverse else query))
    assert result.global_result is not None
    assert [key for key, _ in result.global_result.result] == sorted(WORDS, reverse=reverse)


def test_a_global_store_fails_as_a_whole(world: Client) -> None:
    """A part that cannot be read could have the key; and no iterator of the others stays open."""
    world.stores[2].close()
    result = run_query(world, ask(world, RangeQuery.with_no_bounds()))
    assert result.global_result is not None
    assert result.global_result.failure_reason is FailureReason.NOT_ACTIVE
    assert len(world.stores[0]._iterators) == 0


def test_partitions_of_a_global_store_can_be_asked_for(world: Client) -> None:
    """Then each has a result of its own."""
    result = run_query(world, ask(world, KeyQuery.with_key("a")).with_partitions({0}))
    assert result.global_result is None
    assert result.partition_results[0].result == 1


# --- the words and the values ----------------------------------------------------------------------------


def test_execution_info_says_how_a_result_came_about(client: Client) -> None:
    """Failures have it, too. There is none unless requested, and it has no key and no value."""
    request = ask(client, KeyQuery.with_key("secret"))
    assert run_query(client, request).partition_results[0].execution_info == ()
    client.move_away(1)
    result = run_query(client, request.enable_execution_info().with_partitions({0, 1}))
    assert "KeyQuery on partition 0 of store 'counts': answered by MemoryStore" in str(
        result.partition_results[0].execution_info
    )
    assert "failed: NOT_PRESENT" in str(result.partition_results[1].execution_info)
    assert "secret" not in str(result.partition_results[0].execution_info)


def test_a_result_is_read_by_what_it_is() -> None:
    """A success has no reason, a failure no result: asking for it is a mistake, as in Kafka."""
    success: QueryResult[int] = QueryResult(1)
    with pytest.raises(ValueError, match="did not fail"):
        _ = success.failure_reason
    with pytest.raises(ValueError, match="did not fail"):
        _ = success.failure_message


def test_several_results_are_not_the_only_one() -> None:
    """Kafka Streams raises as well."""
    result = StateQueryResult({0: QueryResult(1), 2: QueryResult(1)})
    with pytest.raises(ValueError, match=r"did not return exactly one partition result: partitions \[0, 2\]"):
        _ = result.only_partition_result


def test_positions_merge_to_the_farther_one() -> None:
    """Positions are values: merging does not change them."""
    one = Position.from_map({"t": {0: 3, 1: 9}})
    other = Position.empty_position().with_component("t", 0, 5).with_component("u", 0, 0)
    assert one.merge(other) == Position.from_map({"t": {0: 5, 1: 9}, "u": {0: 0}})
    assert one == Position.from_map({"t": {1: 9, 0: 3}})
    assert hash(one) == hash(Position.from_map({"t": {1: 9, 0: 3}}))
    assert one.topics == {"t"}
    assert PositionBound.unbounded().is_unbounded
    assert not PositionBound.at(one).is_unbounded
    assert str(one) == "{t-0: 3, t-1: 9}"


@pytest.mark.parametrize("offset", [-1, True, "1", 1.0])
def test_a_position_has_offsets(offset: Any) -> None:
    """Numbers of 0 or more."""
    with pytest.raises(ValueError, match="must be integers of 0 or more"):
        Position().with_component("t", 0, offset)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda request: request.with_partitions([]), ValueError),
        (lambda request: request.with_partitions([-1]), ValueError),
        (lambda request: request.with_partitions(["0"]), TypeError),
        (lambda request: request.with_position_bound(Position()), TypeError),
        (lambda request: PositionBound.at({}), TypeError),
        (lambda request: StateQueryRequest.in_store(""), TypeError),
        (lambda request: StateQueryRequest.in_store("s").with_query("key"), TypeError),
        (lambda request: WindowRangeQuery.with_window_start_range("now", 1), TypeError),
        (lambda request: WindowRangeQuery.with_window_start_range(datetime(2026, 1, 1), 1), ValueError),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(make: Any, error: type[Exception]) -> None:
    """The error is raised when it is created, not when it is sent."""
    with pytest.raises(error):
        make(StateQueryRequest.in_store("s").with_query(KeyQuery.with_key(1)))


def test_times_are_datetimes_or_milliseconds() -> None:
    """Both forms mean the same."""
    at = datetime(1970, 1, 1, 0, 0, 1, 500_999, tzinfo=UTC)
    assert VersionedKeyQuery.with_key(1).as_of(at) == VersionedKeyQuery.with_key(1).as_of(1500)


def test_a_snapshot_is_looked_at_once(client: Client) -> None:
    """What changes while a query is answered does not change which partitions it is about."""
    seen: list[StoreSnapshot] = []

    class Counting:
        def snapshot(self) -> StoreSnapshot:
            seen.append(client.snapshot())
            return seen[-1]

    run_query(Counting(), ask(client, KeyQuery.with_key("a")))
    assert len(seen) == 1


def test_a_key_of_the_right_partition_is_found_by_its_bytes(client: Client) -> None:
    """A value that another partition has under the same key is that partition's."""
    key = key_in(1)
    client.put_into(2, key)
    result = run_query(client, ask(client, KeyQuery.with_key(key)))
    assert result.partition_results[1].result is None
    assert result.partition_results[2].result == len(key)


def test_answers_are_right_or_have_a_reason_while_partitions_come_and_go() -> None:
    """Threads that ask, and one that takes partitions away and brings them back: never another exception,
    never a wrong value, and nothing that stays open.
    """
    client = with_changelogs(Client())
    client.put(*WORDS)
    parts = {part.task_id.partition: part for part in client.snapshot().local["counts"]}
    everything = {number: dict(client.store(partition=number).all()) for number in parts}
    wrong: list[Any] = []
    done = threading.Event()
    fine = {None, FailureReason.NOT_ACTIVE, FailureReason.NOT_PRESENT}

    def ask_for(query: Query[Any], read: Callable[[int, Any], bool]) -> None:
        while not done.is_set():
            try:
                results = run_query(client, ask(client, query)).partition_results
                for number, each in results.items():
                    if each.failure not in fine or (each.is_success and not read(number, each.result)):
                        wrong.append((number, each))
            except Exception as error:  # whatever it is, it is none that may come
                wrong.append(error)

    def is_all(number: int, entries: Any) -> bool:
        with entries:
            try:
                return dict(entries) == everything[number]
            except StateStoreMigratedException:
                return True

    def is_its_own(number: int, value: Any) -> bool:
        return bool(value == everything[number].get("bbb"))

    readers = [
        threading.Thread(target=ask_for, args=arguments, name="reader", daemon=True)
        for arguments in ((RangeQuery.with_no_bounds(), is_all), (KeyQuery.with_key("bbb"), is_its_own))
        for _ in range(2)
    ]
    for reader in readers:
        reader.start()
    for turn in range(150):
        number = turn % PARTITIONS
        client.move_away(number)
        store = MemoryStore("counts", parts[number].task_id)
        store.apply(
            [(key.encode(), value.to_bytes(8, "big"), 5) for key, value in everything[number].items()], 9
        )
        client.stores[number] = store
        local = [*client.snapshot().local["counts"], replace(parts[number], store=store)]
        client.change(local={"counts": local})
    done.set()
    for reader in readers:
        reader.join(10)
    assert not any(reader.is_alive() for reader in readers)
    assert wrong == []
    assert [len(store._iterators) for store in client.stores.values()] == [0] * PARTITIONS
