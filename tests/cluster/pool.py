"""Client processes that tests hand on to one another.

A client process begins with Python's imports, a JVM and Spark's classes: some ten seconds of a processor,
for a test that then takes two. So a process whose client was closed in good order is kept, with its JVM, and
the next test's client with the same engine runs in it. One that was killed, frozen, or lost its JVM is never
used again, and neither is one whose client did not close.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import IO

__all__ = ["Pool", "start_process"]

APP = Path(__file__).parent / "app.py"

_MOST = 3
"""As many as one test has clients; each holds a JVM of a few hundred megabytes."""


def start_process(errors: IO[bytes], *arguments: str) -> subprocess.Popen[str]:
    """One process of app.py; without arguments it reads from its input whose client it is."""
    return subprocess.Popen(
        [sys.executable, str(APP), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


class Pool:
    """The processes that wait for a client."""

    def __init__(self) -> None:
        self._free: defaultdict[str, list[subprocess.Popen[str]]] = defaultdict(list)

    def take(self, engine: str, errors: IO[bytes]) -> subprocess.Popen[str]:
        """One that has run a client with this engine before, or else a new one."""
        while self._free[engine]:
            process = self._free[engine].pop()
            if process.poll() is None:
                return process
        return start_process(errors)

    def give(self, engine: str, process: subprocess.Popen[str]) -> None:
        """Its client is closed."""
        if len(self._free[engine]) < _MOST:
            self._free[engine].append(process)
        else:
            _end(process)

    def close(self) -> None:
        """End them all."""
        for free in self._free.values():
            while free:
                _end(free.pop())


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
