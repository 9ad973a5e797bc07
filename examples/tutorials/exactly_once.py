"""Writes a receipt for each payment, exactly once, and counts the receipts of each customer."""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

payment = Serdes.json("customer string, amount double")
receipt = Serdes.json("customer string, amount double, text string")

builder = StreamsBuilder()
payments = builder.stream("payments", Consumed.with_(Serdes.string(), payment))
receipts = payments.map_values(
    lambda key, payment: F.struct(
        payment.customer,
        payment.amount,
        F.format_string("payment %s: %.2f", key, payment.amount).alias("text"),
    )
)
receipts.to("receipts", Produced.with_(Serdes.string(), receipt))
receipts.group_by(lambda key, receipt: receipt.customer).count(Materialized.as_("receipts-per-customer"))
topology = builder.build()

config = {
    "application.id": "receipts",
    "bootstrap.servers": "localhost:9092",
    "processing.guarantee": "exactly_once_v2",
}

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        store = streams.store("receipts-per-customer")
        while streams.wait(timedelta(seconds=1)) is KafkaStreams.State.RUNNING:
            print(dict(store.all()), flush=True)
