"""What a request asks for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.model import StoreKind
from millstream.query.provider import StoreDeclaration
from millstream.query.read import Read, ResultForm, of_prefix
from millstream.remote.answers import Refused
from millstream.remote.routes import ROUTES, keys_in, parse_request, question_of, read_of
from millstream.serdes.serdes import Serdes


@pytest.mark.parametrize(
    ("target", "name", "store", "key"),
    [
        ("/", "index", "", ""),
        ("/openapi.json", "openapi", "", ""),
        ("/v1/topology", "topology", "", ""),
        ("/healthz", "live", "", ""),
        ("/readyz", "ready", "", ""),
        ("/v1/proof", "proof", "", ""),
        ("/v1/health", "health", "", ""),
        ("/metrics", "metrics", "", ""),
        ("/v1/clients", "clients", "", ""),
        ("/v1/threads", "threads", "", ""),
        ("/v1/failures", "failures", "", ""),
        ("/ui", "ui", "", ""),
        ("/ui/", "ui_file", "", ""),
        ("/ui/main.js", "ui_file", "", "main.js"),
        ("/v1/dashboard", "still", "", ""),
        ("/v1/dashboard/events", "watch", "", ""),
        ("/v1/stores", "stores", "", ""),
        ("/v1/stores/counts", "store", "counts", ""),
        ("/v1/stores/counts/keys/anna", "get", "counts", "anna"),
        ("/v1/stores/a%2Fb/keys/c%2Fd%3F", "get", "a/b", "c/d?"),
        ("/v1/stores/counts/keys/", "get", "counts", ""),
        ("/v1/stores/counts/keys/%C3%A4", "get", "counts", "ä"),
        ("/v1/stores/keys/keys/keys", "get", "keys", "keys"),
        ("/v1/stores/counts/entries", "entries", "counts", ""),
        ("/v1/stores/counts/count", "count", "counts", ""),
        ("/v1/stores/counts/owner/anna", "owner", "counts", "anna"),
        ("/v1/stores/w/windows", "windows", "w", ""),
        ("/v1/stores/w/windows/anna", "window", "w", "anna"),
        ("/v1/metrics", "figures", "", ""),
        ("/v1/stores/s/sessions", "sessions", "s", ""),
        ("/v1/stores/s/sessions/anna", "session", "s", "anna"),
    ],
)
def test_each_path_is_what_it_says(target: str, name: str, store: str, key: str) -> None:
    """Names and keys come decoded; a slash in one is part of it."""
    request = parse_request("GET", target.encode(), b"")
    assert (request.route.name, request.store, request.key, request.target) == (name, store, key, target)


def test_each_route_but_two_was_tested_above() -> None:
    """The others are multi_get and sql, which are posted; test_query_actions.py has commands."""
    assert len([route for route in ROUTES if not route.acts]) == 28
    assert parse_request("POST", b"/v1/stores/counts/keys", b"").route.name == "multi_get"


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/v1", 404),
        ("GET", "/v2/stores", 404),
        ("GET", "/v1/stores/", 404),
        ("GET", "/v1/stores//count", 404),
        ("GET", "/v1/stores/counts/keys/a/b", 404),
        ("GET", "/v1/stores/counts/drop", 404),
        ("GET", "/v1/stores/counts/keys", 405),
        ("POST", "/v1/stores/counts/keys/a", 405),
        ("DELETE", "/v1/stores/counts", 405),
        ("BREW", "/healthz", 405),
        ("GET", "/v1/stores/%ff", 400),
        ("GET", "/v1/stores/ä", 400),
        ("GET", "/v1/stores/a b", 400),
        ("GET", "/v1/stores/counts?x=1", 400),
        ("GET", "/v1/stores/counts/entries?limit", 400),
        ("GET", "/v1/stores/counts/entries?limit=", 400),
        ("GET", "/v1/stores/counts/entries?limit=0", 400),
        ("GET", "/v1/stores/counts/entries?limit=-1", 400),
        ("GET", "/v1/stores/counts/entries?limit=9999999999", 400),
        ("GET", "/v1/stores/counts/entries?limit=1&limit=2", 400),
        ("GET", "/v1/stores/counts/entries?from=%ff", 400),
        ("GET", "/v1/stores/counts/entries?reverse=yes", 400),
        ("GET", "/v1/stores/counts/entries?prefix=a&from=b", 400),
        ("GET", "/v1/stores/counts/entries?" + "&".join(f"a{n}=1" for n in range(99)), 400),
        ("GET", "/v1/stores/counts/keys/a?format=xml", 400),
        ("GET", "/v1/stores/counts/keys/a?stale=", 400),
        ("GET", "/v1/stores/counts/keys/a?limit=5", 400),
        ("GET", "/v1/stores/w/windows/a?time=now", 400),
        ("GET", "/v1/stores/w/windows/a?time=1&from=2", 400),
        ("GET", "/v1/stores/w/windows/a?from=99999999999999999999", 400),
        ("GET", "/v1/stores/w/windows?from=9999-12-31T23:59:60Z", 400),
        ("GET", "/v1/stores/s/sessions/a?start=1", 400),
        ("GET", "/v1/stores/s/sessions/a?end=1", 400),
        ("GET", "/v1/stores/s/sessions/a?start=1&end=2&earliest_end=3", 400),
    ],
)
def test_what_is_no_request_is_refused(method: str, target: str, status: int) -> None:
    """A slip in a parameter is told, and not taken for `everything`."""
    path, _, query = target.encode().partition(b"?")
    with pytest.raises(Refused) as refused:
        parse_request(method, path, query)
    assert refused.value.status == status
    assert (status == 405) is ("allow" in refused.value.headers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-1", -1),
        ("9223372036854775807", 2**63 - 1),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01T01:00:00.5%2B01:00", 500),
        ("1970-01-02", 86_400_000),
    ],
)
def test_a_time_is_milliseconds_or_iso_8601(text: str, expected: int) -> None:
    """The time zone is UTC by default."""
    request = parse_request("GET", b"/v1/stores/w/windows/a", f"time={text}".encode())
    assert request.time("time") == expected


def test_the_flags_are_false_unless_they_are_given() -> None:
    """`limit` has a default and a maximum."""
    request = parse_request("GET", b"/v1/stores/c/entries", b"")
    assert (request.stale, request.local, request.reverse, request.format) == (False, False, False, "json")
    assert request.limit(10, 20) == 10
    given = parse_request(
        "HEAD", b"/v1/stores/c/entries", b"stale=true&local=true&reverse=true&format=bytes&limit=99"
    )
    assert (given.stale, given.local, given.reverse, given.format) == (True, True, True, "bytes")
    assert given.limit(10, 20) == 20


def status_of(method: str, path: bytes, query: bytes) -> int:
    """Why it was refused, or 200."""
    try:
        parse_request(method, path, query)
    except Refused as refused:
        return refused.status
    return 200


@given(st.text(max_size=8), st.binary(max_size=60), st.binary(max_size=60))
def test_any_request_is_understood_or_refused(method: str, path: bytes, query: bytes) -> None:
    """Nothing that a client can send is any other exception."""
    assert 200 <= status_of(method, path, query) < 500


PARTS = st.sampled_from(["v1", "stores", "counts", "keys", "entries", "windows", "sessions", "a", "%ff", ""])
PARAMETERS = st.sampled_from(
    ["from", "to", "limit", "cursor", "time", "start", "end", "prefix", "format", "stale", "x", "from_key"]
)


@given(
    st.lists(PARTS, max_size=6),
    st.lists(st.tuples(PARAMETERS, st.text(alphabet="0129-:TZ+%abtrue.", max_size=22)), max_size=4),
)
def test_any_likely_request_is_understood_or_refused(parts: list[str], given_: list[tuple[str, str]]) -> None:
    """The same with what stands near to real requests."""
    query = "&".join(f"{name}={value}" for name, value in given_)
    assert 200 <= status_of("GET", "/".join(["", *parts]).encode(), query.encode()) < 500


SOME_KEY = st.binary(min_size=1, max_size=4)
MILLISECONDS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def reads(draw: st.DrawFn) -> Read:
    """Any read that can be asked for over HTTP."""
    kind, form = (
        draw(st.sampled_from(StoreKind)),
        draw(st.sampled_from([ResultForm.VALUE, ResultForm.ENTRIES])),
    )
    read = Read("a store/\u00e4", kind, form, stale=draw(st.booleans()))
    maybe = MILLISECONDS | st.none()
    if kind is StoreKind.KEY_VALUE:
        read = replace(read, as_of=draw(maybe))
        if draw(st.booleans()):
            return replace(read, form=ResultForm.VALUES, keys=tuple(draw(st.lists(SOME_KEY, max_size=5))))
    if form is ResultForm.VALUE:
        read = replace(read, key=draw(SOME_KEY))
        if kind is not StoreKind.KEY_VALUE:
            read = replace(read, start=draw(MILLISECONDS))
        return replace(read, end=draw(MILLISECONDS)) if kind is StoreKind.SESSION else read
    after = st.tuples(SOME_KEY, MILLISECONDS, MILLISECONDS) | st.none()
    read = replace(read, reverse=draw(st.booleans()), limit=draw(st.integers(1, 10_000)), after=draw(after))
    if kind is StoreKind.KEY_VALUE and draw(st.booleans()):
        return of_prefix(read, draw(SOME_KEY))
    if kind is not StoreKind.KEY_VALUE:
        read = replace(read, earliest=draw(maybe), latest=draw(maybe))
        if draw(st.booleans()):
            return replace(read, key=draw(SOME_KEY))
    return replace(read, low=draw(SOME_KEY | st.none()), high=draw(SOME_KEY | st.none()))


@given(reads())
def test_a_read_that_is_asked_for_is_the_one_that_is_read(read: Read) -> None:
    """What a client sends, a server understands: written and parsed, it is the same value."""
    question = question_of(read)
    path, _, query = question.target.partition("?")
    request = parse_request(question.method, path.encode(), query.encode())
    store = StoreDeclaration(read.store, Serdes.long(), Serdes.long(), kind=read.kind)
    limit = request.limit(1, 10_000) if "limit" in request.given else None
    found = read_of(store, request, limit=limit)
    if question.body is not None:
        found = replace(found, keys=tuple(keys_in(store, question.body, request.format, most=10)))
    assert found == read
    assert request.store == read.store


@pytest.mark.parametrize(
    "read",
    [Read("s", partition=1), Read("s", form=ResultForm.VERSIONS), Read("s", high=b"a", high_included=False)],
)
def test_what_cannot_be_asked_for_is_told(read: Read) -> None:
    """It is not ignored."""
    with pytest.raises(ValueError, match="a query server does not support"):
        question_of(read)
