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
from millstream.query.read import Form, Read
from millstream.server.answers import Answer, Refused, is_misdirected
from millstream.server.many_keys import ManyKeys
from millstream.server.places import out_of_reach
from millstream.server.ranges import page_here, page_limit
from millstream.server.reach import Reach
from millstream.server.routes import Question, Request, read_of
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
    read: Read


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
                (row,), _ = await self._many.find(outcome.read, outcome.store, deadline, only_here=False)
                return answer_of(request, outcome.store, outcome.read.keys[0], row)
            refusal: Refused | None = None
            for host in outcome.hosts:
                try:
                    reply = await self._reach.peers.ask(host, Question("GET", request.target), deadline)
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
        read = read_of(store, request, limit=page_limit(self._reach, request))
        assert read.key is not None, "this is only asked about a key"
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
        """Nobody knows how its topic is partitioned: look here first, then everywhere."""
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
            store.name, store.kind, Form.VALUES, keys=(read.key or b"",), stale=read.stale, as_of=read.as_of
        )
        return _Somewhere(store, of_many)

    def _read(self, request: Request, store: StoreDeclaration, read: Read, deadline: Deadline) -> Answer:
        if read.form is Form.VALUE:
            return answer_of(request, store, read.key or b"", self._reach.stores.row(read))
        page, here = page_here(self._reach, read, deadline)
        return shown_page(request, store, page, here)
