"""The iterator of a range: looking ahead, closing, and its store going away under it."""

from __future__ import annotations

from typing import Any

import pytest
from worlds import Client

from millstream.errors import (
    IllegalStateException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
)
from millstream.model import KeyValue
from millstream.stores.memory import MemoryStore

WORDS = ["a", "bb", "ccc", "dddd", "eeeee"]


@pytest.fixture(params=[1, 3])
def client(request: pytest.FixtureRequest) -> Client:
    """With one partition (the store's own iterator) and with three (merged)."""
    made = Client(request.param, routed=request.param == 3)
    if request.param == 3:
        made.put(*WORDS)
    else:
        made.put_into(0, *WORDS)
    return made


def test_looking_ahead_takes_nothing(client: Client) -> None:
    """has_next and peek_next_key may be asked any number of times."""
    entries = client.store().all()
    assert entries.has_next()
    assert entries.has_next()
    assert entries.peek_next_key() == "a"
    assert entries.peek_next_key() == "a"
    assert entries.next() == KeyValue("a", 1)
    assert next(entries) == ("bb", 2)
    assert entries.peek_next_key() == "ccc"
    assert [key for key, _ in entries] == WORDS[2:]
    entries.close()


def test_at_its_end_it_has_no_next(client: Client) -> None:
    """has_next is false, next and peek raise StopIteration, again and again; closing is still fine."""
    for entries in (client.store().range("x", None), client.store().all()):
        list(entries)
        for _ in range(2):
            assert not entries.has_next()
            with pytest.raises(StopIteration):
                entries.next()
            with pytest.raises(StopIteration):
                entries.peek_next_key()
        entries.close()


def test_a_closed_iterator_says_so(client: Client) -> None:
    """Every read raises, also one that had been looked ahead; closing is idempotent."""
    entries = client.store().all()
    assert entries.peek_next_key() == "a"
    entries.close()
    entries.close()
    for read in (entries.has_next, entries.next, entries.peek_next_key, lambda: next(entries)):
        with pytest.raises(
            IllegalStateException, match=r"Iterator for store counts has already been closed\."
        ):
            read()
    assert repr(entries) == "<KeyValueIterator of store 'counts', closed>"


def test_with_closes_it_and_lets_go_of_the_store(client: Client) -> None:
    """Whatever happens inside; the store counts no open iterator afterwards."""
    entries = client.store().all()

    def read_and_fail() -> None:
        with entries:
            next(entries)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        read_and_fail()
    with pytest.raises(IllegalStateException):
        next(entries)
    assert [len(store._iterators) for store in client.stores.values()] == [0] * len(client.stores)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("RUNNING", StateStoreMigratedException),
        ("REBALANCING", StateStoreMigratedException),
        ("PENDING_SHUTDOWN", StateStoreNotAvailableException),
        ("NOT_RUNNING", StateStoreNotAvailableException),
        ("PENDING_ERROR", StateStoreNotAvailableException),
        ("ERROR", StateStoreNotAvailableException),
    ],
)
def test_a_store_that_closes_under_it_ends_it_with_the_right_leaf(
    client: Client, state: str, expected: type[Exception]
) -> None:
    """KIP-216: migrated while the client lives, not available once it stops; the same at every read after."""
    entries = client.store().all()
    next(entries)
    client.client_is(state)
    for store in client.stores.values():
        store.close()
    with pytest.raises(expected) as caught:
        list(entries)
    if expected is StateStoreMigratedException:
        assert "was closed under an open iterator" in str(caught.value)
        assert caught.value.__cause__ is not None
    for read in (entries.has_next, entries.next, entries.peek_next_key):
        with pytest.raises(expected):
            read()
    entries.close()
    with pytest.raises(IllegalStateException):
        entries.next()


def test_a_snapshot_is_read_to_its_end_though_its_thread_changes(client: Client) -> None:
    """As long as the store is open, what was opened is consistent, and is given."""
    entries = client.store().all()
    next(entries)
    client.client_is("REBALANCING")
    client.thread_is(0, "PARTITIONS_REVOKED")
    for store in client.stores.values():
        store.apply([(b"a0", b"x", 1), (b"ccc", None, 1)], 99)
    assert [key for key, _ in entries] == WORDS[1:]


def test_too_many_open_iterators_are_told_to_be_closed() -> None:
    """The bound is the store's; those of the same call that did open are closed again."""
    client = Client([0, 1])
    bounded: Any = MemoryStore("counts", client.stores[1].task_id, max_iterators=2)
    client.stores[1] = bounded
    parts = list(client.snapshot().local["counts"])
    client.change(local={"counts": [parts[0], type(parts[1])(bounded.task_id, bounded, "t1")]})
    store = client.store()
    held = [store.all(), store.all()]
    with pytest.raises(IllegalStateException, match="2 open iterators") as caught:
        store.all()
    assert len(client.stores[0]._iterators) == 2, caught
    held.pop().close()
    store.all().close()
