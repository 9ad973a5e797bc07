"""What of Real-Time Mode shows when a pipeline is compiled; nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream import Consumed, KStream, Materialized, Serdes, StreamsBuilder, WallclockTimestampExtractor
from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.errors import TopologyException
from millstream.ports import CompiledPipeline
from millstream.spark.engine import SparkEngine, SparkSettings
from millstream.spark.run.real_time_batches import tasks_behind_shuffles
from millstream.topology.real_time import Mode, Modes

pytestmark = pytest.mark.spark

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def compiled(
    spark: SparkSession, mode: Mode, program: Callable[[KStream], object], how: Consumed
) -> CompiledPipeline:
    builder = StreamsBuilder()
    program(builder.stream("in", how))
    [pipeline] = builder.build().pipelines
    engine = SparkEngine(SparkSettings("plans", "localhost:1", modes=Modes(mode)), spark)
    try:
        return engine.compile(pipeline, {f"{store.name}-changelog": 2 for store in pipeline.stores})
    finally:
        engine.close()


def with_clock(stream: KStream) -> None:
    stream.map_values(lambda value: F.current_timestamp().cast("string")).to("out")


def copied(stream: KStream) -> None:
    stream.to("out")


def counted_and_copied(stream: KStream) -> None:
    stream.to("out")
    stream.group_by_key().count(Materialized.as_("counts"))


def collected_and_copied(stream: KStream) -> None:
    """An aggregate whose parts cannot be merged."""
    stream.to("out")
    stream.group_by_key().aggregate(lambda key, value: F.percentile(value.cast("int"), 0.5))


@pytest.mark.parametrize(
    ("program", "how", "why"),
    [
        (with_clock, STRINGS, "uses the current time"),
        (
            copied,
            STRINGS.with_timestamp_extractor(WallclockTimestampExtractor()),
            "uses the current time",
        ),
        (collected_and_copied, STRINGS, "reads 'in' more than once"),
    ],
)
def test_what_functions_hide_is_refused_or_left_to_micro_batches(
    spark: SparkSession, program: Callable[[KStream], object], how: Consumed, why: str
) -> None:
    """As soon as they were called: `real-time` is told why, and `auto` compiles it anew."""
    with pytest.raises(TopologyException, match=f"p0 cannot run in Real-Time Mode: .*{why}"):
        compiled(spark, Mode.REAL_TIME, program, how)
    assert compiled(spark, Mode.AUTO, program, how).plan.run is None


def test_what_is_counted_and_copied_is_read_once_in_real_time(spark: SparkSession, tmp_path: Path) -> None:
    """The copies go through the shuffle; in micro-batches a second read is cheaper."""
    live = compiled(spark, Mode.REAL_TIME, counted_and_copied, STRINGS)
    assert [scan.reads for scan in live.scans] == ["in"]
    assert live.plan.run.endswith("-p0")
    checkpoint = LocalCheckpointFiles(str(tmp_path))
    assert tasks_behind_shuffles(live.plan.rows, checkpoint) == 2
    begun = b'v1\n{"batchWatermarkMs":0,"conf":{"spark.sql.shuffle.partitions":"5"}}\n{"in":{"0":1}}'
    checkpoint.write("offsets/0", begun)
    assert tasks_behind_shuffles(live.plan.rows, checkpoint) == 5, "its state is cut in five"
    assert "Sort " not in str(live.plan.rows._jdf.queryExecution().analyzed().toString())
    batches = compiled(spark, Mode.MICRO_BATCH, counted_and_copied, STRINGS)
    assert sorted(scan.reads for scan in batches.scans) == ["in", "in"]
    assert batches.plan.run is None
