"""A process's private, temporary directories in the system's temporary directory.

The temporary files of a JVM (native libraries, shuffle files, a broker's topics) go into a directory with its
owner's process id in the name, which others cannot read. The owner removes it at its end; if the owner was
killed, the next process that creates such a directory does. A lock shows whether an owner is alive, because
the system releases it however the process ends, whereas a process id may be reused.
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
"""A directory without a lock file that is younger than this is being created or removed."""


class PrivateDirectory:
    """A new directory that this process holds until `remove` or its end."""

    def __init__(self, kind: str) -> None:
        """Create it; first remove those of this kind whose owners are gone.

        Raises:
            OSError: it cannot be created.
        """
        clear_abandoned(kind)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{prefix_of(kind)}{os.getpid()}-"))  # with 0700
            self._lock = filelock.FileLock(self.path / LOCK, thread_local=False)
            self._lock.acquire()
            if (self.path / LOCK).exists():
                return
            self._lock.release()  # it was removed while it had no lock yet

    def remove(self) -> None:
        """Remove it with everything in it. Idempotent; the next owner retries what cannot be removed."""
        _remove(self.path)
        self._lock.release()


def prefix_of(kind: str) -> str:
    """The prefix of the names of such directories."""
    return f"millstream-{kind}-"


def clear_abandoned(kind: str) -> list[Path]:
    """Remove this user's directories of this kind whose owners are gone. Returns them."""
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
            continue  # it is in use, or gone
        _remove(path)
        lock.release()
        cleared.append(path)
    if cleared:
        log.info("removed files left by killed processes: %s", ", ".join(map(str, cleared)))
    return cleared


def _remove(path: Path) -> None:
    """Remove it, the lock last: while the lock exists, the directory does not look like a new one."""
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
