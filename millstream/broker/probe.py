"""Whether a broker answers, checked over a bare socket: no client has to be started and stopped for it.

An open port is not enough, since it is open long before requests are handled. A broker that answers
ApiVersions may still be fenced, so that no topic can be created. So there are two requests: ApiVersions, then
Metadata until it names a broker.
"""

from __future__ import annotations

import socket
import struct

__all__ = ["is_ready", "metadata_brokers"]

_METADATA, _API_VERSIONS = 3, 18
_CLIENT = b"millstream-probe"


def is_ready(host: str, port: int, *, timeout_s: float) -> bool:
    """Whether a broker there handles requests and is a member of its cluster."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            versions = _ask(connection, _API_VERSIONS, 0, b"")
            if struct.unpack_from(">h", versions)[0] != 0:
                return False
            # Version 1, an empty array of topics: the brokers only.
            return metadata_brokers(_ask(connection, _METADATA, 1, struct.pack(">i", 0))) > 0
    except (OSError, struct.error):
        return False


def metadata_brokers(response: bytes) -> int:
    """How many brokers a Metadata response (version 1) names."""
    return int(struct.unpack_from(">i", response)[0])


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """Send a request, return the response without its header.

    Bytes: length; api key, version, correlation id, client id (each with a length where it is a string);
        the response: length, correlation id, body.
    """
    header = struct.pack(">hhih", api, version, api, len(_CLIENT)) + _CLIENT
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (length,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, length)[4:]


def _read(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        if not chunk:
            raise ConnectionResetError("the broker closed the connection")
        data += chunk
    return data
