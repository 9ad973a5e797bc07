"""Windowed aggregations on Spark: what functions and stores see, what is kept, and what is refused.

What comes of records is compared with Kafka Streams in test_traces_on_spark.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from driving import STRINGS, pipe, read, rows
from engine_world import EngineWorld
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import (
    Consumed,
    Grouped,
    KGroupedStream,
    KTable,
    Materialized,
    PipelineException,
    Serde,
    Serdes,
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
from millstream.broker import EmbeddedKafka
from millstream.model import MAX_TIMESTAMP_MS
from millstream.testing import TopologyTestDriver
from millstream.topology.windows import Windows

pytestmark = pytest.mark.spark


def ms(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def key_serde(windows: Windows, inner: Serde | None = None) -> Serde:
    """Of what comes out of these windows."""
    inner = inner or Serdes.string()
    if isinstance(windows, SessionWindows):
        return WindowedSerdes.session_windowed_serde_from(inner)
    return WindowedSerdes.time_windowed_serde_from(inner, ms(windows.size_ms))


def grouped(builder: StreamsBuilder, topic: str = "in") -> KGroupedStream:
    return builder.stream(topic, STRINGS).group_by_key()


# --- what functions and stores see -----------------------------------------------------------------------


def test_a_windowed_key_is_a_struct_of_key_and_window_and_a_windowed_in_stores() -> None:
    """Lambdas take `key.key` and `key.window.start`; stores and serdes give `Windowed`s, tables filter."""
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(ms(10))
    table = grouped(builder).windowed_by(windows).count(Materialized.as_("counts"))
    big = table.filter(lambda key, value: value > 1, Materialized.as_("big"))
    big.to_stream().map(
        lambda key, value: (
            key.key,
            F.concat_ws("/", F.unix_millis(key.window.start), F.unix_millis(key.window.end), value),
        )
    ).to("flat")
    table.to_stream(lambda key, value: key.key).to("keys")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 3), ("a", "y", 12), ("a", "z", 14), ("b", "x", 15))
        assert read(driver, "flat") == [("a", "10/20/2")]  # and no deletion of what was never there
        assert sorted(key for key, _ in read(driver, "keys", value="long")) == ["a", "a", "b"]
        store = driver.get_window_store("counts")
        assert store.fetch("a", 10) == 2
        assert store[Windowed("b", TimeWindow(10, 20))] == 1
        assert driver.get_timestamped_window_store("counts").fetch("a", 10).timestamp == 14  # type: ignore[union-attr]
        assert rows(driver, "big") == {Windowed("a", TimeWindow(10, 20)): 2}
        changelog = read(driver, "app-counts-changelog", "bytes", "long")
        assert sorted(changelog)[0] == (b"a" + bytes(8) + bytes(4), 1)
        assert (b"b" + (10).to_bytes(8, "big") + bytes(4), 1) in changelog


def test_a_windowed_table_is_grouped_by_another_key_of_the_same_window() -> None:
    """The new key is a struct as the old one is; what a window of one user gave is taken back by it."""
    builder = StreamsBuilder()
    windows = TimeWindows.of_size_with_no_grace(ms(10))
    serde = key_serde(windows)
    (
        grouped(builder)
        .windowed_by(windows)
        .count()
        .group_by(
            lambda key, value: (F.struct(F.lit("all").alias("key"), key.window.alias("window")), value),
            Grouped.with_(serde, Serdes.long()),
        )
        .aggregate(lambda key, value: F.sum(value))
        .to_stream()
        .to("out")
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x", 1), ("b", "x", 2), ("a", "x", 11), ("a", "x", 12))
        pipe(driver, "in", ("b", "x", 13))
        first, second = (Windowed("all", TimeWindow(start, start + 10)) for start in (0, 10))
        assert read(driver, "out", serde, "long") == [(first, 2), (second, 2), (second, 3)]


def test_sessions_that_merge_are_deleted_from_store_and_changelog() -> None:
    """A record between two sessions makes one of them: two deletions, one session, in Kafka's layout."""
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(ms(5), ms(100))
    grouped(builder).windowed_by(windows).count(Materialized.as_("sessions"))
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 3), ("a", "y", 12))
        store = driver.get_session_store("sessions")
        with store.fetch("a") as found:
            assert [key.window for key, _ in found] == [SessionWindow(3, 3), SessionWindow(12, 12)]
        pipe(driver, "in", ("a", "z", 8))
        with store.fetch("a") as found:
            assert list(found) == [(Windowed("a", SessionWindow(3, 12)), 3)]
        changelog = read(driver, "app-sessions-changelog", "bytes", "long")[-3:]

        def layout(start: int, end: int) -> bytes:
            return b"a" + end.to_bytes(8, "big") + start.to_bytes(8, "big")

        # One commit's, in whatever order.
        assert dict(changelog) == {layout(3, 3): None, layout(12, 12): None, layout(3, 12): 3}


def test_windowed_records_are_read_back_by_their_serde(spark: SparkSession) -> None:
    """A topic of windowed keys is read as such; bytes that are too short end the query, with a length."""
    builder = StreamsBuilder()
    for name, serde in (
        ("time", WindowedSerdes.time_windowed_serde_from(Serdes.long(), ms(10))),
        ("session", WindowedSerdes.session_windowed_serde_from(Serdes.long())),
    ):
        stream = builder.stream(name, Consumed.with_(serde, Serdes.string()))
        stream.to(f"{name}-copy")
        stream.select_key(lambda key, value: key.key + F.unix_millis(key.window.end)).to(f"{name}-sum")
    with TopologyTestDriver(builder.build()) as driver:
        for name, window in (("time", TimeWindow(20, 30)), ("session", SessionWindow(20, 30))):
            inner = Serdes.long()
            sizes = WindowedSerdes.time_windowed_serde_from(inner, ms(10))
            serde = sizes if name == "time" else WindowedSerdes.session_windowed_serde_from(inner)
            pipe(driver, name, (Windowed(7, window), "x"), (None, "y"), key=serde)
            assert read(driver, f"{name}-copy", serde) == [(Windowed(7, window), "x"), (None, "y")]
            assert read(driver, f"{name}-sum", "long") == [(37, "x"), (None, "y")]
        with pytest.raises(Exception, match="serde 'windowed' cannot read these 3 bytes"):
            pipe(driver, "session", (b"abc", "x"), key="bytes")


SKETCH = "02010704030002082BF2FB06862FF90D000000000000000000000000000000000000000000000000"
"""Of two numbers, as hll_sketch_agg has it."""


# --- partial results that are merged ---------------------------------------------------------------------


def test_every_mergeable_function_gives_what_spark_gives_for_all_records_at_once(
    spark: SparkSession,
) -> None:
    """In sessions that grow and merge: count, sum, avg, min, max, and and or, lists, of each type, within
    expressions; NULLs left out; NaN the largest."""

    def everything(key: Column, value: Column) -> dict[str, Any]:
        number = F.try_to_number(value, F.lit("S999.99"))
        double = F.when(value == "nan", F.lit(float("nan"))).otherwise(number.cast("double"))
        return {
            "n": F.count("*"),
            "some": F.count(number),
            "sum": F.sum(number.cast("int")),
            "decimal": F.sum(number),
            "mean": F.avg(number),
            "double": F.round(F.sum(number.cast("double")) / F.count(number), 3),
            "avg": F.avg(number.cast("long")),
            "least": F.min(double),
            "most": F.max(double).cast("string"),
            "text": F.coalesce(F.max(value), F.lit("none")),
            "day": F.max(F.date_add(F.lit("2024-01-01").cast("date"), number.cast("int"))),
            "moment": F.min(F.timestamp_micros(number.cast("long") + F.lit(1_700_000_000_123_456))),
            "all": F.bool_and(number > 0),
            "any": F.bool_or(number > 20),
            "list": F.sort_array(F.collect_list(number)),
            "case": F.when(F.count("*") > 2, F.lit("many")).otherwise(F.lit("few")),
            "approx": F.approx_count_distinct(number),
            "sketch": F.hll_sketch_estimate(F.hll_sketch_agg(value)),
            "numbers": F.hll_sketch_agg(number.cast("int"), 10),
            "pairs": F.count_distinct(F.encode(value, "utf-8"), F.lit(1)),
            "zeros": F.count_distinct(F.when(number > 0, F.lit(0.0)).otherwise(F.lit(-0.0))),
            "union": F.hll_sketch_estimate(F.hll_union_agg(F.unhex(F.lit(SKETCH)))),
        }

    values = ("1.25", "-7", "nan", "33.33", "0.01", "xyz", "12")
    columns = (column.alias(name) for name, column in everything(F.lit("k"), F.col("value")).items())
    all_at_once = spark.createDataFrame([(value,) for value in values], "value string").agg(*columns)
    [expected] = [row[0] for row in all_at_once.select(F.to_json(F.struct("*"))).collect()]

    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.aggregate(everything).to_stream().to("whole")
    sessions = SessionWindows.of_inactivity_gap_and_grace(ms(1000), ms(5000))
    stream.windowed_by(sessions).aggregate(everything).to_stream().to("merged")
    with TopologyTestDriver(builder.build()) as driver:
        for value, at in zip(values, (0, 900, 1800, 3500, 2700, 2701, 2702), strict=True):
            pipe(driver, "in", ("k", value, at))
        assert read(driver, "whole")[-1] == ("k", expected)
        assert read(driver, "merged", key_serde(sessions))[-1] == (
            Windowed("k", SessionWindow(0, 3500)),
            expected,
        )
    assert '"n":7' in expected


def test_python_folds_merge_sessions_by_their_merger_and_reductions_by_themselves() -> None:
    """Decimals, in a serde of JSON; a reduce takes its own function for merging."""

    def add(key: str, value: str, total: dict[str, Any]) -> dict[str, Any]:
        return {"total": str(Decimal(total["total"]) + Decimal(value)), "n": total["n"] + 1}

    def merge(key: str, one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
        total = Decimal(one["total"]) + Decimal(other["total"])
        return {"total": str(total), "n": one["n"] + other["n"]}

    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_and_grace(ms(5), ms(100))
    stream = grouped(builder).windowed_by(windows)
    materialized = Materialized.as_("totals").with_value_serde(Serdes.json("total string, n long"))
    stream.aggregate(lambda: {"total": "0", "n": 0}, add, merge, materialized)
    stream.reduce(lambda aggregate, value: max(aggregate, value), Materialized.as_("latest"))
    with TopologyTestDriver(builder.build()) as driver:
        for value, at in (("1.10", 3), ("2.2", 12), ("9", 8)):
            pipe(driver, "in", ("a", value, at))
        with driver.get_session_store("totals").fetch("a") as found:
            assert [value for _, value in found] == [{"total": "12.30", "n": 3}]
        with driver.get_session_store("latest").fetch("a") as found:
            assert [value for _, value in found] == ["9"]


@pytest.mark.parametrize(
    "windows",
    [
        TimeWindows.of_size_with_no_grace(ms(5)),
        SlidingWindows.of_time_difference_with_no_grace(ms(5)),
        SessionWindows.of_inactivity_gap_with_no_grace(ms(5)),
    ],
    ids=lambda windows: type(windows).__name__,
)
@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            lambda key, value: F.percentile_approx(value.cast("int"), 0.5),
            r"percentile_approx\(\) cannot",
        ),
        (
            lambda key, value: F.sum(value.cast("int")) + F.median(value.cast("int")),
            r"median\(\) cannot be",
        ),
        (lambda key, value: F.sum_distinct(value.cast("int")), r"sum\(DISTINCT …\) cannot be merged"),
        (lambda key, value: value, "has to use Spark's aggregate functions"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_place(
    expression: Any, message: str, windows: Windows
) -> None:
    """Windows are merged from partial results: the message names the function, its line, what there is."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().windowed_by(windows).aggregate(expression)
    with pytest.raises(TopologyException, match=message) as caught:
        TopologyTestDriver(builder.build())
    assert "KSTREAM-AGGREGATE-0000000002 (test_windows.py:" in str(caught.value)


def test_distinct_values_are_estimated_from_sketches_that_are_merged() -> None:
    """Beside an aggregation that it can merge, of the same stream."""
    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.aggregate(lambda value: F.approx_count_distinct(value), Materialized.as_("distinct"))
    stream.count(Materialized.as_("counts"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x"), ("a", "y"), ("b", "x"))
        pipe(driver, "in", ("a", "x"), ("a", "z"))
        assert rows(driver, "distinct") == {"a": 3, "b": 1}
        assert rows(driver, "counts") == {"a": 4, "b": 1}


@pytest.mark.parametrize("windows", [None, SessionWindows.of_inactivity_gap_with_no_grace(ms(5))], ids=str)
def test_a_sum_that_does_not_fit_ends_the_query(windows: Windows | None) -> None:
    """Nothing wraps around or becomes NULL; the message says what to do."""
    builder = StreamsBuilder()
    stream: Any = grouped(builder)
    stream = stream if windows is None else stream.windowed_by(windows)
    stream.aggregate(lambda key, value: F.sum(value.cast("long"))).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", str(2**63 - 1), 1))
        with pytest.raises(
            PipelineException, match="its query failed: a sum does not fit a bigint; sum decimals or doubles"
        ):
            pipe(driver, "in", ("a", "1", 2))


# --- null values, and what is late ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("windows", "counts"),
    [
        (TimeWindows.of_size_with_no_grace(ms(10)), 2),
        (SessionWindows.of_inactivity_gap_with_no_grace(ms(10)), 2),
        (SlidingWindows.of_time_difference_with_no_grace(ms(10)), 1),
    ],
    ids=lambda each: type(each).__name__,
)
def test_time_windows_and_sessions_have_null_values_too(windows: Windows, counts: int) -> None:
    """As in Kafka Streams, whoever folds; sliding windows pass over them, and none has a null key or a
    negative timestamp."""
    builder = StreamsBuilder()
    stream: Any = builder.stream("in", STRINGS).group_by_key().windowed_by(windows)
    stream.count().to_stream().to("counts")
    functions: list[Any] = [lambda: "", lambda key, value, aggregate: f"{aggregate}{value}"]
    if isinstance(windows, SessionWindows):
        functions.append(lambda key, one, other: one + other)
    stream.aggregate(*functions, Materialized.with_(value_serde=Serdes.string())).to_stream().to("folds")
    config = {"default.timestamp.extractor": "LogAndSkipOnInvalidTimestamp"}
    with TopologyTestDriver(builder.build(), config) as driver:
        pipe(driver, "in", ("a", "x", 10), ("a", None, 10), (None, "y", 11), ("a", "z", -1))
        assert [value for _, value in read(driver, "counts", key_serde(windows), "long")] == [counts]
        folds = [value for _, value in read(driver, "folds", key_serde(windows))]
        assert folds == ["xNone" if counts == 2 else "x"]


def test_what_is_late_is_counted_and_told_with_its_window_and_stream_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By aggregation, in the metric of what is dropped. No threshold of failed records knows of it."""
    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.count()
    stream.windowed_by(TimeWindows.of_size_and_grace(ms(10), ms(5)).advance_by(ms(5))).count()
    stream.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(ms(3))).count()
    config = {"errors.continue.max.ratio": 0.01}
    with TopologyTestDriver(builder.build(), config) as driver, caplog.at_level(logging.WARNING):
        pipe(driver, "in", *[("a", "x", 100 + n) for n in range(150)], ("b", "y", 236), ("a", "late", 7))
        # Windows: of 236 the one of 230, which closed at 245, and both of 7. Sessions: both records.
        assert driver.dropped_records == 1 + 2 + 2
        driver._pipelines[0].drops.flush()
    said = " ".join(record.getMessage() for record in caplog.records)
    assert "some came too late for their windows: " in said
    assert (
        "in KSTREAM-AGGREGATE-0000000004, such as one of 236 for the window [230,240] at stream time 249"
        in said
    )
    assert "of 152 records" in said
    assert "dead.letter" not in said


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark)
    yield world
    world.close()


def test_windows_go_on_after_a_restart(world: EngineWorld) -> None:
    """Open windows, their values and stream time: all there after a restart, on a real broker, and what was
    late before is late after it. Changelog records carry the timestamps of records."""
    source = world.topic("windows")

    def topology() -> Topology:
        builder = StreamsBuilder()
        stream = grouped(builder, source)
        stream.windowed_by(TimeWindows.of_size_with_no_grace(ms(10))).count(Materialized.as_("time"))
        sessions = SessionWindows.of_inactivity_gap_with_no_grace(ms(10))
        stream.windowed_by(sessions).count(Materialized.as_("sessions"))
        return builder.build()

    def send(*times: int) -> None:
        for at in times:
            world.producer.produce(source, key="a", value="x", timestamp=at)
        assert world.producer.flush(20) == 0

    def changes(store: str, count: int) -> list[tuple[bytes, int | None]]:
        messages = world.read(f"{world.application_id}-{store}-changelog", count)
        found = []
        for message in messages:
            key, value = message.key() or b"", message.value()
            found.append((key[1:], None if value is None else int.from_bytes(value, "big")))
        return found

    def window(start: int) -> bytes:
        return start.to_bytes(8, "big") + bytes(4)

    def session(start: int, end: int) -> bytes:
        return end.to_bytes(8, "big") + start.to_bytes(8, "big")

    base = 1_700_000_000_000
    (compiled,) = world.compiled(topology())
    running = world.start(compiled)
    send(base + 1, base + 12)
    assert sorted(changes("time", 2)) == [(window(base), 1), (window(base + 10), 1)]
    assert sorted(changes("sessions", 2)) == [
        (session(base + 1, base + 1), 1),
        (session(base + 12, base + 12), 1),
    ]
    world.wait_until_committed(source, 2)
    running.stop()
    assert world.wait_for_end() is None
    running = world.start(compiled)
    # Late for the first window. Within the gap of both sessions, but the first one is over for so long that
    # Kafka Streams' store has dropped it: so it is not merged. Stream time is that of before the restart.
    send(base + 2)
    wait_until(lambda: len(changes("sessions", 4)) == 4, "the session has grown", 30)
    send(base + 13)
    assert changes("time", 3)[2:] == [(window(base + 10), 2)]
    found = changes("sessions", 6)  # those of one commit in whatever order
    assert dict(found[2:4]) == {session(base + 12, base + 12): None, session(base + 2, base + 12): 2}
    assert dict(found[4:]) == {session(base + 2, base + 12): None, session(base + 2, base + 13): 3}
    running.stop()


def test_operators_of_every_kind_and_of_two_sources_are_one_query() -> None:
    """Windowed, and folded by Python without windows, of two streams that meet in one output: one pipeline,
    and each stream has its own stream time."""
    builder = StreamsBuilder()
    made = []
    for topic in ("left", "right"):
        stream = builder.stream(topic, STRINGS)
        sessions = stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(ms(5)))
        by_time = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(ms(5)))
        fold = Materialized.as_(f"fold-{topic}").with_value_serde(Serdes.string())
        stream.group_by_key().aggregate(lambda: "", lambda key, value, aggregate: aggregate + value, fold)
        by_time.count(Materialized.as_(f"time-{topic}"))
        made.append(sessions.count(Materialized.as_(f"sessions-{topic}")).to_stream())
    made[0].merge(made[1]).to("out")
    topology = builder.build()
    assert len(topology.pipelines) == 1
    out = key_serde(SessionWindows.of_inactivity_gap_with_no_grace(ms(5)))
    with TopologyTestDriver(topology) as driver:
        pipe(driver, "left", ("a", "x", 100))
        pipe(driver, "left", ("a", "y", 1))
        pipe(driver, "right", ("a", "z", 50))
        pipe(driver, "left", ("a", "y", 44), ("a", "y", 45))
        found = [(key.window.start_ms, value) for key, value in read(driver, "out", out, "long")]
        assert found == [(100, 1), (50, 1)]
        assert driver.get_window_store("time-right").fetch("a", 50) == 1
        assert rows(driver, "fold-left") == {"a": "xyyy"}


def test_windows_behind_a_shuffle_and_before_a_repartition() -> None:
    """A group by a new key is windowed behind a shuffle; a windowed table grouped anew has its topic."""
    builder = StreamsBuilder()
    by_word = builder.stream("in", STRINGS).group_by(lambda value: value)
    table: KTable = by_word.windowed_by(TimeWindows.of_size_with_no_grace(ms(10))).count()
    table.to_stream().repartition().group_by_key().count(Materialized.as_("changes"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "to", 1), ("l", "be", 2), ("m", "to", 3))
        pipe(driver, "in", ("k", "to", 4))
        found = {(key.key, key.window): value for key, value in rows(driver, "changes").items()}
        assert found == {("to", TimeWindow(0, 10)): 2, ("be", TimeWindow(0, 10)): 1}


def test_unlimited_windows_take_in_everything() -> None:
    """However far apart, and whatever came before; the key has the window's start, as in Kafka Streams."""
    builder = StreamsBuilder()
    table = grouped(builder).windowed_by(UnlimitedWindows.of()).count(Materialized.as_("all"))
    table.to_stream().to("out")
    late = MAX_TIMESTAMP_MS - 1
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "x", late), ("a", "y", 0), ("b", "z", 5), ("a", "x", 1_700_000_000_000))
        keys = WindowedSerdes.time_windowed_serde_from(Serdes.string(), ms(MAX_TIMESTAMP_MS))
        assert sorted((str(key), count) for key, count in read(driver, "out", keys, "long")) == [
            (f"[a@0/{MAX_TIMESTAMP_MS}]", 3),
            (f"[b@0/{MAX_TIMESTAMP_MS}]", 1),
        ]
        assert driver.get_window_store("all").fetch("a", 0) == 3
        assert driver.dropped_records == 0
