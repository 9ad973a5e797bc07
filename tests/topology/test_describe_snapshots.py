"""`describe()` prints what Kafka Streams 4.3.1 prints for the same program, byte for byte.

The texts in tests/snapshots/describe were written by DescribeAll.java there; programs have the same names.
"""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.emission import BufferConfig, EmitStrategy, Suppressed
from millstream.dsl.join_options import Joined, StreamJoined, TableJoined
from millstream.dsl.options import (
    Branched,
    Consumed,
    Grouped,
    Materialized,
    Named,
    Produced,
    Repartitioned,
)
from millstream.dsl.printed import Printed
from millstream.dsl.store_suppliers import Stores
from millstream.processors.api import FixedKeyProcessor, Processor, ValueTransformerWithKey
from millstream.serdes.serdes import Serdes
from millstream.topology.topology import Topology
from millstream.topology.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows

SNAPSHOTS = Path(__file__).parent.parent / "snapshots" / "describe"
PROGRAMS: dict[str, Callable[[StreamsBuilder], object]] = {}
TOPOLOGIES: dict[str, Callable[[Topology], object]] = {}


def program(function: Callable[[StreamsBuilder], object]) -> Callable[[StreamsBuilder], object]:
    PROGRAMS[function.__name__] = function
    return function


def topology(function: Callable[[Topology], object]) -> Callable[[Topology], object]:
    TOPOLOGIES[function.__name__] = function
    return function


class ByWord:
    def __call__(self, key, value):
        return value

    def __str__(self):
        return "by word"


def same(value):
    return value


def fold(key, value, aggregate):
    return aggregate


def last(aggregate, value):
    return value


class Nothing(Processor):
    def process(self, record):
        pass


class Values(FixedKeyProcessor):
    def process(self, record):
        pass


class Same(ValueTransformerWithKey):
    def transform(self, key, value):
        return value


def store(name):
    return Stores.key_value_store_builder(
        Stores.persistent_key_value_store(name), Serdes.string(), Serdes.string()
    )


class Bringing:
    """A supplier that brings stores with it."""

    def __init__(self, *names):
        self.names = names

    def get(self):
        return Nothing()

    def stores(self):
        return [store(name) for name in self.names]


UNNAMED = Materialized.with_(Serdes.string(), Serdes.string())
LONGS = Materialized.with_(Serdes.string(), Serdes.long())


@program
def word_count(b):
    (
        b.stream("lines")
        .flat_map_values(same)
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts"))
        .to_stream()
        .to("word-counts", Produced.with_(Serdes.string(), Serdes.long()))
    )


@program
def word_count_unnamed(b):
    b.stream("lines").flat_map_values(same).group_by(same).count().to_stream().to("word-counts")


@program
def word_count_all_named(b):
    (
        b.stream("lines", Consumed.as_("read"))
        .flat_map_values(same, named="words")
        .group_by(same, Grouped.as_("by-word"))
        .count(Materialized.as_("counts"), named="count")
        .to_stream(named=Named.as_("changes"))
        .to("word-counts", Produced.as_("write"))
    )


@program
def stateless_all(b):
    (
        b.stream("in")
        .filter(same)
        .filter_not(same)
        .map(same)
        .map_values(same)
        .map_values(lambda key, value: value)
        .flat_map(same)
        .flat_map_values(same)
        .select_key(same)
        .peek(same)
        .foreach(same)
    )


@program
def stateless_all_named(b):
    (
        b.stream("in", Consumed.as_("source"))
        .filter(same, named="filter")
        .filter_not(same, named="filter-not")
        .map(same, named="map")
        .map_values(same, named="map-values")
        .flat_map(same, named="flat-map")
        .flat_map_values(same, named="flat-map-values")
        .select_key(same, named="select-key")
        .peek(same, named="peek")
        .foreach(same, named="foreach")
    )
    b.stream("other").to("out")


@program
def printed(b):
    stream = b.stream("in")
    stream.print(Printed.to_sys_out())
    stream.map_values(same).print(Printed.to_sys_out().with_label("label").with_name("printer"))
    stream.filter(same).to("out")


@program
def several_sinks(b):
    stream = b.stream("in")
    stream.to("a")
    stream.filter(same).to("b", Produced.as_("to-b"))
    stream.map_values(same).map_values(same).to("c")
    stream.to("d")


@program
def topics_by_function(b):
    b.stream("in").to(ByWord())


@program
def several_topics(b):
    b.stream(["orders", "payments", "returns", "a", "b", "c"]).to("all")


@program
def pattern(b):
    b.stream(re.compile("orders-.*")).to("all-orders")
    b.stream(re.compile("payments-[0-9]+"), Consumed.as_("payments")).to("all-payments")


@program
def independent_subtopologies(b):
    b.stream("a").to("out-a")
    b.stream("b").filter(same).to("out-b")
    b.stream("c").map_values(same).to("out-c")


@program
def merge(b):
    a, c, d = b.stream("a"), b.stream("c"), b.stream("d")
    a.merge(c).merge(d.filter(same), named="all").to("out")


@program
def merge_with_itself(b):
    a = b.stream("a")
    a.merge(a).to("out")
    a.filter(same).merge(a.filter_not(same)).to("out")


@program
def merge_then_group(b):
    a = b.stream("a").select_key(same)
    b.stream("c").merge(a).group_by_key().count(Materialized.as_("counts"))


@program
def split_unnamed(b):
    branches = b.stream("in").split().branch(same).branch(same).default_branch()
    branches["KSTREAM-BRANCH-00000000011"].to("one")
    branches["KSTREAM-BRANCH-00000000012"].to("two")
    branches["KSTREAM-BRANCH-00000000010"].to("rest")


@program
def split_named(b):
    branches = (
        b.stream("in")
        .split(named="route-")
        .branch(same, Branched.as_("big"))
        .branch(same, Branched.with_consumer(lambda stream: stream.to("small")))
        .branch(same, Branched.with_function(lambda stream: stream.map_values(same), "odd"))
        .default_branch(Branched.as_("rest"))
    )
    branches["route-big"].to("big")
    branches["route-odd"].to("odd")
    branches["route-rest"].to("rest")


@program
def split_no_default(b):
    split = b.stream("in").select_key(same).split()
    branches = split.branch(same, Branched.as_("-yes")).no_default_branch()
    branches["KSTREAM-BRANCH-0000000002-yes"].group_by_key().count()


@program
def repartition_unnamed(b):
    b.stream("in").repartition().map_values(same).to("out")


@program
def repartition_named(b):
    (
        b.stream("in")
        .select_key(same)
        .repartition(Repartitioned.as_("by-user").with_number_of_partitions(7))
        .group_by_key()
        .count(Materialized.as_("counts"))
        .to_stream()
        .to("out")
    )


@program
def repartition_chain(b):
    stream = b.stream("in")
    stream.repartition(named="one").repartition(Repartitioned.as_("two-repartition")).to("out")
    stream.repartition().merge(stream).to("both")


@program
def aggregations(b):
    grouped = b.stream("in").group_by_key()
    grouped.count()
    grouped.count(Materialized.as_("counts"))
    grouped.count(named="count-named")
    grouped.count(LONGS)
    grouped.count(LONGS, named="count-both")
    grouped.reduce(last)
    grouped.reduce(last, Materialized.as_("reduced"))
    grouped.reduce(last, UNNAMED, named="reduce-named")
    grouped.aggregate(lambda: "", fold)
    grouped.aggregate(lambda: "", fold, Materialized.as_("aggregated"))
    grouped.aggregate(lambda: "", fold, UNNAMED, named="aggregate-named")


@program
def aggregations_repartitioned(b):
    grouped = b.stream("in").group_by(same)
    grouped.count()
    grouped.reduce(last, Materialized.as_("reduced"))
    grouped.aggregate(lambda value: value, UNNAMED, named="aggregate-named")


@program
def aggregations_share_repartition(b):
    grouped = b.stream("in").group_by(same, Grouped.as_("by-word"))
    b.stream("between").to("out")
    grouped.count(Materialized.as_("counts"))
    grouped.reduce(last, Materialized.as_("reduced"))
    b.stream("after").filter(same).to("out")
    grouped.aggregate(lambda: "", fold)


@program
def windowed(b):
    grouped = b.stream("in").group_by_key()
    five = timedelta(minutes=5)
    time = grouped.windowed_by(
        TimeWindows.of_size_and_grace(five, timedelta(minutes=1)).advance_by(timedelta(minutes=1))
    )
    time.count()
    time.count(Materialized.as_("time-counts"))
    time.count(LONGS, named="time-named")
    time.reduce(last).to_stream().to("time-out")
    time.aggregate(lambda: "", fold, UNNAMED)
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(five))
    sliding.count(named="sliding-count")
    sliding.count(LONGS)
    sliding.reduce(last, Materialized.as_("sliding-reduced"), named="sliding-reduce")
    sliding.aggregate(lambda: "", fold)
    session = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(five))
    session.count()
    session.count(LONGS)
    session.reduce(last, Materialized.as_("session-reduced"))
    session.aggregate(lambda: "", fold, fold, named="session-aggregate")


@program
def windowed_repartitioned(b):
    grouped = b.stream("in").group_by(same, Grouped.as_("by-word"))
    grouped.count(Materialized.as_("counts"))
    five = timedelta(minutes=5)
    table = grouped.windowed_by(TimeWindows.of_size_with_no_grace(five)).count(Materialized.as_("windowed"))
    stream = table.filter(same).to_stream().select_key(same)
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(five)
    stream.group_by_key().windowed_by(sessions).count().to_stream(same).to("out")


@program
def suppressed(b):
    minute = timedelta(minutes=1)
    windows = TimeWindows.of_size_and_grace(timedelta(minutes=5), minute)
    counts = b.stream("in").group_by_key().windowed_by(windows).count(Materialized.as_("counts"))
    closed, limited = Suppressed.until_window_closes, Suppressed.until_time_limit
    counts.suppress(closed(BufferConfig.unbounded())).to_stream().to("out")
    bounded = BufferConfig.max_records(10).shut_down_when_full()
    final = counts.filter(same).suppress(closed(bounded).with_name("final"))
    final.map_values(same, Materialized.as_("named")).to_stream().to("other")
    counts.suppress(limited(minute, BufferConfig.max_bytes(1000)))
    unlogged = BufferConfig.unbounded().with_logging_disabled()
    counts.suppress(limited(timedelta(0), unlogged).with_name("limited"))
    counts.suppress(closed(unlogged))
    counts.map_values(same, Materialized.as_("after")).to_stream().group_by_key().count()
    users = b.table("users").suppress(limited(minute, BufferConfig.max_records(10)))
    users = users.suppress(limited(minute, BufferConfig.unbounded()))
    users.to_stream().group_by_key().count(Materialized.as_("twice"))


@program
def suppressed_repartitioned(b):
    windows = SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5))
    sessions = b.stream("in").group_by(same).windowed_by(windows).count()
    closed = sessions.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    counts = closed.to_stream(lambda key, value: key.key).group_by_key().count()
    slow = Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.unbounded()).with_name("slow")
    counts.suppress(slow).to_stream().to("out")


@program
def emit_strategies(b):
    five = timedelta(minutes=5)
    grouped = b.stream("in").group_by_key()
    for strategy in (EmitStrategy.on_window_close(), EmitStrategy.on_window_update()):
        name = strategy.type.name
        grouped.windowed_by(TimeWindows.of_size_with_no_grace(five)).emit_strategy(strategy).count()
        windows = SlidingWindows.of_time_difference_with_no_grace(five)
        sliding = grouped.windowed_by(windows).emit_strategy(strategy)
        table = sliding.reduce(last, UNNAMED, named=f"sliding-{name}")
        table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
        sessions = SessionWindows.of_inactivity_gap_with_no_grace(five)
        session = grouped.windowed_by(sessions).emit_strategy(strategy)
        session.count(Materialized.as_(f"sessions-{name}")).to_stream().to("out")
        session.aggregate(lambda: "", fold, fold)


@program
def aggregations_in_a_row(b):
    first = b.stream("in").group_by_key().count()
    second = first.to_stream().group_by_key().count(Materialized.as_("second"))
    third = second.to_stream().map_values(same).group_by_key(Grouped.as_("third"))
    windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
    third.windowed_by(windows).count().to_stream().to("out")
    first.to_stream().to_table().to_stream().group_by_key().reduce(last)


@program
def aggregation_chain(b):
    first = b.stream("in").group_by(same).count(Materialized.as_("first"))
    second = first.to_stream().select_key(same).group_by_key(Grouped.as_("second"))
    third = second.count(Materialized.as_("second")).to_stream(lambda key, value: key).group_by_key()
    third.count().to_stream().to("out")


@program
def group_names_topic(b):
    b.stream("in").select_key(same).group_by_key(named="users").count()
    b.stream("other").group_by(same, Grouped.as_("words-repartition")).count()


@program
def key_change_is_kept(b):
    changed = b.stream("a").map(same).filter(same).map_values(same).peek(same)
    changed.group_by_key().count(Materialized.as_("a"))
    b.stream("b").flat_map(same).group_by_key().count(Materialized.as_("b"))
    b.stream("c").select_key(same).repartition().group_by_key().count(Materialized.as_("c"))
    b.stream("d").flat_map_values(same).group_by_key().count(Materialized.as_("d"))


@program
def table_unmaterialized(b):
    table = b.table("users").filter(same).filter_not(same)
    table.map_values(same).map_values(lambda key, value: value).to_stream().to("out")


@program
def table_materialized(b):
    users = b.table("users", Materialized.as_("users"))
    some = users.filter(same, Materialized.as_("some"))
    some.map_values(same, Materialized.as_("upper"), named="upper").to_stream(named="changes").to("out")
    users.filter_not(same, UNNAMED).map_values(same, UNNAMED).to_stream().to("out")
    users.filter(same, named="named").to_stream().to("other")


@program
def table_named(b):
    consumed = Consumed.with_(Serdes.string(), Serdes.string())
    b.table("users", consumed.with_name("people"), Materialized.as_("users"))
    b.table("unnamed", consumed, UNNAMED)
    b.table("rest")


@program
def to_table(b):
    stream = b.stream("in")
    stream.to_table()
    stream.to_table(named="named")
    stream.to_table(Materialized.as_("kept")).to_stream().to("out")
    stream.to_table(Materialized.as_("both"), named="both")


@program
def to_table_repartitioned(b):
    stream = b.stream("in").select_key(same)
    stream.to_table()
    stream.to_table(named="named").to_stream().to("out")
    stream.to_table(Materialized.as_("kept")).filter(same).to_stream().to("out")
    stream.to_table(Materialized.as_("both"), named="both")


@program
def duplicate_sources(b):
    first = b.stream("in")
    second = b.stream("in", Consumed.as_("again"))
    first.map_values(same).to("a")
    second.filter(same).to("b")
    second.merge(b.stream("other")).merge(first).to("c")
    b.stream(["x", "y"]).to("d")
    b.stream(["y", "x"]).to("e")
    b.stream(re.compile("p.*")).to("f")
    b.stream(re.compile("p.*")).to("g")


@program
def wide(b):
    stream = b.stream("in")
    for i in range(12):
        each = stream.map_values(same)
        for _ in range(i % 4):
            each = each.filter(same)
        each.to(f"out-{i}")


@program
def diamonds(b):
    stream = b.stream("in")
    for _ in range(4):
        filtered = stream.filter(same)
        stream = filtered.merge(stream.map_values(same).peek(same))
    stream.group_by(same).count(Materialized.as_("counts")).to_stream().to("out")


@program
def global_tables(b):
    consumed = Consumed.with_(Serdes.string(), Serdes.string())
    b.stream("first").to("out-first")
    b.global_table("users", consumed)
    b.stream("in").group_by(same).count(Materialized.as_("counts"))
    b.global_table("cities", Materialized.as_("cities"))
    b.global_table("named", consumed.with_name("people"), Materialized.as_("people"))
    b.table("rest").to_stream().to("out")


@program
def global_table_first(b):
    b.global_table("users", Materialized.as_("users"))
    b.stream("in").to("out")
    b.global_table("cities")


@program
def global_tables_only(b):
    b.global_table("users", Materialized.as_("users"))
    b.global_table("cities", Consumed.with_(Serdes.string(), Serdes.string()))


def both(left, right):
    return left


FIVE = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))


@program
def stream_table_joins(b):
    stream, users = b.stream("in"), b.table("users")
    stream.join(users, both).to("a")
    stream.left_join(users, lambda key, left, right: left).to("b")
    stream.join(b.table("kept", Materialized.as_("kept")), both, Joined.as_("named")).to("c")
    stream.left_join(users.filter(same).map_values(same), both, Joined.as_("derived")).to("d")
    stream.join(users.map_values(same, Materialized.as_("upper")), both).to("e")
    stream.join(b.stream("other").to_table(), both).to("f")
    stream.join(b.stream("events").group_by_key().count(), both).to("g")


@program
def stream_table_joins_repartitioned(b):
    changed = b.stream("in").select_key(same)
    users = b.table("users")
    changed.join(users, both).to("a")
    changed.left_join(users, both).to("b")
    changed.join(users, both, named="named").to("c")
    changed.left_join(users, both).to("d")
    changed.group_by_key().count()
    mapped = b.stream("in").map(same, named="mapper")
    mapped.join(users, both).to("e")
    mapped.left_join(users, both).to("f")
    once = mapped.filter(same).join(users, both, Joined.as_("once"))
    twice = once.select_key(same).join(users, both, Joined.as_("twice"))
    twice.group_by_key().count(Materialized.as_("counts"))


@program
def stream_table_joins_with_grace(b):
    users = b.table("users", Materialized.as_("users").with_history(timedelta(hours=1)))
    stream = b.stream("in")
    joined = Joined.with_(Serdes.string(), Serdes.string(), Serdes.string(), None, timedelta(minutes=1))
    stream.join(users, both, joined).to("a")
    stream.select_key(same).left_join(users, both, joined.with_name("named")).to("b")


@program
def stream_table_joins_in_a_row(b):
    one, two = b.table("one"), b.table("two", Materialized.as_("two"))
    joined = b.stream("in").join(one, both).left_join(two, both).map_values(same)
    third = joined.join(b.stream("three").group_by_key().reduce(last), both)
    counts = third.group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().join(one, both).to("out")


@program
def stream_joins_own_table(b):
    stream = b.stream("in")
    stream.join(stream.group_by_key().count(), both).to("a")
    stream.left_join(stream.to_table(), both).to("b")
    users = b.table("users")
    users.to_stream().join(users, both).to("c")
    users.to_stream().left_join(users.map_values(same), both).to("d")
    changed = stream.select_key(same)
    changed.join(changed.group_by_key().count(Materialized.as_("counts")), both).to("e")


@program
def stream_joins(b):
    left, right = b.stream("left"), b.stream("right")
    left.join(right, both, FIVE).to("a")
    left.left_join(right, lambda key, left, right: left, FIVE).to("b")
    left.outer_join(right, both, FIVE).to("c")


@program
def stream_joins_named(b):
    left, right = b.stream("left"), b.stream("right")
    left.join(right, both, FIVE, StreamJoined.as_("inner-store").with_name("inner")).to("a")
    left.left_join(right, both, FIVE, StreamJoined.as_("left-store").with_name("left")).to("b")
    left.outer_join(right, both, FIVE, StreamJoined.as_("outer-store"), named="outer").to("c")
    left.join(right, both, FIVE, StreamJoined.as_("stored")).to("d")
    left.left_join(right, both, FIVE, StreamJoined.as_("left-stored")).to("e")
    named = StreamJoined.with_(Serdes.string(), Serdes.string(), Serdes.string()).with_name("only-named")
    left.outer_join(right, both, FIVE, named.with_logging_disabled()).to("f")


@program
def stream_joins_repartitioned(b):
    left, right = b.stream("left"), b.stream("right")
    left_changed, right_changed = left.select_key(same), right.map(same, named="mapper")
    left_changed.join(right, both, FIVE).to("a")
    left.left_join(right_changed, both, FIVE).to("b")
    left_changed.outer_join(right_changed, both, FIVE).to("c")
    named = StreamJoined.as_("store").with_name("named")
    left_changed.join(right_changed, both, FIVE, named).to("d")
    joined = left_changed.left_join(right_changed, both, FIVE)
    joined.group_by_key().count(Materialized.as_("counts"))


@program
def stream_joins_itself(b):
    stream = b.stream("in")
    stream.join(stream, both, FIVE).to("a")
    stream.left_join(stream, both, FIVE, StreamJoined.as_("store").with_name("named")).to("b")
    stream.outer_join(stream.filter(same), both, FIVE).to("c")
    stream.join(b.stream("in"), both, FIVE).to("d")
    changed = stream.select_key(same)
    changed.join(changed, both, FIVE).to("e")
    changed.left_join(changed, both, FIVE, StreamJoined.as_("changed").with_name("changed")).to("f")


@program
def stream_joins_in_a_row(b):
    one, two, three = b.stream("one"), b.stream("two"), b.stream("three")
    joined = one.join(two, both, FIVE)
    wide = joined.left_join(three, both, FIVE).filter(same).outer_join(joined, both, FIVE)
    known = wide.join(b.table("users"), both).select_key(same)
    known.join(two, both, FIVE).group_by_key().count().to_stream().to("out")
    one.merge(two).join(three, both, FIVE).to("merged")


@program
def table_joins(b):
    left, right = b.table("left"), b.table("right")
    left.join(right, both).to_stream().to("a")
    left.left_join(right, both).to_stream().to("b")
    left.outer_join(right, both).to_stream().to("c")
    left.join(right, both, named="named").to_stream().to("d")
    left.left_join(right, both, Materialized.as_("left-joined")).to_stream().to("e")
    left.outer_join(right, both, Materialized.as_("outer-joined"), named=Named.as_("both")).to_stream().to(
        "f"
    )
    left.join(right, both, UNNAMED).to_stream().to("g")


@program
def table_joins_derived(b):
    users, kept = b.table("users"), b.table("kept", Materialized.as_("kept"))
    users.filter(same).join(users.map_values(same), both).to_stream().to("a")
    users.left_join(users, both).to_stream().to("b")
    kept.map_values(same, Materialized.as_("upper")).outer_join(kept, both).to_stream().to("c")
    b.stream("in").to_table().join(b.stream("in").group_by_key().count(), both).to_stream().to("d")
    some = b.table("only", Consumed.as_("only")).filter(same, Materialized.as_("some"))
    some.join(kept.filter(same, named="rest"), both, named="joined").to_stream().to("e")
    b.stream("other").select_key(same).to_table(named="tabled").left_join(kept, both).to_stream().to("f")


@program
def table_joins_in_a_row(b):
    one, two, three = b.table("one"), b.table("two"), b.table("three")
    joined = one.join(two, both)
    wide = joined.left_join(three, both).filter(same).outer_join(joined, both, Materialized.as_("all"))
    wide.map_values(same).join(one, both).to_stream().group_by_key().count()
    b.stream("in").join(joined, both).to("out")
    events = b.stream("events")
    kept = joined.map_values(same).left_join(three, both, Materialized.as_("kept"))
    events.left_join(kept, both).to("rest")


@program
def table_joins_suppressed(b):
    minute = Suppressed.until_time_limit(timedelta(minutes=1), BufferConfig.unbounded())
    slow = b.table("users").suppress(minute)
    slow.join(b.table("right"), both).to_stream().to("a")
    b.stream("in").join(slow.map_values(same), both).to("b")
    b.table("left").left_join(b.table("rest"), both).suppress(minute).to_stream().to("c")
    windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
    counts = b.stream("events").group_by_key().windowed_by(windows).count()
    closed = Suppressed.until_window_closes(BufferConfig.unbounded())
    counts.join(counts.map_values(same), both).suppress(closed).to_stream().to("d")


@program
def global_joins(b):
    stream = b.stream("in")
    users, cities = b.global_table("users"), b.global_table("cities", Materialized.as_("cities"))
    stream.join(users, same, both).to("a")
    found = stream.left_join(cities, same, lambda key, left, right: left, named="named")
    found.join(users, same, both).to("b")
    changed = stream.select_key(same).join(users, same, both, named=Named.as_("changed"))
    changed.group_by_key().count()
    rest = b.table("rest").to_stream().left_join(users, same, both)
    rest.join(stream, both, FIVE).to("c")


@program
def grouped_tables(b):
    users = b.table("users")

    def grouped():
        return users.group_by(lambda key, value: (value, key))

    grouped().count()
    grouped().count(Materialized.as_("counts")).to_stream().to("a")
    grouped().count(named="counted")
    grouped().reduce(last, last)
    grouped().reduce(last, last, Materialized.as_("reduced"))
    grouped().reduce(last, last, Materialized.as_("both"), named=Named.as_("both"))
    grouped().aggregate(lambda: "", fold, fold)
    grouped().aggregate(lambda: "", fold, fold, named="aggregated")
    grouped().aggregate(lambda: "", fold, fold, UNNAMED)
    grouped().count(LONGS)


@program
def grouped_tables_shared(b):
    named = b.table("users").group_by(same, Grouped.as_("by-city"))
    named.count().to_stream().to("a")
    named.reduce(last, last, Materialized.as_("reduced")).to_stream().to("b")
    named.count(named="again")
    unnamed = b.table("towns", Materialized.as_("towns")).group_by(same, Grouped.with_(Serdes.string()))
    unnamed.count()
    unnamed.aggregate(same)


@program
def grouped_tables_derived(b):
    users = b.table("users")
    counts = users.filter(same).map_values(same).group_by(same).count()
    counts.group_by(same, named="again").reduce(last, last).to_stream().to("a")
    mapped = b.stream("in").group_by_key().count().map_values(same, Materialized.as_("mapped"))
    mapped.group_by(same).count().to_stream().to("b")
    users.join(b.table("cities"), both).group_by(same).count(Materialized.as_("joined"))
    tabled = b.stream("other").to_table().group_by(same).count(Materialized.as_("tabled"))
    tabled.join(users, both).to_stream().select_key(same).join(users, both).to("c")


@program
def cogroups(b):
    one, two = b.stream("one").group_by_key(), b.stream("two").group_by_key()

    def empty():
        return ""

    one.cogroup(fold).aggregate(empty).to_stream().to("a")
    one.cogroup(fold).cogroup(two, fold).aggregate(empty, Materialized.as_("both")).to_stream().to("b")
    named = one.cogroup(fold).cogroup(two, fold)
    named.aggregate(empty, Materialized.as_("named"), named="named").to_stream().to("c")
    only_named = two.cogroup(fold).cogroup(one, fold).aggregate(empty, named=Named.as_("only-named"))
    only_named.join(b.table("users"), both).to_stream().to("d")
    one.cogroup(fold).cogroup(one, fold).aggregate(empty, UNNAMED)


@program
def cogroups_repartitioned(b):
    one = b.stream("one").group_by(same)
    two = b.stream("two").group_by(same, Grouped.as_("by-two"))
    three = b.stream("three").group_by_key()
    four = b.stream("four").group_by(same)

    def empty():
        return ""

    wide = one.cogroup(fold).cogroup(two, fold).cogroup(three, fold)
    wide.aggregate(empty).to_stream().to("a")
    four.cogroup(fold).cogroup(three, fold).aggregate(empty, Materialized.as_("kept"), named="named")
    three.cogroup(fold).cogroup(four, fold).aggregate(empty, Materialized.as_("stored"))
    one.cogroup(fold).cogroup(three, fold).aggregate(empty, named="again")
    one.count()
    shared = b.stream("five").group_by(same).cogroup(fold)
    shared.aggregate(empty)
    shared.aggregate(empty, Materialized.as_("shared"))


@program
def cogroups_windowed(b):
    one, two = b.stream("one").group_by_key(), b.stream("two").group_by(same)

    def empty():
        return ""

    five = timedelta(minutes=5)
    tumbling = TimeWindows.of_size_with_no_grace(five)
    cogrouped = one.cogroup(fold).cogroup(two, fold)
    cogrouped.windowed_by(tumbling).aggregate(empty).to_stream().to("a")
    cogrouped = one.cogroup(fold).cogroup(two, fold)
    sliding = cogrouped.windowed_by(SlidingWindows.of_time_difference_with_no_grace(five))
    sliding.aggregate(empty, named="sliding").to_stream().to("b")
    cogrouped = one.cogroup(fold).cogroup(two, fold)
    sessions = cogrouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(five))
    sessions.aggregate(empty, fold, Materialized.as_("sessions"))
    single = one.cogroup(fold).windowed_by(tumbling)
    single.aggregate(empty, Materialized.as_("windows"), named="single")


@program
def foreign_key_joins(b):
    orders, users = b.table("orders"), b.table("users", Materialized.as_("users"))
    orders.join(users, same, both).to_stream().to("a")
    orders.left_join(users, same, both, None, Materialized.as_("left")).to_stream().to("b")
    orders.join(users.filter(same), same, both, TableJoined.as_("named")).to_stream().to("c")
    itself = orders.left_join(orders, same, both, TableJoined.as_("both"), Materialized.as_("itself"))
    itself.map_values(same).join(users, both).to_stream().to("d")


@program
def processors(b):
    stream = b.stream("in")
    stream.process(Nothing).to("a")
    stream.process(Nothing, named="named").to("b")
    stream.process_values(Values).to("c")
    stream.process_values(Values, named=Named.as_("named-values")).to("d")
    stream.map_values(same).process(Nothing)
    stream.filter(same).to("e")


@program
def processors_with_stores(b):
    b.add_state_store(store("shared"))
    b.add_state_store(store("unused"))
    one = b.stream("one")
    b.stream("alone").process(Nothing).to("a")
    one.process(Nothing, "shared").filter(same).to("b")
    b.stream("two").process_values(Values, "shared").to("c")
    b.add_state_store(store("later"))
    one.process(Bringing("brought", "and-this"), "later", "shared", named="bringing").to("d")
    b.stream("three").process(Bringing("alone")).process(Nothing, "alone").to("e")


@program
def transformed_tables(b):
    b.add_state_store(store("shared"))
    b.add_state_store(store("another"))
    table = b.table("in")
    kept = b.table("kept", materialized=Materialized.as_("kept"))

    def twice(key, value):
        return value, value

    table.transform_values(Same).to_stream().to("a")
    table.transform_values(Same, "shared", named="named").to_stream().to("b")
    made = table.transform_values(Same, "shared", "another", materialized=Materialized.as_("made"))
    made.filter(same).to_stream().to("c")
    table.transform_values(Same, materialized=UNNAMED).map_values(same)
    both_ = Materialized.as_("both")
    kept.transform_values(Same, "another", materialized=both_, named="named-too").to_stream().to("d")
    kept.transform_values(Same).transform_values(Same).group_by(twice).count()
    b.table("other").transform_values(Same).group_by(twice).count()
    joined = b.table("joined").transform_values(Same)
    right = b.table("right").transform_values(Same, materialized=Materialized.as_("rows"))
    joined.join(right, both).to_stream().to("e")
    b.stream("clicks").join(joined, both).to("f")


@program
def processors_then_groups(b):
    stream = b.stream("in")
    b.add_state_store(store("store"))
    counts = stream.process(Nothing, "store").group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().process(Nothing, "store").to("a")
    stream.process_values(Values).group_by_key().count(Materialized.as_("others"))
    stream.process(Nothing, named="named").group_by_key().count()
    stream.select_key(same).process_values(Values, store("store")).to_table()
    stream.process(Nothing).join(b.table("users"), both).to("b")
    stream.process(Nothing).repartition().process(Nothing).merge(stream).to("c")


@program
def global_stores(b):
    stream = b.stream("in")
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    b.add_global_store(store("one"), "g-one", strings, Nothing)
    stream.process(Nothing).to("a")
    b.add_global_store(store("two"), "g-two", strings.with_name("named"), Nothing)
    b.stream("other").to("b")


@topology
def topology_word_count(t):
    t.add_source("Source", "streams-plaintext-input")
    t.add_processor("Process", Nothing, "Source")
    t.add_state_store(store("Counts"), "Process")
    t.add_sink("Sink", "streams-wordcount-processor-output", "Process")


@topology
def topology_shared_stores(t):
    t.add_source("one", "a", "b")
    t.add_source("two", re.compile("c-.*"))
    t.add_source("three", "d")
    t.add_processor("p-one", Nothing, "one")
    t.add_processor("p-two", Nothing, "two", "one")
    t.add_processor("p-three", Bringing("own", "other"), "three")
    t.add_processor("p-four", Nothing, "p-three", "p-one")
    t.add_sink("s-one", "out", "p-four", "one")
    t.add_sink("s-two", ByWord(), "p-two")
    t.add_source("four", "e")
    t.add_processor("p-five", Nothing, "four")
    t.add_state_store(store("shared"))
    t.add_state_store(store("unused"))
    t.connect_processor_and_state_stores("p-five", "shared", "own")
    t.add_source("five", "f")
    t.add_processor("p-six", Nothing, "five")
    t.add_state_store(store("last"), "p-six")
    t.add_sink("s-three", "out", "p-six")


@topology
def topology_global_stores(t):
    t.add_source("one", "a")
    unlogged = store("global").with_logging_disabled()
    t.add_global_store(unlogged, "global-source", "g", "global-processor", Nothing)
    t.add_processor("p-one", Nothing, "one")
    t.add_read_only_state_store(store("read-only"), "ro-source", "r", "ro-processor", Nothing)
    t.connect_processor_and_state_stores("p-one", "read-only")
    t.add_source("two", "b")
    t.add_sink("out", "out", "two", "p-one")


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_describe_is_kafka_streams_text(name):
    """The text is the one that Kafka Streams wrote for the same program."""
    builder = StreamsBuilder()
    PROGRAMS[name](builder)
    assert str(builder.build().describe()) == (SNAPSHOTS / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", sorted(TOPOLOGIES))
def test_describe_of_what_is_written_node_by_node_is_kafka_streams_text(name):
    """Topologies without the DSL are compared."""
    written = Topology()
    TOPOLOGIES[name](written)
    assert str(written.describe()) == (SNAPSHOTS / f"{name}.txt").read_text()


def test_every_snapshot_has_a_program():
    """No snapshot is left over, and none is missing."""
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == {*PROGRAMS, *TOPOLOGIES}
