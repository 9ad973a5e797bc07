"""Spark's JVM, started as one process: Java itself, with the command that spark-submit would make.

spark-submit is a shell script that starts a first JVM to compute the command of a second one. The second one
begins with a program (SparkSubmit) that works out where a job is to run. With a local master and no special
settings, there is nothing to work out: only a class path, a heap and Java's options remain. `decide` checks
whether that is the case; if any setting is meant for spark-submit, spark-submit is used.

The kernel and the Kafka connector are on Java's own class path here, not among `spark.jars`, which are copied
for executors and loaded by a class loader that no class-data archive covers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from millstream.polling import looks

__all__ = ["MAIN", "MODULE_OPTIONS", "Started", "class_path", "command", "connect", "decide", "start"]

MAIN = "org.apache.spark.api.python.PythonGatewayServer"
"""What SparkSubmit runs for `pyspark-shell`."""

MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.invoke=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.net=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent.atomic=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.cs=ALL-UNNAMED",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    "--add-opens=java.base/sun.util.calendar=ALL-UNNAMED",
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""The options that spark-submit of Spark 4.2 and 4.3 gives each JVM, except the incubating module
(java.py)."""

_KNOWN_SPARK = ("4.2.", "4.3.")

_FOR_SPARK_SUBMIT = (
    "spark.archives",
    "spark.driver.defaultExtraClassPath",
    "spark.driver.defaultJavaOptions",
    "spark.driver.extraClassPath",
    "spark.driver.extraLibraryPath",
    "spark.driver.userClassPathFirst",
    "spark.files",
    "spark.jars",
    "spark.kerberos.",
    "spark.log.structuredLogging.",
    "spark.submit.",
)
"""Settings, and prefixes of settings, that spark-submit acts on before Spark's own code begins."""

_READ_BY_SCRIPTS = (
    *("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "SPARK_PREPEND_CLASSES"),
    *("SPARK_DRIVER_MEMORY", "SPARK_MEM", "SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"),
    *("SPARK_PRINT_LAUNCH_COMMAND", "SPARK_TESTING", "SPARK_SQL_TESTING"),
)
"""Environment variables that spark-submit's scripts and launcher act on."""

_LOOK_SECONDS = 0.01
_PATIENCE_SECONDS = 300.0


class Started(NamedTuple):
    """A JVM that answers: its port, and the secret it requires."""

    process: subprocess.Popen[bytes]
    port: int
    secret: str


def decide(
    spark_version: str,
    spark_home: Path,
    settings: Mapping[str, str],
    arguments: str,
    environment: Mapping[str, str],
) -> str | None:
    """Why spark-submit has to start the JVM; None: there is nothing it would have to act on.

    Args:
        settings: all settings that Spark is started with.
        arguments: what remains of PYSPARK_SUBMIT_ARGS without the settings in it.
    """
    if os.name == "nt":
        return "this is Windows"
    if not spark_version.startswith(_KNOWN_SPARK):
        return f"Spark {spark_version} is unknown"
    if (spark_home / "conf").exists():
        return f"{spark_home / 'conf'} exists"
    if not settings.get("spark.master", "").startswith("local"):
        return "the master is not local"
    if settings["spark.master"].startswith("local-cluster"):
        return "executors are separate processes"
    if arguments not in ("", "pyspark-shell"):
        return "PYSPARK_SUBMIT_ARGS contains more than settings"
    for name in sorted(settings):
        if name.startswith(_FOR_SPARK_SUBMIT):
            return f"{name} is set"
    for name in _READ_BY_SCRIPTS:
        if name in environment:
            return f"{name} is set"
    options = settings.get("spark.driver.extraJavaOptions", "")
    if "-Xmx" in options or "\\" in options:
        return "spark.driver.extraJavaOptions are for spark-submit to check"
    try:
        shlex.split(options)
    except ValueError:
        return "spark.driver.extraJavaOptions are for spark-submit to refuse"
    return None


def class_path(spark_home: Path, own: Sequence[Path], without: str | None = None) -> list[Path]:
    """The jars of Spark's JVM, always in the same order, which a class-data archive requires.

    Args:
        without: leave out a jar whose name begins like this.
    """
    jars = sorted((spark_home / "jars").glob("*.jar"))
    jars = [jar for jar in jars if without is None or not jar.name.startswith(without)]
    # As in spark-submit: before a jar with older versions of the same interfaces.
    first = [jar for jar in jars if jar.name.startswith("slf4j-api-")]
    return [*first, *(jar for jar in jars if jar not in first), *own]


def command(
    java: Path, path: Sequence[Path], settings: Mapping[str, str], options: Sequence[str] = ()
) -> list[str]:
    """The command of the JVM; `options` are those in no setting."""
    given = shlex.split(settings.get("spark.driver.extraJavaOptions", ""))
    return [
        *(str(java), "-cp", os.pathsep.join(map(str, path))),
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *given,
        *MODULE_OPTIONS,
        *options,
        MAIN,
    ]


def start(
    arguments: Sequence[str], environment: Mapping[str, str], *, umask: int, output: int | None
) -> Started:
    """Start the JVM, and wait until it answers.

    The JVM reads the other end of a pipe, and exits when that breaks. It ignores Ctrl-C, which is for us, and
    SIGTERM, which systemd sends to each process of a service: it would end before its clients have closed.

    Args:
        output: where it writes; None: where this process does.

    Raises:
        OSError: Java cannot be run.
        PySparkRuntimeError: it ended, or does not answer.
    """
    directory = tempfile.mkdtemp()  # 0700: whoever can read it can have the JVM do anything
    try:
        connection = Path(directory, "connection")
        process = subprocess.Popen(
            list(arguments),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={**environment, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection), "SPARK_CONNECT_MODE": "0"},
            umask=umask,
            preexec_fn=_ignore_signals,
        )
        try:
            for _ in looks(_PATIENCE_SECONDS, every_s=_LOOK_SECONDS):
                if connection.exists():  # it gets this name when it is complete
                    break
                if process.poll() is not None:
                    raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            else:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
            answer = connection.read_bytes()  # the port, the length of the secret, the secret
            port, length = struct.unpack(">ii", answer[:8])
            return Started(process, port, answer[8 : 8 + length].decode())
        except BaseException:
            process.kill()
            process.wait()
            raise
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def connect(process: subprocess.Popen[bytes], port: int, secret: str, settings: Mapping[str, str]) -> Any:
    """PySpark's gateway to the JVM. The settings become its system properties, as SparkSubmit makes them."""
    # PySpark finds a running JVM through these variables and nothing else. A process that the program starts
    # during the few milliseconds of connecting gets them, too.
    variables = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    os.environ |= variables
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        for name in variables:
            os.environ.pop(name, None)
    gateway.proc = process
    system = gateway.jvm.java.lang.System
    for name, value in settings.items():
        system.setProperty(name, value)
    return gateway
