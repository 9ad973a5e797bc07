"""Answers a `StateQueryRequest` (IQv2, KIP-796): each partition separately, with a value or a reason.

`answerable` decides about one partition, and `to_answer` lists the partitions to decide about; both are pure.
`run_query` takes the snapshot once, and reads the stores that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from millstream.model import StoreKind
from millstream.query.iterators import KeyValueIterator, WindowStoreIterator
from millstream.query.position import Position, position_of
from millstream.query.provider import (
    LocalStore,
    Outcome,
    PartRole,
    Presence,
    ReadScope,
    StoreDeclaration,
    StoreSnapshot,
    StoreView,
    decide,
    is_settled,
    parts_by_partition,
    refusal,
)
from millstream.query.read import Read, ResultForm
from millstream.query.reading import joined, of_part
from millstream.query.request import (
    KeyQuery,
    MultiVersionedKeyQuery,
    RangeQuery,
    ResultOrder,
    SessionRangeQuery,
    StateQueryRequest,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from millstream.query.result import FailureReason, QueryResult, StateQueryResult, VersionedRecord
from millstream.query.store_codecs import Codecs
from millstream.states import State, ThreadState
from millstream.stores.store_base import ClosedStoreError

__all__ = ["answerable", "raise_if_none_can_answer", "run_query", "to_answer"]


# --- the decisions ---------------------------------------------------------------------------------------


def answerable(
    *, fits: bool, exists: bool, presence: Presence, settled: bool, up_to_bound: bool
) -> FailureReason | None:
    """Why one partition cannot answer; None if it can. Pure.

    Args:
        fits: whether stores of this kind support the query.
        exists: whether the store has a partition with this number, on any client.
        presence: what this client has of it; STANDBY only if the request requires active ones.
        settled: false while the partition may be moving to this client.
        up_to_bound: whether it has reached the requested position.

    Source: KIP-796; StoreQueryUtils.handleBasicQueries, KafkaStreams.query.
    Differs: a partition that is not here during a rebalance is NOT_ACTIVE, which can be retried, and is not
        omitted. A partition that the store does not have is DOES_NOT_EXIST.
    """
    if not fits:
        return FailureReason.UNKNOWN_QUERY_TYPE
    if not exists:
        return FailureReason.DOES_NOT_EXIST
    if presence in (Presence.ABSENT, Presence.LEFT, Presence.CLOSED):
        return FailureReason.NOT_PRESENT if settled else FailureReason.NOT_ACTIVE
    if presence is not Presence.READABLE:
        return FailureReason.NOT_ACTIVE
    return None if up_to_bound else FailureReason.NOT_UP_TO_BOUND


def to_answer(
    *, asked: frozenset[int] | None, here: frozenset[int], count: int | None, settled: bool
) -> tuple[int, ...]:
    """The partitions that get a result, ascending; never empty. Pure.

    Args:
        asked: the requested partitions; None for all on this client.
        count: the number of the store's partitions on all clients, if known.

    Differs: Kafka omits partitions that are not here, so a client that has nothing yet returns an empty map.
        Here, partitions that may still arrive are listed, and if none is here, all of them.
    """
    if asked is not None:
        return tuple(sorted(asked))
    if here and settled:
        return tuple(sorted(here))
    # A store has at least one partition, even before they have been counted.
    return tuple(sorted(here | frozenset(range(count or 1))))


def _is_up_to(bound: Position, part: LocalStore, position: Position) -> bool:
    if part.role is PartRole.RESTORING and part.store.position is None:
        return False  # nothing of its changelog was read yet, not even whether it is empty
    return part.changelog is None or position.reaches(bound, [part.changelog])


# --- performing a query ----------------------------------------------------------------------------------


def run_query(view: StoreView, request: StateQueryRequest[Any]) -> StateQueryResult[Any]:
    """Implements `KafkaStreams.query`.

    Raises:
        TypeError: `request` is not a StateQueryRequest.
        UnknownStateStoreException: the topology has no such store.
        StreamsNotStartedException: the client is CREATED.
        StateStoreNotAvailableException: it is ending or has ended.
        SerializationException: the key of the query does not fit the store's serde.

    Source: KafkaStreams.query(StateQueryRequest).
    Differs: a stopped client raises StateStoreNotAvailableException (KIP-796: StreamsStoppedException).
    """
    if not isinstance(request, StateQueryRequest):
        raise TypeError(f"query() takes StateQueryRequest.in_store(name).with_query(query); got {request!r}")
    snapshot = view.snapshot()
    raise_if_none_can_answer(snapshot, request.store_name)
    name, declaration = request.store_name, snapshot.stores[request.store_name]
    settled = is_settled(snapshot)
    found = parts_by_partition(snapshot, name, stale=not request.is_require_active)
    reading = _reading(view, request, declaration)
    results: dict[int, QueryResult[Any]] = {}
    for number in to_answer(
        asked=request.partitions, here=frozenset(found), count=declaration.partitions, settled=settled
    ):
        presence, part = found.get(number, (Presence.ABSENT, None))
        about = _About(snapshot, request, declaration, number, presence, part, settled)
        results[number] = about.answer(reading)
    if declaration.is_global and request.partitions is None:
        return StateQueryResult({}, _as_one(reading, results))
    return StateQueryResult({number: _as_one(reading, {number: each}) for number, each in results.items()})


def raise_if_none_can_answer(snapshot: StoreSnapshot, store: str) -> None:
    """Raise unless the store exists and the client is running.

    Raises:
        UnknownStateStoreException: the topology has no such store; checked first.
        StreamsNotStartedException: the client is CREATED.
        StateStoreNotAvailableException: it is ending or has ended.
    """
    known = store in snapshot.stores
    outcome = decide(
        # An unknown store is unknown in any state.
        client_state=snapshot.client_state if known else State.RUNNING,
        known=known,
        type_fits=True,
        settled=True,
        presence=Presence.READABLE,
        scope=ReadScope.STORE,
    )
    if outcome is not Outcome.READ:
        raise refusal(outcome, snapshot, store)


@dataclass(frozen=True, slots=True)
class _About:
    """One partition, with everything that determines its answer."""

    snapshot: StoreSnapshot
    request: StateQueryRequest[Any]
    declaration: StoreDeclaration
    number: int
    presence: Presence
    part: LocalStore | None
    settled: bool

    def answer(self, reading: _Reading | None) -> QueryResult[Any]:
        try:
            return self._answered(reading)
        except ClosedStoreError as error:
            # It was closed after the snapshot, so it is moving elsewhere, or being reopened here.
            return self._failed(FailureReason.NOT_ACTIVE, None, error)
        except Exception as error:  # one partition's failure must not hide the results of the others
            return self._failed(FailureReason.STORE_EXCEPTION, None, error)

    def _answered(self, reading: _Reading | None) -> QueryResult[Any]:
        declaration, part = self.declaration, self.part
        position = Position() if part is None else position_of(part)
        bound = self.request.position_bound.position
        serdes_known = declaration.key_serde is not None and declaration.value_serde is not None
        reason = answerable(
            fits=not serdes_known or reading is not None,
            exists=declaration.partitions is None or self.number < declaration.partitions,
            # Serdes are known once the topology is compiled by the client that runs the pipeline.
            presence=self.presence if serdes_known else Presence.WAITING,
            settled=self.settled,
            up_to_bound=part is not None and _is_up_to(bound, part, position),
        )
        if reason is not None or part is None or reading is None:
            return self._failed(reason or FailureReason.NOT_ACTIVE, position)
        return QueryResult(
            reading.of_part(part.store), position=position, execution_info=self._info("answered")
        )

    def _failed(
        self, reason: FailureReason, position: Position | None, cause: Exception | None = None
    ) -> QueryResult[Any]:
        return QueryResult(
            failure=reason,
            message=self._words(reason, position, cause),
            position=position if self.part is not None else None,
            execution_info=self._info(f"failed: {reason.name}"),
            cause=cause,
        )

    def _info(self, what: str) -> tuple[str, ...]:
        if not self.request.execution_info_enabled:
            return ()
        part = self.part
        where = (
            ""
            if part is None
            else f" by {type(part.store).__name__} of task {part.task_id}, {part.role.value}"
        )
        query = type(self.request.query).__name__
        return (
            f"{query} on partition {self.number} of store '{self.request.store_name}': {what}{where}, on "
            f"client '{self.snapshot.client_id}' ({self.snapshot.client_state})",
        )

    def _words(self, reason: FailureReason, position: Position | None, cause: Exception | None) -> str:
        name, number, snapshot, part = self.request.store_name, self.number, self.snapshot, self.part
        what, client = f"partition {number} of store '{name}'", f"client '{snapshot.client_id}'"
        query = type(self.request.query).__name__
        match reason:
            case FailureReason.UNKNOWN_QUERY_TYPE:
                with_history = self.declaration.history_ms is not None
                kind = f"{self.declaration.kind.value} store{' with history' if with_history else ''}"
                return f"store '{name}' is a {kind}, which doesn't know how to execute {query}{_hint(self)}"
            case FailureReason.DOES_NOT_EXIST:
                count = self.declaration.partitions
                return f"store '{name}' has no partition {number}; it has {count}, counted from 0"
            case FailureReason.NOT_PRESENT:
                return (
                    f"The requested partition was not present at the time of the query: {what} is not on "
                    f"{client}; query_metadata_for_key('{name}', key) names the client that has a key"
                )
            case FailureReason.NOT_UP_TO_BOUND:
                if (
                    part is not None
                    and part.role is PartRole.RESTORING
                    and (position is None or position.is_empty)
                ):
                    return "The store is not initialized yet, so it is not yet up to the bound"
                return (
                    f"For store partition {number}, the current position {position} is not yet up to the "
                    f"bound {self.request.position_bound.position}; retry"
                )
            case FailureReason.STORE_EXCEPTION:
                return f"{what} failed to handle {query}: {type(cause).__name__}: {cause}"
        if part is None:
            return (
                f"{what} is not here yet: {client} is {snapshot.client_state}, and the partition may be on "
                "its way; retry once the client is RUNNING"
            )
        state = snapshot.threads.get(part.thread, ThreadState.DEAD)
        closed = ", and has been closed since" if cause is not None else ""
        return (
            f"Query requires a running active task, but partition was in state {state} and was "
            f"{'' if part.role is PartRole.ACTIVE else 'not '}active: {what} is {part.role.value} on {client}"
            f"{closed}; retry"
        )


def _hint(about: _About) -> str:
    query, kind = about.request.query, about.declaration.kind
    if isinstance(query, VersionedKeyQuery | MultiVersionedKeyQuery) and kind is StoreKind.KEY_VALUE:
        return "; declare it with Materialized.with_history(...)"
    if isinstance(query, WindowRangeQuery) and kind is StoreKind.WINDOW:
        return ".with_key; window stores support WindowRangeQuery.with_window_start_range"
    if isinstance(query, WindowRangeQuery) and kind is StoreKind.SESSION:
        return ".with_window_start_range; session stores support WindowRangeQuery.with_key"
    return "; use a query for this kind of store"


def _as_one(reading: _Reading | None, results: dict[int, QueryResult[Any]]) -> QueryResult[Any]:
    """Combines the results of several partitions; one failure fails all."""
    parts = list(results.values())
    failed = next((each for each in parts if each.is_failure), None)
    if failed is not None or reading is None:
        for each in parts:
            value: Any = each.value
            if hasattr(value, "close"):
                value.close()
        return failed or parts[0]
    return replace(
        parts[0],
        value=reading.finished([each.value for each in parts]),
        position=StateQueryResult(results).position,
        execution_info=tuple(line for each in parts for line in each.execution_info),
    )


# --- each query ------------------------------------------------------------------------------------------


def _read_of(request: StateQueryRequest[Any], declaration: StoreDeclaration, codecs: Codecs) -> Read | None:
    """The read for a query; None if stores of this kind do not support it.

    Raises:
        SerializationException: a key of the query does not fit the store's serde.
    """
    query = request.query
    if query.kind is not declaration.kind:
        return None
    what = f"a {type(query).__name__}"

    def key(given: Any) -> bytes | None:
        return None if given is None else codecs.key_bytes(given, what)

    bound = request.position_bound.position
    of = Read(declaration.name, declaration.kind, stale=not request.is_require_active, bound=bound)
    match query:
        case KeyQuery():
            return replace(of, form=ResultForm.VALUE, key=key(query.key))
        case RangeQuery():
            reverse = query.result_order is ResultOrder.DESCENDING
            return replace(of, low=key(query.lower_bound), high=key(query.upper_bound), reverse=reverse)
        case WindowKeyQuery() | WindowRangeQuery():
            return replace(of, key=key(query.key), earliest=query.time_from_ms, latest=query.time_to_ms)
        case SessionRangeQuery():
            low, high = key(query.lower_key), key(query.upper_key)
            return replace(
                of, low=low, high=high, earliest=query.earliest_end_ms, latest=query.latest_start_ms
            )
        case VersionedKeyQuery() if declaration.history_ms is not None:
            at = query.as_of_timestamp_ms
            return replace(of, form=ResultForm.VERSIONS, key=key(query.key), as_of=at, limit=1)
        case MultiVersionedKeyQuery() if declaration.history_ms is not None:
            return replace(
                of,
                form=ResultForm.VERSIONS,
                key=key(query.key),
                earliest=query.from_time_ms,
                latest=query.to_time_ms,
                reverse=query.result_order is ResultOrder.ASCENDING,
            )
    return None


@dataclass(frozen=True, slots=True)
class _Reading:
    """A read of one store, which converts its results for the user.

    Attributes:
        starts: whether keys are the starts of windows.
    """

    view: StoreView
    read: Read
    codecs: Codecs
    starts: bool

    def of_part(self, store: Any) -> Any:
        """The result of one part, decoded; the entries of an iterator are decoded when they are read."""
        found = of_part(store, self.read)
        match self.read.form:
            case ResultForm.VALUE:
                return None if found is None else self.codecs.decode(found)
            case ResultForm.VERSIONS:
                return [
                    VersionedRecord(self.codecs.decode(each.stored), each.timestamp, each.valid_to)
                    for each in found
                ]
        return found

    def finished(self, found: list[Any]) -> Any:
        """The result for the user, from one part or several."""
        result = joined(self.read, found)
        if self.read.form is ResultForm.ENTRIES:
            kind = WindowStoreIterator if self.starts else KeyValueIterator
            return kind(self.read.store, result, self.codecs.chunks(starts=self.starts), self._lost)
        if self.read.form is ResultForm.VERSIONS:
            return next(iter(result), None) if self.read.limit == 1 else tuple(result)
        return result

    def _lost(self, error: ClosedStoreError) -> Exception:
        """The exception of an iterator whose store was closed during the iteration."""
        snapshot = self.view.snapshot()
        outcome = decide(
            client_state=snapshot.client_state,
            known=True,
            type_fits=True,
            settled=True,
            presence=Presence.CLOSED,
            scope=ReadScope.STORE,
        )
        return refusal(outcome, snapshot, self.read.store, reader="an open iterator")


def _reading(
    view: StoreView, request: StateQueryRequest[Any], declaration: StoreDeclaration
) -> _Reading | None:
    """How this store answers the query; None if it does not support it, or its serdes are not known yet."""
    if declaration.key_serde is None or declaration.value_serde is None:
        return None
    codecs = Codecs(
        declaration.name,
        declaration.kind,
        declaration.key_serde,
        declaration.value_serde,
        window_size_ms=declaration.window_size_ms,
        timestamped=isinstance(request.query, TimestampedKeyQuery | TimestampedRangeQuery),
    )
    read = _read_of(request, declaration, codecs)
    if read is None:
        return None
    return _Reading(view, read, codecs, isinstance(request.query, WindowKeyQuery))
