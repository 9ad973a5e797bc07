"""Tells which users clicked three times or more within a minute.

Ported from: AnomalyDetectionLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: A windowed key is a struct of Columns, so its text, `[alice@0/60000]`, is put together by hand.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder, TimeWindows

builder = StreamsBuilder()
anomalous_users = (
    builder.stream("UserClicks", Consumed.with_(Serdes.string(), Serdes.string()))
    .map(lambda ignored_key, user: (user, user))
    .group_by_key()
    .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=1)))
    .count()
    .filter(lambda user, clicks: clicks >= 3)
)


def as_text(windowed):
    start, end = F.unix_millis(windowed.window.start), F.unix_millis(windowed.window.end)
    return F.format_string("[%s@%d/%d]", windowed.key, start, end)


(
    anomalous_users.to_stream()
    .filter(lambda user, clicks: clicks.isNotNull())
    .map(lambda user, clicks: (as_text(user), clicks))
    .to("AnomalousUsers", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "anomaly-detection-lambda-example", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
