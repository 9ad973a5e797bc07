"""Deletes the state of tasks that this client no longer has.

A task that moves to another client leaves its stores behind. They are worth keeping for a while, because a
task that comes back then has little to restore; after that they only fill the disk. One pure function decides
what is deleted; the thread collects the facts, calls it, and deletes.

Source: org.apache.kafka.streams.processor.internals.StateDirectory.cleanRemovedTasks, and the thread
`<client id>-CleanupThread` of org.apache.kafka.streams.KafkaStreams.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from millstream.clock import Clock, SystemClock
from millstream.errors import ProcessorStateException
from millstream.model import TaskId
from millstream.periodic import PeriodicThread
from millstream.stores.directory import StateDirectory

__all__ = ["StateCleaner", "last_touched_ms", "obsolete"]

log = logging.getLogger(__name__)


def obsolete(
    touched_ms: Mapping[TaskId, int], owned: Collection[TaskId], now_ms: int, delay_ms: int
) -> tuple[TaskId, ...]:
    """The tasks whose state is to be deleted, sorted: not owned, and untouched for longer than `delay_ms`.

    `touched_ms` says when something in each task's directory last changed. A time in the future (a clock that
    was set back) counts as now.
    """
    return tuple(
        sorted(
            task for task, touched in touched_ms.items() if task not in owned and now_ms - touched > delay_ms
        )
    )


def last_touched_ms(directory: Path) -> int | None:
    """When anything in a directory last changed, in ms since the epoch; None: it does not exist."""
    newest: float | None = None
    pending = [directory]
    while pending:
        path = pending.pop()
        try:
            newest = max(newest or 0.0, path.stat().st_mtime)
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    else:
                        newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
        except (FileNotFoundError, NotADirectoryError):
            continue  # RocksDB deletes files at any time
    return None if newest is None else int(newest * 1000)


class StateCleaner:
    """Cleans every `every_s`, on a thread called `<client id>-CleanupThread`.

    A task is never deleted while it is owned. To ensure this, a new owner does three things in this order: it
    makes `owned` return the task, calls `wait_until_idle`, and opens the stores.

    Differs: Kafka Streams looks only at the time of the task's directory, which changes only when a store is
    added; here any file of the task counts.

    Args:
        owned: the tasks that this client has or is getting, queried again before each deletion.
        delay_s: `state.cleanup.delay.ms`.
        every_s: how often to look; by default the delay, as in Kafka Streams.
    """

    def __init__(
        self,
        client_id: str,
        directory: StateDirectory,
        owned: Callable[[], Collection[TaskId]],
        *,
        delay_s: float,
        every_s: float | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._directory = directory
        self._owned = owned
        self._delay_ms = round(delay_s * 1000)
        self._clock = clock or SystemClock()
        self._deleting = threading.Lock()
        # Old state on the disk is a nuisance; a client that ends because of it would be worse.
        self._thread = PeriodicThread(
            f"{client_id}-CleanupThread",
            delay_s if every_s is None else every_s,
            self.clean,
            log=log,
            failure=f"cleaning '{directory.path}' failed; it will be retried",
        )

    def start(self) -> None:
        """Start the thread; the first check is after `every_s`."""
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread at once, except for a deletion in progress. Returns whether it has ended.
        Idempotent."""
        return self._thread.stop(timeout_s)

    def wait_until_idle(self, timeout_s: float = 10.0) -> bool:
        """Wait until no deletion from before this call is in progress. Returns whether that is so."""
        if not self._deleting.acquire(timeout=timeout_s):
            return False
        self._deleting.release()
        return True

    def clean(self) -> tuple[TaskId, ...]:
        """Check and delete once. Returns what was deleted. Thread-safe."""
        directory = self._directory
        deleted = self._cleaned(directory.tasks(), directory.task_path, directory.clean)
        self._cleaned(directory.tasks_in_spark(), directory.path_in_spark, directory.clean_in_spark)
        return deleted

    def _cleaned(
        self,
        there: Iterable[TaskId],
        place: Callable[[TaskId], Path],
        clean: Callable[[TaskId], object],
    ) -> tuple[TaskId, ...]:
        now_ms = self._clock.epoch_ms()
        touched = {task: time for task in there if (time := last_touched_ms(place(task))) is not None}
        if not touched:
            return ()
        deleted = []
        for task in obsolete(touched, frozenset(self._owned()), now_ms, self._delay_ms):
            if self._thread.is_stopping:
                break
            with self._deleting:
                if task in self._owned():
                    continue  # it has come back
                log.info(
                    "deleting obsolete state directory '%s' of task %s: untouched for %d ms "
                    "(state.cleanup.delay.ms is %d)",
                    place(task),
                    task,
                    now_ms - touched[task],
                    self._delay_ms,
                )
                try:
                    clean(task)
                except ProcessorStateException as error:
                    log.warning("the state of task %s stays for now: %s", task, error)
                else:
                    deleted.append(task)
        return tuple(deleted)
