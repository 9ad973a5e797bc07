"""A stream thread: it owns pipelines and tasks, and is where a failure of theirs becomes an exception.

It works on events, which others put into its inbox: a query has ended, a store is up to date, the updater
has failed, stop. Any failure of what it owns ends its loop and reaches `on_failure`, on this very thread
and before it lets go of anything. The one broad `except` of the runtime is here.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import PipelineException, StreamsException
from millstream.machine import Machine
from millstream.model import (
    LagInfo,
    PipelineMetadata,
    TaskMetadata,
    ThreadMetadata,
    TopicPartition,
)
from millstream.ports import KeyValueBytesStore, PipelineEnd, RunningPipeline
from millstream.runtime.assignment import Share, StorePart
from millstream.runtime.states import STREAM_THREAD, ThreadState

__all__ = ["StreamThread", "Supplies", "Updater"]

log = logging.getLogger(__name__)


class Updater(Protocol):
    """What a thread sees of stores/updater.py: the thing that fills its stores from their changelogs."""

    def start(self) -> None: ...

    def add(self, store: KeyValueBytesStore, partition: TopicPartition) -> None: ...

    def lags(self) -> dict[TopicPartition, LagInfo]: ...

    def close(self, timeout_s: float = 10.0) -> None: ...


class Supplies(Protocol):
    """What a thread gets from its client."""

    def open_store(self, part: StorePart) -> KeyValueBytesStore:
        """Open one task's part of a store."""

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        """An updater with a consumer of its own."""

    def start_pipeline(self, name: str, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        """Start a pipeline's query; the first one starts Spark."""

    def store_opened(self, thread: str, part: StorePart, store: KeyValueBytesStore) -> None:
        """Queries may see it, as restoring."""

    def store_restored(self, partition: TopicPartition) -> None:
        """Queries may read it."""

    def store_restoring(self, partition: TopicPartition) -> None:
        """Queries may not, for now: its changelog was made anew."""

    def stores_closing(self, thread: str) -> None:
        """Queries must not see this thread's stores any more."""


@dataclass(frozen=True)
class Stop:
    """End the loop."""


@dataclass(frozen=True)
class UpdaterFailed:
    """The updater has ended with an error."""

    error: BaseException


@dataclass(frozen=True)
class Restored:
    """A changelog partition's store is up to date."""

    partition: TopicPartition


Event = Stop | PipelineEnd | UpdaterFailed | Restored


class _Stopped(Exception):
    """No error: how a stop leaves the loop, or a start that is still going on."""


class StreamThread:
    """Supervises a share of the client's work, on a thread called `<client id>-StreamThread-<n>`.

    Args:
        on_failure: decides about a failure; called on the failing thread, which ends when it returns.
        on_state: told of every transition, after it; at_change: told inside it (machine.py).
    """

    def __init__(
        self,
        name: str,
        supplies: Supplies,
        *,
        clock: Clock,
        on_failure: Callable[[StreamThread, StreamsException], None],
        on_state: Callable[[ThreadState, ThreadState], None] = lambda new, old: None,
        at_change: Callable[[ThreadState, ThreadState], None] = lambda new, old: None,
    ) -> None:
        self.name = name
        self.share = Share()
        self._supplies = supplies
        self._on_failure = on_failure
        self._machine = Machine(
            STREAM_THREAD,
            ThreadState.CREATED,
            owner=f"stream-thread [{name}]",
            log=log,
            clock=clock,
            at_change=at_change,
        )
        self._machine.add_listener(on_state)
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._held = ExitStack()
        self._running: dict[str, RunningPipeline] = {}
        self._open: list[StorePart] = []
        self._updater: Updater | None = None
        self._unrestored: set[TopicPartition] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def state(self) -> ThreadState:
        return self._machine.state

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self, share: Share) -> None:
        """Begin to work. One that was stopped before does not."""
        self.share = share
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; returns at once. One that never started is DEAD at once."""
        self._machine.note("asked to stop")
        self._stopping.set()
        self._inbox.put(Stop())
        if self._thread.ident is None and self._machine.to(
            ThreadState.PENDING_SHUTDOWN, only_from=(ThreadState.CREATED,)
        ):
            self._machine.to(ThreadState.DEAD)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has let go of everything; whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def metadata(self) -> ThreadMetadata:
        """What it owns and how far that is. Never blocks."""
        lags = self.lags()
        tasks = []
        opened = tuple(self._open)
        for task in self.share.tasks:
            parts = [part for part in opened if part.task_id == task]
            tasks.append(
                TaskMetadata(
                    task_id=task,
                    topic_partitions=frozenset(part.changelog for part in parts),
                    committed_offsets={
                        part.changelog: lags[part.changelog].current_offset_position
                        for part in parts
                        if part.changelog in lags
                    },
                    end_offsets={
                        part.changelog: lags[part.changelog].end_offset_position
                        for part in parts
                        if part.changelog in lags
                    },
                )
            )
        running = dict(self._running)
        return ThreadMetadata(
            thread_name=self.name,
            thread_state=self.state.name,
            active_tasks=tuple(tasks),
            pipelines=tuple(
                running[name].metadata() if name in running else PipelineMetadata(name=name, running=False)
                for name in self.share.pipelines
            ),
        )

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """How far each of its changelog partitions is."""
        updater = self._updater
        return {} if updater is None else updater.lags()

    # --- on the thread itself ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except _Stopped:
            pass
        except BaseException as error:
            # Everything that can go wrong ends here, SystemExit in a user's callback included: a thread
            # that died without a decision would leave a client that says RUNNING and does nothing.
            self._machine.note(f"failed: {error!r}")
            self._on_failure(self, _told(error))
        finally:
            self._machine.to(ThreadState.PENDING_SHUTDOWN)
            self._let_go()
            self._machine.to(ThreadState.DEAD)

    def _work(self) -> None:
        # 1. Nothing is held from before, so there is nothing to revoke; the state is passed all the same.
        self._raise_if_stopping()
        self._machine.to(ThreadState.STARTING)
        self._machine.to(ThreadState.PARTITIONS_REVOKED)
        self._machine.to(ThreadState.PARTITIONS_ASSIGNED)
        # 2. Stores begin to restore; they are views of changelogs, so pipelines need not wait for them.
        self._open_stores()
        # 3. Pipelines. The first one in the client starts Spark and compiles all.
        for name in self.share.pipelines:
            self._raise_if_stopping()
            running = self._supplies.start_pipeline(name, self._inbox.put)
            self._running[name] = running
            self._held.callback(self._closing, f"pipeline {name}", running.stop)
        # 4. Until something happens.
        self._run_if_restored()
        while True:
            self._react(self._inbox.get())

    def _open_stores(self) -> None:
        if not self.share.parts:
            return
        updater = self._supplies.make_updater(
            f"{self.name}-StateUpdater",
            lambda error: self._inbox.put(UpdaterFailed(error)),
            self._restored,
            self._supplies.store_restoring,
        )
        self._updater = updater
        self._unrestored = {part.changelog for part in self.share.parts}
        for part in self.share.parts:
            self._raise_if_stopping()
            store = self._supplies.open_store(part)
            self._held.callback(self._closing, f"store {store.name} of task {store.task_id}", store.close)
            self._open.append(part)
            self._supplies.store_opened(self.name, part, store)
            updater.add(store, part.changelog)
        # Closed before the stores are: callbacks run last in, first out.
        self._held.callback(self._closing, "updater", updater.close)
        updater.start()

    def _react(self, event: Event) -> None:
        match event:
            case Stop():
                raise _Stopped
            case Restored(partition):
                self._unrestored.discard(partition)
                self._run_if_restored()
            case UpdaterFailed(error):
                raise error
            case PipelineEnd(pipeline, error):
                self._running.pop(pipeline, None)
                if error is not None:
                    raise error
                self._raise_if_stopping()
                raise PipelineException(
                    f"pipeline '{pipeline}' was stopped from outside (its Spark query, or the session); "
                    f"close the "
                    "client instead, which stops its pipelines",
                    pipeline=pipeline,
                )

    def _run_if_restored(self) -> None:
        if not self._unrestored:
            self._machine.to(ThreadState.RUNNING, only_from=(ThreadState.PARTITIONS_ASSIGNED,))

    def _restored(self, partition: TopicPartition) -> None:
        # On the updater's thread. Queries may read before the thread's own state says so.
        self._supplies.store_restored(partition)
        self._inbox.put(Restored(partition))

    def _raise_if_stopping(self) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _let_go(self) -> None:
        self._stopping.set()
        self._supplies.stores_closing(self.name)
        self._held.close()
        self._running.clear()
        self._open.clear()
        self._updater = None

    def _closing(self, what: str, close: Callable[[], None]) -> None:
        """Close one thing; a failure must not keep the others open."""
        try:
            close()
        except Exception:
            log.exception("stream-thread [%s] %s did not close cleanly", self.name, what)


def _told(error: BaseException) -> StreamsException:
    """What the handler gets: always a `StreamsException`; what really happened is its cause."""
    if isinstance(error, StreamsException):
        return error
    told = StreamsException(f"{type(error).__name__}: {error}")
    told.__cause__ = error
    return told
