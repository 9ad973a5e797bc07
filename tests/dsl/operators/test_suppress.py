"""KTable.suppress and emit strategies on Spark: what goes on, when, and what stores and changelogs have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from driving import STRINGS, pipe, read, records, rows
from pyspark.sql import functions as F

from millstream import (
    BufferConfig,
    EmitStrategy,
    KStream,
    Materialized,
    Serdes,
    StreamsBuilder,
    StreamsException,
    Suppressed,
    TimeWindow,
    TimeWindows,
    TopologyException,
    Windowed,
    WindowedSerdes,
)
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

UNBOUNDED = BufferConfig.unbounded()
CLOSED = Suppressed.until_window_closes(UNBOUNDED).with_name("final")
WINDOWS = TimeWindows.of_size_and_grace(timedelta(milliseconds=10), timedelta(milliseconds=5))
KEYS = WindowedSerdes.time_windowed_serde_from(Serdes.string(), timedelta(milliseconds=10))


def a(start: int, key: str = "a") -> Windowed[str]:
    return Windowed(key, TimeWindow(start, start + 10))


def counted(builder: StreamsBuilder, emit: EmitStrategy | None = None) -> Any:
    group = builder.stream("in", STRINGS).group_by_key().windowed_by(WINDOWS)
    return (group if emit is None else group.emit_strategy(emit)).count(Materialized.as_("counts"))


def is_held(driver: TopologyTestDriver, changelog: str) -> dict[tuple[bytes, int], bool]:
    """What a suppress has logged since this was asked last: whether a key's window that begins then is held
    back. The values are the buffer's own, as in Kafka Streams."""
    logged = read(driver, changelog, "bytes", "bytes")
    return {(key[:-8], int.from_bytes(key[-8:])): value is not None for key, value in logged}


def test_the_changelog_of_a_suppress_has_what_is_held_back() -> None:
    """With each commit; what has gone on is deleted. The windows' own store has it still."""
    builder = StreamsBuilder()
    counted(builder).suppress(CLOSED).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        changelog = "app-final-store-changelog"
        pipe(driver, "in", ("a", "x", 1), ("a", "y", 2), ("b", "z", 12))
        assert is_held(driver, changelog) == {(b"a", 0): True, (b"b", 10): True}
        assert records(driver, "out", KEYS, "long") == []
        pipe(driver, "in", ("a", "v", 15), ("a", "u", 15))
        assert is_held(driver, changelog) == {(b"a", 0): False, (b"a", 10): True}
        assert read(driver, "out", KEYS, "long") == [(a(0), 2)]
        assert driver.get_window_store("counts").fetch("a", 0) == 2


def test_a_key_that_is_held_back_and_goes_on_before_a_commit_is_not_held_in_the_changelog() -> None:
    """Its intermediate value appears nowhere either."""
    builder = StreamsBuilder()
    counted(builder).suppress(CLOSED).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 1), ("a", "y", 2), ("a", "z", 99))
        assert read(driver, "out", KEYS, "long") == [(a(0), 2)]
        held = is_held(driver, "app-final-store-changelog")
        assert [key for key, there in held.items() if there] == [(b"a", 90)]


def test_with_a_step_between_a_suppress_is_an_operator_of_its_own() -> None:
    """With the same results; what is suppressed twice goes on later."""
    builder = StreamsBuilder()
    table = counted(builder).map_values(lambda value: value * 10).suppress(CLOSED)
    table.to_stream().to("out")
    slow = Suppressed.until_time_limit(timedelta(milliseconds=30), UNBOUNDED)
    table.suppress(slow).to_stream().to("slow")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x", 1), ("a", "y", 2), ("b", "z", 12))
        pipe(driver, "in", ("a", "v", 15))
        assert read(driver, "out", KEYS, "long") == [(a(0), 20)]
        pipe(driver, "in", ("a", "u", 45))
        assert read(driver, "out", KEYS, "long") == [(a(10), 10), (a(10, "b"), 10)]
        assert read(driver, "slow", KEYS, "long") == []
        pipe(driver, "in", ("a", "u", 90))
        assert read(driver, "slow", KEYS, "long") == [(a(0), 20), (a(10, "b"), 10), (a(10), 10)]


@pytest.mark.parametrize("windowed", [True, False])
def test_a_full_buffer_lets_the_oldest_go_on_or_ends_the_query(windowed: bool) -> None:
    """In Kafka Streams' words."""

    def made(buffer: BufferConfig) -> StreamsBuilder:
        builder = StreamsBuilder()
        table = builder.stream("in", STRINGS).group_by_key().count(Materialized.as_("counts"))
        if not windowed:
            table = table.map_values(lambda value: value)
        table.suppress(Suppressed.until_time_limit(timedelta(days=1), buffer)).to_stream().to("out")
        return builder

    with TopologyTestDriver(made(BufferConfig.max_records(2)).build()) as driver:
        pipe(driver, "in", ("a", "x", 3), ("b", "x", 1), ("c", "x", 2))
        assert read(driver, "out", value="long") == [("b", 1)]
    with TopologyTestDriver(made(BufferConfig.max_records(2).shut_down_when_full()).build()) as driver:
        pipe(driver, "in", ("a", "x", 3), ("b", "x", 1))
        message = r"KTABLE-SUPPRESS-\d+ buffer exceeded its max capacity. Currently \[3/2\] records"
        with pytest.raises(StreamsException, match=message):
            pipe(driver, "in", ("c", "x", 2))


def test_a_store_without_a_log_holds_back_all_the_same() -> None:
    """There is no topic."""
    builder = StreamsBuilder()
    unlogged = Suppressed.until_window_closes(UNBOUNDED.with_logging_disabled())
    counted(builder).suppress(unlogged).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 1), ("a", "y", 2), ("b", "z", 30))
        assert read(driver, "out", KEYS, "long") == [(a(0), 2)]
        assert set(driver.produced_topic_names) == {"app-counts-changelog", "out"}


def test_keys_that_have_lost_their_windows_are_refused() -> None:
    """When the topology is compiled: the graph alone does not tell."""
    builder = StreamsBuilder()
    keys = counted(builder).to_stream().select_key(lambda key, value: key.key)
    keys.to_table().suppress(CLOSED).to_stream().to("out")
    with pytest.raises(TopologyException, match="final: it waits until windows close"):
        TopologyTestDriver(builder.build()).close()


def fold(stream: KStream, emit: EmitStrategy) -> Any:
    windowed = stream.group_by_key().windowed_by(WINDOWS).emit_strategy(emit)
    kept = Materialized.as_("texts").with_value_serde(Serdes.string())
    return windowed.aggregate(lambda: "", lambda key, value, text: text + value, kept)


def test_a_value_made_of_nothing_goes_on_too() -> None:
    """A window whose records are all passed over has a value, such as 0. One that is NULL is a deletion, and
    stays behind."""
    builder = StreamsBuilder()
    group = builder.stream("in", STRINGS).group_by_key().windowed_by(WINDOWS)
    for name, function in {
        "number": lambda value: F.count_if(value == "x"),
        "most": lambda value: F.max(F.when(value == "x", value)),
    }.items():
        group.aggregate(function).suppress(Suppressed.until_window_closes(UNBOUNDED)).to_stream().to(name)
        on_close = group.emit_strategy(EmitStrategy.on_window_close())
        on_close.aggregate(function).to_stream().to(f"{name}-on-close")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "y", 1), ("a", "x", 12), ("a", "y", 99))
        for kind in ("", "-on-close"):
            assert read(driver, f"number{kind}", KEYS, "long") == [(a(0), 0), (a(10), 1)]
            assert read(driver, f"most{kind}", KEYS, "string") == [(a(10), "x")]


def test_folds_in_python_go_on_when_their_windows_close() -> None:
    """The store has every value, as with Spark's functions."""
    builder = StreamsBuilder()
    fold(builder.stream("in", STRINGS), EmitStrategy.on_window_close()).to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 1), ("b", "y", 2))
        assert driver.get_window_store("texts").fetch("a", 0) == "x"
        pipe(driver, "in", ("a", "z", 3), ("a", "v", 14))
        assert read(driver, "out", KEYS) == []
        assert driver.get_window_store("texts").fetch("a", 0) == "xz"
        pipe(driver, "in", ("b", "w", 15))
        assert read(driver, "out", KEYS) == [(a(0), "xz"), (a(0, "b"), "y")]


def test_what_closes_is_counted_behind_it_once() -> None:
    """Two aggregations in a row, of which the second gets final values only."""
    builder = StreamsBuilder()
    closed = counted(builder, EmitStrategy.on_window_close()).to_stream()
    closed.map(lambda key, value: (F.lit("all"), value)).group_by_key().count(Materialized.as_("closed"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x", 1), ("a", "y", 2), ("b", "z", 12))
        pipe(driver, "in", ("a", "x", 99))
        assert rows(driver, "closed") == {"all": 2}
