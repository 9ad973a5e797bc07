"""Which stores answer a query, or which exception of KIP-216 is raised: the decision, and nothing else.

The runtime exposes its state as a `StoreSnapshot`. `presence_of` classifies one part of a store, `decide` is
the decision table, and `refusal` builds the exception. All are pure. read_plan.py and state_query.py call
them whenever the snapshot has changed, because stores come and go.

`decide` documents how the table differs from Kafka's code. KIP-216's parent exception is never raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum, IntEnum
from typing import Any, Protocol

from millstream.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    UnknownStateStoreException,
)
from millstream.model import StoreKind, TaskId, TopicPartition
from millstream.serdes.serde import Serde
from millstream.states import GlobalThreadState, State, ThreadState

__all__ = [
    "LocalStore",
    "Outcome",
    "PartRole",
    "Presence",
    "ReadScope",
    "StoreDeclaration",
    "StoreSnapshot",
    "StoreView",
    "decide",
    "is_settled",
    "parts_by_partition",
    "presence_of",
    "presence_of_all",
    "refusal",
]


# --- what the runtime exposes ----------------------------------------------------------------------------


class PartRole(Enum):
    """The role of a part of a store on this client."""

    ACTIVE = "active"
    RESTORING = "restoring"
    STANDBY = "standby"


@dataclass(frozen=True, slots=True)
class StoreDeclaration:
    """A store of the topology, wherever its partitions are.

    Attributes:
        key_serde, value_serde: None only while the client is CREATED.
        partition_of: gives the partition of a key's bytes; None if the topology does not determine it (the
            changelog is a topic that other programs write), so every partition here is read.
        partitions: the number of partitions on all clients, if known.
        kind, window_size_ms, retention_ms, history_ms: as in topology/nodes.py.
        is_global: whether every client has all of its partitions.
    """

    name: str
    key_serde: Serde | None
    value_serde: Serde | None
    partition_of: Callable[[bytes], int] | None = None
    partitions: int | None = None
    kind: StoreKind = StoreKind.KEY_VALUE
    window_size_ms: int | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    is_global: bool = False


@dataclass(frozen=True, slots=True)
class LocalStore:
    """One task's part of a store, on this client; `thread` names the stream thread that owns it.

    `store` is a ports.BytesStore of the declared kind; `changelog` is the topic partition that fills it, if
    known.
    """

    task_id: TaskId
    store: Any
    thread: str
    role: PartRole = PartRole.ACTIVE
    changelog: TopicPartition | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StoreSnapshot:
    """Everything that a query's decision depends on, at one moment.

    Attributes:
        threads: the state of each stream thread, by name; dead threads may be omitted.
        stores: every store of the topology, by name.
        local: the parts on this client, by store name; a store without parts may be omitted.
    """

    client_id: str
    client_state: State
    threads: Mapping[str, ThreadState | GlobalThreadState] = field(default_factory=dict)
    stores: Mapping[str, StoreDeclaration] = field(default_factory=dict)
    local: Mapping[str, Sequence[LocalStore]] = field(default_factory=dict)


class StoreView(Protocol):
    """The runtime's interface for queries."""

    def snapshot(self) -> StoreSnapshot:
        """The current state. Cheap, thread-safe, never blocks, never raises.

        Returns the same object until something changes, then a new one: a handle plans its reads again when
        it gets a different object. (A new object each time is also correct, but slower.)
        """


# --- the decision ----------------------------------------------------------------------------------------


class Presence(IntEnum):
    """What this client has of the requested data. If several apply, the greatest counts."""

    ABSENT = 0
    """Nothing, and the handle has never seen it."""
    STANDBY = 1
    """A standby, and the query did not ask for stale stores."""
    LEFT = 2
    """Not readable here now; the handle read it here before."""
    CLOSED = 3
    """It is in the snapshot, but the read found it closed."""
    WAITING = 4
    """It is here, but its thread does not allow reads now, or it is not restored yet."""
    READABLE = 5


class ReadScope(Enum):
    """What is requested: a partition by number, the partition of a key, or everything here."""

    PARTITION = "partition"
    KEY = "key"
    STORE = "store"


class Outcome(Enum):
    """The outcome of a read: the store answers, there is no value (None), or an exception of KIP-216."""

    READ = "read"
    NOTHING = "nothing"
    NOT_STARTED = "not started"
    REBALANCING = "rebalancing"
    MIGRATED = "migrated"
    NOT_AVAILABLE = "not available"
    UNKNOWN = "unknown"
    WRONG_PARTITION = "wrong partition"
    WRONG_TYPE = "wrong type"


def decide(
    *,
    client_state: State,
    known: bool,
    type_fits: bool,
    settled: bool,
    presence: Presence,
    scope: ReadScope,
    exists: bool = True,
) -> Outcome:
    """The outcome of a query: KIP-216 as one table, whose first matching row applies. Pure.

    The first five rows do not depend on where partitions are: the client is not running, or the store, its
    type or the partition is wrong. Then comes a readable part. While a part can still arrive, the outcome is
    REBALANCING, and the same handle can be retried; None would hide a value that is about to be here. Only in
    a settled client is a missing part final. If the handle read it here before, it has left (MIGRATED). If
    not, a partition requested by number is on another client (WRONG_PARTITION), a key has no value here
    (NOTHING), and a read of everything finds no part at all (MIGRATED).

    Args:
        known: whether the topology has the store.
        type_fits: whether the requested type can read it.
        settled: false while partitions may be moving to this client (`is_settled`).
        presence: what this client has of the requested data.
        scope: what was requested.
        exists: false if no client can have the partition, because the store has fewer.

    Source: KIP-216; the order of the first rows is KafkaStreams.store()'s.
    Differs: one thread that is not RUNNING does not make the partitions of the others unreadable. A store
        that has left is reported (MIGRATED) instead of being silently omitted. A query that did not ask for
        standbys is not answered from one, and a partition that is here only as a standby counts as a wrong
        one.
    """
    if client_state.has_not_started:
        return Outcome.NOT_STARTED
    if not client_state.is_running_or_rebalancing:
        return Outcome.NOT_AVAILABLE
    if not known:
        return Outcome.UNKNOWN
    if not type_fits:
        return Outcome.WRONG_TYPE
    if not exists:
        return Outcome.WRONG_PARTITION
    if presence is Presence.READABLE:
        return Outcome.READ
    if presence is Presence.WAITING or not settled:
        return Outcome.REBALANCING
    if presence in (Presence.CLOSED, Presence.LEFT):
        return Outcome.MIGRATED
    if scope is ReadScope.PARTITION:
        return Outcome.WRONG_PARTITION
    return Outcome.NOTHING if scope is ReadScope.KEY else Outcome.MIGRATED


def is_settled(snapshot: StoreSnapshot) -> bool:
    """Whether no partition is moving: the client and all of its live threads are RUNNING."""
    return snapshot.client_state is State.RUNNING and all(
        state.is_running or state.is_dead for state in snapshot.threads.values()
    )


def presence_of(
    part: LocalStore, thread_state: ThreadState | GlobalThreadState | None, *, stale: bool
) -> Presence:
    """The presence of one part, by its role and the state of its thread (None if there is no such thread).

    Source: StreamThreadStateStoreProvider.stores().
    Differs: a part that is not restored yet is WAITING even if its thread is RUNNING.
    """
    if thread_state is None or thread_state.is_dead:
        return Presence.ABSENT
    if stale:
        return Presence.READABLE if thread_state.is_alive else Presence.WAITING
    if part.role is PartRole.STANDBY:
        return Presence.STANDBY
    if part.role is PartRole.RESTORING or not thread_state.is_running:
        return Presence.WAITING
    return Presence.READABLE


def parts_by_partition(
    snapshot: StoreSnapshot, store: str, *, stale: bool
) -> dict[int, tuple[Presence, LocalStore]]:
    """The best part of each partition here, in partition order; active parts are preferred to standbys."""
    best: dict[int, tuple[Presence, LocalStore]] = {}
    for part in snapshot.local.get(store, ()):
        presence = presence_of(part, snapshot.threads.get(part.thread), stale=stale)
        if presence is Presence.ABSENT:
            continue
        partition = part.task_id.partition
        other = best.get(partition)
        if other is None or (presence, part.role is PartRole.ACTIVE) > (
            other[0],
            other[1].role is PartRole.ACTIVE,
        ):
            best[partition] = (presence, part)
    return dict(sorted(best.items()))


def presence_of_all(
    parts: Iterable[Presence], *, settled: bool, anything_left: bool, stale: bool
) -> Presence:
    """The presence for a read over all partitions: READABLE only if the result would be complete.

    With `stale`, the parts here are enough, even if more may arrive.
    """
    found = set(parts)
    if Presence.WAITING in found or (found and not settled and not stale):
        return Presence.WAITING
    if anything_left:
        return Presence.LEFT
    return max(found, default=Presence.ABSENT)


# --- the exceptions --------------------------------------------------------------------------------------


def refusal(
    outcome: Outcome,
    snapshot: StoreSnapshot,
    name: str,
    *,
    asked_as: str = "",
    partition: int | None = None,
    here: Iterable[int] = (),
    reader: str = "",
    fresh: bool = False,
) -> InvalidStateStoreException:
    """The exception for an outcome; it says what happened, the facts, and what to do next.

    `asked_as` names the caller in messages: a type of QueryableStoreTypes. `partition` is the one that the
    read needed, and `here` are those readable on this client. `reader` names the reader if it is not a
    handle. `fresh` says whether the handle has only just been requested.
    """
    client = f"client '{snapshot.client_id}'"
    what = f"store '{name}'" if partition is None else f"partition {partition} of store '{name}'"
    state = snapshot.client_state
    numbers = ", ".join(map(str, here)) or "none"
    facts: dict[str, Any] = {"store": name, "partition": partition, "client_state": state.name}
    elsewhere = f"query_metadata_for_key('{name}', key) names the client that"
    match outcome:
        case Outcome.NOT_STARTED:
            return StreamsNotStartedException(
                f"store '{name}' cannot be queried yet: {client} is {state}",
                next_step="call start(), then retry once it is RUNNING",
                **facts,
            )
        case Outcome.NOT_AVAILABLE:
            return StateStoreNotAvailableException(
                f"store '{name}' is not available any more: {client} is {state}",
                next_step="query another client, or start a new one",
                **facts,
            )
        case Outcome.UNKNOWN:
            fact, next_step = _unknown(name, snapshot)
            return UnknownStateStoreException(fact, next_step=next_step, **facts)
        case Outcome.WRONG_TYPE:
            kind = snapshot.stores[name].kind.value
            return InvalidStateStoreTypeException(
                f"store '{name}' is a {kind} store, which {asked_as} does not read",
                next_step=f"use QueryableStoreTypes.{kind.replace('-', '_')}_store(), or store('{name}')",
                **facts,
            )
        case Outcome.WRONG_PARTITION:
            count = snapshot.stores[name].partitions
            if count is not None and partition is not None and partition >= count:
                fact = f"store '{name}' has no partition {partition}"
                next_step = f"it has {count}, counted from 0"
                return InvalidStateStorePartitionException(fact, next_step=next_step, **facts)
            copies = _standbys(name, partition, snapshot)
            advice = f"{copies}, which enable_stale_stores() reads; " if copies else ""
            return InvalidStateStorePartitionException(
                f"partition {partition} of store '{name}' is not on {client}, which holds {numbers}",
                next_step=f"{advice}{elsewhere} does",
                **facts,
            )
        case Outcome.REBALANCING:
            declared = snapshot.stores.get(name)
            if declared is not None and None in (declared.key_serde, declared.value_serde):
                return StreamsRebalancingException(
                    f"{what} cannot be read yet: {client} is {state} and does not know its serdes until the "
                    f"pipeline that fills it is compiled, here or on another client",
                    next_step=(
                        f"retry, or declare the serdes: "
                        f"Materialized.as_('{name}').with_key_serde(...).with_value_serde(...)"
                    ),
                    **facts,
                )
            return StreamsRebalancingException(
                f"{what} cannot be read now: {client} is {state}{_busy_threads(snapshot)}",
                next_step="keep the handle and retry once the client is RUNNING",
                **facts,
            )
        case _:
            if reader:
                subject = f"{what} was closed under {reader}"
            else:
                subject = f"{what} is not here" if fresh else f"{what} is not here (any more)"
            copies = _standbys(name, partition, snapshot)
            advice = f"; {copies}, which enable_stale_stores() reads" if copies else ""
            plural = "s" if "," in numbers else ""
            holds = "no partition" if numbers == "none" else f"partition{plural} {numbers}"
            again = "get a new handle from KafkaStreams.store(); " if not fresh else ""
            return StateStoreMigratedException(
                f"{subject}: {client} is {state} and holds {holds} of it{advice}",
                next_step=f"{again}{elsewhere} has a key now",
                **facts,
            )


def _standbys(name: str, partition: int | None, snapshot: StoreSnapshot) -> str:
    """The local standbys, in words; of one partition or of all."""
    numbers = sorted(
        part.task_id.partition
        for part in snapshot.local.get(name, ())
        if part.role is PartRole.STANDBY and partition in (None, part.task_id.partition)
    )
    if not numbers:
        return ""
    if partition is not None:
        return "it is here as a standby"
    return f"{', '.join(map(str, numbers))} {'is' if len(numbers) == 1 else 'are'} here as a standby"


def _unknown(name: str, snapshot: StoreSnapshot) -> tuple[str, str]:
    names = sorted(snapshot.stores)
    if not names:
        return f"no state store '{name}' in this topology", "it has no stores that can be queried"
    listed = ", ".join(f"'{each}'" for each in names)
    close = get_close_matches(name, names, n=1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return f"no state store '{name}' in this topology", f"it has {listed}{hint}"


def _busy_threads(snapshot: StoreSnapshot) -> str:
    busy = [
        f"'{name}' is {state}"
        for name, state in snapshot.threads.items()
        if not (state.is_running or state.is_dead)
    ]
    return f" (thread {', thread '.join(busy)})" if busy else ""
