"""QueryServer: the query application on a port, run by uvicorn on a thread of its own.

uvicorn lacks two timeouts, which are added here (`_guarded`): a client that connects and does not finish its
request, and one that does not read its answer, are each disconnected after a while. Neither ever holds a
store open, because an answer is complete before its first byte is sent. connections.py decides who may
connect, and which connection has to make room.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from millstream import program_end
from millstream.config import StreamsConfig
from millstream.errors import ConfigException, IllegalStateException, SetupException, StreamsException
from millstream.query.metadata import HostInfo
from millstream.remote.http_wire import Deadline, Tls
from millstream.remote.proof import checked_token
from millstream.server.application import ADMITTED, QueryApplication
from millstream.server.connections import Doorway, Seat, most_connections
from millstream.server.entrance import Allowed, Limits, Origins, is_loopback
from millstream.server.local_stores import QueriedStreams

__all__ = ["QueryServer", "listening_address", "query_server"]

log = logging.getLogger(__name__)

_connections_log = logging.getLogger(f"{__name__}.connections")
_connections_log.setLevel(logging.ERROR)
# uvicorn logs a warning for each invalid request, so anyone who reaches the port could fill the log. To see
# the warnings, set the level of this logger.

_HEAD_BYTES = 1 << 14
"""The maximum size of a request's head, including path and query."""
_START_S = 10.0
_GRACE_S = 2
"""How long closing waits for answers in progress."""
_BACKLOG = 512
_SEAT = "seat"
_TICK_S = 1.0
"""How often the header Date is updated."""


class QueryServer:
    """Serves the stores of a client over HTTP. Used once: `start()`, `close()`; or as a context manager.

        with QueryServer(streams, HostInfo("localhost", 8080), token="...") as server: ...

    Args:
        streams: the client.
        listen: the address to listen on; port 0: any free port.
        token: required of requests; None: no token, which is refused if others can reach the address.
        host: this client's `application.server`, by which other clients know it; by default, `listen`.
        allow_anonymous: serve without a token on an address that others can reach.
        limits: the limits of requests.
        peers: which endpoints of other clients may be queried (`query.server.peers`).
        sql: whether stores can be queried in SQL, with the token (`query.server.sql.enabled`).
        cors: the origins whose pages may read responses in a browser (`query.server.cors.origins`).
        ui: whether it serves the dashboard, at `/ui/`.
        tls: serve https, and query the other clients over https (`query.server.ssl.*`); None: neither.

    Raises:
        ConfigException: others could reach it, and there is no token; or one of `peers` is not an endpoint,
            or one of `cors` is not an origin.
        SetupException: uvicorn is not installed.

    Differs: Kafka Streams has no such server; `application.server` there only names one that the user runs.
    """

    def __init__(
        self,
        streams: QueriedStreams,
        listen: HostInfo | None = None,
        *,
        token: str | None = None,
        host: HostInfo | None = None,
        allow_anonymous: bool = False,
        limits: Limits | None = None,
        peers: Iterable[str] = (),
        sql: bool = False,
        cors: Iterable[str] = (),
        ui: bool = False,
        tls: Tls | None = None,
    ) -> None:
        listen = listen or HostInfo("127.0.0.1", 0)
        if checked_token(token) is None and not allow_anonymous and not is_loopback(listen.host):
            raise ConfigException(
                f"the query server would listen on {listen}, where others can reach it, and let anyone "
                "read the stores; set 'query.server.token', listen on 127.0.0.1, or, if the network itself "
                "keeps others out, set 'query.server.allow.anonymous' to true"
            )
        if find_spec("uvicorn") is None:
            raise SetupException("the query server needs uvicorn: pip install 'millstream[server]'")
        self._client_id = streams.client_id
        self._listen = self._address = listen
        names = None if token is not None or allow_anonymous else _names_of(listen, host)
        self._limits = _fitting(limits or Limits())
        peers = tuple(peers)
        cors = tuple(cors)
        Allowed(peers, has_token=token is not None)  # raises now, and not in start()
        Origins(cors)
        self._make = partial(
            QueryApplication,
            streams,
            token,
            limits=self._limits,
            allowed_hosts=names,
            peers=peers,
            sql=sql,
            cors=cors,
            ui=ui,
            tls=None if tls is None else tls.asking(),
        )
        self._tls = None if tls is None else tls.serving()
        self._host = host
        self._application: QueryApplication | None = None
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._server: Any = None
        """The result of `_uvicorn_server`, once the server has started."""
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._closed = False
        self._failure: BaseException | None = None

    def start(self) -> QueryServer:
        """Listen, and start answering requests.

        Raises:
            StreamsException: the server cannot listen on the address.
            IllegalStateException: it was started or closed before.
        """
        with self._lock:
            if self._thread is not None or self._closed:
                raise IllegalStateException("a QueryServer can start only once; create a new one")
            self._socket = self._bound()
            program_end.close_in_child(self, self._socket)
            # The port, and with it the endpoint by which others know this client, is known only now.
            self._address = HostInfo(self._listen.host, self._socket.getsockname()[1])
            self._application = self._make(host=self._host or self._address)
            self._server = _uvicorn_server(self._application, self._limits, self._ready, self._tls)
            self._thread = threading.Thread(
                target=self._serve, name=f"{self._client_id}-QueryServer", daemon=True
            )
            self._thread.start()
        if not self._ready.wait(_START_S) or not self._server.started:
            self.close()
            raise StreamsException(
                f"the query server at {self._listen} did not start; uvicorn's log says why"
            )
        log.info("%s answers queries at %s", self._client_id, self.url)
        return self

    def close(self, timeout_s: float = 5.0) -> bool:
        """Finish the answers in progress, and stop; return whether all ended in time. Idempotent."""
        with self._lock:
            self._closed = True
            server, thread, bound, made = self._server, self._thread, self._socket, self._application
        deadline = Deadline(timeout_s)
        if server is not None and thread is not None:
            server.stop()
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline.remaining_s))
            if thread.is_alive():
                server.force_exit = True
        if made is not None:
            made.close()
        if bound is not None:
            bound.close()
        program_end.forget(self)
        ended = thread is None or not thread.is_alive()
        if not ended:
            log.warning(
                "%s the query server at %s did not stop within %g s; it stops after its current answers",
                self._client_id,
                self.url,
                timeout_s,
            )
        return ended

    @property
    def address(self) -> HostInfo:
        """The address that the server listens on; once it has started, with the actual port."""
        return self._address

    @property
    def url(self) -> str:
        """The URL for `RemoteStore`."""
        return f"{'http' if self._tls is None else 'https'}://{self.address}"

    @property
    def failure(self) -> BaseException | None:
        """Why the server has ended without being closed; the client's health reports it too."""
        return self._failure

    def __enter__(self) -> QueryServer:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<QueryServer of client '{self._client_id}' at {self.url}>"

    def _bound(self) -> socket.socket:
        """A listening socket, created here so that `start()` reports an address that is in use."""
        host, port = self._listen
        bound: socket.socket | None = None
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(
                host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            bound = socket.socket(family, kind, protocol)
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(place)
            bound.listen(_BACKLOG)
        except OSError as error:
            if bound is not None:
                bound.close()
            raise StreamsException(
                f"the query server cannot listen on {self._listen}: {error}; set 'query.server.listen' to an "
                "address of this machine with a free port"
            ) from error
        return bound

    def _serve(self) -> None:
        server, bound = self._server, self._socket
        assert bound is not None  # start() has created both
        try:
            server.run(sockets=[bound])
        except Exception as error:
            self._failure = error
            log.exception(
                "%s the query server failed; stores can be queried only in this process", self._client_id
            )
        finally:
            self._ready.set()


def _names_of(listen: HostInfo, host: HostInfo | None) -> Iterable[str]:
    return {"localhost", "127.0.0.1", "::1", listen.host, *(() if host is None else (host.host,))}


def _fitting(limits: Limits) -> Limits:
    """The limits with no more connections than the process has file descriptors for, and fewer concurrent
    requests than connections."""
    connections = most_connections(limits.connections)
    concurrent = max(1, min(limits.concurrent, connections // 2))
    return replace(limits, connections=connections, concurrent=concurrent)


def _uvicorn_server(
    application: QueryApplication, limits: Limits, ready: threading.Event, tls: ssl.SSLContext | None
) -> Any:
    """uvicorn with no more than is needed: no logs of paths, and no headers that reveal it."""
    import uvicorn

    class Server(uvicorn.Server):
        """A server that is notified when it has to end, instead of checking ten times a second."""

        _loop: asyncio.AbstractEventLoop | None = None

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup([])  # with sockets, uvicorn would accept every connection
            assert sockets is not None  # QueryServer._serve hands over one
            self._doorway = Doorway(sockets[0], self._connection, limits.connections, tls, limits.transfer_s)
            self._doorway.open()
            ready.set()

        def _connection(self, seat: Seat) -> asyncio.Protocol:
            kind: Any = self.config.http_protocol_class
            state = {_SEAT: seat, ADMITTED: seat.admit}
            made: asyncio.Protocol = kind(self.config, self.server_state, state)
            return made

        async def main_loop(self) -> None:
            self._woken = asyncio.Event()
            self._loop = asyncio.get_running_loop()
            while not await self.on_tick(0):  # 0: it updates the header Date
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), _TICK_S)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            # A connection that uvicorn does not know yet would wait in vain.
            await self._doorway.close()
            application.end_streams()  # streams do not end by themselves
            await super().shutdown(sockets)

        def stop(self) -> None:
            """End soon. Any thread may call it, at any time."""
            self.should_exit = True
            if self._loop is not None:
                with suppress(RuntimeError):  # the loop has ended
                    self._loop.call_soon_threadsafe(self._woken.set)

    config = uvicorn.Config(
        application,
        loop="asyncio",
        http=_guarded(limits),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=limits.idle_s,  # type: ignore[arg-type]  # it is only handed to call_later
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=max(_HEAD_BYTES, limits.target_bytes * 2),
    )
    return Server(config)


def _guarded(limits: Limits) -> Any:
    """uvicorn's protocol, with the missing deadlines, and with a seat in the doorway."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Guarded(H11Protocol):
        """A connection that ends if receiving a request's head, or sending an answer, takes too long."""

        _head: asyncio.TimerHandle | None = None
        _taking: asyncio.TimerHandle | None = None

        def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any]) -> None:
            self._seat: Seat = app_state.pop(_SEAT)
            super().__init__(config, server_state, app_state)
            self.logger = _connections_log

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._seat.taken(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look(expects=True)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # The rest of a body that nobody wants, or a request that began while this one was answered.
            self._look(expects=self.conn.their_state is not h11.IDLE or bool(self.conn.trailing_data[0]))

        def _look(self, *, expects: bool) -> None:
            """Whether a request is being answered. If not, and one is expected, its head has a deadline."""
            answering = self.cycle is not None and not self.cycle.response_complete
            self._seat.is_idle(not answering)
            if answering:
                self._stop_head()  # the head is complete; the application limits the body
            elif expects and self._head is None:
                self._await_head()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._seat.is_stuck(True)
            self._taking = self._taking or self.loop.call_later(limits.transfer_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._seat.is_stuck(False)
            self._stop_taking()

        def connection_lost(self, exc: Exception | None) -> None:
            self._seat.leave()
            self._stop_head()
            self._stop_taking()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            self._stop_head()
            self._head = self.loop.call_later(limits.transfer_s, self.transport.abort)

        def _stop_head(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

        def _stop_taking(self) -> None:
            if self._taking is not None:
                self._taking.cancel()
                self._taking = None

    return Guarded


_LOOPBACK = "127.0.0.1"
_SHORT = 16
"""For a shorter token a warning is logged, if others can reach the server."""


def query_server(streams: QueriedStreams, config: StreamsConfig) -> QueryServer:
    """A started server, as configured by `query.server.*`.

    Raises:
        ConfigException: an address or a peer is invalid; or others could reach it, and there is no token.
        SetupException: uvicorn is not installed.
        StreamsException: the server cannot listen on the address.
    """
    host = _host("application.server", config.application_server)
    listen = listening_address(_host("query.server.listen", str(config["query.server.listen"])), host)
    if host is not None and is_loopback(listen.host) and not is_loopback(host.host):
        log.warning(
            "%s the query server listens on %s, where other clients cannot reach it, but "
            "'application.server' announces %s; set 'query.server.listen' and 'query.server.token'",
            streams.client_id,
            listen,
            host,
        )
    token = config.get("query.server.token")
    if token is not None and len(token) < _SHORT and not is_loopback(listen.host):
        log.warning(
            "%s 'query.server.token' has only %d characters, and anyone who reaches %s can guess it; use a "
            "random token of at least %d characters",
            streams.client_id,
            len(token),
            listen,
            _SHORT,
        )
    server = QueryServer(
        streams,
        listen,
        token=token,
        host=host,
        allow_anonymous=bool(config["query.server.allow.anonymous"]),
        peers=config["query.server.peers"],
        sql=bool(config["query.server.sql.enabled"]),
        cors=config["query.server.cors.origins"],
        ui=bool(config["ui.enabled"]),
        tls=_tls(config),
    )
    return server.start()


def _tls(config: StreamsConfig) -> Tls | None:
    """The TLS settings of the configuration; None: there are none."""
    names = ("certificate.location", "key.location", "key.password", "ca.location")
    certificate, key, password, ca = (config.get(f"query.server.ssl.{name}") for name in names)
    if certificate is not None:
        return Tls(certificate, key, password, ca)
    if (key, password, ca) != (None, None, None):
        raise ConfigException(
            "'query.server.ssl.…' is set without 'query.server.ssl.certificate.location', so nothing would "
            "be encrypted; set it to the server's certificate"
        )
    return None


def listening_address(listen: HostInfo | None, host: HostInfo | None) -> HostInfo:
    """The address to listen on, from `query.server.listen` and `application.server`. Pure."""
    if listen is not None:
        return listen
    if host is None:
        return HostInfo(_LOOPBACK, 0)
    return host if is_loopback(host.host) else HostInfo(_LOOPBACK, host.port)


def _host(key: str, value: str) -> HostInfo | None:
    if not value:
        return None
    try:
        return HostInfo.parse(value)
    except ValueError as error:
        raise ConfigException(f"'{key}': {error}") from None
