"""How state is laid out, in words: what a checkpoint's notes are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream import (
    BufferConfig,
    Consumed,
    Materialized,
    Serdes,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from millstream.spark.compile.compiler import CompileContext, compile_pipeline
from millstream.spark.compile.flow import CONTEXT

pytestmark = pytest.mark.spark


def layouts(spark: SparkSession, topology: Topology) -> Mapping[str, str]:
    def source(_: Any) -> DataFrame:
        columns = [T.StructField("key", T.BinaryType()), T.StructField("value", T.BinaryType())]
        columns += [T.StructField(name, type_) for name, type_ in CONTEXT.items()]
        return spark.createDataFrame([], T.StructType(columns))

    stores = {f"{name}-changelog": 2 for name in ("a", "b", "c")}
    stores |= {f"last-{name}-store-changelog": 2 for name in ("a", "b", "c")}
    (pipeline,) = topology.pipelines
    return compile_pipeline(pipeline, CompileContext("app", stores, source)).layouts


def program(*, steps: bool) -> Topology:
    """Two counts of one type, the first one of them behind a step or not; and a function of Spark's own."""
    builder = StreamsBuilder()
    records = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    first = records.filter(lambda value: value != "").map_values(lambda value: F.trim(value))
    (first if steps else records).group_by_key().count(Materialized.as_("a"))
    records.group_by_key().count(Materialized.as_("b"))
    records.group_by_key().aggregate(lambda key, value: F.median(F.length(value)), Materialized.as_("c"))
    return builder.build()


def test_stateless_steps_do_not_change_which_number_an_aggregation_has(spark: SparkSession) -> None:
    """By that number its state is kept: with another one it would go on with the other's counts."""
    expected = {
        "a": "whole of sum bigint; 2 buckets; number 1; of operator 2",
        "b": "whole of sum bigint; 2 buckets; number 2; of operator 2",
        "c": "by Spark's own operator; of operator 1",
    }
    assert layouts(spark, program(steps=False)) == expected
    assert layouts(spark, program(steps=True)) == expected


def held_back(retention: timedelta, buffer: Any) -> Topology:
    builder = StreamsBuilder()
    group = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    hour = timedelta(hours=1)
    for name, windows in {
        "a": TimeWindows.of_size_with_no_grace(hour),
        "b": SessionWindows.of_inactivity_gap_with_no_grace(hour),
        "c": SlidingWindows.of_time_difference_with_no_grace(hour),
    }.items():
        counts = group.windowed_by(windows).count(Materialized.as_(name).with_retention(retention))
        counts.suppress(Suppressed.until_time_limit(hour, buffer).with_name(f"last-{name}")).to_stream().to(
            f"out-{name}"
        )
    return builder.build()


def test_a_retention_and_the_limits_of_a_buffer_may_change(spark: SparkSession) -> None:
    """What is kept does not depend on them."""
    buffer = BufferConfig.max_records(7)
    before = layouts(spark, held_back(timedelta(hours=3), buffer))
    assert before["b"].startswith(
        "sessions gap=3600000 grace=0 of sum bigint; 2 buckets; held back with headers"
    )
    assert before == layouts(spark, held_back(timedelta(days=30), buffer.with_max_bytes(1000)))
