"""Restart a program whenever its files change: `millstream run --reload`, for development.

Python files are checked every half second. The program is a child process in its own session, so Ctrl-C
reaches only this process, which then ends the child. The child also ends when this process dies, because its
stdin closes. A program that fails is restarted at the next change.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import typer

from millstream.foreign import listed
from millstream.polling import looks
from millstream.program_end import Terminable

__all__ = ["changes", "child_arguments", "end_with_parent", "files_of", "watch_and_run"]

RELOADED = "MILLSTREAM_RELOADED"
"""Set for the child, whose stdin ends with its parent."""

_EVERY_S = 0.5
_CLOSE_S = 30.0
"""How long the program may take to close."""
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv"}
_MOST = 5_000
"""The maximum number of watched files: a start in a home directory is not meant to watch all of it."""

Stamps = Mapping[Path, tuple[int, int]]


def files_of(places: Iterable[Path]) -> Stamps:
    """The files to watch: those named, and the Python files of folders, each with its time and size."""
    found: dict[Path, tuple[int, int]] = {}
    for place in sorted(places, key=Path.is_dir):  # a named file is watched however many there are
        for path in _python_files(place) if place.is_dir() else (place,):
            with contextlib.suppress(OSError):  # it has just been deleted
                stat = path.stat()
                found[path] = (stat.st_mtime_ns, stat.st_size)
            if len(found) >= _MOST:
                return found
    return found


def _python_files(folder: Path) -> Iterable[Path]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _SKIPPED and not each.startswith("."))
        yield from (Path(here, name) for name in sorted(names) if name.endswith(".py"))


def changes(before: Stamps, now: Stamps) -> list[Path]:
    """The files that are new, deleted or changed."""
    return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def child_arguments(arguments: Sequence[str]) -> list[str]:
    """The same command without `--reload`."""
    return [each for each in arguments if each != "--reload"]


def watch_and_run(arguments: Sequence[str], places: Sequence[Path]) -> None:
    """Run the command as a child, again at each change, until Ctrl-C or SIGTERM.

    Raises:
        KeyboardInterrupt, SystemExit: Ctrl-C or SIGTERM; the child has ended.
    """
    command = [sys.executable, "-m", "millstream", *child_arguments(arguments)]
    with Terminable():
        while True:
            seen = files_of(places)
            typer.echo(f"--reload: watching {len(seen)} files", err=True)
            child = subprocess.Popen(
                command, env={**os.environ, RELOADED: "1"}, stdin=subprocess.PIPE, start_new_session=True
            )
            try:
                changed = _wait_for_change(child, seen, places)
            finally:
                _end(child)
            typer.echo(f"--reload: {listed(path.name for path in changed)} changed; restarting", err=True)


def _wait_for_change(child: subprocess.Popen[bytes], seen: Stamps, places: Sequence[Path]) -> list[Path]:
    has_ended = False
    changed: list[Path] = []
    for _ in looks(math.inf, every_s=_EVERY_S):
        changed = changes(seen, files_of(places))
        if changed:
            break
        if not has_ended and child.poll() is not None:
            has_ended = True
            typer.echo(f"--reload: the program ended with {child.returncode}; waiting for a change", err=True)
    return changed


def _end(child: subprocess.Popen[bytes]) -> None:
    """Close the program; kill it if it does not close in time."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(_CLOSE_S)
        except subprocess.TimeoutExpired:
            typer.echo(f"--reload: the program did not close within {_CLOSE_S:g} s; killing it", err=True)
            child.kill()
            child.wait()
    assert child.stdin is not None
    child.stdin.close()


def end_with_parent() -> None:
    """Called in the child: end it, as by SIGTERM, when the parent process is gone."""
    threading.Thread(target=_await_parents_end, name="cli-ParentWatch", daemon=True).start()


def _await_parents_end() -> None:
    with contextlib.suppress(OSError):
        while os.read(0, 1024):  # nobody writes there
            pass
    os.kill(os.getpid(), signal.SIGTERM)
