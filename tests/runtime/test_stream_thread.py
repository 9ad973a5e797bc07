"""A stream thread alone: its states, and in which order it lets go (StreamThreadTest)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

import pytest
from waiting import wait_until

from millstream.clock import SystemClock
from millstream.errors import (
    MissingSourceTopicException,
    PipelineException,
    StreamsException,
    TaskMigratedException,
)
from millstream.model import LagInfo, PipelineMetadata, TaskId, TopicPartition
from millstream.ports import BytesStore, KeyValueBytesStore, PipelineEnd, RunningPipeline
from millstream.runtime.state.assignment import Share, StorePart
from millstream.runtime.state.events import PipelineMigrated, Settled, ThreadMoved
from millstream.runtime.threads.crew import Crew
from millstream.runtime.threads.store_thread import Updater
from millstream.runtime.threads.thread import StreamThread
from millstream.states import STREAM_THREAD, ThreadState
from millstream.stores.memory_store import MemoryStore
from millstream.topology.nodes import Store

S = ThreadState
SOON_S = 20.0
P0, P1, P2 = TaskId(0, 0), TaskId(1, 0), TaskId(2, 0)
PART = StorePart(TaskId(0, 0), Store("counts"), TopicPartition("app-counts-changelog", 0))


class FakePipeline:
    def __init__(
        self,
        name: str,
        partitions: Collection[int],
        supplies: FakeSupplies,
        on_end: Callable[[PipelineEnd], None],
    ) -> None:
        self.name, self.supplies, self.on_end = name, supplies, on_end
        self.partitions = set(partitions)

    def stop(self) -> None:
        self.supplies.did.append(f"stop {self.name}")
        if self.supplies.stop_error is not None:
            raise self.supplies.stop_error
        self.on_end(PipelineEnd(self.name, None))

    def assign(self, partitions: Collection[int]) -> bool:
        self.supplies.did.append(f"assign {self.name} {sorted(partitions)}")
        self.supplies.assigning.set()
        assert self.supplies.may_assign.wait(SOON_S)
        self.partitions = set(partitions)
        return self.supplies.releases

    def metadata(self) -> PipelineMetadata:
        return PipelineMetadata(self.name, running=True, lag={TopicPartition("logs-2", 1): 5})


class FakeUpdater:
    def __init__(self, supplies: FakeSupplies) -> None:
        self.supplies = supplies

    def start(self) -> None: ...

    def add(self, store: KeyValueBytesStore, partition: TopicPartition) -> None:
        self.supplies.updater_has_restored = self.supplies.at_once

        def restored() -> None:
            self.supplies.updater_has_restored = True
            self.supplies.on_restored(partition)

        self.supplies.restored = restored

    def remove(self, partition: TopicPartition, timeout_s: float = 10.0) -> None:
        self.supplies.did.append("remove from updater")

    def is_restored(self, partition: TopicPartition) -> bool:
        return self.supplies.updater_has_restored

    def lags(self) -> dict[TopicPartition, LagInfo]:
        return {}

    def close(self, timeout_s: float = 10.0) -> None:
        self.supplies.did.append("close updater")


class FakeSupplies:
    """All that a stream thread gets from its client; remembers what was done, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.settledness: list[tuple[Share, int]] = []
        self.pipelines: list[FakePipeline] = []
        self.stores: list[MemoryStore] = []
        self.take_part_error: BaseException | None = None
        self.start_error: BaseException | None = None
        self.stop_error: BaseException | None = None
        self.migrated: list[str] = []
        self.lost_topics: tuple[str, ...] = ()
        self.known_lost = 0
        self.readable: list[TopicPartition] = []
        self.updater_has_restored = self.at_once = False
        self.may_open = threading.Event()
        self.may_open.set()
        self.releases = True
        self.assigning, self.may_assign = threading.Event(), threading.Event()
        self.may_assign.set()
        self.restored: Callable[[], None] = lambda: None
        self.on_restored: Callable[[TopicPartition], None] = lambda partition: None
        self.on_failure: Callable[[BaseException], None] = lambda error: None

    def take_part(self) -> None:
        if self.take_part_error is not None:
            raise self.take_part_error

    def open_store(self, part: StorePart) -> KeyValueBytesStore:
        assert self.may_open.wait(SOON_S)
        self.stores.append(MemoryStore(part.store.name, part.task_id))
        return self.stores[-1]

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        self.on_failure, self.on_restored = on_failure, on_restored
        return FakeUpdater(self)

    def start_pipeline(
        self, name: str, partitions: Collection[int], on_end: Callable[[PipelineEnd], None]
    ) -> RunningPipeline:
        if self.start_error is not None:
            raise self.start_error
        self.did.append(f"start {name}")
        self.pipelines.append(FakePipeline(name, partitions, self, on_end))
        return self.pipelines[-1]

    def reads(self, pipeline: str, topics: Iterable[str]) -> bool:
        return pipeline == "p0"

    def forget_prepared(self) -> None:
        """Nothing is prepared here."""

    def diagnosed(self, error: StreamsException) -> StreamsException:
        return error

    def read_by_pattern(self, pipeline: str, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in topics if name.startswith("logs-") and pipeline == "p0")

    def dropped(self, *, fresh: bool) -> tuple[str, ...]:
        return self.lost_topics if fresh else self.lost_topics[: self.known_lost]

    def check_written(self, pipeline: str) -> None: ...

    def standby_caught_up(self, task: TaskId) -> None:
        self.did.append(f"warm {task}")


class FakeView:
    """`store_thread.StoresShown` that remembers what was shown, among what its client did."""

    def __init__(self, supplies: FakeSupplies) -> None:
        self.supplies = supplies

    def opened(self, thread: str, part: StorePart, store: BytesStore) -> None:
        self.supplies.did.append("show store")

    def role_changed(self, part: StorePart) -> None:
        self.supplies.did.append(f"{'standby' if part.standby else 'active'} {part.task_id}")

    def caught_up(self, changelog: TopicPartition) -> None: ...

    def restored(self, changelog: TopicPartition) -> None:
        self.supplies.readable.append(changelog)

    def restoring(self, changelog: TopicPartition) -> None: ...

    def closing(self, changelog: TopicPartition) -> None:
        self.supplies.did.append("hide store")


class Lone:
    """A thread, and what it told."""

    def __init__(self) -> None:
        self.supplies = FakeSupplies()
        self.states: list[ThreadState] = []
        self.failures: list[StreamsException] = []
        self.at_failure: list[tuple[bool, list[str]]] = []
        self.at_settling: list[list[str]] = []
        self.handler_error: BaseException | None = None
        self.thread = StreamThread(
            "app-StreamThread-1",
            self.supplies,
            FakeView(self.supplies),
            self.supplies,
            clock=SystemClock(),
            post=self.told,
            on_failure=self.failed,
        )

    def told(self, event: ThreadMoved | Settled | PipelineMigrated) -> None:
        match event:
            case ThreadMoved(_, state):
                self.states.append(state)
            case Settled(_, share, ticket):
                self.at_settling.append(list(self.supplies.did))
                self.supplies.settledness.append((share, ticket))
            case PipelineMigrated(_, pipeline, _):
                self.supplies.migrated.append(pipeline)

    def failed(self, thread: StreamThread, error: StreamsException) -> None:
        self.failures.append(error)
        self.at_failure.append((thread.is_current(), list(self.supplies.did)))
        if self.handler_error is not None:
            raise self.handler_error

    def give(self, *runs: TaskId, parts: tuple[StorePart, ...] = (), ticket: int = 1) -> None:
        self.thread.give(Share(runs, parts), {}, ticket)

    def until(self, state: ThreadState) -> None:
        assert self.thread._machine.wait_until({state}, SOON_S), f"{self.thread.state}: {self.states}"

    def ended(self) -> None:
        assert self.thread.join(SOON_S)
        assert self.thread.state is S.DEAD
        assert not any(store.is_open for store in self.supplies.stores)
        states = [S.CREATED, *self.states]
        assert all(STREAM_THREAD.allows(old, new) for old, new in zip(states, self.states, strict=False))


@pytest.fixture
def lone() -> Iterator[Lone]:
    made = Lone()
    yield made
    made.thread.stop()
    made.ended()


def test_start_and_stop(lone: Lone) -> None:
    """Source: StreamThreadTest shouldChangeStateAtStartClose, shouldOnlyShutdownOnce."""
    lone.thread.start()
    lone.until(S.STARTING)
    lone.thread.stop()
    lone.thread.stop()
    lone.ended()
    assert lone.states == [S.STARTING, S.PENDING_SHUTDOWN, S.DEAD]
    assert lone.failures == []


def test_stop_without_a_start(lone: Lone) -> None:
    """DEAD at once, and a start that comes later does nothing.

    Source: StreamThreadTest.shouldShutdownTaskManagerOnCloseWithoutStart.
    """
    lone.thread.stop()
    assert lone.states == [S.PENDING_SHUTDOWN, S.DEAD]
    lone.thread.start()
    assert lone.thread._thread.ident is None


def test_the_states_of_a_thread_that_is_given_work(lone: Lone) -> None:
    """Source: StreamThreadTest.shouldChangeStateInRebalanceListener."""
    lone.thread.start()
    lone.give(P0, parts=(PART,), ticket=7)
    lone.until(S.PARTITIONS_ASSIGNED)
    wait_until(lambda: lone.supplies.did == ["show store", "start p0"], "all is started", SOON_S)
    assert lone.thread.state is S.PARTITIONS_ASSIGNED  # the store is not restored yet
    lone.supplies.restored()
    lone.until(S.RUNNING)
    assert lone.states == [S.STARTING, S.PARTITIONS_REVOKED, S.PARTITIONS_ASSIGNED, S.RUNNING]
    assert lone.supplies.settledness == [(Share((P0,), (PART,)), 7)]


def test_a_thread_with_nothing_to_do_is_running_too(lone: Lone) -> None:
    """Reference 1.3."""
    lone.thread.start()
    lone.give()
    lone.until(S.RUNNING)


def test_what_is_not_in_a_new_share_is_let_go_of_first(lone: Lone) -> None:
    """Queries before stores, and both before what is new; what stays goes on untouched."""
    lone.thread.start()
    lone.give(P0, P1, parts=(PART,))
    wait_until(lambda: "start p1" in lone.supplies.did, "started", SOON_S)
    lone.supplies.restored()
    lone.until(S.RUNNING)
    lone.supplies.did.clear()
    lone.give(P1, P2, ticket=2)
    wait_until(lambda: "start p2" in lone.supplies.did, "started", SOON_S)
    assert lone.supplies.did == ["stop p0", "hide store", "remove from updater", "start p2"]
    assert not lone.supplies.stores[0].is_open


def test_a_pipeline_whose_pattern_has_lost_a_topic_is_run_anew(
    lone: Lone, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what was not read; and once more with what has come in the topic's place."""
    lone.thread.start()
    lone.give(P0, P1)
    lone.until(S.RUNNING)
    lone.supplies.did.clear()
    lone.supplies.lost_topics, lone.supplies.known_lost = ("logs-2",), 1
    with caplog.at_level(logging.WARNING):
        lone.thread.drop(("logs-2",), 1)
        lone.thread.drop(("logs-2",), 1)
        lone.thread.grow(frozenset({"logs-2"}))
        wait_until(lambda: len(lone.supplies.did) == 4, "run anew", SOON_S)
    assert lone.supplies.did == ["stop p0", "start p0"] * 2
    assert "continues without it. These offsets had not been read when" in caplog.text
    assert "are lost: 5 of partition 1" in caplog.text
    assert lone.thread.state is S.RUNNING
    lone.thread.pause(True)
    lone.supplies.lost_topics, lone.supplies.known_lost = ("logs-2", "logs-2"), 2
    lone.thread.drop(("logs-2",), 2)
    lone.thread.grow(frozenset({"logs-2"}))
    lone.thread.pause(False)
    wait_until(lambda: len(lone.supplies.did) == 8, "both run again", SOON_S)
    assert lone.supplies.did[4:] == ["stop p1", "stop p0", "start p1", "start p0"]
    assert lone.failures == []


def test_a_query_that_meets_a_lost_topic_of_its_pattern_first_is_run_anew(lone: Lone) -> None:
    """It is no failure; the same error with nothing lost since is one."""
    lone.thread.start()
    lone.give(P0, P1)
    lone.until(S.RUNNING)
    lone.supplies.did.clear()
    gone = MissingSourceTopicException("gone", ("logs-2",))
    lone.supplies.lost_topics, lone.supplies.known_lost = ("logs-2",), 1
    lone.supplies.pipelines[0].on_end(PipelineEnd("p0", gone))
    wait_until(lambda: lone.supplies.did == ["start p0"], "started anew", SOON_S)
    lone.thread.drop(("logs-2",), 1)
    lone.supplies.pipelines[2].on_end(PipelineEnd("p0", gone))
    lone.ended()
    assert lone.failures == [gone]
    assert lone.supplies.did[:2] == ["start p0", "stop p1"]


def test_a_failure_is_told_on_the_thread_before_it_lets_go_of_anything(lone: Lone) -> None:
    """So that the handler sees everything as it was.

    Source: StreamThreadTest.shouldRecordFailedStreamThread.
    """
    lone.thread.start()
    lone.give(P0, P1, parts=(PART,))
    wait_until(lambda: "start p1" in lone.supplies.did, "started", SOON_S)
    error = PipelineException("poison", pipeline="p0")
    lone.supplies.pipelines[0].on_end(PipelineEnd("p0", error))
    lone.ended()
    assert lone.failures == [error]
    assert lone.at_failure == [(True, ["show store", "start p0", "start p1"])]
    assert lone.supplies.did[3:] == ["stop p1", "hide store", "close updater", "hide store"]


@pytest.mark.parametrize("error", [OSError("no disk"), SystemExit(2), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("where", ["take_part", "start", "updater"])
def test_whatever_goes_wrong_is_told_as_a_streams_exception(
    where: str, error: BaseException, lone: Lone
) -> None:
    """Nothing ends a thread without a decision."""
    if where == "take_part":
        lone.supplies.take_part_error = error
    if where == "start":
        lone.supplies.start_error = error
    lone.thread.start()
    lone.give(P0, parts=(PART,))
    if where == "updater":
        wait_until(lambda: "start p0" in lone.supplies.did, "started", SOON_S)
        lone.supplies.on_failure(error)
    lone.ended()
    (told,) = lone.failures
    assert type(told) is StreamsException
    assert told.__cause__ is error


def test_what_does_not_close_keeps_nothing_else_open(lone: Lone, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged."""
    lone.supplies.stop_error = OSError("cannot stop")
    lone.thread.start()
    lone.give(P0, P1, parts=(PART,))
    wait_until(lambda: "start p1" in lone.supplies.did, "started", SOON_S)
    lone.thread.stop()
    lone.ended()
    assert lone.supplies.did[3:5] == ["stop p0", "stop p1"]
    assert "pipeline p0 did not close cleanly" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_even_a_decision_that_fails_leaves_nothing_open(lone: Lone) -> None:
    """It would be a bug of ours; the client then closes, because nobody decided that the thread ends."""
    lone.handler_error = RuntimeError("a bug")
    lone.thread.start()
    lone.give(P0, parts=(PART,))
    wait_until(lambda: "start p0" in lone.supplies.did, "started", SOON_S)
    lone.thread.fail(StreamsException("x"))
    lone.ended()


def test_the_end_of_a_run_that_was_stopped_is_no_news(lone: Lone) -> None:
    """Spark may tell late of a query that was started anew since."""
    lone.thread.start()
    lone.give(P0)
    lone.until(S.RUNNING)
    lone.thread.pause(True)
    wait_until(lambda: "stop p0" in lone.supplies.did, "stopped", SOON_S)
    lone.thread.pause(False)
    wait_until(lambda: lone.supplies.did.count("start p0") == 2, "started anew", SOON_S)
    lone.supplies.pipelines[0].on_end(PipelineEnd("p0", PipelineException("late", pipeline="p0")))
    lone.give(P0, ticket=2)  # comes after it
    wait_until(lambda: lone.supplies.settledness[-1][1] == 2, "the next event", SOON_S)
    assert lone.failures == []
    assert lone.thread.metadata().pipelines[0].running


def test_a_lost_thread_stops_its_queries_and_keeps_its_stores(lone: Lone) -> None:
    """Stores are views and harm nobody; a query would do another client's work (D5)."""
    lone.thread.start()
    lone.give(P0, parts=(PART,))
    wait_until(lambda: "start p0" in lone.supplies.did, "started", SOON_S)
    lone.supplies.restored()
    lone.until(S.RUNNING)
    lone.thread.lose(5)
    lone.until(S.PARTITIONS_REVOKED)
    wait_until(lambda: lone.supplies.settledness[-1] == (Share((), (PART,)), 5), "settled", SOON_S)
    assert lone.supplies.did[-1] == "stop p0"
    assert lone.supplies.stores[0].is_open


def test_a_pipeline_waits_until_its_time_and_the_others_do_not(lone: Lone) -> None:
    """`waiting` says until when; a thread that waits is not RUNNING."""
    lone.thread.start()
    until = SystemClock().now() + 600
    lone.thread.give(Share((P0, P1), ()), {"p0": until}, 1)
    wait_until(lambda: lone.supplies.did == ["start p1"], "the other one", SOON_S)
    assert lone.thread.waiting == {"p0": until}
    assert lone.thread.state is S.PARTITIONS_ASSIGNED
    lone.thread.stop()
    lone.ended()


@pytest.mark.parametrize("when", ["at its start", "later"])
def test_a_pipeline_that_migrated_is_dropped_and_no_failure(when: str, lone: Lone) -> None:
    """The client is told, and what else the thread has goes on."""
    lone.thread.start()
    error = TaskMigratedException("claimed")
    if when == "at its start":
        lone.supplies.start_error = error
    lone.give(P0)
    if when == "later":
        lone.until(S.RUNNING)
        lone.supplies.pipelines[0].on_end(PipelineEnd("p0", error))
    wait_until(lambda: lone.supplies.migrated == ["p0"], "told", SOON_S)
    lone.until(S.RUNNING)
    assert lone.failures == []
    assert lone.thread.metadata().pipelines == ()


def test_queries_that_read_what_has_grown_are_restarted(lone: Lone) -> None:
    """Unless they are not running: they find it when they start."""
    lone.thread.start()
    lone.give(P0, P1)
    lone.until(S.RUNNING)
    lone.thread.grow(frozenset({"in-2"}))
    wait_until(lambda: lone.supplies.did[-2:] == ["stop p0", "start p0"], "it is restarted", SOON_S)
    lone.thread.pause(True)
    lone.thread.grow(frozenset({"in-2"}))
    lone.thread.pause(False)
    wait_until(lambda: lone.supplies.did.count("start p1") == 2, "both run again", SOON_S)
    assert lone.supplies.did.count("start p0") == 3


def test_a_stop_between_two_starts_leaves_the_second_one_out(lone: Lone) -> None:
    """A start takes seconds with Spark, and closing does not wait for all of them."""
    inside, go_on = threading.Event(), threading.Event()
    start = lone.supplies.start_pipeline

    def slow(
        name: str, partitions: Collection[int], on_end: Callable[[PipelineEnd], None]
    ) -> RunningPipeline:
        inside.set()
        assert go_on.wait(SOON_S)
        return start(name, partitions, on_end)

    lone.supplies.start_pipeline = slow  # type: ignore[method-assign]
    lone.thread.start()
    lone.give(P0, P1)
    assert inside.wait(SOON_S)
    lone.thread.stop()
    go_on.set()
    lone.ended()
    assert lone.supplies.did == ["start p0", "stop p0"]


def test_a_pipeline_that_it_keeps_goes_on(lone: Lone) -> None:
    """A new share with the same task in it, and its store: the query is neither stopped nor started, and its
    partitions are the same."""
    lone.thread.start()
    lone.give(P0, ticket=1)
    lone.until(S.RUNNING)
    lone.give(P0, parts=(PART,), ticket=2)
    wait_until(lambda: "show store" in lone.supplies.did, "the store is open", SOON_S)
    lone.supplies.restored()
    lone.until(S.RUNNING)
    assert lone.supplies.did == ["start p0", "show store"]
    lone.give(P0, ticket=3)
    wait_until(lambda: len(lone.supplies.settledness) == 3, "the third share", SOON_S)
    lone.until(S.RUNNING)
    assert [each for each in lone.supplies.did if "p0" in each] == ["start p0"]


def test_a_query_whose_partitions_change_goes_on(lone: Lone) -> None:
    """It is told its partitions, all of them, and the other queries hear nothing."""
    lone.thread.start()
    lone.give(P0, TaskId(0, 2), P1)
    lone.until(S.RUNNING)
    assert [each.partitions for each in lone.supplies.pipelines] == [{0, 2}, {0}]
    lone.supplies.did.clear()
    lone.give(TaskId(0, 1), TaskId(0, 2), P1, ticket=2)
    wait_until(lambda: len(lone.supplies.settledness) == 2, "the second share", SOON_S)
    lone.until(S.RUNNING)
    assert lone.supplies.did == ["assign p0 [1, 2]"]
    assert lone.thread.metadata().active_tasks[0].task_id == TaskId(0, 1)
    lone.give(P1, ticket=3)
    wait_until(lambda: len(lone.supplies.settledness) == 3, "the third share", SOON_S)
    assert lone.supplies.did[1:] == ["stop p0"]  # it has no partition left


def test_a_thread_that_loses_partitions_confirms_once_they_are_released(lone: Lone) -> None:
    """Not before: another thread or client starts their tasks then. Their stores are closed after that."""
    lone.thread.start()
    mine = TaskId(0, 1)
    lone.give(P0, mine, parts=(PART,))
    wait_until(lambda: "start p0" in lone.supplies.did, "started", SOON_S)
    lone.supplies.may_assign.clear()
    lone.supplies.did.clear()
    lone.give(mine, ticket=2)
    assert lone.supplies.assigning.wait(SOON_S)
    assert lone.supplies.did == ["assign p0 [1]"]
    assert [ticket for _, ticket in lone.supplies.settledness] == [1]
    assert lone.thread.share == Share((P0, mine), (PART,))
    assert lone.thread.state is S.PARTITIONS_REVOKED
    lone.supplies.may_assign.set()
    wait_until(lambda: len(lone.supplies.settledness) == 2, "it confirms", SOON_S)
    assert lone.supplies.settledness[1] == (Share((mine,)), 2)
    assert lone.supplies.did == ["assign p0 [1]", "hide store", "remove from updater"]


def test_a_query_that_does_not_release_partitions_in_time_is_restarted(
    lone: Lone, caplog: pytest.LogCaptureFixture
) -> None:
    """Only that one, with the partitions that it keeps; the thread confirms once it has stopped."""
    lone.thread.start()
    mine = TaskId(0, 1)
    lone.give(P0, mine, P1, TaskId(1, 1))
    lone.until(S.RUNNING)
    lone.supplies.did.clear()
    lone.supplies.releases = False
    with caplog.at_level(logging.WARNING):
        lone.give(mine, P1, TaskId(1, 1), ticket=2)
        wait_until(lambda: "start p0" in lone.supplies.did, "started again", SOON_S)
    lone.until(S.RUNNING)
    assert lone.supplies.did == ["assign p0 [1]", "stop p0", "start p0"]
    assert lone.at_settling[1] == ["assign p0 [1]", "stop p0"]
    assert lone.supplies.pipelines[-1].partitions == {1}
    assert "pipeline p0: what moves has not committed in time; it is restarted" in caplog.text
    assert lone.failures == []
    assert [each.running for each in lone.thread.metadata().pipelines] == [True, True]


# --- standbys ----------------------------------------------------------------------------------------------

STANDBY = replace(PART, standby=True)


def test_a_thread_tells_how_long_it_has_been_opening_stores(lone: Lone) -> None:
    """For health: whatever opening waits for, such as a disk, may never come."""
    lone.supplies.may_open.clear()
    lone.thread.start()
    assert lone.thread.opening_s is None
    lone.give(parts=(PART,))
    wait_until(lambda: (lone.thread.opening_s or 0.0) > 0.0, "it is opening a store", SOON_S)
    crew = Crew()
    crew.add(lone.thread)
    assert crew.opening().keys() == {lone.thread.name}
    lone.supplies.may_open.set()
    wait_until(lambda: lone.supplies.stores and lone.thread.opening_s is None, "it has opened it", SOON_S)
    assert crew.opening() == {}


def test_a_standby_is_nothing_to_wait_for(lone: Lone) -> None:
    """RUNNING before it is warm; and then it is not up to date as an active one is, but warm."""
    lone.thread.start()
    lone.give(P1, parts=(STANDBY,))
    lone.until(S.RUNNING)
    assert lone.supplies.did == ["show store", "start p1"]
    assert [task.task_id for task in lone.thread.metadata().active_tasks] == [P1]
    assert [task.task_id for task in lone.thread.metadata().standby_tasks] == [TaskId(0, 0)]
    lone.supplies.restored()
    assert lone.supplies.did[-1] == "warm 0_0"


def test_a_standby_becomes_active_where_it_is_and_catches_up_first(lone: Lone) -> None:
    """The same store, never closed; the thread is RUNNING when it has what the changelog had by then, and
    what the updater had told before counts for nothing."""
    lone.thread.start()
    lone.give(parts=(STANDBY,))
    lone.until(S.RUNNING)
    lone.supplies.restored()
    told_late = lone.supplies.on_restored
    lone.give(parts=(PART,), ticket=2)
    lone.until(S.PARTITIONS_ASSIGNED)
    wait_until(lambda: lone.supplies.did[-1] == "remove from updater", "it begins anew", SOON_S)
    assert lone.supplies.did == ["show store", "warm 0_0", "active 0_0", "remove from updater"]
    told_late(PART.changelog)
    assert lone.supplies.readable == []
    assert lone.thread.state is S.PARTITIONS_ASSIGNED
    lone.supplies.restored()
    lone.until(S.RUNNING)
    assert lone.supplies.readable == [PART.changelog]
    assert [store.is_open for store in lone.supplies.stores] == [True]
    assert [task.task_id for task in lone.thread.metadata().active_tasks] == [TaskId(0, 0)]


def test_a_standby_that_has_caught_up_before_anybody_looked_is_told_of(lone: Lone) -> None:
    """The updater may be done before the thread knows that the store is active."""
    lone.thread.start()
    lone.give(parts=(STANDBY,))
    lone.until(S.RUNNING)
    lone.supplies.at_once = True
    lone.give(parts=(PART,), ticket=2)
    wait_until(lambda: lone.supplies.readable == [PART.changelog], "it is up to date", SOON_S)
    lone.until(S.RUNNING)


def test_an_active_store_becomes_a_standby_where_it_is(lone: Lone) -> None:
    """Nothing happens to the store; and if it was being restored, nobody waits for that any more."""
    lone.thread.start()
    lone.give(parts=(PART,))
    lone.until(S.PARTITIONS_ASSIGNED)
    lone.give(parts=(STANDBY,), ticket=2)
    lone.until(S.RUNNING)
    assert lone.supplies.did == ["show store", "standby 0_0"]
    lone.supplies.restored()
    assert lone.supplies.did[-1] == "warm 0_0"
    assert [store.is_open for store in lone.supplies.stores] == [True]
