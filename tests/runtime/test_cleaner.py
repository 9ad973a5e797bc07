"""The state of tasks that have gone: deleted after a while, and never one that is in use."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_ports import ManualClock
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from millstream.model import TaskId
from millstream.runtime.threads.cleaner import StateCleaner, last_touched_ms, obsolete
from millstream.stores.directory import StateDirectory

NOW_MS = 1_700_000_000_000
TASKS = [TaskId(0, number) for number in range(4)]


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StateDirectory]:
    """Four tasks; each has a file of one store that is an hour old, but task 0_3's, which is new."""
    directory = StateDirectory(tmp_path, "app")
    with directory:
        for task in TASKS:
            store = directory.store_path(task, "counts")
            store.mkdir(parents=True)
            (store / "CURRENT").write_text("x")
            at = NOW_MS / 1000 - (3600 if task != TASKS[3] else 0)
            for path in (store / "CURRENT", store, store.parent, store.parent.parent):
                os.utime(path, (at, at))
        # Only a file deep inside is new, as when RocksDB writes.
        new = NOW_MS / 1000
        deep = directory.store_path(TASKS[2], "counts") / "CURRENT"
        os.utime(deep, (new, new))
        yield directory


def cleaner(directory: StateDirectory, owned: object, **options: float) -> StateCleaner:
    return StateCleaner(
        "app-1",
        directory,
        owned,  # type: ignore[arg-type]
        delay_s=options.pop("delay_s", 600),
        clock=ManualClock(epoch_ms=NOW_MS),
        **options,
    )


@given(
    touched=st.dictionaries(st.builds(TaskId, st.integers(0, 2), st.integers(0, 3)), st.integers(0, 2000)),
    owned=st.sets(st.builds(TaskId, st.integers(0, 2), st.integers(0, 3))),
    delay=st.integers(0, 1500),
)
def test_obsolete_is_what_is_neither_owned_nor_young(
    touched: dict[TaskId, int], owned: set[TaskId], delay: int
) -> None:
    """Exactly that; a time in the future is young."""
    found = obsolete(touched, owned, 1000, delay)
    assert list(found) == sorted(found)
    for task, time_ms in touched.items():
        assert (task in found) == (task not in owned and time_ms < 1000 - delay)


def test_any_file_of_a_task_counts(directory: StateDirectory) -> None:
    """RocksDB writes deep inside, and the task's own directory does not show it."""
    assert last_touched_ms(directory.task_path(TASKS[0])) == NOW_MS - 3_600_000
    assert last_touched_ms(directory.task_path(TASKS[2])) == NOW_MS
    assert last_touched_ms(directory.task_path(TaskId(9, 9))) is None


def test_only_old_tasks_that_are_not_owned_go(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has a line for each, and nothing else in the directory is touched."""
    (directory.path / "checkpoints").mkdir()
    os.utime(directory.path / "checkpoints", (0, 0))
    with caplog.at_level("INFO", "millstream.runtime.threads.cleaner"):
        assert cleaner(directory, lambda: {TASKS[0]}).clean() == (TASKS[1],)
    assert directory.tasks() == (TASKS[0], TASKS[2], TASKS[3])
    assert (directory.path / "checkpoints").is_dir()
    assert "of task 0_1: untouched for 3600000 ms (state.cleanup.delay.ms is 600000)" in caplog.text
    assert cleaner(directory, lambda: set(TASKS), delay_s=0).clean() == ()


def test_a_task_that_comes_back_meanwhile_stays(directory: StateDirectory) -> None:
    """It is asked for again before each deletion."""
    answers: list[set[TaskId]] = [set(), {TASKS[0]}, set()]
    assert cleaner(directory, lambda: answers.pop(0)).clean() == (TASKS[1],)
    assert TASKS[0] in directory.tasks()


def test_what_cannot_be_deleted_does_not_keep_the_rest(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says why."""
    import shutil

    delete = shutil.rmtree

    def refuse(path: Path) -> None:
        if path.name == "0_0":
            raise PermissionError(f"no right to '{path}'")
        delete(path)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert cleaner(directory, lambda: set()).clean() == (TASKS[1],)
    assert "the state of task 0_0 stays for now" in caplog.text


def test_what_a_task_had_in_sparks_process_goes_unless_it_is_open_there(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """A standby stays open for a while after it is not owned any more."""
    for task in TASKS:
        place = directory.path_in_spark(task)
        place.mkdir(parents=True)
        (place / "lock").touch()
        for path in (place / "lock", place):
            os.utime(path, (NOW_MS / 1000 - 3600,) * 2)
    held = directory.path_in_spark(TASKS[1]) / "lock"
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(held)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        cleaner(directory, lambda: {TASKS[0]}).clean()
        other.kill()
    assert directory.tasks_in_spark() == (TASKS[0], TASKS[1])
    assert "the state of task 0_1 stays for now" in caplog.text


def test_whoever_takes_a_task_waits_for_a_deletion_under_way(directory: StateDirectory) -> None:
    """It waits no longer than its deadline."""
    inside, go_on = threading.Event(), threading.Event()

    class Slow(StateDirectory):
        def clean(self, task_id: TaskId) -> None:
            inside.set()
            go_on.wait(20)
            super().clean(task_id)

    slow = Slow(directory.path.parent, "app")
    cleaning = cleaner(slow, lambda: set(), every_s=0.001)
    assert cleaning.wait_until_idle(0)
    cleaning.start()
    assert inside.wait(20)
    assert not cleaning.wait_until_idle(0.01)
    assert not cleaning.stop(0.01)
    go_on.set()
    assert cleaning.wait_until_idle(20)
    assert cleaning.stop(20)
    assert TASKS[0] not in directory.tasks()
    assert TASKS[1] in directory.tasks()  # it was stopped before


def test_the_thread_cleans_again_and_again_and_outlives_failures(
    directory: StateDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    """It has Kafka's name."""
    owned: set[TaskId] = set(TASKS)
    calls = []

    def ask() -> set[TaskId]:
        calls.append(threading.current_thread().name)
        if len(calls) == 1:
            raise RuntimeError("not now")
        return owned

    cleaning = cleaner(directory, ask, every_s=0.005)
    cleaning.start()
    wait_until(lambda: len(calls) > 3, "several looks")
    owned = set(TASKS[1:])
    wait_until(lambda: TASKS[0] not in directory.tasks(), "deleted")
    assert cleaning.stop()
    assert set(calls) == {"app-1-CleanupThread"}
    assert "it will be retried" in caplog.text


def test_stopping_does_not_wait_for_the_next_look(directory: StateDirectory) -> None:
    """It may be stopped twice, or before the start."""
    assert cleaner(directory, set).stop()
    waiting = cleaner(directory, set, every_s=3600)
    waiting.start()
    before = time.monotonic()
    assert waiting.stop()
    assert waiting.stop()
    assert time.monotonic() - before < 5
