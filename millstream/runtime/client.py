"""KafkaStreams: the client. It sends requests to its owner, and opens and closes what the owner decides.

Its state is one value, changed by one pure function: owner.py, client_state.py, reactions.py. Its parts:
performer.py carries out instructions, crew.py has its threads, participation.py its part in the application
(topics, group), assembly.py its open resources, and view.py what queries see of it.
"""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream import program_end
from millstream.clock import seconds_of
from millstream.config import StreamsConfig
from millstream.coroutines import Changes, Do, Until, Wait, block
from millstream.errors import (
    IllegalStateException,
    MissingSourceTopicException,
    StreamsException,
    TimeoutException,
)
from millstream.foreign import ESCAPED
from millstream.machine import Announcer
from millstream.metrics.client_metrics import ClientMetrics, MetricsView
from millstream.model import LagInfo, TaskId, ThreadMetadata
from millstream.registry.registry_settings import RegistrySettings
from millstream.runtime.assembly import Assembly, ClosedMeanwhile
from millstream.runtime.async_client import AsyncClient
from millstream.runtime.checkup import health_view
from millstream.runtime.client_html import client_html
from millstream.runtime.close_options import CloseOptions
from millstream.runtime.frame_methods import DataFrames
from millstream.runtime.health import Health, assess
from millstream.runtime.measuring import Measuring
from millstream.runtime.owner import Owner
from millstream.runtime.participation import Participation
from millstream.runtime.performer import Performer
from millstream.runtime.policies import default_budget
from millstream.runtime.queries import InteractiveQueries
from millstream.runtime.reset.reset_plan import ResetPlan, To
from millstream.runtime.reset.resetter import Reset, reset_application
from millstream.runtime.state.client_state import ClientFacts, ClientState
from millstream.runtime.state.events import (
    AddAsked,
    BeginClosing,
    CloseAsked,
    ClosingDone,
    Created,
    Instruction,
    MakeThread,
    Open,
    OpeningBegins,
    OpeningEnded,
    PauseAsked,
    Phase,
    RemoveAsked,
    SerdesKnown,
    StartAsked,
    StartFailed,
    StopThread,
    TimeUp,
)
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.history import FailureRecord
from millstream.runtime.threads.crew import Crew
from millstream.runtime.threads.global_thread import GlobalStreamThread, global_thread_name
from millstream.runtime.threads.handler import Handler, Hook, check_handler, check_hook, resolve
from millstream.runtime.threads.standby_updates import StandbyUpdates
from millstream.runtime.threads.supervisor import Supervisor
from millstream.runtime.threads.thread import StreamThread
from millstream.runtime.view import ClientView
from millstream.runtime.wiring import Parts, QueryServing, real_parts
from millstream.states import State
from millstream.stores.directory import StateDirectory

if TYPE_CHECKING:
    from millstream.runtime.threads.standby_updates import StandbyUpdateListener
    from millstream.stores.updater import StateRestoreListener
    from millstream.topology.topology import Topology

__all__ = ["KafkaStreams"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

StateListener = Callable[[State, State], None]

_JOIN_S = 30.0
"""How long closing waits for a thread before it closes the thread's engine."""
_LEAVE_S = 2.0
"""How long closing waits for the group: to learn of a shutdown, and to leave it."""
_GLOBAL_RESTORE_S = 120.0
"""How long restoring global tables may make no progress before start() gives up."""
_REPLACED_S = timedelta(seconds=30)
"""How long a client waits for the one it replaces in a notebook."""
_EXIT_S = timedelta(seconds=10)
"""How long the end of the program waits for a client that was not closed."""


class KafkaStreams(AsyncClient, InteractiveQueries, DataFrames):
    """Runs a topology.

        config = {"application.id": "word-count", "bootstrap.servers": "localhost:9092"}
        with KafkaStreams(topology, config) as streams:
            streams.wait()

    Work runs in background threads; `wait()` blocks a script until the client ends. A client is used once: to
    start again, create a new one.

    Args:
        topology: what `StreamsBuilder.build()` returned.
        config: a `StreamsConfig`, or a dict of its keys.
        spark: a SparkSession to use; it is left running. Without one, Spark is started and stopped.

    Raises:
        ConfigException: the configuration is wrong.

    Source: org.apache.kafka.streams.KafkaStreams.
    """

    State: TypeAlias = State

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
        self._topology, self._parts, self._spark = topology, parts, spark
        self._clock = parts.clock
        self._serve_queries = parts.query_server
        self._query_server: QueryServing | None = None
        self._directory = StateDirectory(
            self._config.state_dir,
            self._config.application_id,
            group_writes=self._config.lets_group_write,
        )
        self._client_id = (
            self._config.client_id or f"{self._config.application_id}-{self._directory.process_id()}"
        )
        self._announcer: Announcer[State] = Announcer(
            owner=f"stream-client [{self._client_id}]", log=log, clock=parts.clock
        )
        self._announcer.add_listener(self._notify_listener)
        self._crew = Crew()
        self._owner = Owner(
            ClientState(self._about()),
            self._perform,
            at_change=lambda: self._view.refresh(),
            announcer=self._announcer,
            clock=parts.clock,
            log=log,
            watch=lambda old, event, new, moment: self._measuring.event(old, event, new, moment),
        )
        self._view = ClientView(
            self._client_id,
            (*topology.stores.values(), *topology.global_stores.values()),
            lambda: (self.state, self._crew.states()),
            topology.global_stores,
            RegistrySettings.of(self._config.given, self._config.application_id),
        )
        self._measuring = Measuring(
            topology,
            self._view,
            self._crew,
            client_id=self._client_id,
            application_id=self._config.application_id,
            clock=parts.clock,
        )
        self._assembly = Assembly(
            topology,
            self._config,
            parts,
            spark,
            self._directory,
            self._view,
            self._client_id,
            self._measuring,
            on_compiled=lambda serdes: self._owner.post(SerdesKnown(serdes)),
            on_standbys=lambda: self._participation.report_warm(),
        )
        self._participation = Participation(
            topology,
            self._assembly,
            self._view,
            self._crew,
            self._owner,
            client_id=self._client_id,
            process_id=self._directory.process_id(),
        )
        self._global: GlobalStreamThread | None = None
        if topology.global_stores:
            self._global = GlobalStreamThread(
                global_thread_name(self._client_id),
                self._assembly,
                self._view,
                clock=parts.clock,
                on_failure=self._global_failed,
                post=self._owner.post,
                at_change=lambda new, old: self._view.refresh(),
            )
            self._crew.keep(self._global)
        self._supervisor = Supervisor(self._owner, parts.clock)
        self._performer = Performer(
            self._owner,
            self._crew,
            self._participation,
            self._assembly,
            self._view,
            self._global,
            clock=parts.clock,
            announcer=self._announcer,
            log=log,
            on_failure=self._thread_failed,
            begin_closing=self._begin_closing,
        )
        self._listener: StateListener | None = None
        self._closed = threading.Event()
        self._over = threading.Event()  # it is closed, or no thread could be started to close it
        self._ends = Changes()  # of these two
        self._closing_here = threading.Lock()  # taken, and never released, by the thread that closes it
        self._terminable = program_end.Terminable()
        # A topology of global tables alone has nothing for stream threads to do.
        self._owner.call(Created(self._config.num_stream_threads if topology.pipelines else 0))
        self._view.refresh()

    # --- lifecycle ---------------------------------------------------------------------------------------

    @program_end.terminable
    def start(self) -> None:
        """Check what can be checked without Spark, then start the threads and return.

        An error here is raised here, after everything has been closed again and the client is in ERROR. A
        later error, from Spark's start on, also ends the client in ERROR; `wait()` raises it.

        Raises:
            IllegalStateException: it was started, or closed, before. Nothing changes.
            MissingSourceTopicException: the topic of a global table does not exist. (Missing source topics
                reach the handler, on each stream thread: KIP-662.)
            InternalTopicException: an internal topic does not fit the topology.
            LockException: the state directory is in use.
            StreamsException: Kafka cannot be reached, or the query server cannot listen at its address.
            SystemExit: SIGTERM came meanwhile, and the client is closed.
        """
        if not self._owner.call(StartAsked()):
            raise IllegalStateException(
                f"client '{self._client_id}' is {self.state}; start() works once, on a client that is "
                f"CREATED. To start again, create a new KafkaStreams"
            )
        if Open() not in self._owner.call(OpeningBegins()):
            log.info("%s was closed before it had started", self._announcer.owner)
            return
        try:
            program_end.close_client(self, self._client_id, self._close_at_exit, self._view)
            self._config.log_without_effect()
            self._open()
        except ClosedMeanwhile:
            log.info("%s was closed while it was starting", self._announcer.owner)
        except (KeyboardInterrupt, SystemExit):
            self._owner.call(CloseAsked())
            self._owner.call(OpeningEnded())
            self.close()
            raise
        except BaseException as error:
            # Not a thread's failure: only the caller of start() gets it and decides about it.
            self._owner.call(StartFailed(Failure(threading.current_thread().name, error)))
            self._wait_closed(_JOIN_S)
            raise
        self._owner.call(OpeningEnded())

    def _replace_earlier(self) -> None:
        """In an interactive session, first close the client that holds what this one needs.

        That is the one with the same state directory, and so of the same application; both cannot run.
        """
        if not hasattr(sys, "ps1"):  # Python and IPython set it in interactive sessions
            return
        for earlier in self.running():
            if earlier is self or earlier._directory.path != self._directory.path:
                continue
            log.warning(
                "%s replaces client '%s' of the same application and state directory, which this session "
                "started earlier and which is %s: closing that one",
                self._announcer.owner,
                earlier.client_id,
                earlier.state,
            )
            earlier.close(_REPLACED_S)

    @classmethod
    def running(cls) -> tuple[KafkaStreams, ...]:
        """The clients of this process that were started and have not ended, in the order of their starts."""
        return tuple(each for each in program_end.clients() if isinstance(each, cls))

    def _open(self) -> None:
        self._replace_earlier()
        # First, so that health is reported while stores are restored; queries fail with an error to retry.
        self._query_server = self._serve_queries(self, self._config)
        self._assembly.open(self._is_wanted)
        if self._global is not None and not self._global.start(_GLOBAL_RESTORE_S):
            raise ClosedMeanwhile
        try:
            if self._owner.state.threads:
                self._participation.take_part()
        except MissingSourceTopicException as error:
            # Each thread finds the same, and its handler decides (KIP-662).
            log.error("%s %s", self._announcer.owner, error)
        if self._is_wanted():
            self._assembly.start_housekeeping(self._owned_tasks)

    def close(self, timeout: timedelta | CloseOptions | None = None) -> bool:
        """Stop all threads and release all resources. Returns whether that is done. The client leaves its
        group.

        Args:
            timeout: how long to wait, or CloseOptions with that; None: until it is done. Zero returns at
                once. Closing continues in the background after the timeout.

        From a state listener, or a thread of this client, it never waits: it returns at once, and a warning
        says so. In PENDING_ERROR and ERROR it does nothing, and a warning says so (KIP-696).

        Raises:
            ValueError: the timeout is negative.
        """
        seconds = _seconds(timeout.timeout if isinstance(timeout, CloseOptions) else timeout)
        if BeginClosing() not in self._owner.call(CloseAsked()):
            state = self.state
            if state in (State.PENDING_ERROR, State.ERROR):
                log.warning("%s close() does nothing: the client is %s", self._announcer.owner, state)
                self._close_if_nobody_does()
                return self.state is State.ERROR
            if state is State.NOT_RUNNING:
                log.info(
                    "%s Skipping shutdown since Streams client is already in the terminal %s state",
                    self._announcer.owner,
                    state,
                )
                return True
        if self._announcer.in_listener() or self._on_own_thread():
            log.warning(
                "%s close() was called on a thread that it would wait for (%s), so it does not wait; the "
                "client closes in the background",
                self._announcer.owner,
                threading.current_thread().name,
            )
            return self._closed.is_set()
        return self._wait_closed(seconds)

    def wait(self, timeout: timedelta | None = None) -> State:
        """Block until the client has ended. Returns its state.

        Ctrl-C closes the client and returns. So does SIGTERM on the main thread, unless the program has its
        own handler for it; it then ends the program, with exit status 143 (see docs/lifecycle.md).

        Args:
            timeout: how long to wait; None: as long as it runs.

        Raises:
            SystemExit: SIGTERM came, and the client is closed.
            StreamsException: the client ended in ERROR; this is the exception that ended it.
            IllegalStateException: it was not started.
            ValueError: the timeout is negative.
        """
        return block(self._until_ended(timeout))

    def _until_ended(self, timeout: timedelta | None) -> Wait[State]:
        seconds = _seconds(timeout)
        if self.state is State.CREATED:
            raise IllegalStateException(
                f"client '{self._client_id}' is CREATED, so there is nothing to wait for; call start() first"
            )

        def wait() -> bool:
            program_end.wait(self._over, seconds, close=self.close, owner=self._announcer.owner)
            return self._over.is_set()

        yield Until(self._over.is_set, seconds, wait, self._ends)
        yield Do(self._close_if_nobody_does, f"{self._client_id}-AsyncClose")
        self._raise_failure()
        return self.state

    def wait_until_running(self, timeout: timedelta = timedelta(minutes=2)) -> None:
        """Block until the client is RUNNING: all pipelines have started, all stores are up to date.

        Raises:
            TimeoutException: the timeout passed.
            StreamsException: the client ended in ERROR instead; this is the exception that ended it.
            IllegalStateException: it was not started, or was closed.
            ValueError: the timeout is negative.
        """
        block(self._until_running(timeout))

    def _until_running(self, timeout: timedelta) -> Wait[None]:
        seconds = seconds_of(timeout)
        if self.state is State.CREATED:
            raise IllegalStateException(
                f"client '{self._client_id}' is CREATED, so it will not become RUNNING; call start() first"
            )
        settled = set(State) - {State.REBALANCING}
        in_time = yield self._owner.until(lambda value: value.state in settled, seconds)
        if self.state is State.RUNNING:
            return
        if not in_time:
            threads = ", ".join(f"{thread.name} is {thread.state}" for thread in self._crew.threads)
            raise TimeoutException(
                f"client '{self._client_id}' is {self.state} after {seconds:g} s, not RUNNING: "
                f"{threads or 'it has no threads'}. {self.health.reason}"
            )
        self._raise_failure()
        if self.state is State.REBALANCING:
            yield from self._until_running(timeout)
            return
        raise IllegalStateException(f"client '{self._client_id}' is {self.state}; it was closed")

    def __enter__(self) -> KafkaStreams:
        self._terminable.hold()
        try:
            self.start()
        except BaseException:
            self._terminable.let_go()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if program_end.is_parents(self):
            return  # a forked child leaves the block
        try:
            if self.state in (State.PENDING_ERROR, State.ERROR):
                self._wait_closed(_JOIN_S)
            elif isinstance(error, KeyboardInterrupt | program_end.Terminated):
                with program_end.at_once_next_time():
                    self.close()
            else:
                self.close()
        finally:
            self._terminable.let_go()

    def clean_up(self) -> None:
        """Delete this application's local state; it is restored from Kafka. To count from zero, `reset()`.

        Raises:
            IllegalStateException: the client is neither CREATED nor ended.
            LockException: another client uses the state directory.

        Source: KafkaStreams.cleanUp.
        """
        if not (self.state.has_not_started or self.state.has_completed_shutdown):
            raise IllegalStateException(
                f"Cannot clean up while running. Client '{self._client_id}' is {self.state}; close() it first"
            )
        self._directory.clean_all()

    def reset(
        self,
        to: To = "earliest",
        *,
        topics: Sequence[str] | None = None,
        dry_run: bool = False,
        force: bool = False,
    ) -> ResetPlan:
        """Reset the application: it reads its input from where `to` says, with empty state.

        Its internal topics are deleted (the next start recreates them), and so is the local state, with the
        checkpoints of its `to_spark()` queries. Its output topics are kept. The command `millstream reset`
        does the same; see docs/reset.md.

        Args:
            to: "earliest", "latest", a datetime, a timedelta before now, an offset of every partition, or the
                offset of each partition.
            topics: the input topics; None: all of the topology. Other topics are read from where
                `auto.offset.reset` says.
            dry_run: change nothing; return what would be done.
            force: remove dead members from the group.

        Returns:
            What was done: `print` it.

        Raises:
            IllegalStateException: this client is neither CREATED nor ended, or another one of the application
                runs.
            LockException: another client uses the state directory.
            ConfigException: `topics` has an internal topic.
            StreamsException: Kafka cannot be reached.

        Source: Kafka's tool kafka-streams-application-reset. Differs: local state is reset too.
        """
        if not (self.state.has_not_started or self.state.has_completed_shutdown):
            raise IllegalStateException(
                f"Cannot reset while running. Client '{self._client_id}' is {self.state}; close() it first"
            )
        return reset_application(
            self._config,
            self._parts,
            Reset(to, inputs=topics, force=force),
            topology=self._topology,
            dry_run=dry_run,
        )

    # --- settings before start ---------------------------------------------------------------------------

    def set_state_listener(self, listener: StateListener | None) -> None:
        """Call `listener(new, old)` after each change of state; None removes the listener.

        Calls come one at a time, in the order of the changes, on the thread that made the change or on one
        that is still calling. An exception it raises is logged and changes nothing.

        Raises:
            IllegalStateException: the client was started before.
            TypeError: it cannot be called.
        """
        self._only_created("StateListener")
        if listener is not None and not callable(listener):
            raise TypeError(f"a state listener must be callable as listener(new, old); got {listener!r}")
        self._listener = listener

    def set_uncaught_exception_handler(self, handler: Handler | None) -> None:
        """Let `handler` decide what happens when a thread fails; None restores the default, SHUTDOWN_CLIENT.

        It is called as `handler(exception)`, or, if it takes two arguments, `handler(exception, context)`
        with a `FailureContext`, on the failing thread, before that thread releases anything; several threads
        may call it at once. It returns a `StreamThreadExceptionResponse`, or an `UncaughtExceptionPolicy`,
        which is itself a handler too. A handler that raises, or returns anything else, means SHUTDOWN_CLIENT.

        Raises:
            IllegalStateException: the client was started before.
            TypeError: it cannot be called like that.

        Source: KIP-671. Differs: None deletes the handler, as the KIP says; Kafka Streams throws a
            NullPointerException.
        """
        self._only_created("UncaughtExceptionHandler")
        if handler is not None:
            check_handler(handler)
        self._supervisor.handler = handler
        self._warn_of_two()

    def set_thread_exception_hook(self, hook: Hook | None) -> None:
        """The handler from before KIP-671: `hook(args)`, called like `threading.excepthook` when a thread
        dies.

        It decides nothing. The thread is not replaced; the last one closes the client.

        Deprecated: use `set_uncaught_exception_handler`, which goes before it.

        Raises:
            IllegalStateException: the client was started before.
            TypeError: it cannot be called like that.
        """
        warnings.warn(
            "set_thread_exception_hook is deprecated; use set_uncaught_exception_handler (KIP-671)",
            DeprecationWarning,
            stacklevel=2,
        )
        self._only_created("UncaughtExceptionHandler")
        if hook is not None:
            check_hook(hook)
        self._supervisor.hook = hook
        self._warn_of_two()

    def set_global_state_restore_listener(self, listener: StateRestoreListener | None) -> None:
        """Report the restore progress of each store to `listener`; None removes the listener.

        Raises:
            IllegalStateException: the client was started before.
        """
        self._only_created("GlobalStateRestoreListener")
        self._assembly.listener = listener

    def set_standby_update_listener(self, listener: StandbyUpdateListener | None) -> None:
        """Report the updates of standbys here to `listener`: started, loaded, suspended; None removes the
        listener.

        Raises:
            IllegalStateException: the client was started before.

        Source: KIP-988; KafkaStreams.setStandbyUpdateListener.
        """
        self._only_created("StandbyUpdateListener")
        updates = None if listener is None else StandbyUpdates(listener, self._view.is_standby)
        self._view.standbys = updates

    # --- threads -----------------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Add a stream thread while the client runs. Returns its name; None: the client does not run.

        Source: KIP-663; KafkaStreams.addStreamThread.
        """
        made = [each for each in self._owner.call(AddAsked()) if isinstance(each, MakeThread)]
        return made[0].name if made else None

    def remove_stream_thread(self, timeout: timedelta | None = None) -> str | None:
        """End one stream thread while the client runs. Returns its name; None: there is none, or the client
        does not run.

        Its work moves to the other threads or, if it was the last one, to other clients. Called on a stream
        thread, it ends another one if there is one, otherwise itself, without waiting.

        Args:
            timeout: how long to wait until it has ended; None: no limit.

        Raises:
            TimeoutException: the timeout passed. The thread still ends.
            ValueError: the timeout is negative. Nothing has changed.

        Source: KIP-663; KafkaStreams.removeStreamThread.
        """
        seconds = _seconds(timeout)
        asker = self._crew.current
        stopping = [each for each in self._owner.call(RemoveAsked(asker)) if isinstance(each, StopThread)]
        if not stopping:
            return None
        name, number = stopping[0].name, stopping[0].number
        if name != asker and not self._owner.wait_for(lambda value: not value.has(number), seconds):
            raise TimeoutException(f"Thread {name} did not stop in the allotted time")
        return name

    def pause(self) -> None:
        """Stop processing until `resume()`. Stores still answer queries, and the client stays in its group.

        It may be called in any state, and is not kept over a restart.

        Source: KIP-834; KafkaStreams.pause.
        """
        self._owner.call(PauseAsked(True))

    def resume(self) -> None:
        """Resume processing after `pause()`."""
        self._owner.call(PauseAsked(False))

    @property
    def is_paused(self) -> bool:
        """Whether the client is paused."""
        return self._owner.state.paused

    # --- what it reports ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """The state now."""
        return self._owner.state.state

    @property
    def client_id(self) -> str:
        """`client.id`, otherwise the application id and a unique suffix; the prefix of the threads' names."""
        return self._client_id

    @property
    def application_id(self) -> str:
        """`application.id`, which all clients of the application have in common."""
        return self._config.application_id

    @property
    def topology(self) -> Topology:
        """What it runs."""
        return self._topology

    @property
    def query_server_url(self) -> str | None:
        """The address where this client answers queries over HTTP; None: it does not
        (`query.server.enabled`)."""
        return None if self._query_server is None else self._query_server.url

    @property
    def bootstrap_servers(self) -> str:
        """Where Kafka is; with an embedded broker, its address once the client was started."""
        return ",".join(self._assembly.config.bootstrap_servers)

    def metadata_for_local_threads(self) -> tuple[ThreadMetadata, ...]:
        """The threads that are not DEAD, with their tasks and progress."""
        return self._crew.metadata()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """How far each store on this client is behind its changelog, by store and partition.

        Active ones, those that are being restored, and standbys. End offsets are the last known ones. Each
        call triggers a new look-up, at most once a second, so repeated calls return current values.

        Source: KIP-535; KafkaStreams.allLocalStorePartitionLags. Differs: Kafka Streams queries the
            brokers on each call, and waits for the answer.
        """
        lags = self._crew.lags()
        if self._global is not None:
            lags.update(self._global.lags())
        found: dict[str, dict[int, LagInfo]] = {}
        for part in self._view.parts():
            if part.changelog in lags:
                found.setdefault(part.store.name, {})[part.task_id.partition] = lags[part.changelog]
        return found

    @property
    def failures(self) -> tuple[FailureRecord, ...]:
        """The last failures of threads, oldest first: what failed, what was decided, when it is tried
        again.
        """
        return self._owner.state.history.records()

    @property
    def health(self) -> Health:
        """Liveness, readiness, and a sentence that says why."""
        return assess(
            health_view(
                self._topology,
                self._owner.state,
                wanted_threads=self._config.num_stream_threads,
                crew=self._crew,
                missing_topics=self._participation.missing_topics(),
                view=self._view,
                lags=self.all_local_store_partition_lags(),
                clock=self._clock,
                query_server_failure=None if self._query_server is None else self._query_server.failure,
            )
        )

    def metrics(self) -> ClientMetrics:
        """The metrics, by Kafka Streams' names, with the latest figures of its stores: docs/metrics.md.

        A snapshot; empty once the client has ended.

        Source: KIP-444; KafkaStreams.metrics.
        """
        return self._assembly.metrics(
            MetricsView(
                client_id=self._client_id,
                application_id=self._config.application_id,
                process_id=str(self._directory.process_id()),
                version=_version(),
                state=self.state.name,
                threads={thread.name: thread.state.name for thread in self._crew.threads},
                failed=self._owner.state.history.count,
                topology=self._described,
            )
        )

    def check(self) -> None:
        """Assert what must hold at any time; for tests, after each event.

        Raises:
            AssertionError: something does not hold.
        """
        value = self._owner.state
        value.check()
        if value.state.has_completed_shutdown:
            states = self._crew.states()
            assert all(state.is_dead for state in states.values()), f"{value.state} with threads {states}"
            assert not self._directory.is_locked, f"{value.state} holds the state directory"
            assert not self._view.parts(), f"{value.state} has open stores"

    @cached_property
    def _described(self) -> str:
        """The topology as text, which never changes; metrics include it in each scrape."""
        return str(self._topology.describe())

    def _repr_html_(self) -> str:
        """What a notebook shows: state, health, threads and stores."""
        return client_html(
            self._config.application_id,
            self._client_id,
            self.state,
            self.health,
            self.metadata_for_local_threads(),
            tuple(self._topology.stores) + tuple(self._topology.global_stores),
            self.all_local_store_partition_lags(),
            self.failures,
        )

    def __repr__(self) -> str:
        return f"KafkaStreams('{self._client_id}', {self.state})"

    # --- how it ends -------------------------------------------------------------------------------------

    def _begin_closing(self) -> None:
        thread = threading.Thread(target=self._close_all, name=f"{self._client_id}-CloseThread", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # Not here: instructions run on this thread, and closing waits for them.
            log.error(
                "%s is closing, but no thread could be started to close it (%s): the next call of close() or "
                "wait(), or the end of the program, closes it",
                self._announcer.owner,
                error,
            )
            self._over.set()
            self._ends.notify()

    def _wait_closed(self, timeout_s: float | None) -> bool:
        """Wait until it is closed. Returns whether it is. Closes on this thread if no other could be
        started."""
        if timeout_s == 0:
            return self._closed.is_set()  # the caller does not want to wait at all
        return block(self._until_closed(timeout_s))

    def _until_closed(self, timeout_s: float | None) -> Wait[bool]:
        if not (yield Until(self._over.is_set, timeout_s, lambda: self._over.wait(timeout_s), self._ends)):
            return False
        if (yield Do(self._close_if_nobody_does, f"{self._client_id}-AsyncClose")):
            return True
        return (yield Until(self._closed.is_set, timeout_s, lambda: self._closed.wait(timeout_s), self._ends))

    def _close_if_nobody_does(self) -> bool:
        if not self._over.is_set() or self._closed.is_set() or self._on_own_thread():
            return False
        mine = self._closing_here.acquire(blocking=False)
        if mine:
            self._close_all()
        return mine

    def _close_all(self) -> None:
        """Go through the phases of closing: do each one's work, or wait for its condition."""
        while (phase := self._phase()) is not Phase.DONE:
            if phase.is_work:
                self._close_what_belongs_to(phase)
                self._owner.call(ClosingDone(phase))
            elif not self._owner.wait_for(lambda value, at=phase: _phase_of(value) is not at, _JOIN_S):  # type: ignore[misc]
                self._owner.call(TimeUp(phase, _JOIN_S))
        self._closed.set()
        self._over.set()
        self._ends.notify()
        program_end.forget(self)

    def _phase(self) -> Phase:
        return _phase_of(self._owner.state)

    def _close_what_belongs_to(self, phase: Phase) -> None:
        try:
            match phase:
                case Phase.FRONT:
                    if self._query_server is not None:
                        self._query_server.close()
                    self._assembly.stop_housekeeping()
                case Phase.GROUP:
                    wait_until_left = self._begin_leaving()
                    self._assembly.close_pipelines()
                    wait_until_left()
                case _:
                    self._assembly.close()
        except Exception:
            # The rest must still be closed.
            log.exception("%s did not close cleanly: %s", self._announcer.owner, phase.value)

    def _begin_leaving(self) -> Callable[[], None]:
        """Leave the group in the background; what is returned waits for it."""
        thread = threading.Thread(
            target=self._participation.leave, args=(_LEAVE_S,), name=f"{self._client_id}-Leave", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the program is ending, and no thread can be started
            self._participation.leave(_LEAVE_S)
            return lambda: None
        return lambda: thread.join(_JOIN_S)

    def _close_at_exit(self) -> None:
        # From Python 3.12 on, no thread can be started at this point, so this one does the work.
        if BeginClosing(here=True) in self._owner.call(CloseAsked(here=True)):
            log.warning("%s the program ends and the client is still open; closing it", self._announcer.owner)
            self._close_all()
        else:
            self._wait_closed(_EXIT_S.total_seconds())

    # --- what its threads report -------------------------------------------------------------------------

    def _thread_failed(self, thread: StreamThread, error: StreamsException) -> None:
        self._supervisor.failed(Failure.of(thread.name, error, line=thread.line), thread.name)

    def _global_failed(self, thread: GlobalStreamThread, error: StreamsException) -> None:
        self._supervisor.failed(Failure.of(thread.name, error, is_global=True), None)

    # --- small things ------------------------------------------------------------------------------------

    def _about(self) -> ClientFacts:
        return ClientFacts(
            self._client_id,
            pipelines=tuple(pipeline.name for pipeline in self._topology.queries),
            budget=default_budget(self._config),
            standbys=int(self._config["num.standby.replicas"]),
            keeps_warm=bool(self._topology.queries) and self._config.keeps_spark_warm,
            has_global=bool(self._topology.global_stores),
        )

    def _perform(self, instruction: Instruction) -> None:
        self._performer.perform(instruction)

    def _notify_listener(self, new: State, old: State) -> None:
        if self._listener is not None:
            self._listener(new, old)

    def _is_wanted(self) -> bool:
        return self._owner.state.is_wanted

    def _on_own_thread(self) -> bool:
        return self._crew.current is not None or (self._global is not None and self._global.is_current())

    def _owned_tasks(self) -> frozenset[TaskId]:
        roster = self._owner.state.roster
        return frozenset(roster.held.tasks) | frozenset(roster.work.tasks)

    def _warn_of_two(self) -> None:
        if (warning := resolve(self._supervisor.handler, self._supervisor.hook).warning) is not None:
            log.warning("%s %s", self._announcer.owner, warning)

    def _only_created(self, what: str) -> None:
        if self.state is not State.CREATED:
            raise IllegalStateException(
                f"Can only set {what} before calling start(). Current state is: {self.state}"
            )

    def _raise_failure(self) -> None:
        failure = self._ended_by()
        if failure is not None:
            raise failure

    def _ended_by(self) -> BaseException | None:
        failure = self._owner.state.failure
        return None if failure is None else failure.error


def _phase_of(value: ClientState) -> Phase:
    assert value.closing is not None
    return value.closing.phase


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("millstream")
    except PackageNotFoundError:
        return "unknown"  # used from a folder, and not installed


def _seconds(timeout: timedelta | None) -> float | None:
    return None if timeout is None else seconds_of(timeout)
