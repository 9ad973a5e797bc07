"""Joins and grouped tables in the physical cut: one query has both sides, and behind it is a topic."""

import pytest
from programs import FIVE, both, same

from millstream.dsl.options import Materialized
from millstream.topology.pipeline import state_before


def stream_with_table(builder):
    return builder.stream("one").join(builder.table("two"), both, named="joined")


def stream_with_stream(builder):
    return builder.stream("one").left_join(builder.stream("two"), both, FIVE, named="joined")


def table_with_table(builder):
    return builder.table("one").join(builder.table("two"), both, named="joined").to_stream()


JOINS = pytest.mark.parametrize("join", [stream_with_table, stream_with_stream, table_with_table])


@JOINS
def test_both_sides_are_in_one_query(builder, join):
    """Whoever else reads them."""
    join(builder).to("out")
    builder.stream("alone").to("elsewhere")
    first, second = builder.build().queries
    assert [node.topic if hasattr(node, "topic") else node.topics[0] for node in first.inputs] == [
        "one",
        "two",
    ]
    assert [node.topics for node in second.inputs] == [("alone",)]


@JOINS
def test_a_repartition_behind_a_join_is_a_topic(builder, join):
    """The results have an order that a shuffle would lose; without a change of keys there is none."""
    joined = join(builder)
    joined.group_by_key().count(Materialized.as_("near"))
    joined.group_by(same).count(Materialized.as_("far"))
    first, second = builder.build().pipelines
    assert [store.name for store in second.stores] == ["far"]
    assert "near" in [store.name for store in first.stores]
    assert [node.topic for node in first.outputs] == ["far-repartition"]
    assert "after joined" in second.reason
    near = next(node for node in first.nodes if node.store is not None and node.store.name == "near")
    assert state_before(near, first).name.startswith("joined")


def test_a_repartition_before_a_join_is_a_shuffle(builder):
    """Before an aggregation it is, too: one query, and no topic."""
    builder.stream("one").select_key(same).join(builder.table("two"), both, named="joined").to("out")
    (pipeline,) = builder.build().pipelines
    assert pipeline.subtopologies == (0, 1)
    assert [node.topic for node in pipeline.shuffles] == ["joined-repartition"]
    assert [store.name for store in pipeline.stores] == ["two-STATE-STORE-0000000002"]


def test_a_join_with_a_global_table_keeps_nothing(builder):
    """A shuffle behind it stays one."""
    users = builder.global_table("users")
    builder.stream("one").join(users, same, both).group_by(same).count(Materialized.as_("counts"))
    (pipeline,) = builder.build().pipelines
    assert [node.topic for node in pipeline.shuffles] == ["counts-repartition"]
    assert state_before(pipeline.nodes[-1], pipeline) is None


def test_a_grouped_table_is_one_query(builder):
    """It remembers its rows, to take them back; what goes away says so itself, in whatever order it comes."""
    builder.table("users").group_by(same).count(Materialized.as_("counts"))
    (pipeline,) = builder.build().pipelines
    assert pipeline.has_query
    assert [node.topic for node in pipeline.shuffles] == ["counts-repartition"]
    assert not pipeline.outputs
    assert state_before(pipeline.nodes[-1], pipeline).name == "KTABLE-SELECT-0000000003"


def test_explain_tells_of_joins(builder):
    """What is joined with what, and how."""
    users = builder.table("users", Materialized.as_("users"))
    joined = (
        builder.stream("in")
        .left_join(users, both, named="a")
        .outer_join(builder.stream("other"), both, FIVE, named="b")
    )
    joined.join(builder.global_table("cities"), same, both, named="c").to("out")
    assert (
        "    joins:    in with table users: all of the left side (a)\n"
        "              a with other: all of both sides; records up to 5 min apart, no grace (b-merge)\n"
        "              b-merge with global table cities: what both sides have (c)\n"
        "    keeps:    store users in RocksDB, its changelog is the topic users itself\n"
        "              store KSTREAM-OUTERTHIS-0000000007-store in the query's state for 0:10:00; "
        "<application.id>-KSTREAM-OUTERTHIS-0000000007-store-changelog stays empty\n"
    ) in builder.build().explain()
