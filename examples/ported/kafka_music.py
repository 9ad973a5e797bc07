"""Keeps charts of the songs that are played most: the top five of each genre, and of all.

Ported from: KafkaMusicExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: The charts are lists of Avro values with Kafka's own `ListSerde`, in place of a class with its
    own serde, and `add` and `remove` return new lists. The original serves the charts over HTTP; this
    prints those of the genres. With `query.server.enabled` the stores can be read over HTTP too, under
    Millstream's own paths.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Grouped,
    Joined,
    KafkaStreams,
    Materialized,
    QueryableStoreTypes,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
    avro_record,
)

AVRO = "io.confluent.examples.streams.avro"
MIN_CHARTABLE_DURATION = 30_000


play_event_serde = Serdes.avro(avro_record(f"{AVRO}.PlayEvent", song_id="long", duration="long"))
song_serde = Serdes.avro(
    avro_record(f"{AVRO}.Song", id="long", album="string", artist="string", name="string", genre="string")
)
play_count_serde = Serdes.avro(avro_record(f"{AVRO}.SongPlayCount", song_id="long", plays="long"))


def add(key, song, top_five):
    others = [each for each in top_five if each["song_id"] != song["song_id"]]
    return sorted([*others, song], key=lambda each: (-each["plays"], each["song_id"]))[:5]


def remove(key, song, top_five):
    return [each for each in top_five if each != song]


def as_(store, key_serde, value_serde):
    return Materialized.as_(store).with_key_serde(key_serde).with_value_serde(value_serde)


builder = StreamsBuilder()
songs = builder.table("song-feed", as_("all-songs", Serdes.long(), song_serde))
song_play_counts = (
    builder.stream("play-events", Consumed.with_(Serdes.string(), play_event_serde))
    .filter(lambda event: event.duration >= MIN_CHARTABLE_DURATION)
    .map(lambda region, event: (event.song_id, event))
    .left_join(songs, lambda event, song: song, Joined.with_(Serdes.long(), play_event_serde, song_serde))
    .group_by(lambda song_id, song: song, Grouped.with_(song_serde, song_serde))
    .count(as_("song-play-count", song_serde, Serdes.long()))
)


def chart(group, store):
    """Five songs for each group."""
    song_play_counts.group_by(
        lambda song, plays: (group(song), F.struct(song.id.alias("song_id"), plays.alias("plays"))),
        Grouped.with_(Serdes.string(), play_count_serde),
    ).aggregate(list, add, remove, as_(store, Serdes.string(), Serdes.list(play_count_serde)))


chart(lambda song: F.lower(song.genre), "top-five-songs-by-genre")
chart(lambda song: F.lit("all"), "top-five-songs")
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "kafka-music-charts",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        charts = streams.store(
            StoreQueryParameters.from_name_and_type(
                "top-five-songs-by-genre", QueryableStoreTypes.key_value_store()
            )
        )
        while streams.wait(timedelta(seconds=10)) is KafkaStreams.State.RUNNING:  # Ctrl-C ends it
            with charts.all() as all_charts:
                for genre, top_five in all_charts:
                    print(genre, top_five)
