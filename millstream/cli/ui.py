"""`millstream ui`: the dashboard of a running client, in the browser."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from millstream.cli.client_calls import URL, CaFile, Client, Token, Url, path_of
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as

__all__ = ["ui"]


def ui(
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in this machine's browser, if it has one.")
    ] = True,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Open the dashboard of a running client, and print its address.

    The client serves it if `ui.enabled` is set (`millstream run --ui`). If its server has a token, the page
    asks for it: a token is never part of an address.
    """
    with Client(url, token, ca_file) as client:
        client.get(path_of("dashboard"))  # if there is none, the error says what to do
        address = f"{client.url}/ui/"
    opened = open_ and not json and webbrowser.open(address)
    print_as(json, {"url": address}, f"the dashboard is at {address}" + ("" if opened else "; open it there"))
