"""The request of `KafkaStreams.query`: a store, a query, the partitions, and their minimum position.

A query says what to find, not how to find it; state_query.py has one case for each query.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from millstream.model import StoreKind
from millstream.query.position import PositionBound
from millstream.query.read import checked_name
from millstream.query.times import Time, to_ms

__all__ = [
    "InStore",
    "KeyQuery",
    "MultiVersionedKeyQuery",
    "Query",
    "RangeQuery",
    "ResultOrder",
    "SessionRangeQuery",
    "StateQueryRequest",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "VersionedKeyQuery",
    "WindowKeyQuery",
    "WindowRangeQuery",
]

R = TypeVar("R")


class ResultOrder(Enum):
    """The order of the results of one partition: by key or, for one key, by time.

    Source: org.apache.kafka.streams.query.ResultOrder.
    """

    ANY = "any"
    ASCENDING = "ascending"
    DESCENDING = "descending"


@dataclass(frozen=True)
class Query(Generic[R]):
    """The base class of all queries; `kind` is the kind of store that the query reads.

    Source: org.apache.kafka.streams.query.Query.
    """

    @property
    def kind(self) -> StoreKind:
        """The kind of store that it reads."""
        return StoreKind.KEY_VALUE


def _is_a_key(key: Any, what: str) -> Any:
    if key is None:
        raise TypeError(f"the key of a {what} must not be None")
    return key


# --- key-value stores ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KeyQuery(Query[Any]):
    """The value of a key; None if there is none.

    Source: org.apache.kafka.streams.query.KeyQuery.
    Differs: `skip_cache` has no effect, because stores have no cache in front of them.
    """

    key: Any
    is_skip_cache: bool = False

    @classmethod
    def with_key(cls, key: Any) -> KeyQuery:
        """The value of this key.

        Raises:
            TypeError: the key is None.
        """
        return cls(_is_a_key(key, cls.__name__))

    def skip_cache(self) -> KeyQuery:
        """Accepted, but without effect (see the class)."""
        return replace(self, is_skip_cache=True)


@dataclass(frozen=True)
class TimestampedKeyQuery(KeyQuery):
    """The value of a key and its timestamp, as a `ValueAndTimestamp`; None if there is none.

    Source: org.apache.kafka.streams.query.TimestampedKeyQuery.
    """


@dataclass(frozen=True)
class RangeQuery(Query[Any]):
    """The entries from `lower_bound` to `upper_bound`, both inclusive; None leaves that side open.

    The result is a `KeyValueIterator`, ordered by the keys' bytes: close it, or read it to the end.

    Source: org.apache.kafka.streams.query.RangeQuery.
    """

    lower_bound: Any = None
    upper_bound: Any = None
    result_order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_range(cls, lower: Any, upper: Any) -> RangeQuery:
        """From `lower` to `upper`."""
        return cls(lower, upper)

    @classmethod
    def with_lower_bound(cls, lower: Any) -> RangeQuery:
        """From `lower` to the last key."""
        return cls(lower, None)

    @classmethod
    def with_upper_bound(cls, upper: Any) -> RangeQuery:
        """From the first key to `upper`."""
        return cls(None, upper)

    @classmethod
    def with_no_bounds(cls) -> RangeQuery:
        """Every entry."""
        return cls()

    def with_ascending_keys(self) -> RangeQuery:
        """The same, first key first."""
        return replace(self, result_order=ResultOrder.ASCENDING)

    def with_descending_keys(self) -> RangeQuery:
        """The same, last key first."""
        return replace(self, result_order=ResultOrder.DESCENDING)


@dataclass(frozen=True)
class TimestampedRangeQuery(RangeQuery):
    """The same entries with `ValueAndTimestamp`s.

    Source: org.apache.kafka.streams.query.TimestampedRangeQuery.
    """


# --- window and session stores ---------------------------------------------------------------------------


@dataclass(frozen=True)
class WindowKeyQuery(Query[Any]):
    """The windows of a key that start from `time_from_ms` to `time_to_ms`, both inclusive.

    The result is a `WindowStoreIterator`: window starts in milliseconds, and values.

    Source: org.apache.kafka.streams.query.WindowKeyQuery.
    """

    key: Any
    time_from_ms: int | None = None
    time_to_ms: int | None = None

    @property
    def kind(self) -> StoreKind:
        return StoreKind.WINDOW

    @classmethod
    def with_key_and_window_start_range(cls, key: Any, time_from: Time, time_to: Time) -> WindowKeyQuery:
        """The windows of `key` that start in this span of time.

        Raises:
            TypeError: the key is None, or a time is neither a datetime nor an int.
            ValueError: a time is a datetime without a time zone.
        """
        return cls(_is_a_key(key, cls.__name__), to_ms(time_from, "time_from"), to_ms(time_to, "time_to"))


@dataclass(frozen=True)
class WindowRangeQuery(Query[Any]):
    """Sessions of one key (`with_key`), or the windows of all keys in a span (`with_window_start_range`).

    The result is a `KeyValueIterator` of `Windowed` keys and values.

    Source: org.apache.kafka.streams.query.WindowRangeQuery, whose two forms read different stores.
    """

    key: Any = None
    time_from_ms: int | None = None
    time_to_ms: int | None = None

    @property
    def kind(self) -> StoreKind:
        return StoreKind.WINDOW if self.key is None else StoreKind.SESSION

    @classmethod
    def with_key(cls, key: Any) -> WindowRangeQuery:
        """All sessions of a key, in a session store.

        Raises:
            TypeError: the key is None.
        """
        return cls(_is_a_key(key, cls.__name__))

    @classmethod
    def with_window_start_range(cls, time_from: Time, time_to: Time) -> WindowRangeQuery:
        """The windows of all keys that start in this span of time, in a window store.

        Raises:
            TypeError: a time is neither a datetime nor an int.
            ValueError: a time is a datetime without a time zone.
        """
        return cls(None, to_ms(time_from, "time_from"), to_ms(time_to, "time_to"))


@dataclass(frozen=True)
class SessionRangeQuery(Query[Any]):
    """Sessions that end at `earliest_end_ms` or later and start at `latest_start_ms` or earlier, for one key,
    a range of keys, or all keys. None leaves that side open.

    The result is a `KeyValueIterator` of `Windowed` keys and values.

    Differs: Kafka has no such query; its session stores support only `WindowRangeQuery.with_key`.
    """

    lower_key: Any = None
    upper_key: Any = None
    earliest_end_ms: int | None = None
    latest_start_ms: int | None = None

    @property
    def kind(self) -> StoreKind:
        return StoreKind.SESSION

    @classmethod
    def with_key(cls, key: Any) -> SessionRangeQuery:
        """Sessions of this key.

        Raises:
            TypeError: the key is None.
        """
        return cls(_is_a_key(key, cls.__name__), key)

    @classmethod
    def with_key_range(cls, lower: Any, upper: Any) -> SessionRangeQuery:
        """Sessions of the keys from `lower` to `upper`, both inclusive; None leaves that side open."""
        return cls(lower, upper)

    @classmethod
    def with_all_keys(cls) -> SessionRangeQuery:
        """Sessions of any key."""
        return cls()

    def between(self, earliest_end: Time | None, latest_start: Time | None) -> SessionRangeQuery:
        """The same, limited to sessions that overlap this span of time.

        Raises:
            TypeError: a time is neither a datetime nor an int.
            ValueError: a time is a datetime without a time zone.
        """
        return replace(
            self,
            earliest_end_ms=None if earliest_end is None else to_ms(earliest_end, "earliest_end"),
            latest_start_ms=None if latest_start is None else to_ms(latest_start, "latest_start"),
        )


# --- stores with history ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class VersionedKeyQuery(Query[Any]):
    """The value of a key at a given time, as a `VersionedRecord`; without a time, the current value.

    None if there was none. Reads stores that are declared with history.

    Source: org.apache.kafka.streams.query.VersionedKeyQuery (KIP-960).
    Differs: a time older than the retained history fails (STORE_EXCEPTION); Kafka returns null.
    """

    key: Any
    as_of_timestamp_ms: int | None = None

    @classmethod
    def with_key(cls, key: Any) -> VersionedKeyQuery:
        """The current value of the key.

        Raises:
            TypeError: the key is None.
        """
        return cls(_is_a_key(key, cls.__name__))

    def as_of(self, timestamp: Time) -> VersionedKeyQuery:
        """The same, as of a point in time.

        Raises:
            TypeError: the time is neither a datetime nor an int.
            ValueError: the time is a datetime without a time zone.
        """
        return replace(self, as_of_timestamp_ms=to_ms(timestamp, "as_of"))


@dataclass(frozen=True)
class MultiVersionedKeyQuery(Query[Any]):
    """The values of a key in a span of time, as a tuple of `VersionedRecord`s, newest first.

    Includes every value that was valid at any moment of the span, both ends inclusive.

    Source: org.apache.kafka.streams.query.MultiVersionedKeyQuery (KIP-968).
    Differs: returns a tuple; Kafka returns an iterator that must be closed.
    """

    key: Any
    from_time_ms: int | None = None
    to_time_ms: int | None = None
    result_order: ResultOrder = ResultOrder.ANY

    @classmethod
    def with_key(cls, key: Any) -> MultiVersionedKeyQuery:
        """All retained values of this key.

        Raises:
            TypeError: the key is None.
        """
        return cls(_is_a_key(key, cls.__name__))

    def from_time(self, time: Time) -> MultiVersionedKeyQuery:
        """The same, from this time on.

        Raises:
            TypeError: the time is neither a datetime nor an int.
            ValueError: the time is a datetime without a time zone.
        """
        return replace(self, from_time_ms=to_ms(time, "from_time"))

    def to_time(self, time: Time) -> MultiVersionedKeyQuery:
        """The same, up to this time.

        Raises:
            TypeError: the time is neither a datetime nor an int.
            ValueError: the time is a datetime without a time zone.
        """
        return replace(self, to_time_ms=to_ms(time, "to_time"))

    def with_ascending_timestamps(self) -> MultiVersionedKeyQuery:
        """The same, oldest first."""
        return replace(self, result_order=ResultOrder.ASCENDING)

    def with_descending_timestamps(self) -> MultiVersionedKeyQuery:
        """The same, newest first."""
        return replace(self, result_order=ResultOrder.DESCENDING)


# --- the request -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StateQueryRequest(Generic[R]):
    """The argument of `KafkaStreams.query`. Each method returns a new request.

        StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("tea")).require_active()

    Attributes:
        partitions: the requested partitions; None for all on this client.

    Source: org.apache.kafka.streams.query.StateQueryRequest (KIP-796).
    """

    store_name: str
    query: Query[R]
    partitions: frozenset[int] | None = None
    position_bound: PositionBound = field(default_factory=PositionBound)
    is_require_active: bool = False
    execution_info_enabled: bool = False

    @staticmethod
    def in_store(name: str) -> InStore:
        """Start a request with the store's name.

        Raises:
            TypeError: the name is not a string, or is empty.
        """
        return InStore(checked_name(name))

    @property
    def is_all_partitions(self) -> bool:
        """Whether it is for all partitions on this client."""
        return self.partitions is None

    def with_all_partitions(self) -> StateQueryRequest[R]:
        """All partitions on this client; the default."""
        return replace(self, partitions=None)

    def with_partitions(self, partitions: Iterable[int]) -> StateQueryRequest[R]:
        """Only these partitions; a partition that is not here gets a failed result.

        Raises:
            TypeError: a partition is not an int.
            ValueError: a partition is negative, or none is given.
        """
        chosen = frozenset(partitions)
        if not all(type(each) is int for each in chosen):
            raise TypeError(f"partitions must be ints; got {sorted(chosen, key=str)!r}")
        if not chosen or min(chosen) < 0:
            raise ValueError(f"with_partitions() needs one or more partitions, from 0; got {sorted(chosen)}")
        return replace(self, partitions=chosen)

    def with_position_bound(self, bound: PositionBound) -> StateQueryRequest[R]:
        """Only from partitions that have reached the bound; the others get a failed result.

        Raises:
            TypeError: `bound` is not a PositionBound.
        """
        if not isinstance(bound, PositionBound):
            raise TypeError(f"with_position_bound() takes PositionBound.at(position); got {bound!r}")
        return replace(self, position_bound=bound)

    def require_active(self) -> StateQueryRequest[R]:
        """Exclude standbys and stores that are still being restored.

        Differs: a position bound still applies. (Kafka drops it, because there the active task's store is
        ahead of everything. Here the store follows its changelog.)
        """
        return replace(self, is_require_active=True)

    def enable_execution_info(self) -> StateQueryRequest[R]:
        """Include in each result how it was obtained."""
        return replace(self, execution_info_enabled=True)


@dataclass(frozen=True)
class InStore:
    """A request with a store but no query yet."""

    name: str

    def with_query(self, query: Query[R]) -> StateQueryRequest[R]:
        """The request, for all partitions on this client.

        Raises:
            TypeError: `query` is not a query.
        """
        if not isinstance(query, Query):
            raise TypeError(f"with_query() takes a query such as KeyQuery.with_key(key); got {query!r}")
        return StateQueryRequest(self.name, query)
