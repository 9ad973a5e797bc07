"""`millstream run`: a program in the foreground, until Ctrl-C or SIGTERM.

States, READY and the end are printed on stdout, one per line. The log goes to stderr. The exit codes are
0 closed, 1 ended in ERROR or failed to start, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.command_settings import ApplicationId, BootstrapServer, ConfigFile, Setting, settings
from millstream.cli.error_messages import BriefFormatter, Debug
from millstream.cli.output import Json, as_json
from millstream.cli.program import AppDir, Program, load_topology, parse_program
from millstream.cli.reload import RELOADED, end_with_parent, watch_and_run
from millstream.foreign import printable
from millstream.logs import logging as show_logs

if TYPE_CHECKING:
    from millstream.runtime.client import KafkaStreams
    from millstream.states import State

__all__ = ["Level", "Teller", "run", "serving_settings"]


class Level(StrEnum):
    """How much of the log is shown."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def run(
    program: Program,
    bootstrap_server: BootstrapServer = None,
    application_id: ApplicationId = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    threads: Annotated[
        int | None,
        typer.Option("--threads", min=1, help="The number of stream threads (num.stream.threads)."),
    ] = None,
    serve: Annotated[
        str | None,
        typer.Option(
            "--serve",
            metavar="[HOST:]PORT",
            help="Serve queries over HTTP at this address (query.server.*), for `millstream status`, `query` "
            "and `top`. Without a host, only for this machine.",
        ),
    ] = None,
    ui: Annotated[
        bool,
        typer.Option("--ui", help="Also serve the dashboard, at the address of --serve."),
    ] = False,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="For development: restart whenever a Python file of the program changes."
        ),
    ] = False,
    log_level: Annotated[Level, typer.Option("--log-level", help="The level of the log on stderr.")] = (
        Level.WARNING
    ),
    app_dir: AppDir = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run a program until Ctrl-C or SIGTERM.

    Its configuration comes from a file, the environment and flags; later ones override earlier ones. Exit
    codes: 0 closed, 1 ended in ERROR, 2 wrong usage, 130 Ctrl-C, 143 SIGTERM.
    """
    if reload:
        named = parse_program(program)
        folder = (named.folder or app_dir or Path()).resolve()
        watched = [folder] if config_file is None else [folder, config_file.resolve()]
        watch_and_run(sys.argv[1:], watched)
    if os.environ.get(RELOADED):
        end_with_parent()
    handler = show_logs(log_level.value.upper())
    if not debug and log_level is not Level.DEBUG:
        handler.setFormatter(BriefFormatter())
    given = settings(
        config_file,
        os.environ,
        set_,
        {
            "bootstrap.servers": bootstrap_server,
            "application.id": application_id,
            "num.stream.threads": threads,
            **serving_settings(serve),
            "ui.enabled": ui or None,
        },
    )
    for key, flag in (("application.id", "--application-id"), ("bootstrap.servers", "--bootstrap-server")):
        if key not in given:
            variable = f"MILLSTREAM_{key.replace('.', '_').upper()}"
            raise typer.BadParameter(
                f"'{key}' is missing: set it here, in {variable}, or in --config-file", param_hint=flag
            )
    from millstream.config import StreamsConfig

    config = StreamsConfig(given)
    teller = Teller(as_json_lines=json, ui=bool(config["ui.enabled"]))
    topology = load_topology(program, app_dir)
    from millstream.runtime.client import KafkaStreams

    streams = KafkaStreams(topology, config)
    run_until_ended(streams, teller)


def run_until_ended(streams: KafkaStreams, teller: Teller) -> None:
    """Run a client that has not been started yet, and report on it.

    Raises:
        StreamsException: it could not start, or ended in ERROR.
        KeyboardInterrupt, SystemExit: Ctrl-C, or SIGTERM; the client is closed.
    """
    ended = threading.Event()

    def changed(new: State, old: State) -> None:
        teller.state(new.name, old.name)
        if new.name == "RUNNING":
            teller.ready(streams.client_id, streams.bootstrap_servers, streams.query_server_url)
        if new.name in ("NOT_RUNNING", "ERROR"):
            ended.set()

    streams.set_state_listener(changed)
    with streams:
        ended.wait()
    streams.wait()  # raises the error with which it ended


class Teller:
    """Prints what happens to a client on stdout, as lines for people or as JSON.

    `ui`: whether the client has a dashboard.
    """

    def __init__(self, *, as_json_lines: bool, ui: bool = False) -> None:
        self._is_json = as_json_lines
        self._has_ui = ui
        self._began = time.monotonic()
        self._was_ready = False

    def state(self, new: str, old: str) -> None:
        """A transition."""
        self._say({"event": "state", "from": old, "to": new}, f"State transition from {old} to {new}")

    def ready(self, client: str, servers: str, url: str | None) -> None:
        """Report once that the client runs; it may enter RUNNING several times."""
        if self._was_ready:
            return
        self._was_ready = True
        seconds = round(time.monotonic() - self._began, 1)
        asked = (
            f"queries at {url}" + (f" (dashboard: {url}/ui/)" if self._has_ui else "")
            if url is not None
            else "no query server: add one with --serve 7070"
        )
        self._say(
            {
                "event": "ready",
                "client": client,
                "seconds": seconds,
                "bootstrap_servers": servers,
                "url": url,
            },
            f"READY in {seconds} s: client {printable(client)} on {printable(servers)}; {asked}. Ctrl-C "
            "stops "
            "it.",
        )

    def _say(self, data: dict[str, Any], text: str) -> None:
        typer.echo(as_json(data, one_line=True) if self._is_json else text)
        sys.stdout.flush()


def serving_settings(serve: str | None) -> dict[str, Any]:
    """The settings that `--serve` implies.

    Raises:
        typer.BadParameter: it is not an address.
    """
    if serve is None:
        return {}
    from millstream.model import HostInfo

    address = serve if ":" in serve else f"127.0.0.1:{serve}"
    try:
        HostInfo.parse(address)
    except ValueError:
        raise typer.BadParameter(
            f"{serve!r} is not an address to listen on; use one like 7070 or 0.0.0.0:7070",
            param_hint="--serve",
        ) from None
    return {"query.server.enabled": True, "query.server.listen": address}
