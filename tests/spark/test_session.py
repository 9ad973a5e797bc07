"""The settings of a session: that they are in effect, whether Spark has registered them or not."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark_start import java_options

from millstream.spark.jvm.session import SharedSession
from millstream.spark.jvm.spark_settings import SQL_DEFAULTS
from millstream.spark.memory_engine import MemoryEngine

pytestmark = pytest.mark.spark

_TWO_CLIENTS = textwrap.dedent(
    """
    import os, sys
    from pyspark import SparkContext
    from pyspark.sql import functions as F
    from millstream.spark.jvm.session import SharedSession

    def of_worker(_):
        return os.environ["STARTED_BY"]

    def client(settings={}):
        options = {"spark.driver.extraJavaOptions": sys.argv[2]}
        session = SharedSession({**options, **settings}, "two-clients")
        chosen = SparkContext._active_spark_context.pythonExec
        try:
            assert os.environ.get("PYSPARK_PYTHON") == before, os.environ["PYSPARK_PYTHON"]
            if chosen != sys.executable:
                (row,) = session.spark.range(1).select(F.udf(of_worker)("id").alias("told")).collect()
                assert row.told == "wrapper", row
        finally:
            session.close()
        assert os.environ.get("PYSPARK_PYTHON") == before
        return chosen

    before = None
    assert client({"spark.pyspark.python": sys.argv[1]}) == sys.argv[1]
    assert client() == sys.executable, "the first client's Python is the second's"
    before = os.environ["PYSPARK_PYTHON"] = sys.argv[1]
    assert client() == sys.argv[1]
    assert client({"spark.pyspark.python": sys.executable}) == sys.executable
    """
)


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
    assert "millstream.spark.worker.daemon" in row.told


def test_the_python_of_workers_is_no_longer_in_the_environment_once_spark_has_started(tmp_path: Path) -> None:
    """In a process of its own, in which no Spark runs yet: each client's workers have the Python that it
    names, else the environment's, else its own; and the environment stays as the program has it."""
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nSTARTED_BY=wrapper exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    result = subprocess.run(
        [sys.executable, "-c", _TWO_CLIENTS, str(wrapper), java_options()],
        capture_output=True,
        text=True,
        timeout=150,
        env={name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)},
    )
    assert result.returncode == 0, result.stderr[-3000:]
