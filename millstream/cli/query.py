"""`millstream query`: reads of a running application's stores, by key, range, window and SQL."""

from __future__ import annotations

import json as json_
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

import typer

from millstream.cli.client_calls import URL, CaFile, Client, Token, Url, path_of
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, as_json, table
from millstream.cli.record_forms import shown_time
from millstream.errors import InvalidStateStoreTypeException, StreamsException
from millstream.foreign import printable, printable_lines

__all__ = ["entries_text", "get", "query", "range_", "sessions", "sql", "sql_text", "value_text", "windows"]

query = typer.Typer(no_args_is_help=True, help="Read the stores of a running application.")

_LIMIT = 100
_PAGE = 1_000
_READ_BY = {
    "key-value": "`millstream query get` or `millstream query range`",
    "window": "`millstream query windows`",
    "session": "`millstream query sessions`",
}
_SQL_S = 30.0
"""Longer than the server allows a query."""

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store.", show_default=False)]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key, as text or JSON.", show_default=False)]
Limit = Annotated[int, typer.Option("--limit", "-n", min=1, help="At most this many entries.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="Print the last entry first.")]
Stale = Annotated[
    bool, typer.Option("--stale", help="Also read standby and restoring replicas, which may be behind.")
]
AsOf = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="The value at that time, in a versioned store: 2026-05-01T12:00:00Z."),
]


@query.command("get")
def get(
    store: Store,
    key: Key,
    stale: Stale = False,
    as_of: AsOf = None,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the value of a key. Exit code 1 if it has none."""
    with Client(url, token, ca_file) as client, _kind_named(client, store):
        path = path_of("stores", store, "keys", key, stale=stale or None, as_of=as_of)
        status, found = client.get(path, may_be=(404,))
    if json:
        typer.echo(as_json(found))
    elif status != 404:
        typer.echo(value_text(found["value"]))
    if status == 404:
        if not json:
            typer.echo(f"store '{printable(store)}' has no key {printable(key)!r}", err=True)
        raise typer.Exit(1)


@query.command("range")
def range_(
    store: Store,
    from_: Annotated[str | None, typer.Option("--from", metavar="KEY", help="The first key.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="KEY", help="The last key, inclusive.")] = None,
    prefix: Annotated[str | None, typer.Option(metavar="KEY", help="Only keys that start with this.")] = None,
    limit: Limit = _LIMIT,
    reverse: Reverse = False,
    stale: Stale = False,
    as_of: AsOf = None,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print entries in the order of their keys' bytes; with --json, one per line."""
    given = {"from_": from_, "to": to, "prefix": prefix, "as_of": as_of, "stale": stale or None}
    _print(url, token, ca_file, ("stores", store, "entries"), given, limit, reverse=reverse, json=json)


@query.command("windows")
def windows(
    store: Store,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="The key. Without it, all keys.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Windows that start at this time or later.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Windows that start at this time or earlier.")
    ] = None,
    limit: Limit = _LIMIT,
    reverse: Reverse = False,
    stale: Stale = False,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the windows of a window store; with --json, one per line."""
    place = ("stores", store, "windows") if key is None else ("stores", store, "windows", key)
    given = {"from_": from_, "to": to, "stale": stale or None}
    _print(url, token, ca_file, place, given, limit, reverse=reverse, json=json)


@query.command("sessions")
def sessions(
    store: Store,
    key: Annotated[str | None, typer.Argument(metavar="[KEY]", help="The key. Without it, all keys.")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Sessions that end at this time or later.")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="TIME", help="Sessions that start at this time or earlier.")
    ] = None,
    limit: Limit = _LIMIT,
    reverse: Reverse = False,
    stale: Stale = False,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the sessions of a session store; with --json, one per line."""
    place = ("stores", store, "sessions") if key is None else ("stores", store, "sessions", key)
    given = {"earliest_end": from_, "latest_start": to, "stale": stale or None}
    _print(url, token, ca_file, place, given, limit, reverse=reverse, json=json)


@query.command("sql")
def sql(
    text: Annotated[
        str, typer.Argument(metavar="SQL", help="One SELECT; stores are its tables.", show_default=False)
    ],
    local: Annotated[
        bool, typer.Option("--local", help="Read only this client's state instead of all clients'.")
    ] = False,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Run SQL over stores. The client's server answers it if query.server.sql.enabled is set."""
    with Client(url, token, ca_file) as client:
        answer = client.post(path_of("sql", local=local or None), {"query": text}, timeout_s=_SQL_S)
    columns, rows = [column["name"] for column in answer["columns"]], answer["rows"]
    if json:
        for row in rows:
            typer.echo(as_json(dict(zip(columns, row, strict=True)), one_line=True))
    else:
        typer.echo(sql_text(columns, rows))


def _print(
    url: str,
    token: str | None,
    ca_file: str | None,
    place: Sequence[str],
    given: Mapping[str, Any],
    limit: int,
    *,
    reverse: bool,
    json: bool,
) -> None:
    with Client(url, token, ca_file) as client, _kind_named(client, place[1]):
        found = list(islice(_entries(client, place, given, limit, reverse=reverse), limit))
    if json:
        for entry in found:
            typer.echo(as_json(entry, one_line=True))
    elif found:
        typer.echo(entries_text(found))
    if not json and len(found) == limit:
        typer.echo(f"{limit} entries; there may be more (--limit)", err=True)


@contextmanager
def _kind_named(client: Client, store: str) -> Iterator[None]:
    """For a store of another kind, name the commands that read it."""
    try:
        yield
    except InvalidStateStoreTypeException as error:
        kind = client.get(path_of("stores", store))[1].get("kind")
        if kind not in _READ_BY:
            raise
        raise StreamsException(
            f"'{printable(store)}' is a {kind} store: read it with {_READ_BY[kind]}"
        ) from error


def _entries(
    client: Client, place: Sequence[str], given: Mapping[str, Any], limit: int, *, reverse: bool
) -> Iterator[Mapping[str, Any]]:
    """The entries of all pages, up to the limit."""
    asked = {**given, "limit": min(limit, _PAGE), "reverse": reverse or None}
    cursor: str | None = None
    while True:
        _, page = client.get(path_of(*place, **asked, cursor=cursor))
        yield from page.get("entries", ())
        cursor = page.get("next")
        if cursor is None:
            return


def value_text(value: Any) -> str:
    """A value for people: text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return printable_lines(value)
    return printable_lines(json_.dumps(value, ensure_ascii=False))


def entries_text(entries: Sequence[Mapping[str, Any]]) -> str:
    """A line for each entry, with its window if it has one."""
    if any("start" in each for each in entries):
        rows = [
            (
                value_text(each["key"]),
                shown_time(each["start"]),
                shown_time(each["end"]),
                value_text(each["value"]),
            )
            for each in entries
        ]
        return table(("key", "start", "end", "value"), rows)
    return table(("key", "value"), [(value_text(each["key"]), value_text(each["value"])) for each in entries])


def sql_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; numbers are right-aligned."""
    right = {
        name
        for place, name in enumerate(columns)
        if rows and all(isinstance(row[place], int | float) for row in rows)
    }
    shown = [[value_text(cell) if isinstance(cell, dict | list) else cell for cell in row] for row in rows]
    return table(columns, shown, right=right)
