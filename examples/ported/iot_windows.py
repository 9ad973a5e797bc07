"""Sums up the readings of heat sensors by the minute, and says in the value which minute it was.

Ported from: IotStreamingAggregationMapWindowTimeTumblingWindows.java
    of bbejeck/KafkaStreamsInAction2ndEdition (Apache License 2.0)
What it cost: The aggregator is one Spark expression for each field; a window's times are timestamps, and
    `F.unix_millis` turns them into the original's numbers. `peek` runs in Spark's workers, and prints where
    the original logs.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, TimeWindows

THRESHOLD = 115.0

aggregation_serde = Serdes.json(
    """highestSeen double, temperatureSum double, numberReadings bigint, tempThresholdExceededCount bigint,
    readingThreshold double, averageReading double"""
)
output_serde = Serdes.json(
    """highestSeen double, temperatureSum double, numberReadings bigint, tempThresholdExceededCount bigint,
    readingThreshold double, averageReading double, windowStart bigint, windowEnd bigint"""
)


def aggregate(reading):
    return {
        "highestSeen": F.greatest(F.max(reading), F.lit(0.0)),
        "temperatureSum": F.sum(reading),
        "numberReadings": F.count("*"),
        "tempThresholdExceededCount": F.count_if(reading >= THRESHOLD),
        "readingThreshold": F.lit(THRESHOLD),
        "averageReading": F.avg(reading),
    }


def with_window(key, aggregation):
    start, end = F.unix_millis(key.window.start), F.unix_millis(key.window.end)
    return key.key, aggregation.withField("windowStart", start).withField("windowEnd", end)


builder = StreamsBuilder()
(
    builder.stream("heat-sensor-input", Consumed.with_(Serdes.string(), Serdes.double()))
    .peek(lambda sensor, reading: print(f"{sensor} reads {reading}"))
    .group_by_key()
    .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1)))
    .aggregate(aggregate, Materialized.with_(Serdes.string(), aggregation_serde))
    .to_stream()
    .map(with_window)
    .peek(lambda sensor, aggregation: print(f"{sensor} by the minute: {aggregation}"))
    .to("sensor-agg-output-tumbling", Produced.with_(Serdes.string(), output_serde))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "iot-streaming-aggregation-map-window-tumbling-windows",
        "bootstrap.servers": "localhost:9092",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
