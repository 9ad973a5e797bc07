"""Which pages may read answers in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server_world import application, ask

from millstream.errors import ConfigException
from millstream.server.application import QueryApplication
from millstream.server.entrance import Origins

PAGE = "https://app.example.org"


@pytest.fixture(scope="module")
def app() -> Iterator[QueryApplication]:
    made = QueryApplication(application().clients[0], "secret", cors=[PAGE, "http://localhost:3000"])
    yield made
    made.close()


@pytest.mark.parametrize(
    ("origin", "reads"),
    [
        (PAGE, True),
        ("http://localhost:3000", True),
        ("https://app.example.org:443", False),
        ("http://app.example.org", False),
        ("https://app.example.org.evil.example", False),
        ("https://evil.example", False),
        ("HTTPS://APP.EXAMPLE.ORG", False),
        ("null", False),
        ("", False),
        ("*", False),
    ],
)
def test_only_pages_that_are_named_may_read(app: QueryApplication, origin: str, reads: bool) -> None:
    """Errors, too; a cache is told that it depends on the origin; cookies are never allowed."""
    for token, status in (("secret", 200), (None, 401)):
        answer = ask(app, "/v1/stores", token=token, headers=[(b"origin", origin.encode())])
        assert answer.status == status
        assert answer.headers.get("access-control-allow-origin") == (origin if reads else None)
        assert answer.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in answer.headers


def preflight(app: QueryApplication, origin: str, *more: tuple[bytes, bytes]) -> tuple[int, str | None]:
    asking = [(b"origin", origin.encode()), (b"access-control-request-method", b"POST"), *more]
    answer = ask(app, "/v1/sql", method="OPTIONS", headers=asking)
    return answer.status, answer.headers.get("access-control-allow-headers")


def test_a_browser_may_ask_whether_it_may_ask(app: QueryApplication) -> None:
    """The preflight needs no token, which may then be sent. Other origins are refused."""
    assert preflight(app, PAGE) == (204, "authorization, content-type, accept")
    assert preflight(app, "https://evil.example") == (405, None)
    assert preflight(app, PAGE, (b"origin", b"https://evil.example")) == (405, None)
    assert ask(app, "/v1/stores", method="OPTIONS", headers=[(b"origin", PAGE.encode())]).status == 405


def test_it_is_off_unless_it_is_set() -> None:
    """Then nothing of it is in an answer."""
    app = QueryApplication(application().clients[0])
    answer = ask(app, "/v1/stores", headers=[(b"origin", PAGE.encode())])
    assert preflight(app, PAGE) == (405, None)
    app.close()
    assert not {name for name in answer.headers if name.startswith("access-control") or name == "vary"}


@pytest.mark.parametrize(
    "origin",
    [
        "*",
        "null",
        "",
        "app.example.org",
        "https://*.example.org",
        "https://app.example.org/",
        "https://app.example.org/page",
        "https://app.example.org:443",
        "http://localhost:80",
        "https://me@app.example.org",
        "https://App.example.org",
        "https://app.example.org:port",
        "ftp://app.example.org",
        "https://ä.example.org",
        "https://app.example.org\n",
    ],
)
def test_what_is_no_origin_is_refused(origin: str) -> None:
    """A browser would never send it, so that nothing would be allowed, and nobody told."""
    with pytest.raises(ConfigException, match="is not an origin"):
        Origins([origin])
