"""The jars on disk: which are present and intact, and fetching the others.

Layout of `<cache>/jars`: `<name>.jar`; `incoming/`, for downloads in progress (its content survives an
interruption); `<name>.jar.corrupt`, moved aside. A file is renamed into place only when its checksum is
right, and checked again when a process first uses it: a JVM is about to run its content. The 55 MB that Spark
and the embedded broker need take 0.16 s.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import filelock

from millstream.cache import CACHE_VARIABLE, cache_dir, cache_path
from millstream.errors import ArtifactException
from millstream.jars import ivy, repository
from millstream.jars.download_progress import DownloadProgress, Transport
from millstream.jars.jar_table import Jar, jar_sets

__all__ = ["REPOSITORY_VARIABLE", "ensure_jars"]

REPOSITORY_VARIABLE = "MILLSTREAM_MAVEN_REPOSITORY"

LOCK_SECONDS = 1800.0
"""How long to wait for another process that is downloading."""

log = logging.getLogger(__name__)

_seen: dict[Path, tuple[str, int, int, int, int]] = {}
"""Files whose checksums this process has found right, with the facts that show they are unchanged."""


def ensure_jars(set_name: str, *, progress: bool | None = None) -> tuple[Path, ...]:
    """The files of a set, in class-path order; downloads those that are not in the cache.

    The first call of a process reads all of them, for their checksums; then one costs a `stat` per jar. Safe
    to call from any number of processes at once: one downloads, the others wait for it.

    Args:
        set_name: `BROKER_SET`, or what `connector_set` returned.
        progress: show it on stderr. By default as a bar on a terminal, and as a line every few seconds
            elsewhere; False shows nothing.

    Raises:
        ArtifactException: a jar cannot be had, or has another checksum than it must have.
        SetupException: the cache directory cannot be written.
    """
    return ensure(jar_sets()[set_name], set_name, progress=progress)


def ensure(
    jars: Sequence[Jar], set_name: str, transport: Transport | None = None, *, progress: bool | None = None
) -> tuple[Path, ...]:
    """`ensure_jars` for given jars; `transport` is the one that the environment says unless it is given."""
    transport = transport or _transport(os.environ.get(REPOSITORY_VARIABLE))
    directory = cache_path("jars")
    paths = tuple(directory / jar.file_name for jar in jars)
    if all(_is_right(jar, directory / jar.file_name) for jar in jars):
        return paths
    cache_dir("jars")
    lock = filelock.FileLock(directory / ".lock", timeout=LOCK_SECONDS)
    try:
        with lock:
            wanted = [jar for jar in jars if not _is_good(jar, directory)]
            if wanted:
                with DownloadProgress(set_name, sum(jar.size for jar in wanted), show=progress) as shown:
                    _fetch(wanted, set_name, directory, transport, shown)
    except filelock.Timeout as error:
        raise ArtifactException(
            f"another process has been downloading into {directory} for {LOCK_SECONDS / 60:.0f} minutes; "
            f"stop it or wait for it, then try again"
        ) from error
    except OSError as error:
        raise ArtifactException(
            f"jars cannot be written to {directory}: {error.strerror or error}; free some space there or fix "
            f"its permissions, or set {CACHE_VARIABLE} to another directory"
        ) from error
    return paths


def _transport(root: str | None) -> Transport:
    if root:
        return repository.from_repository(root)
    return ivy.fetch


def _fetch(
    wanted: Sequence[Jar], set_name: str, directory: Path, transport: Transport, progress: DownloadProgress
) -> None:
    """Fetch, check, and put into place; what came damaged is fetched once more."""
    incoming = cache_dir("jars", "incoming")
    for attempt in (1, 2):
        failed = transport(wanted, incoming, progress)
        damaged = []
        for jar in wanted:
            if jar not in failed and not _accept(jar, incoming, directory):
                damaged.append(jar)
        if failed:
            raise _unavailable(failed, set_name, directory)
        if not damaged:
            shutil.rmtree(incoming, ignore_errors=True)
            return
        log.warning("%s arrived damaged (attempt %d)", ", ".join(j.coordinates for j in damaged), attempt)
        wanted = damaged
    raise _wrong(damaged[0], directory)


def _accept(jar: Jar, incoming: Path, directory: Path) -> bool:
    """Move a downloaded file into place if it is the one the table means; else aside."""
    part = incoming / jar.file_name
    if _sha256(part) != jar.sha256:
        part.replace(_aside(jar, directory))
        return False
    target = directory / jar.file_name
    part.replace(target)
    return True


def _is_right(jar: Jar, path: Path) -> bool:
    """Whether the file is there and has its checksum; read once in a process, unless it changes."""
    try:
        found = path.stat()
        seen = (jar.sha256, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if _seen.get(path) != seen:
            if found.st_size != jar.size or _sha256(path) != jar.sha256:
                return False
            _seen[path] = seen
    except OSError:
        return False
    return True


def _is_good(jar: Jar, directory: Path) -> bool:
    """Whether the file is right. A wrong one is moved aside."""
    path = directory / jar.file_name
    if _is_right(jar, path):
        return True
    if not path.exists():
        return False
    log.warning("%s has the wrong checksum; it is moved aside and downloaded again", path)
    path.replace(_aside(jar, directory))
    return False


def _aside(jar: Jar, directory: Path) -> Path:
    return directory / f"{jar.file_name}.corrupt"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _unavailable(failed: Mapping[Jar, str], set_name: str, directory: Path) -> ArtifactException:
    jar, reason = next(iter(failed.items()))
    more = f" (and {len(failed) - 1} more of the set {set_name!r})" if len(failed) > 1 else ""
    todo = (
        f"Jars are downloaded once, so the first run needs a network: connect and try again (completed "
        f"downloads are kept), set {REPOSITORY_VARIABLE} to the address of a reachable Maven repository, or "
        f"copy the cache directory from a machine that has it"
    )
    if "No space left on device" in reason:  # Java's words
        todo = f"The disk is full: make room, or set {CACHE_VARIABLE} to a directory on another one"
    return ArtifactException(
        f"the jar {jar.coordinates}{more} is not in the cache and could not be downloaded: {reason}\n"
        f"  cache: {directory} ({CACHE_VARIABLE} sets another)\n{todo}",
        artifact=jar.coordinates,
    )


def _wrong(jar: Jar, directory: Path) -> ArtifactException:
    aside = _aside(jar, directory)
    return ArtifactException(
        f"the jar {jar.coordinates} was downloaded twice, both times with the wrong checksum\n"
        f"  expected SHA-256: {jar.sha256} ({jar.size} bytes)\n"
        f"  actual SHA-256:   {_sha256(aside)} ({aside.stat().st_size} bytes)\n"
        f"  kept for inspection:  {aside}\n"
        "A proxy or a mirror may return another file: inspect it, then fix the proxy or set "
        f"{REPOSITORY_VARIABLE} to the address of another Maven repository, and try again",
        artifact=jar.coordinates,
    )
