"""What other stores are laid out in: ranges that go with a write, and several ranges as of one moment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import examples

from millstream.model import TaskId
from millstream.stores import memory_store
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.store_base import ClosedStoreError, KeyRange, timestamp_of

TASK = TaskId(0, 1)


@pytest.fixture(params=["memory", "rocksdb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any = (
        MemoryStore("s", TASK) if request.param == "memory" else RocksDBStore("s", TASK, tmp_path / "s")
    )
    yield made
    made.close()


def keys(entries: Any) -> list[bytes]:
    return [key for key, _ in entries]


def test_a_range_goes_with_the_write_that_replaces_it(store: Any) -> None:
    """Its start is included, its end is not; what the same batch puts there stays."""
    store.apply([(key, b"1", 1) for key in (b"a", b"b", b"c", b"d")], 1)
    before = store.range(None, None)
    store.apply([(b"b", b"2", 2), (b"e", b"2", 2)], 2, drop=(b"a", b"c"))
    assert [(key, value[8:]) for key, value in store.range(None, None)] == [
        (b"b", b"2"),
        (b"c", b"1"),
        (b"d", b"1"),
        (b"e", b"2"),
    ]
    assert store.position == 2
    assert keys(before) == [b"a", b"b", b"c", b"d"], "a snapshot keeps it"
    store.apply([], 3, drop=(b"", b"\xff"))
    assert keys(store.range(None, None)) == []


def test_several_ranges_come_one_after_the_other_or_merged(store: Any) -> None:
    """The order is by the whole key, or by the bytes after its prefix; forwards and backwards."""
    store.apply([(bytes([part]) + key, b"", 1) for part in (0, 1, 2) for key in (b"a", b"b", b"c")], 1)

    def scan(ranges: list[KeyRange], **options: Any) -> list[bytes]:
        return keys(store.scan(lambda _: ranges, mark=b"mark", **options))

    ranges = [(b"\0b", b"\1"), (b"\1", b"\1b"), (b"\2", b"\2c")]
    whole = [b"\0b", b"\0c", b"\1a", b"\2a", b"\2b"]
    assert scan(ranges) == whole
    assert scan(ranges, reverse=True) == whole[::-1]
    assert scan(ranges, ignored=1) == [b"\1a", b"\2a", b"\0b", b"\2b", b"\0c"]
    assert scan(ranges, ignored=1, reverse=True) == [b"\0c", b"\2b", b"\0b", b"\2a", b"\1a"]
    assert scan([]) == scan([], ignored=1) == scan([(b"x", b"y")]) == []


def test_a_scan_is_of_one_moment_though_a_write_comes_between(store: Any) -> None:
    """The ranges follow from the mark, and the mark and every range are as of the same write."""
    told: list[bytes | None] = []

    def write(number: int) -> None:
        store.apply([(key, b"", number) for key in (b"mark", b"\0a", b"\1a")], number)

    def ranges(marked: bytes | None) -> list[KeyRange]:
        told.append(marked)
        if len(told) < 4:
            write(len(told) + 1)
        return [(b"\0", b"\1"), (b"\1", b"\2")]

    write(1)
    stamps = {timestamp_of(stored) for _, stored in store.scan(ranges, mark=b"mark", ignored=1)}
    assert told[-1] is not None
    assert stamps == {timestamp_of(told[-1])}


def test_a_closed_store_is_not_scanned(store: Any) -> None:
    """The ranges are not even asked for."""
    store.close()
    with pytest.raises(ClosedStoreError):
        store.scan(lambda _: pytest.fail("it is closed"), mark=b"mark")
    with pytest.raises(ClosedStoreError):
        store.apply([], 1, drop=(b"a", b"b"))


@settings(deadline=None, max_examples=examples(200))
@given(
    st.sets(st.binary(max_size=2), max_size=12),
    st.lists(st.tuples(st.binary(max_size=2), st.binary(max_size=2)), max_size=3),
)
def test_ranges_that_are_dropped_in_memory_are_those(present: set[bytes], drops: list[KeyRange]) -> None:
    """Wherever they begin and end among the map's chunks, which are small here."""
    size, memory_store._CHUNK = memory_store._CHUNK, 2
    try:
        store = MemoryStore("s", TASK)
        store.apply([(key, b"v", 1) for key in present], 1)
        left = set(present)
        for start, end in drops:
            store.apply([], 2, drop=(start, end))
            left -= {key for key in left if start <= key < end}
        assert keys(store.range(None, None)) == sorted(left)
        assert store.approximate_num_entries() == len(left)
        assert [store.get(key) is not None for key in sorted(present)] == [
            key in left for key in sorted(present)
        ]
    finally:
        memory_store._CHUNK = size
