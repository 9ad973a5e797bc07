"""The global thread: it maintains the global tables of a client, which are not shared with other clients.

It is part of the client's start: `start()` returns when the stores have everything that was in the topics at
that time, and raises the error that prevented it. After that the thread waits for events, like a stream
thread: a failure of the updater reaches `on_failure` on this very thread, before it releases anything.

No task, group or pipeline is involved, so the thread owns the same parts for its whole life, and it cannot be
replaced.

Source: org.apache.kafka.streams.processor.internals.GlobalStreamThread.
Differs: a topic that was truncated is read again from its beginning, during the start and later, and its
    parts cannot be queried meanwhile. Kafka Streams wipes the store and lets the thread die. A topic that was
    deleted, or deleted and created again, ends the thread with a MissingSourceTopicException, like one that
    is missing at the start. As there, dead letters of these topics are not written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import (
    IllegalStateException,
    MissingSourceTopicException,
    StreamsException,
    TimeoutException,
)
from millstream.model import ThreadMetadata, TopicPartition
from millstream.ports import BytesStore
from millstream.runtime.state.assignment import StorePart
from millstream.runtime.state.events import GlobalMoved
from millstream.runtime.threads.store_thread import (
    Stop,
    Stopped,
    StoreRestored,
    StoresShown,
    StoreThread,
    UpdaterFailed,
    Updaters,
    as_streams_exception,
)
from millstream.runtime.topics.topic_watch import TopicWatch
from millstream.states import GLOBAL_THREAD, GlobalThreadState, ThreadCause

__all__ = ["GlobalResources", "GlobalStreamThread", "global_thread_name"]

log = logging.getLogger(__name__)

_LOOK_S = 0.25
"""How often a waiting start checks whether restoring has made progress."""


def global_thread_name(client_id: str) -> str:
    """`<client id>-GlobalStreamThread`, as Kafka Streams calls it."""
    return f"{client_id}-GlobalStreamThread"


class GlobalResources(Updaters, Protocol):
    """What the global thread gets from its client's assembly."""

    def global_parts(self) -> Sequence[StorePart]:
        """Every partition of every global table. `start()` raises what this raises."""

    def open_global_store(self, part: StorePart) -> BytesStore:
        """Open one partition's part of a store."""

    def watch_global_topics(self, on_missing: Callable[[MissingSourceTopicException], None]) -> TopicWatch:
        """Watch the topics of these parts from now on. The thread closes the watch."""


@dataclass(frozen=True)
class GlobalRestoring:
    """A partition's part that was up to date is being restored again."""

    partition: TopicPartition


@dataclass(frozen=True)
class GlobalTopicMissing:
    """A topic is gone, or was replaced by another one."""

    error: MissingSourceTopicException


Event = Stop | UpdaterFailed | StoreRestored | GlobalRestoring | GlobalTopicMissing


class GlobalStreamThread(StoreThread[GlobalThreadState]):
    """Fills the global stores of a client, on a thread called `<client id>-GlobalStreamThread`.

    Args:
        on_failure: decides about a failure after the start; called on this thread, which then ends.
        post: called after every transition; at_change: called inside it (machine.py).
    """

    def __init__(
        self,
        name: str,
        resources: GlobalResources,
        view: StoresShown,
        *,
        clock: Clock,
        on_failure: Callable[[GlobalStreamThread, StreamsException], None],
        post: Callable[[GlobalMoved], object] = lambda event: None,
        at_change: Callable[[GlobalThreadState, GlobalThreadState], None] = lambda new, old: None,
    ) -> None:
        super().__init__(
            name,
            resources,
            view,
            GlobalThreadState,
            GLOBAL_THREAD,
            owner="global-stream-thread",
            log=log,
            clock=clock,
            on_state=lambda new: post(GlobalMoved(name, new)),
            at_change=at_change,
        )
        self._resources = resources
        self._on_failure = on_failure
        self._has_run = False
        self._start_failure: StreamsException | None = None
        self._watch: TopicWatch | None = None

    # --- for its client, from any thread -----------------------------------------------------------------

    def start(self, timeout_s: float) -> bool:
        """Start, and wait until the stores have everything that was in their topics. Returns whether they do.

        False: it was stopped, before or meanwhile. `timeout_s` limits the time without progress, not the time
        of the whole restoring. When this raises, the thread has released everything, or is about to.

        Raises:
            MissingSourceTopicException: a topic does not exist.
            TimeoutException: nothing was restored during the timeout.
            StreamsException: anything else that prevented it, as the cause if it was not a StreamsException.
            IllegalStateException: it was started before.

        Source: GlobalStreamThread.start, initialize.
        """
        if self._thread.ident is not None:
            raise IllegalStateException(
                f"global thread '{self.name}' has already been started; create a new one"
            )
        if self._stopping.is_set():
            return False
        self._thread.start()
        self._wait_for_start(timeout_s)
        if self._start_failure is not None:
            raise self._start_failure
        return self._has_run

    def metadata(self) -> ThreadMetadata:
        """Its name and state; it has no tasks. Never blocks."""
        return ThreadMetadata(thread_name=self.name, thread_state=self.state.name)

    def _wait_for_start(self, timeout_s: float) -> None:
        settled = (GlobalThreadState.RUNNING, GlobalThreadState.DEAD)
        progress, since = self._progress(), self._clock.now()
        while not self._machine.wait_until(settled, min(_LOOK_S, timeout_s)):
            now, seen = self._clock.now(), self._progress()
            if seen != progress:
                progress, since = seen, now
            elif now - since >= timeout_s:
                error = TimeoutException(self._stuck(timeout_s))
                self.stop()
                raise self._start_failure or error

    def _progress(self) -> tuple[int, ...]:
        lags = self.lags()
        return (len(lags), len(self._unrestored), sum(lag.current_offset_position for lag in lags.values()))

    def _stuck(self, timeout_s: float) -> str:
        lags = self.lags()
        waiting = [
            f"{partition} ({lags[partition].offset_lag} records to read)"
            if partition in lags
            else f"{partition}"
            for partition in sorted(self._unrestored)
        ]
        left = f", still to restore: {', '.join(waiting)}" if waiting else ""
        return (
            f"global thread '{self.name}' has restored nothing for {timeout_s:g} s{left}; check that the "
            f"brokers that host these topics are up, then start a new client"
        )

    # --- on the thread itself ----------------------------------------------------------------------------

    def _work(self) -> None:
        self._raise_if_stopping()
        parts = self._resources.global_parts()
        self._watch = self._resources.watch_global_topics(
            lambda error: self._inbox.put(GlobalTopicMissing(error))
        )
        self._open_stores(parts)
        self._run_if_restored()
        while True:
            self._react(self._inbox.get())

    def _open_store(self, part: StorePart) -> BytesStore:
        return self._resources.open_global_store(part)

    def _called(self, part: StorePart) -> str:
        return f"partition {part.task_id.partition} of store {part.store.name}"

    def _react(self, event: Event) -> None:
        match event:
            case Stop():
                raise Stopped
            case StoreRestored(partition):
                self._unrestored -= {partition}
                self._run_if_restored()
            case GlobalRestoring(partition):
                self._unrestored |= {partition}
            case GlobalTopicMissing(missing):
                raise missing
            case UpdaterFailed(error):
                # The updater may be the first to notice a problem that the watch can describe better.
                found = self._watch.look_now() if self._watch is not None else None
                raise error if found is None else found from error

    def _run_if_restored(self) -> None:
        if not (self._unrestored or self._has_run or self._stopping.is_set()):
            self._has_run = True
            self._machine.because(ThreadCause.READY)

    def _restoring(self, partition: TopicPartition) -> None:
        super()._restoring(partition)
        self._inbox.put(GlobalRestoring(partition))

    def _let_go(self) -> None:
        watch = self._watch
        if watch is not None:
            self._closing("the watch of its topics", lambda: self._end(watch))
        super()._let_go()

    def _end(self, watch: TopicWatch) -> None:
        if not watch.close():
            self._log.warning("%s its check of the topics continues until Kafka answers", self._machine.owner)

    def _failed(self, error: BaseException) -> None:
        if self._has_run:
            self._on_failure(self, as_streams_exception(error))
        else:
            # Source: GlobalStreamThread.initialize.
            before = "Exception caught during initialization of GlobalStreamThread: "
            self._start_failure = as_streams_exception(error, before)
