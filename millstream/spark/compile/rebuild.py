"""Rebuilds a changelog that was deleted or emptied, from Spark's state.

The rows are made by the pipeline's own plan, so they are what its query would write: same bytes, partitions,
timestamps, with the epoch of the claim. The plan's inputs are replaced:

- The kernel keeps the parts of each aggregate, which are read with Spark's state data source.
- An aggregation of Spark's own, whose function the kernel cannot merge, runs for one micro-batch without
  records, in complete mode, which outputs every group of the state. It runs on a copy of the state, because
  a batch makes a new version of it.

Expired windows, which no record can change any more, are not in the state.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream.errors import StreamsException
from millstream.ports import CheckpointClaim, CompiledPipeline
from millstream.spark.compile.compiler import (
    BY_SPARK,
    CompileContext,
    Compiled,
    compile_pipeline,
    operators,
)
from millstream.spark.compile.flow import CONTEXT
from millstream.spark.compile.sink import FORMAT
from millstream.spark.run.checkpoint_files import HadoopCheckpointFiles, checkpoint_files
from millstream.topology.names import changelog_topic
from millstream.topology.nodes import Process, Suppress
from millstream.topology.pipeline import state_before

__all__ = ["rebuild"]

_NOTHING = '{"offset":0,"timestamp":0}'
"""The first offset of a source without records (`_no_records`)."""


def rebuild(
    spark: SparkSession,
    compiled: CompiledPipeline,
    context: CompileContext,
    claim: CheckpointClaim,
    changelogs: frozenset[str],
    options: dict[str, str],
    closing: threading.Event,
) -> None:
    """Write these changelogs; returns when everything is written.

    Args:
        context: the one that the pipeline was compiled with.
        options: the sink's (sink.sink_options).
        closing: set when it is no longer wanted.

    Raises:
        StreamsException: the state of one of them cannot be read.
    """
    root, _, directory = claim.path.rpartition("/")
    files = checkpoint_files(spark, root)
    done = max((int(name) for name in files.list(f"{directory}/commits") if name.isdecimal()), default=None)
    if done is None:
        return  # nothing was ever finished, so there is no state
    nodes = {node.store.name: node for node in compiled.pipeline.nodes if node.store is not None}
    for node in compiled.pipeline.nodes:
        if isinstance(node, Process) and not any(isinstance(parent, Process) for parent in node.parents):
            nodes |= {store.name: node for store in node.stores}
    in_a_row = [name for name, node in nodes.items() if state_before(node, compiled.pipeline) is not None]
    if in_a_row:  # Spark alone decides the numbers of several operators
        raise StreamsException(
            f"pipeline '{claim.pipeline}': its changelogs cannot be rebuilt: store '{in_a_row[0]}' is filled "
            "from the results of another one in the same query. Start afresh with `millstream reset` or "
            "KafkaStreams.clean_up(checkpoints=True)"
        )
    for name, node in nodes.items():
        if isinstance(node, Suppress) and changelog_topic(context.application_id, name) in changelogs:
            raise StreamsException(
                f"pipeline '{claim.pipeline}': the changelog of '{node.name}' cannot be rebuilt: it contains "
                "updates that were held back. Start afresh with `millstream reset` or "
                "KafkaStreams.clean_up(checkpoints=True)"
            )
    plan: Compiled = compiled.plan
    for number, stores in enumerate(operators(compiled.scans)):
        topics = {changelog_topic(context.application_id, store) for store in stores}
        lost = sorted(topics & changelogs)
        if not lost:
            continue
        # All columns of the operator, or Spark would drop unread ones from the state.
        mine = replace(context, only=topics, read=lambda node: _no_records(spark))
        laid_out = {plan.layouts[store].partition(";")[0] for store in stores}
        if laid_out == {BY_SPARK}:
            _from_copy(spark, compiled, mine, claim, files, directory, done, number, lost, options, closing)
            continue
        state = spark.read.format("statestore").options(operatorId=number, batchId=done)
        mine = replace(mine, state_of=partial(_from_state, state, claim.path))
        rows = compile_pipeline(compiled.pipeline, mine).rows_at(claim.epoch)
        if rows is None:
            continue  # the records of a stream-stream join, which are in no changelog
        rows.where(F.col("topic").isin(lost)).write.format(FORMAT).options(**options).mode("append").save()


def _no_records(spark: SparkSession) -> DataFrame:
    """A stream with micro-batches but no records, in the form of one from Kafka."""
    ticks = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    # Ticks count up from 0. If Spark knew that no row remains, it would drop the steps that follow.
    never = F.col("value") < 0
    columns = {"key": T.BinaryType(), "value": T.BinaryType(), **CONTEXT}
    return ticks.where(never).select(
        *(F.when(never, F.lit(None).cast(type_)).alias(name) for name, type_ in columns.items())
    )


def _from_state(state: DataFrameReader, path: str, variable: str) -> DataFrame:
    return state.option("stateVarName", variable).load(path)


def _from_copy(
    spark: SparkSession,
    compiled: CompiledPipeline,
    context: CompileContext,
    claim: CheckpointClaim,
    files: HadoopCheckpointFiles,
    directory: str,
    done: int,
    operator: int,
    lost: list[str],
    options: dict[str, str],
    closing: threading.Event,
) -> None:
    """One micro-batch without records on a copy of an operator's state."""
    made = compile_pipeline(compiled.pipeline, context)
    rows = made.rows_at(claim.epoch)
    assert rows is not None
    copy = f"{directory}.rebuild"
    files.delete(copy)
    try:
        for name in ("metadata", f"commits/{done}"):
            files.write(f"{copy}/{name}", files.read(f"{directory}/{name}") or b"")
        head = (files.read(f"{directory}/offsets/{done}") or b"").decode().split("\n")[:2]
        lines = [*head, *(_NOTHING for _ in made.scans)]
        files.write(f"{copy}/offsets/{done}", "\n".join(lines).encode())
        files.copy(f"{directory}/state/{operator}", f"{copy}/state/0")
        query = (
            rows.where(F.col("topic").isin(lost))
            .writeStream.format(FORMAT)
            .options(**options)
            .option("checkpointLocation", f"{claim.path}.rebuild")
            .trigger(availableNow=True)
            .outputMode("complete")
            .queryName(f"{context.application_id}-{claim.pipeline}-rebuild")
            .start()
        )
        while not query.awaitTermination(1):
            if closing.is_set():
                query.stop()
                raise StreamsException("the client is closing; a changelog is not rebuilt yet")
    finally:
        files.delete(copy)
