"""Where a program begins: topics become streams and tables, and finally a topology."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from millstream.dsl.drafts import Drafts
from millstream.dsl.frames import DataFrameTable, add_frame_table
from millstream.dsl.globalktable import GlobalKTable
from millstream.dsl.kstream import KStream
from millstream.dsl.ktable import KTable, declare_store
from millstream.dsl.options import Consumed, Materialized, Named, option
from millstream.dsl.store_builders import StoreBuilder
from millstream.errors import TopologyException
from millstream.not_there import ExplainsMissingNames
from millstream.processors.api import Processor
from millstream.topology.columns import Frame, Supplier
from millstream.topology.copartition import check_declared_partitions
from millstream.topology.names import validate_name, validate_topic
from millstream.topology.nodes import GlobalTable, Source, Store, TableSource
from millstream.topology.suppliers import check_supplier, declared_store, global_store
from millstream.topology.topology import Topology

__all__ = ["StreamsBuilder"]

OfTable = TypeVar("OfTable", TableSource, GlobalTable)
"""The source of a table."""


class StreamsBuilder(ExplainsMissingNames):
    """Collects the operations of one program.

    Source: org.apache.kafka.streams.StreamsBuilder.
    """

    def __init__(self) -> None:
        self._drafts = Drafts()

    def stream(
        self, topics: str | Iterable[str] | re.Pattern[str], consumed: Consumed | None = None
    ) -> KStream:
        """The records of a topic, of several, or of all topics whose whole name matches a pattern.

        Streams of the same topics share one source, so the topics are read once.

        Raises:
            TopologyException: there is no topic, a topic's name is illegal, or another source reads it.
        """
        consumed = option(consumed, Consumed, "stream")
        names: tuple[str, ...] = ()
        pattern: re.Pattern[str] | None = None
        if isinstance(topics, re.Pattern):
            if not isinstance(topics.pattern, str):
                raise TopologyException(f"a pattern of topics is text, got bytes: {topics.pattern!r}")
            pattern = topics
        elif isinstance(topics, str):
            names = (validate_topic(topics),)
        elif isinstance(topics, Iterable):
            names = tuple(dict.fromkeys(validate_topic(topic) for topic in topics))
            if not names:
                raise TopologyException("stream() needs at least one topic, got none")
        else:
            raise TopologyException(f"stream() takes a topic, several, or a compiled pattern, got {topics!r}")
        node = Source(
            consumed.name or "",
            (),
            topics=names,
            pattern=pattern,
            key_serde=consumed.key_serde,
            value_serde=consumed.value_serde,
            offset_reset=consumed.offset_reset_policy,
            timestamp_extractor=consumed.timestamp_extractor,
        )
        if self._drafts.twin_of(node) is None:
            self._drafts.check(consumed.name)
        draft = self._drafts.add_source(
            replace(node, name=self._drafts.names.processor("KSTREAM-SOURCE-", consumed.name))
        )
        return KStream(self._drafts, draft, consumed.key_serde, consumed.value_serde)

    def table(
        self,
        topic: str,
        consumed: Consumed | Materialized | None = None,
        materialized: Materialized | None = None,
    ) -> KTable:
        """A topic as a table: a record updates its key, a null value deletes it, a null key is skipped.

        The table has a store when `materialized` names one; the topic itself is its changelog.

        Raises:
            TopologyException: the topic's name is illegal, or another source reads it.

        Differs: Kafka Streams copies the topic into a changelog unless `topology.optimization` disables that.
            Here the store is a view of its topic: it has the topic's timestamps and all its records, whatever
            a timestamp extractor says. Later steps have the extractor's timestamps.
        """
        consumed, materialized = _options("table", consumed, materialized)
        read = TableSource(
            "",
            (),
            offset_reset=consumed.offset_reset_policy,
            timestamp_extractor=consumed.timestamp_extractor,
        )
        node, store = self._table(read, topic, consumed, materialized)
        draft = self._drafts.add_source(replace(node, stored=store if store.queryable else None))
        draft.spare_store = store
        return KTable(self._drafts, draft, node.key_serde, node.value_serde, materialized.store_name)

    def global_table(
        self,
        topic: str,
        consumed: Consumed | Materialized | None = None,
        materialized: Materialized | None = None,
    ) -> GlobalKTable:
        """A topic as a table of which every client has a full copy, for `KStream.join` and queries by name.

        A record updates its key, a null value deletes it, a null key is skipped. The topic is read from its
        beginning, whatever the offset reset policy of `consumed` says. The serdes of keys and values, which
        queries need, are those of `consumed`, else of `materialized`, else the configured defaults.

        Raises:
            TopologyException: the topic's name is illegal, or another source reads it; or `consumed` has a
                timestamp extractor.

        Source: org.apache.kafka.streams.StreamsBuilder.globalTable.
        Differs: a timestamp extractor is refused, since it would never be called (Kafka Streams accepts it
            and does not call it either). Serdes given in `materialized` are used where `consumed` has none
            (Kafka Streams drops them). A `materialized` without a name is accepted (Kafka Streams 4.3 fails:
            IllegalArgumentException).
        """
        consumed, materialized = _options("global_table", consumed, materialized)
        if consumed.timestamp_extractor is not None:
            raise TopologyException(
                "a global table takes no timestamp extractor: its store has the timestamps of the topic"
            )
        node, declared = self._table(GlobalTable("", ()), topic, consumed, materialized)
        # A store is only there for queries, so it can be queried under a generated name too. Its topic
        # is its only changelog.
        store = replace(declared, queryable=True, logged=False, topic_config={})
        draft = self._drafts.add_source(replace(node, stored=store))
        return GlobalKTable(self._drafts, draft, node.key_serde, node.value_serde, store.name)

    def _table(
        self, node: OfTable, topic: str, consumed: Consumed, materialized: Materialized
    ) -> tuple[OfTable, Store]:
        """The source of a table, complete but for its store, and that store as declared.

        The names are counted in Kafka Streams' order: the store, the source, the table.
        """
        source_name = _source_name(consumed)
        node = replace(
            node,
            name=consumed.name or "",
            topic=validate_topic(topic),
            source_name=source_name or "",
            key_serde=consumed.key_serde or materialized.key_serde,
            value_serde=consumed.value_serde or materialized.value_serde,
        )
        self._drafts.twin_of(node)
        self._drafts.check(consumed.name, source_name, store=materialized.store_name)
        names = self._drafts.names
        store = declare_store(
            materialized, names, f"{topic}-", node.key_serde, node.value_serde, source_topic=topic
        )
        source_name = names.processor("KSTREAM-SOURCE-", source_name)
        name = names.processor("KTABLE-SOURCE-", consumed.name)
        return replace(node, name=name, source_name=source_name), store

    def add_state_store(self, builder: StoreBuilder) -> StreamsBuilder:
        """A store for processors, which request it by name: `stream.process(Count, "counts")`.

            builder.add_state_store(
                Stores.key_value_store_builder(
                    Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()
                )
            )

        Raises:
            TopologyException: another store has that name.

        Source: org.apache.kafka.streams.StreamsBuilder.addStateStore.
        """
        self._drafts.add_state_store(declared_store("add_state_store", builder))
        return self

    def add_global_store(
        self, builder: StoreBuilder, topic: str, consumed: Consumed | None, supplier: Supplier[Processor]
    ) -> StreamsBuilder:
        """A topic in a store of which every client has a full copy, filled by a processor.

        The processor gets each record, and decides what to put into the store. All processors can read the
        store by its name.

        The topic is read from its beginning whenever a client has no local state of it. It is the store's
        only changelog, so what the processor does must depend on its records alone.

        Raises:
            TopologyException: the topic's name is illegal, or another source reads it; there is a store of
                that name; or the supplier makes no processors.

        Source: org.apache.kafka.streams.StreamsBuilder.addGlobalStore.
        """
        consumed = option(consumed, Consumed, "add_global_store")
        check_supplier("add_global_store", supplier, fixed_key=False)
        declared = global_store(builder)
        if consumed.timestamp_extractor is not None:
            raise TopologyException(
                "a global store takes no timestamp extractor: its records have the timestamps of the topic"
            )
        source_name = _source_name(consumed)
        node = GlobalTable(
            consumed.name or "",
            (),
            topic=validate_topic(topic),
            source_name=source_name or "",
            key_serde=consumed.key_serde,
            value_serde=consumed.value_serde,
            supplier=supplier,
        )
        self._drafts.twin_of(node)
        self._drafts.check(consumed.name, source_name, store=declared.name)
        names = self._drafts.names
        store = replace(declared, queryable=True, logged=False, topic_config={}, source_topic=topic)
        source_name = names.processor("KSTREAM-SOURCE-", source_name)
        name = names.processor("KTABLE-SOURCE-", consumed.name)
        self._drafts.add_source(replace(node, name=name, source_name=source_name, stored=store))
        return self

    def from_dataframe(
        self,
        frame: Frame,
        key: str | Iterable[str],
        *,
        named: str | Named | None = None,
        refresh_on_start: bool = True,
    ) -> DataFrameTable:
        """The rows of a static DataFrame as a table to join streams with, keyed by its columns.

            customers = builder.from_dataframe(
                lambda spark: spark.read.parquet("/lake/customers"), key="id", named="customers"
            )
            orders.join(customers, lambda order: order.customer, lambda order, customer: …)

        The DataFrame is read when a query that joins it starts, and on `KafkaStreams.refresh_table`. The
        changes since the last read go to the internal topic `<named>-changelog` in one transaction, and the
        query reads that topic. So a refresh takes effect as a whole, for later records only. Rows without
        a key are left out.

        Args:
            frame: a DataFrame, or a function that gets the client's SparkSession and returns one. It is
                called again for each refresh; prefer it if Millstream may start Spark.
            key: the name of the column that is the key; or of several, for a key that is a struct of them.
            refresh_on_start: if False, a start reads the DataFrame only if the table was never filled.

        Raises:
            TopologyException: it is not a DataFrame, is streaming, or belongs to Spark Connect; it has no
                such column; a name is taken.
        """
        return add_frame_table(self._drafts, frame, key, named=named, refresh_on_start=refresh_on_start)

    def build(self, config: Mapping[str, Any] | None = None) -> Topology:
        """The topology of the program so far. It changes nothing: you may add to the program and build again.

        `config` is accepted as in Kafka Streams; nothing in it changes a topology yet
        (`topology.optimization` is always `none`, except that a table's topic is its changelog).

        Raises:
            TopologyException: it reads nothing, a split has no branches, the sides of a join have different
                numbers of partitions by repartition(), or Spark cannot run it.
        """
        topology = Topology(self._drafts.build(), self._drafts.state_stores.values())
        check_declared_partitions(topology.copartition_groups)
        _ = topology.pipelines  # raises for what no query can run: here rather than at the start
        return topology


def _options(
    operation: str, consumed: Consumed | Materialized | None, materialized: Materialized | None
) -> tuple[Consumed, Materialized]:
    """Both options of a table; the first may have been left out."""
    if isinstance(consumed, Materialized):
        if materialized is not None:
            raise TopologyException(f"{operation}() takes one Materialized, got two")
        consumed, materialized = None, consumed
    return option(consumed, Consumed, operation), option(materialized, Materialized, operation)


def _source_name(consumed: Consumed) -> str | None:
    """The name of the source before a table, if the table was given one."""
    return None if consumed.name is None else validate_name(f"{consumed.name}-source")
