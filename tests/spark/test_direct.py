"""Spark's JVM without spark-submit: when, by which command, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import psutil
import pyspark
import pytest
from spark_start import java_options
from waiting import wait_until

from millstream.java import find_java
from millstream.permissions import umask_of_children
from millstream.spark.jvm import session
from millstream.spark.jvm.direct import MAIN, class_path, command, decide

HOME = Path(pyspark.__file__).parent
LOCAL = {"spark.master": "local[*]", "spark.driver.memory": "2g"}


def test_a_local_spark_of_which_nothing_else_was_told_is_started_directly() -> None:
    """With settings that Spark itself reads, and whatever variables spark-submit does not."""
    told = LOCAL | {"spark.sql.shuffle.partitions": "4", "spark.driver.extraJavaOptions": "-Da='b c'"}
    environment = {
        "SPARK_LOCAL_DIRS": "/fast",
        "SPARK_BUFFER_SIZE": "1",
        "JAVA_HOME": "/java",
        "PATH": "/bin",
    }
    for arguments in ("", "pyspark-shell"):
        assert decide("4.3.0", HOME, told, arguments, environment) is None


@pytest.mark.parametrize(
    ("settings", "arguments", "environment", "why"),
    [
        ({"spark.master": "spark://host:7077"}, "", {}, "master"),
        ({"spark.master": "local-cluster[2,1,1024]"}, "", {}, "separate processes"),
        ({"spark.jars": "own.jar"}, "", {}, "spark.jars"),
        ({"spark.jars.packages": "a:b:1"}, "", {}, "spark.jars.packages"),
        ({"spark.driver.extraClassPath": "classes"}, "", {}, "extraClassPath"),
        ({"spark.submit.pyFiles": "a.py"}, "", {}, "spark.submit.pyFiles"),
        ({"spark.driver.extraJavaOptions": "-Xmx1g"}, "", {}, "for spark-submit to check"),
        ({"spark.driver.extraJavaOptions": "-Da='b"}, "", {}, "for spark-submit to refuse"),
        ({}, "--verbose pyspark-shell", {}, "PYSPARK_SUBMIT_ARGS"),
        ({}, "--properties-file mine.conf pyspark-shell", {}, "PYSPARK_SUBMIT_ARGS"),
        ({}, "", {"SPARK_CONF_DIR": "/etc/spark"}, "SPARK_CONF_DIR"),
        ({}, "", {"SPARK_SUBMIT_OPTS": "-Da=b"}, "SPARK_SUBMIT_OPTS"),
        ({}, "", {"HADOOP_CONF_DIR": "/etc/hadoop"}, "HADOOP_CONF_DIR"),
    ],
)
def test_whatever_spark_submit_would_act_on_it_gets(
    settings: dict[str, str], arguments: str, environment: dict[str, str], why: str
) -> None:
    """Among settings, arguments and variables; the reason says which."""
    assert why in (decide("4.3.0", HOME, LOCAL | settings, arguments, environment) or "")


def test_another_spark_and_one_with_a_configuration_are_started_by_spark_submit(tmp_path: Path) -> None:
    """It knows their defaults."""
    assert "5.0.0" in (decide("5.0.0", tmp_path, LOCAL, "", {}) or "")
    (tmp_path / "conf").mkdir()
    assert "conf" in (decide("4.3.0", tmp_path, LOCAL, "", {}) or "")


@pytest.mark.disk
def test_the_command_is_the_one_that_spark_submit_would_make(tmp_path: Path) -> None:
    """As its launcher says it: the same jars, heap and options; without the incubating module. SparkSubmit is
    left out, and what it would be told."""
    java = find_java()
    options = """-XX:+UseSerialGC -Da="b c" '-Dd=e f' -XX:MetaspaceSize=256m"""
    settings = LOCAL | {"spark.driver.extraJavaOptions": options}
    told = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    launcher = [str(java.java), "-XX:TieredStopAtLevel=1", "-cp", f"{HOME}/jars/*"]
    said = subprocess.run(
        [*launcher, "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", *told, "x"],
        env={
            "SPARK_HOME": str(HOME),
            "JAVA_HOME": str(java.home),
            "SPARK_SCALA_VERSION": "2.13",
            "PATH": os.environ["PATH"],
        },
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    theirs = [word.strip() for word in said if word.strip()]
    theirs = theirs[: theirs.index("org.apache.spark.deploy.SparkSubmit")]
    ours = command(java.java, class_path(HOME, [tmp_path / "own.jar"]), settings)
    assert ours[-1] == MAIN
    missing = [word for word in theirs[3:] if word not in ours]
    assert missing == ["--add-modules=jdk.incubator.vector"]
    assert ours[0] == theirs[0]
    slf4j, rest = theirs[2].split(":")[1:]  # first is the directory of a configuration, which is not there
    assert rest == f"{HOME}/jars/*"
    jars = ours[2].split(":")
    assert (jars[0], jars[-1]) == (slf4j, str(tmp_path / "own.jar"))
    assert set(jars[:-1]) == {str(jar) for jar in (HOME / "jars").glob("*.jar")}
    assert len(jars) == len(set(jars))


def test_mllib_is_left_out_unless_the_program_has_imported_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who imports it later is told, once; another module is no reason."""
    every = {jar.name for jar in class_path(HOME, [])}
    monkeypatch.setattr(sys, "meta_path", [each for each in sys.meta_path if "_Late" not in repr(each)])
    before = list(sys.meta_path)
    monkeypatch.setitem(sys.modules, "pyspark.ml", ModuleType("pyspark.ml"))
    assert {jar.name for jar in session._class_path([])} == every
    assert sys.meta_path == before
    monkeypatch.delitem(sys.modules, "pyspark.ml")
    for _ in range(2):
        (missing,) = every - {jar.name for jar in session._class_path([])}
        assert missing.startswith("spark-mllib_2")
    finder, *others = sys.meta_path
    assert others == before
    assert finder.find_spec("pyspark.sql", None) is None
    assert not caplog.records
    for _ in range(2):
        assert finder.find_spec("pyspark.ml", None) is None
    assert sys.meta_path == before
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("pyspark.ml was imported after Spark had started without MLlib")


_PROGRAM = textwrap.dedent(
    """
    import json, os, sys
    from pyspark import SparkContext
    from millstream.spark.jvm.session import SharedSession

    os.environ.pop("PYSPARK_SUBMIT_ARGS", None)
    shared = SharedSession({"spark.driver.extraJavaOptions": sys.argv[1], "spark.of.the": "user"}, "direct")
    spark = shared.spark
    jvm = spark._jvm
    hadoop = spark._jsc.hadoopConfiguration()
    files = jvm.org.apache.hadoop.fs.FileSystem.getLocal(hadoop)
    spark.range(3).write.parquet(sys.argv[2] + "/written")
    print(json.dumps({
        "pid": SparkContext._gateway.proc.pid,
        "files": files.getClass().getName(),
        "setting": hadoop.get("io.seqfile.compress.blocksize"),
        "from": hadoop.getPropertySources("io.seqfile.compress.blocksize"),
        "property": jvm.java.lang.System.getProperty("spark.of.the"),
        "umask": spark.sparkContext.getConf().get("spark.hadoop.fs.permissions.umask-mode"),
        "rows": spark.read.parquet(sys.argv[2] + "/written").count(),
        "told": sorted(name for name in os.environ if name.startswith("PYSPARK_GATEWAY")),
    }), flush=True)
    for line in sys.stdin:
        print(spark.range(3).count(), flush=True)
    """
)


@pytest.mark.spark
def test_the_jvm_is_a_child_that_ends_with_its_parent_and_writes_private_files(tmp_path: Path) -> None:
    """Not by SIGTERM or Ctrl-C, which are for the program; also when this one is killed with -9."""
    root = Path(__file__).resolve().parent.parent.parent
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, java_options(), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    assert program.stdout is not None
    try:
        said = json.loads(program.stdout.readline())
        java = psutil.Process(said.pop("pid"))
        assert said == {
            "files": "io.millstream.kernel.files.LocalFiles",
            "setting": "1000000",
            "from": None,
            "property": "user",
            "umask": f"{umask_of_children():03o}",
            "rows": 3,
            "told": [],
        }
        assert java.parent() == psutil.Process(program.pid)
        assert java.cmdline()[-1] == MAIN
        written = [tmp_path / "written", *(tmp_path / "written").iterdir()]
        assert {path.stat().st_mode & 0o007 for path in written} == {0}
        assert {path.suffix for path in written} == {"", ".parquet"}, "no checksum files"
        for number in (signal.SIGTERM, signal.SIGINT):
            java.send_signal(number)
            assert program.stdin is not None
            program.stdin.write("count\n")
            program.stdin.flush()
            assert program.stdout.readline() == "3\n"
    finally:
        program.kill()
        program.wait()
    wait_until(lambda: not java.is_running(), "the JVM has ended", 20)
