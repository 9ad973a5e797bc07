"""Contestants, senders and readers as processes of their own, which cannot outlive the benchmark.

The benchmark talks to each line by line, over its input and output. When the benchmark is gone, even if it
was killed with -9, the input ends, and the process ends itself. A process that does not answer in time is
killed, with everything it has started.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

__all__ = ["Child", "Failed", "Used", "end_all", "end_of", "usage"]

_LAST_LINES = 6
_GONE_S = 10.0


class Failed(Exception):
    """A process did not do what it was told; the message has its name and the end of its log."""


@dataclass(frozen=True, slots=True)
class Used:
    """What a process and everything it has started have used so far: CPU seconds, and memory."""

    cpu_s: float
    memory_mb: float


class Child:
    """A process that answers each line with a line."""

    def __init__(
        self, name: str, command: Sequence[object], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start it. It appends to its log."""
        self.name, self._log = name, log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._answers: queue.Queue[str | None] = queue.Queue()
        self.begun = time.time()
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.PIPE,  # it ends when the pipe does, even if this process is killed
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # so that it can be killed as a group, and does not get Ctrl-C
                env={**os.environ, **(environment or {})},
            )
        _running.add(self)
        self._reader = threading.Thread(target=self._read, name=f"bench-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log_end(self) -> str:
        return end_of(self._log)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def say(self, line: str) -> None:
        """Send it a line.

        Raises:
            Failed: it has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            raise Failed(f"{self.name} has ended: {end_of(self._log)}") from None

    def answer(self, timeout_s: float) -> str:
        """Its next line.

        Raises:
            Failed: it has ended; or it said nothing in time, and is now killed.
        """
        try:
            line = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            self.kill()
            raise Failed(f"{self.name} said nothing for {timeout_s:g} s: {end_of(self._log)}") from None
        if line is None:
            self._answers.put(None)
            raise Failed(f"{self.name} has ended: {end_of(self._log)}")
        return line

    def ask(self, timeout_s: float, **what: object) -> dict[str, Any]:
        """Send it a request and return its answer, both in JSON.

        Raises:
            Failed: as from `answer`, or its answer is an error.
        """
        self.say(json.dumps(what, default=str))
        answer: dict[str, Any] = json.loads(self.answer(timeout_s))
        if "error" in answer:
            raise Failed(f"{self.name}: {answer['error']}")
        return answer

    def used(self) -> Used:
        return usage(self.pid)

    def close(self, patience_s: float = 15.0) -> None:
        """End it by closing its input, then kill whatever is left of it. Idempotent."""
        if self._process.stdin is not None:
            with suppress(OSError):  # it ended before it had read everything
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL, together with the processes it started. Idempotent."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_GONE_S)
        self._reader.join(_GONE_S)
        _running.discard(self)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line.rstrip("\n"))
        self._answers.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_running: set[Child] = set()


def end_all() -> None:
    """Kill all remaining processes, whose owners were interrupted before they could do so."""
    for child in tuple(_running):
        child.kill()


def usage(pid: int) -> Used:
    """The usage of a process and its descendants; CPU time includes those that have been waited for."""
    cpu = memory = 0.0
    try:
        whole = [psutil.Process(pid)]
        whole += whole[0].children(recursive=True)
    except psutil.Error:
        return Used(0.0, 0.0)
    for process in whole:
        try:
            times, resident = process.cpu_times(), process.memory_info().rss
        except psutil.Error:
            continue  # it has ended in the meantime
        with suppress(psutil.Error):  # forked workers share most of their pages; count those once
            resident = getattr(process.memory_full_info(), "pss", resident)
        cpu += times.user + times.system + times.children_user + times.children_system
        memory += resident / 1e6
    return Used(cpu, memory)


def end_of(log: Path, lines: int = _LAST_LINES) -> str:
    """The last lines of a log, without the frames of Java stack traces, which say least."""
    try:
        text = log.read_text(errors="replace")
    except OSError:
        return "no log"
    said = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return " | ".join(said[-lines:]) or "its log is empty"
