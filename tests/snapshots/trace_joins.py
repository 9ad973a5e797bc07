"""The cases of the traces with several sources, or with groups of a table: joins, and what a table sends on.

Where a program has several topics, `in` is the stream, or the left side.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from snapshots.trace_programs import (
    BY_KEY,
    CONCAT,
    COUNT,
    FORGET,
    TO_STREAM,
    Case,
    Op,
    Record,
    random_records,
    rows,
    source,
)

__all__ = ["JOINS"]

INNER_OR_LEFT = ("join", "left_join")


# --- programs and records --------------------------------------------------------------------------------


def named(name: str, *ops: Op) -> list[Op]:
    """Operations whose result has a name."""
    return [*ops[:-1], {**ops[-1], "as": name}]


def stream(topic: str = "in", values: str = "string") -> Op:
    return source(values, topic=topic)


def table(topic: str = "in", values: str = "string", **store: str) -> Op:
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


def topics_of(program: list[Op]) -> set[str]:
    return {op["topic"] for op in program if "topic" in op}


JOINS: dict[str, Callable[[], Iterator[Case]]] = {
    "stream_table": stream_table_cases,
}
"""The files of traces, and what makes the cases of each."""
