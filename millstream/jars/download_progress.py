"""Shows the progress of a download: a bar on a terminal, a line every few seconds anywhere else. And what a
download is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress

from millstream.jars.jar_table import Jar

__all__ = ["DownloadProgress", "Transport"]

_LINE_SECONDS = 3.0


class DownloadProgress:
    """How many bytes of a set of jars have arrived. `add` and `at` may be called from any thread."""

    def __init__(self, set_name: str, total: int, *, show: bool | None = None) -> None:
        self._name = set_name
        self._total = total
        self._done = 0
        self._lock = threading.Lock()
        self._show = show is not False
        self._last_line = 0.0
        self._bar: RichProgress | None = None
        if self._show and sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                DownloadColumn(),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )

    def __enter__(self) -> DownloadProgress:
        if self._bar is not None:
            self._bar.start()
            self._bar.add_task(f"downloading {self._name} (once)", total=self._total)
        elif self._show:
            self._line()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._show and error is None:
            self._line()

    def add(self, count: int) -> None:
        """So many more bytes have arrived; a negative number takes some back."""
        with self._lock:
            self._update(self._done + count)

    def at(self, done: int) -> None:
        """So many bytes have arrived in all."""
        with self._lock:
            self._update(done)

    def _update(self, done: int) -> None:
        self._done = min(done, self._total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)
        elif self._show and time.monotonic() - self._last_line >= _LINE_SECONDS:
            self._line()

    def _line(self) -> None:
        self._last_line = time.monotonic()
        print(
            f"downloading {self._name} (once): {self._done / 1e6:.1f} of {self._total / 1e6:.1f} MB",
            file=sys.stderr,
            flush=True,
        )


class Transport(Protocol):
    """Brings jars from a repository into a directory."""

    def __call__(self, jars: Sequence[Jar], into: Path, progress: DownloadProgress) -> Mapping[Jar, str]:
        """Fetch each jar to `into / jar.file_name`, unchecked. Returns why, for those it could not get."""
