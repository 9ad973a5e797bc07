"""What goes wrong in a user's function, when the topology is compiled: named, placed, with the fix."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from driving import STRINGS
from pyspark.sql import functions as F

from millstream import Consumed, KStream, Materialized, Serdes, StreamsBuilder, TopologyException
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
            "KSTREAM-FILTER-0000000001 (test_trace.py:N <lambda>): a predicate has to return a boolean "
            "Column, this one returns int",
        ),
        (
            lambda s: s.split().branch(lambda value: value).no_default_branch(),
            "KSTREAM-BRANCH-0000000001 (test_trace.py:N <lambda>): a predicate has to return a boolean "
            "Column, this one returns string",
        ),
        (
            lambda s: s.map(lambda key, value: value).to("out"),
            "KSTREAM-MAP-0000000001 (test_trace.py:N <lambda>): map has to return a key and a value, "
            "lambda key, value: (value.id, value.amount); this returned Column",
        ),
        (
            lambda s: s.flat_map_values(lambda value: value).to("out"),
            "KSTREAM-FLATMAPVALUES-0000000001 (test_trace.py:N <lambda>): has to return an array Column or a "
            "list, this one returns string",
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
