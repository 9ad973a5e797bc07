"""The plan for reading a store, valid while the runtime returns the same snapshot. Pure; local.py performs
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import InvalidStateStoreException
from millstream.model import StoreKind
from millstream.query.provider import (
    LocalStore,
    Outcome,
    Presence,
    ReadScope,
    StoreDeclaration,
    StoreSnapshot,
    decide,
    is_settled,
    parts_by_partition,
    presence_of_all,
    refusal,
)
from millstream.query.read import Read
from millstream.query.reading import getter
from millstream.query.store_codecs import Codecs

__all__ = ["ReadPlan", "make_plan"]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """Which part of the store answers for which partition.

    Attributes:
        of: a read with the store, partition, staleness and time of all its reads.
        asked_as: the name of the caller in messages: `QueryableStoreTypes.window_store()`.
        presences: the presence of each partition here.
        parts: the readable parts, in partition order, of the requested partition or of all; `getters` find a
            key's value in those of a key-value store.
        readable: every partition that can be read here, requested or not.
        left: the partitions that the handle has read before but cannot read now.
        partition_of: None if every part must be read.
        serialize, quick_decode: for a key and a value; if they raise any exception, `codecs` give the proper
            error.
    """

    snapshot: StoreSnapshot
    of: Read
    asked_as: str
    settled: bool
    presences: Mapping[int, Presence]
    parts: Mapping[int, LocalStore]
    readable: tuple[int, ...]
    getters: Mapping[int, Callable[[bytes], bytes | None]]
    left: frozenset[int]
    partition_of: Callable[[bytes], int] | None
    codecs: Codecs
    serialize: Callable[[Any], bytes | None]
    quick_decode: Callable[[bytes], Any]

    @property
    def declaration(self) -> StoreDeclaration:
        """The store's declaration in the topology."""
        return self.snapshot.stores[self.of.store]

    @property
    def scope(self) -> ReadScope:
        """The scope of a read over everything that was requested."""
        return ReadScope.STORE if self.of.partition is None else ReadScope.PARTITION

    def presence(self, partition: int) -> Presence:
        """The presence of one partition on this client."""
        presence = self.presences.get(partition, Presence.ABSENT)
        return max(Presence.LEFT, presence) if partition in self.left else presence

    def whole(self) -> Presence:
        """The presence for a read over everything that was requested."""
        if self.of.partition is not None:
            return self.presence(self.of.partition)
        return presence_of_all(
            self.presences.values(),
            settled=self.settled,
            anything_left=bool(self.left),
            stale=self.of.stale,
        )

    def decide(self, presence: Presence, scope: ReadScope, *, settled: bool | None = None) -> Outcome:
        """The decision for this snapshot. A plan exists only for a known store of the right type."""
        return decide(
            client_state=self.snapshot.client_state,
            known=True,
            type_fits=True,
            settled=self.settled if settled is None else settled,
            presence=presence,
            scope=scope,
        )

    def refuse(
        self, outcome: Outcome, partition: int | None = None, reader: str = ""
    ) -> InvalidStateStoreException:
        """The exception for an outcome."""
        return refusal(
            outcome,
            self.snapshot,
            self.of.store,
            asked_as=self.asked_as,
            partition=partition,
            here=self.readable,
            reader=reader,
            fresh=not reader and not self.parts and not self.left,
        )

    def refuse_whole(self) -> InvalidStateStoreException:
        """The exception for a read over everything that was requested."""
        return self.refuse(self.decide(self.whole(), self.scope), self.of.partition)


def make_plan(
    snapshot: StoreSnapshot,
    of: Read,
    seen: frozenset[int] = frozenset(),
    *,
    timestamped: bool = False,
    asked_as: str = "",
) -> ReadPlan:
    """The plan for a snapshot. `seen` has the partitions that the handle could read before.

    Raises:
        InvalidStateStoreException: one of its subclasses, if no read can succeed whichever parts are here.
    """
    name = of.store
    declaration = snapshot.stores.get(name)
    settled = is_settled(snapshot)
    only = of.partition
    count = declaration.partitions if declaration is not None else None
    exists = only is None or count is None or only < count
    outcome = decide(
        client_state=snapshot.client_state,
        known=declaration is not None,
        type_fits=declaration is not None and declaration.kind is of.kind,
        settled=settled,
        presence=Presence.READABLE,
        scope=ReadScope.STORE,
        exists=exists,
    )
    if outcome is not Outcome.READ:
        raise refusal(outcome, snapshot, name, asked_as=asked_as, partition=None if exists else only)
    if declaration is None or declaration.key_serde is None or declaration.value_serde is None:
        # Serdes are known once the topology is compiled by the client that runs the pipeline.
        raise refusal(Outcome.REBALANCING, snapshot, name)
    found = parts_by_partition(snapshot, name, stale=of.stale)
    # The partitions of a global store never move, whatever the states of the stream threads.
    settled = settled or (declaration.is_global and len(found) == count)
    readable = tuple(number for number, (presence, _) in found.items() if presence is Presence.READABLE)
    partition_of = declaration.partition_of
    if only is not None:
        found = {partition: part for partition, part in found.items() if partition == only}
        partition_of = _always(only)
    has_get = declaration.kind is StoreKind.KEY_VALUE
    parts = {number: part for number, (presence, part) in found.items() if presence is Presence.READABLE}
    getters = {number: getter(part.store, of) for number, part in parts.items()} if has_get else {}
    codecs = Codecs(
        name,
        declaration.kind,
        declaration.key_serde,
        declaration.value_serde,
        window_size_ms=declaration.window_size_ms,
        timestamped=timestamped,
        getters=getters,
    )
    return ReadPlan(
        snapshot=snapshot,
        of=of,
        asked_as=asked_as,
        settled=settled,
        presences={number: presence for number, (presence, _) in found.items()},
        parts=parts,
        readable=readable,
        getters=getters,
        left=seen - parts.keys(),
        partition_of=partition_of,
        codecs=codecs,
        serialize=declaration.key_serde.encoder(),
        quick_decode=codecs.quick_decode,
    )


def _always(partition: int) -> Callable[[bytes], int]:
    return lambda _: partition
