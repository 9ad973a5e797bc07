"""Changes of a key or of a range, as server-sent events: the current state, then each difference.

The positions of a store's partitions are checked a few times a second, which costs no read. When they have
advanced, the store is read again, by the usual reads. Parts on other clients are read once a second. So
changes in quick succession become one event, and none is kept: a client that reconnects gets the current
state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from millstream.query.provider import StoreDeclaration
from millstream.server import events
from millstream.server.answers import Answer, Refused, answer_to
from millstream.server.events import Event, kept_alive
from millstream.server.exports import Ask, asking_for, body_of, entries_of
from millstream.server.peers import Reach
from millstream.server.routes import Request
from millstream.server.wire import Deadline

__all__ = ["Watching", "differences"]

Entry = Mapping[str, Any]
Place = tuple[str, Any, Any]

_LOOK_S = 0.2
_ELSEWHERE_S = 1.0
_RETRY_MS = 2_000


def _place(entry: Entry) -> Place:
    """What distinguishes an entry from the others of its store. (A key can be any JSON.)"""
    return repr(entry["key"]), entry.get("start"), entry.get("end")


def differences(before: Sequence[Entry], now: Sequence[Entry]) -> tuple[list[Entry], list[dict[str, Any]]]:
    """The entries that are new or changed, and the keys of those that are gone. Pure."""
    old = {_place(entry): entry for entry in before}
    changed = [entry for entry in now if old.get(_place(entry)) != entry]
    there = {_place(entry) for entry in now}
    removed = [
        {name: entry[name] for name in ("key", "start", "end") if name in entry}
        for entry in before
        if _place(entry) not in there
    ]
    return changed, removed


class Watching:
    """Answers with events. `ask` answers with the current state."""

    def __init__(self, reach: Reach, ask: Ask) -> None:
        self._reach = reach
        self._ask = ask

    async def answer(self, request: Request, deadline: Deadline) -> Answer:
        """The events. If the first read fails, the answer is the usual error.

        Raises:
            Refused: the range has more entries than a page.
        """
        store = await self._reach.read(
            deadline, lambda: self._reach.stores.declaration(request.store, request.route.kind)
        )
        if request.route.paged and "limit" not in request.given:
            request = asking_for(request, limit=str(self._reach.limits.page))
        mark = await self._mark(store, request, deadline)
        first = await self._ask(request, deadline)
        if "error" in body_of(first):
            return first
        entries = _all_of(body_of(first), self._reach)
        return Answer(
            200,
            headers=events.HEADERS,
            pieces=lambda: kept_alive(
                self._events(store, request, mark, entries), self._reach.limits.heartbeat_s
            ),
        )

    async def _events(
        self, store: StoreDeclaration, request: Request, mark: Any, entries: Sequence[Entry]
    ) -> AsyncGenerator[Event, None]:
        yield Event("now", {"store": store.name, "entries": entries}, _RETRY_MS)
        lost = False
        while True:
            await asyncio.sleep(_ELSEWHERE_S if mark is None or lost else _LOOK_S)
            deadline = Deadline(self._reach.limits.deadline_s)
            latest = await self._mark(store, request, deadline)
            if latest is not None and latest == mark and not lost:
                continue
            body = body_of(await self._ask(request, deadline))
            if "error" in body:
                if not body.get("retriable"):
                    yield Event("failed", body)
                    return
                if not lost:
                    yield Event("waiting", body)
                lost = True
                continue
            try:
                now = _all_of(body, self._reach)
            except Refused as refusal:
                yield Event("failed", answer_to(refusal).body)
                return
            changed, removed = differences(entries, now)
            if changed or removed or lost:
                yield Event("changed", {"store": store.name, "entries": changed, "removed": removed})
            mark, entries, lost = latest, now, False

    async def _mark(self, store: StoreDeclaration, request: Request, deadline: Deadline) -> Any:
        """A mark that stays equal while no local part changes; None: other clients have a part too."""

        def look() -> Any:
            parts = self._reach.stores.parts(store.name, stale=request.stale)
            if not (request.local or self._reach.places.is_whole(store, stale=request.stale)):
                return None
            return {number: (id(part), part.position) for number, part in parts.items()}

        return await self._reach.read(deadline, look)


def _all_of(body: Mapping[str, Any], reach: Reach) -> Sequence[Entry]:
    """The entries of an answer that contains the whole range.

    Raises:
        Refused: the range has more entries.
    """
    if body.get("next") is not None:
        raise Refused(
            413,
            "TooLarge",
            "this range has more entries than can be watched; narrow it, or raise 'limit' (at most "
            f"{reach.limits.most_page} entries and {reach.limits.page_bytes} bytes)",
        )
    return entries_of(body)
