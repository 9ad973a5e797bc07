"""What Kafka Streams made of windows and records (tests/snapshots/windows, by WindowsAll.java there)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from millstream import SessionWindows, SlidingWindows, TimeWindows
from millstream.topology.windows import Windows

_FILE = Path(__file__).parent.parent / "snapshots" / "windows" / "windows.json"

Update = tuple[str, int, int, str | None, int]
"""Key, start, end, value and timestamp."""


@dataclass(frozen=True)
class Case:
    """Records (key, value, timestamp), and the updates that followed from each."""

    windows: Windows
    records: list[tuple[str, str, int]]
    updates: list[list[Update]]

    def __str__(self) -> str:
        return str(self.windows)


def _windows(kind: str, *numbers: int) -> Windows:
    length, *advance, grace = (timedelta(milliseconds=number) for number in numbers)
    if kind == "time":
        return TimeWindows.of_size_and_grace(length, grace).advance_by(advance[0])
    if kind == "sliding":
        return SlidingWindows.of_time_difference_and_grace(length, grace)
    return SessionWindows.of_inactivity_gap_and_grace(length, grace)


def cases() -> list[Case]:
    """All of them."""
    return [
        Case(
            _windows(*case["windows"]),
            [tuple(record) for record in case["records"]],
            [[tuple(update) for update in updates] for updates in case["updates"]],
        )
        for case in json.loads(_FILE.read_text())
    ]
