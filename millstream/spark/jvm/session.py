"""The Spark session: one JVM and one SparkContext for the process, shared by its clients.

A client that was given a session uses it and never stops it. Otherwise the first client starts Spark and the
last one to close stops it. Settings that a JVM reads only when it starts (memory, Java options) are the first
client's; each client has a `newSession()` with its own SQL settings.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Any

import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import AnalysisException, PySparkAttributeError, PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millstream import program_end
from millstream.errors import IllegalStateException, SetupException, StreamsException
from millstream.jars import connector_set, ensure_jars
from millstream.java import JavaHome, find_java, home_for_spark
from millstream.kernel import shipped_kernel
from millstream.permissions import umask_of_children
from millstream.polling import looks
from millstream.scratch import PrivateDirectory
from millstream.spark.jvm import direct, machine_learning
from millstream.spark.jvm.archived import Launched, start_with_archive
from millstream.spark.jvm.java_names import know_classes
from millstream.spark.jvm.kernel_jar import (
    CATALOG,
    FUNCTIONS,
    LOCAL_FILES,
    add_to_driver,
    deliver_kernel,
)
from millstream.spark.jvm.package import deliver_package
from millstream.spark.jvm.spark_settings import (
    has_connector,
    java_options,
    launch_settings,
    quiet_options,
    settings_in_arguments,
    sql_settings,
)
from millstream.spark.jvm.stale import forget_java_halves
from millstream.spark.jvm.testing_later import postpone_testing

__all__ = [
    "SharedSession",
    "check_connector",
    "class_data_archive",
    "has_jvm_ended",
    "how_jvm_ended",
    "is_jvm_ending",
    "scratch_path",
    "with_settings",
]

log = logging.getLogger(__name__)
# py4j logs each connection that it closes, at INFO.
logging.getLogger("py4j").setLevel(logging.WARNING)

_LOOK_SECONDS = 0.05
_HOME = Path(pyspark.__file__).parent
_UMASK = "spark.hadoop.fs.permissions.umask-mode"
"""With it Hadoop sets the permissions of each file that it creates, whatever the process's umask is."""
_LOCAL_FILES = "spark.hadoop.fs.file.impl"
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PYTHON = "PYSPARK_PYTHON"
_HOOKS_SECONDS = 10.0


class SharedSession:
    """Counts the users of the Spark that this module started, and stops it with the last one."""

    _lock = threading.Lock()
    _users = 0
    _starts = 0
    _user_settings: Mapping[str, str] = {}

    def __init__(
        self,
        settings: Mapping[str, str],
        app_name: str,
        given: SparkSession | None = None,
        closing: threading.Event | None = None,
    ) -> None:
        """Start Spark, or join a running one.

        Args:
            settings: `spark.*` from the configuration.
            given: the user's own session; it is left running.
            closing: set, from any thread, when the session is no longer wanted; starting then ends soon.

        Raises:
            SetupException: there is no Java, a jar is missing, or Spark does not start.
            StreamsException: `closing` was set before Spark had started.
        """
        closing = closing or threading.Event()
        self._owned = given is None
        self._closed = False
        self._lost = False
        self._gateway: Any = None
        user_settings: Mapping[str, str]
        if given is not None:
            base, user_settings = given, _settings_of(given)
        else:
            _acquire(SharedSession._lock, closing)
            try:
                base = _start(settings, app_name, closing)
                SharedSession._users += 1
                user_settings = SharedSession._user_settings
            finally:
                SharedSession._lock.release()
        try:
            _check_not_closing(closing)
            check_connector(base)
            know_classes(base._jvm)
            deliver_kernel(base)
            deliver_package(base)
            self.spark = with_settings(base, sql_settings(settings, user_settings))
            self._gateway = SparkContext._gateway
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the session; the last user stops Spark. Idempotent; fast if its JVM is gone."""
        if self._closed:
            return
        self._closed = True
        if not self._owned:
            return
        with SharedSession._lock:
            SharedSession._users -= 1
            if self._lost and not _ends_soon(self._gateway):
                log.warning("Spark's Java process does not answer, but has not ended")
            if not _has_jvm():
                _forget_jvm()
            elif SharedSession._users == 0 and SparkContext._active_spark_context is not None:
                SparkSession.builder.getOrCreate().stop()

    @property
    def is_alive(self) -> bool:
        """Whether its JVM is running. One that this process did not start is assumed to be."""
        return not self._closed and not self._lost and _process_runs(self._gateway)

    def end_silent(self, reason: str) -> None:
        """Kill the JVM, which does not answer any more: a call that waits for it then fails. The reason is
        for the failures that this leads to. One that this process did not start is left alone."""
        if self._lost or not self._owned or getattr(self._gateway, "proc", None) is None:
            return
        self._gateway.ended_because = reason
        self._gateway.proc.kill()

    def note_lost(self) -> None:
        """Note that a call found the JVM gone. The process itself may take a moment longer to end."""
        self._lost = True


def with_settings(base: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A new session in the JVM of `base`, with these `spark.sql.*`."""
    session = base.newSession()
    for name, value in settings.items():
        _set(session, name, value)
    session.conf.set(f"spark.sql.catalog.{CATALOG}", FUNCTIONS)
    return session


def _settings_of(session: SparkSession) -> Mapping[str, str]:
    """The user's settings of a Spark whose session was passed in.

    Raises:
        SetupException: it is a Spark Connect session, which has no JVM to talk to.
    """
    try:
        context = session.sparkContext
        if SharedSession._users and context is SparkContext._active_spark_context:
            return SharedSession._user_settings  # our own Spark has our settings
        return dict(context.getConf().getAll())
    except PySparkAttributeError as error:
        raise SetupException(
            "this is a Spark Connect session, which Millstream does not support: it needs Spark's Java "
            "process on this machine. Pass a classic session, such as "
            "SparkSession.builder.master('local[*]').getOrCreate() (on Databricks: on a cluster with "
            "dedicated access mode), or let Millstream start Spark: KafkaStreams(topology, config) without "
            "a session"
        ) from error


def _submitted_settings() -> dict[str, str]:
    """The user's settings given to spark-submit, if this program runs in its JVM, or in
    `PYSPARK_SUBMIT_ARGS`."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return settings_in_arguments(os.environ.get(_ARGUMENTS, ""))[0]
    SparkContext._ensure_initialized()
    user_settings = dict(SparkConf(_jvm=SparkContext._jvm).getAll())
    if user_settings.get("spark.app.name") == Path(sys.argv[0]).name:
        del user_settings["spark.app.name"]  # no one set that: spark-submit chose the name
    return user_settings


def check_connector(spark: SparkSession) -> None:
    """Raises a SetupException unless the session can read Kafka."""
    try:
        spark._jvm.java.lang.Class.forName(  # type: ignore[union-attr]
            "org.apache.spark.sql.kafka010.KafkaSourceProvider",
            True,
            spark._jvm.java.lang.Thread.currentThread().getContextClassLoader(),  # type: ignore[union-attr]
        )
    except Exception as error:
        raise SetupException(
            f"this Spark session (version {spark.version}) has no Kafka connector. Let Millstream start "
            "Spark: KafkaStreams(topology, config) without a session; or start yours with the same jars:\n"
            "  from millstream.jars import connector_set, ensure_jars\n"
            f"  jars = ensure_jars(connector_set('{spark.version}'))\n"
            "  SparkSession.builder.config('spark.jars', ','.join(map(str, jars))).getOrCreate()"
        ) from error


def _set(spark: SparkSession, name: str, value: str) -> None:
    # Not `conf.isModifiable()`: it denies keys that Spark reads without registering them, such as
    # checkpointFileManagerClass and all keys of the RocksDB state store.
    try:
        spark.conf.set(name, value)
    except AnalysisException as error:
        if "CANNOT_MODIFY" not in (error.getCondition() or ""):
            raise
        log.debug("%s cannot change after Spark has started", name)


def _check_not_closing(closing: threading.Event) -> None:
    if closing.is_set():
        raise StreamsException("the client was closed while Spark was starting")


def _acquire(lock: threading.Lock, closing: threading.Event) -> None:
    """Wait for a lock that another client holds while it starts Spark."""
    while not lock.acquire(timeout=_LOOK_SECONDS):
        _check_not_closing(closing)
    if closing.is_set():
        lock.release()
        _check_not_closing(closing)


def _process_runs(gateway: Any) -> bool:
    process = getattr(gateway, "proc", None)
    return process is None or process.poll() is None


def _ends_soon(gateway: Any, within_s: float = 2.0) -> bool:
    process = getattr(gateway, "proc", None)
    if process is None:
        return False
    try:
        process.wait(timeout=within_s)
    except Exception:  # subprocess.TimeoutExpired; the process is PySpark's
        return False
    return True


def class_data_archive(timeout_s: float) -> Path | None:
    """The archive that Spark's next start will use; waits for it if it is being created.

    None: there is none, and the log says why.
    """
    launched: Launched | None = getattr(SparkContext._gateway, "__dict__", {}).get("launched")
    if launched is None or launched.archive is None:
        return None
    if launched.making is not None:
        launched.making.wait_until_done(timeout_s)
    return launched.archive.find()


def has_jvm_ended() -> bool:
    """Whether the JVM of this process is gone. One that was just killed gets a moment to end."""
    gateway = SparkContext._gateway
    return gateway is not None and _ends_soon(gateway)


def is_jvm_ending(within_s: float = 0.0) -> bool:
    """Whether the JVM is gone or about to be, now or `within_s`; if so, waits for its end.

    A fatal error in a task ends it, and meanwhile its queries fail for any reason that a Spark that stops
    gives them.
    """
    gateway = SparkContext._gateway
    if gateway is None:
        return False
    try:
        hooks: Any = getattr(SparkContext._jvm, "org.apache.spark.util.ShutdownHookManager")
        if not any(hooks.inShutdown() for _ in looks(within_s, every_s=_LOOK_SECONDS)):
            return False
    except Exception:  # it does not answer
        return _ends_soon(gateway)
    if not _ends_soon(gateway, _HOOKS_SECONDS) and getattr(gateway, "proc", None) is not None:
        gateway.ended_because = "it lacked memory, or met another fatal error, and did not end by itself"
        gateway.proc.kill()
    return True


def how_jvm_ended(gateway: Any) -> str:
    """What is known of how a JVM ended; "": nothing."""
    because: str | None = getattr(gateway, "__dict__", {}).get("ended_because")
    if because is not None:
        return because
    return meaning_of_exit(gateway.proc.returncode) if _ends_soon(gateway) else ""


def meaning_of_exit(code: int) -> str:
    """What the exit code of a JVM says; -9 is signal 9, as `subprocess` has it."""
    if code in _OUT_OF_MEMORY:
        return "it ran out of memory; give it more (spark.driver.memory)"
    if code == -signal.SIGKILL:
        return "it was killed (SIGKILL), perhaps by the operating system, which was short of memory"
    if code < 0:
        return f"signal {-code} ended it; of a crash Java writes a file hs_err_pid<number>.log"
    return f"it ended with exit code {code}"


_OUT_OF_MEMORY = (3, 52)
"""The exit codes of Java with the option ExitOnOutOfMemoryError, and of Spark after an OutOfMemoryError."""


def _has_jvm() -> bool:
    return SparkContext._gateway is None or _process_runs(SparkContext._gateway)


def _forget_jvm() -> None:
    """Have PySpark start again: it keeps a JVM that was killed, and each of its calls would fail."""
    log.warning("Spark's Java process has ended; the next start of Spark starts a new one")
    if SparkContext._gateway is not None:
        program_end.forget(SparkContext._gateway)
    _remove_scratch(SparkContext._gateway)
    context: Any = SparkContext._active_spark_context
    if context is not None:
        # It waits forever for a connection from the JVM.
        server = context._accumulatorServer
        threading.Thread(target=server.shutdown, name="spark-forget", daemon=True).start()
    SparkContext._active_spark_context = None
    SparkContext._gateway = None
    SparkContext._jvm = None
    SparkSession._instantiatedSession = None
    SparkSession._activeSession = None


def _start(settings: Mapping[str, str], app_name: str, closing: threading.Event) -> SparkSession:
    if not _has_jvm():
        _forget_jvm()
    if SparkContext._active_spark_context is not None:
        if SharedSession._users == 0:
            raise IllegalStateException(
                "Spark already runs in this process, started by someone else; "
                "pass its session to the client: KafkaStreams(topology, config, spark=spark)"
            )
        return SparkSession.builder.getOrCreate()
    _wait_for_launch(closing)
    user_settings = SharedSession._user_settings = _submitted_settings()
    chosen = launch_settings(
        app_name, settings, user_settings, our_workers=_workers_are_ours({**user_settings, **settings})
    )
    chosen.setdefault(_UMASK, f"{umask_of_children():03o}")
    own = [shipped_kernel().jar]
    if not has_connector(chosen):
        own += ensure_jars(connector_set(pyspark.__version__))
    own_heap = not {*user_settings, *settings} & {"spark.driver.memory"}
    chosen["spark.driver.extraJavaOptions"] = java_options(
        chosen.get("spark.driver.extraJavaOptions", ""), own_heap=own_heap, cores=os.cpu_count() or 1
    )
    hindrance = _why_not_directly(chosen)
    if hindrance is None:
        chosen.setdefault(_LOCAL_FILES, LOCAL_FILES)
    else:
        log.debug("Spark is started by spark-submit: %s", hindrance)
        jars = [*filter(None, [chosen.get("spark.jars")]), *map(str, own)]
        chosen["spark.jars"] = ",".join(jars)
        if SparkContext._gateway is not None:
            add_to_driver(SparkContext._jvm, map(str, own))
    conf = SparkConf(loadDefaults=False)
    for name, value in chosen.items():
        conf.set(name, value)
    try:
        with _workers_python(chosen.get("spark.pyspark.python")):
            if SparkContext._gateway is None:
                _check_not_closing(closing)
                path = _class_path(own) if hindrance is None else None
                gateway = _launch_unless(closing, conf, path)
                SparkContext._ensure_initialized(gateway=gateway, conf=conf)
            _check_not_closing(closing)
            if SharedSession._starts:
                forget_java_halves()
            SharedSession._starts += 1
            session = SparkSession(SparkContext.getOrCreate(conf))
        _end_if_a_thread_lacks_memory(session)
        _keep_quiet(session)
        _write_no_checksum_files(session)
        _forget_origins(session)
        return session
    except PySparkException as error:
        raise SetupException(
            f"Spark {pyspark.__version__} did not start: {error}; what Java printed is above, "
            "or in the file that MILLSTREAM_SPARK_LOG names"
        ) from error


def _class_path(own: Sequence[Path]) -> list[Path]:
    if machine_learning.is_imported():
        return direct.class_path(_HOME, own)
    machine_learning.warn_if_imported()
    return direct.class_path(_HOME, own, without=machine_learning.JAR)


@contextmanager
def _workers_python(chosen: str | None) -> Iterator[None]:
    """Have PySpark, while it starts, find the Python of its workers.

    It reads only the environment, and only then: a context keeps what it has read, and the JVM its copy of
    the environment. So the variable is afterwards the program's own again.
    """
    before = os.environ.get(_PYTHON)
    os.environ[_PYTHON] = chosen or before or sys.executable
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_PYTHON, None)
        else:
            os.environ[_PYTHON] = before


def _why_not_directly(settings: Mapping[str, str]) -> str | None:
    """Why spark-submit started Spark's JVM, or must; None: our jars are, or will be, among Spark's own."""
    gateway = SparkContext._gateway
    if gateway is not None:
        return None if vars(gateway).get("direct") else "it is already running"
    arguments = settings_in_arguments(os.environ.get(_ARGUMENTS, ""))[1]
    return direct.decide(pyspark.__version__, _HOME, settings, arguments, os.environ)


def _workers_are_ours(settings: Mapping[str, str]) -> bool:
    """Whether Python workers run in this environment, so that they find this package."""
    chosen = settings.get("spark.pyspark.python") or os.environ.get(_PYTHON) or sys.executable
    return chosen == sys.executable and _is_installed()


def _is_installed() -> bool:
    try:
        distribution("millstream")
    except PackageNotFoundError:
        return False  # found only by this process's path
    return True


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Drops py4j's root-logger message that a command could not be sent; py4j raises as well."""
    return not (record.name == "root" and record.pathname.endswith(os.path.join("py4j", "java_gateway.py")))


def _keep_quiet(session: SparkSession) -> None:
    """Keep PySpark from printing what it raises anyway, or what we report: that the JVM is gone."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_py4js)
    server: Any = session.sparkContext._accumulatorServer
    server.handle_error = lambda *_: log.debug("PySpark's accumulators", exc_info=True)


def _end_if_a_thread_lacks_memory(spark: SparkSession) -> None:
    """Have the JVM end if an OutOfMemoryError ends any of its threads, as Spark has it for its executors.

    One of Spark's own would be missing from then on, and its jobs would wait for ever. An error that Spark
    catches, because it can spill, ends nothing; so this is not Java's option ExitOnOutOfMemoryError.
    """
    try:
        java: Any = spark._jvm
        thread = java.java.lang.Thread
        if thread.getDefaultUncaughtExceptionHandler() is None:
            thread.setDefaultUncaughtExceptionHandler(
                java.org.apache.spark.util.SparkUncaughtExceptionHandler(False)
            )
    except Py4JError:  # a Spark version that has none, or hides it
        log.debug("threads of Spark that lack memory", exc_info=True)


def _write_no_checksum_files(spark: SparkSession) -> None:
    """Let Hadoop's local file system write no `.crc` file beside each file (see `_FAST_PROCESSES`).

    The kernel's (`LocalFiles.java`) writes none anyway; this is for a JVM started by spark-submit. A JVM has
    one local file system, which all its sessions share; that of a user's own session is unchanged. Files with
    a checksum are still checked when they are read.
    """
    assert spark._jvm is not None
    local = spark._jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
    local.setWriteChecksum(False)


def _forget_origins(spark: SparkSession) -> None:
    """Make Hadoop's configuration forget which file each of its settings came from.

    Each micro-batch brings the configuration to the tasks, once for each operator with state, and Hadoop
    compresses the origins of its thousand settings one by one: 5 ms of a batch. No one reads them.
    """
    try:
        configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
        configuration.size()  # read it from its files now, not later
        origins = configuration.getClass().getDeclaredField("updatingResource")
        origins.setAccessible(True)
        origins.get(configuration).clear()
    except Py4JError:  # a Hadoop version that keeps them elsewhere, or hides them
        log.debug("the origins of Hadoop's settings", exc_info=True)


def _stderr() -> int | None:
    """The JVM's stderr; None: there is none."""
    try:
        os.fstat(2)
    except OSError:  # a daemon may have closed it
        return None
    return 2


def _launch(conf: SparkConf, path: Sequence[Path] | None) -> Any:
    """Start the JVM, with the Java that Millstream found.

    The JVM reads the other end of a pipe that this process holds, and exits when the pipe breaks, also when
    this process is killed. Its output goes to this process's stderr, or to `MILLSTREAM_SPARK_LOG`; never to
    stdout, which is the program's own.

    Args:
        path: its class path; None: spark-submit starts it.
    """
    java = find_java()
    log_file = os.environ.get("MILLSTREAM_SPARK_LOG")
    given = conf.get("spark.driver.extraJavaOptions") or ""
    options = [given, *quiet_options(given, has_log_file=log_file is not None)]
    scratch = _scratch_for(conf, options)
    conf.set("spark.driver.extraJavaOptions", " ".join(filter(None, options)))
    mask = conf.get(_UMASK) or ""
    # Blocks, the state of queries and temporary files contain records.
    umask = int(mask, 8) if mask.isdigit() else umask_of_children()
    output: IO[bytes] | None = None
    try:
        output = open(log_file, "ab") if log_file else None  # noqa: SIM115
        writes_to = _stderr() if output is None else output.fileno()
        log.info("starting Spark %s on Java %s (%s)", pyspark.__version__, java.version, java.source)
        postpone_testing()
        if path is None:
            gateway = _submit(conf, java, writes_to, umask)
        else:
            gateway = _start_directly(conf, java, path, scratch, writes_to, umask)
    except BaseException:
        if scratch is not None:
            scratch.remove()
        raise
    finally:
        if output is not None:
            output.close()
    gateway.scratch = scratch
    program_end.close_after_clients(gateway, partial(_end, gateway))
    program_end.leave_to_parent(gateway)
    program_end.close_in_child(gateway, partial(_forget_in_child, gateway))
    return gateway


def _start_directly(
    conf: SparkConf,
    java: JavaHome,
    path: Sequence[Path],
    scratch: PrivateDirectory | None,
    writes_to: int | None,
    umask: int,
) -> Any:
    settings = dict(conf.getAll())
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(_HOME),
        "PYTHONHASHSEED": "0",  # as spark-submit has it
    }
    if "SPARK_LOCAL_IP" not in environment:
        # Otherwise Spark looks up this machine's name, and fails to start where it is unknown (in the sandbox
        # of an image build), or waits for a name server that does not answer.
        environment.setdefault("SPARK_LOCAL_HOSTNAME", "localhost")
    class_list = Path(scratch.path, "classes.lst") if scratch is not None else None

    def start(options: Sequence[str]) -> direct.Started:
        command = direct.command(java.java, path, settings, options)
        return direct.start(command, environment, umask=umask, output=writes_to)

    launched = start_with_archive(java, path, settings, class_list, start)
    gateway = direct.connect(*launched.started, settings)
    gateway.direct = True
    gateway.launched = launched
    return gateway


def _submit(conf: SparkConf, java: JavaHome, writes_to: int | None, umask: int) -> Any:
    """Have spark-submit start the JVM. It is configured by the environment, which is ours for a moment."""
    saved = {name: os.environ.get(name) for name in ("JAVA_HOME", "SPARK_HOME", _ARGUMENTS)}
    os.environ["JAVA_HOME"] = str(home_for_spark(java))
    # Another Spark on this machine must not be started with this PySpark.
    os.environ["SPARK_HOME"] = str(_HOME)
    if arguments := saved[_ARGUMENTS]:
        os.environ[_ARGUMENTS] = settings_in_arguments(arguments)[1]  # the settings in it are in `conf`
    streams = {} if writes_to is None else {"stdout": writes_to, "stderr": writes_to}
    try:
        gateway = launch_gateway(conf, {**streams, "umask": umask})  # type: ignore[no-untyped-call]
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    _ignore_sigterm(gateway)
    return gateway


def _ignore_sigterm(gateway: Any) -> None:
    """Let the JVM end only when we end it or are gone: systemd sends SIGTERM to each process of a service.

    It would end before its clients have closed, which they would see as a failure. PySpark does the same for
    Ctrl-C.
    """
    try:
        java = gateway.jvm.sun.misc
        java.Signal.handle(java.Signal("TERM"), java.SignalHandler.SIG_IGN)
    except Exception:  # a Java without that package
        log.debug("Spark's JVM does not ignore SIGTERM", exc_info=True)


def _scratch_for(conf: SparkConf, options: list[str]) -> PrivateDirectory | None:
    """A directory for the JVM's temporary files, passed to it; None: others are configured."""
    temporary = "java.io.tmpdir" not in options[0]
    # Executors elsewhere have directories of their own.
    local = (conf.get("spark.master") or "").startswith("local") and "SPARK_LOCAL_DIRS" not in os.environ
    local = local and not conf.contains("spark.local.dir")
    if not temporary and not local:
        return None
    scratch = PrivateDirectory("spark")
    if temporary:
        options.append(f'"-Djava.io.tmpdir={scratch.path}"')
    if local:
        conf.set("spark.local.dir", str(scratch.path))
    return scratch


def scratch_path(spark: SparkSession) -> Path | None:
    """The directory that goes with Spark's Java process, whatever ends that; None if it is the user's."""
    scratch = getattr(spark.sparkContext._gateway, "scratch", None)
    return Path(scratch.path) if isinstance(scratch, PrivateDirectory) else None


def _remove_scratch(gateway: Any) -> None:
    """Delete what an ended JVM left on disk."""
    scratch = getattr(gateway, "scratch", None)
    if isinstance(scratch, PrivateDirectory):
        scratch.remove()


class _Launch:
    """A JVM that is starting on a thread of its own, so that its waiters can give up.

    Abandoned, it is ended as soon as it has started. There is one at a time: a launch sets the environment of
    the process for a moment.
    """

    current: _Launch | None = None

    def __init__(self, conf: SparkConf, path: Sequence[Path] | None) -> None:
        self._conf = conf
        self._path = path
        self._lock = threading.Lock()
        self._abandoned = False
        self._gateway: Any = None
        self._error: BaseException | None = None
        self.done = threading.Event()
        threading.Thread(target=self._run, name="spark-launch", daemon=True).start()

    def _run(self) -> None:
        try:
            gateway = _launch(self._conf, self._path)
            with self._lock:
                self._gateway = gateway
                unwanted = self._abandoned
            if unwanted:
                _end(gateway)
        except BaseException as error:  # raised by the waiting thread
            self._error = error
        finally:
            self.done.set()

    def abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            gateway = self._gateway
        if gateway is not None:
            _end(gateway)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._gateway


def _wait_for_launch(closing: threading.Event) -> None:
    """Wait until an abandoned launch is finished and the environment is the program's own again."""
    before = _Launch.current
    while before is not None and not before.done.wait(_LOOK_SECONDS):
        _check_not_closing(closing)


def _launch_unless(closing: threading.Event, conf: SparkConf, path: Sequence[Path] | None) -> Any:
    """Start the JVM; give up as soon as `closing` is set."""
    launch = _Launch.current = _Launch(conf, path)
    while not launch.done.wait(_LOOK_SECONDS):
        if closing.is_set():
            launch.abandon()
            _check_not_closing(closing)
    return launch.result()


def _forget_in_child(gateway: Any) -> None:
    """In a forked child: the JVM is the parent's. Send it nothing, and do not keep it from ending.

    It ends when the pipe to it breaks, so the child must not hold that open.
    """
    gateway._gateway_client.is_connected = False  # finalizers of Java objects would call the JVM
    if gateway.proc is not None:
        gateway.proc.stdin.close()


def _end(gateway: Any) -> None:
    """Stop what still runs, and close the JVM's input; it does not outlive this process."""
    process = gateway.proc
    launched: Launched | None = vars(gateway).get("launched")
    if launched is not None and launched.making is not None:
        launched.making.stop()
    if process is None or process.poll() is not None:
        _remove_scratch(gateway)
        return
    try:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        gateway.shutdown()
    except Exception:
        log.debug("stopping Spark at exit", exc_info=True)
    process.stdin.close()
    try:
        process.wait(timeout=3)
    except Exception:
        process.kill()
        process.wait(timeout=3)
    _remove_scratch(gateway)
