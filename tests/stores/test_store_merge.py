"""Several sorted reads as one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from millstream.stores.merge import Read, merged, one_after_other

Entries = list[tuple[bytes, bytes]]


def reader(entries: Entries) -> Read:
    """A read of a list. Like those of the stores, it is not asked again once it has given too few."""
    rest: Iterator[tuple[bytes, bytes]] = iter(entries)
    ended = False

    def read(count: int) -> Entries:
        nonlocal ended
        assert not ended, "it was read after its end"
        found = list(islice(rest, count))
        ended = len(found) < count
        return found

    return read


def all_of(read: Read, counts: list[int]) -> Entries:
    """Everything, in portions of those sizes, the last one again and again."""
    found: Entries = []
    for count in [*counts, *[7] * 1000]:
        more = read(count)
        found += more
        assert len(more) <= count
        if len(more) < count:
            return found
    raise AssertionError("it has no end")


RUNS = st.lists(st.lists(st.binary(max_size=3), max_size=20), max_size=4)
COUNTS = st.lists(st.integers(1, 9), max_size=5)


@given(RUNS, COUNTS, st.booleans())
def test_merged_reads_are_one_sorted_read(runs: list[list[bytes]], counts: list[int], reverse: bool) -> None:
    """The order is that of the keys without their prefix, for portions of any size."""
    sources = [
        [(bytes([number]) + key, b"v") for key in sorted(set(run), reverse=reverse)]
        for number, run in enumerate(runs)
    ]
    found = all_of(merged([reader(source) for source in sources], 1, reverse=reverse), counts)
    assert sorted(found) == sorted(entry for source in sources for entry in source)
    keys = [key[1:] for key, _ in found]
    assert keys == sorted(keys, reverse=reverse)


@given(RUNS, COUNTS)
def test_reads_one_after_the_other(runs: list[list[bytes]], counts: list[int]) -> None:
    """Each to its end, and each in its own order."""
    sources = [[(key, b"v") for key in run] for run in runs]
    found = all_of(one_after_other([reader(source) for source in sources]), counts)
    assert found == [entry for source in sources for entry in source]
