"""The command `millstream`. Each command's own modules are loaded when it runs, to keep --help fast."""

from __future__ import annotations

import platform
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated

import typer

from millstream.cli.client_commands import failures, pause, resume, status, stores, threads
from millstream.cli.completion import completion
from millstream.cli.demo import demo
from millstream.cli.doctor import doctor
from millstream.cli.error_messages import Debug, ErrorBoundary
from millstream.cli.kafka import kafka
from millstream.cli.lag import lag
from millstream.cli.output import Json, print_as
from millstream.cli.prepare import prepare
from millstream.cli.program_topics import topics
from millstream.cli.query import query
from millstream.cli.registry import registry
from millstream.cli.reset import reset
from millstream.cli.run import run
from millstream.cli.show import describe, explain, graph
from millstream.cli.takeover import takeover
from millstream.cli.top import top
from millstream.cli.topic_commands import produce, tail
from millstream.cli.ui import ui

__all__ = ["app", "main"]

app = typer.Typer(
    cls=ErrorBoundary,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "A program": (run, describe, explain, graph, takeover),
    "An application": (top, ui, status, stores, failures, pause, resume, threads, lag, reset),
    "Topics": (topics, tail, produce),
    "This machine": (doctor, prepare, demo, kafka, registry, completion),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(rich_help_panel=_panel)(_command)
app.add_typer(query, name="query", rich_help_panel="An application")


class Weight(StrEnum):
    """How likely users are to need a setting."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def _say_version(value: bool) -> None:
    if value:
        typer.echo(f"millstream {_installed('millstream')}")
        raise typer.Exit


@app.callback()
def millstream(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_say_version, is_eager=True)
    ] = False,
    debug: Debug = False,
) -> None:
    """Kafka Streams for Python, driven by Spark."""


@app.command(rich_help_panel="This machine")
def config(
    importance: Annotated[
        Weight, typer.Option(help="Leave out settings less important than this.")
    ] = Weight.LOW,
    json: Json = False,
) -> None:
    """List every setting of a client: its type, its default, and what it does."""
    from millstream.config import StreamsConfig
    from millstream.config_keys import KEYS
    from millstream.config_keys import Importance as Wanted

    least = list(Wanted).index(Wanted(importance.value))
    keys = [
        {
            "key": key.name,
            "type": key.type.value,
            "default": key.default,
            "importance": key.importance.value,
            "required": key.required,
            "doc": key.doc,
        }
        for key in KEYS.values()
        if list(Wanted).index(key.importance) <= least
    ]
    print_as(json, {"settings": keys}, StreamsConfig.describe(Wanted(importance.value)))


@app.command(rich_help_panel="This machine")
def version(json: Json = False) -> None:
    """Print the versions of Millstream and of what it requires."""
    from millstream.errors import JavaNotFoundException
    from millstream.java import find_java

    try:
        java = find_java()
        found = f"{java.version} ({java.source}: {java.home})"
    except JavaNotFoundException:
        found = "no suitable one; `millstream doctor` says where it looked"
    versions = {
        "millstream": _installed("millstream"),
        "python": platform.python_version(),
        "pyspark": _installed("pyspark"),
        "java": found,
        "confluent-kafka": _installed("confluent-kafka"),
        "rocksdict": _installed("rocksdict"),
    }
    print_as(json, versions, "\n".join(f"{name:<16} {what}" for name, what in versions.items()))


def _installed(name: str) -> str:
    from importlib import metadata

    if name == "millstream":
        from millstream import __version__

        return __version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def main() -> None:
    """Run the command line."""
    app(prog_name="millstream")
