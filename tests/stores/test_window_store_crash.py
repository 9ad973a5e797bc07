"""A process that is killed in the middle of its writes leaves a window store that is whole."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import crash_window_writer
import pytest

import millstream


@pytest.mark.cluster
def test_after_kill_9_the_windows_equal_their_changelog_at_its_position(tmp_path: Path) -> None:
    """Killed eight times at random moments, while segments are dropped: windows, position and time always
    belong together."""
    chance = random.Random(11)
    at_least = 0
    environment = {**os.environ, "PYTHONPATH": str(Path(millstream.__path__[0]).parent)}
    for _ in range(8):
        with subprocess.Popen(
            [sys.executable, crash_window_writer.__file__, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randrange(1, 120)):
                at_least = int(writer.stdout.readline())
            writer.kill()
            # What it had printed before it was killed was applied too.
            for line in writer.stdout.read().splitlines():
                at_least = int(line)
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
