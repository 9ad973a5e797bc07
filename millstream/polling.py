"""Waiting for things that no one reports, by checking repeatedly until a deadline.

A condition that this process makes true has its own event or condition variable to wait on. Some things are
not reported: what a cluster shows, what a directory contains, whether RocksDB accepts writes again. Only this
module polls for them, so that each such loop has a deadline and an interval; a test finds any other pause by
its shape (tests/test_architecture.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

__all__ = ["looks", "pause"]


def looks(timeout_s: float, *, every_s: float, now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Iterations of a polling loop: the first one at once, then one every `every_s`.

    The last one is at the deadline or shortly after it, so that a change during the last pause is seen. Leave
    the loop with `break` or `return`; its `else` handles the timeout.
    """
    deadline = now() + timeout_s
    while True:
        yield
        if now() >= deadline:
            return
        pause(every_s)


def pause(seconds: float) -> None:
    """A pause for loops that have their own deadline and cannot use `looks`."""
    time.sleep(seconds)
