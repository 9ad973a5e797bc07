"""Joins as they are written: the nodes that they make, and what is refused at the line."""

from datetime import timedelta

import pytest
from built import only, refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.join_options import Joined, StreamJoined
from millstream.dsl.kstream import KStream
from millstream.dsl.ktable import KTable
from millstream.dsl.options import Consumed, Grouped, Materialized, Named
from millstream.model import StoreKind
from millstream.serdes.serdes import Serdes
from millstream.topology.nodes import (
    JoinType,
    Repartition,
    StreamGlobalTableJoin,
    StreamJoin,
    StreamTableJoin,
    TableJoin,
)
from millstream.topology.windows import JoinWindows

FIVE = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
MINUTE = timedelta(minutes=1)


def same(value):
    return value


def both(left, right):
    return left


def all_three(key, left, right):
    return key


@pytest.fixture
def stream(builder):
    return builder.stream("in")


# --- with a table ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "type"),
    [("join", JoinType.INNER), ("left_join", JoinType.LEFT)],
    ids=lambda value: str(value),
)
@pytest.mark.parametrize("joiner", [both, all_three])
def test_a_stream_and_a_table(builder, stream, operation, type, joiner):
    """The node has both as parents, the stream first, and what it was given."""
    table = builder.table("users")
    joined = getattr(stream, operation)(table, joiner)
    assert isinstance(joined, KStream)
    node = only(builder, StreamTableJoin)
    assert [parent.name for parent in node.parents] == [
        "KSTREAM-SOURCE-0000000000",
        "KTABLE-SOURCE-0000000003",
    ]
    assert (node.joiner, node.type, node.grace_ms, node.stored, node.stores) == (joiner, type, None, None, ())


def test_a_joined_table_has_a_store(builder, stream):
    """Which is the topic itself, and cannot be queried, as it has no name."""
    table = builder.table("users")
    assert only_store(builder) is None
    stream.join(table.filter(same), both)
    store = only_store(builder)
    assert (store.name, store.queryable, store.source_topic) == (
        "users-STATE-STORE-0000000001",
        False,
        "users",
    )
    assert table.queryable_store_name is None


def only_store(builder):
    return next(node.store for node in builder.build().nodes if node.name == "KTABLE-SOURCE-0000000003")


def test_the_sides_stay_where_they_are_when_a_source_is_read_twice(builder):
    """Kafka Streams drops the second source; the first one takes its place in the join."""
    builder.stream("a").to("out")
    table = builder.table("users")
    builder.stream("a").join(table, both)
    assert [type(parent).__name__ for parent in only(builder, StreamTableJoin).parents] == [
        "Source",
        "TableSource",
    ]
    other = StreamsBuilder()
    other.stream("a").to("out")
    other.stream("a").join(other.stream("b"), both, FIVE)
    node = only(other, StreamJoin)
    assert [parent.topics for parent in node.parents] == [("a",), ("b",)]


def test_serdes_of_a_join_with_a_table(builder):
    """The keys' is known still, the values' no more; those of Joined are for the repartition."""
    typed = Consumed.with_(Serdes.string(), Serdes.long())
    joined = builder.stream("in", typed).join(builder.table("users", typed), both)
    assert (joined._key_serde, joined._value_serde) == (Serdes.string(), None)
    options = Joined.with_(Serdes.long(), Serdes.uuid(), Serdes.string())
    again = builder.stream("in", typed).select_key(same).join(builder.table("more"), both, options)
    assert (again._key_serde, again._value_serde) == (Serdes.long(), None)
    repartition = only(builder, Repartition)
    assert (repartition.key_serde, repartition.value_serde) == (Serdes.long(), Serdes.uuid())
    assert repartition.implicit


def test_after_a_join_keys_are_together(builder, stream):
    """A second join needs no repartition, and one with a global table makes none."""
    users = builder.table("users")
    changed = stream.select_key(same)
    changed.join(users, both).join(users, both).group_by_key().count()
    assert len([node for node in builder.build().nodes if isinstance(node, Repartition)]) == 1
    changed.join(builder.global_table("cities"), same, both).group_by_key().count()
    assert len([node for node in builder.build().nodes if isinstance(node, Repartition)]) == 2


def test_a_grace_period(builder, stream):
    """Records wait in a buffer, which is a store of the join."""
    users = builder.table("users", Materialized.as_("users").with_history(timedelta(hours=1)))
    stream.join(users.filter(same), both, Joined.with_(grace_period=MINUTE))
    node = only(builder, StreamTableJoin)
    assert node.grace_ms == 60_000
    assert (node.stored.name, node.stored.queryable, node.stored.logged) == (
        f"{node.name}-Buffer",
        False,
        True,
    )
    assert node.stores == (node.stored,)


def test_a_grace_period_needs_a_history(builder, stream):
    """Of the table whose store is looked up, and as long."""
    plain = builder.table("plain")
    with refused("KTable must be versioned", "join()", "KTABLE-SOURCE-0000000003", "with_history("):
        stream.join(plain.map_values(same), both, Joined.with_(grace_period=MINUTE))
    both_versioned = builder.table("users", Materialized.as_("users").with_history(timedelta(hours=1))).join(
        builder.table("others", Materialized.as_("others").with_history(timedelta(hours=1))), both
    )
    with refused("KTable must be versioned", "which has no history"):
        stream.join(both_versioned, both, Joined.with_(grace_period=MINUTE))
    short = builder.table("short", Materialized.as_("short").with_history(timedelta(seconds=1)))
    with refused("History retention must be at least grace period", "60000 ms", "1000 ms"):
        stream.left_join(short, both, Joined().with_grace_period(MINUTE))
    stream.join(short, both, Joined().with_grace_period(timedelta(seconds=1)))


# --- with a global table ---------------------------------------------------------------------------------


def test_a_stream_and_a_global_table(builder, stream):
    """Its rows are found by what the selector gives; it keeps its subtopology, without tasks."""
    cities = builder.global_table("cities")
    joined = stream.left_join(cities, same, all_three, named="found")
    assert isinstance(joined, KStream)
    node = only(builder, StreamGlobalTableJoin)
    assert (node.name, node.selector, node.joiner, node.type) == ("found", same, all_three, JoinType.LEFT)
    assert [parent.name for parent in node.parents] == [
        "KSTREAM-SOURCE-0000000000",
        "KTABLE-SOURCE-0000000003",
    ]
    topology = builder.build()
    assert [each.id for each in topology.subtopologies] == [0]
    assert [each.id for each in topology.global_subtopologies] == [1]
    (pipeline,) = topology.pipelines
    names = ["KSTREAM-SOURCE-0000000000", "KTABLE-SOURCE-0000000003", "found"]
    assert [each.name for each in pipeline.nodes] == names  # Spark reads the table's topic for itself
    assert pipeline.stores == ()
    assert [each.name for each in pipeline.inputs] == names[:2]


# --- with a stream ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "type"),
    [("join", JoinType.INNER), ("left_join", JoinType.LEFT), ("outer_join", JoinType.OUTER)],
)
def test_two_streams(builder, stream, operation, type):
    """One store for each side, and one for what waits if there is a result without a match."""
    windows = JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), MINUTE)
    joined = getattr(stream, operation)(builder.stream("other"), both, windows)
    assert isinstance(joined, KStream)
    node = only(builder, StreamJoin)
    assert (node.joiner, node.type, node.windows) == (both, type, windows)
    assert len(node.names) == 4
    assert len(node.stores) == (2 if type is JoinType.INNER else 3)
    assert (node.outer_stored is None) == (type is JoinType.INNER)
    for store in (node.this_stored, node.other_stored):
        assert (store.kind, store.duplicates, store.queryable) == (StoreKind.WINDOW, True, False)
        assert (store.window_size_ms, store.retention_ms) == (600_000, 660_000)


def test_serdes_of_a_join_of_streams(builder):
    """Those of StreamJoined, else what is known of each side."""
    one = builder.stream("one", Consumed.with_(Serdes.string(), Serdes.long()))
    two = builder.stream("two", Consumed.with_(Serdes.string(), Serdes.uuid()))
    joined = one.join(two, both, FIVE)
    assert (joined._key_serde, joined._value_serde) == (Serdes.string(), None)
    node = only(builder, StreamJoin)
    assert (node.this_stored.key_serde, node.this_stored.value_serde) == (Serdes.string(), Serdes.long())
    assert (node.other_stored.key_serde, node.other_stored.value_serde) == (Serdes.string(), Serdes.uuid())
    options = StreamJoined.with_(Serdes.bytes(), Serdes.double(), Serdes.float())
    other = StreamsBuilder()
    other.stream("one").outer_join(other.stream("two"), both, FIVE, options)
    node = only(other, StreamJoin)
    assert (node.this_stored.value_serde, node.other_stored.value_serde) == (Serdes.double(), Serdes.float())
    assert node.other_stored.key_serde == Serdes.bytes()


def test_a_stream_with_itself(builder, stream):
    """It has one parent, which is both sides."""
    stream.join(stream, both, FIVE)
    assert len(only(builder, StreamJoin).parents) == 1


def test_null_keys_reach_left_joins(builder, stream):
    """KIP-962: the repartition before a left join does not drop them, unlike that before an inner join."""

    def repartitions(build):
        made = StreamsBuilder()
        changed = made.stream("in").select_key(same)
        build(made, changed)
        return {node.topic: node.null_keys for node in made.build().nodes if isinstance(node, Repartition)}

    def table(made, changed):
        changed.left_join(made.table("users"), both, named="left")
        changed.join(made.table("more"), both, named="inner")

    def streams(made, changed):
        other = made.stream("other").select_key(same)
        changed.left_join(other, both, FIVE, named="left")
        changed.join(other, both, FIVE, named="inner")

    def far(made, changed):
        changed.repartition(named="far").filter(same).left_join(made.global_table("g"), same, both)

    def the_table_itself(made, changed):
        users = changed.group_by_key(Grouped.as_("users")).count()
        made.stream("clicks").left_join(users, both)

    assert repartitions(table) == {"left-repartition": True, "inner-repartition": False}
    assert repartitions(streams) == {
        "left-left-repartition": True,
        "left-right-repartition": True,
        "inner-left-repartition": False,
        "inner-right-repartition": False,
    }
    assert repartitions(far) == {"far-repartition": True}
    assert repartitions(the_table_itself) == {"users-repartition": False}


# --- of tables -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operation", "type"),
    [("join", JoinType.INNER), ("left_join", JoinType.LEFT), ("outer_join", JoinType.OUTER)],
)
def test_two_tables(builder, operation, type):
    """A table again, with a store if it was given one."""
    one, two = builder.table("one", Consumed.with_(Serdes.string())), builder.table("two")
    joined = getattr(one, operation)(two, all_three, Materialized.as_("both"), named=Named.as_("j"))
    assert isinstance(joined, KTable)
    assert (joined.queryable_store_name, joined._key_serde, joined._value_serde) == (
        "both",
        Serdes.string(),
        None,
    )
    node = only(builder, TableJoin)
    assert (node.name, node.names, node.type) == ("j", ("j-join-this", "j-join-other"), type)
    assert (node.stored.name, node.stored.queryable) == ("both", True)
    assert [parent.store.name for parent in node.parents] == [
        "one-STATE-STORE-0000000000",
        "two-STATE-STORE-0000000003",
    ]


# --- mistakes --------------------------------------------------------------------------------------------

WRONG_JOINERS = ["left", lambda value: value, lambda a, b, c, d: a]


@pytest.mark.parametrize("joiner", WRONG_JOINERS, ids=["text", "one", "four"])
@pytest.mark.parametrize("operation", ["join", "left_join", "outer_join"])
def test_a_joiner_takes_two_or_three(builder, stream, operation, joiner):
    """Both values, or the key and both values."""
    shape = ("`lambda left, right: …`, or `lambda key, left, right: …`", "got")
    with refused(f"{operation}()", *shape):
        getattr(stream, operation)(builder.stream("other"), joiner, FIVE)
    with refused(f"{operation}()", *shape):
        getattr(builder.table("one"), operation)(builder.table("two"), joiner)


@pytest.mark.parametrize("joiner", WRONG_JOINERS, ids=["text", "one", "four"])
@pytest.mark.parametrize("operation", ["join", "left_join"])
def test_a_joiner_with_tables_takes_two_or_three(builder, stream, operation, joiner):
    """The same where the right side is a table."""
    with refused(f"{operation}()", "lambda left, right"):
        getattr(stream, operation)(builder.table("users"), joiner)
    with refused(f"{operation}()", "lambda left, right"):
        getattr(stream, operation)(builder.global_table("cities"), same, joiner)


def test_a_join_needs_something_to_join_with(builder, stream):
    """Of the same builder."""
    with refused("join() takes a KStream, a KTable or a GlobalKTable, got 'users'"):
        stream.join("users", both)
    with refused("join() of a table takes a KTable", "stream.join(table, joiner)"):
        builder.table("a").outer_join(stream, both)
    with refused("outer_join() takes a KStream", "use left_join()"):
        stream.outer_join(builder.table("b"), both, FIVE)
    for right in (
        StreamsBuilder().table("x"),
        StreamsBuilder().stream("x"),
        StreamsBuilder().global_table("x"),
    ):
        arguments = {KTable: (both,), KStream: (both, FIVE)}.get(type(right), (same, both))
        with refused("of another StreamsBuilder; build both with one builder"):
            stream.join(right, *arguments)
    with refused("got a KTable of another StreamsBuilder"):
        builder.table("c").join(StreamsBuilder().table("x"), both)


def test_windows_of_a_join(builder, stream):
    """Two streams need them; with a table there are none."""
    other = builder.stream("other")
    with refused("join() of two streams takes JoinWindows", "timedelta(minutes=5)", "got None"):
        stream.join(other, both)
    with refused("left_join() of two streams takes JoinWindows", "datetime.timedelta"):
        stream.left_join(other, both, timedelta(minutes=5))
    with refused("join() takes a Joined here, got JoinWindows"):
        stream.join(builder.table("users"), both, FIVE)
    with refused("join() takes a StreamJoined here, got Joined"):
        stream.join(other, both, FIVE, Joined.as_("j"))


def test_arguments_that_do_not_fit(builder, stream):
    """What the kind of the right side takes is told."""
    cities = builder.global_table("cities")
    with refused("join() with a GlobalKTable is join(global_table, key_selector, joiner)", "'joiner'"):
        stream.join(cities, both)
    with refused("left_join() with a KTable is left_join(table, joiner, joined=None)", "'windows'"):
        stream.left_join(builder.table("users"), both, windows=FIVE)
    with refused("join() with a KStream is join(stream, joiner, windows, stream_joined=None)", "'joiner'"):
        stream.join(builder.stream("other"))
    with refused("join() of tables is join(table, joiner, materialized=None), or", "'joiner'"):
        builder.table("a").join(builder.table("b"))
    with refused("by a foreign key", "use join() or left_join()"):
        builder.table("c").outer_join(builder.table("d"), both, both)


def test_keys_of_two_types(builder):
    """Serdes say it before Spark does."""
    strings, longs = Consumed.with_(Serdes.string()), Consumed.with_(Serdes.long())
    one, two = builder.stream("one", strings), builder.stream("two", longs)
    table = builder.table("table", longs)
    with refused("join()", repr(Serdes.string()), "left", repr(Serdes.long()), "one key serde"):
        one.join(two, both, FIVE)
    with refused("left_join()", repr(Serdes.string()), repr(Serdes.long())):
        one.left_join(table, both)
    with refused("outer_join()", repr(Serdes.long()), repr(Serdes.string())):
        table.outer_join(builder.table("more", strings), both)
    one.select_key(same).join(table, both)
    one.join(two, both, FIVE, StreamJoined.with_(Serdes.bytes()))
    one.join(builder.global_table("global", longs), same, both)


def test_names_are_checked_before_anything_is_added(builder):
    """A refused join leaves no trace: the program goes on as if it had not been written."""

    def write(mistakes):
        made = StreamsBuilder()
        changed, other = made.stream("in").select_key(same), made.stream("other").select_key(same)
        users = made.table("users")
        users.filter(same, Materialized.as_("s-this-join-store"), named="taken")
        made.table("r").filter(same, named="joined-repartition-sink")
        made.stream("q").filter(same, named="two-right-repartition-source")
        made.table("n").filter(same, named="names-join-other")
        if mistakes:
            with refused("'taken' already exists"):
                changed.join(users, both, named="taken")
            with refused("'joined-repartition-sink' already exists"):
                changed.join(users, both, Joined.as_("joined"))
            with refused("'s-this-join-store' already exists"):
                changed.join(other, both, FIVE, StreamJoined.as_("s"))
            with refused("'two-right-repartition-source' already exists"):
                changed.join(other, both, FIVE, named="two")
            with refused("'names-join-other' already exists"):
                users.join(users, both, named="names")
            with refused("'s-this-join-store' already exists"):
                users.join(users, both, Materialized.as_("s-this-join-store"))
        changed.join(users, both).to("out")
        return str(made.build().describe())

    assert write(mistakes=True) == write(mistakes=False)


# --- options ---------------------------------------------------------------------------------------------


def test_join_windows():
    """Both sides, one side, and what cannot be."""
    windows = JoinWindows.of_time_difference_and_grace(timedelta(minutes=5), MINUTE)
    assert (windows.before_ms, windows.after_ms, windows.grace_ms) == (300_000, 300_000, 60_000)
    assert (windows.size_ms, windows.least_retention_ms) == (600_000, 660_000)
    after = windows.before(timedelta(0)).after(timedelta(seconds=1))
    assert (after.before_ms, after.after_ms, after.grace_ms) == (0, 1000, 60_000)
    assert FIVE.before(timedelta(minutes=-2)).before_ms == -120_000
    assert str(FIVE) == "records up to 5 min apart, no grace"
    assert str(windows.after(MINUTE)) == "records from 5 min before to 1 min after, grace 1 min"


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (
            lambda: FIVE.before(timedelta(minutes=-6)),
            ["(ie, beforeMs+afterMs) must not be negative", "-360000"],
        ),
        (lambda: JoinWindows.of_time_difference_with_no_grace(-MINUTE), ["must not be negative"]),
        (
            lambda: JoinWindows.of_time_difference_and_grace(MINUTE, -MINUTE),
            ["Grace period must not be negative"],
        ),
        (lambda: JoinWindows.of_time_difference_with_no_grace(5), ["join windows is a timedelta", "got 5"]),
        (lambda: FIVE.after("1 minute"), ["the time after of join windows is a timedelta", "'1 minute'"]),
        (lambda: FIVE.before(None), ["the time before of join windows is a timedelta", "None"]),
    ],
)
def test_join_windows_that_cannot_be(make, parts):
    """With Kafka's words."""
    with refused(*parts):
        make()


def test_join_options():
    """What is set is read again; each call makes a copy."""
    joined = Joined.with_(Serdes.string(), Serdes.long(), Serdes.uuid(), "name", MINUTE)
    assert (joined.key_serde, joined.value_serde, joined.other_value_serde) == (
        Serdes.string(),
        Serdes.long(),
        Serdes.uuid(),
    )
    assert (joined.name, joined.grace_period) == ("name", MINUTE)
    assert Joined.as_("name").with_other_value_serde(Serdes.uuid()) == Joined(
        None, None, "name", Serdes.uuid()
    )
    streams = StreamJoined.as_("store").with_name("name").with_other_value_serde(Serdes.uuid())
    assert (streams.store_name, streams.name, streams.other_value_serde) == ("store", "name", Serdes.uuid())
    assert StreamJoined.with_(Serdes.string()).with_store_name("s").store_name == "s"
    off = streams.with_logging_enabled({"a": "b"}).with_logging_disabled()
    assert (off.logging_enabled, off.topic_config) == (False, {})
    with refused("other_value_serde of Joined", "got 'uuid'"):
        Joined.with_(other_value_serde="uuid")
    with refused("Grace period must not be negative"):
        Joined.with_(grace_period=-MINUTE)
    with refused("the grace period of Joined is a timedelta", "got 5"):
        Joined.with_(grace_period=5)
    with refused("store name", "illegal"):
        StreamJoined.as_("a b")
    with refused("text to text", "1"):
        StreamJoined().with_logging_enabled({"retention.ms": 1})
