"""Adds up the scores of each player of a poker game.

Ported from: StreamsPokerGameReducer.java
    of bbejeck/KafkaStreamsInAction2ndEdition (Apache License 2.0)
What it cost: `reduce` takes Spark's `F.sum` in place of `Double::sum`. `peek` runs in Spark's
    workers, and prints where the original logs.
"""

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("poker-game", Consumed.with_(Serdes.string(), Serdes.double()))
    .group_by_key()
    .reduce(lambda score: F.sum(score), Materialized.with_(Serdes.string(), Serdes.double()))
    .to_stream()
    .peek(lambda player, score: print(f"{player}: {score}"))
    .to("total-scores", Produced.with_(Serdes.string(), Serdes.double()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "streams-poker-game-reducer", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
