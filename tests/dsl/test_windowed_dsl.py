"""Windows and windowed groups as they are written: checks, names of stores, serdes; without Spark."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from millstream import (
    DailyTimeWindows,
    EmitStrategy,
    KGroupedStream,
    Materialized,
    Serdes,
    SerializationException,
    SessionWindow,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindow,
    TimeWindows,
    Topology,
    TopologyException,
    UnlimitedWindows,
    Windowed,
    WindowedSerdes,
)
from millstream.dsl.options import Consumed
from millstream.model import MAX_TIMESTAMP_MS as MAX
from millstream.model import StoreKind
from millstream.topology.nodes import Aggregate, ColumnAggregation, Fold, Sink, Store

FIVE, ONE, NONE = timedelta(minutes=5), timedelta(minutes=1), timedelta(0)


def fold(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate


@pytest.fixture
def grouped(builder: StreamsBuilder) -> KGroupedStream:
    return builder.stream("in", Consumed.with_(Serdes.string(), Serdes.long())).group_by_key()


def only_aggregate(topology: Topology) -> Aggregate:
    (node,) = (node for node in topology.nodes if isinstance(node, Aggregate))
    return node


# --- windows ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TimeWindows.of_size_with_no_grace(NONE), "Window size (sizeMs) must be larger than zero"),
        (lambda: TimeWindows.of_size_with_no_grace(-ONE), "Window size (sizeMs) must be larger than zero"),
        (lambda: TimeWindows.of_size_and_grace(ONE, -ONE), "Grace period must not be negative"),
        (
            lambda: TimeWindows.of_size_with_no_grace(ONE).advance_by(NONE),
            "Window advancement interval should be more than zero",
        ),
        (
            lambda: TimeWindows.of_size_with_no_grace(ONE).advance_by(FIVE),
            "which is 60000 ms, but the given advancement interval is 300000 ms",
        ),
        (
            lambda: SlidingWindows.of_time_difference_with_no_grace(-ONE),
            "Window time difference must not be negative",
        ),
        (lambda: SlidingWindows.of_time_difference_and_grace(ONE, -ONE), "must not be negative"),
        (lambda: SessionWindows.of_inactivity_gap_with_no_grace(-ONE), "Gap time cannot be negative"),
        (lambda: SessionWindows.of_inactivity_gap_and_grace(ONE, -ONE), "must not be negative"),
        (lambda: TimeWindows.of_size_with_no_grace(60_000), "the size of windows is a timedelta"),  # type: ignore[arg-type]
        (lambda: SessionWindows.of_inactivity_gap_with_no_grace(None), "is a timedelta"),  # type: ignore[arg-type]
    ],
)
def test_windows_that_cannot_be_are_refused_in_kafkas_words(make: Any, message: str) -> None:
    """Sizes, advances, gaps and graces, each with the number that was given."""
    with pytest.raises(TopologyException, match=re.escape(message)):
        make()


def test_windows_are_values_of_whole_milliseconds() -> None:
    """They compare, and say what they are; parts of milliseconds are cut off, as Java does."""
    windows = TimeWindows.of_size_and_grace(FIVE, ONE)
    assert windows == TimeWindows.of_size_and_grace(timedelta(seconds=300, microseconds=7), ONE)
    assert (windows.size_ms, windows.advance_ms, windows.grace_ms) == (300_000, 300_000, 60_000)
    assert str(windows) == "windows of 5 min, grace 1 min"
    assert (
        str(windows.advance_by(timedelta(milliseconds=1500))) == "windows of 5 min every 1500 ms, grace 1 min"
    )
    assert str(SlidingWindows.of_time_difference_with_no_grace(NONE)) == "sliding windows of 0 ms, no grace"
    assert str(SessionWindows.of_inactivity_gap_and_grace(ONE, timedelta(hours=2))) == (
        "sessions with gaps of 1 min, grace 2 h"
    )


# --- stores ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "kind", "size_ms", "retention_ms"),
    [
        (TimeWindows.of_size_and_grace(FIVE, ONE), StoreKind.WINDOW, 300_000, 360_000),
        (SlidingWindows.of_time_difference_and_grace(FIVE, ONE), StoreKind.WINDOW, 300_000, 660_000),
        (SessionWindows.of_inactivity_gap_and_grace(FIVE, ONE), StoreKind.SESSION, None, 360_000),
        (SessionWindows.of_inactivity_gap_with_no_grace(NONE), StoreKind.SESSION, None, 1),
    ],
    ids=str,
)
def test_a_store_is_declared_as_its_windows_need_it(
    builder: StreamsBuilder, grouped: KGroupedStream, windows: Any, kind: Any, size_ms: Any, retention_ms: Any
) -> None:
    """Kind, size and the least retention; the key serde is that of the keys without their windows."""
    grouped.windowed_by(windows).count(Materialized.as_("s"))
    assert only_aggregate(builder.build()).stored == Store(
        "s",
        Serdes.string(),
        Serdes.long(),
        kind=kind,
        window_size_ms=size_ms,
        retention_ms=retention_ms,
    )


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        (
            TimeWindows.of_size_and_grace(FIVE, ONE),
            "The retention period of the window store s must be no smaller than its window size plus the "
            "grace period. Got size=[300000], grace=[60000], retention=[60000]",
        ),
        (
            SlidingWindows.of_time_difference_and_grace(FIVE, ONE),
            "The retention period of the window store s must be no smaller than 2 * time difference plus the "
            "grace period. Got time difference=[300000], grace=[60000], retention=[60000]",
        ),
        (
            SessionWindows.of_inactivity_gap_and_grace(FIVE, ONE),
            "The retention period of the session store s must be no smaller than the session inactivity gap "
            "plus the grace period. Got gap=[300000], grace=[60000], retention=[60000]",
        ),
    ],
    ids=str,
)
def test_a_retention_that_loses_open_windows_is_refused(
    builder: StreamsBuilder, grouped: KGroupedStream, windows: Any, message: str
) -> None:
    """In Kafka's words; and nothing is left of the refused step, no name and no number."""
    with pytest.raises(TopologyException, match=re.escape(message)):
        grouped.windowed_by(windows).count(Materialized.as_("s").with_retention(ONE))
    grouped.windowed_by(windows).count(Materialized.as_("s").with_retention(timedelta(days=1)))
    node = only_aggregate(builder.build())
    assert (node.name, node.stored.retention_ms) == ("KSTREAM-AGGREGATE-0000000001", 86_400_000)


def test_a_retention_is_for_windowed_stores_and_positive(grouped: KGroupedStream) -> None:
    """A key-value store has none; a negative one, or a number, is refused at once."""
    with pytest.raises(TopologyException, match="is for the stores of windowed aggregations"):
        grouped.count(Materialized.as_("s").with_retention(ONE))
    with pytest.raises(TopologyException, match="Retention must not be negative"):
        Materialized.as_("s").with_retention(-ONE)
    with pytest.raises(TopologyException, match="the retention of Materialized is a timedelta"):
        Materialized.as_("s").with_retention(1000)  # type: ignore[arg-type]


# --- aggregations ----------------------------------------------------------------------------------------


def test_each_form_of_aggregate_is_understood(builder: StreamsBuilder, grouped: KGroupedStream) -> None:
    """An expression, or Python functions, with a merger for sessions; each with a Materialized behind it."""
    time = grouped.windowed_by(TimeWindows.of_size_with_no_grace(FIVE))
    session = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(FIVE))
    time.aggregate(lambda key, value: value, Materialized.as_("a"))
    time.aggregate(lambda: 0, fold, Materialized.as_("b"))
    session.aggregate(lambda key, value: value, materialized=Materialized.as_("c"))
    session.aggregate(lambda: 0, fold, fold, Materialized.as_("d"), named="named")
    session.reduce(lambda one, other: one, Materialized.as_("e"))
    found = {n.stored.name: n for n in builder.build().nodes if isinstance(n, Aggregate)}
    assert {type(found[name].aggregation) for name in "ac"} == {ColumnAggregation}
    folds = [found[name].aggregation for name in "bde"]
    assert [(f.initializer is None, f.merger is None) for f in folds if isinstance(f, Fold)] == [
        (False, True),
        (False, False),
        (True, True),
    ]
    assert found["d"].name == "named"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, t, s: g.windowed_by(FIVE), "takes TimeWindows, SlidingWindows or SessionWindows"),
        (lambda g, t, s: s.aggregate(lambda: 0, fold), "also needs a merger"),
        (lambda g, t, s: s.aggregate(lambda: 0, fold, lambda one, other: one), "merger of aggregate() is a"),
        (lambda g, t, s: t.aggregate(lambda: 0, fold, fold), "is one function too many"),
        (lambda g, t, s: t.aggregate(lambda: 0, lambda one: one), "the adder of aggregate() is a function"),
        (lambda g, t, s: t.aggregate(5), "aggregate() takes a function"),
        (lambda g, t, s: s.reduce(lambda: 0), "reduce() takes"),
        (lambda g, t, s: t.count("counts"), "count() takes a Materialized here"),
    ],
)
def test_other_forms_are_refused_with_what_to_write(grouped: KGroupedStream, call: Any, message: str) -> None:
    """A merger where there is none to be, none where there has to be one, and so on."""
    time = grouped.windowed_by(TimeWindows.of_size_with_no_grace(FIVE))
    session = grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(FIVE))
    with pytest.raises(TopologyException, match=re.escape(message)):
        call(grouped, time, session)


def test_explain_shows_windows_and_how_long_stores_keep_them(
    builder: StreamsBuilder, grouped: KGroupedStream
) -> None:
    """One line for each windowed aggregation."""
    windows = SessionWindows.of_inactivity_gap_and_grace(FIVE, ONE)
    grouped.windowed_by(windows).count(Materialized.as_("visits"))
    text = builder.build().explain()
    assert "windows:  sessions with gaps of 5 min, grace 1 min (KSTREAM-AGGREGATE-0000000001)" in text
    assert "session store visits in RocksDB for 0:06:00, changelog <application.id>-visits-changelog" in text


# --- serdes ----------------------------------------------------------------------------------------------

TIME = WindowedSerdes.time_windowed_serde_from(Serdes.string(), timedelta(seconds=5))
SESSION = WindowedSerdes.session_windowed_serde_from(Serdes.string())
OF_LONGS = WindowedSerdes.session_windowed_serde_from(Serdes.long())


@pytest.mark.parametrize(
    ("serde", "value", "data"),
    [
        (TIME, Windowed("ab", TimeWindow(5000, 10000)), "61620000000000001388"),
        (SESSION, Windowed("ab", SessionWindow(5000, 10000)), "616200000000000027100000000000001388"),
        (
            OF_LONGS,
            Windowed(-1, SessionWindow(5000, 10000)),
            "ffffffffffffffff00000000000027100000000000001388",
        ),
        (TIME, Windowed("", TimeWindow(0, 5000)), "0000000000000000"),
    ],
)
def test_windowed_keys_have_kafkas_bytes(serde: Any, value: Any, data: str) -> None:
    """As Kafka's own serializers wrote these; and they are read back."""
    assert serde.serialize(value) == bytes.fromhex(data)
    assert serde.deserialize(bytes.fromhex(data)) == value
    assert (serde.serialize(None), serde.deserialize(None)) == (None, None)


def test_windowed_serdes_are_values_that_say_how_they_are_made() -> None:
    """They compare, can be pickled, and refuse what is no windowed key, without showing what it is."""
    assert pickle.loads(pickle.dumps(TIME)) == TIME != SESSION
    assert repr(TIME) == (
        "WindowedSerdes.time_windowed_serde_from(Serdes.string(), datetime.timedelta(seconds=5))"
    )
    assert repr(SESSION) == "WindowedSerdes.session_windowed_serde_from(Serdes.string())"
    with pytest.raises(SerializationException, match="takes a Windowed, such as"):
        TIME.serialize("ab")
    with pytest.raises(SerializationException, match="cannot read these 3 bytes: it takes a key and 8 bytes"):
        TIME.deserialize(b"abc")
    with pytest.raises(TopologyException, match="is made from the serde of the keys, got 'string'"):
        WindowedSerdes.session_windowed_serde_from("string")  # type: ignore[arg-type]
    with pytest.raises(TopologyException, match=r"the size of windows is a timedelta, .* got 5000"):
        WindowedSerdes.time_windowed_serde_from(Serdes.string(), 5000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("windows", "serde"),
    [
        (TimeWindows.of_size_with_no_grace(timedelta(seconds=5)), TIME),
        (SlidingWindows.of_time_difference_with_no_grace(timedelta(seconds=5)), TIME),
        (SessionWindows.of_inactivity_gap_with_no_grace(FIVE), SESSION),
    ],
    ids=str,
)
def test_a_sink_behind_windows_writes_windowed_keys_unasked(
    builder: StreamsBuilder, grouped: KGroupedStream, windows: Any, serde: Any
) -> None:
    """The serde of the group's keys, with the windows'."""
    grouped.windowed_by(windows).count().to_stream().to("out")
    (sink,) = (node for node in builder.build().nodes if isinstance(node, Sink))
    assert sink.key_serde == serde


# --- all time, and which windows there are ------------------------------------------------------------------


def test_the_windows_of_a_time_are_kafkas() -> None:
    """TimeWindowsTest.shouldComputeWindowsForHoppingWindows and its neighbours: none begins before 1970."""
    size, step = timedelta(milliseconds=12), timedelta(milliseconds=5)
    hopping = TimeWindows.of_size_with_no_grace(size).advance_by(step)
    assert hopping.windows_for(21) == {start: TimeWindow(start, start + 12) for start in (10, 15, 20)}
    assert list(hopping.windows_for(3)) == [0]
    assert list(TimeWindows.of_size_with_no_grace(size).windows_for(21)) == [12]
    assert [str(Windowed("a", window)) for window in hopping.windows_for(21).values()] == [
        "[a@10/22]",
        "[a@15/27]",
        "[a@20/32]",
    ]


def test_unlimited_windows_may_begin_later() -> None:
    """UnlimitedWindowsTest: what is before the start is in no window; a start before 1970 is refused."""
    windows = UnlimitedWindows.of().start_on(datetime(2026, 1, 1, tzinfo=UTC))
    start = 1_767_225_600_000
    assert windows.windows_for(start - 1) == {}
    assert windows.windows_for(start) == windows.windows_for(start + 1) == {start: TimeWindow(start, MAX)}
    assert str(windows) == "unlimited windows from 2026-01-01 00:00:00+0000"
    assert (
        windows != UnlimitedWindows.of() == UnlimitedWindows.of().start_on(datetime(1970, 1, 1, tzinfo=UTC))
    )
    with pytest.raises(TopologyException, match="cannot be negative, got -1 ms"):
        UnlimitedWindows.of().start_on(datetime(1970, 1, 1, tzinfo=UTC) - timedelta(milliseconds=1))
    for wrong in (datetime(2026, 1, 1), 5, None):
        with pytest.raises(TopologyException, match="a datetime with a time zone, such as"):
            UnlimitedWindows.of().start_on(wrong)  # type: ignore[arg-type]


def test_days_of_a_time_zone_are_23_to_25_hours_long() -> None:
    """From one hour of the clock to the same one of the next day."""
    days = DailyTimeWindows.of("Europe/Berlin", start_hour=2, grace=FIVE)
    assert str(days) == "days of Europe/Berlin from 02:00, grace 5 min"
    assert days == DailyTimeWindows.of(ZoneInfo("Europe/Berlin"), start_hour=2, grace=FIVE)

    def hours(*times: int) -> list[float]:
        (window,) = days.windows_for(int(datetime(*times, tzinfo=UTC).timestamp() * 1000)).values()
        return [(window.end_ms - window.start_ms) / 3_600_000, window.start.hour]

    assert hours(2026, 3, 28, 12) == [24, 1]
    assert hours(2026, 3, 29, 12) == [23, 1]  # at 2 it was 3
    assert hours(2026, 10, 25, 12) == [25, 0]  # the first 2 of two
    assert hours(2026, 10, 26, 12) == [24, 1]
    with pytest.raises(TopologyException, match="each begins when the previous one ends"):
        days.advance_by(ONE)
    with pytest.raises(TopologyException, match="days have no other size"):
        DailyTimeWindows.of_size_with_no_grace(ONE)
    wrong: Any
    for wrong in ("Berlin", "../x", 5):
        with pytest.raises(TopologyException, match="time zone"):
            DailyTimeWindows.of(wrong)
    for wrong in (-1, 24, "6", True):
        with pytest.raises(TopologyException, match="from 0 to 23"):
            DailyTimeWindows.of("UTC", start_hour=wrong)


def test_unlimited_windows_are_one_window() -> None:
    """It begins in 1970, does not advance, and is not waited for."""
    windows = UnlimitedWindows.of()
    assert list(windows.windows_for(1_700_000_000_000)) == [0]
    assert windows.windows_for(0)[0].end.year == 9999
    assert str(windows) == "unlimited windows"
    assert windows != TimeWindows.of_size_with_no_grace(timedelta(milliseconds=windows.size_ms))
    with pytest.raises(TopologyException, match="there is one for all time"):
        windows.advance_by(ONE)
    with pytest.raises(TopologyException, match="have no size"):
        UnlimitedWindows.of_size_and_grace(ONE, ONE)
    grouped = StreamsBuilder().stream("in").group_by_key().windowed_by(windows)
    with pytest.raises(TopologyException, match="they never close"):
        grouped.emit_strategy(EmitStrategy.on_window_close())
    with pytest.raises(TopologyException, match="must be no smaller than its window size"):
        grouped.count(Materialized.as_("all").with_retention(ONE))
