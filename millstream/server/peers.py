"""The query servers of the other clients: sending requests to them, and reading their answers.

Their endpoints come from the group, and anyone who can join the group can announce any endpoint. So an
endpoint is queried only if it proves that it knows the token (remote/http_wire.py), and its answers are
accepted only with a proof. Data from the network is not trusted: an answer of an unexpected shape is reported
as such.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from millstream.coroutines import Threads
from millstream.errors import StateStoreNotAvailableException
from millstream.foreign import printable
from millstream.query.metadata import HostInfo
from millstream.remote.answers import Answer, Refused, answer_to
from millstream.remote.http_wire import NOT_OURS, Base, Deadline, Reply, Unproven, Wire, WireError
from millstream.remote.json_codec import from_base64
from millstream.remote.pages import Page, PageStart, Row
from millstream.remote.routes import RemoteRequest
from millstream.server.entrance import Allowed, Limits
from millstream.server.local_stores import LocalStores, Places, QueriedStreams

__all__ = [
    "Peers",
    "Reach",
    "count_from",
    "garbled",
    "page_from",
    "partitions_of",
    "rows_of",
    "server_closed",
    "server_threads",
]

log = logging.getLogger(__name__)

_MOST_WIRES = 256
_DOUBT_S = 2.0
_UNPROVEN = (
    "does not prove that it knows this client's token, so it is neither queried nor trusted; all clients of "
    "an application need the same 'query.server.token' and the same version"
)


def server_closed() -> StateStoreNotAvailableException:
    """The error once the server is closing."""
    return StateStoreNotAvailableException("this query server is closed; query another client's")


def server_threads(name: str, most: int) -> Threads:
    """Threads of a query server. Once it is closed, they refuse; what nobody waits for is dropped."""
    return Threads(name, most, closed=server_closed, drops=True)


class Peers:
    """Queries other clients. Used on one event loop; the waiting is done on threads, `<name>-<n>`.

    Args:
        secret: of what every client of the application knows (`secret_of`); it is proved, and never sent.
        allowed: which endpoints may be queried at all.
        prefix: where all clients have mounted the application, such as `/streams`.
        tls: if given, they are queried over https; it says which certificates are trusted.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        secret: bytes | None,
        allowed: Allowed,
        prefix: str = "",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._name = name
        self._workers = server_threads(name, threads)
        self._secret = secret
        self._allowed = allowed
        self._prefix = prefix
        self._wires: OrderedDict[HostInfo, Wire] = OrderedDict()
        self._doubted: dict[HostInfo, tuple[Deadline, bool]] = {}
        """Endpoints that have just failed to prove themselves, perhaps only because they are slow. They are
        not queried again at once, so one that never answers does not occupy all the threads."""
        self._logged: set[HostInfo] = set()
        """The unproven endpoints that have been logged."""

    def refusal(self, host: HostInfo) -> str | None:
        """Why an endpoint is not queried; None: it may be."""
        return self._allowed.refusal(host)

    async def ask(self, host: HostInfo, question: RemoteRequest, deadline: Deadline) -> Reply | None:
        """Another client's answer; None: there is none.

        Raises:
            Refused: the endpoint must not be queried, or does not prove that it is a client's.
        """
        why = self.refusal(host)
        if why is not None:
            raise _refused(host, f"is not queried: {why}")
        until, slow = self._doubted.get(host, (None, False))
        if until is not None and until.remaining_s > 0:
            if slow:
                return None
            raise _refused(host, _UNPROVEN)
        wire = self._wire(host)

        def job() -> Reply:
            method, target, body = question
            return wire.ask(method, target, deadline=deadline, body=body, forwarded=True)

        try:
            reply = await self._workers.run(job)
        except Unproven as error:
            self._doubt(host, error)
            if error.timed_out:
                return None  # it may be busy, and will be queried again
            raise _refused(host, _UNPROVEN) from error
        except WireError as error:
            log.info("the client at %s: %s", printable(host), type(error).__name__)
            return None
        if reply.status in (401, 403):
            why = "refuses this client; all clients need the same token"
            raise _refused(host, why)
        return None if reply.body.get("error") == NOT_OURS else reply

    async def ask_all(
        self, hosts: Sequence[HostInfo], question: RemoteRequest, deadline: Deadline
    ) -> list[Reply | Refused | None]:
        """The answers of several clients to the same question, in their order; they are queried concurrently.

        A refusal takes the place of an answer: whether it matters depends on what the others have.
        """

        async def one(host: HostInfo) -> Reply | Refused | None:
            try:
                return await self.ask(host, question, deadline)
            except Refused as refusal:
                return refusal

        return await asyncio.gather(*map(one, hosts))

    def _wire(self, host: HostInfo) -> Wire:
        """The wire to an endpoint. Their number is limited, because the group may announce ever new ones."""
        wire = self._wires.get(host)
        if wire is None:
            scheme = "http" if self._tls is None else "https"
            base = Base(scheme, host.host, host.port, self._prefix)
            wire = self._wires[host] = Wire(base, secret=self._secret, name=str(host), tls=self._tls)
            while len(self._wires) > _MOST_WIRES:
                _, oldest = self._wires.popitem(last=False)
                oldest.close()
        self._wires.move_to_end(host)
        return wire

    def _doubt(self, host: HostInfo, error: Unproven) -> None:
        for known in [known for known, (until, _) in self._doubted.items() if until.remaining_s <= 0]:
            del self._doubted[known]
        if len(self._doubted) < _MOST_WIRES:
            self._doubted[host] = Deadline(_DOUBT_S), error.timed_out
        if not error.timed_out and len(self._logged) < _MOST_WIRES and host not in self._logged:
            self._logged.add(host)
            log.warning(
                "%s the endpoint %s was announced in the group, but does not prove that it is a client that "
                "knows 'query.server.token' (%s); it is neither queried nor trusted",
                self._name,
                printable(host),
                error,
            )

    def close(self) -> None:
        """End the threads and the connections. Idempotent."""
        self._workers.close(1.0)
        for wire in list(self._wires.values()):
            wire.close()


def _refused(host: HostInfo, why: str) -> Refused:
    return Refused(502, "BadGateway", f"the client at {printable(host)} {why}")


# --- their answers ---------------------------------------------------------------------------------------


def garbled(host: HostInfo) -> Refused:
    return Refused(
        502,
        "BadGateway",
        f"the client at {printable(host)} sent an answer of unknown form; does it run the same version?",
    )


def rows_of(reply: Reply, host: HostInfo) -> list[Row | None]:
    """The entries of an answer; None for each that has no value."""
    entries = reply.body.get("entries")
    if not isinstance(entries, list):
        raise garbled(host)
    return [_row_of(entry, host) for entry in entries]


def _row_of(entry: Any, host: HostInfo) -> Row | None:
    if not isinstance(entry, dict):
        raise garbled(host)
    times = [entry.get(name) for name in ("timestamp", "start", "end")]
    if not all(time is None or (isinstance(time, int) and not isinstance(time, bool)) for time in times):
        raise garbled(host)
    if entry.get("value") is None:
        return None
    try:
        return Row(from_base64(entry.get("key")), from_base64(entry["value"]), *times)
    except Refused:
        raise garbled(host) from None


def partitions_of(reply: Reply, host: HostInfo) -> set[int]:
    """The partitions that an answer covers."""
    partitions = reply.body.get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(each, int) for each in partitions):
        raise garbled(host)
    return set(partitions)


def page_from(reply: Reply, host: HostInfo) -> tuple[Page, set[int]]:
    """The page in an answer, and the partitions that it covers."""
    rows = [row for row in rows_of(reply, host) if row is not None]
    token = reply.body.get("next")
    try:
        place = None if token is None else PageStart.parse(token)
    except Refused:
        raise garbled(host) from None
    return Page(rows, place), partitions_of(reply, host)


def count_from(reply: Reply, host: HostInfo) -> tuple[int, set[int]]:
    """The count in an answer, and the partitions that it covers."""
    count = reply.body.get("count")
    if not isinstance(count, int):
        raise garbled(host)
    return count, partitions_of(reply, host)


T = TypeVar("T")


class Reach:
    """What one query server can read and query.

    Attributes:
        stores: those of this client. `places`: who has the others. `peers`: queries these clients.
    """

    def __init__(
        self,
        streams: QueriedStreams,
        *,
        host: HostInfo | None,
        limits: Limits,
        peers: Peers,
    ) -> None:
        self.limits = limits
        self.stores: LocalStores = LocalStores(streams.store_view)
        self.places = Places(streams, self.stores, host)
        self.peers = peers
        self._application_id = streams.application_id
        self._readers = server_threads(f"{streams.client_id}-QueryReader", limits.readers)

    async def read(self, deadline: Deadline, job: Callable[[], T]) -> T:
        """The result of `job`, which runs on a thread that may block.

        Raises:
            TimeoutException: the deadline passed before the job could start.
            Exception: what the job raised.
        """

        def checked() -> T:
            deadline.check()  # the job may have waited for a thread
            return job()

        return await self._readers.run(checked)

    def error(self, error: Exception, host: HostInfo | None = None) -> Answer:
        """The answer to an error. `host`: the client to query instead, if it may be queried."""
        snapshot = self.stores.snapshot()
        if host is not None and self.peers.refusal(host) is not None:
            host = None
        return answer_to(
            error,
            client_id=snapshot.client_id,
            client_state=snapshot.client_state.name,
            host=None if host is None else str(host),
            application_id=self._application_id,
        )

    def close(self) -> None:
        """End the threads, and the connections to other clients. Idempotent."""
        self._readers.close(1.0)
        self.peers.close()
