"""The settings of a session: that they are in effect, whether Spark has registered them or not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millstream.spark.memory import MemoryEngine
from millstream.spark.session import SharedSession
from millstream.spark.settings import SQL_DEFAULTS

pytestmark = pytest.mark.spark


def test_every_default_is_in_effect(spark: SparkSession, tmp_path: Path) -> None:
    """Those too that Spark reads without having registered them: `conf.isModifiable` says no to these."""
    session = SharedSession({}, "test")
    try:
        conf = session.spark.conf
        assert {name: conf.get(name) for name in SQL_DEFAULTS} == dict(SQL_DEFAULTS)
        jvm = session.spark._jvm
        assert jvm is not None
        manager = jvm.org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.create(
            jvm.org.apache.hadoop.fs.Path(str(tmp_path)),
            session.spark._jsparkSession.sessionState().newHadoopConf(),
        )
        assert manager.getClass().getSimpleName() == "FileSystemBasedCheckpointFileManager"
    finally:
        session.close()


def test_a_clients_settings_are_its_own() -> None:
    """They win over the defaults and reach no other session; what is fixed at the start is left alone."""
    engine = MemoryEngine(
        settings={"spark.sql.shuffle.partitions": "7", "spark.sql.warehouse.dir": "/elsewhere"}
    )
    assert engine.spark.conf.get("spark.sql.shuffle.partitions") == "7"
    assert engine.spark.conf.get("spark.sql.warehouse.dir") != "/elsewhere"
    assert MemoryEngine().spark.conf.get("spark.sql.shuffle.partitions") == "1"


def test_a_python_worker_has_imported_what_it_needs_before_it_begins(spark: SparkSession) -> None:
    """It was forked from our daemon: a function that fails costs no second set of imports."""

    @F.udf("string")
    def imported(value: int) -> str:
        import sys

        import psutil

        parent = psutil.Process().parent()
        return f"{'pyarrow' in sys.modules} {' '.join(parent.cmdline()) if parent else ''}"

    (row,) = spark.range(1).select(imported("id").alias("told")).collect()
    assert row.told.startswith("True ")
    assert "millstream.spark.daemon" in row.told
