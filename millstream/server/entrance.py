"""Who is admitted, the limits of a request, and which other clients this one queries.

It decides from a request's head alone, before the body is read: the head's size, the names of the server,
tokens and proofs. Neither tokens nor proofs reach a log.

The endpoints of the other clients come from the group, and any member of the group can announce any endpoint
(`query.server.peers`). With a token, each endpoint must prove that it knows it (remote/proof.py), and
`Allowed` only limits where connections go. Without a token there is nothing to prove, so only endpoints on
this machine or named ones are queried.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import urlsplit

from millstream.errors import ConfigException
from millstream.query.metadata import HostInfo
from millstream.remote.answers import Answer, Refused
from millstream.remote.proof import (
    FORWARDED,
    SCHEME,
    SIGNATURE,
    STALE,
    Answerer,
    Seal,
)

__all__ = [
    "Allowed",
    "Entrance",
    "Headers",
    "Limits",
    "Origins",
    "headers_of",
    "is_loopback",
]

Headers = Mapping[bytes, list[bytes]]

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, list[bytes]]:
    """A request's headers, by their lower-case names."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope.get("headers", []):
        headers.setdefault(bytes(name).lower(), []).append(bytes(value))
    return headers


class Entrance:
    """Admits requests, or says why not. Used on one event loop.

    Args:
        token: what requests must show or prove; None: nothing.
        secret: `secret_of` the token and the application; None: this server proves nothing.
        name: the endpoint by which other clients know this server; None: it has none, and proves nothing.
        hosts: the names that the header Host may have; None: any.
    """

    def __init__(
        self,
        token: str | None,
        secret: bytes | None,
        name: HostInfo | None,
        hosts: Iterable[str] | None,
        limits: Limits,
    ) -> None:
        self._token = token
        self._answerer = None if secret is None or name is None else Answerer(secret, str(name))
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._limits = limits

    def seal(self, headers: Headers, method: str, target: str) -> Seal | None:
        """The proof in a request, if it has a correct one; it may be stale."""
        given = headers.get(b"authorization", [])
        if self._answerer is None or len(given) != 1 or not given[0].startswith(SCHEME.encode()):
            return None
        forwarded = FORWARDED.encode() in headers
        return self._answerer.seal(given[0].decode("latin-1"), method, target, forwarded=forwarded)

    def check_head(self, scope: Mapping[str, Any], headers: Headers) -> None:
        """Check that a request's head is not too large, and that it is meant for this server.

        Raises:
            Refused: it is not.
        """
        fields = scope.get("headers", [])
        size = sum(len(name) + len(value) for name, value in fields)
        if len(fields) > self._limits.headers or size > self._limits.header_bytes:
            most = f"{self._limits.headers} headers, of {self._limits.header_bytes} bytes in all"
            raise Refused(431, "TooLarge", f"a request can have at most {most}", close=True)
        if self._hosts is None:
            return
        named = headers.get(b"host", [])
        found = _HOST.fullmatch(named[0].decode("latin-1").lower()) if len(named) == 1 else None
        if found is None or (found[1] or found[2]) not in self._hosts:
            raise Refused(403, "Forbidden", "the header Host does not name this server")

    def admit(self, headers: Headers, seal: Seal | None, *, acts: bool = False) -> None:
        """Admit a request that has the token, or a fresh proof of it.

        Args:
            acts: the request changes the client, or is expensive, so a token is required.

        Raises:
            Refused: the request has neither.
        """
        if self._token is None:
            if acts:
                raise Refused(
                    403,
                    "Forbidden",
                    "a server without a token accepts neither commands nor SQL, not even from this "
                    "machine; set 'query.server.token'",
                )
            return
        if seal is not None:
            if not seal.fresh:
                raise Refused(401, STALE, "this proof is too old, or was already used; send a new one")
            return
        given = headers.get(b"authorization", [])
        scheme, _, shown = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # In constant time, so that the time taken reveals nothing about the token.
        if not hmac.compare_digest(shown.strip(), self._token.encode()) or scheme.lower() != b"bearer":
            raise Refused(
                401,
                "Unauthorized",
                "this server requires a token: Authorization: Bearer <token>",
                headers={"www-authenticate": "Bearer"},
            )

    def proof(self, nonce: str) -> Answer:
        """This server's own proof, for a client that is about to query it.

        Raises:
            Refused: the server has no proof, or the nonce is invalid.
        """
        if self._answerer is None:
            raise Refused(404, "NotFound", "this server has no token to prove, or no endpoint of its own")
        proof = self._answerer.proof(nonce)
        if proof is None:
            raise Refused(400, "BadRequest", "a nonce must be 64 hexadecimal digits")
        return Answer(200, proof)

    @staticmethod
    def signed(answer: Answer, seal: Seal) -> Answer:
        """An answer with its proof, which covers exactly the body to be sent."""
        encoded = answer.encoded()
        retry_after = encoded.headers.get("retry-after")
        signature = seal.answer(encoded.status, retry_after, encoded.raw or b"")
        return replace(encoded, headers={**encoded.headers, SIGNATURE: signature})


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, and of all of them together.

    Attributes:
        target_bytes: of path and query. `headers`, `header_bytes`: number and total size of the headers.
        body_bytes: of a body. `keys`: in one body.
        page: the default number of entries in a page; `most_page`: the maximum.
        page_bytes: the size of a page's keys and values together (a single entry may be larger).
        answer_bytes: the same for the values that one body requests; more is refused.
        concurrent: requests being answered; more are refused at once. `connections`: open connections.
        streams: streamed answers, such as events; more are refused at once.
        stream_s: how long one of them may last; `heartbeat_s`: how often an event stream sends a heartbeat.
        watchers: how many clients may watch the dashboard's events.
        readers, forwarders: the numbers of threads that read stores, and that wait for other clients.
        deadline_s: how long an answer may take. `transfer_s`: how long a body may take to arrive, and an
            answer to be sent. `idle_s`: how long a connection is kept between two requests.
    """

    target_bytes: int = 8_192
    headers: int = 100
    header_bytes: int = 16_384
    body_bytes: int = 1 << 20
    keys: int = 10_000
    page: int = 1_000
    most_page: int = 10_000
    page_bytes: int = 1 << 20
    answer_bytes: int = 16 << 20
    concurrent: int = 64
    connections: int = 256
    streams: int = 16
    stream_s: float = 3_600.0
    heartbeat_s: float = 15.0
    watchers: int = 8
    readers: int = 4
    forwarders: int = 8
    deadline_s: float = 10.0
    transfer_s: float = 10.0
    idle_s: float = 30.0


Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"[A-Za-z0-9*?._-]+")


def is_loopback(host: str) -> bool:
    """Whether an address can be reached only from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Pattern:
    """An entry of `query.server.peers`: a network or names, at any port or at one."""

    network: Network | None
    names: str
    port: int | None

    def fits(self, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
        if self.network is not None:
            return address is not None and address in self.network
        return fnmatchcase(host, self.names)


class Allowed:
    """Which endpoints may be queried.

    Args:
        patterns: each a host name (with `*` and `?` as wildcards), an address, or a network such as
            10.0.0.0/8; followed by `:port`, or for any port. If there are none, see `refusal`.
        has_token: whether endpoints have to prove themselves.

    Raises:
        ConfigException: one of the patterns is invalid.
    """

    def __init__(self, patterns: Iterable[str] = (), *, has_token: bool) -> None:
        self._patterns = tuple(_parsed(pattern) for pattern in patterns)
        self._has_token = has_token

    def refusal(self, host: HostInfo) -> str | None:
        """Why an endpoint is not queried; None: it may be.

        Names are compared as text and never resolved, so only an address can match a network.
        """
        if self._patterns:
            if self._names(host):
                return None
            return "'query.server.peers' does not include it"
        if self._has_token or is_loopback(host.host):
            return None
        return (
            "it is on another machine, and without a token nothing proves who answers there; set "
            "'query.server.token', or add it to 'query.server.peers'"
        )

    def _names(self, host: HostInfo) -> bool:
        name = host.host.lower()
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            address = None
        return any(
            pattern.port in (None, host.port) and pattern.fits(name, address) for pattern in self._patterns
        )


def _parsed(pattern: str) -> _Pattern:
    text = pattern.strip() if isinstance(pattern, str) else ""
    for place, port in ((text, None), text.rpartition(":")[::2]):
        number = None
        if port is not None:
            if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
                break
            number = int(port)
        place = place[1:-1] if place.startswith("[") and place.endswith("]") else place
        try:
            return _Pattern(ipaddress.ip_network(place, strict=False), "", number)
        except ValueError:
            pass
        if _NAME.fullmatch(place):
            return _Pattern(None, place.lower(), number)
    raise ConfigException(
        f"'query.server.peers': '{pattern}' is not an endpoint; one looks like 'orders-1', 'orders-*:8080', "
        "'10.0.0.0/8' or '[fd00::/8]:8080'"
    )


# --- pages of other origins ----------------------------------------------------------------------------

# Which pages of other sites may read answers in a browser: only those of the configured origins. Pure.
#
# A browser asks the server before it lets a page of another origin read an answer or send a token. Without
# `query.server.cors.origins`, no such page may. Cookies mean nothing here, so credentials are never allowed.
#
# Source: https://fetch.spec.whatwg.org/#http-cors-protocol

_PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST",
    "access-control-allow-headers": "authorization, content-type, accept",
    "access-control-max-age": "600",
}
_EXPOSED = {"access-control-expose-headers": "retry-after"}


class Origins:
    """The origins whose pages may read answers.

    Args:
        origins: each as a browser sends it: `https://app.example.org`, with a port unless it is the default.
            No patterns: a pattern could include a stranger's origin, which would read with the user's token.

    Raises:
        ConfigException: one of them is not an origin.
    """

    def __init__(self, origins: Iterable[str] = ()) -> None:
        self._origins = frozenset(_checked(origin) for origin in origins)

    def preflight(self, method: str, headers: Headers) -> Answer | None:
        """The answer to a browser's preflight; None: the request is not one, or its origin is not allowed."""
        if method != "OPTIONS" or b"access-control-request-method" not in headers:
            return None
        allowed = self._allowed(headers)
        return None if allowed is None else Answer(204, headers={**allowed, **_PREFLIGHT}, raw=b"")

    def marked(self, answer: Answer, headers: Headers) -> Answer:
        """The answer with headers by which a browser knows whether its page may read it."""
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
            f"'query.server.cors.origins': '{origin}' is not an origin; one looks like "
            "'https://app.example.org' "
            "or 'http://localhost:3000', in lower case, without a path, and without the default port"
        )
    return origin
