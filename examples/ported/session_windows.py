"""Counts what each user played in a session, which ends when nothing was played for half an hour.

Ported from: SessionWindowsExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: A window's times are timestamps, and `F.unix_millis` turns them into the original's numbers.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    StreamsBuilder,
)

PLAY_EVENT = {
    "type": "record",
    "name": "io.confluent.examples.streams.avro.PlayEvent",
    "fields": [{"name": "song_id", "type": "long"}, {"name": "duration", "type": "long"}],
}


def as_text(windowed):
    start, end = F.unix_millis(windowed.window.start), F.unix_millis(windowed.window.end)
    return F.format_string("%s@%d->%d", windowed.key, start, end)


builder = StreamsBuilder()
(
    builder.stream("play-events", Consumed.with_(Serdes.string(), Serdes.avro(PLAY_EVENT)))
    .group_by_key()
    .windowed_by(
        SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=30), timedelta(milliseconds=100))
    )
    .count(Materialized.as_("play-events-per-session"))
    .to_stream()
    .map(lambda user, plays: (as_text(user), plays))
    .to("play-events-per-session", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "session-windows-example",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
        "statestore.cache.max.bytes": 0,  # so that each merge of sessions is seen
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
