"""The process in which DuckDB runs, from its parent's side: starts it, queries it, and ends it at the
deadline.

DuckDB cannot be interrupted everywhere (in its parser, in one long function call), and its memory limit does
not cover all its memory. A process can be killed, and the kernel limits it. After a query, it is kept for the
next one. It ends with this process, or after some minutes without a query.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from millstream.query.sql_program import HEADER, JSON, header_of

__all__ = ["DeadlinePassed", "ProcessEnded", "SqlProcess", "SqlProcesses"]

_PROGRAM = Path(__file__).with_name("sql_program.py")
_MOST_AT_ONCE = 4
_MOST_KEPT = 1
_GREETING_S = 10.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031  # Linux only
_KEPT_ENVIRONMENT = ("PATH", "LANG", "PYTHONHOME", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
_SMALLER = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # others reserve address space, which the kernel limits
    "MALLOC_ARENA_MAX": "2",
}

Remaining = Callable[[], float]
"""The remaining seconds; negative after the deadline."""


class DeadlinePassed(Exception):
    """The deadline has passed."""


class ProcessEnded(Exception):
    """The process has ended unexpectedly; the text says how."""

    def __init__(self, code: int | None) -> None:
        super().__init__(_why(code))


def _why(code: int | None) -> str:
    if code is None or code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was ended by signal {-code}"


class SqlProcess:
    """One process that runs queries, one after the other. Used by one thread at a time."""

    def __init__(self) -> None:
        life, self._life = os.pipe()
        environment = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-I", str(_PROGRAM), str(life)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # C++ writes there before it aborts
                bufsize=0,
                cwd="/",
                env={**environment, **_SMALLER},
                pass_fds=(life,),
                start_new_session=True,  # Ctrl-C is for the program, which then ends this one
            )
        except BaseException:
            os.close(self._life)
            raise
        finally:
            os.close(life)
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._to, self._from = self._child.stdin.fileno(), self._child.stdout.fileno()
        for each in (self._to, self._from):
            os.set_blocking(each, False)
            _enlarge(each)
        self.ready = False
        self.asked = 0
        """The number of queries that it has received."""
        self._greeted = False

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def wait_until_ready(self, remaining: Remaining) -> None:
        """Wait until it has loaded DuckDB. After Late, it may be called again.

        Raises:
            Late, Ended
        """
        if not self._greeted:
            # Sent as a whole, too: it fits into the pipe, and half of it would corrupt the following frames.
            self.send_message(lambda: _GREETING_S, path=[each for each in sys.path if each])
            self._greeted = True
        if not self.ready:
            self._wait(self._from, select.POLLIN, remaining)
            self.hear(lambda: _GREETING_S)  # read as a whole, so that it can be waited for again
            self.ready = True

    def send_message(self, remaining: Remaining, **message: Any) -> None:
        """Send a message.

        Raises:
            Late, Ended
        """
        self.send(JSON, json.dumps(message).encode("utf-8", "surrogatepass"), remaining)

    def send(self, kind: int, payload: Any, remaining: Remaining) -> None:
        """Send a frame.

        Raises:
            Late, Ended
        """
        view = memoryview(payload)
        for part in (memoryview(header_of(kind, view.nbytes)), view.cast("B")):
            left = part
            while left:
                self._wait(self._to, select.POLLOUT, remaining)
                try:
                    left = left[os.write(self._to, left) :]
                except BlockingIOError:
                    continue
                except BrokenPipeError:
                    raise ProcessEnded(self._code()) from None

    def receive(self, remaining: Remaining) -> tuple[int, bytearray]:
        """The next frame.

        Raises:
            Late, Ended
        """
        header = self._read(HEADER, remaining)
        return header[0], self._read(int.from_bytes(header[1:], "big"), remaining)

    def hear(self, remaining: Remaining) -> dict[str, Any]:
        """The next frame, which must be a message.

        Raises:
            Late, Ended
        """
        kind, payload = self.receive(remaining)
        if kind != JSON:
            raise ProcessEnded(None)
        return message_in(payload)

    def _read(self, size: int, remaining: Remaining) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            self._wait(self._from, select.POLLIN, remaining)
            try:
                got = os.readv(self._from, [left])
            except BlockingIOError:
                continue
            if got == 0:
                raise ProcessEnded(self._code())
            left = left[got:]
        return data

    def _wait(self, descriptor: int, event: int, remaining: Remaining) -> None:
        poll = select.poll()
        poll.register(descriptor, event)
        left = remaining()
        if left <= 0 or not poll.poll(left * 1000):
            raise DeadlinePassed

    def _code(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._child.wait(1.0)
        return None

    def end(self) -> None:
        """End it at once. Idempotent."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        self._close()

    def forget(self) -> None:
        """Leave the process to the parent; called in a process forked from this one."""
        self._child.returncode = 0  # it is not this process's child
        self._close()

    def _close(self) -> None:
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None:
                stream.close()
        life, self._life = self._life, -1
        if life >= 0:
            os.close(life)


def message_in(payload: bytearray) -> dict[str, Any]:
    """The message in a JSON frame."""
    message: dict[str, Any] = json.loads(payload.decode("utf-8", "surrogatepass"))
    return message


def _enlarge(pipe: int) -> None:
    import fcntl

    with suppress(OSError):
        fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)


class SqlProcesses:
    """The processes of this program: a few at a time, one of which is kept. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._kept: list[SqlProcess] = []
        self._all: set[SqlProcess] = set()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._forked)

    def take(self, remaining: Remaining) -> SqlProcess:
        """A ready process: the kept one or a new one.

        Raises:
            Late: none was ready in time; one that is starting is kept for the next query.
            Ended: it could not be started.
        """
        if not self._places.acquire(timeout=max(0.0, remaining())):
            raise DeadlinePassed
        process = None
        try:
            process = self._kept_one() or self._new_one()
            process.wait_until_ready(remaining)
        except DeadlinePassed:
            self.give_back(process)
            raise
        except BaseException:
            self.give_back(process, keep=False)
            raise
        return process

    def give_back(self, process: SqlProcess | None, *, keep: bool = True) -> None:
        """Return a process that has answered, or is no longer needed."""
        try:
            if process is None:
                return
            with self._lock:
                keep = keep and process.is_alive and len(self._kept) < _MOST_KEPT
                if keep:
                    self._kept.append(process)
                else:
                    self._all.discard(process)
            if not keep:
                process.end()
        finally:
            self._places.release()

    def close(self) -> None:
        """End all processes; later queries start new ones."""
        with self._lock:
            ended, self._all, self._kept = self._all, set(), []
        for process in ended:
            process.end()

    def _kept_one(self) -> SqlProcess | None:
        while True:
            with self._lock:
                if not self._kept:
                    return None
                process = self._kept.pop()
                if process.is_alive:
                    return process
                self._all.discard(process)
            process.end()

    def _new_one(self) -> SqlProcess:
        process = SqlProcess()
        with self._lock:
            self._all.add(process)
        return process

    def _forked(self) -> None:
        left = self._all
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self._kept, self._all = [], set()
        for process in left:
            process.forget()
