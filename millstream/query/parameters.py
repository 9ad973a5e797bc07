"""The parameters of a query: store, type, partition, and whether stale results are acceptable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from millstream.model import StoreKind
from millstream.query.read import Read, checked_name

__all__ = ["QueryableStoreType", "StoreQueryParameters"]

S = TypeVar("S")
H = TypeVar("H")
"""A separate type variable, because few checkers infer the class's own from a classmethod's arguments."""


@dataclass(frozen=True, slots=True)
class QueryableStoreType(Generic[S]):
    """A way to read stores of one kind. Made by `QueryableStoreTypes`.

    Source: org.apache.kafka.streams.state.QueryableStoreType.
    """

    name: str
    kind: StoreKind
    timestamped: bool = False

    def accepts(self, kind: StoreKind) -> bool:
        """Whether a store of this kind can be read with this type."""
        return kind is self.kind

    def __repr__(self) -> str:
        return f"QueryableStoreTypes.{self.name}()"


@dataclass(frozen=True, slots=True)
class StoreQueryParameters(Generic[S]):
    """The parameters of `KafkaStreams.store`. Each method returns new parameters.

        StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())

    Source: org.apache.kafka.streams.StoreQueryParameters.
    """

    store_name: str
    queryable_store_type: QueryableStoreType[S]
    partition: int | None = None
    stale_stores_enabled: bool = False

    def __post_init__(self) -> None:
        checked_name(self.store_name)
        if not isinstance(self.queryable_store_type, QueryableStoreType):
            raise TypeError(
                f"a store type must come from QueryableStoreTypes, such as "
                f"QueryableStoreTypes.key_value_store(); got {self.queryable_store_type!r}"
            )

    @staticmethod
    def from_name_and_type(store_name: str, store_type: QueryableStoreType[H]) -> StoreQueryParameters[H]:
        """Every partition of the store that is active on this client."""
        return StoreQueryParameters(store_name, store_type)

    def with_partition(self, partition: int) -> StoreQueryParameters[S]:
        """Only this partition of the store.

        Raises:
            TypeError: `partition` is not an int.
            ValueError: `partition` is negative.
        """
        if isinstance(partition, bool) or not isinstance(partition, int):
            raise TypeError(f"a partition must be an int; got {partition!r}")
        if partition < 0:
            raise ValueError(f"a partition must be 0 or more; got {partition}")
        return replace(self, partition=partition)

    def enable_stale_stores(self) -> StoreQueryParameters[S]:
        """Also read standbys and stores that are still being restored; their data may be stale."""
        return replace(self, stale_stores_enabled=True)

    @property
    def read(self) -> Read:
        """The settings of all reads of such a handle."""
        return Read(
            self.store_name,
            self.queryable_store_type.kind,
            partition=self.partition,
            stale=self.stale_stores_enabled,
        )
