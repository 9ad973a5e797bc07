"""The demo's handler of signals, whatever the main thread does when one comes."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any, cast

import pytest
from millstream_demo import main
from millstream_demo import run as at_work
from millstream_demo.corpus import Corpus
from millstream_demo.main import Interrupts
from millstream_demo.run import DemoRun
from rich.console import Console

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


class _Machine:
    """One on which everything is there."""

    program = "millstream"

    def prepare(self) -> None:
        pass

    def start_spark(self, config: object) -> Any:
        raise AssertionError("nothing is started here")

    def print_error(self, error: Exception) -> None:
        raise error


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
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, keep: bool
) -> None:
    """Its exit code is 0; with `--keep` it is the questions that come then."""
    kept: list[object] = []
    monkeypatch.setattr(at_work, "DemoRun", _Counted)
    monkeypatch.setattr(main, "_presenter", lambda console, plain: _Blind())
    monkeypatch.setattr(main, "_conclude", lambda run, console: 0)
    monkeypatch.setattr(main, "_keep", lambda run, console, interrupts: kept.append(run))
    with Interrupts() as interrupts:
        code = main._demo(
            _Machine(), Corpus((), ""), tmp_path, interrupts, began=0.0, keep=keep, plain=True, log=None
        )
    assert code == 0
    assert ("what to try next" in capsys.readouterr().out, len(kept)) == ((False, 1) if keep else (True, 0))


@pytest.mark.timeout(30)
def test_a_signal_ends_the_demo_at_any_moment_of_its_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each line that runs meanwhile; a handler that needs what the wait holds never ends."""
    monkeypatch.setattr(main, "_FRAME_S", 0.0)
    monkeypatch.setattr(main, "_presenter", lambda console, plain: _Blind())
    console = Console()
    for moment in range(MOMENTS):
        run = _Run()
        with Interrupts() as interrupts:
            interrupts.quiet = True
            signalled = _SignalBefore(moment)
            before = sys.gettrace()
            sys.settrace(signalled)
            try:
                main._watch(cast(DemoRun, run), console, interrupts, plain=True)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(before)
        assert signalled.left < 0, "it ended without a signal"
        assert interrupts.exit_code == 128 + signal.SIGTERM
