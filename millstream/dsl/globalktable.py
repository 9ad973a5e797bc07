"""Global tables: a topic that every client has whole, for lookups on the spot."""

from __future__ import annotations

from millstream.dsl.drafts import Draft, Drafts
from millstream.dsl.serdes import Serde
from millstream.not_there import TellsWhatIsMissing

__all__ = ["GlobalKTable"]


class GlobalKTable(TellsWhatIsMissing):
    """A topic as a table, all partitions of it on every client.

    Streams can be joined with it, by any part of their values: `KStream.join`. And it can be queried:
    `KafkaStreams.store(...)` with `queryable_store_name`. For that, each client reads the topic for itself,
    on a thread of its own and without Spark, and is RUNNING only once it has read all that was in the topic
    when it started.

    A key is expected in one partition, as producers put it there. One that is in several partitions has the
    value of the first of them that has it.

    Source: org.apache.kafka.streams.kstream.GlobalKTable.
    Differs: one without a name in `Materialized` has a generated name that can be queried too, whatever else
        it was given. Of a key in several partitions Kafka Streams keeps the record that came last.
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
