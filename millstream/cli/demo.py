"""`millstream demo`: starts the program in examples/demo, and does for it what only Millstream itself can do.

The demonstration is an ordinary program that uses only the public names. It cannot fetch jars before it draws
anything, start Spark before there is a client, or print errors as commands do; `DemoMachine` does these for
it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millstream.cli.error_messages import Debug, print_error

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.spark.jvm.session import SharedSession

__all__ = ["demo"]


def demo(
    context: typer.Context,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILES",
            help="Text files, or directories of them. Default: the sources of Python's standard library.",
            show_default=False,
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep everything running at the end, and answer queries.")
    ] = False,
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Print plain lines instead of the live screen, as without a terminal."),
    ] = False,
    log: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write Millstream's log to this file, and keep it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Count words, live: a real Kafka, Spark, RocksDB, and interactive queries."""
    from millstream_demo.corpus import UnfitText
    from millstream_demo.main import run

    from millstream.scratch import PrivateDirectory

    if log is not None:
        try:
            log.touch()
        except OSError as error:
            raise typer.BadParameter(f"{log}: {error.strerror or error}", param_hint="--log") from None
    held = PrivateDirectory("demo")  # until the end; otherwise the next demo would take it for a leftover
    try:
        code = run(files or (), DemoMachine(context), held.path, keep=keep, plain=plain, log=log)
    except UnfitText as error:
        raise typer.BadParameter(str(error), param_hint="FILES") from None
    finally:
        held.remove()
    raise typer.Exit(code)


class DemoMachine:
    """Does what the demonstration cannot do with Millstream's public names."""

    def __init__(self, context: typer.Context) -> None:
        self._context = context

    def prepare(self) -> None:
        """Find Java and the jars before anything is drawn: the first run downloads them, and shows progress.

        Raises:
            SetupException: there is no Java, or a jar cannot be downloaded.
        """
        from importlib.metadata import version

        from millstream.jars import BROKER_SET, connector_set, ensure_jars
        from millstream.java import find_java

        find_java()
        ensure_jars(BROKER_SET)
        ensure_jars(connector_set(version("pyspark")))

    def start_spark(self, config: StreamsConfig) -> SharedSession:
        """Spark, while Kafka is still starting; a client of the same settings joins it."""
        from millstream.spark.jvm.session import SharedSession

        return SharedSession(config.spark, config.application_id)

    def print_error(self, error: Exception) -> None:
        """Print an error as every command does."""
        print_error(error, self._context)

    @property
    def program(self) -> str:
        """How this program was called, so that the user can copy suggested commands."""
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
