"""Groups: records grouped by key, ready to be aggregated."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from millstream.dsl.aggregations import Unmerged
from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.ktable import KTable, declare_store
from millstream.dsl.options import Materialized, Named, name_of
from millstream.dsl.repartition import add_repartition, check_repartition
from millstream.dsl.windowed import SessionWindowedKStream, TimeWindowedKStream
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde
from millstream.topology import nodes
from millstream.topology.columns import Folder
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows, windowed_serde

if TYPE_CHECKING:
    from millstream.dsl.cogrouped import CogroupedKStream

__all__ = ["KGroupedStream"]


class KGroupedStream(Unmerged, ExplainsMissingNames):
    """Records grouped by key. Records with a null key or a null value are ignored.

    Source: org.apache.kafka.streams.kstream.KGroupedStream.
    """

    def __init__(
        self,
        drafts: Drafts,
        draft: Draft,
        key_serde: Serde | None,
        value_serde: Serde | None,
        *,
        name: str | None,
        repartition_required: bool,
    ) -> None:
        super().__init__(value_serde)
        self._drafts = drafts
        self._draft = draft
        self._key_serde = key_serde
        self._name = name
        self._repartition_required = repartition_required
        self._repartition: Draft | None = None

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedKStream: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedKStream: ...

    def windowed_by(self, windows: Windows) -> TimeWindowedKStream | SessionWindowedKStream:
        """One value for each key and window, not one for each key.

        `clicks.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=5))).count()`

        Raises:
            TopologyException: `windows` are not windows.
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedKStream(self._table, windows, self._value_serde)
        if not isinstance(windows, TimeWindows | SlidingWindows):
            raise TopologyException(
                "windowed_by() takes TimeWindows, SlidingWindows or SessionWindows, such as "
                f"TimeWindows.of_size_with_no_grace(timedelta(minutes=5)); got {windows!r}"
            )
        return TimeWindowedKStream(self._table, windows, self._value_serde)

    def cogroup(self, aggregator: Folder) -> CogroupedKStream:
        """This group as the first of several whose records are combined into one value.

        `sales.cogroup(lambda key, sale, total: total + sale).cogroup(refunds, …).aggregate(lambda: 0)`

        Raises:
            TopologyException: the aggregator is not a function of key, value and aggregate.
        """
        from millstream.dsl.cogrouped import cogroup  # it needs this class

        return cogroup((), self, aggregator, {})

    def _table(
        self,
        aggregation: nodes.Aggregation,
        materialized: Materialized,
        named: str | Named | None,
        prefix: str,
        *,
        value_serde: Serde | None,
        burns_a_count: bool = False,
        windows: Windows | None = None,
        on_close: bool = False,
    ) -> KTable:
        """The table of an aggregation, behind a repartition if keys may have changed.

        Source: KGroupedStreamImpl.doAggregate, GroupedStreamAggregateBuilder.build.
        """
        drafts = self._drafts
        given = name_of(named)
        drafts.check(given, store=materialized.store_name)
        if self._repartition_required and (self._repartition is None or self._name is None):
            check_repartition(drafts, self._name or materialized.store_name)
        if burns_a_count:
            drafts.names.store(prefix)  # as count(Materialized) in Kafka Streams, for compatibility
        key_serde = materialized.key_serde or self._key_serde
        store = declare_store(materialized, drafts.names, prefix, key_serde, value_serde, windows=windows)
        name = drafts.names.processor(prefix, given)
        parent = self._draft
        if self._repartition_required:
            parent = self._repartitioned(self._name or store.name)
        draft = drafts.add(nodes.Aggregate(name, (), aggregation, store, windows, on_close), parent)
        table_key = None if key_serde is None else windowed_serde(windows, key_serde)
        return KTable(drafts, draft, table_key, value_serde, materialized.store_name)

    def _repartitioned(self, prefix: str) -> Draft:
        """The repartition before an aggregation; if it has a name, all aggregations of the group share it."""
        if self._repartition is not None and self._name is not None:
            self._drafts.names.repartition(prefix)  # its three counts are used up all the same
            self._drafts.attach(self._repartition, self._draft)
            return self._repartition
        self._repartition = add_repartition(
            self._drafts, self._draft, prefix, self._key_serde, self._value_serde
        )
        return self._repartition
