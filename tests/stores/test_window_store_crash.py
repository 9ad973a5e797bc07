"""A process that is killed in the middle of its writes leaves a window store that is whole."""

from __future__ import annotations

import random
from pathlib import Path

import crash_window_writer
import pytest
from killing import killed_after_a_while


@pytest.mark.cluster
def test_after_kill_9_the_windows_equal_their_changelog_at_its_position(tmp_path: Path) -> None:
    """Killed eight times at random moments, while segments are dropped: windows, position and time always
    belong together."""
    chance = random.Random(11)
    for _ in range(8):
        at_least = killed_after_a_while(crash_window_writer.__file__, tmp_path, chance)
        store = crash_window_writer.open_one(tmp_path)
        position = store.position
        found = dict(store.fetch(None, None, None, None))
        kept = len(list(store._inner.range(None, None)))
        store.close()
        assert position is not None
        assert position >= at_least
        expected = crash_window_writer.content(position)
        assert found == expected
        assert kept < len(expected) * 2 + 4, "what was dropped is gone"
