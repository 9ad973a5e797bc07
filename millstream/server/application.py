"""The ASGI application: who is let in, how much a request may take, and what becomes of what goes wrong.

It needs no web framework and can be mounted in one. It never raises into the server: whatever happens is an
answer, from the table in answers.py. Neither paths nor bodies nor tokens reach a log.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from millstream.errors import ConfigException, IllegalStateException, StreamsException, TimeoutException
from millstream.query.metadata import HostInfo
from millstream.server.answers import Answer, Refused
from millstream.server.limits import Limits
from millstream.server.reads import QueriedStreams
from millstream.server.routes import Request, parse_request
from millstream.server.service import QueryService
from millstream.server.wire import FORWARDED
from millstream.server.workers import Deadline, server_closed

__all__ = ["QueryApplication", "checked_token"]

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def checked_token(token: str | None) -> str | None:
    """A token that can stand in a header; None: there is none.

    Raises:
        ConfigException: it is empty, or has other characters than printable ASCII, or spaces.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise ConfigException("a token is a text of printable ASCII characters without spaces")
    return token


class QueryApplication:
    """Answers interactive queries of a client over HTTP, as an ASGI 3 application.

        app = QueryApplication(streams, token="...")

    `QueryServer` serves it; or mount it in an application of your own. docs/query-server.md has the paths.

    Args:
        streams: the client. It may be in any state; what it cannot answer now is told.
        token: what requests have to show, as `Authorization: Bearer <token>`; None: anybody may ask.
        host: this client's `application.server`, if it has one, so that it does not ask itself.
        limits: how much a request may take.
        allowed_hosts: the names by which clients may call this server, in the header Host; None: any.
            Without a token it keeps out web pages that have a name of their own point here.
        peer_prefix: where the other clients have mounted their application; usually the root.

    Raises:
        ConfigException: the token is none.

    Differs: Kafka Streams leaves this to its users (its documentation shows how to begin).
    """

    def __init__(
        self,
        streams: QueriedStreams,
        token: str | None = None,
        *,
        host: HostInfo | None = None,
        limits: Limits | None = None,
        allowed_hosts: Iterable[str] | None = None,
        peer_prefix: str = "",
    ) -> None:
        self._client_id = streams.client_id
        self._token = checked_token(token)
        self._limits = limits or Limits()
        self._hosts = None if allowed_hosts is None else frozenset(name.lower() for name in allowed_hosts)
        self._service = QueryService(
            streams, host=host, token=self._token, limits=self._limits, peer_prefix=peer_prefix
        )
        self._active = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection's request, as ASGI has it."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1003})
            case other:
                raise NotImplementedError(f"no ASGI scope of type '{other}'")

    def close(self) -> None:
        """End its threads. Idempotent.

        `QueryServer`, and servers that send lifespan events, call this; else it is who mounts it.
        """
        self._service.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await asyncio.get_running_loop().run_in_executor(None, self.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    # --- one request -------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answered(scope, receive)
        await self._send(answer, scope.get("method") == "HEAD", send)

    async def _answered(self, scope: Scope, receive: Receive) -> Answer:
        try:
            headers = _headers(scope)
            self._check_host(headers)
            request = self._request(scope)
            if request.route.open:
                return await self._in_time(request, headers, receive)
            self._check_token(headers)
            with self._counted():
                return await self._in_time(request, headers, receive)
        except TimeoutError:
            seconds = self._limits.deadline_s + self._limits.transfer_s
            return self._service.error(TimeoutException(f"no answer within {seconds:g} s; try again"))
        except asyncio.CancelledError:
            # The server is being closed and has waited for this answer as long as it waits.
            log.info("%s the query server closes before a query is answered", self._client_id)
            return self._service.error(server_closed())
        except (Refused, StreamsException, IllegalStateException) as error:
            return self._service.error(error)
        except Exception as error:
            # What it says may be what a record says, so only where it happened is told.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s a query failed with %s\n%s", self._client_id, type(error).__name__, where)
            return self._service.error(error)

    async def _in_time(
        self, request: Request, headers: Mapping[bytes, list[bytes]], receive: Receive
    ) -> Answer:
        async with asyncio.timeout(self._limits.deadline_s + self._limits.transfer_s):
            body = await self._body(request, headers, receive)
            deadline = Deadline(self._limits.deadline_s)
            forwarded = FORWARDED.encode() in headers
            answer = await self._service.answer(request, body, deadline, forwarded=forwarded)
            return answer.encoded()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """One of the requests being answered; health is none of them, and is told however many there are."""
        if self._active >= self._limits.concurrent:
            busy = f"{self._limits.concurrent} requests are being answered; try again"
            raise Refused(503, "Busy", busy, retriable=True)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def _check_host(self, headers: Mapping[bytes, list[bytes]]) -> None:
        if self._hosts is None:
            return
        named = headers.get(b"host", [])
        text = named[0].decode("latin-1").lower() if len(named) == 1 else ""
        name = text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]
        if name not in self._hosts:
            raise Refused(403, "Forbidden", "this server does not go by the name in the header Host")

    def _check_token(self, headers: Mapping[bytes, list[bytes]]) -> None:
        if self._token is None:
            return
        given = headers.get(b"authorization", [])
        scheme, _, shown = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # In constant time, whatever was given: how long it takes tells nothing of the token.
        if not hmac.compare_digest(shown.strip(), self._token.encode()) or scheme.lower() != b"bearer":
            raise Refused(
                401,
                "Unauthorized",
                "this server wants its token: Authorization: Bearer <token>",
                headers={"www-authenticate": "Bearer"},
            )

    def _request(self, scope: Scope) -> Request:
        path: bytes = scope.get("raw_path") or quote(scope["path"], safe="/").encode()
        path = path.partition(b"?")[0]  # some servers leave the query in it
        root = quote(scope.get("root_path", ""), safe="/%").encode().rstrip(b"/")
        if root and path.startswith(root + b"/"):
            path = path[len(root) :]
        query: bytes = scope.get("query_string", b"")
        if len(path) + len(query) > self._limits.target_bytes:
            most = self._limits.target_bytes
            raise Refused(414, "TooLong", f"path and query have {most} bytes at most", close=True)
        return parse_request(scope["method"], path, query)

    async def _body(self, request: Request, headers: Mapping[bytes, list[bytes]], receive: Receive) -> bytes:
        """All of the body, which is complete within the time and the size that are allowed."""
        most = self._limits.body_bytes if request.route.method == "POST" else 0
        too_large = Refused(413, "TooLarge", f"a body has {most} bytes at most here", close=True)
        lengths = headers.get(b"content-length", [b"0"])
        if any(not length.isdigit() or len(length) > 15 or int(length) > most for length in lengths):
            raise too_large
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.transfer_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(400, "BadRequest", "the body ended too early", close=True)
                    chunk = message.get("body", b"")
                    size += len(chunk)
                    if size > most:
                        raise too_large
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise Refused(408, "TooSlow", "the body took too long to come", close=True) from None

    async def _send(self, answer: Answer, is_head: bool, send: Send) -> None:
        body = answer.encoded().raw or b""
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **answer.headers,
        }
        start = {
            "type": "http.response.start",
            "status": answer.status,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        }
        try:
            # A client that does not read its answer holds no store, and after this time no connection.
            async with asyncio.timeout(self._limits.transfer_s):
                await send(start)
                await send({"type": "http.response.body", "body": b"" if is_head else body})
        except TimeoutError:
            log.info("%s a client did not take its answer in time", self._client_id)
        except OSError:
            log.debug("%s a client went away before its answer came", self._client_id)


def _headers(scope: Scope) -> dict[bytes, list[bytes]]:
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope.get("headers", []):
        headers.setdefault(bytes(name).lower(), []).append(bytes(value))
    return headers
