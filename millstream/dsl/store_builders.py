"""How a store is kept, as `Stores` describes it; and builders of the stores that processors keep: such a
supplier, its serdes, and how the store is logged.

Source: org.apache.kafka.streams.state.StoreBuilder;
    org.apache.kafka.streams.state.internals.AbstractStoreBuilder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from millstream.clock import milliseconds
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde
from millstream.topology.names import validate_name
from millstream.topology.nodes import Store

__all__ = ["StoreBuilder", "StoreSupplier"]


@dataclass(frozen=True, slots=True)
class StoreSupplier:
    """A store that `Stores` describes.

    Attributes:
        made_by: the method of `Stores`, for messages.
        name: of the store.
        kind: how its keys are made.
        persistent: RocksDB, else memory.
        retention: for window and session stores: how long a window is kept.
        window_size: for a window store: how long each of its windows is.
        history: how far back it can be read as of an earlier time. None: only as it is.
        duplicates: of a window store: whether a key can have several values in a window.
    """

    made_by: str
    name: str
    kind: StoreKind = StoreKind.KEY_VALUE
    persistent: bool = True
    retention: timedelta | None = None
    window_size: timedelta | None = None
    history: timedelta | None = None
    duplicates: bool = False

    def __post_init__(self) -> None:
        validate_name(self.name, "store name")

    def __str__(self) -> str:
        return f"Stores.{self.made_by}({self.name!r}, …)"


@dataclass(frozen=True)
class StoreBuilder(ExplainsMissingNames):
    """A store for processors: give it to `StreamsBuilder.add_state_store`, then its name to `process`.

    Attributes:
        supplier: the store as described by `Stores`.
        key_serde, value_serde: None means the configured default.
        timestamped: whether processors put and get values with their timestamps.
        logging_enabled: whether there is a changelog. Queries read a view of the changelog, so a store
            without one cannot be queried. Processors can use it all the same.
        log_config: configs of the changelog topic, on top of the defaults.
        caching_enabled: has no effect: each put goes into the changelog.

    Source: org.apache.kafka.streams.state.StoreBuilder.
    Differs: builders are immutable; each method returns a new one. Two equal builders build one store.
    """

    supplier: StoreSupplier
    key_serde: Serde | None = None
    value_serde: Serde | None = None
    timestamped: bool = False
    logging_enabled: bool = True
    log_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    caching_enabled: bool = False

    def __post_init__(self) -> None:
        for word, serde in (("key", self.key_serde), ("value", self.value_serde)):
            if serde is not None and not isinstance(serde, Serde):
                raise TopologyException(
                    f"the {word} serde of store '{self.name}' is a serde, such as Serdes.string(), or None; "
                    f"got {serde!r}"
                )

    @property
    def name(self) -> str:
        """The store's name."""
        return self.supplier.name

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StoreBuilder:
        """The same with a changelog, whose topic has these configs on top of the defaults."""
        given = {str(key): str(value) for key, value in (config or {}).items()}
        return replace(self, logging_enabled=True, log_config=given)

    def with_logging_disabled(self) -> StoreBuilder:
        """The same without a changelog."""
        return replace(self, logging_enabled=False, log_config={})

    def with_caching_enabled(self) -> StoreBuilder:
        """The same.

        Differs: there is no cache between a processor and the changelog.

        Raises:
            TopologyException: the store has a history, or keeps duplicates.
        """
        if self.supplier.history is not None:
            raise TopologyException("Versioned stores do not support caching")
        return replace(self, caching_enabled=True)

    def with_caching_disabled(self) -> StoreBuilder:
        """The same."""
        return replace(self, caching_enabled=False)

    @property
    def declared(self) -> Store:
        """The store as a topology has it."""
        supplier = self.supplier
        return Store(
            supplier.name,
            key_serde=self.key_serde,
            value_serde=self.value_serde,
            queryable=self.logging_enabled,
            persistent=supplier.persistent,
            type_is_default=False,
            logged=self.logging_enabled,
            # Unlike a join's store, which also keeps duplicates, its changelog is compacted.
            topic_config={
                **(
                    {"cleanup.policy": "compact,delete"}
                    if supplier.duplicates and self.logging_enabled
                    else {}
                ),
                **self.log_config,
            },
            kind=supplier.kind,
            window_size_ms=_ms(supplier.window_size),
            retention_ms=None if supplier.retention is None else max(1, _ms(supplier.retention) or 0),
            history_ms=_ms(supplier.history),
            cached=self.caching_enabled,
            duplicates=supplier.duplicates,
            timestamped=self.timestamped,
        )


def store_builder(
    made_by: str,
    supplier: StoreSupplier,
    key_serde: Serde | None,
    value_serde: Serde | None,
    kind: StoreKind,
    *,
    timestamped: bool = False,
    versioned: bool = False,
) -> StoreBuilder:
    """A builder, if its supplier is of that kind.

    Raises:
        TopologyException: it is not.
    """
    wanted = _SUPPLIERS[(kind, versioned)]
    if not isinstance(supplier, StoreSupplier):
        raise TopologyException(f"Stores.{made_by}() takes a supplier, such as {wanted}; got {supplier!r}")
    if supplier.kind is not kind or (supplier.history is not None) != versioned:
        raise TopologyException(
            f"Stores.{made_by}() takes another supplier, such as {wanted}; got {supplier}"
        )
    return StoreBuilder(supplier, key_serde, value_serde, timestamped)


_SUPPLIERS = {
    (StoreKind.KEY_VALUE, False): 'Stores.persistent_key_value_store("counts")',
    (StoreKind.KEY_VALUE, True): 'Stores.persistent_versioned_key_value_store("prices", timedelta(days=1))',
    (
        StoreKind.WINDOW,
        False,
    ): 'Stores.persistent_window_store("views", timedelta(days=1), timedelta(hours=1))',
    (StoreKind.SESSION, False): 'Stores.persistent_session_store("visits", timedelta(days=1))',
}


def _ms(duration: object) -> int | None:
    return None if duration is None else milliseconds(duration, "a duration of a store")
