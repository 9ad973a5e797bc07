"""Directories in the system's temporary directory that a process has for itself, and that do not stay.

What a JVM unpacks and writes for a while (native libraries, shuffle files, a broker's topics) goes into a
directory with its owner's process id in the name, which nobody else may read. The owner removes it in the
end; if it was killed, the next one to make such a directory does. Whether an owner lives is told by a lock,
which the system lets go of when a process ends, however it ends: a process id may be somebody else's by then.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

import filelock

__all__ = ["LOCK", "PrivateDirectory", "clear_abandoned", "prefix_of"]

log = logging.getLogger(__name__)

LOCK = ".lock"
_YOUNG_S = 60.0
"""A directory without a lock file is just being made, or just being removed, if it is younger than this."""


class PrivateDirectory:
    """A new directory, which this process holds until `remove` or its end."""

    def __init__(self, kind: str) -> None:
        """Make it; before that, clear away those of this kind whose owners are gone.

        Raises:
            OSError: it cannot be made.
        """
        clear_abandoned(kind)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix_of(kind)}{os.getpid()}-"))  # with 0700
            self._lock = filelock.FileLock(self.path / LOCK, thread_local=False)
            self._lock.acquire()
            if (self.path / LOCK).exists():
                return
            self._lock.release()  # it was cleared away in the moment in which it had no lock yet

    def remove(self) -> None:
        """Remove it with all that is in it. Idempotent; what cannot be removed the next owner will try."""
        _remove(self.path)
        self._lock.release()


def prefix_of(kind: str) -> str:
    """What the names of such directories begin with."""
    return f"millstream-{kind}-"


def clear_abandoned(kind: str) -> list[Path]:
    """Remove this user's directories of this kind whose owners are gone; which they were."""
    cleared = []
    for path in Path(tempfile.gettempdir()).glob(f"{prefix_of(kind)}*"):
        try:
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
                continue
            if not (path / LOCK).exists() and time.time() - found.st_mtime < _YOUNG_S:
                continue
            lock = filelock.FileLock(path / LOCK, thread_local=False)
            lock.acquire(timeout=0)
        except (OSError, filelock.Timeout):
            continue  # it is somebody's, or gone
        _remove(path)
        lock.release()
        cleared.append(path)
    if cleared:
        log.info("removed files left by killed processes: %s", ", ".join(map(str, cleared)))
    return cleared


def _remove(path: Path) -> None:
    """The lock last: as long as it is there, nobody takes the directory for one that is just being made."""
    try:
        entries = list(path.iterdir())
    except OSError:
        return
    for entry in entries:
        if entry.name == LOCK:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            _unlink(entry)
    _unlink(path / LOCK)
    shutil.rmtree(path, ignore_errors=True)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.debug("'%s' stays: %s", path, error)
