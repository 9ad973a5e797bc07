"""Waiting for what nobody reports: look again and again, until a deadline.

A condition that this process makes true has an event or a condition variable of its own, and is waited for
there. Some things report to nobody: what a cluster shows, what stands in a directory, whether RocksDB takes
writes again. They are looked at here and nowhere else, so that each such loop has a deadline and says how
often it looks; a test knows every other pause by its shape (tests/test_architecture.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

__all__ = ["looks", "pause"]


def looks(timeout_s: float, *, every_s: float, now: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Iterations of a loop that looks for something: the first one at once, then one every `every_s`.

    The last one begins at the deadline or shortly after it, so that what became true while the loop paused is
    seen. Leave the loop with `break` or `return`; its `else` is for what has not happened in time.
    """
    deadline = now() + timeout_s
    while True:
        yield
        if now() >= deadline:
            return
        pause(every_s)


def pause(seconds: float) -> None:
    """For loops that have a deadline of their own and cannot be `looks`."""
    time.sleep(seconds)
