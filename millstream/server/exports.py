"""Whole ranges in formats other than a page of JSON. Each page is read after the one before it was sent.

No store is held open meanwhile, however slow the reader is. So this is not a snapshot: each page shows the
store as it is when the page is read. No entry appears twice, and none that was there all the time is missed.
If a page cannot be read, the answer is cut off.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urlencode

from millstream.query.provider import StoreDeclaration
from millstream.server.answers import Answer, exception_from
from millstream.server.forms import Form, Writer, writer_of
from millstream.server.peers import Reach
from millstream.server.routes import Request, parse_request, question_of, read_of
from millstream.server.wire import Deadline

__all__ = ["Ask", "Exports", "asking_for", "body_of", "entries_of"]

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

    async def answer(self, request: Request, form: Form, deadline: Deadline) -> Answer:
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
        self, request: Request, writer: Writer, page: _Page, begun: bytes, left: int | None
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
