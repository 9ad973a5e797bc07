"""Which pages of other sites may read answers in a browser: exactly those that are named. Pure.

A browser asks the server before it lets a page of another origin read an answer, or send a token. Without
`query.server.cors.origins` no such page is let. Cookies are nothing here, so credentials are never allowed.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from millstream.errors import ConfigException
from millstream.server.answers import Answer
from millstream.server.entrance import Headers

__all__ = ["Origins"]

_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "authorization, content-type, accept",
    "access-control-max-age": "600",
}
_EXPOSED = {"access-control-expose-headers": "retry-after"}


class Origins:
    """The origins that may read.

    Args:
        origins: each as a browser sends it: `https://app.example.org`, with a port if it is not the usual
            one. No patterns: an origin that somebody else can have would read with the token of who looks.

    Raises:
        ConfigException: one is no origin.
    """

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(_checked(origin) for origin in origins)

    def preflight(self, method: str, headers: Headers) -> Answer | None:
        """The answer to a browser that asks whether it may ask; None: this is no such question, or of a page
        that may not.
        """
        if method != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        allowed = self._allowed(headers)
        return None if allowed is None else Answer(204, headers={**allowed, **_PREFLIGHT}, raw=b"")

    def marked(self, answer: Answer, headers: Headers) -> Answer:
        """An answer that says to a browser whether its page may read it."""
        if not self._origins:
            return answer
        allowed = self._allowed(headers)
        more = {"vary": "Origin"} if allowed is None else {**allowed, **_EXPOSED}
        return replace(answer, headers={**answer.headers, **more})

    def _allowed(self, headers: Headers) -> Mapping[str, str] | None:
        given = headers.get(b"origin", [])
        origin = given[0].decode("latin-1") if len(given) == 1 else ""
        if origin not in self._origins:
            return None
        return {"access-control-allow-origin": origin, "vary": "Origin"}


def _checked(origin: str) -> str:
    try:
        parts = urlsplit(origin)
        written = f"{parts.scheme}://{parts.netloc}"
        good = parts.scheme in ("http", "https") and parts.hostname and parts.username is None
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        good = good and written == origin == origin.lower() and parts.port != usual and origin.isascii()
    except ValueError:
        good = False
    if not good or "*" in origin:
        raise ConfigException(
            f"'query.server.cors.origins': '{origin}' is no origin; one looks like 'https://app.example.org' "
            "or 'http://localhost:3000', in lower case, without a path, and without the usual port"
        )
    return origin
