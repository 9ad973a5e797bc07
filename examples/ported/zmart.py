"""Masks card numbers in a shop's purchases, reports where things are bought, gives rewards, and splits
departments.

Ported from: ZMartKafkaStreamsFilteringBranchingApp.java
    of bbejeck/KafkaStreamsInAction2ndEdition (Apache License 2.0)
What it cost: JSON takes the place of Protobuf, whose schemas would be in a registry or in generated
    classes beside this file; two fields that the original never sets are left out. The mappers are Columns:
    `F.transform` and `F.aggregate` go over the items in place of Java's streams.
"""

from pyspark.sql import functions as F

from millstream import Branched, Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

purchase_serde = Serdes.json(
    """department string, customerId string, creditCardNumber string, employeeId string,
    purchaseDate bigint, zipCode string, storeId string, purchasedItems array<struct<
        item string, quantity int, price double, purchaseDate bigint, customerId string>>"""
)
pattern_serde = Serdes.json("item string, date bigint, amount double")
reward_serde = Serdes.json("customerId string, purchaseTotal double, totalRewardPoints int")

purchase_produced = Produced.with_(Serdes.string(), purchase_serde)


def masked(purchase):
    last = F.substring_index(purchase.creditCardNumber, "-", -1)
    return purchase.withField("creditCardNumber", F.concat(F.lit("xxxx-xxxx-xxxx-"), last))


def pattern(item):
    return F.struct(item.item, item.purchaseDate.alias("date"), item.price.alias("amount"))


def total(purchase):
    return F.aggregate(
        purchase.purchasedItems, F.lit(0.0), lambda total, item: total + item.quantity * item.price
    )


def reward(purchase):
    return F.struct(
        purchase.purchasedItems[0].customerId.alias("customerId"),
        total(purchase).alias("purchaseTotal"),
        (total(purchase).cast("int") * 4).alias("totalRewardPoints"),
    )


def branch_to(topic):
    return Branched.with_consumer(
        lambda branch: branch.peek(
            lambda key, purchase: print(
                f"{purchase['department']}: {len(purchase['purchasedItems'])} items bought"
            )
        ).to(topic, purchase_produced)
    )


builder = StreamsBuilder()
purchases = builder.stream("transactions", Consumed.with_(Serdes.string(), purchase_serde)).map_values(masked)

(
    purchases.flat_map(
        lambda key, purchase: F.transform(
            purchase.purchasedItems, lambda item: F.struct(purchase.zipCode, item)
        )
    )
    .map_values(pattern)
    .to("patterns", Produced.with_(Serdes.string(), pattern_serde))
)
(
    purchases.filter(lambda purchase: total(purchase) > 10)
    .map_values(reward)
    .peek(lambda key, reward: print(f"A reward for buying for {reward['purchaseTotal']}"))
    .to("rewards", Produced.with_(Serdes.string(), reward_serde))
)
(
    purchases.split()
    .branch(lambda purchase: F.lower(purchase.department) == "coffee", branch_to("coffee-topic"))
    .branch(lambda purchase: F.lower(purchase.department) == "electronics", branch_to("electronics-topic"))
    .default_branch(branch_to("purchases"))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "FirstZmart-Kafka-Streams-App-Branching-Filtering",
        "bootstrap.servers": "localhost:9092",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
