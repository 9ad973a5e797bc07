"""An application's state directory on this machine, which only one client can use at a time.

    <state.dir>/<application.id>/
        .lock                             locked by the client's process while the client lives
        .owner                            its process id, for the error message of another client
        kafka-streams-process-metadata    the client's own id, kept over restarts
        0_3/                              one task
            rocksdb/counts/               one store of the task
        global/                           the global tables, of which each client has all partitions
            rocksdb/users/0/              one partition of one global store
        tasks/                            what tasks have in Spark's process

Nothing is created on disk before `lock()`: a topology without persistent stores needs no directory.

Source: org.apache.kafka.streams.processor.internals.StateDirectory.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import shutil
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import IO

from filelock import FileLock, Timeout

from millstream.errors import ConfigException, LockException, ProcessorStateException, TopologyException
from millstream.model import TaskId
from millstream.permissions import make_private
from millstream.small_files import from_json, read_text, write_whole

__all__ = ["TASKS", "StateDirectory"]

_log = logging.getLogger(__name__)

_LOCK = ".lock"
_OWNER = ".owner"
_PROCESS = "kafka-streams-process-metadata"
_GLOBAL = "global"
_LOCK_IN_SPARK = "lock"
"""The file that a task locks in its directory (kernel: TaskDirectory.java)."""
TASKS = "tasks"
"""The folder of what tasks have in Spark's process."""
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""The characters that Kafka allows in a topic name; a changelog topic contains the store's name."""


class StateDirectory:
    """The directory of one application under `state.dir`, which other users cannot enter.

    Args:
        group_writes: whether this user's group can write there, not only read.

    Raises:
        ConfigException: the application id is not a valid directory name.
    """

    def __init__(self, state_dir: str | Path, application_id: str, *, group_writes: bool = False) -> None:
        if not _is_name(application_id):
            raise ConfigException(
                f"application.id '{application_id}' cannot be the name of a directory or a topic; use at "
                f"most 249 letters, digits, '.', '_' and '-'"
            )
        self._path = Path(state_dir).expanduser().absolute() / application_id
        self._application_id = application_id
        self._group_writes = group_writes
        self._guard = threading.RLock()
        self._lock: FileLock | None = None
        self._process_id: uuid.UUID | None = None

    @property
    def path(self) -> Path:
        """`<state.dir>/<application.id>`."""
        return self._path

    @property
    def is_locked(self) -> bool:
        """Whether this object holds the directory's lock."""
        with self._guard:
            return self._lock is not None

    def lock(self) -> None:
        """Create the directory and lock it for this client. Idempotent.

        Raises:
            LockException: another client holds the lock, in another process or in this one.
            ProcessorStateException: it cannot be created or written.
        """
        with self._guard:
            if self._lock is not None:
                return
            # is_singleton is off by default, so two clients of one process exclude each other, too.
            lock = FileLock(self._path / _LOCK, thread_local=False)
            try:
                # Its contents can only be reached through it, so RocksDB may create files with any mode.
                make_private(self._path, group_writes=self._group_writes)
                lock.acquire(timeout=0)
            except Timeout as error:
                raise LockException(self._taken()) from error
            except OSError as error:
                raise self._failure("created or locked", error) from error
            self._lock = lock
            try:
                self._save_process_id()
            except ProcessorStateException:
                self.close()
                raise
            try:
                write_whole(self._path / _OWNER, f"{os.getpid()}\n")
            except OSError as error:
                self.close()
                raise self._failure("written", error) from error

    def close(self) -> None:
        """Release the lock for other clients. Idempotent."""
        with self._guard:
            lock, self._lock = self._lock, None
            if lock is None:
                return
            try:
                (self._path / _OWNER).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("cannot remove '%s': %s", self._path / _OWNER, error)
            lock.release()

    def __enter__(self) -> StateDirectory:
        self.lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def process_id(self) -> uuid.UUID:
        """The client's own id. It is saved when the directory is locked, so it survives a restart.

        Source: StateDirectory.initializeProcessId; the default client id ends in it.
        """
        with self._guard:
            if self._process_id is None:
                self._process_id = self._saved_process_id() or uuid.uuid4()
                if self._lock is not None:
                    self._save_process_id()
            return self._process_id

    def _saved_process_id(self) -> uuid.UUID | None:
        file = self._path / _PROCESS
        try:
            return from_json(file.read_bytes(), lambda kept: uuid.UUID(kept["processId"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("'%s' cannot be read (%s); this client gets a new process id", file, error)
            return None

    def _save_process_id(self) -> None:
        if self._process_id is None or self._process_id == self._saved_process_id():
            return
        file = self._path / _PROCESS
        try:
            write_whole(file, json.dumps({"processId": str(self._process_id), "version": 1}))
        except OSError as error:
            raise self._failure("written", error) from error

    # --- tasks -------------------------------------------------------------------------------------------

    def task_path(self, task_id: TaskId) -> Path:
        """The directory of a task; it need not exist."""
        return self._path / str(task_id)

    def store_path(self, task_id: TaskId, store: str) -> Path:
        """The directory of a store; it need not exist.

        Raises:
            TopologyException: the store's name is not a valid directory name.
        """
        return self.task_path(task_id) / "rocksdb" / _store_name(store)

    @property
    def global_path(self) -> Path:
        """The directory of the global tables; it need not exist. It belongs to no task, so the cleaner
        ignores it."""
        return self._path / _GLOBAL

    def global_store_path(self, store: str, partition: int) -> Path:
        """The directory of one partition of a global store; it need not exist.

        Raises:
            TopologyException: the store's name is not a valid directory name.

        Differs: in Kafka Streams a global store is one database for all partitions.
        """
        return self.global_path / "rocksdb" / _store_name(store) / str(partition)

    def path_in_spark(self, task_id: TaskId) -> Path:
        """Where a task, or its standby, has its state in Spark's process; it need not exist."""
        return self._path / TASKS / str(task_id)

    def tasks(self) -> tuple[TaskId, ...]:
        """The tasks that have a directory here, sorted."""
        return self._tasks_in(self._path)

    def tasks_in_spark(self) -> tuple[TaskId, ...]:
        """The tasks that have, or had, state in Spark's process, sorted."""
        return self._tasks_in(self._path / TASKS)

    def _tasks_in(self, folder: Path) -> tuple[TaskId, ...]:
        found = []
        try:
            names = [entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._failure("listed", error) from error
        for name in names:
            try:
                found.append(TaskId.parse(name))
            except ValueError:
                continue  # not a task's directory: there are also checkpoints and others
        return tuple(sorted(found))

    def clean(self, task_id: TaskId) -> None:
        """Delete a task's directory, if there is one. None of its stores may be open.

        Raises:
            ProcessorStateException: something in it cannot be deleted.
        """
        self._delete(self.task_path(task_id), f"task {task_id}")

    def clean_in_spark(self, task_id: TaskId) -> None:
        """Delete what a task has in Spark's process, unless it is open there.

        Raises:
            ProcessorStateException: it is open, or something in it cannot be deleted.
        """
        path = self.path_in_spark(task_id)
        try:
            with (path / _LOCK_IN_SPARK).open("a") as lock:
                _take(lock)  # as Java takes it: only another process can have it
                self._delete(path, f"task {task_id} in Spark's process")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure("deleted", error) from error

    def clean_all(self) -> None:
        """Delete every task's directory and the global tables'; `KafkaStreams.clean_up()`. The rest stays.

        Raises:
            LockException: another client uses the directory.
            ProcessorStateException: something cannot be deleted.
        """
        if not self._path.exists():
            return
        with self._guard:
            was_locked = self.is_locked
            self.lock()
            try:
                for task_id in self.tasks():
                    self.clean(task_id)
                self._delete(self.global_path, "the global tables")
                self._delete(self._path / TASKS, "tasks in Spark's process")
            finally:
                if not was_locked:
                    self.close()

    def _delete(self, folder: Path, whose: str) -> None:
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._failure("deleted", error) from error
        _log.info("deleted the state of %s in '%s'", whose, self._path)

    # --- messages ----------------------------------------------------------------------------------------

    def _taken(self) -> str:
        owner = (read_text(self._path / _OWNER) or "").strip()
        if owner == str(os.getpid()):
            holder = f"another client in this process ({owner})"
        elif owner.isdecimal():
            holder = f"process {owner}"
        else:
            holder = "another process"
        return (
            f"the state directory '{self._path}' is in use by {holder}; set another state.dir for each "
            f"client of application '{self._application_id}' on this machine, or stop the other client first"
        )

    def _failure(self, what: str, error: OSError) -> ProcessorStateException:
        shared = "; with allow.os.group.write.access=true, other users of its group can write there"
        return ProcessorStateException(
            f"the state directory '{self._path}' cannot be {what}: {error}; set state.dir to a directory "
            f"that this user can write to and that has space{shared if error.errno == errno.EACCES else ''}"
        )

    def __repr__(self) -> str:
        return f"<StateDirectory '{self._path}'{', locked' if self.is_locked else ''}>"


def _take(lock: IO[str]) -> None:
    """Raises an OSError if another process has the lock."""
    import fcntl

    fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _store_name(store: str) -> str:
    if not _is_name(store):
        raise TopologyException(
            f"'{store}' cannot be the name of a state store; use at most 249 letters, digits, '.', '_' "
            f"and '-', as for a topic"
        )
    return store


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text not in (".", "..")
