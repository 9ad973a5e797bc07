"""Averages each device's temperatures over half a second, by the device's own clock.

Ported from: SlidingWindow.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Nothing; it is shorter: Spark has an average and a rounding, so no class holds a count and a
    sum. The timestamp extractor is a lambda, given with the source; the original's is a class that the
    configuration names.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, SlidingWindows, StreamsBuilder

reading_serde = Serdes.avro(
    {
        "type": "record",
        "name": "TemperatureReading",
        "namespace": "io.confluent.developer.avro",
        "fields": [
            {"name": "temp", "type": "double"},
            {"name": "timestamp", "type": "long"},
            {"name": "device_id", "type": "string"},
        ],
    }
)

builder = StreamsBuilder()
readings = Consumed.with_(Serdes.string(), reading_serde)
half_a_second, grace = timedelta(milliseconds=500), timedelta(milliseconds=100)
(
    builder.stream("temp-readings", readings.with_timestamp_extractor(lambda reading: reading.timestamp))
    .group_by_key()
    .windowed_by(SlidingWindows.of_time_difference_and_grace(half_a_second, grace))
    .aggregate(lambda reading: F.avg(reading.temp))
    .to_stream()
    .map(lambda key, average: (key.key, F.round(average, 2)))
    .to("output-topic", Produced.with_(Serdes.string(), Serdes.double()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "sliding-windows",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
