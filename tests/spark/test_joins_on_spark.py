"""Joins and grouped tables behind other steps, given the records of Kafka Streams' traces, many in a batch.

One by one, test_join_traces_on_tasks.py has them; and without Spark, tests/kernel/test_join_cores.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest
from driving import records, stamped
from pyspark.sql import Column
from pyspark.sql import functions as F
from snapshots.traces import Trace, traces
from trace_driving import came, ms, own, pipe_in_order, topology_of

from millstream import (
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    Serde,
    Serdes,
    SessionWindows,
    Stores,
    TimeWindows,
    ValueAndTimestamp,
    WindowedSerdes,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

T = TypeVar("T")

BY_FOREIGN_KEY = (
    "foreign_key/left_join, null keys, foreign keys and values",
    "foreign_key/join, times go back",
)
"""Of these a few: there each batch is three."""
SINGLY = (
    # Between two joins a record waits for the end of the batch, and then finds later rows, too.
    "stream_table/left_join with one, join with another",
    "stream_table/left_join with one, left_join with another",
    # Of a key's updates in a batch, the last one alone is looked up.
    *BY_FOREIGN_KEY,
)
"""Of these each record is a batch."""
OTHER_THAN_KAFKA = {
    # One change of such a table is two of the join's: here each has the other side as it was, or as it is.
    "with itself, filtered",
    # A record without a key ends the program there.
    "left_join, a versioned table and null keys",
    # An update that is older than the history goes on to what is made of the table, into another store.
    "left_join, a versioned table behind a filter with a store",
    # A value deleted at its own time: there its store forgets when, if it has nothing from before.
    "random 1, left_join, versioned tables",
    # A store of its own does not change what a filter knows.
    "windows, filter with a store",
    "count, filter with a store",
}
"""What the names of traces have in them that come out in another way."""
TRANSFORMED = (
    "with a store",
    "with a history",
    "filtered, of a table with a store",
    "filtered, with a store",
    "grouped, called twice",
    "two in a row, the first with a store",
    "left_join, with a store",
)
"""Of tables that are transformed a few, which have each way to know what was there before."""
BEHIND_A_JOIN = (
    "stream_table/left_join with one, left_join with another",
    "table_table/left_join, versioned tables, filter with a store",
    "table_table/outer_join, windows",
)
"""Of tables that are kept, and joined by an operator that is not the next one; and of keys with windows."""
WITH_VALUES = 6
"""So many of their first records have a value: a join of a stream drops the others."""


def can_be_said(trace: Trace) -> bool:
    if any("foreign_key" in op for op in trace.program):
        return trace.name in BY_FOREIGN_KEY
    is_joined = any("join" in op["op"] for op in trace.program)
    return not any(words in trace.name for words in OTHER_THAN_KAFKA) and (
        is_joined or not any("history" in op for op in trace.program)
    )


def is_asked_for_late(trace: Trace) -> bool:
    """Whether it has results for records without a match. They come as soon as there can be none; Kafka
    Streams does not look for them at each record."""
    return any(op["op"] in ("left_join", "outer_join") and "before" in op for op in trace.program)


def text(value: Column) -> Column:
    return F.coalesce(value.cast("string"), F.lit("_"))


def joiner(left: Column, right: Column) -> Column:
    return F.concat(text(left), F.lit("+"), text(right))


def letter(value: Column) -> Column:
    first = F.substring(value, 1, 1)
    return F.when(value.isNotNull() & (first != "-") & (F.length(value) > 0), first)


KEYS: Mapping[str, Any] = {
    "value": lambda key, value: value.cast("string"),
    "all": lambda key, value: F.lit("all"),
    "letter": lambda key, value: letter(value),
    "key": lambda key, value: key.key,
    "key and start": lambda key, value: F.concat(key.key, F.lit("@"), F.unix_millis(key.window.start)),
}


def rest(value: Column) -> Column:
    return F.when(F.length(value) > 1, F.substring(value, 2, 1_000))


VALUES: Mapping[str, Any] = {
    "same": lambda value: value,
    "value": lambda value: value,
    "rest": rest,
    "number": lambda value: rest(value).cast("long"),
}


def mapped(function: str) -> Any:
    if function == "twice":
        return lambda value: 2 * value
    if function == "null":
        return lambda value: F.lit(None).cast("string")
    if function.startswith("upper unless "):
        return lambda value: F.when(value != function[-1], F.upper(value))
    assert function == "upper"
    return lambda value: F.upper(value)


def passes(function: str) -> Any:
    if function == "even":
        return lambda value: value % 2 == 0
    if function == "above 1":
        return lambda value: value > 1
    assert function.startswith("not ")
    return lambda value: value != function[4:]


def transformed(table: Any, function: str, calls: str | None, store: Materialized | None) -> Any:
    """By a function that does what that of TraceAll.java does."""

    def of(key: str, value: str | None, count: str = "") -> str | None:
        if function == "key and text":
            return f"{key}={'_' if value is None else value}{count}"
        return None if value in (None, "x") else value.upper() + count

    if calls is None:
        return table.transform_values(lambda key, value: of(key, value), materialized=store)

    def counted(key: str, value: str | None, calls: Any) -> str | None:
        before = calls.get(key)
        count = 1 if before is None else before.value + 1
        calls.put(key, ValueAndTimestamp(count, 7))
        return of(key, value, f"#{count}")

    kept = Stores.persistent_timestamped_key_value_store(calls)
    builder = Stores.timestamped_key_value_store_builder(kept, Serdes.string(), Serdes.long())
    return table.transform_values(counted, builder, materialized=store)


@dataclass
class Made:
    """What an operation gave."""

    it: Any
    values: str = "string"
    of_table: bool = False
    windows: Mapping[str, Any] | None = None


@dataclass
class Program:
    """One trace's program, under a number."""

    number: int
    trace: Trace

    def build(self, source: Any) -> None:
        made: dict[str, Made] = {}
        last: Made | None = None
        for place, op in enumerate(self.trace.program):
            before = made[op["of"]] if "of" in op else last
            last = self._step(source, before, made.get(op.get("with", "")), op, place)
            if "as" in op:
                made[op["as"]] = last
        assert last is not None
        self.values, self.windows = last.values, last.windows
        it = last.it.to_stream() if last.of_table else last.it
        it.to(f"out-{self.number}")

    def _step(
        self, source: Any, before: Made | None, other: Made | None, op: Mapping[str, Any], place: int
    ) -> Made:
        name = op["op"]
        store = Materialized.as_(f"store-{self.number}-{place}") if "store" in op else None
        if store is not None and "history" in op:
            store = store.with_history(ms(op["history"]))
        if name in ("stream", "table"):
            it = own(source, self, op.get("topic", "in"))
            if op["values"] == "long":
                it = it.map_values(lambda value: value.cast("long"))
            if name == "table":
                it = it.to_table(*([store] if store else []))
            return Made(it, op["values"], name == "table")
        assert before is not None
        it = before.it
        values, of_table, windows = before.values, before.of_table, before.windows
        match name:
            case "select_key":
                return Made(it.select_key(KEYS[op["key"]]), values)
            case "group_by" if of_table:
                kind = op.get("value", "same")
                of_key = KEYS[op["key"]] if windows or op["key"] != "key" else lambda key, value: key
                grouped = it.group_by(lambda key, value: (of_key(key, value), VALUES[kind](value)))
                return Made(grouped, "long" if kind == "number" else values, True)
            case "group_by":
                return Made(it.group_by(KEYS[op["key"]]), values)
            case "group_by_key":
                return Made(it.group_by_key(), values)
            case "windowed_by":
                if op["windows"] == "session":
                    made = SessionWindows.of_inactivity_gap_and_grace(ms(op["gap"]), ms(op["grace"]))
                else:
                    made = TimeWindows.of_size_and_grace(ms(op["size"]), ms(op["grace"])).advance_by(
                        ms(op["advance"])
                    )
                return Made(it.windowed_by(made), values, windows=op)
            case "to_stream":
                return Made(it.to_stream(), values, windows=windows)
            case "to_table":
                return Made(it.to_table(*([store] if store else [])), values, True)
            case "map_values":
                given = [store] if store else []
                return Made(it.map_values(mapped(op["function"]), *given), values, of_table, windows)
            case "transform_values":
                calls = f"calls-{self.number}-{place}" if "calls" in op else None
                made = transformed(it, op["function"], calls, store)
                return Made(made, values, True)
            case "filter" | "filter_not":
                given = [store] if store else []
                return Made(getattr(it, name)(passes(op["function"]), *given), values, of_table, windows)
            case "join" | "left_join" | "outer_join":
                assert other is not None
                given = []
                if "foreign_key" in op:
                    return Made(getattr(it, name)(*self._by_foreign_key(other.it, op, store)), "string", True)
                if not of_table and not other.of_table:
                    far = JoinWindows.of_time_difference_and_grace(ms(10**9), ms(op["grace"]))
                    given = [far.before(ms(op["before"])).after(ms(op["after"]))]
                elif store is not None:
                    given = [store]
                elif "grace" in op:
                    given = [Joined.with_(grace_period=ms(op["grace"]))]
                return Made(getattr(it, name)(other.it, joiner, *given), "string", of_table, windows)
        assert name in ("count", "reduce", "aggregate")
        if op.get("emit") == "close":
            before = replace(before, it=it.emit_strategy(EmitStrategy.on_window_close()))
        if store is not None and "retention" in op:
            store = store.with_retention(ms(op["retention"]))
        it, given = before.it, [store] if store is not None else []
        if name == "count":
            return Made(it.count(*given), "long", True, windows)
        return self._folded(before, op, store or Materialized.as_(f"own-{self.number}-{place}"))

    def _by_foreign_key(self, right: Any, op: Mapping[str, Any], store: Materialized | None) -> list[Any]:
        given = [store] if store else []
        if op["foreign_key"] == "key":
            return [right, lambda key, value: key, joiner, *given]
        return [right, letter, joiner, *given]

    def _folded(self, before: Made, op: Mapping[str, Any], store: Materialized) -> Made:
        it, function = before.it, op["function"]
        if not before.of_table:
            if function == "sum":
                return Made(it.aggregate(lambda value: F.sum(value), store), "long", True, before.windows)
            if function == "concat unless -":
                made = it.aggregate(
                    lambda: "",
                    lambda key, value, so_far: (
                        None if value == "-" else so_far + ("_" if value is None else value)
                    ),
                    (store or Materialized.as_(f"own-{self.number}")).with_value_serde(Serdes.string()),
                )
                return Made(made, "string", True, before.windows)
            folds: Mapping[str, Any] = {
                "concat": lambda value: F.array_join(F.collect_list(text(value)), ""),
                "last": F.last,
            }
            return Made(it.aggregate(folds[function], store), "string", True, before.windows)
        if function == "sum":
            return Made(it.aggregate(lambda value: F.sum(value), store), "long", True)

        def plain(value: Any) -> str:
            return "_" if value is None else str(value)

        def changed(value: Any, so_far: str, sign: str) -> str | None:
            return None if function == "concat unless -" and value == "-" else f"{so_far}{sign}{plain(value)}"

        if op["op"] == "reduce":
            made = it.reduce(
                lambda so_far, value: changed(value, so_far, "+"),
                lambda so_far, value: changed(value, so_far, "-"),
                store,
            )
        else:
            made = it.aggregate(
                lambda: "",
                lambda key, value, so_far: changed(value, so_far, "+"),
                lambda key, value, so_far: changed(value, so_far, "-"),
                store.with_value_serde(Serdes.string()),
            )
        return Made(made, "string", True)

    @property
    def key_serde(self) -> Serde:
        if self.windows is None:
            return Serdes.string()
        if self.windows["windows"] == "session":
            return WindowedSerdes.session_windowed_serde_from(Serdes.string())
        return WindowedSerdes.time_windowed_serde_from(Serdes.string(), ms(self.windows["size"]))

    @property
    def value_serde(self) -> Serde:
        return Serdes.long() if self.values == "long" else Serdes.string()


def spread(some: Sequence[T], count: int) -> list[T]:
    """So many, or all if they are fewer."""
    count = min(len(some), count)
    return [some[place * len(some) // count] for place in range(count)]


def beginning(trace: Trace, count: int) -> Trace:
    """As if there were no more records than so many."""
    return replace(trace, records=trace.records[:count], steps=trace.steps[:count])


@dataclass
class BehindAJoin(Program):
    """What it reads are the results of a join, which are the records as they were; none without a value."""

    def build(self, source: Any) -> None:
        none = source.filter(lambda key, value: F.lit(False)).to_table()
        super().build(source.left_join(none, lambda left, right: left))


def test_behind_a_join_a_program_writes_what_it_writes_in_front_of_it() -> None:
    """Its tables are kept before it joins them, in another operator; and keys have windows there, too."""
    some = [trace for trace in traces("stream_table", "table_table") if trace.name in BEHIND_A_JOIN]
    programs = [BehindAJoin(number, beginning(trace, WITH_VALUES)) for number, trace in enumerate(some)]
    assert len(programs) == len(BEHIND_A_JOIN)
    assert all(record.value is not None for program in programs for record in program.trace.records)
    wrong = []
    with TopologyTestDriver(
        topology_of(programs), {"application.id": "app", "statestore.cache.max.bytes": 0}
    ) as driver:
        pipe_in_order(driver, programs, singly=SINGLY)
        for program in programs:
            sent = [each for step in program.trace.steps for each in step.out]
            if (found := came(driver, program)) != sent:
                wrong.append(f"{program.trace.name}: {found} for {sent}")
    assert not wrong, "\n".join(wrong)


def test_tables_are_transformed_as_kafka_streams_transforms_them() -> None:
    """Called with what Kafka Streams calls them with, old values and nulls; each result, and what is kept."""
    some = [trace for trace in traces("transformed") if trace.name.partition("/")[2] in TRANSFORMED]
    programs = [Program(number, beginning(trace, 8)) for number, trace in enumerate(some)]
    assert len(programs) == len(TRANSFORMED)
    wrong = []
    with TopologyTestDriver(
        topology_of(programs), {"application.id": "app", "statestore.cache.max.bytes": 0}
    ) as driver:
        pipe_in_order(driver, programs)
        for program in programs:
            trace = program.trace
            sent = [each for step in trace.steps for each in step.out]
            found = came(driver, program)
            if found != sent:
                wrong.append(f"{trace.name}:\n{found} for\n{sent}")
            for place, op in enumerate(trace.program):
                if op["op"] != "transform_values" or "history" in op:
                    continue
                for kind, serde in (("store", "string"), ("calls", "long")):
                    if kind not in op:
                        continue
                    name = f"{kind}-{program.number}-{place}"
                    log = [row for step in trace.steps for row in step.log.get(op[kind], ())]
                    expected = [(row.key, row.value, row.timestamp) for row in log]
                    last = {row.key: (row.value, row.timestamp) for row in log}
                    written = [
                        (each.key, each.value, each.timestamp)
                        for each in records(driver, f"app-{name}-changelog", value=serde)
                    ]
                    kept = {key: value for key, value in last.items() if value[0] is not None}
                    if (written, stamped(driver, name)) != (expected, kept):
                        wrong.append(f"{trace.name}, {name}:\n{written} for\n{expected}")
    assert not wrong, "\n".join(wrong)
