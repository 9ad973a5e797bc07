"""Passes on sport events that have a ball; all others become dead letters.

Ported from: KafkaStreamsDLQApplication.java of confluentinc/tutorials (which names no licence)
What it cost: Where the original throws, this calls `F.raise_error`. Jackson also rejects an event with an
    unknown field, which `F.from_json` ignores. A function of Columns cannot log, so the log
    lines are left out.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

SPORT_EVENT = """
    sport STRING,
    ball STRUCT<shape: STRING, dimensions: STRUCT<diameter: STRING, weight: STRING>>,
    details MAP<STRING, STRING>
"""


def checked(value: Column) -> Column:
    """The event's text as it came, or an error."""
    event = F.from_json(value, SPORT_EVENT, {"mode": "FAILFAST"})
    missing = F.raise_error(F.lit("an event without a ball"))
    return F.when(event.ball.isNotNull(), value).otherwise(missing)


builder = StreamsBuilder()
(
    builder.stream("input", Consumed.with_(Serdes.string(), Serdes.string()))
    .map_values(checked)
    .to("output", Produced.with_(Serdes.string(), Serdes.string()))
)
topology = builder.build()
config = {
    "errors.dead.letter.queue.topic.name": "dlq-topic",
    "processing.exception.handler": "continue",
}

if __name__ == "__main__":
    config |= {"application.id": "kafka-streams-dlq-demo", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
