"""Collects what encrypted records say about each person, until the person asks to be forgotten.

Each person has a key, which arrives in a topic of its own; records wait in a store until it is there. A
tombstone in place of the key deletes the waiting records, and replaces everything collected so far.

Ported from: event_consumer.clj of dlebrero/kafka-gdpr-event-sourcing (which names no licence; it belongs to
    the article "Kafka, GDPR and Event Sourcing")
What it cost: The original reads both topics as one stream of values of any shape. Here the values of a stream
    have one type, so there are two streams, each with a processor, and the processors share the stores. What
    the original prints goes to a topic. EDN became JSON, and the stores have no cache.
"""

from collections.abc import Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import (
    Consumed,
    KafkaStreams,
    KeyValueStore,
    Materialized,
    ProcessorContext,
    Produced,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    processor,
)

TOMBSTONE = "forget-me!"
text_serde = Serdes.json("STRING")
item_serde = Serdes.json("val STRING, encryption_key STRING")
key_and_item_serde = Serdes.json("key STRING, item STRUCT<val: STRING, encryption_key: STRING>")

keys_store = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("encryption-keys-local"), Serdes.string(), text_serde
).with_logging_disabled()
waiting_store = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("waiting-for-encryption-keys-local"), Serdes.string(), item_serde
)


def place(person: str, partition: int, offset: int) -> str:
    """The key under which an item waits; the items of a person are adjacent and in order."""
    return f"{person}-{partition:04}-{offset:030}"


@processor(stores=[keys_store, waiting_store])
def on_key(record: Record, keys: KeyValueStore, waiting: KeyValueStore) -> Iterator[Record]:
    """A key releases the items that wait for it; a tombstone deletes them and is forwarded itself."""
    keys.put(record.key, record.value)
    first, last = place(record.key, 0, 0), place(record.key, 2**31 - 1, 2**31 - 1)
    with waiting.range(first, last) as items:
        for at, item in items:
            waiting.delete(at)
            if record.value != TOMBSTONE:
                yield record.with_value({"key": record.value, "item": item})
    if record.value == TOMBSTONE:
        yield record.with_value({"key": TOMBSTONE, "item": None})


@processor(stores=[keys_store, waiting_store])
def on_item(
    record: Record, keys: KeyValueStore, waiting: KeyValueStore, context: ProcessorContext
) -> Iterator[Record]:
    """An item is forwarded with its key, or waits for it."""
    if (key := keys.get(record.key)) is not None:
        yield record.with_value({"key": key, "item": record.value})
    else:
        metadata = context.record_metadata
        assert metadata is not None  # only punctuators have none
        waiting.put(place(record.key, metadata.partition, metadata.offset), record.value)


def decrypted(pair: Column) -> Column:
    """The item's text. As in the original, an item is 'encrypted' by having its key beside it."""
    return (
        F.when(pair.key == TOMBSTONE, pair.key)
        .when(pair.key == pair.item.encryption_key, pair.item.val)
        .otherwise(F.raise_error(F.lit("the encryption key does not match")))
    )


def together(known: str, new: str) -> str:
    """Everything known, unless the person is forgotten."""
    return TOMBSTONE if TOMBSTONE in (known, new) else f"{known},{new}"


builder = StreamsBuilder()
keys = builder.stream("encryption-keys", Consumed.with_(Serdes.string(), text_serde))
items = builder.stream("user-info.encrypted", Consumed.with_(Serdes.string(), item_serde))
(
    keys.process(on_key, value_serde=key_and_item_serde)
    .merge(items.process(on_item, value_serde=key_and_item_serde))
    .map_values(decrypted)
    .group_by_key()
    .reduce(together, Materialized.with_(Serdes.string(), text_serde))
    .to_stream()
    .to("user-info", Produced.with_(Serdes.string(), text_serde))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "example-consumer", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
