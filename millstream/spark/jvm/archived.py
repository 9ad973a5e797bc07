"""Starts Spark's JVM with its class-data archive if there is one, and otherwise records the classes for one.

An archive must never prevent Spark from starting. If a start with it fails, Spark is started without it; if
that works, the archive is deleted, and no other is made.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pyspark.errors import PySparkException

from millstream.cache import cache_dir, cache_path
from millstream.class_data import Archive, ArchiveMaking
from millstream.errors import SetupException
from millstream.java import JavaHome
from millstream.spark.jvm.direct import Started

__all__ = ["Launched", "archive_for", "start_with_archive"]

log = logging.getLogger(__name__)

_AFTER_SECONDS = 10.0


class Launched(NamedTuple):
    """A JVM, its class-data archive (None: it has none), and what creates that archive afterwards."""

    started: Started
    archive: Archive | None = None
    making: ArchiveMaking | None = None


def start_with_archive(
    java: JavaHome,
    path: Sequence[Path],
    settings: Mapping[str, str],
    class_list: Path | None,
    start: Callable[[Sequence[str]], Started],
) -> Launched:
    """Start the JVM, and prepare the creation of an archive if there is none.

    Args:
        path: the class path.
        class_list: where a list of classes can be written, or None.
        start: starts the JVM with these options in addition to its usual ones.

    Raises:
        PySparkException: the JVM does not start, not even without an archive.
    """
    archive = archive_for(java, path, settings) if class_list is not None else None
    if archive is None or class_list is None:
        return Launched(start([]))
    options = archive.arguments(class_list)
    try:
        started = start(options)
    except PySparkException:
        if not any(option.startswith("-XX:SharedArchiveFile") for option in options):
            raise
        log.info("Spark did not start with its class-data archive; starting it without one")
        started = start([])
        archive.discard()  # the archive is to blame, not an option or the heap
        return Launched(started, archive)
    if not class_list.exists():
        return Launched(started, archive)
    making = ArchiveMaking(
        archive,
        "spark",
        java=java.java,
        jvm_arguments=["-Xmx512m", "-cp", os.pathsep.join(map(str, path))],
        class_list=class_list,
        after_s=_AFTER_SECONDS,
    )
    return Launched(started, archive, making)


def archive_for(java: JavaHome, path: Sequence[Path], settings: Mapping[str, str]) -> Archive | None:
    """The archive of this Java and these jars; None: the user's options concern it, or there is no cache."""
    options = settings.get("spark.driver.extraJavaOptions", "")
    if any(word in options for word in ("-Xshare", "SharedArchiveFile", "ArchiveClassesAtExit")):
        return None
    known = [f"{java.version} {java.java.resolve()}"]
    try:
        for file in (java.java.resolve(), *path):
            found = file.stat()
            # In seconds, as Java compares it: the layers of container images have no finer times.
            known.append(f"{file} {found.st_size} {int(found.st_mtime)}")
        key = hashlib.sha256("\n".join(known).encode()).hexdigest()[:16]
        user = str(os.getuid()) if hasattr(os, "getuid") else "user"
        place = ("spark", f"{user}-{key}")
        made = Archive(cache_path(*place))
        if made.directory.is_dir() and made.find() is not None:
            return made  # also used where nothing can be written, as in a container
        return Archive(cache_dir(*place))
    except (OSError, SetupException) as error:
        log.debug("Spark starts without a class-data archive: %s", error)
        return None
