"""Turns an updater's loading of stores into metrics: once for each write of up to 500 records."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from millstream.metrics.meter import Meter
from millstream.metrics.metrics_table import STORES, TASK, UPDATER
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.ports import BytesStore

__all__ = ["RestoreMetrics"]


@dataclass(slots=True)
class _Loading:
    """A store, and its position."""

    updater: str
    thread: str
    task: TaskId
    store: str
    until: int
    position: int

    @property
    def remaining(self) -> int:
        """The number of offsets that are still to be restored."""
        return max(0, self.until - self.position)


class RestoreMetrics:
    """The stores of one client. Updaters report on their own threads (`of` creates a watch for each).

    Args:
        is_standby: whether the store of a changelog is a standby now.
    """

    def __init__(self, meter: Meter, is_standby: Callable[[TopicPartition], bool]) -> None:
        self._meter = meter
        self._is_standby = is_standby
        self._lock = threading.Lock()
        self._loading: dict[TopicPartition, _Loading] = {}

    def of(self, thread: str, updater: str) -> UpdaterWatch:
        """A watch for the reports of one updater, which works for this stream thread."""
        return UpdaterWatch(self, thread, updater)

    def begun(self, at: TopicPartition, loading: _Loading) -> None:
        """A store starts, or starts again."""
        with self._lock:
            self._loading[at] = loading
        self._meter.make("updater-restore", (loading.updater,), owner=("thread", loading.thread))
        self._meter.make("store-applied", _tags(loading), owner=_owner(at))
        kind = "task-update" if self._is_standby(at) else "task-restore"
        self._meter.make(
            kind, (loading.thread, str(loading.task)), owner=("task", loading.thread, loading.task)
        )

    def loaded(self, at: TopicPartition, records: int, position: int) -> None:
        """A store has loaded this many more records."""
        with self._lock:
            loading = self._loading.get(at)
            if loading is None:
                return  # closed in the meantime
            restores = loading.remaining > 0
            loading.position = position
        task = (loading.thread, str(loading.task))
        owner = ("task", loading.thread, loading.task)
        self._meter.record("store-applied", _tags(loading), records, owner=_owner(at))
        standby = self._is_standby(at)
        if standby or restores:
            self._meter.record("task-update" if standby else "task-restore", task, records, owner=owner)
            self._meter.record(
                "updater-restore", (loading.updater,), records, owner=("thread", loading.thread)
            )

    def closed(self, thread: str, kept: frozenset[TaskId]) -> None:
        """A stream thread now has the stores of exactly these tasks."""
        with self._lock:
            gone = [
                (at, each.task)
                for at, each in self._loading.items()
                if each.thread == thread and each.task not in kept
            ]
            for at, _ in gone:
                del self._loading[at]
        for at, task in gone:
            self._meter.forget(_owner(at))
            self._meter.forget(("task", thread, task))

    def set_current(self, lags: Mapping[TopicPartition, LagInfo]) -> None:
        """Set the values that are not counts to the current state.

        Args:
            lags: those of all stores of stream threads, as last known.
        """
        with self._lock:
            loading = [(at, each.remaining, each) for at, each in self._loading.items()]
        remaining: Counter[tuple[str, TaskId]] = Counter()
        restoring: dict[str, set[TaskId]] = {}
        updating: dict[str, set[TaskId]] = {}
        for at, left, each in loading:
            restoring.setdefault(each.updater, set())
            updating.setdefault(each.updater, set())
            if self._is_standby(at):
                updating[each.updater].add(each.task)
            else:
                remaining[each.thread, each.task] += left
                if left:
                    restoring[each.updater].add(each.task)
            if at in lags:
                place = dict(zip(("thread-id", "task-id", "store"), _tags(each), strict=True))
                self._meter.put(STORES, "lag", place, lags[at].offset_lag, owner=_owner(at))
        for (thread, task), left in remaining.items():
            tags = {"thread-id": thread, "task-id": str(task)}
            owner = ("task", thread, task)
            self._meter.put(TASK, "restore-remaining-records-total", tags, left, owner=owner)
        threads = {each.updater: each.thread for _, _, each in loading}
        for updater, thread in threads.items():
            for name, tasks in (
                ("active-restoring-tasks", restoring[updater]),
                ("standby-updating-tasks", updating[updater]),
            ):
                self._meter.put(UPDATER, name, {"thread-id": updater}, len(tasks), owner=("thread", thread))


class UpdaterWatch:
    """`updater.Watch` of one updater."""

    def __init__(self, restoring: RestoreMetrics, thread: str, updater: str) -> None:
        self._restoring, self._thread, self._updater = restoring, thread, updater

    def begun(self, partition: TopicPartition, store: BytesStore, start: int, end: int) -> None:
        """A store starts at offset `start`; its changelog ends before `end`."""
        loading = _Loading(self._updater, self._thread, store.task_id, store.name, end, start)
        self._restoring.begun(partition, loading)

    def loaded(
        self, partition: TopicPartition, store: BytesStore, records: int, position: int, end: int
    ) -> None:
        """A store has loaded this many more records, up to `position` (exclusive)."""
        self._restoring.loaded(partition, records, position)


def _tags(loading: _Loading) -> tuple[str, str, str]:
    return loading.thread, str(loading.task), loading.store


def _owner(at: TopicPartition) -> Hashable:
    return "store", at
