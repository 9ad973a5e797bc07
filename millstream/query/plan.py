"""How a handle reads, as long as the runtime shows the same snapshot. Pure; composite.py performs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream.errors import InvalidStateStoreException
from millstream.model import StoreKind
from millstream.query.codec import key_decoder, value_decoder, values_decoder
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import (
    LocalStore,
    Outcome,
    Presence,
    Scope,
    Serde,
    StoreSnapshot,
    decide,
    is_settled,
    parts_by_partition,
    presence_of_all,
    refusal,
)

__all__ = ["Plan", "make_plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Which part of the store answers for which partition.

    Attributes:
        presences: what each partition that is here is good for.
        parts: the parts that can be read, in partition order, of the partition that was asked for or of
            all; `readers` are the `get`s of those of a key-value store.
        readable: every partition that can be read here, whichever was asked for.
        window_size_ms: how long a window of a window store is; 0 where that is not known.
        left: the partitions that the handle has read before and cannot read now.
        partition_of: None where every part has to be asked.
    """

    snapshot: StoreSnapshot
    parameters: StoreQueryParameters[Any]
    settled: bool
    presences: Mapping[int, Presence]
    parts: Mapping[int, LocalStore]
    readable: tuple[int, ...]
    readers: Mapping[int, Callable[[bytes], bytes | None]]
    left: frozenset[int]
    partition_of: Callable[[bytes], int] | None
    window_size_ms: int
    key_serde: Serde
    value_serde: Serde
    serialize: Callable[[Any], bytes | None]
    decode_key: Callable[[bytes], Any]
    decode: Callable[[bytes], Any]
    decode_keys: Callable[[Iterable[bytes]], Iterable[Any]]
    decode_values: Callable[[Iterable[bytes]], Iterable[Any]]

    @property
    def scope(self) -> Scope:
        """What a read over all that was asked for is about."""
        return Scope.STORE if self.parameters.partition is None else Scope.PARTITION

    def presence(self, partition: int) -> Presence:
        """What this client has of one partition."""
        presence = self.presences.get(partition, Presence.ABSENT)
        return max(Presence.LEFT, presence) if partition in self.left else presence

    def whole(self) -> Presence:
        """What this client has for a read over all that was asked for."""
        if self.parameters.partition is not None:
            return self.presence(self.parameters.partition)
        return presence_of_all(
            self.presences.values(),
            settled=self.settled,
            anything_left=bool(self.left),
            stale=self.parameters.stale_stores_enabled,
        )

    def decide(self, presence: Presence, scope: Scope, *, settled: bool | None = None) -> Outcome:
        """The decision for this snapshot. A plan is made only for a store that is known and fits."""
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
            self.parameters,
            partition=partition,
            here=self.readable,
            reader=reader,
            fresh=not reader and not self.parts and not self.left,
        )

    def refuse_whole(self) -> InvalidStateStoreException:
        """The exception for a read over all that was asked for."""
        return self.refuse(self.decide(self.whole(), self.scope), self.parameters.partition)


def make_plan(snapshot: StoreSnapshot, parameters: StoreQueryParameters[Any], seen: frozenset[int]) -> Plan:
    """The plan for a snapshot. `seen` are the partitions that the handle could read before.

    Raises:
        InvalidStateStoreException: one of its leaves, if no read can succeed whatever is here.
    """
    name = parameters.store_name
    declaration = snapshot.stores.get(name)
    settled = is_settled(snapshot)
    only = parameters.partition
    count = declaration.partitions if declaration is not None else None
    exists = only is None or count is None or only < count
    outcome = decide(
        client_state=snapshot.client_state,
        known=declaration is not None,
        type_fits=declaration is not None and parameters.queryable_store_type.accepts(declaration.kind),
        settled=settled,
        presence=Presence.READABLE,
        scope=Scope.STORE,
        exists=exists,
    )
    if outcome is not Outcome.READ:
        raise refusal(outcome, snapshot, parameters, partition=None if exists else only)
    if declaration is None or declaration.key_serde is None or declaration.value_serde is None:
        # Serdes are known once the topology is compiled, by whichever client runs the pipeline.
        raise refusal(Outcome.REBALANCING, snapshot, parameters)
    found = parts_by_partition(snapshot, name, stale=parameters.stale_stores_enabled)
    # The partitions of a global store are on no way to anywhere, whatever the stream threads are at.
    settled = settled or (declaration.is_global and len(found) == count)
    readable = tuple(number for number, (presence, _) in found.items() if presence is Presence.READABLE)
    partition_of = declaration.partition_of
    if only is not None:
        found = {partition: part for partition, part in found.items() if partition == only}
        partition_of = _always(only)
    has_get = declaration.kind is StoreKind.KEY_VALUE
    timestamped = parameters.queryable_store_type.timestamped
    decode = value_decoder(name, declaration.value_serde, timestamped=timestamped)
    parts = {number: part for number, (presence, part) in found.items() if presence is Presence.READABLE}
    return Plan(
        snapshot=snapshot,
        parameters=parameters,
        settled=settled,
        presences={number: presence for number, (presence, _) in found.items()},
        parts=parts,
        readable=readable,
        readers={number: part.store.get for number, part in parts.items()} if has_get else {},
        left=seen - parts.keys(),
        partition_of=partition_of,
        window_size_ms=declaration.window_size_ms or 0,
        key_serde=declaration.key_serde,
        value_serde=declaration.value_serde,
        serialize=declaration.key_serde.serialize,
        decode_key=key_decoder(name, declaration.key_serde),
        decode=decode,
        decode_keys=partial(map, declaration.key_serde.decoder()),
        decode_values=values_decoder(declaration.value_serde, decode, timestamped=timestamped),
    )


def _always(partition: int) -> Callable[[bytes], int]:
    return lambda _: partition
