"""Adds the customer and the product to each order, from two global tables.

Ported from: GlobalKTablesExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Nothing. The class that the original has for the result of the first join is a struct.
"""

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, avro_record

AVRO = "io.confluent.examples.streams.avro"
ORDER = avro_record(f"{AVRO}.Order", customer_id="long", product_id="long", time_order_placed_at="long")
CUSTOMER = avro_record(f"{AVRO}.Customer", name="string", gender="string", region="string")
PRODUCT = avro_record(f"{AVRO}.Product", name="string", description="string", supplier_name="string")
ENRICHED_ORDER = avro_record(f"{AVRO}.EnrichedOrder", product=PRODUCT, customer=CUSTOMER, order=ORDER)

builder = StreamsBuilder()
orders = builder.stream("order", Consumed.with_(Serdes.long(), Serdes.avro(ORDER)))
customers = builder.global_table(
    "customer",
    Consumed.with_(Serdes.long(), Serdes.avro(CUSTOMER)),
    Materialized.as_("customer-store"),
)
products = builder.global_table(
    "product",
    Consumed.with_(Serdes.long(), Serdes.avro(PRODUCT)),
    Materialized.as_("product-store"),
)
(
    orders.join(
        customers,
        lambda order_id, order: order.customer_id,
        lambda order, customer: F.struct(customer.alias("customer"), order.alias("order")),
    )
    .join(
        products,
        lambda order_id, both: both.order.product_id,
        lambda both, product: F.struct(product.alias("product"), both.customer, both.order),
    )
    .to("enriched-order", Produced.with_(Serdes.long(), Serdes.avro(ENRICHED_ORDER)))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "global-tables-example",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
