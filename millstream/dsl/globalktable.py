"""Global tables: a topic of which every client has a full copy, for local lookups."""

from __future__ import annotations

from millstream.dsl.drafts import Draft, Drafts
from millstream.not_there import ExplainsMissingNames
from millstream.serdes.serde import Serde

__all__ = ["GlobalKTable"]


class GlobalKTable(ExplainsMissingNames):
    """A topic as a table, all partitions of it on every client.

    Streams can be joined with it, by any part of their values: `KStream.join`. It can also be queried:
    `KafkaStreams.store(...)` with `queryable_store_name`. For queries, each client reads the topic itself, on
    a thread of its own and without Spark. It is RUNNING only once it has read everything that was in the
    topic at its start.

    A key is expected in one partition, where producers put it. A key in several partitions has the value from
    the first of them.

    Source: org.apache.kafka.streams.kstream.GlobalKTable.
    Differs: without a name in `Materialized` it gets a generated one, which can be queried too. For a key in
        several partitions Kafka Streams keeps the record that came last.
    """

    def __init__(
        self,
        drafts: Drafts,
        draft: Draft,
        key_serde: Serde | None,
        value_serde: Serde | None,
        queryable_store_name: str,
    ) -> None:
        self._drafts = drafts
        self._draft = draft
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._queryable_store_name = queryable_store_name

    @property
    def queryable_store_name(self) -> str:
        """The name to query its store by."""
        return self._queryable_store_name

    def __repr__(self) -> str:
        return f"<GlobalKTable '{self._queryable_store_name}'>"
