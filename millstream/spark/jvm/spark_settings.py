"""Which settings Spark runs with. Pure.

There are three sources, and later ones override earlier ones: our defaults; the user's Spark settings
(spark-submit, its variable `PYSPARK_SUBMIT_ARGS`, the session passed in); `spark.*` of the client's
configuration.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

__all__ = [
    "SQL_DEFAULTS",
    "has_connector",
    "java_options",
    "launch_settings",
    "quiet_options",
    "settings_in_arguments",
    "sql_settings",
]

_STREAMING = "spark.sql.streaming."

SQL_DEFAULTS: Mapping[str, str] = {
    # For the queries of `to_spark()`: state in RocksDB, with a small file per batch: 190
    # to 81 ms for a small batch.
    f"{_STREAMING}stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STREAMING}stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # To count the entries, Spark reads each one before it writes it.
    f"{_STREAMING}stateStore.rocksdb.trackTotalNumberOfRows": "false",
    # A rename instead of a FileContext round: 65 to 16 ms per batch on local and HDFS-like paths.
    f"{_STREAMING}checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    f"{_STREAMING}pollingDelay": "5ms",
    # Spark's allow list lacks the kernel's sink and operators.
    f"{_STREAMING}realTimeMode.allowlistCheck": "false",
    # Otherwise the log of a batch is written later, and a stop would not know when.
    f"{_STREAMING}realTimeMode.asyncProgressTrackingByDefault.enabled": "false",
    f"{_STREAMING}realTimeMode.minBatchDuration": "1",
    f"{_STREAMING}stateStore.checkpointFormatVersion": "2",
    # A task costs more than the work of a small batch. The first start of a query fixes the number.
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    # From `c = 0 and case when c = 0 then x end` Spark infers x, and evaluates x before c = 0: a cast after a
    # filter then fails for a record that the filter drops. Inferring helps joins of tables, and takes time.
    "spark.sql.constraintPropagation.enabled": "false",
    # In `a and b(x) and c(x)` Spark computes x, which occurs twice, before it evaluates a. With this setting
    # it does not, and in longer conditions it does so less often.
    "spark.sql.subexpressionElimination.skipForShortcutExpr": "true",
    # A function's exception arrives as the text of its traceback; the shortened form omits its causes.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # It only costs here: a map of one record takes 36 to 40 ms without it, 40 to 46 with it.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}
"""SQL settings of a client's session, unless the user sets others."""

_NEEDED = frozenset(
    (
        f"{_STREAMING}realTimeMode.allowlistCheck",
        f"{_STREAMING}realTimeMode.asyncProgressTrackingByDefault.enabled",
        f"{_STREAMING}realTimeMode.minBatchDuration",
        f"{_STREAMING}stateStore.checkpointFormatVersion",
        "spark.sql.adaptive.streaming.stateless.enabled",
        "spark.sql.constraintPropagation.enabled",
        "spark.sql.session.timeZone",
        "spark.sql.subexpressionElimination.skipForShortcutExpr",
    )
)
"""Settings that results depend on. A session that serves other programs, too, may have other values; only the
client's own configuration can choose them for its pipelines."""

_LAUNCH_DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.artifact.isolation.enabled": "false",
}

_WITHOUT_UI: Mapping[str, str] = {
    # The UI's data is kept even without a UI: by default a thousand plans, one for each micro-batch; after a
    # thousand micro-batches that was half of the live heap, 60 of 130 MB.
    "spark.sql.ui.retainedExecutions": "5",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
}

# Where the kernel's own file system is not in use (see `session.py`), each file that Spark writes costs a
# process, `chmod`: 8.6 ms (CPU 7.6), 4.4 without checksum files, and 3.5 (CPU 3.3) if Java starts processes
# by vfork. Python workers are processes, too.
_FAST_PROCESSES = "-Djdk.lang.Process.launchMechanism=VFORK"

# Three times Java's defaults. A third of a start's CPU time was Java's second compiler (C2), mostly for code
# that hardly runs after the start: 16.4 s with the defaults, 14.4 with these (median of four starts).
_COMPILED_LATER = (
    "-XX:Tier4InvocationThreshold=15000",
    "-XX:Tier4MinInvocationThreshold=1800",
    "-XX:Tier4CompileThreshold=45000",
)

_SLOTS = 1024
"""A slot is a thread that is created when a task needs it. There must be more slots than tasks, which last as
long as their query; further ones wait for tasks to come; and topics may get more partitions."""

_ARGUMENTS: Mapping[str, str] = {
    "--master": "spark.master",
    "--name": "spark.app.name",
    "--jars": "spark.jars",
    "--packages": "spark.jars.packages",
    "--driver-memory": "spark.driver.memory",
    "--driver-java-options": "spark.driver.extraJavaOptions",
    "--executor-memory": "spark.executor.memory",
    "--executor-cores": "spark.executor.cores",
}
"""Arguments of spark-submit equivalent to a setting that we set or use."""


def _with_slots(cores: int) -> dict[str, str]:
    """A Spark in this process, with a slot for each task."""
    return {
        "spark.master": f"local[{max(_SLOTS, cores)}]",
        # Spark splits data without partitions of its own by it, such as a DataFrame of Python rows.
        "spark.default.parallelism": str(max(2, cores)),
    }


def sql_settings(settings: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """The `spark.sql.*` of a client's session."""
    ours = {name: value for name, value in SQL_DEFAULTS.items() if name in _NEEDED or name not in given}
    return {name: value for name, value in {**ours, **settings}.items() if name.startswith("spark.sql.")}


def launch_settings(
    app_name: str, settings: Mapping[str, str], given: Mapping[str, str], *, our_workers: bool
) -> dict[str, str]:
    """The settings that Spark is started with, except jars and Java's own options.

    Args:
        our_workers: Python workers find this package.
    """
    chosen = {**_LAUNCH_DEFAULTS, "spark.app.name": app_name}
    if "spark.master" not in {*given, *settings}:
        chosen |= _with_slots(os.cpu_count() or 1)
    master = {**chosen, **given, **settings}["spark.master"]
    if master.startswith("local"):
        chosen |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        if not master.startswith("local-cluster"):
            # Any user of this machine can reach these addresses. In local mode Spark makes the secret itself,
            # and keeps it in memory.
            chosen["spark.authenticate"] = "true"
        if our_workers:
            chosen["spark.python.daemon.module"] = "millstream.spark.worker.daemon"
    chosen |= {**given, **settings}
    return chosen if chosen["spark.ui.enabled"] != "false" else {**_WITHOUT_UI, **chosen}


def has_connector(settings: Mapping[str, str]) -> bool:
    """Whether Spark's Kafka connector is among the jars."""
    return any("spark-sql-kafka" in settings.get(name, "") for name in ("spark.jars", "spark.jars.packages"))


def settings_in_arguments(text: str) -> tuple[dict[str, str], str]:
    """The settings in arguments of spark-submit, as in `PYSPARK_SUBMIT_ARGS`, and the remaining arguments.
    The former override every setting that Spark is started with, ours included.
    """
    settings: dict[str, str] = {}
    rest: list[str] = []
    words = iter(shlex.split(text))
    for word in words:
        name, equals, value = word.partition("=")
        if name not in _ARGUMENTS and name not in ("--conf", "-c"):
            rest.append(word)
            continue
        value = value if equals else next(words, "")
        if name in _ARGUMENTS:
            settings[_ARGUMENTS[name]] = value
        else:
            setting, _, value = value.partition("=")
            settings[setting] = value
    return settings, shlex.join(rest)


def java_options(given: str, *, own_heap: bool, cores: int) -> str:
    """The user's options for Spark's JVM, completed by ours.

    Args:
        own_heap: the heap has our default size: small, so a collector for large heaps is a burden.
            G1 marks the whole heap for each big buffer of a micro-batch. On two cores a start took 21.8 s of
            CPU with G1, 19.8 with the parallel collector, 17.5 with the serial one; after it the JVM had 1.1,
            1.1 and 0.55 GB. Throughput was the same.
    """
    options = [given] if given else []
    if own_heap and "GC" not in given:
        options.append("-XX:+UseSerialGC" if cores <= 2 else "-XX:+UseParallelGC")
    if "MetaspaceSize" not in given:
        # Spark's classes take 170 MB; from the default of 21 MB upwards, each growth collects the whole heap.
        options.append("-XX:MetaspaceSize=256m")
    if "Tier" not in given:
        options += _COMPILED_LATER
    if "launchMechanism" not in given:
        options.append(_FAST_PROCESSES)
    return " ".join(options)


def quiet_options(given: str, *, has_log_file: bool) -> list[str]:
    """The options that keep Spark's log off the program's stderr, unless the user configures logging.

    A separate file (`MILLSTREAM_SPARK_LOG`) gets warnings.
    """
    if "log4j" in given:
        return []
    configuration = Path(__file__).with_name("log4j2.properties").as_uri()
    level = ["-Dmillstream.log.level=warn"] if has_log_file else []
    return [f"-Dlog4j2.configurationFile={configuration}", *level]
