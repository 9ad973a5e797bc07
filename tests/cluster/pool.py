"""Client processes that tests hand on to one another.

A client process begins with Python's imports, a JVM and Spark's classes: some ten seconds of a processor,
for a test that then takes two. So a process whose client was closed in good order is kept, with its JVM, and
the next test's client runs in it. One that was killed, frozen, or lost its JVM is never used again, and
neither is one whose client did not close.
"""

from __future__ import annotations

import os
import subprocess
import sys
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
        self._free: list[subprocess.Popen[str]] = []

    def take(self, errors: IO[bytes]) -> subprocess.Popen[str]:
        """One that has run a client before, or else a new one."""
        while self._free:
            process = self._free.pop()
            if process.poll() is None:
                return process
        return start_process(errors)

    def give(self, process: subprocess.Popen[str]) -> None:
        """Its client is closed."""
        if len(self._free) < _MOST:
            self._free.append(process)
        else:
            _end(process)

    def close(self) -> None:
        """End them all."""
        while self._free:
            _end(self._free.pop())


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
