"""`KafkaStreams.wait_until_queryable` and the deprecated form of `store`, in every state of the client."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Make, global_only, put_into, word_count

from millstream.errors import (
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    PipelineException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.model import StoreKind
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
from millstream.runtime.client import KafkaStreams
from millstream.states import State

KEY_VALUE = QueryableStoreTypes.key_value_store()
COUNTS = StoreQueryParameters.from_name_and_type("counts", KEY_VALUE)
LITTLE = timedelta(milliseconds=5)

OUTCOMES = {
    State.CREATED: StreamsNotStartedException,
    State.REBALANCING: TimeoutException,
    State.RUNNING: None,
    State.PENDING_SHUTDOWN: StateStoreNotAvailableException,
    State.NOT_RUNNING: StateStoreNotAvailableException,
    State.PENDING_ERROR: StateStoreNotAvailableException,
    State.ERROR: StateStoreNotAvailableException,
}


@pytest.mark.parametrize("state", OUTCOMES)
@pytest.mark.parametrize("asked", ["counts", COUNTS], ids=["name", "parameters"])
def test_waiting_for_a_store_in_every_state(
    state: State, asked: str | StoreQueryParameters[object], make: Make, world: FakeWorld
) -> None:
    """It returns in RUNNING, waits in REBALANCING, and raises at once in all others."""
    client = make(word_count())
    put_into(state, client, world)
    expected = OUTCOMES[state]
    timeout = LITTLE if state is State.REBALANCING else SOON
    if expected is None:
        client.wait_until_queryable(asked, timeout)
        assert client.store(COUNTS).get("a") is None
        return
    with pytest.raises(expected) as caught:
        client.wait_until_queryable(asked, timeout)
    if state is State.REBALANCING:
        assert isinstance(caught.value.__cause__, StreamsRebalancingException)
    if state in (State.PENDING_ERROR, State.ERROR):
        assert isinstance(caught.value.__cause__, PipelineException), "what ended the client"


def test_it_returns_as_soon_as_the_store_can_be_read(make: Make, world: FakeWorld) -> None:
    """A waiter that came before the store is woken by it, and not by the deadline."""
    client = make(word_count())
    put_into(State.REBALANCING, client, world)
    found: list[object] = []

    def waiter() -> None:
        client.wait_until_queryable("counts", SOON)
        found.append(client.store(COUNTS).get("a"))

    thread = threading.Thread(target=waiter, name="waiter", daemon=True)
    thread.start()
    world.gate.set()
    thread.join(SOON_S)
    assert found == [None]


def test_a_client_that_ends_wakes_who_waits_for_its_store(make: Make, world: FakeWorld) -> None:
    """A wait for that store would never end."""
    client = make(word_count())
    put_into(State.REBALANCING, client, world)
    raised: list[BaseException] = []

    def waiter() -> None:
        try:
            client.wait_until_queryable("counts", SOON)
        except StateStoreNotAvailableException as error:
            raised.append(error)

    thread = threading.Thread(target=waiter, name="waiter", daemon=True)
    thread.start()
    client.close(timedelta(0))
    thread.join(SOON_S)
    assert [type(error) for error in raised] == [StateStoreNotAvailableException]


def test_a_global_store_can_be_waited_for(make: Make, world: FakeWorld) -> None:
    """It is queryable when start() returns."""
    world.topics.add("users", 2)
    client = make(global_only())
    client.start()
    client.wait_until_queryable("users", SOON)


def test_what_waiting_cannot_mend_is_raised_at_once(make: Make, world: FakeWorld) -> None:
    """An unknown name, another type, a partition that does not exist, a negative timeout, no timedelta."""
    client = make(word_count())
    put_into(State.RUNNING, client, world)
    with pytest.raises(UnknownStateStoreException, match="Did you mean 'counts'"):
        client.wait_until_queryable("count", SOON)
    windows = QueryableStoreType("window_store", StoreKind.WINDOW)
    with pytest.raises(InvalidStateStoreTypeException):
        client.wait_until_queryable(StoreQueryParameters.from_name_and_type("counts", windows), SOON)
    with pytest.raises(InvalidStateStorePartitionException, match="has no partition 7"):
        client.wait_until_queryable(COUNTS.with_partition(7), SOON)
    with pytest.raises(ValueError, match="negative"):
        client.wait_until_queryable("counts", timedelta(seconds=-1))
    with pytest.raises(TypeError, match="timedelta"):
        client.wait_until_queryable("counts", 3)  # type: ignore[arg-type]


def test_the_old_form_of_store_works_and_warns(make: Make, world: FakeWorld) -> None:
    """KIP-562 deprecates `store(name, type)`; it raises the same leaves."""
    client: KafkaStreams = make(word_count())
    with pytest.warns(DeprecationWarning, match="KIP-562"), pytest.raises(StreamsNotStartedException):
        client.store("counts", KEY_VALUE)
    put_into(State.RUNNING, client, world)
    with pytest.warns(DeprecationWarning, match="StoreQueryParameters"):
        store = client.store("counts", KEY_VALUE)
    assert store.get("a") is None
    with pytest.warns(DeprecationWarning, match="KIP-562"), pytest.raises(UnknownStateStoreException):
        client.store("nothing", KEY_VALUE)
