"""The kernel in Spark: driver and executors have it, and it is the one of this package."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from kafka.partitioner.default import murmur2
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType
from spark_start import java_options

from millstream.errors import SetupException
from millstream.jars import connector_set, ensure_jars
from millstream.kernel import shipped_kernel
from millstream.spark.jvm.kernel_jar import deliver_kernel

pytestmark = pytest.mark.spark

_PROGRAM = textwrap.dedent(
    """
    import sys
    import pyspark
    from pyspark.sql import SparkSession
    from pyspark.sql.types import IntegerType
    from millstream.jars import connector_set, ensure_jars
    from millstream.spark.jvm.session import SharedSession

    builder = SparkSession.builder.master("local-cluster[1,1,512]")
    builder.config("spark.executor.memory", "512m").config("spark.ui.enabled", "false")
    for process in ("driver", "executor"):
        builder.config(f"spark.{process}.extraJavaOptions", sys.argv[1])
    connector = ensure_jars(connector_set(pyspark.__version__))
    given = builder.config("spark.jars", ",".join(map(str, connector))).getOrCreate()
    for client in range(2):
        shared = SharedSession({}, "delivery", given)
        shared.spark.udf.registerJavaFunction("lies_in", "io.millstream.kernel.Partitions", IntegerType())
        rows = shared.spark.range(1000, numPartitions=4).selectExpr(
            "lies_in(cast(cast(id as string) as binary), 10) as partition"
        )
        print(*(row.partition for row in rows.collect()))
        added = shared.spark.sparkContext._jsc.sc().listJars().mkString(" ").split()
        assert sum("millstream-kernel" in jar for jar in added) == 1, added
    """
)


@pytest.mark.timeout(300)
def test_executors_of_the_users_own_session_have_the_kernel(tmp_path: Path) -> None:
    """It runs already, on a cluster, whose executors are processes of their own. A second client finds it
    there. (In a session that Millstream starts: test_executors.py.)"""
    tests = Path(__file__).resolve().parent.parent
    result = subprocess.run(
        [sys.executable, "-c", _PROGRAM, java_options()],
        capture_output=True,
        text=True,
        timeout=280,
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(tests.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_TESTING": "true",  # workers then have temporary directories, and none beside PySpark
        },
    )
    assert result.returncode == 0, result.stderr[-4000:]
    expected = [(murmur2(str(number).encode()) & 0x7FFFFFFF) % 10 for number in range(1000)]
    said = [[int(word) for word in line.split()] for line in result.stdout.splitlines()]
    assert said == [expected, expected]


def test_a_partition_of_nothing_is_null(spark: SparkSession) -> None:
    """As a function of Spark's: a record without a key has no partition of its own."""
    spark.udf.registerJavaFunction("lies_in", "io.millstream.kernel.Partitions", IntegerType())
    rows = spark.sql("select lies_in(binary('a'), 7) as a, lies_in(binary(null), 7) as nothing").collect()
    assert [tuple(row) for row in rows] == [((murmur2(b"a") & 0x7FFFFFFF) % 7, None)]


@contextmanager
def class_path(spark: SparkSession, *jars: Path, closed: bool = False) -> Iterator[None]:
    """The JVM as if it had these jars on its class path, instead of ours; for this thread."""
    jvm: Any = spark._jvm
    context: Any = spark.sparkContext
    thread = jvm.java.lang.Thread.currentThread()
    usual = thread.getContextClassLoader()

    def loader_of(paths: Iterable[Path | str], parent: Any) -> Any:
        paths = list(paths)
        urls = context._gateway.new_array(jvm.java.net.URL, len(paths))
        for number, path in enumerate(paths):
            urls[number] = jvm.java.io.File(str(path)).toURI().toURL()
        return jvm.java.net.URLClassLoader(urls, parent)

    # The loader of Java's class path has our jars, among Spark's.
    own = {str(shipped_kernel().jar), *map(str, ensure_jars(connector_set(pyspark.__version__)))}
    theirs = [jar for jar in jvm.java.lang.System.getProperty("java.class.path").split(":") if jar not in own]
    bare = loader_of(theirs, jvm.java.lang.ClassLoader.getPlatformClassLoader())
    loader = loader_of(jars, bare)
    if closed:
        loader = jvm.org.apache.spark.util.ParentClassLoader(bare)  # it takes none
    else:
        loader = jvm.org.apache.spark.util.MutableURLClassLoader(
            context._gateway.new_array(jvm.java.net.URL, 0), loader
        )
    thread.setContextClassLoader(loader)
    try:
        yield
    finally:
        thread.setContextClassLoader(usual)


def clients_jar() -> Path:
    (jar,) = (jar for jar in ensure_jars(connector_set(pyspark.__version__)) if "kafka-clients" in jar.name)
    return jar


def refusal(spark: SparkSession) -> str:
    with pytest.raises(SetupException) as caught:
        deliver_kernel(spark)
    return str(caught.value)


def test_an_old_kernel_on_the_class_path_is_refused(
    spark: SparkSession, tmp_path: Path, builder: Any
) -> None:
    """With both versions, where it is, and what to do; Java takes the first class that it finds."""
    old = tmp_path / "old-kernel.jar"
    with zipfile.ZipFile(shipped_kernel().jar) as archive:
        content = {name: archive.read(name) for name in archive.namelist() if "META-INF" not in name}
    content[builder.PROPERTIES] = f"version=0.0.9\ndigest={'f' * 64}\n".encode()
    builder.write_jar(old, content)
    with class_path(spark, old, clients_jar()):
        said = refusal(spark)
    for fact in ("0.0.9 (ffffffffffff)", str(shipped_kernel()), "old-kernel.jar", "Remove"):
        assert fact in said


def test_a_kernel_that_does_not_see_kafkas_clients_is_refused(spark: SparkSession) -> None:
    """It is in a cluster's own jars, say, and the clients are among those that the program brings."""
    with class_path(spark, shipped_kernel().jar):
        said = refusal(spark)
    assert "does not see Kafka's client library" in said


def test_a_driver_that_takes_no_jar_is_told_what_to_start_with(spark: SparkSession) -> None:
    """A class loader of a platform's own."""
    with class_path(spark, closed=True):
        said = refusal(spark)
    for fact in ("accepts no jar", "shipped_kernel().jar", f"connector_set('{spark.version}')", "spark.jars"):
        assert fact in said


def test_a_driver_that_takes_a_jar_is_given_the_kernel(spark: SparkSession) -> None:
    """A session of the user's, started without it."""
    with class_path(spark, clients_jar()):
        jvm: Any = spark._jvm
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        resource = "io/millstream/kernel/kernel.properties"
        assert loader.getResource(resource) is None
        deliver_kernel(spark)
        assert str(shipped_kernel().jar) in loader.getResource(resource).toString()
