"""The plan of a streaming query is optimized before it starts, and says the same as before."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream import Consumed, Serdes, StreamsBuilder
from millstream.spark.run.settled import settled
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

_BOUND = re.compile(r"analysis\.Analyzer\$ResolveDeserializer .* (\d+) / \d+\s*$", re.MULTILINE)


def _stream(spark: SparkSession) -> DataFrame:
    """What a program's operators come to: one projection behind the other."""
    rows = spark.readStream.format("rate").load().withColumn("doubled", F.col("value") * 2)
    rows = rows.withColumn("unused", F.concat(F.lit("a"), F.lit("b")))
    return rows.withColumn("more", F.when(F.lit(True), F.col("doubled")).otherwise(0)).select("more")


def _text(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().analyzed().toString())


def test_the_plan_has_one_projection_and_its_constants_are_computed(spark: SparkSession) -> None:
    """Spark would do this in each micro-batch."""
    before, after = _text(_stream(spark)), _text(settled(_stream(spark)))
    assert before.count("Project") == 4, before
    assert "CASE WHEN" in before
    assert after.count("Project") == 1
    assert "CASE WHEN" not in after


def test_a_settled_plan_leaves_the_optimizer_nothing_that_it_would_change(spark: SparkSession) -> None:
    """Settling it again gives the same plan."""
    once = settled(_stream(spark))
    assert settled(once)._jdf.queryExecution().analyzed().fastEquals(once._jdf.queryExecution().analyzed())


def test_a_plan_with_the_time_of_day_stays_as_it_is(spark: SparkSession) -> None:
    """Each micro-batch has its own time: computed before the start it would be that of the start for ever."""
    rows = _stream(spark).withColumn("now", F.current_timestamp())
    assert _text(settled(rows)) == _text(rows)


def test_a_word_for_the_time_of_day_is_left_to_each_micro_batch(spark: SparkSession) -> None:
    """Spark gives such a word its meaning in each; a constant of the plan it would be NULL for ever."""
    rows = _stream(spark).withColumn("now", F.lit("now").try_cast("timestamp"))
    assert _text(settled(rows)) == _text(rows)


def test_a_source_whose_rows_are_all_dropped_stays_in_the_query(spark: SparkSession) -> None:
    """A filter may be switched off by a constant. Without its source the query would read nothing, have no
    place for it in its checkpoint, and not start again from one that has."""
    none = _stream(spark).where(F.lit(False))
    assert _text(settled(none)).count("StreamingRelation") == 1
    assert _text(settled(none.unionByName(_stream(spark)))).count("StreamingRelation") == 2
    null = _stream(spark).withColumn("keep", F.lit(None).cast("boolean")).where(F.col("keep"))
    assert _text(settled(null)).count("StreamingRelation") == 1


def test_the_rows_are_the_same(spark: SparkSession) -> None:
    """With nulls, a generator, and a condition that a projection hides."""
    rows = spark.range(20).withColumn("half", F.when(F.col("id") % 2 == 0, F.col("id") / 2))
    rows = rows.withColumn("both", F.array("half", F.col("id").cast("double"))).where("id > 3")
    rows = rows.select("id", F.explode("both").alias("one")).where(F.col("one").isNotNull())
    assert settled(rows).collect() == rows.collect()


def test_branches_may_share_what_is_counted_on_the_way(spark: SparkSession) -> None:
    """Its columns differ once each branch has only those that it needs; to Spark it is one count still."""
    read = (
        spark.readStream.format("rate").option("numPartitions", 1).load().withColumn("x", F.col("value") + 1)
    )
    read = read.observe("seen", F.count_if(F.col("x") > 0).alias("n"))
    both = read.select((F.col("x") * 2).alias("y")).unionByName(read.select(F.col("value").alias("y")))
    query = settled(both).writeStream.format("noop").trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert query.exception() is None


def test_random_values_stay_random(spark: SparkSession) -> None:
    """Nothing that has another value in each row becomes a constant."""
    found: Any = settled(spark.range(50).select(F.uuid().alias("u"))).select(F.count_distinct("u")).first()
    assert found[0] == 50


def _plan(query: Any) -> str:
    return str(query.lastExecution().analyzed().toString())


def test_a_program_is_settled_and_its_tasks_share_encoders(spark: SparkSession) -> None:
    """Otherwise each micro-batch's plan has fifteen projections, and an encoder is resolved for each variable
    of each task. Spark resolves only those of the batch itself.
    """
    builder = StreamsBuilder()
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    builder.stream("in", strings).group_by_key().count().to_stream().to("out")
    rules = spark._jvm.org.apache.spark.sql.catalyst.rules.RuleExecutor  # type: ignore[union-attr]
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", Serdes.string(), Serdes.string())
        topic.pipe_input("a", "1")
        rules.resetMetrics()
        topic.pipe_input("a", "2")
        found = _BOUND.search(rules.dumpTimeSpent())
        running = spark._jsparkSession.sharedState().activeStreamingQueries()  # type: ignore[operator]
        plans = [_plan(query) for query in running.values()]
    assert found is not None
    assert int(found[1]) <= 2  # those of the micro-batch itself, and of the sink in memory
    assert [text.count("Project") < 9 for text in plans if "TransformWithState" in text] == [True], plans
