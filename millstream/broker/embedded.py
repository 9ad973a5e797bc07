"""A real Apache Kafka broker (KRaft, one node) as a child process.

    with EmbeddedKafka() as kafka:
        kafka.create_topic("lines", partitions=4)
        ...  # bootstrap.servers = kafka.bootstrap_servers

Start, in order: Java and the jars (`millstream.java`, `millstream.jars`), the data directory (`storage.py`),
ports, the settings (`broker_settings.py`), the process (`supervised.py`), and then questions until it answers
(`probe.py`). The process dies with this one, however this one ends.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from millstream.broker.broker_settings import HOST, broker_settings, jvm_arguments
from millstream.broker.probe import is_ready
from millstream.broker.storage import DataDir, template
from millstream.cache import cache_dir
from millstream.class_data import Archive, ArchiveMaking
from millstream.errors import BrokerException, IllegalStateException
from millstream.jars import BROKER_SET, ensure_jars
from millstream.java import JavaHome, find_java
from millstream.supervised import SupervisedProcess

if TYPE_CHECKING:
    from millstream.broker.admin import Admin

__all__ = ["EmbeddedKafka"]

_PATIENCE_SECONDS = 10.0
"""How long a broker with permanent data may take to end before it is killed."""

_LOOK_SECONDS = 0.02
_TRIES = 4
_NOT_PASSED_ON = frozenset({"CLASSPATH", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"})
"""Meant for other Java programs; they would change this one's class path and memory."""


class EmbeddedKafka:
    """A Kafka broker for development, demonstrations and tests. Data is real; it is not replicated.

    Nothing starts before `start()`, which a `with` statement calls. It can be started once.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        port: int = 0,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
        start_timeout: timedelta = timedelta(seconds=60),
        progress: bool | None = None,
    ) -> None:
        """Describe the broker.

        Args:
            data_dir: where its data is kept; by default a temporary directory that `close()` removes.
            port: where it listens, on 127.0.0.1; 0 takes a free one.
            heap_mb: the JVM's largest heap.
            settings: broker settings, by Kafka's names, that replace ours.
            start_timeout: how long to wait until it answers. Downloading jars does not count.
            progress: whether to show the download of the jars, as in `ensure_jars`.
        """
        if not 0 <= port <= 65535:
            raise BrokerException(f"port {port} is not valid; use 1 to 65535, or 0 for a free port")
        self._wanted_dir = None if data_dir is None else Path(data_dir)
        self._wanted_port = port
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._start_timeout_s = start_timeout.total_seconds()
        self._progress = progress
        self._data: DataDir | None = None
        self._process: SupervisedProcess | None = None
        self._port = 0
        self._admin: Admin | None = None
        self._making: ArchiveMaking | None = None
        self._closed = False
        self._pid = os.getpid()

    # --- life ------------------------------------------------------------------------------------------

    def start(self) -> EmbeddedKafka:
        """Start the broker and wait until it answers.

        The first start on a machine downloads the jars (45 MB) and prepares a template.

        Raises:
            BrokerException: it did not start; the message ends with the last lines of its log.
            JavaNotFoundException, ArtifactException: what it needs is not on this machine.
            IllegalStateException: it was started before.
        """
        if self._data is not None or self._closed:
            raise IllegalStateException(
                "this EmbeddedKafka has already been started; create a new one instead"
            )
        self._check_port()  # first, since what comes next may download
        java = find_java()
        jars = ensure_jars(BROKER_SET, progress=self._progress)
        cached = cache_dir("broker", _cache_key(java, jars))
        formatted = template(cached, java, jars)
        self._data = DataDir(self._wanted_dir)
        try:
            self._data.prepare(formatted)
            self._launch(java, jars, self._data, Archive(cached))
        except BaseException:
            self.close()
            raise
        return self

    def wait_until_ended(self, timeout: timedelta | None = None) -> bool:
        """Wait until the broker's process has ended by itself. Returns whether it has."""
        process = self._require_started()
        return process.wait_until_ended(None if timeout is None else timeout.total_seconds())

    def how_it_ended(self) -> str:
        """For a message: the exit code, and the last lines of the log."""
        code = self._require_started().exit_code
        if code is None:
            return "the embedded broker is running"
        return f"the embedded broker has ended, with exit code {code}; {self._last_log()}"

    def close(self) -> None:
        """Stop the broker, and remove its data if it is temporary. Idempotent.

        A broker with permanent data shuts down in about a second; one with temporary data is killed. A forked
        child leaves its parent's broker alone.
        """
        if os.getpid() != self._pid:
            return
        self._closed = True
        self._admin = None
        if self._making is not None:
            self._making.stop()
        if self._process is not None:
            keeps = self._data is not None and not self._data.temporary
            self._process.end(patience_s=_PATIENCE_SECONDS if keeps else 0.0)
        if self._data is not None:
            self._data.release()

    def __enter__(self) -> EmbeddedKafka:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_port(self) -> None:
        """Raises:
        BrokerException: something else listens on the requested port.
        """
        if self._wanted_port == 0:
            return
        with socket.socket() as probe:
            # As in Java, so that a port in TIME_WAIT after a restart counts as free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, self._wanted_port))
            except OSError as error:
                raise BrokerException(
                    f"port {self._wanted_port} on {HOST} cannot be used: {error.strerror or error}; stop the "
                    f"process that listens there, or choose another port (0 picks a free one)"
                ) from error

    def _launch(self, java: JavaHome, jars: tuple[Path, ...], data: DataDir, archive: Archive) -> None:
        """Start the process until one answers: another process may take a port, an archive may be
        unusable."""
        class_list = data.path / "classes.lst"
        shared, unfit = archive.arguments(class_list), False
        for attempt in range(1, _TRIES + 1):
            self._port, controller_port = _choose_ports(self._wanted_port)
            data.write_settings(
                broker_settings(
                    port=self._port,
                    controller_port=controller_port,
                    log_dir=data.kafka,
                    overrides=self._settings,
                    after_kill=data.was_killed,
                )
            )
            jvm = jvm_arguments(heap_mb=self._heap_mb, jars=jars, crash_dir=data.path)
            process = self._process = SupervisedProcess(
                [str(java.java), *shared, *jvm, "kafka.Kafka", str(data.properties_file)],
                log_file=data.log_file,
                environment={name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON},
                scratch=data.path if data.temporary else None,
            )
            if self._wait_until_ready():
                if unfit:
                    archive.discard()
                elif class_list.exists() and archive.find() is None:
                    self._making = ArchiveMaking(
                        archive, "broker", java=java.java, jvm_arguments=jvm, class_list=class_list
                    )
                return
            why = _why_it_ended(process.exit_code or 0, self._last_log())
            if attempt == _TRIES or not (
                (why == _PORT_LOST and self._wanted_port == 0) or (why == _JAVA_FAILED and shared)
            ):
                break
            if why == _JAVA_FAILED:
                shared, unfit = [], True
            data.log_file.write_text("")
        raise BrokerException(
            f"the embedded broker ended while starting, with exit code {process.exit_code}{why}; "
            f"{self._last_log()}"
        )

    def _wait_until_ready(self) -> bool:
        """Wait until it answers; False if it has ended.

        Raises:
            BrokerException: it does neither in time.
        """
        assert self._process is not None
        deadline = time.monotonic() + self._start_timeout_s
        while time.monotonic() < deadline:
            if self._process.wait_until_ended(_LOOK_SECONDS):
                return False
            if is_ready(HOST, self._port, timeout_s=max(0.1, deadline - time.monotonic())):
                return True
        raise BrokerException(
            f"the embedded broker did not answer on {HOST}:{self._port} within "
            f"{self._start_timeout_s:.0f} s; {self._last_log()}"
        )

    # --- what it is ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """`127.0.0.1:port`."""
        self._require_started()
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int:
        """The process id of the broker's JVM."""
        return self._require_started().pid

    @property
    def data_dir(self) -> Path:
        self._require_started()
        assert self._data is not None
        return self._data.path

    @property
    def log_file(self) -> Path:
        self._require_started()
        assert self._data is not None
        return self._data.log_file

    @property
    def is_running(self) -> bool:
        """Whether the process runs; whether it answers is another question."""
        return not self._closed and self._process is not None and self._process.exit_code is None

    # --- topics ----------------------------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic, and wait until it can be used.

        Raises:
            BrokerException: it exists already, its name or a config is wrong, or the broker is gone.
        """
        self._topics().create(name, partitions, configs or {})

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone.

        Raises:
            BrokerException: there is none, or the broker is gone.
        """
        self._topics().delete(name)

    def topics(self) -> set[str]:
        """The names of all topics, the internal ones (`__consumer_offsets`) included.

        Raises:
            BrokerException: the broker is gone.
        """
        return self._topics().names()

    def _topics(self) -> Admin:
        process = self._require_started()
        if process.exit_code is not None:
            raise BrokerException(self.how_it_ended())
        if self._admin is None:
            # Imported here, so that only starting a broker does not load a client.
            from millstream.broker.admin import Admin

            self._admin = Admin(self.bootstrap_servers)
        return self._admin

    def _require_started(self) -> SupervisedProcess:
        if self._closed:
            raise IllegalStateException("this EmbeddedKafka is closed")
        if self._process is None:
            raise IllegalStateException("this EmbeddedKafka was not started; call start(), or use `with`")
        return self._process

    def _last_log(self, lines: int = 20) -> str:
        """The last log lines, for the end of a message; with the file's name, if the file is kept."""
        assert self._data is not None
        place = "" if self._data.temporary else f" ({self._data.log_file})"
        try:
            text = self._data.log_file.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            return f"its log cannot be read: {error}"
        last = "\n".join(text.splitlines()[-lines:])
        return f"the end of its log{place}:\n{last}" if last else f"it logged nothing{place}"


_PORT_LOST = " (a port was taken by another process meanwhile)"
_JAVA_FAILED = " (Java itself failed)"


def _why_it_ended(exit_code: int, log: str) -> str:
    """The reason, for the message and the next attempt; empty if Kafka's log says it."""
    if "Address already in use" in log:
        return _PORT_LOST
    if exit_code > 128 or "initialization of VM" in log or "Unrecognized VM option" in log:
        return _JAVA_FAILED
    return ""


def _cache_key(java: JavaHome, jars: tuple[Path, ...]) -> str:
    """What a template and an archive are valid for: Java refuses an archive when a jar's time has changed."""
    facts = [java.version, str(java.home), *(f"{jar} {jar.stat().st_mtime_ns}" for jar in jars)]
    return f"java-{java.version}-{hashlib.sha256(' '.join(facts).encode()).hexdigest()[:12]}"


def _choose_ports(wanted: int) -> tuple[int, int]:
    """(broker's port, controller's port), both free a moment ago. Held together, so that they differ."""
    with socket.socket() as first, socket.socket() as second:
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        first.bind((HOST, wanted))
        second.bind((HOST, 0))
        return first.getsockname()[1], second.getsockname()[1]
