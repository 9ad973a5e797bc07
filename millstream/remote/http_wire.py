"""HTTP requests to a query server, from another one or from `RemoteStore`, over persistent connections.

Standard library only. Each request has one deadline for all its steps, an answer has a maximum size, and a
connection that the server has closed meanwhile is replaced once.

A server that the user has named is sent the token. One whose endpoint was only announced is not: it has to
prove that it knows the token on each new connection, and every answer carries a proof (proof.py).
"""

from __future__ import annotations

import http.client
import json
import logging
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from millstream.errors import ConfigException, TimeoutException
from millstream.remote.proof import FORWARDED, PROOF_PATH, SIGNATURE, STALE, Proven, fresh_nonce, proven

__all__ = [
    "NOT_OURS",
    "Base",
    "Deadline",
    "Reply",
    "Tls",
    "Unproven",
    "Wire",
    "WireError",
    "base_of",
    "trusted_at",
    "trusting",
]


log = logging.getLogger(__name__)


class Deadline:
    """The deadline of a request. Any thread may use it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def remaining_s(self) -> float:
        """The time left; negative once the deadline has passed."""
        return self._at - time.monotonic()

    def check(self) -> None:
        """Check that the deadline has not passed.

        Raises:
            TimeoutException: it has.
        """
        if self.remaining_s <= 0:
            raise TimeoutException(
                f"no answer within {self.seconds:g} s; request less at once (limit=), or try again"
            )


NOT_OURS = "NotOurs"
"""Instead of the name of an error: the answer did not come from a query server."""

_MOST_IDLE = 8
_CHUNK = 1 << 16
_LARGEST = 64 << 20
"""The maximum size of an answer."""
_LARGEST_PROOF = 4096
_PROOF_S = 3.0
"""How long an endpoint may take to prove itself. Otherwise a rogue endpoint could block all its clients."""

_NO_ANSWER = (http.client.HTTPException, OSError, UnicodeError)
"""What a request may raise; a UnicodeError if the name is not a valid host name."""


class WireError(Exception):
    """There was no answer: the server cannot be reached, is too slow, or speaks another protocol."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Unproven(WireError):
    """The endpoint, or its answer, does not prove that it knows the token; `timed_out`: perhaps it will."""


class Reply(NamedTuple):
    """An answer: `body` is its JSON object, `raw` its text."""

    status: int
    body: Mapping[str, Any]
    raw: bytes
    retry_after: str | None = None


class Base(NamedTuple):
    """Where a server is. `prefix` is where the application was mounted, such as `/streams`; else empty."""

    scheme: str
    host: str
    port: int
    prefix: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def base_of(url: str) -> Base:
    """The server that a URL names, such as `http://localhost:8080`.

    Raises:
        ConfigException: the URL is not a server's.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigException(
            f"'{url}' is not a query server's address; one looks like 'http://localhost:7070'"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigException("a query server's address cannot have a user and password; give token=")
    usual = 443 if parts.scheme == "https" else 80
    return Base(parts.scheme, parts.hostname, usual if port is None else port, parts.path.rstrip("/"))


class _Line:
    """One connection; `proven` once the other end has proved itself on it."""

    def __init__(self, base: Base, tls: ssl.SSLContext | None) -> None:
        self.http: http.client.HTTPConnection
        if base.scheme == "https":
            self.http = http.client.HTTPSConnection(base.host, base.port, context=tls)
        else:
            self.http = http.client.HTTPConnection(base.host, base.port)
        self.proven: Proven | None = None


class Wire:
    """Requests to one server. Any number of threads may use it.

    Args:
        token: sent with each request; only for a server that the user has named.
        secret: proved instead, first by the server (`secret_of` a token); for a server that others announced.
        name: the endpoint that the server has to prove to be, as others have announced it.
        tls: which certificates are trusted, over https; None: those of authorities that the machine trusts.
    """

    def __init__(
        self,
        base: Base,
        token: str | None = None,
        *,
        secret: bytes | None = None,
        name: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self.base = base
        self._token = token
        self._secret = secret
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Line] = []
        self._closed = False

    def ask(
        self,
        method: str,
        target: str,
        *,
        deadline: Deadline,
        body: bytes | None = None,
        forwarded: bool = False,
    ) -> Reply:
        """The answer to one request, whatever its status.

        Raises:
            Unproven: the server has not proved that it knows the token, so it was not queried, or its answer
                is not trusted.
            WireError: there was no answer.
        """
        line = self._idle_one()
        if line is not None:
            try:
                reply = self._once(line, method, target, body, forwarded, deadline)
                if reply.body.get("error") != STALE:
                    return reply
            except _NO_ANSWER as error:
                # Most likely, it was closed while it was idle. Every question can safely be sent twice.
                log.debug("a kept connection to %s failed: %s", self.base, type(error).__name__)
        try:
            return self._once(_Line(self.base, self._tls), method, target, body, forwarded, deadline)
        except _NO_ANSWER as error:
            raise self._unreachable(error, deadline) from error

    def _once(
        self,
        line: _Line,
        method: str,
        target: str,
        body: bytes | None,
        forwarded: bool,
        deadline: Deadline,
    ) -> Reply:
        kept = False
        try:
            self._limit(line, deadline)
            sent = {"accept": "application/json"}
            if forwarded:
                sent[FORWARDED] = "1"
            if body is not None:
                sent["content-type"] = "application/json"
            question = ""
            if self._secret is not None:
                line.proven = line.proven or self._proved(line, self._secret, deadline)
                shown, question = line.proven.question(method, target, body or b"", forwarded=forwarded)
                sent["authorization"] = shown
            elif self._token is not None:
                sent["authorization"] = f"Bearer {self._token}"
            line.http.request(method, f"{self.base.prefix}{target}", body=body, headers=sent)
            response = line.http.getresponse()
            raw = self._read(line, response, deadline, _LARGEST)
            kept = not response.will_close
            retry_after = response.getheader("retry-after")
            if line.proven is not None:
                signature = response.getheader(SIGNATURE)
                if not line.proven.believes(question, response.status, retry_after, raw, signature):
                    kept = False
                    raise Unproven(f"an answer from {self.base} has no proof that its sender knows the token")
            answer = self._object(raw, response.status)
            kept = kept and answer.get("error") != STALE
            return Reply(response.status, answer, raw, retry_after)
        except TimeoutError as error:
            raise self._unreachable(error, deadline) from error
        finally:
            if not (kept and self._keep(line)):
                line.http.close()

    def _proved(self, line: _Line, secret: bytes, deadline: Deadline) -> Proven:
        """The proof of the other end of a new connection, before anything else is sent to it.

        Raises:
            Unproven: it has proved nothing.
        """
        nonce = fresh_nonce()
        soon = Deadline(min(_PROOF_S, deadline.remaining_s))
        self._limit(line, soon)
        line.http.connect()
        try:
            line.http.request("GET", f"{self.base.prefix}{PROOF_PATH}?nonce={nonce}")
            response = line.http.getresponse()
            raw = self._read(line, response, soon, _LARGEST_PROOF)
        except TimeoutError as error:
            raise self._silent() from error
        except WireError as error:
            if not error.timed_out:
                raise
            raise self._silent() from error
        found = proven(secret, self._name, nonce, raw) if response.status == 200 else None
        if found is None:
            raise Unproven(f"the server at {self.base} does not prove that it knows the token")
        if response.will_close:
            raise Unproven(f"the server at {self.base} closes the connection on which it proved itself")
        line.http.auto_open = 0  # the next request goes over this connection or fails
        self._limit(line, deadline)
        return found

    def _silent(self) -> Unproven:
        message = f"the server at {self.base} did not prove within {_PROOF_S:g} s that it knows the token"
        return Unproven(message, timed_out=True)

    def _read(
        self, line: _Line, response: http.client.HTTPResponse, deadline: Deadline, largest: int
    ) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            self._limit(line, deadline)
            chunk = response.read1(_CHUNK)
            if not chunk:
                if response.length:
                    raise http.client.IncompleteRead(b"", response.length)
                response.close()  # read1 does not, and the connection accepts no other request before that
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
            if size > largest:
                raise WireError(f"the query server at {self.base} answered with more than {largest} bytes")

    def _limit(self, line: _Line, deadline: Deadline) -> None:
        """Limit each single wait to the time left until the deadline."""
        left = deadline.remaining_s
        if left <= 0:
            raise self._unreachable(TimeoutError(), deadline)
        line.http.timeout = left
        if line.http.sock is not None:
            line.http.sock.settimeout(left)

    def _object(self, raw: bytes, status: int) -> Mapping[str, Any]:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) and status >= 400:
            # From something in front of the query server: a proxy, or the server's own connection limit.
            return {
                "error": NOT_OURS,
                "message": f"the server at {self.base} refuses the request with status {status}",
            }
        if not isinstance(body, dict):
            raise WireError(
                f"the server at {self.base} is not a Millstream query server: it did not send a JSON object"
            )
        return body

    def _unreachable(self, error: Exception, deadline: Deadline) -> WireError:
        if isinstance(error, TimeoutError):
            message = f"the query server at {self.base} did not answer within {deadline.seconds:g} s"
            return WireError(message, timed_out=True)
        why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        return WireError(f"the query server at {self.base} cannot be reached: {why}")

    # --- connections -------------------------------------------------------------------------------------

    def _idle_one(self) -> _Line | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _keep(self, line: _Line) -> bool:
        with self._lock:
            if self._closed or len(self._idle) >= _MOST_IDLE or line.http.sock is None:
                return False
            self._idle.append(line)
            return True

    def close(self) -> None:
        """Close the idle connections; one in use is closed by its user. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for line in idle:
            line.http.close()


# --- TLS -----------------------------------------------------------------------------------------------

# TLS of the query server: its certificate, and the authorities that verify those of the other clients.
#
# Files are read when the server starts; after a certificate is renewed, the client must be restarted. A key's
# password never reaches a log or a message.


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted. All files are PEM.

    Attributes:
        certificate: the server's certificate, and the intermediate ones up to its authority's.
        key: its key; None: it is in the same file. `password`: the key's password.
        ca: the authorities of the other clients' certificates; None: those that the machine trusts.
    """

    certificate: str
    key: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    def serving(self) -> ssl.SSLContext:
        """The context of a server.

        Raises:
            ConfigException: the files are missing, do not match, or the password is wrong.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Always given, so that OpenSSL does not prompt at a terminal.
            context.load_cert_chain(self.certificate, self.key, lambda: self.password or "")
        except (OSError, ValueError) as error:
            raise ConfigException(
                f"the query server's certificate '{self.certificate}', with its key in "
                f"'{self.key or self.certificate}', cannot be used ({_why(error)}); both must be PEM files "
                "that match, and a key with a password needs 'query.server.ssl.key.password'"
            ) from None
        return context

    def asking(self) -> ssl.SSLContext:
        """The context for connections to other clients.

        Raises:
            ConfigException: the file of authorities cannot be read.
        """
        return trusting(self.ca)


def trusted_at(base: Base, ca: str | None) -> ssl.SSLContext | None:
    """Which certificates of this server are trusted; None: it is queried over http, and shows none.

    Raises:
        ConfigException: authorities are given for http, or their file cannot be read.
    """
    if base.scheme == "https":
        return trusting(ca)
    if ca is not None:
        raise ConfigException(
            f"the address {base} is not encrypted, so no certificate is checked against '{ca}'; "
            "give an address that begins with https:, or no file of authorities"
        )
    return None


def trusting(ca: str | None) -> ssl.SSLContext:
    """A context that trusts servers with a certificate from these authorities for the requested host name.

    Raises:
        ConfigException: the file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise ConfigException(f"'{ca}' cannot be read as CA certificates in PEM: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
