"""The kernel's windows as an operator of Spark: what it tells is what its cores tell without Spark."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

SCHEMA = "bucket int, tag int, key binary, at bigint, p0 bigint, p1 bigint, p2 bigint, place bigint"
TIMES = [0, 3, 12, 5, 40, 33, 41, 90, 85, 200, 195, 300]
KINDS = ("update", "gone", "closed", "late")

ITEMS: list[dict[str, Any]] = [
    {"core": "fixed", "settings": {"size": 10, "advance": 10, "grace": 20, "on_close": 1}},
    {"core": "sliding", "settings": {"difference": 10, "grace": 20, "on_close": 1}},
    {"core": "sessions", "settings": {"gap": 10, "grace": 20, "on_close": 1}},
    {"core": "suppress", "of": 0, "settings": {"until_close": 1, "delay": 20}},
    {"core": "suppress", "of": 2, "settings": {"until_close": 0, "delay": 20, "records": 2}},
]


@pytest.mark.spark
def test_windows_close_once_whatever_the_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that are told when they close, and suppressed ones, of two keys and in one operator."""
    described = [
        {"at_once": False, "parts": [{"name": f"p{i}", "rule": "sum"}], **item}
        for i, item in enumerate(ITEMS)
    ]
    told = []
    for size in (1, 5, 100):
        told.append(run(spark, tmp_path / str(size), size, described))
    for kind, tag in (("closed", 0), ("closed", 1), ("closed", 2), ("closed", 3)):
        singly, fives, whole = ([row for row in rows if row[:2] == (tag, kind)] for rows in told)
        assert singly
        assert sorted(singly) == sorted(fives) == sorted(whole)
        assert len(set(singly)) == len(singly)
    first = [row[2:] for row in told[0] if row[:2] == (0, "closed")]
    assert sorted(row[2:] for row in told[0] if row[:2] == (3, "closed")) == sorted(first)
    assert ("a", 0, 10, 5, 3) in first
    assert any(row[:2] == (4, "closed") for row in told[0])


def run(
    spark: SparkSession, folder: Path, size: int, described: list[dict[str, Any]]
) -> list[tuple[Any, ...]]:
    """The rows that came out: tag, kind, key, start, end, at, and the sum."""
    source = folder / "in"
    records = [(at, key) for at in TIMES for key in ("a", "b")]
    files: list[Path] = []
    for number in range(0, len(records), size):
        rows = [
            (1, tag, key.encode(), at, 1, 1, 1, place)
            for place, (at, key) in enumerate(records[number : number + size])
            for tag in (0, 1, 2)
        ]
        spark.createDataFrame(rows, SCHEMA).coalesce(1).write.mode("append").parquet(str(source))
        for file in source.glob("*.parquet"):  # they are read in the order of these times
            if file not in files:
                files.append(file)
                os.utime(file, (len(files), len(files)))
    stream = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(source))
    stream = stream.repartition("bucket").sortWithinPartitions("bucket", "place").drop("place")
    jvm: Any = spark._jvm
    of = jvm.io.millstream.kernel.state.Aggregations.of
    made = DataFrame(of(stream._jdf, json.dumps(described)), spark)
    told: list[tuple[Any, ...]] = []

    def take(batch: DataFrame, _: int) -> None:
        for row in batch.collect():
            value = row[f"p{row['tag'] % 3 if row['tag'] < 4 else 2}"]
            key = bytes(row["key"]).decode()
            told.append((row["tag"], KINDS[row["kind"]], key, row["start"], row["end"], row["at"], value))

    query = (
        made.writeStream.foreachBatch(take)
        .outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return told
