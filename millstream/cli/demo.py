"""`millstream demo`: a real word count, watched live; then checked, and explained.

The main thread only shows things and waits, so that Ctrl-C ends it at any moment: it takes note of the
signal, asks everything to end, and kills what has not ended in time. Nothing is lost by that, since all of
the demo's data are temporary.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.errors import FAILED, Debug, print_error

if TYPE_CHECKING:
    from rich.console import Console

    from millstream.cli.corpus import Corpus
    from millstream.cli.demo_run import DemoRun
    from millstream.cli.demo_screen import Presenter

__all__ = ["demo"]

_FRAME_S = 0.125
_PATIENCE_S = 6.0
_PATIENCE_INTERRUPTED_S = 1.2
_TAIL_LINES = 12
_TAIL_WIDTH = 200


def demo(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES",
            help="Text files, or directories of them. By default the sources of Python's standard library.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Afterwards keep everything running, and answer queries.")
    ] = False,
    plain: Annotated[
        bool, typer.Option("--plain", help="Print plain lines, as without a terminal; no live screen.")
    ] = False,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write Millstream's log here, and keep it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Count words, live: a real Kafka, Spark, RocksDB, and interactive queries."""
    began = time.monotonic() - _age_s()
    corpus = _corpus(files)
    if log is not None:
        try:
            log.touch()
        except OSError as error:
            raise typer.BadParameter(f"{log}: {error.strerror or error}", param_hint="--log") from None
    with Interrupts() as interrupts:
        try:
            code = _demo(context, corpus, interrupts, began=began, keep=keep, plain=plain, log=log)
        except KeyboardInterrupt:
            _say_stopped()
            code = interrupts.exit_code
    raise typer.Exit(code)


class Interrupts:
    """Ctrl-C, TERM, and the end of the terminal: noted while `quiet`, else raised as KeyboardInterrupt.

    What is noted is a plain field. An event has a lock, and a handler that comes while the same thread holds
    it would wait for itself, for ever.
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
        """As shells have it: 128 and the signal's number."""
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
    context: typer.Context,
    corpus: Corpus,
    interrupts: Interrupts,
    *,
    began: float,
    keep: bool,
    plain: bool,
    log: Path | None,
) -> int:
    """The exit code: 0, or 1 if something failed or a count was wrong."""
    from rich.console import Console

    from millstream.cli.demo_screen import suggestions, title

    console = Console(highlight=False)
    console.print(title(corpus), soft_wrap=not console.is_terminal)
    _prepare()
    from millstream.cli.demo_run import DemoRun
    from millstream.scratch import PrivateDirectory

    interrupts.quiet = True
    held = PrivateDirectory("demo")  # until the end, or the next demo would take it for a dead one's
    work = held.path
    with _logging_to(log or work / "millstream.log") as log_file:
        run = DemoRun(corpus, work, began=began)
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
                suggestions(console, _program())
        except KeyboardInterrupt:
            code = interrupts.exit_code
        except Exception as error:
            print_error(error, context)
        finally:
            interrupts.quiet = True
            _end(run, interrupts, code)
    held.remove()
    return code


def _end(run: DemoRun, interrupts: Interrupts, code: int) -> None:
    """Close everything, and leave the process if that is the only way to be quick."""
    asked, began = interrupts.seen, time.monotonic()
    gently = run.close(_PATIENCE_INTERRUPTED_S if asked else _PATIENCE_S)
    if asked or interrupts.seen:
        _say_stopped(time.monotonic() - began)
    elif gently:
        return
    # Threads that are still starting something would start it anew, or hold up the exit.
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # the terminal may be gone
            stream.flush()
    run.kill_children()
    os._exit(code)


def _watch(run: DemoRun, console: Console, interrupts: Interrupts, *, plain: bool) -> None:
    """Start, and show what goes on until it has ended.

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
    """The report; the exit code."""
    from millstream.cli.demo_screen import report

    assert run.check is not None
    report(console, run.view(), run.check)
    return 0 if run.check.good else FAILED


def _keep(run: DemoRun, console: Console, interrupts: Interrupts) -> None:
    """Answer what is typed until the user has enough.

    Raises:
        StreamsException: the store cannot be read any more.
        KeyboardInterrupt: a TERM came. Ctrl-C is one of the ways to leave.
    """
    from millstream.cli.prompt import ask_and_answer, explain

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


def _corpus(files: list[Path] | None) -> Corpus:
    """Raises:
    typer.BadParameter: a file cannot be used.
    """
    from millstream.cli.corpus import UnfitText, given, standard_library

    try:
        return given(files) if files else standard_library()
    except UnfitText as error:
        raise typer.BadParameter(str(error), param_hint="FILES") from None


def _prepare() -> None:
    """Java and the jars, before anything is drawn: the first run downloads them, and shows how far it is.

    Raises:
        SetupException: there is no Java, or a jar cannot be had.
    """
    from importlib.metadata import version

    from millstream.jars import BROKER_SET, connector_set, ensure_jars
    from millstream.java import find_java

    find_java()
    ensure_jars(BROKER_SET)
    ensure_jars(connector_set(version("pyspark")))


def _presenter(console: Console, plain: bool) -> Presenter:
    from millstream.cli.demo_screen import LivePresenter, PlainPresenter

    live = console.is_terminal and not console.is_dumb_terminal and not plain
    return LivePresenter(console) if live else PlainPresenter(console)


@contextmanager
def _logging_to(path: Path) -> Iterator[Path]:
    """Everything that is logged or warned goes to a file: on the terminal it would tear the screen."""
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
    """The last lines of Millstream's log and of Spark's; an error of the broker's brings its own."""
    for whose, path in (("Millstream", log_file), ("Spark", run.spark_log)):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue  # it wrote none
        if lines:
            typer.secho(f"\nthe last of {whose}'s log", bold=True, err=True)
            for line in lines[-_TAIL_LINES:]:
                typer.echo(f"  {line[:_TAIL_WIDTH]}", err=True)


def _say_stopped(seconds: float = 0.0) -> None:
    with suppress(OSError):  # the terminal may be gone
        typer.echo(f"stopped; everything is closed ({seconds:.1f} s)", err=True)


def _age_s() -> float:
    """How long this process has been there: what a person has waited already."""
    import psutil

    return max(0.0, min(10.0, time.time() - psutil.Process().create_time()))


def _program() -> str:
    """How this program was called, so that what is suggested can be copied."""
    name = Path(sys.argv[0])
    if name.name == "__main__.py":
        return "python -m millstream"
    folders = os.environ.get("PATH", "").split(os.pathsep)
    if str(name.parent) in (*folders, "."):
        return name.name
    try:
        return str(name.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(name)
