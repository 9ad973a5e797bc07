"""What keeps the state of standbys ready: told when something changes, and asked until all have caught up."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from waiting import wait_until

from millstream.errors import StreamsException
from millstream.model import TaskId
from millstream.runtime import standby_tasks
from millstream.runtime.standby_tasks import StandbyTasks

ONE, TWO = TaskId(0, 1), TaskId(0, 2)


class Process:
    """Spark's process: what it was asked for, and what it answers."""

    def __init__(self) -> None:
        self.asked: list[frozenset[TaskId]] = []
        self.runs = True
        self.error: Exception | None = None
        self.caught_up: frozenset[TaskId] = frozenset()
        self.told = 0
        self.tasks = StandbyTasks(self.follow, self.tell, "standbys")

    def follow(self, wanted: frozenset[TaskId]) -> frozenset[TaskId] | None:
        self.asked.append(wanted)
        if self.error is not None:
            raise self.error
        return self.caught_up & wanted if self.runs else None

    def tell(self) -> None:
        self.told += 1

    def has(self, *tasks: TaskId) -> None:
        wait_until(lambda: self.tasks.caught_up() == frozenset(tasks), f"{tasks} have caught up", 10)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setattr(standby_tasks, "_LOOK_S", 0.002)
    monkeypatch.setattr(standby_tasks, "_AGAIN_S", 0.002)
    made = Process()
    yield made
    made.tasks.close()
    wait_until(
        lambda: all(each.name != "standbys" for each in threading.enumerate()), "its thread has ended", 10
    )


def test_it_looks_until_all_have_caught_up(process: Process) -> None:
    """Each time more have, that is told. It looks again later: what was opened may be opened anew."""
    process.tasks.follow([ONE, TWO])
    wait_until(lambda: len(process.asked) > 2, "it looks again", 10)
    assert (process.tasks.caught_up(), process.told) == (frozenset(), 0)
    process.caught_up = frozenset({ONE})
    process.has(ONE)
    process.caught_up = frozenset({ONE, TWO})
    process.has(ONE, TWO)
    wait_until(lambda: process.told == 2, "it is told", 10)
    process.tasks.follow([TWO])
    process.has(TWO)
    assert process.told == 2
    process.caught_up = frozenset()
    process.has()


def test_nothing_is_asked_before_there_is_something(process: Process) -> None:
    """Nor is there a thread."""
    process.tasks.follow([])
    process.tasks.wake()
    assert process.asked == []
    assert all(each.name != "standbys" for each in threading.enumerate())


def test_without_spark_it_waits_to_be_woken(process: Process) -> None:
    """As when Spark has started again, in which nothing has caught up."""
    process.runs = False
    process.caught_up = frozenset({ONE})
    process.tasks.follow([ONE])
    wait_until(lambda: process.asked, "it has asked", 10)
    assert process.tasks.caught_up() == frozenset()
    process.runs = True
    process.tasks.wake()
    process.has(ONE)
    process.caught_up = frozenset()
    process.tasks.wake()
    process.has()


@pytest.mark.parametrize("error", [StreamsException("it does not answer"), ConnectionRefusedError()])
def test_after_a_failure_it_asks_again(process: Process, error: Exception) -> None:
    """Spark's process may be slow, or gone."""
    process.error = error
    process.caught_up = frozenset({ONE})
    process.tasks.follow([ONE])
    wait_until(lambda: len(process.asked) > 2, "it asks again", 10)
    process.error = None
    process.has(ONE)
