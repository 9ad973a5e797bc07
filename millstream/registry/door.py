"""Who may send what to the development registry: connections, requests and their bodies, within limits.

It uses the standard library alone, so it also runs without the query server's packages.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import socket
import threading
import time
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from millstream.registry.state import RefusedError

__all__ = ["MOST_BYTES", "MOST_CONNECTIONS", "ThreadedDoor", "check_head", "linger"]

MOST_BYTES = 1 << 20
"""Of a body. The largest schemas have some hundred kilobytes."""
MOST_CONNECTIONS = 64
_LINGER_S = 1.0

_HOST = re.compile(r"(?i)(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?")
_JSON = re.compile(r"(?i)application/(?:[a-z0-9.-]+\+)?json\s*(?:;.*)?")


class ThreadedDoor(ThreadingHTTPServer):
    """Serves each connection on a thread, and closes the one that is idle for longest when another comes and
    there is no room.

    A connection is idle unless one of its requests is being answered, so one that only sends is, too.
    """

    daemon_threads = True
    request_queue_size = 128
    """With fewer, a connection that comes while others are accepted waits for a second."""

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._changed = threading.Condition()
        self._idle: dict[socket.socket, int] = {}
        self._busy: set[socket.socket] = set()
        self._numbers = itertools.count()
        self._closing = False
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            while len(self._idle) + len(self._busy) >= MOST_CONNECTIONS and not self._closing:
                if self._idle:
                    oldest = min(self._idle, key=self._idle.__getitem__)
                    self._idle[oldest] = next(self._numbers)  # its turn has been; its thread ends now
                    _end(oldest)
                self._changed.wait(1.0)
            self._idle[request] = next(self._numbers)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._changed:
            self._idle.pop(request, None)
            self._busy.discard(request)
            self._changed.notify_all()

    def shutdown(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        super().shutdown()

    def is_busy(self, request: socket.socket, busy: bool) -> None:
        """Whether a request of a connection is being answered now."""
        with self._changed:
            if busy:
                self._idle.pop(request, None)
                self._busy.add(request)
            else:
                self._busy.discard(request)
                self._idle[request] = next(self._numbers)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Has no effect: a client that goes away, or had to make room, is no error of the registry."""


def linger(connection: socket.socket) -> None:
    """Read some of what still comes: a connection that is closed before may lose its answer."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_LINGER_S)
        until = time.monotonic() + _LINGER_S
        while connection.recv(65536) and time.monotonic() < until:
            pass


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has ended by itself
        connection.shutdown(socket.SHUT_RDWR)


def check_head(method: str, headers: Message) -> int:
    """The length of the body of an acceptable request, before anything of it is read.

    A browser lets any page send requests to this machine. It says which page it was (`Origin`), and a page
    cannot send JSON, or say another name than its own (`Host`), without asking first.

    Raises:
        RefusedError: the request is not acceptable.
    """
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0].strip()):
        raise RefusedError(403, "the header Host does not name this registry; use its address, 127.0.0.1")
    if headers.get_all("Origin"):
        raise RefusedError(403, "this registry does not answer web pages")
    if headers.get_all("Transfer-Encoding"):
        raise RefusedError(411, "a body must have a Content-Length; chunks are not supported")
    lengths = headers.get_all("Content-Length", [])
    if len(lengths) > 1 or not all(re.fullmatch("[0-9]{1,12}", each.strip()) for each in lengths):
        raise RefusedError(400, "Content-Length must be given once, and be a number of bytes")
    size = int(lengths[0]) if lengths else 0
    if size > MOST_BYTES:
        raise RefusedError(413, f"a body can have at most {MOST_BYTES} bytes")
    types = headers.get_all("Content-Type", [])
    if (size or method in ("POST", "PUT")) and (len(types) != 1 or not _JSON.fullmatch(types[0].strip())):
        raise RefusedError(415, "a body must be JSON: Content-Type: application/vnd.schemaregistry.v1+json")
    return size
