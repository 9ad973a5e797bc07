"""Collects the facts by which health.py judges a client's health. Quick, and from any thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from millstream.clock import Clock
from millstream.errors import MissingSourceTopicException
from millstream.model import LagInfo, OpeningTasks, PipelineMetadata
from millstream.query.provider import PartRole
from millstream.runtime.health import HealthView, Waiting
from millstream.runtime.state.client_state import ClientState
from millstream.runtime.threads.crew import Crew
from millstream.runtime.view import ClientView
from millstream.topology.topology import Topology

__all__ = ["health_view"]


def health_view(
    topology: Topology,
    state: ClientState,
    *,
    wanted_threads: int,
    crew: Crew,
    missing_topics: tuple[str, ...],
    view: ClientView,
    lags: Mapping[str, Mapping[int, LagInfo]],
    clock: Clock,
    query_server_failure: BaseException | None = None,
) -> HealthView:
    """The current facts."""
    threads, records = crew.threads, state.history.records()
    now, time_of_day = clock.now(), datetime.fromtimestamp(clock.epoch_ms() / 1000, UTC)
    waiting: dict[str, Waiting] = {}
    for thread in threads:
        for what, due in thread.waiting.items():
            of = next((record for record in reversed(records) if (record.pipeline or "") == what), None)
            waiting[thread.name] = Waiting(
                what or None,
                time_of_day + timedelta(seconds=due - now),
                of.attempt if of is not None else 1,
                of.most if of is not None else None,
            )
    restoring: dict[str, int | None] = {
        name: sum(lag.offset_lag for lag in lags[name].values()) if name in lags else None
        for name, parts in view.snapshot().local.items()
        if any(part.role is PartRole.RESTORING for part in parts)
    }
    every = [pipeline.name for pipeline in topology.queries]
    agreed = state.group.agreed
    agreed_tasks = () if agreed is None else agreed.members.values()
    taken = {task.pipeline for tasks in agreed_tasks for task in tasks}
    if state.plan is None and records:
        last = records[-1].exception
        missing_topics = last.topics if isinstance(last, MissingSourceTopicException) else missing_topics
    pipelines = [pipeline for thread in crew.metadata() for pipeline in thread.pipelines]
    return HealthView(
        client_state=state.state,
        threads={thread.name: thread.state.name for thread in threads},
        wanted_threads=wanted_threads if topology.pipelines else 0,
        waiting=waiting,
        pipelines_total=len(every),
        pipelines_owned=len(state.roster.work.pipelines),
        pipelines_running=len({each.name for each in pipelines if each.running}),
        opening_tasks=_opening(pipelines),
        unowned=tuple(name for name in every if agreed is not None and name not in taken),
        last_failure=records[-1] if records else None,
        restoring=restoring,
        opening=crew.opening(),
        member=state.group.lost is None,
        lost=state.group.lost,
        missing_topics=missing_topics,
        lost_executors=tuple(sorted({lost for each in pipelines for lost in each.lost_executors})),
        query_server_failure=query_server_failure,
        failure=None if state.failure is None else state.failure.error,
        paused=state.paused,
    )


def _opening(pipelines: Iterable[PipelineMetadata]) -> dict[str, OpeningTasks]:
    """The tasks that do not run yet, of all threads."""
    found: dict[str, OpeningTasks] = {}
    for each in pipelines:
        if each.running and each.opening is not None:
            before = found.get(each.name, OpeningTasks(0))
            found[each.name] = OpeningTasks(
                before.tasks + each.opening.tasks, before.left + each.opening.left
            )
    return found
