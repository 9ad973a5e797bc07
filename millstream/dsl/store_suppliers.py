"""Store suppliers: Kafka Streams' names for how a store is kept, given to `Materialized.as_` or a builder."""

from __future__ import annotations

from datetime import timedelta

from millstream.clock import milliseconds
from millstream.dsl.store_builders import StoreBuilder, StoreSupplier, store_builder
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.not_there import ExplainsPythonNames
from millstream.serdes.serde import Serde

__all__ = ["Stores"]


class Stores(metaclass=ExplainsPythonNames):
    """How a store is kept: a table's, `Materialized.as_(Stores.in_memory_key_value_store("counts"))`, or
    one of processors, `Stores.key_value_store_builder(Stores.in_memory_key_value_store("counts"), key,
    value)`.

    For tables, there is a shorter form:
    `Materialized.as_("counts").with_store_type(StoreType.IN_MEMORY)`, and `with_retention`, `with_history`.
    A store described here overrides `default.dsl.store`.

    Source: org.apache.kafka.streams.state.Stores.
    Differs: each store keeps its records' timestamps; Kafka's `persistentKeyValueStore` and
        `persistentWindowStore` do not. Queries read a view of a changelog, which Spark writes; the state that
        processors see is kept by Spark, wherever the view is.
    """

    @staticmethod
    def persistent_key_value_store(name: str) -> StoreSupplier:
        """In RocksDB, each key's last value."""
        return StoreSupplier("persistent_key_value_store", name)

    @staticmethod
    def persistent_timestamped_key_value_store(name: str) -> StoreSupplier:
        """The same, which has timestamps here anyway."""
        return StoreSupplier("persistent_timestamped_key_value_store", name)

    @staticmethod
    def in_memory_key_value_store(name: str) -> StoreSupplier:
        """In memory, each key's last value."""
        return StoreSupplier("in_memory_key_value_store", name, persistent=False)

    @staticmethod
    def persistent_versioned_key_value_store(
        name: str, history_retention: timedelta, segment_interval: timedelta | None = None
    ) -> StoreSupplier:
        """In RocksDB, with a history of this length: `Materialized.with_history`.

        Args:
            name: of the store.
            history_retention: how far back it can be read as of an earlier time.
            segment_interval: checked, but without effect: versions expire one by one here, not by segment.

        Raises:
            TopologyException: a duration is negative, or the interval is 0.

        Source: KIP-889.
        """
        _at_least(history_retention, "historyRetention", 0)
        if segment_interval is not None:
            _at_least(segment_interval, "segmentInterval", 1)
        return StoreSupplier("persistent_versioned_key_value_store", name, history=history_retention)

    @staticmethod
    def persistent_window_store(
        name: str,
        retention_period: timedelta,
        window_size: timedelta,
        retain_duplicates: bool = False,
    ) -> StoreSupplier:
        """In RocksDB, windows of this size, each kept this long after its start.

        Raises:
            TopologyException: a duration is negative, or the retention is shorter than a window.
        """
        return _windows(
            "persistent_window_store", name, retention_period, window_size, retain_duplicates, persistent=True
        )

    @staticmethod
    def persistent_timestamped_window_store(
        name: str,
        retention_period: timedelta,
        window_size: timedelta,
        retain_duplicates: bool = False,
    ) -> StoreSupplier:
        """The same, which has timestamps here anyway."""
        made_by = "persistent_timestamped_window_store"
        return _windows(made_by, name, retention_period, window_size, retain_duplicates, persistent=True)

    @staticmethod
    def in_memory_window_store(
        name: str,
        retention_period: timedelta,
        window_size: timedelta,
        retain_duplicates: bool = False,
    ) -> StoreSupplier:
        """The same in memory."""
        made_by = "in_memory_window_store"
        return _windows(made_by, name, retention_period, window_size, retain_duplicates, persistent=False)

    @staticmethod
    def persistent_session_store(name: str, retention_period: timedelta) -> StoreSupplier:
        """In RocksDB, sessions, each kept this long after its end.

        Raises:
            TopologyException: the retention is negative.
        """
        _at_least(retention_period, "retentionPeriod", 0)
        return StoreSupplier(
            "persistent_session_store", name, kind=StoreKind.SESSION, retention=retention_period
        )

    @staticmethod
    def in_memory_session_store(name: str, retention_period: timedelta) -> StoreSupplier:
        """The same in memory.

        Raises:
            TopologyException: the retention is negative.
        """
        _at_least(retention_period, "retentionPeriod", 0)
        return StoreSupplier(
            "in_memory_session_store", name, StoreKind.SESSION, persistent=False, retention=retention_period
        )

    # --- builders, for processors ------------------------------------------------------------------------

    @staticmethod
    def key_value_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A KeyValueStore for processors."""
        return store_builder("key_value_store_builder", supplier, key_serde, value_serde, StoreKind.KEY_VALUE)

    @staticmethod
    def timestamped_key_value_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A TimestampedKeyValueStore for processors: its values are ValueAndTimestamp."""
        made_by = "timestamped_key_value_store_builder"
        return store_builder(made_by, supplier, key_serde, value_serde, StoreKind.KEY_VALUE, timestamped=True)

    @staticmethod
    def versioned_key_value_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A VersionedKeyValueStore for processors."""
        made_by = "versioned_key_value_store_builder"
        return store_builder(made_by, supplier, key_serde, value_serde, StoreKind.KEY_VALUE, versioned=True)

    @staticmethod
    def window_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A WindowStore for processors."""
        return store_builder("window_store_builder", supplier, key_serde, value_serde, StoreKind.WINDOW)

    @staticmethod
    def timestamped_window_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A TimestampedWindowStore for processors: its values are ValueAndTimestamp."""
        made_by = "timestamped_window_store_builder"
        return store_builder(made_by, supplier, key_serde, value_serde, StoreKind.WINDOW, timestamped=True)

    @staticmethod
    def session_store_builder(
        supplier: StoreSupplier, key_serde: Serde | None = None, value_serde: Serde | None = None
    ) -> StoreBuilder:
        """A SessionStore for processors."""
        return store_builder("session_store_builder", supplier, key_serde, value_serde, StoreKind.SESSION)


def _windows(
    made_by: str,
    name: str,
    retention: timedelta,
    window_size: timedelta,
    retain_duplicates: bool,
    *,
    persistent: bool,
) -> StoreSupplier:
    retention_ms = _at_least(retention, "retentionPeriod", 0)
    size_ms = _at_least(window_size, "windowSize", 0)
    if size_ms > retention_ms:
        raise TopologyException(
            f"The retention period of the window store {name} must be no smaller than its window size. "
            f"Got size=[{size_ms}], retention=[{retention_ms}]"
        )
    return StoreSupplier(
        made_by,
        name,
        StoreKind.WINDOW,
        persistent,
        retention,
        window_size,
        duplicates=bool(retain_duplicates),
    )


def _at_least(duration: timedelta, what: str, least_ms: int) -> int:
    duration_ms = milliseconds(duration, f"the {what} of a store")
    if duration_ms < least_ms:
        raise TopologyException(f"{what} cannot be {'zero or ' if least_ms else ''}negative")
    return duration_ms
