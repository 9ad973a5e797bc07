"""The programs and records of the traces (see `traces.py`), and how Kafka Streams is asked for the rest."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyspark
from snapshots.traces import FOLDER

from millstream.jars import BROKER_SET, Jar, ensure_jars
from millstream.jars.cache import ensure
from millstream.java import find_java

__all__ = ["FILES", "KafkaStreams", "lines"]

Op = dict[str, Any]
Record = list[Any]
Case = tuple[str, list[Op], list[Record]]
"""Name, program and records of a trace."""

RUNNER = FOLDER / "TraceAll.java"
LONG = 10_000_000
"""A retention so long that no window is gone before it is closed."""


# --- programs --------------------------------------------------------------------------------------------


def source(values: str = "string", op: str = "stream", **arguments: Any) -> Op:
    return {"op": op, "values": values, **arguments}


def time(size: int, advance: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "time", "size": size, "advance": advance, "grace": grace}


def sliding(difference: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "sliding", "difference": difference, "grace": grace}


def session(gap: int, grace: int) -> Op:
    return {"op": "windowed_by", "windows": "session", "gap": gap, "grace": grace}


BY_KEY: Op = {"op": "group_by_key"}
TO_STREAM: Op = {"op": "to_stream"}

COUNT: Op = {"op": "count", "store": "s"}
CONCAT: Op = {"op": "aggregate", "function": "concat", "store": "s"}
FORGET: Op = {"op": "aggregate", "function": "concat unless -", "store": "s"}
SUM, MIN, MAX = ({"op": "reduce", "function": name, "store": "s"} for name in ("sum", "min", "max"))
FIRST, LAST, JOINED = (
    {"op": "reduce", "function": name, "store": "s"} for name in ("first", "last", "concat")
)
FOLDS = (CONCAT, COUNT, SUM, FORGET, CONCAT, MIN, LAST, CONCAT, MAX, COUNT, FIRST, JOINED)
"""In turn; most of them show the order in which values were folded."""


def numbers(fold: Op) -> bool:
    """Whether a fold is over numbers."""
    return fold.get("function") in ("sum", "min", "max")


def folded(windows: Op | None, fold: Op, **more: Any) -> list[Op]:
    """A whole program with one aggregation."""
    kind = "long" if numbers(fold) else "string"
    return [source(kind), BY_KEY, *([windows] if windows else []), {**fold, **more}, TO_STREAM]


def length(windows: Op) -> int:
    return int(windows.get("size", 0) or windows.get("difference", 0) or windows.get("gap", 0))


def scaled(windows: Op, by: int) -> Op:
    return {name: value * by if isinstance(value, int) else value for name, value in windows.items()}


# --- records ---------------------------------------------------------------------------------------------


def random_records(
    seed: str,
    span: int,
    fold: Op,
    *,
    count: int = 20,
    late: int | None = None,
    scale: int = 1,
    keys: str = "aab",
) -> list[Record]:
    """Records whose time goes on, stands still, falls back by up to `late`, and sometimes jumps far ahead.

    Only `random()` is used of the random module: all versions of Python agree on it.
    """
    rng = random.Random(seed)

    def below(limit: int) -> int:
        return int(rng.random() * limit)

    late = 2 * span if late is None else late
    now = below(span + 1) if rng.random() < 0.7 else 0
    records: list[Record] = []
    for number in range(count):
        chance = rng.random()
        if chance < 0.55:
            now += below(max(2, span // 2 + 1))
        elif chance < 0.62:
            now += span + below(2 * span + 2)
        elif chance < 0.65:
            now += 6 * span + below(9 * span + 1)
        at = max(0, now - below(late + 1)) if rng.random() < 0.35 else now
        key = None if rng.random() < 0.03 else keys[below(len(keys))]
        value: Any = below(19) - 9 if numbers(fold) else "abcdefghijklmnopqrstuvwxyz"[number % 26]
        if rng.random() < 0.06:
            value = None
        elif fold is FORGET and rng.random() < 0.2:
            value = "-"
        records.append([key, value, at * scale])
    return records


def a(*times: int) -> list[Record]:
    """Records of the key a at these times; their values are x1, x2, ..."""
    return [["a", f"x{number}", at] for number, at in enumerate(times, 1)]


def at_random(
    file: str, many: int, windows: Sequence[Op], folds: Sequence[Op] = FOLDS, **more: Any
) -> Iterator[Case]:
    """Random records for windows and folds in turn, with Kafka's own retention and with a long one."""
    for number in range(many):
        fold = folds[number % len(folds)]
        each = windows[number % len(windows)]
        # Segments of Kafka's stores are a minute or more, and short times never leave the first one.
        scale = 60_000 if number % 4 == 3 else 1
        retention = {"retention": LONG * scale} if number % 2 else {}
        records = random_records(
            f"{file} {number}", length(each), fold, late=2 * length(each) + each["grace"], scale=scale
        )
        yield f"random {number}", folded(scaled(each, scale), fold, **retention, **more), records


# --- time windows ----------------------------------------------------------------------------------------

TIME_WINDOWS = (
    time(10, 10, 0),
    time(10, 10, 5),
    time(10, 4, 3),
    time(10, 3, 0),
    time(7, 2, 20),
    time(1, 1, 0),
    time(10, 5, 12),
    time(3, 1, 2),
    time(10, 10, 40),
)


def time_cases() -> Iterator[Case]:
    tumbling, graceful, hopping = time(10, 10, 0), time(10, 10, 5), time(10, 4, 3)
    yield "at 0 and at the edges", folded(tumbling, CONCAT), a(0, 9, 10, 19, 20)
    yield "hopping, at 0 and at the edges", folded(hopping, CONCAT), a(0, 3, 4, 9, 10, 11, 12, 13, 14)
    yield (
        "no grace: closed as soon as time is there",
        folded(tumbling, CONCAT),
        a(0, 9, 10, 9, 11, 10, 25, 19, 20),
    )
    yield (
        "grace: the last moment and the first too late",
        folded(graceful, CONCAT),
        a(0, 10, 14, 9, 15, 9, 8, 10, 25, 19),
    )
    yield (
        "hopping: late for some of its windows",
        folded(hopping, CONCAT),
        a(0, 20, 12, 13, 10, 9, 8, 7, 6, 21, 10),
    )
    yield "equal times", folded(hopping, CONCAT), a(5, 5, 5, 5, 40, 40)
    yield "falling times", folded(time(10, 10, 100), CONCAT), a(29, 28, 19, 18, 9, 8, 0)
    yield (
        "the largest time of a window, not the last",
        folded(graceful, SUM),
        [["a", 1, 7], ["a", 1, 3], ["a", 1, 8], ["a", 1, 0]],
    )
    yield (
        "other keys let time go on",
        folded(tumbling, CONCAT),
        [["a", "x", 1], ["b", "y", 30], ["a", "z", 2], ["c", "v", 31], ["b", "w", 29], ["a", "u", 30]],
    )
    yield (
        "a key that is null lets time stand",
        folded(tumbling, COUNT),
        [["a", "x", 1], [None, "y", 50], ["a", "z", 2]],
    )
    yield (
        "a value that is null lets time go on",
        folded(tumbling, COUNT),
        [["a", "x", 1], ["b", None, 50], ["a", "z", 2]],
    )
    nulls = [["a", None, 0], ["a", "x", 1], ["a", None, 2], ["b", None, 3], ["a", None, 12], ["a", "y", 11]]
    for fold in (COUNT, CONCAT, LAST, FIRST, JOINED):
        name = fold.get("function", "count")
        yield f"null values: {fold['op']} {name}", folded(time(10, 10, 20), fold), nulls
    yield (
        "null values: sum",
        folded(tumbling, SUM),
        [["a", None, 0], ["a", 2, 1], ["a", None, 2], ["b", None, 3], ["a", 5, 4]],
    )
    yield (
        "a fold that gives null",
        folded(time(10, 10, 20), FORGET),
        [
            ["a", "-", 0],
            ["a", "x", 1],
            ["a", "-", 3],
            ["a", "-", 2],
            ["a", "y", 2],
            ["a", "z", 12],
            ["a", "-", 11],
        ],
    )
    jump = [
        ["a", "x", 0],
        ["b", "y", 1],
        ["a", "z", 1_000_000],
        ["b", "v", 999_990],
        ["b", "w", 5],
        ["a", "u", 1_000_001],
    ]
    yield "a large jump", folded(graceful, CONCAT), jump
    yield "a large jump, long retention", folded(graceful, CONCAT, retention=LONG), jump
    yield "a large jump, in memory", folded(graceful, CONCAT, kind="in memory"), jump
    yield "in memory", folded(hopping, CONCAT, kind="in memory"), a(0, 5, 3, 20, 11, 40, 33, 27)
    minutes = time(60_000, 60_000, 300_000)
    yield (
        "minutes of grace",
        folded(minutes, CONCAT),
        a(
            0,
            59_999,
            60_000,
            300_000,
            59_998,
            359_999,
            59_997,
            360_000,
            59_996,
            61_000,
            420_000,
            119_999,
            120_000,
        ),
    )
    yield from at_random("time", 36, TIME_WINDOWS)


# --- sliding windows -------------------------------------------------------------------------------------

SLIDING_WINDOWS = (
    sliding(10, 0),
    sliding(10, 5),
    sliding(5, 30),
    sliding(3, 2),
    sliding(1, 0),
    sliding(10, 100),
    sliding(0, 5),
)


def sliding_cases() -> Iterator[Case]:
    plenty = sliding(10, 1000)
    yield "at 0", folded(plenty, CONCAT), a(0, 0, 1, 10, 11)
    yield "earlier than the difference", folded(plenty, CONCAT), a(3, 5, 2, 9, 0, 13, 14)
    yield "exactly the difference apart", folded(plenty, CONCAT), a(20, 30, 40, 31, 21)
    yield "rising", folded(plenty, CONCAT), a(100, 105, 110, 111, 120, 131, 142)
    yield "falling", folded(plenty, CONCAT), a(142, 131, 120, 111, 110, 105, 100)
    yield "between two", folded(plenty, CONCAT), a(100, 120, 110, 105, 115, 109, 111)
    yield "equal times", folded(plenty, CONCAT), a(50, 50, 45, 45, 55, 55, 50)
    yield "the left window is empty but for the record", folded(plenty, COUNT), a(100, 130, 119, 141, 120)
    yield "no grace", folded(sliding(10, 0), CONCAT), a(20, 25, 15, 14, 31, 30, 21, 20, 32)
    yield (
        "grace: the last moment and the first too late",
        folded(sliding(10, 5), CONCAT),
        a(20, 40, 30, 25, 24, 26, 41, 26, 25),
    )
    yield "late for its left window", folded(sliding(10, 0), CONCAT), a(100, 111, 101, 100, 102)
    yield "early and late", folded(sliding(10, 5), CONCAT), a(2, 7, 15, 5, 0, 1, 16, 1, 2)
    yield (
        "other keys let time go on",
        folded(sliding(10, 0), CONCAT),
        [["a", "x", 1], ["b", "y", 30], ["a", "z", 2], ["a", "v", 20], ["b", "w", 21], ["a", "u", 30]],
    )
    yield (
        "a key that is null lets time stand",
        folded(sliding(10, 0), COUNT),
        [["a", "x", 1], [None, "y", 50], ["a", "z", 2]],
    )
    yield (
        "a value that is null lets time stand",
        folded(sliding(10, 0), COUNT),
        [["a", "x", 1], ["b", None, 50], ["a", "z", 2]],
    )
    yield (
        "null values",
        folded(plenty, CONCAT),
        [["a", None, 0], ["a", "x", 1], ["a", None, 2], ["a", "y", 11], ["a", None, 5]],
    )
    yield (
        "a fold that gives null",
        folded(plenty, FORGET),
        [
            ["a", "x", 20],
            ["a", "-", 25],
            ["a", "y", 22],
            ["a", "-", 22],
            ["a", "z", 30],
            ["a", "v", 26],
            ["a", "-", 40],
        ],
    )
    for fold in (SUM, MIN, MAX):
        values = [["a", 5, 20], ["a", -2, 25], ["a", 9, 22], ["a", None, 23], ["a", 1, 30], ["a", 0, 21]]
        yield f"{fold['function']}", folded(plenty, fold), values
    yield "difference 0", folded(sliding(0, 10), CONCAT), a(0, 0, 1, 1, 0, 5, 11, 1, 0)
    jump = [
        ["a", "x", 0],
        ["b", "y", 1],
        ["a", "z", 1_000_000],
        ["b", "v", 999_995],
        ["b", "w", 5],
        ["a", "u", 1_000_001],
    ]
    yield "a large jump", folded(sliding(10, 5), CONCAT), jump
    yield "a large jump, long retention", folded(sliding(10, 5), CONCAT, retention=LONG), jump
    yield "in memory", folded(sliding(10, 5), CONCAT, kind="in memory"), a(0, 5, 3, 20, 16, 11, 40, 33, 27)
    yield from at_random("sliding", 36, SLIDING_WINDOWS)


# --- session windows -------------------------------------------------------------------------------------

SESSION_WINDOWS = (
    session(10, 0),
    session(5, 5),
    session(5, 40),
    session(1, 0),
    session(3, 2),
    session(10, 200),
    session(0, 10),
)


def session_cases() -> Iterator[Case]:
    plenty = session(10, 1000)
    yield "at 0", folded(plenty, CONCAT), a(0, 0, 1, 11, 22)
    yield "exactly the gap apart, and one more", folded(plenty, CONCAT), a(100, 110, 121, 90, 79)
    yield "two become one", folded(plenty, CONCAT), a(100, 120, 110)
    yield "three become one", folded(session(10, 1000), CONCAT), a(100, 111, 122, 106, 116, 90)
    yield (
        "five become one, at once",
        folded(session(10, 1000), CONCAT),
        a(100, 120, 140, 160, 180, 110, 150, 130, 170),
    )
    yield "within a session", folded(plenty, CONCAT), a(100, 110, 105, 105, 100, 110)
    yield "equal times", folded(plenty, CONCAT), a(5, 5, 5, 40, 40)
    yield "falling", folded(plenty, CONCAT), a(142, 131, 121, 111, 110, 105, 100)
    yield "the time of a tombstone", folded(plenty, COUNT), a(0, 500, 490, 5, 480, 10, 8, 505)
    yield "no grace", folded(session(10, 0), CONCAT), a(0, 10, 21, 9, 10, 11, 31, 20, 42, 31, 32)
    yield (
        "no grace, long retention",
        folded(session(10, 0), CONCAT, retention=LONG),
        a(0, 10, 21, 9, 10, 11, 31, 20, 42, 31, 32),
    )
    yield (
        "grace: the last moment and the first too late",
        folded(session(10, 5), CONCAT),
        a(0, 30, 15, 14, 16, 31, 15, 14, 16),
    )
    yield (
        "late, but within an open session",
        folded(session(10, 0), CONCAT, retention=LONG),
        a(0, 10, 20, 30, 40, 35, 25, 5, 0, 60, 39),
    )
    yield (
        "late, beside an open session",
        folded(session(10, 3), CONCAT, retention=LONG),
        a(0, 15, 7, 40, 5, 29, 28),
    )
    yield "dropped by the store's retention", folded(session(10, 3), CONCAT), a(0, 15, 7)
    yield (
        "dropped by the store's retention, merged otherwise",
        folded(session(7, 2), CONCAT),
        a(0, 7, 11, 3, 18, 12, 30),
    )
    yield "the same, in memory", folded(session(7, 2), CONCAT, kind="in memory"), a(0, 7, 11, 3, 18, 12, 30)
    yield (
        "other keys let time go on",
        folded(session(10, 0), CONCAT),
        [["a", "x", 1], ["b", "y", 30], ["a", "z", 2], ["a", "v", 20], ["b", "w", 21], ["a", "u", 30]],
    )
    yield (
        "a key that is null lets time stand",
        folded(session(10, 0), COUNT),
        [["a", "x", 1], [None, "y", 50], ["a", "z", 2]],
    )
    yield (
        "a value that is null lets time go on",
        folded(session(10, 0), COUNT),
        [["a", "x", 1], ["b", None, 50], ["a", "z", 2]],
    )
    nulls = [
        ["a", None, 0],
        ["a", "x", 1],
        ["a", None, 2],
        ["b", None, 3],
        ["a", None, 30],
        ["a", "y", 20],
        ["a", "z", 11],
    ]
    for fold in (COUNT, CONCAT, LAST, FIRST, JOINED):
        name = fold.get("function", "count")
        yield f"null values: {fold['op']} {name}", folded(plenty, fold), nulls
    yield (
        "sum",
        folded(plenty, SUM),
        [["a", 5, 20], ["a", -2, 25], ["a", 9, 42], ["a", None, 23], ["a", 1, 33], ["a", 0, 21]],
    )
    yield (
        "a fold that gives null",
        folded(plenty, FORGET),
        [
            ["a", "x", 20],
            ["a", "-", 25],
            ["a", "y", 22],
            ["a", "-", 50],
            ["a", "z", 41],
            ["a", "v", 33],
            ["a", "-", 33],
        ],
    )
    yield "gap 0", folded(session(0, 10), CONCAT), a(0, 0, 1, 1, 0, 5, 11, 1, 0)
    jump = [
        ["a", "x", 0],
        ["b", "y", 1],
        ["a", "z", 1_000_000],
        ["b", "v", 999_995],
        ["b", "w", 5],
        ["a", "u", 1_000_001],
    ]
    yield "a large jump", folded(session(10, 5), CONCAT), jump
    yield "a large jump, long retention", folded(session(10, 5), CONCAT, retention=LONG), jump
    minutes = session(60_000, 60_000)
    for kind, more in (
        ("", {}),
        (", long retention", {"retention": LONG}),
        (", in memory", {"kind": "in memory"}),
    ):
        times = (
            0,
            60_000,
            150_000,
            95_000,
            210_000,
            120_000,
            400_000,
            300_000,
            279_999,
            280_000,
            345_000,
            470_000,
        )
        yield f"minutes{kind}", folded(minutes, CONCAT, **more), a(*times)
    yield from at_random("session", 36, SESSION_WINDOWS)


FILES: dict[str, Callable[[], Iterator[Case]]] = {
    "time": time_cases,
    "sliding": sliding_cases,
    "session": session_cases,
}
"""The files of traces, and what makes the cases of each."""


# --- asking ----------------------------------------------------------------------------------------------

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


def lines(file: str) -> list[str]:
    """The cases of a file, one JSON object each, as the runner reads them."""
    cases = ({"name": f"{file}/{name}", "program": ops, "records": rows} for name, ops, rows in FILES[file]())
    return [json.dumps(case, separators=(",", ":")) for case in cases]


class KafkaStreams:
    """Kafka Streams 4.3.1 and the compiled runner; asks them for traces.

    Args:
        classes: a directory for what is compiled.
    """

    def __init__(self, classes: Path) -> None:
        self._java = find_java().java
        streams, driver, compiler = ensure(TEST_JARS, "kafka-streams-4.3.1")
        rocksdb = next(Path(pyspark.__file__).parent.glob("jars/rocksdbjni-*.jar"))
        self._class_path = os.pathsep.join(
            map(str, (classes, streams, driver, *ensure_jars(BROKER_SET), rocksdb))
        )
        compile = ["-cp", str(compiler), "org.eclipse.jdt.internal.compiler.batch.Main", "-17", "-nowarn"]
        self._run([*compile, "-cp", self._class_path, "-d", str(classes), str(RUNNER)], "")

    def ask(self, cases: Iterable[str]) -> list[str]:
        """The traces of these cases, as they stand in a file."""
        asked = "".join(f"{case}\n" for case in cases)
        return self._run(
            ["-cp", self._class_path, "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", RUNNER.stem], asked
        )

    def _run(self, arguments: Sequence[str], asked: str) -> list[str]:
        command = [str(self._java), *arguments]
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
