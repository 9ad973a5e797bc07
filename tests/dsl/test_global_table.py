"""StreamsBuilder.global_table: what it makes, and what it refuses."""

import re

import pytest
from built import only, refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.globalktable import GlobalKTable
from millstream.dsl.options import AutoOffsetReset, Consumed, Materialized, StoreType
from millstream.serdes.serdes import Serdes
from millstream.topology.nodes import GlobalTable

HERE = "test_global_table.py"
STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def test_its_store_is_filled_from_its_topic(builder):
    """Under the name it was given; there is no changelog."""
    table = builder.global_table("users", STRINGS, Materialized.as_("by-id"))
    assert isinstance(table, GlobalKTable)
    assert table.queryable_store_name == "by-id"
    assert repr(table) == "<GlobalKTable 'by-id'>"
    store = only(builder, GlobalTable).stored
    assert (store.name, store.source_topic, store.logged, store.queryable) == ("by-id", "users", False, True)
    assert (store.key_serde, store.value_serde) == (Serdes.string(), Serdes.string())
    assert store.persistent


@pytest.mark.parametrize("options", [(), (STRINGS,), (Materialized.with_(Serdes.string()),)])
def test_without_a_name_it_can_be_queried_by_a_generated_one(builder, options):
    """As in Kafka Streams 4.3, where a Materialized without a name is an IllegalArgumentException."""
    table = builder.global_table("users", *options)
    assert table.queryable_store_name == "users-STATE-STORE-0000000000"
    assert only(builder, GlobalTable).stored.queryable


def test_it_takes_serdes_from_materialized_where_consumed_has_none(builder):
    """One of the two is enough."""
    builder.global_table(
        "users",
        Consumed.with_(Serdes.string()),
        Materialized.with_(Serdes.uuid(), Serdes.long()),
    )
    store = only(builder, GlobalTable).stored
    assert (store.key_serde, store.value_serde) == (Serdes.string(), Serdes.long())


def test_it_can_be_in_memory(builder):
    """The kind of store is the one asked for."""
    builder.global_table("users", Materialized.as_("users").with_store_type(StoreType.IN_MEMORY))
    assert not only(builder, GlobalTable).stored.persistent


def test_it_is_read_from_the_beginning_whatever_is_asked(builder):
    """The policy is accepted and means nothing, as in Kafka Streams."""
    builder.global_table("users", STRINGS.with_offset_reset_policy(AutoOffsetReset.latest()))
    assert not hasattr(only(builder, GlobalTable), "offset_reset")


@pytest.mark.parametrize("first", ["stream", "table", "pattern"])
def test_a_topic_is_a_global_table_or_a_source_not_both(first):
    """In either order; the message says where the other one is."""

    def source(builder):
        if first == "pattern":
            builder.stream(re.compile("us.*"))
        else:
            getattr(builder, first)("users")

    expected = (
        ["pattern us.*", HERE, "matches topic users"]
        if first == "pattern"
        else ["topic users has already been registered by another source", HERE, "global table"]
    )
    builder = StreamsBuilder()
    source(builder)
    with refused(*expected):
        builder.global_table("users")
    builder = StreamsBuilder()
    builder.global_table("users")
    with refused(*expected):
        source(builder)


def test_two_global_tables_cannot_share_a_topic(builder):
    """One is enough; the message says where it is."""
    builder.global_table("users", Materialized.as_("one"))
    with refused("topic users has already been registered", "a global table at", HERE, "use that one"):
        builder.global_table("users", Materialized.as_("two"))


def test_its_store_has_a_name_of_its_own(builder):
    """Neither a task's store nor another global one may have it."""
    builder.stream("in").group_by_key().count(Materialized.as_("counts"))
    builder.global_table("users", Materialized.as_("users-store"))
    with refused("a store named 'counts' already exists", HERE):
        builder.global_table("a", Materialized.as_("counts"))
    with refused("a store named 'users-store' already exists", HERE):
        builder.global_table("b", Materialized.as_("users-store"))
    with refused("a store named 'users-store' already exists", HERE):
        builder.table("c", Materialized.as_("users-store"))
    with refused("a node named 'people' already exists", HERE):
        builder.global_table("d", STRINGS.with_name("people"))
        builder.global_table("e", STRINGS.with_name("people"))


@pytest.mark.parametrize(
    ("wrong", "parts"),
    [
        (lambda b: b.global_table("no topic"), ['topic name "no topic" is illegal']),
        (lambda b: b.global_table(["a", "b"]), ["a topic name is a str, got ['a', 'b']"]),
        (lambda b: b.global_table("a", "users"), ["global_table()", "Consumed", "'users'"]),
        (lambda b: b.global_table("a", STRINGS, STRINGS), ["global_table()", "Materialized"]),
        (
            lambda b: b.global_table("a", Materialized.as_("a"), Materialized.as_("b")),
            ["global_table() takes one Materialized, got two"],
        ),
    ],
)
def test_what_is_no_option_or_no_topic_is_refused_and_leaves_no_trace(builder, wrong, parts):
    """The names of what comes later are as if it had not been tried."""
    with refused(*parts):
        wrong(builder)
    builder.stream("in").to("out")
    assert [node.name for node in builder.build().nodes] == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-SINK-0000000001",
    ]


def test_an_empty_program_is_told_of_global_tables_too(builder):
    """They are one of the three ways to begin."""
    with refused("reads no topic", "builder.global_table()"):
        builder.build()
