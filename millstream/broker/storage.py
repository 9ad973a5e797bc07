"""The broker's data directory: created, formatted, locked.

Layout of a data directory: `kafka/` (Kafka's own: topics, the metadata log), `server.properties` (written at
each start), `broker.log` (and `broker.log.1`, of the start before), `.lock`.

Kafka requires its storage to be formatted before the first start, with a tool that is a JVM of its own. Its
output is the same for every cluster except for two ids. So it runs once per machine and set of jars, into a
template in the cache, and a new data directory is a copy with new ids.
"""

from __future__ import annotations

import base64
import errno
import os
import re
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import filelock

from millstream.broker.broker_settings import broker_settings, properties_text
from millstream.errors import BrokerException
from millstream.java import JavaHome
from millstream.permissions import make_private
from millstream.scratch import LOCK, PrivateDirectory
from millstream.small_files import read_text, write_whole

__all__ = ["DataDir", "template"]

_FORMAT_SECONDS = 60.0
_META = "meta.properties"
_LEAST_FREE_BYTES = 64 * 1024 * 1024
_OURS = ("kafka", "server.properties", "broker.log", ".lock")


class DataDir:
    """A data directory that this process holds until `release`."""

    def __init__(self, path: Path | None) -> None:
        """Create the directory and lock it; without a path a temporary one, which `release` removes.

        Temporary directories left by brokers of killed processes are removed first.

        Raises:
            BrokerException: it cannot be created or written, is full, belongs to something else, or is in
                use.
        """
        self.temporary = path is None
        self._let_go: Callable[[], object]
        try:
            if path is None:
                scratch = PrivateDirectory("kafka")
                self.path, self._let_go = scratch.path, scratch.remove
                self._check_room()
            else:
                self.path = path.absolute()
                # A broker may be closed on another thread than the one that started it.
                lock = filelock.FileLock(self.path / LOCK, timeout=0, thread_local=False)
                self._let_go = lock.release
                self._check_owner()
                make_private(self.path)  # not earlier: another owner's directory keeps its permissions
                self._check_room()
                lock.acquire()
        except filelock.Timeout as error:
            raise BrokerException(
                f"the data directory {self.path} is in use by another embedded broker; close that broker, or "
                f"give this one its own directory"
            ) from error
        except OSError as error:
            raise _unusable(path or Path(tempfile.gettempdir()), error) from error

    def _check_owner(self) -> None:
        entries = {entry.name for entry in self.path.iterdir()} if self.path.exists() else set()
        if entries and not entries & set(_OURS):
            raise BrokerException(
                f"{self.path} is not empty and is not the data directory of an embedded broker (it contains "
                f"{', '.join(sorted(entries)[:3])}); use an empty or a new directory"
            )

    def _check_room(self) -> None:
        free = shutil.disk_usage(self.path).free
        if free < _LEAST_FREE_BYTES:
            if self.temporary:
                self._let_go()
            raise BrokerException(
                f"the disk of {self.path} has {free // 1_000_000} MB free and the embedded broker needs "
                f"at least {_LEAST_FREE_BYTES // 1_000_000}; free some space, or choose another directory"
            )

    @property
    def kafka(self) -> Path:
        return self.path / "kafka"

    @property
    def log_file(self) -> Path:
        return self.path / "broker.log"

    @property
    def properties_file(self) -> Path:
        return self.path / "server.properties"

    @property
    def was_killed(self) -> bool:
        """Whether a broker on this data did not end by itself: Kafka leaves a mark when it does."""
        return (self.kafka / "__cluster_metadata-0").exists() and not (
            self.kafka / ".kafka_cleanshutdown"
        ).exists()

    def prepare(self, formatted: Path) -> None:
        """Format it like `formatted` if it is not formatted yet, and rotate the log.

        Raises:
            BrokerException: the disk is full, or refuses.
        """
        try:
            meta = self.kafka / _META
            if not meta.exists():
                shutil.rmtree(self.kafka, ignore_errors=True)
                # The last file makes it formatted: after a crash in between it is copied again.
                shutil.copytree(formatted, self.kafka, ignore=shutil.ignore_patterns(_META))
                write_whole(meta, with_new_ids(_meta_in(formatted) or ""))
            elif _meta_in(self.kafka) is None:
                raise BrokerException(
                    f"'{meta}', which has the ids of the embedded broker's cluster, is damaged; restore the "
                    f"directory {self.path} from a backup, or delete it to start with an empty broker"
                )
            if self.log_file.exists():
                self.log_file.replace(self.path / "broker.log.1")
            self.log_file.touch()
        except OSError as error:
            raise _unusable(self.path, error) from error

    def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write `server.properties`.

        Raises:
            BrokerException: the disk is full, or refuses.
        """
        try:
            write_whole(self.properties_file, properties_text(settings))
        except OSError as error:
            raise _unusable(self.path, error) from error

    def release(self) -> None:
        """Unlock the directory; a temporary one is removed. Idempotent."""
        self._let_go()


def _meta_in(directory: Path) -> str | None:
    """The `meta.properties` of a formatted directory; None: it is not there, or lacks an id."""
    meta = read_text(directory / _META)
    names = ("version", "cluster.id", "directory.id")
    has_all = meta is not None and all(re.search(rf"(?m)^{re.escape(name)}=.", meta) for name in names)
    return meta if has_all else None


def with_new_ids(meta: str) -> str:
    """A `meta.properties` with a cluster id and a directory id of its own."""
    meta = re.sub(r"(?m)^cluster\.id=.*$", f"cluster.id={_kafka_uuid()}", meta)
    return re.sub(r"(?m)^directory\.id=.*$", f"directory.id={_kafka_uuid()}", meta)


def _kafka_uuid() -> str:
    """A random id in Kafka's format: 22 characters; the first is not a dash, which would look like an option.

    Source: org.apache.kafka.common.Uuid.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def template(directory: Path, java: JavaHome, jars: Sequence[Path]) -> Path:
    """The formatted template in a cache directory; Kafka's own tool makes it if it is not there.

    Raises:
        BrokerException: the tool failed.
    """
    formatted = directory / "formatted"
    if _meta_in(formatted) is not None:
        return formatted
    with filelock.FileLock(directory / ".format.lock", timeout=_FORMAT_SECONDS * 2):
        if _meta_in(formatted) is not None:
            return formatted
        shutil.rmtree(formatted, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix="format-", dir=directory) as scratch:
            made = Path(scratch) / "kafka"
            properties = Path(scratch) / "server.properties"
            properties.write_text(
                properties_text(broker_settings(port=1, controller_port=2, log_dir=made, overrides={}))
            )
            command = [str(java.java), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
            command += ["-cp", ":".join(map(str, jars)), "kafka.tools.StorageTool", "format"]
            command += ["--cluster-id", _kafka_uuid(), "--config", str(properties)]
            try:
                done = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_FORMAT_SECONDS,
                    stdin=subprocess.DEVNULL,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise BrokerException(f"Kafka's storage tool could not be run by {java}: {error}") from error
            if done.returncode != 0 or _meta_in(made) is None:
                last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-10:])
                raise BrokerException(
                    f"Kafka's storage tool ended with exit code {done.returncode}; its last output:\n{last}"
                )
            os.replace(made, formatted)
    return formatted


def _unusable(path: Path, error: OSError) -> BrokerException:
    if error.errno == errno.ENOSPC:
        return BrokerException(f"the disk of {path} is full; free some space, or choose another directory")
    return BrokerException(
        f"the embedded broker's data directory {path} cannot be used: {error.strerror or error}; fix that, "
        f"or choose another directory"
    )
