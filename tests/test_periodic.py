"""A thread that does something every so often."""

from __future__ import annotations

import logging
import threading

import pytest
from waiting import wait_until

from millstream.periodic import PeriodicThread

log = logging.getLogger(__name__)


def test_a_failure_is_logged_and_the_action_called_again(caplog: pytest.LogCaptureFixture) -> None:
    """It runs on a thread of its name until it is stopped; stopping twice is allowed."""
    called: list[str] = []

    def act() -> None:
        called.append(threading.current_thread().name)
        raise ValueError("no")

    thread = PeriodicThread("every-so-often", 0.001, act, log=log, failure="it failed")
    thread.start()
    wait_until(lambda: len(called) > 2, "it is called again", 10)
    assert thread.stop()
    assert thread.stop()
    assert set(called) == {"every-so-often"}
    assert "it failed" in caplog.text
    assert "ValueError: no" in caplog.text


def test_stopping_one_that_never_started_or_waits() -> None:
    """Is done at once; and its action, in the thread itself, sees that it is to stop."""
    thread = PeriodicThread("idle", 3600.0, lambda: None, log=log, failure="")
    assert thread.stop()
    thread = PeriodicThread("waiting", 3600.0, lambda: None, log=log, failure="")
    thread.start()
    assert thread.stop(5.0)
    seen: list[bool] = []

    def stop() -> None:
        seen.append(own.stop() or own.is_stopping)

    own = PeriodicThread("own", 0.001, stop, log=log, failure="")
    own.start()
    wait_until(lambda: seen, "it stops itself", 10)
    assert seen == [True]
    assert own.stop()
