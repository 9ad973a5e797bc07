"""What goes wrong in a user's function, when the topology is compiled: named, placed, with the fix."""

from __future__ import annotations

import json
import logging
import math
import random
import re
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import reduce
from types import MethodType
from typing import Any

import pytest
from driving import STRINGS, pipe, read
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn

from millstream import (
    Consumed,
    KStream,
    Materialized,
    PipelineException,
    Serdes,
    StreamsBuilder,
    TopologyException,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

ORDERS = Consumed.with_(Serdes.string(), Serdes.json("amount DOUBLE, paid BOOLEAN"))


def refused(program: Callable[[KStream], Any], consumed: Consumed = STRINGS) -> str:
    """What the compiler says to a program; the line number of this file as N."""
    builder = StreamsBuilder()
    program(builder.stream("in", consumed))
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(builder.build())
    return re.sub(r"test_trace\.py:\d+", "test_trace.py:N", str(caught.value))


def test_a_column_used_as_a_bool_is_shown_with_the_fix() -> None:
    """`and`, `or`, `not`, `if` and `in` on Columns are the commonest slip."""
    said = refused(lambda s: s.filter(lambda key, value: value.amount > 10 and value.paid).to("out"), ORDERS)
    assert said == (
        "Invalid topology: KSTREAM-FILTER-0000000001 (test_trace.py:N <lambda>): "
        "a Column was used as a Python bool.\n"
        "The function runs once, on Spark Columns, when the topology is compiled; not once per record.\n"
        "  lambda key, value: value.amount > 10 and value.paid        # this\n"
        "  lambda key, value: (value.amount > 10) & value.paid        # should be this\n"
        "`&` for and, `|` for or, `~` for not, `F.when(...)` for if, `value.isin(...)` for in."
    )

    def size(value: Any) -> Any:
        if value == "x":
            return F.lit(1)
        return F.length(value)

    programs: list[Callable[[KStream], Any]] = [
        lambda s: s.filter_not(lambda value: not value),
        lambda s: s.map_values(size).to("out"),
        lambda s: s.map(lambda key, value: (key or value, value)).to("out"),
        lambda s: s.select_key(lambda key, value: key if key else value).to("out"),
        lambda s: s.flat_map_values(lambda value: [value] if value != "x" else []).to("out"),
        lambda s: s.to(lambda value: "a" if value == "b" else "c"),
        lambda s: s.split().branch(lambda value: value == "a" or value == "b").no_default_branch(),
        lambda s: s.group_by(lambda value: value or "none").count(Materialized.as_("c")),
        lambda s: s.to_table().filter(lambda value: value == "a" and value != "b").to_stream().to("out"),
        lambda s: s.group_by_key().aggregate(lambda value: F.sum(value) if value else F.max(value)),
    ]
    for program in programs:
        assert "a Column was used as a Python bool.\n" in refused(program)


def test_an_unknown_field_is_named_with_those_that_are_there() -> None:
    """Spark's own message, with the node and the function."""
    said = refused(lambda s: s.filter(lambda value: value.amuont > 10).to("out"), ORDERS)
    assert said.startswith("Invalid topology: KSTREAM-FILTER-0000000001 (test_trace.py:N <lambda>): ")
    assert "No such struct field `amuont` in `amount`, `paid`" in said
    said = refused(lambda s: s.map_values(lambda value: {"twice": value.amuont * 2}).to("out"), ORDERS)
    assert said.startswith("Invalid topology: KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): ")
    said = refused(lambda s: s.map_values(lambda value: value.field).to("out"))
    assert said.startswith("Invalid topology: KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): ")


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            lambda s: s.filter(lambda value: F.length(value)).to("out"),
            "KSTREAM-FILTER-0000000001 (test_trace.py:N <lambda>): a predicate must return a boolean "
            "Column; this one returns int",
        ),
        (
            lambda s: s.split().branch(lambda value: value).no_default_branch(),
            "KSTREAM-BRANCH-0000000001 (test_trace.py:N <lambda>): a predicate must return a boolean "
            "Column; this one returns string",
        ),
        (
            lambda s: s.map(lambda key, value: value).to("out"),
            "KSTREAM-MAP-0000000001 (test_trace.py:N <lambda>): map has to return a key and a value, "
            "lambda key, value: (value.id, value.amount); this returned Column",
        ),
        (
            lambda s: s.flat_map_values(lambda value: value).to("out"),
            "KSTREAM-FLATMAPVALUES-0000000001 (test_trace.py:N <lambda>): the function must return an array "
            "Column or a list; this one returns string",
        ),
        (
            lambda s: s.flat_map(lambda key, value: F.split(value, " ")).to("out"),
            "KSTREAM-FLATMAP-0000000001 (test_trace.py:N <lambda>): flat_map has to return an array of "
            "(key, value) structs, or a list of (key, value) tuples; its elements are string",
        ),
        (
            lambda s: s.map_values(lambda value: print("debugging")).to("out"),
            "KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): the function returned None; it has to "
            "return a Column (is there a `return` missing?); a null is F.lit(None)",
        ),
        (
            lambda s: s.select_key(lambda key: F.lower(key)).to("out"),
            "KSTREAM-KEY-SELECT-0000000001 (test_trace.py:N <lambda>): a function with one parameter gets "
            "the value, and this one calls it 'key'; write `lambda key, value: ...` to get the key",
        ),
        (
            lambda s: s.group_by_key().aggregate(lambda key, value: value),
            "KSTREAM-AGGREGATE-0000000002 (test_trace.py:N <lambda>): an aggregation has to use Spark's "
            "aggregate functions,\n"
            "  lambda key, value: value.amount           # one record's amount: not an aggregate\n"
            "  lambda key, value: F.sum(value.amount)    # should be this\n"
            "A Python fold takes two functions: aggregate(lambda: 0, lambda key, value, total: ...).",
        ),
        (
            lambda s: s.map_values(lambda value: value.upper()).to("out"),
            "KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): a Column has no method upper(): use "
            "F.upper(...)\n"
            "The function runs once, on Spark Columns, when the topology is compiled; not once per record.",
        ),
        (
            lambda s: s.map_values(lambda value: {}["missing"]).to("out"),
            "KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): KeyError: 'missing'\n"
            "The function runs once, on Spark Columns, when the topology is compiled; not once per record.",
        ),
    ],
)
def test_a_wrong_function_is_refused_with_its_node_its_line_and_the_fix(
    program: Callable[[KStream], Any], said: str
) -> None:
    """Before the first record, whatever it does wrong: what it returns, raises or takes."""
    assert refused(program) == f"Invalid topology: {said}"


PEOPLE = Consumed.with_(
    Serdes.string(), Serdes.json("name STRING, user STRING, n INT, d DOUBLE, tags ARRAY<STRING>")
)
BOB = {"name": "bob", "user": "ann", "n": 1, "d": 0.5, "tags": ["a", "n"]}
TEXT = "a Column was written as Python text, by str(), an f-string, format() or %"
ALWAYS_THERE = "asks about the Column, which is always there, and not about a record's value: use"
OR_NOT = "(or `is not None`)"
ONCE = "was called once, when the topology was compiled, and all records would have that one value: use F."


def mapped(function: Callable[..., Any]) -> Callable[[KStream], Any]:
    return lambda stream: stream.map_values(function).to("out")


def filtered(function: Callable[..., Any]) -> Callable[[KStream], Any]:
    return lambda stream: stream.filter(function).to("out")


def helper() -> int:
    return random.choice([1, 2])


def as_json(value: Any) -> str:
    return json.dumps({"user": value.user}, default=str)


SLIPS: list[tuple[Callable[[KStream], Any], str]] = [
    # What would be wrong in silence.
    (mapped(lambda v: str(v.user)), TEXT),
    (mapped(lambda v: f"{v.user}!"), TEXT),
    (mapped(lambda v: f"{v.user:>10}"), TEXT),
    (mapped(lambda v: "%s" % v.user), TEXT),  # noqa: UP031
    (mapped(lambda v: "{}".format(v.user)), TEXT),  # noqa: UP032
    (mapped(lambda v: {str(v.user): 1}), TEXT),
    (mapped(lambda v: F.lit(f"{F.upper(v.user)}")), TEXT),
    (mapped(as_json), TEXT),
    (filtered(lambda v: v.user == None), "compared with None by ==, which is NULL"),  # noqa: E711
    (filtered(lambda v: v.user != None), "use value.x.isNotNull()"),  # noqa: E711
    (
        filtered(lambda v: v.user is None),
        f"`v.user is None` {OR_NOT} {ALWAYS_THERE} v.user.",
    ),
    (mapped(lambda v: v.user if v.user is not None else "none"), ALWAYS_THERE),
    (mapped(lambda v: v.n + random.random()), f"random.random() {ONCE}"),
    (mapped(lambda v: v.n + helper()), f"random.choice() {ONCE}"),
    (mapped(lambda v: str(uuid.uuid4())), f"uuid.uuid4() {ONCE}"),
    (mapped(lambda v: secrets.token_hex()), f"secrets.token_hex() {ONCE}"),
    (mapped(lambda value, key: value.user), "calls them the other way round; write `lambda key, value: ...`"),
    (mapped(lambda v, k, record: v.user), "calls them the other way round"),
    # Methods of Column that were meant as fields.
    (
        mapped(lambda v: v.name),
        "value.name is a method of Spark's Column and not a field; the field is value",
    ),
    (mapped(lambda v: {"who": [v.name]}), 'the field is value["name"]'),
    (mapped(lambda v: F.upper(v.name)), 'the field is value["name"]'),
    (mapped(lambda v: F.concat(v.user, v.name)), 'the field is value["name"]'),
    (mapped(lambda v: F.lit(v.name)), 'the field is value["name"]'),
    (mapped(lambda v: v.name.first), 'the field is value["name"]'),
    (mapped(lambda v: v.name["first"]), 'the field is value["name"]'),
    (mapped(lambda v: v.user + v.name), 'the field is value["name"]'),
    (mapped(lambda v: f"{v.name}"), 'the field is value["name"]'),
    (filtered(lambda v: v.name == "bob"), 'the field is value["name"]'),
    (filtered(lambda v: v.user == v.name), 'the field is value["name"]'),
    (filtered(lambda v: v.cast > 1), 'the field is value["cast"]'),
    (filtered(lambda v: not v.alias), 'the field is value["alias"]'),
    # What Python can do with values and not with Columns.
    (mapped(lambda v: v.user + "!"), """'!' is text: text is joined with F.concat(value.a, F.lit("!"))"""),
    (mapped(lambda v: "-" + v.user), 'F.concat(F.lit("-"), value.a)'),
    (mapped(lambda v: v.user + v["name"]), "+ adds numbers; text is joined with F.concat("),
    (mapped(lambda v: v.user.strip()), "a Column has no method strip(): use F.trim(...)"),
    (mapped(lambda v: v.get("user")), 'a Column has no method get(): use value["x"]'),
    (
        mapped(lambda v: v.user.shout(1)),
        "a Column has no method shout(): look for it in pyspark.sql.functions",
    ),
    (mapped(lambda v: v.user[1:3]), "F.substring(value.a, position, length) for text, F.slice("),
    (mapped(lambda v: [tag for tag in v.tags]), "flat_map_values takes the array itself"),  # noqa: C416
    (mapped(lambda v: [*v.tags]), "F.transform(value.tags, lambda tag: ...)"),
    (mapped(lambda v: len(v.user)), "use F.length(...) for text, F.size(...) for an array"),
    (mapped(lambda v: max(v.n, v.d)), "max() is Python's own and does not support Columns: use F.max(value)"),
    (mapped(lambda v: sum(v.tags)), "sum() is Python's own and does not support Columns: use F.sum(value)"),
    (filtered(lambda v: "x" in v.tags), "F.array_contains(value.tags, ...)"),
    (filtered(lambda v: v.user in ("x", "y")), "`value.isin(...)` for in"),
    (mapped(lambda v: int(v.user)), 'use .cast("bigint")'),
    (mapped(lambda v: math.sqrt(v.n)), "such as F.sqrt(...)"),
    (mapped(lambda v: {"a": 1}[v.user]), "F.create_map(...)[...]"),
    (mapped(lambda v: json.loads(v.user)), "F.from_json(...)"),
    (
        lambda s: s.group_by_key().reduce(sum),
        "sum() is Python's own and does not support Columns: use F.sum(",
    ),
    (lambda s: s.group_by_key().aggregate(max), "use F.max(value) in an aggregation"),
]
PLACE = re.compile(
    r"Invalid topology: KSTREAM-[A-Z]+-000000000[12] "
    r"\((test_trace\.py:N (<lambda>|as_json)|builtins\.(sum|max))\): "
)


def test_slips_are_told_with_their_node_their_line_and_the_fix() -> None:
    """What would be wrong in silence, and what Spark or Python would tell in their own words."""
    wrong = []
    for number, (program, part) in enumerate(SLIPS):
        said = refused(program, PEOPLE)
        if PLACE.match(said) is None or part not in said:
            wrong.append((number, part, said))
    assert wrong == []


def looked_at(value: Any) -> Any:
    """What one does to see what a function gets."""
    print(value.user)
    print("user", value.user, f"{value!r}", repr(value))
    logging.getLogger("test").warning("the user is %s", value.user)
    return value.user


RIGHT: list[Callable[..., Any]] = [
    looked_at,
    lambda v: F.concat(v["name"], F.lit("!"), v.n.cast("string")),
    lambda v: (v.n + "5").cast("string"),
    lambda v: v.n.alias("name").cast("string"),
    lambda v: F.when(v.user.isNull() | (v.n.between(1, 2)), v.user).otherwise(v["name"]),
    lambda v: F.array_join(F.transform(v.tags, lambda tag: F.upper(tag)), ","),
    lambda v: F.array_join(F.filter(v.tags, v.user.contains), ","),
    lambda v: reduce(F.concat, [v.user, F.lit("-"), v["name"]]),
    lambda v, limit=None: v.user if limit is None else F.left(v.user, limit),
    lambda v: F.uuid(),
    lambda v: F.concat(F.rand().cast("string"), F.randn(7).cast("string")),
    lambda v: F.concat(v.user, F.lit(str(uuid.uuid5(uuid.NAMESPACE_DNS, "x")))),
    lambda v: next(iter(map(v.user.substr, [1], [2]))),
    lambda v: next(each for each in (v.user, v["name"]) if each is not v.n),
    lambda v: F.udf(lambda user: f"{user} {random.random()} {user is None}")(v.user),
]


def test_no_alarm_where_nothing_is_wrong(recwarn: pytest.WarningsRecorder) -> None:
    """Methods that are called, debugging, loops over Python's own values, UDFs that do as they like."""
    builder = StreamsBuilder()
    stream = builder.stream("in", PEOPLE)
    for number, function in enumerate(RIGHT):
        stream.map_values(function).to(f"out-{number}")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", json.dumps(BOB)), value=Serdes.string())
        assert [len(read(driver, f"out-{number}")) for number in range(len(RIGHT))] == [1] * len(RIGHT)
    assert [each for each in recwarn if issubclass(each.category, UserWarning)] == []


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (lambda v: F.lit(datetime.now(UTC)).cast("string"), "datetime.now()"),
        (lambda v: v.n + time.time(), "time.time()"),
        (lambda v: F.lit(date.today()).cast("string"), "date.today()"),
    ],
)
def test_a_clock_in_a_function_is_warned_of(function: Callable[..., Any], called: str) -> None:
    """It may be meant: the time of the start, for all records."""
    builder = StreamsBuilder()
    builder.stream("in", PEOPLE).map_values(function).to("out")
    line = f"test_trace.py:{function.__code__.co_firstlineno} <lambda>"
    with pytest.warns(UserWarning, match="was called once") as told:
        TopologyTestDriver(builder.build()).close()
    assert [str(each.message) for each in told] == [
        f"KSTREAM-MAPVALUES-0000000001 ({line}): {called} was called once, when the topology was compiled, "
        "and all records get that one time: use record.timestamp (`lambda key, value, record: ...`) or "
        "F.current_timestamp(); if one time for all is meant, take it outside the function"
    ]
    assert (told[0].filename, told[0].lineno) == (__file__, function.__code__.co_firstlineno)


def test_columns_are_sparks_own_outside_of_functions(spark: SparkSession) -> None:
    """Also in another thread while a function is traced, and after one has failed."""
    column = spark.range(1)["id"]
    text = repr(column)
    elsewhere: list[Any] = []

    def look() -> None:
        elsewhere.extend((str(column), f"{column}", column.name == 1, isinstance(column.name, MethodType)))

    def traced(value: Any) -> Any:
        other = threading.Thread(target=look)
        other.start()
        other.join()
        return value.user

    before = dict(vars(ClassicColumn))
    builder = StreamsBuilder()
    builder.stream("in", PEOPLE).map_values(traced).to("out")
    TopologyTestDriver(builder.build()).close()
    assert elsewhere == [text, text, False, True]
    refused(mapped(lambda v: str(v.user)), PEOPLE)
    refused(mapped(lambda v: v.zzz), PEOPLE)
    assert dict(vars(ClassicColumn)) == before
    assert (str(column), sys.getprofile()) == (text, None)
    assert isinstance(column == None, ClassicColumn)  # noqa: E711


@pytest.mark.parametrize(
    ("function", "what", "condition"),
    [
        (lambda v: v.user.cast("int"), "cast", "CAST_INVALID_INPUT"),
        (lambda v: v.n / (v.n - 1), "/", "DIVIDE_BY_ZERO"),
        (lambda v: v.tags[7], "[...]", "INVALID_ARRAY_INDEX"),
        (lambda v: F.element_at(v.tags, 7), "element_at", "INVALID_ARRAY_INDEX_IN_ELEMENT_AT"),
        (lambda v: F.to_date(v.user).cast("string"), "to_date", "CAST_INVALID_INPUT"),
    ],
)
def test_an_expression_that_fails_for_a_record_names_node_and_line(
    function: Callable[..., Any], what: str, condition: str
) -> None:
    """A Column's method, and a function of Spark's; the line is that of the expression itself."""

    def program(value: Any) -> Any:
        nothing = F.lit(None)
        return F.coalesce(nothing, function(value))

    builder = StreamsBuilder()
    builder.stream("in", PEOPLE).map_values(program).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(PipelineException) as caught:
        pipe(driver, "in", ("k", json.dumps(BOB)), value=Serdes.string())
    first, line = program.__code__.co_firstlineno, function.__code__.co_firstlineno
    assert str(caught.value).split("\n", 1)[0] == (
        f"pipeline p0: its query failed: KSTREAM-MAPVALUES-0000000001 (test_trace.py:{first} program): "
        f"{what} at test_trace.py:{line} failed for a record"
    )
    assert caught.value.error_class == condition


def test_other_mistakes_name_the_node_and_the_function_too() -> None:
    """Arithmetic on text, an aggregate where there is none, a value that cannot be a Column."""
    for program in (
        lambda s: s.map_values(lambda value: F.explode(value)).to("out"),
        lambda s: s.map_values(lambda value: F.sqrt(F.array(value))).to("out"),
        lambda s: s.map_values(lambda value: object()).to("out"),
        lambda s: s.map_values(lambda value: len(value)).to("out"),
        lambda s: s.map_values(lambda value: f"{value:>10}").to("out"),
        lambda s: s.map_values(lambda value: int(value)).to("out"),
    ):
        said = refused(program)
        assert said.startswith("Invalid topology: KSTREAM-MAPVALUES-0000000001 (test_trace.py:N <lambda>): ")


def test_a_mistake_leaves_nothing_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """PySpark's logger would print each analysis error as a JSON line with the JVM's stack."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    told: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = told.append  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        refused(lambda s: s.filter(lambda value: value.amuont > 10).to("out"), ORDERS)
    finally:
        logger.removeHandler(handler)
    assert told == []
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
