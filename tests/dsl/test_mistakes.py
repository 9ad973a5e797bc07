"""Mistakes that can be seen without Spark are refused at their line, with what to do instead."""

import re

import pytest
from built import refused

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import (
    AutoOffsetReset,
    Branched,
    Consumed,
    Grouped,
    Materialized,
    Named,
    Produced,
)
from millstream.errors import TopologyException
from millstream.serdes.serdes import Serdes

HERE = "test_mistakes.py"


def same(value):
    return value


@pytest.fixture
def stream(builder):
    return builder.stream("in")


OPERATIONS = [
    "filter",
    "filter_not",
    "map",
    "map_values",
    "flat_map",
    "flat_map_values",
    "select_key",
    "peek",
    "foreach",
    "group_by",
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_what_is_no_function_is_refused(stream, operation):
    """A value, or a Column made outside, in place of a function."""
    with refused(f"{operation}()", "takes a function", "'amount'"):
        getattr(stream, operation)("amount")


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_function_of_the_wrong_arity_is_refused_with_its_line(stream, operation):
    """One, two or three parameters."""
    for wrong in (lambda: 1, lambda a, b, c, d: 1, lambda *, key: 1):
        line = f"{HERE}:{wrong.__code__.co_firstlineno} <lambda>"
        with refused(f"{operation}()", line, "lambda key, value"):
            getattr(stream, operation)(wrong)


@pytest.mark.parametrize(
    "right",
    [
        lambda value: value,
        lambda key, value: value,
        lambda key, value, record: value,
        lambda value, i=7: value,
        lambda *both: both,
        str.upper,
        max,
    ],
)
def test_functions_of_one_two_or_three_parameters_are_taken(stream, right):
    """Defaults do not count, so that loops can bind their variables."""
    stream.map_values(right)


@pytest.mark.parametrize("operation", ["filter", "filter_not", "map_values"])
def test_tables_check_functions_too(builder, operation):
    """The same rule."""
    with refused(f"{operation}()", HERE):
        getattr(builder.table("t"), operation)(lambda: 1)


@pytest.mark.parametrize("topics", [[], (), set()])
def test_no_topics_are_refused(builder, topics):
    """stream([]) reads nothing."""
    with refused("at least one topic"):
        builder.stream(topics)


@pytest.mark.parametrize("topic", ["", "no spaces", "a/b", ".", "x" * 250])
def test_topics_that_cannot_be_are_refused(builder, stream, topic):
    """Kafka would refuse them later."""
    for wrong in (builder.stream, builder.table, stream.to):
        with refused("topic name"):
            wrong(topic)


@pytest.mark.parametrize("topics", [7, None, [7], re.compile(b"x")])
def test_what_is_no_topic_is_refused(builder, topics):
    """Neither text, nor texts, nor a pattern of text."""
    with pytest.raises(TopologyException):
        builder.stream(topics)


def test_the_same_store_name_twice_is_refused_and_says_where(builder, stream):
    """The message has the line of the first one."""
    grouped = stream.group_by_key()
    grouped.count(Materialized.as_("counts"))
    with refused("store named 'counts'", HERE, HERE, "another name"):
        grouped.reduce(same, Materialized.as_("counts"))
    with refused("store named 'counts'"):
        builder.table("t", Materialized.as_("counts"))


def test_the_same_node_name_twice_is_refused_and_says_where(builder, stream):
    """Also where one of them is a name that Kafka Streams derives."""
    stream.filter(same, named="a")
    with refused("node named 'a'", HERE, HERE, "another name"):
        stream.map_values(same, named=Named.as_("a"))
    stream.repartition(named="r")
    with refused("node named 'r-repartition-sink'"):
        stream.map_values(same, named="r-repartition-sink")
    with refused("node named 'r-repartition-filter'"):
        stream.repartition(named="r")
    with refused("node named 'KSTREAM-SOURCE-0000000000'"):
        stream.to("out", named="KSTREAM-SOURCE-0000000000")
    builder.table("t", Consumed.as_("t"))
    with refused("node named 't-source'"):
        stream.peek(same, named="t-source")


def test_a_group_name_that_would_need_one_topic_twice_is_refused(stream):
    """Two groups of one name are two repartitions of one name."""
    changed = stream.select_key(same)
    changed.group_by_key(Grouped.as_("g")).count()
    with refused("node named 'g-repartition-filter'"):
        changed.group_by_key(Grouped.as_("g")).count()


def test_a_split_without_branches_is_refused(builder, stream):
    """At no_default_branch(), or when building."""
    split = stream.split()
    with refused("KSTREAM-BRANCH-0000000001", HERE, "without branches"):
        split.no_default_branch()
    with refused("KSTREAM-BRANCH-0000000001", HERE, "without branches"):
        builder.build()


def test_a_split_that_has_ended_takes_no_more_branches(stream):
    """They would come after the default."""
    split = stream.split().branch(same)
    split.default_branch()
    with refused("has ended"):
        split.branch(same)
    with refused("has ended"):
        split.default_branch()


def test_a_branch_function_must_return_a_stream(stream):
    """Or None."""
    with refused("KSTREAM-BRANCH-00000000011", HERE, "returned a str"):
        stream.split().branch(same, Branched.with_function(lambda stream: "no stream"))


def test_streams_of_two_builders_do_not_merge(stream):
    """They would be two programs."""
    with refused("another StreamsBuilder"):
        stream.merge(StreamsBuilder().stream("in"))
    with refused("takes a KStream", "'in'"):
        stream.merge("in")


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda s: s.to("out", Consumed.as_("x")), "Produced"),
        (lambda s: s.to("out", "name"), "Produced"),
        (lambda s: s.group_by(same, Materialized.as_("x")), "Grouped"),
        (lambda s: s.group_by_key(Materialized.as_("x")), "Grouped"),
        (lambda s: s.group_by_key().count("counts"), "Materialized"),
        (lambda s: s.group_by_key().count(Named.as_("x")), "Materialized"),
        (lambda s: s.repartition(3), "Repartitioned"),
        (lambda s: s.to_table("t"), "Materialized"),
        (lambda s: s.split().branch(same, same), "Branched"),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_by_name(stream, call, kind):
    """The message names the option that belongs there."""
    with refused(f"takes a {kind}"):
        call(stream)


def test_sources_check_their_options(builder):
    """Consumed, then Materialized."""
    with refused("stream() takes a Consumed"):
        builder.stream("in", Produced.as_("x"))
    with refused("table() takes a Consumed"):
        builder.table("in", Grouped.as_("x"))
    with refused("one Materialized, got two"):
        builder.table("in", Materialized.as_("a"), Materialized.as_("b"))


def test_a_name_is_a_str_or_a_named(stream):
    """Nothing else."""
    with refused("named= takes a str or a Named", "7"):
        stream.filter(same, named=7)
    with refused("two words"):
        stream.filter(same, named="two words")


def test_aggregate_checks_both_functions(stream):
    """The initializer takes nothing; the adder key, value and aggregate."""
    grouped = stream.group_by_key()
    with refused("initializer", HERE):
        grouped.aggregate(lambda key, value: 0, lambda key, value, aggregate: aggregate)
    with refused("adder", HERE):
        grouped.aggregate(lambda: 0, lambda value, aggregate: aggregate)
    with refused("takes an expression", "'x'"):
        grouped.aggregate(lambda: 0, lambda key, value, aggregate: aggregate, Materialized.as_("s"), "x")
    with refused("aggregate()", HERE):
        grouped.aggregate(lambda: 0)


@pytest.mark.parametrize("wrong", [lambda: 0, lambda a, b, c: a, "sum"])
def test_reduce_takes_one_or_two_parameters(stream, wrong):
    """A Column expression or a Python function."""
    with refused("reduce() takes", "F.max(value)", "aggregate, value"):
        stream.group_by_key().reduce(wrong)


def test_a_topic_has_one_source(builder):
    """A stream and a table of one topic, or two tables, are refused; two streams are one source."""
    builder.stream("in").to("a")
    builder.stream("in").to("b")
    with refused("topic in has already been registered", HERE):
        builder.table("in")
    builder.table("t")
    with refused("topic t has already been registered", HERE):
        builder.table("t")
    with refused("topic t has already been registered", HERE):
        builder.stream("t")


def test_overlapping_topics_are_refused(builder):
    """As Kafka Streams does: equal or apart."""
    builder.stream(["a", "b"])
    with refused("overlapping but not equal", "b at", HERE):
        builder.stream(["b", "c"])


def test_a_pattern_must_not_match_what_is_read_already(builder):
    """In whichever order they come, and neither the topic of a repartition."""
    builder.stream("orders-eu")
    with refused("pattern orders-.*", "orders-eu"):
        builder.stream(re.compile("orders-.*"))
    builder.stream(re.compile(".*-repartition"))
    with refused("pattern .*-repartition", "x-repartition"):
        builder.table("x-repartition")
    with refused("pattern .*-repartition", "r-repartition"):
        builder.stream("orders-eu").repartition(named="r")


def test_twins_must_agree(builder):
    """One source has one reset and one pair of serdes."""
    builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    with refused("different offset reset policies", "in is read at", HERE):
        builder.stream("in", Consumed.with_(offset_reset_policy=AutoOffsetReset.earliest()))
    with refused("value serde Serdes.string()", "Serdes.long()"):
        builder.stream("in", Consumed.with_(Serdes.string(), Serdes.long()))


def test_an_empty_program_is_refused(builder):
    """There is nothing to run."""
    with refused("reads no topic"):
        builder.build()
