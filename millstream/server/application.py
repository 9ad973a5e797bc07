"""The ASGI application: it admits requests, limits them, and turns every failure into an answer.

It needs no web framework and can be mounted in one. It never raises into the server: every exception becomes
an answer, by the table in remote/answers.py. Paths, bodies and tokens are never logged.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import aclosing, contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from millstream.errors import IllegalStateException, StreamsException, TimeoutException
from millstream.foreign import ESCAPED
from millstream.query.metadata import HostInfo
from millstream.remote.answers import Answer, Refused
from millstream.remote.http_wire import Deadline
from millstream.remote.proof import FORWARDED, Seal, checked_token, secret_of
from millstream.remote.routes import Request, parse_request
from millstream.server.entrance import Allowed, Entrance, Headers, Limits, Origins, headers_of
from millstream.server.forms import MEDIA_TYPE
from millstream.server.local_stores import QueriedStreams
from millstream.server.peers import Peers, server_closed
from millstream.server.service import QueryService

__all__ = ["ADMITTED", "QueryApplication"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

ADMITTED = "millstream.admitted"
"""The callback to call on admission has this key in the state that a server passes with each request."""


class QueryApplication:
    """Answers interactive queries of a client over HTTP, as an ASGI 3 application.

        app = QueryApplication(streams, token="...")

    `QueryServer` serves it; or mount it in an application of your own. docs/query-server.md has the paths.

    Args:
        streams: the client. It may be in any state; queries that it cannot answer now get an error.
        token: required of requests, as `Authorization: Bearer <token>`; None: no token is required. Between
            clients it is proved, and never sent.
        host: this client's `application.server`, if it has one. The client does not query itself, and
            proves to others that it is the client of this name.
        limits: the limits of requests.
        allowed_hosts: the names that the header Host may have; None: any. Without a token, this keeps out
            web pages that point a host name of their own here (DNS rebinding).
        peer_prefix: where the other clients have mounted their application; usually the root.
        peers: which endpoints of other clients may be queried (`query.server.peers`). By default any that
            prove that they know the token; without a token, only those on this machine.
        sql: whether stores can be queried in SQL, with the token (`query.server.sql.enabled`).
        cors: the origins whose pages may read responses in a browser (`query.server.cors.origins`).
        ui: whether it serves the dashboard, at `/ui/`.
        tls: if given, other clients are queried over https; it says which certificates are trusted.

    Raises:
        ConfigException: the token, or an entry of `peers` or `cors`, is invalid.

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
        peers: Iterable[str] = (),
        sql: bool = False,
        cors: Iterable[str] = (),
        ui: bool = False,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._client_id = streams.client_id
        self._limits = limits or Limits()
        token = checked_token(token)
        secret = None if token is None else secret_of(token, streams.application_id)
        self._entrance = Entrance(token, secret, host, allowed_hosts, self._limits)
        asking = Peers(
            f"{streams.client_id}-QueryForwarder",
            self._limits.forwarders,
            secret,
            Allowed(peers, has_token=token is not None),
            peer_prefix,
            tls,
        )
        self._service = QueryService(
            streams,
            host=host,
            limits=self._limits,
            peers=asking,
            sql=sql,
            ui=ui,
            commands=token is not None,
        )
        self._origins = Origins(cors)
        self._active = 0
        self._streaming: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, or the lifespan, as ASGI defines it."""
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1003})
            case other:
                raise NotImplementedError(f"ASGI scope '{other}' is not supported")

    def close(self) -> None:
        """End the application's threads. Idempotent.

        `QueryServer` and servers that send lifespan events call this; otherwise call it yourself.
        """
        self._service.close()

    def end_streams(self) -> None:
        """End the streamed answers. On the event loop, before it is closed."""
        for streaming in self._streaming:
            streaming.cancel()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self.end_streams()
                await asyncio.get_running_loop().run_in_executor(None, self.close)
                await send({"type": "lifespan.shutdown.complete"})
                return

    # --- one request -------------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = headers_of(scope)
        path, query = _place(scope)
        target = (path + (b"?" + query if query else b"")).decode("latin-1")
        seal = self._entrance.seal(headers, scope["method"], target)
        answer = self._origins.preflight(scope["method"], headers)
        if answer is None:
            answer = await self._answered(scope, headers, seal, receive)
        if answer.pieces is not None:
            answer = self._refused_stream(seal) or answer
        answer = self._origins.marked(answer, headers)
        if answer.pieces is not None:
            await self._stream(answer, answer.pieces, scope.get("method") == "HEAD", receive, send)
            return
        if seal is not None:
            answer = self._entrance.signed(
                answer, seal
            )  # refusals, too: without a proof, a client would not trust them
        await self._send(answer, scope.get("method") == "HEAD", send)

    async def _answered(self, scope: Scope, headers: Headers, seal: Seal | None, receive: Receive) -> Answer:
        try:
            self._entrance.check_head(scope, headers)
            accept = b",".join(headers.get(b"accept", [])).decode("latin-1")
            request = replace(self._request(scope), accept=accept)
            if request.route.name == "proof":
                return self._entrance.proof(request.given.get("nonce", ""))
            if request.route.open:
                return await self._in_time(request, headers, None, receive)
            self._entrance.admit(headers, seal, acts=request.route.acts or request.route.costs)
            scope.get("state", {}).get(ADMITTED, _nothing)()
            with self._counted():
                return await self._in_time(request, headers, seal, receive)
        except TimeoutError:
            seconds = self._limits.deadline_s + self._limits.transfer_s
            return self._service.error(TimeoutException(f"no answer within {seconds:g} s; try again"))
        except asyncio.CancelledError:
            # The server is closing, and has waited for this answer up to its deadline.
            log.info("%s the query server closed before it had answered a query", self._client_id)
            return self._service.error(server_closed())
        except (Refused, StreamsException, IllegalStateException) as error:
            return self._service.error(error)
        except Exception as error:
            # Its message may contain record data, so only the place is logged.
            where = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s a query failed with %s\n%s", self._client_id, type(error).__name__, where)
            return self._service.error(error)

    async def _in_time(
        self, request: Request, headers: Headers, seal: Seal | None, receive: Receive
    ) -> Answer:
        async with asyncio.timeout(self._limits.deadline_s + self._limits.transfer_s):
            body = await self._body(request, headers, receive)
            _check_type(request, headers)
            if seal is not None and not seal.is_of(body):
                raise Refused(401, "Unauthorized", "the body does not match the proof", close=True)
            deadline = Deadline(self._limits.deadline_s)
            forwarded = FORWARDED.encode() in headers
            answer = await self._service.answer(request, body, deadline, forwarded=forwarded)
            return answer.encoded()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a request while it is answered. Health requests are not counted, and always answered."""
        if self._active >= self._limits.concurrent:
            busy = f"{self._limits.concurrent} requests are being answered; try again"
            raise Refused(503, "Busy", busy, retriable=True)
        self._active += 1
        try:
            yield
        finally:
            self._active -= 1

    def _request(self, scope: Scope) -> Request:
        path, query = _place(scope)
        if len(path) + len(query) > self._limits.target_bytes:
            most = self._limits.target_bytes
            raise Refused(414, "TooLong", f"path and query can have at most {most} bytes", close=True)
        return parse_request(scope["method"], path, query)

    async def _body(self, request: Request, headers: Headers, receive: Receive) -> bytes:
        """The whole body, received within the allowed time and size."""
        most = self._limits.body_bytes if request.route.method == "POST" else 0
        too_large = Refused(413, "TooLarge", f"a body can have at most {most} bytes here", close=True)
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
            raise Refused(408, "TooSlow", "the body took too long to arrive", close=True) from None

    # --- streamed answers --------------------------------------------------------------------------------

    def _refused_stream(self, seal: Seal | None) -> Answer | None:
        """The reason why an answer cannot be streamed; None: it can."""
        if seal is not None:
            refusal = Refused(400, "BadRequest", "a streamed answer cannot be proved; request JSON")
        elif len(self._streaming) >= self._limits.streams:
            busy = f"{self._limits.streams} streams are already open; try again, or use another client"
            refusal = Refused(503, "Busy", busy, retriable=True)
        else:
            return None
        return self._service.error(refusal)

    async def _stream(
        self,
        answer: Answer,
        pieces: Callable[[], AsyncGenerator[bytes, None]],
        is_head: bool,
        receive: Receive,
        send: Send,
    ) -> None:
        """Send a body as it is produced, until it ends, its time is up, the client disconnects, or this
        application closes.

        A body that does not reach its end is cut off, which a client can detect. Event streams have no end of
        their own, so they end cleanly at any time.
        """

        async def sent() -> None:
            async with asyncio.timeout(self._limits.transfer_s):
                await send(_start(answer, {}))
            if not is_head:
                async with aclosing(pieces()) as body:
                    async for piece in body:
                        async with asyncio.timeout(self._limits.transfer_s):
                            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await end()

        async def end() -> None:
            await send({"type": "http.response.body", "body": b""})

        async def gone() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        sending, leaving = asyncio.create_task(sent()), asyncio.create_task(gone())
        self._streaming.add(sending)
        try:
            await asyncio.wait(
                {sending, leaving}, timeout=self._limits.stream_s, return_when=asyncio.FIRST_COMPLETED
            )
            left = leaving.done()
        finally:
            self._streaming.discard(sending)
            sending.cancel()
            leaving.cancel()
            outcome, _ = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(outcome, Exception):
            log.info("%s an answer was cut: %s", self._client_id, type(outcome).__name__)
        if outcome is not None and not left and answer.headers.get("content-type") == MEDIA_TYPE:
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(self._limits.transfer_s):
                    await end()

    async def _send(self, answer: Answer, is_head: bool, send: Send) -> None:
        body = answer.encoded().raw or b""
        start = _start(answer, {"content-length": str(len(body))})
        try:
            # A client that does not read its answer holds no store; its connection is closed after this time.
            async with asyncio.timeout(self._limits.transfer_s):
                await send(start)
                await send({"type": "http.response.body", "body": b"" if is_head else body})
        except TimeoutError:
            log.info("%s a client did not read its answer in time", self._client_id)
        except OSError:
            log.debug("%s a client disconnected before its answer was ready", self._client_id)


def _check_type(request: Request, headers: Headers) -> None:
    """Check that a POST is declared as JSON. Any web page can make a browser post other types without a
    preflight (CORS: simple requests).

    Raises:
        Refused: it is not.
    """
    kinds = [kind.partition(b";")[0].strip().lower() for kind in headers.get(b"content-type", [])]
    if request.route.method == "POST" and kinds != [b"application/json"]:
        said = "a body must be JSON, sent with Content-Type: application/json"
        raise Refused(415, "UnsupportedMediaType", said)


def _start(answer: Answer, more: Mapping[str, str]) -> dict[str, Any]:
    """The head of an answer."""
    headers = {
        "content-type": "application/json",
        "cache-control": "no-store",
        "x-content-type-options": "nosniff",
        **more,
        **answer.headers,
    }
    return {
        "type": "http.response.start",
        "status": answer.status,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
    }


def _place(scope: Scope) -> tuple[bytes, bytes]:
    """The path below the mount point, percent-encoded, and the query."""
    path: bytes = scope.get("raw_path") or quote(scope["path"], safe="/").encode()
    path = path.partition(b"?")[0]  # some servers leave the query in it
    root = quote(scope.get("root_path", ""), safe="/%").encode().rstrip(b"/")
    if root and path.startswith(root + b"/"):
        path = path[len(root) :]
    query: bytes = scope.get("query_string", b"")
    return path, query


def _nothing() -> None:
    """Does nothing: the default callback."""
