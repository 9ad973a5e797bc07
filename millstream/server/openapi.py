"""The OpenAPI document of the query server, generated from the table of routes, and a page for people. Pure.

Both are the same for every client: they describe the possible requests and reveal nothing about an
application, so they need no token.

Source: https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from html import escape
from typing import Any

from millstream.server.answers import Answer
from millstream.server.forms import Form, forms_of
from millstream.server.paths import ABOUT, errors_by_status, errors_of, parameter_of, path_of
from millstream.server.routes import ROUTES, Route

__all__ = ["document", "index_answer", "openapi_answer"]

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


_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "integer"}
_MS = {"type": "integer", "format": "int64", "description": "milliseconds since the epoch"}
_MAYBE_TEXT = {"type": ["string", "null"]}
_MAYBE_NUMBER = {"type": ["integer", "null"]}
_ANY = {"description": 'decoded by the serde; bytes are {"$bytes": base64}; with format=bytes, base64 text'}
_PARTITIONS = _list(_NUMBER)
_ENTRY = {"key": _ANY, "value": _ANY}
_TIMES = {"timestamp": _MS, "start": _MS, "end": _MS}
_CLIENT = {"client": _TEXT}

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
    "Stores": _object({**_CLIENT, "client_state": _TEXT, "stores": _list(_ref("Store"))}),
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
    "Threads": _object({**_CLIENT, "paused": _FLAG, "threads": _list(_ref("Thread"))}),
    "Failures": _object({**_CLIENT, "failures": _list({"type": "object"})}),
    "Paused": _object({**_CLIENT, "paused": _FLAG}),
    "Closing": _object({**_CLIENT, "closing": _FLAG}),
    "Metrics": _object(
        {
            **_CLIENT,
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
    "ThreadChange": _object({**_CLIENT, "change": _TEXT, "thread": _MAYBE_TEXT, "done": _FLAG}),
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
            **_CLIENT,
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

_FORMS: Mapping[Form, Schema] = {
    Form.NDJSON: {
        "schema": {"type": "string", "description": "one line of JSON for each entry, of all pages"}
    },
    Form.CSV: {"schema": {"type": "string", "description": "all pages; the first line has the column names"}},
    Form.ARROW: {"schema": {"type": "string", "description": "Arrow's stream format"}},
    Form.EVENTS: {"schema": {"type": "string", "description": "the entries, and then each change"}},
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
        content |= {form.value: _FORMS[form] for form in forms_of(route) if form is not Form.JSON}
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
