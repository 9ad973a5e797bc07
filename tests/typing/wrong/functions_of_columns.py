"""What compiling the topology would refuse: a checker does too, on each line that says `refused`."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream import JoinWindows, Materialized, Serdes, StreamsBuilder

builder = StreamsBuilder()
stream = builder.stream("orders")
table = builder.table("users")
cities = builder.global_table("cities")
grouped = stream.group_by_key()
windows = JoinWindows.of_time_difference_with_no_grace(timedelta(minutes=1))


def unannotated_third(key: Column, value: Column, record: Column) -> Column:
    return record.timestamp


def printed(value: Column) -> None:
    print(value)


# the number of parameters
stream.filter(lambda a, b, c, d: 3)  # refused
stream.filter(lambda: True)  # refused
stream.map_values(lambda a, b, c, d: a)  # refused
stream.select_key(lambda *, key: key)  # refused
stream.map_values(unannotated_third)  # refused
table.filter(lambda a, b, c, d: a)  # refused
stream.join(table, lambda value: value)  # refused
stream.join(cities, lambda key, value: key, lambda city: city)  # refused
stream.join(stream, lambda a, b, c, d: a, windows)  # refused
table.join(table, lambda value: value.id, lambda value: value)  # refused
grouped.aggregate(lambda: 0, lambda value: value)  # refused
grouped.aggregate(lambda start: 0, lambda key, value, total: total)  # refused
grouped.reduce(lambda key, value, total: total)  # refused
grouped.cogroup(lambda value, total: total)  # refused

# what it returns
stream.filter(lambda key, value: 3)  # refused
stream.filter(lambda value: "yes")  # refused
stream.filter(lambda value: {"a": value})  # refused
stream.filter(printed)  # refused
stream.map(lambda key, value: 3)  # refused
stream.map(lambda key, value: [key, value])  # refused
stream.map(lambda key, value: (key, value, value))  # refused
stream.map_values(lambda value: print(value))  # refused
stream.map_values(lambda value: None)  # refused
stream.map_values(lambda value: {1: value})  # refused
stream.map_values(lambda value: (value, value))  # refused
stream.map_values(lambda value: object())  # refused
stream.flat_map_values(lambda value: 3)  # refused
stream.flat_map(lambda value: [3])  # refused
stream.to(lambda value: 3)  # refused
table.group_by(lambda value: value)  # refused by pyright
table.filter(lambda value: 3)  # refused
stream.map_values(lambda value: value.name)  # refused by pyright: `name` is a method of Column
stream.map_values(lambda value: {"name": value.name})  # refused by pyright

# no function at all
stream.filter(F.lit(True))  # refused
stream.map_values("amount")  # refused
stream.join("users", lambda a, b: a)  # refused
stream.process(object)  # refused
grouped.count(Serdes.long())  # refused
grouped.aggregate(Materialized.as_("totals"))  # refused
