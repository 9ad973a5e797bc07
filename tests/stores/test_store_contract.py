"""What every key-value store does: the same tests for memory and RocksDB."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from machines import QUICK

from millstream.errors import IllegalStateException
from millstream.model import TaskId
from millstream.stores import memory_store
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError, timestamp_of, to_stored, value_of

TASK = TaskId(1, 3)
Open = Callable[..., Any]


@pytest.fixture(params=["memory", "rocksdb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens stores of the kind under test, and closes them afterwards."""
    opened: list[Any] = []

    def open_one(**options: Any) -> Any:
        if request.param == "memory":
            store: Any = MemoryStore("counts", TASK, **options)
        else:
            store = RocksDBStore("counts", TASK, tmp_path / f"store-{len(opened)}", **options)
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Open) -> Any:
    return open_store()


def put(store: Any, *keys: bytes, at: int = 1) -> None:
    store.apply([(key, b"v-" + key, 5) for key in keys], at)


def keys(iterator: Iterator[tuple[bytes, bytes]]) -> list[bytes]:
    return [key for key, _ in iterator]


def test_a_new_store_is_open_empty_and_has_no_position(store: Any) -> None:
    """Nothing was ever applied: there is no position, which is not position 0."""
    assert store.is_open
    assert (store.name, store.task_id) == ("counts", TASK)
    assert store.position is None
    assert store.get(b"a") is None
    assert list(store.range(None, None)) == []
    assert list(store.range(None, None, reverse=True)) == []
    assert store.approximate_num_entries() == 0


def test_a_stored_value_begins_with_its_timestamp(store: Any) -> None:
    """Eight bytes, big-endian and signed, as Kafka Streams' timestamped stores have it."""
    store.apply([(b"k", b"value", 258), (b"none", b"", -1)], 2)
    assert store.get(b"k") == b"\0\0\0\0\0\0\x01\x02value"
    assert store.get(b"k") == to_stored(b"value", 258)
    assert value_of(store.get(b"k")) == b"value"
    assert timestamp_of(store.get(b"none")) == -1
    assert value_of(store.get(b"none")) == b""


def test_a_batch_puts_deletes_and_moves_the_position(store: Any) -> None:
    """The last entry of a key in a batch wins; None deletes; deleting what is not there does nothing."""
    put(store, b"a", b"b", at=2)
    store.apply([(b"a", None, 6), (b"c", b"1", 6), (b"c", b"2", 7), (b"x", None, 7), (b"b", None, 7)], 7)
    assert list(store.range(None, None)) == [(b"c", to_stored(b"2", 7))]
    assert store.position == 7


def test_an_empty_batch_moves_the_position_only(store: Any) -> None:
    """Offsets that are no records, such as transaction markers, are passed too."""
    put(store, b"a", at=1)
    store.apply([], 9)
    assert store.position == 9
    assert keys(store.range(None, None)) == [b"a"]


def test_multi_get_answers_in_the_order_of_the_keys(store: Any) -> None:
    """A key that is asked for twice is answered twice; a missing one is None."""
    put(store, b"a", b"b")
    assert store.multi_get([b"b", b"?", b"a", b"b"]) == [
        to_stored(b"v-b", 5),
        None,
        to_stored(b"v-a", 5),
        to_stored(b"v-b", 5),
    ]
    assert store.multi_get([]) == []


@pytest.mark.parametrize(
    ("start", "end", "inclusive", "expected"),
    [
        (None, None, True, [b"", b"a", b"a\0", b"ab", b"b", b"\xff"]),
        (b"a", b"b", True, [b"a", b"a\0", b"ab", b"b"]),
        (b"a", b"b", False, [b"a", b"a\0", b"ab"]),
        (None, b"a", True, [b"", b"a"]),
        (None, b"", True, [b""]),
        (None, b"", False, []),
        (b"aa", None, True, [b"ab", b"b", b"\xff"]),
        (b"\xff", None, True, [b"\xff"]),
        (b"\xff\xff", None, True, []),
        (b"b", b"a", True, []),
        (b"b", b"b", True, [b"b"]),
        (b"b", b"b", False, []),
    ],
)
def test_a_range_is_in_the_order_of_unsigned_bytes(
    store: Any, start: bytes | None, end: bytes | None, inclusive: bool, expected: list[bytes]
) -> None:
    """Forwards and backwards, open and closed ends, and bounds that are no keys."""
    put(store, b"\xff", b"b", b"a\0", b"", b"ab", b"a")
    assert keys(store.range(start, end, end_inclusive=inclusive)) == expected
    assert keys(store.range(start, end, end_inclusive=inclusive, reverse=True)) == expected[::-1]


def test_a_long_range_is_complete_in_both_directions(store: Any) -> None:
    """Reading ahead in chunks loses nothing at their borders."""
    many = sorted(b"%05d" % i for i in range(3000))
    put(store, *many)
    assert keys(store.range(None, None)) == many
    assert keys(store.range(None, None, reverse=True)) == many[::-1]
    assert keys(store.range(b"00016", b"02047")) == many[16:2048]
    assert keys(store.range(b"00016", b"02047", reverse=True)) == many[16:2048][::-1]
    assert store.multi_get(many) == [to_stored(b"v-" + key, 5) for key in many]


def test_a_range_is_a_snapshot(store: Any) -> None:
    """What is applied after a range was opened is not in it, however far it had been read."""
    many = [b"%04d" % i for i in range(500)]
    put(store, *many)
    fresh, begun = store.range(None, None), store.range(None, None, reverse=True)
    assert next(begun)[0] == b"0499"
    store.apply([(key, None, 9) for key in many[::2]] + [(b"new", b"1", 9), (b"0001", b"1", 9)], 2)
    assert list(fresh) == [(key, to_stored(b"v-" + key, 5)) for key in many]
    assert keys(begun) == many[-2::-1]
    assert keys(store.range(None, b"0003")) == [b"0001", b"0003"]


def test_a_closed_iterator_has_no_more_entries(store: Any) -> None:
    """Closing is idempotent, and an iterator that was read to its end stays there."""
    put(store, b"a", b"b", b"c")
    iterator = store.range(None, None)
    assert next(iterator)[0] == b"a"
    iterator.close()
    iterator.close()
    assert list(iterator) == []
    ended = store.range(None, None)
    assert len(list(ended)) == 3
    assert next(ended, None) is None


def test_wipe_forgets_the_entries_and_the_position(store: Any) -> None:
    """The store stays open, open iterators keep their snapshot, and it can be filled again."""
    put(store, b"a", b"b", b"\xff\xff", at=4)
    before = store.range(None, None)
    store.wipe()
    assert store.is_open
    assert store.position is None
    assert store.get(b"a") is None
    assert keys(store.range(None, None)) == []
    assert keys(before) == [b"a", b"b", b"\xff\xff"]
    put(store, b"z", at=1)
    assert keys(store.range(None, None)) == [b"z"]
    assert store.position == 1
    store.wipe()
    store.wipe()


def test_the_number_of_entries_is_about_right(store: Any) -> None:
    """Of few keys it is exact in both kinds, however often they were written; of many, if written once."""
    put(store, *[b"%03d" % i for i in range(100)])
    for time in range(50):
        put(store, b"001", b"002", b"003", at=time)
    assert store.approximate_num_entries() == 100
    put(store, *[b"more-%04d" % i for i in range(2000)])
    assert store.approximate_num_entries() >= 2000


CALLS: dict[str, Callable[[Any], Any]] = {
    "get": lambda store: store.get(b"a"),
    "multi_get": lambda store: store.multi_get([b"a"]),
    "range": lambda store: store.range(None, None),
    "apply": lambda store: store.apply([(b"a", b"1", 1)], 1),
    "wipe": lambda store: store.wipe(),
    "position": lambda store: store.position,
    "approximate_num_entries": lambda store: store.approximate_num_entries(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_store_raises_only_closed_store_error(store: Any, call: str) -> None:
    """Every method raises it; `close` itself is idempotent."""
    put(store, b"a")
    store.close()
    store.close()
    assert not store.is_open
    with pytest.raises(ClosedStoreError, match="'counts' is closed"):
        CALLS[call](store)


def test_closing_a_store_ends_its_iterators(store: Any) -> None:
    """Fresh, begun and with entries read ahead: the next step raises, and raises again."""
    put(store, *[b"%04d" % i for i in range(100)])
    fresh, begun = store.range(None, None), store.range(None, None, reverse=True)
    next(begun)
    store.close()
    for iterator in (fresh, begun, fresh):
        with pytest.raises(ClosedStoreError):
            next(iterator)
        iterator.close()


def test_open_iterators_are_bounded(open_store: Open) -> None:
    """The one too many is told what to do; closed, finished and dropped ones do not count."""
    store = open_store(max_iterators=3)
    put(store, b"a", b"b")
    for _ in range(10):
        store.range(None, None).close()
        next(store.range(None, None))
    held = [store.range(None, None) for _ in range(3)]
    with pytest.raises(IllegalStateException, match=r"'counts' has 3 open iterators.*close each one"):
        store.range(None, None)
    assert len(list(held[0])) == 2
    held.append(store.range(None, None))
    held[1].close()
    held.append(store.range(None, None))
    with pytest.raises(IllegalStateException):
        store.range(None, None)


# --- against a model -------------------------------------------------------------------------------------

KEYS = st.binary(max_size=3)
BATCHES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4), st.integers(-1, 2**40)), max_size=40)
BOUNDS = st.none() | KEYS


class StoreMachine(RuleBasedStateMachine):
    """A store does what a dict and an offset do."""

    def open_store(self) -> Any:
        raise NotImplementedError

    def reopen(self) -> None:
        """Close and open again; a store that does not survive that is left open."""

    @initialize()
    def start(self) -> None:
        self.store = self.open_store()
        self.model: dict[bytes, bytes] = {}
        self.position: int | None = None
        self.snapshots: list[tuple[Any, list[tuple[bytes, bytes]]]] = []

    @rule(batch=BATCHES, distance=st.integers(0, 100))
    def apply(self, batch: list[tuple[bytes, bytes | None, int]], distance: int) -> None:
        self.position = (self.position or 0) + distance
        self.store.apply(batch, self.position)
        for key, value, timestamp in batch:
            if value is None:
                self.model.pop(key, None)
            else:
                self.model[key] = to_stored(value, timestamp)

    @rule(start=BOUNDS, end=BOUNDS, reverse=st.booleans(), inclusive=st.booleans())
    def read_range(self, start: bytes | None, end: bytes | None, reverse: bool, inclusive: bool) -> None:
        expected = self.expected(start, end, reverse, inclusive)
        assert list(self.store.range(start, end, reverse=reverse, end_inclusive=inclusive)) == expected

    @rule(start=BOUNDS, end=BOUNDS, reverse=st.booleans())
    @precondition(lambda self: len(self.snapshots) < 5)
    def open_range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        iterator = self.store.range(start, end, reverse=reverse)
        self.snapshots.append((iterator, self.expected(start, end, reverse, True)))

    @rule()
    @precondition(lambda self: self.snapshots)
    def finish_range(self) -> None:
        iterator, expected = self.snapshots.pop(0)
        assert list(iterator) == expected

    @rule(keys=st.lists(KEYS, max_size=5))
    def read(self, keys: list[bytes]) -> None:
        assert self.store.multi_get(keys) == [self.model.get(key) for key in keys]
        for key in keys:
            assert self.store.get(key) == self.model.get(key)

    @rule()
    def wipe(self) -> None:
        self.store.wipe()
        self.model, self.position = {}, None

    @rule()
    def close_and_open(self) -> None:
        self.reopen()

    @invariant()
    def position_is_kept(self) -> None:
        if hasattr(self, "store"):
            assert self.store.position == self.position

    def expected(
        self, start: bytes | None, end: bytes | None, reverse: bool, inclusive: bool
    ) -> list[tuple[bytes, bytes]]:
        found = [
            (key, value)
            for key, value in sorted(self.model.items())
            if (start is None or key >= start) and (end is None or key < end or (inclusive and key == end))
        ]
        return found[::-1] if reverse else found

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()


def test_a_memory_store_does_what_a_dict_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sequence of batches, reads, ranges and wipes; with small chunks, so that there are many."""
    monkeypatch.setattr(memory_store, "_CHUNK", 2)

    class Memory(StoreMachine):
        def open_store(self) -> Any:
            return MemoryStore("m", TASK)

    Memory.TestCase.settings = QUICK
    Memory.TestCase("runTest").runTest()


@pytest.mark.disk
def test_a_rocksdb_store_does_what_a_dict_does(tmp_path: Path) -> None:
    """Any sequence of batches, reads, ranges, wipes, and of closing and opening again."""
    opened = 0

    class OnDisk(StoreMachine):
        def open_store(self) -> Any:
            nonlocal opened
            opened += 1
            self.path = tmp_path / str(opened)
            return RocksDBStore("m", TASK, self.path)

        def reopen(self) -> None:
            self.store.close()
            for iterator, _ in self.snapshots:
                with pytest.raises(ClosedStoreError):
                    next(iterator)
            self.snapshots = []
            self.store = RocksDBStore("m", TASK, self.path)

    OnDisk.TestCase.settings = settings(QUICK, max_examples=10)
    OnDisk.TestCase("runTest").runTest()
