"""The cases of the traces about headers: which ones a result has, behind each operation (see `traces.py`)."""

from __future__ import annotations

from collections.abc import Iterator

from snapshots.trace_joins import INNER_OR_LEFT, UPPER_UNLESS_X, at, named, of, stored, stream, table, within
from snapshots.trace_programs import (
    BY_KEY,
    CONCAT,
    COUNT,
    JOINED,
    LONG,
    TO_STREAM,
    UNTIL_CLOSED,
    Case,
    Op,
    Record,
    folded,
    limit,
    rows,
    session,
    sliding,
    source,
    time,
)

__all__ = ["header_cases"]


def with_headers(records: list[Record]) -> list[Record]:
    """The n-th record has a header h with the value hn. Some have several, also of one name, or none."""
    more = {3: [["g", ""], ["h", "h3 again"], ["n", None]], 6: [["h", None]]}
    return [
        [*record, [] if number % 5 == 0 else [["h", f"h{number}"], *more.get(number, [])]]
        for number, record in enumerate(records, 1)
    ]


RECORDS = with_headers(rows("a=x@3 b=y@1 a=z@8 a=v@22 a=-@15 a=w@60 b=u@61"))


def header_cases() -> Iterator[Case]:
    yield from streams_and_tables()
    yield from windows()
    yield from suppressed()
    yield from joins()


def streams_and_tables() -> Iterator[Case]:
    upper: Op = {"op": "map_values", "function": "upper"}
    even: Op = {"op": "filter", "function": "even"}
    not_x: Op = {"op": "filter", "function": "not x", "store": "f"}
    asked: Op = {"op": "process_values"}
    kept = source(op="table", store="t")
    deleted = with_headers(rows("a=x1@1 b=y2@2 a=y1@3 b=null@4 a=y5@5 a=null@6 a=x4@7"))
    groups: Op = {"op": "group_by", "key": "letter", "value": "rest"}
    transform: Op = {"op": "transform_values", "function": "upper unless x"}
    yield from (
        ("map_values", [source(), upper], RECORDS),
        ("select_key", [source(), {"op": "select_key", "key": "value"}], RECORDS),
        ("table", [source(op="table"), TO_STREAM], RECORDS),
        ("table, filter with a store", [kept, not_x, TO_STREAM], RECORDS),
        ("table, map_values with a store", [kept, stored(UPPER_UNLESS_X, "f"), TO_STREAM], deleted),
        ("to_table", [source(), {"op": "to_table", "store": "t"}, TO_STREAM], RECORDS),
        ("transform_values", [kept, transform, TO_STREAM], deleted),
        ("transform_values with a store", [kept, {**transform, "store": "m"}, TO_STREAM], deleted),
        ("count", folded(None, COUNT), RECORDS),
        ("count, cached", [source(cached=True), BY_KEY, COUNT, TO_STREAM], RECORDS),
        ("count, a processor", [source(), BY_KEY, COUNT, TO_STREAM, asked], RECORDS),
        ("count by another key", [source(), {"op": "group_by", "key": "value"}, COUNT, TO_STREAM], RECORDS),
        ("filter of a count", [source(), BY_KEY, COUNT, even, TO_STREAM], RECORDS),
        ("reduce", folded(None, JOINED), RECORDS),
        ("aggregate", folded(None, CONCAT), RECORDS),
        ("table, count", [source(op="table"), groups, COUNT, TO_STREAM], deleted),
        ("table, aggregate", [kept, groups, CONCAT, TO_STREAM], deleted),
    )
    both = with_headers(at("a=x@1 r:a=y@2 r:b=z@3 a=v@4 b=w@5 r:a=u@6"))
    other = named("r", stream("r"), BY_KEY)
    yield "cogroup", [*other, stream(), BY_KEY, {"op": "cogroup", "with": "r", "store": "s"}, TO_STREAM], both


def windows() -> Iterator[Case]:
    close = {"emit": "close", "retention": LONG}
    for each in (time(10, 5, 10), sliding(10, 10), session(7, 10)):
        name = f"{each['windows']} windows"
        yield name, folded(each, CONCAT), RECORDS
        yield f"{name}, cached", [source(cached=True), BY_KEY, each, CONCAT, TO_STREAM], RECORDS
        yield f"{name} that close", folded(each, CONCAT, **close), RECORDS
        until = [BY_KEY, each, CONCAT, UNTIL_CLOSED, TO_STREAM]
        yield f"{name} until they close", [source(), *until], RECORDS
        yield f"{name} until they close, cached", [source(cached=True), *until], RECORDS
    # What a late record closes, and what one does that is dropped.
    tumbling = folded(time(10, 10, 0), CONCAT, **close)
    late = with_headers(rows("a=x@3 b=y@5 a=z@12 a=v@9 b=u@13 a=null@25 b=w@20 a=t@40"))
    yield "late records and windows that close", tumbling, late


def suppressed() -> Iterator[Case]:
    counted = [source(), BY_KEY, COUNT]
    several = with_headers(rows("a=x@3 b=y@1 a=z@8 a=null@9 b=v@10 c=u@14 a=w@15 b=t@30 c=s@31"))
    yield "time limit", [source(op="table"), limit(5), TO_STREAM], RECORDS
    yield "time limit, 1 record", [source(op="table"), limit(50, records=1), TO_STREAM], RECORDS
    yield "time limit, deletions", [source(op="table"), limit(5), TO_STREAM], several
    yield "time limit of a count", [*counted, limit(5), TO_STREAM], several
    yield "time limit of a count, 1 record", [*counted, limit(50, records=1), TO_STREAM], several
    until = [source(), BY_KEY, time(10, 10, 0), COUNT, UNTIL_CLOSED, TO_STREAM]
    asked: list[Op] = [{"op": "select_key", "key": "key"}, {"op": "process_values"}]
    yield "windows until they close, a processor", [*until, *asked], several


def joins() -> Iterator[Case]:
    moves = with_headers(at("a=x@1 r:a=A@2 a=y@3 r:b=B@4 b=z@5 r:a=null@6 a=null@7 b=v@8 r:b=C@9"))
    tables = [*named("r", table("r")), *named("l", table())]
    for kind in (*INNER_OR_LEFT, "outer_join"):
        yield f"tables, {kind}", [*tables, {"op": kind, "with": "r"}, TO_STREAM], moves
    counts = named("c", stream(), BY_KEY, COUNT)
    of_count = [*counts, *named("r", table("r")), of("c", {"op": "left_join", "with": "r"}), TO_STREAM]
    yield "tables, left_join of a count with a store", of_count, moves
    named_so = with_headers(at("a=u1@1 r:u=U@2 b=u2@3 a=w1@4 r:u=V@6 r:w=W@5 a=null@7 b=w3@8 r:w=null@9"))
    for kind in INNER_OR_LEFT:
        by_letter = {"op": kind, "with": "r", "foreign_key": "letter"}
        yield f"foreign key, {kind}", [*tables, by_letter, TO_STREAM], named_so
    looked_up = with_headers(at("a=x@1 r:a=A@2 a=y@3 b=z@5 r:b=B@5 b=w@6 r:a=null@7 a=v@8"))
    for kind in INNER_OR_LEFT:
        joined = [*named("r", table("r", store="r")), stream(), {"op": kind, "with": "r"}]
        yield f"stream and table, {kind}", joined, looked_up
    waits = [*named("r", table("r", store="r", history=100)), stream()]
    yield "stream and table, grace", [*waits, {"op": "left_join", "with": "r", "grace": 2}], looked_up
    found = at("a=x@10 r:a=A@12 r:a=B@8 a=y@13 r:b=C@14 b=z@30 r:a=D@31 r:c=E@12 a=w@60 r:b=F@90")
    pairs = with_headers(found)
    for kind in (*INNER_OR_LEFT, "outer_join"):
        yield f"streams, {kind}", [*named("r", stream("r")), stream(), within(kind, "r", 5, 5, 5)], pairs
