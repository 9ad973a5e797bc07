"""Adds up the odd numbers of a stream.

Ported from: SumLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Spark's sum of integers is a long, so it is cast back. A sum that is too large for an integer
    ends the program; Java's overflows, and the program continues with a negative number.
"""

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
(
    builder.stream("numbers-topic", Consumed.with_(Serdes.integer(), Serdes.integer()))
    .filter(lambda number: number % 2 != 0)
    .select_key(lambda number: F.lit(1))
    .group_by_key()
    .reduce(lambda number: F.sum(number).cast("int"))
    .to_stream()
    .to("sum-of-odd-numbers-topic", Produced.with_(Serdes.integer(), Serdes.integer()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "sum-lambda-example", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
