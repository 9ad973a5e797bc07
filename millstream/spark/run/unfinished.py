"""What the micro-batch was reading that a query left unfinished, by its checkpoint on this machine's disk.

The JVM cannot be asked when it has ended. It writes what a micro-batch will read before it reads it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from millstream.locations import scheme_of
from millstream.small_files import read_text

__all__ = ["Unfinished", "unfinished"]


class Unfinished(NamedTuple):
    """Its number, and the offsets before and after it, as Spark writes them."""

    batch: int
    start: str
    end: str


def unfinished(checkpoint: str) -> Unfinished | None:
    """The micro-batch that was planned and not finished; None: there is none, or the files do not say."""
    if scheme_of(checkpoint):
        return None
    root = Path(checkpoint)
    try:
        batch = max(_numbers(root / "offsets"), default=-1)
        if batch < 0 or batch in _numbers(root / "commits"):
            return None
        end = _offsets(root / "offsets" / str(batch))
        if batch > 0:
            start = _offsets(root / "offsets" / str(batch - 1))
        else:
            first = sorted(root.glob("sources/*/0"), key=lambda file: int(file.parent.name))
            start = "\n".join(_offsets(file) for file in first)
    except (OSError, ValueError):
        return None
    return Unfinished(batch, start, end)


def _numbers(log: Path) -> set[int]:
    return {int(file.name) for file in log.iterdir() if file.name.isdecimal()} if log.is_dir() else set()


def _offsets(file: Path) -> str:
    """Its lines with JSON, but for the one with the settings of the batch."""
    lines = [line for line in (read_text(file) or "").splitlines() if line.startswith("{")]
    return "\n".join(line for line in lines if "batchWatermarkMs" not in json.loads(line))
