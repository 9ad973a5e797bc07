"""Derives a music interest, a genre and an artist, from each purchased track and its album.

Ported from: FkJoinTableToTable.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Nothing. Schemas are in the program; Java has classes generated from them.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder, avro_record

AVRO = "io.confluent.developer.avro"

id_serde = Serdes.avro("long")
album_serde = Serdes.avro(
    avro_record(f"{AVRO}.Album", id="long", title="string", genre="string", artist="string")
)
purchase_serde = Serdes.avro(
    avro_record(f"{AVRO}.TrackPurchase", id="long", song_title="string", album_id="long", price="double")
)
interest_serde = Serdes.avro(
    avro_record(f"{AVRO}.MusicInterest", id="string", genre="string", artist="string")
)


def music_interest(purchase: Column, album: Column) -> Column:
    """What a purchase says about the buyer's taste."""
    return F.struct(F.concat_ws("-", album.id, purchase.id).alias("id"), album.genre, album.artist)


builder = StreamsBuilder()
albums = builder.table("albums", Consumed.with_(id_serde, album_serde))
purchases = builder.table("purchases", Consumed.with_(id_serde, purchase_serde))
interests = purchases.join(albums, lambda purchase: purchase.album_id, music_interest)
interests.to_stream().to("music-interest", Produced.with_(id_serde, interest_serde))
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "fk-joining-app",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
