"""Adds the customer and the product to each order, from two global stores.

Ported from: GlobalStoresExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Nothing: each processor is a function of a few lines.
"""

from millstream import (
    Consumed,
    KafkaStreams,
    Produced,
    Serdes,
    Stores,
    StreamsBuilder,
    avro_record,
    processor,
)

AVRO = "io.confluent.examples.streams.avro"
ORDER = avro_record(f"{AVRO}.Order", customer_id="long", product_id="long", time_order_placed_at="long")
CUSTOMER = avro_record(f"{AVRO}.Customer", name="string", gender="string", region="string")
PRODUCT = avro_record(f"{AVRO}.Product", name="string", description="string", supplier_name="string")
ENRICHED_ORDER = avro_record(f"{AVRO}.EnrichedOrder", product=PRODUCT, customer=CUSTOMER, order=ORDER)

builder = StreamsBuilder()


def add_global_store(name, topic, serde):
    @processor(store=name)
    def keep(record, store):
        store.put(record.key, record.value)

    builder.add_global_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store(name), Serdes.long(), serde),
        topic,
        Consumed.with_(Serdes.long(), serde),
        keep,
    )


@processor(stores=["customer-store", "product-store"])
def enrich(record, customers, products):
    order = record.value
    customer = customers.get(order["customer_id"])
    product = products.get(order["product_id"])
    yield record.with_value({"product": product, "customer": customer, "order": order})


add_global_store("customer-store", "customer", Serdes.avro(CUSTOMER))
add_global_store("product-store", "product", Serdes.avro(PRODUCT))
(
    builder.stream("order", Consumed.with_(Serdes.long(), Serdes.avro(ORDER)))
    .process_values(enrich)
    .to("enriched-order", Produced.with_(Serdes.long(), Serdes.avro(ENRICHED_ORDER)))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "global-stores-example",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
