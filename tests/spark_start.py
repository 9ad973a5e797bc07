"""How Spark's Java process starts in these tests, which start some dozens of them: in half the time.

Java's second compiler, and its collector for large heaps, take more of the processor than a test gives back.
A class-data archive (AppCDS) has the classes of Spark, of Kafka's clients and of the kernel read and checked
already: 8 s of a processor become some 4. It is made once for an environment, by a client that counts words
on the broker of the first cluster tests there, and stays in it. A process that starts before it is there
goes without, and so does one that it does not fit, such as spark-submit's: Java sees that by itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path

import filelock
import psutil
import pyspark

from millstream.java import find_java
from millstream.kernel import shipped_kernel

__all__ = [
    "SLOTS",
    "WITHOUT_CODE",
    "WITH_CODE",
    "ArchiveMaking",
    "java_options",
    "place_only_what_programs_say",
]

WITHOUT_CODE = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}
"""Settings of a Spark that computes few records: making code for them takes longer than it ever gives back.
What users run has generated code, and so have the sessions of the fixture `spark`, the page of operators, and
some modules of the end-to-end tier (`WITH_CODE`)."""

WITH_CODE = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}
"""Spark's defaults, for a client that joins a Spark that was started with the others."""

SLOTS = {"spark.master": "local[16]", "spark.default.parallelism": "2"}
"""All tests of a process share one Spark, and those of Real-Time Mode need a slot for each of their tasks."""

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto"  # and no archive of Millstream's
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


@cache
def _archive() -> Path:
    java = find_java()
    known = [f"{java.version} {java.java}", Path(__file__).read_text(encoding="utf-8")]
    # Java does not use an archive of other jars than those of its class path, by their time.
    for jar in (shipped_kernel().jar, *sorted(Path(pyspark.__file__).with_name("jars").glob("*.jar"))):
        known.append(f"{jar} {jar.stat().st_mtime_ns}")
    return Path(sys.prefix, f"spark-{hashlib.sha256(' '.join(known).encode()).hexdigest()[:16]}.jsa")


def java_options() -> str:
    """For `spark.driver.extraJavaOptions`."""
    archive = _archive()
    return f"{_QUICK} -XX:SharedArchiveFile={archive} {_SILENT}" if archive.exists() else _QUICK


def place_only_what_programs_say() -> None:
    """Have PySpark note where a Column was made only where a function of a program makes it.

    It does so for each one, with several calls of Java, which is a third of what a pipeline takes to compile.
    The places in Millstream's errors are those of functions (`millstream/spark/compile/guarded.py`).
    """
    import pyspark.errors.utils as origins

    from millstream.spark.compile import guarded

    is_enabled = origins.is_debugging_enabled
    origins.is_debugging_enabled = lambda: guarded._seen() is not None and is_enabled()


class ArchiveMaking:
    """Makes the archive where there is none: beside tests, but soon, because the next of them want it."""

    def __init__(self, servers: Callable[[], str]) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if not _archive().exists():
            self._process = subprocess.Popen(
                ["nice", "-n", "5", sys.executable, __file__, servers()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def wait(self) -> None:
        """Until it is there, or cannot be made."""
        if self._process is not None:
            self._process.wait(300)

    def close(self) -> None:
        """End it, if it is not done; the next run of the tests tries again."""
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            for each in psutil.Process(self._process.pid).children(recursive=True):
                each.kill()
        self._process.kill()
        self._process.wait()


def _make(servers: str, directory: str) -> None:
    """Run a client that counts words; when Java ends, it writes down the classes that it has loaded."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
    from pyspark import SparkContext
    from pyspark.sql import functions as F
    from waiting import wait_until

    from millstream import (
        Consumed,
        KafkaStreams,
        Materialized,
        QueryableStoreTypes,
        Serdes,
        StoreQueryParameters,
        StreamsBuilder,
    )

    archive = _archive()
    part = archive.with_suffix(".part")
    with filelock.FileLock(archive.with_suffix(".lock"), timeout=0):
        part.unlink(missing_ok=True)
        topics = [NewTopic(name, 2) for name in ("archive-lines", "archive-out")]
        admin = AdminClient({"bootstrap.servers": servers})
        for future in admin.create_topics(topics).values():
            future.result(30)
        builder = StreamsBuilder()
        lines = builder.stream("archive-lines", Consumed.with_(Serdes.string(), Serdes.string()))
        words = lines.flat_map_values(lambda line: F.split(line, " ")).group_by(lambda key, word: word)
        words.count(Materialized.as_("counts")).to_stream().to("archive-out")
        config = {
            "application.id": "archive",
            "bootstrap.servers": servers,
            "state.dir": directory,
            "processing.guarantee": "exactly_once_v2",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": f"{_QUICK} -XX:ArchiveClassesAtExit={part} {_SILENT}",
        }
        with KafkaStreams(builder.build(), config) as streams:
            streams.wait_until_running(timedelta(seconds=120))
            producer = Producer({"bootstrap.servers": servers})
            producer.produce("archive-lines", "to be or not to be")
            assert producer.flush(30) == 0
            kind = QueryableStoreTypes.key_value_store()
            counts = streams.store(StoreQueryParameters.from_name_and_type("counts", kind))
            wait_until(lambda: counts.get("to") == 2, "words are counted", 60)
        java: subprocess.Popen[bytes] = SparkContext._gateway.proc  # type: ignore[union-attr]
        assert java.stdin is not None
        java.stdin.close()
        java.wait(120)
        for old in archive.parent.glob("spark-*.jsa"):
            old.unlink()
        part.replace(archive)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        _make(sys.argv[1], directory)
