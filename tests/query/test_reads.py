"""The read as a value, and the merging of partitions."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import StoreKind, TaskId
from millstream.query.merged import in_one_order, order_of
from millstream.query.read import Read, of_prefix
from millstream.query.reading import joined, of_part
from millstream.stores.memory_store import MemoryStore
from millstream.stores.store_base import ClosedStoreError

KEYS = st.binary(min_size=1, max_size=3)


def stores_of(parts: list[dict[bytes, bytes]]) -> list[MemoryStore]:
    stores = []
    for number, part in enumerate(parts):
        store = MemoryStore("counts", TaskId(0, number))
        store.apply([(key, value, number) for key, value in part.items()], len(part))
        stores.append(store)
    return stores


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("sizes", [[0], [200], [150, 0], [200, 190], [3, 90, 170], [60, 70, 80, 300]])
def test_partitions_are_merged_into_one_order(sizes: list[int], reverse: bool) -> None:
    """Partitions may have any keys. If several have the same key, that of the first partition comes first."""
    random = Random(sum(sizes))
    parts = [{random.randbytes(2): random.randbytes(1) for _ in range(size)} for size in sizes]
    shared = [random.randbytes(2) for _ in range(20)]
    for part in parts:
        part.update(dict.fromkeys(random.sample(shared, 10), random.randbytes(1)))
    read = Read("counts", reverse=reverse)
    entries = joined(read, [of_part(store, read) for store in stores_of(parts)])
    found = [(key, stored[8:]) for key, stored in entries]
    rows = [(key, value) for part in parts for key, value in part.items()]
    assert found == sorted(rows, key=lambda row: row[0], reverse=reverse)


@given(st.lists(KEYS, max_size=10), KEYS)
def test_a_prefix_is_a_range(keys: list[bytes], prefix: bytes) -> None:
    """This includes a prefix of bytes that have no successor."""
    keys = [*keys, b"\xff", b"\xff\xff", b"\xff\xfe", prefix]
    for each in (prefix, b"\xff", b"\xff\xff", b"a", b""):
        following = [each[:-1] + bytes([min(255, byte + 1)]) for byte in each[-1:]]
        every = {*keys, *following, each + b"\0", each + b"\xff"}
        (store,) = stores_of([dict.fromkeys(every, b"")])
        found = [key for key, _ in of_part(store, of_prefix(Read("counts"), each))]
        assert found == sorted(key for key in every if key.startswith(each))


def test_what_waits_in_a_merge_ends_with_a_store() -> None:
    """Nothing is given any more once one of the stores is closed, though it came from another one."""
    stores = stores_of([{b"a": b"1", b"c": b"3"}, {b"b": b"2", b"d": b"4"}])
    entries = in_one_order([store.range(None, None) for store in stores], StoreKind.KEY_VALUE, reverse=False)
    assert next(entries)[0] == b"a"
    blocks = in_one_order([store.range(None, None) for store in stores], StoreKind.KEY_VALUE, reverse=False)
    closed: list[str] = []
    held: list[object] = []
    blocks.report_close(closed, held)
    held += blocks.block()
    assert len(held) > 0
    assert closed == []
    stores[1].close()
    assert held == []
    assert closed == ["counts"]
    for _ in range(2):
        with pytest.raises(ClosedStoreError):
            next(entries)
        with pytest.raises(ClosedStoreError):
            blocks.block()


@pytest.mark.parametrize("reverse", [False, True])
def test_a_long_merge_reads_from_all_partitions_at_a_time(reverse: bool) -> None:
    """So its blocks are much larger than those of one partition, whose keys lie between those of others."""
    stores = stores_of([{b"%06d" % (4 * key + part): b"" for key in range(2_000)} for part in range(4)])
    sources = [store.range(None, None, reverse=reverse) for store in stores]
    merged = in_one_order(sources, StoreKind.KEY_VALUE, reverse=reverse)
    blocks = list(iter(merged.block, []))
    found = [key for block in blocks for key, _ in block]
    assert found == sorted(found, reverse=reverse)
    assert len(found) == len(set(found)) == 8_000
    assert len(blocks) < 14


def test_the_order_of_sessions_is_by_their_ends() -> None:
    """A session store has the same order."""
    order = order_of(StoreKind.SESSION)
    assert order(((b"a", 1, 9), b"")) < order(((b"a", 0, 10), b"")) < order(((b"b", 0, 1), b""))
