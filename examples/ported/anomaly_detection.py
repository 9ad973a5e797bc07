"""Reports the users who clicked three times or more in the same minute.

Ported from: AnomalyDetectionLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Nothing. `windowed_text` is the `toString()` of a windowed key.
"""

from datetime import timedelta

from millstream import (
    Consumed,
    KafkaStreams,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    windowed_text,
)

builder = StreamsBuilder()
anomalous_users = (
    builder.stream("UserClicks", Consumed.with_(Serdes.string(), Serdes.string()))
    .map(lambda ignored_key, user: (user, user))
    .group_by_key()
    .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1)))
    .count()
    .filter(lambda user, clicks: clicks >= 3)
)

(
    anomalous_users.to_stream()
    .filter(lambda user, clicks: clicks.isNotNull())
    .map(lambda user, clicks: (windowed_text(user), clicks))
    .to("AnomalousUsers", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "anomaly-detection-lambda-example", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
