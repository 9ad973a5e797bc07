"""Notifies a listener about standbys: when one starts, what it has loaded, and when it ends.

It knows which stores are standbys; the positions of their changelogs come from the updaters.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from millstream.model import TaskId, TopicPartition
from millstream.ports import BytesStore
from millstream.runtime.state.assignment import StorePart

__all__ = ["StandbyUpdateListener", "StandbyUpdates", "SuspendReason"]

_log = logging.getLogger(__name__)


class SuspendReason(Enum):
    """Why a standby is no longer updated here.

    Source: org.apache.kafka.streams.processor.StandbyUpdateListener.SuspendReason.
    """

    MIGRATED = "MIGRATED"
    PROMOTED = "PROMOTED"


class StandbyUpdateListener(Protocol):
    """Gets the events of standbys. Called on the thread where they happen; what it raises is logged.

    Source: org.apache.kafka.streams.processor.StandbyUpdateListener (KIP-988).
    Differs: as in a `StateRestoreListener`, a store is complete up to an offset (exclusive).
    """

    def on_update_start(self, partition: TopicPartition, store: str, starting_offset: int) -> None:
        """A standby starts to load its changelog from this offset; or an active store became a standby."""

    def on_batch_loaded(
        self,
        partition: TopicPartition,
        store: str,
        task_id: TaskId,
        batch_end_offset: int,
        batch_size: int,
        current_end_offset: int,
    ) -> None:
        """A batch of records is in the store; `current_end_offset` is the last known end of the changelog."""

    def on_update_suspended(
        self,
        partition: TopicPartition,
        store: str,
        store_offset: int,
        current_end_offset: int,
        reason: SuspendReason,
    ) -> None:
        """The standby is closed here (MIGRATED), or becomes active (PROMOTED) and is then restored."""


@dataclass(slots=True)
class _Known:
    """A store and its position."""

    store: str
    position: int
    end: int
    is_announced: bool = False


class StandbyUpdates:
    """Calls the listener. `is_standby` says whether a changelog's store is currently a standby."""

    def __init__(self, listener: StandbyUpdateListener, is_standby: Callable[[TopicPartition], bool]) -> None:
        self._listener = listener
        self._is_standby = is_standby
        self._lock = threading.Lock()
        self._known: dict[TopicPartition, _Known] = {}

    # --- on an updater's thread --------------------------------------------------------------------------

    def begun(self, partition: TopicPartition, store: BytesStore, start: int, end: int) -> None:
        """A store begins to load."""
        with self._lock:
            known = self._known.setdefault(partition, _Known(store.name, start, end))
            known.position, known.end = start, end
            known.is_announced = False  # also after it was wiped and starts again
        self._begin(partition)

    def loaded(
        self, partition: TopicPartition, store: BytesStore, records: int, position: int, end: int
    ) -> None:
        """A store has more records."""
        with self._lock:
            known = self._known.get(partition)
            if known is None:
                return  # closed in the meantime
            known.position, known.end = position, end
            is_announced = known.is_announced
        if is_announced:
            name, task = store.name, store.task_id
            self._notify(
                lambda: self._listener.on_batch_loaded(partition, name, task, position, records, end)
            )

    # --- on the thread that has the store ----------------------------------------------------------------

    def role_changed(self, part: StorePart) -> None:
        """A standby became active, or vice versa."""
        if part.standby:
            self._begin(part.changelog)
        else:
            self._suspend(part.changelog, SuspendReason.PROMOTED)

    def closing(self, partition: TopicPartition) -> None:
        """A store is closed here."""
        self._suspend(partition, SuspendReason.MIGRATED)
        with self._lock:
            self._known.pop(partition, None)

    # --- either ------------------------------------------------------------------------------------------

    def _begin(self, partition: TopicPartition) -> None:
        if not self._is_standby(partition):
            return
        with self._lock:
            known = self._known.get(partition)
            if known is None or known.is_announced:
                return
            known.is_announced = True
            name, position = known.store, known.position
        self._notify(lambda: self._listener.on_update_start(partition, name, position))

    def _suspend(self, partition: TopicPartition, reason: SuspendReason) -> None:
        with self._lock:
            known = self._known.get(partition)
            if known is None or not known.is_announced:
                return
            known.is_announced = False
            name, position, end = known.store, known.position, known.end
        self._notify(lambda: self._listener.on_update_suspended(partition, name, position, end, reason))

    def _notify(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            _log.exception("the standby update listener raised; continuing")
