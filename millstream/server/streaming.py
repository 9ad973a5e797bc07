"""Answers that are sent piece by piece: whole ranges in other formats than JSON, and changes as events.

A range is read page by page, each after the one before it was sent, and no store is held open meanwhile,
however slow the reader is. So this is not a snapshot: each page shows the store as it is when the page is
read. No entry appears twice, and none that was there all the time is missed. If a page cannot be read, the
answer is cut off.

Changes are found by reading again. The positions of a store's partitions are checked a few times a second,
which costs no read; when they have advanced, the store is read by the usual reads. Parts on other clients are
read once a second. So changes in quick succession become one event, and none is kept: a client that
reconnects gets the current state.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from millstream.query.provider import StoreDeclaration
from millstream.remote.answers import Answer, Refused, answer_to, exception_from
from millstream.remote.http_wire import Deadline
from millstream.remote.routes import Request, parse_request, question_of, read_of
from millstream.server.forms import EVENT_HEADERS, EntryWriter, Event, MediaType, kept_alive, writer_of
from millstream.server.peers import Reach

__all__ = ["Ask", "Exports", "Watching", "asking_for", "body_of", "differences", "entries_of"]

# --- whole ranges ---------------------------------------------------------------------------------------


Ask = Callable[[Request, Deadline], Awaitable[Answer]]
"""Answers a request with JSON."""


def asking_for(request: Request, **given: str | None) -> Request:
    """The same request with these parameters changed; None removes one."""
    found = {**request.given, **given}
    wanted = {name: text for name, text in found.items() if text is not None}
    path = request.target.partition("?")[0]
    return replace(request, given=wanted, target=f"{path}?{urlencode(wanted)}" if wanted else path)


def body_of(answer: Answer) -> Mapping[str, Any]:
    """The JSON object of an answer, which may be another client's."""
    if answer.body or answer.raw is None:
        return answer.body
    found: Mapping[str, Any] = json.loads(answer.raw)
    return found


def entries_of(body: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The entries of an answer; of an answer about a single entry, this one if it exists."""
    if "entries" in body:
        found: Sequence[Mapping[str, Any]] = body["entries"]
        return found
    if body.get("value") is None:
        return ()
    return ({name: value for name, value in body.items() if name != "store"},)


@dataclass(frozen=True, slots=True)
class _Page:
    entries: Sequence[Mapping[str, Any]]
    next: str | None


def _in_bytes(store: StoreDeclaration, request: Request) -> Request:
    """The request for the same entries, as base64 of their bytes."""
    method, target, _ = question_of(read_of(store, request))
    path, _, query = target.partition("?")
    asked = parse_request(method, path.encode("ascii"), query.encode("ascii"))
    return asking_for(asked, local=request.given.get("local"))


class Exports:
    """Answers with whole ranges. `ask` answers with a page."""

    def __init__(self, reach: Reach, ask: Ask) -> None:
        self._reach = reach
        self._ask = ask

    async def answer(self, request: Request, form: MediaType, deadline: Deadline) -> Answer:
        """The range; `limit` is the maximum number of entries in all of it.

        If the first page cannot be read, the answer is the usual error.
        """
        store = await self._reach.read(
            deadline, lambda: self._reach.stores.declaration(request.store, request.route.kind)
        )
        writer = writer_of(form, store)
        text = request.given.get("limit")
        left = None if text is None else int(text)
        if writer.in_bytes:
            request = _in_bytes(store, request)
        answer = await self._ask(self._sized(request, left), deadline)
        if answer.status != 200:
            return answer
        page = self._page(answer)
        begun = await self._reach.read(deadline, partial(writer.page, page.entries))
        return Answer(
            200,
            headers={"content-type": writer.content_type},
            pieces=lambda: self._pieces(request, writer, page, begun, left),
        )

    async def _pieces(
        self, request: Request, writer: EntryWriter, page: _Page, begun: bytes, left: int | None
    ) -> AsyncGenerator[bytes, None]:
        if begun:
            yield begun
        while page.next is not None:
            left = None if left is None else left - len(page.entries)
            if left is not None and left <= 0:
                break
            deadline = Deadline(self._reach.limits.deadline_s)
            asked = asking_for(self._sized(request, left), cursor=page.next)
            answer = await self._ask(asked, deadline)
            if answer.status != 200:
                raise exception_from(answer.status, body_of(answer), "this client")
            page = self._page(answer)
            yield await self._reach.read(deadline, partial(writer.page, page.entries))
        if ended := writer.end():
            yield ended

    def _sized(self, request: Request, left: int | None) -> Request:
        """The request for a page of the usual size, or for what is left to send."""
        if not request.route.paged or "time" in request.given or "start" in request.given:
            return request
        size = self._reach.limits.page if left is None else min(left, self._reach.limits.page)
        return asking_for(request, limit=str(size))

    def _page(self, answer: Answer) -> _Page:
        body = body_of(answer)
        return _Page(entries_of(body), body.get("next"))


# --- changes --------------------------------------------------------------------------------------------


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
            headers=EVENT_HEADERS,
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
