"""A process that is killed in the middle of its writes leaves a store that is whole."""

from __future__ import annotations

import random
from pathlib import Path

import crash_writer
import pytest
from killing import killed_after_a_while

from millstream.stores.rocksdb_store import RocksDBStore


@pytest.mark.cluster
def test_after_kill_9_the_store_equals_its_changelog_at_its_position(tmp_path: Path) -> None:
    """Killed eight times at random moments: nothing that was applied is lost, and entries and position
    always belong together."""
    chance = random.Random(7)
    for _ in range(8):
        at_least = killed_after_a_while(crash_writer.__file__, tmp_path, chance)
        store = RocksDBStore("counts", crash_writer.TASK, tmp_path)
        position = store.position
        found = dict(store.range(None, None))
        store.close()
        assert position is not None
        assert position >= at_least
        assert found == crash_writer.content(position)
