"""The query server that a client's configuration asks for."""

from __future__ import annotations

import logging

from millstream.config import StreamsConfig
from millstream.errors import ConfigException
from millstream.query.metadata import HostInfo
from millstream.server.allowed import is_loopback
from millstream.server.reads import QueriedStreams
from millstream.server.serving import QueryServer

__all__ = ["listening_address", "query_server"]

log = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
_SHORT = 16
"""A token of fewer characters is worth a warning where others reach the server."""


def query_server(streams: QueriedStreams, config: StreamsConfig) -> QueryServer:
    """A server that answers already: `query.server.*`.

    Raises:
        ConfigException: an address is none, or a peer; or others could reach it, and there is no token.
        SetupException: uvicorn is not installed.
        StreamsException: the address cannot be listened at.
    """
    host = _host("application.server", config.application_server)
    listen = listening_address(_host("query.server.listen", str(config["query.server.listen"])), host)
    if host is not None and is_loopback(listen.host) and not is_loopback(host.host):
        log.warning(
            "%s its query server listens at %s, where other clients do not reach it, and "
            "'application.server' tells them %s; set 'query.server.listen', and 'query.server.token' with it",
            streams.client_id,
            listen,
            host,
        )
    token = config.get("query.server.token")
    if token is not None and len(token) < _SHORT and not is_loopback(listen.host):
        log.warning(
            "%s 'query.server.token' has %d characters, and whoever reaches %s can try many; take a "
            "random one of %d or more",
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
    )
    return server.start()


def listening_address(listen: HostInfo | None, host: HostInfo | None) -> HostInfo:
    """Where to listen, by `query.server.listen` and `application.server`. Pure."""
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
