"""KIP-216 as a table: every cell of the decision, and of what it is made from."""

from __future__ import annotations

import itertools

import pytest
from worlds import CLIENT_STATES

from millstream.errors import InvalidStateStoreException
from millstream.model import StoreKind, TaskId
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import (
    LocalStore,
    Outcome,
    PartRole,
    Presence,
    ReadScope,
    StoreDeclaration,
    StoreSnapshot,
    decide,
    is_settled,
    parts_by_partition,
    presence_of,
    presence_of_all,
    refusal,
)
from millstream.query.readiness import why_not
from millstream.serdes.serdes import Serdes
from millstream.states import State, ThreadState
from millstream.stores.memory_store import MemoryStore

THREAD_STATES = (
    "CREATED",
    "STARTING",
    "PARTITIONS_REVOKED",
    "PARTITIONS_ASSIGNED",
    "RUNNING",
    "PENDING_SHUTDOWN",
    "DEAD",
)

# presence: (settled by scope PARTITION, KEY, STORE; not settled, any scope)
ALIVE = {
    Presence.READABLE: ("READ", "READ", "READ", "READ"),
    Presence.WAITING: ("REBALANCING", "REBALANCING", "REBALANCING", "REBALANCING"),
    Presence.CLOSED: ("MIGRATED", "MIGRATED", "MIGRATED", "REBALANCING"),
    Presence.LEFT: ("MIGRATED", "MIGRATED", "MIGRATED", "REBALANCING"),
    Presence.STANDBY: ("WRONG_PARTITION", "NOTHING", "MIGRATED", "REBALANCING"),
    Presence.ABSENT: ("WRONG_PARTITION", "NOTHING", "MIGRATED", "REBALANCING"),
}
SCOPES = (ReadScope.PARTITION, ReadScope.KEY, ReadScope.STORE)


def test_every_cell_of_the_decision_table() -> None:
    """Client state x known x type fits x settled x presence x scope: 7 x 2 x 2 x 2 x 6 x 3 cells."""
    cells = 0
    for state, known, fits, settled, presence, scope in itertools.product(
        CLIENT_STATES, (True, False), (True, False), (True, False), Presence, SCOPES
    ):
        if state == "CREATED":
            expected = "NOT_STARTED"
        elif state not in ("RUNNING", "REBALANCING"):
            expected = "NOT_AVAILABLE"
        elif not known:
            expected = "UNKNOWN"
        elif not fits:
            expected = "WRONG_TYPE"
        else:
            expected = ALIVE[presence][SCOPES.index(scope) if settled else 3]
        outcome = decide(
            client_state=State[state],
            known=known,
            type_fits=fits,
            settled=settled,
            presence=presence,
            scope=scope,
        )
        assert outcome is Outcome[expected], (state, known, fits, settled, presence, scope)
        nowhere = decide(
            client_state=State[state],
            known=known,
            type_fits=fits,
            settled=settled,
            presence=presence,
            scope=scope,
            exists=False,
        )
        before = expected in ("NOT_STARTED", "NOT_AVAILABLE", "UNKNOWN", "WRONG_TYPE")
        assert nowhere is (Outcome[expected] if before else Outcome.WRONG_PARTITION)
        cells += 1
    assert cells == 7 * 8 * 6 * 3


# thread state: role ACTIVE, RESTORING, STANDBY; the same three with stale stores
PRESENCES = {
    None: "ABSENT ABSENT ABSENT ABSENT ABSENT ABSENT",
    "CREATED": "WAITING WAITING STANDBY WAITING WAITING WAITING",
    "STARTING": "WAITING WAITING STANDBY READABLE READABLE READABLE",
    "PARTITIONS_REVOKED": "WAITING WAITING STANDBY READABLE READABLE READABLE",
    "PARTITIONS_ASSIGNED": "WAITING WAITING STANDBY READABLE READABLE READABLE",
    "RUNNING": "READABLE WAITING STANDBY READABLE READABLE READABLE",
    "PENDING_SHUTDOWN": "WAITING WAITING STANDBY WAITING WAITING WAITING",
    "DEAD": "ABSENT ABSENT ABSENT ABSENT ABSENT ABSENT",
}


def part(partition: int, role: PartRole = PartRole.ACTIVE, thread: str = "t1") -> LocalStore:
    task = TaskId(1, partition)
    return LocalStore(task, MemoryStore("counts", task), thread, role)


@pytest.mark.parametrize("thread_state", [None, *THREAD_STATES])
def test_what_a_part_is_good_for(thread_state: str | None) -> None:
    """Thread state x role x stale or not: 8 x 3 x 2 cells."""
    expected = PRESENCES[thread_state].split()
    thread = None if thread_state is None else ThreadState[thread_state]
    for index, (stale, role) in enumerate(itertools.product((False, True), PartRole)):
        assert presence_of(part(0, role), thread, stale=stale).name == expected[index], (role, stale)


@pytest.mark.parametrize("client_state", CLIENT_STATES)
def test_settled_means_that_client_and_live_threads_are_running(client_state: str) -> None:
    """A dead thread is not waited for; a client without threads is settled."""
    for thread_state in THREAD_STATES:
        snapshot = StoreSnapshot(
            "c", State[client_state], {"t1": ThreadState.RUNNING, "t2": ThreadState[thread_state]}
        )
        assert is_settled(snapshot) == (client_state == "RUNNING" and thread_state in ("RUNNING", "DEAD"))
    assert is_settled(StoreSnapshot("c", State[client_state])) == (client_state == "RUNNING")


def test_what_is_here_for_a_read_over_all_partitions() -> None:
    """It is readable only if the answer would be whole: set of presences x settled x left x stale."""
    readable, waiting, standby = Presence.READABLE, Presence.WAITING, Presence.STANDBY
    for found, settled, left, stale, expected in (
        ([], True, False, False, Presence.ABSENT),
        ([], True, True, False, Presence.LEFT),
        ([], False, False, False, Presence.ABSENT),
        ([readable], True, False, False, readable),
        ([readable, standby], True, False, False, readable),
        ([standby], True, False, False, standby),
        ([readable], True, True, False, Presence.LEFT),
        ([readable, waiting], True, False, False, waiting),
        ([readable, waiting], True, True, True, waiting),
        ([readable], False, False, False, waiting),
        ([readable], False, False, True, readable),
        ([readable], False, True, True, Presence.LEFT),
    ):
        got = presence_of_all(found, settled=settled, anything_left=left, stale=stale)
        assert got is expected, (found, settled, left, stale)


def test_the_best_part_of_a_partition_counts() -> None:
    """Readable before waiting before standby, active before standby, and in partition order."""
    parts = [
        part(2),
        part(0, PartRole.STANDBY),
        part(0, PartRole.ACTIVE, "t2"),
        part(1, PartRole.STANDBY, "t2"),
        part(1, PartRole.ACTIVE, "starting"),
        part(3, PartRole.ACTIVE, "dead"),
        part(4, PartRole.ACTIVE, "gone"),
    ]
    threads = {
        "t1": ThreadState.RUNNING,
        "t2": ThreadState.RUNNING,
        "starting": ThreadState.STARTING,
        "dead": ThreadState.DEAD,
    }
    snapshot = StoreSnapshot("c", State.RUNNING, threads, {}, {"counts": parts})
    best = parts_by_partition(snapshot, "counts", stale=False)
    assert [(number, presence.name, chosen.thread) for number, (presence, chosen) in best.items()] == [
        (0, "READABLE", "t2"),
        (1, "WAITING", "starting"),
        (2, "READABLE", "t1"),
    ]
    stale = parts_by_partition(snapshot, "counts", stale=True)
    assert {number: chosen.role for number, (_, chosen) in stale.items()} == dict.fromkeys(
        range(3), PartRole.ACTIVE
    )


MESSAGES = {
    Outcome.NOT_STARTED: (
        "StreamsNotStartedException",
        True,
        "store 'counts' cannot be queried yet: client 'orders-1' is REBALANCING; call start(), then retry "
        "once it is RUNNING",
    ),
    Outcome.NOT_AVAILABLE: (
        "StateStoreNotAvailableException",
        False,
        "store 'counts' is not available any more: client 'orders-1' is REBALANCING; query another client, "
        "or start a new one",
    ),
    Outcome.UNKNOWN: (
        "UnknownStateStoreException",
        False,
        "no state store 'counts' in this topology; it has 'count', 'windows'. Did you mean 'count'?",
    ),
    Outcome.WRONG_TYPE: (
        "InvalidStateStoreTypeException",
        False,
        "store 'counts' is a window store, which QueryableStoreTypes.key_value_store() does not read; use "
        "QueryableStoreTypes.window_store(), or store('counts')",
    ),
    Outcome.WRONG_PARTITION: (
        "InvalidStateStorePartitionException",
        False,
        "partition 2 of store 'counts' is not on client 'orders-1', which holds 0, 1; "
        "query_metadata_for_key('counts', key) names the client that does",
    ),
    Outcome.REBALANCING: (
        "StreamsRebalancingException",
        True,
        "partition 2 of store 'counts' cannot be read now: client 'orders-1' is REBALANCING (thread 't2' is "
        "STARTING); keep the handle and retry once the client is RUNNING",
    ),
    Outcome.MIGRATED: (
        "StateStoreMigratedException",
        False,
        "partition 2 of store 'counts' is not here (any more): client 'orders-1' is REBALANCING and holds "
        "partitions 0, 1 of it; get a new handle from KafkaStreams.store(); query_metadata_for_key('counts', "
        "key) names the client that has a key now",
    ),
}


@pytest.mark.parametrize("outcome", MESSAGES, ids=lambda outcome: outcome.name)
def test_each_refusal_is_a_leaf_that_says_what_to_do_next(outcome: Outcome) -> None:
    """KIP-216: never the parent; retriable or not; names, facts, next step."""
    kind, retriable, message = MESSAGES[outcome]
    stores = {
        "windows": StoreDeclaration("windows", None, None),
        "count": StoreDeclaration("count", None, None),
    }
    if outcome is not Outcome.UNKNOWN:
        text = Serdes.string()
        stores["counts"] = StoreDeclaration("counts", text, text, partitions=4, kind=StoreKind.WINDOW)
    snapshot = StoreSnapshot(
        "orders-1", State.REBALANCING, {"t1": ThreadState.RUNNING, "t2": ThreadState.STARTING}, stores
    )
    asked_as = repr(QueryableStoreTypes.key_value_store())
    error = refusal(outcome, snapshot, "counts", asked_as=asked_as, partition=2, here=(0, 1))
    assert type(error).__name__ == kind
    assert type(error) is not InvalidStateStoreException
    assert error.retriable is retriable
    assert error.store == "counts"
    assert (error.partition, error.client_state) == (2, "REBALANCING")
    assert str(error) == message
    assert error.next_step
    assert message.endswith(error.next_step)


def test_every_refusing_outcome_has_an_exception_of_its_own() -> None:
    """Seven outcomes, seven leaves."""
    assert set(MESSAGES) == set(Outcome) - {Outcome.READ, Outcome.NOTHING}
    assert len({kind for kind, _, _ in MESSAGES.values()}) == len(MESSAGES)


def test_a_refusal_tells_of_the_standbys_that_are_here() -> None:
    """Who may be content with an old answer learns that there is one, and how to ask for it."""
    parts = [part(0), part(1, PartRole.STANDBY), part(2, PartRole.STANDBY)]
    snapshot = StoreSnapshot(
        "c",
        State.RUNNING,
        {"t1": ThreadState.RUNNING},
        {"counts": StoreDeclaration("counts", None, None)},
        {"counts": parts},
    )
    for outcome, partition, told in (
        (Outcome.MIGRATED, None, "of it; 1, 2 are here as a standby, which enable_stale_stores() reads; get"),
        (Outcome.MIGRATED, 1, "of it; it is here as a standby, which enable_stale_stores() reads; get"),
        (Outcome.MIGRATED, 0, "holds partition 0 of it; get"),
        (Outcome.WRONG_PARTITION, 2, "it is here as a standby, which enable_stale_stores() reads; query_"),
    ):
        error = refusal(outcome, snapshot, "counts", partition=partition, here=(0,))
        assert told in str(error), error


def test_a_store_whose_serdes_are_not_known_yet_says_so() -> None:
    """They are found out by the client that runs the pipeline; the others are RUNNING before they know."""
    stores = {"counts": StoreDeclaration("counts", Serdes.string(), None)}
    snapshot = StoreSnapshot("c", State.RUNNING, {"t1": ThreadState.RUNNING}, stores, {"counts": [part(0)]})
    asked = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    refused = why_not(snapshot, asked)
    assert type(refused).__name__ == "StreamsRebalancingException"
    assert "does not know its serdes until the pipeline that fills it is compiled" in str(refused)
    assert "with_value_serde" in str(refused)
