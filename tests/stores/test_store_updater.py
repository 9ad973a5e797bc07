"""The store updater: where it starts, restoring, following, and how it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fake_ports import FakeChangelogConsumer, FakeLog, ManualClock
from waiting import wait_until

from millstream.errors import (
    IllegalStateException,
    ProcessorStateException,
    StreamsException,
    TimeoutException,
)
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.ports import ChangelogBatch, OffsetOutOfRange
from millstream.stores.memory_store import MemoryStore
from millstream.stores.store_base import to_stored
from millstream.stores.updater import Start, StoreUpdater, progress_line, where_to_start

P0 = TopicPartition("app-counts-changelog", 0)
P1 = TopicPartition("app-counts-changelog", 1)
SOON = 10.0


def record(number: int) -> tuple[bytes, bytes | None, int]:
    return (b"k%03d" % number, b"v%d" % number, number)


def records(first: int, end: int) -> list[tuple[bytes, bytes | None, int]]:
    return [record(number) for number in range(first, end)]


class Heard:
    """What a listener and the callbacks were told, and a way to wait for it."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.changed = threading.Condition()

    def tell(self, *what: Any) -> None:
        with self.changed:
            self.told.append(what)
            self.changed.notify_all()

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        self.tell("start", partition.partition, store, start, end)

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        self.tell("batch", partition.partition, store, end, count)

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.tell("end", partition.partition, store, total)

    def wait_until(self, condition: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, SOON), self.told

    def kinds(self) -> list[str]:
        with self.changed:
            return [what[0] for what in self.told]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what nobody tells; with a deadline."""
    wait_until(condition, "it happens", SOON, every_s=0.002)


class World:
    """An updater on a fake log, and its stores."""

    def __init__(self, **options: Any) -> None:
        self.log = FakeLog()
        self.consumer = FakeChangelogConsumer(self.log)
        self.heard = Heard()
        self.updater = StoreUpdater(
            "app-StateUpdater-1",
            self.consumer,
            on_failure=lambda error: self.heard.tell("failure", error),
            listener=options.pop("listener", self.heard),
            on_restored=lambda partition: self.heard.tell("restored", partition.partition),
            on_restoring=lambda partition: self.heard.tell("restoring", partition.partition),
            **options,
        )

    def add(self, partition: TopicPartition, store: MemoryStore | None = None) -> MemoryStore:
        store = store or MemoryStore("counts", TaskId(1, partition.partition))
        self.updater.add(store, partition)
        return store

    def wait_for_position(self, store: MemoryStore, position: int) -> None:
        eventually(lambda: store.position == position)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.updater.close()


@pytest.mark.parametrize(
    ("position", "beginning", "end", "expected"),
    [
        (None, 0, 0, Start(0, wipe=True)),
        (None, 5, 9, Start(5, wipe=True)),
        (5, 5, 9, Start(5)),
        (7, 5, 9, Start(7)),
        (9, 5, 9, Start(9)),
        (0, 0, 0, Start(0)),
        (4, 5, 9, Start(5, True, "its position 4 is before the log's first offset 5")),
        (10, 5, 9, Start(5, True, "its position 10 is after the log's end 9")),
    ],
)
def test_a_store_starts_at_its_position_if_the_log_still_has_it(
    position: int | None, beginning: int, end: int, expected: Start
) -> None:
    """Otherwise it is wiped and starts at the beginning, as does a store without a position."""
    assert where_to_start(position, beginning, end) == expected


def test_a_new_store_is_restored_from_the_beginning_and_then_followed(world: World) -> None:
    """The listener hears start, batches and end of the restore, and nothing of what follows."""
    world.log.append(P0, *records(0, 5), (b"k001", None, 9))
    store = world.add(P0)
    assert not world.updater.all_restored
    assert world.updater.positions() == {P0: None}
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert world.updater.is_restored(P0)
    assert store.get(b"k000") == to_stored(b"v0", 0)
    assert store.get(b"k001") is None
    assert store.position == 6
    told = [
        ("start", 0, "counts", 0, 6),
        ("batch", 0, "counts", 6, 6),
        ("end", 0, "counts", 6),
        ("restored", 0),
    ]
    world.heard.wait_until(lambda: world.heard.told == told)
    world.log.append(P0, *records(5, 8))
    world.wait_for_position(store, 9)
    assert store.get(b"k007") == to_stored(b"v7", 7)
    assert world.updater.records_applied == 9
    assert world.heard.told == told


def test_a_store_with_a_position_gets_only_what_it_lacks(world: World) -> None:
    """What it has is not read again."""
    world.log.append(P0, *records(0, 10))
    store = MemoryStore("counts", TaskId(1, 0))
    store.apply(records(0, 7), 7)
    world.add(P0, store)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert world.heard.told[0] == ("start", 0, "counts", 7, 10)
    assert world.updater.records_applied == 3
    assert len(list(store.range(None, None))) == 10


def test_an_empty_changelog_is_restored_at_once(world: World) -> None:
    """There is nothing to wait for."""
    world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.heard.wait_until(lambda: ("end", 0, "counts", 0) in world.heard.told)


@pytest.mark.parametrize("case", ["before the log's first offset", "after the log's end"])
def test_a_position_that_is_not_in_the_log_wipes_the_store(
    world: World, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The topic was truncated, or deleted and made anew: a warning, and all from the beginning."""
    store = MemoryStore("counts", TaskId(1, 0))
    store.apply([(b"old", b"1", 1)], 3)
    if case.startswith("before"):
        world.log.append(P0, *records(0, 6))
        world.log.truncate(P0, 4)
    else:
        world.log.append(P0, *records(0, 2))
    world.add(P0, store)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert store.get(b"old") is None
    expected = records(4, 6) if case.startswith("before") else records(0, 2)
    assert [key for key, _ in store.range(None, None)] == [key for key, _, _ in expected]
    assert case in caplog.text


def test_a_log_that_ends_in_offsets_that_are_no_records_is_restored(world: World) -> None:
    """Transaction markers at the end of a table's topic: the position passes them."""
    world.log.append(P0, *records(0, 2))
    world.log.gap(P0, 2)
    store = world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert store.position == 4


def test_restoring_goes_on_in_bounded_batches() -> None:
    """A batch has `max_records` at most, so memory does not grow with the changelog."""
    world = World(max_records=10)
    world.log.append(P0, *records(0, 35))
    world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.updater.close()
    counts = [what[4] for what in world.heard.told if what[0] == "batch"]
    assert counts == [10, 10, 10, 5]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            (3, 4_200_000, 10_000_000, 14.0),
            "restoring 3 stores: 4,200,000 of 10,000,000 offsets (42 %), 300,000 per second, about 19 s left",
        ),
        ((1, 0, 50, 10.0), "restoring 1 store: 0 of 50 offsets (0 %), 0 per second, nothing has arrived yet"),
        ((1, 0, 0, 0.0), "restoring 1 store: 0 of 0 offsets (0 %), 0 per second, nothing has arrived yet"),
    ],
)
def test_how_far_a_restore_is_in_words(facts: tuple[int, int, int, float], expected: str) -> None:
    """What is done, what there is, how quickly it goes and how long it will take."""
    assert progress_line(*facts) == expected


def test_a_long_restore_tells_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """Every ten seconds one line for all stores of the thread; a short restore says nothing."""
    caplog.set_level(logging.INFO)
    clock = ManualClock()

    class Slow(Heard):
        def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
            clock.advance(4)

    world = World(max_records=10, clock=clock, listener=Slow())
    world.log.append(P0, *records(0, 75))
    world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.updater.close()
    told = [record.getMessage() for record in caplog.records if "restoring 1 store" in record.getMessage()]
    assert [line.split(": ", 2)[2].split(" (")[0] for line in told] == [
        "40 of 75 offsets",
        "70 of 75 offsets",
    ]


def test_stores_come_and_go_while_it_runs(world: World) -> None:
    """Added ones are restored, removed ones not touched any more, and the others go on where they are."""
    world.log.append(P0, *records(0, 3))
    world.log.append(P1, *records(0, 4))
    world.updater.start()
    assert world.updater.all_restored
    first = world.add(P0)
    assert world.updater.wait_until_restored(SOON)
    second = world.add(P1)
    assert world.updater.wait_until_restored(SOON)
    assert (first.position, second.position) == (3, 4)
    assert world.consumer.assignments[-1][P0] == 3
    world.updater.remove(P0)
    first.close()
    world.log.append(P0, record(9))
    world.log.append(P1, record(9))
    world.wait_for_position(second, 5)
    assert list(world.updater.positions()) == [P1]
    again = world.add(P0)
    assert world.updater.wait_until_restored(SOON)
    assert again.position == 4
    world.updater.remove(P0)
    world.updater.remove(P1)
    world.updater.remove(P1)
    assert world.updater.failure is None
    assert world.updater.is_alive


def test_remove_waits_for_the_batch_that_is_being_applied(world: World) -> None:
    """The store can be closed when it returns; at its deadline it says that it could not wait."""
    applying, go_on = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def apply(self, entries: Any, next_offset: int) -> None:
            applying.set()
            assert go_on.wait(SOON)
            super().apply(entries, next_offset)

    world.log.append(P0, *records(0, 3))
    store = world.add(P0, Slow("counts", TaskId(1, 0)))
    world.updater.start()
    assert applying.wait(SOON)
    with pytest.raises(TimeoutException, match="still uses the store of changelog 'app-counts-changelog-0'"):
        world.updater.remove(P0, 0.01)
    with pytest.raises(TimeoutException, match=r"did not end within 0\.01 s"):
        world.updater.close(0.01)
    go_on.set()
    world.updater.remove(P0)
    store.close()
    world.updater.close()
    assert world.updater.failure is None


def test_a_partition_fills_one_store(world: World) -> None:
    """A second one is refused, by name."""
    world.add(P0)
    with pytest.raises(IllegalStateException, match="already fills store 'counts' of task 1_0"):
        world.add(P0, MemoryStore("other", TaskId(2, 0)))


def test_a_broker_that_is_away_is_waited_for(world: World) -> None:
    """The store is not restored at the deadline, and is restored once the broker is back."""
    world.log.append(P0, *records(0, 3))
    world.consumer.hold()
    world.add(P0)
    world.updater.start()
    assert not world.updater.wait_until_restored(0.05)
    assert not world.updater.is_restored(P0)
    world.consumer.release()
    assert world.updater.wait_until_restored(SOON)


def test_a_failure_ends_it_and_is_told_once(world: World) -> None:
    """The failure is reported on its thread; waiters get it, the consumer is closed, the stores are not."""
    store = world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    error = StreamsException("not authorized")
    world.consumer.fail(error)
    world.heard.wait_until(lambda: "failure" in world.heard.kinds())
    assert [what for what in world.heard.told if what[0] == "failure"] == [("failure", error)]
    assert world.updater.failure is error
    with pytest.raises(StreamsException, match="not authorized"):
        world.updater.wait_until_restored(SOON)
    world.updater.close()
    assert not world.updater.is_alive
    assert world.consumer.closed
    assert store.is_open


def test_a_store_that_fails_ends_it_with_the_stores_error(world: World) -> None:
    """A full disk becomes the thread's failure, and later records are not applied without the failed ones."""

    class Full(MemoryStore):
        def apply(self, entries: Any, next_offset: int) -> None:
            raise ProcessorStateException("no space left")

    world.log.append(P0, record(0))
    world.add(P0, Full("counts", TaskId(1, 0)))
    world.updater.start()
    with pytest.raises(ProcessorStateException, match="no space left"):
        world.updater.wait_until_restored(SOON)


def test_a_changelog_made_anew_while_it_is_followed_is_restored_anew(world: World) -> None:
    """First it is told that the store is not to be read, then wiped, then restored."""
    world.log.append(P0, *records(0, 5))
    world.log.append(P1, record(0))
    store, other = world.add(P0), world.add(P1)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.log.recreate(P0)
    world.heard.wait_until(lambda: ("restoring", 0) in world.heard.told)
    world.heard.wait_until(lambda: world.heard.told.count(("restored", 0)) == 2)
    world.log.append(P0, record(77))
    world.wait_for_position(store, 1)
    assert [key for key, _ in store.range(None, None)] == [b"k077"]
    assert other.position == 1
    assert world.updater.failure is None


def test_a_position_lost_in_a_log_that_has_grown_past_it_wipes_the_store_too(world: World) -> None:
    """The new topic may have as many records as the old one by the time one looks."""
    world.log.append(P0, *records(0, 5))
    store = world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    store.apply([(b"of the old topic", b"1", 1)], 5)
    world.consumer.fail(OffsetOutOfRange("gone", partition=P0))
    world.heard.wait_until(lambda: world.heard.told.count(("restored", 0)) == 2)
    assert [key for key, _ in store.range(None, None)] == [key for key, _, _ in records(0, 5)]


def test_a_position_lost_for_a_removed_store_is_nobodys_failure(world: World) -> None:
    """The consumer reports a partition that is not wanted any more."""
    world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.consumer.fail(OffsetOutOfRange("gone", partition=P1))
    second = world.add(P1)
    world.log.append(P1, record(1))
    world.wait_for_position(second, 1)
    assert world.updater.failure is None


def test_a_listener_that_raises_is_logged_and_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """This holds for every listener of users."""

    class Bad:
        def on_restore_start(self, *_: Any) -> None:
            raise ValueError("oops")

        on_batch_restored = on_restore_end = on_restore_start

    world = World(listener=Bad())
    world.log.append(P0, record(0))
    world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    world.updater.close()
    assert world.updater.failure is None
    assert caplog.text.count("the state restore listener raised") == 3


def test_close_ends_the_thread_and_the_consumer(world: World) -> None:
    """Idempotent; the stores stay open; nothing can be added or started any more."""
    store = world.add(P0)
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert [thread.name for thread in threading.enumerate()].count("app-StateUpdater-1") == 1
    world.updater.close()
    world.updater.close()
    assert "app-StateUpdater-1" not in [thread.name for thread in threading.enumerate()]
    assert world.consumer.closed
    assert store.is_open
    with pytest.raises(IllegalStateException, match="is closed"):
        world.updater.add(MemoryStore("x", TaskId(0, 1)), P1)
    with pytest.raises(IllegalStateException, match="is closed"):
        world.updater.start()
    world.updater.remove(P0)


def test_close_before_start_closes_the_consumer(world: World) -> None:
    """A waiter does not wait for what will not come."""
    world.add(P0)
    world.updater.close()
    assert world.consumer.closed
    with pytest.raises(IllegalStateException, match="closed while restoring"):
        world.updater.wait_until_restored(SOON)


def test_the_owner_may_close_and_remove_from_a_callback() -> None:
    """On the updater's own thread these calls do not wait for themselves."""
    log = FakeLog()
    done = threading.Event()

    def on_failure(error: BaseException) -> None:
        updater.remove(P0)
        updater.close()
        done.set()

    consumer = FakeChangelogConsumer(log)
    updater = StoreUpdater("u", consumer, on_failure=on_failure)
    updater.add(MemoryStore("counts", TaskId(1, 0)), P0)
    updater.start()
    assert updater.wait_until_restored(SOON)
    consumer.fail(StreamsException("x"))
    assert done.wait(SOON)
    updater.close()


def test_lags_are_the_distance_to_the_end() -> None:
    """They are 0 once restored; asking makes the updater look where the end is, at most once a second."""
    clock = ManualClock()
    world = World(clock=clock)
    world.log.append(P0, *records(0, 4))
    world.add(P0)
    assert world.updater.lags() == {}
    world.updater.start()
    assert world.updater.wait_until_restored(SOON)
    assert world.updater.lags() == {P0: LagInfo(4, 4)}
    assert world.updater.positions() == {P0: 4}
    world.consumer.hold()
    world.log.append(P0, *records(4, 6))
    clock.advance(1.0)
    eventually(lambda: world.updater.lags() == {P0: LagInfo(4, 6)})
    world.consumer.release()
    eventually(lambda: world.updater.lags() == {P0: LagInfo(6, 6)})
    world.updater.close()


def test_what_cannot_be_read_does_not_go_into_the_store() -> None:
    """What decides about it gets the offsets; the position passes what was left out."""
    seen: list[int] = []

    def readable(store: Any, batch: ChangelogBatch) -> list[tuple[bytes, bytes | None, int]]:
        seen.extend(batch.offsets)
        if any(key == b"k007" for key, *_ in batch.entries):
            raise StreamsException("the record at offset 7 cannot be read")
        return [each for each in batch.entries if each[0] != b"k001"]

    world = World(readable=readable)
    world.log.append(P0, *records(0, 4))
    store = world.add(P0)
    world.updater.start()
    world.wait_for_position(store, 4)
    assert [key for key, _ in store.range(None, None)] == [b"k000", b"k002", b"k003"]
    assert seen == [0, 1, 2, 3]
    world.log.append(P0, *records(4, 8))
    world.heard.wait_until(lambda: "failure" in [what[0] for what in world.heard.told])
    assert store.position == 4
    world.updater.close()
