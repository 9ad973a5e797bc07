"""Class-data archives (AppCDS): the classes that a JVM has loaded once, so that the next one starts faster.

The first start of a Java with a set of jars writes the list of the classes that it loads. Once it runs, a
second JVM, at the lowest priority, creates the archive from the list. If this process ends first, the next
start tries again. Later starts use the archive: an embedded broker starts in 1.1 s instead of 1.8, and a
start of Spark takes a quarter less CPU.

An archive must never prevent a start. It is used only if no one else can have written it, because Java runs
its content. Its name contains its size, because Java crashes on a truncated archive. Java itself verifies
checksums, and continues without the archive if they, its version, or the jars do not match. If a start with
the archive still fails, the archive is deleted and the start is repeated without it.
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
"""The minimum of free disk space and memory for creating an archive."""
_FOR_EVERY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
_UNUSED_SECONDS = 30 * 86400.0

log = logging.getLogger(__name__)


class Archive:
    """The archive in a cache directory; each Java and set of jars has its own directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def refused(self) -> Path:
        """A file that exists if creating the archive failed, so that not every start tries again."""
        return self.directory / "archive.failed"

    def find(self) -> Path | None:
        """The archive, if its size matches its name and only we or root can write it."""
        if not (_is_safe(self.directory) and _is_closed(self.directory.parent)):
            return None
        for path in self.directory.glob("classes-*.jsa"):
            with suppress(OSError):  # it is just being replaced
                if path.stem == f"classes-{path.stat().st_size}" and _is_safe(path):
                    return path
        return None

    def arguments(self, class_list: Path) -> list[str]:
        """The JVM arguments that use the archive, or write the list for one, or none."""
        # A Java that is not OpenJDK does not know these options and must not fail on them. Java's messages
        # about unsuitable archives would appear on the user's terminal.
        lenient = ["-XX:+IgnoreUnrecognizedVMOptions", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
        found = self.find()
        if found is not None:
            with suppress(OSError):
                os.utime(found)  # marks it as used
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
        """Delete it, and do not create another: a start that failed with it succeeded without it."""
        try:
            for path in self.directory.glob("classes-*.jsa"):
                path.unlink(missing_ok=True)
            self.refused.touch()
        except OSError as error:
            log.info("the class-data archive in '%s' cannot be removed: %s", self.directory, error)

    def keep(self, made: Path) -> None:
        """Make a newly created file the archive."""
        for path in self.directory.glob("classes-*.jsa"):
            path.unlink(missing_ok=True)  # a damaged one; processes that use it keep it until they end
        made.chmod(0o600)
        made.replace(self.directory / f"classes-{made.stat().st_size}.jsa")

    def clear_others(self) -> None:
        """Remove unused archives of other sets of jars, such as those of older versions."""
        for path in self.directory.parent.glob("*/classes-*.jsa"):
            with suppress(OSError):
                if path.parent != self.directory and path.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                    path.unlink()


def _is_ours(path: Path) -> bool:
    return not hasattr(os, "geteuid") or path.stat().st_uid == os.geteuid()


def _is_closed(directory: Path) -> bool:
    """Whether only this user and root can replace its contents."""
    if not hasattr(os, "geteuid"):
        return True
    found = directory.stat()
    shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid()) and not shared


def _is_safe(path: Path) -> bool:
    """Whether only this user and root can have written or placed it."""
    if not hasattr(os, "geteuid"):
        return True
    found = path.lstat()
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid in (0, os.geteuid()) and not found.st_mode & 0o022


def short_of(directory: Path, needed: int, root: Path = Path("/")) -> str | None:
    """The resource that is too scarce to create an archive in a directory; None: there is enough.

    Args:
        root: where the system reports the free memory of the machine and of this container.
    """
    if shutil.disk_usage(directory).free < needed:
        return "disk"
    with suppress(OSError):  # a system without
        free = re.search(r"^MemAvailable:\s*(\d+) kB", (root / "proc/meminfo").read_text(), re.MULTILINE)
        if free is not None and int(free[1]) * 1024 < needed:
            return "memory"
    for group in _groups(root):
        with suppress(OSError, ValueError):  # no limit, or not of this kind
            limit = int((group / "memory.max").read_text())
            if limit - int((group / "memory.current").read_text()) < needed:
                return "memory"
    return None


def _groups(root: Path) -> list[Path]:
    """The control groups of this process: its own and all that contain it."""
    top = root / "sys/fs/cgroup"
    own = ""
    with suppress(OSError):
        found = re.search(r"^0::/(.*)$", (root / "proc/self/cgroup").read_text(), re.MULTILINE)
        own = found[1] if found is not None else ""
    parts = [part for part in own.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:count]) for count in range(len(parts), -1, -1)]


class ArchiveMaking:
    """Creates the archive while a JVM runs. The thread ends with the process it waits for."""

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
            kind: what the classes belong to, for the thread's name.
            after_s: the time to wait first, and then until the list has hardly grown for as long.
            needed: how much disk space and memory must be free.
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
        """Stop it if it still runs. Idempotent."""
        with self._lock:
            self._stopped.set()
            if self._process is not None:
                self._process.end(patience_s=0)
        self._thread.join()

    def wait_until_done(self, timeout_s: float) -> bool:
        """Wait for its end. Returns whether it has ended."""
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
        """Wait until the list hardly grows any more: on a slow machine a fixed time may not be enough."""
        before, size = -1, 0
        while size > before * 1.01:
            if self._stopped.wait(self._after_s):
                return False
            before = size
            with suppress(OSError):  # reading it reports the error
                size = self._class_list.stat().st_size
        return True

    def _make(self) -> None:
        directory = self._archive.directory
        part, names = directory / "making.jsa.part", directory / "making.lst"
        said = directory / "archive.log"
        for path in (part, said):
            path.unlink(missing_ok=True)
        # A JVM that is still writing may have written half a line.
        names.write_bytes(self._class_list.read_bytes().rpartition(b"\n")[0] + b"\n")
        shared = [f"-XX:SharedClassListFile={names}", f"-XX:SharedArchiveFile={part}"]
        with self._lock:
            if self._stopped.is_set():
                return
            command = [*self._command, *shared, *self._jvm_arguments]
            # The user's options for all Javas do not apply to this one: an agent, a heap size, an archive.
            environment = {name: value for name, value in os.environ.items() if name not in _FOR_EVERY_JAVA}
            self._process = SupervisedProcess(command, log_file=said, environment=environment)
            with suppress(OSError):  # Linux only: short of memory, it ends this one first
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
