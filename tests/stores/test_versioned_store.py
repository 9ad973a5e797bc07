"""A store with history: what a key had at an earlier time, whatever the order in which it was told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.errors import IllegalStateException, ProcessorStateException
from millstream.model import TaskId
from millstream.stores import opening
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError, timestamp_of, value_of
from millstream.stores.versioned import VersionedStore
from millstream.topology.nodes import Store

TASK = TaskId(1, 3)
HISTORY = 100
Open = Callable[..., VersionedStore]


@pytest.fixture(params=["memory", "rocksdb"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the store, again and again at the same place if it is on disk."""
    opened: list[Any] = []

    def open_one(history_ms: int = HISTORY) -> VersionedStore:
        inner: Any
        if request.param == "memory":
            inner = MemoryStore("prices", TASK)
        else:
            for each in opened:
                each.close()
            inner = RocksDBStore("prices", TASK, tmp_path / "prices")
        opened.append(VersionedStore(inner, history_ms))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.fixture
def store(open_store: Open) -> VersionedStore:
    return open_store()


def put(store: VersionedStore, *records: tuple[bytes, bytes | None, int]) -> None:
    store.apply(records, (store.position or 0) + len(records))


def seen(stored: bytes | None) -> tuple[bytes, int] | None:
    return None if stored is None else (value_of(stored), timestamp_of(stored))


def entries(found: Iterator[tuple[bytes, bytes]]) -> dict[bytes, tuple[bytes, int]]:
    return {key: (value_of(stored), timestamp_of(stored)) for key, stored in found}


def inner_entries(store: VersionedStore) -> int:
    """How many it has inside, without the mark and the floor."""
    found = [key for key, _ in store._inner.range(None, None)]
    return sum(key[:1] in (b"L", b"D", b"V", b"E") for key in found)


# --- what it says ----------------------------------------------------------------------------------------


def test_a_key_has_the_value_that_it_had_then(store: VersionedStore) -> None:
    """A value is valid from its timestamp to the next one; a deletion ends it; before the first there is
    none."""
    put(store, (b"k", b"a", 10), (b"k", b"b", 20), (b"k", None, 30), (b"k", b"c", 40))
    found = {at: seen(store.get_as_of(b"k", at)) for at in (9, 10, 19, 20, 29, 30, 39, 40, 10_000)}
    assert found == {
        9: None,
        10: (b"a", 10),
        19: (b"a", 10),
        20: (b"b", 20),
        29: (b"b", 20),
        30: None,
        39: None,
        40: (b"c", 40),
        10_000: (b"c", 40),
    }
    assert seen(store.get(b"k")) == (b"c", 40)


def test_a_late_record_goes_where_it_belongs(store: VersionedStore) -> None:
    """KIP-889: by its timestamp; the latest value stays."""
    put(store, (b"k", b"a", 10), (b"k", b"d", 40))
    put(store, (b"k", b"b", 20))
    put(store, (b"k", None, 30))
    assert [seen(store.get_as_of(b"k", at)) for at in (15, 25, 35, 45)] == [
        (b"a", 10),
        (b"b", 20),
        None,
        (b"d", 40),
    ]
    assert seen(store.get(b"k")) == (b"d", 40)


def test_a_record_of_the_same_time_replaces(store: VersionedStore) -> None:
    """Among the earlier versions as at the end; in one batch as in several."""
    put(store, (b"k", b"a", 10), (b"k", b"b", 20), (b"k", b"B", 20))
    put(store, (b"k", b"A", 10))
    assert [seen(store.get_as_of(b"k", at)) for at in (10, 20)] == [(b"A", 10), (b"B", 20)]
    put(store, (b"k", None, 20))
    assert store.get(b"k") is None
    assert seen(store.get_as_of(b"k", 19)) == (b"A", 10)


def test_a_deletion_of_what_is_not_there_counts_for_late_records(store: VersionedStore) -> None:
    """A value that is told later, and is older, ended when it was deleted."""
    put(store, (b"k", None, 20))
    put(store, (b"k", b"a", 10))
    assert store.get(b"k") is None
    assert seen(store.get_as_of(b"k", 15)) == (b"a", 10)
    assert store.get_as_of(b"k", 20) is None


class FullDisk(MemoryStore):
    """A store that cannot be written to while it is full."""

    is_full = False

    def apply(self, *arguments: Any, **options: Any) -> None:
        if self.is_full:
            raise ProcessorStateException("no space left")
        super().apply(*arguments, **options)


def test_a_batch_that_was_not_written_counts_for_nothing() -> None:
    """It changes neither keys nor horizon, and what it would have forgotten is forgotten when it is
    written."""
    inner = FullDisk("prices", TASK)
    store = VersionedStore(inner, HISTORY)
    put(store, (b"k", b"a", 10), (b"k", b"b", 20))
    later = ((b"k", b"c", 500), (b"l", b"a", 500))
    inner.is_full = True
    with pytest.raises(ProcessorStateException):
        put(store, *later)
    assert (store.approximate_num_entries(), store.earliest_ms) == (1, 20 - HISTORY)
    assert seen(store.get_as_of(b"k", 15)) == (b"a", 10)
    inner.is_full = False
    put(store, *later)
    assert (store.approximate_num_entries(), store.earliest_ms) == (2, 400)
    assert inner_entries(store) == 4, "two that are latest, and one that is kept, with when it ends"


def test_what_is_before_the_history_cannot_be_asked_for(store: VersionedStore) -> None:
    """The message says how far it goes back; the horizon itself can be read."""
    put(store, (b"k", b"a", 10), (b"x", b"b", 1_000))
    assert store.earliest_ms == 1_000 - HISTORY
    assert seen(store.get_as_of(b"k", 900)) == (b"a", 10)
    with pytest.raises(ValueError, match=r"as of 1970-01-01T00:00:00.899.*history.*back to .*00\.900"):
        store.get_as_of(b"k", 899)
    with pytest.raises(ValueError, match="history"):
        store.range_as_of(None, None, 899)


def test_what_was_valid_only_before_the_history_is_forgotten(store: VersionedStore) -> None:
    """The write that moves the horizon removes it; what is still valid there is kept, however old."""
    for at in range(0, 1000, 10):
        put(store, (b"k", b"%d" % at, at), (b"old", b"1", 0))
    kept = inner_entries(store)
    assert kept < 2 * (HISTORY // 10) + 10
    assert seen(store.get_as_of(b"k", 890)) == (b"890", 890)
    assert seen(store.get_as_of(b"old", 890)) == (b"1", 0)
    put(store, (b"new", b"1", 100_000))
    assert inner_entries(store) == 3
    assert seen(store.get(b"k")) == (b"990", 990)


def test_a_forgotten_deletion_leaves_nothing(store: VersionedStore) -> None:
    """Keys that come and go do not fill the disk."""
    put(store, *((b"k%d" % each, b"v", 1) for each in range(50)))
    put(store, *((b"k%d" % each, None, 2) for each in range(50)))
    put(store, (b"new", b"1", 10_000))
    assert inner_entries(store) == 1
    assert store.approximate_num_entries() == 1


def test_much_is_forgotten_over_several_writes(
    store: VersionedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One write does not take long because the time has leapt."""
    monkeypatch.setattr("millstream.stores.versioned._MOST_AT_ONCE", 10)
    for at in range(40):
        put(store, (b"k", b"v", at))
    put(store, (b"x", b"v", 10_000))
    first = inner_entries(store)
    for _ in range(5):
        put(store, (b"x", b"v", 10_000))
    assert inner_entries(store) < first
    assert inner_entries(store) == 2
    assert store.versions(b"k")[0].timestamp == 39


def test_one_record_of_the_far_future_does_not_stop_the_table(store: VersionedStore) -> None:
    """Kafka drops everything that comes after it; here only the history is gone."""
    put(store, (b"x", b"v", 2**62))
    put(store, (b"k", b"a", 10))
    put(store, (b"k", b"b", 20))
    assert seen(store.get(b"k")) == (b"b", 20)
    assert seen(store.get_as_of(b"k", 2**62)) == (b"b", 20)
    put(store, (b"k", b"a", 15))
    assert seen(store.get(b"k")) == (b"b", 20)


def test_versions_of_a_key_come_newest_first(store: VersionedStore) -> None:
    """Each has the time until which it was valid; a deletion ends one and is none."""
    put(store, (b"k", b"a", 10), (b"k", b"b", 20), (b"k", None, 30), (b"k", b"c", 40), (b"kk", b"x", 15))
    all_of = [(value_of(each.stored), each.timestamp, each.valid_to) for each in store.versions(b"k")]
    assert all_of == [(b"c", 40, None), (b"b", 20, 30), (b"a", 10, 20)]
    assert [each.timestamp for each in store.versions(b"k", 15, 25)] == [20, 10]
    assert [each.timestamp for each in store.versions(b"k", 20, 39)] == [20]
    assert [each.timestamp for each in store.versions(b"k", 30, 39)] == []
    assert [each.timestamp for each in store.versions(b"k", 45)] == [40]
    assert store.versions(b"none") == []


def test_a_version_says_until_when_it_was_valid(store: VersionedStore) -> None:
    """None: it still is."""
    put(store, (b"k", b"a", 10), (b"k", b"b", 20))
    for at, valid_to in ((10, 20), (20, None), (None, None)):
        version = store.version(b"k", at)
        assert version is not None
        assert version.valid_to == valid_to
    assert store.version(b"none") is None


@pytest.mark.parametrize("reverse", [False, True])
def test_a_range_as_of_a_time_is_in_key_order(store: VersionedStore, reverse: bool) -> None:
    """Keys may have any bytes; ends are open or closed."""
    keys = sorted([b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"a\0b", b"ab", b"b", b"\xff", b"\xff" * 12])
    put(store, *((key, b"1", 10) for key in keys))
    put(store, *((key, b"2", 20) for key in keys[::2]))
    put(store, *((key, None, 30) for key in keys[::3]))
    for start in (None, *keys):
        for end in (None, *keys):
            for inclusive in (True, False):
                wanted = [
                    key
                    for key in keys
                    if (start is None or key >= start)
                    and (end is None or key < end or (inclusive and key == end))
                ]
                if reverse:
                    wanted.reverse()
                options: Any = {"reverse": reverse, "end_inclusive": inclusive}
                assert [key for key, _ in store.range_as_of(start, end, 15, **options)] == wanted
                alive = [key for key in wanted if key not in keys[::3]]
                assert [key for key, _ in store.range(start, end, **options)] == alive


def test_an_iterator_is_a_snapshot(store: VersionedStore) -> None:
    """This holds for the latest values and as of a time, whatever is written or forgotten meanwhile."""
    put(store, *((b"k%03d" % each, b"old", 10) for each in range(100)))
    latest, then = store.range(None, None), store.range_as_of(None, None, 10)
    next(latest), next(then)
    put(store, *((b"k%03d" % each, b"new", 10_000) for each in range(100)))
    assert {value for value, _ in entries(latest).values()} == {b"old"}
    assert {value for value, _ in entries(then).values()} == {b"old"}


def test_a_closed_iterator_ends_and_a_closed_store_raises(store: VersionedStore) -> None:
    """Other stores do the same."""
    put(store, (b"a", b"1", 1), (b"b", b"1", 1))
    closed, open_one = store.range(None, None), store.range_as_of(None, None, 1)
    closed.close()  # type: ignore[attr-defined]
    assert list(closed) == []
    store.close()
    assert not store.is_open
    reads: list[Callable[[], Any]] = [
        lambda: next(open_one),
        lambda: store.get(b"a"),
        lambda: store.multi_get([b"a"]),
        lambda: store.get_as_of(b"a", 1),
        lambda: store.versions(b"a"),
        lambda: store.range(None, None),
        lambda: store.range_as_of(None, None, 1),
        lambda: store.position,
        store.approximate_num_entries,
        lambda: put(store, (b"a", b"1", 1)),
    ]
    for read in reads:
        with pytest.raises(ClosedStoreError):
            read()


def test_no_iterator_stays_open(tmp_path: Path) -> None:
    """Reads and writes close what they open inside."""
    store = VersionedStore(MemoryStore("prices", TASK, max_iterators=1), HISTORY)
    for at in (10, 30, 20, 500, 400):
        put(store, (b"k", b"v", at))
        store.versions(b"k")
        store.get_as_of(b"k", at if at > 400 else 500)
    held = store.range(None, None)
    with pytest.raises(IllegalStateException):
        store.range_as_of(None, None, 500)
    assert len(list(held)) == 1


# --- what stays ------------------------------------------------------------------------------------------


@pytest.mark.disk
def test_history_survives_a_restart(tmp_path: Path) -> None:
    """The store on disk keeps its position, its time and its number of entries."""

    def opened(history_ms: int) -> VersionedStore:
        return VersionedStore(RocksDBStore("prices", TASK, tmp_path / "prices"), history_ms)

    store = opened(HISTORY)
    store.apply([(b"k", b"a", 900), (b"k", b"b", 950), (b"x", b"1", 1000)], 7)
    store.close()
    store = opened(HISTORY)
    assert (store.position, store.approximate_num_entries()) == (7, 2)
    assert seen(store.get_as_of(b"k", 949)) == (b"a", 900)
    assert store.earliest_ms == 900
    store.close()
    store = opened(1_000_000)
    with pytest.raises(ValueError, match="history"):
        store.get_as_of(b"k", 899)  # longer now, but what is forgotten does not come back
    store.close()
    store = opened(10)
    assert store.earliest_ms == 990
    assert seen(store.get_as_of(b"k", 990)) == (b"b", 950)
    store.close()


@pytest.mark.disk
def test_a_store_without_history_is_wiped_when_it_gets_one(tmp_path: Path) -> None:
    """What is on disk has another layout; it is restored from its changelog."""
    plain = RocksDBStore("prices", TASK, tmp_path / "prices")
    plain.apply([(b"k", b"a", 1)], 1)
    plain.close()
    store = VersionedStore(RocksDBStore("prices", TASK, tmp_path / "prices"), HISTORY)
    assert store.position is None
    assert inner_entries(store) == 0
    store.close()


@pytest.mark.disk
def test_the_topology_says_whether_a_store_has_a_history(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is opened so; what was kept in the other way is wiped, with a warning, and restored."""
    with_history, without = Store("prices", history_ms=HISTORY), Store("prices")
    for declared, kind in (
        (with_history, VersionedStore),
        (without, RocksDBStore),
        (with_history, VersionedStore),
    ):
        opened: Any = opening.open_store(declared, TASK, tmp_path / "prices")
        assert type(opened) is kind
        assert opened.position is None
        assert list(opened.range(None, None)) == []
        put(opened, (b"k", b"a", 1))
        opened.close()
        again: Any = opening.open_store(declared, TASK, tmp_path / "prices")
        assert seen(again.get(b"k")) == (b"a", 1)
        again.close()
    assert caplog.text.count("wiped") == 2
    assert isinstance(opening.open_store(with_history, TASK, None), VersionedStore)


def test_a_wiped_store_is_a_new_one(store: VersionedStore) -> None:
    """Entries, position, time: all gone; and it goes on."""
    put(store, (b"k", b"a", 1_000))
    store.wipe()
    assert (store.position, store.earliest_ms, store.approximate_num_entries()) == (None, None, 0)
    put(store, (b"k", b"b", 10), (b"k", b"c", 20))
    assert seen(store.get_as_of(b"k", 15)) == (b"b", 10)


def test_an_empty_batch_moves_the_position_alone(store: VersionedStore) -> None:
    """Control records of a changelog have offsets, too; and there is still any time to ask for."""
    store.apply([], 5)
    assert store.position == 5
    assert store.earliest_ms is None
    assert store.get_as_of(b"k", -(10**30)) is None
    assert list(store.range_as_of(None, None, 10**30)) == []


def test_times_may_be_before_1970_and_at_the_end_of_all(open_store: Open) -> None:
    """All that Kafka's 8 bytes can say."""
    store = open_store(history_ms=0)
    put(store, (b"k", b"a", -(2**63)), (b"k", b"b", -1))
    assert seen(store.get_as_of(b"k", -1)) == (b"b", -1)
    put(store, (b"k", b"c", 2**63 - 1), (b"k", None, 2**63 - 1))
    assert store.get(b"k") is None
    put(store, (b"k", b"d", 2**63 - 1))
    assert seen(store.get_as_of(b"k", 10**30)) == (b"d", 2**63 - 1)


def test_a_history_is_not_negative() -> None:
    """0 is allowed: only what is valid now."""
    with pytest.raises(ValueError, match="history"):
        VersionedStore(MemoryStore("prices", TASK), -1)


# --- against a model -------------------------------------------------------------------------------------


@dataclass
class Model:
    """The same in plain Python: all versions by key and time; what is forgotten is worked out anew."""

    history: int
    newest: int | None = None
    versions: dict[bytes, dict[int, bytes | None]] = field(default_factory=dict)

    def apply(self, batch: list[tuple[bytes, bytes | None, int]]) -> None:
        for key, value, at in batch:
            self.versions.setdefault(key, {})[at] = value
            self.newest = at if self.newest is None else max(self.newest, at)
        for key, of_key in list(self.versions.items()):
            times = sorted(of_key)
            for at, valid_to in zip(times, [*times[1:], None], strict=True):
                gone = at if valid_to is None and of_key[at] is None else valid_to
                if gone is not None and gone <= self.horizon:
                    del of_key[at]
            if not of_key:
                del self.versions[key]

    @property
    def horizon(self) -> int:
        return -(2**63) if self.newest is None else self.newest - self.history

    def as_of(self, at: int | None) -> dict[bytes, tuple[bytes, int]]:
        found = {}
        for key, of_key in self.versions.items():
            newest = max((each for each in of_key if at is None or each <= at), default=None)
            value = None if newest is None else of_key[newest]
            if newest is not None and value is not None:
                found[key] = (value, newest)
        return found


KEYS = [b"", b"\0", b"a", b"a\0", b"ab", b"b"]


def compare(store: VersionedStore, model: Model, times: list[int]) -> None:
    assert entries(store.range(None, None)) == model.as_of(None)
    assert {key: seen(store.get(key)) for key in KEYS} == {key: model.as_of(None).get(key) for key in KEYS}
    assert [seen(each) for each in store.multi_get(KEYS)] == [model.as_of(None).get(key) for key in KEYS]
    assert store.approximate_num_entries() == len(model.as_of(None))
    for at in times:
        if at < model.horizon:
            with pytest.raises(ValueError, match="history"):
                store.get_as_of(b"a", at)
            continue
        wanted = model.as_of(at)
        assert entries(store.range_as_of(None, None, at)) == wanted, at
        assert list(entries(store.range_as_of(None, None, at))) == sorted(wanted)
        assert list(entries(store.range_as_of(None, None, at, reverse=True))) == sorted(wanted, reverse=True)
        for key in KEYS:
            assert seen(store.get_as_of(key, at)) == wanted.get(key), (key, at)


records = st.lists(
    st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.binary(max_size=2)), st.integers(0, 60)),
    max_size=6,
)


@settings(max_examples=examples(300), deadline=None)
@given(batches=st.lists(records, max_size=8), history=st.sampled_from([0, 5, 20, 1000]))
def test_it_is_what_a_simple_model_says(
    batches: list[list[tuple[bytes, bytes | None, int]]], history: int
) -> None:
    """Any records in any order and any batches: each time has the values that the model has."""
    store, model = VersionedStore(MemoryStore("prices", TASK), history), Model(history)
    for number, batch in enumerate(batches):
        store.apply(batch, number + 1)
        model.apply(batch)
        compare(store, model, [0, 7, 30, 59, 60])


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
@pytest.mark.disk
def test_on_disk_it_is_what_the_model_says_after_each_restart(tmp_path: Path, seed: int) -> None:
    """The same with RocksDB, which is closed and opened again now and then."""
    chance = random.Random(seed)
    path = tmp_path / f"store-{seed}-{time.monotonic_ns()}"
    history = chance.choice([0, 30, 200])
    model = Model(history)
    store = VersionedStore(RocksDBStore("prices", TASK, path), history)
    try:
        now = 0
        for number in range(30):
            now += chance.randint(0, 20)
            batch = [
                (chance.choice(KEYS), chance.choice([None, b"x", b"y"]), max(0, now - chance.randint(0, 60)))
                for _ in range(chance.randint(0, 8))
            ]
            store.apply(batch, number + 1)
            model.apply(batch)
            if chance.random() < 0.2:
                store.close()
                store = VersionedStore(RocksDBStore("prices", TASK, path), history)
                assert store.position == number + 1
            compare(store, model, [max(0, now - 250), max(0, now - 30), now])
    finally:
        store.close()


@pytest.mark.disk
def test_readers_see_each_batch_whole_while_it_is_written(open_store: Open) -> None:
    """A batch gives every key the same value: each scan, of any time, has one value for all of them."""
    store = open_store(history_ms=1_000_000)
    keys = [b"k%02d" % each for each in range(40)]
    store.apply([(key, b"0", 0) for key in keys], 1)
    wrong: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for at in (0, 50, 10**6):
                values = {value for value, _ in entries(store.range_as_of(None, None, at)).values()}
                if len(values) != 1:
                    wrong.append((at, values))
            if seen(store.get_as_of(keys[3], 0)) != (b"0", 0):
                wrong.append("as of 0")

    readers = [threading.Thread(target=read, name=f"reader-{each}", daemon=True) for each in range(3)]
    for reader in readers:
        reader.start()
    for number in range(1, 150):
        store.apply([(key, b"%d" % number, number) for key in keys], number + 1)
    done.set()
    for reader in readers:
        reader.join(10)
    assert wrong == []


def test_a_deletion_that_is_newer_is_not_forgotten_with_an_older_one(store: VersionedStore) -> None:
    """Both are stored; a late record between them is still one of the past."""
    put(store, (b"k", None, 10))
    put(store, (b"k", None, 60))
    put(store, (b"x", b"1", 120))
    put(store, (b"k", b"late", 30))
    assert store.get(b"k") is None
    assert seen(store.get_as_of(b"k", 59)) == (b"late", 30)


class Meddling(MemoryStore):
    """Does something at the worst moment: before it looks for a version, and once a batch is in."""

    before_looking: Callable[[], Any] | None = None
    after_writing: Callable[[], Any] | None = None

    def range(self, start: bytes | None, end: bytes | None, **options: Any) -> Any:
        meddle, self.before_looking = self.before_looking, None
        if start is not None and start.startswith(b"V") and meddle is not None:
            meddle()
        return super().range(start, end, **options)

    def apply(self, *batch: Any, **options: Any) -> None:
        super().apply(*batch, **options)
        meddle, self.after_writing = self.after_writing, None
        if meddle is not None:
            meddle()


def test_what_is_forgotten_under_a_read_is_told() -> None:
    """It was within the history when the read began, and is gone before it is found: no wrong None."""
    inner = Meddling("prices", TASK)
    store = VersionedStore(inner, HISTORY)
    put(store, (b"k", b"a", 10), (b"k", b"b", 20))
    inner.before_looking = lambda: put(store, (b"x", b"1", 10_000))
    with pytest.raises(ValueError, match="history"):
        store.get_as_of(b"k", 15)


def test_a_reader_that_sees_a_new_batch_knows_what_it_has_forgotten() -> None:
    """Between the write and the end of `apply`, too."""
    inner = Meddling("prices", TASK)
    store = VersionedStore(inner, HISTORY)
    put(store, (b"k", b"a", 10), (b"k", b"b", 20))
    found: list[Any] = []

    def read() -> None:
        try:
            found.append(seen(store.get_as_of(b"k", 15)))
        except ValueError:
            found.append("before the history")

    inner.after_writing = read
    put(store, (b"x", b"1", 10_000))
    assert found == ["before the history"]


class Counting(MemoryStore):
    """Counts what is read in it."""

    reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)

    def multi_get(self, keys: Any) -> Any:
        self.reads += len(keys)
        return super().multi_get(keys)

    def range(self, *bounds: Any, **options: Any) -> Any:
        self.reads += 1_000
        return super().range(*bounds, **options)

    def scan(self, *bounds: Any, **options: Any) -> Any:
        self.reads += 1_000
        return super().scan(*bounds, **options)


def test_the_latest_value_is_one_read_however_long_the_past_is() -> None:
    """`get` costs the same as without a history; reading a version takes a lookup and a scan."""
    inner = Counting("prices", TASK)
    store = VersionedStore(inner, 1_000_000)
    for at in range(500):
        put(store, (b"k", b"%d" % at, at), (b"a\0b", b"1", at))
    inner.reads = 0
    assert seen(store.get(b"k")) == (b"499", 499)
    assert seen(store.get(b"a\0b")) == (b"1", 499)
    assert store.multi_get([b"k", b"?"])[1] is None
    assert inner.reads == 4
    inner.reads = 0
    assert seen(store.get_as_of(b"k", 250)) == (b"250", 250)
    assert inner.reads == 1_001
    inner.reads = 0
    assert len(list(store.range(None, None))) == 2
    assert inner.reads == 1_000
