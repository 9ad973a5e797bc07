"""Class-data archives (AppCDS): what a JVM has read of its classes once, so that the next one need not.

The first start of a Java and a set of jars writes the list of the classes that it loads. Once it runs, a
second JVM, at the lowest priority, makes the archive from the list; it ends with this process if it is not
done, and the next start tries again. From then on starts use the archive: an embedded broker is there after
1.1 s instead of 1.8, and a start of Spark takes a quarter less of the processor.

An archive must never be why something does not start. It is used only if nobody else can have written it, for
Java runs what is in it. Its name says its size, since Java crashes on a truncated one. Java itself checks its
checksums, and goes on without it when they, or the version of Java, or the jars do not fit. And where a start
with it fails all the same, it is deleted and the start is tried without.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import filelock

from millstream.supervised import SupervisedProcess

__all__ = ["Archive", "ArchiveMaking", "short_of"]

_MAKING_SECONDS = 600.0
_FREE_BYTES = 3 << 29
"""Of disk and of memory: less than this, and no archive is made."""
_FOR_EVERY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_UNUSED_SECONDS = 30 * 86400.0

log = logging.getLogger(__name__)


class Archive:
    """The archive in a cache directory; each Java and set of jars has a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def refused(self) -> Path:
        """Is there when making one failed, so that not every start tries again."""
        return self.directory / "archive.failed"

    def find(self) -> Path | None:
        """The archive, if there is one of the size that its name says, which only we or root can write."""
        if not (_is_safe(self.directory) and _is_closed(self.directory.parent)):
            return None
        for path in self.directory.glob("classes-*.jsa"):
            with suppress(OSError):  # it is replaced in this moment
                if path.stem == f"classes-{path.stat().st_size}" and _is_safe(path):
                    return path
        return None

    def arguments(self, class_list: Path) -> list[str]:
        """The JVM arguments to use the archive, or to write the list for one, or none."""
        # A Java that is not OpenJDK does not know these options and must not stop at them. What Java says of
        # archives that do not fit would be on the user's terminal.
        lenient = ["-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        found = self.find()
        if found is not None:
            with suppress(OSError):
                os.utime(found)  # it is in use
            return [*lenient, "-Xshare:auto", f"-XX:SharedArchiveFile={found}", "-XX:+VerifySharedSpaces"]
        above = self.directory.parent
        if (
            self.refused.exists()
            or not _is_ours(self.directory)
            or not (_is_ours(above) or _is_closed(above))
        ):
            return []
        return [*lenient, f"-XX:DumpLoadedClassList={class_list}"]

    def discard(self) -> None:
        """Delete it, and do not make another: something started without it that did not start with it."""
        try:
            for path in self.directory.glob("classes-*.jsa"):
                path.unlink(missing_ok=True)
            self.refused.touch()
        except OSError as error:
            log.info("the class-data archive in '%s' cannot be removed: %s", self.directory, error)

    def keep(self, made: Path) -> None:
        """Take a file that was just made as the archive."""
        for path in self.directory.glob("classes-*.jsa"):
            path.unlink(missing_ok=True)  # one that was damaged; who runs on it keeps it until it ends
        made.chmod(0o600)
        made.replace(self.directory / f"classes-{made.stat().st_size}.jsa")

    def clear_others(self) -> None:
        """Remove archives of other sets of jars, such as those of older versions, that nobody uses."""
        for path in self.directory.parent.glob("*/classes-*.jsa"):
            with suppress(OSError):
                if path.parent != self.directory and path.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    path.unlink()


def _is_ours(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.stat().st_uid == os.geteuid()


def _is_closed(directory: Path) -> bool:
    """Whether nobody but this user and root can put something else in the place of what is in it."""
    if not hasattr(os, "geteuid"):
        return True
    found = directory.stat()
    shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid()) and not shared


def _is_safe(path: Path) -> bool:
    """Whether nobody but this user and root can have written it, or put it there."""
    if not hasattr(os, "geteuid"):
        return True
    found = path.lstat()
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def short_of(directory: Path, needed: int, root: Path = Path("/")) -> str | None:
    """What there is less of than needed, in bytes, to make an archive in a directory; None: nothing.

    Args:
        root: where the system says how much memory is left, to all and to this container.
    """
    if shutil.disk_usage(directory).free < needed:
        return "disk"
    with suppress(OSError):  # a system without
        free = re.search(r"^MemAvailable:\s*(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
        if free is not None and int(free[1]) * 1024 < needed:
            return "memory"
    for group in _groups(root):
        with suppress(OSError, ValueError):  # no limit, or none of this kind
            limit = int((group / "memory.max").read_text())
            if limit - int((group / "memory.current").read_text()) < needed:
                return "memory"
    return None


def _groups(root: Path) -> list[Path]:
    """The control groups that this process is in: its own, and each that has that one in it."""
    top = root / "sys/fs/cgroup"
    own = ""
    with suppress(OSError):
        found = re.search(r"^0::/(.*)$", (root / "proc/self/cgroup").read_text(), re.MULTILINE)
        own = found[1] if found is not None else ""
    parts = [part for part in own.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


class ArchiveMaking:
    """Makes the archive behind a running JVM. The thread ends with the process that it waits for."""

    def __init__(
        self,
        archive: Archive,
        kind: str,
        *,
        java: Path,
        jvm_arguments: Sequence[str],
        class_list: Path,
        after_s: float = 0.0,
        needed: int = _FREE_BYTES,
    ) -> None:
        """Begin.

        Args:
            kind: whose classes these are, for the thread's name.
            after_s: wait so long first, and until the list has hardly grown for as long.
            needed: how much disk and how much memory has to be free.
        """
        self._archive = archive
        self._class_list = class_list
        self._after_s = after_s
        self._needed = needed
        self._command = [
            *("nice", "-n", "19", str(java), "-Xshare:dump"),
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
        ]
        self._jvm_arguments = jvm_arguments
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._process: SupervisedProcess | None = None
        self._thread = threading.Thread(target=self._run, name=f"millstream-{kind}-archive", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it if it still runs. Idempotent."""
        with self._lock:
            self._stopped.set()
            if self._process is not None:
                self._process.end(patience_s=0)
        self._thread.join()

    def wait_until_done(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        if not self._is_list_full():
            return
        directory = self._archive.directory
        try:
            with filelock.FileLock(directory / ".archive.lock", timeout=0):
                for place in (directory, directory.parent):
                    if place == directory or not _is_closed(place):
                        place.chmod(stat.S_IMODE(place.stat().st_mode) & ~0o022)
                short = short_of(directory, self._needed)
                if short is not None:
                    log.info("no class-data archive is created: %s is low", short)
                elif self._archive.find() is None:
                    self._make()
                    self._archive.clear_others()
        except filelock.Timeout:
            log.debug("another process is creating the class-data archive")
        except OSError as error:
            log.info("no class-data archive was created, so processes start without one: %s", error)

    def _is_list_full(self) -> bool:
        """Wait until the list hardly grows any more: a slow machine is not through its start by a clock."""
        before, size = -1, 0
        while size > before * 1.01:
            if self._stopped.wait(self._after_s):
                return False
            before = size
            with suppress(OSError):  # reading it says so
                size = self._class_list.stat().st_size
        return True

    def _make(self) -> None:
        directory = self._archive.directory
        part, names = directory / "making.jsa.part", directory / "making.lst"
        said = directory / "archive.log"
        for path in (part, said):
            path.unlink(missing_ok=True)
        # A JVM that goes on writing has perhaps written half of a line.
        names.write_bytes(self._class_list.read_bytes().rpartition(b"\n")[0] + b"\n")
        shared = [f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={part}"]
        with self._lock:
            if self._stopped.is_set():
                return
            command = [*self._command, *shared, *self._jvm_arguments]
            # What the user adds to each Java of theirs is not for this one: an agent, a heap, an archive.
            environment = {name: value for name, value in os.environ.items() if name not in _FOR_EVERY_JAVA}
            self._process = SupervisedProcess(command, log_file=said, environment=environment)
            with suppress(OSError):  # a system without: short of memory, it ends this before what it is for
                Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("1000")
        in_time = self._process.wait_until_ended(_MAKING_SECONDS)
        with self._lock:
            self._process.end(patience_s=0)
            if self._stopped.is_set():
                part.unlink(missing_ok=True)
                return
        names.unlink(missing_ok=True)
        if in_time and self._process.exit_code == 0 and part.exists():
            self._archive.keep(part)
            return
        part.unlink(missing_ok=True)
        if in_time:
            self._archive.refused.touch()
            log.info("no class-data archive could be created (see %s); processes start without one", said)
        else:
            log.info(
                "no class-data archive was created within %g s; the next start tries again", _MAKING_SECONDS
            )
