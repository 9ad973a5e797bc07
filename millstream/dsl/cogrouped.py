"""Cogrouped streams: the records of several grouped streams, combined into one value for each key."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from millstream.dsl.aggregations import check_initializer
from millstream.dsl.drafts import Draft
from millstream.dsl.grouped import KGroupedStream
from millstream.dsl.ktable import KTable, check_sides, declare_store
from millstream.dsl.options import Materialized, Named, name_of, option
from millstream.dsl.repartition import add_repartition, check_repartition
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.topology import nodes
from millstream.topology.columns import Folder
from millstream.topology.functions import accepts, describe_argument
from millstream.topology.windows import SessionWindows, SlidingWindows, TimeWindows, Windows, windowed_serde

if TYPE_CHECKING:
    from millstream.serdes.serde import Serde

__all__ = ["CogroupedKStream", "SessionWindowedCogroupedKStream", "TimeWindowedCogroupedKStream"]

Group = tuple[KGroupedStream, Folder]
"""A grouped stream, and the function that adds its records."""


class _Cogrouped:
    """What cogrouped streams of every kind have in common.

    `repartitions` are those made by earlier aggregations of the same groups; later ones share them.
    """

    def __init__(
        self,
        groups: tuple[Group, ...],
        repartitions: dict[KGroupedStream, Draft],
        windows: Windows | None = None,
    ) -> None:
        self._groups = groups
        self._repartitions = repartitions
        self._windows = windows

    def _table(
        self,
        initializer: Any,
        merger: Folder | None,
        materialized: Materialized | None,
        named: str | Named | None,
    ) -> KTable:
        """Source: CogroupedStreamAggregateBuilder.build."""
        check_initializer(initializer)
        given = option(materialized, Materialized, "aggregate")
        name = name_of(named)
        drafts = self._groups[0][0]._drafts
        drafts.check(*self._names(name), store=given.store_name)
        self._check_repartitions(given.store_name)

        key_serde = given.key_serde or self._key_serde
        store = declare_store(
            given,
            drafts.names,
            "COGROUPKSTREAM-AGGREGATE-",
            key_serde,
            given.value_serde,
            windows=self._windows,
        )
        parents = [self._parent(group, store.name) for group, _ in self._groups]
        generated = [drafts.names.processor("COGROUPKSTREAM-AGGREGATE-") for _ in self._groups]
        generated.append(drafts.names.processor("COGROUPKSTREAM-MERGE-"))
        *steps, merge = self._names(name) or generated
        node = nodes.Cogroup(
            merge,
            (),
            adders=tuple(adder for _, adder in self._groups),
            initializer=initializer,
            merger=merger,
            names=tuple(steps),
            stored=store,
            windows=self._windows,
        )
        table_key = None if key_serde is None else windowed_serde(self._windows, key_serde)
        return KTable(drafts, drafts.add(node, *parents), table_key, given.value_serde, given.store_name)

    @property
    def _key_serde(self) -> Serde | None:
        serdes = (group._key_serde for group, _ in self._groups)
        return next((serde for serde in serdes if serde is not None), None)

    def _names(self, name: str | None) -> list[str]:
        if name is None:
            return []
        return [*(f"{name}-cogroup-agg-{n}" for n in range(len(self._groups))), f"{name}-cogroup-merge"]

    def _check_repartitions(self, store: str | None) -> None:
        new = [
            group
            for group, _ in self._groups
            if group._repartition_required and group not in self._repartitions
        ]
        if sum(group._name is None for group in new) > 1:
            raise TopologyException(
                "aggregate() of cogrouped streams repartitions two of them, and both topics would have the "
                "store's name; give all but one of the groups a name, group_by(…, Grouped.as_('by-user'))"
            )
        for group in new:
            prefix = group._name or store
            check_repartition(group._drafts, prefix)
            if prefix is not None:
                group._drafts.check_internal_topic(f"{prefix}-repartition")

    def _parent(self, group: KGroupedStream, store: str) -> Draft:
        if not group._repartition_required:
            return group._draft
        prefix = group._name or store
        if group in self._repartitions:
            group._drafts.names.repartition(prefix)  # its three counts are used up all the same
        else:
            self._repartitions[group] = add_repartition(
                group._drafts, group._draft, prefix, group._key_serde, group._value_serde
            )
        return self._repartitions[group]


class CogroupedKStream(_Cogrouped, ExplainsMissingNames):
    """Grouped streams, each with a Python function that adds its records to the same aggregate.

    Source: org.apache.kafka.streams.kstream.CogroupedKStream (KIP-150).
    Differs: Python functions only: a Spark expression aggregates one stream.
    """

    def cogroup(self, grouped_stream: KGroupedStream, aggregator: Folder) -> CogroupedKStream:
        """One more grouped stream: `.cogroup(refunds, lambda key, refund, total: total - refund)`.

        Raises:
            TopologyException: it is not a grouped stream, or belongs to another builder; its keys have
                another serde; or the aggregator is not a function of key, value and aggregate.

        Differs: it returns a new object; Kafka Streams changes this one too.
        """
        return cogroup(self._groups, grouped_stream, aggregator, self._repartitions)

    def aggregate(
        self,
        initializer: Callable[[], Any],
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """One value for each key, from the records of all streams: `aggregate(lambda: 0)`.

        Raises:
            TopologyException: the initializer takes arguments; a name is taken; or two groups without a name
                need a repartition.
        """
        return self._table(initializer, None, materialized, named)

    @overload
    def windowed_by(self, windows: TimeWindows | SlidingWindows) -> TimeWindowedCogroupedKStream: ...

    @overload
    def windowed_by(self, windows: SessionWindows) -> SessionWindowedCogroupedKStream: ...

    def windowed_by(self, windows: Windows) -> TimeWindowedCogroupedKStream | SessionWindowedCogroupedKStream:
        """One value for each key and window, not one for each key.

        `cogrouped.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=5))).aggregate(lambda: 0)`

        Raises:
            TopologyException: `windows` are not windows.
        """
        if isinstance(windows, SessionWindows):
            return SessionWindowedCogroupedKStream(self._groups, self._repartitions, windows)
        if not isinstance(windows, TimeWindows | SlidingWindows):
            raise TopologyException(
                "windowed_by() takes TimeWindows, SlidingWindows or SessionWindows, such as "
                f"TimeWindows.of_size_with_no_grace(timedelta(minutes=5)); got {windows!r}"
            )
        return TimeWindowedCogroupedKStream(self._groups, self._repartitions, windows)


class TimeWindowedCogroupedKStream(_Cogrouped, ExplainsMissingNames):
    """Cogrouped streams in windows of one size.

    Source: org.apache.kafka.streams.kstream.TimeWindowedCogroupedKStream.
    """

    def aggregate(
        self,
        initializer: Callable[[], Any],
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """One value for each key and window, from the records of all streams: `aggregate(lambda: 0)`.

        Raises:
            TopologyException: as `CogroupedKStream.aggregate`.
        """
        return self._table(initializer, None, materialized, named)


class SessionWindowedCogroupedKStream(_Cogrouped, ExplainsMissingNames):
    """Cogrouped streams in sessions.

    Source: org.apache.kafka.streams.kstream.SessionWindowedCogroupedKStream.
    """

    def aggregate(
        self,
        initializer: Callable[[], Any],
        merger: Folder | None = None,
        materialized: Materialized | None = None,
        *,
        named: str | Named | None = None,
    ) -> KTable:
        """One value for each key and session: `aggregate(lambda: 0, lambda key, one, other: one + other)`.

        Raises:
            TopologyException: the merger is missing; otherwise as `CogroupedKStream.aggregate`.
        """
        if not callable(merger) or not accepts(merger, 3):
            raise TopologyException(
                "aggregate() of sessions needs a merger: a record between two sessions joins them into one; "
                "give a function of key and both aggregates, `lambda key, one, other: one + other`; "
                f"got {describe_argument(merger)}"
            )
        return self._table(initializer, merger, materialized, named)


def cogroup(
    groups: tuple[Group, ...],
    grouped_stream: KGroupedStream,
    aggregator: Folder,
    repartitions: dict[KGroupedStream, Draft],
) -> CogroupedKStream:
    """These groups and one more; a group already among them gets another aggregator.

    Raises:
        TopologyException: it cannot be grouped with them.
    """
    if not isinstance(grouped_stream, KGroupedStream):
        raise TopologyException(
            f"cogroup() takes a KGroupedStream, such as stream.group_by_key(), got {grouped_stream!r}"
        )
    if not callable(aggregator) or not accepts(aggregator, 3):
        raise TopologyException(
            "the aggregator of cogroup() is a function of key, value and aggregate, such as "
            f"`lambda key, value, total: total + value`; got {describe_argument(aggregator)}"
        )
    for group, _ in groups:
        check_sides("cogroup", group, grouped_stream, group._key_serde)
    adders = dict(groups)
    adders[grouped_stream] = aggregator
    return CogroupedKStream(tuple(adders.items()), repartitions)
