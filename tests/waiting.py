"""Waiting for a condition, with a deadline: what tests do instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["wait_until"]

T = TypeVar("T")
_PAUSE = threading.Event()


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 60.0) -> T:
    """The first true result of `condition`, asked again and again until the deadline; else the test fails."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {timeout_s:g} s: {what}; the last result was {result!r}")
        _PAUSE.wait(0.02)
