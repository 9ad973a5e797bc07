"""KGroupedStream.cogroup: what it makes, and what it refuses."""

from datetime import timedelta

import pytest
from built import only, refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.cogrouped import (
    CogroupedKStream,
    SessionWindowedCogroupedKStream,
    TimeWindowedCogroupedKStream,
)
from millstream.dsl.emission import BufferConfig, Suppressed
from millstream.dsl.options import Grouped, Materialized
from millstream.model import StoreKind
from millstream.serdes.serdes import Serdes
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.nodes import Cogroup, Repartition
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, windowed_serde

FIVE = TimeWindows.of_size_and_grace(timedelta(minutes=5), timedelta(minutes=1))


def same(value):
    return value


def add(key, value, aggregate):
    return aggregate


def subtract(key, value, aggregate):
    return aggregate


def zero():
    return 0


@pytest.fixture
def one(builder):
    return builder.stream("one").group_by_key(Grouped.with_(Serdes.string()))


@pytest.fixture
def two(builder):
    return builder.stream("two").group_by_key()


def test_each_stream_has_its_function(builder, one, two):
    """In the order in which they were written; they share a store."""
    cogrouped = one.cogroup(add).cogroup(two, subtract)
    assert isinstance(cogrouped, CogroupedKStream)
    table = cogrouped.aggregate(zero, Materialized.as_("totals"))
    assert (table.queryable_store_name, table._key_serde, table._value_serde) == (
        "totals",
        Serdes.string(),
        None,
    )
    node = only(builder, Cogroup)
    assert [parent.topics for parent in node.parents] == [("one",), ("two",)]
    assert (node.adders, node.initializer, node.merger, node.windows) == ((add, subtract), zero, None, None)
    assert [store.name for store in node.stores] == ["totals"]
    assert len(node.names) == 2


def test_two_groups_of_one_stream(builder):
    """It is there twice, also if it is one only because both read one topic."""
    one, again = builder.stream("one").group_by_key(), builder.stream("one").group_by_key()
    one.cogroup(add).cogroup(again, subtract).aggregate(zero)
    node = only(builder, Cogroup)
    assert [parent.name for parent in node.parents] == ["KSTREAM-SOURCE-0000000000"] * 2
    assert node.adders == (add, subtract)
    other = StreamsBuilder()
    stream = other.stream("one")
    stream.group_by_key().cogroup(add).cogroup(stream.group_by_key(), subtract).aggregate(zero)
    assert len(only(other, Cogroup).parents) == 2


def test_a_group_that_comes_again_gets_another_function(builder, one):
    """As in Kafka Streams."""
    one.cogroup(add).cogroup(one, subtract).aggregate(zero)
    assert only(builder, Cogroup).adders == (subtract,)


def test_cogroup_makes_another_object(builder, one, two):
    """What was there stays as it is."""
    first = one.cogroup(add)
    first.cogroup(two, add)
    first.aggregate(zero)
    assert len(only(builder, Cogroup).parents) == 1


def test_it_is_read_together(builder, one, two):
    """All topics need the same number of partitions, and are in one query."""
    one.cogroup(add).cogroup(two, add).aggregate(zero)
    topology = builder.build()
    assert len(topology.pipelines) == 1
    assert [store.name for store in topology.pipelines[0].stores] == list(topology.stores)
    with refused("Topics not co-partitioned: one has 2, two has 3 partitions", "COGROUPKSTREAM-MERGE-"):
        plan_internal_topics(topology, "app", {"one": 2, "two": 3})


@pytest.mark.parametrize(
    ("windows", "kind"),
    [
        (FIVE, StoreKind.WINDOW),
        (SlidingWindows(5, 0), StoreKind.WINDOW),
        (SessionWindows(5, 0), StoreKind.SESSION),
    ],
)
def test_windows(builder, one, two, windows, kind):
    """The keys are windowed, the store is one of windows, and suppress() knows when they close."""
    windowed = one.cogroup(add).cogroup(two, add).windowed_by(windows)
    sessions = kind is StoreKind.SESSION
    assert isinstance(windowed, SessionWindowedCogroupedKStream if sessions else TimeWindowedCogroupedKStream)
    table = windowed.aggregate(zero, add) if sessions else windowed.aggregate(zero)
    assert table._key_serde == windowed_serde(windows, Serdes.string())
    table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    node = only(builder, Cogroup)
    assert (node.windows, node.merger) == (windows, add if sessions else None)
    assert (node.stored.kind, node.stored.retention_ms) == (kind, windows.least_retention_ms)
    assert f"windows:  {windows} ({node.name})" in builder.build().explain()


@pytest.mark.parametrize(
    ("build", "parts"),
    [
        (
            lambda one, two: one.cogroup("sum"),
            ["the aggregator of cogroup()", "key, value and aggregate", "'sum'"],
        ),
        (lambda one, two: one.cogroup(same), ["the aggregator of cogroup()", "same"]),
        (lambda one, two: one.cogroup(add).cogroup(two, None), ["the aggregator of cogroup()", "got None"]),
        (lambda one, two: one.cogroup(add).cogroup(add, add), ["cogroup() takes a KGroupedStream"]),
        (
            lambda one, two: one.cogroup(add).aggregate(0),
            ["the initializer of aggregate()", "`lambda: 0`", "got 0"],
        ),
        (
            lambda one, two: one.cogroup(add).aggregate(zero, "totals"),
            ["aggregate() takes a Materialized", "named="],
        ),
        (lambda one, two: one.cogroup(add).windowed_by(5), ["windowed_by() takes TimeWindows", "got 5"]),
        (
            lambda one, two: one.cogroup(add).windowed_by(SessionWindows(5, 0)).aggregate(zero),
            ["needs a merger", "lambda key, one, other", "got None"],
        ),
        (
            lambda one, two: one.cogroup(add).cogroup(StreamsBuilder().stream("x").group_by_key(), add),
            ["cogroup() got a KGroupedStream of another StreamsBuilder"],
        ),
    ],
)
def test_mistakes(builder, one, two, build, parts):
    """Each is told with what to write."""
    with refused(*parts):
        build(one, two)
    assert not [node for node in builder.build().nodes if isinstance(node, Cogroup)]


def test_keys_of_two_types(builder, one):
    """Serdes say it before Spark does."""
    longs = builder.stream("longs").group_by_key(Grouped.with_(Serdes.long()))
    with refused("cogroup()", repr(Serdes.string()), repr(Serdes.long())):
        one.cogroup(add).cogroup(longs, add)


def test_two_groups_without_a_name_cannot_both_be_repartitioned(builder):
    """Their topics would have one name: in Kafka Streams it fails when it is built."""
    one, two = builder.stream("one").group_by(same), builder.stream("two").group_by(same)
    with refused("repartitions two of them", "Grouped.as_('by-user')"):
        one.cogroup(add).cogroup(two, add).aggregate(zero, Materialized.as_("totals"))
    named = builder.stream("three").group_by(same, Grouped.as_("by-three"))
    one.cogroup(add).cogroup(named, add).aggregate(zero, Materialized.as_("totals"))
    topics = [node.topic for node in builder.build().nodes if isinstance(node, Repartition)]
    assert sorted(topics) == ["by-three-repartition", "totals-repartition"]


def test_names_are_checked_before_anything_is_added():
    """A refused aggregation leaves no trace."""

    def write(mistakes):
        made = StreamsBuilder()
        grouped = made.stream("one").group_by(same)
        made.table("t").filter(same, Materialized.as_("kept"), named="n-cogroup-merge")
        made.stream("x").filter(same, named="topic-repartition-filter")
        if mistakes:
            with refused("'n-cogroup-merge' already exists"):
                grouped.cogroup(add).aggregate(zero, named="n")
            with refused("'kept' already exists"):
                grouped.cogroup(add).aggregate(zero, Materialized.as_("kept"))
            with refused("'topic-repartition-filter' already exists"):
                grouped.cogroup(add).aggregate(zero, Materialized.as_("topic"))
        grouped.cogroup(add).aggregate(zero)
        return str(made.build().describe())

    assert write(mistakes=True) == write(mistakes=False)
