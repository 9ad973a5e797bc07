"""Whether a store can be queried now, for callers that wait until it can be. Pure."""

from __future__ import annotations

from typing import Any

from millstream.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import Presence, StoreSnapshot
from millstream.query.read_plan import make_plan

__all__ = ["is_final", "why_not"]


def why_not(
    snapshot: StoreSnapshot, parameters: StoreQueryParameters[Any]
) -> InvalidStateStoreException | None:
    """The exception of a read over everything requested; None if it would give the complete result."""
    try:
        asked = parameters.queryable_store_type
        plan = make_plan(snapshot, parameters.read, asked_as=repr(asked))
    except InvalidStateStoreException as refused:
        return refused
    return None if plan.whole() is Presence.READABLE else plan.refuse_whole()


def is_final(
    refused: InvalidStateStoreException, snapshot: StoreSnapshot, parameters: StoreQueryParameters[Any]
) -> bool:
    """Whether waiting is useless, because the exception does not depend on the group or the threads."""
    if isinstance(refused, InvalidStateStorePartitionException):
        count, asked = snapshot.stores[parameters.store_name].partitions, parameters.partition
        return count is not None and asked is not None and asked >= count
    return isinstance(
        refused,
        StreamsNotStartedException
        | StateStoreNotAvailableException
        | UnknownStateStoreException
        | InvalidStateStoreTypeException,
    )
