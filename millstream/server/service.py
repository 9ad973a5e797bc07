"""What is answered to each route, and by whom: here, the client that has the key, or all clients together.

A key's question goes to its owner, by one hop: what was passed on already is answered here or not at all.
A range is read from every client that has a part of it, page by page, and merged; the answer is whole or
none.

Reading blocks, and so does waiting for another client, so each has threads of its own. What was passed on
only ever needs the first kind: two clients that wait for each other cannot use up what both of them need.
"""

from __future__ import annotations

from millstream.query.metadata import HostInfo
from millstream.server.about import About
from millstream.server.answers import Answer
from millstream.server.limits import Limits
from millstream.server.many_keys import ManyKeys
from millstream.server.one_key import OneKey
from millstream.server.peers import Peers
from millstream.server.ranges import Ranges
from millstream.server.reach import Reach
from millstream.server.reads import QueriedStreams
from millstream.server.routes import Request
from millstream.server.workers import Deadline, Workers

__all__ = ["QueryService"]


class QueryService:
    """Answers requests about the stores of one client, and of the others for it."""

    def __init__(
        self,
        streams: QueriedStreams,
        *,
        host: HostInfo | None,
        limits: Limits,
        peers: Peers,
    ) -> None:
        self._reach = Reach(streams, host=host, limits=limits, peers=peers)
        self._about = About(streams, self._reach)
        self._ranges = Ranges(self._reach)
        self._many_keys = ManyKeys(self._reach)
        self._one_key = OneKey(self._reach, self._many_keys)
        # An orchestrator is answered however busy the others are.
        self._watch = Workers(f"{streams.client_id}-QueryHealth", 1)

    async def answer(self, request: Request, body: bytes, deadline: Deadline, *, forwarded: bool) -> Answer:
        """The answer.

        Raises:
            Refused: the request is wrong, or another client cannot be asked.
            StreamsException: what the read raised, above all a leaf of KIP-216.
        """
        only_here = forwarded or request.local
        about, read = self._about, self._reach.read
        match request.route.name:
            case "live" | "ready" | "health":
                return await self._watch.run(lambda: about.health(request.route.name))
            case "metrics":
                return await self._watch.run(about.metrics)
            case "stores":
                return await read(deadline, about.all_stores)
            case "store":
                return await read(deadline, lambda: about.one_store(request.store))
            case "clients":
                return await read(deadline, about.clients)
            case "owner":
                return await read(deadline, lambda: about.owner(request))
            case "count":
                return await self._ranges.count(request, deadline, only_here=only_here)
            case "multi_get":
                return await self._many_keys.answer(request, body, deadline, only_here=only_here)
            case "entries" | "windows" | "sessions":
                return await self._ranges.entries(request, deadline, only_here=only_here)
            case _:
                return await self._one_key.answer(request, deadline, only_here=only_here)

    def error(self, error: Exception) -> Answer:
        """The answer to what went wrong."""
        return self._reach.error(error)

    def close(self) -> None:
        """End the threads, and the connections to other clients. Idempotent."""
        self._watch.close(1.0)
        self._reach.close()
