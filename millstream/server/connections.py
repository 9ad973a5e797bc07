"""Open connections: how many there may be, and which one is closed to make room for a new one.

Anyone who can reach the port can connect, any number of times. So the number of connections is limited, to
fewer than the process has file descriptors. At the limit, the oldest idle connection is closed: first those
that were never admitted, and among these one from the address that has the most. Next are connections whose
client does not read its answer. If all connections are busy, no new one is accepted until one of them is
done; meanwhile the kernel queues new connections.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress

__all__ = ["Doorway", "Seat", "most_connections", "to_free"]

log = logging.getLogger(__name__)

_AT_ONCE = 8
"""How many connections are accepted before the event loop reads from the others again."""
_PAUSE_S = 0.5
"""How long no connection is accepted when the process has run out of file descriptors."""
_LOG_EVERY_S = 60.0
_FEWEST = 8
_NO_ROOM = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


def most_connections(wanted: int) -> int:
    """The maximum number of connections: as many as wanted, but no more than a quarter of the files that the
    process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return wanted if soft == resource.RLIM_INFINITY else max(_FEWEST, min(wanted, soft // 4))


class Seat:
    """One connection, as seen by the doorway.

    Attributes:
        address: its remote address. `since`: a number that is larger the later it became idle.
        idle: whether no request is being answered on it. `stuck`: whether its client does not read an answer.
        admitted: whether a request on it has been admitted.
    """

    def __init__(self, doorway: Doorway, address: str) -> None:
        self._doorway = doorway
        self._transport: asyncio.Transport | None = None
        self._coming: asyncio.Task[None] | None = None
        self.address = address
        self.since = doorway.next_number()
        self.idle = True
        self.stuck = False
        self.admitted = False

    def taken(self, transport: asyncio.Transport) -> None:
        """The connection is established; it may already have been closed."""
        self._transport, self._coming = transport, None
        if not self._doorway.has(self):
            transport.abort()

    def comes(self, task: asyncio.Task[None]) -> None:
        """The connection is being established, which over TLS takes as long as the other side likes."""
        self._coming = task

    def admit(self) -> None:
        """A request on it has shown or proved the token."""
        self.admitted = True

    def is_idle(self, idle: bool) -> None:
        """Whether a request is being answered on it now."""
        if idle and not self.idle:
            self.since = self._doorway.next_number()
        self.idle = idle
        if idle:
            self._doorway.changed()

    def is_stuck(self, stuck: bool) -> None:
        """Whether the other side does not read, so that much is still unsent."""
        self.stuck = stuck
        if stuck:
            self._doorway.changed()

    def leave(self) -> None:
        """The connection has ended. Idempotent."""
        self._doorway.left(self)

    def send_away(self) -> None:
        """Close it to make room for another."""
        if self._transport is not None:
            self._transport.abort()
        elif self._coming is not None:
            self._coming.cancel()


def to_free(seats: Iterable[Seat]) -> Seat | None:
    """The connection to close to make room; None: all are busy. Pure."""
    seats = list(seats)
    idle = [seat for seat in seats if seat.idle]
    strangers = [seat for seat in idle if not seat.admitted]
    if strangers:
        crowds = Counter(seat.address for seat in strangers)
        largest = max(crowds.values())
        idle = [seat for seat in strangers if crowds[seat.address] == largest]
    return min(idle or [seat for seat in seats if seat.stuck], key=lambda seat: seat.since, default=None)


class Doorway:
    """Accepts connections at a listening socket, up to a maximum number. Used on one event loop.

    Args:
        make: creates the protocol of a new connection, which reports its state to its seat.
        most: the maximum number.
        tls: encrypts them; `handshake_s`: how long the handshake may take.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[Seat], asyncio.Protocol],
        most: int,
        tls: ssl.SSLContext | None = None,
        handshake_s: float = 10.0,
    ) -> None:
        self._tls = tls
        self._handshake_s = handshake_s
        self._listening = listening
        self._make = make
        self._most = most
        self._seats: set[Seat] = set()
        self._coming: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._accepting = False
        self._open = False
        self._number = 0
        self._logged_at = -_LOG_EVERY_S

    def open(self) -> None:
        """Start to accept connections."""
        self._listening.setblocking(False)
        self._open = True
        self._resume()

    async def close(self) -> None:
        """Stop accepting, cancel TLS handshakes, and wait for connections that are being established."""
        self._open = False
        self._pause()
        if self._tls is not None:
            for task in self._coming:  # a connection in its TLS handshake has sent no request
                task.cancel()
        if self._coming:
            await asyncio.wait(set(self._coming))

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def has(self, seat: Seat) -> bool:
        """Whether a seat is still in use."""
        return seat in self._seats

    def left(self, seat: Seat) -> None:
        """A connection has ended."""
        self._seats.discard(seat)
        self.changed()

    def changed(self) -> None:
        """There may be room again."""
        if self._open and not self._accepting:
            self._resume()

    # --- accepting ---------------------------------------------------------------------------------------

    def _resume(self) -> None:
        if self._open and not self._accepting:
            self._accepting = True
            self._loop.add_reader(self._listening, self._accept)

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listening)

    def _accept(self) -> None:
        for number in range(_AT_ONCE):
            leaving = to_free(self._seats) if len(self._seats) >= self._most else None
            if leaving is None and len(self._seats) >= self._most:
                self._pause()
                return
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # The kernel reports it before it checks whether a connection waits; at first, one does.
                if number == 0:
                    self._exhausted(error)
                return
            connection.setblocking(False)
            if leaving is not None:
                self._send_away(leaving)
            seat = Seat(self, str(address[0]) if isinstance(address, tuple) else "")
            self._seats.add(seat)
            task = self._loop.create_task(self._hand_over(connection, seat))
            seat.comes(task)
            self._coming.add(task)
            task.add_done_callback(self._coming.discard)

    async def _hand_over(self, connection: socket.socket, seat: Seat) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: self._make(seat),
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._handshake_s,
            )
        except (OSError, asyncio.CancelledError):  # it has gone, does not speak TLS, or had to make room
            self.left(seat)
            connection.close()

    def _send_away(self, seat: Seat) -> None:
        self._seats.discard(seat)
        seat.send_away()

    def _exhausted(self, error: OSError) -> None:
        """The process cannot open another file: try again soon, and say so now and then."""
        self._pause()
        leaving = to_free(self._seats)
        if leaving is not None:
            self._send_away(leaving)
        with suppress(RuntimeError):
            self._loop.call_later(_PAUSE_S, self._resume)
        if time.monotonic() - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = time.monotonic()
            why = "no file descriptor is left" if error.errno in _NO_ROOM else "accepting failed"
            log.warning(
                "the query server cannot accept new connections now: %s (%s); open ones are kept",
                why,
                error.strerror,
            )
