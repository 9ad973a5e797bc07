"""The cases of the traces with several sources, or with groups of a table: joins, and what a table sends on.

Where a program has several topics, `in` is the stream, or the left side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from snapshots.trace_programs import (
    BY_KEY,
    CONCAT,
    COUNT,
    FORGET,
    LONG,
    TO_STREAM,
    Case,
    Op,
    Record,
    random_records,
    rows,
    session,
    source,
    time,
)

__all__ = ["JOINS"]

INNER_OR_LEFT = ("join", "left_join")
ALL_KINDS = ("join", "left_join", "outer_join")


# --- programs and records --------------------------------------------------------------------------------


def named(name: str, *ops: Op) -> list[Op]:
    """Operations whose result has a name."""
    return [*ops[:-1], {**ops[-1], "as": name}]


def stream(topic: str = "in", values: str = "string") -> Op:
    return source(values, topic=topic)


def table(topic: str = "in", values: str = "string", **store: Any) -> Op:
    return source(values, "table", topic=topic, **store)


def op(name: str, function: str, **more: str) -> Op:
    return {"op": name, "function": function, **more}


NOT_X = op("filter", "not x")
ONLY_X = op("filter_not", "not x")
UPPER = op("map_values", "upper")
UPPER_UNLESS_X = op("map_values", "upper unless x")
NOTHING = op("map_values", "null")
BY_VALUE: Op = {"op": "select_key", "key": "value"}
BY_LETTER: Op = {"op": "select_key", "key": "letter"}


def stored(op: Op, store: str) -> Op:
    return {**op, "store": store}


def of(name: str, op: Op) -> Op:
    return {**op, "of": name}


def group(key: str, value: str = "value") -> Op:
    return {"op": "group_by", "key": key, "value": value}


def at(text: str) -> list[Record]:
    """The records of `a=x@5 t:b=null@7`: with their topic before the key, if it is not `in`."""
    found = []
    for each in text.split():
        topic, colon, rest = each.partition(":")
        found += [[*record, topic if colon else "in"] for record in rows(rest if colon else each)]
    return found


LETTERS = "abcdefghijklmnopqrstuvwyz"


def at_random(
    seed: str,
    topics: Mapping[str, str],
    *,
    tables: str = "",
    span: int = 10,
    late: int | None = None,
    count: int = 24,
    scale: int = 1,
    keys: str = "aab",
) -> list[Record]:
    """Records as those of `random_records`, each of one of these topics, which have their values in turn.

    Topics that are tables have more nulls.
    """
    rng = random.Random(f"topics {seed}")
    records = random_records(seed, span, CONCAT, late=late, count=count, scale=scale, keys=keys)
    for number, record in enumerate(records):
        topic = list(topics)[int(rng.random() * len(topics))]
        if record[1] is not None:
            record[1] = topics[topic].split()[number % len(topics[topic].split())]
        if topic in tables.split() and rng.random() < 0.15:
            record[1] = None
        record.append(topic)
    return records


def with_keys(records: list[Record]) -> list[Record]:
    """Those whose key is not null."""
    return [record for record in records if record[0] is not None]


def alone(records: list[Record]) -> list[Record]:
    """Records of a program that names no topics."""
    return [record[:3] for record in records]


# --- a stream and a table --------------------------------------------------------------------------------


def stream_table_cases() -> Iterator[Case]:
    def joined(kind: str, *ops: Op, store: str = "t") -> list[Op]:
        """The stream with the table after these operations on the table."""
        return [*named("t", table("t", store=store), *ops), stream(), {"op": kind, "with": "t"}]

    letters = " ".join(LETTERS)
    moves = at(
        "a=a@5 t:a=A@6 a=b@7 t:b=B@7 b=c@2 a=d@1 t:a=C@9 a=e@8 a=f@20 t:b=null@8 b=g@21 c=h@3 t:c=D@30 c=i@9"
    )
    backwards = at("t:a=A@20 a=a@5 t:a=B@10 a=b@25 t:a=C@15 a=c@1 t:a=null@3 a=d@30 t:a=D@2 a=e@2")
    nulls = at(
        "null=a@1 t:null=A@2 null=b@3 a=null@4 t:a=B@5 a=null@6 a=c@7 t:a=null@8 a=null@9 null=null@9 "
        "a=d@10 t:a=null@11 t:b=null@12 b=e@13"
    )
    changes = at(
        "a=a@1 t:a=x@2 a=b@3 t:a=A@4 a=c@5 t:a=x@6 a=d@7 t:b=x@8 b=e@9 t:b=B@3 b=f@4 t:b=null@10 b=g@11 "
        "t:a=null@12 a=h@13 t:a=null@14 t:c=null@15 c=i@16"
    )
    behind: dict[str, list[Op]] = {
        "filter": [NOT_X],
        "filter with a store": [stored(NOT_X, "f")],
        "filter_not": [ONLY_X],
        "map_values": [UPPER_UNLESS_X],
        "map_values with a store": [stored(UPPER_UNLESS_X, "f")],
        "map_values to null": [NOTHING],
        "filter, map_values": [NOT_X, UPPER],
        "filter, map_values with a store": [NOT_X, stored(UPPER, "f")],
        "map_values with a store, filter": [stored(UPPER_UNLESS_X, "f"), NOT_X],
        "map_values, filter": [UPPER_UNLESS_X, NOT_X],
    }
    for kind in INNER_OR_LEFT:
        yield f"{kind}, what the table has at that moment", joined(kind), moves
        yield f"{kind}, the table's time goes back", joined(kind), backwards
        yield f"{kind}, null keys and values", joined(kind), nulls
        for name, ops in behind.items():
            if kind == "left_join" or "with a store" not in name:
                yield f"{kind}, a table behind {name}", joined(kind, *ops), changes
    two_tables = [*named("t", table("t", store="t")), *named("u", table("u", store="u")), stream()]
    both = at(
        "a=a@1 t:a=A@2 a=b@3 u:a=U@4 a=c@3 u:b=V@5 b=d@6 t:b=B@1 b=e@7 t:a=null@8 a=f@9 u:a=null@9 a=g@9 "
        "null=h@10 a=null@11 u:null=W@12"
    )
    for first in INNER_OR_LEFT:
        for then in INNER_OR_LEFT:
            program = [*two_tables, {"op": first, "with": "t"}, {"op": then, "with": "u"}]
            yield f"{first} with one, {then} with another", program, both
    yield (
        "left_join, twice with the same table",
        [*joined("left_join"), {"op": "left_join", "with": "t"}],
        moves,
    )
    counted = {"count": COUNT, "concat": CONCAT, "concat unless -": FORGET}
    own = at("a=a@5 b=b@3 a=c@1 a=-@7 a=d@9 null=e@10 a=null@11 b=-@12 b=f@12")
    for name, fold in counted.items():
        of_another = [*named("c", stream("t"), BY_KEY, fold), stream(), {"op": "left_join", "with": "c"}]
        records = at(
            "a=a@1 t:a=A@5 a=b@2 t:a=B@3 a=c@9 t:a=-@10 a=d@4 t:null=C@11 null=e@12 t:a=null@13 a=f@1"
        )
        yield f"left_join, the {name} of another stream", of_another, records
        of_itself = [
            *named("s", source()),
            *named("c", BY_KEY, fold),
            {"op": "left_join", "of": "s", "with": "c"},
        ]
        yield f"left_join, the {name} of the same stream", of_itself, alone(own)
    yield (
        "join, the count of the same stream",
        [*named("s", source()), *named("c", BY_KEY, COUNT), {"op": "join", "of": "s", "with": "c"}],
        alone(own),
    )
    yield (
        "join, the count of the same stream by value",
        [*named("s", source()), *named("c", BY_VALUE, BY_KEY, COUNT), {"op": "join", "of": "s", "with": "c"}],
        alone(at("a=b@1 b=a@2 a=a@3 b=b@3 a=null@4 null=a@5 a=b@6")),
    )
    yield (
        "join by value, the count of the same stream by value",
        [
            *named("v", source(), BY_VALUE),
            *named("c", BY_KEY, COUNT),
            {"op": "join", "of": "v", "with": "c"},
        ],
        alone(at("a=b@1 b=a@2 a=a@3 b=b@3 a=null@4 null=a@5 a=b@6")),
    )
    for kind in INNER_OR_LEFT:
        yield (
            f"{kind} by value",
            [*named("t", table("t", store="t")), stream(), BY_VALUE, {"op": kind, "with": "t"}],
            at("a=b@1 t:b=B@2 a=b@3 b=b@1 a=null@4 null=b@5 b=a@6 t:a=A@7 null=a@8 t:b=null@9 a=b@9"),
        )
        yield (
            f"{kind} by the first letter",
            [*named("t", table("t", store="t")), stream(), BY_LETTER, {"op": kind, "with": "t"}],
            at("a=b1@1 t:b=B@2 a=b2@3 b=-@1 a=null@4 null=b3@5 b=a1@6 t:a=A@7 null=-z@8"),
        )
    behind_join: dict[str, list[Op]] = {
        "count": [BY_KEY, COUNT, TO_STREAM],
        "concat": [BY_KEY, CONCAT, TO_STREAM],
        "count by value": [{"op": "group_by", "key": "value"}, COUNT, TO_STREAM],
        "to_table": [{"op": "to_table", "store": "s"}, TO_STREAM],
        "upper": [UPPER],
    }
    for name, ops in behind_join.items():
        kind = "join" if name == "count" else "left_join"
        yield f"{kind}, {name}", [*joined(kind), *ops], moves[:8] + nulls[:8]
    back = at("a=a@5 a=b@3 b=c@1 a=null@7 a=d@2 null=e@8 b=x@9 b=null@2")
    for kind in INNER_OR_LEFT:
        own_table = [*named("t", source(op="table", store="t")), TO_STREAM, {"op": kind, "with": "t"}]
        yield f"{kind}, a table's stream with the table", own_table, alone(back)
    filtered = [
        *named("t", source(op="table", store="t")),
        NOT_X,
        TO_STREAM,
        {"op": "left_join", "with": "t"},
    ]
    yield "left_join, a filtered table's stream with the table", filtered, alone(back)
    its_table = [
        *named("s", source()),
        *named("t", {"op": "to_table", "store": "t"}),
        {"op": "left_join", "of": "s", "with": "t"},
    ]
    yield "left_join, a stream with its own to_table", its_table, alone(back)
    tables = [
        *named("t", table("t")),
        table("u"),
        *named("both", {"op": "outer_join", "with": "t"}),
        stream(),
        {"op": "left_join", "with": "both"},
    ]
    yield "left_join, the outer_join of two tables", tables, both
    times = at(
        "t:a=A@10 t:a=B@20 t:a=C@15 a=a@5 a=b@10 a=c@14 a=d@15 a=e@19 a=f@20 a=g@99 t:a=null@30 a=h@25 "
        "a=i@30 a=j@40 t:a=D@12 a=k@11 a=l@13 t:a=E@20 a=m@22 t:b=F@500 a=n@15 a=o@450 t:a=G@440 a=p@450 "
        "t:a=H@300 a=q@300 a=r@500"
    )
    waiting = at(
        "t:a=A@10 a=a@12 a=b@11 t:a=B@11 b=c@15 a=d@22 t:a=C@14 a=e@22 b=f@25 t:b=D@20 a=g@14 a=h@15 "
        "null=i@30 a=null@31 b=j@40 a=k@40 a=l@40 b=m@29 b=n@30 t:a=null@35 b=o@90 null=p@3 a=q@91 b=r@200"
    )
    for kind in INNER_OR_LEFT:
        versioned = [*named("t", table("t", store="t", history=100)), stream()]
        yield f"{kind}, a versioned table", [*versioned, {"op": kind, "with": "t"}], times
        for ops in ([NOT_X], [UPPER]):
            behind_it = [
                *named("t", table("t", store="t", history=100), *ops),
                stream(),
                {"op": kind, "with": "t"},
            ]
            yield f"{kind}, a versioned table behind {ops[0]['op']}", behind_it, times
            waits = [*behind_it[:-1], {"op": kind, "with": "t", "grace": 10}]
            yield f"{kind}, a versioned table behind {ops[0]['op']}, grace 10", waits, with_keys(waiting)
        for grace in (0, 10):
            program = [*versioned, {"op": kind, "with": "t", "grace": grace}]
            yield f"{kind}, a versioned table, grace {grace}", program, with_keys(waiting)
            yield f"{kind}, a versioned table and times, grace {grace}", program, times
            if grace:
                yield f"{kind}, a versioned table and null keys, grace {grace}", program, waiting
    own_stores = {
        "a filter with a store": [stored(NOT_X, "f")],
        "a filter with a versioned store": [{**stored(NOT_X, "f"), "history": 50}],
    }
    for name, ops in own_stores.items():
        for first in ({"history": 100}, {}):
            behind_it = [*named("t", table("t", store="t", **first), *ops), stream()]
            whose = "a versioned table" if first else "a table"
            yield f"left_join, {whose} behind {name}", [*behind_it, {"op": "left_join", "with": "t"}], times
    versioned = [*named("t", stream("t"), {"op": "to_table", "store": "t", "history": 100}), stream()]
    yield "left_join, a versioned to_table", [*versioned, {"op": "left_join", "with": "t"}], times
    waits = [*versioned, {"op": "left_join", "with": "t", "grace": 10}]
    yield "left_join, a versioned to_table, grace 10", waits, with_keys(waiting)
    versioned = [*named("t", stream("t"), BY_KEY, {**CONCAT, "store": "t", "history": 100}), stream()]
    yield "left_join, a versioned concat", [*versioned, {"op": "left_join", "with": "t"}], times
    versioned = [
        *named("t", table("t", store="t", history=100)),
        table("u", store="u", history=100),
        *named("both", {"op": "outer_join", "with": "t"}),
        stream(),
        {"op": "left_join", "with": "both"},
    ]
    yield (
        "left_join, the outer_join of two versioned tables",
        versioned,
        at("t:a=A@10 u:a=P@12 a=a@15 t:a=B@5 u:a=Q@11 a=b@11 a=c@40 t:a=C@200 a=d@12 a=e@201 u:a=null@190"),
    )
    random_programs: dict[str, list[Op]] = {
        "join": joined("join"),
        "left_join": joined("left_join"),
        "left_join and join": [*two_tables, {"op": "left_join", "with": "t"}, {"op": "join", "with": "u"}],
        "filter": joined("left_join", NOT_X),
        "map_values with a store": joined("left_join", stored(UPPER_UNLESS_X, "f")),
        "count": [*joined("join"), BY_KEY, COUNT, TO_STREAM],
    }
    topics = {"in": letters, "t": "A x B C D x E F", "u": "P Q R S"}
    for number in range(18):
        name, program = list(random_programs.items())[number % len(random_programs)]
        some = {topic: topics[topic] for topic in ("in", "t", "u") if topic in topics_of(program)}
        records = at_random(f"stream_table {number}", some, tables="t u", keys="aab", count=24)
        yield f"random {number}, {name}", program, records
    for number in range(9):
        kind, grace = INNER_OR_LEFT[number % 2], (None, 0, 12)[number % 3]
        join = {"op": kind, "with": "t"} | ({} if grace is None else {"grace": grace})
        program = [*named("t", table("t", store="t", history=40)), stream(), join]
        some = {topic: topics[topic] for topic in ("in", "t")}
        records = with_keys(at_random(f"versioned {number}", some, tables="t", keys="aab", count=24))
        yield f"random {number}, {kind} with a versioned table, grace {grace}", program, records


# --- two streams -----------------------------------------------------------------------------------------


def within(kind: str, other: str, before: int, after: int, grace: int, scale: int = 1) -> Op:
    """A join of two streams: a record on the right may be so much before or after the one on the left."""
    windows = {"before": before * scale, "after": after * scale, "grace": grace * scale}
    return {"op": kind, "with": other, **windows}


JOIN_WINDOWS = (
    (5, 5, 0),
    (5, 5, 10),
    (10, 2, 5),
    (2, 10, 0),
    (0, 10, 5),
    (10, 0, 5),
    (0, 0, 0),
    (-2, 10, 5),
    (10, -2, 5),
    (5, 5, 40),
)
"""Before, after and grace."""


def stream_stream_cases() -> Iterator[Case]:
    def joined(kind: str, before: int, after: int, grace: int, scale: int = 1) -> list[Op]:
        return [*named("r", stream("r")), stream(), within(kind, "r", before, after, grace, scale)]

    edges = at(
        "a=a@40 r:a=A@29 r:a=B@30 r:a=C@35 r:a=D@38 r:a=E@40 r:a=F@42 r:a=G@45 r:a=H@50 r:a=I@51 a=b@41 "
        "a=c@46 a=d@61 r:a=J@99 a=e@200"
    )
    for before, after, grace in JOIN_WINDOWS[2:9]:
        kind = "outer_join" if before + after else "left_join"
        yield (
            f"{kind}, {before} before, {after} after, grace {grace}",
            joined(kind, before, after, grace),
            edges,
        )
    several = at(
        "r:a=A@12 r:a=B@10 r:a=C@11 r:a=D@10 r:b=E@10 a=a@11 r:a=F@11 a=b@11 a=c@10 r:b=G@16 b=d@14 r:a=H@13 "
        "a=e@40 r:a=I@70"
    )
    equal = at(
        "a=a@10 a=b@10 r:a=A@10 r:a=B@10 a=c@10 b=d@10 b=e@10 r:c=C@10 r:c=D@10 r:b=E@16 a=f@30 r:a=F@50"
    )
    nulls = at(
        "null=a@1 r:null=A@2 a=null@3 r:a=null@4 a=b@5 r:a=B@6 a=null@7 null=null@8 r:null=null@8 b=c@9 "
        "r:c=C@9 null=d@60 r:null=D@61 r:a=null@62 a=e@30 a=f@62 r:a=E@63"
    )
    closing = at(
        "b=a@3 a=b@1 r:b=A@2 r:a=B@9 c=c@2 r:d=C@3 a=d@3 r:c=D@12 b=e@13 b=f@14 r:e=E@18 e=f@19 r:z=F@40 "
        "z=g@90 r:z=G@91"
    )
    order = at(
        "c=a@5 r:b=A@5 a=b@5 r:a=B@12 b=c@3 r:c=C@4 b=d@4 r:d=D@3 a=e@4 d=f@12 aa=g@4 r:b=E@4 "
        "b=h@4 z=i@60 r:z=J@60"
    )
    late = at(
        "a=a@100 r:a=A@94 r:a=B@95 r:a=C@80 a=b@80 a=c@60 r:a=D@60 r:a=E@89 a=d@90 b=e@50 r:b=F@50 r:a=G@106 "
        "r:a=H@100 b=f@101 r:c=I@100 a=g@200 r:b=J@150 b=g@150 a=h@1 r:a=K@195 a=i@300"
    )
    in_grace = at("b=a@140 a=b@110 r:a=A@112 r:b=B@100 b=c@105 c=d@111 r:c=C@99 d=e@100 r:d=D@141 d=f@300")
    told = at("a=a@10 b=b@30 r:a=A@12 r:b=B@10 a=c@10 r:c=C@31 c=d@36 r:d=D@50 c=e@31 r:a=E@9 d=f@90")
    for kind in ALL_KINDS:
        yield f"{kind}, several that match", joined(kind, 5, 5, 20), several
        yield f"{kind}, equal times", joined(kind, 5, 5, 0), equal
        yield f"{kind}, null keys and values", joined(kind, 5, 5, 0), nulls
        yield f"{kind}, what is late", joined(kind, 5, 5, 10), late
        yield f"{kind}, what is late, no grace", joined(kind, 5, 5, 0), late
    for kind in ("left_join", "outer_join"):
        yield f"{kind}, when windows close", joined(kind, 5, 5, 0), closing
        yield f"{kind}, when windows close, grace", joined(kind, 5, 5, 3), closing
        yield f"{kind}, when windows of two lengths close", joined(kind, 2, 9, 1), closing
        yield f"{kind}, when windows of two other lengths close", joined(kind, 9, 2, 1), closing
        yield f"{kind}, the order of what found no match", joined(kind, 2, 2, 5), order
        yield f"{kind}, a match after it was told that there is none", joined(kind, 5, 5, 0), told
        yield f"{kind}, a match of what is late, in the grace period", joined(kind, 10, 10, 50), in_grace
    # Segments of Kafka's stores are a minute or more.
    minutes = [[key, value, time * 10_000, topic] for key, value, time, topic in late]
    for kind in ALL_KINDS:
        yield f"{kind}, minutes late", joined(kind, 5, 5, 10, 10_000), minutes
    own = alone(
        at("a=a@10 b=b@12 a=c@13 a=d@10 a=e@30 null=f@31 a=null@32 a=g@5 b=h@70 a=i@66 c=j@99 c=k@200")
    )
    for kind in ALL_KINDS:
        for before, after, grace in ((5, 5, 0), (10, 0, 5)):
            itself = [*named("s", source()), within(kind, "s", before, after, grace)]
            yield f"{kind}, with itself, {before} before, {after} after, grace {grace}", itself, own
    yield (
        "outer_join, with itself, filtered",
        [*named("s", source()), *named("f", NOT_X), within("outer_join", "f", 5, 5, 0) | {"of": "s"}],
        alone(at("a=x@1 a=a@2 b=x@3 a=x@9 b=b@8 c=x@30 c=c@31 null=x@32 a=null@33 a=d@90 b=x@200")),
    )
    for kind in ALL_KINDS:
        by_letter = [*named("r", stream("r"), BY_LETTER), stream(), BY_LETTER, within(kind, "r", 5, 5, 0)]
        records = at(
            "k=a1@5 r:k=a2@6 l=b1@7 r:null=b2@9 null=a3@10 k=null@11 r:l=null@12 k=-z@13 r:k=-y@14 k=c1@20 "
            "r:k=d1@21 k=-w@60 k=a4@61 r:k=a5@99"
        )
        yield f"{kind}, by the first letter", by_letter, records
    mixed = several[:9] + several[-2:] + [[*record[:2], record[2] + 100, record[3]] for record in nulls]
    behind: dict[str, list[Op]] = {
        "count": [BY_KEY, COUNT, TO_STREAM],
        "windows, count": [BY_KEY, time(10, 10, 5), COUNT, TO_STREAM],
        "count by value": [{"op": "group_by", "key": "value"}, COUNT, TO_STREAM],
        "to_table": [{"op": "to_table", "store": "s"}, TO_STREAM],
    }
    for name, ops in behind.items():
        yield f"outer_join, {name}", [*joined("outer_join", 3, 3, 0), *ops], mixed
    third = at(
        "a=a@10 r:a=A@11 q:a=1x@12 r:a=B@13 q:a=2x@15 a=b@9 q:b=3x@16 r:b=C@17 b=c@18 a=d@40 q:a=4x@41 "
        "r:a=D@60 q:c=5x@61 q:null=6x@62 r:null=E@63 null=e@64 a=f@90 r:b=F@120 q:c=7x@150 a=g@200"
    )
    for first, then in (
        ("join", "join"),
        ("left_join", "left_join"),
        ("outer_join", "outer_join"),
        ("left_join", "join"),
    ):
        three = [
            *named("q", stream("q")),
            *named("r", stream("r")),
            stream(),
            within(first, "r", 5, 5, 0),
            within(then, "q", 4, 4, 2),
        ]
        yield f"{first} with one, {then} with another", three, third
    letters, capitals = " ".join(LETTERS), " ".join(LETTERS.upper())
    for number in range(36):
        kind = ALL_KINDS[(number + number // 3) % 3]
        before, after, grace = JOIN_WINDOWS[number % len(JOIN_WINDOWS)]
        scale = 20_000 if number % 4 == 3 else 1
        span = max(before + after, 4)
        records = at_random(
            f"stream_stream {number}",
            {"in": letters, "r": capitals},
            span=span,
            late=span + grace,
            scale=scale,
            keys="aab",
        )
        records += [["z", "end", 10_000 * scale, "r"], ["z", "end", 20_000 * scale, "in"]]
        yield f"random {number}, {kind}", joined(kind, before, after, grace, scale), records


# --- two tables ------------------------------------------------------------------------------------------

TO_CONCAT: list[Op] = [{"op": "group_by", "key": "key"}, stored(CONCAT, "told"), TO_STREAM]
"""Says what goes out of a table, and which old values with it."""


def table_table_cases() -> Iterator[Case]:
    def sides(left: list[Op], right: list[Op]) -> list[Op]:
        return [*named("r", table("r"), *right), *named("l", table(), *left)]

    def joined(kind: str, *ops: Op, **store: str) -> list[Op]:
        return [*sides([], []), {"op": kind, "with": "r", **store}, *(ops or [TO_STREAM])]

    changes = at(
        "a=a@1 r:a=A@2 a=b@5 r:b=B@3 r:b=C@4 b=c@6 a=null@7 r:a=D@8 a=d@9 r:a=null@10 a=e@11 a=null@12 "
        "r:a=null@13 c=null@14 r:c=null@15 b=d@16 b=d@17 r:b=null@18 b=null@19 r:b=E@20 r:b=null@21"
    )
    backwards = at("a=a@20 r:a=A@10 a=b@15 r:a=B@30 a=c@5 r:a=C@25 a=null@3 r:a=D@1 a=d@2 r:a=null@1 a=e@1")
    nulls = at("null=a@1 r:null=A@2 null=null@3 r:null=null@4 a=null@5 r:a=null@6 r:a=A@7 null=b@8 a=b@9")
    for kind in ALL_KINDS:
        yield f"{kind}", joined(kind), changes
        yield f"{kind} with a store", joined(kind, store="j"), changes
        yield f"{kind}, times go back", joined(kind, store="j"), backwards
        yield f"{kind}, null keys and values", joined(kind), nulls
        yield f"{kind}, old values", joined(kind, *TO_CONCAT), changes
        yield f"{kind} with a store, old values", joined(kind, *TO_CONCAT, store="j"), changes
        yield f"{kind}, another filter, old values", joined(kind, NOT_X, *TO_CONCAT), changes[:12]
        stores = [*named("r", table("r", store="r")), table(store="l"), {"op": kind, "with": "r"}, TO_STREAM]
        yield f"{kind} of tables with stores", stores, changes[:8]
    lower_x = at(
        "a=x@1 r:a=A@2 a=b@3 r:b=x@4 b=b@5 r:b=B@6 a=x@7 r:a=C@8 r:a=x@9 a=c@4 b=x@10 b=null@11 r:b=x@12 "
        "r:b=null@13 c=x@14 r:c=x@15 c=null@16"
    )
    for kind in ALL_KINDS:
        for name, ops in {
            "filter": [NOT_X],
            "filter with a store": [stored(NOT_X, "f")],
            "map_values": [UPPER_UNLESS_X],
            "map_values with a store": [stored(UPPER_UNLESS_X, "f")],
        }.items():
            join = {"op": kind, "with": "r"}
            if kind != "join" or "with a" not in name:
                yield f"{kind}, {name} on the left", [*sides(ops, []), join, TO_STREAM], lower_x
                yield f"{kind}, {name} on the right", [*sides([], ops), join, TO_STREAM], lower_x
        both = [*sides([NOT_X], [NOT_X]), {"op": kind, "with": "r"}, *TO_CONCAT]
        yield f"{kind}, filter on both sides, old values", both, lower_x
    behind: dict[str, list[Op]] = {
        "map_values": [UPPER, TO_STREAM],
        "map_values with a store": [stored(UPPER, "f"), TO_STREAM],
        "filter": [op("filter", "not a+A"), TO_STREAM],
        "filter with a store": [stored(op("filter", "not a+A"), "f"), TO_STREAM],
        "filter_not with a store": [stored(op("filter_not", "not a+A"), "f"), TO_STREAM],
        "filter, old values": [op("filter", "not a+A"), *TO_CONCAT],
        "count by value": [{"op": "group_by", "key": "value"}, COUNT, TO_STREAM],
        "count of its stream": [TO_STREAM, BY_KEY, COUNT, TO_STREAM],
    }
    again = at(
        "a=a@1 r:a=A@2 a=b@3 a=a@4 b=a@5 r:b=A@6 b=a@7 r:a=B@2 r:a=A@9 a=null@10 r:b=null@11 a=a@12 b=null@13"
    )
    for name, ops in behind.items():
        for kind in ("join", "outer_join"):
            yield f"{kind}, {name}", joined(kind, *ops), again
    third = at(
        "a=a@1 r:a=A@2 q:a=1x@3 a=b@9 q:a=2x@4 r:a=null@5 a=c@6 q:a=null@7 r:a=B@8 q:a=3x@9 a=null@10 "
        "r:b=C@11 q:b=4x@12 b=d@13 r:b=null@14 q:b=null@15 b=null@16 q:c=5x@17 q:c=null@18 r:a=null@19"
    )
    for kind in ALL_KINDS:
        sources = [*named("r", table("r", store="r", history=100)), table(store="l", history=100)]
        versioned = [*sources, {"op": kind, "with": "r"}]
        yield f"{kind}, versioned tables", [*versioned, TO_STREAM], backwards + changes
        yield f"{kind}, versioned tables, old values", [*versioned, *TO_CONCAT], backwards + changes[:6]
        for side in ("left", "right"):
            one = {side: {"history": 100}}
            sources = [
                *named("r", table("r", store="r", **one.get("right", {}))),
                table(store="l", **one.get("left", {})),
                {"op": kind, "with": "r"},
            ]
            yield f"{kind}, versioned on the {side}", [*sources, TO_STREAM], backwards + changes
        filtered = [
            *named("r", table("r", store="r", history=100), UPPER_UNLESS_X),
            *[table(store="l", history=100), NOT_X, {"op": kind, "with": "r"}],
        ]
        yield f"{kind}, versioned tables, filter and map_values", [*filtered, TO_STREAM], backwards + lower_x
        if kind == "outer_join":
            name = "outer_join, versioned tables, filter and map_values, old values"
            yield name, [*filtered, *TO_CONCAT], lower_x[:12]
        own = [
            *named("r", table("r", store="r", history=100), stored(NOT_X, "f")),
            *[table(store="l", history=100), {"op": kind, "with": "r"}],
        ]
        yield f"{kind}, versioned tables, filter with a store", [*own, *TO_CONCAT], backwards + lower_x[:8]
        for number in range(3):
            sources = [*named("r", table("r", store="r", history=20)), table(store="l", history=30)]
            programs = [*sources, {"op": kind, "with": "r"}]
            values = {"in": "a b c d", "r": "A B C"}
            some = at_random(f"versioned {kind} {number}", values, tables="in r", late=25, count=24)
            yield (
                f"random {number}, {kind}, versioned tables",
                [*programs, *(TO_CONCAT if number else [TO_STREAM])],
                some,
            )
        itself = [*named("t", source(op="table", store="t", history=100)), {"op": kind, "with": "t"}]
        yield f"{kind}, with itself, versioned", [*itself, TO_STREAM], alone(backwards[::2] + changes[::3])
    tables = [*named("q", table("q")), *named("r", table("r")), table()]
    for first in ALL_KINDS:
        for then in ALL_KINDS:
            twice: list[Op] = [{"op": first, "with": "r"}, {"op": then, "with": "q"}]
            yield f"{first} with one, {then} with another", [*tables, *twice, TO_STREAM], third
    yield (
        "outer_join with one, outer_join with another, with stores, old values",
        [
            *tables,
            {"op": "outer_join", "with": "r", "store": "j"},
            {"op": "outer_join", "with": "q", "store": "k"},
            *TO_CONCAT,
        ],
        third,
    )
    yield (
        "left_join with a left_join",
        [
            *named("r", table("r")),
            *named("rq", table("q"), {"op": "left_join", "with": "r"}),
            table(),
            {"op": "left_join", "with": "rq"},
            TO_STREAM,
        ],
        third,
    )
    back = alone(at("a=a@5 a=x@3 b=c@1 a=null@7 a=d@2 null=e@8 b=x@9 b=null@2 b=null@4"))
    for kind in ALL_KINDS:
        itself = [*named("t", source(op="table")), {"op": kind, "with": "t"}]
        yield f"{kind}, with itself", [*itself, TO_STREAM], back
        yield f"{kind}, with itself, old values", [*itself, *TO_CONCAT], back
        filtered = [*named("t", source(op="table")), *named("f", NOT_X), {"op": kind, "of": "t", "with": "f"}]
        yield f"{kind}, with itself, filtered", [*filtered, TO_STREAM], back
    folds = at(
        "a=a@5 r:a=A@2 a=b@3 r:b=B@4 b=c@1 r:a=C@9 a=null@10 r:null=D@11 a=-@12 r:a=-@13 a=d@14 r:b=-@15"
    )
    for kind in ALL_KINDS:
        counts = [
            *named("r", stream("r"), BY_KEY, stored(FORGET, "r")),
            stream(),
            BY_KEY,
            stored(COUNT, "l"),
            {"op": kind, "with": "r"},
            TO_STREAM,
        ]
        yield f"{kind}, a count with a fold", counts, folds
    one = [
        *named("g", source(), BY_KEY),
        *named("count", COUNT),
        *named("fold", {**FORGET, "store": "f", "of": "g"}),
    ]
    own = alone(at("a=a@5 b=b@3 a=c@1 a=-@7 a=d@9 null=e@10 a=null@11 b=-@12 b=f@12"))
    for left, right in (("count", "fold"), ("fold", "count")):
        for kind in ALL_KINDS:
            join = {"op": kind, "of": left, "with": right}
            yield f"{kind}, the {left} with the {right} of one stream", [*one, join, TO_STREAM], own
    windowed = [
        *named("w", source(), BY_KEY, time(10, 10, 5)),
        *named("count", COUNT),
        *named("fold", {**FORGET, "store": "f", "of": "w"}),
        {"op": "outer_join", "of": "count", "with": "fold"},
        TO_STREAM,
    ]
    late = alone(at("a=a@5 b=b@3 a=c@11 a=-@7 a=d@19 null=e@10 a=null@11 b=-@12 b=f@31 a=g@12 a=-@38"))
    yield "outer_join, windows", windowed, late
    made = [
        *named("r", stream("r"), {"op": "to_table", "store": "r"}),
        stream(),
        {"op": "to_table", "store": "l"},
        {"op": "outer_join", "with": "r", "store": "j"},
        TO_STREAM,
    ]
    yield "outer_join, tables of streams", made, changes + nulls[:2]
    random_programs: dict[str, list[Op]] = {}
    for kind in ALL_KINDS:
        random_programs[kind] = joined(kind)
        random_programs[f"{kind}, old values"] = joined(kind, *TO_CONCAT)
        mapped = sides([UPPER_UNLESS_X], [stored(NOT_X, "f")])
        random_programs[f"{kind}, mapped and filtered"] = [*mapped, {"op": kind, "with": "r"}, TO_STREAM]
        random_programs[f"{kind} with a store, filter"] = joined(
            kind, op("filter", "not a+A"), TO_STREAM, store="j"
        )
    for first, then in (("outer_join", "left_join"), ("left_join", "outer_join"), ("join", "outer_join")):
        twice = [{"op": first, "with": "r"}, {"op": then, "with": "q"}]
        random_programs[f"{first}, {then}"] = [*tables, *twice, TO_STREAM]
    topics = {"in": "a x b c a d", "r": "A B x A C", "q": "P Q R"}
    for number, (name, program) in enumerate(random_programs.items()):
        some = {topic: topics[topic] for topic in topics if topic in topics_of(program)}
        records = at_random(f"table_table {number}", some, tables="in r q", keys="aab", count=18)
        yield f"random {number}, {name}", program, records


# --- two tables, by a foreign key ------------------------------------------------------------------------


def foreign_key_cases() -> Iterator[Case]:
    def tables(left: list[Op], right: list[Op]) -> list[Op]:
        return [*named("r", table("r"), *right), *named("l", table(), *left)]

    def by_letter(kind: str, right: str = "r", **more: str) -> Op:
        return {"op": kind, "with": right, "foreign_key": "letter", **more}

    def joined(kind: str, *ops: Op, **more: str) -> list[Op]:
        return [*tables([], []), by_letter(kind, **more), *(ops or [TO_STREAM])]

    moves = at(
        "a=u1@1 r:u=U@2 a=u2@3 a=w1@4 r:w=W@5 b=u1@6 r:u=V@7 a=u3@8 a=u3@9 b=null@10 r:u=null@11 r:u=null@12 "
        "r:u=X@13 r:u=X@14 a=null@15 a=null@16 r:u=Y@17 c=w1@18 a=w2@19 b=w3@20 r:w=Z@21 r:w=null@22 b=u4@23"
    )
    backwards = at(
        "a=u1@20 r:u=U@10 a=u2@15 r:u=V@30 a=w1@5 r:w=W@25 a=u3@3 r:u=null@1 a=w2@2 r:w=X@40 a=null@1 a=w3@7"
    )
    nulls = at(
        "null=u1@1 r:null=U@2 a=-@3 r:u=U@4 a=u1@5 a=-@6 a=-@7 a=w1@8 a=-@9 a=u2@10 a=null@11 b=-@12 "
        "b=null@13 b=null@14 null=null@15 r:null=null@16 r:w=null@17 b=w1@18 b=-@19 b=u1@20 c=u1@21 "
        "c=null@22 r:u=null@23"
    )
    many = at(
        "b=u1@1 aa=u2@2 a=u3@3 c=w1@4 ab=u4@5 r:u=U@6 r:w=W@7 aa=w2@8 r:u=V@9 b=null@10 r:u=null@11 ab=w3@12 "
        "r:w=X@13 a=w4@14 r:u=Y@15 r:w=Z@16"
    )
    for kind in INNER_OR_LEFT:
        yield f"{kind}", joined(kind), moves
        yield f"{kind} with a store", joined(kind, store="j"), moves
        yield f"{kind}, times go back", joined(kind, store="j"), backwards
        yield f"{kind}, null keys, foreign keys and values", joined(kind), nulls
        yield f"{kind}, many rows of one foreign key", joined(kind), many
        by_key = [*tables([], []), {"op": kind, "with": "r", "foreign_key": "key"}, TO_STREAM]
        yield (
            f"{kind}, by the key",
            by_key,
            at("a=a@1 r:a=A@2 r:b=B@3 b=b@4 a=null@5 r:b=null@6 r:a=C@7 b=c@8"),
        )
        yield f"{kind}, old values", joined(kind, *TO_CONCAT), moves
        yield f"{kind} with a store, old values", joined(kind, *TO_CONCAT, store="j"), moves
        stores = [*named("r", table("r", store="r")), table(store="l"), by_letter(kind), TO_STREAM]
        yield f"{kind} of tables with stores", stores, moves[:12]
    lower_x = at(
        "a=x@1 r:u=U@2 a=u@3 b=u@4 a=x@5 r:u=x@6 r:u=x@7 a=u@8 b=x@9 r:x=X@10 r:u=V@11 b=null@12 a=x@13 "
        "r:w=x@14 c=w@15 r:w=W@16 r:w=x@17 c=x@18 c=null@19"
    )
    for kind in INNER_OR_LEFT:
        for name, ops in {
            "filter": [NOT_X],
            "filter with a store": [stored(NOT_X, "f")],
            "map_values": [UPPER_UNLESS_X],
        }.items():
            if name != "map_values":
                yield f"{kind}, {name} on the left", [*tables(ops, []), by_letter(kind), TO_STREAM], lower_x
            yield f"{kind}, {name} on the right", [*tables([], ops), by_letter(kind), TO_STREAM], lower_x
    behind: dict[str, list[Op]] = {
        "map_values": [UPPER, TO_STREAM],
        "filter": [op("filter", "not u1+U"), TO_STREAM],
        "filter with a store": [stored(op("filter", "not u1+U"), "f"), TO_STREAM],
        "count by value": [{"op": "group_by", "key": "value"}, COUNT, TO_STREAM],
        "count of its stream": [TO_STREAM, BY_KEY, COUNT, TO_STREAM],
    }
    for name, ops in behind.items():
        for kind in INNER_OR_LEFT:
            yield f"{kind}, {name}", joined(kind, *ops), moves
    third = at(
        "a=u1@1 r:u=U@2 q:u=P@3 b=w1@4 q:w=Q@5 r:w=W@6 a=w2@7 q:w=null@8 r:u=null@9 b=u2@10 a=null@11 "
        "q:u=R@12 r:u=V@13 b=-@14 b=w3@15 q:w=S@16 r:w=null@17"
    )
    three = [*named("q", table("q")), *named("r", table("r")), table()]
    for first in INNER_OR_LEFT:
        for then in INNER_OR_LEFT:
            twice = [by_letter(first), by_letter(then, "q")]
            yield f"{first} with one, {then} with another", [*three, *twice, TO_STREAM], third
    both = [*three, by_letter("join"), {"op": "left_join", "with": "q"}, TO_STREAM]
    yield "join, left_join with the same key", both, at("q:a=P@1 a=u1@2 r:u=U@3 q:a=Q@4 a=null@5 a=u2@6")
    itself = alone(at("a=b1@1 b=a1@2 a=b2@3 c=a1@4 a=c1@5 b=null@6 a=-@7 c=c1@8 c=c2@9 a=null@10 c=null@11"))
    for kind in INNER_OR_LEFT:
        one = [*named("t", source(op="table")), by_letter(kind, "t"), TO_STREAM]
        yield f"{kind}, rows that refer to others of their table", one, itself
    counted = [
        *named("n", stream("r"), BY_KEY, stored(COUNT, "n")),
        table(),
        by_letter("left_join"),
        TO_STREAM,
    ]
    counted[-2]["with"] = "n"
    yield (
        "left_join with a count",
        counted,
        at("a=u1@1 r:u=U@2 r:u=V@3 a=w1@4 b=u1@5 r:u=W@4 b=null@7 r:w=X@8"),
    )
    topics = {"in": "u1 w1 x u2 - w2 u3", "r": "U V x W"}
    random_programs: dict[str, list[Op]] = {}
    for kind in INNER_OR_LEFT:
        random_programs[kind] = joined(kind)
        random_programs[f"{kind}, old values"] = joined(kind, *TO_CONCAT)
        mapped = [*tables([NOT_X], [NOT_X]), by_letter(kind, store="j"), TO_STREAM]
        random_programs[f"{kind} with a store, filtered"] = mapped
    for number, (name, program) in enumerate(random_programs.items()):
        for again in range(2):
            records = at_random(
                f"foreign_key {number} {again}", topics, tables="in r", keys="abcuuww", count=24
            )
            yield f"random {2 * number + again}, {name}", program, records


# --- the groups of a table -------------------------------------------------------------------------------

GROUPED_FOLDS: tuple[tuple[str, Op], ...] = (
    ("value", COUNT),
    ("value", {"op": "reduce", "function": "concat", "store": "s"}),
    ("value", CONCAT),
    ("number", {"op": "reduce", "function": "sum", "store": "s"}),
    ("number", {"op": "aggregate", "function": "sum", "store": "s"}),
    ("rest", FORGET),
)
"""What is folded, and how."""


def grouped_table_cases() -> Iterator[Case]:
    def folded(value: str, fold: Op, *before: Op, key: str = "letter") -> list[Op]:
        return [source(op="table"), *before, group(key, value), fold, TO_STREAM]

    moves = rows(
        "a=x1@1 b=x2@2 a=y1@3 a=y3@4 b=x2@5 b=x4@6 c=x5@7 b=y6@8 a=null@9 a=null@10 c=y7@11 b=null@12 "
        "c=x8@13 c=null@14 d=null@15 d=x9@16"
    )
    backwards = rows("a=x1@20 b=x2@10 a=y3@5 a=x4@15 b=y5@30 b=x6@2 a=null@1 b=null@3 a=x7@4")
    missing = rows(
        "a=x1@1 null=x2@2 a=-3@3 b=-4@4 a=x5@5 b=x6@6 b=-7@7 a=null@8 c=-8@9 c=null@10 null=null@11 d=x9@12 "
        "d=y1@13"
    )
    missing = [[key, f"-{-value}" if isinstance(value, int) else value, time] for key, value, time in missing]
    gone = rows(
        "a=x1@1 a=x@2 a=x3@3 b=x@4 b=y@5 b=y6@6 b=x@7 b=null@8 a=y@9 a=y9@10 c=x@11 c=null@12 a=null@13"
    )
    forgets = rows(
        "a=xa@1 b=xb@2 c=x-@3 a=xd@4 b=x-@5 b=xe@6 c=null@7 a=y-@8 a=yf@9 b=y-@10 a=null@11 b=x-@12"
    )
    for value, fold in GROUPED_FOLDS:
        name = f"{fold['op']} {fold.get('function', '')} of the {value}"
        yield f"{name}, rows that move", folded(value, fold), moves
        yield f"{name}, times go back", folded(value, fold), backwards
        yield f"{name}, a new key that is null", folded(value, fold), missing
        if value != "value":
            yield f"{name}, a new value that is null", folded(value, fold), gone
    yield "aggregate concat unless -, a fold that gives null", folded("rest", FORGET), forgets
    yield "count of the rest, a new value that is null", folded("rest", COUNT), gone
    yield "aggregate concat, all in one", folded("value", CONCAT, key="all"), moves
    yield "aggregate concat, by its own key", folded("value", CONCAT, key="key"), moves
    stores = [source(op="table", store="t"), group("letter"), CONCAT, TO_STREAM]
    yield "aggregate concat, of a table with a store", stores, moves
    for value, fold in GROUPED_FOLDS[:2]:
        versioned = [source(op="table", store="t", history=100), group("letter", value), fold, TO_STREAM]
        yield f"{fold['op']}, of a versioned table", versioned, backwards + rows("a=y1@500 a=y2@300 a=y3@450")
    lower = rows(
        "a=x@1 b=x@2 a=y@3 b=z@4 a=x@5 b=null@6 a=z@7 a=z@8 c=x@9 c=null@10 b=x@11 b=y@3 a=null@12 a=x@13"
    )
    for name, ops in {
        "filter": [NOT_X],
        "filter with a store": [stored(NOT_X, "f")],
        "filter_not": [ONLY_X],
        "map_values": [UPPER_UNLESS_X],
        "map_values with a store": [stored(UPPER_UNLESS_X, "f")],
        "map_values with a store, filter": [stored(UPPER, "f"), NOT_X],
        "filter, map_values": [NOT_X, UPPER],
    }.items():
        yield f"aggregate concat by letter, {name} before", folded("value", CONCAT, *ops), lower
        yield f"aggregate concat of all, {name} before", folded("value", CONCAT, *ops, key="all"), lower
    for name, ops in {
        "filter": [op("filter", "above 1")],
        "filter with a store": [stored(op("filter", "above 1"), "f")],
        "filter, twice": [op("filter", "even"), op("map_values", "twice")],
    }.items():
        program = [source(op="table"), group("letter"), COUNT, *ops, TO_STREAM]
        yield f"count, {name} behind", program, moves
    histogram = [source(), BY_KEY, stored(COUNT, "c"), group("value"), stored(COUNT, "h"), TO_STREAM]
    own = rows("a=a@5 b=b@3 a=c@1 b=d@7 c=d@9 null=e@10 a=null@11 a=f@12 b=g@2 c=h@13")
    yield "how many keys have a count", histogram, own
    total = [source(), BY_KEY, stored(COUNT, "c"), group("all"), GROUPED_FOLDS[3][1], TO_STREAM]
    yield "the sum of the counts", total, own
    forget = [source(), BY_KEY, stored(FORGET, "f"), group("all"), CONCAT, TO_STREAM]
    yield (
        "all that a fold has, which gives null",
        forget,
        rows("a=a@1 a=b@2 b=-@3 a=-@4 b=c@5 a=-@6 a=d@7 a=-@8"),
    )
    twice = [source(op="table"), group("letter"), stored(COUNT, "c"), group("value"), CONCAT, TO_STREAM]
    yield "grouped again by count", twice, moves
    again = [
        source(op="table"),
        group("letter", "rest"),
        stored(CONCAT, "c"),
        group("all"),
        CONCAT,
        TO_STREAM,
    ]
    yield "all groups in one", again, moves[:7]
    for key in ("key", "key and start"):
        windows = [source(), BY_KEY, time(10, 10, 10), stored(COUNT, "c"), group(key), CONCAT, TO_STREAM]
        yield (
            f"windows by {key}",
            windows,
            rows("a=a@5 b=b@3 a=c@11 a=d@7 a=e@19 b=f@12 null=g@1 a=h@31 a=i@12 a=j@35"),
        )
    sessions = [source(), BY_KEY, session(5, 20), stored(CONCAT, "c"), group("key"), CONCAT, TO_STREAM]
    yield "sessions by key", sessions, rows("a=a@5 a=b@20 a=c@12 b=d@13 a=e@8 a=f@16 b=g@30 a=h@31")
    tables = [
        *named("r", table("r")),
        table(),
        {"op": "outer_join", "with": "r"},
        group("letter"),
        CONCAT,
        TO_STREAM,
    ]
    pairs = at(
        "a=xa@1 r:a=xb@2 b=xc@3 r:b=yd@4 a=ye@5 r:a=null@6 a=null@7 b=null@8 r:b=null@9 r:c=xf@1 c=xg@10"
    )
    yield "an outer_join of tables", tables, pairs
    grouped_join = [
        *named("c", table("r"), group("letter"), COUNT),
        stream(),
        {"op": "left_join", "with": "c"},
    ]
    yield (
        "left_join of a stream with it",
        grouped_join,
        at("x=a@1 r:a=x1@2 x=b@3 r:b=x2@4 x=c@2 r:a=y1@5 x=d@5 y=e@6"),
    )
    for number in range(18):
        value, fold = GROUPED_FOLDS[number % len(GROUPED_FOLDS)]
        values = "x1 y2 x3 x4 -5 y6 x7 y8 x9 y y3 x" if value != "value" else "x1 y2 x3 x4 -5 y6 x7 y8 x9 y3"
        records = alone(
            at_random(
                f"grouped_table {number}", {"in": values}, tables="in", keys="abc", count=20 + number % 5
            )
        )
        before = [[], [op("filter", "not x3")], [stored(UPPER, "f")]][number % 3]
        yield (
            f"random {number}, {fold['op']} {fold.get('function', '')}",
            folded(value, fold, *before),
            records,
        )


# --- what a table sends on -------------------------------------------------------------------------------


def table_filter_cases() -> Iterator[Case]:
    changes = rows(
        "a=x@1 a=y@2 a=z@3 a=x@4 a=x@5 b=x@6 b=null@7 b=null@8 c=y@9 c=null@10 c=null@11 null=y@12 a=null@13 "
        "d=null@14 d=y@20 d=x@15 d=z@3 d=null@1 e=z@2 e=x@1"
    )
    chains: dict[str, list[Op]] = {
        "nothing": [],
        "filter": [NOT_X],
        "filter_not": [ONLY_X],
        "map_values": [UPPER],
        "map_values to null for some": [UPPER_UNLESS_X],
        "map_values to null": [NOTHING],
        "filter with a store": [stored(NOT_X, "f")],
        "filter_not with a store": [stored(ONLY_X, "f")],
        "map_values with a store": [stored(UPPER_UNLESS_X, "f")],
        "map_values to null with a store": [stored(NOTHING, "f")],
        "filter, filter": [NOT_X, op("filter", "not y")],
        "filter, filter with a store": [NOT_X, stored(op("filter", "not y"), "f")],
        "filter with a store, filter": [stored(NOT_X, "f"), op("filter", "not y")],
        "filter, filter_not": [NOT_X, ONLY_X],
        "filter, map_values": [NOT_X, UPPER],
        "filter, map_values with a store": [NOT_X, stored(UPPER, "f")],
        "filter with a store, map_values": [stored(NOT_X, "f"), UPPER],
        "map_values, filter": [UPPER_UNLESS_X, op("filter", "not Y")],
        "map_values, filter with a store": [UPPER_UNLESS_X, stored(op("filter", "not Y"), "f")],
        "map_values with a store, filter": [stored(UPPER_UNLESS_X, "f"), op("filter", "not Y")],
        "map_values, map_values with a store": [UPPER_UNLESS_X, stored(UPPER, "f")],
    }
    for name, ops in chains.items():
        yield f"table, {name}", [source(op="table"), *ops, TO_STREAM], changes
        if name not in ("nothing", "map_values", "map_values to null"):
            yield f"table with a store, {name}", [source(op="table", store="t"), *ops, TO_STREAM], changes
    for name in ("filter", "map_values to null for some", "filter, map_values", "map_values, filter"):
        yield f"table, {name}, old values", [source(op="table"), *chains[name], *TO_CONCAT], changes
        made = [source(), {"op": "to_table", "store": "t"}, *chains[name], TO_STREAM]
        yield f"to_table, {name}", made, changes
    number_chains: dict[str, list[Op]] = {
        "filter": [op("filter", "even")],
        "filter_not": [op("filter_not", "above 1")],
        "filter with a store": [stored(op("filter", "even"), "f")],
        "filter, filter": [op("filter", "above 1"), op("filter", "even")],
        "filter, twice": [op("filter", "even"), op("map_values", "twice")],
        "twice, filter": [op("map_values", "twice"), op("filter", "above 1")],
        "null": [NOTHING],
        "null with a store": [stored(NOTHING, "f")],
    }
    numbers = rows(
        "a=1@1 a=2@2 a=4@3 a=3@4 a=5@5 b=1@6 b=null@7 b=2@9 b=null@10 b=null@11 a=6@2 a=null@13 c=2@14 c=1@3 "
        "c=8@20"
    )
    for name, ops in number_chains.items():
        yield f"table of numbers, {name}", [source("long", "table"), *ops, TO_STREAM], numbers
    counted = rows("a=a@5 b=b@3 a=c@1 a=d@7 null=e@8 a=null@9 b=f@9 a=g@12 b=h@2 c=i@30")
    spread = rows(
        "a=a@5 b=b@3 a=c@1 a=d@12 null=e@8 a=null@9 b=f@9 a=g@12 b=h@2 a=i@17 a=j@38 b=k@39 a=l@22 c=m@60 "
        "c=n@61"
    )
    for name, ops in number_chains.items():
        yield f"count, {name}", [source(), BY_KEY, COUNT, *ops, TO_STREAM], counted
        for windows in (time(10, 5, 10), session(5, 20)):
            if name in ("filter", "filter with a store", "filter_not", "twice, filter"):
                program = [source(), BY_KEY, windows, COUNT, *ops, TO_STREAM]
                yield f"count of {windows['windows']} windows, {name}", program, spread
    yield (
        "count of windows that close, filter",
        [
            source(),
            BY_KEY,
            time(10, 10, 0),
            {**COUNT, "emit": "close", "retention": LONG},
            *number_chains["filter"],
            TO_STREAM,
        ],
        spread,
    )
    forgets = rows("a=x@1 a=-@2 a=y@3 a=-@4 b=-@5 b=x@6 a=x@7 a=x@8 b=-@9 c=y@10")
    for name in ("filter", "filter with a store", "map_values to null for some", "map_values with a store"):
        program = [source(), BY_KEY, FORGET, *chains[name], TO_STREAM]
        yield f"fold that gives null, {name}", program, forgets
    several = [
        *named("t", source(op="table")),
        *named("all", {"op": "group_by", "key": "all"}, COUNT, TO_STREAM),
        of("t", NOT_X),
        TO_STREAM,
    ]
    yield "table whose old values another step needs, filter", several, changes
    later = [
        *named("t", source(op="table")),
        *named("f", NOT_X, TO_STREAM),
        *named("all", of("t", {"op": "group_by", "key": "all"}), COUNT, TO_STREAM),
        of("f", UPPER),
    ]
    yield "table whose old values a later step needs, filter", later, changes
    joined = [
        *named("t", source(op="table")),
        *named("f", NOT_X, TO_STREAM),
        {"op": "left_join", "with": "t"},
    ]
    yield "table that a later join has a store for, filter", joined, changes
    earlier = [
        *named("t", source(op="table")),
        TO_STREAM,
        {"op": "left_join", "with": "t"},
        of("t", NOT_X),
        TO_STREAM,
    ]
    yield "table that an earlier join has a store for, filter", earlier, changes
    for name in ("nothing", "filter", "map_values to null for some", "filter with a store"):
        program = [source(op="table", store="t", history=100), *chains[name], TO_STREAM]
        yield f"versioned table, {name}", program, changes
    for number, (name, ops) in enumerate(chains.items()):
        if number % 2:
            records = alone(
                at_random(f"table_filter {number}", {"in": "x y z x y"}, tables="in", keys="aab", count=18)
            )
            yield f"random {number}, {name}", [source(op="table"), *ops, TO_STREAM], records
            program = [source(), BY_KEY, {"op": "reduce", "function": "last", "store": "s"}, *ops, TO_STREAM]
            yield f"random {number}, last, {name}", program, records


# --- tables of any kind ----------------------------------------------------------------------------------


def random_tables(number: int) -> tuple[list[Op], list[Record]]:
    """A program that joins two or three tables, with filters, mappings and stores anywhere; its records."""
    rng = random.Random(f"tables {number}")

    def one(*choices: Any) -> Any:
        return choices[int(rng.random() * len(choices))]

    def maybe(op: Op, store: str, chance: float = 0.25) -> Op:
        return stored(op, store) if rng.random() < chance else op

    def chain(name: str, most: int) -> list[Op]:
        steps = (NOT_X, ONLY_X, NOT_X, UPPER, UPPER_UNLESS_X, op("filter", "not X"))
        return [maybe(one(*steps), f"{name}{step}") for step in range(int(rng.random() * (most + 1)))]

    def read(topic: str) -> list[Op]:
        history = {"history": 40} if rng.random() < 0.1 else {}
        store = {"store": f"t-{topic}", **history} if history or rng.random() < 0.5 else {}
        return named(topic, table(topic, **store), *chain(topic, 2))

    def join(other: str) -> Op:
        return maybe({"op": one(*ALL_KINDS), "with": other}, f"j-{other}")

    program = [*read("q"), *read("r"), *read("in"), join("r"), *chain("j", 1)]
    if rng.random() < 0.6:
        program += [join("q"), *chain("k", 1)]
    program += one([TO_STREAM], [TO_STREAM], [TO_STREAM], TO_CONCAT)
    values = {"in": "a x b x", "r": "A x B X", "q": "1 x X 2"}
    return program, at_random(f"tables {number}", values, tables="in r q", late=12, count=24, keys="aab")


def joined_tables_cases() -> Iterator[Case]:
    """What a table tells depends on everything before it, and on who asks it."""
    late = rows(
        "a=a1@10 a=a2@30 a=b0@20 b=a1@40 b=null@50 b=a9@45 a=b3@31 a=null@60 a=x@55 b=x@46 a=a4@200 b=a5@90 "
        "b=a6@210 a=null@199 a=b7@200 b=null@211 b=a8@150"
    )
    never = at(
        "a=a@1 r:a=x@2 r:a=x@3 a=x@4 r:a=A@5 a=x@6 a=b@7 r:a=x@8 a=x@9 r:b=B@10 b=x@11 b=null@12 r:b=null@13"
    )
    for kind in ALL_KINDS:
        for name, left, right in (
            ("a filter on the left", [NOT_X], []),
            ("a filter on the right", [], [NOT_X]),
            ("three steps on the right", [], [UPPER, ONLY_X, NOT_X]),
        ):
            sides = [*named("r", table("r", store="r"), *right), table(store="l"), *left]
            program = [*sides, {"op": kind, "with": "r"}, TO_STREAM]
            yield f"{kind} of tables with stores, {name}", program, never
    deleted = at(
        "r:b=B@1 b=a@2 b=null@50 q:b=P@20 q:b=null@21 r:b=C@3 b=b@4 r:b=null@60 q:b=Q@5 b=null@70 q:b=R@6"
    )
    three = [*named("q", table("q")), *named("r", table("r", store="r")), table()]
    for kind in ALL_KINDS:
        for name, first in (("no store", {"op": kind}), ("a store", {"op": kind, "store": "j"})):
            program = [*three, {**first, "with": "r"}, NOT_X, {"op": "outer_join", "with": "q"}, TO_STREAM]
            yield f"{kind} with {name}, filter, outer_join", program, deleted
    for name, ops in {
        "": [],
        ", filter": [NOT_X],
        ", map_values": [UPPER_UNLESS_X],
        ", filter with a store": [stored(NOT_X, "f")],
        ", filter with a store, filter": [stored(NOT_X, "f"), op("filter", "not a1")],
    }.items():
        versioned = [source(op="table", store="t", history=100), *ops]
        for key in ("key", "letter"):
            yield f"versioned table{name}, concat by {key}", [*versioned, group(key), CONCAT, TO_STREAM], late
    yield "versioned table, count by letter", [*versioned[:1], group("letter"), COUNT, TO_STREAM], late
    for number in range(RANDOM_TABLES):
        yield f"random {number}", *random_tables(number)


RANDOM_TABLES = 24

# --- a stream and a global table -------------------------------------------------------------------------


def global_table_cases() -> Iterator[Case]:
    def joined(kind: str, key: str = "letter", **store: str) -> list[Op]:
        return [
            *named("g", source(op="global_table", topic="g", **store)),
            stream(),
            {"op": kind, "with": "g", "key": key},
        ]

    updates = at(
        "k=a1@5 g:a=A@6 k=a2@7 g:a=B@3 l=a3@2 g:b=C@9 k=b1@1 k=c1@10 g:a=null@11 k=a4@12 g:a=D@4 k=a5@13 "
        "k=b2@8"
    )
    nulls = at(
        "g:a=A@1 g:null=B@2 null=a1@3 k=null@4 null=null@5 k=-b@6 null=-c@7 null=z1@8 g:a=null@9 g:z=null@9 "
        "null=a2@10 k=a3@11 k=-d@12"
    )
    keys = at(
        "a=x@1 g:a=A@2 a=y@3 b=z@4 g:b=B@1 b=v@2 null=w@5 a=null@6 g:a=null@7 a=u@8 g:null=C@9 null=t@10"
    )
    for kind in INNER_OR_LEFT:
        yield f"{kind} by the first letter", joined(kind), updates
        yield f"{kind} by the first letter, a table with a store", joined(kind, store="g"), updates
        yield f"{kind} by the first letter, nulls", joined(kind, store="g"), nulls
        yield f"{kind} by key", joined(kind, "key", store="g"), keys
        yield (
            f"{kind} by value",
            joined(kind, "value", store="g"),
            at("k=a@1 g:a=A@2 k=a@3 k=b@4 k=null@5 null=a@6 null=b@7"),
        )
        yield (
            f"{kind} by the same for all",
            joined(kind, "all"),
            at("k=a@1 g:all=A@2 k=b@3 null=c@4 k=null@5 g:all=null@6 k=d@7"),
        )
        yield f"{kind}, count", [*joined(kind), BY_KEY, COUNT, TO_STREAM], updates + nulls
        yield (
            f"{kind}, another key first",
            [
                *named("g", source(op="global_table", topic="g", store="g")),
                stream(),
                BY_LETTER,
                {"op": kind, "with": "g", "key": "key"},
            ],
            updates + nulls,
        )
        yield (
            f"{kind}, count by value",
            [*joined(kind), {"op": "group_by", "key": "value"}, COUNT, TO_STREAM],
            nulls,
        )
    two = at(
        "k=a1@1 g:a=A@2 k=a2@3 h:k=H@4 k=a3@5 k=b1@6 h:l=I@1 l=a4@7 l=b2@8 g:a=null@9 k=a5@10 null=a6@11 "
        "k=-c@12 null=-d@13 k=null@14"
    )
    for first in INNER_OR_LEFT:
        for then in INNER_OR_LEFT:
            program = [
                *named("g", source(op="global_table", topic="g")),
                *named("h", source(op="global_table", topic="h", store="h")),
                stream(),
                {"op": first, "with": "g", "key": "letter"},
                {"op": then, "with": "h", "key": "key"},
            ]
            yield f"{first} with one, {then} with another", program, two
    yield (
        "left_join of a table's stream",
        [
            *named("g", source(op="global_table", topic="g")),
            table(),
            NOT_X,
            TO_STREAM,
            {"op": "left_join", "with": "g", "key": "letter"},
        ],
        at("k=a@1 g:a=A@2 k=x@3 k=a@4 k=null@5 l=x@6 l=b@7 null=a@8"),
    )
    yield (
        "left_join with a global table, join with a table",
        [
            *named("g", source(op="global_table", topic="g")),
            *named("t", table("t", store="t")),
            stream(),
            {"op": "left_join", "with": "g", "key": "letter"},
            {"op": "join", "with": "t"},
        ],
        at("k=a1@1 g:a=A@2 t:k=T@3 k=a2@4 k=b1@2 g:k=B@5 t:k=null@6 k=a3@7 null=a4@8"),
    )
    counted = [
        *named("g", source("long", "global_table", topic="g")),
        stream(),
        BY_KEY,
        COUNT,
        TO_STREAM,
        {"op": "left_join", "with": "g", "key": "letter"},
    ]
    yield (
        "left_join of a count with numbers",
        counted,
        at("k=a@1 g:1=7@2 k=b@3 l=c@4 g:2=8@5 l=d@6 g:3=9@7 k=e@1"),
    )
    values = {"in": "a1 b2 a3 -4 c5 b6 a7", "g": "A B C D"}
    for number in range(16):
        kind = INNER_OR_LEFT[number % 2]
        if number % 4 < 2:
            records = at_random(
                f"global_table {number}", {"in": "a b c d", "g": values["g"]}, tables="g", count=20
            )
            yield f"random {number}, {kind} by key", joined(kind, "key", store="g"), records
        else:
            records = at_random(f"global_table {number}", values, tables="g", count=20, keys="aabc")
            yield f"random {number}, {kind} by the first letter", joined(kind, store="g"), records


def topics_of(program: list[Op]) -> set[str]:
    return {op["topic"] for op in program if "topic" in op}


JOINS: dict[str, Callable[[], Iterator[Case]]] = {
    "stream_table": stream_table_cases,
    "stream_stream": stream_stream_cases,
    "table_table": table_table_cases,
    "joined_tables": joined_tables_cases,
    "foreign_key": foreign_key_cases,
    "grouped_table": grouped_table_cases,
    "table_filter": table_filter_cases,
    "global_table": global_table_cases,
}
"""The files of traces, and what makes the cases of each."""
