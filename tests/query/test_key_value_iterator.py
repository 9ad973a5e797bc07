"""The iterator of a range: looking ahead, closing, and its store going away under it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from windowed_worlds import WindowedClient, now
from worlds import PARTITIONS, Client

from millstream.errors import (
    IllegalStateException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
)
from millstream.model import KeyValue, StoreKind, TaskId
from millstream.query.provider import LocalStore
from millstream.stores.memory import MemoryStore
from millstream.stores.opening import open_store as open_stored
from millstream.topology.nodes import Store as StoreNode

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


LEAVES = {"RUNNING": StateStoreMigratedException, "NOT_RUNNING": StateStoreNotAvailableException}
READS: dict[str, Callable[[Any], object]] = {
    "next": lambda entries: entries.next(),
    "has_next": lambda entries: entries.has_next(),
    "peek_next_key": lambda entries: entries.peek_next_key(),
    "for": next,
}


def stores_of_each_kind(place: str, path: Path) -> Iterator[tuple[str, Client, list[Callable[[], Any]]]]:
    """Clients with one partition and with three that are merged, and what opens iterators on them."""
    for partitions in (1, PARTITIONS):
        here = path / str(partitions) if place == "rocksdb" else None
        for kind in (StoreKind.WINDOW, StoreKind.SESSION):
            windows = WindowedClient(kind, partitions, path=here and here / kind.value)
            windows.keep_time()
            for where, word in itertools.product(range(partitions), WORDS):
                windows.add(word, *[now] * (1 if kind is StoreKind.WINDOW else 2), partition=where)
            held = windows.windowed()
            yield f"{kind.value} {place} {partitions}", windows, [held.all, held.backward_all]
        for history in (None, 3_600_000):
            client = Client(partitions)
            declared = StoreNode("counts", history_ms=history)
            stores: dict[int, Any] = {
                part: open_stored(declared, TaskId(1, part), here and here / f"{history}{part}")
                for part in client.stores
            }
            client.stores = stores
            client.change(
                local={"counts": [LocalStore(each.task_id, each, f"t{n}") for n, each in stores.items()]}
            )
            for where in stores:
                client.put_into(where, *(f"{word}{where}" for word in WORDS))
            store = client.store()
            yield f"key-value {place} {partitions} {history}", client, [store.all, store.reverse_all]


@pytest.mark.parametrize("place", ["memory", "rocksdb"])
@pytest.mark.parametrize("state", LEAVES)
def test_what_was_read_ahead_is_not_given_once_a_store_is_closed(
    state: str, place: str, tmp_path: Path
) -> None:
    """KIP-216 names next, hasNext and peekNextKey: whatever the kind of store, however far it had read, and
    though only one of its partitions has left. The same at each further read.
    """
    for what, client, ways in stores_of_each_kind(place, tmp_path):
        held = []
        for way, read, ahead in itertools.product(ways, READS, [None, *READS]):
            entries = way()
            if ahead is not None:
                READS[ahead](entries)
            held.append((f"{read} of {what} after {ahead}", read, entries))
        client.client_is(state)
        first, *others = client.stores.values()
        first.close()
        for name, read, entries in held:
            for each in (read, *READS):
                with pytest.raises(LEAVES[state]):
                    pytest.fail(f"{name}: {each} gave {READS[each](entries)!r}")
            entries.close()
        for other in others:
            other.close()


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
