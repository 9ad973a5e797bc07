"""The global thread: it runs once its stores are restored, ends as DEAD, and asks about its failures.

The scenarios are those of Kafka Streams' GlobalStreamThreadTest, and what is ours beyond them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_ports import FakeChangelogConsumer, FakeLog, FakeTopics, ManualClock
from waiting import wait_until

from millstream.clock import Clock, SystemClock
from millstream.errors import (
    IllegalStateException,
    MissingSourceTopicException,
    ProcessorStateException,
    StateStoreMigratedException,
    StreamsException,
    StreamsRebalancingException,
    TimeoutException,
)
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.ports import BytesStore, ChangelogBatch, KeyValueBytesStore
from millstream.query.composite import QueryableStoreTypes, open_store
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import LocalStore, PartRole, StoreDeclaration, StoreSnapshot
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.threads.global_thread import GlobalStreamThread, global_thread_name
from millstream.runtime.threads.store_thread import Updater
from millstream.runtime.topics.topic_watch import TopicWatch
from millstream.serdes.serdes import Serdes
from millstream.states import GlobalThreadState, State
from millstream.stores.memory_store import MemoryStore
from millstream.stores.store_base import to_stored
from millstream.stores.updater import StoreUpdater
from millstream.topology.nodes import Store

SOON = 10.0
NAME = global_thread_name("app-1")
USERS = [TopicPartition("users", 0), TopicPartition("users", 1)]
PARTS = tuple(StorePart(TaskId(4, at.partition), Store("users", source_topic="users"), at) for at in USERS)


class QuickConsumer(FakeChangelogConsumer):
    """Waits a few milliseconds at most, so that who closes it does not wait long either."""

    def poll(self, timeout_s: float, max_records: int = 10_000) -> list[ChangelogBatch]:
        return super().poll(min(timeout_s, 0.005), max_records)


class Scene:
    """A global thread and its client: two partitions of `users`, three records in them.

    `events` has what the client was told, and what was closed, in order.
    """

    def __init__(self, parts: Sequence[StorePart] = PARTS, clock: Clock | None = None) -> None:
        self.log = FakeLog()
        self.log.append(USERS[0], (b"ann", b"1", 10), (b"bob", b"2", 20))
        self.log.append(USERS[1], (b"cid", b"3", 30))
        self.consumer = QuickConsumer(self.log)
        self.topics = FakeTopics({"users": 2}, self.log)
        self.watch: TopicWatch | None = None
        self.parts = parts
        self.events: list[str] = []
        self.states: list[str] = []
        self.failures: list[tuple[str, StreamsException, GlobalThreadState, bool]] = []
        self.stores: dict[TopicPartition, LoudStore] = {}
        self.restored: set[TopicPartition] = set()
        self.parts_error: BaseException | None = None
        self.open_error: BaseException | None = None
        self.handler_error: BaseException | None = None
        self.updater: Updater | None = None
        self.thread = GlobalStreamThread(
            NAME,
            self,
            Shown(self),
            clock=clock or SystemClock(),
            on_failure=self.failed,
            post=lambda moved: self.states.append(moved.state.name),
        )

    # what the thread asks for

    def global_parts(self) -> Sequence[StorePart]:
        if self.parts_error is not None:
            raise self.parts_error
        return self.parts

    def open_global_store(self, part: StorePart) -> KeyValueBytesStore:
        if self.open_error is not None and self.stores:  # the second one
            raise self.open_error
        store = LoudStore(part, self.events)
        self.stores[part.changelog] = store
        return store

    def watch_global_topics(self, on_missing: Callable[[MissingSourceTopicException], None]) -> TopicWatch:
        self.watch = TopicWatch(
            self.topics,
            client_id="app-1",
            application_id="app",
            names=["users"],
            servers="fake:9092",
            on_missing=on_missing,
            of_global_tables=True,
            interval_s=0.005,
        )
        self.watch.baseline(self.topics.look(["users"]))
        self.watch.start()
        return self.watch

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        self.updater = StoreUpdater(
            name, self.consumer, on_failure=on_failure, on_restored=on_restored, on_restoring=on_restoring
        )
        return self.updater

    # what it tells

    def failed(self, thread: GlobalStreamThread, error: StreamsException) -> None:
        all_open = all(store.is_open for store in self.stores.values())
        self.failures.append((threading.current_thread().name, error, thread.state, all_open))
        assert thread.is_current()
        if self.handler_error is not None:
            raise self.handler_error

    # what tests ask

    def end(self) -> None:
        """Stop it, and wait."""
        self.thread.stop()
        assert self.thread.join(SOON)

    def get(self, partition: int, key: bytes) -> bytes | None:
        return self.stores[USERS[partition]].get(key)

    @property
    def all_closed(self) -> bool:
        return self.consumer.closed and not any(store.is_open for store in self.stores.values())


class Shown:
    """`store_thread.StoresShown` of a scene."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def opened(self, thread: str, part: StorePart, store: BytesStore) -> None:
        assert thread == NAME
        self.scene.events.append(f"opened {part.changelog}")

    def role_changed(self, part: StorePart) -> None:
        raise AssertionError("the parts of a global store have one role")

    def caught_up(self, changelog: TopicPartition) -> None:
        raise AssertionError("a global store is no standby")

    def restored(self, changelog: TopicPartition) -> None:
        self.scene.restored.add(changelog)
        self.scene.events.append(f"restored {changelog}")

    def restoring(self, changelog: TopicPartition) -> None:
        self.scene.restored.discard(changelog)
        self.scene.events.append(f"restoring {changelog}")

    def closing(self, changelog: TopicPartition) -> None:
        self.scene.restored.discard(changelog)
        self.scene.events.append(f"closing {changelog}")


class LoudStore(MemoryStore):
    """Says that it is closed; `stuck` makes that fail."""

    def __init__(self, part: StorePart, events: list[str]) -> None:
        super().__init__(part.store.name, part.task_id)
        self.stuck = False
        self._part = part
        self._events = events

    def close(self) -> None:
        super().close()
        self._events.append(f"closed {self._part.changelog}")
        if self.stuck:
            raise OSError("no space left on device")


# --- the start -------------------------------------------------------------------------------------------


def test_it_is_running_once_all_partitions_are_restored() -> None:
    """shouldBeRunningAfterSuccessfulStart, shouldTransitionToRunningOnStart: only then start() returns."""
    scene = Scene()
    assert scene.thread.state is GlobalThreadState.CREATED
    assert scene.thread.start(SOON) is True
    assert scene.thread.state is GlobalThreadState.RUNNING
    assert scene.restored == set(USERS)
    assert (scene.get(0, b"bob"), scene.get(1, b"cid")) == (to_stored(b"2", 20), to_stored(b"3", 30))
    assert scene.events[:2] == ["opened users-0", "opened users-1"]
    names = {thread.name for thread in threading.enumerate()}
    assert {"app-1-GlobalStreamThread", "app-1-GlobalStreamThread-StateUpdater"} <= names
    assert scene.thread.metadata().thread_name == "app-1-GlobalStreamThread"
    assert scene.thread.metadata().thread_state == "RUNNING"
    assert not scene.thread.is_current()
    scene.end()


def test_it_follows_its_topics_after_the_start() -> None:
    """A new value, and a deletion."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.log.append(USERS[0], (b"ann", b"9", 40), (b"bob", None, 50))
    wait_until(lambda: scene.get(0, b"bob") is None, "the deletion", SOON)
    assert scene.get(0, b"ann") == to_stored(b"9", 40)
    assert scene.thread.lags()[USERS[0]] == LagInfo(4, 4)
    scene.end()
    assert scene.thread.lags() == {}


def test_a_client_without_global_tables_would_need_no_updater() -> None:
    """Nothing to restore: RUNNING at once."""
    scene = Scene(parts=())
    assert scene.thread.start(SOON) is True
    assert scene.updater is None
    scene.end()
    assert scene.states == ["RUNNING", "PENDING_SHUTDOWN", "DEAD"]


def test_it_can_be_started_once() -> None:
    """A dead one stays dead."""
    scene = Scene()
    scene.thread.start(SOON)
    with pytest.raises(IllegalStateException, match="already been started; create a new one"):
        scene.thread.start(SOON)
    scene.end()
    with pytest.raises(IllegalStateException, match="already been started; create a new one"):
        scene.thread.start(SOON)
    assert scene.thread.state is GlobalThreadState.DEAD


@pytest.mark.parametrize(
    "error",
    [
        MissingSourceTopicException("There are no partitions available for topic users", ("users",)),
        ProcessorStateException("the disk is full"),
    ],
    ids=["topic", "store"],
)
@pytest.mark.parametrize("where", ["parts", "open", "poll"])
def test_start_raises_the_streams_exception_that_prevented_it(where: str, error: StreamsException) -> None:
    """shouldThrowStreamsExceptionOnStartupIfThereIsAStreamsException: itself, and nobody is asked."""
    scene = Scene()
    fail(scene, where, error)
    with pytest.raises(StreamsException) as caught:
        scene.thread.start(SOON)
    assert caught.value is error
    assert_it_never_ran(scene, where)


@pytest.mark.parametrize("error", [OSError("boom"), SystemExit(3)], ids=["exception", "throwable"])
@pytest.mark.parametrize("where", ["parts", "open"])
def test_start_wraps_what_is_no_streams_exception(where: str, error: BaseException) -> None:
    """shouldThrowStreamsExceptionOnStartupIfExceptionOccurred, …IfThrowableOccurred: it is the cause."""
    scene = Scene()
    fail(scene, where, error)
    with pytest.raises(StreamsException) as caught:
        scene.thread.start(SOON)
    assert type(caught.value) is StreamsException
    assert caught.value.__cause__ is error
    assert str(caught.value).startswith("Exception caught during initialization of GlobalStreamThread: ")
    assert type(error).__name__ in str(caught.value)
    assert_it_never_ran(scene, where)


def fail(scene: Scene, where: str, error: BaseException) -> None:
    if where == "parts":
        scene.parts_error = error
    elif where == "open":
        scene.open_error = error
    else:
        scene.consumer.fail(error)


def assert_it_never_ran(scene: Scene, where: str) -> None:
    assert scene.thread.state is GlobalThreadState.DEAD
    assert scene.states == ["PENDING_SHUTDOWN", "DEAD"]
    assert scene.failures == []
    assert scene.all_closed or where == "parts"
    assert scene.thread.join(SOON)


def test_a_stop_ends_a_start_that_still_restores() -> None:
    """The client is closed while it starts: no error, and it did not come to run."""
    scene = Scene()
    scene.consumer.hold()
    results: list[bool] = []
    starter = threading.Thread(target=lambda: results.append(scene.thread.start(SOON)), name="s", daemon=True)
    starter.start()
    wait_until(lambda: scene.consumer.assignments, "the consumer to be assigned", SOON)
    scene.thread.stop()
    starter.join(SOON)
    assert results == [False]
    assert scene.states == ["PENDING_SHUTDOWN", "DEAD"]
    assert scene.all_closed
    assert scene.failures == []


def test_a_start_that_gets_nowhere_is_given_up() -> None:
    """The brokers are away: the message says what is still to be read."""
    clock = ManualClock()
    scene = Scene(clock=clock)
    scene.consumer.hold()
    errors, starter = start_elsewhere(scene, 0.01)
    wait_until(lambda: scene.consumer.assignments, "the consumer to be assigned", SOON)
    wait_until(lambda: clock.advance(1.0) or not starter.is_alive(), "the start to be given up", SOON)
    (error,) = errors
    assert f"global thread '{NAME}' has restored nothing for 0.01 s" in str(error)
    assert "users-0 (2 records to read), users-1 (1 records to read)" in str(error)
    assert scene.thread.join(SOON)
    assert scene.thread.state is GlobalThreadState.DEAD
    assert scene.all_closed


def start_elsewhere(scene: Scene, timeout_s: float) -> tuple[list[TimeoutException], threading.Thread]:
    """Start it on another thread; the list gets the error, if that is how it ends."""
    errors: list[TimeoutException] = []

    def start() -> None:
        try:
            scene.thread.start(timeout_s)
        except TimeoutException as error:
            errors.append(error)

    starter = threading.Thread(target=start, name="starter", daemon=True)
    starter.start()
    return errors, starter


class SlowUpdater:
    """Restores when it is told to; counts how often somebody looked."""

    def __init__(self) -> None:
        self.position = 0
        self.looks = 0

    def start(self) -> None:
        pass

    def add(self, store: KeyValueBytesStore, partition: TopicPartition) -> None:
        pass

    def remove(self, partition: TopicPartition, timeout_s: float = 10.0) -> None:
        pass

    def is_restored(self, partition: TopicPartition) -> bool:
        return True

    def lags(self) -> dict[TopicPartition, LagInfo]:
        self.looks += 1
        return {USERS[0]: LagInfo(self.position, 100)}

    def close(self, timeout_s: float = 10.0) -> None:
        pass


def test_a_start_may_take_long_as_long_as_it_gets_on() -> None:
    """The time counts from the last progress, by the clock."""
    clock, updater = ManualClock(), SlowUpdater()
    scene = Scene(clock=clock)
    scene.make_updater = lambda *args: updater  # type: ignore[method-assign]
    errors, starter = start_elsewhere(scene, 0.01)
    for _ in range(5):  # five times nine tenths of the time that it has without progress
        updater.position += 1
        clock.advance(0.009)
        seen = updater.looks
        wait_until(lambda seen=seen: updater.looks >= seen + 2, "the starter to look", SOON)  # type: ignore[misc]
        assert errors == []
        assert scene.thread.state is GlobalThreadState.CREATED
    clock.advance(0.02)
    starter.join(SOON)
    assert len(errors) == 1
    assert scene.thread.join(SOON)


def test_a_handle_reads_all_partitions_while_the_thread_runs() -> None:
    """Any key, wherever its producer put it; of one that is in several partitions the first one's value."""
    scene = Scene()
    scene.log.append(USERS[1], (b"ann", b"late", 99))
    users = StoreQueryParameters.from_name_and_type("users", QueryableStoreTypes.key_value_store())
    with pytest.raises(StreamsRebalancingException, match="thread 'app-1-GlobalStreamThread' is CREATED"):
        open_store(View(scene), users)
    scene.thread.start(SOON)
    handle = open_store(View(scene), users)
    assert [handle.get(key) for key in ("ann", "bob", "cid", "dan")] == ["1", "2", "3", None]
    scene.end()
    with pytest.raises(StateStoreMigratedException):
        handle.get("ann")


class View:
    """What a client would show of the scene: a snapshot made anew at each look."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def snapshot(self) -> StoreSnapshot:
        parts = [
            LocalStore(
                store.task_id,
                store,
                NAME,
                PartRole.ACTIVE if at in self._scene.restored else PartRole.RESTORING,
            )
            for at, store in self._scene.stores.items()
        ]
        return StoreSnapshot(
            client_id="app-1",
            client_state=State.RUNNING,
            threads={NAME: self._scene.thread.state},
            stores={"users": StoreDeclaration("users", Serdes.string(), Serdes.string(), partitions=2)},
            local={"users": parts},
        )


# --- the end ---------------------------------------------------------------------------------------------


def test_a_stop_closes_everything_and_ends_in_dead() -> None:
    """shouldStopRunningWhenClosedByUser, shouldCloseStateStoresOnClose: queries lose sight of them first."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.end()
    assert scene.states == ["RUNNING", "PENDING_SHUTDOWN", "DEAD"]
    assert scene.all_closed
    assert scene.events[-4:] == ["closing users-0", "closing users-1", "closed users-0", "closed users-1"]
    assert scene.failures == []
    assert scene.updater is not None
    assert not scene.updater.is_alive  # type: ignore[attr-defined]


def test_it_stays_dead_after_two_stops() -> None:
    """shouldStayDeadAfterTwoCloses."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.end()
    scene.end()
    assert scene.states == ["RUNNING", "PENDING_SHUTDOWN", "DEAD"]


def test_one_that_never_started_is_dead_at_once() -> None:
    """It cannot be started afterwards."""
    scene = Scene()
    scene.thread.stop()
    assert scene.thread.state is GlobalThreadState.DEAD
    assert scene.thread.join(0)
    assert scene.thread.start(SOON) is False
    assert scene.states == ["PENDING_SHUTDOWN", "DEAD"]
    assert scene.stores == {}


def test_what_does_not_close_keeps_nothing_else_open(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, the rest is closed, and the thread is DEAD."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.stores[USERS[0]].stuck = True
    scene.end()
    assert scene.all_closed
    assert scene.thread.state is GlobalThreadState.DEAD
    assert "partition 0 of store users did not close cleanly" in caplog.text


# --- failures after the start ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StreamsException("refused"), OSError("boom")], ids=["streams", "other"])
def test_a_failure_after_the_start_is_decided_about_on_the_thread(error: Exception) -> None:
    """The handler gets a StreamsException, once, before anything is closed; then the thread is DEAD."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.consumer.fail(error)
    assert scene.thread.join(SOON)
    ((where, told, state, all_open),) = scene.failures
    assert (where, state, all_open) == (NAME, GlobalThreadState.RUNNING, True)
    assert isinstance(told, StreamsException)
    assert told is error or told.__cause__ is error
    assert scene.states == ["RUNNING", "PENDING_SHUTDOWN", "DEAD"]
    assert scene.all_closed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_lets_go_of_everything_also_if_the_decision_fails() -> None:
    """No store stays open because of a bug in what decides."""
    scene = Scene()
    scene.handler_error = RuntimeError("a bug")
    scene.thread.start(SOON)
    scene.consumer.fail(StreamsException("refused"))
    assert scene.thread.join(SOON)
    assert len(scene.failures) == 1
    assert scene.thread.state is GlobalThreadState.DEAD
    assert scene.all_closed


def test_a_failure_is_not_decided_about_once_it_stops() -> None:
    """A client that closes is not told of what the closing did."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.thread.stop()
    scene.consumer.fail(StreamsException("refused"))
    assert scene.thread.join(SOON)
    assert scene.failures == []


# --- topics that are truncated or made anew --------------------------------------------------------------


def test_a_store_that_does_not_fit_its_topic_at_the_start_is_wiped_and_read_anew() -> None:
    """shouldDieOnInvalidOffsetExceptionDuringStartup: wiped as there; the thread lives (Differs)."""
    scene = Scene()
    opened = scene.open_global_store

    def with_another_past(part: StorePart) -> KeyValueBytesStore:
        store = opened(part)
        store.apply([(b"old", b"x", 1)], 77)  # an offset that this topic never had
        return store

    scene.open_global_store = with_another_past  # type: ignore[method-assign]
    assert scene.thread.start(SOON) is True
    assert scene.get(0, b"old") is None
    assert scene.get(0, b"ann") == to_stored(b"1", 10)
    assert scene.failures == []
    scene.end()


def test_a_topic_that_is_made_anew_is_read_anew_and_cannot_be_queried_meanwhile() -> None:
    """shouldDieOnInvalidOffsetExceptionWhileRunning: wiped as there; the thread stays RUNNING (Differs)."""
    scene = Scene()
    scene.thread.start(SOON)
    scene.log.recreate(USERS[0])
    wait_until(lambda: scene.events.count("restored users-0") == 2, "the second restoring", SOON)
    assert scene.events.index("restoring users-0") < len(scene.events) - 1
    assert scene.get(0, b"ann") is None
    assert scene.get(1, b"cid") == to_stored(b"3", 30)
    scene.log.append(USERS[0], (b"dan", b"4", 60))
    wait_until(lambda: scene.get(0, b"dan"), "the new record", SOON)
    assert scene.thread.state is GlobalThreadState.RUNNING
    assert scene.failures == []
    scene.end()


@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_gone_is_a_missing_source_topic(again: bool) -> None:
    """The error is the same as at the start, not the updater's; the store is closed with the thread."""
    scene = Scene()
    scene.thread.start(SOON)
    if again:
        scene.topics.recreate("users")
    else:
        scene.topics.remove("users")
        scene.consumer.fail(StreamsException("changelog 'users' no longer exists"))
    wait_until(lambda: scene.thread.state is GlobalThreadState.DEAD, "its end", SOON)
    ((_, error, _, all_open),) = scene.failures
    assert isinstance(error, MissingSourceTopicException)
    assert (error.deleted, error.recreated) == (((), ("users",)) if again else (("users",), ()))
    assert all_open, "whoever decides may still read"
    assert scene.watch is not None
    assert scene.watch.close()
    scene.end()


def test_the_start_waits_for_a_part_that_has_to_be_read_twice() -> None:
    """Its topic was recreated while another partition was still being restored."""
    scene = Scene()
    told: dict[str, Any] = {}

    def made(name: str, on_failure: Any, on_restored: Any, on_restoring: Any) -> SlowUpdater:
        told.update(restored=on_restored, restoring=on_restoring)
        return SlowUpdater()

    scene.make_updater = made  # type: ignore[method-assign, assignment]
    _, starter = start_elsewhere(scene, SOON)
    wait_until(lambda: len(scene.stores) == 2, "the stores", SOON)
    told["restored"](USERS[0])
    told["restoring"](USERS[0])
    told["restored"](USERS[1])
    told["restoring"](USERS[0])  # changes nothing; once it is taken, what came before it was seen
    wait_until(lambda: scene.thread._inbox.empty(), "the thread to have seen it", SOON)
    assert scene.thread.state is GlobalThreadState.CREATED
    told["restored"](USERS[0])
    starter.join(SOON)
    assert scene.thread.state is GlobalThreadState.RUNNING
    scene.end()
