"""The state directory: its layout, its lock, its process id, and cleaning it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import millstream
from millstream.errors import ConfigException, LockException, ProcessorStateException, TopologyException
from millstream.model import TaskId
from millstream.stores.directory import TASKS, StateDirectory


def test_nothing_is_made_before_the_lock_is_taken(tmp_path: Path) -> None:
    """A topology without persistent stores leaves no trace."""
    directory = StateDirectory(tmp_path / "state", "app")
    assert directory.path == tmp_path / "state" / "app"
    assert directory.tasks() == ()
    directory.process_id()
    directory.clean(TaskId(0, 0))
    directory.clean_all()
    directory.close()
    assert list(tmp_path.iterdir()) == []


def test_the_layout_is_state_dir_application_task_rocksdb_store(tmp_path: Path) -> None:
    """Kafka Streams has the same."""
    directory = StateDirectory(str(tmp_path), "app")
    assert directory.task_path(TaskId(1, 12)) == tmp_path / "app" / "1_12"
    expected = tmp_path / "app" / "1_12" / "rocksdb" / "KSTREAM-AGGREGATE-STATE-STORE-0000000003"
    assert directory.store_path(TaskId(1, 12), "KSTREAM-AGGREGATE-STATE-STORE-0000000003") == expected


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "ü", "a\0", "x" * 250])
def test_names_that_leave_the_directory_are_refused(tmp_path: Path, name: str) -> None:
    """What cannot name a topic cannot name a directory here."""
    with pytest.raises(ConfigException, match="cannot be the name of a directory"):
        StateDirectory(tmp_path, name)
    with pytest.raises(TopologyException, match="cannot be the name of a state store"):
        StateDirectory(tmp_path, "app").store_path(TaskId(0, 0), name)


def test_a_global_store_has_a_directory_for_each_partition(tmp_path: Path) -> None:
    """Beside the tasks, and none of them; a name that cannot be a topic's is refused as for tasks."""
    directory = StateDirectory(tmp_path, "app")
    path = directory.global_store_path("users", 3)
    assert path == tmp_path / "app" / "global" / "rocksdb" / "users" / "3"
    path.mkdir(parents=True)
    assert directory.tasks() == ()
    with pytest.raises(TopologyException, match="cannot be the name of a state store"):
        directory.global_store_path("../users", 0)


def test_clean_all_deletes_the_global_tables_and_what_spark_has_too(tmp_path: Path) -> None:
    """KafkaStreams.cleanUp() does the same; cleaning tasks does not."""
    directory = StateDirectory(tmp_path, "app")
    (directory.global_store_path("users", 0)).mkdir(parents=True)
    in_spark = directory.path / TASKS / "0_1" / "rocksdb"
    in_spark.mkdir(parents=True)
    make_state(directory)
    for task in directory.tasks():
        directory.clean(task)
    assert directory.global_store_path("users", 0).is_dir()
    assert in_spark.is_dir()
    directory.clean_all()
    assert not in_spark.exists()
    assert not directory.global_path.exists()
    assert (directory.path / "checkpoints").is_dir()


def test_two_clients_cannot_use_one_directory(tmp_path: Path) -> None:
    """The second one is told where, by whom, and what to do; after the first has closed it may."""
    first, second = StateDirectory(tmp_path, "app"), StateDirectory(tmp_path, "app")
    first.lock()
    first.lock()
    message = (
        rf"'{tmp_path}/app' is in use by another client in this process \({os.getpid()}\); set another state"
    )
    with pytest.raises(LockException, match=message):
        second.lock()
    assert (first.is_locked, second.is_locked) == (True, False)
    StateDirectory(tmp_path, "other").lock()
    first.close()
    first.close()
    with second:
        assert second.is_locked
    assert not second.is_locked


def test_the_lock_of_another_process_names_its_pid_and_ends_with_it(tmp_path: Path) -> None:
    """It ends even if that process is killed: the lock is the operating system's."""
    script = (
        "import sys; from millstream.stores.directory import TASKS, StateDirectory\n"
        "held = StateDirectory(sys.argv[1], 'app'); held.lock()\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(millstream.__path__[0]).parent)},
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        directory = StateDirectory(tmp_path, "app")
        with pytest.raises(LockException, match=f"in use by process {other.pid};"):
            directory.lock()
        with pytest.raises(LockException):
            directory.clean_all()
        other.kill()
        other.wait(10)
    with directory:
        assert directory.is_locked


def test_the_process_id_is_kept_over_restarts(tmp_path: Path) -> None:
    """Once the directory is locked; it is the one in Kafka's file."""
    with StateDirectory(tmp_path, "app") as directory:
        first = directory.process_id()
        assert directory.process_id() == first
    saved = json.loads((tmp_path / "app" / "kafka-streams-process-metadata").read_text())
    assert saved == {"processId": str(first), "version": 1}
    with StateDirectory(tmp_path, "app") as directory:
        assert directory.process_id() == first
    with StateDirectory(tmp_path, "other") as directory:
        assert directory.process_id() != first


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"processId": "x"}', '{"processId": null}'])
def test_a_process_file_that_cannot_be_read_is_replaced(tmp_path: Path, content: str) -> None:
    """The client gets a new id, and keeps that."""
    file = tmp_path / "app" / "kafka-streams-process-metadata"
    file.parent.mkdir()
    file.write_text(content)
    with StateDirectory(tmp_path, "app") as directory:
        new = directory.process_id()
    assert uuid.UUID(json.loads(file.read_text())["processId"]) == new


def make_state(directory: StateDirectory) -> None:
    for task in (TaskId(1, 10), TaskId(0, 2), TaskId(1, 9)):
        path = directory.store_path(task, "counts")
        path.mkdir(parents=True)
        (path / "CURRENT").write_text("x")
    (directory.path / "checkpoints" / "p0").mkdir(parents=True)
    (directory.path / "1_x").mkdir()
    (directory.path / "5_5").write_text("a file")


def test_tasks_are_the_directories_that_name_one(tmp_path: Path) -> None:
    """They are in numeric order; files and other directories are ignored."""
    directory = StateDirectory(tmp_path, "app")
    make_state(directory)
    assert directory.tasks() == (TaskId(0, 2), TaskId(1, 9), TaskId(1, 10))


def test_clean_deletes_one_task_and_clean_all_every_one(tmp_path: Path) -> None:
    """What is not a task's stays, and so does the process id."""
    directory = StateDirectory(tmp_path, "app")
    make_state(directory)
    with directory:
        kept = directory.process_id()
        directory.clean(TaskId(1, 9))
        directory.clean(TaskId(1, 9))
        assert directory.tasks() == (TaskId(0, 2), TaskId(1, 10))
    directory.clean_all()
    assert not directory.is_locked
    assert directory.tasks() == ()
    assert (directory.path / "checkpoints" / "p0").is_dir()
    with directory:
        directory.clean_all()
        assert directory.is_locked
        assert directory.process_id() == kept


def test_a_state_directory_that_cannot_be_made_is_told_with_its_cause(tmp_path: Path) -> None:
    """A file is in the way."""
    (tmp_path / "file").write_text("x")
    directory = StateDirectory(tmp_path / "file", "app")
    with pytest.raises(
        ProcessorStateException, match=r"file/app' cannot be created or locked.*set state.dir"
    ) as caught:
        directory.lock()
    assert isinstance(caught.value.__cause__, OSError)
    assert not directory.is_locked
