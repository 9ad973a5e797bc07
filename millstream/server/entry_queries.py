"""Queries for entries: answered here, forwarded, or sent to all clients; and the format of their answers.

A query for a key goes to the client that has it, in one hop: a forwarded request is answered locally or not
at all. If the partitioning of a topic is unknown, keys that are not here are looked up on all clients. A
range is read page by page from every client that has a part of it, and merged. The answer is complete or an
error, and contains each partition once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from millstream.errors import (
    InvalidStateStorePartitionException,
    StateStoreMigratedException,
    StreamsRebalancingException,
)
from millstream.model import StoreKind
from millstream.query.metadata import HostInfo
from millstream.query.provider import StoreDeclaration
from millstream.query.read import Read, ResultForm
from millstream.remote.answers import Answer, Refused, is_misdirected
from millstream.remote.http_wire import Deadline, Reply
from millstream.remote.json_codec import shown
from millstream.remote.pages import Page, Row, merged, place_of
from millstream.remote.routes import RemoteRequest, Request, keys_in, parse_request, question_of, read_of
from millstream.server.local_stores import covers, moved, out_of_reach
from millstream.server.peers import Reach, count_from, garbled, page_from, partitions_of, rows_of

__all__ = ["ManyKeys", "OneKey", "Ranges"]


def shown_page(request: Request, store: StoreDeclaration, page: Page, partitions: frozenset[int]) -> Answer:
    """A page: its entries, and where the next page begins."""
    return Answer(
        200,
        {
            "store": store.name,
            "partitions": sorted(partitions),
            "entries": [_shown_row(store, row, request.format) for row in page.rows],
            "next": None if page.next is None else page.next.token(),
        },
    ).encoded()


def passed_on(reply: Reply) -> Answer:
    """Another client's answer, unchanged."""
    headers = {} if reply.retry_after is None else {"retry-after": "1"}
    return Answer(reply.status, headers=headers, raw=reply.raw)


def _shown_row(store: StoreDeclaration, row: Row, format_: str) -> dict[str, Any]:
    body = {
        "key": shown(store.key_serde, row.key, format_),
        "value": shown(store.value_serde, row.value, format_),
    }
    times = {"timestamp": row.timestamp, "start": row.start, "end": row.end}
    return body | {name: time for name, time in times.items() if time is not None}


def answer_of(request: Request, store: StoreDeclaration, key: bytes, row: Row | None) -> Answer:
    """One entry. A 404 without an error means that the key has no value."""
    if row is None:
        shown_key = shown(store.key_serde, key, request.format)
        return Answer(404, {"store": store.name, "key": shown_key, "value": None})
    return Answer(200, {"store": store.name, **_shown_row(store, row, request.format)})


def shown_many(
    request: Request,
    store: StoreDeclaration,
    keys: Sequence[bytes],
    found: Sequence[Row | None],
    here: frozenset[int],
) -> Answer:
    """The values of many keys, in their order."""
    entries = [
        {"key": shown(store.key_serde, key, request.format), "value": None}
        if row is None
        else _shown_row(store, row, request.format)
        for key, row in zip(keys, found, strict=True)
    ]
    return Answer(200, {"store": store.name, "partitions": sorted(here), "entries": entries}).encoded()


@dataclass(frozen=True, slots=True)
class _Part:
    """This client's part of a range. `alone`: this part is the whole answer."""

    store: StoreDeclaration
    read: Read
    page: Page
    partitions: frozenset[int]
    alone: bool


def page_here(reach: Reach, read: Read, deadline: Deadline) -> tuple[Page, frozenset[int]]:
    """The requested page of the local entries, and its partitions. Blocks."""
    return reach.stores.page(read, most_bytes=reach.limits.page_bytes, check=deadline.check)


def page_limit(reach: Reach, request: Request) -> int:
    """The maximum number of entries in a page."""
    return request.limit(reach.limits.page, reach.limits.most_page)


class Ranges:
    """Answers about more than one key."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def entries(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """A page of a range."""
        store, page, covered = await self._page(request, deadline, only_here=only_here)
        return await self._reach.read(deadline, lambda: shown_page(request, store, page, covered))

    async def whole(self, store: str, kind: StoreKind, deadline: Deadline) -> list[Row]:
        """All entries of a store, from all clients, page by page.

        Raises:
            TimeoutException: the deadline has passed.
        """
        rows: list[Row] = []
        read: Read | None = Read(store, kind, limit=self._reach.limits.most_page)
        while read is not None:
            deadline.check()
            _, target, _ = question_of(read)
            path, _, query = target.partition("?")
            request = parse_request("GET", path.encode("ascii"), query.encode("ascii"))
            _, page, _ = await self._page(request, deadline, only_here=False)
            rows += page.rows
            read = None if page.next is None else replace(read, after=page.next.order)
        return rows

    async def _page(
        self, request: Request, deadline: Deadline, *, only_here: bool
    ) -> tuple[StoreDeclaration, Page, frozenset[int]]:
        """A page of a range, and its partitions."""
        part = await self._reach.read(
            deadline, lambda: self._range_here(request, deadline, only_here=only_here)
        )
        store, read, page, here = part.store, part.read, part.page, part.partitions
        if part.alone:
            return store, page, here
        hosts = await self._reach.read(
            deadline, lambda: self._reach.places.all_hosts(store.name, stale=request.stale)
        )
        replies = await self._reach.peers.ask_all(hosts, question_of(read), deadline)
        pages, covered = [page], set(here)
        for host, reply in zip(hosts, replies, strict=True):
            if isinstance(reply, Reply) and reply.status == 400:
                raise Refused(400, str(reply.body.get("error")), str(reply.body.get("message")))
            if not isinstance(reply, Reply) or reply.status != 200:
                continue  # _check_whole decides whether that matters
            theirs, partitions = page_from(reply, host)
            if covered & partitions and not request.stale:
                raise moved(store.name)
            pages.append(theirs)
            covered |= partitions
        self._check_whole(store, covered, replies)

        def merge() -> Page:
            return merged(
                pages,
                place_of(read.kind),
                reverse=read.reverse,
                limit=page_limit(self._reach, request),
                most_bytes=self._reach.limits.page_bytes,
                distinct=request.stale,
            )

        return store, await self._reach.read(deadline, merge), frozenset(covered)

    def _range_here(self, request: Request, deadline: Deadline, *, only_here: bool) -> _Part:
        store = self._reach.stores.declaration(request.store, request.route.kind)
        read = read_of(store, request, limit=page_limit(self._reach, request))
        alone = only_here or self._reach.places.is_whole(store, stale=request.stale)
        if not alone and not self._reach.stores.readable(store.name, stale=request.stale):
            return _Part(store, read, Page(()), frozenset(), alone)
        page, here = page_here(self._reach, read, deadline)
        return _Part(store, read, page, here, alone)

    async def count(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """The approximate number of entries."""
        store, count, here = await self._reach.read(
            deadline, lambda: self._count_here(request, only_here=only_here)
        )
        if not only_here and not covers(here, store):
            hosts = await self._reach.read(deadline, lambda: self._reach.places.all_hosts(store.name))
            question = question_of(Read(store.name, form=ResultForm.COUNT))
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
        """Check that an answer covers the whole store; `refusal` is the likely reason for a missing part."""
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


_ROUNDS = 2
"""How many times the owners of keys are looked up, if the keys have moved when they are queried."""

_AT_ONCE = 256
"""How many keys are read between two checks of the total size of the values."""


class ManyKeys:
    """Answers requests for the values of many keys."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def answer(self, request: Request, body: bytes, deadline: Deadline, *, only_here: bool) -> Answer:
        """The values of the keys in the body."""
        store, read = await self._reach.read(deadline, lambda: self._read_of(request, body))
        found, here = await self.find(read, store, deadline, only_here=only_here)
        return await self._reach.read(deadline, partial(shown_many, request, store, read.keys, found, here))

    async def find(
        self,
        read: Read,
        store: StoreDeclaration,
        deadline: Deadline,
        *,
        only_here: bool,
    ) -> tuple[list[Row | None], frozenset[int]]:
        """The values of keys, wherever they are; and the partitions that were searched here."""
        keys = read.keys
        found: list[Row | None] = [None] * len(keys)
        covered: set[int] = set()
        before = self._reach.stores.parts(store.name, stale=read.stale)
        missing: Sequence[int] = range(len(keys))
        refusal: Refused | None = None
        for attempt in range(_ROUNDS):
            wanted = list(missing)
            here = partial(self._from_here, read, store, wanted, found, attempt)
            elsewhere = await self._reach.read(deadline, partial(here, only_here=only_here))
            hosts = list(elsewhere)
            replies = await asyncio.gather(
                *(
                    self._ask(host, replace(read, keys=tuple([keys[i] for i in elsewhere[host]])), deadline)
                    for host in hosts
                )
            )
            gone: set[int] = set()
            for host, reply in zip(hosts, replies, strict=True):
                if reply is None or isinstance(reply, Refused):
                    refusal = refusal or reply
                    gone.update(elsewhere[host])
                    continue
                rows, partitions = reply
                covered |= partitions
                for index, row in zip(elsewhere[host], rows, strict=True):
                    found[index] = found[index] or row
            missing = sorted(gone)
            self._check_size(found)
            if not missing:
                break
        else:
            raise refusal or out_of_reach(store.name)
        if store.partition_of is None and None in found:
            # A key is known to be absent only if all partitions were searched and none of them moved.
            if self._reach.stores.parts(store.name, stale=read.stale) != before:
                raise moved(store.name)
            if not only_here and not store.is_global:
                self._reach.places.check_whole(store, covered | before.keys())
        return found, frozenset(before)

    def _read_of(self, request: Request, body: bytes) -> tuple[StoreDeclaration, Read]:
        store = self._reach.stores.declaration(request.store, request.route.kind)
        keys = keys_in(store, body, request.format, most=self._reach.limits.keys)
        return store, replace(read_of(store, request), keys=tuple(keys))

    def _from_here(
        self,
        read: Read,
        store: StoreDeclaration,
        wanted: Sequence[int],
        found: list[Row | None],
        attempt: int,
        *,
        only_here: bool,
    ) -> dict[HostInfo, list[int]]:
        """Put the local values into `found`; returns the clients to query for the other keys, with the
        indexes of these keys."""
        if store.partition_of is None:
            return self._unrouted(read, store, wanted, found, only_here=only_here)
        keys = read.keys
        by_partition: dict[int, list[int]] = {}
        for index in wanted:
            by_partition.setdefault(store.partition_of(keys[index]), []).append(index)
        here: dict[int, list[int]] = {}
        elsewhere: dict[HostInfo, list[int]] = {}
        for partition, indexes in by_partition.items():
            key = keys[indexes[0]]
            is_here = self._reach.places.is_here(store.name, partition, stale=read.stale)
            hosts = (
                () if only_here or is_here else self._reach.places.hosts(store.name, key, stale=read.stale)
            )
            if hosts:
                elsewhere.setdefault(hosts[min(attempt, len(hosts) - 1)], []).extend(indexes)
                continue
            if not is_here:
                # No client can be queried. The read raises the right exception, unless the partition has
                # arrived meanwhile.
                self._reach.stores.row(
                    replace(read, form=ResultForm.VALUE, keys=(), key=key, partition=partition, as_of=None)
                )
            here[partition] = indexes
        wanted_here = [index for indexes in here.values() for index in indexes]
        rows = self._read(replace(read, keys=tuple([keys[index] for index in wanted_here])))
        if not here.keys() <= self._reach.stores.readable(store.name, stale=read.stale):
            raise out_of_reach(store.name)  # a key that has moved away is not a key without a value
        for index, row in zip(wanted_here, rows, strict=True):
            found[index] = row
        return elsewhere

    def _unrouted(
        self,
        read: Read,
        store: StoreDeclaration,
        wanted: Sequence[int],
        found: list[Row | None],
        *,
        only_here: bool,
    ) -> dict[HostInfo, list[int]]:
        """The same if the partitioning of the topic is unknown: all clients are queried for keys that are
        not found here."""
        alone = only_here or self._reach.places.is_whole(store, stale=read.stale)
        everyone = () if alone else self._reach.places.all_hosts(store.name)
        try:
            rows = self._read(replace(read, keys=tuple([read.keys[index] for index in wanted])))
        except StateStoreMigratedException:
            if not everyone:
                raise
            return {host: list(wanted) for host in everyone}
        for index, row in zip(wanted, rows, strict=True):
            found[index] = row
        nowhere = [index for index in wanted if found[index] is None]
        return dict.fromkeys(everyone, nowhere) if nowhere else {}

    def _read(self, read: Read) -> list[Row | None]:
        """The values of local keys; refused if their total size exceeds the limit."""
        rows: list[Row | None] = []
        for start in range(0, len(read.keys), _AT_ONCE):
            rows += self._reach.stores.rows(replace(read, keys=read.keys[start : start + _AT_ONCE]))
            self._check_size(rows)
        return rows

    def _check_size(self, rows: Sequence[Row | None]) -> None:
        most = self._reach.limits.answer_bytes
        if len(rows) > 1 and sum(len(row.key) + len(row.value) for row in rows if row is not None) > most:
            raise Refused(
                413, "TooLarge", f"these values have more than {most} bytes; request fewer keys at once"
            )

    async def _ask(
        self, host: HostInfo, read: Read, deadline: Deadline
    ) -> tuple[list[Row | None], set[int]] | Refused | None:
        """Another client's values for these keys, and the partitions that it searched. None: it does not
        have the keys, or cannot be queried. A refusal: it must not be queried.
        """
        question = question_of(read)
        try:
            reply = await self._reach.peers.ask(host, question, deadline)
        except Refused as refusal:
            return refusal
        if reply is not None and reply.status in (400, 413):
            # The request is at fault, not the location of the keys: the answer is too large, or the time is
            # before the history.
            error, message = str(reply.body.get("error")), str(reply.body.get("message"))
            raise Refused(reply.status, error, message)
        if reply is None or reply.status != 200:
            return None
        rows = rows_of(reply, host)
        if len(rows) != len(read.keys):
            raise garbled(host)
        return rows, partitions_of(reply, host)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Other clients have the key: which ones, in the order to query them."""

    hosts: Sequence[HostInfo]


@dataclass(frozen=True, slots=True)
class _Somewhere:
    """It is unknown which client has a key of this store, so all are queried."""

    store: StoreDeclaration
    read: Read


class OneKey:
    """Answers requests for one key. `many` searches all clients if its location is unknown."""

    def __init__(self, reach: Reach, many: ManyKeys) -> None:
        self._reach = reach
        self._many = many

    async def answer(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """The data of a key: its value, one of its windows or sessions, or a page of them."""
        for _ in range(_ROUNDS):
            answering = partial(self._here, request, deadline, only_here=only_here)
            outcome = await self._reach.read(deadline, answering)
            if isinstance(outcome, Answer):
                return outcome
            if isinstance(outcome, _Somewhere):
                (row,), _ = await self._many.find(outcome.read, outcome.store, deadline, only_here=False)
                return answer_of(request, outcome.store, outcome.read.keys[0], row)
            refusal: Refused | None = None
            for host in outcome.hosts:
                try:
                    reply = await self._reach.peers.ask(host, RemoteRequest("GET", request.target), deadline)
                except Refused as refused:
                    refusal = refusal or refused  # a standby may have the key too
                    continue
                if reply is not None and not is_misdirected(reply.status, reply.body):
                    return passed_on(reply)
            if refusal is not None:
                raise refusal
        raise out_of_reach(request.store)

    def _here(
        self, request: Request, deadline: Deadline, *, only_here: bool
    ) -> Answer | _Elsewhere | _Somewhere:
        """The answer about one key from the local stores, or else the clients that have the key."""
        store = self._reach.stores.declaration(request.store, request.route.kind)
        read = read_of(store, request, limit=page_limit(self._reach, request))
        assert read.key is not None, "a read of one key needs a key"
        key, stale = read.key, request.stale
        if store.partition_of is None:
            return self._unrouted(request, store, read, deadline, only_here=only_here)
        partition = store.partition_of(key)
        if not only_here and not self._reach.places.is_here(store.name, partition, stale=stale):
            hosts = self._reach.places.hosts(store.name, key, stale=stale)
            if hosts:
                return _Elsewhere(hosts)
        try:
            return self._read(request, store, replace(read, partition=partition), deadline)
        except (InvalidStateStorePartitionException, StateStoreMigratedException) as error:
            hosts = self._reach.places.hosts(store.name, key, stale=False)
            return self._reach.error(error, hosts[0] if hosts else None)

    def _unrouted(
        self, request: Request, store: StoreDeclaration, read: Read, deadline: Deadline, *, only_here: bool
    ) -> Answer | _Somewhere:
        """The same if the partitioning of the topic is unknown: search here first, then everywhere."""
        alone = only_here or self._reach.places.is_whole(store, stale=request.stale)
        try:
            answer = self._read(request, store, read, deadline)
        except StateStoreMigratedException:
            if alone:
                raise
        else:
            if alone or answer.status != 404:
                return answer
        of_many = Read(
            store.name,
            store.kind,
            ResultForm.VALUES,
            keys=(read.key or b"",),
            stale=read.stale,
            as_of=read.as_of,
        )
        return _Somewhere(store, of_many)

    def _read(self, request: Request, store: StoreDeclaration, read: Read, deadline: Deadline) -> Answer:
        if read.form is ResultForm.VALUE:
            return answer_of(request, store, read.key or b"", self._reach.stores.row(read))
        page, here = page_here(self._reach, read, deadline)
        return shown_page(request, store, page, here)
