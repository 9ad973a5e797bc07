"""What the demo shows, as frozen values: made by run.py, drawn by screen.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from millstream import ThreadMetadata

__all__ = ["Check", "Counts", "Progress", "Step", "View"]


@dataclass(frozen=True, slots=True)
class Step:
    """One part of the work. `text` says what is going on, and once the step has ended, its result."""

    name: str
    text: str
    began: float
    ended: float | None = None

    def seconds(self, now: float) -> float:
        return (now if self.ended is None else self.ended) - self.began


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the counting is. `lines` is the number so far, and the final one once `complete`."""

    counted: int = 0
    lines: int = 0
    complete: bool = False
    per_second: float = 0.0
    store_lag: int = 0

    @property
    def lag(self) -> int:
        return max(0, self.lines - self.counted)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a scan of the store found."""

    top: tuple[tuple[str, int], ...] = ()
    words: int = 0
    distinct: int = 0


@dataclass(frozen=True, slots=True)
class View:
    """What is going on now."""

    seconds: float
    steps: tuple[Step, ...]
    client: str
    state: str
    threads: tuple[ThreadMetadata, ...]
    progress: Progress
    counts: Counts


@dataclass(frozen=True, slots=True)
class Check:
    """The final check: what the store says, and where plain Python disagrees.

    Attributes:
        differences: (word, in the store, in plain Python), the largest differences first.
        changed: files that somebody wrote to while they were counted.
    """

    counts: Counts
    differences: tuple[tuple[str, int, int], ...] = ()
    changed: tuple[Path, ...] = ()

    @property
    def good(self) -> bool:
        return not self.differences
