"""Derives a music interest, a genre and an artist, from each purchased track and its album.

Ported from: FkJoinTableToTable.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Nothing. Schemas are in the program, where Java has classes that are generated from them.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder


def schema(name: str, **fields: str) -> dict[str, object]:
    """An Avro record with these fields."""
    return {
        "type": "record",
        "name": name,
        "namespace": "io.confluent.developer.avro",
        "fields": [{"name": field, "type": type} for field, type in fields.items()],
    }


ID = Serdes.avro("long")
ALBUM = Serdes.avro(schema("Album", id="long", title="string", genre="string", artist="string"))
TRACK_PURCHASE = Serdes.avro(
    schema("TrackPurchase", id="long", song_title="string", album_id="long", price="double")
)
MUSIC_INTEREST = Serdes.avro(schema("MusicInterest", id="string", genre="string", artist="string"))


def music_interest(purchase: Column, album: Column) -> Column:
    """What a purchase says about the buyer's taste."""
    return F.struct(F.concat_ws("-", album.id, purchase.id).alias("id"), album.genre, album.artist)


builder = StreamsBuilder()
albums = builder.table("albums", Consumed.with_(ID, ALBUM))
purchases = builder.table("purchases", Consumed.with_(ID, TRACK_PURCHASE))
interests = purchases.join(albums, lambda purchase: purchase.album_id, music_interest)
interests.to_stream().to("music-interest", Produced.with_(ID, MUSIC_INTEREST))
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "fk-joining-app",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
