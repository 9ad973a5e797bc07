"""Checks orders for stock and for customers who order too much, and writes each order's new state.

Ported from: InventoryService.java of confluentinc/kafka-streams-examples (Apache License 2.0), with
    FraudService.java and ValidationsAggregatorService.java of the same: three applications are one here.
    The third rule that an order must pass, ORDER_DETAILS_CHECK, is left out: OrderDetailsService.java, which
    writes it, is a plain consumer and producer.
What it cost: A processor with a store is a function here, the sum of a customer's session a Spark expression,
    and the pair that Java's join makes for its processor a struct. The order in which two branches write to
    one topic is not guaranteed: it is that of Kafka Streams with the fraud check before the processor, but
    not the other way round.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import (
    Branched,
    Consumed,
    Grouped,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    SessionWindows,
    Stores,
    StreamJoined,
    StreamsBuilder,
    avro_record,
    processor,
)

FRAUD_LIMIT = 2000
NUMBER_OF_RULES = 3
AVRO = "io.confluent.examples.streams.avro.microservices"


def enum(name, *symbols):
    return {"type": "enum", "name": name, "symbols": symbols}


ORDER = avro_record(
    f"{AVRO}.Order",
    id="string",
    customerId="long",
    state=enum("OrderState", "CREATED", "VALIDATED", "FAILED", "SHIPPED"),
    product=enum("Product", "JUMPERS", "UNDERPANTS", "STOCKINGS"),
    quantity="int",
    price="double",
)
order_serde = Serdes.avro(ORDER)
order_value_serde = Serdes.avro(avro_record(f"{AVRO}.OrderValue", order=ORDER, value="double"))
validation_serde = Serdes.avro(
    avro_record(
        f"{AVRO}.OrderValidation",
        orderId="string",
        checkType=enum("OrderValidationType", "INVENTORY_CHECK", "FRAUD_CHECK", "ORDER_DETAILS_CHECK"),
        validationResult=enum("OrderValidationResult", "PASS", "FAIL", "ERROR"),
    )
)
orders_produced = Produced.with_(Serdes.string(), order_serde)
validations_produced = Produced.with_(Serdes.string(), validation_serde)

builder = StreamsBuilder()
orders = builder.stream("orders", Consumed.with_(Serdes.string(), order_serde)).filter(
    lambda order: order.state == "CREATED"
)
validations = builder.stream("order-validations", Consumed.with_(Serdes.string(), validation_serde))

# Has a customer ordered too much, without an hour in between?


def fraud_check(result):
    return lambda total: F.struct(
        total.order.id.alias("orderId"),
        F.lit("FRAUD_CHECK").alias("checkType"),
        F.lit(result).alias("validationResult"),
    )


limit = (
    orders.group_by(lambda key, order: order.customerId, Grouped.with_(Serdes.long(), order_serde))
    .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(hours=1)))
    .aggregate(
        lambda order: {"order": F.last(order), "value": F.sum(order.quantity * order.price)},
        Materialized.with_(Serdes.long(), order_value_serde),
    )
    .to_stream(lambda windowed, total: windowed.key)
    .filter(lambda total: total.isNotNull())
    .select_key(lambda total: total.order.id)
    .split(named="limit-")
    .branch(lambda total: total.value >= FRAUD_LIMIT, Branched.as_("above"))
    .branch(lambda total: total.value < FRAUD_LIMIT, Branched.as_("below"))
    .no_default_branch()
)
limit["limit-above"].map_values(fraud_check("FAIL")).to("order-validations", validations_produced)
limit["limit-below"].map_values(fraud_check("PASS")).to("order-validations", validations_produced)

# Is there stock that is not reserved for earlier orders?

warehouse = builder.table("warehouse-inventory", Consumed.with_(Serdes.string(), Serdes.integer()))


@processor(
    store=Stores.key_value_store_builder(
        Stores.persistent_key_value_store("store-of-reserved-stock"), Serdes.string(), Serdes.long()
    )
)
def validate_inventory(record, reserved_stock):
    order, stock = record.value["order"], record.value["stock"]
    reserved = reserved_stock.get(record.key) or 0
    enough = stock - reserved - order["quantity"] >= 0
    if enough:
        reserved_stock.put(record.key, reserved + order["quantity"])
    validation = {
        "orderId": order["id"],
        "checkType": "INVENTORY_CHECK",
        "validationResult": "PASS" if enough else "FAIL",
    }
    yield record.with_key(order["id"]).with_value(validation)


(
    orders.select_key(lambda order: order.product)
    .join(
        warehouse,
        lambda order, stock: F.struct(order.alias("order"), stock.alias("stock")),
        Joined.with_(Serdes.string(), order_serde, Serdes.integer()),
    )
    .process(validate_inventory)
    .to("order-validations", validations_produced)
)

# An order that passes all rules is validated; one that fails any rule has failed.

near = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=5))
(
    validations.group_by_key(Grouped.with_(Serdes.string(), validation_serde))
    .windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5)))
    .aggregate(
        lambda: 0,
        lambda key, validation, total: total + (validation["validationResult"] == "PASS"),
        lambda key, total, other: other,  # as in the original: sessions that merge are not added up
        Materialized.with_(Serdes.string(), Serdes.long()),
    )
    .to_stream(lambda windowed, total: windowed.key)
    .filter(lambda total: total.isNotNull())
    .filter(lambda total: total >= NUMBER_OF_RULES)
    .join(
        orders,
        lambda total, order: order.withField("state", F.lit("VALIDATED")),
        near,
        StreamJoined.with_(Serdes.string(), Serdes.long(), order_serde),
    )
    .to("orders", orders_produced)
)
(
    validations.filter(lambda validation: validation.validationResult == "FAIL")
    .join(
        orders,
        lambda validation, order: order.withField("state", F.lit("FAILED")),
        near,
        StreamJoined.with_(Serdes.string(), validation_serde, order_serde),
    )
    .group_by_key(Grouped.with_(Serdes.string(), order_serde))
    .reduce(lambda order: F.first(order))
    .to_stream()
    .to("orders", orders_produced)
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "order-validation",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
        "statestore.cache.max.bytes": 0,  # a validation of each order, and not of a customer's last one
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
