"""Adds up the orders that each customer has paid."""

from pyspark.sql import functions as F

from millstream import Consumed, Materialized, Serdes, StreamsBuilder

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
