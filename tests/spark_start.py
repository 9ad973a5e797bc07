"""How Spark's Java process starts in these tests, which start some dozens of them: in half the time.

Java's second compiler, and its collector for large heaps, take more of the processor than a test gives back.
A class-data archive (AppCDS) has Spark's classes read and checked already: 8 s of a processor become 4.4.
It is made once for an environment, beside the first cluster tests there, and stays in it. A process that
starts before it is there goes without, and so does one that it does not fit: Java sees that by itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import filelock
import psutil
import pyspark

from millstream.java import find_java

__all__ = ["ArchiveMaking", "java_options"]

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


@cache
def _archive() -> Path:
    java = find_java()
    known = [f"{java.version} {java.java}"]
    for jar in sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar")):
        known.append(f"{jar} {jar.stat().st_mtime_ns}")
    return Path(sys.prefix, f"spark-{hashlib.sha256(' '.join(known).encode()).hexdigest()[:16]}.jsa")


def java_options() -> str:
    """For `spark.driver.extraJavaOptions`."""
    archive = _archive()
    return f"{_QUICK} -XX:SharedArchiveFile={archive} {_SILENT}" if archive.exists() else _QUICK


class ArchiveMaking:
    """Makes the archive where there is none: beside tests, but soon, because the next of them want it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not _archive().exists():
            self._process = subprocess.Popen(
                ["nice", "-n", "5", sys.executable, __file__],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def close(self) -> None:
        """End it, if it is not done; the next run of the tests tries again."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self._process.pid).children(recursive=True):
                each.kill()
        self._process.kill()
        self._process.wait()


def _make() -> None:
    """Start Spark and run a small query; when it ends, Java writes down the classes that it has loaded."""
    from millstream.spark.session import SharedSession

    archive = _archive()
    part = archive.with_suffix(".part")
    with filelock.FileLock(archive.with_suffix(".lock"), timeout=0):
        part.unlink(missing_ok=True)
        options = f"{_QUICK} -XX:ArchiveClassesAtExit={part} {_SILENT}"
        settings = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": options}
        spark = SharedSession(settings, "archive").spark
        counts = spark.readStream.format("rate").load().groupBy("value").count()
        query = counts.writeStream.format("noop").outputMode("update").trigger(availableNow=True).start()
        query.awaitTermination(60)
        java: subprocess.Popen[bytes] = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
        assert java.stdin is not None
        java.stdin.close()
        java.wait(120)
        for old in archive.parent.glob("spark-*.jsa"):
            old.unlink()
        part.replace(archive)


if __name__ == "__main__":
    _make()
