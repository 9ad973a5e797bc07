"""A class-data archive (AppCDS), with which the broker's JVM starts in about 1.1 s and not 1.8 s.

The first start of a Java and a set of jars writes the list of the classes it loads. Once that broker answers,
a second JVM, at the lowest priority, makes the archive from the list, in about five seconds; `close()` of the
broker ends it if it is not done, and the next start tries again. From then on starts use the archive.

An archive must never be why a broker does not start. Its name says its size, since Java crashes on a
truncated one. Java itself checks its checksums, which costs nothing that could be measured, and goes on
without it when they, or the version of Java, or the jars do not fit. And where a start with it fails all the
same, it is deleted and the start is tried without.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import filelock

from millstream.broker.process import SupervisedProcess

__all__ = ["Archive", "ArchiveMaking"]

_MAKING_SECONDS = 180.0

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
        """The archive, if there is one of the size that its name says."""
        for path in self.directory.glob("classes-*.jsa"):
            if path.stem == f"classes-{path.stat().st_size}":
                return path
        return None

    def arguments(self, class_list: Path) -> list[str]:
        """The JVM arguments to use the archive, or to write the list for one, or none."""
        # A Java that is not OpenJDK does not know these options and must not stop at them.
        lenient = ["-XX:+IgnoreUnrecognizedVMOptions"]
        found = self.find()
        if found is not None:
            return [*lenient, f"-XX:SharedArchiveFile={found}", "-XX:+VerifySharedSpaces"]
        if self.refused.exists():
            return []
        return [*lenient, f"-XX:DumpLoadedClassList={class_list}"]

    def discard(self) -> None:
        """Delete it, and do not make another: a broker started without it that did not start with it."""
        for path in self.directory.glob("classes-*.jsa"):
            path.unlink(missing_ok=True)
        self.refused.touch()

    def keep(self, made: Path) -> None:
        """Take a file that was just made as the archive."""
        for path in self.directory.glob("classes-*.jsa"):
            path.unlink(missing_ok=True)  # one that was damaged; who runs on it keeps it until it ends
        made.replace(self.directory / f"classes-{made.stat().st_size}.jsa")


class ArchiveMaking:
    """Makes the archive behind a running broker. The thread ends with the process that it waits for."""

    def __init__(
        self, archive: Archive, *, java: Path, jvm_arguments: Sequence[str], class_list: Path
    ) -> None:
        self._archive = archive
        self._command = [
            *("nice", "-n", "19", str(java), "-Xshare:dump"),
            f"-XX:SharedClassListFile={class_list}",
            *("-Xlog:disable", "-Xlog:all=error:stderr"),
        ]
        self._jvm_arguments = jvm_arguments
        self._lock = threading.Lock()
        self._stopped = False
        self._process: SupervisedProcess | None = None
        self._thread = threading.Thread(target=self._run, name="millstream-broker-archive", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it if it still runs. Idempotent."""
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.end(patience_s=0)
        self._thread.join()

    def wait_until_done(self, timeout_s: float) -> bool:
        """Whether it has ended."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with filelock.FileLock(self._archive.directory / ".archive.lock", timeout=0):
                if self._archive.find() is None:
                    self._make()
        except filelock.Timeout:
            log.debug("another process makes the class-data archive")
        except OSError as error:
            log.info("no class-data archive was made, so brokers go on starting without: %s", error)

    def _make(self) -> None:
        directory = self._archive.directory
        part = directory / "making.jsa.part"
        part.unlink(missing_ok=True)
        command = [*self._command, f"-XX:SharedArchiveFile={part}", *self._jvm_arguments]
        said = directory / "archive.log"
        said.unlink(missing_ok=True)
        with self._lock:
            if self._stopped:
                return
            self._process = SupervisedProcess(command, log_file=said, environment=os.environ)
        in_time = self._process.wait_until_ended(_MAKING_SECONDS)
        with self._lock:
            self._process.end(patience_s=0)
            if self._stopped:
                return
        if in_time and self._process.exit_code == 0 and part.exists():
            self._archive.keep(part)
        else:
            part.unlink(missing_ok=True)
            self._archive.refused.touch()
            log.info("no class-data archive could be made (see %s); brokers start without", said)
