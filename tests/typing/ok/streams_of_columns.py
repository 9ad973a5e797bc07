"""Every form that functions of Columns have, in streams."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import (
    Branched,
    Consumed,
    JoinWindows,
    KStream,
    Materialized,
    Produced,
    RecordContext,
    Repartitioned,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    windowed_text,
)

order = Serdes.json("customer string, amount double, paid boolean, items array<string>")
builder = StreamsBuilder()
orders = builder.stream("orders", Consumed.with_(Serdes.string(), order))
users = builder.table("users", Consumed.with_(Serdes.string(), order))
cities = builder.global_table("cities")


def large(order: Column) -> Column:
    return order.amount > 100


def late(key: Column, order: Column, record: RecordContext) -> Column:
    return record.timestamp < F.current_timestamp()


def over(limit: float, order: Column) -> Column:
    return order.amount > limit


# one, two or three parameters; literals; defaults, as in a loop
orders.filter(lambda order: order.paid)
orders.filter(lambda key, order: order.paid & key.isNotNull())
orders.filter(lambda key, order, record: order.paid & (record.partition == 0))
orders.filter(lambda order: True)
orders.filter(large)
orders.filter_not(late)
orders.filter(partial(over, 10.0))
for limit in (1, 2):
    orders.filter(lambda order, limit=limit: order.amount > limit)

# values: Columns, and what becomes one
orders.map_values(lambda order: order.amount * 2)
orders.map_values(lambda order: {"amount": order.amount, "tags": [F.lit("a"), "b"], "note": "none", "n": 1})
orders.map_values(lambda order: [order.amount, F.lit(0.0)])
orders.map_values(lambda order: "paid")
orders.map_values(F.to_json)
orders.map(lambda key, order: (order.customer, order.amount))
orders.map(lambda order: (order.customer, {"amount": order.amount, "times": 1}))
orders.select_key(lambda order: order.customer)
orders.flat_map_values(lambda order: order.items)
orders.flat_map_values(lambda order: [order.customer, F.lower(order.customer)])
orders.flat_map(lambda key, order: [(key, order.amount), (order.customer, 1)])
orders.flat_map(lambda order: F.transform(order.items, lambda item: F.struct(item, item)))
orders.peek(lambda key, value: print(key, value))
orders.foreach(lambda table: print(table.num_rows))

# branches, topics, partitions
branches = orders.split().branch(large, Branched.as_("large")).branch(lambda key, order: order.paid)
rest: dict[str, KStream] = branches.default_branch(
    Branched.with_function(lambda stream: stream.filter(large))
)
orders.to("out")
orders.to(lambda key, order: F.concat(F.lit("of-"), order.customer))
orders.to("out", Produced.with_(Serdes.string(), order).with_stream_partitioner(lambda key: F.lit(0)))
orders.repartition(Repartitioned.as_("again").with_stream_partitioner(lambda key, order: F.hash(key) % 4))

# joins
orders.join(users, lambda order, user: {"order": order, "user": user})
orders.left_join(users, lambda key, order, user: F.coalesce(user.customer, key))
orders.join(cities, lambda key, order: order.customer, lambda order, city: city.title)
orders.outer_join(
    orders, lambda left, right: left, JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1))
)

# aggregates: Spark expressions, and folds in Python
grouped = orders.group_by(lambda order: order.customer)
grouped.count(Materialized.as_("counts"))
grouped.reduce(lambda order: F.max(order))
grouped.reduce(lambda aggregate, order: order if order["amount"] > aggregate["amount"] else aggregate)
grouped.aggregate(lambda key, order: {"n": F.count("*"), "sum": F.sum(order.amount)}, Materialized())
grouped.aggregate(lambda order: F.sum(order.amount), materialized=Materialized.as_("sum"))
grouped.aggregate(lambda: 0.0, lambda key, order, total: total + order["amount"], Materialized.as_("fold"))
grouped.aggregate(dict, lambda key, order, seen: {**seen, order["customer"]: 1})
grouped.windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=5))).count().to_stream(
    lambda key, count: windowed_text(key)
).to("counts")
grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5))).aggregate(
    lambda: 0, lambda key, order, total: total + 1, lambda key, one, other: one + other
)
grouped.cogroup(lambda key, order, total: total + 1).aggregate(lambda: 0)
