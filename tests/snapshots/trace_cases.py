"""The cases of the traces: by file, the programs and records that Kafka Streams is given."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from snapshots.trace_headers import header_cases
from snapshots.trace_joins import JOINS
from snapshots.trace_programs import (
    BY_KEY,
    CONCAT,
    COUNT,
    FIRST,
    FOLDS,
    FORGET,
    JOINED,
    LAST,
    LONG,
    MAX,
    MIN,
    SUM,
    TO_STREAM,
    UNTIL_CLOSED,
    Case,
    Op,
    Record,
    at_random,
    folded,
    key_a,
    length,
    limit,
    numbers,
    random_records,
    rows,
    scaled,
    session,
    sliding,
    source,
    time,
)

__all__ = ["FILES", "lines"]


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
    yield "at 0 and at the edges", folded(tumbling, CONCAT), key_a(0, 9, 10, 19, 20)
    yield "hopping, at 0 and at the edges", folded(hopping, CONCAT), key_a(0, 3, 4, 9, 10, 11, 12, 13, 14)
    yield (
        "no grace: closed as soon as time is there",
        folded(tumbling, CONCAT),
        key_a(0, 9, 10, 9, 11, 10, 25, 19, 20),
    )
    yield (
        "grace: the last moment and the first too late",
        folded(graceful, CONCAT),
        key_a(0, 10, 14, 9, 15, 9, 8, 10, 25, 19),
    )
    yield (
        "hopping: late for some of its windows",
        folded(hopping, CONCAT),
        key_a(0, 20, 12, 13, 10, 9, 8, 7, 6, 21, 10),
    )
    yield "equal times", folded(hopping, CONCAT), key_a(5, 5, 5, 5, 40, 40)
    yield "falling times", folded(time(10, 10, 100), CONCAT), key_a(29, 28, 19, 18, 9, 8, 0)
    yield (
        "the largest time of a window, not the last",
        folded(graceful, SUM),
        rows("a=1@7 a=1@3 a=1@8 a=1@0"),
    )
    yield (
        "other keys let time go on",
        folded(tumbling, CONCAT),
        rows("a=x@1 b=y@30 a=z@2 c=v@31 b=w@29 a=u@30"),
    )
    yield ("a key that is null lets time stand", folded(tumbling, COUNT), rows("a=x@1 null=y@50 a=z@2"))
    yield ("a value that is null lets time go on", folded(tumbling, COUNT), rows("a=x@1 b=null@50 a=z@2"))
    nulls = rows("a=null@0 a=x@1 a=null@2 b=null@3 a=null@12 a=y@11")
    for fold in (COUNT, CONCAT, LAST, FIRST, JOINED):
        name = fold.get("function", "count")
        yield f"null values: {fold['op']} {name}", folded(time(10, 10, 20), fold), nulls
    yield ("null values: sum", folded(tumbling, SUM), rows("a=null@0 a=2@1 a=null@2 b=null@3 a=5@4"))
    yield (
        "a fold that gives null",
        folded(time(10, 10, 20), FORGET),
        rows("a=-@0 a=x@1 a=-@3 a=-@2 a=y@2 a=z@12 a=-@11"),
    )
    jump = rows("a=x@0 b=y@1 a=z@1000000 b=v@999990 b=w@5 a=u@1000001")
    yield "a large jump", folded(graceful, CONCAT), jump
    yield "a large jump, long retention", folded(graceful, CONCAT, retention=LONG), jump
    yield "a large jump, in memory", folded(graceful, CONCAT, kind="in memory"), jump
    yield "in memory", folded(hopping, CONCAT, kind="in memory"), key_a(0, 5, 3, 20, 11, 40, 33, 27)
    minutes = time(60_000, 60_000, 300_000)
    yield (
        "minutes of grace",
        folded(minutes, CONCAT),
        key_a(
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
    sliding(2, 5),
)


def sliding_cases() -> Iterator[Case]:
    plenty = sliding(10, 1000)
    yield "at 0", folded(plenty, CONCAT), key_a(0, 0, 1, 10, 11)
    yield "earlier than the difference", folded(plenty, CONCAT), key_a(3, 5, 2, 9, 0, 13, 14)
    yield "exactly the difference apart", folded(plenty, CONCAT), key_a(20, 30, 40, 31, 21)
    yield "rising", folded(plenty, CONCAT), key_a(100, 105, 110, 111, 120, 131, 142)
    yield "falling", folded(plenty, CONCAT), key_a(142, 131, 120, 111, 110, 105, 100)
    yield "between two", folded(plenty, CONCAT), key_a(100, 120, 110, 105, 115, 109, 111)
    yield "equal times", folded(plenty, CONCAT), key_a(50, 50, 45, 45, 55, 55, 50)
    yield (
        "the left window is empty but for the record",
        folded(plenty, COUNT),
        key_a(100, 130, 119, 141, 120),
    )
    yield "no grace", folded(sliding(10, 0), CONCAT), key_a(20, 25, 15, 14, 31, 30, 21, 20, 32)
    yield (
        "grace: the last moment and the first too late",
        folded(sliding(10, 5), CONCAT),
        key_a(20, 40, 30, 25, 24, 26, 41, 26, 25),
    )
    yield "late for its left window", folded(sliding(10, 0), CONCAT), key_a(100, 111, 101, 100, 102)
    yield "early and late", folded(sliding(10, 5), CONCAT), key_a(2, 7, 15, 5, 0, 1, 16, 1, 2)
    yield (
        "other keys let time go on",
        folded(sliding(10, 0), CONCAT),
        rows("a=x@1 b=y@30 a=z@2 a=v@20 b=w@21 a=u@30"),
    )
    yield ("a key that is null lets time stand", folded(sliding(10, 0), COUNT), rows("a=x@1 null=y@50 a=z@2"))
    yield (
        "a value that is null lets time stand",
        folded(sliding(10, 0), COUNT),
        rows("a=x@1 b=null@50 a=z@2"),
    )
    yield ("null values", folded(plenty, CONCAT), rows("a=null@0 a=x@1 a=null@2 a=y@11 a=null@5"))
    yield (
        "a fold that gives null",
        folded(plenty, FORGET),
        rows("a=x@20 a=-@25 a=y@22 a=-@22 a=z@30 a=v@26 a=-@40"),
    )
    for fold in (SUM, MIN, MAX):
        values = rows("a=5@20 a=-2@25 a=9@22 a=null@23 a=1@30 a=0@21")
        yield f"{fold['function']}", folded(plenty, fold), values
    yield "difference 0", folded(sliding(0, 10), CONCAT), key_a(0, 0, 1, 1, 0, 5, 11, 1, 0)
    jump = rows("a=x@0 b=y@1 a=z@1000000 b=v@999995 b=w@5 a=u@1000001")
    yield "a large jump", folded(sliding(10, 5), CONCAT), jump
    yield "a large jump, long retention", folded(sliding(10, 5), CONCAT, retention=LONG), jump
    yield (
        "in memory",
        folded(sliding(10, 5), CONCAT, kind="in memory"),
        key_a(0, 5, 3, 20, 16, 11, 40, 33, 27),
    )
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
    yield "at 0", folded(plenty, CONCAT), key_a(0, 0, 1, 11, 22)
    yield "exactly the gap apart, and one more", folded(plenty, CONCAT), key_a(100, 110, 121, 90, 79)
    yield "two become one", folded(plenty, CONCAT), key_a(100, 120, 110)
    yield "three become one", folded(session(10, 1000), CONCAT), key_a(100, 111, 122, 106, 116, 90)
    yield (
        "five become one, at once",
        folded(session(10, 1000), CONCAT),
        key_a(100, 120, 140, 160, 180, 110, 150, 130, 170),
    )
    yield "within a session", folded(plenty, CONCAT), key_a(100, 110, 105, 105, 100, 110)
    yield "equal times", folded(plenty, CONCAT), key_a(5, 5, 5, 40, 40)
    yield "falling", folded(plenty, CONCAT), key_a(142, 131, 121, 111, 110, 105, 100)
    yield "the time of a tombstone", folded(plenty, COUNT), key_a(0, 500, 490, 5, 480, 10, 8, 505)
    yield "no grace", folded(session(10, 0), CONCAT), key_a(0, 10, 21, 9, 10, 11, 31, 20, 42, 31, 32)
    yield (
        "no grace, long retention",
        folded(session(10, 0), CONCAT, retention=LONG),
        key_a(0, 10, 21, 9, 10, 11, 31, 20, 42, 31, 32),
    )
    yield (
        "grace: the last moment and the first too late",
        folded(session(10, 5), CONCAT),
        key_a(0, 30, 15, 14, 16, 31, 15, 14, 16),
    )
    yield (
        "late, but within an open session",
        folded(session(10, 0), CONCAT, retention=LONG),
        key_a(0, 10, 20, 30, 40, 35, 25, 5, 0, 60, 39),
    )
    yield (
        "late, beside an open session",
        folded(session(10, 3), CONCAT, retention=LONG),
        key_a(0, 15, 7, 40, 5, 29, 28),
    )
    yield "dropped by the store's retention", folded(session(10, 3), CONCAT), key_a(0, 15, 7)
    yield (
        "dropped by the store's retention, merged otherwise",
        folded(session(7, 2), CONCAT),
        key_a(0, 7, 11, 3, 18, 12, 30),
    )
    yield (
        "the same, in memory",
        folded(session(7, 2), CONCAT, kind="in memory"),
        key_a(0, 7, 11, 3, 18, 12, 30),
    )
    yield (
        "other keys let time go on",
        folded(session(10, 0), CONCAT),
        rows("a=x@1 b=y@30 a=z@2 a=v@20 b=w@21 a=u@30"),
    )
    yield ("a key that is null lets time stand", folded(session(10, 0), COUNT), rows("a=x@1 null=y@50 a=z@2"))
    yield (
        "a value that is null lets time go on",
        folded(session(10, 0), COUNT),
        rows("a=x@1 b=null@50 a=z@2"),
    )
    nulls = rows("a=null@0 a=x@1 a=null@2 b=null@3 a=null@30 a=y@20 a=z@11")
    for fold in (COUNT, CONCAT, LAST, FIRST, JOINED):
        name = fold.get("function", "count")
        yield f"null values: {fold['op']} {name}", folded(plenty, fold), nulls
    yield ("sum", folded(plenty, SUM), rows("a=5@20 a=-2@25 a=9@42 a=null@23 a=1@33 a=0@21"))
    yield (
        "a fold that gives null",
        folded(plenty, FORGET),
        rows("a=x@20 a=-@25 a=y@22 a=-@50 a=z@41 a=v@33 a=-@33"),
    )
    yield "gap 0", folded(session(0, 10), CONCAT), key_a(0, 0, 1, 1, 0, 5, 11, 1, 0)
    jump = rows("a=x@0 b=y@1 a=z@1000000 b=v@999995 b=w@5 a=u@1000001")
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
        yield f"minutes{kind}", folded(minutes, CONCAT, **more), key_a(*times)
    yield from at_random("session", 36, SESSION_WINDOWS)


# --- without windows -------------------------------------------------------------------------------------


def unwindowed_cases() -> Iterator[Case]:
    yield "times out of order", folded(None, CONCAT), key_a(5, 3, 9, 0, 9, 20, 1)
    yield ("times out of order, sum", folded(None, SUM), rows("a=1@5 a=2@3 b=7@1 a=3@9 b=1@0"))
    nulls = rows("a=null@9 a=x@3 a=null@7 null=y@8 b=z@1 a=v@4")
    for fold in (COUNT, CONCAT, LAST, FIRST):
        name = fold.get("function", "count")
        yield f"nulls: {fold['op']} {name}", folded(None, fold), nulls
    yield ("a fold that gives null", folded(None, FORGET), rows("a=-@3 a=x@9 a=-@5 a=-@6 a=y@2 a=z@1 a=-@20"))
    regrouped = [source(), {"op": "group_by", "key": "value"}, COUNT, TO_STREAM]
    words = rows("a=x@5 b=x@3 null=y@9 a=null@8 a=y@1 b=x@12")
    yield "by another key", regrouped, words
    yield (
        "by another key, selected first",
        [source(), {"op": "select_key", "key": "value"}, BY_KEY, COUNT, TO_STREAM],
        words,
    )
    one = [source("long"), {"op": "group_by", "key": "all"}, SUM, TO_STREAM]
    yield "all in one group", one, rows("a=1@5 b=2@3 null=4@9 a=null@11 c=8@1")

    changes = rows("a=x@5 a=y@3 b=null@7 a=null@4 a=null@8 c=z@9 null=v@10 c=z@9 c=w@2 a=u@1")
    yield "table", [source(op="table"), TO_STREAM], changes
    yield "table with a store", [source(op="table", store="s"), TO_STREAM], changes
    yield "to_table", [source(), {"op": "to_table", "store": "s"}, TO_STREAM], changes
    moved = [source(), {"op": "select_key", "key": "value"}, {"op": "to_table", "store": "s"}, TO_STREAM]
    yield "to_table by another key", moved, changes
    rises = rows("a=1@5 a=2@3 a=4@9 a=3@1 a=5@2 b=1@3 b=null@4 a=null@7 a=2@8 a=null@6 a=null@6 c=null@1")
    for op, function in (
        ("filter", "even"),
        ("filter", "above 1"),
        ("map_values", "twice"),
        ("map_values", "null"),
    ):
        for kept in ({}, {"store": "s"}):
            for table in ({}, {"store": "t"}):
                where = f"{' of a table with a store' if table else ''}{', kept' if kept else ''}"
                program = [
                    source("long", "table", **table),
                    {"op": op, "function": function, **kept},
                    TO_STREAM,
                ]
                yield f"{op} {function}{where}", program, rises
    yield (
        "two filters",
        [source("long", "table"), *(2 * [{"op": "filter", "function": "even"}]), TO_STREAM],
        rises,
    )
    for number in range(36):
        fold = FOLDS[number % len(FOLDS)]
        yield (
            f"random {number}",
            folded(None, fold),
            random_records(f"unwindowed {number}", 10, fold, count=16),
        )
    for number in range(24):
        program = (
            [source("long", "table", store="s"), TO_STREAM],
            [source("long"), {"op": "to_table", "store": "s"}, TO_STREAM],
            [source("long", "table"), {"op": "filter", "function": "even", "store": "s"}, TO_STREAM],
            [source("long", "table", store="t"), {"op": "filter", "function": "above 1"}, TO_STREAM],
            [
                source("long"),
                {"op": "select_key", "key": "value"},
                {"op": "to_table", "store": "s"},
                TO_STREAM,
            ],
            [source("string"), {"op": "group_by", "key": "value"}, CONCAT, TO_STREAM],
        )[number % 6]
        fold = SUM if program[0]["values"] == "long" else FORGET
        yield f"random table {number}", program, random_records(f"table {number}", 10, fold, count=16)


# --- emit_strategy(ON_WINDOW_CLOSE) ----------------------------------------------------------------------

CLOSE_WINDOWS = (
    time(10, 10, 0),
    session(10, 5),
    sliding(10, 5),
    time(10, 4, 3),
    sliding(3, 0),
    session(5, 0),
    time(10, 5, 12),
    session(3, 8),
    sliding(5, 20),
)


def flush(windows: Op, fold: Op, records: list[Record], scale: int = 1) -> list[Record]:
    """Two records so late that all windows of the others close."""
    after = max(at for _, _, at in records) + scale * (2 * length(windows) + windows["grace"] + 5)
    return [["a", 1 if numbers(fold) else "y", after], ["b", 1 if numbers(fold) else "z", 2 * after]]


def close_cases() -> Iterator[Case]:
    def closing(windows: Op, fold: Op, **more: Any) -> list[Op]:
        return folded(windows, fold, emit="close", **({"retention": LONG} | more))

    two = rows("a=x@0 b=y@1 a=z@9 b=v@10 c=w@19 a=u@20 d=t@35")
    windows = (
        time(10, 10, 0),
        time(10, 10, 5),
        time(10, 4, 3),
        sliding(10, 0),
        sliding(10, 5),
        session(9, 0),
        session(5, 5),
    )
    for each in windows:
        name = " ".join(f"{value}" for value in list(each.values())[1:])
        yield f"two keys, {name}", closing(each, CONCAT), two
        yield f"one by one, {name}", closing(each, CONCAT), key_a(*range(0, 40, 3), 70, 110)
        yield (
            f"the last moment and the first too late, {name}",
            closing(each, CONCAT),
            key_a(0, 9, 10, 9, 14, 9, 15, 9, 20, 15, 36, 20),
        )
        jump = rows("b=x@3 a=y@0 a=z@25 a=v@1000000 b=w@999999 a=u@2000000")
        yield f"a large jump, {name}", closing(each, CONCAT), jump
        nulls = rows("a=null@0 a=x@1 null=y@50 a=null@14 b=null@70 b=z@140")
        yield f"null values, {name}", closing(each, COUNT), nulls
        if each["windows"] != "sliding":  # these pass over nulls
            only_nulls = rows(
                "a=null@3 b=1@4 a=2@19 b=null@33 a=null@34 a=null@38 a=3@59 b=null@90 a=4@140 b=5@220"
            )
            yield f"windows of nulls, {name}", closing(each, SUM), only_nulls
        forgets = rows("a=x@0 a=-@1 b=y@3 b=-@22 c=z@60 c=-@140")
        yield f"a fold that gives null, {name}", closing(each, FORGET), forgets
        # What the store's retention has dropped by the time its window closes is never sent.
        yield (
            f"Kafka's own retention, {name}",
            folded(each, CONCAT, emit="close"),
            key_a(0, 3, 12, 24, 40, 61, 62, 200, 260),
        )
    yield (
        "in memory",
        folded(time(10, 10, 5), CONCAT, emit="close", kind="in memory", retention=LONG),
        key_a(0, 3, 12, 24, 40),
    )
    several = closing(time(10, 10, 0), CONCAT)
    yield (
        "many keys and windows close at once",
        several,
        [["acb"[n % 3], f"x{n}", n * 4] for n in (5, 3, 4, 6, 8, 7, 30, 29, 31)],
    )
    sessions = closing(session(5, 30), CONCAT)
    yield (
        "many sessions close at once",
        sessions,
        [["acb"[n % 3], f"x{n}", n * 4] for n in (5, 3, 4, 6, 8, 7, 30, 29, 31)],
    )
    yield (
        "minutes",
        closing(time(60_000, 60_000, 60_000), CONCAT),
        key_a(0, 59_999, 60_000, 119_999, 120_000, 61_000, 400_000, 60_000),
    )
    for number in range(54):
        fold = FOLDS[number % len(FOLDS)]
        each = CLOSE_WINDOWS[number % len(CLOSE_WINDOWS)]
        scale = 60_000 if number % 4 == 3 else 1
        records = random_records(
            f"close {number}", length(each), fold, scale=scale, late=length(each) + each["grace"]
        )
        retention = {} if number % 9 == 8 else {"retention": LONG * scale}
        own = ", Kafka's own retention" if not retention else ""
        records += flush(each, fold, records, scale)
        yield f"random {number}{own}", folded(scaled(each, scale), fold, emit="close", **retention), records


# --- suppress --------------------------------------------------------------------------------------------


def suppress_cases() -> Iterator[Case]:
    def closed(windows: Op, fold: Op, suppress: Op = UNTIL_CLOSED, **more: Any) -> list[Op]:
        *program, to_stream = folded(windows, fold, **more)
        return [*program, suppress, to_stream]

    tumbling, hopping, sessions = time(10, 10, 5), time(10, 4, 3), session(5, 5)
    edges = rows("a=x@0 b=y@9 a=z@14 a=v@9 c=w@15 a=u@9 b=t@30 a=s@31 a=r@60 a=q@99")
    for each in (tumbling, time(10, 10, 0), hopping, sessions, session(5, 0), sliding(5, 5)):
        name = " ".join(f"{value}" for value in list(each.values())[1:])
        yield f"window closes, {name}", closed(each, CONCAT), edges
        yield f"window closes, one by one, {name}", closed(each, COUNT), key_a(*range(0, 40, 3), 70, 110)
    forgets = rows("a=x@0 a=-@1 b=y@3 b=-@12 b=z@13 a=-@30 c=v@60 a=u@99")
    yield "window closes, a fold that gives null", closed(tumbling, FORGET), forgets
    yield "window closes, a fold of sessions that gives null", closed(sessions, FORGET), forgets
    yield (
        "window closes, sessions that merge",
        closed(session(5, 20), CONCAT),
        key_a(0, 10, 5, 20, 15, 60, 50, 90),
    )
    yield (
        "window closes, a large jump",
        closed(tumbling, CONCAT),
        rows("b=x@3 a=y@0 a=z@1000000 b=v@2000000"),
    )
    yield ("window closes, null values", closed(tumbling, COUNT), rows("a=null@0 a=x@1 null=y@50 b=null@70"))
    many = [["abcd"[n % 4], f"x{n}", n] for n in range(8)]
    many.append(["a", "y", 99])
    yield (
        "window closes, stops when full",
        closed(tumbling, CONCAT, {**UNTIL_CLOSED, "records": 3, "full": "stop"}),
        many,
    )
    yield (
        "window closes, just not full",
        closed(tumbling, CONCAT, {**UNTIL_CLOSED, "records": 4, "full": "stop"}),
        many,
    )
    bigger: Op = {"op": "filter", "function": "above 1"}
    filtered = [source(), BY_KEY, tumbling, COUNT, bigger, UNTIL_CLOSED, TO_STREAM]
    yield "window closes, filtered before", filtered, edges
    yield (
        "window closes, filtered after",
        [source(), BY_KEY, tumbling, COUNT, UNTIL_CLOSED, bigger, TO_STREAM],
        edges,
    )

    def table(suppress: Op, *more: Op) -> list[Op]:
        return [source(op="table"), suppress, *more, TO_STREAM]

    changes = rows("a=x@0 b=y@1 a=z@3 c=v@5 b=null@6 c=w@10 a=u@8 d=null@11 e=t@16 d=s@30")
    for ms in (0, 1, 5, 100):
        yield f"time limit {ms}", table(limit(ms)), changes
        yield f"time limit {ms}, 2 records", table(limit(ms, records=2)), changes
        yield f"time limit {ms}, 0 records", table(limit(ms, records=0)), changes
    yield "time limit, stops when full", table(limit(100, records=2, full="stop")), changes
    yield "time limit, just not full", table(limit(5, records=3, full="stop")), changes
    for size in (1, 50, 60, 100, 150):
        yield f"time limit, {size} bytes", table(limit(100, bytes=size)), changes
    yield "time limit, records and bytes", table(limit(100, records=3, bytes=80)), changes
    yield "time limit, bytes, stops when full", table(limit(100, bytes=100, full="stop")), changes
    yield "time limit, times out of order", table(limit(5)), key_a(10, 3, 12, 15, 9, 17, 16, 8, 22, 30)
    yield (
        "time limit, a tombstone of a key never sent",
        table(limit(5)),
        rows("a=x@0 a=null@1 b=y@20 a=null@21 b=null@22 c=z@50"),
    )
    yield "time limit, equal times", table(limit(5, records=2)), [[key, key + "1", 7] for key in "cabdac"]
    counted = [source(), BY_KEY, COUNT, limit(5), TO_STREAM]
    yield "time limit of a count", counted, changes
    yield (
        "time limit of a count, 1 record",
        [source(), BY_KEY, COUNT, limit(5, records=1), TO_STREAM],
        changes,
    )
    forgotten = [source(), BY_KEY, FORGET, limit(5), TO_STREAM]
    yield "time limit of a fold that gives null", forgotten, forgets
    even: Op = {"op": "filter", "function": "even"}
    yield (
        "time limit, filtered after",
        [source(), BY_KEY, COUNT, limit(5), even, TO_STREAM],
        [*changes, *([*row[:2], row[2] + 30] for row in changes)],
    )
    yield (
        "time limit, filtered before",
        [source(), BY_KEY, COUNT, even, limit(5), TO_STREAM],
        [*changes, *([*row[:2], row[2] + 30] for row in changes)],
    )
    yield "two time limits", [source(op="table"), limit(5), limit(10), TO_STREAM], changes
    for each in (tumbling, hopping, sessions, sliding(5, 5)):
        name = " ".join(f"{value}" for value in list(each.values())[1:])
        yield f"time limit of windows, {name}", closed(each, CONCAT, limit(4)), edges
        yield f"time limit of windows, 2 records, {name}", closed(each, CONCAT, limit(20, records=2)), edges
    strict = (
        time(10, 10, 0),
        session(10, 5),
        time(10, 4, 3),
        session(5, 0),
        time(10, 5, 12),
        session(3, 8),
        sliding(5, 5),
    )
    for number in range(36):
        fold = FOLDS[number % len(FOLDS)]
        each = strict[number % len(strict)]
        records = random_records(f"suppress {number}", length(each), fold, late=length(each) + each["grace"])
        records += flush(each, fold, records, 1)
        yield f"random, window closes {number}", closed(each, fold), records
    for number in range(32):
        suppress = (limit(5), limit(20, records=2), limit(0), limit(50, records=3), limit(15, bytes=100))[
            number % 5
        ]
        fold = (FORGET, CONCAT, COUNT, LAST)[number % 4]
        records = random_records(f"limit {number}", 10, fold, count=16, keys="aabcd")
        yield f"random, time limit {number}", [source(), BY_KEY, fold, suppress, TO_STREAM], records
        yield f"random table, time limit {number}", table(suppress), records


# --- one thing after another -----------------------------------------------------------------------------


def chain_cases() -> Iterator[Case]:
    count, total, joined = ({**fold, "store": "t"} for fold in (COUNT, SUM, CONCAT))
    twice: Op = {"op": "map_values", "function": "twice"}
    even: Op = {"op": "filter", "function": "even"}
    above: Op = {"op": "filter", "function": "above 1"}
    by_value: Op = {"op": "select_key", "key": "value"}
    without: Op = {"op": "select_key", "key": "key"}
    start: Op = {"op": "select_key", "key": "key and start"}
    whole: Op = {"op": "select_key", "key": "all"}
    counted = [source(), BY_KEY, COUNT]

    def windowed(windows: Op, *more: Op, **how: Any) -> list[Op]:
        return [source(), BY_KEY, windows, {**COUNT, **how}, *more]

    tumbling, sessions, slides = time(10, 10, 5), session(5, 20), sliding(5, 20)
    close = {"emit": "close", "retention": LONG}
    programs = {
        "count, count": [*counted, TO_STREAM, BY_KEY, count, TO_STREAM],
        "count, concat": [*counted, TO_STREAM, BY_KEY, joined, TO_STREAM],
        "count, twice, sum": [*counted, twice, TO_STREAM, BY_KEY, total, TO_STREAM],
        "count, to_stream, twice": [*counted, TO_STREAM, twice],
        "count, to_stream, filter, count": [*counted, TO_STREAM, even, BY_KEY, count, TO_STREAM],
        "count, filter": [*counted, even, TO_STREAM],
        "count, filter with a store": [*counted, {**even, "store": "t"}, TO_STREAM],
        "count, twice with a store": [*counted, {**twice, "store": "t"}, TO_STREAM],
        "count, filter, concat": [*counted, even, TO_STREAM, BY_KEY, joined, TO_STREAM],
        "count, by value, count": [*counted, TO_STREAM, by_value, BY_KEY, count, TO_STREAM],
        "count, by value": [*counted, TO_STREAM, by_value],
        "count, all, sum": [*counted, TO_STREAM, whole, BY_KEY, total, TO_STREAM],
        "count, to_table": [*counted, TO_STREAM, {"op": "to_table", "store": "t"}, TO_STREAM],
        "fold that gives null, count": [source(), BY_KEY, FORGET, TO_STREAM, BY_KEY, count, TO_STREAM],
        "fold that gives null, concat": [source(), BY_KEY, FORGET, TO_STREAM, BY_KEY, joined, TO_STREAM],
        "select_key, windows": [source(), by_value, BY_KEY, tumbling, COUNT, TO_STREAM],
        "group_by, sessions": [source(), {"op": "group_by", "key": "all"}, sessions, CONCAT, TO_STREAM],
        "windows, twice": windowed(tumbling, twice, TO_STREAM),
        "windows, filter": windowed(tumbling, above, TO_STREAM),
        "windows, filter with a store": windowed(tumbling, {**above, "store": "t"}, TO_STREAM),
        "windows, key": windowed(tumbling, TO_STREAM, without),
        "windows, key and start": windowed(time(10, 5, 5), TO_STREAM, start),
        "windows, key, sum": windowed(tumbling, TO_STREAM, without, BY_KEY, total, TO_STREAM),
        "windows, count by window": windowed(time(10, 5, 5), TO_STREAM, BY_KEY, count, TO_STREAM),
        "windows, larger windows": windowed(
            tumbling, TO_STREAM, without, BY_KEY, time(30, 30, 0), joined, TO_STREAM
        ),
        "windows, sessions": windowed(
            tumbling, TO_STREAM, without, BY_KEY, session(15, 10), joined, TO_STREAM
        ),
        "windows that close, key, concat": windowed(
            tumbling, TO_STREAM, without, BY_KEY, joined, TO_STREAM, **close
        ),
        "windows that close, larger windows": windowed(
            tumbling, TO_STREAM, without, BY_KEY, time(30, 30, 0), joined, TO_STREAM, **close
        ),
        "windows until they close, key, concat": windowed(
            tumbling, UNTIL_CLOSED, TO_STREAM, without, BY_KEY, joined, TO_STREAM
        ),
        "sessions, twice": windowed(sessions, twice, TO_STREAM),
        "sessions, filter": windowed(sessions, above, TO_STREAM),
        "sessions, key": windowed(sessions, TO_STREAM, without),
        "sessions, key, concat": windowed(sessions, TO_STREAM, without, BY_KEY, joined, TO_STREAM),
        "sessions, count by session": windowed(sessions, TO_STREAM, BY_KEY, count, TO_STREAM),
        "sessions, windows": windowed(sessions, TO_STREAM, without, BY_KEY, tumbling, joined, TO_STREAM),
        "sliding, filter": windowed(slides, above, TO_STREAM),
        "sliding, key, sum": windowed(slides, TO_STREAM, without, BY_KEY, total, TO_STREAM),
        "table, count": [source(op="table"), TO_STREAM, BY_KEY, count, TO_STREAM],
    }
    records = rows(
        "a=x@3 b=x@1 a=y@2 a=x@9 b=-@14 a=z@8 a=null@10 a=-@20 a=x@16 b=y@31 null=x@60 a=x@6 a=y@28 a=v@90"
    )
    for name, program in programs.items():
        yield name, program, records
        for number in range(2):
            seed = f"chain {name} {number}"
            yield f"{name}, random {number}", program, random_records(seed, 10, FORGET, count=14, late=12)


# --- own windows -----------------------------------------------------------------------------------------


def moments(times: str) -> list[Record]:
    """Records of the key a at these times of 2026."""
    return key_a(*(int(datetime.fromisoformat(f"2026-{each}").timestamp() * 1000) for each in times.split()))


def own_windows_cases() -> Iterator[Case]:
    """Days, where clocks change as well, with their ends; and all time from some time on."""
    hour, text = 3_600_000, {"op": "select_key", "key": "text"}
    for zone, begins, grace, times in (
        ("UTC", 0, 0, "11-22T00:00Z 11-22T23:59:59.999Z 11-23T00:00Z 11-22T23:00Z"),
        # Clocks go forward on March 29, at 2: 23 hours; and at 2 it is 3.
        (
            "Europe/Berlin",
            0,
            hour,
            "03-28T23:00Z 03-29T21:59Z 03-29T22:00Z 03-29T10:00Z 03-29T23:00Z 03-29T21:00Z 03-28T12:00Z",
        ),
        # Clocks go back on October 25, from 3 to 2: 25 hours.
        (
            "Europe/Berlin",
            0,
            0,
            "10-24T22:00Z 10-25T22:59Z 10-24T21:59Z 10-25T22:30Z 10-25T23:00Z 10-25T22:59Z",
        ),
        ("Europe/Berlin", 2, 0, "10-24T23:59Z 10-25T00:00Z 10-25T01:30Z 10-26T00:59Z 10-26T01:00Z"),
        (
            "America/New_York",
            18,
            hour,
            "11-01T22:59Z 11-01T23:00Z 10-31T22:00Z 11-01T23:59Z 11-02T00:00Z 11-01T22:00Z",
        ),
        ("Asia/Kolkata", 5, 0, "01-01T00:00Z 01-01T23:30Z 01-01T23:29Z 01-02T00:00Z"),
    ):
        days = {"op": "windowed_by", "windows": "daily", "zone": zone, "hour": begins, "grace": grace}
        name = f"days of {zone} from {begins}: {times[:5]}"
        yield name, [*folded(days, CONCAT, retention=100 * hour), text], moments(times)
    from_some_time = {"op": "windowed_by", "windows": "unlimited", "start": 100, "grace": 0}
    by_start = {"op": "select_key", "key": "key and start"}
    yield (
        "from a time on",
        [*folded(from_some_time, CONCAT), by_start],
        key_a(99, 100, 0, 1_000_000, 5, 101),
    )


def transformed_cases() -> Iterator[Case]:
    """Tables whose values a transformer gives; what is behind has to know what was there before, or not."""

    def to(function: str, calls: str | None = None, **more: Any) -> Op:
        return {"op": "transform_values", "function": function, **({"calls": calls} if calls else {}), **more}

    table, kept = source(op="table"), source(op="table", store="t")
    upper, text = to("upper unless x"), to("key and text")
    counted, told = to("upper unless x", "n"), to("key and text", "n")
    not_one: Op = {"op": "filter", "function": "not A#1"}
    letters: Op = {"op": "group_by", "key": "letter"}
    values: Op = {"op": "group_by", "key": "value"}
    folded = [{"op": "aggregate", "function": "concat", "store": "s"}, TO_STREAM]
    some = rows(
        "a=a@10 b=x@11 a=null@12 c=null@13 a=x@14 a=b@9 b=a@20 b=null@15 a=b@30 null=a@31 c=x@32 c=a@5 "
        "a=null@40 a=null@41 b=c@39"
    )
    programs: dict[str, list[Op]] = {
        "to a stream": [table, upper, TO_STREAM],
        "called for nulls": [table, told, TO_STREAM],
        "of a table with a store": [kept, told, TO_STREAM],
        "with a store": [table, {**counted, "store": "s"}, TO_STREAM],
        "with a store, nulls are values": [table, {**text, "store": "s"}, TO_STREAM],
        "with a history": [table, {**upper, "store": "s", "history": 10}, TO_STREAM],
        "filtered, nobody knows what was there": [table, counted, not_one, TO_STREAM],
        "filtered, of a table with a store": [kept, counted, not_one, TO_STREAM],
        "filtered, with a store": [table, {**counted, "store": "s"}, not_one, TO_STREAM],
        "filtered before": [kept, {"op": "filter", "function": "not b"}, told, TO_STREAM],
        "grouped": [table, upper, letters, *folded],
        "grouped, called twice": [table, counted, letters, *folded],
        "grouped, nulls are values": [table, text, values, *folded],
        "grouped, with a store": [table, {**counted, "store": "m"}, letters, *folded],
        "grouped, of a table with a store": [kept, text, letters, *folded],
        "two in a row": [table, upper, {**told, "calls": "n2"}, TO_STREAM],
        "two in a row, grouped": [table, counted, {**told, "calls": "n2"}, values, *folded],
        "two in a row, the first with a store": [
            table,
            {**counted, "store": "m"},
            {**told, "calls": "n2"},
            values,
            *folded,
        ],
        "mapped before and behind": [
            table,
            {"op": "map_values", "function": "upper"},
            told,
            {"op": "map_values", "function": "upper"},
            TO_STREAM,
        ],
        "of an aggregation": [source(), BY_KEY, {**CONCAT, "store": "t"}, counted, not_one, TO_STREAM],
    }
    for name, program in programs.items():
        yield name, program, some
    left, right = source(op="table", topic="in", **{"as": "l"}), source(op="table", topic="t")
    both = "a=a@1 b=x@3 a=x@5 a=b@4 b=b@8 a=c@7 c=c@11 c=x@13", "a=p@2 b=q@4 a=r@6 a=null@9 b=null@10 c=s@12"
    of_topics = [(*each, topic) for topic, text in zip(("in", "t"), both, strict=True) for each in rows(text)]
    two = [[*each] for each in sorted(of_topics, key=lambda each: each[2] if each[2] != 4 else 6)]
    for join in ("join", "left_join", "outer_join"):
        for each in (upper, {**upper, "store": "s"}):
            joined = {"op": join, "of": "l2", "with": "r", "store": "j"}
            behind = ", with a store" if "store" in each else ""
            yield (
                f"{join}{behind}",
                [left, {**each, "as": "l2"}, {**right, "as": "r"}, joined, TO_STREAM],
                two,
            )


FILES: dict[str, Callable[[], Iterator[Case]]] = {
    "time": time_cases,
    "sliding": sliding_cases,
    "session": session_cases,
    "unwindowed": unwindowed_cases,
    "emit_on_close": close_cases,
    "suppress": suppress_cases,
    "chains": chain_cases,
    "headers": header_cases,
    "own_windows": own_windows_cases,
    "transformed": transformed_cases,
    **JOINS,
}
"""The files of traces, and what makes the cases of each."""


def lines(file: str) -> list[str]:
    """The cases of a file, one JSON object each, as the runner reads them."""
    cases = ({"name": f"{file}/{name}", "program": ops, "records": rows} for name, ops, rows in FILES[file]())
    return [json.dumps(case, separators=(",", ":")) for case in cases]
