"""The kernel in a running Spark: loaded there, and checked against this package.

A Spark that Millstream starts directly has the jar on its class path; one that spark-submit starts gets it
through `spark.jars`, for driver and executors. A session that is already running, a user's, gets it here: the
driver's class loader loads it, and executors fetch it before their next task.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from millstream.errors import SetupException
from millstream.kernel import Kernel, shipped_kernel
from millstream.spark.jvm.java_names import java_class

__all__ = ["CATALOG", "FUNCTIONS", "LOCAL_FILES", "add_to_driver", "deliver_kernel"]

log = logging.getLogger(__name__)

CATALOG = "millstream_serdes"
"""The extension by which a session finds the kernel's serde functions."""
FUNCTIONS = "io.millstream.kernel.serdes.Functions"

LOCAL_FILES = "io.millstream.kernel.files.LocalFiles"
"""The kernel's implementation of Hadoop's file system for local paths."""

_CLASS = "io.millstream.kernel.Kernel"
_CLIENTS = "org.apache.kafka.clients.producer.KafkaProducer"


def deliver_kernel(spark: SparkSession) -> None:
    """Make this package's kernel, and no other, available to the session's driver and executors.

    Raises:
        SetupException: the jar is missing, the driver accepts none, or it already has another kernel.
    """
    kernel = shipped_kernel()
    jvm: Any = spark._jvm
    if _find(jvm, _CLASS) is None:
        add_to_driver(jvm, [str(kernel.jar)])
    _check(jvm, kernel, spark.version)
    context: Any = spark.sparkContext._jsc.sc()
    if context.isLocal() and _is_on_class_path(jvm, kernel):
        return  # the only executor is the driver
    added = context.listJars().mkString("\n").split("\n")
    if not any(jar.rpartition("/")[2] == kernel.jar.name for jar in added):
        context.addJar(str(kernel.jar))


def _is_on_class_path(jvm: Any, kernel: Kernel) -> bool:
    path = java_class(jvm, "java.lang.System").getProperty("java.class.path")
    return str(kernel.jar) in path.split(os.pathsep)


def add_to_driver(jvm: Any, jars: Iterable[str]) -> None:
    """Have a running JVM, such as spark-submit's, find classes in these jars.

    Executors get them through `spark.jars`. If the class loader accepts none, the checks that follow report
    it.
    """
    loader = java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        for jar in jars:
            loader.addURL(java_class(jvm, "java.io.File")(jar).toURI().toURL())
    except Py4JError:
        log.debug("the class loader of Spark's Java process accepts no jars", exc_info=True)


def _check(jvm: Any, kernel: Kernel, spark_version: str) -> None:
    """Raises a SetupException unless the JVM has this kernel, which sees Kafka's client library."""
    found = _find(jvm, _CLASS)
    if found is None:
        raise SetupException(
            f"this Spark session (version {spark_version}) accepts no jar for its driver while it runs; "
            "start it with the Millstream kernel among its jars:\n"
            "  from millstream.jars import connector_set, ensure_jars\n"
            "  from millstream.kernel import shipped_kernel\n"
            f"  jars = [shipped_kernel().jar, *ensure_jars(connector_set('{spark_version}'))]\n"
            "  SparkSession.builder.config('spark.jars', ','.join(map(str, jars))).getOrCreate()"
        )
    on_spark = Kernel(kernel.jar, _result_of(jvm, found, "version"), _result_of(jvm, found, "digest"))
    if on_spark.digest != kernel.digest:
        place = found.getProtectionDomain().getCodeSource().getLocation().toString()
        raise SetupException(
            f"Spark has the Millstream kernel {on_spark} from {place} "
            f"on its class path, but this is Millstream {kernel}. Remove that jar (Millstream brings its "
            "own), or install the Millstream that it belongs to; then start Spark again"
        )
    if _find(jvm, _CLIENTS, found.getClassLoader()) is None:
        raise SetupException(
            "the Millstream kernel does not see Kafka's client library: the kernel is on Spark's own class "
            "path, the library among `spark.jars`. Remove the kernel's jar from Spark's class path "
            "(Millstream brings its own), or put the jars of the Kafka connector beside it; then start "
            "Spark again"
        )


def _result_of(jvm: Any, kernel: Any, what: str) -> str:
    """The result of a no-argument method of this very class: py4j goes only by a class's name."""
    gateway = SparkContext._gateway
    assert gateway is not None
    method = kernel.getMethod(what, gateway.new_array(java_class(jvm, "java.lang.Class"), 0))
    return str(method.invoke(None, gateway.new_array(java_class(jvm, "java.lang.Object"), 0)))


def _find(jvm: Any, name: str, loader: Any = None) -> Any:
    """A class in the JVM; None: the JVM does not see it."""
    loader = loader or java_class(jvm, "java.lang.Thread").currentThread().getContextClassLoader()
    try:
        return java_class(jvm, "java.lang.Class").forName(name, False, loader)
    except Py4JError:
        return None
