"""Windowed aggregations on Spark: what Kafka Streams makes of the same records, and what Spark's ways add."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from driving import STRINGS, pipe, read, rows, stamped
from engine_world import EngineWorld
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from waiting import wait_until
from window_oracle import Case, Update, cases

from millstream import (
    Consumed,
    KGroupedStream,
    KTable,
    Materialized,
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
    Windowed,
    WindowedSerdes,
)
from millstream.broker import EmbeddedKafka
from millstream.spark.window_state import update
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


# --- the same as Kafka Streams ---------------------------------------------------------------------------


def shared_sequences() -> list[list[Case]]:
    """The cases that have their records in common: each list can run as one topology."""
    by_records: dict[str, list[Case]] = {}
    for case in cases():
        by_records.setdefault(str(case.records), []).append(case)
    return [group[:4] for group in by_records.values() if len(group) > 1]


def by_window(updates: list[Update]) -> dict[tuple[str, int, int], str | None]:
    """The last value of each window, with its letters in order: Spark's lists have none."""
    return {
        (key, start, end): None if value is None else "".join(sorted(value))
        for key, start, end, value, _ in updates
    }


def read_windows(driver: TopologyTestDriver, topic: str, case: Case, value: str) -> dict[Any, Any]:
    return {
        (key.key, key.window.start_ms, key.window.end_ms): found
        for key, found in read(driver, topic, key_serde(case.windows), value)
    }


@pytest.mark.parametrize("group", shared_sequences(), ids=["together"])
def test_all_windows_of_one_flow_change_as_in_kafka_streams(group: list[Case]) -> None:
    """Tumbling, hopping, sliding, sessions, each with its own grace, beside each other and an unwindowed
    count, by Spark's functions and by Python's: after each record the updates that Kafka Streams has."""
    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.count(Materialized.as_("plain"))
    topics = [f"{'python' if number % 3 == 2 else 'spark'}-{number}" for number in range(len(group))]
    for topic, case in zip(topics, group, strict=True):
        windowed: Any = stream.windowed_by(case.windows)
        if topic.startswith("spark"):
            table = windowed.aggregate(lambda key, value: F.array_join(F.collect_list(value), ""))
        else:
            functions: list[Any] = [lambda: "", lambda key, value, aggregate: aggregate + value]
            if isinstance(case.windows, SessionWindows):
                functions.append(lambda key, one, other: one + other)
            table = windowed.aggregate(*functions, Materialized.with_(value_serde=Serdes.string()))
        table.to_stream().to(topic)
    with TopologyTestDriver(builder.build()) as driver:
        for step, record in enumerate(group[0].records):
            pipe(driver, "in", record)
            for topic, case in zip(topics, group, strict=True):
                found = read(driver, topic, key_serde(case.windows))
                updates = [(key.key, key.window.start_ms, key.window.end_ms, v, 0) for key, v in found]
                assert by_window(updates) == by_window(case.updates[step]), f"{step} {record} {case.windows}"
        assert sum(rows(driver, "plain").values()) == len(group[0].records), "no record is late for it"


class Letters:
    """The model's aggregate: letters in order."""

    is_associative = False

    def initial(self) -> str:
        return ""

    def add(self, aggregate: str, payload: str) -> str:
        return "".join(sorted(aggregate + payload))

    def merge(self, one: str, other: str) -> str:
        return "".join(sorted(one + other))


@pytest.mark.parametrize("seed", range(3))
def test_batches_at_random_leave_what_the_records_leave_one_by_one(seed: int) -> None:
    """Micro-batches of any size and order, keys of several kinds of windows: the stores hold what a model
    holds that is given the records one by one and the stream time before each batch."""
    rng = random.Random(seed)
    windows: list[Windows] = [
        TimeWindows.of_size_and_grace(ms(10), ms(rng.randint(0, 5))).advance_by(ms(rng.randint(1, 10))),
        SlidingWindows.of_time_difference_and_grace(ms(6), ms(rng.randint(0, 5))),
        SessionWindows.of_inactivity_gap_and_grace(ms(4), ms(rng.randint(0, 5))),
    ]
    builder = StreamsBuilder()
    for number, each in enumerate(windows):
        made = (
            grouped(builder, f"in-{number}")
            .windowed_by(each)
            .aggregate(  # one flow each
                lambda key, value: F.concat_ws("", F.sort_array(F.collect_list(value))),
                Materialized.as_(f"store-{number}").with_retention(timedelta(days=1)),
            )
        )
        made.to_stream().to(f"out-{number}")
    held: list[dict[Any, Any]] = [{} for _ in windows]
    model: list[dict[Any, Any]] = [{} for _ in windows]
    kept: list[dict[str, Any]] = [{} for _ in windows]
    stream_time = now = 0
    with TopologyTestDriver(builder.build()) as driver:
        for _ in range(5):
            batch = []
            for _ in range(rng.randint(1, 12)):
                now += rng.choice((0, 1, 2, 9))
                batch.append((rng.choice("abc"), rng.choice("xyz"), max(0, now - rng.choice((0, 0, 3, 30)))))
            for number, each in enumerate(windows):
                pipe(driver, f"in-{number}", *batch)
                case = Case(each, [], [])
                held[number].update(read_windows(driver, f"out-{number}", case, "string"))
                for key in {record[0] for record in batch}:
                    mine = [(at, value) for k, value, at in batch if k == key]
                    outcome = update(each, Letters(), kept[number].get(key, []), mine, stream_time)
                    kept[number][key] = outcome.kept
                    model[number].update({(key, *change[:2]): change[2] for change in outcome.changes})
            stream_time = max(stream_time, *(record[2] for record in batch))
        assert held == model


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
        assert sorted(read(driver, "flat"), key=str) == [
            ("a", "0/10"),
            ("a", "10/20/2"),
            ("b", "10/20"),
        ]
        assert sorted(key for key, _ in read(driver, "keys", value="long")) == ["a", "a", "b"]
        store = driver.get_window_store("counts")
        assert store.fetch("a", 10) == 2
        assert store[Windowed("b", TimeWindow(10, 20))] == 1
        assert driver.get_timestamped_window_store("counts").fetch("a", 10).timestamp == 14  # type: ignore[union-attr]
        assert rows(driver, "big") == {Windowed("a", TimeWindow(10, 20)): 2}
        changelog = read(driver, "app-counts-changelog", "bytes", "long")
        assert sorted(changelog)[0] == (b"a" + bytes(8) + bytes(4), 1)
        assert (b"b" + (10).to_bytes(8, "big") + bytes(4), 1) in changelog


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

        assert changelog == [(layout(3, 3), None), (layout(12, 12), None), (layout(3, 12), 3)]


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


# --- partial results that are merged ---------------------------------------------------------------------


def test_every_mergeable_function_gives_what_spark_gives_for_all_records_at_once() -> None:
    """In sessions that grow and merge: count, sum, avg, min, max, and and or, lists, of each type, within
    expressions; NULLs left out; NaN the largest. The same expression without windows is what it has to be."""

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
        }

    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.aggregate(everything).to_stream().to("whole")
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(ms(1000))
    stream.windowed_by(sessions).aggregate(everything).to_stream().to("merged")
    with TopologyTestDriver(builder.build()) as driver:
        values = ("1.25", "-7", "nan", "33.33", "0.01", "xyz", "12")
        for value, at in zip(values, (0, 900, 1800, 3500, 2700, 2701, 2702), strict=True):
            pipe(driver, "in", ("k", value, at))
        whole = read(driver, "whole")[-1][1]
        merged = read(driver, "merged", key_serde(sessions))[-1]
    assert merged == (Windowed("k", SessionWindow(0, 3500)), whole)
    assert '"n":7' in whole


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
    ("expression", "message"),
    [
        (lambda key, value: F.stddev(value.cast("double")), "partial results can be merged"),
        (lambda key, value: F.count_distinct(value), r"count\(DISTINCT …\) cannot be merged"),
        (lambda key, value: F.sum(value.cast("int")) + F.stddev(value.cast("int")), "cannot be merged"),
        (lambda key, value: F.max(value.cast("binary")), r"max\(\) of binary cannot be merged"),
        (lambda key, value: value, "has to use Spark's aggregate functions"),
    ],
)
def test_what_cannot_be_merged_is_refused_with_the_place(expression: Any, message: str) -> None:
    """Sessions need partial results: the message names the function, its line, and what there is."""
    builder = StreamsBuilder()
    stream = grouped(builder).windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(ms(5)))
    stream.aggregate(expression)
    with pytest.raises(TopologyException, match=message) as caught:
        TopologyTestDriver(builder.build())
    assert "KSTREAM-AGGREGATE-0000000002 (test_windows.py:" in str(caught.value)


def test_a_sum_that_does_not_fit_ends_the_query() -> None:
    """As Spark's own does: nothing wraps around or becomes NULL."""
    builder = StreamsBuilder()
    stream = grouped(builder).windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(ms(5)))
    stream.aggregate(lambda key, value: F.sum(value.cast("long"))).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", str(2**63 - 1), 1))
        with pytest.raises(Exception, match="the sum of a window does not fit"):
            pipe(driver, "in", ("a", "1", 2))


# --- state ------------------------------------------------------------------------------------------------


def state_rows(driver: TopologyTestDriver) -> dict[str, int]:
    """How many entries each stateful operator keeps."""
    (running,) = driver._pipelines
    assert running._query is not None
    progress: Any = running._query.lastProgress
    operators = progress["stateOperators"]
    return {operator["operatorName"]: operator["numRowsTotal"] for operator in operators}


def buckets(keys: list[bytes], aggregations: int) -> int:
    """How many buckets these keys of so many aggregations are in."""
    groups = (number.to_bytes(2, "big") + key for number in range(aggregations) for key in keys)
    return len({zlib.crc32(group) % 256 for group in groups})


def test_state_of_closed_windows_is_given_up_and_that_of_unwindowed_aggregations_stays() -> None:
    """Also of keys that are never seen again; and where both are in one operator."""
    builder = StreamsBuilder()
    stream = grouped(builder)
    stream.count(Materialized.as_("plain"))
    stream.windowed_by(TimeWindows.of_size_with_no_grace(ms(10))).count(Materialized.as_("windows"))
    for name, windows in (
        ("sessions", SessionWindows.of_inactivity_gap_with_no_grace(ms(10))),
        ("sliding", SlidingWindows.of_time_difference_with_no_grace(ms(10))),
    ):
        stream.windowed_by(windows).count(Materialized.as_(name))
    fold = Materialized.as_("fold").with_value_serde(Serdes.string())
    stream.windowed_by(TimeWindows.of_size_with_no_grace(ms(10))).aggregate(
        lambda: "", lambda key, value, aggregate: aggregate + value, fold
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", *((f"k{n}", "x", n % 5) for n in range(50)))
        keys = [f"k{n}".encode() for n in range(50)]
        assert state_rows(driver) == {"stateStoreSave": 100, "applyInPandasWithState": buckets(keys, 3)}
        pipe(driver, "in", ("late", "x", 10_000))
        pipe(driver, "in", ("late", "x", 10_000))
        assert state_rows(driver) == {"stateStoreSave": 52, "applyInPandasWithState": buckets([b"late"], 3)}
        assert stamped(driver, "plain")["k7"] == (1, 2)


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark)
    yield world
    world.close()


def test_windows_go_on_from_a_checkpoint(world: EngineWorld) -> None:
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
    wait_until(lambda: running.metadata().batch_id >= 0, "the batch is committed", 30)
    running.stop()
    assert world.wait_for_end() is None
    running = world.start(compiled)
    send(base + 2)  # late for the first window; within the gap of both sessions, the second of which is open
    wait_until(lambda: len(changes("sessions", 5)) == 5, "the sessions are merged", 30)
    send(base + 13)
    assert changes("time", 3)[2:] == [(window(base + 10), 2)]
    merged = changes("sessions", 7)
    assert sorted(merged[2:5], key=str) == sorted(
        [
            (session(base + 1, base + 1), None),
            (session(base + 12, base + 12), None),
            (session(base + 1, base + 12), 3),
        ],
        key=str,
    )
    assert sorted(merged[5:], key=str) == sorted(
        [(session(base + 1, base + 12), None), (session(base + 1, base + 13), 4)], key=str
    )
    running.stop()


def test_operators_of_every_kind_and_of_two_sources_are_one_query() -> None:
    """Windowed by Spark and by Python, a fold without windows, of two streams that meet in one output: one
    pipeline, and its stream time is that of the source that is behind."""
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
        assert found == [(100, 1), (1, 1), (50, 1), (45, 1)]
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
