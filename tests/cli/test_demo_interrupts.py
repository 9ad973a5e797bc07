"""The demo's handler of signals, whatever the main thread does when one comes."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any, cast

import pytest
from rich.console import Console

from millstream.cli import demo, demo_run
from millstream.cli.corpus import Corpus
from millstream.cli.demo import Interrupts
from millstream.cli.demo_run import DemoRun

MOMENTS = 120
"""Some rounds of the loop in which the demo waits."""


class _Run:
    """A run that goes on for ever."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def start(self) -> None:
        pass

    def view(self) -> None:
        pass


class _SignalBefore:
    """A trace function that raises SIGTERM after so many steps."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        self.left -= 1
        if self.left < 0:
            sys.settrace(None)
            signal.raise_signal(signal.SIGTERM)
            return None
        return self


class _Blind:
    def show(self, view: object) -> None:
        pass

    def stop(self, view: object) -> None:
        pass


class _Counted(_Run):
    """A run that has counted everything, and has closed when it is asked to."""

    failure = None

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        self.ended.set()

    def close(self, patience_s: float) -> bool:
        return True


@pytest.mark.parametrize("keep", [False, True])
def test_a_demo_that_is_not_kept_ends_and_says_what_to_try_next(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], keep: bool
) -> None:
    """Its exit code is 0; with `--keep` it is the questions that come then."""
    kept: list[object] = []
    monkeypatch.setattr(demo_run, "DemoRun", _Counted)
    monkeypatch.setattr(demo, "_prepare", lambda: None)
    monkeypatch.setattr(demo, "_presenter", lambda console, plain: _Blind())
    monkeypatch.setattr(demo, "_conclude", lambda run, console: 0)
    monkeypatch.setattr(demo, "_keep", lambda run, console, interrupts: kept.append(run))
    with Interrupts() as interrupts:
        code = demo._demo(
            cast(Any, None), Corpus((), ""), interrupts, began=0.0, keep=keep, plain=True, log=None
        )
    assert code == 0
    assert ("what to try next" in capsys.readouterr().out, len(kept)) == ((False, 1) if keep else (True, 0))


@pytest.mark.timeout(30)
def test_a_signal_ends_the_demo_at_any_moment_of_its_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each line that runs meanwhile; a handler that needs what the wait holds never ends."""
    monkeypatch.setattr(demo, "_FRAME_S", 0.0)
    monkeypatch.setattr(demo, "_presenter", lambda console, plain: _Blind())
    console = Console()
    for moment in range(MOMENTS):
        run = _Run()
        with Interrupts() as interrupts:
            interrupts.quiet = True
            signalled = _SignalBefore(moment)
            before = sys.gettrace()
            sys.settrace(signalled)
            try:
                demo._watch(cast(DemoRun, run), console, interrupts, plain=True)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
        assert signalled.left < 0, "it ended without a signal"
        assert interrupts.exit_code == 128 + signal.SIGTERM
