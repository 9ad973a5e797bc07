"""RocksDB's own figures for each open store, read once a minute.

Source: KIP-607 (the properties); org.apache.kafka.streams.state.internals.metrics.RocksDBMetricsRecorder and
RocksDBMetricsRecordingTrigger, whose thread is called `<client id>-RocksDBMetricsRecordingTrigger`.
Differs: KIP-471's figures, which RocksDB counts only when told to (bytes written, hit ratios), are not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from millstream.metrics.client import Metric, MetricName
from millstream.model import TaskId
from millstream.periodic import PeriodicThread
from millstream.ports import BytesStore

__all__ = ["PROPERTIES", "STATE_GROUP", "HasProperties", "RocksDBMetricsRecorder"]

log = logging.getLogger(__name__)

STATE_GROUP = "stream-state-metrics"

PROPERTIES: Mapping[str, str] = {
    "num-immutable-mem-table": "Total number of immutable memtables that have not yet been flushed",
    "cur-size-active-mem-table": "Approximate size of active memtable in bytes",
    "cur-size-all-mem-tables": "Approximate size of active and unflushed immutable memtables in bytes",
    "size-all-mem-tables": "Approximate size of active, unflushed immutable, and pinned immutable memtables "
    "in bytes",
    "num-entries-active-mem-table": "Total number of entries in the active memtable",
    "num-entries-imm-mem-tables": "Total number of entries in the unflushed immutable memtables",
    "num-deletes-active-mem-table": "Total number of delete entries in the active memtable",
    "num-deletes-imm-mem-tables": "Total number of delete entries in the unflushed immutable memtables",
    "mem-table-flush-pending": "Reports 1 if a memtable flush is pending, otherwise it reports 0",
    "num-running-flushes": "Total number of currently running flushes",
    "compaction-pending": "Reports 1 if at least one compaction is pending, otherwise it reports 0",
    "num-running-compactions": "Total number of currently running compactions",
    "estimate-pending-compaction-bytes": "Estimated total number of bytes a compaction needs to rewrite on "
    "disk to get all levels down to under target size",
    "total-sst-files-size": "Total size in bytes of all SST files",
    "live-sst-files-size": "Total size in bytes of all SST files that belong to the latest LSM tree",
    "num-live-versions": "Number of live versions of the LSM tree",
    "block-cache-capacity": "Capacity of the block cache in bytes",
    "block-cache-usage": "Memory size of the entries residing in block cache in bytes",
    "block-cache-pinned-usage": "Memory size for the entries being pinned in the block cache in bytes",
    "estimate-num-keys": "Estimated number of keys in the active and unflushed immutable memtables and "
    "storage",
    "estimate-table-readers-mem": "Estimated memory in bytes used for reading SST tables, excluding memory "
    "used in block cache",
    "background-errors": "Total number of background errors",
}
"""Kafka's names of the figures, and its descriptions; RocksDB's own names are the same behind `rocksdb.`."""


@runtime_checkable
class HasProperties(Protocol):
    """A store that RocksDB keeps; one in memory has no such figures."""

    def properties(self) -> Mapping[str, int]:
        """The figures of `PROPERTIES`, by name. Raises when the store is closed."""


class RocksDBMetricsRecorder:
    """Reads the figures every `every_s`, on a thread called `<client id>-RocksDBMetrics`, and keeps the last.

    Args:
        stores: the client's open stores, asked anew each time.
    """

    def __init__(
        self, client_id: str, stores: Callable[[], Iterable[BytesStore]], *, every_s: float = 60.0
    ) -> None:
        self._stores = stores
        self._values: Mapping[tuple[TaskId, str], Mapping[str, int]] = {}
        # Figures are for looking at; their failure is no failure of the client.
        self._thread = PeriodicThread(
            f"{client_id}-RocksDBMetrics",
            every_s,
            self.record,
            log=log,
            failure="RocksDB's figures could not be read; it is tried again",
        )

    def start(self) -> None:
        """Begin; the first figures come after `every_s`."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread at once; whether it has ended. The last figures stay. Idempotent."""
        return self._thread.stop(timeout_s)

    def values(self) -> Mapping[tuple[TaskId, str], Mapping[str, int]]:
        """The last figures, by task and store; of stores that were open then."""
        return self._values

    def metrics(self) -> Mapping[MetricName, Metric]:
        """The last figures as metrics, tagged with the task and the store."""
        named = [
            (
                MetricName(
                    name,
                    STATE_GROUP,
                    (("task-id", str(task)), ("rocksdb-state-id", store)),
                    PROPERTIES[name],
                ),
                value,
            )
            for (task, store), figures in self._values.items()
            for name, value in figures.items()
            if name in PROPERTIES
        ]
        return {name: Metric(name, value) for name, value in named}

    def record(self) -> None:
        """Read once. Any thread; a store that is closed meanwhile is left out."""
        found = {}
        for store in self._stores():
            if not isinstance(store, HasProperties):
                continue
            try:
                found[(store.task_id, store.name)] = dict(store.properties())
            except Exception as error:
                if self._thread.is_stopping or not store.is_open:
                    continue
                log.warning("no figures of store '%s' of task %s: %s", store.name, store.task_id, error)
        self._values = found
