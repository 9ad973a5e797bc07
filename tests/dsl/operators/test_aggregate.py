"""KGroupedStream.aggregate: Spark's aggregate expressions, and folds in Python."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from driving import STRINGS, pipe, read, records, rows, stamped
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Materialized,
    PipelineException,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TimeWindows,
    TopologyException,
)
from millstream.testing import TestRecord, TopologyTestDriver

pytestmark = pytest.mark.spark

ORDERS = Serdes.json("user STRING, amount DOUBLE")


def test_an_aggregate_may_use_its_key_as_it_is() -> None:
    """Beside aggregate functions and inside them; with windows, too."""
    builder = StreamsBuilder()
    group = builder.stream("orders", Consumed.with_(Serdes.string(), ORDERS)).group_by_key()

    def both(key: Any, value: Any) -> Any:
        return {
            "key": F.upper(key),
            "largest": F.max(F.concat(key, value.user)),
            "sum": F.when(key == "a", F.sum(value.amount)),
        }

    group.aggregate(both, Materialized.as_("plain"))
    hour = timedelta(hours=1)
    windows = (
        TimeWindows.of_size_with_no_grace(hour),
        SlidingWindows.of_time_difference_with_no_grace(hour),
        SessionWindows.of_inactivity_gap_with_no_grace(hour),
    )
    for number, each in enumerate(windows):
        group.windowed_by(each).aggregate(both).to_stream().to(f"windowed-{number}")  # type: ignore[call-overload]
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "orders", ("a", {"user": "ann", "amount": 1.5}, 7), value=ORDERS)
        pipe(driver, "orders", ("b", {"user": "bob", "amount": 2.5}, 8), value=ORDERS)
        wanted = [
            {"key": "A", "largest": "aann", "sum": 1.5},
            {"key": "B", "largest": "bbob", "sum": None},
        ]
        assert rows(driver, "plain") == dict(zip("ab", wanted, strict=True))
        shape = Serdes.json("key STRING, largest STRING, sum DOUBLE")
        for number in range(len(windows)):
            written = read(driver, f"windowed-{number}", key="bytes", value=shape)
            assert [value for _, value in written] == wanted, windows[number]


@pytest.mark.parametrize(
    "function",
    [
        lambda value: F.percentile_approx(value.amount, 0.5),
        lambda value: F.sum(value.amount) / F.median(value.amount),
        lambda value: F.mode(value.amount) + F.count("*"),
    ],
)
def test_a_function_without_partial_results_is_refused_with_the_fold_to_write(function: Any) -> None:
    """When the topology is compiled, with the node and the line."""
    builder = StreamsBuilder()
    group = builder.stream("orders", Consumed.with_(Serdes.string(), ORDERS)).group_by_key()
    group.aggregate(function, Materialized.as_("middle"))
    with pytest.raises(TopologyException) as raised:
        TopologyTestDriver(builder.build())
    said = str(raised.value)
    assert "KSTREAM-AGGREGATE-0000000001 (test_aggregate.py:" in said
    assert "Write it as a Python fold" in said
    assert "  .aggregate(list, lambda key, value, kept: [*kept, value.amount],\n" in said


def test_a_key_alone_is_no_aggregate() -> None:
    """It says nothing of the records."""
    for wrong in (lambda key, value: F.upper(key), lambda key, value: {"key": key, "user": value.user}):
        builder = StreamsBuilder()
        builder.stream("orders", Consumed.with_(Serdes.string(), ORDERS)).group_by_key().aggregate(wrong)
        with pytest.raises(TopologyException, match="an aggregation has to use Spark's aggregate functions"):
            TopologyTestDriver(builder.build())


def test_aggregate_takes_sparks_aggregate_expressions() -> None:
    """One, or several by name as a struct, over value, key and record; results go on over micro-batches."""
    builder = StreamsBuilder()
    group = builder.stream("orders", Consumed.with_(Serdes.string(), ORDERS)).group_by_key()
    group.aggregate(lambda value: F.sum(value.amount), Materialized.as_("sums"))
    group.aggregate(
        lambda key, value: {
            "n": F.count("*"),
            "largest": F.max(value.amount),
            "users": F.collect_set(value.user),
        },
        Materialized.as_("several"),
    ).filter(lambda value: value.n > 1).to_stream().to("out")
    group.aggregate(
        lambda key, value, record: F.max(record.offset) - F.min(record.offset), Materialized.as_("offsets")
    )
    group.count(Materialized.as_("counts"))
    topology = builder.build()
    assert len(topology.pipelines) == 1
    with TopologyTestDriver(topology) as driver:

        def order(key: str | None, user: str, amount: float | None, timestamp: int) -> tuple[Any, ...]:
            return (key, {"user": user, "amount": amount}, timestamp)

        pipe(
            driver,
            "orders",
            order("a", "ann", 1.5, 20),
            order("a", "bob", None, 10),
            order("b", "ann", None, 5),
            order(None, "ann", 9.0, 5),
            ("a", None, 99),
            value=ORDERS,
        )
        pipe(driver, "orders", order("a", "ann", 2.5, 15), value=ORDERS)
        assert stamped(driver, "sums") == {"a": (4.0, 20)}  # a sum of nothing is NULL: no row
        several = rows(driver, "several")
        assert sorted(several["a"].pop("users")) == ["ann", "bob"]
        assert several == {"a": {"n": 3, "largest": 2.5}, "b": {"n": 1, "largest": None, "users": ["ann"]}}
        assert rows(driver, "offsets") == {"a": 5, "b": 0}
        assert rows(driver, "counts") == {"a": 3, "b": 1}
        shape = Serdes.json("n BIGINT, largest DOUBLE, users ARRAY<STRING>")
        updates = read(driver, "out", value=shape)
        assert [(key, value and value["n"]) for key, value in updates if key == "a"] == [("a", 2), ("a", 3)]
        assert [(key, value) for key, value in updates if key == "b"] == []  # what never passed is not gone


def test_a_fold_is_called_record_by_record_in_the_order_of_offsets() -> None:
    """It gets Python values, begins with the initializer, and a result of None deletes the key."""
    shape = Serdes.json("text STRING, n BIGINT")

    def add(key: str, value: str, so_far: dict[str, Any]) -> dict[str, Any] | None:
        if value == "forget":
            return None
        return {"text": so_far["text"] + key + value, "n": so_far["n"] + 1}

    builder = StreamsBuilder()
    group = builder.stream("in", STRINGS).group_by_key()
    table = group.aggregate(
        lambda: {"text": "", "n": 0}, add, Materialized.as_("folded").with_value_serde(shape)
    )
    table.map_values(lambda value: value.n).to_stream().to("out")
    group.aggregate(
        lambda: 0,
        lambda key, value, total: total + len(value),
        Materialized.as_("sizes").with_value_serde(Serdes.long()),
    )
    group.count(Materialized.as_("counts"))
    topology = builder.build()
    assert len(topology.pipelines) == 1
    with TopologyTestDriver(topology, {"application.id": "app"}) as driver:
        pipe(driver, "in", ("a", "x", 30), ("b", "y", 5), ("a", "z", 10), (None, "w", 99), ("a", None, 99))
        assert stamped(driver, "folded") == {
            "a": ({"text": "axaz", "n": 2}, 30),
            "b": ({"text": "by", "n": 1}, 5),
        }
        assert rows(driver, "sizes") == {"a": 2, "b": 1}
        pipe(driver, "in", ("a", "forget", 40))
        assert rows(driver, "folded") == {"b": {"text": "by", "n": 1}}
        pipe(driver, "in", ("a", "new", 20))
        assert rows(driver, "folded")["a"] == {"text": "anew", "n": 1}
        assert rows(driver, "sizes") == {"a": 11, "b": 1}
        assert rows(driver, "counts") == {"a": 4, "b": 1}
        assert [row for row in read(driver, "out", value="long") if row[0] == "a"] == [
            ("a", 2),
            ("a", None),
            ("a", 1),
        ]
        changelog = records(driver, "app-folded-changelog", "string", shape)
        assert TestRecord("a", None, 40) in changelog


def test_folds_of_many_records_and_large_ones_go_to_python_in_parts() -> None:
    """Whatever is cut: in the middle of a key's records, between two keys, at a deletion, at values of 2 MB;
    with several state partitions."""
    long, large = ["+"] * 1_000, ["x" * 2_000_000]
    every = {
        "a": [*long, *long, "+"],
        "b": ["+"] * 999,
        "c": [*large, *large, "+"],
        "d": [*long, "forget"],
        "e": [*long[1:], "forget", "+"],
        **{f"key-{number}": ["+"] * (number % 3 + 1) for number in range(100)},
    }
    again = {key: of[-2:] for key, of in every.items() if key in "acde"}

    def add(key: str, value: str, so_far: str) -> str | None:
        count, order = map(int, so_far.split())
        return None if value == "forget" else f"{count + 1} {order + len(value) * (count + 1)}"

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().aggregate(
        lambda: "0 0", add, Materialized.as_("folded").with_value_serde(Serdes.string())
    )

    def expected(values: list[str], so_far: str | None = None) -> str | None:
        for value in values:
            so_far = add("", value, so_far or "0 0")
        return so_far

    kept: dict[str, str | None] = {}
    settings = {"application.id": "app", "spark.sql.shuffle.partitions": "3"}
    with TopologyTestDriver(builder.build(), settings) as driver:
        for batch in (every, again):
            longest = max(map(len, batch.values()))
            mixed = [(key, of[at]) for at in range(longest) for key, of in batch.items() if at < len(of)]
            pipe(driver, "in", *mixed)
            kept |= {key: expected(of, kept.get(key)) for key, of in batch.items()}
            assert rows(driver, "folded") == {key: value for key, value in kept.items() if value is not None}
            written = records(driver, "app-folded-changelog", "string", "string")
            assert sorted(record.key for record in written) == sorted(batch)  # each once


def test_a_fold_that_raises_ends_the_pipeline_with_its_own_error() -> None:
    """The exception and the line it came from are in the PipelineException."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().aggregate(
        lambda: 0,
        lambda key, value, total: total + int(value),
        Materialized.as_("sums").with_value_serde(Serdes.long()),
    )
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("k", "1"))
        assert rows(driver, "sums") == {"k": 1}
        with pytest.raises(PipelineException, match="ValueError: invalid literal for int") as caught:
            pipe(driver, "in", ("k", "many"))
        assert "test_aggregate.py" in str(caught.value)


def test_a_fold_needs_the_serde_of_its_result() -> None:
    """What a Python function returns has no type before it runs; the error shows where the serde goes."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).group_by_key().aggregate(lambda: 0, lambda key, value, total: total)
    with pytest.raises(TopologyException) as caught:
        TopologyTestDriver(builder.build())
    assert "KSTREAM-AGGREGATE-0000000002 (test_aggregate.py:" in str(caught.value)
    assert "Materialized.as_('totals').with_value_serde(Serdes.json('total double, n long'))" in str(
        caught.value
    )


def test_a_fold_that_names_no_serde_has_the_configured_one() -> None:
    """default.value.serde, as in Kafka Streams: in its result, its store and its changelog."""
    builder = StreamsBuilder()
    table = (
        builder.stream("in", STRINGS)
        .group_by_key()
        .aggregate(lambda: 0, lambda key, value, total: total + int(value), Materialized.as_("sums"))
    )
    table.to_stream().to("out")
    with TopologyTestDriver(builder.build(), {"default.value.serde": "long"}) as driver:
        pipe(driver, "in", ("k", "1"), ("k", "2"))
        assert rows(driver, "sums") == {"k": 3}
        assert read(driver, "out", value=Serdes.long()) == [("k", 3)]
