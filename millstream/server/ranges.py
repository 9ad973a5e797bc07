"""What all clients answer together: ranges, page by page and merged, and how many entries there are.

The answer is whole or none: each partition is in it once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millstream.errors import StreamsRebalancingException
from millstream.query.provider import StoreDeclaration
from millstream.query.read import Form, Read
from millstream.server.answers import Answer, Refused
from millstream.server.pages import Page, merged, place_of
from millstream.server.peers import count_from, page_from
from millstream.server.places import covers, moved
from millstream.server.reach import Reach
from millstream.server.routes import Request, question_of, read_of
from millstream.server.shapes import shown_page
from millstream.server.wire import Reply
from millstream.server.workers import Deadline

__all__ = ["Ranges", "page_here", "page_limit"]


@dataclass(frozen=True, slots=True)
class _Part:
    """This client's part of a range. `alone`: it is all of the answer."""

    store: StoreDeclaration
    read: Read
    page: Page
    partitions: frozenset[int]
    alone: bool


def page_here(reach: Reach, read: Read, deadline: Deadline) -> tuple[Page, frozenset[int]]:
    """The page that is asked for, of what is here, and the partitions that it is of. It blocks."""
    return reach.stores.page(read, most_bytes=reach.limits.page_bytes, check=deadline.check)


def page_limit(reach: Reach, request: Request) -> int:
    """How many entries a page has at most."""
    return request.limit(reach.limits.page, reach.limits.most_page)


class Ranges:
    """Answers about more than one key."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def entries(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """A page of a range."""
        part = await self._reach.read(
            deadline, lambda: self._range_here(request, deadline, only_here=only_here)
        )
        store, read, page, here = part.store, part.read, part.page, part.partitions
        if part.alone:
            return await self._reach.read(deadline, lambda: shown_page(request, store, page, here))
        hosts = await self._reach.read(
            deadline, lambda: self._reach.places.all_hosts(store.name, stale=request.stale)
        )
        replies = await self._reach.peers.ask_all(hosts, question_of(read), deadline)
        pages, covered = [page], set(here)
        for host, reply in zip(hosts, replies, strict=True):
            if isinstance(reply, Reply) and reply.status == 400:
                raise Refused(400, str(reply.body.get("error")), str(reply.body.get("message")))
            if not isinstance(reply, Reply) or reply.status != 200:
                continue  # whether that matters shows below
            theirs, partitions = page_from(reply, host)
            if covered & partitions and not request.stale:
                raise moved(store.name)
            pages.append(theirs)
            covered |= partitions
        self._check_whole(store, covered, replies)

        def merge() -> Answer:
            whole = merged(
                pages,
                place_of(read.kind),
                reverse=read.reverse,
                limit=page_limit(self._reach, request),
                most_bytes=self._reach.limits.page_bytes,
                distinct=request.stale,
            )
            return shown_page(request, store, whole, frozenset(covered))

        return await self._reach.read(deadline, merge)

    def _range_here(self, request: Request, deadline: Deadline, *, only_here: bool) -> _Part:
        store = self._reach.stores.declaration(request.store, request.route.kind)
        read = read_of(store, request, limit=page_limit(self._reach, request))
        alone = only_here or self._reach.places.is_whole(store, stale=request.stale)
        if not alone and not self._reach.stores.readable(store.name, stale=request.stale):
            return _Part(store, read, Page(()), frozenset(), alone)
        page, here = page_here(self._reach, read, deadline)
        return _Part(store, read, page, here, alone)

    async def count(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """About how many entries there are."""
        store, count, here = await self._reach.read(
            deadline, lambda: self._count_here(request, only_here=only_here)
        )
        if not only_here and not covers(here, store):
            hosts = await self._reach.read(deadline, lambda: self._reach.places.all_hosts(store.name))
            question = question_of(Read(store.name, form=Form.COUNT))
            replies = await self._reach.peers.ask_all(hosts, question, deadline)
            covered = set(here)
            for host, reply in zip(hosts, replies, strict=True):
                if isinstance(reply, Reply) and reply.status == 200:
                    theirs, partitions = count_from(reply, host)
                    if covered & partitions:
                        raise moved(store.name)
                    count += theirs
                    covered |= partitions
            self._check_whole(store, covered, replies)
            here = frozenset(covered)
        return Answer(200, {"store": store.name, "partitions": sorted(here), "count": count})

    def _check_whole(
        self, store: StoreDeclaration, covered: set[int], replies: Sequence[Reply | Refused | None]
    ) -> None:
        """Hold that an answer is of all of a store; what is missing may be so because of a refusal."""
        try:
            self._reach.places.check_whole(store, covered)
        except StreamsRebalancingException as missing:
            refusal = next((reply for reply in replies if isinstance(reply, Refused)), None)
            if refusal is not None:
                raise refusal from missing
            raise

    def _count_here(
        self, request: Request, *, only_here: bool
    ) -> tuple[StoreDeclaration, int, frozenset[int]]:
        store = self._reach.stores.declaration(request.store, None)
        if not only_here and not self._reach.stores.presences(store.name, stale=False):
            return store, 0, frozenset()
        parts = self._reach.stores.parts(store.name, stale=False)
        count = self._reach.stores.count(read_of(store, request))
        if self._reach.stores.parts(store.name, stale=False) != parts:
            raise moved(store.name)
        return store, count, frozenset(parts)
