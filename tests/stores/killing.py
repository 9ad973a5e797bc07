"""Kills processes that write to a store; for tests of what is on disk then."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import millstream

__all__ = ["killed_after_a_while"]


def killed_after_a_while(program: str, path: Path, chance: random.Random) -> int:
    """Run a program that writes to the store at `path` and prints each position, and kill it at a random
    moment; the last position that it had printed, so that the store is at least there.
    """
    last = 0
    with subprocess.Popen(
        [sys.executable, program, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(millstream.__path__[0]).parent)},
    ) as writer:
        assert writer.stdout is not None
        for _ in range(chance.randrange(1, 120)):
            last = int(writer.stdout.readline())
        writer.kill()
        # What it had printed before it was killed was applied too.
        for line in writer.stdout.read().splitlines():
            last = int(line)
    return last
