"""`millstream kafka`: a real broker in the foreground."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.error_messages import Debug
from millstream.program_end import Terminable, Terminated

__all__ = ["kafka", "parse_topic"]


def kafka(
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Keep the data here. Without it, the data is deleted when the broker stops."),
    ] = None,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on, on 127.0.0.1; 0 picks a free one.")
    ] = 0,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[:PARTITIONS]", help="Create this topic. Can be given more than once."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Run a real Apache Kafka broker on this machine until Ctrl-C."""
    topics = [parse_topic(text) for text in topic or ()]
    try:
        with Terminable():  # services are stopped by SIGTERM
            code = _run(data_dir, port, topics)
    except KeyboardInterrupt:
        typer.echo("\nstopped before it was ready", err=True)
        code = 130
    raise typer.Exit(code)


def parse_topic(text: str) -> tuple[str, int]:
    """(name, partitions) of `name` or `name:partitions`.

    Raises:
        typer.BadParameter: it is neither.
    """
    name, colon, count = text.partition(":")
    if not name or (colon and not (count.isascii() and count.isdigit() and int(count) > 0)):
        raise typer.BadParameter(
            f"{text!r} is not a topic; use its name, or name:partitions such as lines:4",
            param_hint="--topic",
        )
    return name, int(count) if colon else 1


def _run(data_dir: Path | None, port: int, topics: list[tuple[str, int]]) -> int:
    """Start the broker, print its address, and wait; the exit code."""
    from millstream.broker import EmbeddedKafka

    began = time.monotonic()
    typer.echo("starting Kafka; this takes some seconds", err=True)
    with EmbeddedKafka(data_dir, port=port) as broker:
        present = broker.topics()
        for name, partitions in topics:
            if name not in present:
                broker.create_topic(name, partitions)
        seconds = time.monotonic() - began
        fate = "removed when it stops" if data_dir is None else "kept"
        typer.echo(f"Kafka is ready ({seconds:.1f} s): bootstrap.servers={broker.bootstrap_servers}")
        typer.echo(f"  data    {broker.data_dir} ({fate})")
        typer.echo(f"  log     {broker.log_file}")
        for name, partitions in topics:
            what = "already existed" if name in present else f"partitions: {partitions}"
            typer.echo(f"  topic   {name} ({what})")
        typer.echo("Ctrl-C stops it.")
        sys.stdout.flush()
        try:
            broker.wait_until_ended()
        except KeyboardInterrupt:
            typer.echo("\nstopping")
            return 0
        except Terminated:
            typer.echo("\nstopping")
            raise
        typer.echo(f"error: {broker.how_it_ended()}", err=True)
        return 1
