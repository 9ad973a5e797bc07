"""The description of every path: the OpenAPI document, generated from the table of routes; a page for people;
and the tables of docs/query-server.md. Pure.

The paths themselves and their parameters are in remote/routes.py; this file adds only the descriptions. They
are the same for every client and reveal nothing about an application, so they need no token.

Source: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any, NamedTuple

from millstream.model import StoreKind
from millstream.remote.answers import ERRORS, MISDIRECTED, Answer
from millstream.remote.routes import ROUTES, Route
from millstream.server.forms import MediaType, forms_of

__all__ = [
    "ABOUT",
    "Parameter",
    "PathAnswer",
    "document",
    "errors_by_status",
    "errors_of",
    "index_answer",
    "openapi_answer",
    "parameter_of",
    "path_of",
    "table_of_parameters",
    "table_of_paths",
]

# --- paths and parameters -------------------------------------------------------------------------------


class PathAnswer(NamedTuple):
    """What a path answers. `answer` names its schema in the OpenAPI document; None: it is not JSON.

    Without a `tag`, the path is only for browsers, and not in that document.
    """

    says: str
    answer: str | None
    tag: str
    body: str | None = None


_STORES, _CLIENT, _SERVER = "Stores", "Client", "Server"

ABOUT: Mapping[str, PathAnswer] = {
    "index": PathAnswer("a page with links to all paths; without a token", None, _SERVER),
    "openapi": PathAnswer("this API as OpenAPI 3.1; without a token", "Object", _SERVER),
    "live": PathAnswer(
        "liveness, for orchestrators, without a token: 200 while the client is alive, 503 if it should "
        "be replaced",
        "Live",
        _SERVER,
    ),
    "ready": PathAnswer(
        "readiness, for orchestrators, without a token: 200 once its pipelines have ended a batch and "
        "its stores answer, else 503",
        "Ready",
        _SERVER,
    ),
    "proof": PathAnswer(
        "for other clients, without a token: the proof that this server knows the token", "Proof", _SERVER
    ),
    "health": PathAnswer("the client's health, with details; 503 unless it is ready", "Health", _CLIENT),
    "topology": PathAnswer(
        "the topology as boxes and arrows, as `millstream graph` draws it", "Topology", _CLIENT
    ),
    "metrics": PathAnswer(
        "the client's [metrics](metrics.md), as Prometheus reads them; 501 where "
        "prometheus-client is not installed",
        None,
        _CLIENT,
    ),
    "figures": PathAnswer("the same as JSON: group, name, tags and value of each metric", "Metrics", _CLIENT),
    "clients": PathAnswer("the stores and partitions of each client of the application", "Clients", _CLIENT),
    "threads": PathAnswer(
        "this client's stream threads: state, tasks, and the progress of their pipelines", "Threads", _CLIENT
    ),
    "failures": PathAnswer(
        "the latest failures, each with the response and the next retry", "Failures", _CLIENT
    ),
    "pause": PathAnswer("pause this client", "Paused", _CLIENT),
    "resume": PathAnswer("resume this client", "Paused", _CLIENT),
    "change_threads": PathAnswer(
        "add or remove a stream thread", "ThreadChange", _CLIENT, body="WantedThread"
    ),
    "close": PathAnswer("close this client and its server; it does not restart", "Closing", _CLIENT),
    "ui": PathAnswer(
        "the [dashboard](dashboard.md), if `ui.enabled` is set: files without data, so without a token",
        None,
        "",
    ),
    "ui_file": PathAnswer("a file of the dashboard", None, ""),
    "still": PathAnswer(
        "the dashboard's constant parts: the drawing of the topology, the state machine", "Object", _CLIENT
    ),
    "watch": PathAnswer("the dashboard's data, as server-sent events", None, _CLIENT),
    "sql": PathAnswer(
        "run a SELECT over the stores of all clients, in [SQL](stores.md), if `query.server.sql.enabled` "
        "is set",
        "Rows",
        _STORES,
        body="Sql",
    ),
    "stores": PathAnswer(
        "every store of the topology: kind, serdes, and the partitions on this client", "Stores", _STORES
    ),
    "store": PathAnswer("the same about one store", "Store", _STORES),
    "owner": PathAnswer("the client that has a key, and those with standbys", "Owner", _STORES),
    "count": PathAnswer("the approximate number of entries", "Count", _STORES),
    "get": PathAnswer("a key's value and timestamp; 404 without `error` if it has none", "One", _STORES),
    "multi_get": PathAnswer(
        "the values of many keys, in the order of the keys; `null` for a key without a value",
        "Many",
        _STORES,
        body="Keys",
    ),
    "entries": PathAnswer("a range of keys", "Page", _STORES),
    "window": PathAnswer("a key's windows", "Page", _STORES),
    "windows": PathAnswer("the windows of many keys", "Page", _STORES),
    "session": PathAnswer("a key's sessions", "Page", _STORES),
    "sessions": PathAnswer("the sessions of many keys", "Page", _STORES),
}
"""The description of each route, by its name."""


class Parameter(NamedTuple):
    """What a parameter does, and its JSON schema."""

    says: str
    schema: Mapping[str, Any]


_TEXT = {"type": "string"}
_SWITCH = {"type": "boolean", "default": False}
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
    "stale": Parameter("also read standby and restoring replicas, which may be behind", _SWITCH),
    "local": Parameter("read only this client: its part of a range; for a key, an answer or 421", _SWITCH),
    "reverse": Parameter("the last entry first", _SWITCH),
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
        meanings = {parameter_of(route, name).says: None for route in ROUTES if name in route.parameters}
        rows.append(f"| `{name}` | {'; or: '.join(meanings)} |")
    return "\n".join(rows)


def errors_by_status() -> dict[int, tuple[str, ...]]:
    """The exceptions that each status can represent."""
    found: dict[int, list[str]] = {}
    for kind, row in ERRORS.items():
        found.setdefault(row.status, []).append(kind.__name__)
    return {status: tuple(names) for status, names in found.items()}


# --- the document and the page --------------------------------------------------------------------------


Schema = Mapping[str, Any]


def _object(required: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
    }


def _list(item: Any) -> Schema:
    return {"type": "array", "items": item}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer"}
_MS = {"type": "integer", "format": "int64", "description": "milliseconds since the epoch"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_NUMBER = {"type": ["integer", "null"]}
_ANY = {"description": 'decoded by the serde; bytes are {"$bytes": base64}; with format=bytes, base64 text'}
_PARTITIONS = _list(_NUMBER)
_ENTRY = {"key": _ANY, "value": _ANY}
_TIMES = {"timestamp": _MS, "start": _MS, "end": _MS}
_OF_CLIENT = {"client": _TEXT}

SCHEMAS: Mapping[str, Schema] = {
    "Object": {"type": "object"},
    "Error": _object(
        {"error": _TEXT, "retriable": _FLAG, "message": _TEXT},
        {
            "store": _TEXT,
            "partition": _NUMBER,
            "next_step": _TEXT,
            "client": _TEXT,
            "client_state": _TEXT,
            "host": {"type": "string", "description": "host:port of the client to query instead"},
            "application_id": {"type": "string", "description": "which that client belongs to"},
        },
    ),
    "Entry": _object(_ENTRY, _TIMES),
    "One": _object({"store": _TEXT, **_ENTRY}, _TIMES),
    "NoValue": _object({"store": _TEXT, "key": _ANY, "value": {"type": "null"}}),
    "Many": _object({"store": _TEXT, "partitions": _PARTITIONS, "entries": _list(_ref("Entry"))}),
    "Page": _object(
        {
            "store": _TEXT,
            "partitions": _PARTITIONS,
            "entries": _list(_ref("Entry")),
            "next": {"type": ["string", "null"], "description": "cursor= of the next page; null: none"},
        }
    ),
    "Keys": _object({"keys": _list(_ANY)}),
    "Store": _object(
        {
            "store": _TEXT,
            "kind": _TEXT,
            "key_serde": _MAYBE_TEXT,
            "value_serde": _MAYBE_TEXT,
            "partitions": _MAYBE_NUMBER,
            "here": {"type": "object", "additionalProperties": _TEXT},
            "window_size_ms": _MAYBE_NUMBER,
            "retention_ms": _MAYBE_NUMBER,
            "history_ms": _MAYBE_NUMBER,
        }
    ),
    "Stores": _object({**_OF_CLIENT, "client_state": _TEXT, "stores": _list(_ref("Store"))}),
    "Count": _object({"store": _TEXT, "partitions": _PARTITIONS, "count": _NUMBER}),
    "Owner": _object(
        {"store": _TEXT, "partition": _MAYBE_NUMBER, "active": _MAYBE_TEXT, "standbys": _list(_TEXT)}
    ),
    "Clients": _object(
        {
            "clients": _list(
                _object(
                    {
                        "host": _TEXT,
                        "stores": _list(_TEXT),
                        "partitions": _list(_TEXT),
                        "standby_stores": _list(_TEXT),
                        "standby_partitions": _list(_TEXT),
                    }
                )
            )
        }
    ),
    "Pipeline": _object(
        {
            "name": _TEXT,
            "running": _FLAG,
            "records": _NUMBER,
            "records_per_second": {"type": "number"},
            "batch_id": _MAYBE_NUMBER,
            "batch_ms": _MAYBE_NUMBER,
            "lag": _MAYBE_NUMBER,
            "dropped": _NUMBER,
        }
    ),
    "Thread": _object(
        {
            "thread": _TEXT,
            "state": _TEXT,
            "tasks": _list(_TEXT),
            "standby_tasks": _list(_TEXT),
            "pipelines": _list(_ref("Pipeline")),
        }
    ),
    "Threads": _object({**_OF_CLIENT, "paused": _FLAG, "threads": _list(_ref("Thread"))}),
    "Failures": _object({**_OF_CLIENT, "failures": _list({"type": "object"})}),
    "Paused": _object({**_OF_CLIENT, "paused": _FLAG}),
    "Closing": _object({**_OF_CLIENT, "closing": _FLAG}),
    "Metrics": _object(
        {
            **_OF_CLIENT,
            "metrics": _list(
                _object(
                    {
                        "group": _TEXT,
                        "name": _TEXT,
                        "tags": {"type": "object", "additionalProperties": _TEXT},
                        "value": {"type": ["number", "string", "null"]},
                        "description": _TEXT,
                    }
                )
            ),
        }
    ),
    "WantedThread": _object({"change": {"type": "string", "enum": ["add", "remove"]}}),
    "ThreadChange": _object({**_OF_CLIENT, "change": _TEXT, "thread": _MAYBE_TEXT, "done": _FLAG}),
    "Live": _object({"live": _FLAG, "status": _TEXT}),
    "Ready": _object({"ready": _FLAG, "status": _TEXT}),
    "Health": _object(
        {
            "live": _FLAG,
            "ready": _FLAG,
            "status": _TEXT,
            "reason": _TEXT,
            "next_try": _MAYBE_TEXT,
            "details": {"type": "object"},
        }
    ),
    "Topology": _object(
        {
            **_OF_CLIENT,
            "groups": _list(_object({"id": _NUMBER, "title": _TEXT, "pipeline": _MAYBE_TEXT})),
            "boxes": _list(_object({"id": _TEXT, "kind": _TEXT, "label": _TEXT, "group": _MAYBE_NUMBER})),
            "arrows": _list(_object({"from": _TEXT, "to": _TEXT, "kind": _TEXT})),
        }
    ),
    "Proof": {"type": "object"},
    "Sql": _object({"query": _TEXT}, {"parameters": {"type": ["array", "object", "null"]}}),
    "Rows": _object(
        {
            "columns": _list(_object({"name": _TEXT, "type": _TEXT})),
            "rows": _list(_list({})),
            "positions": {"type": "object", "additionalProperties": {"type": "object"}},
        }
    ),
}
"""The schemas of answers and bodies; a test checks real answers against them."""

_MEDIA = {"index": "text/html", "metrics": "text/plain", "watch": "text/event-stream"}
"""The content of answers that are not JSON."""

_FORMS: Mapping[MediaType, Schema] = {
    MediaType.NDJSON: {
        "schema": {"type": "string", "description": "one line of JSON for each entry, of all pages"}
    },
    MediaType.CSV: {
        "schema": {"type": "string", "description": "all pages; the first line has the column names"}
    },
    MediaType.ARROW: {"schema": {"type": "string", "description": "Arrow's stream format"}},
    MediaType.EVENTS: {"schema": {"type": "string", "description": "the entries, and then each change"}},
}

_STATUSES = {
    400: "the request is invalid, or `as_of` is before the store's history",
    401: "the token is missing or wrong",
    403: "Host does not name this server, or it was a command or SQL to a server that does not accept it",
    404: "nothing has this name",
    405: "the path needs another method",
    406: "Accept names no available format",
    408: "the body took too long to arrive",
    409: "the path is for another kind of store",
    413: "the body, or the answer, would be too large",
    414: "path and query are too long",
    415: "Content-Type is not JSON",
    421: "another client has the data; `host` names it, if known",
    431: "the headers are too large",
    500: "stored data cannot be read, or another error",
    501: "a required library is not installed",
    502: "another client must not be queried, or does not prove that it knows the token",
    503: "not now",
    504: "no answer in time",
}


@cache
def document() -> Mapping[str, Any]:
    """The OpenAPI document."""
    paths: dict[str, dict[str, Any]] = {}
    for route in (route for route in ROUTES if ABOUT[route.name].tag):
        paths.setdefault(path_of(route), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Millstream query server",
            "version": "1",
            "description": "The stores and the state of a client, over HTTP.",
        },
        "servers": [{"url": "."}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "responses": {
                f"Error{status}": {
                    "description": _because(status),
                    "content": {"application/json": {"schema": _ref("Error")}},
                }
                for status in _STATUSES
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "query.server.token, if it is set",
                }
            },
        },
    }


def _because(status: int) -> str:
    names = errors_by_status().get(status, ())
    return _STATUSES[status] + (f" ({', '.join(names)})" if names else "")


def _operation(route: Route) -> dict[str, Any]:
    about = ABOUT[route.name]
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": _plain(about.says),
        "tags": [about.tag],
        "parameters": [_in_path(name) for name in route.path if name.startswith("{")]
        + [_in_query(route, name) for name in sorted(route.parameters)],
        "responses": _responses(route),
    }
    if about.body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _ref(about.body)}},
        }
    if route.open or route.acts or route.costs:
        found["security"] = [] if route.open else [{"token": []}]
    return found


def _in_path(name: str) -> Schema:
    says = {
        "{store}": "the name of a store",
        "{key}": "a key as text, as the store's key serde represents it; bytes are base64",
    }[name]
    return {"name": name[1:-1], "in": "path", "required": True, "description": says, "schema": _TEXT}


def _in_query(route: Route, name: str) -> Schema:
    says, schema = parameter_of(route, name)
    required = route.name == "proof"
    return {"name": name, "in": "query", "required": required, "description": says, "schema": schema}


def _responses(route: Route) -> dict[str, Any]:
    about = ABOUT[route.name]
    if about.answer is None:
        content: Any = {_MEDIA[route.name]: {"schema": _TEXT}}
    else:
        answer = _ref(about.answer)
        if route.name in ("window", "session"):  # with `time`, or `start` and `end`: one of them
            answer = {"anyOf": [answer, _ref("One")]}
        content = {"application/json": {"schema": answer}}
        content |= {form.value: _FORMS[form] for form in forms_of(route) if form is not MediaType.JSON}
    found: dict[str, Any] = {"200": {"description": _plain(about.says), "content": content}}
    for status in (*errors_of(route), 500, 503):
        found[str(status)] = {"$ref": f"#/components/responses/Error{status}"}
    if route.name in ("get", "window", "session"):
        found["404"] = _either(404, "NoValue", "the key has no value; with `error`: there is no such store")
    if route.name in ("live", "ready", "health"):
        assert about.answer is not None
        found["503"] = _either(503, about.answer, "it is not; with `error`: unknown")
    return dict(sorted(found.items()))


def _either(status: int, name: str, says: str) -> Schema:
    schema = {"anyOf": [_ref(name), _ref("Error")]}
    return {"description": says, "content": {"application/json": {"schema": schema}}}


# --- answers ---------------------------------------------------------------------------------------------


def openapi_answer() -> Answer:
    """The document."""
    return Answer(200, document())


_PAGE_HEADERS = {
    "content-type": "text/html; charset=utf-8",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td { padding: .3rem .6rem .3rem 0; vertical-align: top; border-top: 1px solid #8884; }
code { font-family: ui-monospace, monospace; overflow-wrap: anywhere; }
"""


def index_answer() -> Answer:
    """A page that lists the paths, with links that a browser can follow. Without scripts."""
    return Answer(200, headers=_PAGE_HEADERS, raw=_index().encode("utf-8"))


@cache
def _index() -> str:
    tags: dict[str, list[Route]] = {}
    for route in ROUTES:
        if route.name != "index" and ABOUT[route.name].tag:
            tags.setdefault(ABOUT[route.name].tag, []).append(route)
    tables = "".join(
        f"<h2>{escape(tag)}</h2>\n<table>\n{''.join(map(_row, routes))}</table>\n"
        for tag, routes in tags.items()
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Millstream query server</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        "<h1>Millstream query server</h1>\n<p>The stores and the state of a client. "
        'If <code>ui.enabled</code> is set, there is also a <a href="ui/">dashboard</a>. For programs, '
        '<a href="openapi.json">openapi.json</a> describes parameters and answers. If a token is set, all '
        "but the health needs <code>Authorization: Bearer …</code>, which a link cannot send.</p>\n"
        f"{tables}</body>\n</html>\n"
    )


def _plain(says: str) -> str:
    """The text without Markdown's markup."""
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", says).replace("`", "")


def _row(route: Route) -> str:
    path = path_of(route)
    shown = f"<code>{escape(path)}</code>"
    if route.method != "GET":
        shown = f"<code>{route.method}</code> {shown}"
    elif "{" not in path and route.name != "proof":
        shown = f'<a href="{escape(path[1:])}">{shown}</a>'
    says = _plain(ABOUT[route.name].says)
    return f"<tr><td>{shown}</td><td>{escape(says)}</td></tr>\n"
