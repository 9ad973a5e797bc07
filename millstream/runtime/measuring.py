"""Measures a client's events and the reports of its pipelines, for the metrics.

It is called where things happen, with data that the client has anyway. It decides nothing and never fails the
client.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime
from functools import cache

from millstream.clock import Clock
from millstream.group.codes import AssignorError
from millstream.group.userdata import Assignment
from millstream.metrics.batches import Readers, Writers, forget_pipeline, record_batch
from millstream.metrics.meter import Meter, Reading
from millstream.metrics.metrics_table import COORDINATOR, FAILURES, GROUP, THREAD
from millstream.metrics.restoring import RestoreMetrics, UpdaterWatch
from millstream.model import BatchReport, TaskId, TopicPartition
from millstream.ports import BytesStore
from millstream.runtime.state.client_state import ClientState, Moment
from millstream.runtime.state.events import Assigned, Event, GroupLost, Settled, ThreadMoved
from millstream.runtime.state.history import FailureRecord
from millstream.runtime.threads.crew import Crew
from millstream.runtime.threads.standby_updates import StandbyUpdates
from millstream.runtime.view import ClientView
from millstream.states import State, ThreadState
from millstream.topology.topology import Topology

__all__ = ["Measuring", "Watches", "readers_of", "writers_of"]

log = logging.getLogger(__name__)


def readers_of(topology: Topology, application_id: str) -> Readers:
    """The processors that read each topic; internal topics by their full names."""

    @cache
    def readers(topic: str) -> tuple[tuple[int, str], ...]:
        own = topic.removeprefix(f"{application_id}-")
        return tuple(
            (subtopology.id, processor.name)
            for subtopology in topology.subtopologies
            for processor in subtopology.processors
            if topic in processor.topics
            or own in processor.topics
            or (processor.pattern is not None and processor.pattern.fullmatch(topic))
        )

    return readers


def writers_of(topology: Topology, application_id: str) -> Writers:
    """The sink that writes each topic, internal topics by their full names: the first that names it, or else
    the first that chooses topics by a function."""
    sinks: dict[str, str] = {}
    asking: list[str] = []
    for subtopology in topology.subtopologies:
        for processor in subtopology.processors:
            if processor.topic is not None:
                sinks.setdefault(processor.topic, processor.name)
                sinks.setdefault(f"{application_id}-{processor.topic}", processor.name)
            elif processor.topic_function is not None:
                asking.append(processor.name)

    def writer(topic: str) -> str | None:
        found = sinks.get(topic)
        if found is None and asking and not topic.startswith(f"{application_id}-"):
            return asking[0]
        return found

    return writer


class Measuring:
    """The measurements of one client."""

    def __init__(
        self,
        topology: Topology,
        view: ClientView,
        crew: Crew,
        *,
        client_id: str,
        application_id: str,
        clock: Clock,
    ) -> None:
        self._client_id = client_id
        self._clock = clock
        self._crew = crew
        self._readers = readers_of(topology, application_id)
        self._writers = writers_of(topology, application_id)
        self._meter = Meter(clock)
        self._restoring = RestoreMetrics(self._meter, view.is_standby)
        self._pipelines: dict[str, frozenset[str]] = {}  # by thread
        self._tasks: dict[str, frozenset[TaskId]] = {}  # by thread
        self._rebalancing_since: float | None = None
        self._rebalanced_at: float | None = None
        self._meter.make("rebalance", (client_id,))
        self._meter.make("failed-rebalance", (client_id,))
        self._meter.make("recovery", (client_id,))
        self._last_failure(0)
        self._paused(False)

    # --- what happens --------------------------------------------------------------------------------------

    def batch(self, thread: str, report: BatchReport) -> None:
        """Take an engine's report of a thread's tasks of a pipeline. Any thread; failures are logged."""
        if report.pipeline not in self._pipelines.get(thread, ()):
            return  # it has been released since
        try:
            record_batch(
                self._meter,
                report,
                client_id=self._client_id,
                thread=thread,
                readers=self._readers,
                writers=self._writers,
                at_ms=self._clock.epoch_ms(),
            )
        except Exception:
            log.exception("a report of pipeline %s is missing from the metrics", report.pipeline)
        if report.pipeline not in self._pipelines.get(thread, ()):
            # It was released meanwhile: what was recorded since then is removed, too.
            forget_pipeline(self._meter, thread, report.pipeline)
            if thread not in self._tasks:
                self._meter.forget(("thread", thread))

    def event(self, old: ClientState, event: Event, new: ClientState, moment: Moment) -> None:
        """Record one step of the client, from one value to the next. Quick; failures are logged."""
        try:
            self._state(old.state, new.state, moment.now)
            if old.paused is not new.paused:
                self._paused(new.paused)
            match event:
                case ThreadMoved(thread, state):
                    self._thread(thread, state, moment.at)
                case Settled(thread, share, _):
                    self._settled(thread, share.pipelines, frozenset(share.tasks))
                case Assigned(assignment):
                    self._assigned(assignment, moment.now)
                case GroupLost():
                    self._meter.record("failed-rebalance", (self._client_id,))
            if new.history.count > old.history.count and (failure := new.history.last()) is not None:
                self._failed(failure)
        except Exception:
            log.exception("%s is missing from the metrics", type(event).__name__)

    def watch(self, thread: str, updater: str, standbys: StandbyUpdates | None) -> Watches:
        """The watch for an updater of this thread: the metrics, and the listener of standbys."""
        return Watches(self._restoring.of(thread, updater), standbys)

    def _state(self, old: State, new: State, now: float) -> None:
        if new is State.REBALANCING and old is not new:
            self._rebalancing_since = now
        elif new is State.RUNNING and self._rebalancing_since is not None:
            took = 1000 * (now - self._rebalancing_since)
            self._rebalancing_since = None
            self._meter.record("recovery", (self._client_id,), took)

    def _thread(self, thread: str, state: ThreadState, at: datetime) -> None:
        owner = ("thread", thread)
        if state is ThreadState.STARTING:
            for sensor in ("thread-process", "thread-poll", "thread-commit", "thread-busy", "thread-dropped"):
                self._meter.make(sensor, (thread,), owner=owner)
            for sensor in ("thread-process-latency", "thread-task-created", "thread-task-closed"):
                self._meter.make(sensor, (thread,), owner=owner)
            began = int(at.timestamp() * 1000)
            self._meter.put(THREAD, "thread-start-time", {"thread-id": thread}, began, owner=owner)
        elif state is ThreadState.DEAD:
            self._settled(thread, (), frozenset())
            self._tasks.pop(thread, None)
            self._meter.forget(owner)

    def _settled(self, thread: str, pipelines: tuple[str, ...], tasks: frozenset[TaskId]) -> None:
        released = self._pipelines.get(thread, frozenset()) - frozenset(pipelines)
        self._pipelines[thread] = frozenset(pipelines)
        for pipeline in released:
            forget_pipeline(self._meter, thread, pipeline)
        before = self._tasks.get(thread, frozenset())
        for _ in tasks - before:
            self._meter.record("thread-task-created", (thread,), owner=("thread", thread))
        for _ in before - tasks:
            self._meter.record("thread-task-closed", (thread,), owner=("thread", thread))
        self._tasks[thread] = tasks
        self._restoring.closed(thread, tasks)

    def _assigned(self, assignment: object, now: float) -> None:
        if isinstance(assignment, Assignment) and assignment.error_code == AssignorError.NONE:
            self._meter.record("rebalance", (self._client_id,))
            self._rebalanced_at = now
            members = len(assignment.members)
            self._meter.put(GROUP, "members", {"client-id": self._client_id}, members)
        else:
            self._meter.record("failed-rebalance", (self._client_id,))

    def _failed(self, failure: FailureRecord) -> None:
        what = type(failure.exception).__name__
        self._meter.record("failure", (self._client_id, what, failure.response.name))
        self._last_failure(int(failure.at.timestamp() * 1000))

    def _paused(self, paused: bool) -> None:
        self._meter.put(GROUP, "paused", {"client-id": self._client_id}, int(paused))

    def _last_failure(self, at_ms: int) -> None:
        self._meter.put(FAILURES, "last-failure-timestamp", {"client-id": self._client_id}, at_ms)

    # --- what is asked -------------------------------------------------------------------------------------

    def readings(self) -> Iterator[Reading]:
        """All current measurements. Any thread."""
        at = self._rebalanced_at
        ago = -1.0 if at is None else self._clock.now() - at
        self._meter.put(COORDINATOR, "last-rebalance-seconds-ago", {"client-id": self._client_id}, ago)
        self._restoring.set_current(self._crew.lags())
        return self._meter.readings()


class Watches:
    """`updater.Watch`: the metrics, and a listener of standbys if there is one."""

    def __init__(self, metrics: UpdaterWatch, standbys: StandbyUpdates | None) -> None:
        self._metrics, self._standbys = metrics, standbys

    def begun(self, partition: TopicPartition, store: BytesStore, start: int, end: int) -> None:
        """Loading begins at offset `start`; the changelog ends before `end`."""
        self._metrics.begun(partition, store, start, end)
        if self._standbys is not None:
            self._standbys.begun(partition, store, start, end)

    def loaded(
        self, partition: TopicPartition, store: BytesStore, records: int, position: int, end: int
    ) -> None:
        """This number of further records is in the store, up to `position` (exclusive)."""
        self._metrics.loaded(partition, store, records, position, end)
        if self._standbys is not None:
            self._standbys.loaded(partition, store, records, position, end)
