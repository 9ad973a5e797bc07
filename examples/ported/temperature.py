"""Reports the highest temperature of every five seconds, at each reading, if it is above a threshold.

Ported from: TemperatureDemo.java of apache/kafka (Apache License 2.0)
What it cost: `reduce` takes Spark's `F.max_by` in place of a function that compares two values. A
    constant key needs `F.lit`. The rest is word for word; the serde of the windowed keys need not be given.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import KafkaStreams, StreamsBuilder, TimeWindows

THRESHOLD = 20
WINDOWS = TimeWindows.of_size_and_grace(timedelta(seconds=5), timedelta(hours=24))

builder = StreamsBuilder()
(
    builder.stream("iot-temperature")
    .select_key(lambda value: F.lit("temp"))  # the readings have no key
    .group_by_key()
    .windowed_by(WINDOWS)
    .reduce(lambda value: F.max_by(value, value.cast("int")))
    .to_stream()
    .filter(lambda value: value.cast("int") > THRESHOLD)
    .to("iot-temperature-max")
)
topology = builder.build()
config = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}

if __name__ == "__main__":
    config |= {"application.id": "streams-temperature", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
