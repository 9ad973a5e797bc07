"""Traces: what Kafka Streams 4.3.1 makes of small programs, record by record, in tests/snapshots/traces.

Each line there is one trace, a JSON object:

    "name"     no other trace has it: the file, a slash, and what it is about
    "program"  operations, each an object with "op" and its arguments; what the last one gives is the output
    "records"  the input in its order: [key, value, timestamp]; a value is a text, a number or null. If the
               program names topics, each has its topic as well; in the file "headers", its headers come last,
               a list of [name, value], where a value is a text or null
    "steps"    one for each record, in the same order, with what there is of
                 "out":     rows that came out, in Kafka's order
                 "headers": those of each of them, if the records have any
                 "log":     rows that each store wrote to its changelog: {store: rows}
                 "dropped": how many records the metric dropped-records-total counted
                 "error":   how the program ended; no step follows, and the stores are left out
    "stores"   what each store had at the end, sorted by key and start
    "dropped"  the metric at the end

A row is [key, value, timestamp], or with a window [key, value, timestamp, start, end]. Session stores keep no
timestamps: null. Versioned stores are not in "stores". The changelogs of a suppress and of a join of streams
are left out, and that of a join with a grace period; their values are Kafka's own affair.

The operations are the DSL's methods; "op" has the name. Each works on what the one before it gave. Where that
is not so, operations are named: "as" gives the result a name, and "of" says whose result it works on. A join
is with the result named "with", which is on its right. Times are in milliseconds. The arguments:

    stream, table, global_table
                     "values": "string" or "long"; "topic", `in` if there is none; "store" of a table, if
                     the program names one, and "history", how long it keeps versions, if it does
    group_by, select_key
                     "key": "value" (its text; null if it is null), "all" (the text `all`), "key" (without
                     its window), "key and start" (`a@10`), "text" (`[a@10/20]`), or "letter" (the value's
                     first; null if it is a `-` or there is no value). group_by of a table makes a new
                     value as well, "value": the same if there is none, "rest" (what follows the first
                     letter; null if nothing does) or "number" (the same, as a number)
    windowed_by      "windows": "time" with "size", "advance" and "grace"; "sliding" with "difference" and
                     "grace"; "session" with "gap" and "grace"; "daily" with "zone", "hour" and "grace";
                     "unlimited" with "start"
    count, reduce, aggregate
                     "store"; "emit": "close" is EmitStrategy.onWindowClose; "retention"; "kind": "in memory",
                     if the store is not RocksDB's. "function" of reduce: "sum", "min", "max" (they pass over
                     nulls), "first", "last", "concat" (`_` for null). "function" of aggregate: "concat",
                     which begins with an empty text, writes `_` for null, and merges sessions with a `+`
                     between them; "concat unless -", which is the same, and null at a `-`
    count, reduce, aggregate of a table's groups
                     "store"; "function" of reduce: "sum", or "concat", which adds `+` and the value, and
                     subtracts by adding `-` and the value (`_` for null). "function" of aggregate: the same,
                     beginning with 0 or an empty text; "concat unless -", which is null at a `-`
    join, left_join, outer_join
                     "with"; what comes of it is left, `+` and right (`_` for null). Of two tables: "store",
                     if it has one, and "foreign_key", as in select_key, if the left rows name right ones so.
                     Of two streams: "before", "after" and "grace". Of a stream with a table:
                     "grace", if it has one. Of a stream with a global table: "key", as in select_key
    merge            "with"
    cogroup          "with", another group, and "store"; both are folded as by "concat"
    process_values   a processor that makes a text of each record's headers (`h=1,h=_`, `_` for null)
    suppress         "until": "window closes", or "time limit" with "ms"; "records" and "bytes" limit the
                     buffer, and "full" is "stop" if it ends the program when it is full
    map_values       "function": "twice", "upper", "upper unless x" (null then) or "null"; "store", if a table
                     has one
    transform_values "function": "upper unless x", or "key and text" (`a=x`, `_` for null); "store", if it has
                     one. With "calls", a store, each value ends with how often that key was asked for: `#2`
    filter, filter_not
                     "function": "even", "above 1", or "not x" or another text; "store", if a table has one
    to_table         "store"

There are no caches, so each update is there; if the source is "cached", there are, and the driver empties
them after each record. What goes out when a window closes, and what found no match in a
join of streams, does not wait for Kafka Streams' clock (a second, in a real program).

Programs and records are in `trace_cases.py` and `trace_joins.py`, beside this file; `traces/TraceAll.java`
runs them. To write the traces anew, all of them or those of some files:

    PYTHONPATH=tests .venv/bin/python -m snapshots.kafka_streams
    PYTHONPATH=tests .venv/bin/python -m snapshots.kafka_streams time session

To see what Kafka Streams makes of any other program: `KafkaStreams(directory).ask(cases)` there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "FOLDER",
    "Headers",
    "Record",
    "Row",
    "Step",
    "Trace",
    "difference",
    "traces",
    "without_false_results",
]

FOLDER = Path(__file__).parent / "traces"
SOURCES = ("stream", "table", "global_table")

Value = str | int | None
Headers = tuple[tuple[str, str | None], ...]
"""The headers of a record: names and values."""


@dataclass(frozen=True)
class Record:
    """One record of the input."""

    key: str | None
    value: Value
    timestamp: int
    headers: Headers = ()
    topic: str = "in"

    def __str__(self) -> str:
        """As the cases are written: `a=x@5`, or `t:a=x@5` if its topic has another name than `in`."""
        key, value = ("null" if each is None else each for each in (self.key, self.value))
        return f"{'' if self.topic == 'in' else f'{self.topic}:'}{key}={value}@{self.timestamp}"


@dataclass(frozen=True)
class Row:
    """A record of an output or a changelog, or an entry of a store. No window: start and end are None."""

    key: str | None
    value: Value
    timestamp: int | None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Step:
    """What one record led to.

    Attributes:
        out: what came out, in order.
        headers: for each row of `out` its headers, if the records of the trace have headers.
        log: what each store wrote to its changelog, in order; no entry for a store that wrote nothing.
        dropped: how many records were counted as dropped, in any part of the program.
        error: the message of the failure that ended the program.
    """

    out: tuple[Row, ...] = ()
    headers: tuple[Headers, ...] = ()
    log: Mapping[str, tuple[Row, ...]] = field(default_factory=dict)
    dropped: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Trace:
    """A program, its records, and what Kafka Streams made of them.

    Attributes:
        line: all of it as it stands in the file, for a program in another language.
    """

    name: str
    program: tuple[Mapping[str, Any], ...]
    records: tuple[Record, ...]
    steps: tuple[Step, ...]
    stores: Mapping[str, tuple[Row, ...]]
    dropped: int
    line: str = field(repr=False)

    def operation(self, op: str) -> Mapping[str, Any]:
        """The first operation of that name; an empty mapping if there is none."""
        return next((each for each in self.program if each["op"] == op), {})

    @property
    def operations(self) -> tuple[str, ...]:
        """The names of the operations, in order."""
        return tuple(each["op"] for each in self.program)

    @property
    def inputs(self) -> tuple[tuple[int, ...], ...]:
        """For each operation the places of those whose results it works on: none for a source, two for a
        join, left and right."""
        places = {op["as"]: place for place, op in enumerate(self.program) if "as" in op}
        return tuple(
            ()
            if op["op"] in SOURCES
            else (
                places[op["of"]] if "of" in op else place - 1,
                *([places[op["with"]]] if "with" in op else []),
            )
            for place, op in enumerate(self.program)
        )

    def __str__(self) -> str:
        return self.name


@cache
def traces(*files: str) -> tuple[Trace, ...]:
    """The traces of some files (`traces("time", "session")`), or of all; in their order there."""
    names = files or tuple(sorted(path.stem for path in FOLDER.glob("*.jsonl")))
    return tuple(
        _trace(line) for name in names for line in (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    )


def difference(trace: Trace, steps: Sequence[Step], *, ignore: Iterable[str] = ()) -> str | None:
    """How other steps differ from the trace's, with the records up to there; None if they do not.

    Args:
        trace: what is expected.
        steps: what came; if they are fewer, that is a difference.
        ignore: fields of `Step` that are not compared.
    """
    fields = [name for name in ("out", "headers", "log", "dropped", "error") if name not in set(ignore)]
    for number, expected in enumerate(trace.steps):
        if number >= len(steps):
            return f"{trace.name}: {len(steps)} steps, expected {len(trace.steps)}"
        for name in fields:
            theirs, ours = getattr(expected, name), getattr(steps[number], name)
            if theirs != ours:
                before = "\n".join(f"  {record}" for record in trace.records[: number + 1])
                program = " ".join(json.dumps(op) for op in trace.program)
                return f"{trace.name}: {program}\n{before}\n{name} is\n  {ours}\nexpected\n  {theirs}"
    if len(steps) > len(trace.steps):
        return f"{trace.name}: {len(steps)} steps, expected {len(trace.steps)}"
    return None


def without_false_results(trace: Trace) -> list[Row]:
    """What came out of a join of two streams, without what Kafka Streams says too early.

    It tells a late record to have no match as soon as its window is over, though one may come in the grace
    period. That is left out where the match came, or the records end before none can come any more.
    """
    join = trace.program[-1]
    sides = [trace.program[place].get("topic", "in") for place in _sources(trace)]
    last = max(record.timestamp for record in trace.records)
    stream_time = 0
    rows: list[Row] = []
    for number, (record, step) in enumerate(zip(trace.records, trace.steps, strict=True)):
        stream_time = max(stream_time, record.timestamp)
        later = [row for each in trace.steps[number:] for row in each.out]
        early = []
        for is_left in (True, False):
            ahead = join["after" if is_left else "before"]
            closes = record.timestamp + ahead + join["grace"]
            if record.topic != sides[0 if is_left else -1] or record.key is None or stream_time > closes:
                continue
            alone = f"{record.value}+_" if is_left else f"_+{record.value}"
            start, end = (f"{record.value}+", "") if is_left else ("", f"+{record.value}")
            for row in step.out:
                matches = [
                    each
                    for each in later
                    if each.key == row.key
                    and each.value != alone
                    and f"{each.value}".startswith(start)
                    and f"{each.value}".endswith(end)
                ]
                is_own = (row.value, row.timestamp) == (alone, record.timestamp)
                if is_own and (matches or last <= closes):
                    early.append(row)
        rows += [row for row in step.out if row not in early]
    return rows


def _sources(trace: Trace) -> list[int]:
    """The places of the sources of the last operation, its left one first."""

    def source(place: int) -> int:
        return source(trace.inputs[place][0]) if trace.inputs[place] else place

    return [source(place) for place in trace.inputs[-1]]


def step(written: Mapping[str, Any]) -> Step:
    """A step from its JSON form."""
    return Step(
        out=_rows(written.get("out", [])),
        headers=tuple(map(_headers, written.get("headers", ()))),
        log={store: _rows(rows) for store, rows in written.get("log", {}).items()},
        dropped=written.get("dropped", 0),
        error=written.get("error"),
    )


def _headers(written: Iterable[Sequence[Any]]) -> Headers:
    return tuple((name, value) for name, value in written)


def _rows(written: Iterable[Sequence[Any]]) -> tuple[Row, ...]:
    return tuple(Row(*row) for row in written)


def _trace(line: str) -> Trace:
    written = json.loads(line)
    topics = any("topic" in op for op in written["program"])

    def record(written: Sequence[Any]) -> Record:
        key, value, timestamp, *more = written
        topic = more.pop(0) if topics else "in"
        return Record(key, value, timestamp, _headers(more[0]) if more else (), topic)

    return Trace(
        name=written["name"],
        program=tuple(written["program"]),
        records=tuple(record(each) for each in written["records"]),
        steps=tuple(step(each) for each in written["steps"]),
        stores={store: _rows(rows) for store, rows in written["stores"].items()},
        dropped=written["dropped"],
        line=line,
    )
