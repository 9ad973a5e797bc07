"""A stream thread: it owns tasks, and turns their failures into exceptions.

It handles events, which others put into its inbox: it is assigned work, a query has ended, a store is up to
date, the client has lost its place in the group, stop. Any failure of what it owns ends its loop and reaches
`on_failure`, on this very thread and before it releases anything (store_thread.py).
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from millstream.clock import Clock
from millstream.errors import (
    MissingSourceTopicException,
    PipelineException,
    StreamsException,
    TaskMigratedException,
)
from millstream.model import (
    LagInfo,
    PipelineMetadata,
    TaskId,
    TaskMetadata,
    ThreadMetadata,
    TopicPartition,
)
from millstream.ports import BytesStore, PipelineEnd, RunningPipeline
from millstream.runtime.state.assignment import Share, StorePart
from millstream.runtime.state.events import PipelineMigrated, Settled, ThreadMoved
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
from millstream.states import STREAM_THREAD, ThreadCause, ThreadState

__all__ = ["Application", "Resources", "StreamThread"]

log = logging.getLogger(__name__)


class Resources(Updaters, Protocol):
    """The resources that a stream thread gets from its client's assembly."""

    def open_store(self, part: StorePart) -> BytesStore:
        """Open one task's part of a store."""

    def start_pipeline(
        self, name: str, partitions: Collection[int], on_end: Callable[[PipelineEnd], None]
    ) -> RunningPipeline:
        """Start a pipeline's query for these partitions; the first one starts Spark.

        Raises:
            Stopped: the client closes, and no one waits for Spark any longer.
        """

    def read_by_pattern(self, pipeline: str, topics: Iterable[str]) -> frozenset[str]:
        """The topics among these that a pattern of the pipeline's sources matches."""

    def reads(self, pipeline: str, topics: Iterable[str]) -> bool:
        """Whether the pipeline's sources read any of these topics, by name or by a pattern."""

    def forget_prepared(self) -> None:
        """What was prepared for tasks to come does not fit the topics any more."""


class Application(Protocol):
    """A stream thread's view of its application."""

    def take_part(self) -> None:
        """Make sure that the topics exist and the client is in its group. Runs on the thread, so that a
        problem with them is the thread's failure."""

    def diagnosed(self, error: StreamsException) -> StreamsException:
        """The same error, or its known cause."""

    def dropped(self, *, fresh: bool) -> tuple[str, ...]:
        """The topics that patterns have lost so far, in order; `fresh`: after a new check."""

    def check_written(self, pipeline: str) -> None:
        """Check that everything the pipeline writes still exists, if it existed before.

        Raises:
            LostTopicException: a topic was deleted meanwhile.
        """

    def standby_caught_up(self, task: TaskId) -> None:
        """Another store of a standby task has caught up."""


# --- events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Given:
    """Own exactly this share. `not_before`: when a pipeline may start, by the clock."""

    share: Share
    ticket: int
    not_before: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """The client has lost its group: stop what others may be running by now, and wait for a new share."""

    ticket: int


@dataclass(frozen=True)
class Fail:
    """Fail with this error, which concerns the thread although another one found it."""

    error: StreamsException


@dataclass(frozen=True)
class Pause:
    """Stop the queries, or let them run again; keep everything else."""

    paused: bool


@dataclass(frozen=True)
class Drop:
    """Topics that only a pattern matched are gone; `number`: how many were lost so far, including these."""

    topics: tuple[str, ...]
    number: int


@dataclass(frozen=True)
class Grow:
    """These topics have more partitions, or are new."""

    topics: frozenset[str]


@dataclass(frozen=True)
class QueryEnded:
    """A query has ended; `run` says which one, if a pipeline was started several times."""

    end: PipelineEnd
    run: int


Inbox = Stop | Given | Lost | Fail | Pause | Drop | Grow | QueryEnded | UpdaterFailed | StoreRestored


class StreamThread(StoreThread[ThreadState]):
    """Supervises a share of the client's work, on a thread called `<client id>-StreamThread-<n>`.

    Args:
        resources, view, application: those of its client.
        post: takes the events of this thread; any of its helper threads may call it.
        on_failure: decides about a failure; called on the failing thread, which ends when it returns.
        at_change: called inside every transition (machine.py).
        not_before: when it starts to work, by the clock: a replacement waits before it retries.
        paused: whether it starts without running queries.
        line: the line of threads that it continues (failure.py: Failure.line).
    """

    def __init__(
        self,
        name: str,
        resources: Resources,
        view: StoresShown,
        application: Application,
        *,
        clock: Clock,
        post: Callable[[ThreadMoved | Settled | PipelineMigrated], object],
        on_failure: Callable[[StreamThread, StreamsException], None],
        at_change: Callable[[ThreadState, ThreadState], None] = lambda new, old: None,
        not_before: float = float("-inf"),
        paused: bool = False,
        line: int = 0,
    ) -> None:
        super().__init__(
            name,
            resources,
            view,
            ThreadState,
            STREAM_THREAD,
            owner="stream-thread",
            log=log,
            clock=clock,
            on_state=lambda new: post(ThreadMoved(name, new)),
            at_change=at_change,
        )
        self.line = line
        self._resources = resources
        self._application = application
        self._post = post
        self._on_failure = on_failure
        self._not_before = not_before
        self._share: Share | None = None
        self._paused = paused
        self._due: dict[str, float] = {}
        self._running: dict[str, RunningPipeline] = {}
        self._runs: dict[str, int] = {}
        self._lost_before: dict[str, int] = {}

    # --- for its client, from any thread -----------------------------------------------------------------

    @property
    def share(self) -> Share:
        """The share it was given last."""
        return self._share or Share()

    @property
    def waiting(self) -> Mapping[str, float]:
        """What it waits to retry, and until when: a pipeline, or '' for everything."""
        now = self._clock.now()
        due = dict(self._due)
        if self._not_before > now and self.state.is_alive:
            due[""] = self._not_before
        return {what: when for what, when in due.items() if when > now}

    def start(self) -> None:
        """Start to work, unless it was stopped before."""
        if not self._stopping.is_set():
            self._thread.start()

    def give(self, share: Share, not_before: Mapping[str, float], ticket: int) -> None:
        """Own exactly this share from now on (roster.py)."""
        self._inbox.put(Given(share, ticket, dict(not_before)))

    def lose(self, ticket: int) -> None:
        """The client has lost its group."""
        self._inbox.put(Lost(ticket))

    def fail(self, error: StreamsException) -> None:
        """End with this failure, unless it is still waiting to start: then it checks for itself."""
        if self._not_before <= self._clock.now():
            self._inbox.put(Fail(error))

    def pause(self, paused: bool) -> None:
        """Stop the queries, or let them run again."""
        self._inbox.put(Pause(paused))

    def finish(self, pipeline: str) -> None:
        """Have the pipeline's query soon finish what it has read, if it runs here."""
        if (running := self._running.get(pipeline)) is not None:
            running.finish()

    def drop(self, topics: tuple[str, ...], number: int) -> None:
        """Have pipelines continue without these topics, which only patterns matched."""
        self._inbox.put(Drop(topics, number))

    def grow(self, topics: frozenset[str]) -> None:
        """Have pipelines read these topics anew: they have more partitions, or are new."""
        self._inbox.put(Grow(topics))

    def ending(self) -> None:
        """Its end is decided, after a failure or a `stop`: from now on it is not live."""
        self._machine.to(ThreadState.PENDING_SHUTDOWN)

    def metadata(self) -> ThreadMetadata:
        """What it owns, and its progress. Never blocks."""
        lags, share = self.lags(), self.share
        opened = tuple(part for part, _ in tuple(self._open.values()))
        running = dict(self._running)
        return ThreadMetadata(
            thread_name=self.name,
            thread_state=self.state.name,
            active_tasks=tuple(_task_metadata(task, opened, lags) for task in share.active_tasks),
            standby_tasks=tuple(_task_metadata(task, opened, lags) for task in share.standby_tasks),
            pipelines=tuple(
                running[name].metadata() if name in running else PipelineMetadata(name=name, running=False)
                for name in share.pipelines
            ),
        )

    # --- on the thread itself ----------------------------------------------------------------------------

    def _work(self) -> None:
        self._raise_if_stopping()
        self._machine.to(ThreadState.STARTING)
        self._wait_for_its_turn()
        self._application.take_part()
        while True:
            try:
                event = self._inbox.get(timeout=self._time_to_next())
            except queue.Empty:
                self._start_due()
                continue
            self._react(event)

    def _wait_for_its_turn(self) -> None:
        """Wait until it may start. Events are handled afterwards, except for a stop."""
        while (left := self._not_before - self._clock.now()) > 0:
            if self._stopping.wait(left):
                raise Stopped

    def _react(self, event: Inbox) -> None:
        match event:
            case Stop():
                raise Stopped
            case Given(share, ticket, not_before):
                self._take(share, ticket, not_before)
            case Lost(ticket):
                self._lose(ticket)
            case Fail(error):
                raise error
            case Pause(paused):
                self._paused = paused
                if paused:
                    self._stop_pipelines(tuple(self._running))
                self._start_due()
            case Drop(topics, number):
                self._drop(topics, number)
            case Grow(topics):
                # The tasks of a query read the partitions that there were when it began.
                self._resources.forget_prepared()
                self._stop_pipelines(
                    tuple(name for name in self._running if self._resources.reads(name, topics))
                )
                self._start_due()
            case StoreRestored(partition):
                self._unrestored -= {partition}
                self._run_if_ready()
            case UpdaterFailed(error):
                raise error
            case QueryEnded(end, run) if self._runs.get(end.pipeline) == run:
                self._pipeline_ended(end.pipeline, end.error)
            case QueryEnded():
                pass  # from a run that this thread has stopped

    def _take(self, share: Share, ticket: int, not_before: Mapping[str, float]) -> None:
        """Release what is not in `share`, then open and start what is new in it."""
        # 1. Release what it no longer owns: queries before stores.
        self._machine.to(ThreadState.PARTITIONS_REVOKED)
        self._stop_pipelines(tuple(name for name in self._running if name not in share.pipelines))
        for name in [name for name in self._running if share.partitions(name) != self.share.partitions(name)]:
            if not self._running[name].assign(share.partitions(name)):
                log.warning(
                    "stream-thread [%s] pipeline %s: what moves has not committed in time; it is restarted",
                    self.name,
                    name,
                )
                self._stop_pipelines((name,))
        kept = {part.changelog for part in share.parts}
        self._close_stores(tuple(partition for partition in self._open if partition not in kept))
        self._share = share
        self._due = {
            name: not_before.get(name, float("-inf")) for name in share.pipelines if name not in self._running
        }
        self._machine.to(ThreadState.PARTITIONS_ASSIGNED)
        self._post(Settled(self.name, share, ticket))
        # 2. Standbys become active in place, and vice versa.
        for part in share.parts:
            if part.changelog in self._open and self._open[part.changelog][0] != part:
                self._change_role(part)
        # 3. Stores begin to restore; they are views of changelogs, so pipelines need not wait for them.
        self._open_stores(share.parts)
        # 4. Pipelines. The first one in the client starts Spark and compiles all.
        self._start_due()

    def _lose(self, ticket: int) -> None:
        # Stores are views of changelogs and do no harm; queries would do another client's work.
        self._machine.to(ThreadState.PARTITIONS_REVOKED)
        self._stop_pipelines(tuple(self._running))
        self._due.clear()
        held = Share((), self.share.parts)
        self._share = held
        self._post(Settled(self.name, held, ticket))

    def _drop(self, topics: tuple[str, ...], number: int) -> None:
        """Restart the pipelines that read these topics, which then continue without them."""
        self._resources.forget_prepared()
        for name in self.share.pipelines:
            lost = self._resources.read_by_pattern(name, topics)
            if not lost or (name in self._running and self._lost_before[name] >= number):
                continue  # it was started after that
            if name in self._running:
                self._log_unread(name, lost)
                self._stop_pipelines((name,))
        self._start_due()

    def _log_unread(self, name: str, topics: Iterable[str]) -> None:
        """Log what is lost with these topics, as of the query's last check."""
        lag = self._running[name].metadata().lag
        for topic in sorted(topics):
            known = {at.partition: count for at, count in (lag or {}).items() if at.topic == topic}
            unread = [f"{count} of partition {number}" for number, count in sorted(known.items()) if count]
            log.warning(
                "stream-thread [%s] topic '%s', which a pattern matched, was deleted, and pipeline %s "
                "continues without it. These offsets had not been read when the query last checked, and are "
                "lost: %s",
                self.name,
                topic,
                name,
                ", ".join(unread) or ("none" if known else "not known"),
            )

    def _pipeline_ended(self, pipeline: str, error: BaseException | None) -> None:
        if pipeline not in self._running:
            return  # stopped by this thread
        met = isinstance(error, MissingSourceTopicException | PipelineException)
        if met and (lost := self._lost_since(pipeline)):
            self._log_unread(pipeline, lost)
            log.warning(
                "stream-thread [%s] pipeline %s has ended, probably because of that, and is restarted: %s",
                self.name,
                pipeline,
                error,
            )
            del self._running[pipeline]
            self._due[pipeline] = float("-inf")
            self._start_due()
            return
        del self._running[pipeline]
        if isinstance(error, TaskMigratedException):
            self._migrated(pipeline, error)
            return
        if isinstance(error, StreamsException):
            raise self._application.diagnosed(error)
        if error is not None:
            raise error
        self._raise_if_stopping()
        raise PipelineException(
            f"pipeline '{pipeline}' was stopped from outside (its Spark query, or the session); "
            f"close the client instead, which stops its pipelines",
            pipeline=pipeline,
        )

    def _lost_since(self, pipeline: str) -> frozenset[str]:
        """The topics that its patterns have lost since the pipeline was started. Its query may have noticed
        that before anyone was notified.
        """
        dropped = self._application.dropped(fresh=True)[self._lost_before.get(pipeline, 0) :]
        return self._resources.read_by_pattern(pipeline, dropped)

    # --- pipelines ---------------------------------------------------------------------------------------

    def _start_due(self) -> None:
        """Start the pipelines whose time has come."""
        now = self._clock.now()
        for name in [] if self._paused else [name for name, due in self._due.items() if due <= now]:
            self._raise_if_stopping()
            run = self._runs[name] = self._runs.get(name, 0) + 1
            self._application.check_written(name)
            self._lost_before[name] = len(self._application.dropped(fresh=False))
            try:
                self._running[name] = self._resources.start_pipeline(
                    name,
                    self.share.partitions(name),
                    lambda end, run=run: self._inbox.put(QueryEnded(end, run)),  # type: ignore[misc]
                )
            except TaskMigratedException as error:
                self._migrated(name, error)
            else:
                del self._due[name]
        self._run_if_ready()

    def _migrated(self, name: str, error: TaskMigratedException) -> None:
        """Another client runs it now, which is not a failure. The group decides what this thread does
        next."""
        log.warning("stream-thread [%s] drops pipeline %s: %s", self.name, name, error)
        self._due.pop(name, None)
        self._share = self.share.not_running(name)
        self._post(PipelineMigrated(self.name, name, str(error)))

    def _stop_pipelines(self, names: tuple[str, ...]) -> None:
        for name in names:
            running = self._running.pop(name)
            self._runs[name] += 1
            self._closing(f"pipeline {name}", running.stop)
            if name in self.share.pipelines:
                self._due[name] = float("-inf")

    def _time_to_next(self) -> float | None:
        if self._paused or not self._due:
            return None
        return max(0.0, min(self._due.values()) - self._clock.now())

    # --- stores ------------------------------------------------------------------------------------------

    def _open_store(self, part: StorePart) -> BytesStore:
        return self._resources.open_store(part)

    def _run_if_ready(self) -> None:
        if not self._unrestored and (self._paused or not self._due):
            self._machine.because(ThreadCause.READY)

    def _standby_caught_up(self, part: StorePart) -> None:
        super()._standby_caught_up(part)
        self._application.standby_caught_up(part.task_id)

    # --- the end -----------------------------------------------------------------------------------------

    def _failed(self, error: BaseException) -> None:
        self._on_failure(self, as_streams_exception(error))

    def _let_go(self) -> None:
        self._stop_pipelines(tuple(self._running))
        self._due.clear()
        super()._let_go()


def _task_metadata(
    task: TaskId, opened: tuple[StorePart, ...], lags: Mapping[TopicPartition, LagInfo]
) -> TaskMetadata:
    parts = [part for part in opened if part.task_id == task]
    known = {part.changelog: lags[part.changelog] for part in parts if part.changelog in lags}
    return TaskMetadata(
        task_id=task,
        topic_partitions=frozenset(part.changelog for part in parts),
        committed_offsets={at: lag.current_offset_position for at, lag in known.items()},
        end_offsets={at: lag.end_offset_position for at, lag in known.items()},
    )
