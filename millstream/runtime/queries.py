"""The part of a client that answers questions about its state: `KafkaStreams` inherits it.

Nothing here changes anything. Reads go by the view's snapshot (view.py), from any thread.
"""

from __future__ import annotations

import warnings
from datetime import timedelta
from typing import Any, TypeVar, overload

from millstream.clock import seconds_of
from millstream.errors import InvalidStateStoreException, StateStoreNotAvailableException, TimeoutException
from millstream.model import StoreKind
from millstream.query.composite import open_store
from millstream.query.parameters import QueryableStoreType, StoreQueryParameters
from millstream.query.provider import StoreSnapshot
from millstream.query.readiness import is_final, why_not
from millstream.runtime.view import ClientView

__all__ = ["InteractiveQueries"]

S = TypeVar("S")


class InteractiveQueries:
    """What `KafkaStreams` answers about its stores."""

    _view: ClientView

    @overload
    def store(self, parameters: StoreQueryParameters[S], /) -> S: ...

    @overload
    def store(self, store_name: str, queryable_store_type: QueryableStoreType[S], /) -> S: ...

    def store(self, parameters: Any, queryable_store_type: Any = None, /) -> Any:
        """A handle to read a store: of the partitions that are on this client.

        `store(name, type)` is the deprecated form of before KIP-562; it warns.

        Raises:
            StreamsNotStartedException: the client is CREATED.
            StreamsRebalancingException: the store cannot be read now; retry once the client is RUNNING.
            StateStoreMigratedException: no partition of it is on this client.
            StateStoreNotAvailableException: the client is ending or has ended.
            UnknownStateStoreException: the topology has no such store.
            InvalidStateStoreTypeException: it is of another type.
            InvalidStateStorePartitionException: the partition that was asked for is not on this client.

        Source: KIP-216, KIP-562.
        Differs: type and partition are checked here already, and again at each read.
        """
        if queryable_store_type is not None:
            warnings.warn(
                "store(name, type) is deprecated (KIP-562); use "
                "store(StoreQueryParameters.from_name_and_type(name, type))",
                DeprecationWarning,
                stacklevel=2,
            )
            parameters = StoreQueryParameters.from_name_and_type(parameters, queryable_store_type)
        return open_store(self._view, parameters)

    def wait_until_queryable(
        self,
        store: str | StoreQueryParameters[Any],
        timeout: timedelta = timedelta(minutes=2),
    ) -> None:
        """Block until every partition of a store that this client is to have can be read.

        With `StoreQueryParameters`, what they ask for: that partition, or stale stores too. A store may stop
        being readable again at any time, by a rebalance.

        Raises:
            TimeoutException: it was not in time; its cause is what a read raises at that moment.
            StreamsNotStartedException: the client is CREATED.
            StateStoreNotAvailableException: it is ending or has ended; the cause is what ended it, if
                something did.
            UnknownStateStoreException: the topology has no such store.
            InvalidStateStoreTypeException: it is of another type than the parameters ask for.
            InvalidStateStorePartitionException: there is no partition of that number.
            ValueError: the timeout is negative.

        Differs: Kafka Streams has nothing of the kind; its users loop on exceptions.
        """
        seconds = seconds_of(timeout)
        parameters = _parameters(store, self._view.snapshot())
        refused: InvalidStateStoreException | None = None

        def decided(snapshot: StoreSnapshot) -> bool:
            nonlocal refused
            refused = why_not(snapshot, parameters)
            return refused is None or is_final(refused, snapshot, parameters)

        in_time = self._view.wait_until(decided, seconds)
        if refused is None:
            return
        if in_time:
            if isinstance(refused, StateStoreNotAvailableException):
                raise refused from self._ended_by()
            raise refused
        raise TimeoutException(
            f"store '{parameters.store_name}' cannot be queried after {seconds:g} s: {refused}"
        ) from refused

    def _ended_by(self) -> BaseException | None:
        """What put the client into ERROR, or is about to."""
        return None


def _parameters(store: str | StoreQueryParameters[Any], snapshot: StoreSnapshot) -> StoreQueryParameters[Any]:
    if not isinstance(store, str):
        return store
    declared = snapshot.stores.get(store)
    kind = StoreKind.KEY_VALUE if declared is None else declared.kind
    return StoreQueryParameters.from_name_and_type(store, QueryableStoreType(kind.value, kind))
