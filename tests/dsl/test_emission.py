"""Emit strategies and suppress as they are written: checks, names, nodes; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from built import refused

from millstream import (
    BufferConfig,
    EagerBufferConfig,
    EmitStrategy,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    StrictBufferConfig,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.nodes import Aggregate, Suppress

FIVE, ONE, NONE = timedelta(minutes=5), timedelta(minutes=1), timedelta(0)
UNBOUNDED = BufferConfig.unbounded()
CLOSED = Suppressed.until_window_closes(UNBOUNDED)
WINDOWS = [
    (TimeWindows.of_size_and_grace(FIVE, ONE), 60_000),
    (SlidingWindows.of_time_difference_and_grace(FIVE, ONE), 60_000),
    (SessionWindows.of_inactivity_gap_and_grace(FIVE, ONE), 360_000),
]
"""With how far stream time has to be beyond a window's end when it closes."""


def same(value: Any) -> Any:
    return value


def counted(builder: StreamsBuilder, windows: Any = WINDOWS[0][0]) -> KTable:
    return builder.stream("in").group_by_key().windowed_by(windows).count(Materialized.as_("counts"))


def only(topology: Topology, kind: type[Any]) -> Any:
    (node,) = (node for node in topology.nodes if isinstance(node, kind))
    return node


# --- emit strategies -------------------------------------------------------------------------------------


@pytest.mark.parametrize("windows", [windows for windows, _ in WINDOWS], ids=str)
def test_an_emit_strategy_makes_another_group(builder: StreamsBuilder, windows: Any) -> None:
    """Its tables' results go on when windows close; those of the group it was made from, as they change."""
    group = builder.stream("in").group_by_key().windowed_by(windows)
    other = group.emit_strategy(EmitStrategy.on_window_close())
    assert type(other) is type(group)
    other.count(Materialized.as_("closed"))
    group.count(Materialized.as_("each"))
    other.emit_strategy(EmitStrategy.on_window_update()).count(Materialized.as_("each2"))
    nodes = [node for node in builder.build().nodes if isinstance(node, Aggregate)]
    assert {node.stored.name: node.on_close for node in nodes} == {
        "closed": True,
        "each": False,
        "each2": False,
    }


@pytest.mark.parametrize("wrong", [None, "close", EmitStrategy, EmitStrategy.on_window_close])
def test_what_is_no_emit_strategy_is_refused(builder: StreamsBuilder, wrong: Any) -> None:
    """With the two that there are."""
    group = builder.stream("in").group_by_key().windowed_by(WINDOWS[0][0])
    with refused("emit_strategy()", "EmitStrategy.on_window_close()"):
        group.emit_strategy(wrong)


# --- buffers ---------------------------------------------------------------------------------------------


def test_buffers_are_strict_or_eager_as_in_kafka_streams() -> None:
    """The limits stay, whatever happens when they are reached."""
    for made, kind, records, size in (
        (UNBOUNDED, StrictBufferConfig, None, None),
        (UNBOUNDED.with_max_records(5), StrictBufferConfig, 5, None),
        (UNBOUNDED.emit_early_when_full(), EagerBufferConfig, None, None),
        (BufferConfig.max_records(3), EagerBufferConfig, 3, None),
        (BufferConfig.max_bytes(7).with_max_records(0), EagerBufferConfig, 0, 7),
        (BufferConfig.max_records(3).with_max_bytes(7).shut_down_when_full(), StrictBufferConfig, 3, 7),
        (BufferConfig.max_records(3).with_no_bound(), StrictBufferConfig, None, None),
    ):
        assert (type(made), made.record_limit, made.byte_limit) == (kind, records, size)
        assert made.stops_when_full == (kind is StrictBufferConfig)


def test_logging_of_a_buffer_survives_other_changes() -> None:
    """Both that there is none, and the topic's configs."""
    logged = BufferConfig.max_records(3).with_logging_enabled({"segment.ms": "1000"})
    for other in (logged.with_max_bytes(5), logged.shut_down_when_full(), logged.with_no_bound()):
        assert (other.logging_enabled, other.topic_config) == (True, {"segment.ms": "1000"})
    for other in (UNBOUNDED.with_logging_disabled(), logged.with_logging_disabled().shut_down_when_full()):
        assert (other.logging_enabled, other.topic_config) == (False, {})


@pytest.mark.parametrize("wrong", [-1, 1.5, "7", True, None])
@pytest.mark.parametrize("method", ["max_records", "max_bytes", "with_max_records", "with_max_bytes"])
def test_limits_are_numbers(method: str, wrong: Any) -> None:
    """Which are not negative."""
    with refused(method.removeprefix("with_"), repr(wrong)):
        getattr(UNBOUNDED, method)(wrong)


def test_configs_of_a_buffers_changelog_are_texts() -> None:
    """As those of a store's."""
    with refused("text to text", "7"):
        UNBOUNDED.with_logging_enabled({"segment.ms": 7})  # type: ignore[dict-item]


# --- suppress --------------------------------------------------------------------------------------------


def test_only_a_strict_buffer_waits_for_windows_to_close() -> None:
    """Another could let go what is not the last value."""
    with refused("until_window_closes()", "shut_down_when_full()"):
        Suppressed.until_window_closes(BufferConfig.max_records(3))  # type: ignore[arg-type]
    Suppressed.until_window_closes(BufferConfig.max_records(3).shut_down_when_full())
    Suppressed.until_time_limit(ONE, BufferConfig.max_records(3))


def test_arguments_of_suppress_are_checked(builder: StreamsBuilder) -> None:
    """At their line."""
    for wrong in (None, 3, BufferConfig):
        with refused("BufferConfig.unbounded()"):
            Suppressed.until_window_closes(wrong)  # type: ignore[arg-type]
    for wrong in (None, 3):
        with refused("time limit", "timedelta"):
            Suppressed.until_time_limit(wrong, UNBOUNDED)  # type: ignore[arg-type]
    for wrong in ("", "a b", None):
        with refused("name"):
            CLOSED.with_name(wrong)  # type: ignore[arg-type]
    for wrong in (None, UNBOUNDED, "final"):
        with refused("suppress()", "until_window_closes"):
            counted(StreamsBuilder()).suppress(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("windows", "delay_ms"), WINDOWS, ids=str)
def test_a_suppress_until_windows_close_knows_their_grace(windows: Any, delay_ms: int) -> None:
    """Also where tables and streams lie between; of sessions, the gap counts too."""
    for between in (
        lambda table: table,
        lambda table: table.filter(lambda value: value > 1).map_values(lambda value: value),
        lambda table: table.to_stream().to_table(),
        lambda table: table.suppress(CLOSED.with_name("first")),
    ):
        builder = StreamsBuilder()
        between(counted(builder, windows)).suppress(CLOSED.with_name("last"))
        (node,) = (node for node in builder.build().nodes if node.name == "last")
        assert isinstance(node, Suppress)
        assert (node.until_close, node.delay_ms, node.stops_when_full) == (True, delay_ms, True)


def test_of_two_windows_that_meet_the_longer_grace_counts(builder: StreamsBuilder) -> None:
    """As in Kafka Streams."""
    stream = builder.stream("in").group_by_key()
    one, other = (stream.windowed_by(windows).count().to_stream() for windows, _ in WINDOWS[1:])
    one.merge(other).to_table().suppress(CLOSED)
    assert only(builder.build(), Suppress).delay_ms == 360_000


@pytest.mark.parametrize(
    ("before", "way"),
    [
        (lambda b: b.table("t"), "KTABLE-SOURCE-0000000002"),
        (
            lambda b: b.stream("t").filter(same).group_by_key().count().filter(same),
            "KSTREAM-SOURCE-0000000000->KSTREAM-FILTER-0000000001->KSTREAM-AGGREGATE-0000000003"
            "->KTABLE-FILTER-0000000004",
        ),
        (
            lambda b: b.stream("t").group_by(same).count(),
            "KSTREAM-SOURCE-0000000000->KSTREAM-KEY-SELECT-0000000001->KSTREAM-SOURCE-0000000006"
            "->KSTREAM-AGGREGATE-0000000003",
        ),
        (
            lambda b: b.stream("t").merge(b.stream("u")).to_table(),
            "KSTREAM-SOURCE-0000000000->KSTREAM-MERGE-0000000002->KSTREAM-TOTABLE-0000000003",
        ),
    ],
)
def test_without_windows_there_is_nothing_to_wait_for(
    builder: StreamsBuilder, before: Callable[[StreamsBuilder], KTable], way: str
) -> None:
    """Kafka Streams' own words, of a run of 4.3.1, and the way from the source to there. Nothing is added."""
    table = before(builder)
    known = str(builder.build().describe())
    with refused(f"Window close time is only defined for windowed computations. Got [root->{way}]."):
        table.suppress(CLOSED)
    assert str(builder.build().describe()) == known


def test_a_time_limit_needs_no_windows(builder: StreamsBuilder) -> None:
    """Its limits are in the node."""
    buffer = BufferConfig.max_records(10).with_max_bytes(1000)
    builder.table("t").suppress(Suppressed.until_time_limit(ONE, buffer))
    node = only(builder.build(), Suppress)
    assert (node.until_close, node.delay_ms, node.stops_when_full) == (False, 60_000, False)
    assert (node.record_limit, node.byte_limit) == (10, 1000)


def test_names_of_a_suppress_are_taken_once(builder: StreamsBuilder) -> None:
    """The node's, and that of its buffer."""
    table = counted(builder)
    table.suppress(CLOSED.with_name("final"))
    with refused("a node named 'final' already exists"):
        table.suppress(CLOSED.with_name("final"))
    with refused("a store named 'final-store' already exists"):
        builder.table("t", Materialized.as_("final-store"))


def test_a_suppress_cannot_be_queried_by_name(builder: StreamsBuilder) -> None:
    """Not even with one."""
    assert counted(builder).suppress(CLOSED.with_name("final")).queryable_store_name is None


def test_a_buffer_has_a_changelog_unless_it_has_none(builder: StreamsBuilder) -> None:
    """It is compacted, with the configs that were given."""
    table = counted(builder)
    table.suppress(Suppressed.until_window_closes(UNBOUNDED.with_logging_disabled()).with_name("silent"))
    logged = Suppressed.until_window_closes(UNBOUNDED.with_logging_enabled({"segment.ms": "1000"}))
    table.suppress(logged.with_name("final"))
    topics = plan_internal_topics(builder.build(), "app", {"in": 3}).topics
    assert [topic.name for topic in topics] == ["app-counts-changelog", "app-final-store-changelog"]
    assert topics[1].partitions == 3
    assert topics[1].configs["cleanup.policy"] == "compact"
    assert topics[1].configs["segment.ms"] == "1000"
