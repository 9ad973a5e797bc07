"""The values of many keys, each from the client that has it, in one answer.

Where nobody knows how a topic is partitioned, the keys that are not here are looked for at all clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from millstream.errors import StateStoreMigratedException
from millstream.query.metadata import HostInfo
from millstream.query.provider import StoreDeclaration
from millstream.query.read import Form, Read
from millstream.server.answers import Answer, Refused
from millstream.server.pages import Row
from millstream.server.peers import garbled, partitions_of, rows_of
from millstream.server.places import moved, out_of_reach
from millstream.server.reach import Reach
from millstream.server.routes import Request, keys_in, question_of, read_of
from millstream.server.shapes import shown_many
from millstream.server.workers import Deadline

__all__ = ["ManyKeys"]

_ROUNDS = 2
"""How often the owners of keys are looked up, if they have moved when they are asked."""

_AT_ONCE = 256
"""How many keys are read before it is looked at how large the values are."""


class ManyKeys:
    """Answers about keys by their number."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def answer(self, request: Request, body: bytes, deadline: Deadline, *, only_here: bool) -> Answer:
        """The values of the keys that the body has."""
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
        """The values of keys, wherever they are; and the partitions that were looked at here."""
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
            # That nobody has it is known only when all partitions were looked at, and none of them moved.
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
        """Put what is here into `found`; who is to be asked for the others, by their indexes."""
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
                # Nobody can be asked: the read says which exception that is, unless it has come meanwhile.
                self._reach.stores.row(
                    replace(read, form=Form.VALUE, keys=(), key=key, partition=partition, as_of=None)
                )
            here[partition] = indexes
        wanted_here = [index for indexes in here.values() for index in indexes]
        rows = self._read(replace(read, keys=tuple([keys[index] for index in wanted_here])))
        if not here.keys() <= self._reach.stores.readable(store.name, stale=read.stale):
            raise out_of_reach(store.name)  # that it is not here any more is not that it has no value
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
        """The same where nobody knows how keys are partitioned: what is not here is asked of everyone."""
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
        """The values of keys that are here, as long as they are not too large together."""
        rows: list[Row | None] = []
        for start in range(0, len(read.keys), _AT_ONCE):
            rows += self._reach.stores.rows(replace(read, keys=read.keys[start : start + _AT_ONCE]))
            self._check_size(rows)
        return rows

    def _check_size(self, rows: Sequence[Row | None]) -> None:
        most = self._reach.limits.answer_bytes
        if len(rows) > 1 and sum(len(row.key) + len(row.value) for row in rows if row is not None) > most:
            raise Refused(
                413, "TooLarge", f"these values have more than {most} bytes; ask for fewer keys at once"
            )

    async def _ask(
        self, host: HostInfo, read: Read, deadline: Deadline
    ) -> tuple[list[Row | None], set[int]] | Refused | None:
        """What another client has for these keys, and the partitions that it looked at; None: it does not
        have them, or cannot be asked; a refusal: it must not be asked.
        """
        question = question_of(read)
        try:
            reply = await self._reach.peers.ask(host, question, deadline)
        except Refused as refusal:
            return refusal
        if reply is not None and reply.status in (400, 413):
            # Of the request, and not of where the keys are: too large an answer, a time before the history.
            error, message = str(reply.body.get("error")), str(reply.body.get("message"))
            raise Refused(reply.status, error, message)
        if reply is None or reply.status != 200:
            return None
        rows = rows_of(reply, host)
        if len(rows) != len(read.keys):
            raise garbled(host)
        return rows, partitions_of(reply, host)
