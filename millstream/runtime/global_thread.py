"""The global thread: it keeps the global tables of a client, which nobody else shares with it.

It is part of the client's start: `start()` returns when all that was in the topics then is in the stores, and
raises what prevented it. After that the thread waits for what happens, as a stream thread does: a failure of
the updater reaches `on_failure` on this very thread, and before it lets go of anything.

No task, no group and no pipeline is involved, so the thread owns the same parts for its whole life, and it
cannot be replaced.

Source: org.apache.kafka.streams.processor.internals.GlobalStreamThread.
Differs: a topic that was truncated or made anew is read again from its beginning, during the start and later,
    and its parts cannot be queried meanwhile. Kafka Streams wipes the store and lets the thread die. What the
    thread holds is bytes; a value that the serde cannot read fails the query that meets it, not the thread.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import IllegalStateException, StreamsException, TimeoutException
from millstream.machine import Machine
from millstream.model import LagInfo, ThreadMetadata, TopicPartition
from millstream.ports import KeyValueBytesStore
from millstream.runtime.assignment import StorePart
from millstream.runtime.states import GLOBAL_THREAD, GlobalThreadState
from millstream.runtime.thread import Updater, told

__all__ = ["GlobalStreamThread", "GlobalSupplies", "global_thread_name"]

log = logging.getLogger(__name__)

_LOOK_S = 0.25
"""How often a start that waits looks whether the restoring has got on."""


def global_thread_name(client_id: str) -> str:
    """`<client id>-GlobalStreamThread`, as Kafka Streams calls it."""
    return f"{client_id}-GlobalStreamThread"


class GlobalSupplies(Protocol):
    """What the global thread gets from its client, and tells it. All of it is called on the thread, or on its
    updater's."""

    def global_parts(self) -> Sequence[StorePart]:
        """Every partition of every global table. What it raises is raised by `start()`."""

    def open_global_store(self, part: StorePart) -> KeyValueBytesStore:
        """Open one partition's part of a store."""

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        """An updater with a consumer of its own."""

    def store_opened(self, thread: str, part: StorePart, store: KeyValueBytesStore) -> None:
        """Queries may see it, as restoring."""

    def store_restored(self, partition: TopicPartition) -> None:
        """Queries may read it."""

    def store_restoring(self, partition: TopicPartition) -> None:
        """Queries may not, for now: its topic was made anew."""

    def store_closing(self, partition: TopicPartition) -> None:
        """Queries must not see it any more."""


@dataclass(frozen=True)
class Stop:
    """End the loop."""


@dataclass(frozen=True)
class UpdaterFailed:
    """The updater has ended with an error."""

    error: BaseException


@dataclass(frozen=True)
class Restored:
    """A partition's part is up to date."""

    partition: TopicPartition


@dataclass(frozen=True)
class Restoring:
    """A partition's part that was up to date is read anew."""

    partition: TopicPartition


Event = Stop | UpdaterFailed | Restored | Restoring


class _Stopped(Exception):
    """No error: how a stop leaves the loop, or a start that is still going on."""


class GlobalStreamThread:
    """Fills the global stores of a client, on a thread called `<client id>-GlobalStreamThread`.

    Args:
        on_failure: decides about a failure after the start; called on this thread, which then ends.
        on_state: told of every transition, after it; at_change: told inside it (machine.py).
    """

    def __init__(
        self,
        name: str,
        supplies: GlobalSupplies,
        *,
        clock: Clock,
        on_failure: Callable[[GlobalStreamThread, StreamsException], None],
        on_state: Callable[[GlobalStreamThread, GlobalThreadState], None] = lambda thread, new: None,
        at_change: Callable[[GlobalThreadState, GlobalThreadState], None] = lambda new, old: None,
    ) -> None:
        self.name = name
        self._supplies = supplies
        self._clock = clock
        self._on_failure = on_failure
        self._machine = Machine(
            GLOBAL_THREAD,
            GlobalThreadState.CREATED,
            owner=f"global-stream-thread [{name}]",
            log=log,
            clock=clock,
            at_change=at_change,
        )
        self._machine.add_listener(lambda new, old: on_state(self, new))
        self._inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._open: dict[TopicPartition, tuple[StorePart, KeyValueBytesStore]] = {}
        self._updater: Updater | None = None
        self._unrestored: frozenset[TopicPartition] = frozenset()
        self._has_run = False
        self._start_failure: StreamsException | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- for its client, from any thread -----------------------------------------------------------------

    @property
    def state(self) -> GlobalThreadState:
        return self._machine.state

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self, timeout_s: float) -> bool:
        """Begin, and wait until the stores have all that was in their topics; whether it came to that.

        False: it was stopped, before or meanwhile. `timeout_s` is how long the waiting goes on without any
        progress, however long the restoring takes. When this raises, the thread has let go of everything, or
        is about to.

        Raises:
            MissingSourceTopicException: a topic is not there.
            TimeoutException: nothing was restored for so long.
            StreamsException: what else prevented it; with a cause if it was no StreamsException.
            IllegalStateException: it was started before.

        Source: GlobalStreamThread.start, initialize.
        """
        if self._thread.ident is not None:
            raise IllegalStateException(f"global thread '{self.name}' was started already; make a new one")
        if self._stopping.is_set():
            return False
        self._thread.start()
        self._wait_for_start(timeout_s)
        if self._start_failure is not None:
            raise self._start_failure
        return self._has_run

    def stop(self) -> None:
        """Ask the thread to end; returns at once. One that never started is DEAD at once."""
        self._machine.note("asked to stop")
        self._stopping.set()
        self._inbox.put(Stop())
        if self._thread.ident is None and self._machine.to(
            GlobalThreadState.PENDING_SHUTDOWN, only_from=(GlobalThreadState.CREATED,)
        ):
            self._machine.to(GlobalThreadState.DEAD)

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has let go of everything; whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def metadata(self) -> ThreadMetadata:
        """Its name and state; it has no tasks. Never blocks."""
        return ThreadMetadata(thread_name=self.name, thread_state=self.state.name)

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """How far each partition of the global tables is."""
        updater = self._updater
        return {} if updater is None else updater.lags()

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
            f"global thread '{self.name}' has restored nothing for {timeout_s:g} s{left}; look whether the "
            "brokers that have these topics are there, then start a new client"
        )

    # --- on the thread itself ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except _Stopped:
            pass
        except BaseException as error:
            # As in a stream thread: everything that can go wrong ends here, and nothing without a decision.
            self._machine.note(f"failed: {error!r}")
            if self._has_run:
                self._on_failure(self, told(error))
            else:
                self._start_failure = _told_at_start(error)
        finally:
            self._machine.to(GlobalThreadState.PENDING_SHUTDOWN)
            self._let_go()
            self._machine.to(GlobalThreadState.DEAD)

    def _work(self) -> None:
        self._raise_if_stopping()
        self._open_stores(tuple(self._supplies.global_parts()))
        self._run_if_restored()
        while True:
            self._react(self._inbox.get())

    def _open_stores(self, parts: tuple[StorePart, ...]) -> None:
        if not parts:
            return
        updater = self._supplies.make_updater(
            f"{self.name}-StateUpdater",
            lambda error: self._inbox.put(UpdaterFailed(error)),
            self._restored,
            self._restoring,
        )
        self._updater = updater
        self._unrestored = frozenset(part.changelog for part in parts)
        for part in parts:
            self._raise_if_stopping()
            store = self._supplies.open_global_store(part)
            self._open[part.changelog] = (part, store)
            self._supplies.store_opened(self.name, part, store)
            updater.add(store, part.changelog)
        updater.start()

    def _react(self, event: Event) -> None:
        match event:
            case Stop():
                raise _Stopped
            case Restored(partition):
                self._unrestored -= {partition}
                self._run_if_restored()
            case Restoring(partition):
                self._unrestored |= {partition}
            case UpdaterFailed(error):
                raise error

    def _run_if_restored(self) -> None:
        if not self._unrestored and self._machine.state is GlobalThreadState.CREATED:
            self._has_run = True
            self._machine.to(GlobalThreadState.RUNNING)

    def _restored(self, partition: TopicPartition) -> None:
        # On the updater's thread. Queries may read before the thread's own state says so.
        self._supplies.store_restored(partition)
        self._inbox.put(Restored(partition))

    def _restoring(self, partition: TopicPartition) -> None:
        # On the updater's thread, which wipes the store next.
        self._supplies.store_restoring(partition)
        self._inbox.put(Restoring(partition))

    def _raise_if_stopping(self) -> None:
        if self._stopping.is_set():
            raise _Stopped

    def _let_go(self) -> None:
        """Queries first, then who writes the stores, then the stores."""
        self._stopping.set()
        opened = tuple(self._open.values())
        for part, _ in opened:
            self._closing(f"view of {part.changelog}", partial(self._supplies.store_closing, part.changelog))
        if self._updater is not None:
            self._closing("updater", self._updater.close)
        for part, store in opened:
            self._closing(f"partition {part.task_id.partition} of store {store.name}", store.close)
        self._open = {}
        self._updater = None

    def _closing(self, what: str, close: Callable[[], None]) -> None:
        """Close one thing; a failure must not keep the others open."""
        try:
            close()
        except Exception:
            log.exception("global-stream-thread [%s] %s did not close cleanly", self.name, what)


def _told_at_start(error: BaseException) -> StreamsException:
    """What `start()` raises: always a `StreamsException`.

    Source: GlobalStreamThread.initialize.
    """
    if isinstance(error, StreamsException):
        return error
    wrapped = StreamsException(
        f"Exception caught during initialization of GlobalStreamThread: {type(error).__name__}: {error}"
    )
    wrapped.__cause__ = error
    return wrapped
