"""The operators of a task on its state: what they tell of each record is what Kafka Streams sends, whenever
the task commits, and however often it is started anew from its changelogs.

Expected values are the traces of Kafka Streams (tests/snapshots/traces); for random programs, what the cores
make of each record without a restart, which test_cores.py and test_join_cores.py compare with the traces.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import test_cores as aggregates
import test_join_cores as joins
from java_programs import KernelJava
from snapshots.traces import Trace, difference, step, traces, without_false_results
from tiers import examples

pytestmark = pytest.mark.disk

MAIN = "io.millstream.kernel.task.TaskTracesMain"
KINDS = ("memory", "rocksdb")
JOINS = ("stream_table", "stream_stream", "table_table", "joined_tables", "foreign_key")
TABLES = {"table", "filter", "map_values", "join", "left_join", "to_stream"}
DIFFERS = {
    "foreign_key/join, rows that refer to others of their table": "a topic comes in between",
    "foreign_key/left_join, rows that refer to others of their table": "the same",
}
"""Where the test's program does not what Kafka Streams does."""


def ask(kernel_java: KernelJava, cases: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The steps of each case, one for each record."""
    said = kernel_java(MAIN, "".join(f"{json.dumps(case)}\n" for case in cases), timeout=120)
    return [json.loads(line) for line in said.splitlines()]


def with_restarts(case: Mapping[str, Any], kind: str, chance: random.Random) -> dict[str, Any]:
    """A case with commits and restarts at random places; work in between may be lost."""
    often = (0.1, 0.3, 1) if kind == "memory" else (0.1, 0.2)
    return {
        **case,
        "seed": chance.randrange(10**9),
        "commits": chance.choice([0.2, 0.5, 1]),
        "restarts": chance.choice(often),
        "losses": chance.choice([0, *often[:2]]),
        "rocksdb": kind == "rocksdb",
        "local": chance.random() < 0.7,
        "capacity": chance.choice([1, 3, 8, 200_000]),
    }


def sample(some: Sequence[Trace], kind: str, chance: random.Random) -> Sequence[Trace]:
    """All of them in memory, and some on disk."""
    return some if kind == "memory" else chance.sample(some, min(6, len(some)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", aggregates.FILES)
def test_each_record_leads_to_what_kafka_streams_sends(file: str, kind: str, kernel_java: KernelJava) -> None:
    """Windows are emitted when they close, and updates released, with the record that is the cause."""
    chance = random.Random(file)
    exact = [trace for trace in aggregates.chosen(file) if not aggregates.loses_windows(trace)]
    some = sample(exact, kind, chance)
    cases = [with_restarts(aggregates.case_of(trace), kind, chance) for trace in some]
    found = ask(kernel_java, cases)
    for trace, case, steps in zip(some, cases, found, strict=True):
        theirs = replace(trace, steps=aggregates.plain(trace.steps))
        ours = aggregates.plain(map(step, steps))
        assert difference(theirs, ours, ignore=["log"]) is None, case
    assert sum(steps[-1].get("restarted", 0) for steps in found) > len(some)


def chosen_joins(file: str) -> list[Trace]:
    if file != "foreign_key":
        return joins.chosen(file)
    return [
        trace
        for trace in traces(file)
        if set(trace.operations) <= TABLES
        and trace.operations[-2] in ("join", "left_join")
        and sum(op.startswith(("join", "left")) for op in trace.operations) == 1
        and trace.name not in DIFFERS
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("file", JOINS)
def test_each_record_of_joins_leads_to_what_kafka_streams_sends(
    file: str, kind: str, kernel_java: KernelJava
) -> None:
    """Both sides, what waits for a match or for its time, versions, and references by foreign keys."""
    chance = random.Random(file)
    some = sample(chosen_joins(file), kind, chance)
    assert kind == "rocksdb" or len(some) >= 30
    cases = [with_restarts(joins.case_of(trace, joins=True), kind, chance) for trace in some]
    restarted = 0
    for trace, case, found in zip(some, cases, ask(kernel_java, cases), strict=True):
        restarted += found[-1]["restarted"]
        if joins.is_told_later(trace):
            kafkas = [row for each in trace.steps for row in each.out]
            if "before" in trace.program[-1]:
                kafkas = without_false_results(trace)
            expected = [[row.key, row.value, row.timestamp] for row in kafkas]
            assert sorted(joins.rows(found), key=str) == sorted(expected, key=str), (trace.name, case)
        else:
            assert difference(trace, [*map(step, found)], ignore=["log", "dropped"]) is None, case
    assert restarted > 0


# --- random programs ---------------------------------------------------------------------------------------


def random_windows(chance: random.Random) -> dict[str, Any]:
    grace = chance.choice([0, 0, 3, 20])
    match chance.choice(["time", "time", "sliding", "session"]):
        case "time":
            size = chance.choice([1, 7, 10, 30])
            return {"windows": "time", "size": size, "advance": chance.randint(1, size), "grace": grace}
        case "sliding":
            return {"windows": "sliding", "difference": chance.choice([1, 6, 15]), "grace": grace}
        case _:
            return {"windows": "session", "gap": chance.choice([1, 4, 11]), "grace": grace}


def random_aggregation(chance: random.Random) -> dict[str, Any]:
    windows = random_windows(chance)
    program: list[dict[str, Any]] = [{"op": "windowed_by", **windows}]
    fold: dict[str, Any] = {"op": "aggregate", "function": "concat"}
    kind = chance.choice(["update", "close", "suppress"])
    if kind == "close":
        fold["emit"] = "close"
    program.append(fold)
    if kind == "suppress":
        until: dict[str, Any] = {"until": "window closes"}
        if chance.random() < 0.3:
            until = {"until": "time limit", "ms": chance.choice([1, 9]), "records": chance.choice([2, 100])}
        program.append({"op": "suppress", **until})
    return {"program": program, "records": random_records(chance, ["in"])}


def random_records(chance: random.Random, topics: Sequence[str]) -> list[list[Any]]:
    """They are in disorder, of few keys, of which some begin with others, and sometimes far apart."""
    now = chance.randrange(5)
    records: list[list[Any]] = []
    for number in range(chance.choice([15, 60])):
        now += chance.choice([0, 0, 1, 2, 5, chance.choice([0, 60])])
        at = max(0, now - chance.choice([0, 0, 0, 1, 4, 12, 30]))
        value = None if len(topics) > 1 and chance.random() < 0.1 else f"v{number}"
        records.append([chance.choice(["a", "a\0\0", "b", "c"]), value, at, chance.choice(topics)])
    return records


def random_join(chance: random.Random) -> dict[str, Any]:
    table: dict[str, Any] = {"op": "table", "topic": "t", "as": "t"}
    if chance.random() < 0.5:
        table["history"] = chance.choice([5, 20, 100])
    program: list[dict[str, Any]]
    join: dict[str, Any]
    match chance.choice(["streams", "streams", "lookup", "tables"]):
        case "streams":
            times = {name: chance.choice([0, 3, 10]) for name in ("before", "after", "grace")}
            join = {"op": chance.choice(["join", "left_join", "outer_join"]), "with": "r", **times}
            if chance.random() < 0.15:
                program = [{"op": "stream", "as": "r"}, join]
            else:
                program = [{"op": "stream", "topic": "t", "as": "r"}, {"op": "stream"}, join]
        case "lookup":
            join = {"op": chance.choice(["join", "left_join"]), "with": "t"}
            if "history" in table and chance.random() < 0.7:
                join["grace"] = chance.choice([0, 4, 30])
            program = [table, {"op": "stream"}, join]
        case _:
            left: dict[str, Any] = {"op": "table"}
            if chance.random() < 0.3:
                left["history"] = chance.choice([5, 50])
            program = [
                table,
                left,
                {"op": chance.choice(["join", "left_join", "outer_join"]), "with": "t"},
                {"op": "to_stream"},
            ]
    topics = sorted({op.get("topic", "in") for op in program if op["op"] in ("stream", "table")})
    return {"program": program, "records": random_records(chance, topics)}


@pytest.mark.parametrize("kind", KINDS)
def test_random_aggregations_go_on_as_if_there_had_been_no_restart(
    kind: str, kernel_java: KernelJava
) -> None:
    """Nothing is emitted twice, or missing, or with another value."""
    chance = random.Random(kind)
    plain = [random_aggregation(chance) for _ in range(examples(400 if kind == "memory" else 40))]
    expected = aggregates.ask(kernel_java, plain)
    cases = [with_restarts(case, kind, chance) for case in plain]
    for case, whole, found in zip(cases, expected, ask(kernel_java, cases), strict=True):
        assert told(found) == told(whole), case


@pytest.mark.parametrize("kind", KINDS)
def test_random_joins_go_on_as_if_there_had_been_no_restart(kind: str, kernel_java: KernelJava) -> None:
    """Nothing is emitted twice, or missing, or with another value."""
    chance = random.Random(kind)
    plain = [random_join(chance) for _ in range(examples(400 if kind == "memory" else 40))]
    expected = joins.ask(kernel_java, plain)
    cases = [with_restarts({**case, "joins": True}, kind, chance) for case in plain]
    for case, whole, found in zip(cases, expected, ask(kernel_java, cases), strict=True):
        assert told(found) == told(whole), case


def told(steps: Iterable[Mapping[str, Any]]) -> list[Any]:
    """What each record led to."""
    return [(each.get("out"), each.get("updates"), each.get("dropped"), each.get("error")) for each in steps]


# --- caches, and what is kept ------------------------------------------------------------------------------


@pytest.mark.parametrize("file", ["unwindowed", "time", "session", "sliding", "emit_on_close"])
def test_a_cache_ends_with_the_same_values(file: str, kernel_java: KernelJava) -> None:
    """Each change is told once a commit, or when the cache is full. What closes is told once, in the same
    order."""
    chance = random.Random(file)
    some = [trace for trace in aggregates.chosen(file) if not aggregates.loses_windows(trace)]
    cases = [with_restarts(aggregates.case_of(t, at_once=False), "memory", chance) for t in some]
    singly = aggregates.ask(kernel_java, map(aggregates.case_of, some))
    for trace, case, expected, steps in zip(some, cases, singly, ask(kernel_java, cases), strict=True):
        on_close = aggregates.fold_of(trace).get("emit") == "close"
        if on_close:
            assert joins.rows(steps) == joins.rows(expected), case
        lane = "updates" if on_close else "out"
        ours, theirs = (aggregates.last(aggregates.rows(each, lane)) for each in (steps, expected))
        assert ours == theirs, (trace.name, case)


@pytest.mark.parametrize("emit", ["update", "close"])
@pytest.mark.parametrize("windows", aggregates.WINDOWS, ids=lambda each: f"{each['windows']} {each['grace']}")
def test_what_has_closed_is_given_up(windows: dict[str, Any], emit: str, kernel_java: KernelJava) -> None:
    """This includes keys that never come again. It is no deletion in the changelog, which forgets by itself,
    and is not restored from there."""
    records = [[f"k{n}", "x", n] for n in range(2_000)]
    program = [{"op": "windowed_by", **windows}, {"op": "count", "emit": emit}]
    chances = {"commits": 0.1, "restarts": 0.1, "seed": 3}
    case = {"program": program, "records": records, "at_once": False, **chances}
    (steps,) = ask(kernel_java, [case])
    kept = [each["kept"] for each in steps[:-1]]
    assert max(kept) < 1_000
    assert max(kept[1_500:]) <= max(kept[250:750]) + 200
    assert steps[-2]["restarted"] > 10
    if windows["windows"] == "session":
        assert steps[-2]["logged"] <= len(records)


def test_a_record_writes_little(kernel_java: KernelJava) -> None:
    """Also if its key has many records, versions or references."""
    stream = [{"op": "stream", "topic": "t", "as": "r"}, {"op": "stream"}]
    pairs = [*stream, {"op": "left_join", "with": "r", "before": 10_000, "after": 10_000, "grace": 0}]
    versions = [{"op": "table", "topic": "t", "history": 100_000, "as": "t"}, {"op": "stream"}]
    versions.append({"op": "left_join", "with": "t"})
    held = [versions[0], {"op": "stream"}, {"op": "left_join", "with": "t", "grace": 100_000}]
    right = {"op": "table", "topic": "t", "as": "t"}
    foreign = [right, {"op": "table"}, {"op": "join", "with": "t", "foreign_key": "letter"}]
    for program in (pairs, versions, held, foreign):
        records = [
            [f"k{n}" if program is foreign and n % 2 else "a", f"a{n}", n, "in" if n % 2 else "t"]
            for n in range(1_000)
        ]
        case = {"program": program, "records": records, "joins": True}
        (steps,) = ask(kernel_java, [case])
        assert steps[-1]["logged"] <= 3 * len(records)
