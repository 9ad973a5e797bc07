"""Counts the words of lines of text.

Ported from: WordCountLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Spark's `split` keeps an empty word at the end of "Hello!", which Java's leaves out; so the
    pattern matches words instead of what is between them. Its flag is `(?U)`, in the pattern itself; without
    it, only ASCII letters are letters.
"""

from pyspark.sql import functions as F

from millstream import Consumed, Grouped, KafkaStreams, Produced, Serdes, StreamsBuilder

# As with Java's `split`, there is an empty word before punctuation that begins a line, and in an empty line.
WORDS = r"(?U)\w+|^(?=\W+\w|\z)"

builder = StreamsBuilder()
(
    builder.stream("streams-plaintext-input", Consumed.with_(Serdes.string(), Serdes.string()))
    .flat_map_values(lambda line: F.regexp_extract_all(F.lower(line), F.lit(WORDS), 0))
    .group_by(lambda key, word: word, Grouped.with_(Serdes.string(), Serdes.string()))
    .count()
    .to_stream()
    .to("streams-wordcount-output", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "wordcount-lambda-example",
        "bootstrap.servers": "localhost:9092",
        "statestore.cache.max.bytes": 0,  # so that each update is seen
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
