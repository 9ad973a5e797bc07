"""The description of each path and each parameter, for the OpenAPI document and docs/query-server.md.

The paths themselves and their parameters are in routes.py; this file adds only the descriptions. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from millstream.model import StoreKind
from millstream.server.answers import ERRORS, MISDIRECTED
from millstream.server.forms import forms_of
from millstream.server.routes import ROUTES, Route

__all__ = [
    "ABOUT",
    "About",
    "Parameter",
    "errors_by_status",
    "errors_of",
    "parameter_of",
    "path_of",
    "table_of_parameters",
    "table_of_paths",
]


class About(NamedTuple):
    """What a path answers. `answer` names its schema in the OpenAPI document; None: it is not JSON.

    Without a `tag`, the path is only for browsers, and not in that document.
    """

    says: str
    answer: str | None
    tag: str
    body: str | None = None


_STORES, _CLIENT, _SERVER = "Stores", "Client", "Server"

ABOUT: Mapping[str, About] = {
    "index": About("a page with links to all paths; without a token", None, _SERVER),
    "openapi": About("this API as OpenAPI 3.1; without a token", "Object", _SERVER),
    "live": About(
        "liveness, for orchestrators, without a token: 200 while the client is alive, 503 if it should "
        "be replaced",
        "Live",
        _SERVER,
    ),
    "ready": About(
        "readiness, for orchestrators, without a token: 200 while it works and its stores answer, else 503",
        "Ready",
        _SERVER,
    ),
    "proof": About(
        "for other clients, without a token: the proof that this server knows the token", "Proof", _SERVER
    ),
    "health": About("the client's health, with details; 503 unless it is ready", "Health", _CLIENT),
    "topology": About(
        "the topology as boxes and arrows, as `millstream graph` draws it", "Topology", _CLIENT
    ),
    "metrics": About(
        "the client's [metrics](metrics.md), as Prometheus reads them; 501 where "
        "prometheus-client is not installed",
        None,
        _CLIENT,
    ),
    "figures": About("the same as JSON: group, name, tags and value of each metric", "Metrics", _CLIENT),
    "clients": About("the stores and partitions of each client of the application", "Clients", _CLIENT),
    "threads": About(
        "this client's stream threads: state, tasks, and the progress of their pipelines", "Threads", _CLIENT
    ),
    "failures": About("the latest failures, each with the response and the next retry", "Failures", _CLIENT),
    "pause": About("pause this client", "Paused", _CLIENT),
    "resume": About("resume this client", "Paused", _CLIENT),
    "change_threads": About("add or remove a stream thread", "ThreadChange", _CLIENT, body="WantedThread"),
    "close": About("close this client and its server; it does not restart", "Closing", _CLIENT),
    "ui": About(
        "the [dashboard](dashboard.md), if `ui.enabled` is set: files without data, so without a token",
        None,
        "",
    ),
    "ui_file": About("a file of the dashboard", None, ""),
    "still": About(
        "the dashboard's constant parts: the drawing of the topology, the state machine", "Object", _CLIENT
    ),
    "watch": About("the dashboard's data, as server-sent events", None, _CLIENT),
    "sql": About(
        "run a SELECT over the stores of all clients, in [SQL](stores.md), if `query.server.sql.enabled` "
        "is set",
        "Rows",
        _STORES,
        body="Sql",
    ),
    "stores": About(
        "every store of the topology: kind, serdes, and the partitions on this client", "Stores", _STORES
    ),
    "store": About("the same about one store", "Store", _STORES),
    "owner": About("the client that has a key, and those with standbys", "Owner", _STORES),
    "count": About("the approximate number of entries", "Count", _STORES),
    "get": About("a key's value and timestamp; 404 without `error` if it has none", "One", _STORES),
    "multi_get": About(
        "the values of many keys, in the order of the keys; `null` for a key without a value",
        "Many",
        _STORES,
        body="Keys",
    ),
    "entries": About("a range of keys", "Page", _STORES),
    "window": About("a key's windows", "Page", _STORES),
    "windows": About("the windows of many keys", "Page", _STORES),
    "session": About("a key's sessions", "Page", _STORES),
    "sessions": About("the sessions of many keys", "Page", _STORES),
}
"""The description of each route, by its name."""


class Parameter(NamedTuple):
    """What a parameter does, and its JSON schema."""

    says: str
    schema: Mapping[str, Any]


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean", "default": False}
_TIME = {
    "anyOf": [
        {"type": "integer", "format": "int64"},
        {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}"},
    ],
    "description": "milliseconds since the epoch, or ISO 8601 such as 2026-07-01T12:00:00Z",
}

_PARAMETERS: Mapping[str, Parameter] = {
    "nonce": Parameter("64 hexadecimal digits", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "format": Parameter(
        "`bytes`: keys and values, also in the request, are the base64 of their bytes",
        {"type": "string", "enum": ["json", "bytes"], "default": "json"},
    ),
    "stale": Parameter("also read standby and restoring replicas, which may be behind", _FLAG),
    "local": Parameter("read only this client: its part of a range; for a key, an answer or 421", _FLAG),
    "reverse": Parameter("the last entry first", _FLAG),
    "limit": Parameter(
        "the number of entries in a page (default 1,000, at most 10,000)",
        {"type": "integer", "minimum": 1, "maximum": 999_999_999},
    ),
    "cursor": Parameter("where the page begins: `next` of the previous page", _TEXT),
    "as_of": Parameter("the value at this time, in a versioned store", _TIME),
    "from": Parameter("the first key", _TEXT),
    "to": Parameter("the last key, inclusive", _TEXT),
    "prefix": Parameter("the prefix of the keys", _TEXT),
    "from_key": Parameter("the first key", _TEXT),
    "to_key": Parameter("the last key, inclusive", _TEXT),
    "time": Parameter("the window that starts at this time", _TIME),
    "start": Parameter("with `end`: the session that starts at this time", _TIME),
    "end": Parameter("with `start`: the end of that session", _TIME),
    "earliest_end": Parameter("sessions that end at this time or later", _TIME),
    "latest_start": Parameter("sessions that start at this time or earlier", _TIME),
}

_OF_WINDOWS: Mapping[str, Parameter] = {
    "from": Parameter("windows that start at this time or later", _TIME),
    "to": Parameter("windows that start at this time or earlier", _TIME),
}
"""For the routes where these names mean times instead of keys."""


def parameter_of(route: Route, name: str) -> Parameter:
    """The description of a route's parameter."""
    if route.kind is StoreKind.WINDOW and name in _OF_WINDOWS:
        return _OF_WINDOWS[name]
    return _PARAMETERS[name]


def path_of(route: Route) -> str:
    """The path of a route, as it is written, with `{store}` and `{key}` in it."""
    return "/" + "/".join(route.path)


def errors_of(route: Route) -> tuple[int, ...]:
    """The error statuses that a route's answers can have, beside 500 and 503."""
    found = {400, 405, 414, 431}
    if not route.open:
        found |= {401, 403, 408, 413, 504}
    if route.open:
        found |= {403, 404} if route.name == "proof" else {403}
    if route.method == "POST":
        found |= {415}
    if route.name in ("metrics", "sql"):
        found |= {501}
    if "{store}" in route.path or route.name in ("sql", "still", "watch"):
        found |= {404}
    if route.kind is not None:
        found |= {409, 502}
    if len(forms_of(route)) > 1:
        found |= {406}
    if "{key}" in route.path or route.kind is not None:
        found |= {MISDIRECTED}
    return tuple(sorted(found))


def table_of_paths() -> str:
    """All paths as a table in Markdown."""
    rows = ["| path | answer | parameters |", "| --- | --- | --- |"]
    for route in ROUTES:
        about = ABOUT[route.name]
        method = "" if route.method == "GET" else f"{route.method} "
        path = path_of(route).replace("/v1/stores/{store}/", "…/")
        parameters = ", ".join(f"`{each}`" for each in sorted(route.parameters))
        rows.append(f"| {method}`{path}` | {about.says} | {parameters} |")
    return "\n".join(rows)


def table_of_parameters() -> str:
    """All parameters as a table in Markdown."""
    rows = ["| parameter | what it does |", "| --- | --- |"]
    for name in sorted({name for route in ROUTES for name in route.parameters}):
        told = {parameter_of(route, name).says: None for route in ROUTES if name in route.parameters}
        rows.append(f"| `{name}` | {'; or: '.join(told)} |")
    return "\n".join(rows)


def errors_by_status() -> dict[int, tuple[str, ...]]:
    """The exceptions that each status can represent."""
    found: dict[int, list[str]] = {}
    for kind, row in ERRORS.items():
        found.setdefault(row.status, []).append(kind.__name__)
    return {status: tuple(names) for status, names in found.items()}
