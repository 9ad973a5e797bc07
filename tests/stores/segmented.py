"""Window and session stores for tests: opening one of a kind, and what they hold, in a plain dict."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millstream.model import StoreKind, TaskId
from millstream.stores.keys import session_key, window_key
from millstream.stores.opening import open_store
from millstream.topology.nodes import Store

__all__ = ["MINUTE", "TASK", "Model", "open_segmented", "record", "reference_fetch", "reference_find"]

TASK = TaskId(1, 3)
MINUTE = 60_000

Record = tuple[bytes, bytes | None, int]
Times = tuple[int, ...]


def open_segmented(
    kind: StoreKind,
    path: Path | None,
    retention_ms: int = 10 * MINUTE,
    *,
    duplicates: bool = False,
    **options: Any,
) -> Any:
    """A store of ten minutes (or of `retention_ms`), on disk if there is a path."""
    declared = Store(
        "windows", kind=kind, window_size_ms=MINUTE, retention_ms=retention_ms, duplicates=duplicates
    )
    return open_store(declared, TASK, path, **options)


def record(key: bytes, *times: int, value: bytes | None = b"v", at: int = 5) -> Record:
    """A changelog record of a window (one time: its start) or of a session (two: start and end)."""
    return (window_key(key, *times) if len(times) == 1 else session_key(key, *times)), value, at


class Model:
    """What a store should hold: every record ever applied, and the newest time."""

    def __init__(self, retention_ms: int) -> None:
        self.retention = retention_ms
        self.values: dict[tuple[bytes, Times], bytes] = {}
        self.time = -1

    def apply(self, changes: Sequence[tuple[bytes, Times, bytes | None]], stored: Any) -> None:
        for key, times, value in changes:
            self.time = max(self.time, times[-1])
            if value is None:
                self.values.pop((key, times), None)
            else:
                self.values[(key, times)] = stored(value)

    def live(self) -> dict[tuple[bytes, Times], bytes]:
        """What is within the retention."""
        return {
            (key, times): value
            for (key, times), value in self.values.items()
            if times[-1] > self.time - self.retention
        }


def reference_fetch(
    live: dict[tuple[bytes, Times], bytes],
    from_key: bytes | None,
    to_key: bytes | None,
    from_ms: int | None,
    to_ms: int | None,
    *,
    reverse: bool = False,
) -> list[Any]:
    """What `WindowStore.fetch` should give."""
    found = [
        ((key, times[0]), value)
        for (key, times), value in live.items()
        if (from_key is None or key >= from_key)
        and (to_key is None or key <= to_key)
        and (from_ms is None or times[0] >= from_ms)
        and (to_ms is None or times[0] <= to_ms)
    ]
    return sorted(found, reverse=reverse)


def reference_find(
    live: dict[tuple[bytes, Times], bytes],
    from_key: bytes | None,
    to_key: bytes | None,
    earliest_end: int | None,
    latest_start: int | None,
    *,
    reverse: bool = False,
) -> list[Any]:
    """What `SessionStore.find` should give."""
    found = [
        ((key, start, end), value)
        for (key, (start, end)), value in live.items()
        if (from_key is None or key >= from_key)
        and (to_key is None or key <= to_key)
        and (earliest_end is None or end >= earliest_end)
        and (latest_start is None or start <= latest_start)
    ]
    return sorted(found, key=lambda entry: (entry[0][0], entry[0][2], entry[0][1]), reverse=reverse)
