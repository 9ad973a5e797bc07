"""A checkpoint belongs to the windows that it was made with, and to the joins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from millstream import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KTable,
    Materialized,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from millstream.checkpoints.checkpoints import Fingerprint, fingerprint
from millstream.topology.windows import Windows

FIVE, ONE = timedelta(minutes=5), timedelta(minutes=1)


def of(windows: Windows | None) -> Fingerprint:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    materialized = Materialized.as_("s")
    if windows is None:
        grouped.count(materialized)
    else:
        grouped.windowed_by(windows).count(materialized.with_retention(timedelta(days=1)))
    (pipeline,) = builder.build().pipelines
    return fingerprint(pipeline)


def test_other_windows_are_another_program_under_a_checkpoint() -> None:
    """Size, advance, grace and kind are all in Spark's state; a retention is not, and may change."""
    tumbling = TimeWindows.of_size_with_no_grace(FIVE)
    different = [
        None,
        tumbling,
        tumbling.advance_by(ONE),
        TimeWindows.of_size_and_grace(FIVE, ONE),
        SessionWindows.of_inactivity_gap_with_no_grace(FIVE),
    ]
    assert len({of(windows) for windows in different}) == len(different)
    assert of(tumbling) == of(TimeWindows.of_size_with_no_grace(timedelta(seconds=300)))
    assert of(None).stores == ("Aggregate s",), "as it was before there were windows"


def fingerprint_of(make: Callable[[KTable], object], emit: EmitStrategy | None = None) -> Fingerprint:
    builder = StreamsBuilder()
    group = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(FIVE))
    table = (group if emit is None else group.emit_strategy(emit)).count(Materialized.as_("s"))
    make(table)
    (pipeline,) = builder.build().pipelines
    return fingerprint(pipeline)


def test_what_goes_on_when_is_a_part_of_the_program_under_a_checkpoint() -> None:
    """An emit strategy, a suppress, its time and where it stands; its limits may change."""
    closed = Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("held")
    slow, slower = (Suppressed.until_time_limit(time, BufferConfig.max_records(9)) for time in (ONE, FIVE))

    def suppressed(how: Suppressed) -> Fingerprint:
        return fingerprint_of(lambda table: table.suppress(how.with_name("held")))

    different = [
        fingerprint_of(lambda table: table),
        fingerprint_of(lambda table: table, EmitStrategy.on_window_close()),
        suppressed(closed),
        suppressed(slow),
        suppressed(slower),
        fingerprint_of(lambda table: table.filter(lambda value: value).suppress(closed)),
        fingerprint_of(lambda table: table.to_stream().group_by_key().count(Materialized.as_("held"))),
    ]
    assert len(set(different)) == len(different)
    assert fingerprint_of(lambda table: table, EmitStrategy.on_window_update()) == different[0]
    limited = Suppressed.until_window_closes(BufferConfig.max_bytes(7).shut_down_when_full())
    assert suppressed(limited) == suppressed(closed)


def test_aggregations_in_a_row_are_not_those_side_by_side() -> None:
    """Spark keeps the state of the former in two operators."""

    def of_two(in_a_row: bool) -> Fingerprint:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        first = stream.group_by_key().count(Materialized.as_("one")).to_stream()
        (first if in_a_row else stream).group_by_key().count(Materialized.as_("two"))
        (pipeline,) = builder.build().pipelines
        return fingerprint(pipeline)

    assert of_two(True) != of_two(False)
    assert of_two(True).operators == ("one aggregate", "two aggregate behind one")


def test_what_is_behind_a_join_does_not_depend_on_what_nobody_named() -> None:
    """A left join in place of an inner one, or a step in front of it, leaves its state what it is."""

    def counted(operation: str, *, step: bool = False) -> Fingerprint:
        builder = StreamsBuilder()
        stream = builder.stream("in")
        if step:
            stream = stream.filter(lambda value: value != "no")
        table = builder.table("rows", Materialized.as_("rows"))
        joined = getattr(stream, operation)(table, lambda left, right: left)
        joined.group_by_key().count(Materialized.as_("counts"))
        (pipeline,) = builder.build().pipelines
        return fingerprint(pipeline)

    assert counted("join").operators == ("counts aggregate behind StreamTableJoin",)
    assert counted("join") == counted("left_join") == counted("join", step=True)


def test_a_join_of_streams_belongs_to_its_stores() -> None:
    """Another kind of join has others, so that it is refused before anybody looks for their topics."""

    def stores(operation: str) -> tuple[str, ...]:
        builder = StreamsBuilder()
        left, right = builder.stream("a"), builder.stream("b")
        windows = JoinWindows.of_time_difference_with_no_grace(ONE)
        getattr(left, operation)(right, lambda one, other: one, windows, StreamJoined.as_("s"))
        (pipeline,) = builder.build().pipelines
        return fingerprint(pipeline).stores

    assert stores("join") == ("StreamJoin s-this-join-store", "StreamJoin s-other-join-store")
    assert len({stores(operation) for operation in ("join", "left_join", "outer_join")}) == 3
