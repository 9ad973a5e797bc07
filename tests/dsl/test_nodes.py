"""What the DSL's operations put into the nodes: functions, serdes, stores. (Names: see the snapshots.)"""

import re
from datetime import timedelta

import pytest

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.emission import BufferConfig, Suppressed
from millstream.dsl.options import (
    AutoOffsetReset,
    Branched,
    Consumed,
    Grouped,
    Materialized,
    Produced,
    Repartitioned,
    StoreType,
)
from millstream.errors import TopologyException
from millstream.serdes.serdes import Serdes
from millstream.topology import nodes

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def same(value):
    return value


def only(builder, kind):
    (node,) = [node for node in builder.build().nodes if type(node) is kind]
    return node


def test_a_source_has_what_it_was_given(builder):
    """Topics in order and once, serdes, the reset."""
    builder.stream(["b", "a", "b"], STRINGS.with_offset_reset_policy(AutoOffsetReset.latest())).to("out")
    source = only(builder, nodes.Source)
    assert source.topics == ("b", "a")
    assert source.pattern is None
    assert (source.key_serde, source.value_serde) == (Serdes.string(), Serdes.string())
    assert source.offset_reset is nodes.OffsetReset.LATEST


def test_a_pattern_source_has_no_topics(builder):
    """Exactly one of the two is set."""
    builder.stream(re.compile("orders-.*")).to("out")
    source = only(builder, nodes.Source)
    assert (source.topics, source.pattern) == ((), re.compile("orders-.*"))


@pytest.mark.parametrize(
    ("method", "kind", "attribute"),
    [
        ("filter", nodes.Filter, "predicate"),
        ("filter_not", nodes.Filter, "predicate"),
        ("map", nodes.Map, "mapper"),
        ("map_values", nodes.MapValues, "mapper"),
        ("flat_map", nodes.FlatMap, "mapper"),
        ("flat_map_values", nodes.FlatMapValues, "mapper"),
        ("select_key", nodes.SelectKey, "mapper"),
        ("peek", nodes.Peek, "action"),
        ("foreach", nodes.Peek, "action"),
    ],
)
def test_an_operation_is_one_node_with_its_function(builder, method, kind, attribute):
    """One word, from method to node."""
    getattr(builder.stream("in"), method)(same)
    node = only(builder, kind)
    assert getattr(node, attribute) is same
    assert [type(parent) for parent in node.parents] == [nodes.Source]
    assert getattr(node, "negate", False) == (method == "filter_not")
    assert getattr(node, "terminal", False) == (method == "foreach")


@pytest.mark.parametrize(
    ("method", "key", "value"),
    [
        ("filter", True, True),
        ("peek", True, True),
        ("map", False, False),
        ("flat_map", False, False),
        ("map_values", True, False),
        ("flat_map_values", True, False),
        ("select_key", False, True),
    ],
)
def test_a_serde_goes_on_until_its_type_may_have_changed(builder, method, key, value):
    """As in Kafka Streams: a sink takes the stream's serdes, where it still has them."""
    getattr(builder.stream("in", STRINGS), method)(same).to("out")
    sink = only(builder, nodes.Sink)
    assert sink.key_serde == (Serdes.string() if key else None)
    assert sink.value_serde == (Serdes.string() if value else None)


def test_a_sinks_own_serdes_win(builder):
    """Produced over what the stream knows, each for itself."""
    builder.stream("in", STRINGS).to("out", Produced.with_(value_serde=Serdes.bytes()))
    sink = only(builder, nodes.Sink)
    assert (sink.key_serde, sink.value_serde) == (Serdes.string(), Serdes.bytes())


def test_a_sink_writes_to_a_topic_or_where_a_function_says(builder):
    """Exactly one of the two is set."""
    builder.stream("in").to("out", Produced.with_(partitioner=same))
    sink = only(builder, nodes.Sink)
    assert (sink.topic, sink.topic_function, sink.partitioner) == ("out", None, same)
    other = StreamsBuilder()
    other.stream("in").to(same)
    sink = only(other, nodes.Sink)
    assert (sink.topic, sink.topic_function) == (None, same)


def test_merge_has_both_parents_in_order_and_no_serdes(builder):
    """Neither stream's serdes can speak for both."""
    one, other = builder.stream("one", STRINGS), builder.stream("other", STRINGS)
    other.merge(one).to("out")
    assert [parent.topics for parent in only(builder, nodes.Merge).parents] == [("other",), ("one",)]
    assert only(builder, nodes.Sink).key_serde is None


def test_a_split_has_its_predicates_and_numbered_branches(builder):
    """The default branch has the number after the last predicate."""
    first, second = (lambda value: value), (lambda value: value)
    branches = builder.stream("in").split().branch(first).branch(second).default_branch()
    for name, stream in branches.items():
        stream.to(name)
    topology = builder.build()
    (splitter,) = [node for node in topology.nodes if isinstance(node, nodes.Branch)]
    assert splitter.predicates == (first, second)
    through = [node for node in topology.nodes if isinstance(node, nodes.PassThrough)]
    assert [node.index for node in through] == [0, 1, 2]
    assert all(node.parents == (splitter,) for node in through)
    assert list(branches) == [node.name for node in through]


def test_branches_used_up_by_a_function_are_not_in_the_dict(builder):
    """A consumer takes its branch, as does a function that returns None; one with a stream replaces it."""
    seen = []
    branches = (
        builder.stream("in")
        .split(named="s-")
        .branch(same, Branched.with_consumer(seen.append, "taken"))
        .branch(same, Branched.with_function(lambda stream: None, "none"))
        .branch(same, Branched.with_function(lambda stream: stream.filter(same), "kept"))
        .no_default_branch()
    )
    assert list(branches) == ["s-kept"]
    assert len(seen) == 1


def test_repartition_keeps_serdes_and_count(builder):
    """Those given, else the stream's."""
    how = Repartitioned.as_("by-user").with_value_serde(Serdes.long()).with_number_of_partitions(7)
    builder.stream("in", STRINGS).repartition(how).to("out")
    node = only(builder, nodes.Repartition)
    assert (node.topic, node.partitions, node.implicit) == ("by-user-repartition", 7, False)
    assert (node.key_serde, node.value_serde) == (Serdes.string(), Serdes.long())


def test_a_count_is_a_long_in_a_store_keyed_as_the_group(builder):
    """The store's serdes are known without Spark."""
    grouped = builder.stream("in", STRINGS).group_by(same, Grouped.with_(Serdes.uuid()))
    table = grouped.count(Materialized.as_("counts"))
    node = only(builder, nodes.Aggregate)
    assert node.aggregation == nodes.Count()
    assert node.store == nodes.Store("counts", key_serde=Serdes.uuid(), value_serde=Serdes.long())
    assert table.queryable_store_name == "counts"
    assert only(builder, nodes.Repartition).key_serde == Serdes.uuid()
    assert only(builder, nodes.Repartition).value_serde == Serdes.string()


def test_a_store_without_a_name_cannot_be_queried(builder):
    """It has a name all the same: its changelog needs one."""
    table = builder.stream("in").group_by_key().count()
    assert table.queryable_store_name is None
    store = only(builder, nodes.Aggregate).store
    assert store.name == "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    assert not store.queryable


def test_a_store_is_kept_as_asked(builder):
    """In memory, without a changelog, or with configs for it."""
    grouped = builder.stream("in").group_by_key()
    grouped.count(Materialized.as_("memory").with_store_type(StoreType.IN_MEMORY))
    grouped.count(Materialized.as_("unlogged").with_logging_disabled())
    grouped.count(Materialized.as_("configured").with_logging_enabled({"retention.ms": "1"}))
    stores = builder.build().stores
    assert not stores["memory"].persistent
    assert not stores["unlogged"].logged
    assert stores["configured"].topic_config == {"retention.ms": "1"}
    assert stores["configured"].persistent


def test_reduce_is_spark_or_python_by_its_parameters(builder):
    """One parameter: a Column expression; two: a fold without an initializer."""
    grouped = builder.stream("in", STRINGS).group_by_key()
    expression, fold = (lambda value: value), (lambda aggregate, value: value)
    grouped.reduce(expression)
    grouped.reduce(fold)
    first, second = [node for node in builder.build().nodes if isinstance(node, nodes.Aggregate)]
    assert first.aggregation == nodes.ColumnAggregation(expression)
    assert second.aggregation == nodes.Fold(fold)
    assert first.store.value_serde == Serdes.string()


def test_aggregate_is_spark_or_python_by_its_functions(builder):
    """One function: Column expressions; two: an initializer and an adder."""
    grouped = builder.stream("in", STRINGS).group_by_key()
    expression, adder = (lambda key, value: value), (lambda key, value, aggregate: aggregate)
    grouped.aggregate(expression, Materialized.as_("one"))
    grouped.aggregate(dict, adder, materialized=Materialized.as_("two"))
    grouped.aggregate(expression, materialized=Materialized.as_("three"))
    found = [node.aggregation for node in builder.build().nodes if isinstance(node, nodes.Aggregate)]
    assert found == [
        nodes.ColumnAggregation(expression),
        nodes.Fold(adder, dict),
        nodes.ColumnAggregation(expression),
    ]


def test_aggregations_of_a_named_group_share_one_repartition(builder):
    """And those of an unnamed one have one each."""
    shared = builder.stream("in").group_by(same, Grouped.as_("shared"))
    shared.count()
    shared.count()
    apart = builder.stream("other").group_by(same)
    apart.count()
    apart.count()
    topology = builder.build()
    assert sum(isinstance(node, nodes.Repartition) for node in topology.nodes) == 3


def test_a_table_reads_its_topic_as_its_changelog(builder):
    """With a name it has a store, whose changelog is the topic."""
    builder.table("users", STRINGS, Materialized.as_("by-id"))
    store = only(builder, nodes.TableSource).store
    assert (store.name, store.source_topic) == ("by-id", "users")
    assert (store.key_serde, store.value_serde) == (Serdes.string(), Serdes.string())


def test_a_table_without_a_name_has_no_store(builder):
    """Nobody could query it."""
    table = builder.table("users", STRINGS)
    assert only(builder, nodes.TableSource).store is None
    assert table.queryable_store_name is None


def test_a_table_takes_serdes_from_materialized_where_consumed_has_none(builder):
    """One of the two is enough."""
    builder.table("users", Materialized.as_("users").with_key_serde(Serdes.uuid()))
    source = only(builder, nodes.TableSource)
    assert source.key_serde == source.store.key_serde == Serdes.uuid()


@pytest.mark.parametrize(
    ("method", "kind"), [("filter", nodes.TableFilter), ("map_values", nodes.TableMapValues)]
)
def test_a_table_operation_has_a_store_only_under_a_name(builder, method, kind):
    """`Materialized.as_` makes one, `Materialized.with_` does not."""
    table = builder.table("users", STRINGS)
    kept = getattr(table, method)(same, Materialized.as_("kept"))
    bare = getattr(table, method)(same, Materialized.with_(Serdes.string()))
    found = [node.store.name if node.store else None for node in builder.build().nodes if type(node) is kind]
    assert found == ["kept", None]
    assert (kept.queryable_store_name, bare.queryable_store_name) == ("kept", None)


@pytest.mark.parametrize(
    ("before", "behind", "knows"),
    [
        (None, None, False),
        ("store", None, True),
        (None, "group", False),  # the table has a store since then, the filter does not ask it
        (None, "group it", True),
        (None, "left_join", True),
        (None, "join", False),
        (None, "join, group it", True),
        (None, "join, filter", True),
        (None, "suppressed", True),
    ],
)
def test_a_filter_knows_old_values_where_kafka_streams_has_them(builder, before, behind, knows):
    """From a table that has a store by then, or for what needs them: through a join, both sides."""
    table = builder.table("in", STRINGS, *([Materialized.as_("rows")] if before else []))
    filtered = table.filter(same)
    match behind:
        case "group":
            table.group_by(lambda key, value: (key, value)).count()
        case "group it":
            filtered.group_by(lambda key, value: (key, value)).count()
        case "suppressed":
            filtered.suppress(Suppressed.until_time_limit(timedelta(0), BufferConfig.max_records(1)))
        case "left_join":
            filtered.left_join(builder.table("r", STRINGS), lambda left, right: left)
        case str():
            joined = filtered.join(builder.table("r", STRINGS), lambda left, right: left)
            if "group" in behind:
                joined.group_by(lambda key, value: (key, value)).count()
            elif "filter" in behind:
                joined.filter(same).to_stream().to("out")
    found = next(node for node in builder.build().nodes if isinstance(node, nodes.TableFilter))
    assert found.knows_old == knows


def test_to_table_repartitions_only_changed_keys(builder):
    """`select_key` makes it necessary, a repartition before it does not."""
    builder.stream("in").to_table()
    builder.stream("in").repartition().to_table()
    assert [type(node.parents[0]) for node in builder.build().nodes if isinstance(node, nodes.ToTable)] == [
        nodes.Source,
        nodes.Repartition,
    ]
    changed = StreamsBuilder()
    changed.stream("in").select_key(same).filter(same).to_table(Materialized.as_("t"))
    assert isinstance(only(changed, nodes.ToTable).parents[0], nodes.Repartition)
    assert only(changed, nodes.Repartition).implicit


def test_to_stream_with_a_mapper_gives_new_keys(builder):
    """As in Kafka Streams: to_stream, then select_key."""
    builder.table("users").to_stream(same).group_by_key().count()
    assert only(builder, nodes.SelectKey).mapper is same
    assert only(builder, nodes.Repartition).implicit


def test_building_twice_gives_the_same_and_one_may_write_on(builder):
    """build() changes nothing."""
    stream = builder.stream("in")
    stream.to("out")
    builder.stream("in").to("again")
    first = builder.build()
    assert str(builder.build().describe()) == str(first.describe())
    stream.filter(same).to("more")
    assert len(builder.build().nodes) == len(first.nodes) + 2
    assert len(first.nodes) == 3


def test_streams_of_one_topic_share_a_source_and_its_serdes(builder):
    """What the first left open, the second may say."""
    builder.stream("in", Consumed.with_(Serdes.string())).to("a")
    builder.stream("in", Consumed.with_(None, Serdes.long())).to("b")
    source, *sinks = builder.build().nodes
    assert (source.key_serde, source.value_serde) == (Serdes.string(), Serdes.long())
    assert [sink.parents for sink in sinks] == [(source,), (source,)]


def test_a_refused_operation_leaves_no_trace(builder):
    """Names go on as if it had not been tried."""
    stream = builder.stream("in")
    stream.filter(same, named="taken")
    counted = stream.group_by(same, Grouped.as_("g"))
    for wrong in (
        lambda: stream.filter(same, named="taken"),
        lambda: stream.to("no topic"),
        lambda: stream.merge("other"),
        lambda: stream.repartition(Repartitioned.as_("x"), named="a b"),
        lambda: stream.split().branch(same).branch(7),
        lambda: counted.reduce(lambda: None),
        lambda: builder.table("in"),
        lambda: builder.stream(["in", "x"]),
    ):
        with pytest.raises(TopologyException):
            wrong()
    stream.map_values(same)
    names = [node.name for node in builder.build().nodes if isinstance(node, nodes.MapValues)]
    # 0 the source, 1 the filter, 2 the group's key, 3 and 4 the split and its branch, which were no mistake.
    assert names == ["KSTREAM-MAPVALUES-0000000005"]
