"""The command `millstream`. Each command's own modules are loaded when it runs, so that --help is quick."""

from __future__ import annotations

import platform
from enum import StrEnum
from importlib import metadata
from typing import Annotated

import typer

from millstream.cli.demo import demo
from millstream.cli.errors import Debug, ErrorBoundary
from millstream.cli.kafka import kafka
from millstream.cli.registry import registry
from millstream.cli.reset import reset

__all__ = ["app", "main"]

app = typer.Typer(
    cls=ErrorBoundary,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(kafka)
app.command()(registry)
app.command()(reset)


class Importance(StrEnum):
    """How likely one is to need a setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@app.callback()
def millstream(debug: Debug = False) -> None:
    """Kafka Streams for Python, driven by Spark."""


@app.command()
def config(
    importance: Annotated[
        Importance, typer.Option(help="Leave out the settings that are less important than this.")
    ] = Importance.LOW,
) -> None:
    """List every setting of a client: what it is, its default, what it does."""
    from millstream.config import StreamsConfig
    from millstream.config_keys import Importance as Wanted

    typer.echo(StreamsConfig.describe(Wanted(importance.value)))


@app.command()
def version() -> None:
    """Say which versions these are, of Millstream and of what it runs on."""
    from millstream.errors import JavaNotFoundException
    from millstream.java import find_java

    try:
        java = find_java()
        found = f"{java.version} ({java.source}: {java.home})"
    except JavaNotFoundException:
        found = "none that fits; `millstream demo` says what was looked at"
    for name, what in (
        ("millstream", _installed("millstream")),
        ("python", platform.python_version()),
        ("pyspark", _installed("pyspark")),
        ("java", found),
        ("confluent-kafka", _installed("confluent-kafka")),
        ("rocksdict", _installed("rocksdict")),
    ):
        typer.echo(f"{name:<16} {what}")


def _installed(name: str) -> str:
    if name == "millstream":
        from millstream import __version__

        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Run the command line."""
    app()
