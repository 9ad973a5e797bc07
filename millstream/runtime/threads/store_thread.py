"""The common base of stream threads and the global thread: an event loop, and stores that it fills.

Others put events into the inbox. Any failure of what the thread owns ends its loop and is reported on this
very thread, before it releases anything. The one broad `except` of the runtime is here.
"""

from __future__ import annotations

import logging
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from millstream.clock import Clock
from millstream.errors import StreamsException, TimeoutException
from millstream.machine import Machine, Rules
from millstream.model import LagInfo, TopicPartition
from millstream.ports import BytesStore
from millstream.runtime.state.assignment import StorePart
from millstream.states import ThreadCause

__all__ = [
    "Stop",
    "Stopped",
    "StoreRestored",
    "StoreThread",
    "StoresShown",
    "Updater",
    "UpdaterFailed",
    "Updaters",
    "as_streams_exception",
]

S = TypeVar("S", bound=Enum)


class Updater(Protocol):
    """A thread's view of stores/updater.py, which fills its stores from their changelogs."""

    def start(self) -> None: ...

    def add(self, store: BytesStore, partition: TopicPartition) -> None: ...

    def remove(self, partition: TopicPartition, timeout_s: float = 10.0) -> None: ...

    def is_restored(self, partition: TopicPartition) -> bool: ...

    def lags(self) -> dict[TopicPartition, LagInfo]: ...

    def close(self, timeout_s: float = 10.0) -> None: ...


class Updaters(Protocol):
    """Creates updaters: the client's assembly."""

    def make_updater(
        self,
        name: str,
        on_failure: Callable[[BaseException], None],
        on_restored: Callable[[TopicPartition], None],
        on_restoring: Callable[[TopicPartition], None],
    ) -> Updater:
        """An updater with a consumer of its own."""


class StoresShown(Protocol):
    """Publishes stores to queries: the client's view. Called on the thread, or on its updater's."""

    def opened(self, thread: str, part: StorePart, store: BytesStore) -> None:
        """Queries may see the store: as a standby, if the part is one, else as restoring."""

    def role_changed(self, part: StorePart) -> None:
        """An open store has changed its role to the part's: a standby, or active and restoring."""

    def caught_up(self, changelog: TopicPartition) -> None:
        """A standby has everything its changelog had when it was opened, and follows it from now on."""

    def restored(self, changelog: TopicPartition) -> None:
        """Queries may read the store."""

    def restoring(self, changelog: TopicPartition) -> None:
        """Queries may not read it for now: its changelog was created again."""

    def closing(self, changelog: TopicPartition) -> None:
        """Queries must no longer see it."""


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stop:
    """End the loop."""


@dataclass(frozen=True)
class UpdaterFailed:
    """The updater has ended with an error."""

    error: BaseException


@dataclass(frozen=True)
class StoreRestored:
    """A changelog partition's store is up to date."""

    partition: TopicPartition


class Stopped(Exception):
    """Not an error: ends the loop, or a start in progress, after a stop."""


# --- the thread ------------------------------------------------------------------------------------------


class StoreThread(ABC, Generic[S]):
    """A thread called `name`, with the states of `rules`: CREATED, PENDING_SHUTDOWN and DEAD are among them.

    Args:
        owner: its prefix in log lines.
        on_state: called after every transition; at_change: called inside it (machine.py).
    """

    def __init__(
        self,
        name: str,
        updaters: Updaters,
        view: StoresShown,
        states: type[S],
        rules: Rules[S],
        *,
        owner: str,
        log: logging.Logger,
        clock: Clock,
        on_state: Callable[[S], object],
        at_change: Callable[[S, S], None],
    ) -> None:
        self.name = name
        self._updaters = updaters
        self._view = view
        self._states = states
        self._log = log
        self._clock = clock
        self._machine = Machine(
            rules, states["CREATED"], owner=f"{owner} [{name}]", log=log, clock=clock, at_change=at_change
        )
        self._machine.add_listener(lambda new, old: on_state(new))
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._open: dict[TopicPartition, tuple[StorePart, BytesStore]] = {}
        self._updater: Updater | None = None
        self._unrestored: frozenset[TopicPartition] = frozenset()
        self._opening_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    # --- for its client, from any thread -----------------------------------------------------------------

    @property
    def state(self) -> S:
        return self._machine.state

    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Ask the thread to end; returns at once. One that never started is DEAD at once."""
        self._machine.note("asked to stop")
        self._stopping.set()
        self._inbox.put(Stop())
        if self._thread.ident is None and self._machine.because(ThreadCause.NEVER_BEGAN):
            self._machine.to(self._states["DEAD"])

    def join(self, timeout_s: float) -> bool:
        """Wait until the thread has released everything. Returns whether it has."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def opening_s(self) -> float | None:
        """For how many seconds it has been opening stores; None: it is not."""
        since = self._opening_since
        return None if since is None else self._clock.now() - since

    def lags(self) -> dict[TopicPartition, LagInfo]:
        """The lag of each of its changelog partitions."""
        updater = self._updater
        return {} if updater is None else updater.lags()

    # --- on the thread itself ----------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except Stopped:
            pass
        except BaseException as error:
            # Every failure ends up here, even SystemExit in a user's callback: a thread that died without a
            # decision would leave a client that is RUNNING but does nothing.
            self._machine.note(f"failed: {error!r}")
            self._failed(error)
        finally:
            self._machine.to(self._states["PENDING_SHUTDOWN"])
            self._stopping.set()
            self._let_go()
            self._machine.to(self._states["DEAD"])

    @abstractmethod
    def _work(self) -> None:
        """The loop. `Stopped` ends it normally; any other exception is a failure."""

    @abstractmethod
    def _failed(self, error: BaseException) -> None:
        """Report a failure; the thread still holds everything."""

    @abstractmethod
    def _open_store(self, part: StorePart) -> BytesStore:
        """Open one part of a store."""

    def _called(self, part: StorePart) -> str:
        """The name of a store's part in log lines."""
        return f"store {part.store.name} of task {part.task_id}"

    def _let_go(self) -> None:
        """Release the view for queries first, then the updater, then the stores."""
        for partition in self._open:
            self._closing(f"view of {partition}", lambda at=partition: self._view.closing(at))  # type: ignore[misc]
        updater, self._updater = self._updater, None
        if updater is not None:
            self._closing("updater", updater.close)
        self._close_stores(tuple(self._open))

    def _raise_if_stopping(self) -> None:
        if self._stopping.is_set():
            raise Stopped

    # --- stores ------------------------------------------------------------------------------------------

    def _open_stores(self, parts: Iterable[StorePart]) -> None:
        """Open the parts that are not open, and have them filled."""
        fresh = [part for part in parts if part.changelog not in self._open]
        if not fresh:
            return
        self._opening_since = self._clock.now()
        try:
            self._open_each(fresh)
        finally:
            self._opening_since = None

    def _open_each(self, fresh: Iterable[StorePart]) -> None:
        updater = self._updater
        is_new = updater is None
        if updater is None:
            updater = self._updater = self._updaters.make_updater(
                f"{self.name}-StateUpdater",
                lambda error: self._inbox.put(UpdaterFailed(error)),
                self._restored,
                self._restoring,
            )
        self._unrestored |= {part.changelog for part in fresh if not part.standby}
        for part in fresh:
            self._raise_if_stopping()
            store = self._open_store(part)
            self._open[part.changelog] = (part, store)
            self._view.opened(self.name, part, store)
            updater.add(store, part.changelog)
        if is_new:
            updater.start()

    def _change_role(self, part: StorePart) -> None:
        """Make a standby active, or vice versa, in place: its store stays open.

        A new active store first catches up to the current end of its changelog, as after a restart: to the
        updater it is a new store. The updater is the store's only writer, so it can restart without releasing
        the store first.
        """
        partition, updater = part.changelog, self._updater
        _, store = self._open[partition]
        assert updater is not None, "a store is open, but nothing fills it"
        self._view.role_changed(part)
        if part.standby:
            self._unrestored -= {partition}
        else:
            self._unrestored |= {partition}
            with suppress(TimeoutException):
                updater.remove(partition, 0.0)
            updater.add(store, partition)
        # From here on `_restored` applies the updater's reports to the new role. It checks whether the
        # restarted store is restored, so late reports about the old role have no effect.
        self._open[partition] = (part, store)
        if updater.is_restored(partition):
            self._restored(partition)  # it may have reported that a moment ago

    def _close_stores(self, partitions: tuple[TopicPartition, ...]) -> None:
        updater = self._updater
        for partition in partitions:
            self._view.closing(partition)
        for partition in partitions:
            part, store = self._open.pop(partition)
            self._unrestored -= {partition}
            what = self._called(part)
            if updater is not None:
                self._closing(f"the updater of {what}", lambda at=partition: updater.remove(at))  # type: ignore[misc]
            self._closing(what, store.close)

    def _restored(self, partition: TopicPartition) -> None:
        # On the updater's thread. Queries may read before the thread's own state says so.
        updater, opened = self._updater, self._open.get(partition)
        if opened is None or updater is None or not updater.is_restored(partition):
            return  # it has been released meanwhile, or starts again
        part, _ = opened
        if part.standby:
            self._standby_caught_up(part)
        else:
            self._view.restored(partition)
            self._inbox.put(StoreRestored(partition))

    def _standby_caught_up(self, part: StorePart) -> None:
        # On the updater's thread.
        self._view.caught_up(part.changelog)

    def _restoring(self, partition: TopicPartition) -> None:
        # On the updater's thread, which wipes the store next.
        self._view.restoring(partition)

    def _closing(self, what: str, close: Callable[[], None]) -> None:
        """Close one resource; a failure must not keep the others open."""
        try:
            close()
        except Exception:
            self._log.exception("%s %s did not close cleanly", self._machine.owner, what)


def as_streams_exception(error: BaseException, before: str = "") -> StreamsException:
    """The exception for the handler: always a `StreamsException`, with the original one as its cause.

    Args:
        before: the beginning of the message, if the original is another exception.

    Differs: Kafka Streams passes on every `Error`, and any exception of the global thread, unchanged.
    """
    if isinstance(error, StreamsException):
        return error
    wrapped = StreamsException(f"{before}{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
