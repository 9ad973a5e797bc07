"""A real word count, watched live; then checked, and explained.

The main thread only shows things and waits, so that Ctrl-C works at any moment: the thread notes the signal,
asks everything to end, and kills what has not ended in time. Nothing is lost, since all of the demo's data
are temporary.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import psutil

from millstream_demo.corpus import Corpus, given, standard_library

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import Console

    from millstream import StreamsConfig
    from millstream_demo.run import DemoRun
    from millstream_demo.screen import Presenter

__all__ = ["Machine", "run"]

FAILED = 1

_FRAME_S = 0.125
_PATIENCE_S = 6.0
_PATIENCE_INTERRUPTED_S = 1.2
_TAIL_LINES = 12
_TAIL_WIDTH = 200


class Spark(Protocol):
    """A Spark that starts before the client exists."""

    @property
    def spark(self) -> SparkSession: ...

    def close(self) -> None: ...


class Machine(Protocol):
    """What `millstream demo` does for this program."""

    @property
    def program(self) -> str: ...

    def prepare(self) -> None: ...

    def start_spark(self, config: StreamsConfig) -> Spark: ...

    def print_error(self, error: Exception) -> None: ...


def run(
    files: Sequence[Path], machine: Machine, folder: Path, *, keep: bool, plain: bool, log: Path | None
) -> int:
    """Count, show and check. Returns the exit code. Everything written goes into `folder`.

    Raises:
        UnfitText: a file cannot be used.
    """
    began = time.monotonic() - _age_s()
    corpus = given(files) if files else standard_library()
    with Interrupts() as interrupts:
        try:
            return _demo(machine, corpus, folder, interrupts, began=began, keep=keep, plain=plain, log=log)
        except KeyboardInterrupt:
            _say_stopped()
            return interrupts.exit_code


class Interrupts:
    """Ctrl-C, TERM, and the end of the terminal: noted while `quiet`, else raised as KeyboardInterrupt.

    The note is a plain field. An event has a lock, and a handler that runs while its own thread holds the
    lock would wait for itself for ever.
    """

    def __init__(self) -> None:
        self.quiet = False
        self.number = 0
        self._before: dict[int, object] = {}

    @property
    def seen(self) -> bool:
        return self.number != 0

    @property
    def exit_code(self) -> int:
        """As in shells: 128 plus the signal's number."""
        return 128 + (self.number or signal.SIGINT)

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self.quiet:
            raise KeyboardInterrupt


def _demo(
    machine: Machine,
    corpus: Corpus,
    folder: Path,
    interrupts: Interrupts,
    *,
    began: float,
    keep: bool,
    plain: bool,
    log: Path | None,
) -> int:
    """The exit code: 0, or 1 if something failed or a count was wrong."""
    from rich.console import Console

    from millstream_demo.screen import suggestions, title

    console = Console(highlight=False)
    console.print(title(corpus), soft_wrap=not console.is_terminal)
    # Python ends by the signal, whatever its exit code should be, once a KeyboardInterrupt has passed through
    # code that it compiles from text, as dataclasses do when a module is imported.
    interrupts.quiet = True
    from millstream_demo.run import DemoRun

    interrupts.quiet = False
    if interrupts.seen:
        raise KeyboardInterrupt
    machine.prepare()
    interrupts.quiet = True
    with _logging_to(log or folder / "millstream.log") as log_file:
        run = DemoRun(corpus, folder, machine, began=began)
        code = FAILED
        try:
            _watch(run, console, interrupts, plain=plain)
            if run.failure is not None:
                _show_logs(run, log_file)
                raise run.failure
            code = _conclude(run, console)
            if keep and code == 0:
                _keep(run, console, interrupts)
            else:
                suggestions(console, machine.program)
        except KeyboardInterrupt:
            code = interrupts.exit_code
        except Exception as error:
            machine.print_error(error)
        finally:
            interrupts.quiet = True
            _end(run, interrupts, code)
    return code


def _end(run: DemoRun, interrupts: Interrupts, code: int) -> None:
    """Close everything, and exit the process if that is the only way to be quick."""
    asked, began = interrupts.seen, time.monotonic()
    gently = run.close(_PATIENCE_INTERRUPTED_S if asked else _PATIENCE_S)
    if asked or interrupts.seen:
        _say_stopped(time.monotonic() - began)
    elif gently:
        return
    # Threads that are still starting something would restart it, or delay the exit.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the terminal may be gone
            stream.flush()
    run.kill_children()
    os._exit(code)


def _watch(run: DemoRun, console: Console, interrupts: Interrupts, *, plain: bool) -> None:
    """Start, and show the progress until the end.

    Raises:
        KeyboardInterrupt: there was a signal.
    """
    run.start()
    presenter = _presenter(console, plain)
    try:
        while not run.ended.is_set() and not interrupts.seen:
            presenter.show(run.view())
            run.ended.wait(_FRAME_S)
    finally:
        presenter.stop(run.view())
    if interrupts.seen:
        raise KeyboardInterrupt


def _conclude(run: DemoRun, console: Console) -> int:
    """Print the report. Returns the exit code."""
    from millstream_demo.screen import report

    assert run.check is not None
    report(console, run.view(), run.check)
    return 0 if run.check.good else FAILED


def _keep(run: DemoRun, console: Console, interrupts: Interrupts) -> None:
    """Answer what is typed until the user leaves.

    Raises:
        StreamsException: the store can no longer be read.
        KeyboardInterrupt: a TERM arrived. Ctrl-C is one of the ways to leave.
    """
    from millstream_demo.prompt import ask_and_answer, explain

    explain(console, run)
    interrupts.quiet = False
    try:
        ask_and_answer(console, run)
    except KeyboardInterrupt:
        console.print()
        if interrupts.number != signal.SIGINT:
            raise
    finally:
        interrupts.quiet = True


def _presenter(console: Console, plain: bool) -> Presenter:
    from millstream_demo.screen import LivePresenter, PlainPresenter

    live = console.is_terminal and not console.is_dumb_terminal and not plain
    return LivePresenter(console) if live else PlainPresenter(console)


@contextmanager
def _logging_to(path: Path) -> Iterator[Path]:
    """Send everything that is logged or warned to a file: on the terminal it would garble the screen."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(
        logging.Formatter("%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s")
    )
    root = logging.getLogger()
    level, hook = root.level, threading.excepthook
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.captureWarnings(True)
    threading.excepthook = lambda failure: root.error(
        "thread %s failed",
        failure.thread and failure.thread.name,
        exc_info=failure.exc_value,
    )
    try:
        yield path
    finally:
        threading.excepthook = hook
        logging.captureWarnings(False)
        root.setLevel(level)
        root.removeHandler(handler)
        handler.close()


def _show_logs(run: DemoRun, log_file: Path) -> None:
    """Print the last lines of Millstream's log and of Spark's. The broker's errors include its own."""
    for whose, path in (("Millstream", log_file), ("Spark", run.spark_log)):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # it wrote no log
        if lines:
            print(f"\nthe end of {whose}'s log", file=sys.stderr)
            for line in lines[-_TAIL_LINES:]:
                print(f"  {line[:_TAIL_WIDTH]}", file=sys.stderr)


def _say_stopped(seconds: float = 0.0) -> None:
    with suppress(OSError):  # the terminal may be gone
        print(f"stopped; everything is closed ({seconds:.1f} s)", file=sys.stderr)


def _age_s() -> float:
    """The age of this process, which is how long the user has already waited."""
    return max(0.0, min(10.0, time.time() - psutil.Process().create_time()))
