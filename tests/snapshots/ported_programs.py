"""Well-known programs: what the originals write on Kafka Streams 4.3.1, record by record, in
tests/snapshots/ported.

Each program of examples/ported has a file there with its name, and in `java` a class with the original's
topology: the same operators in the same order, with names and lambdas of ours, but for what the class's
comment says. Values that are Avro, Protobuf or classes in the original are JSON there. The default serdes of
an original are named at its sources.

Each line of a file is a record and what comes of it:

    "in"     [topic, key, value, timestamp], or ["advance", milliseconds] for the clock
    "out"    [[topic, key, value, timestamp], ...] by topic, and of each topic in its order; ["error"], if it
             ends the program: then it is the last one

or what is in one of its stores then:

    "in"     ["store", name]
    "out"    [[name, key, value], ...]

A key with a window is [key, start, end]. There are no caches, so each update is there. Whoever adds a record
writes "in" alone, and has Kafka Streams answer anew:

    PYTHONPATH=tests .venv/bin/python -m snapshots.ported_programs word_count
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from snapshots.kafka_streams import KafkaStreams

__all__ = ["FOLDER", "PROGRAMS", "answers", "steps"]

FOLDER = Path(__file__).parent / "ported"
PROGRAMS = FOLDER.parent.parent.parent / "examples" / "ported"
JAVA = FOLDER / "java"

Step = dict[str, Any]


def steps(program: str) -> list[Step]:
    """The records of a program, each with what the original makes of it."""
    lines = (FOLDER / f"{program}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def answers(programs: Sequence[str], classes: Path) -> list[list[Step]]:
    """What Kafka Streams makes of the records of these programs."""
    asked = [
        {"java": name.title().replace("_", ""), "records": [step["in"] for step in steps(name)]}
        for name in programs
    ]
    sources = sorted(JAVA.glob("*.java"))
    answered = KafkaStreams(classes, JAVA / "Ported.java", sources).ask(map(json.dumps, asked))
    found = [json.loads(line) for line in answered]
    return [
        [{"in": record, "out": out} for record, out in zip(case["records"], case["steps"], strict=True)]
        for case in found
    ]


def main() -> None:
    """Write the files of these programs anew, or of all."""
    programs = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.jsonl"))
    with tempfile.TemporaryDirectory() as classes:
        for name, answered in zip(programs, answers(programs, Path(classes)), strict=True):
            lines = (json.dumps(step, ensure_ascii=False) for step in answered)
            (FOLDER / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
            print(f"{name}: {len(answered)} records")


if __name__ == "__main__":
    main()
