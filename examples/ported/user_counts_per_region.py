"""Counts the users of each region, who can move, and reports the regions with two or more.

Ported from: UserRegionLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Nothing: it is word for word.
"""

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
(
    builder.table("UserRegions", Consumed.with_(Serdes.string(), Serdes.string()))
    .group_by(lambda user, region: (region, region))
    .count()
    .filter(lambda region, users: users >= 2)
    .to_stream()
    .filter(lambda region, users: users.isNotNull())
    .to("LargeRegions", Produced.with_(Serdes.string(), Serdes.long()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "user-region-lambda-example", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
