"""Averages the ratings of each movie, in a table that can be queried.

Ported from: RunningAverage.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Nothing; it is shorter: Spark has an average, so no class holds a count and a sum, no later step
    divides, and there is one store instead of two.
"""

from pyspark.sql import functions as F

from millstream import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

rating_serde = Serdes.avro(
    {
        "type": "record",
        "name": "Rating",
        "namespace": "io.confluent.demo",
        "fields": [{"name": "movie_id", "type": "long"}, {"name": "rating", "type": "double"}],
    }
)

builder = StreamsBuilder()
(
    builder.stream("ratings", Consumed.with_(Serdes.long(), rating_serde))
    .map(lambda key, rating: (rating.movie_id, rating.rating))
    .group_by_key(Grouped.with_(Serdes.long(), Serdes.double()))
    .aggregate(lambda rating: F.avg(rating), Materialized.as_("average-ratings"))
    .to_stream()
    .to("rating-averages", Produced.with_(Serdes.long(), Serdes.double()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "kafka-films",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
        "statestore.cache.max.bytes": 0,  # so that each update is seen
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
