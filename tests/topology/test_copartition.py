"""Topics that a join reads together have the same number of partitions, or are told so."""

import re
from datetime import timedelta

import pytest
from built import refused
from programs import FIVE, both, same

from millstream.dsl.emission import BufferConfig, Suppressed
from millstream.dsl.join_options import StreamJoined
from millstream.dsl.options import Materialized, Repartitioned
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.windows import JoinWindows


def plan(builder, **partitions):
    return plan_internal_topics(
        builder.build(), "app", {key.replace("_", "-"): n for key, n in partitions.items()}
    )


def groups(builder):
    topology = builder.build()
    return [(set(group.topics(())), group.joins) for group in topology.copartition_groups]


def test_what_is_joined_is_a_group(builder):
    """The group has all topics that are read for either side. A topic in two groups unites them."""
    one, two = builder.stream("one"), builder.stream("two")
    merged = one.merge(two)
    merged.join(builder.table("users"), both, named="first")
    builder.table("users-2").join(builder.table("more").filter(same), both, named="second")
    merged.join(builder.stream("late"), both, FIVE, named="third")
    builder.stream("alone").group_by_key().count()
    assert groups(builder) == [
        ({"one", "two", "users", "late"}, ("first", "third-merge")),
        ({"users-2", "more"}, ("second",)),
    ]


def test_a_repartition_is_in_the_group_in_place_of_its_source(builder):
    """A global table is in no group: every client has all of it."""
    changed = builder.stream("in").select_key(same)
    changed.join(builder.table("users"), both, named="joined")
    builder.stream("other").join(builder.global_table("cities"), same, both)
    assert groups(builder) == [({"joined-repartition", "users"}, ("joined",))]


def test_sources_with_other_counts_are_refused(builder):
    """The error has both names and numbers, and the join."""
    builder.stream("clicks").join(builder.table("users"), both, named="by-user")
    with refused("Topics not co-partitioned: clicks has 2, users has 3 partitions; by-user", "repartition()"):
        plan(builder, clicks=2, users=3)
    assert plan(builder, clicks=3, users=3).tasks == {0: 3}


def test_sources_behind_a_suppress_are_looked_at_too(builder):
    """Kafka Streams forgets those."""
    minute = Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.unbounded())
    builder.table("slow").suppress(minute).join(builder.table("users"), both)
    with refused("Topics not co-partitioned: slow has 2, users has 3 partitions"):
        plan(builder, slow=2, users=3)


def test_the_topics_of_a_pattern_count(builder):
    """Those which are there."""
    builder.stream(re.compile("in-.*")).join(builder.table("users"), both)
    assert plan(builder, in_a=2, users=2, other=7).tasks == {0: 2}
    with refused("Topics not co-partitioned: in-a has 2, in-b has 1, users has 2 partitions"):
        plan(builder, in_a=2, in_b=1, users=2)


@pytest.mark.parametrize("users", [1, 5])
def test_a_repartition_topic_takes_the_count_of_the_other_side(builder, users):
    """Be it more or less than what is before it; tasks and changelogs follow."""
    changed = builder.stream("in").select_key(same)
    joined = changed.join(builder.table("users"), both, named="joined")
    joined.group_by_key().count(Materialized.as_("counts"))
    planned = plan(builder, **{"in": 3, "users": users})
    assert planned.partitions["joined-repartition"] == users
    assert planned.partitions["counts-changelog"] == users
    assert planned.tasks == {0: 3, 1: users}


def test_two_repartition_topics_take_the_larger_count(builder):
    """No other topic determines it."""
    one, two = builder.stream("one").select_key(same), builder.stream("two").select_key(same)
    one.join(two, both, FIVE, named="joined")
    planned = plan(builder, one=2, two=4)
    assert planned.partitions["joined-left-repartition"] == 4
    assert planned.partitions["joined-right-repartition"] == 4


def test_a_count_that_was_asked_for_is_the_others_too(builder):
    """repartition() with a number says it for both."""
    one = builder.stream("one").repartition(Repartitioned.as_("r").with_number_of_partitions(3))
    one.join(builder.stream("two").select_key(same), both, FIVE, named="joined")
    planned = plan(builder, one=2, two=4)
    assert planned.partitions["r-repartition"] == 3
    assert planned.partitions["joined-right-repartition"] == 3


def test_a_count_that_was_asked_for_has_to_be_the_sources(builder):
    """There is nothing that could be made to fit."""
    one = builder.stream("one").repartition(Repartitioned.as_("r").with_number_of_partitions(3))
    one.join(builder.table("users"), both, named="joined")
    with refused(
        "Number of partitions [3] of repartition topic [r-repartition]", "[4]", "joined", "users has 4"
    ):
        plan(builder, one=2, users=4)
    assert plan(builder, one=2, users=3).partitions["r-repartition"] == 3


def test_two_counts_that_were_asked_for_have_to_be_the_same(builder):
    """It is known without any topic, so it is told by build()."""
    one = builder.stream("one").repartition(Repartitioned.as_("a").with_number_of_partitions(3))
    two = builder.stream("two").repartition(Repartitioned.as_("b").with_number_of_partitions(4))
    one.join(two, both, FIVE, named="joined")
    with refused(
        "do not have the same number of partitions: a-repartition has 3, b-repartition has 4", "joined"
    ):
        builder.build()


def test_two_of_three_counts_that_were_asked_for_differ(builder):
    """The third has none, so build() leaves it, as upstream; the plan does not."""
    one = builder.stream("one").repartition(Repartitioned.as_("a").with_number_of_partitions(3))
    two = builder.stream("two").repartition(Repartitioned.as_("b").with_number_of_partitions(4))
    one.merge(two).join(builder.stream("three").select_key(same), both, FIVE)
    with refused("do not have the same number of partitions: a-repartition has 3, b-repartition has 4"):
        plan(builder, one=1, two=1, three=1)


def changelogs(planned):
    return {topic.name.removeprefix("app-").removesuffix("-changelog"): topic for topic in planned.topics}


def test_changelogs_of_a_join_of_streams(builder):
    """What has the records of a side is deleted by time and never compacted; what waits is compacted."""
    windows = JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), timedelta(minutes=1))
    joined = StreamJoined.as_("s").with_logging_enabled(
        {"min.insync.replicas": "2", "cleanup.policy": "compact"}
    )
    builder.stream("one").left_join(builder.stream("two"), both, windows, joined)
    topics = changelogs(plan(builder, one=2, two=2))
    assert set(topics) == {
        "s-this-join-store",
        "s-outer-other-join-store",
        "s-left-shared-join-store",
    }
    for name in ("s-this-join-store", "s-outer-other-join-store"):
        configs = topics[name].configs
        assert configs["cleanup.policy"] == "delete"
        assert configs["retention.ms"] == str(660_000 + 86_400_000)
        assert configs["min.insync.replicas"] == "2"
    assert "retention.ms" not in topics["s-left-shared-join-store"].configs
    assert topics["s-left-shared-join-store"].configs["cleanup.policy"] == "compact"


def test_without_logging_a_join_of_streams_has_no_changelogs(builder):
    """Neither its sides nor its waiting records have one."""
    one = builder.stream("one")
    one.outer_join(builder.stream("two"), both, FIVE, StreamJoined.as_("s").with_logging_disabled())
    planned = plan(builder, one=2, two=2)
    assert planned.topics == ()
    assert len(planned.stores) == 3


def test_joined_tables_are_in_one_subtopology(builder):
    """A task has the rows of both, and stores are where they are looked up."""
    builder.table("a").join(builder.table("b"), both, Materialized.as_("joined"))
    topology = builder.build()
    (subtopology,) = topology.subtopologies
    assert [store.name for store in subtopology.stores] == [
        "a-STATE-STORE-0000000000",
        "b-STATE-STORE-0000000003",
        "joined",
    ]
    assert list(topology.stores) == [store.name for store in subtopology.stores]
