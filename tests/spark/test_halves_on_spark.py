"""What Spark reads of any bytes with plain expressions is what Python reads, or both refuse them."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest
from mangling import EPOCH, mangled, seeds
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from tiers import examples

from millstream import Serde, SerializationException, Windowed
from millstream.model import SessionWindow, TimeWindow
from millstream.registry.http import RegistryServer
from millstream.serdes.windowed_serdes import WindowedSerde
from millstream.spark.compile import serde_columns
from millstream.spark.compile.flow import TIMESTAMP
from millstream.spark.compile.record_handlers import attempt

pytestmark = pytest.mark.spark


def plain(value: Any) -> Any:
    """Equal for both halves: rows as dicts, NaN as a text; bytes that are no text as one character, of which
    Java's decoder and Python's make different numbers."""
    if isinstance(value, T.Row):
        if value.__fields__ == ["key", "start", "end"]:  # a windowed key
            return plain(value["key"]), value["start"], value["end"]
        return {name: plain(value[name]) for name in value.__fields__}
    if isinstance(value, Windowed):
        assert isinstance(value.window, TimeWindow | SessionWindow)
        return plain(value.key), value.window.start_ms, value.window.end_ms
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, str):
        return re.sub("\ufffd+", "\ufffd", value)
    return value if isinstance(value, int | float | str | dict | None) else str(value)


def test_spark_reads_of_any_bytes_what_python_reads(spark: SparkSession) -> None:
    """For every serde, in one query; a record that one of them refuses the other refuses, too."""
    server = RegistryServer()
    chance = random.Random(9)
    records = {serde: mangled(good, examples(600), chance) for serde, good in seeds(server).items()}
    rows = max(map(len, records.values()))
    names = {serde: f"c{number}" for number, serde in enumerate(records)}
    schema = T.StructType([T.StructField(name, T.BinaryType()) for name in names.values()])
    columns = ([*data, *[None] * (rows - len(data))] for data in records.values())
    df = spark.createDataFrame(list(zip(*columns, strict=True)), schema).coalesce(1)

    def read(serde: Serde, name: str) -> Column:
        value = serde_columns.from_bytes(serde, F.col(name), F.lit("t-0 offset 1 value"))
        return attempt(F.lit(True), value).alias(name)

    def shown(serde: Serde, name: str) -> Column:
        if not isinstance(serde, WindowedSerde):
            return F.col(name)
        read = F.col(name)["r0"]  # times as milliseconds: collected, they are in the zone of the process
        times = (F.unix_millis(read["window"][part]).alias(part) for part in ("start", "end"))
        value = F.struct(read["key"].alias("key"), *times).alias("r0")
        return F.when(F.col(name).isNotNull(), F.struct(value)).alias(name)

    df = df.withColumn(TIMESTAMP, F.lit(EPOCH)).select(*(read(*each) for each in names.items()))
    found = df.select(*(shown(*each) for each in names.items())).collect()
    server.close()
    wrong = []
    for serde, data in records.items():
        for row, each in zip(found, data, strict=False):
            tried = row[names[serde]]
            in_spark = "refused" if tried is None else plain(tried["r0"])
            try:
                in_python = plain(serde.deserialize(each))
            except SerializationException:
                in_python = "refused"
            if in_spark != in_python:
                wrong.append(f"{serde!r} {each.hex()}: Spark {in_spark!r}, Python {in_python!r}")
    assert wrong == []
