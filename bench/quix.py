"""Where Quix Streams is: in an environment of its own, which is created the first time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.lab import NotMeasured
from millstream.cache import cache_dir

__all__ = ["PROGRAM", "quix_python"]

_QUIX = "quixstreams==3.28.1"
"""Its Avro support needs no extra: the client that it requires brings fastavro."""
PROGRAM = Path(__file__).with_name("quix_streams.py")


def quix_python() -> Path:
    """The Python of an environment with Quix Streams, which is created the first time.

    Raises:
        NotMeasured: it cannot be installed.
    """
    folder = cache_dir("bench", f"{_QUIX.replace('==', '-')}-python-3.{sys.version_info.minor}")
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        return python
    for command in (
        [sys.executable, "-m", "venv", "--clear", folder],
        [python, "-m", "pip", "install", "-q", _QUIX],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise NotMeasured(f"{_QUIX} cannot be installed: {error}") from error
        if done.returncode:
            why = done.stderr.strip().splitlines()
            raise NotMeasured(f"{_QUIX} cannot be installed: {why[-1] if why else done.returncode}")
    ready.touch()
    return python
