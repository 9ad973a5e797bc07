from datetime import timedelta

from pyspark.sql import functions as F

import millstream
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder

order = Serdes.json("customer string, amount double, paid boolean")

builder = StreamsBuilder()
totals = (
    builder.stream("orders", Consumed.with_(Serdes.string(), order))
    .filter(lambda key, order: order.paid & (order.amount > 0))
    .group_by(lambda key, order: order.customer)
    .aggregate(
        lambda customer, order: {"orders": F.count("*"), "amount": F.sum(order.amount)},
        Materialized.as_("totals"),
    )
)
totals.to_stream().to("customer-totals")
topology = builder.build()

if __name__ == "__main__":
    millstream.logging()  # what happens, on standard error
    config = {"application.id": "orders", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        store = streams.store("totals")
        while streams.wait(timedelta(seconds=2)) is KafkaStreams.State.RUNNING:  # Ctrl-C ends it
            for customer, total in store.all():  # or store.get("ann"), .range("a", "c"), .to_pandas()
                print(customer, total["orders"], total["amount"])
