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
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
)
from millstream.model import KeyValue, StoreKind, TaskId
from millstream.query.provider import LocalStore
from millstream.query.store_codecs import Codecs, Unfit
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes
from millstream.stores.memory_store import MemoryStore
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
    """The block may raise. The store counts no open iterator afterwards."""
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
    """As long as the store is open, an open iterator returns a consistent view."""
    entries = client.store().all()
    next(entries)
    client.client_is("REBALANCING")
    client.thread_is(0, "PARTITIONS_REVOKED")
    for store in client.stores.values():
        store.apply([(b"a0", b"x", 1), (b"ccc", None, 1)], 99)
    assert [key for key, _ in entries] == WORDS[1:]


# --- loops -----------------------------------------------------------------------------------------------

KEYS = [f"key-{number:03d}" for number in range(200)]


@pytest.fixture(params=[1, 3])
def full(request: pytest.FixtureRequest) -> Client:
    """With more entries than are read ahead at first."""
    made = Client(request.param, routed=request.param == 3)
    for number, key in enumerate(KEYS):
        made.put_into(number % request.param, key)
    return made


def put_raw(client: Client, key: bytes, value: bytes, partition: int = 0) -> None:
    store = client.stores[partition]
    store.apply([(key, value, 5)], (store.position or 0) + 1)


def read(loop: Iterator[Any], found: list[str], after_twenty: Callable[[], object]) -> None:
    """The keys of all entries, with a call in between."""
    for key, _ in loop:
        found.append(key)
        if len(found) == 20:
            after_twenty()


def test_a_loop_and_other_reads_share_what_was_read_ahead(full: Client) -> None:
    """Inside a loop and between two of them, across all that is read ahead; no entry is lost or repeated."""
    entries = full.store().all()
    found = []
    for key, _ in entries:
        found.append(key)
        if not entries.has_next():
            break
        assert entries.peek_next_key() == KEYS[len(found)]
        if len(found) % 3 == 0:
            found.append(next(entries)[0])
        if len(found) == 50:
            break
    assert len(found) == 50
    first, second = iter(entries), iter(entries)
    while len(found) < 150:
        found.append(next(first)[0])
        found.append(next(second)[0])
        found.append(entries.next()[0])
    found += [key for key, _ in entries]
    assert found == KEYS
    for at_end in (first, second, iter(entries), entries):
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(at_end)


def test_what_a_loop_gives_is_a_key_value(full: Client) -> None:
    """It has those fields; keys() and values() return the same."""
    store = full.store()
    assert {type(entry) for entry in store.all()} == {KeyValue}
    assert [entry.key for entry in store.all()] == KEYS == list(store.keys())
    assert [entry.value for entry in store.all()] == [7] * 200 == list(store.values())


def test_closing_it_ends_a_loop(full: Client) -> None:
    """The loop raises in the middle of what was read ahead, and at each later step."""
    entries = full.store().all()
    loop, found = iter(entries), list[str]()
    with pytest.raises(IllegalStateException, match="already been closed"):
        read(loop, found, entries.close)
    assert found == KEYS[:20]
    for _ in range(2):
        with pytest.raises(IllegalStateException, match="already been closed"):
            next(loop)


def test_a_store_that_closes_ends_a_loop(full: Client) -> None:
    """One closed partition is enough. No entry that was read ahead is returned."""
    entries = full.store().all()
    loop, found = iter(entries), list[str]()
    with pytest.raises(StateStoreMigratedException) as caught:
        read(loop, found, full.stores[0].close)
    assert found == KEYS[:20]
    for again in (loop, loop, iter(entries), entries):
        with pytest.raises(StateStoreMigratedException) as repeated:
            next(again)
        assert repeated.value is caught.value
    entries.close()
    with pytest.raises(IllegalStateException, match="already been closed"):
        next(loop)


def test_a_loop_that_is_left_lets_go_of_the_store(full: Client) -> None:
    """When it and the iterator are dropped, nobody has to wait for the garbage collector."""
    for _ in full.store().all():
        break
    assert [len(store._iterators) for store in full.stores.values()] == [0] * len(full.stores)


def next_of_a_loop(entries: Any) -> Any:
    return next(iter(entries))


def next_after_a_look(entries: Any) -> Any:
    if not entries.has_next():
        raise StopIteration
    key = entries.peek_next_key()
    entry = next(entries)
    assert entry.key == key
    return entry


@pytest.mark.parametrize("value", [b"", b"1234567", b"123456789"])
def test_a_value_that_does_not_fit_is_an_error_in_its_place(full: Client, value: bytes) -> None:
    """All entries before it are given, and those after it: by next, by a loop, and after a look ahead."""
    wrong = (50, 51, 120)
    for number in wrong:
        put_raw(full, KEYS[number].encode(), value, number % len(full.stores))
    expected = [None if number in wrong else (key, 7) for number, key in enumerate(KEYS)]
    store = full.store()
    for name, take, entries in (
        ("next", next, store.all()),
        ("a loop", next, iter(store.all())),
        ("loops", next_of_a_loop, store.all()),
        ("looks", next_after_a_look, store.all()),
    ):
        found: list[Any] = []
        while True:
            try:
                found.append(take(entries))
            except SerializationException:
                found.append(None)
            except StopIteration:
                break
        assert found == expected, name
    with pytest.raises(SerializationException, match="a value of store 'counts' cannot be read"):
        list(store.all())


def test_a_serde_that_raises_stop_iteration_ends_nothing() -> None:
    """It is an error of that entry, like any other."""

    class Picky(Serde):
        """Knows two words."""

        def _encode(self, value: Any) -> bytes:
            return str(value).encode()

        def _decode(self, data: bytes) -> Any:
            return next(word for word in ("yes", "no") if word == data.decode())

    stored = [(key, bytes(8) + word) for key, word in ((b"1", b"yes"), (b"2", b"perhaps"), (b"3", b"no"))]
    codecs = Codecs("words", StoreKind.KEY_VALUE, Serdes.string(), Picky("picky"))
    (one, two, three), values, all_fit = codecs.chunks()(stored)
    assert (one, three, values, all_fit) == ("1", "3", ["yes", None, "no"], False)
    assert isinstance(two, Unfit)
    assert isinstance(two.error, SerializationException)


def test_who_merges_a_store_knows_that_it_closed_before_it_seems_to_be_at_its_end(client: Client) -> None:
    """Otherwise a scan that another thread reads at that moment would go on without it."""
    entries = client.stores[0].range(None, None)

    class Told(list[str]):
        """Looks at the iterator when it is told."""

        def append(self, store: str) -> None:
            assert not entries.at_end
            super().append(store)

    told = Told()
    entries.report_close(told, [])
    client.stores[0].close()
    assert told == ["counts"]
    assert entries.at_end


def test_keys_of_every_kind_of_text_are_read(full: Client) -> None:
    """Text may have zero bytes, be empty, or be beyond ASCII. Invalid UTF-8 is read as U+FFFD."""
    odd = [b"", b"\0", b"a\0b", b"\0\0", "k\u00e9y \U0001f600".encode(), b"key-1\xff", b"\xc3("]
    for key in odd:
        put_raw(full, key, bytes(8))
    every = sorted([*odd, *map(str.encode, KEYS)])
    expected = [key.decode("utf-8", "replace") for key in every]
    store = full.store()
    assert [key for key, _ in store.all()] == expected
    assert [key for key, _ in store.reverse_all()] == expected[::-1]
    assert list(store.keys()) == expected


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
