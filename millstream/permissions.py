"""Restricts access to data on disk to this user and its group, as Kafka Streams does.

Stores, Spark's state, its temporary files and a broker's data contain records. A directory that others cannot
enter protects its contents; so the top directories are private, and child processes get a umask.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from pathlib import Path

__all__ = ["make_private", "umask_of_children"]

log = logging.getLogger(__name__)

_OTHERS = 0o007
_GROUP_WRITES = 0o020
_reading_umask = threading.Lock()


def make_private(directory: Path, *, group_writes: bool = False) -> None:
    """Create a directory, and its parents, for this user and its group; remove others' permissions from an
    existing one. Stricter permissions are kept, and parents of an existing directory are unchanged.

    Args:
        group_writes: the group may also write (`allow.os.group.write.access`).

    Raises:
        OSError: it cannot be created.

    Source: StateDirectory.configurePermissions.
    Differs: Kafka Streams also grants permissions, and changes those of an existing state.dir, which other
    programs may use.
    """
    missing = []
    here = directory
    while not here.exists():
        missing.append(here)
        here = here.parent
    wanted = 0o770 if group_writes else 0o750
    for new in reversed(missing):
        new.mkdir(mode=wanted, exist_ok=True)  # the process's umask may restrict it further
    if not missing:
        _tighten(directory, wanted)
    elif group_writes:
        for new in missing:
            new.chmod(wanted)


def _tighten(directory: Path, wanted: int) -> None:
    if os.name == "nt":
        return
    mode = directory.stat().st_mode & 0o7777
    left = mode & ~(0o777 & ~wanted)
    if left == mode:
        return
    try:
        directory.chmod(left)
    except OSError as error:
        log.warning(
            "'%s' holds records and has the permissions %o, which cannot be changed to %o: %s. Make sure "
            "that only users who may read the records can access it",
            directory,
            mode,
            left,
            error.strerror or error,
        )
        return
    log.info("'%s' holds records; its permissions were changed from %o to %o", directory, mode, left)


def umask_of_children(*, group_writes: bool = False) -> int:
    """The umask for a process that writes records: this process's own, plus no permissions for others."""
    own = _umask()
    return (own & ~_GROUP_WRITES if group_writes else own | _GROUP_WRITES) | _OTHERS


def _umask() -> int:
    try:
        # Read from /proc if possible, because the system call changes it for a moment, for all threads.
        found = re.search(r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return int(found[1], 8)
    with _reading_umask:
        own = os.umask(0o077)
        os.umask(own)
        return own
