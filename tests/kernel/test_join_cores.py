"""The kernel's joins, without Spark: what they make of each record is what Kafka Streams sends.

Expected values are the traces of Kafka Streams (tests/snapshots/traces): all of streams and tables that join.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import pytest
from java_programs import KernelJava
from snapshots.traces import Trace, difference, step, traces, without_false_results

from millstream import Consumed, Joined, JoinWindows, KTable, Materialized, Serdes, StreamsBuilder
from millstream.physical.kernel_joins import is_quiet
from millstream.topology.nodes import TableFilter

pytestmark = pytest.mark.disk

MAIN = "io.millstream.kernel.core.JoinTracesMain"
DIFFERS = {
    "stream_table/join, the count of the same stream by value": "a repartition topic comes in between",
    "stream_table/left_join, a versioned table and null keys, grace 10": "there it ends with an error",
    "table_table/join, with itself, filtered": "its sides are two, and change one after the other",
    "table_table/left_join, with itself, filtered": "the same",
    "table_table/outer_join, with itself, filtered": "the same",
    "table_table/random 1, left_join, versioned tables": (
        "a value deleted at its own time: there its store forgets when, if it has nothing from before"
    ),
}
"""Where a core does not what Kafka Streams does."""


def chosen(file: str) -> list[Trace]:
    """Those without windows of aggregations."""
    return [t for t in traces(file) if t.name not in DIFFERS and "windowed_by" not in t.operations]


def is_told_later(trace: Trace) -> bool:
    """Whether it has results for records without a match. They come as soon as there can be none; Kafka
    Streams does not look for them at each record."""
    return any(op["op"] in ("left_join", "outer_join") and "before" in op for op in trace.program)


def ask(kernel_java: KernelJava, cases: Iterable[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The steps of each case."""
    said = kernel_java(MAIN, "".join(f"{json.dumps(case)}\n" for case in cases))
    return [json.loads(line) for line in said.splitlines()]


def case_of(trace: Trace, **more: Any) -> dict[str, Any]:
    records = [[record.key, record.value, record.timestamp, record.topic] for record in trace.records]
    return {"program": with_quiet_filters(trace.program), "records": records, **more}


def with_quiet_filters(program: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The program, with what Millstream finds of its filters: whether they tell of rows that never were."""
    builder = StreamsBuilder()
    made: dict[str, Any] = {}
    it: Any = None
    for place, op in enumerate(program):
        it = _made(
            builder, op, f"step-{place}", made[op["of"]] if "of" in op else it, made.get(op.get("with", ""))
        )
        if "as" in op:
            made[op["as"]] = it
    nodes = {node.name: node for node in builder.build().nodes}
    filters = [nodes.get(f"step-{place}") for place in range(len(program))]
    return [
        {**op, "is_quiet": is_quiet(node)} if isinstance(node, TableFilter) else op
        for op, node in zip(program, filters, strict=True)
    ]


def _made(builder: StreamsBuilder, op: Mapping[str, Any], name: str, before: Any, other: Any) -> Any:
    """What an operation gives, in the DSL; its functions are never called."""
    store = [Materialized.as_(f"store-{name}")] if "store" in op or "history" in op else []
    if "history" in op:
        store = [store[0].with_history(timedelta(milliseconds=op["history"]))]
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    match op["op"]:
        case "stream":
            return builder.stream(op.get("topic", "in"), strings)
        case "table":
            return builder.table(op.get("topic", "in"), strings, *store)
        case "filter" | "filter_not" as kind:
            return getattr(before, kind)(lambda value: value, *store, named=name)
        case "join" | "left_join" | "outer_join" as kind:
            given: list[Any] = store
            if "before" in op:
                given = [JoinWindows.of_time_difference_and_grace(timedelta(hours=1), timedelta(0))]
            elif "grace" in op:
                given = [Joined.with_(grace_period=timedelta(milliseconds=op["grace"]))]
            return getattr(before, kind)(other, lambda left, right: left, *given)
        case "group_by" if isinstance(before, KTable):
            return before.group_by(lambda key, value: (key, value))
        case "map_values" | "select_key" | "group_by" as kind:
            return getattr(before, kind)(lambda value: value, *store)
        case "count" | "reduce" | "aggregate":
            return before.count(*store)
        case kind:
            return getattr(before, kind)(*store)


def rows(steps: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    return [row for each in steps for row in each.get("out", [])]


@pytest.mark.parametrize(
    ("file", "least"),
    [("stream_table", 100), ("stream_stream", 85), ("table_table", 130), ("joined_tables", 50)],
)
def test_each_record_leads_to_what_kafka_streams_sends(
    file: str, least: int, kernel_java: KernelJava
) -> None:
    """Each record a micro-batch of its own: what is kept in between is all that there is."""
    some = chosen(file)
    assert len(some) >= least
    for trace, found in zip(some, ask(kernel_java, map(case_of, some)), strict=True):
        if is_told_later(trace):
            kafkas = [row for each in trace.steps for row in each.out]
            if "before" in trace.program[-1]:
                kafkas = without_false_results(trace)
            expected = [[row.key, row.value, row.timestamp] for row in kafkas]
            assert sorted(rows(found), key=str) == sorted(expected, key=str), trace.name
        else:
            assert difference(trace, [*map(step, found)], ignore=["log", "dropped"]) is None


@pytest.mark.parametrize("file", ["stream_table", "stream_stream", "table_table", "joined_tables"])
def test_micro_batches_make_no_difference(file: str, kernel_java: KernelJava) -> None:
    """The records are divided in any way, and the caches are full in the middle of a micro-batch."""
    chance = random.Random(file)
    some = chosen(file)
    cases = [
        case_of(
            trace,
            batches=[chance.choice([1, 2, 5, 100]) for _ in trace.records],
            capacity=chance.choice([1, 2, 5, 200_000]),
            span=chance.choice([1, 3, 64]),
        )
        for trace in some
    ]
    singly = ask(kernel_java, map(case_of, some))
    for trace, expected, found in zip(some, singly, ask(kernel_java, cases), strict=True):
        assert rows(found) == rows(expected), trace.name


def test_a_value_that_is_deleted_at_its_own_time_stays_deleted(kernel_java: KernelJava) -> None:
    """For what is older, too, as every other deletion does. Kafka Streams' store forgets of this one when it
    was, if it has nothing from before."""
    program = [
        {"op": "table", "topic": "t", "history": 100, "as": "t"},
        {"op": "stream"},
        {"op": "left_join", "with": "t"},
    ]
    records = [
        ["a", "A", 9, "t"],
        ["a", None, 9, "t"],
        ["a", "B", 5, "t"],
        ["a", "x", 9, "in"],
        ["a", "y", 8, "in"],
    ]
    (steps,) = ask(kernel_java, [{"program": program, "records": records}])
    assert rows(steps) == [["a", "x+_", 9], ["a", "y+B", 8]]


@pytest.mark.parametrize("grace", [None, 50])
def test_what_is_too_old_to_be_found_is_given_up(grace: int | None, kernel_java: KernelJava) -> None:
    """Versions, deletions among them, and records that have waited, also of keys that never come again: what
    is kept is of the last history, however long it goes."""
    join: dict[str, Any] = {"op": "left_join", "with": "t"}
    if grace is not None:
        join["grace"] = grace
    program = [{"op": "table", "topic": "t", "history": 100, "as": "t"}, {"op": "stream"}, join]
    records = []
    for n in range(2_000):
        key = f"k{n // 10}"
        records += [[key, None if n % 10 == 9 else f"v{n}", n, "t"], [key, "x", n, "in"]]
    case = {"program": program, "records": records, "batches": [100] * 40, "span": 4}
    (steps,) = ask(kernel_java, [case])
    kept = [each["kept"] for each in steps]
    assert len(kept) == 40
    assert max(kept) < 600
    assert max(kept[30:]) <= max(kept[5:15]) + 10
    far = [["last", "x", 1_000_000, topic] for topic in ("t", "in")]
    (steps,) = ask(kernel_java, [{**case, "records": [*records, *far]}])
    assert steps[-1]["kept"] <= 10
