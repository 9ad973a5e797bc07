"""Who may read what is kept on disk: this user and its group, and nobody else, as Kafka Streams has it.

Records are in stores, in Spark's state, in its temporary files and in a broker's data. A directory that
nobody else may enter protects what is in it; so the top ones are private, and child processes, which write
what they like, get a umask.
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
    """Make a directory, with those it is in, for this user and its group; take others' rights to one that is
    there. What has less rights keeps them, and directories above one that is there stay as they are.

    Args:
        group_writes: the group may write, too (`allow.os.group.write.access`).

    Raises:
        OSError: it cannot be made.

    Source: StateDirectory.configurePermissions.
    Differs: that one gives rights, too, and sets those of a state.dir that was there before, which other
        programs may use.
    """
    missing = []
    here = directory
    while not here.exists():
        missing.append(here)
        here = here.parent
    wanted = 0o770 if group_writes else 0o750
    for new in reversed(missing):
        new.mkdir(mode=wanted, exist_ok=True)  # the process's umask may take more away
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
    """The umask for a process that writes records: this one's, and no rights for others."""
    own = _umask()
    return (own & ~_GROUP_WRITES if group_writes else own | _GROUP_WRITES) | _OTHERS


def _umask() -> int:
    try:
        # Read where that is possible: to ask the system for it is to change it for a moment, for all threads.
        found = re.search(r"^Umask:\s*([0-7]+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return int(found[1], 8)
    with _reading_umask:
        own = os.umask(0o077)
        os.umask(own)
        return own
