"""Waiting for a condition, with a deadline: what tests do instead of sleeping.

Nothing else in the tests pauses (tests/test_architecture.py): neither by `sleep` nor by waiting for an event
that nobody sets.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["holds_for", "wait_until"]

T = TypeVar("T")
_PAUSE = threading.Event()


def wait_until(condition: Callable[[], T], what: str, timeout_s: float = 60.0, every_s: float = 0.02) -> T:
    """The first true result of `condition`, asked again and again until the deadline; else the test fails."""
    deadline = time.monotonic() + timeout_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {timeout_s:g} s: {what}; the last result was {result!r}")
        _PAUSE.wait(every_s)


def holds_for(seconds: float, condition: Callable[[], bool], what: str) -> None:
    """A claim about a span of time, such as that something does not happen: true all through it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert condition(), f"no longer after {seconds - (end - time.monotonic()):.2f} s: {what}"
        _PAUSE.wait(0.02)
    assert condition(), f"no longer after {seconds:g} s: {what}"
