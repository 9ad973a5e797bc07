"""RocksDB's own figures for each open store, read once a minute.

Source: KIP-607 (the properties); org.apache.kafka.streams.state.internals.metrics.RocksDBMetricsRecorder and
RocksDBMetricsRecordingTrigger, whose thread is called `<client id>-RocksDBMetricsRecordingTrigger`.
Differs: KIP-471's figures, which RocksDB counts only on request (bytes written, hit ratios), are not of
these stores. Spark reports some of its own state, see batches.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, runtime_checkable

from millstream.model import TaskId
from millstream.periodic import PeriodicThread
from millstream.ports import BytesStore

__all__ = ["HasProperties", "RocksDBMetricsRecorder"]

log = logging.getLogger(__name__)


@runtime_checkable
class HasProperties(Protocol):
    """A store in RocksDB; one in memory has no such figures."""

    def properties(self) -> Mapping[str, int]:
        """The figures of `rocksdb_properties.PROPERTIES`, by name. Raises if the store is closed."""


class RocksDBMetricsRecorder:
    """Reads the figures every `every_s`, on a thread called `<client id>-RocksDBMetrics`, and keeps the
    latest.

    Args:
        stores: returns the client's open stores; called each time.
    """

    def __init__(
        self, client_id: str, stores: Callable[[], Iterable[BytesStore]], *, every_s: float = 60.0
    ) -> None:
        self._stores = stores
        self._values: Mapping[tuple[TaskId, str], Mapping[str, int]] = {}
        # Figures are only for display; an error here is not a failure of the client.
        self._thread = PeriodicThread(
            f"{client_id}-RocksDBMetrics",
            every_s,
            self.record,
            log=log,
            failure="RocksDB's figures could not be read; retrying",
        )

    def start(self) -> None:
        """Start the thread; the first figures come after `every_s`."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread at once; return whether it has ended. The last figures stay. Idempotent."""
        return self._thread.stop(timeout_s)

    def values(self) -> Mapping[tuple[TaskId, str], Mapping[str, int]]:
        """The latest figures, by task and store, for the stores that were open then."""
        return self._values

    def record(self) -> None:
        """Read once. Any thread may call it; a store that is closed meanwhile is skipped."""
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
