"""A question about one key, answered here or passed on, by one hop, to the client that has the key.

What was passed on already is answered here or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from millstream.errors import InvalidStateStorePartitionException, StateStoreMigratedException
from millstream.query.metadata import HostInfo
from millstream.query.provider import StoreDeclaration
from millstream.server.answers import Answer, Refused, is_misdirected
from millstream.server.asked import key_of, scan_of
from millstream.server.many_keys import ManyKeys
from millstream.server.places import out_of_reach
from millstream.server.ranges import page_here
from millstream.server.reach import Reach
from millstream.server.routes import Request
from millstream.server.shapes import answer_of, passed_on, shown_page
from millstream.server.workers import Deadline

__all__ = ["OneKey"]

_ROUNDS = 2
"""How often the owner of a key is looked up, if it has moved when it is asked."""


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Other clients have it: who, in the order to ask them."""

    hosts: Sequence[HostInfo]


@dataclass(frozen=True, slots=True)
class _Somewhere:
    """Nobody knows which client has a key of this store: all are asked."""

    store: StoreDeclaration
    key: bytes


class OneKey:
    """Answers about one key. `many` looks for it everywhere, where nobody knows who would have it."""

    def __init__(self, reach: Reach, many: ManyKeys) -> None:
        self._reach = reach
        self._many = many

    async def answer(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        """What is stored for a key: its value, one of its windows or sessions, or a page of them."""
        for _ in range(_ROUNDS):
            answering = partial(self._here, request, deadline, only_here=only_here)
            outcome = await self._reach.read(deadline, answering)
            if isinstance(outcome, Answer):
                return outcome
            if isinstance(outcome, _Somewhere):
                (row,), _ = await self._many.find(
                    request, outcome.store, [outcome.key], deadline, only_here=False
                )
                return answer_of(request, outcome.store, outcome.key, row)
            refusal: Refused | None = None
            for host in outcome.hosts:
                try:
                    reply = await self._reach.peers.ask(host, "GET", request.target, deadline)
                except Refused as refused:
                    refusal = refusal or refused  # a standby may have it, too
                    continue
                if reply is not None and not is_misdirected(reply.status, reply.body):
                    return passed_on(reply)
            if refusal is not None:
                raise refusal
        raise out_of_reach(request.store)

    def _here(
        self, request: Request, deadline: Deadline, *, only_here: bool
    ) -> Answer | _Elsewhere | _Somewhere:
        """The answer about one key from the stores that are here, or who has it."""
        store = self._reach.stores.declaration(request.store, request.route.kind)
        key = key_of(store, request)
        if store.partition_of is None:
            return self._unrouted(request, store, key, deadline, only_here=only_here)
        partition = store.partition_of(key)
        if not only_here and not self._reach.places.is_here(store.name, partition, stale=request.stale):
            hosts = self._reach.places.hosts(store.name, key, stale=request.stale)
            if hosts:
                return _Elsewhere(hosts)
        try:
            return self._read(request, store, key, partition, deadline)
        except (InvalidStateStorePartitionException, StateStoreMigratedException) as error:
            hosts = self._reach.places.hosts(store.name, key, stale=False)
            return self._reach.error(error, hosts[0] if hosts else None)

    def _unrouted(
        self, request: Request, store: StoreDeclaration, key: bytes, deadline: Deadline, *, only_here: bool
    ) -> Answer | _Somewhere:
        """Nobody knows how its topic is partitioned: look here first, then everywhere."""
        alone = only_here or self._reach.places.is_whole(store, stale=request.stale)
        try:
            answer = self._read(request, store, key, None, deadline)
        except StateStoreMigratedException:
            if alone:
                raise
        else:
            if alone or answer.status != 404:
                return answer
        return _Somewhere(store, key)

    def _read(
        self,
        request: Request,
        store: StoreDeclaration,
        key: bytes,
        partition: int | None,
        deadline: Deadline,
    ) -> Answer:
        name, stale = store.name, request.stale
        stores = self._reach.stores
        start, end, time = request.time("start"), request.time("end"), request.time("time")
        if request.route.name == "get":
            row = stores.get(name, key, partition=partition, stale=stale, as_of=request.time("as_of"))
        elif time is not None:
            row = stores.window(name, key, time, partition=partition, stale=stale)
        elif start is not None and end is not None:
            row = stores.session(name, key, start, end, partition=partition, stale=stale)
        else:
            scan = replace(scan_of(store, request), from_key=key, to_key=key, partition=partition)
            page, here = page_here(self._reach, request, scan, deadline)
            return shown_page(request, store, page, here)
        return answer_of(request, store, key, row)
