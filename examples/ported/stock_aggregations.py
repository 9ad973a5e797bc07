"""Adds up what is bought and sold of each share, and keeps its highest and its lowest price.

Ported from: StreamsStockTransactionAggregations.java
    of bbejeck/KafkaStreamsInAction2ndEdition (Apache License 2.0)
What it cost: The aggregator, thirty lines that change a builder, is one Spark expression for each field. If
    the first price is 0, it stays the lowest; the original takes it to mean that there is no price yet. JSON
    takes the place of Protobuf, whose schemas would be in a registry or in generated classes beside this
    file. `peek` runs in Spark's workers, and prints where the original logs.
"""

from pyspark.sql import functions as F

from millstream import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

transaction_serde = Serdes.json(
    "symbol string, share_price double, number_shares int, isPurchase boolean, timestamp bigint"
)
aggregate_serde = Serdes.json(
    """symbol string, sales_share_volume bigint, purchase_share_volume bigint, sales_dollar_amount double,
    purchase_dollar_amount double, highest_price double, lowest_price double"""
)


def aggregate(symbol, transaction):
    shares = transaction.number_shares
    dollars = shares * transaction.share_price
    return {
        "symbol": symbol,
        "sales_share_volume": F.sum(F.when(transaction.isPurchase, 0).otherwise(shares)),
        "purchase_share_volume": F.sum(F.when(transaction.isPurchase, shares).otherwise(0)),
        "sales_dollar_amount": F.sum(F.when(transaction.isPurchase, 0.0).otherwise(dollars)),
        "purchase_dollar_amount": F.sum(F.when(transaction.isPurchase, dollars).otherwise(0.0)),
        "highest_price": F.max(transaction.share_price),
        "lowest_price": F.min(transaction.share_price),
    }


builder = StreamsBuilder()
(
    builder.stream("stock-transactions", Consumed.with_(Serdes.string(), transaction_serde))
    .group_by(lambda key, transaction: transaction.symbol, Grouped.with_(Serdes.string(), transaction_serde))
    .aggregate(aggregate, Materialized.with_(Serdes.string(), aggregate_serde))
    .to_stream()
    .peek(lambda symbol, aggregate: print(f"{symbol}: {aggregate}"))
    .to("stock-aggregations", Produced.with_(Serdes.string(), aggregate_serde))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "streams-stock-transaction-aggregations",
        "bootstrap.servers": "localhost:9092",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
