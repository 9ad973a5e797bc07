"""Keeps the state of tasks that other clients run where tasks run, so that they can begin here at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection

from millstream.model import TaskId

__all__ = ["StandbyTasks"]

log = logging.getLogger(__name__)

_LOOK_S = 0.2
_AGAIN_S = 5.0


class StandbyTasks:
    """Tells Spark's process which tasks these are, on a thread of its own, and looks until it has caught up.

    Args:
        follow: has it keep them from now on, and returns those that have caught up; None: Spark does not run,
            and `wake` is called when it does.
        on_caught_up: called when more have.
        name: that of the thread.
    """

    def __init__(
        self,
        follow: Callable[[frozenset[TaskId]], frozenset[TaskId] | None],
        on_caught_up: Callable[[], object],
        name: str,
    ) -> None:
        self._follow = follow
        self._on_caught_up = on_caught_up
        self._changed = threading.Condition()
        self._wanted: frozenset[TaskId] = frozenset()
        self._caught_up: frozenset[TaskId] = frozenset()
        self._news = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def follow(self, tasks: Collection[TaskId]) -> None:
        """Which tasks, from now on. Returns at once."""
        with self._changed:
            if self._wanted == (wanted := frozenset(tasks)) or self._closing:
                return
            self._wanted = wanted
            self._caught_up &= wanted
            if self._thread.ident is None:
                self._thread.start()
        self.wake()

    def caught_up(self) -> frozenset[TaskId]:
        """Those that could begin here without much to restore."""
        with self._changed:
            return self._caught_up

    def wake(self) -> None:
        """Spark has started, perhaps once more. Returns at once."""
        with self._changed:
            self._news = True
            self._changed.notify_all()

    def close(self) -> None:
        """End its thread. Returns at once; what it has begun in Spark's process ends with the engine."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        look_s: float | None = None
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._news or self._closing, look_s)
                if self._closing:
                    return
                self._news = False
                wanted = self._wanted
            try:
                found = self._follow(wanted)
            except Exception as error:  # such as a JVM that is gone; nothing depends on it
                log.info("standbys: %r; it is tried again in %g s", error, _AGAIN_S)
                found = None
            with self._changed:
                has_more = found is not None and not found <= self._caught_up
                self._caught_up = (found or frozenset()) & self._wanted
            if has_more:
                self._on_caught_up()
            is_behind = found is not None and not found >= wanted
            # Also if all have caught up: what has may be opened anew.
            look_s = (_LOOK_S if is_behind else _AGAIN_S) if wanted else None
