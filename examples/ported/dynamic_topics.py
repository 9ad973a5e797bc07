"""Completes orders, and writes those for a special article to a topic of their own.

Ported from: DynamicOutputTopic.java of confluentinc/kafka-tutorials (Apache License 2.0)
What it cost: Java's `substring` takes a start and an end, `F.substr` a start and a length. As in the
    original, the end is the fifth character of the whole id, so an order with a two-digit number is never
    special. An id that ends before its fifth character, or has its dash after it, makes the original fail
    with an exception; here `F.substr` returns what there is.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder, avro_record

AVRO = "io.confluent.developer.avro"
FAKE_PRICE = 0.467423


order_serde = Serdes.avro(
    avro_record(f"{AVRO}.Order", id="long", sku="string", name="string", quantity="long")
)
completed_order_serde = Serdes.avro(
    avro_record(f"{AVRO}.CompletedOrder", id="string", name="string", amount="double")
)


def completed(order: Column) -> Column:
    """The order with its price."""
    return F.struct(
        F.concat_ws("-", order.id, order.sku).alias("id"),
        order["name"],
        (order.quantity * FAKE_PRICE).alias("amount"),
    )


def topic(order: Column) -> Column:
    """Where a completed order goes: its id is a number, a dash, and the article."""
    dash = F.instr(order.id, "-")
    article = F.substr(order.id, dash + 1, 5 - dash)
    return F.when(article == "QUA", "special-order").otherwise("regular-order")


builder = StreamsBuilder()
(
    builder.stream("input", Consumed.with_(Serdes.string(), order_serde))
    .map_values(completed)
    .to(topic, Produced.with_(Serdes.string(), completed_order_serde))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "dynamic-output-topic",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
