"""Requests: method, path and query in; a `Request`, or the reason for refusing it, out. Pure.

`read_of` returns the read that a request means, and `question_of` the request for a read. The mapping between
reads and HTTP is defined here and nowhere else.

The table of routes is `ROUTES`; docs/query-server.md describes each. Anything that is not in the table is
refused, unknown parameters too: a typo is reported, and never taken for "everything".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes, urlencode

from millstream.model import StoreKind
from millstream.query.provider import StoreDeclaration
from millstream.query.read import Read, ResultForm, after_prefix, of_prefix
from millstream.remote.answers import Refused
from millstream.remote.json_codec import (
    FORMATS,
    bad,
    from_base64,
    key_from_json,
    key_from_text,
    parse_json,
    to_base64,
)
from millstream.remote.pages import PageStart
from millstream.serdes.serde import Serde

__all__ = [
    "ROUTES",
    "RemoteRequest",
    "Request",
    "Route",
    "about_store",
    "key_of",
    "keys_in",
    "parse_request",
    "question_of",
    "read_of",
]

_STORE, _KEY = "{store}", "{key}"
_READ = frozenset({"format", "stale", "local"})
_PAGED = _READ | {"reverse", "limit", "cursor"}
_MOST_PARAMETERS = 16
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Route:
    """One row: what is requested, how, and with which parameters.

    Attributes:
        kind: the kind of stores that it reads; None: any.
        paged: whether the answer is a page of a range.
    """

    name: str
    path: tuple[str, ...]
    parameters: frozenset[str] = frozenset()
    method: str = "GET"
    kind: StoreKind | None = None
    paged: bool = False
    open: bool = False
    """Whether it needs no token: the requests of orchestrators, and a client's request for a proof."""
    acts: bool = False
    """Whether it changes the client. A server without a token refuses that, wherever it listens."""
    costs: bool = False
    """Whether it can take much of the client's memory. A server without a token refuses that too."""


_V1_STORE = ("v1", "stores", _STORE)

_ENTRIES = {StoreKind.KEY_VALUE: "entries", StoreKind.WINDOW: "windows", StoreKind.SESSION: "sessions"}
"""The last segment of the path of a range; windows and sessions of a key are below it."""


def _range(name: str, kind: StoreKind, parameters: set[str], *, of_key: bool = False) -> Route:
    """The route of a range: of a store's entries, or of one key's windows or sessions."""
    path = (*_V1_STORE, _ENTRIES[kind], *((_KEY,) if of_key else ()))
    return Route(name, path, _PAGED | parameters, kind=kind, paged=True)


ROUTES = (
    Route("index", ("",), open=True),
    Route("openapi", ("openapi.json",), open=True),
    Route("live", ("healthz",), open=True),
    Route("ready", ("readyz",), open=True),
    Route("proof", ("v1", "proof"), frozenset({"nonce"}), open=True),
    Route("health", ("v1", "health")),
    Route("topology", ("v1", "topology")),
    Route("metrics", ("metrics",)),
    Route("figures", ("v1", "metrics")),
    Route("clients", ("v1", "clients")),
    Route("threads", ("v1", "threads")),
    Route("failures", ("v1", "failures")),
    Route("pause", ("v1", "pause"), method="POST", acts=True),
    Route("resume", ("v1", "resume"), method="POST", acts=True),
    Route("change_threads", ("v1", "threads"), method="POST", acts=True),
    Route("close", ("v1", "close"), method="POST", acts=True),
    Route("sql", ("v1", "sql"), frozenset({"local"}), method="POST", costs=True),
    Route("ui", ("ui",), open=True),
    Route("ui_file", ("ui", _KEY), open=True),
    Route("still", ("v1", "dashboard")),
    Route("watch", ("v1", "dashboard", "events")),
    Route("stores", ("v1", "stores")),
    Route("store", _V1_STORE),
    Route("owner", (*_V1_STORE, "owner", _KEY), frozenset({"format"})),
    Route("count", (*_V1_STORE, "count"), frozenset({"local"})),
    Route("get", (*_V1_STORE, "keys", _KEY), _READ | {"as_of"}, kind=StoreKind.KEY_VALUE),
    Route("multi_get", (*_V1_STORE, "keys"), _READ | {"as_of"}, method="POST", kind=StoreKind.KEY_VALUE),
    _range("entries", StoreKind.KEY_VALUE, {"from", "to", "prefix", "as_of"}),
    _range("window", StoreKind.WINDOW, {"time", "from", "to"}, of_key=True),
    _range("windows", StoreKind.WINDOW, {"from_key", "to_key", "from", "to"}),
    _range("session", StoreKind.SESSION, {"start", "end", "earliest_end", "latest_start"}, of_key=True),
    _range("sessions", StoreKind.SESSION, {"from_key", "to_key", "earliest_end", "latest_start"}),
)
"""Every possible request."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is requested. Keys are still texts, as in the path or the query."""

    route: Route
    store: str = ""
    key: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    """Path and query as received, for forwarding the request."""
    accept: str = ""
    """The header Accept: which forms of an answer are acceptable (forms.py)."""

    @property
    def format(self) -> str:
        """`json` or `bytes`."""
        return self.given.get("format", "json")

    @property
    def stale(self) -> bool:
        """Whether standbys, and stores that are still being restored, are acceptable."""
        return self.given.get("stale") == "true"

    @property
    def local(self) -> bool:
        """Whether only this client is queried."""
        return self.given.get("local") == "true"

    @property
    def reverse(self) -> bool:
        """Whether the last entry comes first."""
        return self.given.get("reverse") == "true"

    def limit(self, usual: int, most: int) -> int:
        """The maximum number of entries in a page."""
        text = self.given.get("limit")
        return usual if text is None else min(int(text), most)

    def time(self, name: str) -> int | None:
        """A time in milliseconds since the epoch; None: it was not given."""
        text = self.given.get(name)
        return None if text is None else _milliseconds(name, text)


def parse_request(method: str, path: bytes, query: bytes) -> Request:
    """The request that these mean. `path` is percent-encoded, as the client sent it.

    Raises:
        Refused: there is no such path (404), it needs another method (405), or a parameter is wrong (400).
    """
    if not all(33 <= each <= 126 for each in path):
        raise bad("the path is not percent-encoded")
    segments = _segments(path)
    fitting = [route for route in ROUTES if _fits(route, segments)]
    if not fitting:
        raise Refused(404, "NotFound", "unknown path; the server's start page, /, lists the paths")
    asked = "GET" if method == "HEAD" else method
    route = next((route for route in fitting if route.method == asked), None)
    if route is None:
        allowed = ", ".join(sorted({route.method for route in fitting}))
        raise Refused(405, "MethodNotAllowed", f"this path needs {allowed}", headers={"allow": allowed})
    places = dict(zip(route.path, segments, strict=True))
    given = _parameters(route, query)
    target = (path + (b"?" + query if query else b"")).decode("ascii")
    return Request(route, places.get(_STORE, ""), places.get(_KEY, ""), given, target)


def _segments(path: bytes) -> list[str]:
    try:
        return [unquote_to_bytes(part).decode("utf-8") for part in path.removeprefix(b"/").split(b"/")]
    except UnicodeDecodeError:
        raise bad("the path is not UTF-8, percent-encoded") from None


def _fits(route: Route, segments: list[str]) -> bool:
    return len(segments) == len(route.path) and all(
        wanted in (found, _KEY) or (wanted == _STORE and found != "")
        for wanted, found in zip(route.path, segments, strict=True)
    )


def _parameters(route: Route, query: bytes) -> dict[str, str]:
    if not query:
        return {}
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=_MOST_PARAMETERS,
        )
    except ValueError:  # a UnicodeDecodeError is one
        raise bad("the query string is not name=value&… in percent-encoded UTF-8") from None
    given: dict[str, str] = {}
    for name, value in pairs:
        if name not in route.parameters:
            known = ", ".join(sorted(route.parameters)) or "none"
            raise bad(f"this path has no parameter '{name[:40]}'; it has {known}")
        if name in given:
            raise bad(f"parameter '{name}' is given twice")
        given[name] = value
    _check(route, given)
    return given


def _check(route: Route, given: Mapping[str, str]) -> None:
    """Check all that can be checked of the parameters without looking at a store."""
    for name in ("stale", "local", "reverse"):
        if given.get(name, "true") not in ("true", "false"):
            raise bad(f"'{name}' must be true or false")
    if given.get("format", "json") not in FORMATS:
        raise bad(f"'format' must be {' or '.join(FORMATS)}")
    limit = given.get("limit")
    if limit is not None and not re.fullmatch("[1-9][0-9]{0,8}", limit):
        raise bad("'limit' must be a whole number of at least 1")
    for name in ("time", "start", "end", "as_of", *(() if route.kind is None else _TIMES[route.kind])):
        if name in given:
            _milliseconds(name, given[name])
    alone = {
        "time": _READ | {"time"},
        "prefix": _PAGED | {"prefix", "as_of"},
        "start": _READ | {"start", "end"},
    }
    alone["end"] = alone["start"]
    for name, others in alone.items():
        if name in given and not given.keys() <= others:
            raise bad(f"'{name}' cannot be combined with {', '.join(sorted(given.keys() - others))}")
    if ("start" in given) != ("end" in given):
        raise bad("reading one session needs both 'start' and 'end'")


def _milliseconds(name: str, text: str) -> int:
    """A time: milliseconds since the epoch, or ISO 8601, in UTC unless it has another offset."""
    if re.fullmatch("-?[0-9]{1,19}", text):
        number = int(text)
        if -_INT64 <= number < _INT64:
            return number
    else:
        try:
            moment = datetime.fromisoformat(text)
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            pass  # reported below
    raise bad(f"'{name}' must be a time: milliseconds since the epoch, or ISO 8601 like 2026-07-01T12:00:00Z")


# --- reads -----------------------------------------------------------------------------------------------

_BOUNDS = {
    StoreKind.KEY_VALUE: ("from", "to"),
    StoreKind.WINDOW: ("from_key", "to_key"),
    StoreKind.SESSION: ("from_key", "to_key"),
}
"""The parameters for the first and the last key of a range."""

_TIMES = {
    StoreKind.KEY_VALUE: (),
    StoreKind.WINDOW: ("from", "to"),
    StoreKind.SESSION: ("earliest_end", "latest_start"),
}
"""The parameters for the times of a range."""


def read_of(store: StoreDeclaration, request: Request, *, limit: int | None = None) -> Read:
    """What a request reads of a store, without the keys in its body. `limit`: the size of a page.

    Raises:
        Refused: a key or the cursor is invalid.
    """
    given, kind = request.given, store.kind
    of = Read(
        store.name,
        kind,
        stale=request.stale,
        as_of=request.time("as_of"),
        reverse=request.reverse,
        limit=limit,
    )
    match request.route.name:
        case "count":
            return replace(of, form=ResultForm.COUNT)
        case "get":
            return replace(of, form=ResultForm.VALUE, key=key_of(store, request))
        case "multi_get":
            return replace(of, form=ResultForm.VALUES)
    if request.route.path[-1] == _KEY:
        of = replace(of, key=key_of(store, request))
        start, end = request.time("time" if kind is StoreKind.WINDOW else "start"), request.time("end")
        if start is not None:
            return replace(of, form=ResultForm.VALUE, start=start, end=end)
    else:
        low, high = (_key_in(store, request, name) for name in _BOUNDS[kind])
        of = replace(of, low=low, high=high)
    if "prefix" in given:
        of = of_prefix(of, _prefix_of(store, request))
    times = [request.time(name) for name in _TIMES[kind]]
    if times:
        of = replace(of, earliest=times[0], latest=times[1])
    if "cursor" in given:
        of = replace(of, after=PageStart.parse(given["cursor"]).order)
    return of


def key_of(store: StoreDeclaration, request: Request) -> bytes:
    """The key in the path."""
    return key_from_text(_key_serde(store), request.key, request.format)


def keys_in(store: StoreDeclaration, body: bytes, format_: str, *, most: int) -> list[bytes]:
    """The keys in a body, if there are no more than `most`."""
    given = parse_json(body)
    keys = given.get("keys") if isinstance(given, dict) and set(given) == {"keys"} else None
    if not isinstance(keys, list):
        raise bad('the body must be {"keys": [...]}')
    if len(keys) > most:
        raise Refused(413, "TooLarge", f"a request can have at most {most} keys")
    serde = _key_serde(store)
    return [key_from_json(serde, key, format_) for key in keys]


def _key_in(store: StoreDeclaration, request: Request, name: str) -> bytes | None:
    """The key in a parameter."""
    text = request.given.get(name)
    return None if text is None else key_from_text(_key_serde(store), text, request.format)


def _prefix_of(store: StoreDeclaration, request: Request) -> bytes:
    text, serde = request.given["prefix"], _key_serde(store).name
    if request.format == "bytes" or serde == "bytes":
        return from_base64(text)
    if serde not in ("string", "uuid"):
        raise bad(f"prefixes of keys of serde '{serde}' must be bytes: use format=bytes")
    return text.encode("utf-8")


def _key_serde(store: StoreDeclaration) -> Serde:
    assert store.key_serde is not None  # LocalStores.declaration holds that
    return store.key_serde


class RemoteRequest(NamedTuple):
    """A request, as it goes over the wire."""

    method: str
    target: str
    body: bytes | None = None


def about_store(store: str, last: str = "", given: Mapping[str, str] | None = None) -> str:
    """The path of a question about a store, with its parameters."""
    path = "/v1/stores/" + quote(store, safe="")
    return path + (f"/{last}" if last else "") + (f"?{urlencode(given)}" if given else "")


def question_of(read: Read) -> RemoteRequest:
    """The question for a read, with keys as bytes; `read_of` returns the same read for it.

    Raises:
        ValueError: a query server has no such request.
    """
    if read.partition is not None or read.bound is not None or read.form is ResultForm.VERSIONS:
        raise ValueError(f"a query server does not support {read}")
    if read.form is ResultForm.COUNT:
        return RemoteRequest("GET", about_store(read.store, "count"))
    numbers = {"limit": read.limit, "as_of": read.as_of}
    keys: dict[str, bytes | None] = {}
    last = (
        "keys"
        if read.kind is StoreKind.KEY_VALUE and read.form is not ResultForm.ENTRIES
        else _ENTRIES[read.kind]
    )
    if read.key is not None:
        last += f"/{to_base64(read.key)}"
    elif not read.high_included:
        if read.low is None or read.high != after_prefix(read.low):
            raise ValueError(f"a query server does not support {read}")
        keys["prefix"] = read.low
    else:
        keys = dict(zip(_BOUNDS[read.kind], (read.low, read.high), strict=True))
    if read.form is ResultForm.VALUE:
        names = {StoreKind.WINDOW: ("time",), StoreKind.SESSION: ("start", "end")}.get(read.kind, ())
        numbers |= dict(zip(names, (read.start, read.end), strict=False))
    else:
        numbers |= dict(zip(_TIMES[read.kind], (read.earliest, read.latest), strict=False))
    given = {"format": "bytes"}
    given |= {name: to_base64(key) for name, key in keys.items() if key is not None}
    given |= {name: str(number) for name, number in numbers.items() if number is not None}
    given |= {name: "true" for name, said in (("stale", read.stale), ("reverse", read.reverse)) if said}
    if read.after is not None:
        given["cursor"] = PageStart(read.after).token()
    if read.form is not ResultForm.VALUES:
        return RemoteRequest("GET", about_store(read.store, last, given))
    body = json.dumps({"keys": [to_base64(key) for key in read.keys]}).encode()
    return RemoteRequest("POST", about_store(read.store, last, given), body)
