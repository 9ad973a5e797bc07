"""The query of `to_spark()`: Spark's own, which reads a topic of the application and writes it elsewhere.

It is a pipeline of its own, with nothing but that topic and the user's writer. It has Spark's micro-batches
and a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame

from millstream.physical.plan import plan_task
from millstream.spark.compile.building import Building, CompileContext
from millstream.spark.compile.frame_columns import UserWriter, dataframe_of, user_writer
from millstream.spark.compile.topic_nodes import written_with
from millstream.spark.compile.trace import planned
from millstream.topology.nodes import SparkTopic
from millstream.topology.pipeline import Pipeline

__all__ = ["compile_query", "topic_of"]


def topic_of(pipeline: Pipeline) -> SparkTopic:
    """The topic that it reads."""
    (topic,) = pipeline.inputs
    assert isinstance(topic, SparkTopic)
    return topic


def compile_query(
    pipeline: Pipeline, context: CompileContext, read: Callable[[SparkTopic], DataFrame]
) -> UserWriter:
    """Call the user's function with the records of the topic.

    Args:
        read: the records: `key`, `value` binary, and the columns of flow.CONTEXT.

    Raises:
        TopologyException: the function is wrong.
    """
    assert pipeline.spark_sink is not None
    topic = topic_of(pipeline)
    with planned(f"pipeline {pipeline.name}"):
        key, value = written_with(Building(plan_task(pipeline), context), topic)
        return user_writer(pipeline.spark_sink, dataframe_of(read(topic), key, value))
