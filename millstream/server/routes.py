"""What a request asks for: method, path and query in, a `Request` out, or why it is none. Pure.

The table of routes is `ROUTES`; docs/query-server.md describes each. What does not stand in the table is
refused, unknown parameters too: a slip is told, and never taken for "everything".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qsl, unquote_to_bytes

from millstream.model import StoreKind
from millstream.server.answers import Refused
from millstream.server.codec import FORMATS, bad

__all__ = ["ROUTES", "Request", "Route", "parse_request"]

_STORE, _KEY = "{store}", "{key}"
_READ = frozenset({"format", "stale", "local"})
_PAGED = _READ | {"reverse", "limit", "cursor"}
_MOST_PARAMETERS = 16
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Route:
    """One row: what is asked, how, and with which parameters.

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
    """Whether it is answered without a token: what orchestrators ask, and a client before it asks more."""


_V1_STORE = ("v1", "stores", _STORE)

ROUTES = (
    Route("live", ("healthz",), open=True),
    Route("ready", ("readyz",), open=True),
    Route("proof", ("v1", "proof"), frozenset({"nonce"}), open=True),
    Route("health", ("v1", "health")),
    Route("metrics", ("metrics",)),
    Route("clients", ("v1", "clients")),
    Route("stores", ("v1", "stores")),
    Route("store", _V1_STORE),
    Route("owner", (*_V1_STORE, "owner", _KEY), frozenset({"format"})),
    Route("count", (*_V1_STORE, "count"), frozenset({"local"})),
    Route("get", (*_V1_STORE, "keys", _KEY), _READ | {"as_of"}, kind=StoreKind.KEY_VALUE),
    Route("multi_get", (*_V1_STORE, "keys"), _READ | {"as_of"}, method="POST", kind=StoreKind.KEY_VALUE),
    Route(
        "entries",
        (*_V1_STORE, "entries"),
        _PAGED | {"from", "to", "prefix", "as_of"},
        kind=StoreKind.KEY_VALUE,
        paged=True,
    ),
    Route(
        "window",
        (*_V1_STORE, "windows", _KEY),
        _PAGED | {"time", "from", "to"},
        kind=StoreKind.WINDOW,
        paged=True,
    ),
    Route(
        "windows",
        (*_V1_STORE, "windows"),
        _PAGED | {"from_key", "to_key", "from", "to"},
        kind=StoreKind.WINDOW,
        paged=True,
    ),
    Route(
        "session",
        (*_V1_STORE, "sessions", _KEY),
        _PAGED | {"start", "end", "earliest_end", "latest_start"},
        kind=StoreKind.SESSION,
        paged=True,
    ),
    Route(
        "sessions",
        (*_V1_STORE, "sessions"),
        _PAGED | {"from_key", "to_key", "earliest_end", "latest_start"},
        kind=StoreKind.SESSION,
        paged=True,
    ),
)
"""Everything that can be asked."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. Keys are still the texts that stood in the path or the query."""

    route: Route
    store: str = ""
    key: str = ""
    given: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    """Path and query as they came, for who passes the question on."""

    @property
    def format(self) -> str:
        """`json` or `bytes`."""
        return self.given.get("format", "json")

    @property
    def stale(self) -> bool:
        """Whether standbys, and what is still being restored, will do."""
        return self.given.get("stale") == "true"

    @property
    def local(self) -> bool:
        """Whether only this client is asked, and nobody else."""
        return self.given.get("local") == "true"

    @property
    def reverse(self) -> bool:
        """Whether the last entry comes first."""
        return self.given.get("reverse") == "true"

    def limit(self, usual: int, most: int) -> int:
        """How many entries a page has at most."""
        text = self.given.get("limit")
        return usual if text is None else min(int(text), most)

    def time(self, name: str) -> int | None:
        """A time in milliseconds since the epoch; None: it was not given."""
        text = self.given.get(name)
        return None if text is None else _milliseconds(name, text)


def parse_request(method: str, path: bytes, query: bytes) -> Request:
    """What is asked for. `path` is percent-encoded, as the client sent it.

    Raises:
        Refused: there is no such path (404), it has another method (405), or a parameter is wrong (400).
    """
    if not all(33 <= each <= 126 for each in path):
        raise bad("the path is not percent-encoded")
    segments = _segments(path)
    fitting = [route for route in ROUTES if _fits(route, segments)]
    if not fitting:
        raise Refused(404, "NotFound", "there is nothing at this path; docs/query-server.md has the paths")
    asked = "GET" if method == "HEAD" else method
    route = next((route for route in fitting if route.method == asked), None)
    if route is None:
        allowed = ", ".join(sorted({route.method for route in fitting}))
        raise Refused(
            405, "MethodNotAllowed", f"this path is read with {allowed}", headers={"allow": allowed}
        )
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
        raise bad("the query is not name=value&…, percent-encoded UTF-8") from None
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
    """Everything about the parameters that can be told without looking at a store."""
    for name in ("stale", "local", "reverse"):
        if given.get(name, "true") not in ("true", "false"):
            raise bad(f"'{name}' is true or false")
    if given.get("format", "json") not in FORMATS:
        raise bad(f"'format' is {' or '.join(FORMATS)}")
    limit = given.get("limit")
    if limit is not None and not re.fullmatch("[1-9][0-9]{0,8}", limit):
        raise bad("'limit' is a whole number, 1 or more")
    for name in ("time", "start", "end", "earliest_end", "latest_start", "as_of"):
        if name in given:
            _milliseconds(name, given[name])
    if route.kind is StoreKind.WINDOW:
        for name in ("from", "to"):
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
            raise bad(f"'{name}' does not go with {', '.join(sorted(given.keys() - others))}")
    if ("start" in given) != ("end" in given):
        raise bad("one session is read with both 'start' and 'end'")


def _milliseconds(name: str, text: str) -> int:
    """A time: milliseconds since the epoch, or ISO 8601, in UTC if it says nothing else."""
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
            pass  # told below
    raise bad(f"'{name}' is a time: milliseconds since the epoch, or such as 2026-07-01T12:00:00Z")
