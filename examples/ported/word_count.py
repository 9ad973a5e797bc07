"""Counts the words of lines of text.

Ported from: WordCountLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: The pattern's flag is `(?U)` in its text; without it, letters that are not ASCII are no letters.
    Java's `split` leaves out empty words at the end, which are cut off here before. A line of punctuation
    alone still counts one empty word here, and none in Java.
"""

from pyspark.sql import functions as F

from millstream import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("streams-plaintext-input", Consumed.with_(Serdes.string(), Serdes.string()))
    .flat_map_values(lambda line: F.split(F.regexp_replace(F.lower(line), r"(?U)\W+$", ""), r"(?U)\W+"))
    .group_by(lambda key, word: word, Grouped.with_(Serdes.string(), Serdes.string()))
    .count()
    .to_stream()
    .to("streams-wordcount-output", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "wordcount-lambda-example", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
