"""`millstream registry`: a schema registry in the foreground, for development and tests."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from millstream.cli.error_messages import Debug
from millstream.program_end import Terminable, Terminated

__all__ = ["registry"]


def registry(
    bootstrap_servers: Annotated[
        str | None,
        typer.Option(
            help="Keep the schemas in a compacted topic of this Kafka. Without it, they are in memory, "
            "and lost when the registry stops."
        ),
    ] = None,
    topic: Annotated[str, typer.Option(help="The topic.")] = "_schemas",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on, on 127.0.0.1; 0 picks a free one.")
    ] = 8081,
    debug: Debug = False,
) -> None:
    """Run a small schema registry on this machine until Ctrl-C. It is for development: one process, no login,
    and compatibility checks for Avro only."""
    from millstream.registry.http import RegistryServer
    from millstream.registry.topic import RegistryTopic

    with contextlib.suppress(KeyboardInterrupt, Terminated), Terminable():  # services are stopped by SIGTERM
        log = None
        if bootstrap_servers is not None:
            log = RegistryTopic({"bootstrap.servers": bootstrap_servers}, topic)
        known = [] if log is None else log.load()
        try:
            server = RegistryServer(port, known=known, append=log.append if log else lambda changes: None)
        except OSError as error:
            raise typer.BadParameter(f"cannot listen on port {port}: {error}", param_hint="--port") from None
        kept = "in memory" if log is None else f"in the topic '{topic}' of {bootstrap_servers}"
        typer.echo(f"A schema registry for development: schema.registry.url={server.url}")
        typer.echo(f"Schemas are kept {kept}: {len(server.state.subjects())} subjects. Ctrl-C stops it.")
        try:
            server.wait_until_closed()
        finally:
            server.close()
