"""Asking a query server, from another one or from `RemoteStore`: HTTP over connections that are kept.

Standard library only. Each question has one deadline for all of it; an answer has a largest size; a
connection that the server has closed meanwhile is replaced once.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from millstream.errors import ConfigException
from millstream.server.workers import Deadline

__all__ = ["FORWARDED", "NOT_OURS", "Reply", "Wire", "WireError", "base_of"]

log = logging.getLogger(__name__)

FORWARDED = "millstream-forwarded"
"""The header of a question that a query server passes on: answer it yourself, or not at all."""

NOT_OURS = "NotOurs"
"""Instead of the name of an error: the answer was none of a query server's."""

_MOST_IDLE = 8
_CHUNK = 1 << 16
_LARGEST = 64 << 20
"""The largest answer that is read."""

_NO_ANSWER = (http.client.HTTPException, OSError, UnicodeError)
"""What asking may raise; a UnicodeError: there cannot be a host of that name."""


class WireError(Exception):
    """There was no answer: the server cannot be reached, is too slow, or speaks something else."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class Reply(NamedTuple):
    """An answer: `body` is the JSON object of it, `raw` its text."""

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
    """The server that an address means, such as `http://localhost:8080`.

    Raises:
        ConfigException: it is none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigException(
            f"'{url}' is no address of a query server; one looks like 'http://localhost:8080'"
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigException("a query server's address has no user and password in it; give token=")
    usual = 443 if parts.scheme == "https" else 80
    return Base(parts.scheme, parts.hostname, usual if port is None else port, parts.path.rstrip("/"))


class Wire:
    """Questions to one server. Any number of threads may ask."""

    def __init__(self, base: Base, token: str | None = None) -> None:
        self.base = base
        self._token = token
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._closed = False

    def ask(
        self,
        method: str,
        target: str,
        *,
        deadline: Deadline,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The answer to one question; whatever its status.

        Raises:
            WireError: there was none.
        """
        connection = self._idle_one()
        if connection is not None:
            try:
                return self._once(connection, method, target, body, headers, deadline)
            except _NO_ANSWER as error:
                # It was closed while it was idle, most likely; every question may be asked twice.
                log.debug("a kept connection to %s failed: %s", self.base, type(error).__name__)
        try:
            return self._once(self._new_one(), method, target, body, headers, deadline)
        except _NO_ANSWER as error:
            raise self._unreachable(error, deadline) from error

    def _once(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | None,
        headers: Mapping[str, str] | None,
        deadline: Deadline,
    ) -> Reply:
        kept = False
        try:
            self._limit(connection, deadline)
            sent = {"accept": "application/json", **(headers or {})}
            if self._token is not None:
                sent["authorization"] = f"Bearer {self._token}"
            if body is not None:
                sent["content-type"] = "application/json"
            connection.request(method, f"{self.base.prefix}{target}", body=body, headers=sent)
            response = connection.getresponse()
            raw = self._read(connection, response, deadline)
            kept = not response.will_close
            told = self._object(raw, response.status)
            return Reply(response.status, told, raw, response.getheader("retry-after"))
        except TimeoutError as error:
            raise self._unreachable(error, deadline) from error
        finally:
            if not (kept and self._keep(connection)):
                connection.close()

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: Deadline
    ) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            self._limit(connection, deadline)
            chunk = response.read1(_CHUNK)
            if not chunk:
                if response.length:
                    raise http.client.IncompleteRead(b"", response.length)
                response.close()  # read1 does not, and the connection takes no other question before that
                return b"".join(chunks)
            chunks.append(chunk)
            size += len(chunk)
            if size > _LARGEST:
                raise WireError(f"the query server at {self.base} answered with more than {_LARGEST} bytes")

    def _limit(self, connection: http.client.HTTPConnection, deadline: Deadline) -> None:
        """No single wait is longer than what is left of the deadline."""
        left = deadline.remaining_s
        if left <= 0:
            raise self._unreachable(TimeoutError(), deadline)
        connection.timeout = left
        if connection.sock is not None:
            connection.sock.settimeout(left)

    def _object(self, raw: bytes, status: int) -> Mapping[str, Any]:
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict) and status >= 400:
            # Of what stands before the query server: a proxy, or the server's own limit of connections.
            return {
                "error": NOT_OURS,
                "message": f"what answers at {self.base} refuses, with status {status}",
            }
        if not isinstance(body, dict):
            raise WireError(
                f"what answers at {self.base} is no query server of Millstream's: no JSON object came"
            )
        return body

    def _unreachable(self, error: Exception, deadline: Deadline) -> WireError:
        if isinstance(error, TimeoutError):
            message = f"the query server at {self.base} did not answer within {deadline.seconds:g} s"
            return WireError(message, timed_out=True)
        why = f"{type(error).__name__}: {error}"
        return WireError(f"the query server at {self.base} cannot be reached: {why}")

    # --- connections -------------------------------------------------------------------------------------

    def _idle_one(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _new_one(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.base.scheme == "https" else http.client.HTTPConnection
        return kind(self.base.host, self.base.port)

    def _keep(self, connection: http.client.HTTPConnection) -> bool:
        with self._lock:
            if self._closed or len(self._idle) >= _MOST_IDLE or connection.sock is None:
                return False
            self._idle.append(connection)
            return True

    def close(self) -> None:
        """Close the connections that are idle; one in use is closed by who uses it. Idempotent."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
