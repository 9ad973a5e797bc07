"""How the other clients are, for the dashboard: each is asked for its health every few seconds.

They are asked as for any question that is passed on (peers.py): only those that may be, and each has to prove
that it is a client. What they say is taken as text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.foreign import printable
from millstream.query.metadata import HostInfo
from millstream.server.answers import Refused
from millstream.server.peers import Peers
from millstream.server.routes import Question
from millstream.server.wire import Deadline, Reply

__all__ = ["Others", "told_by"]

_EVERY_S = 5.0
_WAIT_S = 2.0
_MOST = 64
"""How many are asked."""
_MOST_REASON = 300


class Others:
    """Asks, and keeps what was said last. Used on one event loop.

    Args:
        host: this client's own endpoint, which is not asked.
    """

    def __init__(self, peers: Peers, host: HostInfo | None) -> None:
        self._peers = peers
        self._host = host
        self._asking: asyncio.Task[None] | None = None
        self._again = Deadline(0.0)
        self._said: list[dict[str, Any]] = []

    def look(
        self, clients: Sequence[Mapping[str, Any]] | None, own: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """What is known now. Nobody waits: what is asked now is known at a later look.

        Args:
            clients: those of the application; None: not known now. `own`: this client's health.
        """
        hosts = [HostInfo.parse(each["host"]) for each in (clients or ())][:_MOST]
        others = [host for host in hosts if host != self._host]
        if others and self._again.remaining_s <= 0 and (self._asking is None or self._asking.done()):
            self._again = Deadline(_EVERY_S)
            self._asking = asyncio.create_task(self._ask(others))
        known = [each for each in self._said if HostInfo.parse(each["host"]) in others]
        if self._host in hosts:
            known.insert(0, {"host": str(self._host), **_health(own)})
        return known

    async def _ask(self, hosts: Sequence[HostInfo]) -> None:
        replies = await self._peers.ask_all(hosts, Question("GET", "/v1/health"), Deadline(_WAIT_S))
        self._said = [told_by(host, reply) for host, reply in zip(hosts, replies, strict=True)]


def told_by(host: HostInfo, reply: Reply | Refused | None) -> dict[str, Any]:
    """What one of them has answered."""
    if reply is None:
        return {"host": str(host), "status": "no answer", "ready": False, "reason": ""}
    if isinstance(reply, Refused):
        return {"host": str(host), "status": "not asked", "ready": False, "reason": str(reply)}
    return {"host": str(host), **_health(reply.body)}


def _health(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": printable(body.get("status", "?"), 40),
        "ready": body.get("ready") is True,
        "reason": printable(body.get("reason", ""), _MOST_REASON),
    }
