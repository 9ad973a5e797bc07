"""Kafka Streams itself, on its TopologyTestDriver: writes the traces anew (see `traces.py`)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pyspark
from snapshots.trace_cases import FILES, lines
from snapshots.traces import FOLDER

from millstream.jars import BROKER_SET, Jar, ensure_jars
from millstream.jars.jar_cache import ensure
from millstream.java import find_java

__all__ = ["KafkaStreams"]

RUNNER = FOLDER / "TraceAll.java"

TEST_JARS = (
    Jar(
        "org.apache.kafka:kafka-streams:4.3.1",
        2277950,
        "bd73f3805e116f711e8456ee89a8a5b43ff5dcf5a5bb865afae29deae89e7c4b",
    ),
    Jar(
        "org.apache.kafka:kafka-streams-test-utils:4.3.1",
        66449,
        "e84547c830b86dffdc4f5556d9d58fd1de5020a820b0de34d837b27aa4452d8c",
    ),
    Jar(
        "org.eclipse.jdt:ecj:3.42.0",
        3327035,
        "29f6d3918ee02db4400c103bc25dd90a22491c3a395867d9393070cb96a7dd29",
    ),
)
"""Kafka Streams, its test driver, and a compiler. The rest comes with the broker and PySpark."""


QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""It runs for seconds: what Java's second compiler takes, it never gives back."""


class KafkaStreams:
    """Kafka Streams 4.3.1 and the compiled runner; asks them for traces.

    Args:
        classes: a directory for what is compiled.
        runner: the program that answers.
        sources: what is compiled for it; only itself, if there are none.
    """

    def __init__(self, classes: Path, runner: Path = RUNNER, sources: Sequence[Path] = ()) -> None:
        self._runner = runner
        self._java = find_java().java
        streams, driver, compiler = ensure(TEST_JARS, "kafka-streams-4.3.1")
        rocksdb = next(Path(pyspark.__file__).parent.glob("jars/rocksdbjni-*.jar"))
        self._class_path = os.pathsep.join(
            map(str, (classes, streams, driver, *ensure_jars(BROKER_SET), rocksdb))
        )
        compile = ["-cp", str(compiler), "org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn"]
        compiled = map(str, sources or [runner])
        self._run([*compile, "-cp", self._class_path, "-d", str(classes), *compiled], "")

    def ask(self, cases: Iterable[str]) -> list[str]:
        """The traces of these cases, as they stand in a file."""
        asked = "".join(f"{case}\n" for case in cases)
        return self._run(self._running(), asked)

    def command(self, *arguments: str) -> list[str]:
        """The command that runs the program with arguments."""
        return [str(self._java), *QUICK, *self._running(), *arguments]

    def _running(self) -> list[str]:
        return ["-cp", self._class_path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", self._runner.stem]

    def _run(self, arguments: Sequence[str], asked: str) -> list[str]:
        command = [str(self._java), *QUICK, *arguments]
        answer = subprocess.run(command, input=asked, capture_output=True, encoding="utf-8")
        if answer.returncode:
            raise RuntimeError(
                f"java ended with {answer.returncode}: {(answer.stderr or answer.stdout)[-4000:]}"
            )
        return answer.stdout.splitlines()


def main() -> None:
    """Write the traces anew."""
    files = sys.argv[1:] or list(FILES)
    with tempfile.TemporaryDirectory() as classes:
        kafka_streams = KafkaStreams(Path(classes))
        for file in files:
            written = kafka_streams.ask(lines(file))
            (FOLDER / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in written), "utf-8")
            print(f"{file}: {len(written)} traces")


if __name__ == "__main__":
    main()
