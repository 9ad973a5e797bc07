"""Writes to a store until it is killed: `python crash_writer.py <path>`."""

from __future__ import annotations

import sys
from pathlib import Path

from millstream.model import TaskId
from millstream.stores.rocksdb_store import RocksDBStore

TASK = TaskId(0, 0)


def entry(offset: int) -> tuple[bytes, bytes | None, int]:
    """The changelog record at an offset: few keys, written again and again, some deleted."""
    key = b"key-%d" % (offset * 7919 % 997)
    return key, None if offset % 13 == 0 else b"value-%d" % offset, offset


def content(position: int) -> dict[bytes, bytes]:
    """What a store holds that is complete up to a position."""
    found: dict[bytes, bytes] = {}
    for offset in range(position):
        key, value, timestamp = entry(offset)
        if value is None:
            found.pop(key, None)
        else:
            found[key] = timestamp.to_bytes(8, "big") + value
    return found


def main() -> None:
    """Go on from the saved position; print each position once it is applied."""
    store = RocksDBStore("counts", TASK, Path(sys.argv[1]))
    position = store.position or 0
    size = 1
    while True:
        store.apply([entry(offset) for offset in range(position, position + size)], position + size)
        position += size
        size = size % 300 + 7
        print(position, flush=True)


if __name__ == "__main__":
    main()
