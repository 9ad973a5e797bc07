"""KafkaStreams: the client. It moves by the tables of states.py and performs what supervision.py decides.

Lock order: none of this file's locks is held while a state changes, a listener is called, or a thread is
waited for; except `_opening`, which `start()` holds while it opens things and the close thread while it
closes them.
"""

from __future__ import annotations

import atexit
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, StreamsException, TimeoutException
from millstream.machine import Machine
from millstream.model import LagInfo, ThreadMetadata
from millstream.query.composite import open_store
from millstream.runtime import states
from millstream.runtime.assembly import Assembly, ClosedMeanwhile
from millstream.runtime.checkpoints import Checkpoints
from millstream.runtime.states import CLIENT, State, ThreadState, all_running
from millstream.runtime.supervision import CloseToError, Failure, LogFailure, Response, View, decide
from millstream.runtime.thread import StreamThread
from millstream.runtime.view import ClientView
from millstream.runtime.wiring import Parts, real_parts
from millstream.stores.directory import StateDirectory

if TYPE_CHECKING:
    from millstream.query.composite import ReadOnlyKeyValueStore
    from millstream.query.parameters import StoreQueryParameters
    from millstream.runtime.supervision import Action
    from millstream.stores.updater import StateRestoreListener
    from millstream.topology.topology import Topology

__all__ = ["KafkaStreams"]

log = logging.getLogger(__name__)

StateListener = Callable[[State, State], None]

_JOIN_S = 30.0
"""How long closing waits for a thread before it closes the engine under it."""
_EXIT_S = timedelta(seconds=10)
"""How long the end of the program waits for a client that nobody closed."""


class KafkaStreams:
    """Runs a topology.

        config = {"application.id": "word-count", "bootstrap.servers": "localhost:9092"}
        with KafkaStreams(topology, config) as streams:
            streams.wait()

    Work goes on in threads of its own; `wait()` blocks a script until the client ends. A client is used once:
    to start again, make a new one.

    Args:
        topology: what `StreamsBuilder.build()` returned.
        config: a `StreamsConfig`, or a dict of its keys.
        spark: a SparkSession to use; it is left running. Without one, Spark is started and stopped.

    Raises:
        ConfigException: the configuration is wrong.

    Source: org.apache.kafka.streams.KafkaStreams.
    """

    State: TypeAlias = states.State

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | Mapping[str, Any],
        spark: Any = None,
        *,
        parts: Parts | None = None,
    ) -> None:
        self._config = config if isinstance(config, StreamsConfig) else StreamsConfig(config)
        parts = parts or real_parts()
        self._clock = parts.clock
        self._directory = StateDirectory(self._config.state_dir, self._config.application_id)
        self._client_id = (
            self._config.client_id or f"{self._config.application_id}-{self._directory.process_id()}"
        )
        self._machine = Machine(
            CLIENT,
            State.CREATED,
            owner=f"stream-client [{self._client_id}]",
            log=log,
            clock=parts.clock,
            at_change=self._publish,
        )
        self._machine.add_listener(self._tell_user)
        self._threads: tuple[StreamThread, ...] = ()
        self._view = ClientView(self._client_id, tuple(topology.stores.values()), self._states)
        self._assembly = Assembly(topology, self._config, parts, spark, self._directory, self._view)
        self._threads = tuple(
            StreamThread(
                f"{self._client_id}-StreamThread-{number}",
                self._assembly,
                clock=parts.clock,
                on_failure=self._thread_failed,
                on_state=self._thread_changed,
                at_change=self._publish,
            )
            for number in range(1, self._config.num_stream_threads + 1)
        )
        self._view.refresh()
        self._listener: StateListener | None = None
        self._opening = threading.Lock()
        self._failure: Failure | None = None
        self._closed = threading.Event()

    # --- lifecycle ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Check what can be checked without Spark, then start the threads and return.

        What goes wrong here is raised here, after everything has been closed again and the client is in
        ERROR. What goes wrong later, from Spark's start on, ends the client in ERROR too; `wait()` raises it.

        Raises:
            IllegalStateException: it was started, or closed, before. Nothing changes.
            MissingSourceTopicException: source topics do not exist.
            InternalTopicException: an internal topic does not fit the topology.
            TopologyException: a checkpoint belongs to another program.
            LockException: the state directory is in use.
            StreamsException: Kafka cannot be reached.
        """
        if not self._machine.to(State.REBALANCING, only_from=(State.CREATED,)):
            raise IllegalStateException(
                f"client '{self._client_id}' is {self.state}; start() works once, on a client that is "
                f"CREATED. "
                "To start again make a new KafkaStreams"
            )
        atexit.register(self._close_at_exit)
        self._config.log_without_effect()
        try:
            with self._opening:
                shares = self._assembly.prepare([thread.name for thread in self._threads], self._is_wanted)
                for thread in self._threads:
                    thread.start(shares[thread.name])
        except ClosedMeanwhile:
            log.info("%s closed while it was starting", self._machine.owner)
        except BaseException as error:
            # Not a thread's failure: whoever called start() gets it, and nobody else decides about it.
            self._close_to_error(Failure(threading.current_thread().name, error))
            self._closed.wait(_JOIN_S)
            raise

    def close(self, timeout: timedelta | None = None) -> bool:
        """Stop all threads and let go of everything; whether that is done.

        Args:
            timeout: how long to wait; None: until it is done. Zero returns at once. It is done in any case,
                in the background after the time is over.

        From a state listener, or a thread of this client, it never waits: it returns at once, and a warning
        says so. In PENDING_ERROR and ERROR it does nothing, and a warning says so (KIP-696).

        Raises:
            ValueError: the timeout is negative.
        """
        seconds = _seconds(timeout)
        if not self._begin_closing(State.PENDING_SHUTDOWN):
            state = self.state
            if state in (State.PENDING_ERROR, State.ERROR):
                log.warning("%s close() does nothing: the client is %s", self._machine.owner, state)
                return state is State.ERROR
            if state is State.NOT_RUNNING:
                log.info(
                    "%s Skipping shutdown since Streams client is already in the terminal %s state",
                    self._machine.owner,
                    state,
                )
                return True
        if self._machine.in_listener() or any(thread.is_current() for thread in self._threads):
            log.warning(
                "%s close() was called on a thread that closing waits for (%s), so it does not wait; the "
                "client "
                "closes in the background",
                self._machine.owner,
                threading.current_thread().name,
            )
            return self._closed.is_set()
        return self._closed.wait(seconds)

    def wait(self, timeout: timedelta | None = None) -> State:
        """Block until the client has ended; the state it is in then.

        Ctrl-C closes the client and returns.

        Args:
            timeout: how long to wait; None: as long as it runs.

        Raises:
            StreamsException: the client ended in ERROR; this is the exception that ended it.
            IllegalStateException: it was not started.
            ValueError: the timeout is negative.
        """
        seconds = _seconds(timeout)
        if self.state is State.CREATED:
            raise IllegalStateException(
                f"client '{self._client_id}' is CREATED, so there is nothing to wait for; call start() first"
            )
        try:
            self._closed.wait(seconds)
        except KeyboardInterrupt:
            log.info("%s interrupted; closing", self._machine.owner)
            self.close()
        self._raise_failure()
        return self.state

    def wait_until_running(self, timeout: timedelta = timedelta(minutes=2)) -> None:
        """Block until the client is RUNNING: all pipelines have started, all stores are up to date.

        Raises:
            TimeoutException: it was not in time.
            StreamsException: the client ended in ERROR instead; this is the exception that ended it.
            IllegalStateException: it was not started, or was closed.
            ValueError: the timeout is negative.
        """
        seconds = _seconds(timeout)
        if self.state is State.CREATED:
            raise IllegalStateException(
                f"client '{self._client_id}' is CREATED, so it will not be RUNNING; call start() first"
            )
        settled = set(State) - {State.REBALANCING}
        in_time = self._machine.wait_until(settled, seconds)
        if self.state is State.RUNNING:
            return None
        if not in_time:
            threads = ", ".join(f"{thread.name} is {thread.state}" for thread in self._threads)
            raise TimeoutException(
                f"client '{self._client_id}' is {self.state} after {seconds:g} s, not RUNNING: {threads}. "
                f"Restoring "
                "large stores takes its time: wait again, or see metadata_for_local_threads()"
            )
        self._raise_failure()
        if self.state is State.REBALANCING:
            return self.wait_until_running(timeout)
        raise IllegalStateException(f"client '{self._client_id}' is {self.state}; it was closed")

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.state in (State.PENDING_ERROR, State.ERROR):
            self._closed.wait(_JOIN_S)
            return
        self.close()

    def clean_up(self, *, checkpoints: bool = False) -> None:
        """Delete this application's local stores; they are filled again from their changelogs.

        Args:
            checkpoints: delete the pipelines' checkpoints too. The application then starts afresh: it reads
                its sources from the beginning and counts from nothing.

        Raises:
            IllegalStateException: the client is neither CREATED nor ended.
            LockException: another client uses the state directory.

        Differs: the progress of the pipelines is in checkpoints, not in committed offsets; like those, it is
            kept unless asked for.
        """
        if not (self.state.has_not_started or self.state.has_completed_shutdown):
            raise IllegalStateException(
                f"Cannot clean up while running. Client '{self._client_id}' is {self.state}; close() it first"
            )
        self._directory.clean_all()
        if checkpoints:
            with self._directory:
                Checkpoints(self._config, self._directory.path).delete()

    # --- settings before start ---------------------------------------------------------------------------

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` after each change of state; None: nobody.

        Calls come one at a time and in the order of the changes, on the thread that made the change, or on
        the one that is still calling. What it raises is logged and changes nothing.

        Raises:
            IllegalStateException: the client was started before.
            TypeError: it cannot be called.
        """
        self._only_created("StateListener")
        if listener is not None and not callable(listener):
            raise TypeError(f"a state listener is called as listener(new, old); got {listener!r}")
        self._listener = listener

    def set_global_state_restore_listener(self, listener: StateRestoreListener | None) -> None:
        """Tell `listener` how far the restoring of each store is; None: nobody.

        Raises:
            IllegalStateException: the client was started before.
        """
        self._only_created("GlobalStateRestoreListener")
        self._assembly.listener = listener

    # --- what it tells -----------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state now."""
        return self._machine.state

    @property
    def client_id(self) -> str:
        """`client.id`, else the application id and a number of its own; begins the threads' names."""
        return self._client_id

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka is; with an embedded broker, its address once the client was started."""
        return ",".join(self._assembly.config.bootstrap_servers)

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """The threads that are not DEAD, what they own and how far that is."""
        return tuple(thread.metadata() for thread in self._threads if thread.state is not ThreadState.DEAD)

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """How far each store on this client is behind its changelog, by store and partition."""
        lags = {partition: lag for thread in self._threads for partition, lag in thread.lags().items()}
        found: dict[str, dict[int, LagInfo]] = {}
        for part in self._view.parts():
            if part.changelog in lags:
                found.setdefault(part.store.name, {})[part.task_id.partition] = lags[part.changelog]
        return found

    def store(self, parameters: StoreQueryParameters[Any]) -> ReadOnlyKeyValueStore[Any, Any]:
        """A handle to read a store: of the partitions that are on this client.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended.
            UnknownStateStoreException: the topology has no such store.
            InvalidStateStoreTypeException: it is of another type.
        """
        return open_store(self._view, parameters)

    def check(self) -> None:
        """Assert what must hold at any time; for tests, after each event.

        Raises:
            AssertionError: something does not hold.
        """
        state, threads = self.state, [thread.state for thread in self._threads]
        if state is State.CREATED:
            assert set(threads) == {ThreadState.CREATED}, f"{state} with threads {threads}"
        if state.has_completed_shutdown:
            assert set(threads) <= {ThreadState.DEAD}, f"{state} with threads {threads}"
            assert not self._directory.is_locked, f"{state} holds the state directory"
            assert not self._view.parts(), f"{state} has open stores"
        if state is State.ERROR:
            assert self._failure is not None, "ERROR without a failure"
        owned = [task for thread in self._threads for task in thread.share.tasks]
        assert len(owned) == len(set(owned)), f"a task has two owners: {owned}"

    def __repr__(self) -> str:
        return f"KafkaStreams('{self._client_id}', {self.state})"

    # --- how it ends -------------------------------------------------------------------------------------

    def _begin_closing(self, pending: State) -> bool:
        """Move to PENDING_SHUTDOWN or PENDING_ERROR and close in the background; whether this call did."""
        if not self._machine.to(pending):
            return False
        threading.Thread(
            target=self._close_everything, args=(pending,), name=f"{self._client_id}-CloseThread", daemon=True
        ).start()
        return True

    def _close_everything(self, pending: State) -> None:
        # 1. Every thread is told at once; they let go of queries and stores side by side.
        for thread in self._threads:
            thread.stop()
        # 2. A start() that is going on sees the state and ends at its next step.
        with self._opening:
            deadline = self._clock.now() + _JOIN_S
            for thread in self._threads:
                if not thread.join(max(0.0, deadline - self._clock.now())):
                    log.warning(
                        "thread '%s' has not ended in %.0f s; its engine is closed", thread.name, _JOIN_S
                    )
            # 3. The engine, topics, the broker, the directory: last opened, first closed.
            self._assembly.close()
        # 4. Only now, with everything closed, the terminal state (KIP-696).
        self._machine.to(State.NOT_RUNNING if pending is State.PENDING_SHUTDOWN else State.ERROR)
        atexit.unregister(self._close_at_exit)
        self._closed.set()

    def _close_at_exit(self) -> None:
        # No thread can be started any more when a program ends, so this one does the work.
        if self._machine.to(State.PENDING_SHUTDOWN):
            log.warning("%s the program ends and nobody closed the client; closing it", self._machine.owner)
            self._close_everything(State.PENDING_SHUTDOWN)
        else:
            self._closed.wait(_EXIT_S.total_seconds())

    def _close_to_error(self, failure: Failure) -> None:
        # Before the state changes: whoever sees ERROR finds the failure. The first one is the one.
        if self._failure is None:
            self._failure = failure
        self._begin_closing(State.PENDING_ERROR)

    # --- what its threads tell it ------------------------------------------------------------------------

    def _thread_failed(self, thread: StreamThread, error: StreamsException) -> None:
        """On the failing thread, which still holds everything: decide, and perform."""
        failure = Failure(thread.name, error)
        live = sum(each.state.is_alive for each in self._threads)
        for action in decide(Response.SHUTDOWN_CLIENT, failure, View(self.state, live)):
            self._perform(action, failure)

    def _perform(self, action: Action, failure: Failure) -> None:
        match action:
            case LogFailure(message):
                log.error("%s %s", self._machine.owner, message, exc_info=failure.error)
            case CloseToError():
                self._close_to_error(failure)

    def _thread_changed(self, new: ThreadState, old: ThreadState) -> None:
        if new is ThreadState.RUNNING and all_running([thread.state for thread in self._threads]):
            self._machine.to(State.RUNNING, only_from=(State.REBALANCING,))
        elif new in (ThreadState.PARTITIONS_REVOKED, ThreadState.PARTITIONS_ASSIGNED):
            self._machine.to(State.REBALANCING, only_from=(State.RUNNING,))
        elif new is ThreadState.DEAD and self.state.is_running_or_rebalancing:
            # Whoever ends a thread moves the client first. Never a client that is RUNNING with nobody in it.
            self._close_to_error(
                Failure(
                    threading.current_thread().name,
                    StreamsException(
                        "a stream thread ended and nobody decided that; this is a bug, please report it"
                    ),
                )
            )

    # --- small things ------------------------------------------------------------------------------------

    def _states(self) -> tuple[str, Mapping[str, str]]:
        return self.state.name, {thread.name: thread.state.name for thread in self._threads}

    def _publish(self, new: object, old: object) -> None:
        self._view.refresh()

    def _tell_user(self, new: State, old: State) -> None:
        if self._listener is not None:
            self._listener(new, old)

    def _is_wanted(self) -> bool:
        return self.state is State.REBALANCING

    def _only_created(self, what: str) -> None:
        if self.state is not State.CREATED:
            raise IllegalStateException(
                f"Can only set {what} before calling start(). Current state is: {self.state}"
            )

    def _raise_failure(self) -> None:
        if self._failure is not None and self.state in (State.PENDING_ERROR, State.ERROR):
            raise self._failure.error


def _seconds(timeout: timedelta | None) -> float | None:
    if timeout is None:
        return None
    if not isinstance(timeout, timedelta):
        raise TypeError(f"a timeout is a timedelta, such as timedelta(seconds=10); got {timeout!r}")
    if timeout < timedelta(0):
        raise ValueError(f"Timeout can't be negative; got {timeout}")
    return timeout.total_seconds()
