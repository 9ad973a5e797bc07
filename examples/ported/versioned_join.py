"""Completes each phrase of a stream with what the table held at the time of the phrase.

Ported from: VersionedKTableExample.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Nothing. `with_history` makes a store versioned; `Stores.persistent_versioned_key_value_store`
    is available too.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

strings = Consumed.with_(Serdes.string(), Serdes.string())

builder = StreamsBuilder()
stream = builder.stream("stream-input-topic", strings)
versioned = Materialized.as_("versioned-ktable-store").with_history(timedelta(minutes=10))
table = builder.table("table-input-topic", strings, versioned)
(
    stream.join(table, lambda left, right: F.concat_ws(" ", left, right))
    .peek(lambda key, value: print(f"{key}: {value}"))
    .to("output-topic", Produced.with_(Serdes.string(), Serdes.string()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "versioned-ktables", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
