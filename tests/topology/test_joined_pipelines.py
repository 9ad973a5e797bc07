"""Joins and grouped tables in the physical plan: one query has both sides."""

import pytest
from programs import FIVE, both, same

from millstream.dsl.options import Materialized


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
        "              store KSTREAM-OUTERTHIS-0000000007-store for 0:10:00, which cannot be queried, "
        "changelog <application.id>-KSTREAM-OUTERTHIS-0000000007-store-changelog\n"
    ) in builder.build().explain()
