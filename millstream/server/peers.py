"""The query servers of the other clients: asking them, and reading what they say.

What comes over the network is taken for what it is worth: an answer of another shape is told as such.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from millstream.query.metadata import HostInfo
from millstream.server.answers import Refused
from millstream.server.codec import from_base64
from millstream.server.pages import Page, Place, Row
from millstream.server.wire import FORWARDED, NOT_OURS, Base, Reply, Wire, WireError
from millstream.server.workers import Deadline, Workers

__all__ = ["Peers", "count_from", "garbled", "page_from", "partitions_of", "rows_of", "target_of"]

log = logging.getLogger(__name__)


class Peers:
    """Asks other clients. Used on one event loop; the waiting is done on threads, `<name>-<n>`.

    Args:
        prefix: where the application is mounted at all clients, such as `/streams`.
    """

    def __init__(self, name: str, threads: int, token: str | None, prefix: str = "") -> None:
        self._workers = Workers(name, threads)
        self._token = token
        self._prefix = prefix
        self._wires: dict[HostInfo, Wire] = {}

    async def ask(
        self, host: HostInfo, method: str, target: str, deadline: Deadline, body: bytes | None = None
    ) -> Reply | None:
        """Another client's answer; None: there is none.

        Raises:
            Refused: it does not let this client in.
        """
        wire = self._wires.get(host)
        if wire is None:
            wire = self._wires[host] = Wire(Base("http", host.host, host.port, self._prefix), self._token)
        asked = wire

        def job() -> Reply:
            return asked.ask(method, target, deadline=deadline, body=body, headers={FORWARDED: "1"})

        try:
            reply = await self._workers.run(job)
        except WireError as error:
            log.info("%s", error)
            return None
        if reply.status in (401, 403):
            message = f"the client at {host} does not let this client in; all clients have the same token"
            raise Refused(502, "BadGateway", message)
        return None if reply.body.get("error") == NOT_OURS else reply

    async def ask_all(self, hosts: Sequence[HostInfo], target: str, deadline: Deadline) -> list[Reply | None]:
        """The answers of several clients to the same question, in their order; they are asked at once.

        Raises:
            Refused: one of them does not let this client in.
        """
        return await asyncio.gather(*(self.ask(host, "GET", target, deadline) for host in hosts))

    def close(self) -> None:
        """End the threads and the connections. Idempotent."""
        self._workers.close(1.0)
        for wire in list(self._wires.values()):
            wire.close()


def target_of(store: str, last: str, given: Mapping[str, str]) -> str:
    """The path, with its parameters, of a question about a store."""
    query = f"?{urlencode(given)}" if given else ""
    return f"/v1/stores/{quote(store, safe='')}/{last}{query}"


# --- what they say ---------------------------------------------------------------------------------------


def garbled(host: HostInfo) -> Refused:
    return Refused(
        502, "BadGateway", f"the client at {host} answers in another way than this one; is it older?"
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
    """The partitions that an answer is of."""
    partitions = reply.body.get("partitions")
    if not isinstance(partitions, list) or not all(isinstance(each, int) for each in partitions):
        raise garbled(host)
    return set(partitions)


def page_from(reply: Reply, host: HostInfo) -> tuple[Page, set[int]]:
    """The page of an answer, and the partitions that it is of."""
    rows = [row for row in rows_of(reply, host) if row is not None]
    token = reply.body.get("next")
    try:
        place = None if token is None else Place.parse(token)
    except Refused:
        raise garbled(host) from None
    return Page(rows, place), partitions_of(reply, host)


def count_from(reply: Reply, host: HostInfo) -> tuple[int, set[int]]:
    """The count of an answer, and the partitions that it is of."""
    count = reply.body.get("count")
    if not isinstance(count, int):
        raise garbled(host)
    return count, partitions_of(reply, host)
