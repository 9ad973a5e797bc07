"""What the applications share that count the words of a topic, each in a process of its own."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F

from millstream import (
    Consumed,
    KafkaStreams,
    KGroupedStream,
    KStream,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
)

__all__ = ["content", "counted", "lines_of"]


def lines_of(builder: StreamsBuilder, topic: str) -> KStream[Any, Any]:
    """A topic of text."""
    return builder.stream(topic, Consumed.with_(Serdes.string(), Serdes.string()))


def counted(lines: KStream[Any, Any]) -> KGroupedStream[Any, Any]:
    """The words of lines, grouped by themselves, and counted in the store `counts`."""
    split = lines.flat_map_values(lambda line: F.split(line, " "))
    words = split.group_by(lambda key, word: word)
    words.count(Materialized.as_("counts"))
    return words


def content(streams: KafkaStreams, store: str) -> dict[str, int]:
    """All that a store has."""
    kind = QueryableStoreTypes.key_value_store()
    with streams.store(StoreQueryParameters.from_name_and_type(store, kind)).all() as entries:
        return dict(entries)
