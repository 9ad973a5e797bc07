"""Writes to a window store until it is killed: `python crash_window_writer.py <path>`.

Time goes on with the offsets, so that segments come and are dropped all the while.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.model import StoreKind, TaskId
from millstream.stores.keys import window_key
from millstream.stores.opening import open_store
from millstream.stores.segments import SegmentedWindowStore
from millstream.topology.nodes import Store

TASK = TaskId(0, 0)
RETENTION = 120_000
"""Two segments of a minute, and a third that comes and goes."""


def open_one(path: Path) -> SegmentedWindowStore:
    """The store there."""
    declared = Store("windows", kind=StoreKind.WINDOW, window_size_ms=1000, retention_ms=RETENTION)
    store = open_store(declared, TASK, path)
    assert isinstance(store, SegmentedWindowStore)
    return store


def window_of(offset: int) -> tuple[bytes, int]:
    """The window of the record at an offset: now and then it goes back a little, or far too far."""
    late = 90_000 if offset % 17 == 0 else 500_000 if offset % 101 == 0 else 0
    return b"key-%d" % (offset * 7919 % 97), max(0, offset * 50 // 1000 * 1000 - late)


def value_of(offset: int) -> bytes | None:
    """Some are deletions."""
    return None if offset % 13 == 0 else b"value-%d" % offset


def content(position: int) -> dict[tuple[bytes, int], bytes]:
    """What a store holds that is complete up to a position."""
    found: dict[tuple[bytes, int], bytes] = {}
    time = -1
    for offset in range(position):
        window, value = window_of(offset), value_of(offset)
        time = max(time, window[1])
        if value is None:
            found.pop(window, None)
        else:
            found[window] = offset.to_bytes(8, "big") + value
    return {window: value for window, value in found.items() if window[1] > time - RETENTION}


def main() -> None:
    """Go on from the saved position; print each position once it is applied."""
    store = open_one(Path(sys.argv[1]))
    position = store.position or 0
    size = 1
    while True:
        offsets = range(position, position + size)
        records = [(window_key(*window_of(offset)), value_of(offset), offset) for offset in offsets]
        position += size
        store.apply(records, position)
        size = size % 300 + 7
        print(position, flush=True)


if __name__ == "__main__":
    main()
