"""KTable.group_by: what it makes, and what it refuses."""

import re

import pytest
from built import only, refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.grouped_table import KGroupedTable
from millstream.dsl.ktable import KTable
from millstream.dsl.options import Grouped, Materialized
from millstream.serdes.serdes import Serdes
from millstream.topology.nodes import (
    Aggregate,
    ColumnAggregation,
    Count,
    Repartition,
    TableFold,
    TableGroupBy,
    TableSource,
)


def pair(key, value):
    return value, key


def same(value):
    return value


def two(aggregate, value):
    return aggregate


def three(key, value, aggregate):
    return aggregate


def nothing():
    return 0


@pytest.fixture
def grouped(builder):
    return builder.table("users").group_by(pair, Grouped.with_(Serdes.string(), Serdes.long()))


def test_a_grouped_table_is_repartitioned(builder, grouped):
    """Always, without a filter of null keys, and by a shuffle if Spark can."""
    assert isinstance(grouped, KGroupedTable)
    table = grouped.count(Materialized.as_("counts"))
    assert isinstance(table, KTable)
    assert (table.queryable_store_name, table._key_serde, table._value_serde) == (
        "counts",
        Serdes.string(),
        Serdes.long(),
    )
    assert only(builder, TableGroupBy).mapper is pair
    repartition = only(builder, Repartition)
    assert (repartition.topic, repartition.filter_name) == ("counts-repartition", None)
    assert (repartition.key_serde, repartition.value_serde) == (Serdes.string(), Serdes.long())
    assert repartition.implicit
    aggregate = only(builder, Aggregate)
    assert aggregate.of_table
    assert [parent.name for parent in aggregate.parents] == [repartition.name]


def test_the_table_keeps_what_it_has_had(builder, grouped):
    """So that a row can be taken back."""
    store = only(builder, TableSource).stored
    assert (store.name, store.queryable) == ("users-STATE-STORE-0000000000", False)


@pytest.mark.parametrize(
    ("build", "aggregation"),
    [
        (lambda grouped: grouped.count(), Count()),
        (lambda grouped: grouped.reduce(two, two), TableFold(two, two)),
        (lambda grouped: grouped.aggregate(nothing, three, three), TableFold(three, three, nothing)),
        (lambda grouped: grouped.aggregate(same), ColumnAggregation(same)),
        (lambda grouped: grouped.aggregate(same, Materialized.as_("s")), ColumnAggregation(same)),
        (
            lambda grouped: grouped.aggregate(nothing, three, three, Materialized.as_("s")),
            TableFold(three, three, nothing),
        ),
    ],
    ids=["count", "reduce", "fold", "expression", "expression-stored", "fold-stored"],
)
def test_what_is_computed(builder, grouped, build, aggregation):
    """Each form makes its aggregation."""
    build(grouped)
    assert only(builder, Aggregate).aggregation == aggregation


def test_serdes_of_a_reduce_are_the_values(builder, grouped):
    """Those of an aggregate are not known."""
    assert grouped.reduce(two, two)._value_serde == Serdes.long()
    assert grouped.aggregate(same)._value_serde is None
    assert grouped.aggregate(same, Materialized.with_(None, Serdes.uuid()))._value_serde == Serdes.uuid()


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (lambda g: g.reduce(two, None), ["the subtractor of reduce()", "total - value", "got None"]),
        (lambda g: g.reduce(two), ["the subtractor of reduce()", "total - value", "got None"]),
        (lambda g: g.reduce(same, two), ["the adder of reduce()", "total + value", "same"]),
        (lambda g: g.reduce(two, Materialized.as_("s")), ["the subtractor of reduce()", "Materialized"]),
        (lambda g: g.aggregate(nothing, three), ["needs a subtractor", "total - value", "Spark expression"]),
        (
            lambda g: g.aggregate(nothing, three, two),
            ["the subtractor of aggregate()", "key, value and aggregate"],
        ),
        (
            lambda g: g.aggregate(nothing, two, three),
            ["the adder of aggregate()", "key, value and aggregate"],
        ),
        (lambda g: g.aggregate(same, three, three), ["the initializer of aggregate()", "`lambda: 0`"]),
        (
            lambda g: g.aggregate(nothing, three, three, three),
            ["takes a Materialized here", "one function too many"],
        ),
        (
            lambda g: g.aggregate(same, Materialized(), Materialized()),
            ["an initializer, an adder", "also got"],
        ),
        (lambda g: g.aggregate("sum"), ["aggregate() takes a function", "'sum'"]),
        (lambda g: g.count("counts"), ["count() takes a Materialized", "named="]),
    ],
)
def test_mistakes(builder, grouped, build, parts):
    """Each is told with what to write."""
    with refused(*parts):
        build(grouped)
    assert not [node for node in builder.build().nodes if isinstance(node, Aggregate)]


def test_a_mapper_is_a_function(builder):
    """Of a row."""
    with refused("group_by() takes a function", "'city'"):
        builder.table("users").group_by("city")


def test_a_group_with_a_name_has_one_repartition(builder):
    """Its aggregations share it."""
    grouped = builder.table("users").group_by(pair, named="by-city")
    grouped.count()
    grouped.reduce(two, two, named="again")
    assert only(builder, Repartition).topic == "by-city-repartition"


def test_names_are_checked_before_anything_is_added():
    """A refused aggregation leaves no trace."""

    def write(mistakes):
        made = StreamsBuilder()
        users = made.table("users").filter(same, Materialized.as_("kept"), named="count-source")
        grouped = users.group_by(pair)
        if mistakes:
            with refused("'count-source' already exists"):
                grouped.count(named="count")
            with refused("'kept' already exists"):
                grouped.count(Materialized.as_("kept"))
            with refused("'count-source' already exists"):
                users.group_by(pair, named="count-source")
        grouped.count()
        return str(made.build().describe())

    assert write(mistakes=True) == write(mistakes=False)


def test_a_pattern_does_not_read_its_repartition_topic(builder, grouped):
    """It would read its own output."""
    builder.stream(re.compile("counts-.*"))
    with refused("pattern counts-.*", "counts-repartition"):
        grouped.count(Materialized.as_("counts"))
