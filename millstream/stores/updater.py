"""Fills stores from their changelogs: the only writer of a store.

One updater has one thread, one consumer and the stores of some tasks. For each store, it decides where to
start (`where_to_start`, pure), restores up to the changelog's end at that time, and then follows the
changelog. Data and offset go into the store in one write, so a crash at any point neither repeats nor loses
anything.

Other threads only change the wanted stores (`add`, `remove`, `close`) and wait until the updater has reacted.
Only the updater's thread uses the consumer.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from millstream.clock import Clock, SystemClock
from millstream.errors import IllegalStateException, StreamsException, TimeoutException
from millstream.foreign import ESCAPED
from millstream.model import LagInfo, TopicPartition
from millstream.ports import BytesStore, ChangelogBatch, ChangelogConsumer, OffsetOutOfRange

__all__ = ["MAX_RECORDS", "Start", "StateRestoreListener", "StoreUpdater", "progress_line", "where_to_start"]

_log = logging.getLogger(__name__)
_log.addFilter(ESCAPED)

MAX_RECORDS = 500
"""Records per write. RocksDB's binding holds Python's lock while it writes: half a millisecond for 500, ten
for 10,000, in which readers wait. Larger batches are slower, too."""

Entry = tuple[bytes, bytes | None, int]

_IDLE_S = 60.0
_LAG_REFRESH_S = 1.0
_LAG_WAIT_S = 2.0
"""How long to wait for end offsets; the stores are not updated in the meantime."""
_LAG_AGAIN_S = 10.0
"""When to request end offsets again that did not arrive in time."""
_LOG_PROGRESS_S = 10.0


@dataclass(frozen=True, slots=True)
class Start:
    """Where a store starts to read its changelog. `wipe`: its contents do not fit this changelog."""

    offset: int
    wipe: bool = False
    reason: str = ""


def where_to_start(position: int | None, beginning: int, end: int) -> Start:
    """The saved position, if the changelog still has the records after it; else the changelog's beginning.

    Pure. `beginning` and `end` are the changelog's first offset and the one after its last.
    """
    if position is None:
        return Start(beginning, wipe=True)
    if position < beginning:
        return Start(beginning, True, f"its position {position} is before the log's first offset {beginning}")
    if position > end:
        return Start(beginning, True, f"its position {position} is after the log's end {end}")
    return Start(position)


def progress_line(stores: int, done: int, whole: int, seconds: float) -> str:
    """A restore's progress, in words. Pure.

    `done` and `whole` count offsets of all its changelogs; `done` took the given number of seconds. A
    compacted changelog has fewer records than offsets.
    """
    rate = done / seconds if seconds > 0 else 0.0
    left = f"about {(whole - done) / rate:,.0f} s left" if rate > 0 else "nothing has arrived yet"
    what = "1 store" if stores == 1 else f"{stores} stores"
    return (
        f"restoring {what}: {done:,} of {whole:,} offsets ({100 * done // max(whole, 1)} %), "
        f"{rate:,.0f} per second, {left}"
    )


class StateRestoreListener(Protocol):
    """Receives the restore progress of each store. Called on the updater's thread; exceptions are logged.

    Source: org.apache.kafka.streams.processor.StateRestoreListener.
    """

    def on_restore_start(
        self, partition: TopicPartition, store: str, starting_offset: int, ending_offset: int
    ) -> None:
        """A restore starts, from one offset (inclusive) to the other (exclusive)."""

    def on_batch_restored(
        self, partition: TopicPartition, store: str, batch_end_offset: int, num_restored: int
    ) -> None:
        """A batch of records was restored, up to this offset (exclusive)."""

    def on_restore_end(self, partition: TopicPartition, store: str, total_restored: int) -> None:
        """The store is up to date, after this total number of records."""


@dataclass(slots=True)
class _Follower:
    """One store and its progress. Written by the updater's thread only."""

    store: BytesStore
    position: int = 0
    end: int = 0
    restore_from: int = 0
    restore_until: int = 0
    total_restored: int = 0
    started: bool = False
    restored: bool = False


@dataclass(slots=True)
class _Shared:
    """The state shared by the threads; guarded by `changed`."""

    changed: threading.Condition = field(default_factory=threading.Condition)
    wanted: dict[TopicPartition, _Follower] = field(default_factory=dict)
    served: dict[TopicPartition, _Follower] = field(default_factory=dict)
    closing: bool = False
    ended: bool = False
    lags_wanted: bool = False
    failure: BaseException | None = None


class Watch(Protocol):
    """Receives, on the updater's thread, the start of each store and all that it loads."""

    def begun(self, partition: TopicPartition, store: BytesStore, start: int, end: int) -> None:
        """A store starts at offset `start`; its changelog ends before `end`."""

    def loaded(
        self, partition: TopicPartition, store: BytesStore, records: int, position: int, end: int
    ) -> None:
        """More records were loaded, up to `position` (exclusive)."""


class StoreUpdater:
    """Keeps stores up to date with their changelogs, on its own thread called `name`.

    `on_failure` is called once, on that thread, which then ends. `on_restored` is called there for each
    partition that has become up to date. `on_restoring` is called before such a partition is restored again,
    because its changelog was truncated or recreated; from then on, the store should not be read.
    `readable` is called there for each batch, and gives the entries that go into the store. The updater owns
    the consumer, not the stores.
    """

    def __init__(
        self,
        name: str,
        consumer: ChangelogConsumer,
        *,
        on_failure: Callable[[BaseException], None],
        listener: StateRestoreListener | None = None,
        watch: Watch | None = None,
        on_restored: Callable[[TopicPartition], None] | None = None,
        on_restoring: Callable[[TopicPartition], None] | None = None,
        poll_timeout_s: float = 0.05,
        max_records: int = MAX_RECORDS,
        clock: Clock | None = None,
        readable: Callable[[BytesStore, ChangelogBatch], Sequence[Entry]] = lambda store, batch: (
            batch.entries
        ),
    ) -> None:
        self._consumer = consumer
        self._readable = readable
        self._on_failure = on_failure
        self._listener = listener
        self._watch = watch
        self._on_restored = on_restored
        self._on_restoring = on_restoring
        self._poll_timeout_s = poll_timeout_s
        self._max_records = max_records
        self._clock = clock or SystemClock()
        self._shared = _Shared()
        self._records_applied = 0
        self._lags_at = float("-inf")
        self._restoring_since: float | None = None
        self._progress_logged_at = 0.0
        self._restored_beside: dict[TopicPartition, _Follower] = {}
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- for the owner, from any thread ------------------------------------------------------------------

    def start(self) -> None:
        """Start its thread.

        Raises:
            IllegalStateException: the updater is closed.
        """
        with self._shared.changed:
            if self._shared.closing:
                raise IllegalStateException(f"store updater '{self._thread.name}' is closed; make a new one")
        self._thread.start()

    def add(self, store: BytesStore, partition: TopicPartition) -> None:
        """Restore `store` from `partition` and then follow it.

        Raises:
            IllegalStateException: the partition fills another store already, or the updater is closed.
        """
        shared = self._shared
        with shared.changed:
            if shared.closing:
                raise IllegalStateException(f"store updater '{self._thread.name}' is closed; make a new one")
            if partition in shared.wanted:
                other = shared.wanted[partition].store
                raise IllegalStateException(
                    f"changelog '{partition}' already fills store '{other.name}' of task {other.task_id}; "
                    f"remove it before adding store '{store.name}' of task {store.task_id}"
                )
            shared.wanted[partition] = _Follower(store)
            shared.changed.notify_all()

    def remove(self, partition: TopicPartition, timeout_s: float = 10.0) -> None:
        """Stop following a changelog. When this returns, the updater no longer uses the store.

        Raises:
            TimeoutException: the updater did not release it in time.
        """
        shared = self._shared
        with shared.changed:
            shared.wanted.pop(partition, None)
            shared.changed.notify_all()
            if threading.current_thread() is self._thread:
                return  # called from a callback of the updater, which is not applying anything now
            if not shared.changed.wait_for(
                lambda: shared.ended or not self._thread.is_alive() or partition not in shared.served,
                timeout_s,
            ):
                raise TimeoutException(
                    f"store updater '{self._thread.name}' still uses the store of changelog '{partition}' "
                    f"after {timeout_s:g} s; try again, or close the updater"
                )

    def is_restored(self, partition: TopicPartition) -> bool:
        """Whether its store has reached the end that the changelog had when it was added."""
        with self._shared.changed:
            follower = self._shared.wanted.get(partition)
            return follower is not None and follower.restored

    @property
    def all_restored(self) -> bool:
        """Whether every added store is restored."""
        with self._shared.changed:
            return all(follower.restored for follower in self._shared.wanted.values())

    def wait_until_restored(self, timeout_s: float) -> bool:
        """Wait for `all_restored`; False at the deadline.

        Raises:
            BaseException: the exception that ended the updater, if it has failed.
            IllegalStateException: it was closed in the meantime.
        """
        shared = self._shared

        def settled() -> bool:
            return shared.ended or all(follower.restored for follower in shared.wanted.values())

        with shared.changed:
            shared.changed.wait_for(settled, timeout_s)
            if shared.failure is not None:
                raise shared.failure
            if all(follower.restored for follower in shared.wanted.values()):
                return True
            if shared.ended:
                raise IllegalStateException(f"store updater '{self._thread.name}' was closed while restoring")
            return False

    def positions(self) -> dict[TopicPartition, int | None]:
        """The offset up to which each store is complete; None if not started."""
        with self._shared.changed:
            return {
                partition: follower.position if follower.started else None
                for partition, follower in self._shared.wanted.items()
            }

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """The position and end of each changelog, as last known; a call makes the updater refresh them."""
        with self._shared.changed:
            self._shared.lags_wanted = True
            return {
                partition: LagInfo(follower.position, follower.end)
                for partition, follower in self._shared.wanted.items()
                if follower.started
            }

    @property
    def records_applied(self) -> int:
        """Changelog records written to stores since the start."""
        return self._records_applied

    @property
    def failure(self) -> BaseException | None:
        """The exception that ended it, if it has failed."""
        with self._shared.changed:
            return self._shared.failure

    @property
    def is_alive(self) -> bool:
        """Whether its thread is running."""
        return self._thread.is_alive()

    def close(self, timeout_s: float = 10.0) -> None:
        """Stop its thread and close the consumer. Idempotent; does not wait if called on that thread.

        Raises:
            TimeoutException: the thread has not ended in time; it will end after its current step.
        """
        shared = self._shared
        with shared.changed:
            never_ran = not shared.closing and self._thread.ident is None
            shared.closing = True
            shared.changed.notify_all()
        if never_ran:
            self._consumer.close()
            with shared.changed:
                shared.ended = True
                shared.changed.notify_all()
        elif self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                raise TimeoutException(
                    f"store updater '{self._thread.name}' did not end within {timeout_s:g} s; it ends after "
                    f"its current step, close it again to wait longer"
                )

    # --- its thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            self._loop()
        except Exception as error:  # the boundary of the thread: the owner decides about any error
            failure = error
        try:
            self._consumer.close()
        except Exception as error:
            _log.warning("store updater '%s': closing its consumer failed: %r", self._thread.name, error)
        with self._shared.changed:
            self._shared.failure = failure
            self._shared.closing = self._shared.ended = True
            self._shared.served = {}
            self._shared.changed.notify_all()
        if failure is not None:
            _log.debug("store updater '%s' failed", self._thread.name, exc_info=failure)
            self._on_failure(failure)

    def _loop(self) -> None:
        while True:
            with self._shared.changed:
                if self._shared.closing:
                    return
                reassign = self._shared.wanted.keys() != self._shared.served.keys() or any(
                    self._shared.served[partition] is not follower
                    for partition, follower in self._shared.wanted.items()
                )
                if not reassign and not self._shared.served:
                    self._shared.changed.wait(_IDLE_S)
                    continue
            if reassign:
                self._reassign()
                continue
            try:
                batches = self._consumer.poll(self._poll_timeout_s, self._max_records)
            except OffsetOutOfRange as error:
                self._restore_anew(error)
                continue
            for batch in batches:
                self._apply(batch)
            self._log_progress()
            self._refresh_ends()

    def _reassign(self) -> None:
        """Bring the served stores in line with the wanted ones."""
        shared = self._shared
        with shared.changed:
            shared.served = dict(shared.wanted)
            served = shared.served
            shared.changed.notify_all()
        fresh = {partition: follower for partition, follower in served.items() if not follower.started}
        if fresh:
            beginnings = self._consumer.beginning_offsets(fresh)
            ends = self._consumer.end_offsets(fresh)
            for partition, follower in fresh.items():
                self._begin(partition, follower, beginnings[partition], ends[partition])
        self._consumer.assign({partition: follower.position for partition, follower in served.items()})

    def _begin(self, partition: TopicPartition, follower: _Follower, beginning: int, end: int) -> None:
        store = follower.store
        start = where_to_start(store.position, beginning, end)
        if start.reason:
            _log.warning(
                "store '%s' of task %s does not fit changelog '%s': %s; it is wiped and restored",
                store.name,
                store.task_id,
                partition,
                start.reason,
            )
        if start.wipe:
            store.wipe()
        follower.position = follower.restore_from = start.offset
        follower.end = follower.restore_until = end
        follower.started = True
        if self._watch is not None:
            self._watch.begun(partition, store, start.offset, end)
        listener = self._listener
        if listener is not None:
            self._notify(lambda: listener.on_restore_start(partition, store.name, start.offset, end))
        self._check_restored(partition, follower)

    def _restore_anew(self, error: OffsetOutOfRange) -> None:
        """Wipe a store whose position is no longer in its changelog, and read that from the beginning."""
        with self._shared.changed:
            follower = self._shared.served.get(error.partition)
            if follower is None or self._shared.wanted.get(error.partition) is not follower:
                return  # removed since the poll
            was_restored, follower.restored = follower.restored, False
        store = follower.store
        _log.warning("store '%s' of task %s is wiped and restored: %s", store.name, store.task_id, error)
        if was_restored and self._on_restoring is not None:
            self._on_restoring(error.partition)
        store.wipe()
        follower.started = False
        follower.total_restored = 0
        with self._shared.changed:
            self._shared.served = {}  # so the next turn assigns the partitions again

    def _apply(self, batch: ChangelogBatch) -> None:
        shared = self._shared
        with shared.changed:
            follower = shared.served.get(batch.partition)
            if follower is None or shared.wanted.get(batch.partition) is not follower or shared.closing:
                return  # removed since the poll
        if batch.next_offset <= follower.position:
            return
        entries = self._readable(follower.store, batch)
        follower.store.apply(entries, batch.next_offset)
        self._records_applied += len(batch.entries)
        follower.position = batch.next_offset
        follower.end = max(follower.end, batch.next_offset)
        if self._watch is not None:
            self._watch.loaded(
                batch.partition, follower.store, len(batch.entries), batch.next_offset, follower.end
            )
        if follower.restored:
            return
        follower.total_restored += len(batch.entries)
        listener = self._listener
        if listener is not None:
            name, end, count = follower.store.name, batch.next_offset, len(batch.entries)
            self._notify(lambda: listener.on_batch_restored(batch.partition, name, end, count))
        self._check_restored(batch.partition, follower)

    def _check_restored(self, partition: TopicPartition, follower: _Follower) -> None:
        if follower.position < follower.restore_until:
            return
        listener, on_restored = self._listener, self._on_restored
        if listener is not None:
            name, total = follower.store.name, follower.total_restored
            self._notify(lambda: listener.on_restore_end(partition, name, total))
        with self._shared.changed:
            follower.restored = True
            self._shared.changed.notify_all()
        if on_restored is not None:
            on_restored(partition)

    def _log_progress(self) -> None:
        """Log the restore progress every ten seconds; a short restore ends before that."""
        restoring = {
            at: each for at, each in self._shared.served.items() if each.started and not each.restored
        }
        if not restoring:
            self._restoring_since, self._restored_beside = None, {}
            return
        now = self._clock.now()
        # Finished ones count as well, because they used part of the time.
        self._restored_beside |= restoring
        if self._restoring_since is None:
            self._restoring_since = self._progress_logged_at = now
        elif now - self._progress_logged_at >= _LOG_PROGRESS_S:
            self._progress_logged_at = now
            together = self._restored_beside.values()
            done = sum(min(each.position, each.restore_until) - each.restore_from for each in together)
            whole = sum(each.restore_until - each.restore_from for each in together)
            since = now - self._restoring_since
            _log.info(
                "store updater '%s': %s",
                self._thread.name,
                progress_line(len(restoring), done, whole, since),
            )

    def _refresh_ends(self) -> None:
        shared = self._shared
        now = self._clock.now()
        with shared.changed:
            if not shared.lags_wanted or now - self._lags_at < _LAG_REFRESH_S:
                return
            shared.lags_wanted = False
            served = shared.served
        self._lags_at = now
        try:
            ends = self._consumer.end_offsets(served, _LAG_WAIT_S)
        except StreamsException as error:
            _log.debug("store updater '%s': the end offsets are not known now: %s", self._thread.name, error)
            self._lags_at = self._clock.now() + _LAG_AGAIN_S - _LAG_REFRESH_S
            return
        for partition, follower in served.items():
            follower.end = max(follower.position, ends.get(partition, follower.end))

    def _notify(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _log.exception(
                "store updater '%s': the state restore listener raised; continuing", self._thread.name
            )

    def __repr__(self) -> str:
        return f"<StoreUpdater '{self._thread.name}', {len(self._shared.wanted)} stores>"
