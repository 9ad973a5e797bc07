"""Has the plan of a streaming query optimized once, before it starts, instead of in each micro-batch only."""

from __future__ import annotations

from pyspark.sql import DataFrame

from millstream.spark.jvm.java_names import java_class

__all__ = ["settled"]


def settled(rows: DataFrame) -> DataFrame:
    """The same rows, by a plan on which Spark's optimizer finds little left to do.

    Why: `docs/decisions/0047-latency.md`.
    """
    spark = rows.sparkSession
    plans = java_class(spark._jvm, "io.millstream.kernel.plan.SettledPlan")
    return DataFrame(plans.of(rows._jdf), spark)
