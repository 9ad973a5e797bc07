"""Calls of the Processor API: what Kafka Streams 4.3.1 returns from each, in
              tests/snapshots/traces/processors.

Each line of `calls.jsonl` there is one case, a JSON object:

    "name"        no other case has it
    "stores"      each with "name" and "kind": "key-value", "timestamped", "window", "timestamped-window",
                  "session" or "versioned"; with "retention", "window" (its size), "history", "duplicates";
                  "memory" if it is not RocksDB's, "logged": false if it has no changelog
    "processors"  each with "name", "parent" (a processor, or "source") and "stores"; "fixed" of
                  process_values
    "sinks"       each with "name", which is its topic's too, and "parent"
    "init"        by a processor's name, the calls that it makes in init()
    "continue"    the processing exception handler is the one that goes on
    "records"     [key, value, timestamp], or with headers behind; a value says by a processor's name which
                  calls it makes. ["advance", milliseconds] is wall-clock time
    "steps"       one for init, and one for each record, with what there is of
                    "log":        [processor, call, what it returned], in the order in which they returned
                    "out":        [sink, key, value, timestamp, headers]
                    "changelogs": by store, [key and value in hex, timestamp]
                    "error":      which exception ended the task; no step follows

A call is a list: its name, the store's, and what it takes. Without a store there are

    ["forward", key, value, timestamp or null for the record's, child or null for all, headers]
    ["pass", child or null for all]             the record itself
    ["record"], ["metadata"], ["stream_time"], ["system_time"], ["task"], ["raise"]
    ["schedule", id, type, interval, calls to be made then, start]   which logs "punctuate", id, and the time
    ["cancel", id]

Serdes are strings. A value of a timestamped store is [value, timestamp]; of a versioned store comes [value,
timestamp, valid to]. A window in an iterator is [key, start, end].

To write them anew: PYTHONPATH=tests .venv/bin/python -m snapshots.calls
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from snapshots.kafka_streams import KafkaStreams
from snapshots.traces import FOLDER

__all__ = ["FILE", "RUNNER", "asked", "cases"]

FILE = FOLDER / "processors" / "calls.jsonl"
RUNNER = FOLDER / "CallAll.java"

Case = dict[str, Any]
Call = list[Any]


def one(name: str, kind: str, calls: list[list[Call]], times: list[int] | None = None, **store: Any) -> Case:
    """A processor with one store, which makes these calls, record by record."""
    times = times or [number * 10 for number in range(len(calls))]
    return {
        "name": name,
        "stores": [{"name": "s", "kind": kind, **store}],
        "processors": [{"name": "p", "parent": "source", "stores": ["s"]}],
        "sinks": [{"name": "out", "parent": "p"}],
        "records": [["k", {"p": made}, time] for made, time in zip(calls, times, strict=True)],
    }


KEYS = ["", "a", "ab", "b", "b\u0000", "ba", "c", "\u00e9", "\uffff"]


def key_value_cases() -> Iterator[Case]:
    for memory in (False, True):
        for kind in ("key-value", "timestamped"):
            rng = random.Random(f"{kind} {memory}")

            def value(rng: random.Random = rng, kind: str = kind) -> Any:
                text = rng.choice(["x", "y", "zz", ""])
                return [text, rng.randrange(100)] if kind == "timestamped" else text

            calls: list[list[Call]] = []
            for _ in range(24):
                made: list[Call] = []
                for _ in range(6):
                    key, to = rng.choice(KEYS), rng.choice([*KEYS, None])
                    made.append(
                        rng.choice(
                            [
                                ["put", "s", key, value()],
                                ["put", "s", key, value()],
                                ["put", "s", key, None],
                                ["put_if_absent", "s", key, value()],
                                ["put_all", "s", [[key, value()], ["a", value()], ["c", None]]],
                                ["delete", "s", key],
                                ["get", "s", key],
                                ["range", "s", rng.choice([key, None]), to],
                                ["reverse_range", "s", rng.choice([key, None]), to],
                                ["all", "s"],
                                ["reverse_all", "s"],
                                ["prefix_scan", "s", key or "a"],  # in memory, an empty one is an error
                            ]
                        )
                    )
                made.append(["approximate_num_entries", "s"] if memory else ["get", "s", "a"])
                calls.append(made)
            yield one(f"{kind} store, memory {memory}", kind, calls, memory=memory)
    yield one("no changelog", "key-value", [[["put", "s", "a", "x"], ["get", "s", "a"]]], logged=False)
    yield one(
        "a key that is null",
        "key-value",
        [
            [
                ["put", "s", None, "x"],
                ["get", "s", None],
                ["delete", "s", None],
                ["put_if_absent", "s", None, "x"],
            ]
        ],
    )


def window_cases() -> Iterator[Case]:
    for memory in (False, True):
        for kind in ("window", "timestamped-window"):
            rng = random.Random(f"{kind} {memory}")
            minute = 60_000
            calls = []
            now = 0
            for number in range(30):
                now += rng.choice([0, 1000, minute, 0, 1000, 3 * minute if number % 7 == 6 else 0])
                made = []
                for _ in range(5):
                    key, other = rng.choice("abc"), rng.choice([None, "a", "b", "c"])
                    start = max(0, now - rng.choice([0, 0, 1000, minute, 2 * minute, 4 * minute]))
                    text = rng.choice(["x", "y", None])
                    value = [text, rng.randrange(100)] if kind != "window" and text else text
                    low = max(0, start - rng.choice([0, minute, 5 * minute]))
                    made.append(
                        rng.choice(
                            [
                                ["put", "s", key, value, start],
                                ["put", "s", key, value, start],
                                ["put", "s", key, value, now],
                                ["fetch", "s", key, start],
                                ["fetch", "s", key, low, start],
                                ["backward_fetch", "s", key, low, start],
                                ["fetch", "s", other, rng.choice([None, key]), low, start],
                                ["backward_fetch", "s", other, key, low, start],
                                ["fetch_all", "s", low, start],
                                ["backward_fetch_all", "s", low, start],
                                ["all", "s"],
                                ["backward_all", "s"],
                            ]
                        )
                    )
                calls.append(made)
            yield one(
                f"{kind} store, memory {memory}",
                kind,
                calls,
                memory=memory,
                retention=2 * minute,
                window=10_000,
            )
    puts = [["put", "s", "a", text, 5] for text in ("x", "y", None, "x")]
    reads: list[Call] = [["fetch", "s", "a", 0, 10], ["all", "s"], ["backward_fetch", "s", "a", 0, 10]]
    yield one(
        "windows with duplicates",
        "window",
        [[*puts, *reads], [["put", "s", "a", "z", 7], ["put", "s", "b", "z", 7], *reads]],
        retention=60_000,
        window=10,
        duplicates=True,
    )


def ordered(first: str | None, last: str | None) -> tuple[str | None, str | None]:
    """In memory, sessions from a key to an earlier one are an error."""
    return (last, first) if first and last and first > last else (first, last)


def session_cases() -> Iterator[Case]:
    for memory in (False, True):
        rng = random.Random(f"session {memory}")
        minute = 60_000
        calls = []
        now = newest = 0
        for number in range(30):
            now += rng.choice([0, 1000, minute, 0, 1000, 3 * minute if number % 7 == 6 else 0])
            made: list[Call] = []
            for _ in range(5):
                key, other = rng.choice("abc"), rng.choice([None, "a", "b", "c"])
                end = max(0, now - rng.choice([0, 0, 1000, minute, 2 * minute, 4 * minute]))
                start = max(0, end - rng.choice([0, 0, 500, minute]))
                low = max(0, end - rng.choice([0, minute, 5 * minute]))
                # In RocksDB, a removal makes what is older than the retention go away as well.
                gone = min(end, newest)
                made.append(
                    rng.choice(
                        [
                            ["put", "s", key, start, end, rng.choice(["x", "y", None])],
                            ["put", "s", key, start, now, "x"],
                            ["put", "s", key, start, now, "y"],
                            ["remove", "s", key, min(start, gone), gone],
                            ["fetch_session", "s", key, start, end],
                            ["fetch", "s", key],
                            ["backward_fetch", "s", key],
                            ["fetch", "s", *ordered(other, rng.choice([None, key]))],
                            ["find_sessions", "s", key, low, end],
                            ["backward_find_sessions", "s", key, low, end],
                            ["find_sessions", "s", *ordered(other, key), low, end],
                            ["find_sessions", "s", low, end] if memory else ["fetch", "s", key],
                        ]
                    )
                )
                if made[-1][0] == "put":
                    newest = max(newest, made[-1][4])
            calls.append(made)
        yield one(f"session store, memory {memory}", "session", calls, memory=memory, retention=2 * minute)


def versioned_cases() -> Iterator[Case]:
    rng = random.Random("versioned")
    for history in (0, 10_000, 120_000):
        calls = []
        now = 0
        taken: set[tuple[str, int]] = set()
        for _ in range(40):
            now += rng.choice([0, 100, 5_000, 60_000])
            made: list[Call] = []
            for _ in range(5):
                key = rng.choice("ab")
                time = max(0, now - rng.choice([0, 0, 100, 5_000, 10_000, 60_000, 120_000, 200_000]))
                call: Call = rng.choice(
                    [
                        ["put", "s", key, rng.choice(["x", "y", "z", None]), time],
                        ["put", "s", key, rng.choice(["x", "y", "z", None]), now],
                        ["delete", "s", key, time],
                        ["get", "s", key],
                        ["get", "s", key, time],
                        ["get", "s", key, max(0, time - 50)],
                    ]
                )
                # Kafka Streams forgets that a key was deleted if it was put and deleted at one time.
                if call[0] == "put":
                    if (key, call[4]) in taken:
                        call[3] = "w"
                    taken.add((key, call[4]))
                elif call[0] == "delete" and (key, time) in taken:
                    call = ["get", "s", key]
                made.append(call)
            calls.append(made)
        yield one(f"versioned store, history {history}", "versioned", calls, history=history)


TREE = {
    "stores": [{"name": "s", "kind": "key-value"}, {"name": "t", "kind": "timestamped"}],
    "processors": [
        {"name": "top", "parent": "source", "stores": ["s"]},
        {"name": "left", "parent": "top", "stores": ["s", "t"]},
        {"name": "right", "parent": "top", "stores": ["t"]},
        {"name": "leaf", "parent": "left", "fixed": True},
    ],
    "sinks": [
        {"name": "out", "parent": "leaf"},
        {"name": "out-right", "parent": "right"},
        {"name": "out-top", "parent": "top"},
    ],
}


def task_cases() -> Iterator[Case]:
    look: list[Call] = [["record"], ["metadata"], ["stream_time"]]
    inner = json.dumps(
        {
            "left": [*look, ["put", "s", "l", "1"], ["pass"], ["get", "s", "l"], ["pass", "leaf"]],
            "right": [*look, ["put", "t", "r", ["1", 3]], ["forward", "R", "r", None, None, [["h", "2"]]]],
            "leaf": [["record"], ["forward", "other", "leaf", 77, None], ["pass", "out"]],
        }
    )
    top: list[Call] = [
        *look,
        ["put", "s", "k", "before"],
        ["forward", "K", inner, None, None],
        ["put", "s", "k", "after"],
        ["forward", "K", inner, 5, "right", [["a", "b"], ["a", "c"]]],
        ["forward", "K", "{}", 6, "out-top"],
        ["put", "s", "k", "last"],
        ["forward", "K", "{}", 6, "nowhere"],
        ["get", "t", "x"],
        ["pass", "out-top"],
        ["task"],
    ]
    yield {
        "name": "forward depth first",
        **TREE,
        "records": [
            ["a", {"top": top}, 10],
            ["b", {"top": top}, 7, [["h", "1"], ["h", "2"]]],
            [None, {"top": [["record"], ["pass"]]}, 8],
            ["c", None, 9],
        ],
    }
    put: list[Call] = [["put", "s", "n", "w"], ["metadata"], ["stream_time"]]
    for type in ("STREAM_TIME", "WALL_CLOCK_TIME"):
        yield {
            "name": f"punctuation by {type}",
            **TREE,
            "init": {
                "top": [
                    ["metadata"],
                    ["stream_time"],
                    ["system_time"],
                    ["schedule", "ten", type, 10, [*put, ["forward", "p", "{}", 3, "out-top"]]],
                    ["schedule", "thirty", type, 30, [["stream_time"]]],
                ],
                "leaf": [["schedule", "leaf", type, 7, []]],
            },
            "records": [
                ["a", {"top": [["record"]]}, 5],
                ["advance", 9],
                ["a", {"top": []}, 9],
                ["advance", 1],
                ["a", {"top": []}, 10],
                ["advance", 15],
                ["a", {"top": [["schedule", "late", type, 4, [["cancel", "late"]]]]}, 31],
                ["advance", 100],
                ["a", {"top": [["cancel", "ten"], ["system_time"]]}, 95],
                ["a", {"top": []}, 20],
                ["advance", 1],
                ["a", {"top": []}, 200],
                ["advance", 50],
            ],
        }
        for start in (0, 3, 50, 1000):
            yield {
                "name": f"punctuation by {type} from {start}",
                **TREE,
                "init": {"top": [["schedule", "one", type, 10, [], start]]},
                "records": [
                    ["a", {}, 4],
                    ["advance", 4],
                    ["a", {"top": [["schedule", "two", type, 20, [], start]]}, 25],
                    ["advance", 7],
                    ["a", {"top": [["schedule", "three", type, 10, [], start]]}, 30],
                    ["advance", 9],
                    ["a", {"top": [["schedule", "four", type, 10, [], start]]}, 31],
                    *([["advance", 1], ["advance", 30], ["a", {}, 61], ["advance", 2000]]),
                    ["a", {}, 1500],
                ],
            }
    failing: list[Call] = [["put", "s", "k", "x"], ["pass"], ["put", "s", "k", "y"]]
    inside = {
        "left": [["put", "t", "l", ["x", 1]], ["raise"], ["put", "t", "l", ["y", 1]]],
        "right": [["pass"]],
    }
    for goes_on in (False, True):
        yield {
            "name": f"a processor that raises, continue {goes_on}",
            **TREE,
            "continue": goes_on,
            "init": {"top": [["schedule", "bad", "STREAM_TIME", 20, [["raise"]]]] if goes_on else []},
            "records": [
                ["a", {"top": failing, **inside}, 5],
                ["a", {"top": [["raise"]]}, 6],
                ["b", {"top": [["get", "s", "k"]]}, 30],
            ],
        }


def cases() -> Iterator[Case]:
    """All of them."""
    yield from key_value_cases()
    yield from window_cases()
    yield from session_cases()
    yield from versioned_cases()
    yield from task_cases()


def asked() -> list[str]:
    """The cases as the runner reads them."""
    return [json.dumps(case, separators=(",", ":")) for case in cases()]


def main() -> None:
    """Write the calls anew."""
    with tempfile.TemporaryDirectory() as classes:
        written = KafkaStreams(Path(classes), RUNNER).ask(asked())
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text("".join(f"{line}\n" for line in written), "utf-8")
    print(f"{len(written)} cases")


if __name__ == "__main__":
    main()
