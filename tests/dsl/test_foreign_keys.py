"""KTable.join by a foreign key: the nodes it makes, and what it refuses."""

import pytest
from built import only, refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.join_options import TableJoined
from millstream.dsl.ktable import KTable
from millstream.dsl.options import Consumed, Materialized
from millstream.serdes.serdes import Serdes
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.names import is_internal_topic
from millstream.topology.nodes import (
    ForeignKeyChanges,
    ForeignKeyJoin,
    ForeignKeyLookup,
    ForeignKeySubscribe,
    JoinType,
    Repartition,
)
from millstream.topology.pipeline import writers_first


def same(value):
    return value


def both(left, right):
    return left


@pytest.fixture
def orders(builder):
    return builder.table("orders", Consumed.with_(Serdes.string()))


@pytest.fixture
def users(builder):
    return builder.table("users", Consumed.with_(Serdes.long()))


@pytest.mark.parametrize(("operation", "type"), [("join", JoinType.INNER), ("left_join", JoinType.LEFT)])
def test_there_and_back(builder, orders, users, operation, type):
    """By the foreign key to the right table, and by the left table's key to where it came from."""
    joined = getattr(orders, operation)(users, same, both, TableJoined.as_("j"), Materialized.as_("found"))
    assert isinstance(joined, KTable)
    assert (joined.queryable_store_name, joined._key_serde) == ("found", Serdes.string())
    subscribe, lookup = only(builder, ForeignKeySubscribe), only(builder, ForeignKeyLookup)
    changes, result = only(builder, ForeignKeyChanges), only(builder, ForeignKeyJoin)
    assert (subscribe.extractor, result.joiner, subscribe.type, result.type) == (same, both, type, type)
    assert changes.subscriptions == lookup.stored
    assert (lookup.stored.queryable, lookup.stored.name) == (False, "j-subscription-store")
    there, back = [node for node in builder.build().nodes if isinstance(node, Repartition)]
    assert (there.key_serde, back.key_serde) == (Serdes.long(), Serdes.string())
    assert [parent.name for parent in there.parents] == [subscribe.name]
    assert [parent.name for parent in lookup.parents] == [there.name, changes.parents[0].name]
    assert [parent.name for parent in back.parents] == [lookup.name, changes.name]
    assert [parent.name for parent in result.parents] == [back.name, subscribe.parents[0].name]


def test_both_topics_are_real_and_fit_to_the_tables(builder, orders, users):
    """Which need not have the same number of partitions."""
    orders.join(users, same, both, named="j")
    topology = builder.build()
    planned = plan_internal_topics(topology, "app", {"orders": 2, "users": 5})
    topics = {topic.name: topic.partitions for topic in planned.topics}
    assert topics == {
        "app-j-subscription-registration-topic": 5,
        "app-j-subscription-response-topic": 2,
        "app-j-subscription-store-changelog": 5,
    }


def test_the_right_side_is_compiled_first(builder, orders, users):
    """It settles how foreign keys and its values are written, which the left side has to know."""
    orders.left_join(users, same, both, named="j")
    topology = builder.build()
    left, right = topology.pipelines
    assert writers_first([left, right]) == [right, left]
    assert writers_first([right, left]) == [right, left]
    told = topology.explain()
    assert "table orders with table users by a foreign key: all of the left side (j-result)" in told
    assert "store j-subscription-store, which cannot be queried, changelog " in told


def test_keywords(builder, orders, users):
    """The names of the parameters are told apart."""
    orders.join(users, same, joiner=both, materialized=Materialized.as_("one"))
    orders.join(users, foreign_key_extractor=same, joiner=both)
    orders.join(users, same, both, Materialized.as_("two"))
    assert len([node for node in builder.build().nodes if isinstance(node, ForeignKeyJoin)]) == 3
    assert {"one", "two"} <= set(builder.build().stores)


def test_mistakes(builder, orders, users):
    """Each is told with what to write."""
    with refused("by a foreign key takes a KTable"):
        orders.join(builder.stream("s"), same, both)
    with refused("the joiner of join()", "lambda left, right"):
        orders.join(users, same, same)
    with refused("join() takes a function", "'user'"):
        orders.join(users, "user", both)
    with refused("the foreign key extractor of join()", "`lambda key, value: …`"):
        orders.join(users, lambda key, value, record: value, both)
    with refused("join() of tables is", "missing a required argument: 'foreign_key_extractor'"):
        orders.join(users, joiner=both, table_joined=TableJoined.as_("j"))
    with refused("join() takes a TableJoined here"):
        orders.join(users, same, both, "j")
    with refused("got a KTable of another StreamsBuilder"):
        orders.join(StreamsBuilder().table("x"), same, both)
    assert not [node for node in builder.build().nodes if isinstance(node, ForeignKeyJoin)]


def test_names_are_checked_before_anything_is_added():
    """A refused join leaves no trace."""

    def write(mistakes):
        made = StreamsBuilder()
        orders, users = made.table("orders"), made.table("users", Materialized.as_("s-subscription-store"))
        users.filter(same, named="n-result")
        if mistakes:
            with refused("'n-result' already exists"):
                orders.join(users, same, both, named="n")
            with refused("'s-subscription-store' already exists"):
                orders.join(users, same, both, TableJoined.as_("s"))
            with refused("'s-subscription-store' already exists"):
                orders.join(users, same, both, Materialized.as_("s-subscription-store"))
        orders.join(users, same, both)
        return str(made.build().describe())

    assert write(mistakes=True) == write(mistakes=False)


def test_its_topics_are_the_applications_own():
    """With names and without."""
    for topic in (
        "app-j-subscription-registration-topic",
        "app-j-subscription-response-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000005-topic",
        "app-KTABLE-FK-JOIN-SUBSCRIPTION-RESPONSE-0000000013-topic",
    ):
        assert is_internal_topic("app", topic)
    assert not is_internal_topic("app", "app-j-topic")
    assert not is_internal_topic("app", "other-j-subscription-response-topic")
