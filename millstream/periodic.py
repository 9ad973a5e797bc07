"""A thread that does something periodically until it is stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

__all__ = ["PeriodicThread"]


class PeriodicThread:
    """Calls `action` every `every_s`, the first time after that interval, on its own thread called `name`.

    For optional work: what `action` raises is logged, and it is called again.

    Args:
        log: the logger of the action's failures.
        failure: the message for them.
    """

    def __init__(
        self, name: str, every_s: float, action: Callable[[], object], *, log: logging.Logger, failure: str
    ) -> None:
        self._every_s = every_s
        self._action = action
        self._log = log
        self._failure = failure
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def is_stopping(self) -> bool:
        """Whether it was asked to stop; a long action checks this in between."""
        return self._stopping.is_set()

    def stop(self, timeout_s: float = 5.0) -> bool:
        """End the thread, after the current action. Returns whether it has ended. Idempotent."""
        self._stopping.set()
        if self._thread.ident is None:
            return True
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self._action()
            except Exception:
                self._log.exception(self._failure)
